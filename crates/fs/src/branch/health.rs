//! Coming online, and staying there: probes with a time limit.
//!
//! A probe looks at the branch's path anew, on a thread of its own, and compares what it finds with what is open. At
//! most one such thread a branch: while it hangs, the branch is offline and further probes only wait for it.

use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rustix::fs::{AtFlags, CWD, FlockOperation, StatVfsMountFlags, StatxAttributes, StatxFlags};
use rustix::io::Errno;

use super::establish::{BranchSetup, Candidate};
use super::prober::{ProbeFailure, run_within};
use super::{Branch, BranchError, ErrorSource, Online, cover};
use crate::disk::block_device;
use crate::ground::advice::advised;
use crate::spec::{AccessTimes, BranchSpec};

/// How long to wait for a branch that another daemon uses; less in a probe, which is repeated.
const LOCK_TIMEOUT: Duration = Duration::from_secs(1);
const PROBE_LOCK_TIMEOUT: Duration = Duration::from_millis(100);

/// How long the directory over a branch may take to come or go.
const COVER_TIMEOUT: Duration = Duration::from_secs(2);

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

/// What the path looks like now, against what is open.
enum PathState {
    /// The same directory of the same file system.
    Same { read_only: bool },
    /// Something else, or an error.
    Gone(BranchError),
    /// The daemon lacks memory, threads or descriptors: that says nothing of the branch.
    Unknown,
}

impl Branch {
    /// Opens the branch: root, mount rules, identity, abilities. Does nothing when it is online. On failure the branch
    /// is offline with the error's text as the reason. Waits at most the timeout; a branch that another process has,
    /// for a second of it.
    pub fn bring_online(&self) -> Result<(), BranchError> {
        let timeout = self.timeout();
        self.establish(timeout, LOCK_TIMEOUT.min(timeout / 2))
    }

    /// What would keep it from coming online, as far as that is seen with nothing written.
    pub fn check(&self) -> Result<(), BranchError> {
        let (plan, timeout) = (self.plan(Duration::ZERO), self.timeout());
        let found = self.prober.run(timeout, move || plan.check());
        found.unwrap_or_else(|unasked| Err(self.not_looked_at(unasked, timeout)))
    }

    /// Ends its use in order. Another daemon may have it at once, also where a thread still holds a descriptor; a
    /// branch that may hang is closed with its last descriptor.
    pub fn close(&self) {
        let _changing = self.changing.lock();
        let Some(online) = self.online.swap(None) else { return };
        self.uncover();
        if let Some(hidden) = online.hidden.as_ref().filter(|_| !online.guarded) {
            // Not every file system has locks.
            let _ = rustix::fs::flock(&hidden.dir, FlockOperation::Unlock);
        }
    }

    /// Which reads change access times, in place of what its mount says. Before it comes online, and once.
    pub fn set_access_times(&self, times: AccessTimes) {
        let _ = self.access_times.set(times);
    }

    /// Applies other settings. Where it was opened for reading only and may be written now, it is opened anew.
    pub(crate) fn configure(&self, spec: BranchSpec) {
        let may_write = !spec.read_only;
        self.settings.store(Arc::new(spec));
        self.invalidate_space();
        self.cover_as_wanted();
        let Some(online) = self.online() else { return };
        if may_write && online.hidden.is_none() && !self.refuses_writes.load(Ordering::Relaxed) {
            self.reopen(&online, "its settings now allow writes, and it is being reopened", self.timeout());
        }
    }

    /// Waits for a probe that is under way, for at most the timeout: one that hangs gives up later by itself.
    pub(super) fn await_probe(&self) {
        let _hangs = self.prober.run(self.timeout(), || ());
    }

    fn establish(&self, timeout: Duration, lock_timeout: Duration) -> Result<(), BranchError> {
        if self.is_online() {
            return Ok(());
        }
        let found = self.candidate(timeout, lock_timeout);
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
                self.drop_online(advised(&error));
                Err(error)
            }
        }
    }

    /// Opens it anew; what was open stays in use if that fails, and the next probe tries again. Whether it was opened.
    fn reopen(&self, seen: &Online, why: &str, timeout: Duration) -> bool {
        let found = self.candidate(timeout, PROBE_LOCK_TIMEOUT);
        let _changing = self.changing.lock();
        if self.epoch() != Some(seen.epoch) {
            return false;
        }
        match found {
            Ok(candidate) => {
                self.drop_online(why.to_owned());
                self.install(candidate);
                true
            }
            Err(error) => {
                tracing::warn!(branch = %self.spec.name, %error, "it may be written, but cannot be reopened");
                // The look has uncovered its path.
                self.uncover();
                self.cover();
                false
            }
        }
    }

    fn candidate(&self, timeout: Duration, lock_timeout: Duration) -> Result<Candidate, BranchError> {
        let plan = self.plan(lock_timeout);
        let found = self.prober.run(timeout, move || plan.run());
        found.unwrap_or_else(|unasked| Err(self.not_looked_at(unasked, timeout)))
    }

    fn plan(&self, lock_timeout: Duration) -> BranchSetup {
        BranchSetup {
            spec: BranchSpec::clone(&self.settings()),
            state: Arc::clone(&self.state),
            guarded: self.always_guarded.load(Ordering::Relaxed),
            lives: Arc::clone(&self.lives),
            threads: self.threads.clone(),
            lock_timeout,
            access_times: self.access_times.get().copied().unwrap_or_default(),
            retired: Arc::clone(&self.retired),
        }
    }

    fn cover_as_wanted(&self) {
        let _changing = self.changing.lock();
        if !self.settings().hide {
            self.uncover();
        } else if self.is_online() {
            self.cover();
        }
    }

    /// Mounts an empty directory over its path, if it is to be hidden and is not.
    fn cover(&self) {
        if !self.settings().hide || self.covered.load(Ordering::Relaxed) {
            return;
        }
        let (path, pool) = (self.spec.path.clone(), self.state.mount());
        match run_within(COVER_TIMEOUT, move || cover::cover(&path, &pool)) {
            Some(Ok(())) => self.covered.store(true, Ordering::Relaxed),
            failed => {
                let reason = match failed {
                    Some(Err(error)) => error.to_string(),
                    _ => "its path does not answer".to_owned(),
                };
                tracing::warn!(branch = %self.spec.name, path = %self.spec.path.display(), %reason, "cannot hide the branch");
            }
        }
    }

    /// Takes the empty directory away again.
    pub(super) fn uncover(&self) {
        if !self.covered.swap(false, Ordering::Relaxed) {
            return;
        }
        let (path, pool) = (self.spec.path.clone(), self.state.mount());
        if !matches!(run_within(COVER_TIMEOUT, move || cover::uncover(&path, &pool)), Some(Ok(()))) {
            tracing::warn!(branch = %self.spec.name, path = %self.spec.path.display(), "the path stays hidden: unmount it by hand");
        }
    }

    fn not_looked_at(&self, why: ProbeFailure, waited: Duration) -> BranchError {
        let path = self.spec.path.clone();
        match why {
            ProbeFailure::Hangs => BranchError::Hung { path, waited_ms: waited.as_millis() as u64 },
            ProbeFailure::NoThread => BranchError::NoThread { path },
        }
    }

    fn install(&self, candidate: Candidate) {
        let online = Arc::new(candidate.online);
        self.refuses_writes.store(candidate.read_only && !self.settings().read_only, Ordering::Relaxed);
        self.suspect.store(false, Ordering::Relaxed);
        self.guarded.store(online.guarded, Ordering::Relaxed);
        // It may be known by an earlier name until now.
        self.draining.fetch_or(self.state.is_draining(&self.spec.name), Ordering::Relaxed);
        tracing::info!(branch = %self.spec.name, fs_type = %online.fs_type, slot = online.slot, "branch is online");
        if online.guarded && online.fs_type != "fuseblk" {
            // The errors came from a connection or server that no longer exists.
            self.clear_errors();
        }
        self.online.store(Some(online));
        self.cover();
        if let Some(errno) = candidate.marker_unread {
            self.note_errors(ErrorSource::Read, 1, &format!("a read of .umbrella/branch.json failed: {errno}"));
        }
        self.forget_space();
        self.call_monitor();
    }

    /// Asks whether the branch lives. Takes it offline when it hangs, is gone, is another one or fails; when it is
    /// offline, tries to bring it online. Takes about `timeout` at most.
    pub fn probe(&self, timeout: Duration) -> ProbeResult {
        let Some(online) = self.online() else {
            return match self.establish(timeout, PROBE_LOCK_TIMEOUT) {
                Ok(()) => ProbeResult::CameBack,
                Err(error) => ProbeResult::StillOffline { reason: advised(&error) },
            };
        };
        let suspect = self.suspect.swap(false, Ordering::Relaxed);
        let (path, seen) = (self.spec.path.clone(), Arc::clone(&online));
        let covers = self.covered.load(Ordering::Relaxed).then(|| self.state.mount());
        let look = match self.prober.run(timeout, move || inspect(path, &seen, suspect, covers.as_deref())) {
            Ok(look) => look,
            Err(ProbeFailure::NoThread) => PathState::Unknown,
            Err(ProbeFailure::Hangs) => PathState::Gone(self.not_looked_at(ProbeFailure::Hangs, timeout)),
        };
        match look {
            PathState::Unknown => {
                self.suspect.fetch_or(suspect, Ordering::Relaxed);
                ProbeResult::Healthy
            }
            PathState::Same { read_only } => self.note_read_only(&online, read_only, timeout),
            PathState::Gone(error) => {
                let reason = advised(&error);
                self.take_offline_if(&online, reason.clone());
                let changed = !matches!(error, BranchError::Hung { .. });
                drop(online);
                // It may be the same branch, mounted anew.
                if changed && self.establish(timeout, PROBE_LOCK_TIMEOUT).is_ok() {
                    return ProbeResult::CameBack;
                }
                ProbeResult::WentOffline { reason }
            }
        }
    }

    fn note_read_only(&self, online: &Online, read_only: bool, timeout: Duration) -> ProbeResult {
        if self.settings().read_only {
            return ProbeResult::Healthy;
        }
        if !read_only && online.hidden.is_none() {
            // It came online without its hidden folder; now it can have one.
            let is_anew = self.reopen(online, "it is writable again and is being reopened", timeout);
            return if is_anew { ProbeResult::CameBack } else { ProbeResult::Healthy };
        }
        if self.refuses_writes.swap(read_only, Ordering::Relaxed) == read_only {
            return ProbeResult::Healthy;
        }
        if read_only {
            tracing::warn!(branch = %self.spec.name, "the file system has become read-only: nothing is written there now");
        }
        ProbeResult::Writable(!read_only)
    }
}

/// Opens nothing where calls do not hang and the branch is not suspect, so a daemon without descriptors finds its
/// branches well.
///
/// `covers`: the pool, if it covers the path. What is below is then asked by its descriptor.
fn inspect(path: PathBuf, online: &Online, suspect: bool, covers: Option<&Path>) -> PathState {
    let fail = |path, step, source| match source {
        Errno::NOMEM | Errno::MFILE | Errno::NFILE => PathState::Unknown,
        source => PathState::Gone(BranchError::Io { path, step, source }),
    };
    let is_covered = covers.is_some_and(|pool| cover::is_covered_by(&path, pool));
    let by_root = || {
        let flags = AtFlags::STATX_FORCE_SYNC | AtFlags::EMPTY_PATH;
        rustix::fs::statx(online.root(), "", flags, StatxFlags::BASIC_STATS)
    };
    let by_path = || rustix::fs::statx(CWD, &path, AtFlags::STATX_FORCE_SYNC, StatxFlags::BASIC_STATS);
    let stat = match if is_covered { by_root() } else { by_path() } {
        Ok(stat) => stat,
        Err(source) => return fail(path, "reading its attributes", source),
    };
    let dev = rustix::fs::makedev(stat.stx_dev_major, stat.stx_dev_minor);
    if (dev, stat.stx_ino) != (online.dev, online.root_ino) {
        let is_mount = stat.stx_attributes.contains(StatxAttributes::MOUNT_ROOT);
        return PathState::Gone(if online.is_mount && !is_mount {
            BranchError::NotMounted { path }
        } else {
            BranchError::Replaced { path }
        });
    }
    let space = if is_covered { rustix::fs::fstatvfs(online.root()) } else { rustix::fs::statvfs(&path) };
    let vfs = match space {
        Ok(vfs) => vfs,
        Err(source) => return fail(path, "reading its free space", source),
    };
    if suspect && let Err(source) = probe_disk(online) {
        return fail(path, "reading its disk", source);
    }
    PathState::Same { read_only: vfs.f_flag.contains(StatVfsMountFlags::RDONLY) }
}

/// Whether the disk answers. A disk with bad sectors does: the branch stays online, so that what can be read can be
/// saved.
///
/// A daemon without descriptors asks by the marker, which is open for that.
fn probe_disk(online: &Online) -> rustix::io::Result<()> {
    if online.guarded {
        return read_uncached(online);
    }
    match probe_by_new_descriptors(online) {
        Err(Errno::MFILE | Errno::NFILE) if online.marker.is_some() => read_uncached(online),
        answer => answer,
    }
}

/// Asks the file system first: one that has shut down opens nothing. Then the block device, or, where there is none,
/// the marker.
fn probe_by_new_descriptors(online: &Online) -> rustix::io::Result<()> {
    if let Some(hidden) = &online.hidden {
        match super::identity::open_marker(hidden.dir.as_fd()) {
            // It was deleted, so the file system has answered.
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
