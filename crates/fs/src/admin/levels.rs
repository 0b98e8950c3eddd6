//! When fill levels are looked at: every few seconds while the pool is used or a file is open for writing past the
//! daemon, and when their hours begin. In an idle pool the thread sleeps.

use std::time::{Duration, Instant};

use umbrella_policy::placement::{Evict, FileFacts, Leaving, Resident, Urgency};

use crate::admin::Admin;
use crate::placement::{ActiveRules, Views};

/// A level is noticed in this time.
const EVERY: Duration = Duration::from_secs(5);
/// Longer than any wait.
const A_DAY: Duration = Duration::from_secs(24 * 60 * 60);

impl Admin {
    /// The thread.
    pub(crate) fn run_fill_levels(&self) {
        while !self.context.is_stopping() {
            let in_use = self.branches.levels.take() || self.branches.any_written_past_daemon();
            // Also in an idle pool: others may have written while it was not mounted.
            let goes_on = self.migrate.enforce_fill_levels(in_use);
            let before = |wait| goes_on.map_or(Instant::now() + wait, |at| at.min(Instant::now() + wait));
            if !self.migrate.has_levels() {
                // Use of the tree is nothing to wake up for: new rules call.
                self.branches.levels.wait_until(before(A_DAY));
            } else if in_use {
                // What goes on now is looked at once more then.
                self.branches.levels.wait_until(before(EVERY));
            } else {
                self.branches.levels.sleep_until(before(A_DAY));
            }
        }
    }

    /// What the fill levels of a file's branch mean for it, for `explain`.
    pub(super) fn explain_fill_levels(
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
