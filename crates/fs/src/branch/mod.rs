//! A branch: a directory on some file system that holds a part of the tree.
//!
//! A branch knows its identity (a marker in `.umbrella/branch.json`, and the memory of the pool outside of it). It
//! knows whether it is alive, how much room it has, and what its file system can keep. It runs calls that may hang on
//! other threads than those of the callers that wait for them.
//!
//! A branch is online while it has an [`Online`]. Whatever begins with an `Arc<Online>` may end with it, also when it
//! went offline meanwhile.

mod abilities;
pub mod beneath;
mod branches;
mod closer;
pub mod cover;
mod error;
mod errors;
mod establish;
mod health;
mod identity;
pub mod mounts;
pub mod not_mounted;
mod private_mount;
mod prober;
mod space;
pub mod state;
mod status;
mod unsynced;

#[cfg(test)]
mod tests;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use arc_swap::{ArcSwap, ArcSwapOption, Guard};
use rustix::io::Errno;
use umbrella_units::{BranchId, Timestamp};

use closer::{Closer, Closers};
use errors::Errors;
use prober::Prober;
use space::CachedSpace;

use crate::ground::locks::{RankedMutex, rank};
use crate::ground::wakeup::Wakeup;
use crate::ground::workers::{Lost, Workers};
use crate::spec::{AccessTimes, BranchPlace, BranchSpec};

pub use crate::ground::HIDDEN_DIR;
pub(crate) use branches::Branches;
pub use closer::BranchFd;
pub use error::{BranchError, HiddenProblem};
pub use errors::{BranchErrors, ErrorSource};
pub use establish::Origin;
pub use health::ProbeResult;
pub use identity::identity_at;
pub(crate) use identity::pool_at;
pub(crate) use prober::run_within;
pub use space::Space;
pub use state::{StateDir, StateError};
pub use status::{Abilities, BranchState, BranchStatus};
pub use unsynced::Unsynced;
pub(crate) use unsynced::{REPORT_TIME, WRITTEN_AFTER};

/// Errno of calls to a branch that is offline.
pub const OFFLINE: Errno = Errno::NOTCONN;

/// How long calls to a guarded branch may take unless [`Branch::set_timeout`] says otherwise.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(5);

/// The hidden folder of a branch and what is in it. Created 0700.
#[derive(Debug)]
pub struct Hidden {
    /// `.umbrella`.
    pub dir: BranchFd,
    /// `.umbrella/tmp`: files on their way in.
    pub tmp: BranchFd,
    /// `.umbrella/intents`: what is being done, for the next mount.
    pub intents: Arc<BranchFd>,
}

/// What holds while a branch is online.
#[derive(Debug)]
pub struct Online {
    /// The directory that is the branch.
    pub root: Arc<BranchFd>,
    /// `None` when nothing may or can be written on the branch.
    pub hidden: Option<Hidden>,
    /// The marker, to be read past the page cache by a probe that needs no descriptor for it. `None` as `hidden`, and
    /// where calls may hang: closing a file there can keep the process from ending.
    pub marker: Option<OwnedFd>,
    /// Identity.
    pub uuid: uuid::Uuid,
    /// Range of inode numbers: 1 to [`state::MAX_SLOT`], unique in the pool, the same at every mount.
    pub slot: u16,
    /// Device of the root.
    pub dev: u64,
    /// Inode of the root.
    pub root_ino: u64,
    /// Type of the file system, as the kernel names it.
    pub fs_type: String,
    /// What is mounted, as the table of mounts has it: a device, or a name.
    pub source: Option<String>,
    /// What it can keep. `passthrough` is false here: see [`Branch::abilities`].
    pub abilities: Abilities,
    /// Calls go through [`Branch::io`]'s own threads.
    pub guarded: bool,
    /// The root was a mount point.
    pub is_mount: bool,
    /// Greater each time any branch of the process comes online.
    pub epoch: u64,
    /// Whether the pool knew it before.
    pub origin: Origin,
    /// What is changed and not durable.
    pub unsynced: Unsynced,
    pub(crate) workers: Option<Workers>,
    /// Threads of copies: they last, and must not be in the way of calls.
    pub(crate) copiers: Option<Workers>,
    closer: Option<Closer>,
    _private_mount: Option<[BranchFd; 2]>,
    _claim: state::UuidClaim,
    _life: Arc<()>,
}

impl Online {
    /// The root.
    pub fn root(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }

    /// A descriptor on the branch, to be closed as the branch is.
    pub(crate) fn own(&self, fd: OwnedFd) -> BranchFd {
        BranchFd::new(fd, self.closer.as_ref())
    }
}

/// No epoch.
const NEVER: u64 = 0;

/// One branch of a pool. Shared by all threads; every method takes `&self`.
#[derive(Debug)]
pub struct Branch {
    /// Place in the pool.
    pub id: BranchId,
    /// What it is called and where it is.
    pub spec: BranchPlace,
    /// As configured; a reload changes it.
    settings: ArcSwap<BranchSpec>,
    state: Arc<StateDir>,
    online: ArcSwapOption<Online>,
    /// Why and since when it is offline; meaningless while online.
    offline: RankedMutex<rank::BranchOffline, (String, Timestamp)>,
    /// Shared with every [`Online`] there was, to tell our own lock on the branch from another daemon's.
    lives: Arc<()>,
    /// Held while the branch goes from one state to the other.
    changing: RankedMutex<rank::BranchChange, ()>,
    prober: Prober,
    threads: Threads,
    timeout_ms: AtomicU64,
    /// The file system refuses writes although the configuration allows them.
    refuses_writes: AtomicBool,
    always_guarded: AtomicBool,
    access_times: OnceLock<AccessTimes>,
    /// It was removed from the pool or replaced, and never comes online.
    retired: Arc<AtomicBool>,
    /// When it last went offline ([`uptime`]).
    left_at: AtomicU64,
    /// When it last went offline with changes that it may have lost; 0: no caller has to be told.
    lost_at: AtomicU64,
    guarded: AtomicBool,
    suspect: AtomicBool,
    errors: Errors,
    /// Wakes the monitor of the pool.
    wakeup: OnceLock<Arc<Wakeup>>,
    passthrough: AtomicBool,
    draining: AtomicBool,
    /// Its path is covered.
    covered: AtomicBool,
    /// The epoch that the pool has taken in and not seen go.
    taken_in: AtomicU64,
    /// The epoch of which the kernel has been told: nothing that it keeps of the tree is older.
    shown: AtomicU64,
    moved_in: AtomicU64,
    made: AtomicU64,
    moved_out: AtomicU64,
    space: Arc<RankedMutex<rank::BranchSpace, CachedSpace>>,
}

/// Threads of a branch, all its lives together, by what they do.
#[derive(Debug, Clone, Default)]
struct Threads {
    calls: Arc<AtomicUsize>,
    copies: Arc<AtomicUsize>,
    closers: Arc<Closers>,
}

impl Branch {
    /// A branch that is offline; [`Branch::bring_online`] tries it.
    pub fn new(id: BranchId, spec: BranchSpec, state: Arc<StateDir>) -> Arc<Branch> {
        let draining = AtomicBool::new(state.is_draining(&spec.name));
        let errors = Errors::new(state.errors_of(&spec.name));
        Arc::new(Branch {
            id,
            spec: BranchPlace { name: spec.name.clone(), path: spec.path.clone() },
            settings: ArcSwap::from_pointee(spec),
            state,
            online: ArcSwapOption::empty(),
            offline: RankedMutex::new(("not tried yet".to_owned(), now())),
            lives: Arc::default(),
            changing: RankedMutex::default(),
            prober: Prober::default(),
            threads: Threads::default(),
            timeout_ms: AtomicU64::new(DEFAULT_TIMEOUT.as_millis() as u64),
            refuses_writes: AtomicBool::new(false),
            always_guarded: AtomicBool::new(false),
            access_times: OnceLock::new(),
            retired: Arc::default(),
            left_at: AtomicU64::new(0),
            lost_at: AtomicU64::new(0),
            guarded: AtomicBool::new(false),
            suspect: AtomicBool::new(false),
            errors,
            wakeup: OnceLock::new(),
            passthrough: AtomicBool::new(false),
            draining,
            covered: AtomicBool::new(false),
            taken_in: AtomicU64::new(NEVER),
            shown: AtomicU64::new(NEVER),
            moved_in: AtomicU64::new(0),
            made: AtomicU64::new(0),
            moved_out: AtomicU64::new(0),
            space: Arc::default(),
        })
    }

    /// As it is configured now. Cheap.
    pub fn settings(&self) -> Guard<Arc<BranchSpec>> {
        self.settings.load()
    }

    /// What holds while the branch is online; `None` when it is offline. Cheap.
    pub fn online(&self) -> Option<Arc<Online>> {
        self.online.load_full()
    }

    /// When it last went offline ([`uptime`]).
    pub(crate) fn left_at(&self) -> u64 {
        self.left_at.load(Ordering::Acquire)
    }

    /// Which time online this is, if it is.
    pub(crate) fn epoch(&self) -> Option<u64> {
        self.online.load().as_ref().map(|online| online.epoch)
    }

    /// Whether it is online. Cheaper than [`Branch::online`].
    pub fn is_online(&self) -> bool {
        self.online.load().is_some()
    }

    /// As [`Branch::online`], once the pool has taken the branch in. Before that, what a crash left half done on it is
    /// not put right, and its directories may be older than those of the other branches.
    pub fn in_use(&self) -> Option<Arc<Online>> {
        self.online().filter(|online| self.taken_in.load(Ordering::Acquire) == online.epoch)
    }

    /// Whether the pool has still to take it in, or to show it. Meaningless while it is offline.
    pub fn is_arriving(&self) -> bool {
        self.online.load().as_ref().is_some_and(|online| self.shown.load(Ordering::Acquire) != online.epoch)
    }

    /// The kernel has forgotten what it kept of a branch that is offline.
    pub fn set_gone(&self) {
        self.taken_in.store(NEVER, Ordering::Release);
        self.shown.store(NEVER, Ordering::Release);
    }

    /// The pool has taken it in, as it came online with this epoch.
    pub fn set_admitted(&self, epoch: u64) {
        self.taken_in.store(epoch, Ordering::Release);
    }

    /// The kernel has forgotten what it kept of the tree without the branch.
    pub fn set_shown(&self, epoch: u64) {
        self.shown.store(epoch, Ordering::Release);
    }

    /// Uses the branch no more until a probe finds it well. Calls that wait for it fail at once.
    pub fn take_offline(&self, reason: String) {
        let _changing = self.changing.lock();
        self.drop_online(reason);
    }

    /// Whether it was removed from the pool or replaced.
    pub(crate) fn is_retired(&self) -> bool {
        self.retired.load(Ordering::Acquire)
    }

    /// Takes it offline, and no probe brings it back or writes anything about it, not even one that is under way.
    pub fn retire(&self, reason: String) {
        self.retired.store(true, Ordering::Release);
        self.await_probe();
        self.take_offline(reason);
    }

    /// It stays a branch of the pool.
    pub fn reinstate(&self) {
        self.retired.store(false, Ordering::Release);
    }

    fn drop_online(&self, reason: String) {
        let Some(old) = self.online.swap(None) else {
            let mut offline = self.offline.lock();
            if offline.0 != reason {
                offline.0 = reason;
            }
            return;
        };
        tracing::warn!(branch = %self.spec.name, %reason, "branch is offline");
        self.note_left(&old.unsynced, uptime());
        *self.offline.lock() = (reason, now());
        self.uncover();
        for workers in [&old.workers, &old.copiers].into_iter().flatten() {
            workers.close();
        }
        self.invalidate_space();
        self.call_monitor();
    }

    /// As [`Branch::take_offline`], unless the branch has come online anew since `seen`.
    pub(crate) fn take_offline_if(&self, seen: &Online, reason: String) {
        let _changing = self.changing.lock();
        if self.online.load().as_ref().is_some_and(|it| it.epoch == seen.epoch) {
            self.drop_online(reason);
        }
    }

    /// How long a call to a guarded branch, or a probe without a time of its own, may take.
    pub fn set_timeout(&self, timeout: Duration) {
        self.timeout_ms.store(timeout.as_millis().max(1) as u64, Ordering::Relaxed);
    }

    fn timeout(&self) -> Duration {
        Duration::from_millis(self.timeout_ms.load(Ordering::Relaxed))
    }

    /// Treat the branch as one whose calls may hang, whatever its file system, from the next time it comes online.
    pub fn set_always_guarded(&self, guarded: bool) {
        self.always_guarded.store(guarded, Ordering::Relaxed);
    }

    /// Runs file-system calls for this branch. On a local file system they run at once, on the caller's thread. On a
    /// guarded one they run on a thread of the branch, for at most the timeout. When that passes, the branch goes
    /// offline and the answer is ETIMEDOUT, though `call` may still take effect. The answer is [`OFFLINE`] when the
    /// branch is offline, or goes offline for another reason meanwhile.
    ///
    /// `call` must speak to this branch only: another branch's errors, and its slowness, would count as this one's.
    pub fn io<T: Send + 'static>(
        &self,
        call: impl FnOnce(&Online) -> rustix::io::Result<T> + Send + 'static,
    ) -> rustix::io::Result<T> {
        self.io_within(self.timeout(), call)
    }

    /// As [`Branch::io`] with a time of its own, for calls that are known to take long (fsync of a big file).
    pub fn io_within<T: Send + 'static>(
        &self,
        timeout: Duration,
        call: impl FnOnce(&Online) -> rustix::io::Result<T> + Send + 'static,
    ) -> rustix::io::Result<T> {
        let online = self.online().ok_or(OFFLINE)?;
        let Some(workers) = &online.workers else {
            return self.watch(&online, call(&online));
        };
        let theirs = Arc::clone(&online);
        match workers.call(timeout, move || call(&theirs)) {
            Ok(result) => self.watch(&online, result),
            Err(Lost::Closed) => Err(OFFLINE),
            Err(Lost::NoThread) => Err(Errno::NOMEM),
            Err(lost) => {
                let why = if lost == Lost::Exhausted { ": too many calls hang" } else { "" };
                self.does_not_answer(&online, timeout, why);
                Err(Errno::TIMEDOUT)
            }
        }
    }

    /// A call took longer than it may.
    pub(crate) fn does_not_answer(&self, online: &Online, waited: Duration, why: &str) {
        let (path, waited) = (self.spec.path.display(), waited.as_millis());
        self.take_offline_if(online, format!("\"{path}\" does not answer{why} (waited {waited} ms)"));
    }

    /// Notes errors that say more of the branch than of the file.
    fn watch<T>(&self, online: &Online, result: rustix::io::Result<T>) -> rustix::io::Result<T> {
        if let Err(error) = &result {
            match *error {
                Errno::NOTCONN | Errno::SHUTDOWN | Errno::HOSTDOWN => {
                    self.take_offline_if(online, format!("\"{}\": {error}", self.spec.path.display()));
                }
                Errno::IO | Errno::STALE | Errno::ROFS => self.note_suspect(),
                _ => {}
            }
        }
        result
    }

    /// Asks the next probe to look closer: a call that went past [`Branch::io`] failed in a way that smells of the
    /// disk.
    pub fn note_suspect(&self) {
        if !self.suspect.swap(true, Ordering::Relaxed) {
            self.call_monitor();
        }
    }

    /// Something that happens to the branch wakes its watcher.
    pub(crate) fn set_wakeup(&self, wakeup: &Arc<Wakeup>) {
        let _once = self.wakeup.set(Arc::clone(wakeup));
    }

    fn call_monitor(&self) {
        if let Some(wakeup) = self.wakeup.get() {
            wakeup.wake();
        }
    }

    /// Whether something failed since the last probe, so that the next should come soon. A failure on an open file of
    /// an offline branch is no news.
    pub fn is_suspect(&self) -> bool {
        self.suspect.load(Ordering::Relaxed) && self.is_online()
    }

    /// Whether its calls may hang; while it is offline, whether they might when it was online last.
    pub fn is_guarded(&self) -> bool {
        self.guarded.load(Ordering::Relaxed)
    }

    /// Whether anything may and can be written here now. A draining branch is writable.
    pub fn is_writable(&self) -> bool {
        !self.settings().read_only
            && !self.refuses_writes.load(Ordering::Relaxed)
            && self.online.load().as_ref().is_some_and(|it| it.hidden.is_some())
    }

    /// What the file system can keep, with passthrough as [`Branch::set_passthrough`] left it.
    pub fn abilities(&self) -> Abilities {
        let mut abilities = self.online.load().as_ref().map(|it| it.abilities).unwrap_or_default();
        abilities.passthrough = self.takes_passthrough() && self.settings().passthrough;
        abilities
    }

    /// Whether the kernel takes files of this branch in passthrough, whatever the configuration wants.
    pub fn takes_passthrough(&self) -> bool {
        self.passthrough.load(Ordering::Relaxed)
    }

    /// Said by the FUSE layer when it knows whether the kernel takes files of this branch.
    pub fn set_passthrough(&self, works: bool) {
        self.passthrough.store(works, Ordering::Relaxed);
    }

    /// Nothing new is placed on a draining branch, after the next mount neither.
    pub fn set_draining(&self, draining: bool) -> Result<(), StateError> {
        self.draining.store(draining, Ordering::Relaxed);
        self.state.note_draining(&self.spec.name, draining)
    }

    /// The same until the next mount, without writing it to the branch.
    pub fn set_draining_for_now(&self, draining: bool) {
        self.draining.store(draining, Ordering::Relaxed);
    }

    /// See [`Branch::set_draining`].
    pub fn draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    /// A file moved here.
    pub fn note_moved_in(&self) {
        self.moved_in.fetch_add(1, Ordering::Relaxed);
    }

    /// A file moved away.
    pub fn note_moved_out(&self) {
        self.moved_out.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether it went offline and the kernel still keeps what the tree showed of it.
    fn is_leaving(&self) -> bool {
        self.taken_in.load(Ordering::Acquire) != NEVER && !self.is_online()
    }

    /// Online, or why not and since when. It is reported as offline once the kernel has forgotten what it keeps of the
    /// tree. From then on every user sees a tree without the branch.
    pub fn branch_state(&self) -> BranchState {
        if self.is_online() || self.is_leaving() {
            return BranchState::Online;
        }
        let (reason, since) = self.offline.lock().clone();
        BranchState::Offline { reason, since }
    }

    /// The branch at a glance.
    pub fn status(&self) -> BranchStatus {
        let space = self.space();
        let online = self.online();
        let errors = self.errors();
        BranchStatus {
            name: self.spec.name.clone(),
            path: self.spec.path.clone(),
            state: self.branch_state(),
            fs_type: online.as_ref().map(|it| it.fs_type.clone()).unwrap_or_default(),
            total: space.total,
            free: space.free,
            min_free: self.settings().min_free.of(space.total),
            read_only: self.settings().read_only || (online.is_some() && !self.is_writable()),
            draining: self.draining(),
            create: self.settings().create,
            max_files: self.settings().max_files,
            hide: self.settings().hide,
            covered: self.covered.load(Ordering::Relaxed),
            files_used: self.inodes(space).map(|inodes| inodes.total.saturating_sub(inodes.free)),
            abilities: self.abilities(),
            files_moved_in: self.moved_in.load(Ordering::Relaxed),
            files_moved_out: self.moved_out.load(Ordering::Relaxed),
            write_back: None,
            failing: errors.is_failing(),
            errors,
        }
    }
}

/// Seconds since the machine started, its sleep included.
pub(crate) fn uptime() -> u64 {
    rustix::time::clock_gettime(rustix::time::ClockId::Boottime).tv_sec as u64
}

fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Timestamp { secs: since.as_secs() as i64, nanos: since.subsec_nanos() }
}
