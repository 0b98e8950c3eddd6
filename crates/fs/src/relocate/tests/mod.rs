//! What tests share: a pool of two branches, snapshots of files to compare, small file systems. They need root.

mod batch;
mod copying;
mod crash;
mod directories;
mod exchange;
mod format;
mod hostile;
mod power_loss;
mod silent;
mod unsure;

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use rustix::fs::{CWD, Mode, OFlags, SeekFrom, XattrFlags, lsetxattr, openat, seek};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use tempfile::TempDir;

use crate::branch::Abilities;
use crate::relocate::recover::EVERYTHING;
use crate::relocate::*;

/// The connection to a branch, with a fault after a given number of calls.
#[derive(Debug, Clone)]
struct Line {
    sound: Arc<AtomicI32>,
    fault: Fault,
}

/// What goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// It breaks, and nothing comes through any more.
    Breaks,
    /// As before; the call in which it breaks is carried out.
    LosesAnswer,
    /// This call is refused, and all others come through.
    Refuses,
}

impl Line {
    fn sound() -> Line {
        Line::fails_after(i32::MAX, Fault::Breaks)
    }

    fn fails_after(calls: i32, fault: Fault) -> Line {
        Line { sound: Arc::new(AtomicI32::new(calls)), fault }
    }

    fn has_failed(&self) -> bool {
        self.sound.load(Ordering::Relaxed) < 0
    }
}

impl BranchCaller for Line {
    fn call<T: Send + 'static>(
        &self,
        call: impl FnOnce() -> Result<T, RelocateError> + Send + 'static,
    ) -> Result<T, RelocateError> {
        let left = self.sound.fetch_sub(1, Ordering::Relaxed);
        if left > 0 || (left < 0 && self.fault == Fault::Refuses) {
            return call();
        }
        match self.fault {
            Fault::Refuses => return Err(RelocateError::NoSpace),
            Fault::LosesAnswer if left == 0 => drop(call()),
            Fault::LosesAnswer | Fault::Breaks => {}
        }
        Err(RelocateError::Io { doing: "reach the branch", errno: rustix::io::Errno::TIMEDOUT })
    }
}

/// A name below a directory.
fn spot(dir: &Path, name: &str) -> OwnedEntry {
    OwnedEntry { dir: Arc::new(open(dir)), name: name.into() }
}

fn journal(root: &Path, reach: Line) -> Journal<Line> {
    Journal { reach, dir: Arc::new(open(root.join(".umbrella/intents"))) }
}

/// A branch that is back, of which nothing was given up.
fn back(uuid: BranchUuid) -> Returned<'static> {
    Returned { uuid, given_up: &|_| false }
}

const A: BranchUuid = BranchUuid(uuid::Uuid::from_bytes([0xaa; 16]));
const B: BranchUuid = BranchUuid(uuid::Uuid::from_bytes([0xbb; 16]));
const ACL: &str = "system.posix_acl_access";
const ALL: Abilities = EVERYTHING;

/// `user::rw-,user:1234:rw-,group::r--,mask::rw-,other::r--` as the kernel takes it.
fn acl() -> Vec<u8> {
    let mut bytes = 2_u32.to_le_bytes().to_vec();
    for (tag, perm, id) in
        [(0x01_u16, 6_u16, u32::MAX), (0x02, 6, 1234), (0x04, 4, u32::MAX), (0x10, 6, u32::MAX), (0x20, 4, u32::MAX)]
    {
        bytes.extend_from_slice(&tag.to_le_bytes());
        bytes.extend_from_slice(&perm.to_le_bytes());
        bytes.extend_from_slice(&id.to_le_bytes());
    }
    bytes
}

/// `cap_net_raw=ep`, revision 2.
fn capability() -> Vec<u8> {
    [0x0200_0001_u32, 1 << 13, 0, 0, 0].iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn open(path: impl AsRef<Path>) -> OwnedFd {
    openat(CWD, path.as_ref(), OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty()).unwrap()
}

fn set_xattr(path: &Path, name: &str, value: &[u8]) {
    lsetxattr(path, name, value, XattrFlags::empty()).unwrap();
}

fn set_times(path: &Path, atime: (i64, i64), mtime: (i64, i64)) {
    let spec = |(tv_sec, tv_nsec)| rustix::fs::Timespec { tv_sec, tv_nsec };
    let times = rustix::fs::Timestamps { last_access: spec(atime), last_modification: spec(mtime) };
    rustix::fs::utimensat(CWD, path, &times, rustix::fs::AtFlags::SYMLINK_NOFOLLOW).unwrap();
}

/// Everything of a file that a user can see, except where it is.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Snapshot {
    mode: u32,
    owner: (u32, u32),
    rdev: u64,
    size: u64,
    atime: (i64, i64),
    mtime: (i64, i64),
    xattrs: Vec<(OsString, Vec<u8>)>,
    data: Vec<u8>,
}

fn snapshot(path: &Path) -> Snapshot {
    let meta = fs::symlink_metadata(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut xattrs = attrs::xattrs(open(path).as_fd()).unwrap();
    xattrs.sort();
    let data = if meta.is_file() {
        read_quietly(path)
    } else if meta.is_symlink() {
        fs::read_link(path).unwrap().as_os_str().as_bytes().to_vec()
    } else {
        assert!(meta.file_type().is_fifo() || meta.file_type().is_socket() || meta.rdev() != 0 || meta.is_dir());
        Vec::new()
    };
    Snapshot {
        mode: meta.mode(),
        owner: (meta.uid(), meta.gid()),
        rdev: meta.rdev(),
        size: meta.size(),
        atime: (meta.atime(), meta.atime_nsec()),
        mtime: (meta.mtime(), meta.mtime_nsec()),
        xattrs,
        data,
    }
}

fn read_quietly(path: &Path) -> Vec<u8> {
    use std::io::Read;
    let mut bytes = Vec::new();
    fs::File::from(copy::reopen(open(path).as_fd()).unwrap()).read_to_end(&mut bytes).unwrap();
    bytes
}

/// The runs of data of a file.
fn data_runs(path: &Path) -> Vec<(u64, u64)> {
    let file = copy::reopen(open(path).as_fd()).unwrap();
    let mut runs = Vec::new();
    let mut at = 0;
    while let Ok(start) = seek(&file, SeekFrom::Data(at)) {
        at = seek(&file, SeekFrom::Hole(start)).unwrap();
        runs.push((start, at));
    }
    runs
}

struct Pool {
    _temp: TempDir,
    a: PathBuf,
    b: PathBuf,
}

impl Pool {
    fn new() -> Self {
        let temp = tempfile::tempdir().unwrap();
        let pool = Pool { a: temp.path().join("a"), b: temp.path().join("b"), _temp: temp };
        for root in [&pool.a, &pool.b] {
            fs::create_dir_all(root.join(".umbrella/tmp")).unwrap();
            fs::create_dir_all(root.join(".umbrella/intents")).unwrap();
        }
        pool
    }

    /// Directories on both branches.
    fn dirs(self, dirs: &[&str]) -> Self {
        for dir in dirs {
            fs::create_dir_all(self.a.join(dir)).unwrap();
            fs::create_dir_all(self.b.join(dir)).unwrap();
        }
        self
    }

    fn temp(&self) -> PathBuf {
        self.b.join(".umbrella/tmp/copy")
    }

    fn copy(&self, name: &str) -> Result<DurableCopy, RelocateError> {
        copy_path(&self.a.join(name), &self.temp(), &ALL)
    }

    /// Steps 4 to 9 from a to b, for all the names of one file.
    fn commit(&self, names: &[&str], copied: &DurableCopy, hook: Option<StepHook<'_>>) -> Result<(), RelocateError> {
        match self.commit_deciding(names, copied, &Decision::default(), hook)? {
            Removal::Done => Ok(()),
            Removal::Unsure { errno } => panic!("the source may be there: {errno}"),
        }
    }

    fn commit_deciding(
        &self,
        names: &[&str],
        copied: &DurableCopy,
        decision: &Decision,
        hook: Option<StepHook<'_>>,
    ) -> Result<Removal, RelocateError> {
        let dir = |root: &Path, name: &str| open(root.join(name).parent().unwrap());
        let dirs: Vec<_> = names.iter().map(|name| (dir(&self.a, name), dir(&self.b, name))).collect();
        let moved: Vec<_> = names
            .iter()
            .zip(&dirs)
            .map(|(name, (source, target))| {
                let last = Path::new(name).file_name().unwrap();
                MovedName {
                    source: EntryAt { dir: source.as_fd(), name: last },
                    target: EntryAt { dir: target.as_fd(), name: last },
                    path: name.as_bytes(),
                }
            })
            .collect();
        let (temp, intents) = (open(self.b.join(".umbrella/tmp")), open(self.a.join(".umbrella/intents")));
        commit(&Move {
            from: A,
            to: B,
            names: &moved,
            temp: EntryAt { dir: temp.as_fd(), name: OsStr::new("copy") },
            intents: intents.as_fd(),
            copied,
            durability: Durability::Now,
            decision,
            hook,
        })
    }

    fn relocate(&self, names: &[&str], hook: Option<StepHook<'_>>) -> Result<(), RelocateError> {
        let copied = self.copy(names[0])?;
        self.commit(names, &copied, hook)
    }

    fn with_branches<T>(&self, present: &[BranchUuid], run: impl FnOnce(&[RecoverBranch<'_>]) -> T) -> T {
        let (a, b) = (open(&self.a), open(&self.b));
        let all = [
            RecoverBranch { uuid: A, root: a.as_fd(), writable: true },
            RecoverBranch { uuid: B, root: b.as_fd(), writable: true },
        ];
        let present: Vec<_> = all.into_iter().filter(|branch| present.contains(&branch.uuid)).collect();
        run(&present)
    }

    fn recover(&self) -> Recovery {
        self.with_branches(&[A, B], recover)
    }

    fn hidden_files(&self) -> Vec<PathBuf> {
        let mut found = Vec::new();
        for root in [&self.a, &self.b] {
            for dir in [".umbrella/tmp", ".umbrella/intents"] {
                found.extend(fs::read_dir(root.join(dir)).unwrap().map(|entry| entry.unwrap().path()));
            }
        }
        found
    }

    /// The one branch that has the name.
    fn only(&self, name: &str) -> PathBuf {
        let on: Vec<_> = [&self.a, &self.b]
            .into_iter()
            .map(|root| root.join(name))
            .filter(|path| fs::symlink_metadata(path).is_ok())
            .collect();
        assert_eq!(on.len(), 1, "{name} is on {on:?}");
        on.into_iter().next().unwrap()
    }
}

fn copy_path(source: &Path, temp: &Path, abilities: &Abilities) -> Result<DurableCopy, RelocateError> {
    let cancel = AtomicBool::new(false);
    copy_limited(source, temp, abilities, &Limits::new(&cancel))
}

fn copy_limited(
    source: &Path,
    temp: &Path,
    abilities: &Abilities,
    limits: &Limits<'_>,
) -> Result<DurableCopy, RelocateError> {
    let (from, to) = (open(source.parent().unwrap()), open(temp.parent().unwrap()));
    copy(
        EntryAt { dir: from.as_fd(), name: source.file_name().unwrap() },
        EntryAt { dir: to.as_fd(), name: temp.file_name().unwrap() },
        abilities,
        limits,
    )
}

/// A memory file system that is unmounted whatever happens.
struct Tmpfs(TempDir);

impl Tmpfs {
    fn new(options: &std::ffi::CStr) -> Self {
        let dir = tempfile::tempdir().unwrap();
        mount("tmpfs", dir.path(), "tmpfs", MountFlags::empty(), options).expect("tests of relocation need root");
        Tmpfs(dir)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        unmount(self.0.path(), UnmountFlags::DETACH).unwrap();
    }
}
