//! Coming online, and staying there: probes with a time limit.
//!
//! A probe looks at the branch's path anew, on a thread of its own, and compares what it finds with what is open. At most one such
//! thread a branch: while it hangs, the branch is offline and further probes only wait for it.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use rustix::fs::{AtFlags, CWD, FlockOperation, StatVfsMountFlags, StatxAttributes, StatxFlags};
use rustix::io::Errno;

use super::establish::{Candidate, Plan};
use super::{Branch, BranchError, ErrorSource, Online};
use crate::disk::block_device;
use crate::spec::AccessTimes;

/// How long a branch that somebody else has is waited for; in a probe, which comes again, less.
const LOCK_PATIENCE: Duration = Duration::from_secs(1);
const LOCK_PATIENCE_OF_PROBES: Duration = Duration::from_millis(100);

/// What a probe found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProbeResult {
    /// Online, as before.
    Healthy,
    /// Online, but it cannot be written any more (or, again).
    Writable(bool),
    /// It was online.
    WentOffline {
        /// Why.
        reason: String,
    },
    /// It was offline; it has a new [`Online`].
    CameBack,
    /// Offline, as before.
    StillOffline {
        /// Why.
        reason: String,
    },
}

/// Runs one thing at a time on a thread of its own.
#[derive(Debug, Default)]
pub(super) struct Prober {
    busy: Arc<Mutex<bool>>,
    free: Arc<Condvar>,
    #[cfg(test)]
    pub(super) before: Mutex<Option<Hook>>,
}

/// Runs at the start of each probe: tests let it hang.
#[cfg(test)]
pub(super) struct Hook(pub(super) Arc<dyn Fn() + Send + Sync>);

#[cfg(test)]
impl std::fmt::Debug for Hook {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Hook")
    }
}

type Reply<T> = Arc<(Mutex<Option<T>>, Condvar)>;

impl Prober {
    /// The result of `ask`.
    fn run<T: Send + 'static>(
        &self,
        timeout: Duration,
        ask: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Unasked> {
        let deadline = std::time::Instant::now() + timeout;
        {
            let mut busy = self.busy.lock();
            while *busy {
                if self.free.wait_until(&mut busy, deadline).timed_out() {
                    return Err(Unasked::Hangs);
                }
            }
            *busy = true;
        }
        let reply: Reply<T> = Arc::default();
        let theirs = Arc::clone(&reply);
        let (busy, free) = (Arc::clone(&self.busy), Arc::clone(&self.free));
        #[cfg(test)]
        let hook = self.before.lock().as_ref().map(|hook| Arc::clone(&hook.0));
        let release = Release { busy, free };
        let work = move || {
            let _release = release;
            #[cfg(test)]
            if let Some(hook) = hook {
                hook();
            }
            let found = ask();
            *theirs.0.lock() = Some(found);
            theirs.1.notify_one();
        };
        // `Release` is dropped with the closure.
        let spawned = std::thread::Builder::new().name("branch-probe".to_owned()).spawn(work);
        spawned.map_err(|_| Unasked::NoThread)?;
        let mut found = reply.0.lock();
        while found.is_none() {
            if reply.1.wait_until(&mut found, deadline).timed_out() {
                break;
            }
        }
        found.take().ok_or(Unasked::Hangs)
    }
}

/// What somebody finds who looks at paths that may hang; nothing if that takes longer. One that hangs keeps its thread.
pub(crate) fn look_within<T: Send + 'static>(limit: Duration, look: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    Prober::default().run(limit, look).ok()
}

/// Why there is no result.
#[derive(Debug, Clone, Copy)]
enum Unasked {
    /// It, or one before it, does not return in time.
    Hangs,
    /// The daemon can start no thread.
    NoThread,
}

/// Frees the prober however its thread ends.
struct Release {
    busy: Arc<Mutex<bool>>,
    free: Arc<Condvar>,
}

impl Drop for Release {
    fn drop(&mut self) {
        *self.busy.lock() = false;
        self.free.notify_one();
    }
}

/// What the path looks like now, against what is open.
enum Look {
    /// The same directory of the same file system.
    Same { read_only: bool },
    /// Something else, or an error.
    Gone(BranchError),
    /// The daemon lacks memory or threads: that says nothing of the branch.
    Unknown,
}

impl Branch {
    /// Opens the branch: root, mount rules, identity, abilities. Does nothing when it is online. On failure the branch is offline
    /// with the error's text as the reason. Waits at most the timeout; a branch that another process has, for a second of it.
    pub fn bring_online(&self) -> Result<(), BranchError> {
        let timeout = self.timeout();
        self.establish(timeout, LOCK_PATIENCE.min(timeout / 2))
    }

    /// Ends its use in order. Another daemon may have it at once, also where somebody still holds a descriptor; one that may hang is let go
    /// of with its last descriptor.
    pub fn close(&self) {
        let _changing = self.changing.lock();
        let Some(online) = self.online.swap(None) else { return };
        if let Some(hidden) = online.hidden.as_ref().filter(|_| !online.guarded) {
            // Not every file system has locks.
            let _ = rustix::fs::flock(&hidden.dir, FlockOperation::Unlock);
        }
    }

    /// Which reads change access times, in place of what its mount says. Before it comes online, and once.
    pub fn set_access_times(&self, times: AccessTimes) {
        let _ = self.access_times.set(times);
    }

    /// Waits for a probe that is under way, for at most the timeout: one that hangs gives up later by itself.
    pub(super) fn await_probe(&self) {
        let _hangs = self.prober.run(self.timeout(), || ());
    }

    fn establish(&self, timeout: Duration, patience: Duration) -> Result<(), BranchError> {
        if self.is_online() {
            return Ok(());
        }
        let plan = Plan {
            spec: self.spec.clone(),
            state: Arc::clone(&self.state),
            guarded: self.always_guarded.load(Ordering::Relaxed),
            lives: Arc::clone(&self.lives),
            threads: self.threads.clone(),
            patience,
            access_times: self.access_times.get().copied().unwrap_or_default(),
            retired: Arc::clone(&self.retired),
        };
        let found = self.prober.run(timeout, move || plan.run()).unwrap_or_else(|_| {
            let waited_ms = timeout.as_millis() as u64;
            Err(BranchError::Hung { path: self.spec.path.clone(), waited_ms })
        });
        let _changing = self.changing.lock();
        if self.is_online() {
            return Ok(());
        }
        match found {
            Ok(candidate) => {
                self.install(candidate);
                Ok(())
            }
            Err(error) => {
                self.drop_online(error.to_string());
                Err(error)
            }
        }
    }

    fn install(&self, candidate: Candidate) {
        let online = Arc::new(candidate.online);
        self.refuses_writes.store(candidate.read_only && !self.spec.read_only, Ordering::Relaxed);
        self.suspect.store(false, Ordering::Relaxed);
        self.guarded.store(online.guarded, Ordering::Relaxed);
        // It may be known by an earlier name until now.
        self.draining.fetch_or(self.state.is_draining(&self.spec.name), Ordering::Relaxed);
        tracing::info!(branch = %self.spec.name, fs_type = %online.fs_type, slot = online.slot, "branch is online");
        if online.guarded && online.fs_type != "fuseblk" {
            // They were errors of a connection or a server that is no more.
            self.clear_errors();
        }
        self.online.store(Some(online));
        if let Some(errno) = candidate.marker_unread {
            self.note_errors(ErrorSource::Read, 1, &format!("a read of .umbrella/branch.json failed: {errno}"));
        }
        self.invalidate_space();
        self.call_monitor();
    }

    /// Asks whether the branch lives. Takes it offline when it hangs, is gone, is another one or fails; when it is offline, tries
    /// to bring it online. Takes about `timeout` at most.
    pub fn probe(&self, timeout: Duration) -> ProbeResult {
        let Some(online) = self.online() else {
            return match self.establish(timeout, LOCK_PATIENCE_OF_PROBES) {
                Ok(()) => ProbeResult::CameBack,
                Err(error) => ProbeResult::StillOffline { reason: error.to_string() },
            };
        };
        let suspect = self.suspect.swap(false, Ordering::Relaxed);
        let (path, seen) = (self.spec.path.clone(), Arc::clone(&online));
        let look = match self.prober.run(timeout, move || look(path, &seen, suspect)) {
            Ok(look) => look,
            Err(Unasked::NoThread) => Look::Unknown,
            Err(Unasked::Hangs) => {
                let waited_ms = timeout.as_millis() as u64;
                Look::Gone(BranchError::Hung { path: self.spec.path.clone(), waited_ms })
            }
        };
        match look {
            Look::Unknown => {
                self.suspect.fetch_or(suspect, Ordering::Relaxed);
                ProbeResult::Healthy
            }
            Look::Same { read_only } => self.note_read_only(&online, read_only, timeout),
            Look::Gone(error) => {
                let reason = error.to_string();
                self.take_offline_if(&online, reason.clone());
                let changed = !matches!(error, BranchError::Hung { .. });
                drop(online);
                // It may be the same branch, mounted anew.
                if changed && self.establish(timeout, LOCK_PATIENCE_OF_PROBES).is_ok() {
                    return ProbeResult::CameBack;
                }
                ProbeResult::WentOffline { reason }
            }
        }
    }

    fn note_read_only(&self, online: &Online, read_only: bool, timeout: Duration) -> ProbeResult {
        if self.spec.read_only || self.refuses_writes.load(Ordering::Relaxed) == read_only {
            return ProbeResult::Healthy;
        }
        if read_only {
            tracing::warn!(branch = %self.spec.name, "the file system has become read-only: nothing is written there now");
        } else if online.hidden.is_none() {
            // It came online without its hidden folder; now it can have one.
            self.take_offline_if(online, "it can be written again and is opened anew".to_owned());
            return match self.establish(timeout, LOCK_PATIENCE_OF_PROBES) {
                Ok(()) => ProbeResult::CameBack,
                Err(error) => ProbeResult::WentOffline { reason: error.to_string() },
            };
        }
        self.refuses_writes.store(read_only, Ordering::Relaxed);
        ProbeResult::Writable(!read_only)
    }
}

/// Opens nothing where calls do not hang, so a daemon without descriptors finds its branches well.
fn look(path: std::path::PathBuf, online: &Online, suspect: bool) -> Look {
    let fail = |path, step, source| match source {
        Errno::NOMEM => Look::Unknown,
        source => Look::Gone(BranchError::Io { path, step, source }),
    };
    let stat = match rustix::fs::statx(CWD, &path, AtFlags::STATX_FORCE_SYNC, StatxFlags::BASIC_STATS) {
        Ok(stat) => stat,
        Err(source) => return fail(path, "looking at it", source),
    };
    let dev = rustix::fs::makedev(stat.stx_dev_major, stat.stx_dev_minor);
    if (dev, stat.stx_ino) != (online.dev, online.root_ino) {
        let is_mount = stat.stx_attributes.contains(StatxAttributes::MOUNT_ROOT);
        return Look::Gone(if online.is_mount && !is_mount {
            BranchError::NotMounted { path }
        } else {
            BranchError::Replaced { path }
        });
    }
    let vfs = match rustix::fs::statvfs(&path) {
        Ok(vfs) => vfs,
        Err(source) => return fail(path, "asking for its space", source),
    };
    match if suspect { ask_disk(online) } else { Ok(()) } {
        // It has just answered; who lacks descriptors cannot be told.
        Ok(()) | Err(Errno::MFILE | Errno::NFILE) => {}
        Err(source) => return fail(path, "reading its disk", source),
    }
    Look::Same { read_only: vfs.f_flag.contains(StatVfsMountFlags::RDONLY) }
}

/// Whether the disk answers. A disk with bad sectors does: the branch stays online, so that what can be read can be saved.
///
/// Asks the file system first: one that has shut down opens nothing. Then the block device, or, where there is none, the marker.
fn ask_disk(online: &Online) -> rustix::io::Result<()> {
    if online.guarded {
        return read_uncached(online);
    }
    if let Some(hidden) = &online.hidden {
        match super::identity::open_marker(hidden.dir.as_fd()) {
            // Somebody has deleted it: the file system has looked.
            Ok(_) | Err(Errno::NOENT) => {}
            Err(error) => return Err(error),
        }
    }
    match block_device::answers(online.dev, online.source.as_deref()) {
        Some(answer) => answer,
        None => read_uncached(online),
    }
}

/// Reads the marker past the page cache, which would hide a dead disk.
fn read_uncached(online: &Online) -> rustix::io::Result<()> {
    let read = |marker: BorrowedFd<'_>| match block_device::read_page(marker, 0) {
        Err(Errno::INVAL) => Ok(()),
        other => other.map(drop),
    };
    match (&online.marker, &online.hidden) {
        (Some(marker), _) => read(marker.as_fd()),
        (None, Some(hidden)) => read(super::identity::open_marker(hidden.dir.as_fd())?.as_fd()),
        (None, None) => Ok(()),
    }
}
