//! Files that several branches have: which copies can go, and how they go.
//!
//! A copy is deleted only when nothing is lost. In order:
//!
//! 1. Open every copy and note its attributes. The newest is kept: the pool shows it, so the tree does not change.
//! 2. The copies are different files, one name each, of one owner, mode and set of attributes. No process has them
//!    open.
//! 3. Compare every byte.
//! 4. The user agrees.
//! 5. Take a lease on both, so that any open of one of them is noticed. The attributes are those of step 1, and the
//!    names lead to the same files.
//! 6. Sync the copy that is kept, and its directory.
//! 7. Unless a lease was broken, unlink the other and sync its directory.
//!
//! No daemon uses the branches meanwhile: their locks are held.

#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing))]

#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::os::fd::AsFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{AtFlags, FlockOperation, RenameFlags, Stat};
use rustix::io::Errno;
use thiserror::Error;
use umbrella_fs::{Lease, NoLease};

use crate::survey::{Dir, Root, open_below, open_file, same_bytes};
use crate::text::{quoted, visible_path};

/// A change this short ago may not show in the attributes.
const RECENT: Duration = Duration::from_secs(2);
/// The longest name that Linux has, in bytes.
const LONGEST_NAME: usize = 255;
/// What a new name keeps of the extension and of the branch's name, in bytes.
const LONGEST_PART: usize = 64;

/// A branch that cannot be worked on.
#[derive(Debug, Error)]
pub(crate) enum BranchProblem {
    #[error("{} is in use by a mounted pool: unmount it first (`umbrella unmount`)", visible_path(path))]
    InUse { path: std::path::PathBuf },
    #[error("{} has interrupted changes: mount the pool, which finishes them, and unmount it", visible_path(path))]
    Unsettled { path: std::path::PathBuf },
    #[error("{}: {}", visible_path(path), std::io::Error::from(*source))]
    Io { path: std::path::PathBuf, source: Errno },
}

/// A branch, locked.
#[derive(Debug)]
pub(crate) struct LockedBranch {
    pub(crate) name: String,
    root: Dir,
    /// Files may be deleted here.
    is_writable: bool,
    /// Holds the lock of the branch.
    _lock: Option<Dir>,
}

impl LockedBranch {
    /// Opens a branch and keeps daemons away from it until it is dropped. `is_writable`: files may be deleted here.
    pub(crate) fn lock(root: &Root, is_writable: bool) -> Result<LockedBranch, BranchProblem> {
        let io = |source| BranchProblem::Io { path: root.path.clone(), source };
        let opened = Dir::root(&root.path).map_err(io)?;
        let lock = match open_below(&opened, Path::new(umbrella_fs::branch::HIDDEN_DIR)) {
            // No pool has used it.
            Err(Errno::NOENT) => None,
            hidden => Some(hidden.map_err(io)?),
        };
        if let Some(hidden) = &lock {
            // Not every file system has locks.
            if rustix::fs::flock(hidden, FlockOperation::NonBlockingLockExclusive) == Err(Errno::WOULDBLOCK) {
                return Err(BranchProblem::InUse { path: root.path.clone() });
            }
            if !is_settled(hidden).map_err(io)? {
                return Err(BranchProblem::Unsettled { path: root.path.clone() });
            }
        }
        Ok(LockedBranch { name: root.name.clone(), root: opened, is_writable, _lock: lock })
    }
}

/// Whether no change waits to be finished.
fn is_settled(hidden: &Dir) -> Result<bool, Errno> {
    let intents = match open_below(hidden, Path::new("intents")) {
        Err(Errno::NOENT) => return Ok(true),
        opened => opened?,
    };
    for entry in rustix::fs::Dir::read_from(&intents)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if !name.starts_with(b".") && !name.starts_with(b"bad-") {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Why a copy is left as it is.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(crate) enum KeptReason {
    #[error(
        "the branch is read-only, or on a network or FUSE file system, so Umbrella cannot tell whether a program has \
        it open"
    )]
    Branch,
    #[error("it is the kept file itself under another path")]
    SameFile,
    #[error("it has other names (hard links), which would stay")]
    OtherNames,
    #[error("owner, mode or attributes differ from those of the copy on {}", quoted(kept))]
    Attributes { kept: String },
    #[error("a program has it open")]
    Open,
    #[error("it was changed just now: try again later")]
    Changed,
    #[error("its file system has no leases, so Umbrella cannot tell whether a program has it open")]
    NoLeases,
    #[error("it is not a regular file")]
    Kind,
    #[error("{}", std::io::Error::from_raw_os_error(*errno))]
    Io { errno: i32 },
}

impl KeptReason {
    /// Whether something went wrong, and not only is as it is.
    pub(crate) fn is_failure(&self) -> bool {
        matches!(self, KeptReason::Io { .. })
    }
}

impl From<Errno> for KeptReason {
    fn from(error: Errno) -> KeptReason {
        match error {
            // What is no regular file is refused so.
            Errno::INVAL | Errno::LOOP => KeptReason::Kind,
            error => KeptReason::Io { errno: error.raw_os_error() },
        }
    }
}

impl From<std::io::Error> for KeptReason {
    fn from(error: std::io::Error) -> KeptReason {
        KeptReason::Io { errno: error.raw_os_error().unwrap_or(libc::EIO) }
    }
}

impl From<NoLease> for KeptReason {
    fn from(none: NoLease) -> KeptReason {
        match none {
            NoLease::InUse => KeptReason::Open,
            NoLease::Unsupported => KeptReason::NoLeases,
        }
    }
}

/// One copy, open.
#[derive(Debug)]
pub(crate) struct Copy<'a> {
    pub(crate) branch: &'a LockedBranch,
    parent: Dir,
    file: File,
    stat: Stat,
}

/// What a copy is beside the one that is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Equal in all: it can go.
    Equal,
    /// Other contents.
    Different,
    /// Neither deleted nor renamed.
    Left(KeptReason),
}

/// Opens the copies of a file, the newest first, as the pool chooses. Branches without it are passed over.
pub(crate) fn open<'a>(branches: &'a [LockedBranch], path: &Path) -> Result<Vec<Copy<'a>>, (&'a str, KeptReason)> {
    let (parent, name) = split(path);
    let mut copies = Vec::new();
    for branch in branches {
        let open = || -> Result<Copy<'a>, KeptReason> {
            let parent = open_below(&branch.root, parent)?;
            let file = open_file(&parent, name)?;
            let stat = rustix::fs::fstat(&file)?;
            Ok(Copy { branch, parent, file: file.into(), stat })
        };
        match open() {
            Ok(copy) => copies.push(copy),
            Err(KeptReason::Io { errno: libc::ENOENT | libc::ENOTDIR }) => {}
            Err(left) => return Err((&branch.name, left)),
        }
    }
    let newest = |copy: &Copy<'_>| {
        let stat = &copy.stat;
        Reverse((stat.st_mtime, stat.st_mtime_nsec, stat.st_ctime, stat.st_ctime_nsec))
    };
    copies.sort_by_key(newest);
    Ok(copies)
}

fn split(path: &Path) -> (&Path, &OsStr) {
    (path.parent().unwrap_or(Path::new("")), path.file_name().unwrap_or_default())
}

impl Copy<'_> {
    pub(crate) fn size(&self) -> u64 {
        self.stat.st_size.cast_unsigned()
    }

    /// What this copy is beside the one that is kept. Reads both, if it has to.
    pub(crate) fn compare(&mut self, kept: &mut Copy<'_>) -> Verdict {
        self.examine(kept).unwrap_or_else(Verdict::Left)
    }

    fn examine(&mut self, kept: &mut Copy<'_>) -> Result<Verdict, KeptReason> {
        if !self.branch.is_writable {
            return Err(KeptReason::Branch);
        }
        if (self.stat.st_dev, self.stat.st_ino) == (kept.stat.st_dev, kept.stat.st_ino) {
            return Err(KeptReason::SameFile);
        }
        if self.stat.st_size != kept.stat.st_size {
            return Ok(Verdict::Different);
        }
        for copy in [&*self, &*kept] {
            if is_recent(&copy.stat) {
                return Err(KeptReason::Changed);
            }
            // Given back at once: no process is kept waiting while the copies are read.
            Lease::shared(copy.file.as_fd()).map(drop)?;
        }
        for file in [&mut self.file, &mut kept.file] {
            file.seek(SeekFrom::Start(0))?;
        }
        if !same_bytes(&mut self.file, &mut kept.file)? {
            return Ok(Verdict::Different);
        }
        if self.stat.st_nlink > 1 {
            return Err(KeptReason::OtherNames);
        }
        if attributes(self)? != attributes(kept)? {
            return Err(KeptReason::Attributes { kept: kept.branch.name.clone() });
        }
        Ok(Verdict::Equal)
    }

    /// Deletes this copy, which [`Copy::compare`] found equal.
    pub(crate) fn delete(&self, kept: &Copy<'_>, name: &OsStr) -> Result<(), KeptReason> {
        let lease = Lease::exclusive(self.file.as_fd())?;
        let lease_of_kept = Lease::shared(kept.file.as_fd())?;
        for copy in [self, kept] {
            copy.is_unchanged(name)?;
        }
        kept.file.sync_all()?;
        rustix::fs::fsync(&kept.parent)?;
        if !lease.is_held() || !lease_of_kept.is_held() {
            return Err(KeptReason::Open);
        }
        rustix::fs::unlinkat(&self.parent, name, AtFlags::empty())?;
        rustix::fs::fsync(&self.parent)?;
        Ok(())
    }

    /// The file is as it was when it was opened, and its name still leads to it.
    fn is_unchanged(&self, name: &OsStr) -> Result<(), KeptReason> {
        let what = |stat: &Stat| {
            let times = (stat.st_mtime, stat.st_mtime_nsec, stat.st_ctime, stat.st_ctime_nsec);
            (stat.st_dev, stat.st_ino, stat.st_size, stat.st_nlink, times)
        };
        let named = rustix::fs::statat(&self.parent, name, AtFlags::SYMLINK_NOFOLLOW)?;
        let open = rustix::fs::fstat(&self.file)?;
        let is_same = what(&named) == what(&self.stat) && what(&open) == what(&self.stat);
        if is_same { Ok(()) } else { Err(KeptReason::Changed) }
    }

    /// Gives this copy a name that no branch has in this directory, and says which.
    pub(crate) fn rename(&self, branches: &[LockedBranch], path: &Path) -> Result<OsString, KeptReason> {
        if !self.branch.is_writable {
            return Err(KeptReason::Branch);
        }
        let (directory, name) = split(path);
        self.is_unchanged(name)?;
        let directories: Vec<Dir> =
            branches.iter().filter_map(|branch| open_below(&branch.root, directory).ok()).collect();
        for number in 1..=99 {
            let new = name_from(name, &self.branch.name, number);
            let is_there =
                |dir: &Dir| !matches!(rustix::fs::statat(dir, &new, AtFlags::SYMLINK_NOFOLLOW), Err(Errno::NOENT));
            if directories.iter().any(is_there) {
                continue;
            }
            match rustix::fs::renameat_with(&self.parent, name, &self.parent, &new, RenameFlags::NOREPLACE) {
                Err(Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
                Ok(()) => {
                    rustix::fs::fsync(&self.parent)?;
                    return Ok(new);
                }
            }
        }
        Err(Errno::EXIST.into())
    }
}

/// `film (from disk1).mkv`, `film (from disk1, 2).mkv`
pub(crate) fn name_from(name: &OsStr, branch: &str, number: u32) -> OsString {
    let bytes = name.as_bytes();
    // The dot of a hidden file begins its name and no extension; neither does a dot with a long rest after it.
    let is_extension = |dot: &usize| *dot > 0 && bytes.len() - dot <= LONGEST_PART;
    let dot = bytes.iter().rposition(|byte| *byte == b'.').filter(is_extension).unwrap_or(bytes.len());
    let (stem, extension) = bytes.split_at_checked(dot).unwrap_or((bytes, b""));
    let branch = branch.replace('/', "_");
    let branch = String::from_utf8_lossy(first(branch.as_bytes(), LONGEST_PART)).into_owned();
    let mark = if number == 1 { format!(" (from {branch})") } else { format!(" (from {branch}, {number})") };
    let stem = first(stem, LONGEST_NAME - mark.len() - extension.len());
    OsString::from_vec([stem, mark.as_bytes(), extension].concat())
}

/// The first bytes of a text, at most `most`, without half a character at the end.
fn first(text: &[u8], most: usize) -> &[u8] {
    let begins = |at: &usize| text.get(*at).is_none_or(|byte| byte & 0xC0 != 0x80);
    let end = (0..=text.len().min(most)).rev().find(begins).unwrap_or(0);
    text.get(..end).unwrap_or(text)
}

/// What equal copies have in common beside their bytes. Times are not compared: the newest copy stays.
#[derive(Debug, PartialEq, Eq)]
struct Attributes {
    mode: u32,
    uid: u32,
    gid: u32,
    /// Sorted.
    extended: Vec<(Vec<u8>, Vec<u8>)>,
}

fn attributes(copy: &Copy<'_>) -> Result<Attributes, KeptReason> {
    let stat = &copy.stat;
    let mut names = vec![0; 64 << 10];
    let length = match rustix::fs::flistxattr(&copy.file, &mut names) {
        // This file system has none.
        Err(Errno::NOTSUP) => 0,
        length => length?,
    };
    names.truncate(length);
    let mut found = Vec::new();
    for name in names.split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        let mut value = vec![0; 64 << 10];
        let length = rustix::fs::fgetxattr(&copy.file, OsStr::from_bytes(name), &mut value)?;
        value.truncate(length);
        found.push((name.to_vec(), value));
    }
    found.sort();
    Ok(Attributes { mode: stat.st_mode, uid: stat.st_uid, gid: stat.st_gid, extended: found })
}

fn is_recent(stat: &Stat) -> bool {
    let changed = UNIX_EPOCH + Duration::from_secs(stat.st_ctime.max(0).cast_unsigned());
    // A time in the future tells nothing.
    SystemTime::now().duration_since(changed).is_ok_and(|age| age < RECENT)
}
