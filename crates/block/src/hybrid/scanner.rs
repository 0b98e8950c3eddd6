//! Reads blocks, headers and records of the log after a start.

use std::collections::BTreeSet;

use umbrella_policy::flash_cache::LogSector;
use umbrella_units::{Lba, SECTOR_BYTES, SectorRange};

use super::error::Fault;
use super::fillers::read_copies;
use super::format::{
    BLOCK, BLOCK_BYTES, Epoch, ExpectedRecord, FlashSuperblock, Header, LOG_START, MOST_DATA, RecordNo, record_sectors,
};
use super::half::PairHalf;
use super::sums::{LogChecksum, sums_of};
use crate::error::BlockError;

/// What is read at once: first 64 KiB, then more and more, up to 4 MiB.
const LEAST_WINDOW: u64 = (64 << 10) / SECTOR_BYTES;
const MOST_WINDOW: u64 = (4 << 20) / SECTOR_BYTES;
/// Flash loses a whole erase block, or one in each of its chips, at once: 64 MiB are more than that.
pub(super) const SEARCH_DISTANCE: u64 = (64 << 20) / SECTOR_BYTES;

/// The record that comes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Expected {
    /// Where it should be.
    pub(super) at: LogSector,
    pub(super) sequence: RecordNo,
    /// The epoch of the previous record, at least.
    pub(super) epoch: Epoch,
}

impl Expected {
    /// The first one of a log.
    pub(super) fn first(superblock: &FlashSuperblock) -> Expected {
        Expected { at: superblock.tail, sequence: superblock.tail_sequence, epoch: superblock.tail_epoch }
    }

    /// The one behind a record.
    pub(super) fn behind(header: &Header) -> Expected {
        Expected { at: header.end(), sequence: header.sequence.next(), epoch: header.epoch }
    }

    /// Whether a record may lie behind this one.
    pub(super) fn is_before(self, header: &Header) -> bool {
        header.sequence > self.sequence && header.epoch >= self.epoch
    }
}

/// A record that does not count.
pub(super) struct RejectedRecord {
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

/// What becomes of flash that cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unreadable {
    /// It is an error.
    Refused,
    /// It is damaged.
    PassedOver,
}

/// Reads records.
pub(super) struct Scanner<'a> {
    flash: &'a PairHalf,
    pub(super) superblock: &'a FlashSuperblock,
    /// The records that count lie between this and one length of the log later.
    base: LogSector,
    buffer: Vec<u8>,
    /// Where in the log the buffer begins, and how many sectors of it are filled.
    window: (LogSector, u64),
    /// How many sectors are read at once, more each time.
    ahead: u64,
    /// Blocks of the log that could not be read: they read as zeroes, which no record is. `None` if such a read is an
    /// error.
    unreadable: Option<BTreeSet<LogSector>>,
    /// Fillers that may be torn in place.
    copies: Vec<Header>,
}

impl<'a> Scanner<'a> {
    pub(super) fn new(flash: &'a PairHalf, superblock: &'a FlashSuperblock, unreadable: Unreadable) -> Scanner<'a> {
        let (base, window) = (superblock.tail, (LogSector(0), 0));
        let unreadable = (unreadable == Unreadable::PassedOver).then(BTreeSet::new);
        let copies = read_copies(flash, superblock);
        Scanner { flash, superblock, base, buffer: Vec::new(), window, ahead: LEAST_WINDOW, unreadable, copies }
    }

    /// The record that comes next: there, or at the start of the log.
    pub(super) fn next(&mut self, next: Expected) -> Result<Result<Header, RejectedRecord>, BlockError> {
        let unfit = match self.record(next)? {
            Ok(header) => return Ok(Ok(header)),
            Err(unfit) => unfit,
        };
        let lap = self.next_lap(next.at);
        if lap == next.at {
            return Ok(Err(unfit));
        }
        Ok(self.record_from(Expected { at: lap, ..next })?.map_err(|other| {
            // A crash cut off the older one, and the other replaced it.
            let epoch = |unfit: &RejectedRecord| unfit.header.as_ref().map(|header| header.epoch);
            if epoch(&other) > epoch(&unfit) { other } else { unfit }
        }))
    }

    /// The checksums of a record's data.
    pub(super) fn sums(&mut self, header: &Header) -> Result<Vec<LogChecksum>, BlockError> {
        let data = self.window_from(LogSector(header.at.0 + BLOCK), header.sectors() - BLOCK)?;
        Ok(sums_of(header, data))
    }

    /// Whether the longest record would not fit there, and would have been written at the start of the log.
    pub(super) fn may_have_wrapped(&self, at: LogSector) -> bool {
        self.superblock.log_size - at.0 % self.superblock.log_size < record_sectors(MOST_DATA)
    }

    /// Whether the record could not be read: what was cut off by a power cut could.
    pub(super) fn is_unreadable(&self, at: LogSector, unfit: &RejectedRecord) -> bool {
        let Some(unreadable) = &self.unreadable else { return false };
        match &unfit.header {
            Some(header) => unreadable.range(header.at..header.end()).next().is_some(),
            None => self.places(at).any(|place| unreadable.contains(&place)),
        }
    }

    /// The sectors of a record whose data is not what was written.
    pub(super) fn damaged(&mut self, header: &Header) -> Result<Vec<SectorRange>, BlockError> {
        let data = self.window_from(LogSector(header.at.0 + BLOCK), header.data())?;
        Ok(header.damaged(data).collect())
    }

    /// A record without the writes whose data is not what was written.
    pub(super) fn without_damaged(&mut self, header: &Header) -> Result<Header, BlockError> {
        let data = self.window_from(LogSector(header.at.0 + BLOCK), header.data())?;
        Ok(header.without_damaged(data))
    }

    /// There, and the start of the log where that is elsewhere.
    fn places(&self, at: LogSector) -> impl Iterator<Item = LogSector> + use<> {
        let lap = self.next_lap(at);
        [Some(at), (lap != at).then_some(lap)].into_iter().flatten()
    }

    /// The start of the log, the next time.
    pub(super) fn next_lap(&self, at: LogSector) -> LogSector {
        LogSector(at.0.next_multiple_of(self.superblock.log_size))
    }

    /// Behind it no record can be that counts.
    pub(super) fn end(&self) -> LogSector {
        LogSector(self.base.0.saturating_add(self.superblock.log_size))
    }

    /// Sectors from there to the end of the log, and to where the oldest record is.
    fn room(&self, at: LogSector) -> u64 {
        let to_end = self.superblock.log_size - at.0 % self.superblock.log_size;
        to_end.min(self.end().0.saturating_sub(at.0))
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
                // The unreadable blocks may lie behind the wanted ones, where nothing was ever written.
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
    pub(super) fn header(&mut self, at: LogSector) -> Result<Option<Header>, BlockError> {
        if self.room(at) < BLOCK {
            return Ok(None);
        }
        let in_place = Header::decode(self.window_from(at, BLOCK)?).ok();
        let is_there = |header: &&Header| header.flash == self.superblock.flash && header.at == at;
        Ok(in_place.as_ref().filter(is_there).or_else(|| self.copies.iter().find(is_there)).cloned())
    }

    /// The record there, if it is the expected one.
    fn record(&mut self, next: Expected) -> Result<Result<Header, RejectedRecord>, BlockError> {
        let Some(header) = self.header(next.at)? else {
            return Ok(Err(RejectedRecord { fault: Fault::Header, header: None }));
        };
        let capacity = self.superblock.capacity;
        let fault = if header.sequence != next.sequence {
            Fault::Another
        } else if header.epoch < next.epoch || header.epoch > self.superblock.epoch {
            Fault::Leftover
        } else if header.sectors() > self.room(next.at) || header.logged().any(|logged| logged.range.end() > capacity) {
            Fault::Impossible
        } else if self.damaged(&header)?.is_empty() {
            return Ok(Ok(header));
        } else {
            return Ok(Err(RejectedRecord { fault: Fault::Data, header: Some(header) }));
        };
        Ok(Err(RejectedRecord { fault, header: None }))
    }

    /// The same at the start of the log. If it is the first of all, an empty log went on there, and has its whole
    /// length from there on.
    fn record_from(&mut self, next: Expected) -> Result<Result<Header, RejectedRecord>, BlockError> {
        let base = self.base;
        if next.sequence == self.superblock.tail_sequence {
            self.base = next.at;
        }
        let record = self.record(next)?;
        if matches!(&record, Err(RejectedRecord { header: None, .. })) {
            self.base = base;
        }
        Ok(record)
    }

    /// The next record behind the one that is expected, within reach.
    pub(super) fn later_record(&mut self, expected: Expected, reach: Reach) -> Option<Header> {
        let end = match reach {
            Reach::Near => self.end().0.min(expected.at.0 + SEARCH_DISTANCE),
            Reach::Log => self.end().0,
        };
        (expected.at.0..end).step_by(BLOCK as usize).find_map(|at| {
            // What cannot be read proves nothing.
            let found = self.header(LogSector(at)).ok()?;
            found.filter(|header| expected.is_before(header))
        })
    }

    /// The place of the last record, if only its damaged header is left and a flush of the last opening had promised
    /// it.
    pub(super) fn promised_remains(&mut self, expected: Expected) -> Result<Option<LogSector>, BlockError> {
        let FlashSuperblock { flash, epoch, .. } = *self.superblock;
        for at in self.places(expected.at) {
            let wanted = ExpectedRecord { flash, epoch, sequence: expected.sequence, at };
            if self.room(at) >= BLOCK && wanted.was_promised_in(self.window_from(at, BLOCK)?) {
                return Ok(Some(at));
            }
        }
        Ok(None)
    }

    /// Whether a record of that number was begun there.
    pub(super) fn is_begun(&mut self, expected: Expected) -> Result<bool, BlockError> {
        for begin in self.places(expected.at) {
            if self.header(begin)?.is_some_and(|header| header.sequence >= expected.sequence) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Reads block by block; what cannot be read is zeroes, and noted.
fn read_what_can_be(
    flash: &PairHalf,
    place: Lba,
    at: LogSector,
    buffer: &mut [u8],
    unreadable: &mut BTreeSet<LogSector>,
) {
    for (number, block) in buffer.chunks_mut(BLOCK_BYTES).enumerate() {
        let sector = number as u64 * BLOCK;
        if flash.device.read(Lba(place.0 + sector), block).is_err() {
            block.fill(0);
            unreadable.insert(LogSector(at.0 + sector));
        }
    }
}

const _: () = assert!(BLOCK_BYTES as u64 == BLOCK * SECTOR_BYTES);
