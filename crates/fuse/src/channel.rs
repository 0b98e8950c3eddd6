//! How answers reach the kernel.

use crate::types::{Errno, RequestId};

/// Where an answer goes.
pub(crate) trait Channel: Send + Sync {
    /// Sends an answer. `Err` is an error from the file system, not from the sending.
    fn send(&self, id: RequestId, answer: Result<&[&[u8]], Errno>);

    /// Lends a buffer of `size` bytes, and sends what was written into it.
    fn fill(&self, id: RequestId, size: usize, write: &mut dyn FnMut(&mut [u8]) -> Result<usize, Errno>);
}
