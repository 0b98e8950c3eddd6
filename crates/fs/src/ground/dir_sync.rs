//! Makes the names in a directory durable.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags, fdatasync, fstat, fsync, openat};
use rustix::io::Errno;

/// Makes the names in a directory durable; the descriptor may be `O_PATH`.
pub(crate) fn sync_dir(dir: BorrowedFd<'_>) -> Result<(), Errno> {
    sync_dir_with(dir, false)
}

/// As [`sync_dir`]; `data_only`: by fdatasync.
pub(crate) fn sync_dir_with(dir: BorrowedFd<'_>, data_only: bool) -> Result<(), Errno> {
    let open = open_to_sync(dir)?;
    let synced = if data_only { fdatasync(open.as_fd()) } else { fsync(open.as_fd()) };
    match synced {
        // Some file systems cannot sync a directory: they keep no order between directories, or do it at each change.
        Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => Ok(()),
        // xfs has nothing left to sync when its disk has died meanwhile, and returns success; a look fails then.
        Ok(()) => fstat(open.as_fd()).map(drop),
        failed => failed,
    }
}

/// A directory, open so that it and its file system can be synced.
pub(crate) fn open_to_sync(dir: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    openat(dir, c".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}
