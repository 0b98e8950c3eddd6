//! The thread that drains the log and puts the disk to sleep.
//!
//! It waits until something is due. While the disk sleeps, it does nothing until a drain is requested. While the disk
//! spins, it looks once a second, so that requests need not wake it.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use umbrella_units::Nanos;

use super::engine::{HybridShared, HybridState};
use super::error::HybridError;
use super::stats::Motion;
use crate::error::{BlockError, Operation};

/// How long after a drain that failed the next is tried. Until then a full log refuses writes.
pub(super) const RETRY: Duration = Duration::from_secs(30);
/// How often it looks while the disk spins.
const LOOK: Duration = Duration::from_secs(1);

/// What is due.
enum Due {
    Drain,
    Sleep,
    /// See [`super::marks`].
    Mark,
    Wait(Option<Instant>),
}

impl HybridShared {
    /// Starts the thread.
    pub(super) fn start_keeper(self: Arc<HybridShared>) -> Result<JoinHandle<()>, HybridError> {
        let name = self.disk.name.as_str().into();
        std::thread::Builder::new()
            .name("hybrid-keeper".to_owned())
            .spawn(move || self.run())
            .map_err(|source| BlockError::io(&name, Operation::Open, None, source).into())
    }

    fn run(&self) {
        let mut state = self.state.lock();
        while !state.closing {
            match self.due(&mut state, Instant::now()) {
                Due::Wait(None) => self.keeper.wait(&mut state),
                Due::Wait(Some(until)) => drop(self.keeper.wait_until(&mut state, until)),
                Due::Mark => self.write_due_mark(&mut state),
                Due::Drain => {
                    drop(state);
                    // It has been logged, and is part of the status.
                    let _ = self.drain();
                    state = self.state.lock();
                }
                Due::Sleep => {
                    drop(state);
                    let slept = self.sleep();
                    state = self.state.lock();
                    if let Err(error) = slept {
                        tracing::error!(%error, "cannot put the disk to sleep");
                        state.sleep_at = None;
                    }
                }
            }
        }
    }

    fn due(&self, state: &mut HybridState, now: Instant) -> Due {
        if state.poisoned.is_some() {
            return Due::Wait(None);
        }
        let mark_at = state.marks.due_at(state.durable);
        if mark_at.is_some_and(|at| at <= now) {
            return Due::Mark;
        }
        let sooner = |at: Option<Instant>| at.into_iter().chain(mark_at).min();
        let failed = state.drain_failure.as_ref().map(|(at, _)| *at + RETRY).filter(|retry| *retry > now);
        let spins = state.disk == Motion::Spinning;
        let sleep_at = state.sleep_at.filter(|_| spins && !state.held_awake && state.is_idle());
        let (last_access, fill) = (state.after_opening(state.last_access), state.log.fill());
        let sleeps_at = sleep_at.map(|at| state.after_opening(at));
        if spins && self.options.flushes_at_rest(state.after_opening(now), last_access, sleeps_at, fill) {
            state.drain_wanted = true;
        }
        if state.drain_wanted && !state.draining {
            return match failed {
                Some(retry) => Due::Wait(sooner(Some(retry))),
                None => Due::Drain,
            };
        }
        if sleep_at.is_some_and(|at| at <= now) && !state.draining {
            return Due::Sleep;
        }
        let quiet_at = self.options.quiet_at(last_access, fill).and_then(|at| state.instant(at));
        Due::Wait(sooner(spins.then(|| {
            let next = state.sleep_at.into_iter().chain(quiet_at.filter(|at| *at > now)).min();
            next.map_or(now + LOOK, |next| next.clamp(now + Duration::from_millis(10), now + LOOK))
        })))
    }
}

impl HybridState {
    /// Whether no request waits for the disk.
    fn is_idle(&self) -> bool {
        self.direct_reads == 0 && self.direct_writes.is_empty()
    }

    /// Notes that the disk itself is needed.
    pub(super) fn disk_needed(&mut self) {
        if self.is_idle()
            && let Some(spin_down) = &mut self.spin_down
        {
            let now = Instant::now();
            spin_down.accessed(nanos(now - self.opened));
            self.sleep_at = None;
        }
    }

    /// The disk may have nothing more to do.
    pub(super) fn disk_done(&mut self) {
        if self.is_idle()
            && let Some(spin_down) = &mut self.spin_down
        {
            let deadline = spin_down.idle(nanos(self.opened.elapsed()));
            self.sleep_at = deadline.and_then(|at| self.instant(at));
        }
    }

    /// A moment, as the policies count time.
    fn after_opening(&self, moment: Instant) -> Nanos {
        nanos(moment.saturating_duration_since(self.opened))
    }

    fn instant(&self, time: Nanos) -> Option<Instant> {
        self.opened.checked_add(Duration::from_nanos(time.0))
    }
}

pub(super) fn nanos(time: Duration) -> Nanos {
    Nanos(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
}
