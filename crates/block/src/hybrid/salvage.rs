//! Rescues a pair whose log is damaged: read-only, with errors where the newest data is lost; or by continuing without
//! that data.
//!
//! Opening writes nothing. Reads of lost sectors fail. All other sectors are read as from the whole pair, unless there
//! are lost records with unknown contents ([`Losses::unknown_records`]).
//!
//! Taking such a pair apart (`detach`), so that the disk continues without what is lost:
//! 1. The superblock forgets how the disk begins: from now on it is written. A crash from here on repeats all of it,
//!    which changes nothing.
//! 2. Everything that is not lost is written to the disk, and flushed.
//! 3. The two part as after a drain.
//!
//! Going on with both halves (`salvage`), if it is known what is lost:
//! 1. The flash is flushed: what was just read of the log may be in its cache only. Fillers that are torn are written
//!    again ([`super::fillers`]).
//! 2. The superblock lists the lost sectors, and says that all records are durable. A crash from here on finds the
//!    damage again, and the same sectors.
//! 3. Fillers are written in the places of the damaged records, zeroes over what of them cannot be read, and all is
//!    flushed. The pair can then be opened.

use umbrella_units::{ByteSize, Lba, SECTOR_BYTES, SectorRange};

use super::error::HybridError;
use super::fillers::{restore_torn, write_fillers};
use super::format::{BLOCK_BYTES, FlashSuperblock, Header, LOG_START, MOST_LOST};
use super::gather::{Cached, copy_to_disk, gather};
use super::half::PairHalf;
use super::losses::Losses;
use super::pair::{offered, part, read_labels, write_superblock};
use super::ranges::joined;
use super::survey::Survey;
use crate::device::{BlockDevice, Durability, Geometry, Zeroes};
use crate::error::{BlockError, Operation};

/// The longest stretch brought to the disk at once, in sectors: 1 MiB.
const MOST_AT_ONCE: u64 = (1 << 20) / SECTOR_BYTES;

/// A damaged pair, read-only.
pub struct DamagedPair {
    pub(super) disk: PairHalf,
    pub(super) flash: PairHalf,
    pub(super) survey: Survey,
}

impl DamagedPair {
    /// Goes through the log. An error if the two are no pair, or the disk was written to without its flash.
    pub fn open(disk: PairHalf, flash: PairHalf) -> Result<DamagedPair, HybridError> {
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

    /// Brings to the disk what is not lost; what is left is a plain disk. `tell` gets the bytes copied so far, and
    /// stops the copy by returning `false`. The pair is then unchanged.
    pub fn detach(self, mut report: impl FnMut(ByteSize) -> bool) -> Result<(), HybridError> {
        restore_torn(&self.flash, &self.survey.superblock)?;
        let changing = FlashSuperblock {
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
                if let Some(left) = copy_to_disk(&self.disk, &self.flash, log_size, &cached)?.pop() {
                    return Err(left.error(&self.flash).into());
                }
                at = range.end();
                done = ByteSize(done.0 + range.bytes().0);
                if !report(done) {
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

impl DamagedPair {
    /// Whether it can continue: it is known what is lost, and that fits into the superblock.
    pub fn can_be_salvaged(&self) -> bool {
        let losses = self.losses();
        losses.unknown_records == 0 && losses.at_risk.len() <= MOST_LOST && self.survey.fillers.is_some()
    }

    /// Skips the damaged records for good; see the steps at the head of the module. The pair can be opened then, and
    /// what is lost is an error until it is written again. An error if it cannot continue.
    pub fn salvage(self) -> Result<(), HybridError> {
        let Some(fillers) = self.survey.fillers.as_ref().filter(|_| self.can_be_salvaged()) else {
            return Err(HybridError::LossUnknown { flash: self.flash.name.clone() });
        };
        self.flash.device.flush()?;
        let last = read_labels(&self.disk, &self.flash)?.superblock;
        restore_torn(&self.flash, &last)?;
        let superblock = FlashSuperblock {
            generation: last.generation + 1,
            durable: self.survey.end.next_sequence.before().max(last.durable),
            // Includes what is perhaps lost: all of it counts as reported then.
            lost: self.losses().at_risk,
            unreported: 0,
            ..last
        };
        write_superblock(&*self.flash.device, &superblock)?;
        write_fillers(&self.flash, &superblock, fillers)?;
        fillers.iter().try_for_each(|filler| self.replace_unreadable(filler))?;
        self.flash.device.flush()?;
        tracing::warn!(flash = self.flash.name, lost = ?superblock.lost, "damaged records are skipped; reads of their data fail until you write it again");
        Ok(())
    }

    /// Writes over lost blocks that cannot be read: an opening reads whole records.
    fn replace_unreadable(&self, filler: &Header) -> Result<(), BlockError> {
        let mut block = vec![0; BLOCK_BYTES];
        for at in filler.lost_blocks() {
            let place = Lba(LOG_START.0 + at.0 % self.survey.superblock.log_size);
            if self.flash.device.read(place, &mut block).is_err() {
                block.fill(0);
                self.flash.device.write(place, &block, Durability::Cached)?;
            }
        }
        Ok(())
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
