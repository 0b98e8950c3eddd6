//! A block device as one file, for `losetup`: how a real file system is put on any device of ours.
//!
//! A FUSE mount of one folder with one file in it, for its owner alone. What makes it a fair stand-in for a disk:
//! - FOPEN_DIRECT_IO: the kernel caches nothing, the loop device above it does.
//! - FUSE_ASYNC_DIO, FOPEN_PARALLEL_DIRECT_WRITES and as many threads as the device is worth (at most 32): else the kernel hands writes
//!   over one by one, and whoever orders them has nothing to choose from.
//! - The threads are marked as part of the I/O path (PR_SET_IO_FLUSHER): when they need memory, the kernel does not wait for pages that only
//!   they can write.
//!
//! A punched hole is written as zeroes that may be unmapped, not discarded: the loop driver uses one call for both, and a file's hole
//! reads as zeroes.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use fuser::{
    Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, InitFlags,
    KernelConfig, LockOwner, MountOption, OpenAccMode, OpenFlags, ReplyAttr, ReplyData, ReplyDirectory, ReplyEmpty,
    ReplyEntry, ReplyOpen, ReplyWrite, ReplyXattr, Request, Session, SessionACL, SessionUnmounter, WriteFlags,
};
use rustix::fs::{AtFlags, CWD, FallocateFlags, Mode, OFlags, SeekFrom, StatxFlags};
use thiserror::Error;
use umbrella_units::{ByteSize, Lba, SECTOR_BYTES, SectorRange};

use super::traffic::{Counters, Traffic};
use crate::device::{BlockDevice, Durability, Zeroes};
use crate::error::BlockError;
use crate::file::{Access, AlignedBuffer};

/// The file's name in its folder.
const NAME: &str = "disk";
const FILE: INodeNo = INodeNo(2);
/// Nothing changes: names and attributes may be kept for as long as the kernel likes.
const FOR_EVER: Duration = Duration::from_secs(u32::MAX as u64);
/// The most requests under way.
const MAX_THREADS: u32 = 32;
/// How many the kernel may have waiting behind them.
const MAX_BACKGROUND: u16 = 64;

thread_local! {
    static BUFFER: RefCell<AlignedBuffer> = RefCell::default();
}

/// Why a device could not be offered as a file, or not be taken back.
#[derive(Debug, Error)]
pub enum LoopFileError {
    /// The mount failed.
    #[error("{}: cannot mount: {source}", folder.display())]
    Mount {
        /// Where.
        folder: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file cannot be looked at.
    #[error("{}: cannot be looked at: {source}", folder.display())]
    Size {
        /// Where.
        folder: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file is still open, as by a loop device.
    #[error("{}: cannot unmount: {source} (detach what uses it first)", folder.display())]
    Unmount {
        /// Where.
        folder: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// A device offered as a file. Dropping it unmounts it if nothing uses it.
pub struct LoopFile {
    folder: PathBuf,
    /// Whose end is somebody else's to know: the thread has it as long as it serves.
    device: Weak<dyn BlockDevice>,
    counters: Arc<Counters>,
    unmounter: SessionUnmounter,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl fmt::Debug for LoopFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoopFile").field("folder", &self.folder).finish_non_exhaustive()
    }
}

impl LoopFile {
    /// Offers the device as the file `disk` in this folder, which must exist.
    pub fn mount(device: Arc<dyn BlockDevice>, folder: &Path, access: Access) -> Result<LoopFile, LoopFileError> {
        let failed = |source| LoopFileError::Mount { folder: folder.to_owned(), source };
        let mut config = Config::default();
        config.mount_options = vec![
            MountOption::FSName("umbrella-disk".to_owned()),
            MountOption::Subtype("umbrella-disk".to_owned()),
            MountOption::DefaultPermissions,
            MountOption::NoDev,
            MountOption::NoSuid,
            MountOption::NoExec,
            MountOption::NoAtime,
        ];
        config.acl = SessionACL::Owner;
        config.n_threads = Some(device.geometry().queue_depth.clamp(2, MAX_THREADS) as usize);
        let weak = Arc::downgrade(&device);
        let file = OneFile::new(device, access);
        let counters = Arc::clone(&file.counters);
        let mut session = Session::new(file, folder, &config).map_err(failed)?;
        let unmounter = session.unmount_callable();
        let thread = std::thread::Builder::new().name("loop-file".to_owned());
        let serve = move || {
            // Needs a right that not everybody has; without it, all works but under a shortage of memory.
            let _ = rustix::process::configure_io_flusher_behavior(true);
            session.run()
        };
        let thread = Some(thread.spawn(serve).map_err(failed)?);
        Ok(LoopFile { folder: folder.to_owned(), device: weak, counters, unmounter, thread })
    }

    /// The file to attach.
    pub fn path(&self) -> PathBuf {
        self.folder.join(NAME)
    }

    /// What was carried out so far.
    pub fn traffic(&self) -> Traffic {
        self.counters.so_far()
    }

    /// Tells the kernel that the device has become larger: it asks once for a size, and keeps it.
    pub fn refresh(&self) -> Result<(), LoopFileError> {
        self.refreshed().map_err(|source| LoopFileError::Size { folder: self.folder.clone(), source })
    }

    /// An answer that a write overtakes is given to who asked, but not kept; where the file ends for reads, only `lseek` says.
    fn refreshed(&self) -> io::Result<()> {
        let Some(size) = self.device.upgrade().map(|device| device.geometry().size().0) else { return Ok(()) };
        let file = rustix::fs::openat(CWD, self.path(), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        let until = Instant::now() + REFRESH;
        loop {
            rustix::fs::statx(&file, c"", AtFlags::EMPTY_PATH | AtFlags::STATX_FORCE_SYNC, StatxFlags::SIZE)?;
            if rustix::fs::seek(&file, SeekFrom::End(0))? >= size {
                return Ok(());
            }
            if Instant::now() >= until {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "the kernel does not take its new size"));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Takes the file away; fails, and goes on serving it, while it is open.
    pub fn unmount(&mut self) -> Result<(), LoopFileError> {
        let Some(thread) = &self.thread else {
            return Ok(());
        };
        let failed = |source| LoopFileError::Unmount { folder: self.folder.clone(), source };
        // Somebody else may have unmounted it: then the thread is at its end.
        if let Err(source) = self.unmounter.unmount()
            && !thread.is_finished()
        {
            return Err(failed(source));
        }
        let Some(Ok(ended)) = self.thread.take().map(JoinHandle::join) else {
            return Ok(());
        };
        ended.map_err(failed)
    }
}

/// How long the kernel is told a new size. Writes that never end for a moment can put it off.
const REFRESH: Duration = Duration::from_secs(20);

/// How long a file that is let go of may stay in use: who looks at a loop device keeps it from being detached for a moment.
const FAREWELL: Duration = Duration::from_secs(2);

impl Drop for LoopFile {
    fn drop(&mut self) {
        let until = Instant::now() + FAREWELL;
        while let Err(error) = self.unmount() {
            if Instant::now() >= until {
                tracing::warn!(%error, "a file stays mounted");
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// A file system of one file.
struct OneFile {
    device: Arc<dyn BlockDevice>,
    access: Access,
    since: SystemTime,
    counters: Arc<Counters>,
}

impl OneFile {
    fn new(device: Arc<dyn BlockDevice>, access: Access) -> OneFile {
        OneFile { device, access, since: SystemTime::now(), counters: Arc::default() }
    }

    fn attr(&self, ino: INodeNo) -> FileAttr {
        let geometry = self.device.geometry();
        let (kind, perm, size) = match (ino, self.access) {
            (INodeNo::ROOT, _) => (FileType::Directory, 0o700, ByteSize(0)),
            (_, Access::ReadOnly) => (FileType::RegularFile, 0o400, geometry.size()),
            (_, Access::ReadWrite) => (FileType::RegularFile, 0o600, geometry.size()),
        };
        FileAttr {
            ino,
            size: size.0,
            blocks: size.0 / SECTOR_BYTES,
            atime: self.since,
            mtime: self.since,
            ctime: self.since,
            crtime: self.since,
            kind,
            perm,
            nlink: 1,
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            rdev: 0,
            blksize: geometry.physical_block,
            flags: 0,
        }
    }

    /// The whole sectors of a range of bytes.
    fn range(offset: u64, length: u64) -> Option<SectorRange> {
        let whole = offset.is_multiple_of(SECTOR_BYTES) && length.is_multiple_of(SECTOR_BYTES);
        whole.then_some(SectorRange { start: Lba(offset / SECTOR_BYTES), sectors: length / SECTOR_BYTES })
    }
}

impl Filesystem for OneFile {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let wanted = InitFlags::FUSE_ASYNC_DIO | InitFlags::FUSE_BIG_WRITES;
        let _ = config.add_capabilities(wanted & config.capabilities());
        let _ = config.set_max_background(MAX_BACKGROUND);
        Ok(())
    }

    fn lookup(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        if parent == INodeNo::ROOT && name == NAME {
            reply.entry(&FOR_EVER, &self.attr(FILE), Generation(0));
        } else {
            reply.error(Errno::ENOENT);
        }
    }

    fn getattr(&self, _request: &Request, ino: INodeNo, _handle: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&FOR_EVER, &self.attr(ino));
    }

    // Answered once, for all files: they have no extended attributes.
    fn getxattr(&self, _request: &Request, _ino: INodeNo, _name: &OsStr, _size: u32, reply: ReplyXattr) {
        reply.error(Errno::ENOSYS);
    }

    fn listxattr(&self, _request: &Request, _ino: INodeNo, _size: u32, reply: ReplyXattr) {
        reply.error(Errno::ENOSYS);
    }

    fn readdir(&self, _request: &Request, _ino: INodeNo, _handle: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let entries = [
            (INodeNo::ROOT, FileType::Directory, "."),
            (INodeNo::ROOT, FileType::Directory, ".."),
            (FILE, FileType::RegularFile, NAME),
        ];
        for (next, (ino, kind, name)) in (1..).zip(entries).skip(offset as usize) {
            if reply.add(ino, next, kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn open(&self, _request: &Request, _ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        if self.access == Access::ReadOnly && flags.acc_mode() != OpenAccMode::O_RDONLY {
            return reply.error(Errno::EROFS);
        }
        let how = FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES | FopenFlags::FOPEN_NOFLUSH;
        reply.opened(FileHandle(0), how);
    }

    fn read(
        &self,
        _request: &Request,
        _ino: INodeNo,
        _handle: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let left = self.device.geometry().size().0.saturating_sub(offset);
        let length = u64::from(size).min(left);
        let Some(range) = OneFile::range(offset, length) else {
            return reply.error(Errno::EINVAL);
        };
        BUFFER.with_borrow_mut(|buffer| {
            buffer.reserve(length as usize);
            let room = buffer.as_mut_slice().get_mut(..length as usize).unwrap_or_default();
            match self.device.read(range.start, room) {
                Ok(()) => {
                    self.counters.read(room.len());
                    reply.data(room);
                }
                Err(error) => reply.error(errno(&error)),
            }
        });
    }

    fn write(
        &self,
        _request: &Request,
        _ino: INodeNo,
        _handle: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let Some(range) = OneFile::range(offset, data.len() as u64) else {
            return reply.error(Errno::EINVAL);
        };
        match self.device.write(range.start, data, Durability::Cached) {
            Ok(()) => {
                self.counters.write(range);
                reply.written(data.len() as u32);
            }
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn fsync(&self, _request: &Request, _ino: INodeNo, _handle: FileHandle, _data_only: bool, reply: ReplyEmpty) {
        done(self.device.flush().inspect(|()| self.counters.flush()), reply);
    }

    fn fallocate(
        &self,
        _request: &Request,
        _ino: INodeNo,
        _handle: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let mode = FallocateFlags::from_bits_retain(mode as u32) - FallocateFlags::KEEP_SIZE;
        let zeroes = match mode {
            FallocateFlags::PUNCH_HOLE => Zeroes::Unmap,
            FallocateFlags::ZERO_RANGE => Zeroes::Keep,
            _ => return reply.error(Errno::EOPNOTSUPP),
        };
        match OneFile::range(offset, length) {
            Some(range) => {
                let zeroed = self.device.write_zeroes(range, zeroes, Durability::Cached);
                done(zeroed.inspect(|()| self.counters.other()), reply);
            }
            None => reply.error(Errno::EINVAL),
        }
    }
}

fn done(result: Result<(), BlockError>, reply: ReplyEmpty) {
    match result {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(errno(&error)),
    }
}

/// What the kernel is told of an error of the device.
fn errno(error: &BlockError) -> Errno {
    Errno::from_i32(super::errno::errno(error))
}
