//! Room that is about to be free. The kernel reports the last close of a file after `close` has returned, and the next
//! request of the same process may overtake that report. So a removed file may still have its room when the next file
//! is written. While a removed file is open, or its release is under way, a write without room is tried again for a
//! moment before it is refused.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::io::Io;

/// How long a release may be late.
const RELEASE_TIMEOUT: Duration = Duration::from_millis(250);
/// How often it is looked for.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// Releases that are under way.
#[derive(Debug, Default)]
pub(crate) struct Releases(AtomicUsize);

/// A release, until this is dropped.
pub(crate) struct ReleaseGuard<'a>(&'a Releases);

impl Releases {
    pub(crate) fn begin(&self) -> ReleaseGuard<'_> {
        self.0.fetch_add(1, Ordering::SeqCst);
        ReleaseGuard(self)
    }

    fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

impl Drop for ReleaseGuard<'_> {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A call that found no room, and may be tried again.
#[derive(Debug, Default)]
pub(crate) struct RoomRetry {
    since: Option<Instant>,
    is_futile: bool,
}

impl Io {
    /// Closes that are not finished: the places of their files may not be judged yet.
    pub(crate) fn releases_under_way(&self) -> usize {
        self.releases.count()
    }

    /// Whether a call that found no room is to be tried once more. Waits a moment; call it with no lock held.
    pub(crate) fn may_get_room(&self, retry: &mut RoomRetry) -> bool {
        let since = *retry.since.get_or_insert_with(Instant::now);
        if retry.is_futile {
            return false;
        }
        // What is released from here on is there for the next try, which is the last one if nothing is.
        retry.is_futile = since.elapsed() >= RELEASE_TIMEOUT || !self.awaits_releases();
        if !retry.is_futile {
            std::thread::sleep(POLL_INTERVAL);
        }
        true
    }

    fn awaits_releases(&self) -> bool {
        let is_removed = |file: &crate::node::File| file.state.read().unlinked;
        self.releases.count() > 0 || self.open_handles().iter().any(|handle| handle.node.file().is_some_and(is_removed))
    }
}
