//! Where the operations are done: the pool and the plain directory side by side.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{AtFlags, CWD, FallocateFlags, Mode, OFlags, RenameFlags, Timespec, Timestamps, XattrFlags};

use crate::operation::{Allocate, Flags, HANDLES, How, Operation, Who};
use crate::support::disk::Disk;
use crate::support::pool::Pool;
use crate::support::process::as_nobody;
use crate::support::tree::{Times, Tree, difference, hash, snapshot};
use crate::support::{KIB, MIB, bytes};

/// What an operation answered: an error number, or what a caller learns.
pub(crate) type Answer = Result<String, i32>;

/// One of the two trees, with the files that are open in it.
#[derive(Debug)]
pub(crate) struct World {
    root: PathBuf,
    handles: Vec<Option<File>>,
}

fn by<T: Send>(who: Who, work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    match who {
        Who::Root => work(),
        Who::Nobody => as_nobody(work),
    }
}

/// What `fstat` tells, without times and device.
fn reported(file: &File) -> io::Result<String> {
    let meta = file.metadata()?;
    let size = if meta.is_dir() { 0 } else { meta.len() };
    let links = if meta.is_dir() { 0 } else { meta.nlink() };
    Ok(format!("mode {:o} owner {}:{} size {size} links {links}", meta.mode(), meta.uid(), meta.gid()))
}

impl World {
    pub(crate) fn new(root: PathBuf) -> Self {
        Self { root, handles: (0..HANDLES).map(|_| None).collect() }
    }

    /// Closes everything.
    pub(crate) fn close(&mut self) {
        self.handles.iter_mut().for_each(|handle| *handle = None);
    }

    /// Does it, and says what a caller would learn.
    pub(crate) fn apply(&mut self, operation: &Operation) -> Answer {
        self.try_apply(operation).map_err(|error| error.raw_os_error().unwrap_or(-1))
    }

    fn handle(&self, handle: usize) -> io::Result<&File> {
        self.handles[handle].as_ref().ok_or_else(|| io::Error::from_raw_os_error(libc::EBADF))
    }

    fn try_apply(&mut self, operation: &Operation) -> io::Result<String> {
        let at = |name: &str| self.root.join(name);
        let done = |()| String::new();
        match *operation {
            Operation::Write { name, size, seed, who } => by(who, || {
                let file = open(&at(name), OpenOptions::new().write(true).create(true).truncate(true))?;
                file.write_all_at(&bytes(seed, size), 0)
            })
            .map(done),
            Operation::WriteAt { name, at: offset, size, seed } => {
                let file = open(&at(name), OpenOptions::new().write(true))?;
                file.write_all_at(&bytes(seed, size), offset).map(done)
            }
            Operation::Append { name, size, seed, who } => by(who, || {
                let mut file = open(&at(name), OpenOptions::new().append(true))?;
                io::Write::write_all(&mut file, &bytes(seed, size))?;
                reported(&file)
            }),
            Operation::Truncate { name, size } => Ok(done(nix::unistd::truncate(&at(name), size as i64)?)),
            Operation::Allocate { name, mode, at: offset, size } => {
                let file = open(&at(name), OpenOptions::new().write(true))?;
                Ok(done(rustix::fs::fallocate(&file, flags(mode), offset, size)?))
            }
            Operation::Open { handle, name, how } => {
                let mut options = OpenOptions::new();
                match how {
                    How::Read => options.read(true),
                    How::Create => options.read(true).write(true).create(true),
                    How::CreateNew => options.read(true).write(true).create_new(true),
                    How::Append => options.read(true).append(true),
                    How::Truncate => options.read(true).write(true).truncate(true),
                };
                let file = open(&at(name), &mut options)?;
                let what = reported(&file)?;
                self.handles[handle] = Some(file);
                Ok(what)
            }
            Operation::OpenUnnamed { handle, dir } => {
                let file = rustix::fs::open(at(dir), OFlags::TMPFILE | OFlags::RDWR, Mode::from(0o644))?;
                self.handles[handle] = Some(File::from(file));
                Ok(String::new())
            }
            Operation::LinkUnnamed { handle, name } => {
                let number = std::os::fd::AsRawFd::as_raw_fd(self.handle(handle)?);
                let link = format!("/proc/self/fd/{number}");
                Ok(done(rustix::fs::linkat(CWD, link, CWD, at(name), AtFlags::SYMLINK_FOLLOW)?))
            }
            Operation::HandleWrite { handle, at: offset, size, seed } => {
                self.handle(handle)?.write_all_at(&bytes(seed, size), offset).map(done)
            }
            Operation::HandleRead { handle } => content(self.handle(handle)?),
            Operation::HandleStat { handle } => reported(self.handle(handle)?),
            Operation::HandleTruncate { handle, size } => self.handle(handle)?.set_len(size).map(done),
            Operation::HandleMode { handle, mode } => {
                self.handle(handle)?.set_permissions(fs::Permissions::from_mode(mode)).map(done)
            }
            Operation::Close { handle } => {
                self.handles[handle] = None;
                Ok(String::new())
            }
            Operation::Copy { from, to } => {
                let mut source = open(&at(from), OpenOptions::new().read(true))?;
                if !source.metadata()?.is_file() {
                    return Ok("no file".to_owned());
                }
                let mut target = open(&at(to), OpenOptions::new().write(true).create(true).truncate(true))?;
                io::copy(&mut source, &mut target).map(|copied| copied.to_string())
            }
            Operation::MakeDir { name, mode, who } => {
                by(who, || Ok(rustix::fs::mkdir(at(name), Mode::from(mode))?)).map(done)
            }
            Operation::RemoveDir { name, who } => by(who, || fs::remove_dir(at(name))).map(done),
            Operation::Unlink { name, who } => by(who, || Ok(nix::unistd::unlink(&at(name))?)).map(done),
            Operation::Rename { from, to, flags, who } => {
                let flags = match flags {
                    Flags::None => RenameFlags::empty(),
                    Flags::NoReplace => RenameFlags::NOREPLACE,
                    Flags::Exchange => RenameFlags::EXCHANGE,
                };
                by(who, || Ok(rustix::fs::renameat_with(CWD, at(from), CWD, at(to), flags)?)).map(done)
            }
            Operation::Link { from, to, who } => by(who, || fs::hard_link(at(from), at(to))).map(done),
            Operation::Symlink { target, name } => symlink(target, at(name)).map(done),
            Operation::Pipe { name } => {
                Ok(done(nix::unistd::mkfifo(&at(name), nix::sys::stat::Mode::from_bits_truncate(0o644))?))
            }
            Operation::Mode { name, mode, who } => {
                by(who, || fs::set_permissions(at(name), fs::Permissions::from_mode(mode))).map(done)
            }
            Operation::Owner { name, uid, gid, who } => {
                by(who, || std::os::unix::fs::lchown(at(name), uid, gid)).map(done)
            }
            Operation::Times { name, secs, nanos } => {
                let time = Timespec { tv_sec: secs, tv_nsec: nanos };
                let times = Timestamps { last_access: time, last_modification: time };
                rustix::fs::utimensat(CWD, at(name), &times, AtFlags::SYMLINK_NOFOLLOW)?;
                let meta = fs::symlink_metadata(at(name))?;
                Ok(format!("{} {} {} {}", meta.atime(), meta.atime_nsec(), meta.mtime(), meta.mtime_nsec()))
            }
            Operation::SetXattr { name, key, size } => {
                Ok(done(rustix::fs::lsetxattr(at(name), key, &bytes(7, size), XattrFlags::empty())?))
            }
            Operation::RemoveXattr { name, key } => Ok(done(rustix::fs::lremovexattr(at(name), key)?)),
            Operation::Read { name, who } => {
                by(who, || content(&open(&at(name), OpenOptions::new().read(true).custom_flags_nonblock())?))
            }
            Operation::List { name, who } => by(who, || {
                let mut names = Vec::new();
                for entry in fs::read_dir(at(name))? {
                    let entry = entry?;
                    names.push(format!("{:?} {:?}", entry.file_name(), entry.file_type()?));
                }
                names.sort();
                Ok(names.join(", "))
            }),
            Operation::Enforce => Ok(String::new()),
            Operation::Remount => {
                self.close();
                Ok(String::new())
            }
        }
    }
}

/// A pipe must not make the test wait for somebody at its other end.
trait NonBlocking {
    fn custom_flags_nonblock(&mut self) -> &mut Self;
}

impl NonBlocking for OpenOptions {
    fn custom_flags_nonblock(&mut self) -> &mut Self {
        std::os::unix::fs::OpenOptionsExt::custom_flags(self, libc::O_NONBLOCK)
    }
}

fn open(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    options.custom_flags_nonblock().open(path)
}

fn content(file: &File) -> io::Result<String> {
    let meta = file.metadata()?;
    if !meta.is_file() {
        return reported(file);
    }
    let mut data = vec![0; meta.len() as usize];
    file.read_exact_at(&mut data, 0)?;
    Ok(format!("{} bytes, {:x}", data.len(), hash(&data)))
}

fn flags(mode: Allocate) -> FallocateFlags {
    match mode {
        Allocate::Plain => FallocateFlags::empty(),
        Allocate::KeepSize => FallocateFlags::KEEP_SIZE,
        Allocate::Punch => FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
    }
}

/// The pool and the plain directory.
#[derive(Debug)]
pub(crate) struct Twins {
    pub(crate) pool: Pool,
    pub(crate) plain: Disk,
    branches: [Disk; 3],
    /// Files that moved before the last remount.
    moved: u64,
}

impl Twins {
    /// `data`: keys of the branches; `top`: of the pool.
    pub(crate) fn new(data: &str, top: &str, limit: Duration) -> Self {
        let branches = [Disk::tmpfs(192 * KIB), Disk::ext4(64 * MIB), Disk::ext4(64 * MIB)];
        let pool = Pool::builder()
            .branch_with("tiny", branches[0].path(), data)
            .branch_with("b", branches[1].path(), &format!("{data}\nheadroom = 0"))
            .branch_with("rest", branches[2].path(), &format!("{data}\nheadroom = 0"))
            .default(&["tiny", "rest"])
            .rules(
                "[[rule]]\nname = \"read-only\"\nwhen = { access = \"read-only\", type = \"file\" }\nto = [\"rest\", \"default\", \"any\"]\n\
                 [[rule]]\nname = \"large\"\nwhen = { size = \">= 32KiB\" }\nto = [\"b\", \"rest\", \"default\", \"any\"]\n\
                 [[rule]]\nname = \"by name\"\nmatch = [{ glob = \"/**.b\", to = [\"b\", \"default\", \"any\"] }]\n",
            )
            .keys(top)
            .limit(limit)
            .mount();
        let twins = Self { pool, plain: Disk::ext4(64 * MIB), branches, moved: 0 };
        for root in [twins.pool.mount_point(), twins.plain.path()] {
            fs::set_permissions(root, fs::Permissions::from_mode(0o777)).unwrap();
        }
        twins
    }

    /// Removes everything from both.
    pub(crate) fn empty(&mut self) {
        for root in [self.pool.mount_point(), self.plain.path()] {
            for entry in fs::read_dir(&root).unwrap() {
                let path = entry.unwrap().path();
                if path.symlink_metadata().unwrap().is_dir() {
                    fs::remove_dir_all(&path).unwrap();
                } else {
                    fs::remove_file(&path).unwrap();
                }
            }
            fs::set_permissions(&root, fs::Permissions::from_mode(0o777)).unwrap();
            std::os::unix::fs::chown(&root, Some(0), Some(0)).unwrap();
            for key in crate::support::tree::xattrs(&root).keys() {
                rustix::fs::removexattr(&root, &**key).unwrap();
            }
        }
    }

    /// What only the pool does.
    pub(crate) fn beside(&mut self, operation: &Operation, worlds: &mut [World; 2]) {
        match operation {
            Operation::Enforce => {
                self.pool.enforce();
            }
            Operation::Remount => {
                worlds.iter_mut().for_each(World::close);
                self.moved = self.moves();
                self.pool.remount();
            }
            _ => {}
        }
    }

    /// How often a file moved.
    pub(crate) fn moves(&self) -> u64 {
        self.moved + self.pool.moves()
    }

    /// Everything that can be seen and differs.
    pub(crate) fn difference(&self) -> String {
        let trees = [self.plain.path(), self.pool.mount_point()].map(|root| snapshot(&root, Times::Ignored));
        let text = difference(&trees[0], &trees[1]);
        if !text.is_empty() {
            return text;
        }
        let [plain, pool] = [self.plain.path(), self.pool.mount_point()];
        let (expected, found) = (same_files(&plain, &trees[0]), same_files(&pool, &trees[1]));
        if expected == found {
            String::new()
        } else {
            format!("  one file under names {found:?}, expected {expected:?}")
        }
    }

    /// Also when everything has moved where it belongs: nothing differs, and every file is on one branch.
    pub(crate) fn at_rest(&self) -> Result<(), String> {
        self.pool.settle();
        let text = self.difference();
        if !text.is_empty() {
            return Err(text);
        }
        let mut holders: BTreeMap<PathBuf, usize> = BTreeMap::new();
        for path in self.branches.iter().flat_map(Disk::files) {
            *holders.entry(path).or_default() += 1;
        }
        let twice: Vec<_> = holders.into_iter().filter(|(_, count)| *count > 1).collect();
        if twice.is_empty() { Ok(()) } else { Err(format!("  on several branches: {twice:?}")) }
    }
}

/// Names of files that have several, grouped by file.
fn same_files(root: &Path, tree: &Tree) -> Vec<Vec<PathBuf>> {
    let mut groups: BTreeMap<u64, Vec<PathBuf>> = BTreeMap::new();
    for (path, _) in tree.iter().filter(|(_, entry)| entry.links > 1) {
        let inode = fs::symlink_metadata(root.join(path)).unwrap().ino();
        groups.entry(inode).or_default().push(path.clone());
    }
    let mut groups: Vec<_> = groups.into_values().collect();
    groups.sort();
    groups
}
