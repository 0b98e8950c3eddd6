//! Modification times that are put back without undoing what users change.
//!
//! To users nothing changes in a directory when one of its files moves to another branch, or when a copy of a directory is made in it. So the daemon
//! looks at the modification time of the directory's copy, changes the copy, and sets that time again. A user may change the copy in between, and
//! their change must show:
//!
//! 1. The daemon holds [`Keeping`] from its look until it has set the time.
//! 2. A user's change ([`DirTimes::changing`]) is made without a lock. Afterwards it is seen whether the daemon was at 1 meanwhile.
//! 3. If so, the user waits for it, and gives the copy the time once more.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use rustix::fs::{Timespec, Timestamps, UTIME_NOW, UTIME_OMIT};

use super::Node;
use crate::at::DirAt;
use crate::error::OpResult;
use crate::kernel_cache::KernelCache;

/// What making or removing an entry does to a directory's times.
const ENTRIES_CHANGED: Timestamps = Timestamps {
    last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
    last_modification: Timespec { tv_sec: 0, tv_nsec: UTIME_NOW },
};

/// See the module.
#[derive(Default)]
pub(crate) struct DirTimes {
    /// Odd while somebody is at step 1.
    rounds: AtomicU64,
    /// Held by them. Of other locks only the `state` of directories is taken while it is held.
    keeper: Mutex<()>,
}

/// While it lives, no time that a user gives the directory is lost.
pub(crate) struct Keeping<'a> {
    times: &'a DirTimes,
    _alone: MutexGuard<'a, ()>,
}

impl DirTimes {
    /// Begins step 1. `None`: somebody else is at it for longer than `patience`.
    pub(crate) fn keep(&self, patience: Option<Duration>) -> Option<Keeping<'_>> {
        let alone = match patience {
            Some(patience) => self.keeper.try_lock_for(patience)?,
            None => self.keeper.lock(),
        };
        self.rounds.fetch_add(1, Ordering::SeqCst);
        Some(Keeping { times: self, _alone: alone })
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

impl Drop for Keeping<'_> {
    fn drop(&mut self) {
        self.times.rounds.fetch_add(1, Ordering::SeqCst);
    }
}

impl Node {
    /// Changes entries of this directory's copy for a user.
    pub(crate) fn change_entries<T>(&self, copy: &DirAt, change: impl FnOnce() -> OpResult<T>) -> OpResult<T> {
        match self.dir() {
            Some(dir) => dir.times.changing(change, || copy.as_file().set_times(ENTRIES_CHANGED, KernelCache::REPLIED)),
            None => change(),
        }
    }
}
