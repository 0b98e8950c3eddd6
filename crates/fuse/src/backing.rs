//! Backing files: what open files are passed through to.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use crate::device::Device;
use crate::sys;

/// A file that is registered with the kernel, which then reads and writes it without asking. Dropping it ends that. A
/// file that is open keeps it, but one that is being opened does not: keep it until the handle is released.
#[derive(Debug)]
pub struct BackingFile {
    id: i32,
    device: Arc<Device>,
}

impl BackingFile {
    /// Fails without `CAP_SYS_ADMIN`, for a file system that is stacked too deep, or without PASSTHROUGH at INIT.
    /// The file can still be opened without passthrough.
    pub(crate) fn register(device: &Arc<Device>, file: BorrowedFd<'_>) -> std::io::Result<BackingFile> {
        let id = sys::open_backing(device.as_fd(), file)?;
        Ok(BackingFile { id, device: Arc::clone(device) })
    }

    pub(crate) fn raw(&self) -> i32 {
        self.id
    }
}

impl Drop for BackingFile {
    fn drop(&mut self) {
        // Gone with the connection, if that ended.
        let _ = sys::close_backing(self.device.as_fd(), self.id);
    }
}
