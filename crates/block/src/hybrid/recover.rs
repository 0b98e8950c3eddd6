//! Reads the log after a start: which records count.
//!
//! From the tail on, a record counts if it is whole (header and all data by their checksums), lies where it says, is of this flash, has the next
//! sequence number and an epoch that is not before that of the record before it; for the first the superblock says which that was. Where the next one does not lie behind the last, it may lie at
//! the start of the log, as a record that would have run over the end does.
//!
//! The first that does not count ends the log: it was being written when power was lost, and nobody was told that it was durable. Unless
//! somebody was: when the superblock, or a record behind it, says that it had been durable (the certain mark), then it was damaged later, and what it held is lost. That is
//! refused, never passed over.
//!
//! Between the two lies a record that a flush had promised, of which nobody knows whether it was answered (the promised mark). What it held is perhaps lost: that is told, a filler is
//! written in its place, and the log goes on behind it ([`Gap`]). Of two records that lie behind each other the second says what the first held.
//! Only marks of the last opening count here: what an earlier one left over behind the end of the log is promised by nobody.
//!
//! Cost: the log's contents are read once; behind its end at most the length of one record for each step of looking further.

use std::collections::BTreeSet;

use umbrella_policy::flash_cache::{LogSector, Logged};
use umbrella_units::{Lba, SECTOR_BYTES, SectorRange};

use super::error::{Fault, HybridError};
use super::format::{
    BLOCK, BLOCK_BYTES, Entry, Epoch, Header, LOG_START, MOST_DATA, Marks, Sequence, Superblock, record_sectors,
};
use super::losses::Losses;
use super::pair::Half;
use crate::error::BlockError;

/// What is read at once: first 64 KiB, then more and more, up to 4 MiB.
const LEAST_WINDOW: u64 = (64 << 10) / SECTOR_BYTES;
const MOST_WINDOW: u64 = (4 << 20) / SECTOR_BYTES;
/// Flash loses a whole erase block, or one in each of its chips, at once: 64 MiB are more than that.
const NEAR: u64 = (64 << 20) / SECTOR_BYTES;

/// So many damaged records in a row are passed over at most.
const MOST_MISSING: u64 = NEAR / BLOCK;

/// How the log ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct End {
    /// Where the last record ends.
    pub(super) at: LogSector,
    /// The number of the next one.
    pub(super) next_sequence: Sequence,
    /// Whether a record was being written there.
    pub(super) torn: bool,
}

/// A record that does not count.
pub(super) struct Unfit {
    pub(super) fault: Fault,
    /// The header, when that is whole and of the expected record.
    pub(super) header: Option<Header>,
}

/// How far a record is looked for behind one that does not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reach {
    /// So far as the flash may lose by one fault, and more than the longest record, which is where the next one begins.
    Near,
    /// To the end of the log.
    Log,
}

/// Records that are damaged, and that somebody may have been told were durable. The log goes on behind them.
pub(super) struct Gap {
    /// Where the first of them should be.
    pub(super) at: LogSector,
    /// Its number.
    pub(super) sequence: Sequence,
    /// What takes their places: one header for each, whose data is lost, or that part of it which is damaged.
    pub(super) fillers: Vec<Header>,
    /// What they held.
    pub(super) losses: Losses,
}

/// Reads records.
pub(super) struct Scanner<'a> {
    flash: &'a Half,
    superblock: &'a Superblock,
    /// The records that count lie between this and one length of the log later.
    base: LogSector,
    buffer: Vec<u8>,
    /// Where in the log the buffer begins, and how many sectors of it are filled.
    window: (LogSector, u64),
    /// How many sectors are read at once, more each time.
    ahead: u64,
    /// Where in the log blocks could not be read; nothing if that is to be an error.
    unreadable: Option<BTreeSet<LogSector>>,
}

/// Goes through the records that count, the oldest first. Of each gap `told` hears; the log goes on behind it as if the fillers were written.
pub(super) fn scan(
    flash: &Half,
    superblock: &Superblock,
    mut each: impl FnMut(&Header),
    mut told: impl FnMut(&Gap),
) -> Result<End, HybridError> {
    let mut scanner = Scanner::new(flash, superblock);
    let mut at = superblock.tail;
    let mut sequence = superblock.tail_sequence;
    let mut epoch = superblock.tail_epoch;
    loop {
        let unfit = match scanner.next(at, sequence, epoch)? {
            Ok(header) => {
                (at, sequence, epoch) = (header.end(), sequence.next(), header.epoch);
                each(&header);
                continue;
            }
            Err(unfit) => unfit,
        };
        if scanner.was_durable(at, sequence, epoch, &unfit) {
            return Err(scanner.corrupt(at, sequence, epoch, &unfit));
        }
        if let Some(gap) = scanner.gap(at, sequence, epoch, &unfit)? {
            told(&gap);
            for filler in &gap.fillers {
                (at, sequence, epoch) = (filler.end(), sequence.next(), filler.epoch);
                each(filler);
            }
            continue;
        }
        let torn = scanner.anything_of(at, sequence)?;
        return Ok(End { at, next_sequence: sequence, torn });
    }
}

impl<'a> Scanner<'a> {
    fn new(flash: &'a Half, superblock: &'a Superblock) -> Scanner<'a> {
        let (base, window) = (superblock.tail, (LogSector(0), 0));
        Scanner { flash, superblock, base, buffer: Vec::new(), window, ahead: LEAST_WINDOW, unreadable: None }
    }

    /// What cannot be read is zeroes, which no record is, and noted.
    pub(super) fn past_read_errors(flash: &'a Half, superblock: &'a Superblock) -> Scanner<'a> {
        Scanner { unreadable: Some(BTreeSet::new()), ..Scanner::new(flash, superblock) }
    }

    /// The record that comes next: there, or at the start of the log.
    pub(super) fn next(
        &mut self,
        at: LogSector,
        sequence: Sequence,
        epoch: Epoch,
    ) -> Result<Result<Header, Unfit>, BlockError> {
        let unfit = match self.record(at, sequence, epoch)? {
            Ok(header) => return Ok(Ok(header)),
            Err(unfit) => unfit,
        };
        let lap = self.next_lap(at);
        if lap == at {
            return Ok(Err(unfit));
        }
        Ok(self.record_from(lap, sequence, epoch)?.map_err(|other| {
            // The older one was cut off by a crash, and the other one written in its stead.
            let epoch = |unfit: &Unfit| unfit.header.as_ref().map(|header| header.epoch);
            if epoch(&other) > epoch(&unfit) { other } else { unfit }
        }))
    }

    /// Whether the longest record would not fit there, and would have been written at the start of the log.
    pub(super) fn may_be_elsewhere(&self, at: LogSector) -> bool {
        self.superblock.log_size - at.0 % self.superblock.log_size < record_sectors(MOST_DATA)
    }

    /// Whether a record that should be there and does not count had been durable, so that it was damaged later.
    pub(super) fn was_durable(&mut self, at: LogSector, sequence: Sequence, epoch: Epoch, unfit: &Unfit) -> bool {
        let told = self.superblock.durable >= sequence || self.durable_later(at, sequence, epoch);
        told || self.is_unreadable(at, unfit)
    }

    /// Whether the record could not be read: what was cut off by a power cut could.
    fn is_unreadable(&self, at: LogSector, unfit: &Unfit) -> bool {
        let Some(unreadable) = &self.unreadable else { return false };
        match &unfit.header {
            Some(header) => unreadable.range(header.at..header.end()).next().is_some(),
            None => self.places(at).any(|place| unreadable.contains(&place)),
        }
    }

    /// The error for a record that should be there and is damaged.
    pub(super) fn corrupt(&mut self, at: LogSector, sequence: Sequence, epoch: Epoch, unfit: &Unfit) -> HybridError {
        let range = if let Some(header) = &unfit.header {
            self.damaged(header).ok().and_then(|damaged| damaged.first().map(|lost| lost.range))
        } else {
            let next = self.later_record(at, sequence, epoch, Reach::Near);
            next.filter(|next| next.sequence == sequence.next()).and_then(|next| next.before?.first().copied())
        };
        let fault = if self.is_unreadable(at, unfit) { Fault::Unreadable } else { unfit.fault };
        HybridError::Corrupt { flash: self.flash.name.clone(), sequence, at, fault, range }
    }

    /// What a record that does not count leaves, if a flush had promised it and the log can go on behind it.
    pub(super) fn gap(
        &mut self,
        at: LogSector,
        sequence: Sequence,
        epoch: Epoch,
        unfit: &Unfit,
    ) -> Result<Option<Gap>, HybridError> {
        let last = self.superblock.epoch;
        let own = unfit.header.as_ref().filter(|header| header.epoch == last);
        let promised = own.is_some_and(|header| header.marks.promised >= sequence);
        let next = self.later_record(at, sequence, epoch, Reach::Near).filter(|next| next.epoch == last);
        if !promised && !next.as_ref().is_some_and(|next| self.is_promised(next, sequence)) {
            return Ok(None);
        }
        if let Some(header) = own {
            let damaged = self.damaged(header)?.iter().map(|lost| lost.range).collect();
            let data = self.window_from(LogSector(header.at.0 + BLOCK), header.data())?;
            let fillers = vec![header.without_damaged(data)];
            let losses = Losses { at_risk: damaged, unknown_records: 0 };
            return Ok(Some(Gap { at: header.at, sequence, fillers, losses }));
        }
        let Some(next) = next else { return Ok(None) };
        let missing = next.sequence.0 - sequence.0;
        let Some((begin, blocks)) = self.place_of_fillers(at, next.at, missing) else { return Ok(None) };
        let mut fillers = Vec::new();
        let (mut at, mut left) = (begin, blocks);
        for number in 0..missing {
            // The others need a block each.
            let own = (left - (missing - number - 1)).min(1 + MOST_DATA / BLOCK);
            let entries = if own > 1 { vec![Entry::lost((own - 1) * BLOCK)] } else { Vec::new() };
            let (sequence, marks) =
                (Sequence(sequence.0 + number), Marks { certain: Sequence(0), promised: Sequence(0) });
            fillers.push(Header { flash: self.superblock.flash, epoch, sequence, at, marks, entries, before: None });
            (at, left) = (LogSector(at.0 + own * BLOCK), left - own);
        }
        let unknown_records = missing - u64::from(next.before.is_some());
        let losses = Losses { at_risk: next.before.unwrap_or_default(), unknown_records };
        Ok(Some(Gap { at: begin, sequence, fillers, losses }))
    }

    /// Whether a record, or one behind it, says that a flush would make the record of that number durable.
    fn is_promised(&mut self, from: &Header, sequence: Sequence) -> bool {
        let mut header = from.clone();
        while header.marks.promised < sequence {
            let at = LogSector(header.at.0 + BLOCK);
            match self.later_record(at, header.sequence, header.epoch, Reach::Near) {
                Some(next) => header = next,
                None => return false,
            }
        }
        true
    }

    /// Where so many records were that lay before the one at `next`, and how many blocks that is. Nothing where they cannot have been.
    fn place_of_fillers(&self, at: LogSector, next: LogSector, records: u64) -> Option<(LogSector, u64)> {
        let lap = self.next_lap(at);
        let begin = if lap != at && next > lap { lap } else { at };
        let blocks = (next.0 - begin.0) / BLOCK;
        let fits = records <= blocks && records <= MOST_MISSING;
        // At the end of the log some may have stayed unused.
        let most = records * (1 + MOST_DATA / BLOCK);
        (fits && (blocks <= most || next == lap)).then_some((begin, blocks.min(most)))
    }

    /// The writes of a record whose data is not what was written.
    pub(super) fn damaged(&mut self, header: &Header) -> Result<Vec<Logged>, BlockError> {
        let data = self.window_from(LogSector(header.at.0 + BLOCK), header.data())?;
        Ok(header.damaged(data).collect())
    }

    /// There, and the start of the log where that is elsewhere.
    fn places(&self, at: LogSector) -> impl Iterator<Item = LogSector> + use<> {
        let lap = self.next_lap(at);
        [Some(at), (lap != at).then_some(lap)].into_iter().flatten()
    }

    /// The start of the log, the next time.
    fn next_lap(&self, at: LogSector) -> LogSector {
        LogSector(at.0.next_multiple_of(self.superblock.log_size))
    }

    /// Sectors from there to the end of the log, and to where the oldest record is.
    fn room(&self, at: LogSector) -> u64 {
        let to_end = self.superblock.log_size - at.0 % self.superblock.log_size;
        to_end.min((self.base.0 + self.superblock.log_size).saturating_sub(at.0))
    }

    /// The bytes there; they do not run over the end of the log.
    fn window_from(&mut self, at: LogSector, sectors: u64) -> Result<&[u8], BlockError> {
        let (start, filled) = self.window;
        if at < start || at.0 + sectors > start.0 + filled {
            let to_end = self.superblock.log_size - at.0 % self.superblock.log_size;
            let filled = self.ahead.max(sectors.next_multiple_of(BLOCK)).min(to_end);
            self.ahead = (2 * self.ahead).min(MOST_WINDOW);
            self.buffer.resize((filled * SECTOR_BYTES) as usize, 0);
            let place = Lba(LOG_START.0 + at.0 % self.superblock.log_size);
            match (self.flash.device.read(place, &mut self.buffer), &mut self.unreadable) {
                (Ok(()), _) => {}
                // Others than those that are asked for may be unreadable, where nothing was ever written.
                (Err(_), None) => {
                    let needed = (sectors * SECTOR_BYTES) as usize;
                    self.window = (at, 0);
                    self.buffer.truncate(needed);
                    self.flash.device.read(place, &mut self.buffer)?;
                    self.window = (at, sectors);
                    self.ahead = LEAST_WINDOW;
                    return Ok(&self.buffer);
                }
                (Err(_), Some(unreadable)) => read_what_can_be(self.flash, place, at, &mut self.buffer, unreadable),
            }
            self.window = (at, filled);
        }
        let from = ((at.0 - self.window.0.0) * SECTOR_BYTES) as usize;
        Ok(self.buffer.get(from..from + (sectors * SECTOR_BYTES) as usize).unwrap_or_default())
    }

    /// The header there, if it is one of this flash and where it should be.
    fn header(&mut self, at: LogSector) -> Result<Option<Header>, BlockError> {
        if self.room(at) < BLOCK {
            return Ok(None);
        }
        let header = Header::decode(self.window_from(at, BLOCK)?).ok();
        Ok(header.filter(|header| header.flash == self.superblock.flash && header.at == at))
    }

    /// The record there, if it is the one that comes next.
    fn record(&mut self, at: LogSector, sequence: Sequence, epoch: Epoch) -> Result<Result<Header, Unfit>, BlockError> {
        let Some(header) = self.header(at)? else {
            return Ok(Err(Unfit { fault: Fault::Header, header: None }));
        };
        let capacity = self.superblock.capacity;
        let fault = if header.sequence != sequence {
            Fault::Another
        } else if header.epoch < epoch || header.epoch > self.superblock.epoch {
            Fault::Leftover
        } else if header.sectors() > self.room(at) || header.logged().any(|logged| logged.range.end() > capacity) {
            Fault::Impossible
        } else if self.damaged(&header)?.is_empty() {
            return Ok(Ok(header));
        } else {
            return Ok(Err(Unfit { fault: Fault::Data, header: Some(header) }));
        };
        Ok(Err(Unfit { fault, header: None }))
    }

    /// The same at the start of the log. If it is the first of all, an empty log went on there, and has its whole length from there on.
    fn record_from(
        &mut self,
        lap: LogSector,
        sequence: Sequence,
        epoch: Epoch,
    ) -> Result<Result<Header, Unfit>, BlockError> {
        let base = self.base;
        if sequence == self.superblock.tail_sequence {
            self.base = lap;
        }
        let record = self.record(lap, sequence, epoch)?;
        if matches!(&record, Err(Unfit { header: None, .. })) {
            self.base = base;
        }
        Ok(record)
    }

    /// Whether a later record says that the one of that number, which should be at `at`, had been durable.
    fn durable_later(&mut self, mut at: LogSector, sequence: Sequence, epoch: Epoch) -> bool {
        let mut known = sequence;
        while let Some(header) = self.later_record(at, known, epoch, Reach::Near) {
            if header.marks.certain >= sequence {
                return true;
            }
            known = header.sequence;
            at = LogSector(header.at.0 + BLOCK);
        }
        false
    }

    /// The next record behind the one that should be at `at`: there within reach, or at the start of the log.
    pub(super) fn later_record(
        &mut self,
        at: LogSector,
        sequence: Sequence,
        epoch: Epoch,
        reach: Reach,
    ) -> Option<Header> {
        for begin in self.places(at) {
            let room = match reach {
                Reach::Near => NEAR.min(self.room(begin)),
                Reach::Log => self.room(begin),
            };
            let blocks = room / BLOCK;
            for block in 0..blocks {
                let here = LogSector(begin.0 + block * BLOCK);
                // What cannot be read proves nothing.
                let Ok(found) = self.header(here) else { continue };
                if let Some(header) = found.filter(|header| header.sequence > sequence && header.epoch >= epoch) {
                    return Some(header);
                }
            }
        }
        None
    }

    /// Whether a record of that number was begun there.
    pub(super) fn anything_of(&mut self, at: LogSector, sequence: Sequence) -> Result<bool, BlockError> {
        for begin in self.places(at) {
            if self.header(begin)?.is_some_and(|header| header.sequence >= sequence) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Reads block by block; what cannot be read is zeroes, and noted.
fn read_what_can_be(flash: &Half, place: Lba, at: LogSector, buffer: &mut [u8], unreadable: &mut BTreeSet<LogSector>) {
    for (number, block) in buffer.chunks_mut(BLOCK_BYTES).enumerate() {
        let sector = number as u64 * BLOCK;
        if flash.device.read(Lba(place.0 + sector), block).is_err() {
            block.fill(0);
            unreadable.insert(LogSector(at.0 + sector));
        }
    }
}

/// Which sectors of the disk have their newest data in the log, joined where they are adjacent.
pub(super) fn joined(ranges: impl IntoIterator<Item = SectorRange>) -> Vec<SectorRange> {
    let mut joined: Vec<SectorRange> = Vec::new();
    for range in ranges {
        match joined.last_mut() {
            Some(last) if last.end() >= range.start => {
                *last = SectorRange::between(last.start, last.end().max(range.end()));
            }
            _ => joined.push(range),
        }
    }
    joined
}

const _: () = assert!(BLOCK_BYTES as u64 == BLOCK * SECTOR_BYTES);
