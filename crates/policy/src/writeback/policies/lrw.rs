//! `lrw`: the page written longest ago first.
//!
//! The classic baseline of write caches: time alone, all pages. Source: Gill and Modha, FAST 2005, section II.

use umbrella_units::{Nanos, Pages};

use super::super::event::DirtyPage;
use super::super::index::{DirtyIndex, Needs, Recency};
use super::super::policy::{Policy, PolicyInfo, SelectionTarget};

pub(in super::super) const INFO: PolicyInfo = PolicyInfo {
    name: "lrw",
    summary: "the page written longest ago first",
    source: "Gill and Modha, WOW, FAST 2005 (least recently written)",
    params: &[],
    offline: false,
    keeps: "pages in order of their last write",
    build: |_| Box::new(LeastRecentlyWritten),
};

struct LeastRecentlyWritten;

impl Policy for LeastRecentlyWritten {
    fn needs(&self) -> Needs {
        Needs { recency: Some(Recency::Writes), ..Needs::default() }
    }

    fn select(&mut self, _now: Nanos, want: Pages, index: &mut DirtyIndex, out: &mut Vec<DirtyPage>) {
        let goal = SelectionTarget::new(want, out);
        while !goal.is_met(out) && index.take_oldest(out) {}
    }
}
