//! File-system calls by descriptor and name, on one branch. No call follows a symbolic link. A hung branch cannot hang
//! the caller for long: calls on guarded branches (network, FUSE) run on the branch's own workers, and its closer
//! closes their descriptors.

use std::cell::Cell;
use std::ffi::{CString, OsStr, OsString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{AtFlags, FallocateFlags, Gid, Mode, OFlags, RenameFlags, ResolveFlags, Timestamps, Uid, XattrFlags};
use rustix::io::Errno;
use umbrella_units::BranchId;

use crate::branch::{Branch, BranchFd, ErrorSource, Online};
use crate::error::{OpError, OpResult};
use crate::ground::dir_sync::sync_dir_with;
use crate::ground::fd_path::proc_path;
use crate::ground::kernel_cache::KernelCache;
use crate::ground::locks::scheduling_point;
use crate::ground::meta::{Meta, WANTED};
use crate::ground::write_out;

const BENEATH: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS).union(ResolveFlags::NO_MAGICLINKS);

/// How long a guarded branch may take to write everything out.
const SYNC_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(120);

thread_local! {
    static CALLS: Cell<u64> = const { Cell::new(0) };
}

/// Calls on branches that this thread has made since it began, those included that a branch's own worker makes for it.
/// Closing is not counted: it happens when the last user of a descriptor goes.
pub fn calls_on_branches() -> u64 {
    CALLS.get()
}

/// One more. What is not called here but belongs to an operation, such as a registration for passthrough, is counted by
/// its caller.
pub(crate) fn count_call() {
    scheduling_point();
    CALLS.set(CALLS.get() + 1);
}

/// A directory's copy on one branch. The descriptor may be `O_PATH`.
#[derive(Clone)]
pub(crate) struct DirAt {
    pub(crate) branch: Arc<Branch>,
    pub(crate) online: Arc<Online>,
    pub(crate) fd: Arc<BranchFd>,
}

/// A descriptor on one branch: an open file, or an `O_PATH` reference to anything.
#[derive(Clone)]
pub(crate) struct FileAt {
    pub(crate) branch: Arc<Branch>,
    pub(crate) online: Arc<Online>,
    pub(crate) fd: Arc<BranchFd>,
}

impl DirAt {
    pub(crate) fn root(branch: &Arc<Branch>) -> OpResult<DirAt> {
        let online = branch.online().ok_or(OpError::Offline)?;
        let fd = Arc::clone(&online.root);
        Ok(DirAt { branch: Arc::clone(branch), online, fd })
    }

    pub(crate) fn id(&self) -> BranchId {
        self.branch.id
    }

    fn run<T: Send + 'static>(
        &self,
        name: &OsStr,
        call: impl FnOnce(BorrowedFd<'_>, &OsStr) -> rustix::io::Result<T> + Send + 'static,
    ) -> OpResult<T> {
        self.run_as(ErrorSource::Read, name, call)
    }

    fn run_as<T: Send + 'static>(
        &self,
        source: ErrorSource,
        name: &OsStr,
        call: impl FnOnce(BorrowedFd<'_>, &OsStr) -> rustix::io::Result<T> + Send + 'static,
    ) -> OpResult<T> {
        count_call();
        let done = if self.online.guarded {
            let (fd, name) = (Arc::clone(&self.fd), name.to_owned());
            self.branch.io(move |_| call(fd.as_fd(), &name))
        } else {
            call(self.fd.as_fd(), name)
        };
        Ok(self.branch.noted(source, done)?)
    }

    fn change<T: Send + 'static>(
        &self,
        name: &OsStr,
        call: impl FnOnce(BorrowedFd<'_>, &OsStr) -> rustix::io::Result<T> + Send + 'static,
    ) -> OpResult<T> {
        if self.branch.settings().read_only {
            return Err(OpError::Sys(Errno::ROFS));
        }
        let done = self.run_as(ErrorSource::Write, name, call);
        self.online.unsynced.note();
        done
    }

    fn file(&self, fd: OwnedFd) -> FileAt {
        FileAt { branch: Arc::clone(&self.branch), online: Arc::clone(&self.online), fd: Arc::new(self.online.own(fd)) }
    }

    /// Attributes of an entry.
    pub(crate) fn stat(&self, name: &OsStr) -> OpResult<Meta> {
        self.run(name, |fd, name| {
            let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
            rustix::fs::statx(fd, name, flags, WANTED)
        })
        .map(|stat| Meta::on(self.online.dev, &stat))
    }

    /// Attributes of an entry; `None` when there is none.
    pub(crate) fn find(&self, name: &OsStr) -> OpResult<Option<Meta>> {
        match self.stat(name) {
            Ok(meta) => Ok(Some(meta)),
            Err(OpError::Sys(Errno::NOENT | Errno::NOTDIR)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Attributes of the directory itself.
    pub(crate) fn stat_self(&self) -> OpResult<Meta> {
        self.as_file().stat()
    }

    pub(crate) fn as_file(&self) -> FileAt {
        FileAt { branch: Arc::clone(&self.branch), online: Arc::clone(&self.online), fd: Arc::clone(&self.fd) }
    }

    /// A directory below, as `O_PATH`.
    pub(crate) fn descend(&self, name: &OsStr) -> OpResult<DirAt> {
        let fd = self.run(name, |fd, name| {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            rustix::fs::openat2(fd, name, flags, Mode::empty(), BENEATH)
        })?;
        Ok(DirAt {
            branch: Arc::clone(&self.branch),
            online: Arc::clone(&self.online),
            fd: Arc::new(self.online.own(fd)),
        })
    }

    /// Any entry as `O_PATH`.
    pub(crate) fn refer(&self, name: &OsStr) -> OpResult<FileAt> {
        let fd = self.run(name, |fd, name| {
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            rustix::fs::openat(fd, name, flags, Mode::empty())
        })?;
        Ok(self.file(fd))
    }

    /// Opens a file.
    pub(crate) fn open(&self, name: &OsStr, flags: OFlags) -> OpResult<FileAt> {
        let fd = self.run(name, move |fd, name| {
            rustix::fs::openat(fd, name, flags | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
        })?;
        Ok(self.file(fd))
    }

    /// Creates and opens a file that must not exist. The calling thread's umask applies (see `creds`).
    pub(crate) fn create(&self, name: &OsStr, flags: OFlags, perm: u32, umask: u32) -> OpResult<FileAt> {
        let fd = self.change(name, move |fd, name| {
            crate::ground::creds::set_umask(umask)?;
            let flags = flags | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            rustix::fs::openat(fd, name, flags, Mode::from_raw_mode(perm))
        })?;
        Ok(self.file(fd))
    }

    /// Creates a file without a name in this directory.
    pub(crate) fn create_unnamed(&self, flags: OFlags, perm: u32, umask: u32) -> OpResult<FileAt> {
        let fd = self.change(OsStr::new("."), move |fd, name| {
            crate::ground::creds::set_umask(umask)?;
            rustix::fs::openat(fd, name, flags | OFlags::TMPFILE | OFlags::CLOEXEC, Mode::from_raw_mode(perm))
        })?;
        Ok(self.file(fd))
    }

    pub(crate) fn mkdir(&self, name: &OsStr, perm: u32, umask: u32) -> OpResult<()> {
        self.change(name, move |fd, name| {
            crate::ground::creds::set_umask(umask)?;
            rustix::fs::mkdirat(fd, name, Mode::from_raw_mode(perm))
        })
    }

    pub(crate) fn mknod(&self, name: &OsStr, mode: u32, umask: u32, rdev: u64) -> OpResult<()> {
        self.change(name, move |fd, name| {
            crate::ground::creds::set_umask(umask)?;
            let kind = rustix::fs::FileType::from_raw_mode(mode);
            rustix::fs::mknodat(fd, name, kind, Mode::from_raw_mode(mode & 0o7777), rdev)
        })
    }

    pub(crate) fn symlink(&self, name: &OsStr, target: &OsStr) -> OpResult<()> {
        let target = target.to_owned();
        self.change(name, move |fd, name| rustix::fs::symlinkat(&target, fd, name))
    }

    pub(crate) fn readlink(&self, name: &OsStr) -> OpResult<CString> {
        self.run(name, |fd, name| rustix::fs::readlinkat(fd, name, Vec::new()))
    }

    pub(crate) fn unlink(&self, name: &OsStr) -> OpResult<()> {
        self.change(name, |fd, name| rustix::fs::unlinkat(fd, name, AtFlags::empty()))
    }

    pub(crate) fn rmdir(&self, name: &OsStr) -> OpResult<()> {
        self.change(name, |fd, name| rustix::fs::unlinkat(fd, name, AtFlags::REMOVEDIR))
    }

    /// Renames within the branch.
    pub(crate) fn rename(&self, name: &OsStr, to: &DirAt, to_name: &OsStr, flags: RenameFlags) -> OpResult<()> {
        let to_fd = Arc::clone(&to.fd);
        let to_name = to_name.to_owned();
        self.change(name, move |fd, name| {
            if flags.is_empty() {
                rustix::fs::renameat(fd, name, &to_fd, &to_name)
            } else {
                rustix::fs::renameat_with(fd, name, &to_fd, &to_name, flags)
            }
        })
    }

    /// Another name for an entry, within the branch.
    pub(crate) fn link(&self, name: &OsStr, to: &DirAt, to_name: &OsStr) -> OpResult<()> {
        let to_fd = Arc::clone(&to.fd);
        let to_name = to_name.to_owned();
        self.change(name, move |fd, name| rustix::fs::linkat(fd, name, &to_fd, &to_name, AtFlags::empty()))
    }

    /// A name for an open file that has none.
    pub(crate) fn link_open(&self, file: &FileAt, to_name: &OsStr) -> OpResult<()> {
        let file = Arc::clone(&file.fd);
        self.change(to_name, move |fd, name| {
            let path = proc_path(file.as_fd());
            rustix::fs::linkat(rustix::fs::CWD, path, fd, name, AtFlags::SYMLINK_FOLLOW)
        })
    }

    /// All entries but `.` and `..`: name, type if the file system says it, inode number. `quiet` leaves the access
    /// time alone.
    pub(crate) fn list(&self, quiet: bool) -> OpResult<Vec<RawEntry>> {
        self.run(OsStr::new("."), move |fd, name| {
            let noatime = if quiet { OFlags::NOATIME } else { OFlags::empty() };
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | noatime;
            let dir = rustix::fs::openat(fd, name, flags, Mode::empty())?;
            let mut buffer = Vec::with_capacity(64 << 10);
            let mut reader = rustix::fs::RawDir::new(&dir, buffer.spare_capacity_mut());
            let mut entries = Vec::new();
            while let Some(entry) = reader.next() {
                let entry = entry?;
                let name = entry.file_name().to_bytes();
                if name != b"." && name != b".." {
                    let name = std::os::unix::ffi::OsStrExt::from_bytes(name);
                    let name: &OsStr = name;
                    entries.push(RawEntry { name: name.to_owned(), kind: entry.file_type(), ino: entry.ino() });
                }
            }
            Ok(entries)
        })
    }

    /// Whether nothing is in it.
    pub(crate) fn is_empty(&self) -> OpResult<bool> {
        self.run(OsStr::new("."), |fd, name| {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let dir = rustix::fs::openat(fd, name, flags, Mode::empty())?;
            let mut buffer = Vec::with_capacity(4 << 10);
            let mut reader = rustix::fs::RawDir::new(&dir, buffer.spare_capacity_mut());
            while let Some(entry) = reader.next() {
                let entry = entry?;
                if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
                    return Ok(false);
                }
            }
            Ok(true)
        })
    }

    /// Makes the directory's entries durable.
    pub(crate) fn fsync(&self, data_only: bool) -> OpResult<()> {
        let fd = Arc::clone(&self.fd);
        count_call();
        let sync = move || sync_dir_with(fd.as_fd(), data_only);
        let done = if self.online.guarded { self.branch.io_within(SYNC_TIMEOUT, move |_| sync()) } else { sync() };
        Ok(self.branch.noted(ErrorSource::Sync, done)?)
    }
}

/// One entry of a directory on one branch.
pub(crate) struct RawEntry {
    pub(crate) name: OsString,
    pub(crate) kind: rustix::fs::FileType,
    pub(crate) ino: u64,
}

impl FileAt {
    /// Calls with the descriptor.
    pub(crate) fn run<T: Send + 'static>(
        &self,
        call: impl FnOnce(BorrowedFd<'_>) -> rustix::io::Result<T> + Send + 'static,
    ) -> OpResult<T> {
        self.run_as(ErrorSource::Read, call)
    }

    fn run_as<T: Send + 'static>(
        &self,
        source: ErrorSource,
        call: impl FnOnce(BorrowedFd<'_>) -> rustix::io::Result<T> + Send + 'static,
    ) -> OpResult<T> {
        count_call();
        let done = if self.online.guarded {
            let fd = Arc::clone(&self.fd);
            self.branch.io(move |_| call(fd.as_fd()))
        } else {
            call(self.fd.as_fd())
        };
        Ok(self.branch.noted(source, done)?)
    }

    /// The same, for a call that changes the file.
    pub(crate) fn change<T: Send + 'static>(
        &self,
        call: impl FnOnce(BorrowedFd<'_>) -> rustix::io::Result<T> + Send + 'static,
    ) -> OpResult<T> {
        if self.branch.settings().read_only {
            return Err(OpError::Sys(Errno::ROFS));
        }
        let done = self.run_as(ErrorSource::Write, call);
        self.online.unsynced.note();
        done
    }

    pub(crate) fn stat(&self) -> OpResult<Meta> {
        let stat = self.run(|fd| rustix::fs::statx(fd, c"", AtFlags::EMPTY_PATH, WANTED))?;
        Ok(Meta::on(self.online.dev, &stat))
    }

    /// Sets permission bits; works on `O_PATH`, never on what a symbolic link names.
    pub(crate) fn chmod(&self, perm: u32, _: KernelCache) -> OpResult<()> {
        self.change(move |fd| rustix::fs::chmod(proc_path(fd), Mode::from_raw_mode(perm)))
    }

    pub(crate) fn chown(&self, uid: Option<u32>, gid: Option<u32>, _: KernelCache) -> OpResult<()> {
        self.change(move |fd| {
            let (uid, gid) = (uid.map(Uid::from_raw), gid.map(Gid::from_raw));
            rustix::fs::chownat(fd, c"", uid, gid, AtFlags::EMPTY_PATH)
        })
    }

    pub(crate) fn set_times(&self, times: Timestamps, _: KernelCache) -> OpResult<()> {
        self.change(move |fd| match rustix::fs::utimensat(fd, c"", &times, AtFlags::EMPTY_PATH) {
            Err(Errno::NOENT | Errno::INVAL) => {
                rustix::fs::utimensat(rustix::fs::CWD, proc_path(fd), &times, AtFlags::empty())
            }
            done => done,
        })
    }

    pub(crate) fn truncate(&self, size: u64, _: KernelCache) -> OpResult<()> {
        self.change(move |fd| rustix::fs::ftruncate(fd, size))
    }

    pub(crate) fn fsync(&self, data_only: bool) -> OpResult<()> {
        count_call();
        let sync = move |fd: BorrowedFd<'_>| if data_only { rustix::fs::fdatasync(fd) } else { rustix::fs::fsync(fd) };
        let done = if self.online.guarded {
            let fd = Arc::clone(&self.fd);
            self.branch.io_within(SYNC_TIMEOUT, move |_| sync(fd.as_fd()))
        } else {
            sync(self.fd.as_fd())
        };
        Ok(self.branch.noted(ErrorSource::Sync, done)?)
    }

    /// As [`write_out::failed_writes`].
    pub(crate) fn failed_writes(&self) -> OpResult<()> {
        self.run_as(ErrorSource::Write, write_out::failed_writes)
    }

    /// Whether another process has the file open or mapped. `None`: this file system cannot say.
    pub(crate) fn is_open_elsewhere(&self) -> Option<bool> {
        crate::ground::lease::is_open_elsewhere(self.fd.as_fd())
    }

    /// Whether any process has the file open for writing, mappings included. `None`: this file system cannot say.
    pub(crate) fn is_open_for_writing(&self) -> Option<bool> {
        crate::ground::lease::is_open_for_writing(self.fd.as_fd())
    }

    /// What `close` would report: late write errors of network file systems.
    pub(crate) fn flush(&self) -> OpResult<()> {
        self.run_as(ErrorSource::Write, |fd| {
            let copy = rustix::io::fcntl_dupfd_cloexec(fd, 0)?;
            close(copy)
        })
    }

    pub(crate) fn read(&self, buffer: &mut [u8], offset: u64) -> OpResult<usize> {
        if !self.online.guarded {
            count_call();
            return Ok(self.branch.noted(ErrorSource::Read, read_full(self.fd.as_fd(), buffer, offset))?);
        }
        let wanted = buffer.len();
        let data = self.run(move |fd| {
            let mut data = vec![0; wanted];
            let got = read_full(fd, &mut data, offset)?;
            data.truncate(got);
            Ok(data)
        })?;
        let got = data.len().min(buffer.len());
        buffer[..got].copy_from_slice(&data[..got]);
        Ok(got)
    }

    pub(crate) fn write(&self, data: &[u8], offset: u64) -> OpResult<usize> {
        let written = if self.online.guarded {
            let data = data.to_vec();
            let write = move |fd: BorrowedFd<'_>| rustix::io::retry_on_intr(|| rustix::io::pwrite(fd, &data, offset));
            self.run_as(ErrorSource::Write, write)
        } else {
            count_call();
            let done = rustix::io::retry_on_intr(|| rustix::io::pwrite(&self.fd, data, offset));
            self.branch.noted(ErrorSource::Write, done).map_err(OpError::from)
        };
        self.online.unsynced.note();
        written
    }

    pub(crate) fn fallocate(&self, mode: FallocateFlags, offset: u64, length: u64, _: KernelCache) -> OpResult<()> {
        self.change(move |fd| rustix::fs::fallocate(fd, mode, offset, length))
    }

    pub(crate) fn seek(&self, to: rustix::fs::SeekFrom) -> OpResult<u64> {
        // Where nothing follows, ENXIO is the answer, and no device that went.
        let found = self.run(move |fd| match rustix::fs::seek(fd, to) {
            Err(Errno::NXIO) => Ok(None),
            done => done.map(Some),
        })?;
        found.ok_or(OpError::Sys(Errno::NXIO))
    }

    pub(crate) fn copy_range(&self, from: u64, to: &FileAt, at: u64, length: usize) -> OpResult<usize> {
        let target = Arc::clone(&to.fd);
        let copied = self.run(move |fd| {
            let (mut from, mut at) = (from, at);
            rustix::fs::copy_file_range(fd, Some(&mut from), &target, Some(&mut at), length)
        });
        to.online.unsynced.note();
        copied
    }

    pub(crate) fn get_xattr(&self, name: &OsStr) -> OpResult<Vec<u8>> {
        let name = name.to_owned();
        self.run(move |fd| {
            let path = proc_path(fd);
            read_growing(|buffer| rustix::fs::getxattr(path.as_str(), &name, buffer))
        })
    }

    pub(crate) fn list_xattr(&self) -> OpResult<Vec<u8>> {
        self.run(move |fd| {
            let path = proc_path(fd);
            read_growing(|buffer| rustix::fs::listxattr(path.as_str(), buffer))
        })
    }

    pub(crate) fn set_xattr(&self, name: &OsStr, value: &[u8], flags: XattrFlags, _: KernelCache) -> OpResult<()> {
        let (name, value) = (name.to_owned(), value.to_vec());
        self.change(move |fd| rustix::fs::setxattr(proc_path(fd), &name, &value, flags))
    }

    pub(crate) fn remove_xattr(&self, name: &OsStr, _: KernelCache) -> OpResult<()> {
        let name = name.to_owned();
        self.change(move |fd| rustix::fs::removexattr(proc_path(fd), &name))
    }

    /// Opens the same inode again.
    pub(crate) fn reopen(&self, flags: OFlags) -> OpResult<FileAt> {
        let fd = self.run(move |fd| {
            rustix::fs::open(proc_path(fd), (flags - OFlags::NOFOLLOW) | OFlags::CLOEXEC, Mode::empty())
        })?;
        Ok(FileAt {
            branch: Arc::clone(&self.branch),
            online: Arc::clone(&self.online),
            fd: Arc::new(self.online.own(fd)),
        })
    }
}

fn close(fd: OwnedFd) -> rustix::io::Result<()> {
    use std::os::fd::IntoRawFd;
    // SAFETY: the descriptor is owned here and given up by `into_raw_fd`, so nothing else closes it.
    match unsafe { libc::close(fd.into_raw_fd()) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error().raw_os_error().map_or(Errno::IO, Errno::from_raw_os_error)),
    }
}

fn read_full(fd: BorrowedFd<'_>, buffer: &mut [u8], offset: u64) -> rustix::io::Result<usize> {
    let mut done = 0;
    while done < buffer.len() {
        match rustix::io::pread(fd, &mut buffer[done..], offset + done as u64) {
            Ok(0) => break,
            Ok(got) => done += got,
            Err(Errno::INTR) => {}
            Err(_) if done > 0 => break,
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

fn read_growing(mut call: impl FnMut(&mut [u8]) -> rustix::io::Result<usize>) -> rustix::io::Result<Vec<u8>> {
    let mut buffer = vec![0; 512];
    loop {
        match call(&mut buffer) {
            Ok(length) => {
                buffer.truncate(length);
                return Ok(buffer);
            }
            Err(Errno::RANGE) if buffer.len() < 1 << 20 => {
                let larger = buffer.len() * 8;
                buffer.resize(larger, 0);
            }
            Err(error) => return Err(error),
        }
    }
}
