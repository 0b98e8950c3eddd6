//! `recency`: inactive pages only, the one used longest ago first.
//!
//! What systems do that look at time alone: pages in use would be dirty again at once. Source: TESA, II and IV-E.

use umbrella_units::{Nanos, Pages};

use super::super::event::DirtyPage;
use super::super::index::{DirtyIndex, Needs, Recency};
use super::super::policy::{Policy, PolicyInfo, SelectionTarget};

pub(in super::super) const INFO: PolicyInfo = PolicyInfo {
    name: "recency",
    summary: "inactive pages only, the one used longest ago first",
    source: "TESA, II and IV-E",
    params: &[],
    offline: false,
    keeps: "inactive pages in order of use",
    build: |_| Box::new(OldestFirst { recency: Recency::Uses, inactive_only: true }),
};

/// The oldest page first; shared with `lrw`.
pub(super) struct OldestFirst {
    pub(super) recency: Recency,
    pub(super) inactive_only: bool,
}

impl Policy for OldestFirst {
    fn needs(&self) -> Needs {
        Needs { inactive_only: self.inactive_only, recency: Some(self.recency), ..Needs::default() }
    }

    fn select(&mut self, _now: Nanos, want: Pages, index: &mut DirtyIndex, out: &mut Vec<DirtyPage>) {
        let goal = SelectionTarget::new(want, out);
        while !goal.is_met(out) && index.take_oldest(out) {}
    }
}
