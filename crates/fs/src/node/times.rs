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
//! A look at the times that met step 1 is made once more while nobody is at it, so that nobody sees the time in
//! between.
//!
//! The reply to a look may reach the kernel after that to a change which the look did not see, and the kernel would
//! keep what is old. It takes no reply to a request from before its attributes were dropped. So a change drops them if
//! another thread looked since the last change: that thread's reply may be on its way. Those of the thread that makes
//! the change have arrived, else it would have no other request.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
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
const LOOK_PATIENCE: Duration = Duration::from_millis(100);

/// Who looked: nobody, a thread by its number, or several.
const NOBODY: u32 = 0;
const SEVERAL: u32 = u32::MAX;

thread_local! {
    /// The number of this thread among those that looked.
    static THREAD: u32 = {
        static LAST: AtomicU32 = AtomicU32::new(NOBODY);
        LAST.fetch_add(1, Ordering::Relaxed).wrapping_add(1)
    };
}

/// See the module.
pub(crate) struct DirTimes {
    /// Who looked since the last change.
    looked: AtomicU32,
    /// Odd while somebody is at step 1.
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
        let (looked, rounds) = (AtomicU32::new(NOBODY), AtomicU64::new(0));
        DirTimes { looked, rounds, keeper: RankedMutex::keyed(dir.0, ()) }
    }

    /// Begins step 1. `None`: somebody else is at it for longer than `patience`.
    pub(crate) fn keep(&self, patience: Option<Duration>) -> Option<TimesGuard<'_>> {
        let alone = match patience {
            Some(patience) => self.keeper.try_lock_for(patience)?,
            None => self.keeper.lock(),
        };
        self.rounds.fetch_add(1, Ordering::SeqCst);
        Some(TimesGuard { times: self, _alone: alone })
    }

    /// Before a look at the times.
    pub(crate) fn look(&self) -> TimesSnapshot {
        let me = THREAD.with(|number| *number);
        let also = |before| match before {
            NOBODY => Some(me),
            one if one == me || one == SEVERAL => None,
            _ => Some(SEVERAL),
        };
        // An error says that it is known.
        let _known = self.looked.fetch_update(Ordering::SeqCst, Ordering::SeqCst, also);
        TimesSnapshot { rounds: self.rounds.load(Ordering::SeqCst) }
    }

    /// Whether somebody was at step 1 during a look.
    pub(crate) fn was_kept(&self, look: &TimesSnapshot) -> bool {
        look.rounds % 2 == 1 || self.rounds.load(Ordering::SeqCst) != look.rounds
    }

    /// After a change of entries: whether the reply to a look that did not see it may be on its way.
    pub(crate) fn may_race_with_reply(&self) -> bool {
        let looked = self.looked.load(Ordering::SeqCst);
        looked != NOBODY && self.looked.swap(NOBODY, Ordering::SeqCst) != THREAD.with(|number| *number)
    }

    /// While this lives nobody is at step 1. `None`: somebody is for long, as where a branch hangs.
    pub(crate) fn freeze(&self) -> Option<RankedMutexGuard<'_, ()>> {
        self.keeper.try_lock_for(LOOK_PATIENCE)
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
        let before = times.look();
        assert!(!times.was_kept(&before));
        let keeping = times.keep(None);
        assert!(times.was_kept(&before) && times.was_kept(&times.look()), "it is being put back");
        let of_another = || std::thread::scope(|scope| scope.spawn(|| times.freeze().is_some()).join().unwrap());
        assert!(!of_another());
        drop(keeping);
        assert!(times.was_kept(&before), "it was put back");
        let still = times.freeze();
        assert!(still.is_some() && !times.was_kept(&times.look()));
    }

    #[test]
    fn a_change_knows_whether_another_thread_looked_before_it() {
        let times = DirTimes::new(NodeId::ROOT);
        let elsewhere = || std::thread::scope(|scope| scope.spawn(|| times.look()).join().map(|_| ()).unwrap());
        assert!(!times.may_race_with_reply(), "nobody looked");
        times.look();
        assert!(!times.may_race_with_reply(), "the reply of this thread has arrived");
        elsewhere();
        assert!(times.may_race_with_reply() && !times.may_race_with_reply(), "once for each look");
        for look_again in [true, false] {
            if look_again {
                times.look();
            }
            elsewhere();
            if !look_again {
                times.look();
            }
            assert!(times.may_race_with_reply(), "one of two has arrived");
        }
    }
}
