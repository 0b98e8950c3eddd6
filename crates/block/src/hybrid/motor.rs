//! Waking the disk, and putting it to sleep: the steps at the head of [`super`].

use std::time::Instant;

use parking_lot::MutexGuard;
use umbrella_policy::flash_cache::Moment;

use super::engine::{HybridShared, HybridState};
use super::error::HybridError;
use super::stats::Motion;
use crate::error::{BlockError, Operation};

impl HybridShared {
    /// Returns with the disk spinning.
    pub(super) fn wake(&self, state: &mut MutexGuard<'_, HybridState>) -> Result<(), BlockError> {
        loop {
            match state.disk {
                Motion::Spinning => return Ok(()),
                Motion::Stopping | Motion::Starting => self.spun.wait(state),
                Motion::Asleep => {
                    state.disk = Motion::Starting;
                    let woken = MutexGuard::unlocked(state, || self.spindle.wake());
                    state.disk = if woken.is_ok() { Motion::Spinning } else { Motion::Asleep };
                    if woken.is_ok() {
                        if let Some(since) = state.slept_since.take() {
                            state.counts.asleep += since.elapsed();
                        }
                        state.counts.spin_ups += 1;
                        if let (Some(spin_down), Some(costs)) = (&mut state.spin_down, self.spindle.costs()) {
                            spin_down.set_costs(costs);
                        }
                        self.request_drain_if_due(state, Moment::SpunUp);
                        // While the disk slept there was nothing to look at.
                        self.keeper.notify_all();
                    }
                    self.spun.notify_all();
                    self.room.notify_all();
                    return woken;
                }
            }
        }
    }

    /// Puts the disk to sleep; see the steps at the head of the module.
    pub(super) fn sleep(&self) -> Result<(), HybridError> {
        let mut state = self.state.lock();
        if state.disk != Motion::Spinning || state.draining {
            return Ok(());
        }
        state.disk = Motion::Stopping;
        while state.direct_reads > 0 || !state.direct_writes.is_empty() {
            self.room.wait(&mut state);
        }
        let (done, unflushed) = (state.direct_done, state.direct_done > state.direct_flushed);
        let slept = MutexGuard::unlocked(&mut state, || {
            if unflushed {
                self.disk.device.flush()?;
            }
            Ok(())
        });
        let slept = slept.map_err(|error| {
            self.poison(&mut state, &self.disk, Operation::Flush, &error);
            error.into()
        });
        let slept = slept.and_then(|()| {
            state.direct_flushed = done;
            self.note_head(&mut state)?;
            Ok(MutexGuard::unlocked(&mut state, || self.spindle.standby())?)
        });
        match &slept {
            Ok(()) => {
                state.disk = Motion::Asleep;
                state.slept_since = Some(Instant::now());
                state.counts.spin_downs += 1;
            }
            Err(_) => state.disk = Motion::Spinning,
        }
        self.spun.notify_all();
        slept
    }
}
