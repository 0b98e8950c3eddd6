//! Flags of inodes: the ioctls behind `lsattr`, `chattr` and project quotas. They want real descriptors, not `O_PATH`.

use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::fs::IFlags;
use rustix::io::Errno;

/// Of a file that may not be changed, or only grow: nor may it be unlinked, so it cannot move.
pub(crate) const PINNED: IFlags = IFlags::IMMUTABLE.union(IFlags::APPEND);

/// `struct fsxattr` of linux/fs.h.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FsXattr {
    /// `FS_XFLAG_*`
    pub xflags: u32,
    /// Hint: bytes to allocate at once.
    pub extent_size: u32,
    /// Number of extents.
    pub extents: u32,
    /// Whose quota counts.
    pub project: u32,
    /// Hint: bytes to copy at once.
    pub cow_extent_size: u32,
    /// Zeros.
    pub padding: [u8; 8],
}

/// `FS_XFLAG_PREALLOC`: somebody reserved room.
pub(crate) const PREALLOC: u32 = 2;

const FS_IOC_FSGETXATTR: libc::Ioctl = 0x801c_581f_u32 as libc::Ioctl;
const FS_IOC_FSSETXATTR: libc::Ioctl = 0x401c_5820;

/// Flags of a file, `FS_*_FL`.
pub(crate) fn flags(file: BorrowedFd<'_>) -> Result<IFlags, Errno> {
    rustix::fs::ioctl_getflags(file)
}

/// Sets flags.
pub(crate) fn set_flags(file: BorrowedFd<'_>, flags: IFlags) -> Result<(), Errno> {
    rustix::fs::ioctl_setflags(file, flags)
}

/// The extended form.
pub(crate) fn fs_xattr(file: BorrowedFd<'_>) -> Result<FsXattr, Errno> {
    let mut found = FsXattr::default();
    // SAFETY: the call fills in one such struct, and the descriptor is open.
    done(unsafe { libc::ioctl(file.as_raw_fd(), FS_IOC_FSGETXATTR, &raw mut found) }).map(|()| found)
}

/// Sets the extended form.
pub(crate) fn set_fs_xattr(file: BorrowedFd<'_>, value: &FsXattr) -> Result<(), Errno> {
    // SAFETY: the call reads one such struct, and the descriptor is open.
    done(unsafe { libc::ioctl(file.as_raw_fd(), FS_IOC_FSSETXATTR, &raw const *value) })
}

fn done(result: libc::c_int) -> Result<(), Errno> {
    match result {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error().raw_os_error().map_or(Errno::IO, Errno::from_raw_os_error)),
    }
}

/// Whether a file may not be unlinked.
pub(crate) fn is_pinned(file: BorrowedFd<'_>) -> bool {
    flags(file).is_ok_and(|flags| flags.intersects(PINNED))
}
