//! System calls that no crate wraps.

pub(crate) mod uring;

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use crate::abi::{self, device};

/// Registers a file as the backing of others; its id.
pub(crate) fn open_backing(connection: BorrowedFd<'_>, file: BorrowedFd<'_>) -> io::Result<i32> {
    let map = abi::BackingMap { fd: file.as_raw_fd(), ..abi::BackingMap::default() };
    // SAFETY: the kernel reads a `fuse_backing_map`, which outlives the call.
    let id = unsafe { libc::ioctl(connection.as_raw_fd(), device::BACKING_OPEN.into(), &raw const map) };
    if id < 0 { Err(io::Error::last_os_error()) } else { Ok(id) }
}

/// Takes a registration back.
pub(crate) fn close_backing(connection: BorrowedFd<'_>, id: i32) -> io::Result<()> {
    // SAFETY: the kernel reads an `int`, which outlives the call.
    let done = unsafe { libc::ioctl(connection.as_raw_fd(), device::BACKING_CLOSE.into(), &raw const id) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
