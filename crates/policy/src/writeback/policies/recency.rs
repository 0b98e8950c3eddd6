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
    build: |_| Box::new(LeastRecent),
};

struct LeastRecent;

impl Policy for LeastRecent {
    fn needs(&self) -> Needs {
        Needs { inactive_only: true, recency: Some(Recency::Uses), ..Needs::default() }
    }

    fn select(&mut self, _now: Nanos, want: Pages, index: &mut DirtyIndex, out: &mut Vec<DirtyPage>) {
        let goal = SelectionTarget::new(want, out);
        while !goal.is_met(out) && index.take_oldest(out) {}
    }
}
