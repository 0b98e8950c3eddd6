//! `write_minimal`: first the pages that will not be written again within the window in which they may stay dirty, the
//! one dirty longest first. Then the page with the longest time to its next write. Offline: it needs the future.
//!
//! The rule is that a page reaches the disk 30 s after it became dirty. Under it a rewrite inside these 30 s costs
//! nothing, and a later one costs a write whatever is done. So the first pages can be written now without writing more
//! than the rule itself does; of the others, those that lose least. The place on disk is not looked at, which is what
//! the source observes of it.
//!
//! Source: UmbrellaFS, chapter V, optimality, figure 41. There the policy waits for the end of the window. Here a fixed
//! number of pages is wanted now, so the future has to be known.

use umbrella_units::{Nanos, Pages};

use super::super::event::DirtyPage;
use super::super::index::{Age, DirtyIndex, Needs};
use super::super::policy::{PageTimes, Policy, PolicyInfo, SelectionTarget};
use crate::param_info::{ParamInfo, ParamKind};

pub(in super::super) const INFO: PolicyInfo = PolicyInfo {
    name: "write_minimal",
    summary: "pages not written again within the window first (needs the future)",
    source: "UmbrellaFS, chapter V, optimality",
    params: &[ParamInfo {
        name: "window",
        kind: ParamKind::Duration,
        default: "30s",
        min: "1ms",
        max: "1d",
        help: "how long a page may stay dirty",
    }],
    offline: true,
    keeps: "pages by whether and when they are written again",
    build: |values| Box::new(WriteMinimal { window: values.duration("window") }),
};

struct WriteMinimal {
    window: Nanos,
}

/// Ranks from here on are of pages that are not written again within the window.
const FREE: u64 = 1 << 63;

impl Policy for WriteMinimal {
    fn needs(&self) -> Needs {
        Needs { ranks: true, age: Age::FirstWrite, ..Needs::default() }
    }

    fn select(&mut self, _now: Nanos, want: Pages, index: &mut DirtyIndex, out: &mut Vec<DirtyPage>) {
        let goal = SelectionTarget::new(want, out);
        while !goal.is_met(out) && index.take_highest(out) {}
    }

    fn rank(&self, times: PageTimes) -> u64 {
        if times.next > times.since + self.window {
            FREE + (FREE - 1).saturating_sub(times.since.0)
        } else {
            times.next.0.min(FREE - 1)
        }
    }
}
