//! Giving space back, and zeroes without sending them where the file system or the disk can.

use std::io;

use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;
use umbrella_units::{Lba, SECTOR_BYTES, SectorRange};

use super::buffer::AlignedBuffer;
use super::transfer::Sync;
use super::{FileDevice, Kind, kernel, offset};
use crate::device::{BlockDevice, Zeroes};
use crate::error::{BlockError, Operation};

/// How many zeroes are written at once where they must be.
const CHUNK: u64 = 1 << 20;

/// What to do where nothing makes zeroes quickly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fallback {
    WriteThem,
    Refuse,
}

impl FileDevice {
    /// Makes the range read as zeroes if that takes no longer than telling the file system; false if it would have to
    /// write them.
    pub fn zero_quickly(&self, range: SectorRange, zeroes: Zeroes) -> Result<bool, BlockError> {
        self.geometry().check_range(range)?;
        self.writable()?;
        match self.zero(range, zeroes, Fallback::Refuse) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::Unsupported => Ok(false),
            Err(source) => Err(self.failed(Operation::Write, Some(range), source)),
        }
    }

    pub(super) fn deallocate(&self, range: SectorRange) -> io::Result<()> {
        if range.sectors == 0 {
            return Ok(());
        }
        let given = match self.kind {
            Kind::Regular => self.allocate(FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, range),
            Kind::Block => kernel::discard(self, range),
        };
        match given {
            // Only advice: what cannot give space back keeps it.
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::NOTTY) => Ok(()),
            given => Ok(given?),
        }
    }

    /// Fails with [`io::ErrorKind::Unsupported`] where zeroes would have to be written and the fallback says no.
    pub(super) fn zero(&self, range: SectorRange, zeroes: Zeroes, fallback: Fallback) -> io::Result<()> {
        if range.sectors == 0 {
            return Ok(());
        }
        let unmap = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let keep = FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE;
        let reported = match (self.kind, zeroes) {
            (Kind::Regular, Zeroes::Unmap) => self.allocate(unmap, range).or_else(|_| self.allocate(keep, range)),
            (Kind::Regular, Zeroes::Keep) => self.allocate(keep, range),
            // A device's punched hole is zeroed by the device or refused; what is kept may be written out by the
            // kernel.
            (Kind::Block, Zeroes::Unmap) => self.allocate(unmap, range),
            (Kind::Block, Zeroes::Keep) => Err(Errno::OPNOTSUPP),
        };
        match (reported, fallback) {
            (Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::NODEV), Fallback::Refuse) => {
                Err(io::ErrorKind::Unsupported.into())
            }
            (Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::NODEV), Fallback::WriteThem) => self.write_them(range),
            (reported, _) => Ok(reported?),
        }
    }

    fn write_them(&self, range: SectorRange) -> io::Result<()> {
        if self.kind == Kind::Block && kernel::zero(self, range).is_ok() {
            return Ok(());
        }
        let mut zeroes = AlignedBuffer::new(range.bytes().0.min(CHUNK) as usize);
        let mut at = range.start;
        while at < range.end() {
            let part = SectorRange { start: at, sectors: CHUNK / SECTOR_BYTES }.intersection(range);
            self.transfer.write(offset(at), zeroes.room(part.bytes().0 as usize), Sync::No)?;
            at = Lba(at.0 + part.sectors);
        }
        Ok(())
    }

    fn allocate(&self, how: FallocateFlags, range: SectorRange) -> rustix::io::Result<()> {
        loop {
            match fallocate(self, how, offset(range.start), range.bytes().0) {
                Err(Errno::INTR) => {}
                done => return done,
            }
        }
    }
}
