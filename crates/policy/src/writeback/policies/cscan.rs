//! `cscan`: ascending block order from where the last selection ended, and from the beginning again after the last
//! block.
//!
//! The baseline that knows where pages lie and nothing else: the circular elevator over all of the page cache.

use umbrella_units::{BlockNo, Extent, Nanos, Pages};

use super::super::event::DirtyPage;
use super::super::index::{BlockNeeds, DirtyIndex, Needs, Segments};
use super::super::policy::{Policy, PolicyInfo, SelectionTarget};

pub(in super::super) const INFO: PolicyInfo = PolicyInfo {
    name: "cscan",
    summary: "ascending block order from the last written block, around and around",
    source: "circular elevator (Seaman, Lind and Wilson, IBM Systems Journal 1966), over all dirty pages",
    params: &[],
    offline: false,
    keeps: "pages by block",
    build: |_| Box::new(Cscan { head: BlockNo(0) }),
};

struct Cscan {
    /// The block after the last that was selected.
    head: BlockNo,
}

impl Policy for Cscan {
    fn needs(&self) -> Needs {
        Needs { blocks: Some(BlockNeeds { segments: Segments::Whole, zones: None }), ..Needs::default() }
    }

    fn select(&mut self, _now: Nanos, want: Pages, index: &mut DirtyIndex, out: &mut Vec<DirtyPage>) {
        let goal = SelectionTarget::new(want, out);
        while !goal.is_met(out) {
            let ahead = index.segment_at_or_after(self.head).or_else(|| index.segment_from(BlockNo(0)));
            let Some(segment) = ahead else { return };
            let start = if segment.end() > self.head { segment.start.max(self.head) } else { segment.start };
            let most = if index.has_shared_blocks() { 1 } else { goal.left(out).0 };
            let blocks = (segment.end().0 - start.0).min(most);
            index.take_blocks(Extent { start, blocks }, out);
            self.head = BlockNo(start.0 + blocks);
        }
    }
}
