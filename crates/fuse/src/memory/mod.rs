//! Memory that begins at a page, takes room only where it was touched, and is not copied to child processes.

use std::fs::File;
use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};

use rustix::mm::{Advice, MapFlags, ProtFlags};
pub(crate) use rustix::param::page_size;

/// Memory for the rings' buffers that outlives the process: a file (such as a memfd) that is mapped at a fixed address.
///
/// The file grows to what all entries of all processors would need; it takes room only where it was used.
#[derive(Debug)]
pub struct RingMemory {
    /// The file; nobody else may change it.
    pub file: File,
    /// Where it is mapped: a multiple of the page size, with nothing mapped there or behind it.
    pub address: usize,
}

impl RingMemory {
    /// Makes the file at least `length` bytes long.
    pub(crate) fn reserve(&self, length: usize) -> io::Result<()> {
        let length = length as u64;
        if self.file.metadata()?.len() < length { self.file.set_len(length) } else { Ok(()) }
    }

    /// Maps a part of the file where it belongs.
    pub(crate) fn map(&self, offset: usize, length: usize) -> io::Result<Pages> {
        let length = length.next_multiple_of(page_size());
        let start = self.address.checked_add(offset).filter(|start| start.checked_add(length).is_some());
        let start = ptr::without_provenance_mut(start.ok_or(io::ErrorKind::InvalidInput)?);
        let how = MapFlags::SHARED | MapFlags::FIXED_NOREPLACE;
        // SAFETY: the call fails where something else is mapped, so no other memory is touched.
        let start = unsafe { rustix::mm::mmap(start, length, ACCESS, how, &self.file, offset as u64) }?;
        Pages::own(start.cast(), length, Advice::LinuxRemove)
    }
}

const ACCESS: ProtFlags = ProtFlags::READ.union(ProtFlags::WRITE);

/// A mapping of its own, zeroed.
#[derive(Debug)]
pub(crate) struct Pages {
    start: NonNull<u8>,
    length: usize,
    /// How the memory behind it is given back.
    free: Advice,
}

// SAFETY: the mapping belongs to its owner alone.
unsafe impl Send for Pages {}
// SAFETY: shared access reads only, or goes through `start`, whose users see to it themselves.
unsafe impl Sync for Pages {}

impl Pages {
    /// At least `length` bytes.
    pub(crate) fn new(length: usize) -> io::Result<Pages> {
        let length = length.max(1).next_multiple_of(page_size());
        // SAFETY: a new mapping at a place of the kernel's choice touches no other memory.
        let start = unsafe { rustix::mm::mmap_anonymous(ptr::null_mut(), length, ACCESS, MapFlags::PRIVATE) }?;
        Pages::own(start.cast(), length, Advice::LinuxDontNeed)
    }

    /// A part of a file, shared with the kernel.
    pub(crate) fn of_file(file: BorrowedFd<'_>, offset: u64, length: usize) -> io::Result<Pages> {
        let how = MapFlags::SHARED | MapFlags::POPULATE;
        // SAFETY: a new mapping at a place of the kernel's choice touches no other memory.
        let start = unsafe { rustix::mm::mmap(ptr::null_mut(), length, ACCESS, how, file, offset) }?;
        Pages::own(start.cast(), length, Advice::LinuxDontNeed)
    }

    fn own(start: *mut u8, length: usize, free: Advice) -> io::Result<Pages> {
        let start = NonNull::new(start).ok_or(io::ErrorKind::OutOfMemory)?;
        // SAFETY: the advice changes what a child process gets, not what is in the mapping.
        let _ = unsafe { rustix::mm::madvise(start.as_ptr().cast(), length, Advice::LinuxDontFork) };
        Ok(Pages { start, length, free })
    }

    pub(crate) fn len(&self) -> usize {
        self.length
    }

    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Releases the pages to the kernel. They then read as zero, and take memory again when they are touched.
    pub(crate) fn release_pages(&self) {
        // SAFETY: the range is the mapping, and what is in it has no meaning to anyone.
        let _ = unsafe { rustix::mm::madvise(self.start.as_ptr().cast(), self.length, self.free) };
    }

    pub(crate) fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: the mapping has this length, is initialised (zero), and is borrowed for as long as the slice.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.length) }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: only this owner has the mapping, and it is being dropped.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.length) };
    }
}

#[cfg(test)]
mod tests;
