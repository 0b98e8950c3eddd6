//! Reads the log after a start, and decides which records count.
//!
//! From the tail on, a record counts if all of this is true:
//! - It is whole: header and all data match their checksums.
//! - It lies at the position that it names, and belongs to this flash.
//! - It has the next sequence number.
//! - Its epoch is not before that of the record before it; for the first record the superblock names that epoch.
//!
//! A record that would have run over the end of the log lies at its start instead of behind the last one.
//!
//! The first record that does not count ends the log. Usually it was being written when power was lost, and no client
//! was told that it was durable. But if the superblock, or a record behind it, says that it had been durable (the
//! certain mark), it was damaged later, and its contents are lost. An opening refuses that ([`recover`]);
//! [`super::survey`] continues behind it.
//!
//! Between these two cases is a record that a flush had promised (the promised mark), when it is unknown whether that
//! flush was answered. Its contents are perhaps lost: that is reported, a filler is written in its place, and the log
//! continues behind it.
//!
//! Of two consecutive records the second says what the first held. For the last record only the remains of its own
//! header are left to go by. Only marks of the last opening count here: no flush had promised what an earlier one left
//! behind the end of the log. If the opening is cut off before the loss is reported, the next one finds the fillers and
//! reports it ([`super::fillers`]).
//!
//! Cost: the contents of the log are read once; behind damage the headers are read once more ([`super::later_marks`]).

use std::collections::VecDeque;

use umbrella_policy::flash_cache::{Log, LogMap, LogSector, Source};
use umbrella_units::{ByteSize, Lba, SECTOR_BYTES, SectorRange};

use super::error::{Fault, HybridError};
use super::format::{BLOCK, Epoch, FlashSuperblock, Header, MOST_DATA, Marks, RecordEntry, RecordNo};
use super::half::PairHalf;
use super::later_marks::LaterMarks;
use super::losses::Losses;
use super::ranges::{joined, without};
use super::record::Record;
use super::scanner::{Expected, Reach, RejectedRecord, SEARCH_DISTANCE, Scanner, Unreadable};
use super::sums::{LogChecksum, LogChecksums};

/// The most damaged records in a row that are skipped.
const MOST_MISSING: u64 = SEARCH_DISTANCE / BLOCK;

/// How the log ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LogEnd {
    /// Where the last record ends.
    pub(super) at: LogSector,
    /// The number of the next one.
    pub(super) next_sequence: RecordNo,
    /// When the last one was written.
    pub(super) epoch: Epoch,
    /// Whether a record was being written there.
    pub(super) torn: bool,
}

/// What damaged records had been.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LostDurability {
    /// Durable, and reported so to a caller.
    Kept,
    /// A flush was under way, and it is unknown whether it was answered.
    Open,
}

/// Damaged records that were durable, or perhaps reported as durable. The log continues behind them.
pub(super) struct Gap {
    /// Where the first of them should be.
    pub(super) at: LogSector,
    /// Its number.
    pub(super) sequence: RecordNo,
    pub(super) promise: LostDurability,
    fault: Fault,
    /// What takes their places: one header for each, whose data is lost, or that part of it which is damaged. Nothing
    /// if they do not fit there.
    pub(super) fillers: Option<Vec<Header>>,
    /// The checksums of the data of the first filler, if it has any that is not lost.
    pub(super) sums: Vec<LogChecksum>,
    /// What they held.
    pub(super) losses: Losses,
    /// Where the log continues.
    behind: Option<Expected>,
}

impl Gap {
    /// The error for what cannot be skipped.
    pub(super) fn error(&self, flash: &PairHalf) -> HybridError {
        let range = self.losses.at_risk.first().copied();
        HybridError::Corrupt {
            flash: flash.name.clone(),
            sequence: self.sequence,
            at: self.at,
            fault: self.fault,
            range,
        }
    }
}

/// What comes next in a log.
pub(super) enum LogStep<'a> {
    /// A record that counts, with the checksums of its data.
    Record(&'a Header, &'a [LogChecksum]),
    /// One that may be left over from before a crash, behind something that was written in its place. It is not known
    /// whether it is the newest.
    Doubtful(&'a Header),
    Gap(&'a Gap),
}

/// Scans the log of a flash, the oldest record first.
pub(super) fn scan_log(
    flash: &PairHalf,
    superblock: &FlashSuperblock,
    unreadable: Unreadable,
    mut each: impl FnMut(LogStep<'_>) -> Result<(), HybridError>,
) -> Result<LogEnd, HybridError> {
    let scanner = Scanner::new(flash, superblock, unreadable);
    let mut walk = Walk { scanner, later: LaterMarks::default(), certain: true };
    let mut next = Expected::first(superblock);
    loop {
        let unfit = match walk.scanner.next(next)? {
            Ok(header) => {
                walk.certain |= header.epoch == superblock.epoch;
                next = Expected::behind(&header);
                if !walk.certain {
                    each(LogStep::Doubtful(&header))?;
                } else if let Some(gap) = walk.unreported_gap(&header)? {
                    each(LogStep::Gap(&gap))?;
                    next = gap.behind.unwrap_or(next);
                } else {
                    each(LogStep::Record(&header, &walk.scanner.sums(&header)?))?;
                }
                continue;
            }
            Err(unfit) => unfit,
        };
        let Expected { at, sequence, epoch } = next;
        let Some(gap) = walk.gap(next, &unfit)? else {
            let torn = walk.scanner.is_begun(next)?;
            return Ok(LogEnd { at, next_sequence: sequence, epoch, torn });
        };
        each(LogStep::Gap(&gap))?;
        match gap.behind {
            Some(behind) => next = behind,
            None => return Ok(LogEnd { at, next_sequence: sequence, epoch, torn: false }),
        }
    }
}

struct Walk<'a> {
    scanner: Scanner<'a>,
    later: LaterMarks,
    /// Whether the record that comes next is no leftover.
    certain: bool,
}

impl Walk<'_> {
    /// The gap that the missing record leaves; `None` if no flush had promised that record.
    fn gap(&mut self, expected: Expected, unfit: &RejectedRecord) -> Result<Option<Gap>, HybridError> {
        let unreadable = self.scanner.is_unreadable(expected.at, unfit);
        let fault = if unreadable { Fault::Unreadable } else { unfit.fault };
        let was_durable = self.scanner.superblock.durable >= expected.sequence
            || unreadable
            || self.later.is_certain(&mut self.scanner, expected);
        let gap = if was_durable { Some(self.durable_gap(expected, unfit)?) } else { self.open_gap(expected, unfit)? };
        Ok(gap.map(|gap| Gap { fault, ..gap }))
    }

    fn durable_gap(&mut self, expected: Expected, unfit: &RejectedRecord) -> Result<Gap, HybridError> {
        let superblock = self.scanner.superblock;
        if let Some(header) = &unfit.header {
            self.certain &= !self.scanner.may_have_wrapped(header.at);
            self.certain |= header.epoch == superblock.epoch;
            return self.behind_header(header, LostDurability::Kept);
        }
        self.certain = false;
        if let Some(next) = self.scanner.later_record(expected, Reach::Log) {
            return Ok(self.before_record(expected, &next, LostDurability::Kept));
        }
        let unknown_records = superblock.durable.0.saturating_add(1).saturating_sub(expected.sequence.0).max(1);
        let losses = Losses { at_risk: Vec::new(), unknown_records };
        Ok(Gap { fillers: None, losses, behind: None, ..gap_at(expected, LostDurability::Kept) })
    }

    /// If a flush had promised the record, and the log can continue behind it.
    fn open_gap(&mut self, expected: Expected, unfit: &RejectedRecord) -> Result<Option<Gap>, HybridError> {
        let last = self.scanner.superblock.epoch;
        let own = unfit.header.as_ref().filter(|header| header.epoch == last);
        self.certain |= own.is_some();
        if let Some(header) = own.filter(|header| header.marks.promised >= expected.sequence) {
            return self.behind_header(header, LostDurability::Open).map(Some);
        }
        // At the end of most logs there is none, and nothing is read once more to find that out.
        let next = if self.later.has_any() { self.scanner.later_record(expected, Reach::Near) } else { None };
        let next = next.filter(|next| next.epoch == last);
        let Some(next) = next.filter(|_| self.later.is_promised(&mut self.scanner, expected)) else {
            return Ok(self
                .scanner
                .promised_remains(expected)?
                .map(|at| self.last_record(Expected { at, ..expected })));
        };
        if let Some(header) = own {
            return self.behind_header(header, LostDurability::Open).map(Some);
        }
        Ok(Some(self.before_record(expected, &next, LostDurability::Open)))
    }

    /// The last record of the log, if only a damaged header is left of it.
    fn last_record(&self, expected: Expected) -> Gap {
        let filler = self.blank(expected, expected.at, 1);
        Gap {
            losses: Losses { at_risk: Vec::new(), unknown_records: 1 },
            behind: Some(Expected::behind(&filler)),
            fillers: Some(vec![filler]),
            ..gap_at(expected, LostDurability::Open)
        }
    }

    /// The header that takes the place of a record of `blocks` blocks whose own header is lost.
    fn blank(&self, expected: Expected, at: LogSector, blocks: u64) -> Header {
        Header {
            flash: self.scanner.superblock.flash,
            epoch: expected.epoch,
            sequence: expected.sequence,
            at,
            marks: Marks { certain: RecordNo(0), promised: RecordNo(0) },
            entries: if blocks > 1 { vec![RecordEntry::lost((blocks - 1) * BLOCK)] } else { Vec::new() },
            before: None,
        }
    }

    /// The gap that a filler has closed, if the opening that wrote it was cut off before it reported the loss.
    fn unreported_gap(&mut self, filler: &Header) -> Result<Option<Gap>, HybridError> {
        if filler.sequence <= self.scanner.superblock.last_reported() || !filler.is_filler() {
            return Ok(None);
        }
        let expected = Expected { at: filler.at, sequence: filler.sequence, epoch: filler.epoch };
        let next = if filler.is_blank() { self.scanner.later_record(expected, Reach::Near) } else { None };
        if let Some(next) = next {
            let gap = self.before_record(expected, &next, LostDurability::Open);
            if gap.fillers.is_some() {
                return Ok(Some(gap));
            }
        }
        let at_risk = if filler.is_blank() { Vec::new() } else { filler.lost().collect() };
        Ok(Some(Gap {
            fillers: Some(vec![filler.clone()]),
            sums: self.scanner.sums(filler)?,
            losses: Losses { at_risk, unknown_records: u64::from(filler.is_blank()) },
            behind: Some(Expected::behind(filler)),
            ..gap_at(expected, LostDurability::Open)
        }))
    }

    /// The gap where a record is damaged but its header is whole. Only the damaged part of its data is lost, or all of
    /// it if the record may be left over from earlier.
    fn behind_header(&mut self, header: &Header, promise: LostDurability) -> Result<Gap, HybridError> {
        let at_risk = if self.certain { self.scanner.damaged(header)? } else { header.addresses() };
        let expected = Expected { at: header.at, sequence: header.sequence, epoch: header.epoch };
        Ok(Gap {
            fillers: Some(vec![self.scanner.without_damaged(header)?]),
            sums: self.scanner.sums(header)?,
            losses: Losses { at_risk, unknown_records: 0 },
            behind: Some(Expected::behind(header)),
            ..gap_at(expected, promise)
        })
    }

    /// Records whose headers are lost, before one that may say what the last of them held.
    fn before_record(&self, expected: Expected, next: &Header, promise: LostDurability) -> Gap {
        let missing = next.sequence.0 - expected.sequence.0;
        let FlashSuperblock { epoch, capacity, .. } = *self.scanner.superblock;
        // What a flush had promised is of the last opening that wrote records.
        let is_last = promise == LostDurability::Open || next.epoch == epoch;
        let is_possible = |before: &&Vec<SectorRange>| before.iter().all(|range| range.end() <= capacity);
        let before = next.before.as_ref().filter(|_| is_last).filter(is_possible);
        let unknown_records = missing - u64::from(before.is_some());
        let fillers = self.filler_places(expected.at, next.at, missing).map(|places| {
            let filler = |(number, (at, blocks)): (u64, &(LogSector, u64))| {
                self.blank(Expected { sequence: RecordNo(expected.sequence.0 + number), ..expected }, *at, *blocks)
            };
            (0..).zip(&places).map(filler).collect()
        });
        let losses = Losses { at_risk: before.cloned().unwrap_or_default(), unknown_records };
        let behind = Expected { at: next.at, sequence: next.sequence, epoch: next.epoch };
        Gap { fillers, losses, behind: Some(behind), ..gap_at(expected, promise) }
    }

    /// The places, with their number of blocks, where `records` records before the one at `next` can have been. `None`
    /// if they do not fit.
    ///
    /// None of them runs over the end of the log. If that end lies between, as many records as there are blocks behind
    /// it are put there, and the rest of the old lap stays unused. Any other records come first, before the end, with a
    /// block each.
    fn filler_places(&self, at: LogSector, next: LogSector, records: u64) -> Option<Vec<(LogSector, u64)>> {
        let most = 1 + MOST_DATA / BLOCK;
        let lap = self.scanner.next_lap(at);
        let crosses = at < lap && lap < next;
        let begin = if crosses { lap } else { at };
        let blocks = (next.0 - begin.0) / BLOCK;
        let before_end = if crosses { records.saturating_sub(blocks) } else { 0 };
        let behind = records - before_end;
        let fits = records <= MOST_MISSING
            && before_end <= (lap.0 - at.0) / BLOCK
            && (behind..=behind * most).contains(&blocks);
        // At the end of the log some blocks may have stayed unused.
        let fits = fits || next == lap && (behind..=MOST_MISSING).contains(&blocks);
        if !fits {
            return None;
        }
        let mut places: Vec<_> = (0..before_end).map(|number| (LogSector(at.0 + number * BLOCK), 1)).collect();
        let (mut at, mut left) = (begin, blocks);
        for number in 0..behind {
            // The others need a block each.
            let own = (left - (behind - number - 1)).min(most);
            places.push((at, own));
            (at, left) = (LogSector(at.0 + own * BLOCK), left - own);
        }
        Some(places)
    }
}

/// A gap that nothing more is known about yet.
fn gap_at(expected: Expected, promise: LostDurability) -> Gap {
    Gap {
        at: expected.at,
        sequence: expected.sequence,
        promise,
        fault: Fault::Header,
        fillers: None,
        sums: Vec::new(),
        losses: Losses::default(),
        behind: None,
    }
}

/// What an opening finds.
pub(super) struct RecoveredLog {
    pub(super) log: Log,
    pub(super) sums: LogChecksums,
    pub(super) records: VecDeque<Record>,
    pub(super) end: LogEnd,
    /// What the last record holds.
    pub(super) addresses: Option<Vec<SectorRange>>,
    /// Bytes of records that the superblock has not counted.
    pub(super) uncounted: u64,
    /// What is to be written in the places of damaged records.
    pub(super) fillers: Vec<Header>,
    /// What they held and nothing replaces.
    perhaps: LogMap,
    perhaps_unknown: u64,
    /// What damage has taken and nothing replaces.
    pub(super) lost: Vec<SectorRange>,
}

impl RecoveredLog {
    /// What is perhaps lost, if the last flush was answered.
    pub(super) fn perhaps_lost(&self) -> Losses {
        let ranges = self.perhaps.pieces_from(Lba(0)).map(|piece| piece.range);
        Losses { at_risk: joined(ranges), unknown_records: self.perhaps_unknown }
    }

    fn add(&mut self, header: &Header, sums: &[LogChecksum], superblock: &FlashSuperblock) {
        self.log.commit(header.end(), header.logged());
        if !self.perhaps.is_empty() {
            header.logged().for_each(|logged| self.perhaps.release(logged.range, header.at));
        }
        self.sums.push(header.at, sums);
        let (end, sequence, epoch) = (header.end(), header.sequence, header.epoch);
        self.records.push_back(Record { begin: header.at, end, sequence, epoch });
        self.addresses = Some(header.addresses());
        if header.sequence > superblock.durable {
            self.uncounted += header.sectors() * SECTOR_BYTES;
            if !self.lost.is_empty() {
                self.lost =
                    header.logged().fold(std::mem::take(&mut self.lost), |lost, logged| without(&lost, logged.range));
            }
        }
    }
}

/// Reads the log of a flash for an opening. Fails if flushed data is damaged. Returns the data that is perhaps lost.
pub(super) fn recover(flash: &PairHalf, superblock: &FlashSuperblock) -> Result<RecoveredLog, HybridError> {
    let first = Expected::first(superblock);
    let mut found = RecoveredLog {
        log: Log::new(ByteSize(superblock.log_size * SECTOR_BYTES), superblock.tail),
        sums: LogChecksums::default(),
        records: VecDeque::new(),
        end: LogEnd { at: first.at, next_sequence: first.sequence, epoch: first.epoch, torn: false },
        addresses: None,
        uncounted: 0,
        fillers: Vec::new(),
        perhaps: LogMap::default(),
        perhaps_unknown: 0,
        lost: superblock.lost.clone(),
    };
    let walked = scan_log(flash, superblock, Unreadable::Refused, |step| match step {
        LogStep::Record(header, sums) => {
            found.add(header, sums, superblock);
            Ok(())
        }
        // There is none before damage that ends it.
        LogStep::Doubtful(_) => Ok(()),
        LogStep::Gap(gap) => match &gap.fillers {
            Some(fillers) if gap.promise == LostDurability::Open => {
                for filler in fillers {
                    found.add(filler, &gap.sums, superblock);
                }
                found.fillers.extend_from_slice(fillers);
                for range in &gap.losses.at_risk {
                    found.perhaps.insert(*range, Source::Zeroes(gap.at));
                }
                found.perhaps_unknown += gap.losses.unknown_records;
                warn_about_gap(flash, gap);
                Ok(())
            }
            _ => Err(gap.error(flash)),
        },
    });
    let end = walked.map_err(|error| match error {
        HybridError::Device(source) => HybridError::LogUnreadable { flash: flash.name.clone(), source },
        error => error,
    })?;
    Ok(RecoveredLog { end, ..found })
}

/// Logs which sectors damaged records held.
fn warn_about_gap(flash: &PairHalf, gap: &Gap) {
    tracing::warn!(
        flash = flash.name,
        records = gap.fillers.as_ref().map_or(0, Vec::len),
        held = ?gap.losses.at_risk,
        unknown_records = gap.losses.unknown_records,
        "record {} of the log is damaged, although a flush had promised it; its data is lost if that flush was answered", gap.sequence
    );
}
