use std::ffi::c_void;
use std::num::NonZeroUsize;
use std::ptr::NonNull;

use nix::sys::mman::MapFlags;
use nix::sys::mman::ProtFlags;
use nix::sys::mman::mmap_anonymous;
use nix::sys::mman::munmap;

use crate::session::MAX_WRITE_SIZE;

/// Size of the buffer for reading a request from the kernel. Since the kernel may send
/// up to `MAX_WRITE_SIZE` bytes in a write request, we use that value plus some extra space.
const BUFFER_SIZE: NonZeroUsize = NonZeroUsize::new(MAX_WRITE_SIZE + 4096).unwrap();

/// A buffer for requests, aligned to a page.
///
/// It is a mapping of its own: only what a request was read into takes memory, however many
/// threads there are, and it is given back when its thread ends.
#[derive(Debug)]
pub(crate) struct FuseReadBuf {
    start: NonNull<c_void>,
}

impl FuseReadBuf {
    /// Creates a new `FuseReadBuf` with the default buffer size.
    pub(crate) fn new() -> std::io::Result<Self> {
        let protection = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        let flags = MapFlags::MAP_PRIVATE | MapFlags::MAP_NORESERVE;
        // SAFETY: an anonymous mapping at a place that the kernel chooses aliases nothing.
        let start = unsafe { mmap_anonymous(None, BUFFER_SIZE, protection, flags)? };
        Ok(Self { start })
    }

    /// The whole buffer.
    pub(crate) fn as_mut(&mut self) -> &mut [u8] {
        // SAFETY: mapped for reading and writing with this length, zeroed by the kernel, and nobody else has it.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr().cast(), BUFFER_SIZE.get()) }
    }
}

impl Drop for FuseReadBuf {
    fn drop(&mut self) {
        // SAFETY: the mapping made above, to which no reference is left.
        let _ = unsafe { munmap(self.start, BUFFER_SIZE.get()) };
    }
}
