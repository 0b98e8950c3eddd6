//! `wow`: write groups in circular block order; a group that was hit is passed over once.
//!
//! A write group is a fixed stretch of the disk. Its recency bit is clear when the group comes to hold dirty pages. A
//! write to a group that holds some already sets the bit, unless the write continues where the last one ended. The
//! pointer goes round: a group with a clear bit is written whole; a set bit is cleared and the group left for the next
//! round. The source's group is a stripe of the array; here it is a parameter. Source: Gill and Modha, FAST 2005,
//! section III, figure 4.

use umbrella_units::{BlockNo, Nanos, Pages};

use super::super::event::DirtyPage;
use super::super::index::{BlockNeeds, DirtyIndex, Needs, Segments, ZoneNeeds, ZoneOrder};
use super::super::policy::{Policy, PolicyInfo, SelectionTarget, Write};

pub(in super::super) const INFO: PolicyInfo = PolicyInfo {
    name: "wow",
    summary: "write groups in circular block order; a group that was hit since the last round waits for the next",
    source: "Gill and Modha, WOW, FAST 2005",
    params: &[super::group_param()],
    offline: false,
    keeps: "pages by block, a recency bit for each group",
    build: |values| Box::new(Wow { blocks: values.pages("group"), pointer: BlockNo(0), hits: Hits::default() }),
};

/// Tells hits from sequential writes; shared with `stow`.
#[derive(Default)]
pub(super) struct Hits {
    /// The block after the last written.
    next: BlockNo,
}

impl Hits {
    /// Takes note of a write: sets the bit of its group if it is a hit.
    pub(super) fn written(&mut self, write: Write, index: &mut DirtyIndex) {
        let sequential = write.block == self.next;
        self.next = write.block.next();
        if sequential {
            return;
        }
        if let Some(group) = index.zone_of(write.block)
            && (write.writes > 1 || group.pages > 1)
        {
            index.set_hit(group, true);
        }
    }
}

struct Wow {
    blocks: Pages,
    /// Where the next group is looked for.
    pointer: BlockNo,
    hits: Hits,
}

impl Policy for Wow {
    fn needs(&self) -> Needs {
        let zones = Some(ZoneNeeds { blocks: self.blocks.0, order: ZoneOrder::Unordered });
        Needs { blocks: Some(BlockNeeds { segments: Segments::InZones, zones }), ..Needs::default() }
    }

    fn select(&mut self, _now: Nanos, want: Pages, index: &mut DirtyIndex, out: &mut Vec<DirtyPage>) {
        let goal = SelectionTarget::new(want, out);
        while !goal.is_met(out) {
            let ahead = index.segment_from(self.pointer).or_else(|| index.segment_from(BlockNo(0)));
            let Some(group) = ahead.and_then(|segment| index.zone_of(segment.start)) else { return };
            self.pointer = BlockNo((group.number + 1).saturating_mul(self.blocks.0));
            if group.hit {
                index.set_hit(group, false);
            } else {
                index.take_zone(group, out);
            }
        }
    }

    fn written(&mut self, write: Write, index: &mut DirtyIndex) {
        self.hits.written(write, index);
    }
}
