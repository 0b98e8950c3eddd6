//! The contents of the log of a pair, however damaged it is.
//!
//! The survey follows the records as an opening does ([`super::recover`]), and continues behind a record that was
//! durable and is damaged:
//! - If the header is whole, it tells what the record held. Writes with wrong data are lost, unless later ones replaced
//!   them.
//! - If it is not, the record behind it may tell what the damaged one held; else that is unknown. The next record is
//!   searched for. If it comes from the last opening, it and all records behind it count.
//! - Otherwise the record found may be left over from before a crash, behind a record that was written in its place.
//!   Its contents are lost as well, since they may not be the newest.
//!
//! Sectors of flash that cannot be read count as damaged. Sectors in the superblock's list of earlier losses
//! ([`super::lost_sectors`]) are lost until a later record replaces them.

use umbrella_policy::flash_cache::{CachedExtent, LogMap, LogSector, Source};
use umbrella_units::{Lba, SectorRange};

use super::error::HybridError;
use super::format::{FlashSuperblock, Header};
use super::half::PairHalf;
use super::losses::Losses;
use super::pair::{Labels, read_labels};
use super::ranges::joined;
use super::recover::{Gap, LogEnd, LogStep, LostDurability, scan_log};
use super::scanner::Unreadable;
use super::sums::{LogChecksum, LogChecksums};

/// The place, instead of one in the log, of sectors that the superblock lists as lost.
const LISTED: LogSector = LogSector(u64::MAX);

/// The contents of the log of a pair.
pub(super) struct Survey {
    pub(super) superblock: FlashSuperblock,
    /// What is newest where, lost or not.
    pub(super) map: LogMap,
    pub(super) sums: LogChecksums,
    /// Parts of the log whose contents are not to be used, in order.
    lost: Vec<(LogSector, LogSector)>,
    unknown_records: u64,
    /// The same for records that were to be durable with a flush whose answer may be missing.
    perhaps: Vec<(LogSector, LogSector)>,
    perhaps_unknown: u64,
    /// The fillers for damaged records, if they fit there.
    pub(super) fillers: Option<Vec<Header>>,
    /// Records that count.
    pub(super) records: u64,
    pub(super) end: LogEnd,
    /// The first damage.
    pub(super) damage: Option<HybridError>,
    /// Whether the list of the superblock is part of the map.
    has_list: bool,
}

impl Survey {
    /// Reads both halves and all of the log. An error if they are no pair, or the disk was written to without its
    /// flash.
    pub(super) fn of(disk: &PairHalf, flash: &PairHalf) -> Result<Survey, HybridError> {
        Survey::of_labels(&read_labels(disk, flash)?, disk, flash)
    }

    /// The same of a pair whose labels are known.
    pub(super) fn of_labels(labels: &Labels, disk: &PairHalf, flash: &PairHalf) -> Result<Survey, HybridError> {
        let superblock = labels.superblock.clone();
        let mut survey = Survey::empty(labels);
        survey.end = scan_log(flash, &superblock, Unreadable::PassedOver, |step| {
            survey.step(&step, flash);
            Ok(())
        })?;
        survey.add_list();
        if !survey.is_empty() {
            labels.refuse_changed_disk(disk, flash)?;
        }
        labels.refuse_records_of(survey.end.epoch, disk, flash)?;
        Ok(survey)
    }

    fn empty(labels: &Labels) -> Survey {
        let superblock = labels.superblock.clone();
        let (at, next_sequence, epoch) = (superblock.tail, superblock.tail_sequence, superblock.tail_epoch);
        Survey {
            superblock,
            map: LogMap::default(),
            sums: LogChecksums::default(),
            lost: Vec::new(),
            unknown_records: 0,
            perhaps: Vec::new(),
            perhaps_unknown: 0,
            fillers: Some(Vec::new()),
            records: 0,
            end: LogEnd { at, next_sequence, epoch, torn: false },
            damage: None,
            has_list: false,
        }
    }

    fn step(&mut self, step: &LogStep<'_>, flash: &PairHalf) {
        match *step {
            LogStep::Record(header, sums) => {
                self.records += u64::from(!header.is_mark());
                self.add(header, sums);
            }
            LogStep::Doubtful(header) => {
                self.records += u64::from(!header.is_mark());
                self.add(header, &[]);
                self.lost.push((header.at, header.end()));
            }
            LogStep::Gap(gap) => self.add_gap(gap, flash),
        }
    }

    fn add(&mut self, header: &Header, sums: &[LogChecksum]) {
        if header.sequence > self.superblock.durable {
            self.add_list();
        }
        for logged in header.logged() {
            self.map.insert(logged.range, logged.source);
        }
        self.sums.push(header.at, sums);
    }

    fn add_gap(&mut self, gap: &Gap, flash: &PairHalf) {
        // One whose header is whole counts.
        self.records += u64::from(!gap.sums.is_empty());
        for filler in gap.fillers.iter().flatten() {
            self.add(filler, &gap.sums);
        }
        let place = self.insert_lost(gap.at, &gap.losses.at_risk);
        match gap.promise {
            LostDurability::Kept => {
                self.lost.push(place);
                self.unknown_records += gap.losses.unknown_records;
                self.damage.get_or_insert_with(|| gap.error(flash));
            }
            LostDurability::Open => {
                self.perhaps.push(place);
                self.perhaps_unknown += gap.losses.unknown_records;
            }
        }
        self.fillers = self.fillers.take().zip(gap.fillers.as_ref()).map(|(mut all, more)| {
            all.extend_from_slice(more);
            all
        });
    }

    /// What was lost before, once all records that are older than the list have been added.
    fn add_list(&mut self) {
        if self.has_list {
            return;
        }
        self.has_list = true;
        for range in &self.superblock.lost {
            self.map.insert(*range, Source::Zeroes(LISTED));
        }
    }

    /// What a lost record held is newest where it belongs. Its place in the log: within the header, where no data is.
    fn insert_lost(&mut self, at: LogSector, ranges: &[SectorRange]) -> (LogSector, LogSector) {
        let place = LogSector(at.0 + 1);
        for range in ranges {
            self.map.insert(*range, Source::Zeroes(place));
        }
        (place, LogSector(place.0 + 1))
    }

    /// Whether the log has nothing, and had nothing.
    pub(super) fn is_empty(&self) -> bool {
        self.map.is_empty() && self.unknown_records == 0
    }

    fn is_certainly_lost(&self, piece: &CachedExtent) -> bool {
        piece.source.at() == LISTED || is_within(&self.lost, piece)
    }

    /// Whether what the log has of these sectors is lost, perhaps or certainly.
    pub(super) fn is_lost(&self, piece: &CachedExtent) -> bool {
        self.is_certainly_lost(piece) || is_within(&self.perhaps, piece)
    }

    /// What is lost altogether.
    pub(super) fn losses(&self) -> Losses {
        let lost = self.map.pieces_from(Lba(0)).filter(|piece| self.is_certainly_lost(piece));
        Losses { at_risk: joined(lost.map(|piece| piece.range)), unknown_records: self.unknown_records }
    }

    /// What is perhaps lost: if the last flush was answered.
    pub(super) fn perhaps_lost(&self) -> Losses {
        let lost = self.map.pieces_from(Lba(0)).filter(|piece| is_within(&self.perhaps, piece));
        Losses { at_risk: joined(lost.map(|piece| piece.range)), unknown_records: self.perhaps_unknown }
    }

    /// What only the log has, and is not lost.
    pub(super) fn whole(&self) -> impl Iterator<Item = CachedExtent> + '_ {
        self.map.pieces_from(Lba(0)).filter(|piece| !self.is_lost(piece))
    }
}

/// Whether the log has a piece in one of these parts, which are in order.
fn is_within(parts: &[(LogSector, LogSector)], piece: &CachedExtent) -> bool {
    let at = piece.source.at();
    let behind = parts.partition_point(|(begin, _)| *begin <= at);
    behind.checked_sub(1).and_then(|last| parts.get(last)).is_some_and(|(_, end)| at < *end)
}
