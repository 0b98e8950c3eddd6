//! `segment`: the longest run of dirty blocks, whole; on a tie the lowest block. Inactive pages only.
//!
//! What TESA compares itself with: long runs cost few positionings, and pages in use are left alone, as in DULO.
//! Source: TESA, II and IV-E; Jiang et al., DULO, FAST 2005.

use umbrella_units::{Nanos, Pages};

use super::super::event::DirtyPage;
use super::super::index::{BlockNeeds, DirtyIndex, Needs, Segments};
use super::super::policy::{Policy, PolicyInfo, SelectionTarget};

pub(in super::super) const INFO: PolicyInfo = PolicyInfo {
    name: "segment",
    summary: "the longest run of inactive dirty blocks, run by run (like DULO)",
    source: "TESA, II and IV-E; Jiang et al., DULO, FAST 2005",
    params: &[],
    offline: false,
    keeps: "inactive pages by block, runs by length",
    build: |_| Box::new(LongestSegment { inactive_only: true }),
};

/// The longest segment first; shared with `wasl_segment`.
pub(super) struct LongestSegment {
    pub(super) inactive_only: bool,
}

impl Policy for LongestSegment {
    fn needs(&self) -> Needs {
        let blocks = Some(BlockNeeds { segments: Segments::Whole, zones: None });
        Needs { inactive_only: self.inactive_only, blocks, ..Needs::default() }
    }

    fn select(&mut self, _now: Nanos, want: Pages, index: &mut DirtyIndex, out: &mut Vec<DirtyPage>) {
        let goal = SelectionTarget::new(want, out);
        while !goal.is_met(out) {
            let Some(segment) = index.longest_segment() else { return };
            index.take_blocks(segment, out);
        }
    }
}
