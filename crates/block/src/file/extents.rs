//! What the file knows of itself beyond its sectors: what is in the page cache, and where it has holes.

use std::os::fd::AsFd;

use rustix::fs::{Advice, SeekFrom, fadvise, seek};
use rustix::io::Errno;
use umbrella_units::{Lba, SECTOR_BYTES, SectorRange};

use super::open::size;
use super::{Cache, FileDevice, offset};
use crate::device::{Allocation, BlockDevice};
use crate::error::{BlockError, Operation};

/// The ranges of a file in order, each with how it is allocated; whole logical blocks, no two alike in a row.
#[derive(Debug)]
pub struct Extents<'d> {
    device: &'d FileDevice,
    rest: SectorRange,
}

impl Iterator for Extents<'_> {
    type Item = Result<(SectorRange, Allocation), BlockError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.sectors == 0 {
            return None;
        }
        let next = self.device.extent(self.rest);
        self.rest = match &next {
            Ok((first, _)) => SectorRange::between(first.end(), self.rest.end()),
            Err(_) => SectorRange { sectors: 0, ..self.rest },
        };
        Some(next)
    }
}

impl FileDevice {
    /// Fills the buffer if that takes no waiting: all of it is in the page cache. False if not, or if the system cannot
    /// tell.
    pub fn read_cached(&self, at: Lba, buffer: &mut [u8]) -> Result<bool, BlockError> {
        let range = self.geometry().check(at, buffer.len())?;
        self.transfer.read_cached(offset(at), buffer).map_err(|source| self.failed_read(range, source))
    }

    /// Begins to read a range into the page cache; does nothing without one.
    pub fn prefetch(&self, range: SectorRange) -> Result<(), BlockError> {
        self.geometry().check_range(range)?;
        if self.cache == Cache::Page && range.sectors > 0 {
            let len = std::num::NonZeroU64::new(range.bytes().0);
            // Only advice.
            let _ = fadvise(self, offset(range.start), len, Advice::WillNeed);
        }
        Ok(())
    }

    /// How the range is allocated. One extent of data where it cannot say.
    pub fn extents(&self, range: SectorRange) -> Result<Extents<'_>, BlockError> {
        self.geometry().check_range(range)?;
        Ok(Extents { device: self, rest: range })
    }

    /// The first extent of a range that exists and is not empty; never empty itself.
    pub(super) fn extent(&self, range: SectorRange) -> Result<(SectorRange, Allocation), BlockError> {
        let block = u64::from(self.geometry().logical_block) / SECTOR_BYTES;
        let found = |result: rustix::io::Result<u64>| match result {
            Ok(byte) => Ok(Some(byte)),
            Err(Errno::NXIO) => Ok(None),
            Err(error) => Err(self.failed(Operation::Read, Some(range), error.into())),
        };
        if !self.has_extents() {
            return Ok((range, Allocation::Data));
        }
        let start = offset(range.start);
        let data = match found(seek(self, SeekFrom::Data(start)))? {
            Some(byte) => Lba(byte / SECTOR_BYTES / block * block),
            None => self.hole_at_end(range, block)?,
        };
        if data > range.start {
            return Ok((SectorRange::between(range.start, data.min(range.end())), Allocation::Hole));
        }
        let hole = found(seek(self, SeekFrom::Hole(start)))?
            .map_or(range.end(), |byte| Lba(byte.div_ceil(SECTOR_BYTES).div_ceil(block).saturating_mul(block)));
        // A hole smaller than a block is data; so is what was punched between the two calls.
        let end = hole.max(Lba(range.start.0 + block)).min(range.end());
        Ok((SectorRange::between(range.start, end), Allocation::Data))
    }

    /// The end of a hole with no data behind it: the end of the range, or of the file. The part that was cut off a file
    /// is no hole.
    fn hole_at_end(&self, range: SectorRange, block: u64) -> Result<Lba, BlockError> {
        let failed = |source| self.failed(Operation::Read, Some(range), source);
        let size = size(self.as_fd(), self.kind).map_err(failed)?;
        let end = Lba(size.0 / SECTOR_BYTES / block * block);
        if end <= range.start {
            return Err(failed(std::io::ErrorKind::UnexpectedEof.into()));
        }
        Ok(end.min(range.end()))
    }
}
