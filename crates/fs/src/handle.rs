//! Open files.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwap;
use rustix::fs::OFlags;

use crate::at::FileAt;
use crate::node::Node;

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
}

impl Handle {
    pub(crate) fn current(&self) -> Arc<FileAt> {
        self.file.load_full()
    }

    pub(crate) fn note_write(&self) {
        if !self.wrote.load(Ordering::Relaxed) {
            self.wrote.store(true, Ordering::Relaxed);
        }
    }
}
