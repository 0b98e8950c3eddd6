//! Open files.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use arc_swap::ArcSwap;
use rustix::fs::OFlags;
use rustix::io::Errno;

use super::Node;
use crate::error::{OpError, OpResult};
use crate::ground::at::FileAt;

/// Number of a handle towards the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct HandleId(pub u64);

/// How the data of an open file travels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DataPath {
    /// From the kernel straight to the branch.
    Passthrough,
    /// Through the daemon; the kernel caches pages.
    Mediated,
}

/// One open file.
pub(crate) struct Handle {
    pub(crate) node: Arc<Node>,
    /// Exchanged when the file moves to another branch under its users.
    pub(crate) file: ArcSwap<FileAt>,
    /// How it was opened: access mode only, plus what must be kept when it is opened again.
    pub(crate) flags: OFlags,
    pub(crate) data: DataPath,
    pub(crate) writer: bool,
    /// Written through this handle (or possibly, for passthrough).
    pub(crate) wrote: AtomicBool,
    /// An error of write-back that was learned before its user asked for it; 0: none.
    pub(crate) failed: AtomicI32,
}

impl Handle {
    pub(crate) fn current(&self) -> Arc<FileAt> {
        self.file.load_full()
    }

    /// Collects the branch's errors of writes through this handle, because the file's inode changes when it moves. The
    /// next fsync returns them.
    pub(crate) fn collect_write_errors(&self) -> OpResult<()> {
        let errors = self.current().failed_writes();
        if let Err(OpError::Sys(errno)) = errors {
            self.failed.store(errno.raw_os_error(), Ordering::Relaxed);
        }
        errors
    }

    /// What [`Handle::collect_write_errors`] has learned, once.
    pub(crate) fn learned_error(&self) -> OpResult<()> {
        match self.failed.swap(0, Ordering::Relaxed) {
            0 => Ok(()),
            errno => Err(OpError::Sys(Errno::from_raw_os_error(errno))),
        }
    }

    /// Whether its writes go past the daemon.
    pub(crate) fn writes_past_daemon(&self) -> bool {
        self.writer && self.data == DataPath::Passthrough
    }

    pub(crate) fn note_write(&self) {
        if !self.wrote.load(Ordering::Relaxed) {
            self.wrote.store(true, Ordering::Relaxed);
        }
    }
}
