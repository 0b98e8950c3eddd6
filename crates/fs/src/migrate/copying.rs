//! Copies from one branch to another, wherever they may hang.
//!
//! Between local branches a copy runs on the thread that wants it. From or to a guarded branch it runs on a thread that
//! this branch has for copies, and the caller waits while the copy makes progress. The caller stops waiting when one of
//! the two branches goes offline, soon after the copy is cancelled, or after [`COPY_TIMEOUT`] without progress. A copy
//! that is left to its thread ends at its next step, and removes its unfinished file itself.

use std::ffi::OsString;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::AtFlags;
use rustix::io::Errno;
use umbrella_units::ByteSize;

use crate::branch::{Branch, ErrorSource, Online};
use crate::error::OpError;
use crate::ground::workers;
use crate::ground::workers::Lost;
use crate::metrics::Metric;
use crate::migrate::Migrations;
use crate::migrate::moving::{MoveControl, NotMoved};
use crate::relocate::{Durability, Limits, RelocateError};
use crate::write_back::{CopyLocks, copy_within_limit};

/// How long a copy may show no sign of life, as long as its branches live: the last step syncs all of a file.
const COPY_TIMEOUT: Duration = Duration::from_secs(120);

/// A branch, as it is while a copy runs.
#[derive(Clone, Copy)]
pub(crate) struct Endpoint<'a> {
    pub(crate) branch: &'a Arc<Branch>,
    pub(crate) online: &'a Arc<Online>,
}

impl Endpoint<'_> {
    pub(crate) fn is_alive(self) -> bool {
        self.branch.online().is_some_and(|now| now.epoch == self.online.epoch)
    }
}

/// What a copy between two branches has to heed.
#[derive(Clone, Copy)]
pub(crate) struct CopyOptions<'a> {
    pub(crate) from: Endpoint<'a>,
    pub(crate) to: Endpoint<'a>,
    /// Set to end it.
    pub(crate) cancel: &'a AtomicBool,
    pub(crate) pace: MoveControl<'a>,
    pub(crate) durability: Durability,
    /// What the copying thread holds meanwhile; `None`: the flusher does not learn of the copy.
    pub(crate) flusher_sees: Option<CopyLocks>,
}

/// State that a copy on another thread shares with the caller that waits for it.
#[derive(Default)]
struct CopyControl {
    cancel: AtomicBool,
    progress_count: AtomicU64,
}

impl Migrations {
    /// Runs `copy`, which copies as `copying` says. Its result is dropped where it was made when the caller no longer
    /// waits.
    pub(crate) fn copy_over<T: Send + 'static>(
        &self,
        copying: CopyOptions<'_>,
        copy: impl FnOnce(&Limits<'_>) -> Result<T, RelocateError> + Send + 'static,
    ) -> Result<T, NotMoved> {
        let CopyOptions { from, to, cancel, pace, durability, flusher_sees: holds } = copying;
        let flusher = holds.and_then(|_| self.write_back.flusher_of_branch(to.branch.id));
        let holds = holds.unwrap_or(CopyLocks::Nothing);
        let Some(guarded) = [to, from].into_iter().find(|end| end.online.guarded) else {
            let throttle = pace.throttle.map(AsRef::as_ref);
            let is_progressing = || {
                if let Some(alive) = pace.alive {
                    alive();
                }
                pace.stop.is_some_and(|stop| stop())
            };
            let is_over = || cancel.load(Ordering::Relaxed) || is_progressing();
            let give_way = || {
                if pace.turn.is_some_and(|turn| turn.pause(&is_over)) {
                    self.context.count(Metric::RelocationRests);
                }
            };
            let rest = pace.turn.map(|_| &give_way as &dyn Fn());
            let limits = Limits { throttle, stop: Some(&is_progressing), rest, durability, ..Limits::new(cancel) };
            return Ok(counted(copy_within_limit(flusher, holds, limits, copy), from, to)?);
        };
        let apart = Arc::new(CopyControl::default());
        let (theirs, throttle) = (Arc::clone(&apart), pace.throttle.cloned());
        let run = move || {
            // Asked between any two slices, and while bandwidth is waited for.
            let lives = || {
                theirs.progress_count.fetch_add(1, Ordering::Relaxed);
                false
            };
            // Small slices: over a slow network, a large one would look dead.
            let in_small_slices = |_: BorrowedFd<'_>, _, _: ByteSize| {};
            let limits = Limits {
                throttle: throttle.as_deref(),
                stop: Some(&lives),
                written: Some(&in_small_slices),
                durability,
                ..Limits::new(&theirs.cancel)
            };
            copy_within_limit(flusher, holds, limits, copy)
        };
        let mut watch = CopyWatchdog { seen: 0, since: Instant::now(), ended: None };
        let wait = |queued| {
            let before = watch.since;
            let may_wait = from.is_alive()
                && to.is_alive()
                && watch.may_wait(queued, &apart, self.context.settings().probe_timeout);
            if let Some(alive) = pace.alive.filter(|_| watch.since != before) {
                alive();
            }
            if watch.ended.is_none() && (cancel.load(Ordering::Relaxed) || pace.stop.is_some_and(|stop| stop())) {
                watch.ended = Some(Instant::now());
                apart.cancel.store(true, Ordering::Relaxed);
            }
            may_wait
        };
        match workers::call_apart(guarded.online.copiers.as_ref(), run, wait) {
            Ok(done) => return Ok(counted(done, from, to)?),
            Err(Lost::NoThread) => return Err(NotMoved::Op(OpError::Sys(Errno::NOMEM))),
            Err(_) => {}
        }
        apart.cancel.store(true, Ordering::Relaxed);
        if watch.ended.is_some() {
            return Err(RelocateError::Cancelled.into());
        }
        if !(from.is_alive() && to.is_alive()) {
            return Err(NotMoved::Op(OpError::Offline));
        }
        for end in [from, to] {
            end.branch.note_suspect();
        }
        Err(NotMoved::Op(OpError::Sys(Errno::TIMEDOUT)))
    }
}

/// Counts a failure that speaks of one of the disks.
fn counted<T>(done: Result<T, RelocateError>, from: Endpoint<'_>, to: Endpoint<'_>) -> Result<T, RelocateError> {
    match &done {
        Err(RelocateError::Read { errno, .. }) => from.branch.note_errno(ErrorSource::Read, *errno),
        Err(RelocateError::Write { errno, .. }) => to.branch.note_errno(ErrorSource::Write, *errno),
        Err(RelocateError::Sync { errno }) => to.branch.note_errno(ErrorSource::Sync, *errno),
        _ => {}
    }
    done
}

/// Whether a copy on another thread is waited for.
struct CopyWatchdog {
    seen: u64,
    since: Instant,
    /// When it was asked to end.
    ended: Option<Instant>,
}

impl CopyWatchdog {
    fn may_wait(&mut self, queued: bool, apart: &CopyControl, end_timeout: Duration) -> bool {
        if let Some(ended) = self.ended {
            return ended.elapsed() < end_timeout;
        }
        let signs = apart.progress_count.load(Ordering::Relaxed);
        if queued || signs != self.seen {
            (self.seen, self.since) = (signs, Instant::now());
        }
        self.since.elapsed() < COPY_TIMEOUT
    }
}

/// A finished copy in the hidden place. Gone with this, unless it is kept.
pub(crate) struct TempCopy {
    online: Arc<Online>,
    name: OsString,
    kept: bool,
}

impl TempCopy {
    pub(crate) fn new(online: Arc<Online>, name: OsString) -> TempCopy {
        TempCopy { online, name, kept: false }
    }

    /// Another thread has to remove it.
    pub(crate) fn keep(mut self) {
        self.kept = true;
    }
}

impl Drop for TempCopy {
    fn drop(&mut self) {
        if let (false, Some(hidden)) = (self.kept, &self.online.hidden) {
            // Left behind, it is deleted at the next mount.
            let _leftover = rustix::fs::unlinkat(hidden.tmp.as_fd(), &self.name, AtFlags::empty());
        }
    }
}
