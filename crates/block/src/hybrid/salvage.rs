//! What can be had of a pair whose log is damaged: read-only, with errors where the newest data is lost.
//!
//! Opening writes nothing. Reads of what is lost fail; everything else is read as from the whole pair, unless records are
//! lost of which nobody knows what they held ([`Losses::unknown_records`]).
//!
//! Taking such a pair apart (`detach`), so that the disk goes on without what is lost:
//! 1. The superblock forgets how the disk begins: from now on it is written. A crash from here on repeats all of it, which changes nothing.
//! 2. Everything that is not lost is written to the disk, and flushed.
//! 3. The two part as after a drain.

use umbrella_units::{ByteSize, Lba, SECTOR_BYTES, SectorRange};

use super::error::HybridError;
use super::format::Superblock;
use super::gather::{Cached, bring, gather};
use super::half::Half;
use super::losses::Losses;
use super::pair::{offered, part, write_superblock};
use super::ranges::joined;
use super::survey::Survey;
use crate::device::{BlockDevice, Durability, Geometry, Zeroes};
use crate::error::{BlockError, Operation};

/// The longest stretch brought to the disk at once, in sectors: 1 MiB.
const MOST_AT_ONCE: u64 = (1 << 20) / SECTOR_BYTES;

/// A damaged pair, read-only.
pub struct DamagedPair {
    pub(super) disk: Half,
    pub(super) flash: Half,
    pub(super) survey: Survey,
}

impl DamagedPair {
    /// Goes through the log. An error if the two are no pair, or the disk was written to without its flash.
    pub fn open(disk: Half, flash: Half) -> Result<DamagedPair, HybridError> {
        let survey = Survey::of(&disk, &flash)?;
        Ok(DamagedPair { disk, flash, survey })
    }

    /// What is lost, and what is perhaps.
    pub fn losses(&self) -> Losses {
        self.survey.losses().and(self.survey.perhaps_lost())
    }

    /// What is damaged; nothing when all is well.
    pub fn damage(&self) -> Option<&HybridError> {
        self.survey.damage.as_ref()
    }

    /// Bytes that only the log has, and that are not lost.
    pub fn cached(&self) -> ByteSize {
        self.survey.whole().map(|piece| piece.range.bytes()).fold(ByteSize(0), |sum, more| ByteSize(sum.0 + more.0))
    }

    /// The sectors whose newest data is not on the disk, lost or not.
    pub fn only_in_log(&self) -> Vec<SectorRange> {
        joined(self.survey.map.pieces_from(Lba(0)).map(|piece| piece.range))
    }

    /// Brings to the disk what is not lost; what is left is a plain disk. `tell` hears how many bytes were brought so far, and stops it with
    /// `false`: then all is as it was for who reads the pair.
    pub fn detach(self, mut tell: impl FnMut(ByteSize) -> bool) -> Result<(), HybridError> {
        let changing = Superblock {
            generation: self.survey.superblock.generation + 1,
            head: None,
            ..self.survey.superblock.clone()
        };
        write_superblock(&*self.flash.device, &changing)?;
        let mut done = ByteSize(0);
        for piece in self.survey.whole() {
            let mut at = piece.range.start;
            while at < piece.range.end() {
                let range = SectorRange { start: at, sectors: (piece.range.end().0 - at.0).min(MOST_AT_ONCE) };
                let (cached, log_size) = (self.cached_in(range), self.survey.superblock.log_size);
                if let Some(left) = bring(&self.disk, &self.flash, log_size, &cached)?.pop() {
                    return Err(left.error(&self.flash).into());
                }
                at = range.end();
                done = ByteSize(done.0 + range.bytes().0);
                if !tell(done) {
                    return Err(HybridError::Stopped);
                }
            }
        }
        self.disk.device.flush()?;
        part(&self.disk, &self.flash, &changing)
    }

    fn cached_in(&self, range: SectorRange) -> Cached {
        Cached::of(&self.survey.map, &self.survey.sums, range)
    }

    fn read_only(&self) -> BlockError {
        BlockError::ReadOnly { device: self.disk.name.as_str().into() }
    }
}

impl BlockDevice for DamagedPair {
    fn geometry(&self) -> Geometry {
        let disk = self.disk.device.geometry();
        Geometry { capacity: offered(disk.capacity), ..disk }
    }

    fn read(&self, at: Lba, buffer: &mut [u8]) -> Result<(), BlockError> {
        let range = self.geometry().check(at, buffer.len())?;
        let cached = self.cached_in(range);
        if let Some(lost) = cached.pieces.iter().find(|piece| self.survey.is_lost(piece)) {
            let error = HybridError::Lost { flash: self.flash.name.clone(), range: lost.range };
            return Err(error.on(&self.disk, Operation::Read));
        }
        gather(&self.disk, &self.flash, self.survey.superblock.log_size, range, &cached, buffer)
            .map_err(|failed| failed.error(&self.flash))
    }

    fn write(&self, _: Lba, _: &[u8], _: Durability) -> Result<(), BlockError> {
        Err(self.read_only())
    }

    fn flush(&self) -> Result<(), BlockError> {
        Ok(())
    }

    fn discard(&self, _: SectorRange) -> Result<(), BlockError> {
        Err(self.read_only())
    }

    fn write_zeroes(&self, _: SectorRange, _: Zeroes, _: Durability) -> Result<(), BlockError> {
        Err(self.read_only())
    }
}
