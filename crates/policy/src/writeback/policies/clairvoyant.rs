//! `clairvoyant`: the page with the longest time to its next write first, those that are never written again before
//! all; on a tie the lower block. Offline: it must know the future.
//!
//! Belady's rule, applied to writes. A yardstick for others, not a bound: it cannot keep pages that a batch or the
//! expiry takes. Source: UmbrellaFS, chapter V, optimality, figures 40 and 41.

use umbrella_units::{Nanos, Pages};

use super::super::event::DirtyPage;
use super::super::index::{DirtyIndex, Needs};
use super::super::policy::{PageTimes, Policy, PolicyInfo, SelectionTarget};

pub(in super::super) const INFO: PolicyInfo = PolicyInfo {
    name: "clairvoyant",
    summary: "the page with the longest time to its next write first (needs the future)",
    source: "UmbrellaFS, chapter V, optimality",
    params: &[],
    offline: true,
    keeps: "pages by the time of their next write",
    build: |_| Box::new(Clairvoyant),
};

struct Clairvoyant;

impl Policy for Clairvoyant {
    fn needs(&self) -> Needs {
        Needs { ranks: true, ..Needs::default() }
    }

    fn select(&mut self, _now: Nanos, want: Pages, index: &mut DirtyIndex, out: &mut Vec<DirtyPage>) {
        let goal = SelectionTarget::new(want, out);
        while !goal.is_met(out) && index.take_highest(out) {}
    }

    fn rank(&self, times: PageTimes) -> u64 {
        times.next.0
    }
}
