//! Opening: kind, lock, and geometry.
//!
//! 1. Open, with O_EXCL for a device that is to be written: the kernel refuses a disk that is mounted or in use.
//! 2. Lock: a writer alone, readers together. Locks on the open file, so they go with it however the program ends:
//!    `flock`, and those that QEMU's programs look at.
//! 3. Size and blocks, from the file system or the device.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};

use linux_raw_sys::general::{RAMFS_MAGIC, STATX_DIOALIGN, TMPFS_MAGIC};
use parking_lot::Mutex;
use rustix::fs::{AtFlags, FileType, FlockOperation, Mode, OFlags, StatxFlags};
use rustix::io::Errno;
use umbrella_units::{ByteSize, Lba, PAGE_BYTES, SECTOR_BYTES};

use super::access::Access;
use super::buffer::{ALIGNMENT, AlignedBuffer};
use super::holder::holder;
use super::transfer::{Alignment, Transfer};
use super::{FileDevice, Kind, OpenError, byte_locks, kernel};
use crate::device::Geometry;

/// Calls at once that a file on a disk is worth.
const QUEUE_DEPTH: u32 = 32;

/// What transfers go through.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Cache {
    /// The kernel's page cache.
    #[default]
    Page,
    /// Nothing (O_DIRECT).
    Direct,
}

/// How to open a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OpenOptions {
    /// Whether it may be written.
    pub access: Access,
    /// What transfers go through.
    pub cache: Cache,
}

impl FileDevice {
    /// Opens a regular file or a block device.
    ///
    /// A file's size is rounded down to whole blocks. Where the file system refuses direct I/O, the page cache is used
    /// and a warning logged.
    pub fn open(path: &Path, options: OpenOptions) -> Result<FileDevice, OpenError> {
        let refused = |source: Errno| match source {
            Errno::BUSY => OpenError::InUse { path: path.to_owned(), by: holder(path) },
            source => OpenError::Open { path: path.to_owned(), source: source.into() },
        };
        let failed = |source: io::Error| OpenError::Open { path: path.to_owned(), source };
        let kind = kind(rustix::fs::stat(path).map_err(refused)?.st_mode)
            .ok_or_else(|| OpenError::WrongKind { path: path.to_owned() })?;
        let (file, cache) = open(path, kind, options).map_err(refused)?;
        lock(&file, options.access).map_err(|source| match source {
            Errno::AGAIN => OpenError::InUse { path: path.to_owned(), by: holder(path) },
            source => refused(source),
        })?;
        let shape = FileShape::of(&file, kind, cache).map_err(failed)?;
        let block = u64::from(shape.geometry.logical_block) / SECTOR_BYTES;
        let geometry = Geometry { capacity: Lba(shape.size.0 / SECTOR_BYTES / block * block), ..shape.geometry };
        if geometry.capacity == Lba(0) {
            let logical_block = geometry.logical_block;
            return Err(OpenError::TooSmall { path: path.to_owned(), size: shape.size, logical_block });
        }
        Ok(FileDevice {
            name: Arc::from(path.to_string_lossy()),
            kind,
            access: options.access,
            cache,
            geometry,
            grown: AtomicU64::new(0),
            transfer: Transfer::new(file, shape.alignment),
            turn: Mutex::new(()),
            flushes_begun: AtomicU64::new(0),
            failed_reads: AtomicU64::new(0),
            failed_at: AtomicU64::new(0),
            poison: OnceLock::new(),
        })
    }
}

fn kind(mode: u32) -> Option<Kind> {
    match FileType::from_raw_mode(mode) {
        FileType::RegularFile => Some(Kind::Regular),
        FileType::BlockDevice => Some(Kind::Block),
        _ => None,
    }
}

fn open(path: &Path, kind: Kind, options: OpenOptions) -> rustix::io::Result<(File, Cache)> {
    let mut flags = OFlags::CLOEXEC | OFlags::NOCTTY;
    flags |= match options.access {
        Access::ReadOnly => OFlags::RDONLY,
        Access::ReadWrite => OFlags::RDWR,
    };
    if kind == Kind::Block && options.access == Access::ReadWrite {
        flags |= OFlags::EXCL;
    }
    let direct = match options.cache {
        Cache::Page => OFlags::empty(),
        Cache::Direct => OFlags::DIRECT,
    };
    match rustix::fs::open(path, flags | direct, Mode::empty()) {
        Err(Errno::INVAL) if options.cache == Cache::Direct => {
            let file = rustix::fs::open(path, flags, Mode::empty())?;
            tracing::warn!(path = %path.display(), "the file system refuses direct I/O: going through the page cache");
            Ok((File::from(file), Cache::Page))
        }
        file => Ok((File::from(file?), options.cache)),
    }
}

fn lock(file: &File, access: Access) -> rustix::io::Result<()> {
    let how = match access {
        Access::ReadOnly => FlockOperation::NonBlockingLockShared,
        Access::ReadWrite => FlockOperation::NonBlockingLockExclusive,
    };
    rustix::fs::flock(file, how)?;
    match byte_locks::lock(file, access) {
        Ok(true) => Ok(()),
        Ok(false) => {
            // It is not this one that the holder is looked for by.
            rustix::fs::flock(file, FlockOperation::Unlock)?;
            Err(Errno::AGAIN)
        }
        Err(error) => Err(Errno::from_raw_os_error(error as i32)),
    }
}

pub(super) fn unlock(file: BorrowedFd<'_>) {
    // Not every file system has locks. The claim on a block device goes with its last descriptor.
    let _ = rustix::fs::flock(file, FlockOperation::Unlock);
    byte_locks::unlock(file);
}

/// How large a file or device is now.
pub(super) fn size(file: BorrowedFd<'_>, kind: Kind) -> io::Result<ByteSize> {
    match kind {
        Kind::Regular => Ok(ByteSize(rustix::fs::fstat(file)?.st_size.try_into().unwrap_or(0))),
        Kind::Block => Ok(kernel::size(file)?),
    }
}

/// What a file is like. The capacity of the geometry is still to be cut to whole blocks.
struct FileShape {
    size: ByteSize,
    geometry: Geometry,
    alignment: Alignment,
}

impl FileShape {
    fn of(file: &File, kind: Kind, cache: Cache) -> io::Result<FileShape> {
        let stat = rustix::fs::fstat(file)?;
        let size = size(file.as_fd(), kind)?;
        let (disk, mut logical, mut physical) = match kind {
            Kind::Regular => (stat.st_dev, SECTOR_BYTES as u32, PAGE_BYTES as u32),
            Kind::Block => {
                let logical = rustix::fs::ioctl_blksszget(file)?;
                (stat.st_rdev, logical, rustix::fs::ioctl_blkpbszget(file)?)
            }
        };
        let alignment = match cache {
            Cache::Page => Alignment::NONE,
            Cache::Direct => direct_alignment(file, logical)?,
        };
        logical = logical.max(alignment.block as u32).max(SECTOR_BYTES as u32);
        physical = physical.max(logical);
        let queue_depth = if cache == Cache::Page && is_in_memory(file)? { 1 } else { QUEUE_DEPTH };
        let geometry = Geometry {
            capacity: Lba(0),
            logical_block: logical,
            physical_block: physical,
            rotational: is_rotational(disk),
            queue_depth,
        };
        Ok(FileShape { size, geometry, alignment })
    }
}

/// What direct I/O wants: from the file system where it says so (Linux 6.1), else by trying one sector.
fn direct_alignment(file: &File, logical: u32) -> io::Result<Alignment> {
    let wanted = StatxFlags::from_bits_retain(STATX_DIOALIGN);
    let reported = rustix::fs::statx(file, c"", AtFlags::EMPTY_PATH, wanted)?;
    if reported.stx_mask & STATX_DIOALIGN != 0 && reported.stx_dio_offset_align != 0 {
        let memory = (reported.stx_dio_mem_align.max(1) as usize).min(ALIGNMENT);
        return Ok(Alignment { memory, block: reported.stx_dio_offset_align.max(logical) as usize });
    }
    let mut sector = AlignedBuffer::new(SECTOR_BYTES as usize);
    let block = match rustix::io::pread(file, sector.as_mut_slice(), SECTOR_BYTES) {
        Err(Errno::INVAL) => ALIGNMENT,
        _ => logical as usize,
    };
    Ok(Alignment { memory: ALIGNMENT, block })
}

/// Whether the file lives in the page cache and nowhere else.
fn is_in_memory(file: &File) -> io::Result<bool> {
    let magic = rustix::fs::fstatfs(file.as_fd())?.f_type;
    Ok([TMPFS_MAGIC, RAMFS_MAGIC].iter().any(|known| i128::from(*known) == i128::from(magic)))
}

/// What sysfs says of the disk, or of the disk that it is a part of; false where there is none.
fn is_rotational(disk: u64) -> bool {
    let (major, minor) = (rustix::fs::major(disk), rustix::fs::minor(disk));
    ["queue", "../queue"].iter().any(|queue| {
        std::fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/{queue}/rotational"))
            .is_ok_and(|flag| flag.trim() == "1")
    })
}
