//! Identifies a pair when both copies of a label are damaged, by the label of the other half and the records of the
//! log. Only for rescuing data; nothing is written.
//!
//! 1. A damaged tag: the superblock holds everything that the tag did. Only whether this is the right disk is unknown.
//! 2. A damaged superblock: the whole log is searched for headers. If there is a tag, those of the flash that it names
//!    count, and the log begins at the position up to which the tag says that it was emptied. Without a tag, those of
//!    the flash with the newest record count, and the log begins where the numbers before the newest record stop being
//!    consecutive.
//!
//! None of this is proved. The list of lost sectors in the damaged superblock is gone.
//!
//! Cost: each block of the log is read once more. Memory: 60 bytes for each record of the log.

use std::collections::BTreeMap;

use umbrella_policy::flash_cache::LogSector;
use umbrella_units::{Lba, SECTOR_BYTES};
use uuid::Uuid;

use super::error::HybridError;
use super::format::{
    BLOCK, BLOCK_BYTES, Damage, DiskTag, Epoch, FlashSuperblock, Header, LOG_START, PairState, RecordNo, TagState,
    VERSION,
};
use super::half::PairHalf;
use super::losses::Losses;
use super::pair::{Labels, offered, read_labels, read_superblock, read_tag};
use super::salvage::DamagedPair;
use super::survey::Survey;
use crate::device::BlockDevice;

/// Blocks of the log that are read at once.
const PIECE: u64 = 256;

/// The readable remains of a pair, whatever is damaged. They can only be read.
pub struct PairRemains {
    pair: DamagedPair,
    damage: Vec<HybridError>,
}

impl PairRemains {
    /// Reads both labels and the log. Fails if the two are no pair, or if the disk was written to without its flash.
    pub fn open(disk: PairHalf, flash: PairHalf) -> Result<PairRemains, HybridError> {
        let (mut labels, mut damage) = labels_or_guess(&disk, &flash)?;
        let survey = match Survey::of_labels(&labels, &disk, &flash) {
            Err(error @ HybridError::HeadUnreadable { .. }) => {
                labels.superblock.head = None;
                damage.push(error);
                Survey::of_labels(&labels, &disk, &flash)
            }
            survey => survey,
        }?;
        Ok(PairRemains { pair: DamagedPair { disk, flash, survey }, damage })
    }

    /// Labels that are damaged, or that cannot be compared with the disk: without them nothing is proved.
    pub fn damaged_labels(&self) -> &[HybridError] {
        &self.damage
    }

    /// What is lost, and what is perhaps.
    pub fn losses(&self) -> Losses {
        self.pair.losses()
    }
}

impl BlockDevice for PairRemains {
    crate::forward!(pair: geometry, read, write, flush, discard, write_zeroes);
}

/// The labels of a pair; where one is damaged, what it was, and the error.
fn labels_or_guess(disk: &PairHalf, flash: &PairHalf) -> Result<(Labels, Vec<HybridError>), HybridError> {
    let (superblock, tag) = (read_superblock(flash), read_tag(disk));
    match (superblock, tag) {
        (Err(error @ (HybridError::NoSuperblock { .. } | HybridError::Contradiction { .. })), tag) => {
            let (tag, tag_error) = match tag {
                Ok(tag) => (Some(tag), None),
                Err(error @ HybridError::NoTag { .. }) => (None, Some(error)),
                Err(error) => return Err(error),
            };
            let found = superblock_by_records(disk, flash, tag.as_ref());
            // A flash without label nor records is another one.
            let is_none =
                matches!(error, HybridError::NoSuperblock { first: Damage::Magic, second: Damage::Magic, .. });
            let Some(superblock) = found.filter(|found| !is_none || found.tail_epoch > Epoch(0)) else {
                return read_labels(disk, flash).map(|labels| (labels, Vec::new()));
            };
            let tag = tag.unwrap_or(DiskTag::of(&superblock));
            Ok((Labels { superblock, tag }, std::iter::once(error).chain(tag_error).collect()))
        }
        (Ok(superblock), Err(error @ HybridError::NoTag { .. }))
            if superblock.state == PairState::Attached
                && superblock.capacity == offered(disk.device.geometry().capacity) =>
        {
            let tag = DiskTag::of(&superblock);
            Ok((Labels { superblock, tag }, vec![error]))
        }
        _ => read_labels(disk, flash).map(|labels| (labels, Vec::new())),
    }
}

/// A record of the log, as far as it says where that begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct FoundRecord {
    epoch: Epoch,
    at: LogSector,
}

/// The superblock of a log with these records; `None` if there are none of the flash.
fn superblock_by_records(disk: &PairHalf, flash: &PairHalf, tag: Option<&DiskTag>) -> Option<FlashSuperblock> {
    let log_size = (flash.device.geometry().capacity.0 - LOG_START.0) / BLOCK * BLOCK;
    let mut flashes: BTreeMap<Uuid, BTreeMap<RecordNo, FoundRecord>> = BTreeMap::new();
    for_each_header(flash, log_size, |header| {
        let (uuid, found) = (header.flash, FoundRecord { epoch: header.epoch, at: header.at });
        // Of two with one number the earlier one was left over from before a crash.
        let newest = flashes.entry(uuid).or_default().entry(header.sequence).or_insert(found);
        *newest = (*newest).max(found);
    });
    let newest =
        |records: &BTreeMap<RecordNo, FoundRecord>| records.iter().map(|(number, found)| (found.epoch, *number)).max();
    let (uuid, records) = match tag {
        Some(tag) => flashes.remove_entry(&tag.flash).unwrap_or((tag.flash, BTreeMap::new())),
        None => flashes.into_iter().max_by_key(|(_, records)| newest(records))?,
    };
    let (last_epoch, last) = newest(&records).unzip();
    let first = match (tag, last) {
        (Some(tag), _) => records.range(tag.tail_sequence..).next().map_or(tag.tail_sequence, |(number, _)| *number),
        (None, Some(last)) => begin_of(&records, last),
        (None, None) => return None,
    };
    // Where nothing is left the log is empty; the records before it tell that there was one.
    let before = FoundRecord { epoch: last_epoch.unwrap_or(Epoch(0)), at: LogSector(0) };
    let FoundRecord { epoch, at } = records.get(&first).copied().unwrap_or(before);
    let epochs = last_epoch.into_iter().chain(tag.map(|tag| tag.epoch));
    Some(FlashSuperblock {
        version: VERSION,
        flash: uuid,
        disk: tag.map_or(Uuid::nil(), |tag| tag.disk),
        generation: 0,
        epoch: epochs.max().unwrap_or(epoch),
        state: PairState::Attached,
        capacity: tag.map_or(offered(disk.device.geometry().capacity), |tag| tag.capacity),
        log_size,
        tail: at,
        tail_sequence: first,
        durable: RecordNo(first.0.saturating_sub(1)),
        written: 0,
        head: None,
        tail_epoch: epoch,
        tag: TagState::Unknown,
        lost: Vec::new(),
        unreported: 0,
    })
}

/// The first of the records that lead to this one, one number behind the other.
fn begin_of(records: &BTreeMap<RecordNo, FoundRecord>, last: RecordNo) -> RecordNo {
    let mut first = last;
    for (number, found) in records.range(..last).rev() {
        let is_before = |next: &FoundRecord| found.epoch <= next.epoch && found.at < next.at;
        if number.next() != first || !records.get(&first).is_some_and(is_before) {
            break;
        }
        first = *number;
    }
    first
}

/// Gives `each` the headers that lie where they say.
fn for_each_header(flash: &PairHalf, log_size: u64, mut each: impl FnMut(Header)) {
    let mut blocks = Vec::new();
    for from in (0..log_size).step_by((PIECE * BLOCK) as usize) {
        let sectors = (PIECE * BLOCK).min(log_size - from);
        blocks.resize((sectors * SECTOR_BYTES) as usize, 0);
        let is_read = flash.device.read(Lba(LOG_START.0 + from), &mut blocks).is_ok();
        for (at, block) in (from..).step_by(BLOCK as usize).zip(blocks.chunks_mut(BLOCK_BYTES)) {
            if !is_read && flash.device.read(Lba(LOG_START.0 + at), block).is_err() {
                continue;
            }
            if let Ok(header) = Header::decode(block)
                && header.at.0 % log_size == at
            {
                each(header);
            }
        }
    }
}
