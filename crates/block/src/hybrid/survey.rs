//! What a log holds, however damaged it is.
//!
//! It goes through the records as [`super::recover`] does, and goes on behind one that was durable and is damaged:
//! - Where its header is whole, what it held is known: the writes whose data is wrong are lost, unless later ones replaced them.
//! - Where it is not, nobody knows what it held. The next record is looked for. Does it come from the last opening, it counts, and so do all behind
//!   it; else it may be left over from before a crash, behind something that was written in its place: what it holds is lost
//!   as well, since nobody knows whether it is the newest.
//!
//! Sectors of flash that cannot be read are as damaged ones.

use serde::{Deserialize, Serialize};
use umbrella_policy::flash_cache::{LogMap, LogSector, Piece};
use umbrella_units::{Lba, SectorRange};

use super::error::HybridError;
use super::format::{Epoch, Header, Superblock};
use super::pair::Half;
use super::recover::{Reach, Scanner, joined};

/// What is lost of the newest data.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Losses {
    /// Sectors whose newest data is lost.
    pub at_risk: Vec<SectorRange>,
    /// Records that are lost without a trace of what they held: any sector may be older than it should be.
    pub unknown_records: u64,
}

/// What a log holds.
pub(super) struct Survey {
    /// What is newest where, lost or not.
    pub(super) map: LogMap,
    /// Parts of the log whose contents are not to be used, in order.
    lost: Vec<(LogSector, LogSector)>,
    unknown_records: u64,
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
                survey.torn = scanner.anything_of(at, sequence)?;
                return Ok(survey);
            }
            if survey.damage.is_none() {
                survey.damage = Some(scanner.corrupt(at, sequence, &unfit));
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
            (survey.end, survey.epoch, sequence) = (next.at, next.epoch, next.sequence);
        }
    }

    fn add(&mut self, header: &Header, certain: bool) {
        for logged in header.logged() {
            self.map.insert(logged.range, logged.source);
        }
        if !certain {
            self.lost.push((header.at, header.end()));
        }
        self.records += 1;
        (self.end, self.epoch) = (header.end(), header.epoch);
    }

    /// Whether the log has nothing, and had nothing.
    pub(super) fn is_empty(&self) -> bool {
        self.map.is_empty() && self.unknown_records == 0
    }

    /// Whether what the log has of these sectors is lost.
    pub(super) fn is_lost(&self, piece: &Piece) -> bool {
        let at = piece.source.at();
        let behind = self.lost.partition_point(|(begin, _)| *begin <= at);
        behind.checked_sub(1).and_then(|last| self.lost.get(last)).is_some_and(|(_, end)| at < *end)
    }

    /// What is lost altogether.
    pub(super) fn losses(&self) -> Losses {
        let lost = self.map.pieces_from(Lba(0)).filter(|piece| self.is_lost(piece));
        Losses { at_risk: joined(lost.map(|piece| piece.range)), unknown_records: self.unknown_records }
    }

    /// What only the log has, and is not lost.
    pub(super) fn whole(&self) -> impl Iterator<Item = Piece> + '_ {
        self.map.pieces_from(Lba(0)).filter(|piece| !self.is_lost(piece))
    }
}
