//! A block device as one file, for `losetup`: so any of our devices can carry a real file system.
//!
//! It is a FUSE mount of one folder with one file in it, for its owner alone. Three settings make it a fair stand-in
//! for a disk:
//! - FOPEN_DIRECT_IO: the kernel caches nothing; the loop device above caches.
//! - FUSE_ASYNC_DIO, FOPEN_PARALLEL_DIRECT_WRITES and as many threads as the device is worth (at most 32). Without them
//!   the kernel hands over writes one by one, so that nothing below could reorder them.
//! - The threads are marked as part of the I/O path (PR_SET_IO_FLUSHER): when they need memory, the kernel does not
//!   wait for pages that only they can write.
//!
//! Requests come from `/dev/fuse`. Over io_uring a loop device made 1.3 to 1.75 times as many requests of 4 KiB a
//! second. That was measured on a file in memory, with reads and writes, one and 16 at a time. But with io_uring a
//! request that waits may first need one more thread, a ring and a process. When memory is short, their allocation can
//! wait for writes to this very device.
//!
//! A punched hole is written as zeroes that may be unmapped, not discarded: the loop driver uses one call for both, and
//! a file's hole reads as zeroes.

use std::ffi::OsStr;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use rustix::fs::{AtFlags, CWD, FallocateFlags, Mode, OFlags, SeekFrom, StatxFlags};
use thiserror::Error;
use umbrella_fuse::{
    Agreement, Attributes, Config, Context, Data, Entry, Errno, FAllocate, FSync, FileHandle, FileType, Filesystem,
    GetAttr, InodeNumber, Listed, Listing, Lookup, MountOptions, MountSpec, NodeId, Offer, Open, OpenFlags, Opened,
    Read, Reply, Session, Space, Stat, StatFs, Timestamp, Transport, Unmounter, Write, Written,
};
use umbrella_units::{ByteSize, Lba, SECTOR_BYTES, SectorRange};

use super::traffic::{Traffic, TrafficCounters};
use crate::device::{BlockDevice, Durability, Zeroes};
use crate::error::BlockError;
use crate::file::Access;

/// The file's name in its folder.
const NAME: &str = "disk";
const FILE: NodeId = NodeId(2);
/// Nothing changes: names and attributes may be kept for as long as the kernel likes.
const FOR_EVER: Duration = Duration::from_secs(u32::MAX as u64);
/// The most requests under way.
const MAX_THREADS: u32 = 32;
/// How many the kernel may have waiting behind them.
const MAX_BACKGROUND: u16 = 64;

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
    #[error("{}: cannot be read: {source}", folder.display())]
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
    /// A weak reference, as the owner ends the device: the thread holds it as long as it serves.
    device: Weak<dyn BlockDevice>,
    counters: Arc<TrafficCounters>,
    unmounter: Unmounter,
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
        let spec = MountSpec {
            source: "umbrella-disk".to_owned(),
            subtype: "umbrella-disk".to_owned(),
            options: MountOptions::DEFAULT_PERMISSIONS
                | MountOptions::NO_DEV
                | MountOptions::NO_SUID
                | MountOptions::NO_EXEC
                | MountOptions::NO_ATIME,
        };
        let threads = device.geometry().queue_depth.clamp(2, MAX_THREADS) as usize;
        // Needs a right that not every user has; without it, all works but under a shortage of memory.
        let part_of_the_io_path = || {
            let _ = rustix::process::configure_io_flusher_behavior(true);
        };
        let config = Config {
            transport: Transport::Dev,
            threads,
            max_threads: threads,
            thread_start: Some(Arc::new(part_of_the_io_path)),
            ..Config::default()
        };
        let weak = Arc::downgrade(&device);
        let file = OneFile::new(device, access);
        let counters = Arc::clone(&file.counters);
        let session = Session::mount(file, folder, &spec, config).map_err(failed)?;
        let unmounter = session.unmounter();
        let thread = std::thread::Builder::new().name("loop-file".to_owned());
        let thread = Some(thread.spawn(move || session.run()).map_err(failed)?);
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

    /// An answer that a write overtakes goes to the caller, but is not cached; where the file ends for reads, only
    /// `lseek` says.
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
                return Err(io::Error::new(io::ErrorKind::TimedOut, "the kernel does not see its new size"));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Takes the file away; fails, and continues serving it, while it is open.
    pub fn unmount(&mut self) -> Result<(), LoopFileError> {
        let Some(thread) = &self.thread else {
            return Ok(());
        };
        let failed = |source| LoopFileError::Unmount { folder: self.folder.clone(), source };
        // Another program may have unmounted it: then the thread is at its end.
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

/// How long a new size is reported to the kernel. Writes that never pause can delay it.
const REFRESH: Duration = Duration::from_secs(20);

/// How long a released file may stay in use: a program that looks at a loop device keeps it from being detached for a
/// moment.
const DETACH_TIMEOUT: Duration = Duration::from_secs(2);

impl Drop for LoopFile {
    fn drop(&mut self) {
        let until = Instant::now() + DETACH_TIMEOUT;
        while let Err(error) = self.unmount() {
            if Instant::now() >= until {
                tracing::warn!(%error, "cannot unmount a served file");
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// A file system of one file. What it leaves out the kernel asks for once.
struct OneFile {
    device: Arc<dyn BlockDevice>,
    access: Access,
    since: Timestamp,
    counters: Arc<TrafficCounters>,
}

impl OneFile {
    fn new(device: Arc<dyn BlockDevice>, access: Access) -> OneFile {
        OneFile { device, access, since: SystemTime::now().into(), counters: Arc::default() }
    }

    fn stat(&self, node: NodeId) -> Stat {
        let geometry = self.device.geometry();
        let (kind, permissions, size) = match (node, self.access) {
            (NodeId::ROOT, _) => (FileType::Directory, 0o700, ByteSize(0)),
            (_, Access::ReadOnly) => (FileType::RegularFile, 0o400, geometry.size()),
            (_, Access::ReadWrite) => (FileType::RegularFile, 0o600, geometry.size()),
        };
        let attributes = Attributes {
            size: size.0,
            blocks: size.0 / SECTOR_BYTES,
            block_size: geometry.physical_block,
            atime: self.since,
            mtime: self.since,
            ctime: self.since,
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            ..Attributes::new(InodeNumber(node.0), kind, permissions)
        };
        Stat { attributes, ttl: FOR_EVER }
    }

    /// The whole sectors of a range of bytes.
    fn range(offset: u64, length: u64) -> Result<SectorRange, Errno> {
        let whole = offset.is_multiple_of(SECTOR_BYTES) && length.is_multiple_of(SECTOR_BYTES);
        let range = SectorRange { start: Lba(offset / SECTOR_BYTES), sectors: length / SECTOR_BYTES };
        whole.then_some(range).ok_or(Errno::EINVAL)
    }
}

impl Filesystem for OneFile {
    fn init(&mut self, _: &Offer, agreement: &mut Agreement) -> io::Result<()> {
        agreement.max_background = MAX_BACKGROUND;
        agreement.congestion_threshold = MAX_BACKGROUND / 4 * 3;
        Ok(())
    }

    fn lookup(&self, _: &Context<'_>, request: Lookup<'_>, reply: Reply<Entry>) {
        if request.parent != NodeId::ROOT || request.name != NAME {
            return reply.error(Errno::ENOENT);
        }
        let Stat { attributes, ttl } = self.stat(FILE);
        reply.ok(Entry { node: FILE, generation: 0, entry_ttl: ttl, attributes_ttl: ttl, attributes });
    }

    fn getattr(&self, _: &Context<'_>, request: GetAttr, reply: Reply<Stat>) {
        reply.ok(self.stat(request.node));
    }

    /// Without an answer a loop device does not discard.
    fn statfs(&self, _: &Context<'_>, _: StatFs, reply: Reply<Space>) {
        let block_size = SECTOR_BYTES as u32;
        reply.ok(Space { block_size, longest_name: 255, ..Space::default() });
    }

    fn readdir(&self, _: &Context<'_>, request: Read, reply: Reply<Listing>) {
        let entries = [
            (NodeId::ROOT, FileType::Directory, "."),
            (NodeId::ROOT, FileType::Directory, ".."),
            (FILE, FileType::RegularFile, NAME),
        ];
        let mut listing = Listing::new(request.size);
        for (next, (node, kind, name)) in (1..).zip(entries).skip(request.offset as usize) {
            if listing.add(&Listed { ino: InodeNumber(node.0), next, kind, name: OsStr::new(name) }).is_err() {
                break;
            }
        }
        reply.ok(listing);
    }

    fn open(&self, _: &Context<'_>, request: Open, reply: Reply<Opened>) {
        if self.access == Access::ReadOnly && request.flags & libc::O_ACCMODE != libc::O_RDONLY {
            return reply.error(Errno::EROFS);
        }
        let how = OpenFlags::DIRECT_IO | OpenFlags::PARALLEL_DIRECT_WRITES | OpenFlags::NOFLUSH;
        reply.ok(Opened::new(FileHandle(0), how));
    }

    fn read(&self, _: &Context<'_>, request: Read, reply: Reply<Data>) {
        let left = self.device.geometry().size().0.saturating_sub(request.offset);
        let length = u64::from(request.size).min(left);
        match OneFile::range(request.offset, length) {
            // The buffer begins at a page, as a device wants it.
            Ok(range) => reply.fill(length as usize, |room| {
                self.device.read(range.start, room).map_err(|error| errno(&error))?;
                self.counters.read(room.len());
                Ok(room.len())
            }),
            Err(error) => reply.error(error),
        }
    }

    fn write(&self, _: &Context<'_>, request: Write<'_>, reply: Reply<Written>) {
        let Write { offset, data, .. } = request;
        let written = OneFile::range(offset, data.len() as u64).and_then(|range| {
            self.device.write(range.start, data, Durability::Cached).map_err(|error| errno(&error))?;
            self.counters.write(range);
            Ok(Written(data.len() as u32))
        });
        reply.send(written);
    }

    fn fsync(&self, _: &Context<'_>, _: FSync, reply: Reply<()>) {
        let flushed = self.device.flush().map_err(|error| errno(&error));
        reply.send(flushed.inspect(|()| self.counters.flush()));
    }

    fn fallocate(&self, _: &Context<'_>, request: FAllocate, reply: Reply<()>) {
        let mode = FallocateFlags::from_bits_retain(request.mode) - FallocateFlags::KEEP_SIZE;
        let zeroes = match mode {
            FallocateFlags::PUNCH_HOLE => Zeroes::Unmap,
            FallocateFlags::ZERO_RANGE => Zeroes::Keep,
            _ => return reply.error(Errno::EOPNOTSUPP),
        };
        let zeroed = OneFile::range(request.offset, request.length).and_then(|range| {
            self.device.write_zeroes(range, zeroes, Durability::Cached).map_err(|error| errno(&error))
        });
        reply.send(zeroed.inspect(|()| self.counters.other()));
    }
}

/// The error number that the kernel gets for an error of the device.
fn errno(error: &BlockError) -> Errno {
    Errno::from_raw(super::errno::errno(error))
}
