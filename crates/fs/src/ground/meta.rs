//! Attributes of a file: the part of `statx` that the tree needs.

use rustix::fs::{Statx, StatxFlags, StatxTimestamp};
use umbrella_policy::placement::spec::FileKind;
use umbrella_units::{ByteSize, Timestamp};

/// Attributes of one file or directory on its branch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Meta {
    /// Type.
    pub kind: FileKind,
    /// Permission bits, 07777.
    pub perm: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Hard links.
    pub nlink: u32,
    /// Length in bytes.
    pub size: u64,
    /// Units of 512 bytes in use.
    pub blocks: u64,
    /// Preferred unit of I/O in bytes.
    pub blksize: u32,
    /// Device number of a device node, as the kernel encodes it for user space.
    pub rdev: u64,
    /// Device of the file system that holds it; 0: the branch's own, whose number may be another when it is mounted
    /// again.
    pub foreign_dev: u64,
    /// Inode number on that file system.
    pub ino: u64,
    /// Last access.
    pub atime: Timestamp,
    /// Last change of the data.
    pub mtime: Timestamp,
    /// Last change of the inode.
    pub ctime: Timestamp,
    /// Birth, where the file system knows it.
    pub btime: Option<Timestamp>,
}

/// The fields that are requested from `statx`.
pub(crate) const WANTED: StatxFlags = StatxFlags::BASIC_STATS.union(StatxFlags::BTIME);

impl Meta {
    /// Bytes it occupies: holes take no room, blocks reserved for it do.
    pub fn occupied(&self) -> ByteSize {
        ByteSize(self.blocks.saturating_mul(512))
    }

    /// From the kernel's answer about something on a branch with this device number.
    pub fn on(branch_dev: u64, stat: &Statx) -> Meta {
        let mode = u32::from(stat.stx_mode);
        let dev = rustix::fs::makedev(stat.stx_dev_major, stat.stx_dev_minor);
        Meta {
            kind: kind_of_mode(mode),
            perm: mode & 0o7777,
            uid: stat.stx_uid,
            gid: stat.stx_gid,
            nlink: stat.stx_nlink,
            size: stat.stx_size,
            blocks: stat.stx_blocks,
            blksize: stat.stx_blksize,
            rdev: rustix::fs::makedev(stat.stx_rdev_major, stat.stx_rdev_minor),
            foreign_dev: if dev == branch_dev { 0 } else { dev },
            ino: stat.stx_ino,
            atime: time(stat.stx_atime),
            mtime: time(stat.stx_mtime),
            ctime: time(stat.stx_ctime),
            btime: (stat.stx_mask & StatxFlags::BTIME.bits() != 0).then(|| time(stat.stx_btime)),
        }
    }

    /// Whether a write by another user would have to clear set-user-id or set-group-id.
    pub fn is_set_id(&self) -> bool {
        self.perm & 0o4000 != 0 || self.perm & 0o2010 == 0o2010
    }
}

/// The type in a mode.
pub(crate) fn kind_of_mode(mode: u32) -> FileKind {
    match mode & libc::S_IFMT {
        libc::S_IFDIR => FileKind::Directory,
        libc::S_IFLNK => FileKind::Symlink,
        libc::S_IFIFO => FileKind::Fifo,
        libc::S_IFSOCK => FileKind::Socket,
        libc::S_IFCHR => FileKind::CharDevice,
        libc::S_IFBLK => FileKind::BlockDevice,
        _ => FileKind::File,
    }
}

fn time(stamp: StatxTimestamp) -> Timestamp {
    Timestamp { secs: stamp.tv_sec, nanos: stamp.tv_nsec }
}

/// The time now, wall clock.
pub(crate) fn now() -> Timestamp {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    Timestamp { secs: now.tv_sec, nanos: now.tv_nsec as u32 }
}
