//! Whole transfers: short ones continue, interrupted ones start again, and memory that direct I/O does not take is
//! copied.

use std::cell::RefCell;
use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::{Errno, ReadWriteFlags};

use super::buffer::{AlignedBuffer, is_aligned};

/// The most that goes through the aligned buffer at once.
const BOUNCE: usize = 1 << 20;

thread_local! {
    static BUFFER: RefCell<AlignedBuffer> = RefCell::default();
}

/// Whether a write waits for the medium.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sync {
    No,
    Range,
}

/// How direct I/O wants to be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Alignment {
    /// Where memory begins is a multiple of this; 1 without direct I/O.
    pub(super) memory: usize,
    /// Where a transfer begins and how long it is are multiples of this; 1 without direct I/O.
    pub(super) block: usize,
}

impl Alignment {
    /// What the page cache needs.
    pub(super) const NONE: Alignment = Alignment { memory: 1, block: 1 };
}

/// An open file, and how to ask it.
#[derive(Debug)]
pub(super) struct Transfer {
    file: File,
    alignment: Alignment,
    /// Cleared when the file system turns out not to know RWF_NOWAIT.
    knows_nowait: AtomicBool,
    /// Cleared when the file system turns out not to know RWF_DSYNC.
    knows_dsync: AtomicBool,
}

impl AsFd for Transfer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Transfer {
    pub(super) fn new(file: File, alignment: Alignment) -> Transfer {
        let knows_nowait = AtomicBool::new(alignment == Alignment::NONE);
        Transfer { file, alignment, knows_nowait, knows_dsync: AtomicBool::new(true) }
    }

    /// Fills the buffer from byte `offset` on.
    pub(super) fn read(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        if is_aligned(buffer, self.alignment.memory) {
            return self.read_aligned(offset, buffer);
        }
        BUFFER.with_borrow_mut(|bounce| {
            let mut at = offset;
            for part in buffer.chunks_mut(BOUNCE) {
                let aligned = bounce.room(part.len());
                self.read_aligned(at, aligned)?;
                part.copy_from_slice(aligned);
                at += part.len() as u64;
            }
            Ok(())
        })
    }

    /// Fills the buffer if all of it is in the page cache; false if that would mean to wait.
    pub(super) fn read_cached(&self, offset: u64, buffer: &mut [u8]) -> io::Result<bool> {
        if !self.knows_nowait.load(Ordering::Relaxed) {
            return Ok(false);
        }
        let len = buffer.len();
        match rustix::io::preadv2(&self.file, &mut [IoSliceMut::new(buffer)], offset, ReadWriteFlags::NOWAIT) {
            Ok(got) => Ok(got == len),
            Err(Errno::AGAIN | Errno::INTR) => Ok(false),
            Err(Errno::OPNOTSUPP) => {
                self.knows_nowait.store(false, Ordering::Relaxed);
                Ok(false)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Writes all of `data` from byte `offset` on.
    pub(super) fn write(&self, offset: u64, data: &[u8], sync: Sync) -> io::Result<()> {
        if is_aligned(data, self.alignment.memory) {
            return self.write_aligned(offset, data, sync);
        }
        BUFFER.with_borrow_mut(|bounce| {
            let mut at = offset;
            for part in data.chunks(BOUNCE) {
                let aligned = bounce.room(part.len());
                aligned.copy_from_slice(part);
                self.write_aligned(at, aligned, sync)?;
                at += part.len() as u64;
            }
            Ok(())
        })
    }

    /// Makes all earlier writes durable.
    pub(super) fn sync(&self) -> io::Result<()> {
        Ok(retry(|| rustix::fs::fdatasync(&self.file))?)
    }

    fn read_aligned(&self, mut offset: u64, mut rest: &mut [u8]) -> io::Result<()> {
        while !rest.is_empty() {
            let got = self.whole(retry(|| rustix::io::pread(&self.file, &mut *rest, offset))?, rest.len());
            if got == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into()); // Another process has cut the file.
            }
            rest = rest.get_mut(got..).ok_or(io::ErrorKind::InvalidData)?;
            offset += got as u64;
        }
        Ok(())
    }

    fn write_aligned(&self, mut offset: u64, mut rest: &[u8], sync: Sync) -> io::Result<()> {
        while !rest.is_empty() {
            let put = self.whole(self.write_some(offset, rest, sync)?, rest.len());
            if put == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            rest = rest.get(put..).ok_or(io::ErrorKind::InvalidData)?;
            offset += put as u64;
        }
        Ok(())
    }

    fn write_some(&self, offset: u64, data: &[u8], sync: Sync) -> io::Result<usize> {
        if sync == Sync::No {
            return Ok(retry(|| rustix::io::pwrite(&self.file, data, offset))?);
        }
        if self.knows_dsync.load(Ordering::Relaxed) {
            let through = || rustix::io::pwritev2(&self.file, &[IoSlice::new(data)], offset, ReadWriteFlags::DSYNC);
            match retry(through) {
                Err(Errno::OPNOTSUPP | Errno::NOSYS) => self.knows_dsync.store(false, Ordering::Relaxed),
                put => return Ok(put?),
            }
        }
        let put = retry(|| rustix::io::pwrite(&self.file, data, offset))?;
        self.sync()?;
        Ok(put)
    }

    /// How much of a short transfer counts: direct I/O continues at a whole block only.
    fn whole(&self, done: usize, of: usize) -> usize {
        if done == of { done } else { done - done % self.alignment.block }
    }
}

fn retry<T>(mut call: impl FnMut() -> rustix::io::Result<T>) -> rustix::io::Result<T> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            done => return done,
        }
    }
}
