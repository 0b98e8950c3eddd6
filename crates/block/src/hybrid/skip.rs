//! Going on without what damage has taken: the damaged records are passed over, and their sectors are an error until they are written again.
//!
//! [`DamagedPair::skip`] is for a pair of which it is known what is lost, in this order:
//! 1. The flash is flushed: what was just read of the log may be in its cache only.
//! 2. The superblock lists the lost sectors, and says that all records are durable. A crash from here on finds the damage again, and the same sectors.
//! 3. Fillers are written in the places of the damaged records, zeroes over what of them cannot be read, and all is flushed. The pair can be opened from now on.
//!
//! While the pair is open, a write of lost sectors goes to the log, also while the disk spins: its record takes them from the list at the next opening too, or a
//! superblock that says that the record is durable. The list has room for [`MOST_LOST`] ranges, so that a write that would make more of them fails.
//!
//! A drain that finds a block of the log damaged adds its sectors to the list, and goes on. The superblock that moves the tail past it lists them.

use std::collections::VecDeque;

use umbrella_units::{Lba, SectorRange};

use super::error::HybridError;
use super::format::{BLOCK_BYTES, Header, LOG_START, MOST_LOST, Sequence, Superblock};
use super::pair::{read_labels, write_superblock};
use super::ranges::{joined, without};
use super::recover::write_fillers;
use super::salvage::DamagedPair;
use crate::device::Durability;
use crate::error::BlockError;

/// The sectors of an open pair that damage has taken.
#[derive(Debug, Default)]
pub(super) struct LostSectors {
    /// In order.
    ranges: Vec<SectorRange>,
    /// What no superblock says yet, each with the record that must be durable first. In the order of those.
    changes: VecDeque<(Sequence, Change)>,
}

#[derive(Debug, Clone, Copy)]
enum Change {
    Written(SectorRange),
    Lost(SectorRange),
}

impl Change {
    fn apply(self, ranges: &[SectorRange]) -> Vec<SectorRange> {
        match self {
            Change::Written(range) => without(ranges, range),
            Change::Lost(range) => {
                let mut with = without(ranges, range);
                with.push(range);
                with.sort_unstable_by_key(|range| range.start);
                joined(with)
            }
        }
    }
}

impl LostSectors {
    pub(super) fn new(ranges: Vec<SectorRange>) -> LostSectors {
        LostSectors { ranges, changes: VecDeque::new() }
    }

    pub(super) fn ranges(&self) -> &[SectorRange] {
        &self.ranges
    }

    /// The first of these sectors that are lost.
    pub(super) fn first_in(&self, range: SectorRange) -> Option<SectorRange> {
        self.ranges.iter().find(|lost| lost.overlaps(range)).map(|lost| lost.intersection(range))
    }

    /// Whether the list would become too long without these sectors, when so many writes are on their way to the log.
    pub(super) fn is_too_long_without(&self, range: SectorRange, pending: usize) -> bool {
        let splits = self.ranges.iter().any(|lost| lost.start < range.start && range.end() < lost.end());
        splits && self.ranges.len() + pending >= MOST_LOST
    }

    /// A record is on flash.
    pub(super) fn record_written(&mut self, header: &Header) {
        if self.ranges.is_empty() {
            return;
        }
        for logged in header.logged() {
            if self.first_in(logged.range).is_some() {
                let change = Change::Written(logged.range);
                self.ranges = change.apply(&self.ranges);
                self.changes.push_back((header.sequence, change));
            }
        }
    }

    /// These sectors are lost, whose newest data records up to `durable` hold. Adds none if the list would become too long: `last` is that of the last superblock, and so many
    /// writes are on their way to the log.
    pub(super) fn add(
        &mut self,
        lost: &[SectorRange],
        durable: Sequence,
        last: &[SectorRange],
        pending: usize,
    ) -> bool {
        let behind = self.changes.partition_point(|(sequence, _)| *sequence <= durable);
        let most = self.listed(last, durable).len() + self.changes.len() - behind + pending + lost.len();
        if most > MOST_LOST {
            return false;
        }
        for (place, range) in (behind..).zip(lost) {
            let change = Change::Lost(*range);
            self.ranges = change.apply(&self.ranges);
            self.changes.insert(place, (durable, change));
        }
        true
    }

    /// What a superblock lists that says that records up to `durable` are, after one that listed `last`.
    pub(super) fn listed(&self, last: &[SectorRange], durable: Sequence) -> Vec<SectorRange> {
        let durable = self.changes.iter().take_while(|(sequence, _)| *sequence <= durable);
        durable.fold(last.to_vec(), |list, (_, change)| change.apply(&list))
    }

    /// Such a superblock is on flash.
    pub(super) fn superblock_written(&mut self, durable: Sequence) {
        let listed = self.changes.partition_point(|(sequence, _)| *sequence <= durable);
        self.changes.drain(..listed);
    }
}

impl DamagedPair {
    /// Whether it can go on: it is known what is lost, and that fits into the superblock.
    pub fn can_be_skipped(&self) -> bool {
        let losses = self.losses();
        losses.unknown_records == 0 && losses.at_risk.len() <= MOST_LOST && self.survey.fillers.is_some()
    }

    /// Passes over the damaged records for good; see the steps at the head of the module. The pair can be opened then, and what is lost is an error until it is
    /// written again. An error if it cannot go on.
    pub fn skip(self) -> Result<(), HybridError> {
        let Some(fillers) = self.survey.fillers.as_ref().filter(|_| self.can_be_skipped()) else {
            return Err(HybridError::LossUnknown { flash: self.flash.name.clone() });
        };
        self.flash.device.flush()?;
        let last = read_labels(&self.disk, &self.flash)?.superblock;
        let superblock = Superblock {
            generation: last.generation + 1,
            durable: self.survey.end.next_sequence.before().max(last.durable),
            lost: self.losses().at_risk,
            ..last
        };
        write_superblock(&*self.flash.device, &superblock)?;
        write_fillers(&self.flash, &superblock, fillers)?;
        fillers.iter().try_for_each(|filler| self.replace_unreadable(filler))?;
        self.flash.device.flush()?;
        tracing::warn!(flash = self.flash.name, lost = ?superblock.lost, "damaged records are skipped; reads of their sectors fail until they are written again");
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
