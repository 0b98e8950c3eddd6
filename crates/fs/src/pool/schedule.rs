//! When the enforcer walks by itself: once a day, inside the configured hours; and after a mount that did not end in order. What was
//! waiting for its move then, or was open for writing, waits for nothing now, and no close would come.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::{Pool, Walk};
use crate::control::protocol::Purpose;

/// How often the clock is looked at.
const TICK: Duration = Duration::from_millis(200);

impl Pool {
    /// The schedule's thread.
    pub(crate) fn run_schedule(self: &Arc<Self>) {
        if self.moves_left.load(Ordering::Relaxed) {
            self.move_what_was_left();
        }
        let Some(window) = self.spec.enforce.window else { return };
        let mut done_inside = false;
        while !self.stopping.load(Ordering::Relaxed) {
            std::thread::sleep(TICK);
            let inside = minute_of_day().is_some_and(|minute| is_inside(window, minute));
            if !inside {
                done_inside = false;
            } else if !done_inside {
                done_inside = true;
                self.walk_in(window);
            }
        }
    }

    /// Notes that the pool is in use, and whether the last mount left moves undone.
    pub(crate) fn begin_use(&self) {
        let left = self.state.begin_use().unwrap_or_else(|error| {
            tracing::warn!(%error, "files that wait for their move when the daemon is killed will wait for `umbrella enforce`");
            false
        });
        self.moves_left.store(left, Ordering::Relaxed);
    }

    /// Notes the end, unless moves are left. All threads have ended.
    pub(crate) fn end_use(&self) {
        if self.moves_left.load(Ordering::Relaxed) || self.mover.is_waiting() || self.revisits.is_due() {
            return;
        }
        if let Err(error) = self.state.end_use() {
            tracing::warn!(%error, "the next mount will look for moves that are left");
        }
    }

    /// Lets go of all branches: from now on another daemon may have them.
    pub(crate) fn close_branches(&self) {
        for branch in self.branches.load().iter() {
            branch.close();
        }
    }

    fn move_what_was_left(&self) {
        let walk = Walk { bandwidth: self.spec.enforce.bandwidth, purpose: Purpose::Recovery, ..Walk::default() };
        tracing::info!("the last mount did not end in order: the enforcer looks for files that wait for their move");
        // What is left from now on counts anew.
        self.moves_left.store(false, Ordering::Relaxed);
        let done = match self.enforce(walk, &mut |_| true) {
            Ok(summary) => {
                tracing::info!(?summary, "the enforcer ends its walk");
                !summary.stopped
            }
            Err(error) => {
                tracing::warn!(%error, "the enforcer's walk failed");
                false
            }
        };
        if !done {
            self.moves_left.store(true, Ordering::Relaxed);
        }
    }

    fn walk_in(&self, window: (u16, u16)) {
        let walk = Walk { bandwidth: self.spec.enforce.bandwidth, purpose: Purpose::Schedule, ..Walk::default() };
        tracing::info!("the enforcer begins its walk");
        // The hours over, the walk ends; the next one goes on with what is left.
        let walked = self.enforce(walk, &mut |_| minute_of_day().is_none_or(|minute| is_inside(window, minute)));
        match walked {
            Ok(summary) => tracing::info!(?summary, "the enforcer ends its walk"),
            Err(error) => tracing::warn!(%error, "the enforcer's walk failed"),
        }
    }

    /// Ends the pool's threads. A copy under way is dropped; a commit under way is finished.
    pub fn shut_down(&self) {
        self.stopping.store(true, Ordering::Relaxed);
        for node in self.nodes.snapshot() {
            if let Some(file) = node.file()
                && let Some(cancel) = &file.state.read().copying
            {
                cancel.store(true, Ordering::Relaxed);
            }
        }
        self.stop_mover();
        self.revisits.stop();
        self.ungovern_all();
        let hanging = self.hanging_branches();
        for branch in self.branches.load().iter() {
            if branch.is_online() && !hanging.contains(&branch.spec.name) {
                self.keep_numbers_of(branch);
            }
        }
    }
}

/// Whether a minute of the day lies in a window that may wrap around midnight.
fn is_inside((from, to): (u16, u16), minute: u16) -> bool {
    if from <= to { (from..to).contains(&minute) } else { minute >= from || minute < to }
}

/// Minutes after local midnight.
fn minute_of_day() -> Option<u16> {
    let now = crate::meta::now().secs;
    // SAFETY: localtime_r fills the struct it is given and keeps no reference; a zeroed tm is valid.
    let local = unsafe {
        let mut local: libc::tm = std::mem::zeroed();
        if libc::localtime_r(&raw const now, &raw mut local).is_null() {
            return None;
        }
        local
    };
    u16::try_from(local.tm_hour * 60 + local.tm_min).ok()
}

#[cfg(test)]
mod tests {
    use super::is_inside;

    #[test]
    fn a_window_may_wrap_around_midnight() {
        let (night, day) = ((23 * 60, 5 * 60), (2 * 60, 5 * 60));
        assert!(is_inside(night, 23 * 60 + 30) && is_inside(night, 60) && !is_inside(night, 12 * 60));
        assert!(is_inside(day, 3 * 60) && !is_inside(day, 60) && !is_inside(day, 5 * 60));
    }
}
