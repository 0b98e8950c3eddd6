//! The sectors of an open pair whose newest data is lost to damage. They cannot be read until they are written again.
//!
//! A write of lost sectors goes to the log, even while the disk spins. So the next opening also takes them off the
//! list: because of the record, or because of a superblock that says that the record is durable. The list has room for
//! [`MOST_LOST`] ranges; a write that would need more fails.
//!
//! A drain that finds a damaged block in the log adds its sectors to the list, and continues. The superblock that moves
//! the tail past the block lists them.

use std::collections::VecDeque;

use umbrella_units::SectorRange;

use super::format::{Header, MOST_LOST, RecordNo};
use super::ranges::{joined, without};

/// The sectors of an open pair that damage has taken.
#[derive(Debug, Default)]
pub(super) struct LostSectors {
    /// In order.
    ranges: Vec<SectorRange>,
    /// What no superblock says yet, each with the record that must be durable first. In the order of those.
    changes: VecDeque<(RecordNo, LossChange)>,
}

#[derive(Debug, Clone, Copy)]
enum LossChange {
    Written(SectorRange),
    Lost(SectorRange),
}

impl LossChange {
    fn apply(self, ranges: &[SectorRange]) -> Vec<SectorRange> {
        match self {
            LossChange::Written(range) => without(ranges, range),
            LossChange::Lost(range) => {
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

    /// Whether the list would become too long without these sectors, with `pending` writes on their way to the log.
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
                let change = LossChange::Written(logged.range);
                self.ranges = change.apply(&self.ranges);
                self.changes.push_back((header.sequence, change));
            }
        }
    }

    /// Adds lost sectors whose newest data is in records up to `durable`. Adds none if the list would become too long:
    /// `last` is the list in the last superblock, and `pending` writes are on their way to the log.
    pub(super) fn add(
        &mut self,
        lost: &[SectorRange],
        durable: RecordNo,
        last: &[SectorRange],
        pending: usize,
    ) -> bool {
        let behind = self.changes.partition_point(|(sequence, _)| *sequence <= durable);
        let most = self.listed(last, durable).len() + self.changes.len() - behind + pending + lost.len();
        if most > MOST_LOST {
            return false;
        }
        for (place, range) in (behind..).zip(lost) {
            let change = LossChange::Lost(*range);
            self.ranges = change.apply(&self.ranges);
            self.changes.insert(place, (durable, change));
        }
        true
    }

    /// What a superblock lists that says that records up to `durable` are, after one that listed `last`.
    pub(super) fn listed(&self, last: &[SectorRange], durable: RecordNo) -> Vec<SectorRange> {
        let durable = self.changes.iter().take_while(|(sequence, _)| *sequence <= durable);
        durable.fold(last.to_vec(), |list, (_, change)| change.apply(&list))
    }

    /// Such a superblock is on flash.
    pub(super) fn superblock_written(&mut self, durable: RecordNo) {
        let listed = self.changes.partition_point(|(sequence, _)| *sequence <= durable);
        self.changes.drain(..listed);
    }
}
