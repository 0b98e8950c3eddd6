//! A descriptor as a path, for calls that take no descriptor: it leads to the object itself, by whatever name, and
//! follows no symbolic link.

use std::os::fd::{AsRawFd, BorrowedFd};

/// The path of what is held open; good for as long as it is held.
pub(crate) fn proc_path(fd: BorrowedFd<'_>) -> String {
    // The thread's own table: that of the process is that of its first thread, which may have ended.
    format!("/proc/thread-self/fd/{}", fd.as_raw_fd())
}
