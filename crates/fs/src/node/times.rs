//! Modification times that are put back without undoing what users change.
//!
//! To users nothing changes in a directory when one of its files moves to another branch, or when a copy of a directory
//! is made in it. So the daemon looks at the modification time of the directory's copy, changes the copy, and sets that
//! time again. A user may change the copy in between, and their change must show:
//!
//! 1. The daemon holds [`TimesGuard`] from its look until it has set the time.
//! 2. A user's change ([`DirTimes::changing`]) is made without a lock. Afterwards it is seen whether the daemon was at
//!    1 meanwhile.
//! 3. If so, the user waits for it, and gives the copy the time once more.
//!
//! A look at the times that met step 1 is made once more while no thread is at it, so that no caller sees the time in
//! between.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::fs::{Timespec, Timestamps, UTIME_NOW, UTIME_OMIT};

use super::NodeId;
use crate::error::OpResult;
use crate::ground::locks::{RankedMutex, RankedMutexGuard, rank};

/// What making or removing an entry does to a directory's times.
pub(crate) const ENTRIES_CHANGED: Timestamps = Timestamps {
    last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
    last_modification: Timespec { tv_sec: 0, tv_nsec: UTIME_NOW },
};

/// How long a look at times waits for a time that is being put back.
const LOOK_TIMEOUT: Duration = Duration::from_millis(100);

/// See the module.
pub(crate) struct DirTimes {
    /// Odd while a thread is at step 1.
    rounds: AtomicU64,
    /// Held by them.
    keeper: RankedMutex<rank::DirTimes, ()>,
}

/// How it was before a look at the times.
pub(crate) struct TimesSnapshot {
    rounds: u64,
}

/// While it lives, no time that a user gives the directory is lost.
pub(crate) struct TimesGuard<'a> {
    times: &'a DirTimes,
    _alone: RankedMutexGuard<'a, ()>,
}

impl DirTimes {
    pub(crate) fn new(dir: NodeId) -> DirTimes {
        DirTimes { rounds: AtomicU64::new(0), keeper: RankedMutex::keyed(dir.0, ()) }
    }

    /// Begins step 1. `None`: another thread holds it for longer than `lock_timeout`.
    pub(crate) fn keep(&self, lock_timeout: Option<Duration>) -> Option<TimesGuard<'_>> {
        let alone = match lock_timeout {
            Some(lock_timeout) => self.keeper.try_lock_for(lock_timeout)?,
            None => self.keeper.lock(),
        };
        self.rounds.fetch_add(1, Ordering::SeqCst);
        Some(TimesGuard { times: self, _alone: alone })
    }

    /// Before a look at the times.
    pub(crate) fn snapshot(&self) -> TimesSnapshot {
        TimesSnapshot { rounds: self.rounds.load(Ordering::SeqCst) }
    }

    /// Whether a thread was at step 1 during the snapshot.
    pub(crate) fn was_kept(&self, look: &TimesSnapshot) -> bool {
        look.rounds % 2 == 1 || self.rounds.load(Ordering::SeqCst) != look.rounds
    }

    /// While this lives no thread is at step 1. `None`: one has been for long, as where a branch hangs.
    pub(crate) fn freeze(&self) -> Option<RankedMutexGuard<'_, ()>> {
        self.keeper.try_lock_for(LOOK_TIMEOUT)
    }

    /// Makes a user's change; `again` sets the times that it gave.
    ///
    /// Cost: two loads, where no time is put back meanwhile.
    pub(crate) fn changing<T>(
        &self,
        change: impl FnOnce() -> OpResult<T>,
        again: impl FnOnce() -> OpResult<()>,
    ) -> OpResult<T> {
        let before = self.rounds.load(Ordering::SeqCst);
        let done = change()?;
        if before % 2 == 1 || self.rounds.load(Ordering::SeqCst) != before {
            let _alone = self.keeper.lock();
            // The change itself is made.
            let _cosmetic = again();
        }
        Ok(done)
    }
}

impl Drop for TimesGuard<'_> {
    fn drop(&mut self) {
        self.times.rounds.fetch_add(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_is_made_once_more_where_a_time_was_put_back_meanwhile() {
        let times = DirTimes::new(NodeId::ROOT);
        let before = times.snapshot();
        assert!(!times.was_kept(&before));
        let keeping = times.keep(None);
        assert!(times.was_kept(&before) && times.was_kept(&times.snapshot()), "it is being put back");
        let of_another = || std::thread::scope(|scope| scope.spawn(|| times.freeze().is_some()).join().unwrap());
        assert!(!of_another());
        drop(keeping);
        assert!(times.was_kept(&before), "it was put back");
        let still = times.freeze();
        assert!(still.is_some() && !times.was_kept(&times.snapshot()));
    }
}
