//! A mount of a branch that only the pool sees, in which reads change access times as the pool's mount options say.
//!
//! Access times are the business of the mount that a file was opened through, and in passthrough the kernel opens the
//! branch's file itself. So the whole branch is used through a clone of its mount with these options. All calls,
//! because a rename or a link between two mounts of one file system fails. File systems mounted below the branch come
//! with it.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use linux_raw_sys::general::{
    MOUNT_ATTR__ATIME, MOUNT_ATTR_NOATIME, MOUNT_ATTR_NODIRATIME, MOUNT_ATTR_RELATIME, MOUNT_ATTR_STRICTATIME,
    mount_attr,
};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{OpenTreeFlags, open_tree};

use crate::spec::{AccessTimes, AtimeUpdate};

/// The branch's root in a clone of its mount, and two descriptors to hold for as long as the branch is used. The first
/// keeps the clone in existence. The second keeps the branch's own mount busy, so that unmounting a disk in use fails.
pub(super) fn clone_mount(root: OwnedFd, times: AccessTimes) -> rustix::io::Result<(OwnedFd, [OwnedFd; 2])> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_EMPTY_PATH
        | OpenTreeFlags::AT_RECURSIVE;
    let clone = open_tree(&root, "", flags)?;
    set_access_times(clone.as_fd(), times)?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let inside = rustix::fs::openat(&clone, ".", flags, Mode::empty())?;
    Ok((inside, [clone, root]))
}

fn set_access_times(mount: BorrowedFd<'_>, times: AccessTimes) -> rustix::io::Result<()> {
    let update = times.update.map(|update| match update {
        AtimeUpdate::Never => MOUNT_ATTR_NOATIME,
        AtimeUpdate::Relative => MOUNT_ATTR_RELATIME,
        AtimeUpdate::Always => MOUNT_ATTR_STRICTATIME,
    });
    let directories = if times.not_of_directories { MOUNT_ATTR_NODIRATIME } else { 0 };
    let attributes = mount_attr {
        attr_set: u64::from(update.unwrap_or(0) | directories),
        attr_clr: u64::from(if update.is_some() { MOUNT_ATTR__ATIME } else { 0 }),
        propagation: 0,
        userns_fd: 0,
    };
    let flags = libc::AT_EMPTY_PATH | libc::AT_RECURSIVE;
    // SAFETY: the path is a C string; the kernel reads the given number of bytes of `attributes`, which outlives the
    // call.
    let done = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_raw_fd(),
            c"".as_ptr(),
            flags,
            &raw const attributes,
            size_of::<mount_attr>(),
        )
    };
    if done == 0 { Ok(()) } else { Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::INVAL)) }
}
