//! The checksums of the log's contents, beside its map. Every read of the log is compared with them, so that only data
//! that was really written is passed on.
//!
//! A record's own checksums cover whole writes, which may be 1 MiB long. These cover single blocks of the log, so that
//! a short read stays short. They are computed when a record is written, and at an opening for the records that are
//! whole. They are never stored. They take 4 bytes for each 4 KiB in the log.

use std::collections::VecDeque;

use smallvec::SmallVec;
use umbrella_policy::flash_cache::{CachedExtent, LogSector, Source};
use umbrella_units::{Lba, SECTOR_BYTES};

use super::format::{BLOCK, BLOCK_BYTES, Content, Header, LOG_START};
use super::half::PairHalf;
use crate::error::BlockError;

/// A checksum; zero where nothing is known, as of a header. Nothing that is read has that one.
pub(super) type LogChecksum = u32;

fn sum_of(block: &[u8]) -> LogChecksum {
    crate::checksum::crc32c(block).max(1)
}

/// The checksums of a part of the log, in order. The first is of the block in which the part begins.
pub(super) type Part = SmallVec<[LogChecksum; 8]>;

/// The checksums of the whole log.
#[derive(Debug, Default)]
pub(super) struct LogChecksums {
    /// Where the block of the first one is.
    begin: LogSector,
    sums: VecDeque<LogChecksum>,
}

/// The checksums of a record's data, which follows its header.
pub(super) fn sums_of(header: &Header, data: &[u8]) -> Vec<LogChecksum> {
    let of_a_block = |content| if let Content::Data(checksum) = content { Some(checksum.max(1)) } else { None };
    let with_data = || header.entries.iter().filter(|entry| entry.data() > 0);
    // The checksums of writes of a block each are known.
    if with_data().all(|entry| entry.data() == BLOCK && of_a_block(entry.content).is_some()) {
        return with_data().filter_map(|entry| of_a_block(entry.content)).collect();
    }
    data.chunks(BLOCK_BYTES).map(sum_of).collect()
}

impl LogChecksums {
    /// A record was written at `at`, behind all others. `data` are the sums of its data.
    pub(super) fn push(&mut self, at: LogSector, data: &[LogChecksum]) {
        if self.sums.is_empty() {
            self.begin = at;
        }
        let behind = (at.0.saturating_sub(self.begin.0) / BLOCK) as usize;
        // What stays unused at the end of the log, and the header.
        self.sums.resize(behind + 1, 0);
        self.sums.extend(data);
    }

    /// Forgets what is before `tail`.
    pub(super) fn release(&mut self, tail: LogSector) {
        let blocks = (tail.0.saturating_sub(self.begin.0) / BLOCK) as usize;
        self.sums.drain(..blocks.min(self.sums.len()));
        self.begin.0 += blocks as u64 * BLOCK;
    }

    /// The checksums of a part of the log.
    pub(super) fn part(&self, at: LogSector, sectors: u64) -> Part {
        let (first, end) = (at.0 / BLOCK, (at.0 + sectors).div_ceil(BLOCK));
        let index =
            |block: u64| (block.checked_sub(self.begin.0 / BLOCK)).and_then(|index| usize::try_from(index).ok());
        (first..end).map(|block| index(block).and_then(|index| self.sums.get(index)).copied().unwrap_or(0)).collect()
    }

    /// The checksums of some pieces, one part for each.
    pub(super) fn parts(&self, pieces: &[CachedExtent]) -> SmallVec<[Part; 4]> {
        let part = |piece: &CachedExtent| match piece.source {
            Source::Log(at) => self.part(at, piece.range.sectors),
            Source::Zeroes(_) => Part::new(),
        };
        pieces.iter().map(part).collect()
    }
}

/// Why a part of the log cannot be used.
#[derive(Debug)]
pub(super) enum Unread {
    /// The flash failed.
    Failed(BlockError),
    /// It gave something else than what was written.
    Damaged,
}

/// Reads a part of the log, and compares it with its checksums. It is read in whole blocks.
pub(super) fn read_log(
    flash: &PairHalf,
    from: LogSector,
    log_size: u64,
    sums: &Part,
    buffer: &mut [u8],
) -> Result<(), Unread> {
    let place = Lba(LOG_START.0 + from.0 % log_size);
    let skipped = place.0 % BLOCK;
    let sectors = (skipped + buffer.len() as u64 / SECTOR_BYTES).next_multiple_of(BLOCK);
    // What cannot be compared is not passed on.
    let is_whole = |blocks: &[u8]| {
        blocks.len() == sums.len() * BLOCK_BYTES
            && blocks.chunks(BLOCK_BYTES).zip(sums).all(|(block, &sum)| sum == sum_of(block))
    };
    let reported = |is_whole: bool| if is_whole { Ok(()) } else { Err(Unread::Damaged) };
    if sectors * SECTOR_BYTES == buffer.len() as u64 {
        flash.device.read(place, buffer).map_err(Unread::Failed)?;
        return reported(is_whole(buffer));
    }
    let mut blocks = vec![0; (sectors * SECTOR_BYTES) as usize];
    flash.device.read(Lba(place.0 - skipped), &mut blocks).map_err(Unread::Failed)?;
    let skipped = (skipped * SECTOR_BYTES) as usize;
    buffer.copy_from_slice(blocks.get(skipped..skipped + buffer.len()).ok_or(Unread::Damaged)?);
    reported(is_whole(&blocks))
}
