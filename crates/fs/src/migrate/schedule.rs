//! When the enforcer walks by itself: once a day, inside the configured hours; and after a mount that did not end in
//! order. What was waiting for its move then, or was open for writing, waits for nothing now, and no close would come.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};

use umbrella_policy::schedule::{Schedule, Weekday};

use crate::control::protocol::Purpose;
use crate::ground::advice::advised;
use crate::migrate::{Migrations, WalkOptions};
use crate::warning::Warning;

const A_MINUTE: Timespec = Timespec { tv_sec: 60, tv_nsec: 0 };

impl Migrations {
    /// The schedule's thread.
    pub(crate) fn run_schedule(self: &Arc<Self>) {
        if self.moves_left.load(Ordering::Relaxed) {
            self.move_leftovers();
        }
        let mut done_inside = false;
        while !self.context.is_stopping() {
            self.context.note_reload();
            let inside = self.hours_are_open().unwrap_or(false);
            if !inside {
                done_inside = false;
            } else if !done_inside {
                done_inside = true;
                self.walk_in_scheduled_hours();
            }
            self.wait_for_scheduled_hours();
        }
    }

    /// Sleeps until the window begins or ends, the clock is set, the configuration is reloaded, or the pool ends.
    fn wait_for_scheduled_hours(&self) {
        let hours = self.context.settings().enforce.window.clone();
        let timer = (!hours.is_empty()).then(|| timer(next_change(&hours)));
        let timer = timer.transpose().inspect_err(|error| tracing::debug!(%error, "no timer"));
        // Without a timer the clock is looked at once a minute.
        let timeout = timer.is_err().then_some(&A_MINUTE);
        let timer = timer.ok().flatten();
        let fds = [Some(self.context.ends()), Some(self.context.reloads()), timer.as_ref().map(AsFd::as_fd)];
        let fds = fds.into_iter().flatten();
        let mut fds: Vec<_> = fds.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        let _interrupted = poll(&mut fds, timeout);
    }

    /// Whether the configured hours are open now; `None` when the local time is not known.
    fn hours_are_open(&self) -> Option<bool> {
        is_open(&self.context.settings().enforce.window)
    }

    /// Notes that the pool is in use, and whether the last mount left moves undone.
    pub(crate) fn begin_use(&self) {
        let left = self.context.state.begin_use().unwrap_or_else(|error| {
            tracing::warn!("{}", advised(&Warning::MovesUnnoted { why: error.to_string() }));
            false
        });
        self.moves_left.store(left, Ordering::Relaxed);
    }

    /// Notes the end, unless moves are left. All threads have ended.
    pub(crate) fn end_use(&self) {
        if self.moves_left.load(Ordering::Relaxed) || self.mover.is_waiting() || self.revisits.is_due() {
            return;
        }
        if let Err(error) = self.context.state.end_use() {
            tracing::warn!(%error, "cannot record a clean end: the next mount looks for files that wait for their move");
        }
    }

    fn move_leftovers(&self) {
        let walk = WalkOptions {
            bandwidth: self.context.settings().enforce.bandwidth,
            purpose: Purpose::Recovery,
            ..WalkOptions::default()
        };
        tracing::info!("the last mount did not end in order: the enforcer looks for files that wait for their move");
        // What is left from now on counts anew.
        self.moves_left.store(false, Ordering::Relaxed);
        let summary = self.enforce(walk, &mut |_| true);
        tracing::info!("the enforcer has finished its walk: {summary}");
        if summary.stopped {
            self.moves_left.store(true, Ordering::Relaxed);
        }
    }

    fn walk_in_scheduled_hours(&self) {
        let walk = WalkOptions {
            bandwidth: self.context.settings().enforce.bandwidth,
            purpose: Purpose::Schedule,
            ..WalkOptions::default()
        };
        tracing::info!("the enforcer begins its walk");
        // The hours over, the walk ends; the next one goes on with what is left.
        let summary = self.enforce(walk, &mut |_| self.hours_are_open().unwrap_or(true));
        tracing::info!("the enforcer has finished its walk: {summary}");
    }
}

/// Whether the hours are open now; `None` when the local time is not known.
pub(super) fn is_open(hours: &Schedule) -> Option<bool> {
    let local = local_time(crate::ground::meta::now().secs)?;
    let minute = u16::try_from(local.tm_hour * 60 + local.tm_min).ok()?;
    // The C library counts days from Sunday.
    let day = Weekday::from_monday(u32::try_from(local.tm_wday).ok()? + 6);
    Some(hours.contains(day, minute))
}

fn local_time(secs: i64) -> Option<libc::tm> {
    // SAFETY: localtime_r fills the struct it is given and keeps no reference; a zeroed tm is valid.
    unsafe {
        let mut local: libc::tm = std::mem::zeroed();
        let filled = libc::localtime_r(&raw const secs, &raw mut local);
        (!filled.is_null()).then_some(local)
    }
}

/// When a window may begin or end next, in seconds since the epoch.
pub(super) fn next_change(hours: &Schedule) -> i64 {
    const DAY: i64 = 24 * 60 * 60;
    let now = crate::ground::meta::now().secs;
    let changes = hours.changes().flat_map(|minute| [0, 1].map(|days| at_minute(now, minute, days)));
    changes.flatten().filter(|change| *change > now).min().unwrap_or(now + DAY)
}

/// The second in which a minute of the day begins, `days` days after today. Days are not equally long.
fn at_minute(now: i64, minute: u16, days: i32) -> Option<i64> {
    let mut local = local_time(now)?;
    local.tm_mday += days;
    (local.tm_hour, local.tm_min, local.tm_sec) = (i32::from(minute / 60), i32::from(minute % 60), 0);
    local.tm_isdst = -1;
    // SAFETY: mktime reads and completes the struct it is given, and keeps no reference.
    let at = unsafe { libc::mktime(&raw mut local) };
    (at != -1).then_some(at)
}

/// Can be read from at that time of the clock, or when the clock is set.
fn timer(at: i64) -> rustix::io::Result<OwnedFd> {
    let timer = timerfd_create(TimerfdClockId::Realtime, TimerfdFlags::CLOEXEC)?;
    let never = Timespec { tv_sec: 0, tv_nsec: 0 };
    let once = Itimerspec { it_interval: never, it_value: Timespec { tv_sec: at, tv_nsec: 0 } };
    timerfd_settime(&timer, TimerfdTimerFlags::ABSTIME | TimerfdTimerFlags::CANCEL_ON_SET, &once)?;
    Ok(timer)
}

#[cfg(test)]
mod tests {
    use umbrella_policy::schedule::Schedule;

    use super::{is_open, local_time, next_change};

    fn schedule(text: &str) -> Schedule {
        Schedule(vec![text.parse().unwrap()])
    }

    #[test]
    fn the_next_change_is_the_first_time_that_the_clock_shows_an_end_of_a_window() {
        let now = crate::ground::meta::now().secs;
        for window in ["00:00-00:01", "Sat 02:00-05:00", "23:00-05:00", "23:59-24:00"] {
            let change = next_change(&schedule(window));
            // Days have up to 25 hours.
            assert!(change > now && change <= now + 25 * 60 * 60 && change % 60 == 0, "{window}: {change} after {now}");
        }
    }

    #[test]
    fn a_window_around_this_hour_is_open_today_and_closed_on_the_other_days() {
        let days = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"];
        let now = crate::ground::meta::now().secs;
        let today = usize::try_from(local_time(now).unwrap().tm_wday).unwrap();
        let open = |day: usize| is_open(&schedule(&format!("{} 00:00-24:00", days[day % 7]))).unwrap();
        let found: Vec<bool> = (0..7).map(|after| open(today + after)).collect();
        // Midnight may pass meanwhile.
        let tomorrow = usize::try_from(local_time(crate::ground::meta::now().secs).unwrap().tm_wday).unwrap();
        assert!(tomorrow != today || found == [true, false, false, false, false, false, false], "{found:?}");
    }
}
