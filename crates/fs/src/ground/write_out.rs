//! `sync_file_range`: the pages of one file, written out without its metadata.

use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::io::Errno;

/// Has the kernel write a file's pages out, and does not wait for it. A later sync of the file reports whether it
/// could.
pub(crate) fn begin(file: BorrowedFd<'_>) {
    let _ = sync_range(file, libc::SYNC_FILE_RANGE_WRITE);
}

/// Writes a file's pages out.
pub(crate) fn write_out(file: BorrowedFd<'_>) -> Result<(), Errno> {
    use libc::{SYNC_FILE_RANGE_WAIT_AFTER, SYNC_FILE_RANGE_WAIT_BEFORE, SYNC_FILE_RANGE_WRITE};
    sync_range(file, SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER)
}

/// The error of a write-back of this file that failed since `file` was opened, or that has not been reported yet. A
/// descriptor gets it once.
pub(crate) fn failed_writes(file: BorrowedFd<'_>) -> Result<(), Errno> {
    match sync_range(file, libc::SYNC_FILE_RANGE_WAIT_BEFORE) {
        // Files that have no pages.
        Err(Errno::SPIPE | Errno::INVAL | Errno::NOSYS) => Ok(()),
        done => done,
    }
}

fn sync_range(file: BorrowedFd<'_>, flags: libc::c_uint) -> Result<(), Errno> {
    // SAFETY: no memory is handed over, and the descriptor is open.
    match unsafe { libc::sync_file_range(file.as_raw_fd(), 0, 0, flags) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error().raw_os_error().map_or(Errno::IO, Errno::from_raw_os_error)),
    }
}
