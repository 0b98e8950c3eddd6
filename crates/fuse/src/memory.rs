//! Memory that begins at a page, takes room only where it was touched, and is not copied to child processes.

use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};

use rustix::mm::{Advice, MapFlags, ProtFlags};

/// A mapping of its own, zeroed.
#[derive(Debug)]
pub(crate) struct Pages {
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: the mapping belongs to its owner alone.
unsafe impl Send for Pages {}
// SAFETY: shared access reads only, or goes through `start`, whose users see to it themselves.
unsafe impl Sync for Pages {}

impl Pages {
    /// At least so many bytes.
    pub(crate) fn new(length: usize) -> io::Result<Pages> {
        let length = length.max(1).next_multiple_of(4096);
        // SAFETY: a new mapping at a place of the kernel's choice touches no other memory.
        let start = unsafe {
            rustix::mm::mmap_anonymous(ptr::null_mut(), length, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)
        }?;
        Pages::own(start.cast(), length)
    }

    /// A part of a file, shared with the kernel.
    pub(crate) fn of_file(file: BorrowedFd<'_>, offset: u64, length: usize) -> io::Result<Pages> {
        let (access, how) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::POPULATE);
        // SAFETY: a new mapping at a place of the kernel's choice touches no other memory.
        let start = unsafe { rustix::mm::mmap(ptr::null_mut(), length, access, how, file, offset) }?;
        Pages::own(start.cast(), length)
    }

    fn own(start: *mut u8, length: usize) -> io::Result<Pages> {
        let start = NonNull::new(start).ok_or(io::ErrorKind::OutOfMemory)?;
        // SAFETY: the advice changes what a child process gets, not what is in the mapping.
        let _ = unsafe { rustix::mm::madvise(start.as_ptr().cast(), length, Advice::LinuxDontFork) };
        Ok(Pages { start, length })
    }

    pub(crate) fn len(&self) -> usize {
        self.length
    }

    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Gives back the memory behind the first `used` bytes: it reads as zero, and takes room again when it is touched.
    pub(crate) fn give_back_from(&self, used: usize) {
        let used = used.next_multiple_of(4096).min(self.length);
        // SAFETY: the range is within the mapping, and what is in it has no meaning to anyone.
        let _ = unsafe {
            rustix::mm::madvise(self.start.as_ptr().add(used).cast(), self.length - used, Advice::LinuxDontNeed)
        };
    }

    pub(crate) fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: the mapping has this length, is initialised (zero), and is borrowed for as long as the slice.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.length) }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: nobody has the mapping but this owner, who goes.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.length) };
    }
}
