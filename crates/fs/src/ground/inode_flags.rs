//! Flags of inodes: the ioctls behind `lsattr`, `chattr` and project quotas. They want real descriptors, not `O_PATH`.

use std::os::fd::BorrowedFd;

use linux_raw_sys::general::fsxattr;
use linux_raw_sys::ioctl::{FS_IOC_FSGETXATTR, FS_IOC_FSSETXATTR};
use rustix::fs::IFlags;
use rustix::io::Errno;
use rustix::ioctl::{Getter, Setter, ioctl};

/// Flags of a file that may not be changed, or only grow. It may not be unlinked either, so it cannot move.
pub(crate) const PINNED: IFlags = IFlags::IMMUTABLE.union(IFlags::APPEND);

/// Flags of a file, `FS_*_FL`.
pub(crate) fn flags(file: BorrowedFd<'_>) -> Result<IFlags, Errno> {
    rustix::fs::ioctl_getflags(file)
}

/// Sets flags.
pub(crate) fn set_flags(file: BorrowedFd<'_>, flags: IFlags) -> Result<(), Errno> {
    rustix::fs::ioctl_setflags(file, flags)
}

/// The extended form.
pub(crate) fn fs_xattr(file: BorrowedFd<'_>) -> Result<fsxattr, Errno> {
    // SAFETY: FS_IOC_FSGETXATTR fills in one such struct.
    unsafe { ioctl(file, Getter::<FS_IOC_FSGETXATTR, fsxattr>::new()) }
}

/// Sets the extended form.
pub(crate) fn set_fs_xattr(file: BorrowedFd<'_>, value: &fsxattr) -> Result<(), Errno> {
    // SAFETY: FS_IOC_FSSETXATTR reads one such struct.
    unsafe { ioctl(file, Setter::<FS_IOC_FSSETXATTR, fsxattr>::new(*value)) }
}

/// Whether a file may not be unlinked.
pub(crate) fn is_pinned(file: BorrowedFd<'_>) -> bool {
    flags(file).is_ok_and(|flags| flags.intersects(PINNED))
}
