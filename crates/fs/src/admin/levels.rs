//! When fill levels are looked at: every few seconds while the pool is in use, and when their hours begin. A pool that
//! nobody uses sleeps.

use std::time::{Duration, Instant};

use umbrella_policy::placement::{Evict, FileFacts, Leaving, Resident, Urgency};

use crate::admin::Admin;
use crate::placement::{ActiveRules, Views};

/// A level is noticed in this time.
const EVERY: Duration = Duration::from_secs(5);
/// After this time without any use of the tree, levels are not looked at until somebody uses it.
const REST: Duration = Duration::from_secs(60);
/// Longer than any wait.
const A_DAY: Duration = Duration::from_secs(24 * 60 * 60);

impl Admin {
    /// The thread.
    pub(crate) fn run_fill_levels(&self) {
        // Others may have written while the pool was not mounted.
        let mut used = Instant::now();
        while !self.context.is_stopping() {
            if self.branches.levels.take() || self.io.has_open_handles() {
                used = Instant::now();
            }
            let goes_on = self.migrate.keep_levels();
            let before = |next: Instant| goes_on.map_or(next, |at| at.min(next));
            if !self.migrate.has_levels() {
                // Use of the tree is nothing to wake up for: new rules call.
                self.branches.levels.wait_until(before(Instant::now() + A_DAY));
            } else if used.elapsed() < REST {
                self.branches.levels.wait_until(before(Instant::now() + EVERY));
            } else {
                self.branches.levels.sleep_until(before(Instant::now() + A_DAY));
            }
        }
    }

    /// What the fill levels of a file's branch mean for it, for `explain`.
    pub(super) fn what_levels_mean(
        &self,
        active: &ActiveRules,
        facts: &FileFacts<'_>,
        views: &Views,
        resident: &Resident,
    ) -> Vec<String> {
        let rules = &active.rules;
        let means = |evict: &Evict| {
            let hours: Vec<String> = evict.window.0.iter().map(ToString::to_string).collect();
            let hours = if hours.is_empty() { String::new() } else { format!(", in the hours {}", hours.join(", ")) };
            let when = format!("above {} of {:?}{hours} (evict)", evict.above, evict.of);
            if !rules.is_evictable(evict, facts, views) {
                return format!("it does not leave {when}: it is too young, or `only` excludes it");
            }
            match rules.leaving((evict, Urgency::Level), facts, views, resident, &self.placement.around(active)) {
                Leaving::To(branch) => format!("it may leave for {} {when}", self.placement.branch_name(branch)),
                Leaving::Held => format!("it may leave {when} once min_stay is over"),
                Leaving::NoRoom => format!("it may leave {when}, but finds no room now"),
                Leaving::Nowhere => format!("it may not leave {when}: its list names no other branch for it"),
            }
        };
        rules.evicts().iter().filter(|evict| evict.members.contains(&resident.branch)).map(means).collect()
    }
}
