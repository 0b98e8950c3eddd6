//! The format on flash and disk, version 2. All numbers are little-endian; every structure ends in a CRC32C of the
//! bytes before it.
//!
//! ```text
//! flash   0        superblock, copy 0          4 KiB, the first 512 bytes used; more while it lists lost sectors
//!         4 KiB    superblock, copy 1          the later generation counts, should they differ
//!         8 KiB    double-write area           a label, and up to 15 headers that replace damaged ones in the log
//!         1 MiB    the log, to the end         records, each at a multiple of 4 KiB
//!
//! disk    0        data, as without the flash
//!         -8 KiB   tag, copy 0                 512 bytes used
//!         -4 KiB   tag, copy 1
//!
//! record  0        header, 4 KiB: who, where, which, two marks, up to 100 entries (address, length, checksum),
//!                  and the addresses of the record before it
//!         4 KiB    data of the entries, one behind the other; filled up to a multiple of 4 KiB
//! ```
//!
//! Version 1 has neither marks nor the addresses of the record before, up to 167 entries, and less in its labels. It
//! can be read. Only version 2 is written, and an opening writes the labels.
//!
//! Superblock and tag fit into one sector each, so that a power cut leaves the old or the new one. Both have two
//! copies, written and flushed one after the other: either is enough if the other is damaged. Only a list of lost
//! sectors is longer: a power cut may leave one copy of it torn, but the other one is whole.
//!
//! Positions in the log and sequence numbers only grow. The epoch grows by one at each opening, so that records from
//! before a crash cannot be mistaken for the continuation of those written after it. The superblock says from which
//! epoch on records count at the tail.

mod copies;
mod record;
mod remains;

use std::fmt;

use serde::Serialize;
use thiserror::Error;
use umbrella_policy::flash_cache::LogSector;
use umbrella_units::{Lba, SECTOR_BYTES, SectorRange};
use uuid::Uuid;

pub(super) use self::copies::{MOST_COPIES, decode_copies, encode_copies};
pub(super) use self::record::{Content, Header, MOST_ENTRIES, Marks, RecordEntry, record_sectors};
pub(super) use self::remains::ExpectedRecord;

/// The version that this code writes.
pub(super) const VERSION: u32 = 2;
/// The oldest one that it reads.
const FIRST_VERSION: u32 = 1;
/// The unit of everything on flash, in sectors.
pub(super) const BLOCK: u64 = 8;
/// The same in bytes.
pub(super) const BLOCK_BYTES: usize = 4096;
/// Where the log begins on flash.
pub(super) const LOG_START: Lba = Lba((1 << 20) / SECTOR_BYTES);
/// The smallest log, in sectors: 4 MiB.
pub(super) const LEAST_LOG: u64 = (4 << 20) / SECTOR_BYTES;
/// Sectors at the end of the disk that hold its tag.
pub(super) const TAG_SECTORS: u64 = 2 * BLOCK;
/// The most data in a record, in sectors: 1 MiB.
pub(super) const MOST_DATA: u64 = (1 << 20) / SECTOR_BYTES;
const SUPERBLOCK_MAGIC: [u8; 8] = *b"UMBFLASH";
const TAG_MAGIC: [u8; 8] = *b"UMB_DISK";
const SUPERBLOCK_BYTES: usize = 512;
/// The most ranges of lost sectors that a superblock has room for, behind its first sector.
pub(super) const MOST_LOST: usize = (BLOCK_BYTES - SUPERBLOCK_BYTES) / record::ADDRESS_BYTES;

/// A structure that is not what it should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[expect(missing_docs, reason = "each message says it")]
pub enum Damage {
    #[error("it has no label: never written, or overwritten")]
    Magic,
    #[error("the checksum is wrong")]
    Checksum,
    #[error("version {0}; this program knows the versions {FIRST_VERSION} to {VERSION}")]
    Version(u32),
    #[error("a field is out of range")]
    Field,
    #[error("it cannot be read")]
    Unreadable,
}

impl Damage {
    /// Whether two copies had a label, and it is damaged: neither of another version, nor never written.
    pub fn is_of_label(first: Damage, second: Damage) -> bool {
        let is_version = |damage| matches!(damage, Damage::Version(_));
        !is_version(first) && !is_version(second) && (first, second) != (Damage::Magic, Damage::Magic)
    }
}

/// What a superblock says of the pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PairState {
    /// The disk is only whole together with the log.
    Attached,
    /// The log is empty, and the disk no longer needs it.
    Detached,
}

/// Whether the disk has the tag of the superblock's epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TagState {
    /// Version 1 did not note it.
    Unknown,
    /// It is written next. A disk with the tag before it is no older copy.
    Due,
    /// It has, and any disk with an earlier tag is an older copy.
    Written,
}

/// Counts how often a pair was opened, from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Epoch(pub(super) u64);

/// The number of a record, from 1: one more than that of the record before it. 0 is that of none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct RecordNo(pub(super) u64);

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for RecordNo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Epoch {
    /// The epoch of the next opening.
    pub(super) fn next(self) -> Epoch {
        Epoch(self.0 + 1)
    }
}

impl RecordNo {
    /// The number of the next record.
    pub(super) fn next(self) -> RecordNo {
        RecordNo(self.0 + 1)
    }

    /// The number of the previous record.
    pub(super) fn before(self) -> RecordNo {
        RecordNo(self.0 - 1)
    }
}

/// Where the log is, and from where on it counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FlashSuperblock {
    /// The version that it was read from; what is written is [`VERSION`].
    pub(super) version: u32,
    /// This flash.
    pub(super) flash: Uuid,
    /// The disk that it belongs to.
    pub(super) disk: Uuid,
    /// Counts superblocks written.
    pub(super) generation: u64,
    /// Counts openings.
    pub(super) epoch: Epoch,
    /// Whether the two are one.
    pub(super) state: PairState,
    /// Sectors that the hybrid disk offers.
    pub(super) capacity: Lba,
    /// Sectors of the log.
    pub(super) log_size: u64,
    /// The first record that counts begins there.
    pub(super) tail: LogSector,
    /// Its sequence number, also if it was not written yet.
    pub(super) tail_sequence: RecordNo,
    /// Records up to this sequence number were durable when this was written; less than `tail_sequence` for none.
    pub(super) durable: RecordNo,
    /// Number of those last records whose fillers were not reported yet: an opening wrote them and has not finished.
    pub(super) unreported: u64,
    /// Bytes ever written to the flash.
    pub(super) written: u64,
    /// A checksum of the beginning of the disk; `None` while it may be written. Writing to the disk without its flash
    /// changes it; for instance, mounting a file system does.
    pub(super) head: Option<u32>,
    /// Records of an earlier opening do not count from the tail on: they lie behind records that a power cut lost.
    pub(super) tail_epoch: Epoch,
    /// Whether the disk has the tag of this epoch.
    pub(super) tag: TagState,
    /// Sectors that damage has taken, in order; what records behind `durable` hold of them is newer. At most
    /// [`MOST_LOST`] ranges.
    pub(super) lost: Vec<SectorRange>,
}

/// Says to which flash a disk belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DiskTag {
    /// This disk.
    pub(super) disk: Uuid,
    /// The flash that has its newest data.
    pub(super) flash: Uuid,
    /// Counts openings.
    pub(super) epoch: Epoch,
    /// Sectors that the hybrid disk offers.
    pub(super) capacity: Lba,
    /// What the log's tail had reached when this was written: all before it is on the disk. A flash whose tail is
    /// behind it is an older copy. Zero where an earlier program wrote it.
    pub(super) tail_sequence: RecordNo,
    /// The log has nothing, and nothing was written to it since: the disk is whole alone, and whatever was written to
    /// it alone is newer.
    pub(super) log_is_empty: bool,
}

struct Fields<'a> {
    version: u32,
    bytes: &'a [u8],
}

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], Damage> {
        let (first, rest) = self.bytes.split_first_chunk::<N>().ok_or(Damage::Field)?;
        self.bytes = rest;
        Ok(*first)
    }

    fn u32(&mut self) -> Result<u32, Damage> {
        self.take().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, Damage> {
        self.take().map(u64::from_le_bytes)
    }

    fn uuid(&mut self) -> Result<Uuid, Damage> {
        self.take().map(Uuid::from_bytes)
    }
}

/// Checks magic, checksum and version of a structure of `len` bytes; what is between them.
fn open(bytes: &[u8], len: usize, magic: [u8; 8]) -> Result<Fields<'_>, Damage> {
    let bytes = bytes.get(..len).ok_or(Damage::Field)?;
    let rest = bytes.strip_prefix(&magic).ok_or(Damage::Magic)?;
    let (_, checksum) = bytes.split_last_chunk::<4>().ok_or(Damage::Field)?;
    if crate::checksum::crc32c(&bytes[..len - 4]) != u32::from_le_bytes(*checksum) {
        return Err(Damage::Checksum);
    }
    let mut fields = Fields { version: 0, bytes: rest };
    fields.version = fields.u32()?;
    match fields.version {
        FIRST_VERSION..=VERSION => Ok(fields),
        other => Err(Damage::Version(other)),
    }
}

fn begin(magic: [u8; 8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(BLOCK_BYTES);
    bytes.extend_from_slice(&magic);
    bytes.extend_from_slice(&VERSION.to_le_bytes());
    bytes
}

fn seal(mut bytes: Vec<u8>, len: usize) -> Vec<u8> {
    bytes.resize(len - 4, 0);
    let checksum = crate::checksum::crc32c(&bytes);
    bytes.extend_from_slice(&checksum.to_le_bytes());
    bytes
}

impl FlashSuperblock {
    /// Reads one; it is checked as far as it can be by itself.
    pub(super) fn decode(bytes: &[u8]) -> Result<FlashSuperblock, Damage> {
        let mut fields = open(bytes, SUPERBLOCK_BYTES, SUPERBLOCK_MAGIC)?;
        let state = match fields.u32()? {
            1 => PairState::Attached,
            2 => PairState::Detached,
            _ => return Err(Damage::Field),
        };
        let mut superblock = FlashSuperblock {
            version: fields.version,
            state,
            flash: fields.uuid()?,
            disk: fields.uuid()?,
            generation: fields.u64()?,
            epoch: Epoch(fields.u64()?),
            capacity: Lba(fields.u64()?),
            log_size: fields.u64()?,
            tail: LogSector(fields.u64()?),
            tail_sequence: RecordNo(fields.u64()?),
            durable: RecordNo(fields.u64()?),
            written: fields.u64()?,
            // Zero where an earlier program wrote it.
            tail_epoch: Epoch(fields.u64()?),
            head: match (fields.u32()?, fields.u32()?) {
                (0, _) => None,
                (1, checksum) => Some(checksum),
                _ => return Err(Damage::Field),
            },
            tag: match (fields.version, fields.u32()?) {
                (FIRST_VERSION, _) => TagState::Unknown,
                (_, 1) => TagState::Due,
                (_, 2) => TagState::Written,
                _ => return Err(Damage::Field),
            },
            lost: Vec::new(),
            unreported: 0,
        };
        superblock.lost = lost_sectors(fields.u32()?, fields.u32()?, bytes)?;
        // Zero where an earlier program wrote it.
        superblock.unreported = fields.u64()?;
        let log = superblock.log_size;
        let FlashSuperblock { ref lost, tail, tail_sequence, durable, generation, epoch, written, .. } = superblock;
        // So far from the largest number that nothing that counts on from them overflows.
        let counters = [tail.0, tail_sequence.0, durable.0, generation, epoch.0, written];
        let sound = log >= LEAST_LOG
            && log.is_multiple_of(BLOCK)
            && log < 1 << 54
            && superblock.tail.0.is_multiple_of(BLOCK)
            && counters.iter().all(|&counter| counter < 1 << 62)
            && superblock.tail_epoch <= superblock.epoch
            && superblock.unreported <= durable.0
            && superblock.capacity.0 < 1 << 54
            && lost.iter().all(|range| range.end() <= superblock.capacity);
        if sound { Ok(superblock) } else { Err(Damage::Field) }
    }

    /// As it is written: a sector, and behind it the list of lost sectors, if there are any.
    pub(super) fn encode(&self) -> Vec<u8> {
        let lost: Vec<u8> = self.lost.iter().flat_map(|range| record::address(*range)).collect();
        let lost_checksum = if lost.is_empty() { 0 } else { crate::checksum::crc32c(&lost) };
        let mut bytes = begin(SUPERBLOCK_MAGIC);
        let state: u32 = match self.state {
            PairState::Attached => 1,
            PairState::Detached => 2,
        };
        bytes.extend_from_slice(&state.to_le_bytes());
        bytes.extend_from_slice(self.flash.as_bytes());
        bytes.extend_from_slice(self.disk.as_bytes());
        let numbers =
            [self.generation, self.epoch.0, self.capacity.0, self.log_size, self.tail.0, self.tail_sequence.0];
        for number in numbers.into_iter().chain([self.durable.0, self.written, self.tail_epoch.0]) {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        let tag = if self.tag == TagState::Written { 2 } else { 1 };
        let head = [u32::from(self.head.is_some()), self.head.unwrap_or(0)];
        for number in head.into_iter().chain([tag, self.lost.len() as u32, lost_checksum]) {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        bytes.extend_from_slice(&self.unreported.to_le_bytes());
        let mut bytes = seal(bytes, SUPERBLOCK_BYTES);
        bytes.extend_from_slice(&lost);
        bytes
    }

    /// The last record whose filler, if it has one, was reported.
    pub(super) fn last_reported(&self) -> RecordNo {
        RecordNo(self.durable.0 - self.unreported)
    }
}

/// The list of lost sectors of a superblock.
fn lost_sectors(count: u32, checksum: u32, superblock: &[u8]) -> Result<Vec<SectorRange>, Damage> {
    let count = count as usize;
    if count > MOST_LOST {
        return Err(Damage::Field);
    }
    let end = SUPERBLOCK_BYTES + count * record::ADDRESS_BYTES;
    let bytes = superblock.get(SUPERBLOCK_BYTES.min(end)..end).unwrap_or_default();
    if count > 0 && (bytes.is_empty() || crate::checksum::crc32c(bytes) != checksum) {
        return Err(Damage::Checksum);
    }
    let mut fields = Fields { version: VERSION, bytes };
    (0..count).map(|_| record::range(&mut fields)).collect()
}

impl DiskTag {
    /// What the disk says when the flash says that, and the log is in use.
    pub(super) fn of(superblock: &FlashSuperblock) -> DiskTag {
        DiskTag {
            disk: superblock.disk,
            flash: superblock.flash,
            epoch: superblock.epoch,
            capacity: superblock.capacity,
            tail_sequence: superblock.tail_sequence,
            log_is_empty: false,
        }
    }

    /// Reads one.
    pub(super) fn decode(bytes: &[u8]) -> Result<DiskTag, Damage> {
        let mut fields = open(bytes, SUPERBLOCK_BYTES, TAG_MAGIC)?;
        let tag = DiskTag {
            disk: fields.uuid()?,
            flash: fields.uuid()?,
            epoch: Epoch(fields.u64()?),
            capacity: Lba(fields.u64()?),
            tail_sequence: RecordNo(fields.u64()?),
            log_is_empty: match (fields.version, fields.u32()?) {
                (FIRST_VERSION, _) | (_, 0) => false,
                (_, 1) => true,
                _ => return Err(Damage::Field),
            },
        };
        let sound = tag.epoch.0 < 1 << 62 && tag.tail_sequence.0 < 1 << 62 && tag.capacity.0 < 1 << 54;
        if sound { Ok(tag) } else { Err(Damage::Field) }
    }

    /// As it is written, a sector.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = begin(TAG_MAGIC);
        bytes.extend_from_slice(self.disk.as_bytes());
        bytes.extend_from_slice(self.flash.as_bytes());
        bytes.extend_from_slice(&self.epoch.0.to_le_bytes());
        for number in [self.capacity.0, self.tail_sequence.0] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        bytes.extend_from_slice(&u32::from(self.log_is_empty).to_le_bytes());
        seal(bytes, SUPERBLOCK_BYTES)
    }
}

/// Corrects the checksum of a structure of that length, so that a test gets past it.
#[cfg(test)]
pub(super) fn correct_checksum(bytes: &mut [u8], len: usize) {
    let checksum = crate::checksum::crc32c(&bytes[..len - 4]);
    bytes[len - 4..len].copy_from_slice(&checksum.to_le_bytes());
}

#[cfg(test)]
mod tests;
