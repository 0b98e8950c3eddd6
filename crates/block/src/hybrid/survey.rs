//! What a log holds, however damaged it is.
//!
//! It goes through the records as [`super::recover`] does, and goes on behind one that was durable and is damaged:
//! - Where its header is whole, what it held is known: the writes whose data is wrong are lost, unless later ones replaced them.
//! - Where it is not, the record behind it may say what it held; else nobody knows. The next record is looked for. Does it come from the last opening, it counts, and so do all behind
//!   it; else it may be left over from before a crash, behind something that was written in its place: what it holds is lost
//!   as well, since nobody knows whether it is the newest.
//!
//! Sectors of flash that cannot be read are as damaged ones.

use umbrella_policy::flash_cache::{LogMap, LogSector, Piece, Source};
use umbrella_units::{Lba, SectorRange};

use super::error::HybridError;
use super::format::{Epoch, Header, Superblock};
use super::losses::Losses;
use super::pair::Half;
use super::recover::{Reach, Scanner, joined};

/// What a log holds.
pub(super) struct Survey {
    /// What is newest where, lost or not.
    pub(super) map: LogMap,
    /// Parts of the log whose contents are not to be used, in order.
    lost: Vec<(LogSector, LogSector)>,
    unknown_records: u64,
    /// The same of records that a flush had promised, and perhaps nobody was told were durable.
    perhaps: Vec<(LogSector, LogSector)>,
    perhaps_unknown: u64,
    /// Records that count.
    pub(super) records: u64,
    /// Where the last one ends, and when it was written.
    pub(super) end: LogSector,
    pub(super) epoch: Epoch,
    /// Whether a record was being written there.
    pub(super) torn: bool,
    /// The first damage.
    pub(super) damage: Option<HybridError>,
}

impl Survey {
    /// Goes through the log of a flash.
    pub(super) fn of(flash: &Half, superblock: &Superblock) -> Result<Survey, HybridError> {
        let mut scanner = Scanner::past_read_errors(flash, superblock);
        let mut survey = Survey {
            map: LogMap::default(),
            lost: Vec::new(),
            unknown_records: 0,
            perhaps: Vec::new(),
            perhaps_unknown: 0,
            records: 0,
            end: superblock.tail,
            epoch: superblock.tail_epoch,
            torn: false,
            damage: None,
        };
        let (mut sequence, mut certain) = (superblock.tail_sequence, true);
        loop {
            let (at, epoch) = (survey.end, survey.epoch);
            let unfit = match scanner.next(at, sequence, epoch)? {
                Ok(header) => {
                    certain |= header.epoch == superblock.epoch;
                    survey.add(&header, certain);
                    sequence = sequence.next();
                    continue;
                }
                Err(unfit) => unfit,
            };
            if !scanner.was_durable(at, sequence, epoch, &unfit) {
                if let Some(gap) = scanner.gap(at, sequence, epoch, &unfit)? {
                    for filler in &gap.fillers {
                        survey.add(filler, certain);
                        sequence = sequence.next();
                    }
                    let place = survey.insert_lost(gap.at, &gap.losses.at_risk);
                    survey.perhaps.push(place);
                    survey.perhaps_unknown += gap.losses.unknown_records;
                    continue;
                }
                survey.torn = scanner.anything_of(at, sequence)?;
                return Ok(survey);
            }
            if survey.damage.is_none() {
                survey.damage = Some(scanner.corrupt(at, sequence, epoch, &unfit));
            }
            if let Some(header) = unfit.header {
                certain &= !scanner.may_be_elsewhere(header.at);
                certain |= header.epoch == superblock.epoch;
                survey.add(&header, certain);
                if certain {
                    let damaged = scanner.damaged(&header)?;
                    survey.lost.extend(damaged.into_iter().map(|logged| (logged.source.at(), logged.end())));
                }
                sequence = sequence.next();
                continue;
            }
            certain = false;
            let Some(next) = scanner.later_record(at, sequence, epoch, Reach::Log) else {
                let gone = superblock.durable.0.saturating_add(1).saturating_sub(sequence.0).max(1);
                survey.unknown_records += gone;
                return Ok(survey);
            };
            survey.unknown_records += next.sequence.0 - sequence.0;
            if let Some(before) = next.before.as_ref().filter(|_| next.epoch == superblock.epoch) {
                survey.unknown_records -= 1;
                let place = survey.insert_lost(at, before);
                survey.lost.push(place);
            }
            (survey.end, survey.epoch, sequence) = (next.at, next.epoch, next.sequence);
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

    fn add(&mut self, header: &Header, certain: bool) {
        for logged in header.logged() {
            self.map.insert(logged.range, logged.source);
        }
        if !certain {
            self.lost.push((header.at, header.end()));
        }
        self.records += u64::from(!header.is_mark());
        (self.end, self.epoch) = (header.end(), header.epoch);
    }

    /// Whether the log has nothing, and had nothing.
    pub(super) fn is_empty(&self) -> bool {
        self.map.is_empty() && self.unknown_records == 0
    }

    /// Whether what the log has of these sectors is lost, perhaps or certainly.
    pub(super) fn is_lost(&self, piece: &Piece) -> bool {
        is_within(&self.lost, piece) || is_within(&self.perhaps, piece)
    }

    /// What is lost altogether.
    pub(super) fn losses(&self) -> Losses {
        let lost = self.map.pieces_from(Lba(0)).filter(|piece| is_within(&self.lost, piece));
        Losses { at_risk: joined(lost.map(|piece| piece.range)), unknown_records: self.unknown_records }
    }

    /// What is perhaps lost: if the last flush was answered.
    pub(super) fn perhaps_lost(&self) -> Losses {
        let lost = self.map.pieces_from(Lba(0)).filter(|piece| is_within(&self.perhaps, piece));
        Losses { at_risk: joined(lost.map(|piece| piece.range)), unknown_records: self.perhaps_unknown }
    }

    /// What only the log has, and is not lost.
    pub(super) fn whole(&self) -> impl Iterator<Item = Piece> + '_ {
        self.map.pieces_from(Lba(0)).filter(|piece| !self.is_lost(piece))
    }
}

/// Whether the log has a piece in one of these parts, which are in order.
fn is_within(parts: &[(LogSector, LogSector)], piece: &Piece) -> bool {
    let at = piece.source.at();
    let behind = parts.partition_point(|(begin, _)| *begin <= at);
    behind.checked_sub(1).and_then(|last| parts.get(last)).is_some_and(|(_, end)| at < *end)
}
