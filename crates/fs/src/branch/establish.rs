//! What happens, in order, when a branch comes online:
//!
//! 1. Open the path; tell the type of its file system and whether it is a mount point.
//! 2. Mount rules: must it be one, by configuration or by memory?
//! 3. Identity: marker against memory. Nothing is written before this is settled, so that nothing is ever written into
//!    the empty directory below a missing mount.
//! 4. Claim the identity, lock the hidden folder, choose a slot, write the marker, write the memory.
//! 5. Try what the file system can keep.
//!
//! With mount options on access times, everything from 3 on is done in a private clone of its mount.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, Mode, OFlags, Stat, StatVfsMountFlags};
use rustix::io::Errno;
use uuid::Uuid;

use super::HIDDEN_DIR;
use super::closer::Closer;
use super::errors::speaks_of_disk;
use super::identity::{self, HiddenError, Marker, MarkerError};
use super::mounts::{FsKind, fs_kind, mount_of};
use super::not_mounted::{NotMounted, not_mounted};
use super::private_mount::clone_mount;
use super::prober::run_within;
use super::state::{Remembered, StateDir};
use super::status::Abilities;
use super::{
    Branch, BranchError, BranchFd, Hidden, HiddenProblem, Online, Threads, Unsynced, abilities, beneath, cover,
};
use crate::disk::block_device;
use crate::ground::workers;
use crate::ground::workers::Workers;
use crate::spec::{AccessTimes, BranchSpec};

/// What is needed to bring a branch online, on whichever thread.
pub(super) struct BranchSetup {
    pub(super) spec: BranchSpec,
    pub(super) state: Arc<StateDir>,
    /// Guarded whatever the file system.
    pub(super) guarded: bool,
    /// Shared with the branch, its earlier lives and other plans of it.
    pub(super) lives: Arc<()>,
    pub(super) threads: Threads,
    /// How long to wait until another daemon has closed the branch.
    pub(super) lock_timeout: Duration,
    pub(super) access_times: AccessTimes,
    /// The pool does not want it any more.
    pub(super) retired: Arc<AtomicBool>,
}

/// What the mount options on access times need (root, Linux 5.12).
const PRIVATE_MOUNT: &str =
    "making a private mount of it for noatime or another access-time option (mount the branch itself with that option)";

/// How long another branch's path may take to be looked at.
const LOOK_AT_OTHERS: Duration = Duration::from_millis(500);

/// How often a locked branch is tried again.
const LOCK_RETRY: Duration = Duration::from_millis(10);

/// A branch that may come online.
pub(super) struct Candidate {
    pub(super) online: Online,
    /// The file system refuses writes.
    pub(super) read_only: bool,
    /// Why its marker could not be read; it was known by its file system.
    pub(super) marker_unread: Option<Errno>,
}

/// The identity of the branch, before anything is written.
struct Identity {
    uuid: Uuid,
    marker: Option<Marker>,
    marker_unread: Option<Errno>,
    known: Option<Remembered>,
}

/// The identity of the branch at a path, if there is one.
fn marker_at(path: &Path) -> Option<Uuid> {
    let root = rustix::fs::open(path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let dir = identity::find_hidden(root.as_fd()).ok()??;
    Marker::read(dir.as_fd()).ok()?.map(|marker| marker.uuid)
}

static EPOCH: AtomicU64 = AtomicU64::new(1);

/// What is at a branch's path.
struct PathInspection {
    root: OwnedFd,
    kind: FsKind,
    stat: Stat,
    /// Where its mount came from.
    source: Option<String>,
    fsid: Option<u64>,
    /// The file system refuses writes.
    read_only: bool,
    writable: bool,
}

impl BranchSetup {
    /// What would keep it from coming online, as far as that is seen before anything is written: 1 to 3.
    pub(super) fn check(&self) -> Result<(), BranchError> {
        let PathInspection { root, kind, fsid, writable, .. } = self.inspect()?;
        self.identify(root.as_fd(), &kind, fsid, writable).map(drop)
    }

    fn inspect(&self) -> Result<PathInspection, BranchError> {
        if self.spec.hide {
            // One of an earlier life would be taken for the branch.
            cover::uncover(&self.spec.path, &self.state.mount()).map_err(self.io("uncovering its path"))?;
        }
        if let Some(pool) = cover::pool_over(&self.spec.path) {
            return Err(BranchError::Covered { path: self.path(), pool });
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(&self.spec.path, flags, Mode::empty())
            .map_err(|source| BranchError::Open { path: self.path(), source })?;
        if !beneath::supported(root.as_fd()) {
            return Err(BranchError::NoOpenat2);
        }
        let kind = fs_kind(root.as_fd()).map_err(self.io("reading its file system type"))?;
        let stat = rustix::fs::fstat(&root).map_err(self.io("reading its attributes"))?;
        let vfs = rustix::fs::fstatvfs(&root).map_err(self.io("reading its free space"))?;
        let read_only = vfs.f_flag.contains(StatVfsMountFlags::RDONLY);
        self.check_mount(&kind)?;
        check_countable(&self.spec, kind.is_mount, vfs.f_files)?;
        // A clone of the mount is in no table.
        let source = mount_of(root.as_fd()).map(|(_, source)| source);
        if !(kind.guarded || self.guarded) {
            self.probe_disk(stat.st_dev, source.as_deref())?;
        }
        let fsid = lasting_fsid(&kind).then_some(vfs.f_fsid);
        Ok(PathInspection { root, kind, stat, source, fsid, read_only, writable: !read_only && !self.spec.read_only })
    }

    pub(super) fn run(self) -> Result<Candidate, BranchError> {
        self.still_wanted()?;
        self.state.adopt_renamed(&self.spec.name, &self.spec.path)?;
        let PathInspection { root, kind, stat, source, fsid, read_only, writable } = self.inspect()?;
        let (root, private_mount) = if self.access_times.are_the_branches() {
            (root, None)
        } else {
            let cloned = clone_mount(root, self.access_times);
            cloned.map(|(root, held)| (root, Some(held))).map_err(self.io(PRIVATE_MOUNT))?
        };

        let identity = self.identify(root.as_fd(), &kind, fsid, writable)?;
        let twin = |other: String| match self.state.branch(&self.spec.name) {
            // The disk of this branch is known, and is another.
            Some(known) if known.uuid != identity.uuid => BranchError::Another {
                path: self.path(),
                name: self.spec.name.clone(),
                found: format!("its marker says {}", identity.uuid.simple()),
                hides: false,
                theirs: Some(other),
            },
            _ => BranchError::Twin { path: self.path(), other },
        };
        let claim = self.state.claim(identity.uuid, &self.spec.name).map_err(twin)?;
        if let Some(other) = self.absent_twin(&identity) {
            return Err(twin(other));
        }
        let guarded = kind.guarded || self.guarded;
        let closer = guarded.then(|| self.threads.closers.begin_life());
        let hidden = if writable { Some(self.open_hidden(root.as_fd(), closer.as_ref())?) } else { None };
        let known = identity.known.as_ref().and_then(|known| known.abilities);
        let found =
            hidden.as_ref().map(|hidden| abilities::probe(hidden.tmp.as_fd(), known.unwrap_or(abilities::ASSUMED)));
        let lasting = found.filter(|found| found.whole).map(|found| found.abilities).or(known);
        self.still_wanted()?;
        let slot = self.settle(&identity, hidden.as_ref(), &kind, fsid, lasting)?;
        let marker = hidden.as_ref().filter(|_| !guarded).map(|hidden| identity::open_marker(hidden.dir.as_fd()));
        let marker = marker.transpose().map_err(self.io("opening its marker"))?;
        let abilities = found.map_or_else(|| abilities::of_type(&kind.fs_type), |found| found.abilities);
        let origin = match identity.known {
            Some(_) => Origin::Known,
            None if holds_something(root.as_fd()) => Origin::Occupied,
            None => Origin::Empty,
        };
        let online = Online {
            origin,
            root: Arc::new(BranchFd::new(root, closer.as_ref())),
            hidden,
            marker,
            source,
            uuid: identity.uuid,
            slot,
            dev: stat.st_dev,
            root_ino: stat.st_ino,
            fs_type: kind.fs_type,
            abilities,
            guarded,
            is_mount: kind.is_mount,
            unsynced: Unsynced::default(),
            epoch: EPOCH.fetch_add(1, Ordering::Relaxed),
            workers: guarded.then(|| Workers::new(Arc::clone(&self.threads.calls), workers::CALLS)),
            copiers: guarded.then(|| Workers::new(Arc::clone(&self.threads.copies), workers::COPIES)),
            _private_mount: private_mount.map(|held| held.map(|fd| BranchFd::new(fd, closer.as_ref()))),
            closer,
            _claim: claim,
            _life: Arc::clone(&self.lives),
        };
        Ok(Candidate { online, read_only, marker_unread: identity.marker_unread })
    }

    fn path(&self) -> PathBuf {
        self.spec.path.clone()
    }

    fn io(&self, step: &'static str) -> impl Fn(Errno) -> BranchError {
        let path = self.path();
        move |source| BranchError::Io { path: path.clone(), step, source }
    }

    /// Fails if the disk does not answer. The page cache of a dead disk would otherwise bring the branch online again
    /// and again.
    fn probe_disk(&self, dev: u64, source: Option<&str>) -> Result<(), BranchError> {
        match block_device::answers(dev, source) {
            Some(Err(errno)) if !matches!(errno, Errno::MFILE | Errno::NFILE) => {
                Err(self.io("reading its disk")(errno))
            }
            _ => Ok(()),
        }
    }

    /// What is remembered, also of another path: the disk may have moved, but another one is not taken for it unasked.
    fn remembered(&self) -> Option<Remembered> {
        self.state.branch(&self.spec.name)
    }

    fn check_mount(&self, kind: &FsKind) -> Result<(), BranchError> {
        if kind.is_mount {
            return Ok(());
        }
        let must = self.spec.require_mount.or_else(|| self.remembered().map(|known| known.was_mount));
        match must {
            Some(true) => Err(BranchError::NotMounted { path: self.path() }),
            Some(false) => Ok(()),
            // On the root file system it may be meant: `umbrella mount` says so.
            None => match not_mounted(&self.spec.path) {
                Some(reason @ NotMounted::InFstab { .. }) => Err(BranchError::NotMountedYet { reason }),
                _ => Ok(()),
            },
        }
    }

    fn identify(
        &self,
        root: BorrowedFd<'_>,
        kind: &FsKind,
        fsid: Option<u64>,
        writable: bool,
    ) -> Result<Identity, BranchError> {
        let hidden = identity::find_hidden(root);
        let mut marker_unread = None;
        let marker = match hidden {
            Ok(Some(dir)) => match Marker::read(dir.as_fd()) {
                Err(MarkerError::Io(errno)) if speaks_of_disk(errno) => {
                    marker_unread = Some(errno);
                    Some(self.marker_by_file_system(fsid).ok_or_else(|| self.marker_error(errno.into()))?)
                }
                read => read.map_err(|error| self.marker_error(error))?,
            },
            // On a file system of one owner only `open_hidden` can tell whether the folder is ours.
            Err(HiddenError::Wrong(HiddenProblem::Owner { .. })) if writable => self.read_foreign(root)?,
            Ok(None) | Err(HiddenError::Wrong(HiddenProblem::Owner { .. })) => None,
            Err(error) => return Err(self.hidden_error(error)),
        };
        self.check_replaced(marker.as_ref())?;
        let known = self.remembered();
        if let Some(known) = &known {
            self.compare(known, marker.as_ref(), kind, fsid)?;
        }
        let uuid = match (&marker, &known) {
            (Some(marker), _) => marker.uuid,
            (None, Some(known)) => known.uuid,
            (None, None) => Uuid::new_v4(),
        };
        Ok(Identity { uuid, marker, marker_unread, known })
    }

    /// What the marker said, if the same file system is where it was: a bad sector below the marker does not take the
    /// rest of the disk away.
    fn marker_by_file_system(&self, fsid: Option<u64>) -> Option<Marker> {
        let known = self.remembered()?;
        let is_it = known.has_marker && known.path == self.spec.path && fsid.is_some() && known.fsid == fsid;
        is_it.then(|| Marker::new(known.uuid, known.slot, self.state.pool_id()))
    }

    /// Whether the disk that this path once meant was replaced by one elsewhere. The new one may come to the old place.
    fn check_replaced(&self, marker: Option<&Marker>) -> Result<(), BranchError> {
        let Some(known) = self.state.branch(&self.spec.name) else { return Ok(()) };
        let is_it = known.path == self.spec.path || marker.is_some_and(|marker| marker.uuid == known.uuid);
        if is_it || !known.former_paths.contains(&self.spec.path) {
            return Ok(());
        }
        Err(BranchError::ReplacedElsewhere { path: self.path(), name: self.spec.name.clone(), by: known.path })
    }

    /// Whether the path still holds the same directory.
    fn compare(
        &self,
        known: &Remembered,
        marker: Option<&Marker>,
        kind: &FsKind,
        fsid: Option<u64>,
    ) -> Result<(), BranchError> {
        let another = |found: String| {
            let name = self.spec.name.clone();
            let hides = kind.is_mount && !known.was_mount;
            let theirs = marker.and_then(|marker| self.state.name_of(marker.uuid)).filter(|theirs| *theirs != name);
            Err(BranchError::Another { path: self.path(), name, found, hides, theirs })
        };
        match marker {
            Some(marker) if marker.uuid == known.uuid => Ok(()),
            Some(marker) => another(format!("its marker says {}", marker.uuid.simple())),
            None if known.has_marker && kind.is_mount => another("it has no marker".to_owned()),
            None if known.has_marker && known.was_mount => Err(BranchError::NotMounted { path: self.path() }),
            None if known.has_marker => Err(BranchError::NoMarker { path: self.path(), name: self.spec.name.clone() }),
            None => match (known.fsid, fsid) {
                (Some(old), Some(new)) if old != new => another(format!("file system id {new:x}")),
                (Some(_), None) => another(format!("a {}", kind.fs_type)),
                _ => Ok(()),
            },
        }
    }

    /// The marker in a hidden folder whose owner is not the daemon's user. Believed only once `open_hidden` has
    /// accepted the folder.
    fn read_foreign(&self, root: BorrowedFd<'_>) -> Result<Option<Marker>, BranchError> {
        let hidden = identity::make_hidden(root, None).map_err(|error| self.hidden_error(error))?;
        Marker::read(hidden.dir.as_fd()).map_err(|error| self.marker_error(error))
    }

    /// A branch of the same identity elsewhere that is not online just now, but is still where it was. One that does
    /// not answer holds up no caller.
    fn absent_twin(&self, identity: &Identity) -> Option<String> {
        let others = self.state.others_with_uuid(&identity.uuid, &self.spec.name);
        let still_there = |path: &PathBuf| {
            let path = path.clone();
            run_within(LOOK_AT_OTHERS, move || marker_at(&path)).flatten() == Some(identity.uuid)
        };
        others.into_iter().find(|(_, path)| still_there(path)).map(|(name, _)| name)
    }

    fn open_hidden(&self, root: BorrowedFd<'_>, closer: Option<&Closer>) -> Result<Hidden, BranchError> {
        let hidden = identity::make_hidden(root, closer).map_err(|error| self.hidden_error(error))?;
        self.lock(&hidden.dir)?;
        Ok(hidden)
    }

    /// Keeps a second daemon away. Our own previous life may still hold the lock.
    ///
    /// A killed daemon holds the lock until its last thread is gone. So does any process that it started, until that
    /// process runs: the child has all descriptors up to `execve`. So a lock is waited for before it is believed: to go
    /// on without the branch would hide its files.
    fn lock(&self, dir: &BranchFd) -> Result<(), BranchError> {
        let until = Instant::now() + self.lock_timeout;
        let mut last = false;
        while let Err(Errno::WOULDBLOCK) = rustix::fs::flock(dir, FlockOperation::NonBlockingLockExclusive) {
            // The branch has one share, this plan another.
            if Arc::strong_count(&self.lives) > 2 {
                return Ok(());
            }
            if last {
                return Err(BranchError::InUse { path: self.path() });
            }
            // At least once more, as a previous life may have ended between the two questions.
            last = Instant::now() >= until;
            if !last {
                std::thread::sleep(LOCK_RETRY);
            }
        }
        // Not every file system has locks.
        Ok(())
    }

    fn still_wanted(&self) -> Result<(), BranchError> {
        let is_retired = self.retired.load(Ordering::Acquire);
        if is_retired { Err(BranchError::Retired { path: self.path() }) } else { Ok(()) }
    }

    /// Chooses the slot and makes the identity last. The marker comes first: a memory without it would say "not
    /// mounted".
    fn settle(
        &self,
        identity: &Identity,
        hidden: Option<&Hidden>,
        kind: &FsKind,
        fsid: Option<u64>,
        abilities: Option<Abilities>,
    ) -> Result<u16, BranchError> {
        let brought = identity.marker.as_ref().map(|marker| marker.slot);
        let slot = match &identity.known {
            Some(known) => known.slot,
            None => self.state.slot_for(&self.spec.name, brought)?,
        };
        let marker = Marker::new(identity.uuid, slot, self.state.pool_id());
        if let Some(hidden) = hidden
            && identity.marker.as_ref() != Some(&marker)
        {
            marker.write(hidden).map_err(self.io("writing its marker"))?;
        }
        let what = Remembered {
            uuid: identity.uuid,
            slot,
            was_mount: identity.known.as_ref().map_or(kind.is_mount, |known| known.was_mount),
            path: self.path(),
            has_marker: hidden.is_some() || identity.marker.is_some(),
            fsid,
            former_paths: identity.known.as_ref().map(|known| known.former_paths.clone()).unwrap_or_default(),
            abilities,
        };
        self.state.remember(&self.spec.name, &what)?;
        Ok(slot)
    }

    fn hidden_error(&self, error: HiddenError) -> BranchError {
        match error {
            HiddenError::Io(source) => self.io("opening its hidden folder")(source),
            HiddenError::Wrong(problem) => BranchError::Hidden { path: self.path(), problem },
        }
    }

    fn marker_error(&self, error: MarkerError) -> BranchError {
        match error {
            MarkerError::Io(source) => self.io("reading its marker")(source),
            MarkerError::Damaged(detail) => BranchError::Marker { path: self.path(), detail },
        }
    }
}

/// Types whose `f_fsid` is the same after a remount.
fn lasting_fsid(kind: &FsKind) -> bool {
    matches!(kind.fs_type.as_str(), "ext2" | "ext3" | "ext4" | "xfs" | "btrfs" | "f2fs")
}

/// Whether a pool knew a branch before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// It was a branch of this pool.
    Known,
    /// It is new, and holds nothing.
    Empty,
    /// It is new, and brings files: what its root has closed is not for the pool to open.
    Occupied,
}

/// Whether a branch has anything of its users. One that cannot be read has.
fn holds_something(root: BorrowedFd<'_>) -> bool {
    const OWN: [&[u8]; 4] = [b".", b"..", b"lost+found", HIDDEN_DIR.as_bytes()];
    let Ok(names) = rustix::fs::Dir::read_from(root) else { return true };
    names.into_iter().any(|name| name.map_or(true, |name| !OWN.contains(&name.file_name().to_bytes())))
}

impl Branch {
    /// Whether a configuration may be put in force while the branch is online. One that is offline is looked at when it
    /// comes.
    pub(crate) fn check_settings(&self, spec: &BranchSpec) -> Result<(), BranchError> {
        let Some(online) = self.online() else { return Ok(()) };
        check_countable(spec, online.is_mount, self.space().files_total)
    }
}

/// `max_files` goes by the inodes of the file system, which must be the branch's own.
fn check_countable(spec: &BranchSpec, is_mount: bool, inodes: u64) -> Result<(), BranchError> {
    let why = match spec.max_files {
        Some(_) if !is_mount => "it is not a mount point, and its file system holds other files too",
        Some(_) if inodes == 0 => "its file system does not count inodes",
        _ => return Ok(()),
    };
    Err(BranchError::Uncountable { path: spec.path.clone(), why })
}
