//! Changes on a branch that no sync has made durable. A branch that dies may lose them, and a sync of everything must
//! say so, although the branch is no longer there to ask:
//!
//! 1. A change notes when it was made. A file that is open for writing past the daemon may change at any time.
//! 2. A sync takes the note, then syncs the branch. If that fails, it gives the note back.
//! 3. When the branch goes offline with a note, the change may be lost, unless it is so old that every file system has
//!    written it by itself ([`WRITTEN_AFTER`]). While the branch is away every sync fails, for some minutes
//!    ([`REPORT_TIME`]). If the branch came back, one sync fails.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::{Branch, uptime};

/// Seconds after which every file system has written a change by itself, with a margin for noticing late that the
/// branch is gone.
pub(crate) const WRITTEN_AFTER: u64 = 120;
/// Seconds for which every fsync and sync reports changes that an absent branch may have lost.
pub(crate) const REPORT_TIME: u64 = 600;

/// No time.
const NO_TIME: u64 = 0;

/// See the module; of one time online.
#[derive(Debug, Default)]
pub struct Unsynced {
    /// When the last change was made ([`uptime`]).
    changed: AtomicU64,
    /// Handles that write past the daemon.
    writers: AtomicUsize,
}

impl Unsynced {
    /// Step 1, after a change.
    pub(crate) fn note(&self) {
        self.changed.store(uptime(), Ordering::Release);
    }

    /// A handle that writes past the daemon is opened.
    pub(crate) fn begin_writing(&self) {
        self.writers.fetch_add(1, Ordering::AcqRel);
    }

    /// It is closed.
    pub(crate) fn end_writing(&self) {
        self.note();
        self.writers.fetch_sub(1, Ordering::AcqRel);
    }

    /// Whether any process may write past the daemon.
    pub(crate) fn has_writers(&self) -> bool {
        self.writers.load(Ordering::Acquire) > 0
    }

    /// Step 2.
    pub(crate) fn take(&self) -> u64 {
        self.changed.swap(NO_TIME, Ordering::AcqRel)
    }

    /// Step 2, after a sync that failed.
    pub(crate) fn restore(&self, taken: u64) {
        self.changed.fetch_max(taken, Ordering::AcqRel);
    }

    /// Step 3: whether something may be lost with a branch that leaves at this time.
    fn may_be_lost(&self, left: u64) -> bool {
        let changed = self.changed.load(Ordering::Acquire);
        self.has_writers() || (changed != NO_TIME && left <= changed + WRITTEN_AFTER)
    }
}

impl Branch {
    /// The branch leaves, now ([`uptime`]), with these changes.
    pub(super) fn note_left(&self, unsynced: &Unsynced, now: u64) {
        self.left_at.store(now, Ordering::Release);
        if unsynced.may_be_lost(now) {
            self.lost_at.store(now, Ordering::Release);
        }
    }

    /// Step 3: whether changes that no sync has made durable may be lost.
    pub(crate) fn may_have_lost(&self) -> bool {
        let lost_at = self.lost_at.load(Ordering::Acquire);
        let (is_back, lasts) = (self.is_online(), uptime() < lost_at + REPORT_TIME);
        if is_back || !lasts {
            self.lost_at.store(NO_TIME, Ordering::Release);
        }
        lost_at != NO_TIME && (is_back || lasts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_that_no_sync_took_may_be_lost_for_two_minutes_and_while_its_file_is_open_for_writing() {
        let unsynced = Unsynced::default();
        let now = uptime();
        assert!(!unsynced.may_be_lost(now));
        unsynced.note();
        assert!(unsynced.may_be_lost(now) && !unsynced.may_be_lost(now + 2 * WRITTEN_AFTER));
        let taken = unsynced.take();
        assert!(!unsynced.may_be_lost(now), "it is on the disk");
        unsynced.restore(taken);
        assert!(unsynced.may_be_lost(now), "it is not");

        unsynced.take();
        unsynced.begin_writing();
        assert!(unsynced.may_be_lost(now + 2 * WRITTEN_AFTER));
        unsynced.take();
        unsynced.end_writing();
        assert!(unsynced.may_be_lost(now) && !unsynced.may_be_lost(now + 2 * WRITTEN_AFTER));
    }
}
