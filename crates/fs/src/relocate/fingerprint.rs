//! What tells one state of a file from another: the proof that a source did not change while it was copied.

use std::os::fd::BorrowedFd;

use rustix::fs::{AtFlags, FileType, StatxFlags, StatxTimestamp, Timespec, Timestamps, makedev, statx};
use rustix::io::Errno;
use umbrella_units::Timestamp;

use crate::relocate::EntryAt;

fn stamp(time: StatxTimestamp) -> Timestamp {
    Timestamp { secs: time.tv_sec, nanos: time.tv_nsec }
}

fn timespec(time: Timestamp) -> Timespec {
    Timespec { tv_sec: time.secs, tv_nsec: time.nanos.into() }
}

/// What identifies a file and tells whether it changed. The access time is not part of it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Fingerprint {
    /// Device; differs from mount to mount, so recovery ignores it.
    pub dev: u64,
    /// Inode number.
    pub ino: u64,
    /// Bytes.
    pub size: u64,
    /// Last change of data.
    pub mtime: Timestamp,
    /// Last change of anything.
    pub ctime: Timestamp,
    /// Birth, where the file system tells.
    pub btime: Option<Timestamp>,
    /// Kind and permissions.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Names.
    pub nlink: u64,
    /// Device number of a device node.
    pub rdev: u64,
}

/// A fingerprint with what is not part of it.
#[derive(Debug, Clone, Copy)]
pub(super) struct FileSnapshot {
    pub(super) print: Fingerprint,
    pub(super) atime: Timestamp,
    /// Bytes that it takes on its disk.
    allocated: u64,
    /// In which its file system allocates.
    block: u64,
}

impl FileSnapshot {
    pub(super) fn times(&self) -> Timestamps {
        Timestamps { last_access: timespec(self.atime), last_modification: timespec(self.print.mtime) }
    }

    /// Whether a regular file takes just as much on its disk as its data: then it has no holes, and nothing beyond its
    /// end. One that has neither may still say no, where its file system compresses it, or keeps more with it.
    pub(super) fn is_dense(&self) -> bool {
        self.block > 0 && self.print.size.checked_next_multiple_of(self.block) == Some(self.allocated)
    }
}

impl Fingerprint {
    /// What is at `place` now; a symbolic link is not followed.
    pub fn at(place: EntryAt<'_>) -> Result<Self, Errno> {
        snapshot(place).map(|seen| seen.print)
    }

    /// What `fd` is now; any descriptor, also `O_PATH`.
    pub fn of_fd(fd: BorrowedFd<'_>) -> Result<Self, Errno> {
        snapshot_fd(fd).map(|seen| seen.print)
    }

    /// The kind of file.
    pub fn file_type(&self) -> FileType {
        FileType::from_raw_mode(self.mode)
    }
}

pub(super) fn snapshot(place: EntryAt<'_>) -> Result<FileSnapshot, Errno> {
    let stat = statx(place.dir, place.name, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::BASIC_STATS | StatxFlags::BTIME)?;
    Ok(from_statx(&stat))
}

pub(super) fn snapshot_fd(fd: BorrowedFd<'_>) -> Result<FileSnapshot, Errno> {
    let stat = statx(fd, c"", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS | StatxFlags::BTIME)?;
    Ok(from_statx(&stat))
}

/// What is at `place`; `None` if nothing is.
pub(super) fn snapshot_if_present(place: EntryAt<'_>) -> Result<Option<FileSnapshot>, Errno> {
    match snapshot(place) {
        Ok(seen) => Ok(Some(seen)),
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(errno),
    }
}

fn from_statx(stat: &rustix::fs::Statx) -> FileSnapshot {
    let print = Fingerprint {
        dev: makedev(stat.stx_dev_major, stat.stx_dev_minor),
        ino: stat.stx_ino,
        size: stat.stx_size,
        mtime: stamp(stat.stx_mtime),
        ctime: stamp(stat.stx_ctime),
        btime: (stat.stx_mask & StatxFlags::BTIME.bits() != 0).then(|| stamp(stat.stx_btime)),
        mode: stat.stx_mode.into(),
        uid: stat.stx_uid,
        gid: stat.stx_gid,
        nlink: stat.stx_nlink.into(),
        rdev: makedev(stat.stx_rdev_major, stat.stx_rdev_minor),
    };
    let (allocated, block) = (stat.stx_blocks.saturating_mul(512), stat.stx_blksize.into());
    FileSnapshot { print, atime: stamp(stat.stx_atime), allocated, block }
}
