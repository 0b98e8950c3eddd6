//! The format on flash and disk, version 1. All numbers are little-endian; every structure ends in a CRC32C of what is before it.
//!
//! ```text
//! flash   0        superblock, copy 0          4 KiB, the first 512 bytes used
//!         4 KiB    superblock, copy 1          the later generation counts, should they differ
//!         1 MiB    the log, to the end         records, each at a multiple of 4 KiB
//!
//! disk    0        data, as without the flash
//!         -8 KiB   tag, copy 0                 512 bytes used
//!         -4 KiB   tag, copy 1
//!
//! record  0        header, 4 KiB: who, where, which, and up to 167 entries: address, length, checksum
//!         4 KiB    data of the entries, one behind the other; filled up to a multiple of 4 KiB
//! ```
//!
//! Superblock and tag fit into one sector each, so that a power cut leaves the old or the new one, and have two copies, written and flushed one after
//! the other: either is enough, should the other be damaged.
//! Positions in the log and sequence numbers only grow. The epoch grows by one at each opening, so that records left over from before a
//! crash cannot be taken for the continuation of what was written after it; the superblock says from which epoch on records count at the tail.

use std::fmt;

use serde::Serialize;
use thiserror::Error;
use umbrella_policy::flash_cache::{LogSector, Logged, Source};
use umbrella_units::{Lba, SECTOR_BYTES, SectorRange};
use uuid::Uuid;

/// The version that this code writes; it reads no other.
pub(super) const VERSION: u32 = 1;
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
/// The most entries of a record.
pub(super) const MOST_ENTRIES: usize = (BLOCK_BYTES - HEADER_BYTES - 4) / ENTRY_BYTES;

const SUPERBLOCK_MAGIC: [u8; 8] = *b"UMBFLASH";
const TAG_MAGIC: [u8; 8] = *b"UMB_DISK";
const RECORD_MAGIC: [u8; 8] = *b"UMBRECRD";
const SUPERBLOCK_BYTES: usize = 512;
const HEADER_BYTES: usize = 80;
const ENTRY_BYTES: usize = 24;
const ENTRY_ZEROES: u32 = 1;

/// A structure that is not what it should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[expect(missing_docs, reason = "each message says it")]
pub enum Damage {
    #[error("it has no label: never written, or overwritten")]
    Magic,
    #[error("the checksum is wrong")]
    Checksum,
    #[error("version {0}; this program knows version {VERSION}")]
    Version(u32),
    #[error("a field is out of range")]
    Field,
    #[error("it cannot be read")]
    Unreadable,
}

/// What a superblock says of the pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// The disk is only whole together with the log.
    Attached,
    /// The log is empty, and the disk no longer needs it.
    Detached,
}

/// Counts how often a pair was opened, from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Epoch(pub(super) u64);

/// The number of a record, from 1: one more than that of the record before it. 0 is that of none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Sequence(pub(super) u64);

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Sequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Epoch {
    /// That of the next opening.
    pub(super) fn next(self) -> Epoch {
        Epoch(self.0 + 1)
    }
}

impl Sequence {
    /// That of the record behind.
    pub(super) fn next(self) -> Sequence {
        Sequence(self.0 + 1)
    }

    /// That of the record before.
    pub(super) fn before(self) -> Sequence {
        Sequence(self.0 - 1)
    }
}

/// Where the log is, and from where on it counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Superblock {
    /// This flash.
    pub(super) flash: Uuid,
    /// The disk that it belongs to.
    pub(super) disk: Uuid,
    /// Counts superblocks written.
    pub(super) generation: u64,
    /// Counts openings.
    pub(super) epoch: Epoch,
    /// Whether the two are one.
    pub(super) state: State,
    /// Sectors that the hybrid disk offers.
    pub(super) capacity: Lba,
    /// Sectors of the log.
    pub(super) log_size: u64,
    /// The first record that counts begins there.
    pub(super) tail: LogSector,
    /// Its sequence number, also if it was not written yet.
    pub(super) tail_sequence: Sequence,
    /// Records up to this sequence number were durable when this was written; less than `tail_sequence` for none.
    pub(super) durable: Sequence,
    /// Bytes ever written to the flash.
    pub(super) written: u64,
    /// A checksum of the beginning of the disk; nothing while it may be written. Who writes to the disk without its flash changes it: a file
    /// system does when it is mounted.
    pub(super) head: Option<u32>,
    /// Records of an earlier opening do not count from the tail on: they were left over behind what a power cut lost.
    pub(super) tail_epoch: Epoch,
}

/// Says to which flash a disk belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Tag {
    /// This disk.
    pub(super) disk: Uuid,
    /// The flash that has its newest data.
    pub(super) flash: Uuid,
    /// Counts openings.
    pub(super) epoch: Epoch,
    /// Sectors that the hybrid disk offers.
    pub(super) capacity: Lba,
    /// What the log's tail had reached when this was written: all before it is on the disk. A flash whose tail is behind it is an older
    /// copy. Zero where an earlier program wrote it.
    pub(super) tail_sequence: Sequence,
}

/// A write in a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Entry {
    /// Where it belongs.
    pub(super) range: SectorRange,
    /// The checksum of its data; nothing for zeroes.
    pub(super) checksum: Option<u32>,
}

/// The header of a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Header {
    /// The flash that it was written to.
    pub(super) flash: Uuid,
    /// The opening in which it was written.
    pub(super) epoch: Epoch,
    /// Its number: one more than that of the record before it.
    pub(super) sequence: Sequence,
    /// Where it was written.
    pub(super) at: LogSector,
    /// Records up to this number were durable when it was written.
    pub(super) durable: Sequence,
    /// Its writes: zeroes first, then those with data in the order of their data.
    pub(super) entries: Vec<Entry>,
}

struct Fields<'a> {
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
    if crc32c::crc32c(&bytes[..len - 4]) != u32::from_le_bytes(*checksum) {
        return Err(Damage::Checksum);
    }
    let mut fields = Fields { bytes: rest };
    match fields.u32()? {
        VERSION => Ok(fields),
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
    let checksum = crc32c::crc32c(&bytes);
    bytes.extend_from_slice(&checksum.to_le_bytes());
    bytes
}

impl Superblock {
    /// Reads one; it is checked as far as it can be by itself.
    pub(super) fn decode(bytes: &[u8]) -> Result<Superblock, Damage> {
        let mut fields = open(bytes, SUPERBLOCK_BYTES, SUPERBLOCK_MAGIC)?;
        let state = match fields.u32()? {
            1 => State::Attached,
            2 => State::Detached,
            _ => return Err(Damage::Field),
        };
        let superblock = Superblock {
            state,
            flash: fields.uuid()?,
            disk: fields.uuid()?,
            generation: fields.u64()?,
            epoch: Epoch(fields.u64()?),
            capacity: Lba(fields.u64()?),
            log_size: fields.u64()?,
            tail: LogSector(fields.u64()?),
            tail_sequence: Sequence(fields.u64()?),
            durable: Sequence(fields.u64()?),
            written: fields.u64()?,
            // Zero where an earlier program wrote it.
            tail_epoch: Epoch(fields.u64()?),
            head: match (fields.u32()?, fields.u32()?) {
                (0, _) => None,
                (1, checksum) => Some(checksum),
                _ => return Err(Damage::Field),
            },
        };
        let log = superblock.log_size;
        let Superblock { tail, tail_sequence, durable, generation, epoch, written, .. } = superblock;
        // So far from the largest number that nothing that counts on from them overflows.
        let counters = [tail.0, tail_sequence.0, durable.0, generation, epoch.0, written];
        let sound = log >= LEAST_LOG
            && log.is_multiple_of(BLOCK)
            && log < 1 << 54
            && superblock.tail.0.is_multiple_of(BLOCK)
            && counters.iter().all(|&counter| counter < 1 << 62)
            && superblock.tail_epoch <= superblock.epoch
            && superblock.capacity.0 < 1 << 54;
        if sound { Ok(superblock) } else { Err(Damage::Field) }
    }

    /// As it is written, a sector.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = begin(SUPERBLOCK_MAGIC);
        let state: u32 = match self.state {
            State::Attached => 1,
            State::Detached => 2,
        };
        bytes.extend_from_slice(&state.to_le_bytes());
        bytes.extend_from_slice(self.flash.as_bytes());
        bytes.extend_from_slice(self.disk.as_bytes());
        let numbers =
            [self.generation, self.epoch.0, self.capacity.0, self.log_size, self.tail.0, self.tail_sequence.0];
        for number in numbers.into_iter().chain([self.durable.0, self.written, self.tail_epoch.0]) {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        for number in [u32::from(self.head.is_some()), self.head.unwrap_or(0)] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        seal(bytes, SUPERBLOCK_BYTES)
    }
}

impl Tag {
    /// What the disk says when the flash says that.
    pub(super) fn of(superblock: &Superblock) -> Tag {
        Tag {
            disk: superblock.disk,
            flash: superblock.flash,
            epoch: superblock.epoch,
            capacity: superblock.capacity,
            tail_sequence: superblock.tail_sequence,
        }
    }

    /// Reads one.
    pub(super) fn decode(bytes: &[u8]) -> Result<Tag, Damage> {
        let mut fields = open(bytes, SUPERBLOCK_BYTES, TAG_MAGIC)?;
        let tag = Tag {
            disk: fields.uuid()?,
            flash: fields.uuid()?,
            epoch: Epoch(fields.u64()?),
            capacity: Lba(fields.u64()?),
            tail_sequence: Sequence(fields.u64()?),
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
        seal(bytes, SUPERBLOCK_BYTES)
    }
}

impl Header {
    /// Reads one, and nothing that does not fit into a record.
    pub(super) fn decode(bytes: &[u8]) -> Result<Header, Damage> {
        let mut fields = open(bytes, BLOCK_BYTES, RECORD_MAGIC)?;
        let count = fields.u32()? as usize;
        let flash = fields.uuid()?;
        let (epoch, sequence, at, durable) =
            (Epoch(fields.u64()?), Sequence(fields.u64()?), LogSector(fields.u64()?), Sequence(fields.u64()?));
        fields.take::<{ HEADER_BYTES - 64 }>()?;
        if count == 0 || count > MOST_ENTRIES {
            return Err(Damage::Field);
        }
        let entries = (0..count).map(|_| decode_entry(&mut fields)).collect::<Result<Vec<Entry>, Damage>>()?;
        let header = Header { flash, epoch, sequence, at, durable, entries };
        let sound = header.data() <= MOST_DATA
            && at.0.is_multiple_of(BLOCK)
            && [at.0, sequence.0, epoch.0].iter().all(|&counter| counter < 1 << 62)
            && header.entries.is_sorted_by_key(Entry::has_data);
        if !sound {
            return Err(Damage::Field);
        }
        Ok(header)
    }

    /// As it is written, a block.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = begin(RECORD_MAGIC);
        bytes.extend_from_slice(&(self.entries.len() as u32).to_le_bytes());
        bytes.extend_from_slice(self.flash.as_bytes());
        for number in [self.epoch.0, self.sequence.0, self.at.0, self.durable.0] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        bytes.resize(HEADER_BYTES, 0);
        for entry in &self.entries {
            bytes.extend_from_slice(&entry.range.start.0.to_le_bytes());
            bytes.extend_from_slice(&entry.range.sectors.to_le_bytes());
            bytes.extend_from_slice(&entry.checksum.unwrap_or(0).to_le_bytes());
            let flags = if entry.checksum.is_some() { 0 } else { ENTRY_ZEROES };
            bytes.extend_from_slice(&flags.to_le_bytes());
        }
        seal(bytes, BLOCK_BYTES)
    }

    /// Sectors of data.
    pub(super) fn data(&self) -> u64 {
        self.entries.iter().map(Entry::data).fold(0, u64::saturating_add)
    }

    /// Sectors of the whole record.
    pub(super) fn sectors(&self) -> u64 {
        record_sectors(self.data())
    }

    /// Where the next record may begin.
    pub(super) fn end(&self) -> LogSector {
        LogSector(self.at.0 + self.sectors())
    }

    /// Its writes as the log keeps account of them.
    pub(super) fn logged(&self) -> impl Iterator<Item = Logged> + '_ {
        let mut data = self.at.0 + BLOCK;
        let mut metadata = BLOCK as u32;
        self.entries.iter().map(move |entry| {
            let range = entry.range;
            if entry.checksum.is_none() {
                return Logged { range, source: Source::Zeroes(self.at), metadata: 0 };
            }
            let logged = Logged { range, source: Source::Log(LogSector(data)), metadata };
            data += range.sectors;
            metadata = 0;
            logged
        })
    }

    /// The writes whose data is not what was written. `data` is what lies behind the header.
    pub(super) fn damaged<'a>(&'a self, data: &'a [u8]) -> impl Iterator<Item = Logged> + 'a {
        let mut rest = data;
        self.logged().zip(&self.entries).filter_map(move |(logged, entry)| {
            let checksum = entry.checksum?;
            let (own, behind) = rest.split_at_checked((entry.data() * SECTOR_BYTES) as usize).unwrap_or_default();
            rest = behind;
            (own.is_empty() || crc32c::crc32c(own) != checksum).then_some(logged)
        })
    }
}

impl Entry {
    /// Sectors of data in the record.
    pub(super) fn data(&self) -> u64 {
        if self.has_data() { self.range.sectors } else { 0 }
    }

    fn has_data(&self) -> bool {
        self.checksum.is_some()
    }
}

fn decode_entry(fields: &mut Fields<'_>) -> Result<Entry, Damage> {
    let range = SectorRange { start: Lba(fields.u64()?), sectors: fields.u64()? };
    let (checksum, flags) = (fields.u32()?, fields.u32()?);
    let checksum = match flags {
        0 => Some(checksum),
        ENTRY_ZEROES => None,
        _ => return Err(Damage::Field),
    };
    if range.sectors == 0 || range.start.0.checked_add(range.sectors).is_none_or(|end| end >= 1 << 54) {
        return Err(Damage::Field);
    }
    Ok(Entry { range, checksum })
}

/// Sectors of a record with so many sectors of data.
pub(super) fn record_sectors(data: u64) -> u64 {
    BLOCK + data.next_multiple_of(BLOCK)
}

/// Corrects the checksum of a structure of that length, so that a test gets past it.
#[cfg(test)]
pub(super) fn correct_checksum(bytes: &mut [u8], len: usize) {
    let checksum = crc32c::crc32c(&bytes[..len - 4]);
    bytes[len - 4..len].copy_from_slice(&checksum.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn superblock() -> Superblock {
        Superblock {
            flash: Uuid::from_u128(1),
            disk: Uuid::from_u128(2),
            generation: 3,
            epoch: Epoch(4),
            state: State::Attached,
            capacity: Lba(1000),
            log_size: LEAST_LOG,
            tail: LogSector(16),
            tail_sequence: Sequence(7),
            durable: Sequence(6),
            written: 99,
            head: Some(5),
            tail_epoch: Epoch(2),
        }
    }

    fn header() -> Header {
        let range = |start, sectors| SectorRange { start: Lba(start), sectors };
        let entries = vec![
            Entry { range: range(900, 1 << 40), checksum: None },
            Entry { range: range(5, 3), checksum: Some(crc32c::crc32c(&[1; 1536])) },
            Entry { range: range(70, 8), checksum: Some(crc32c::crc32c(&[2; 4096])) },
        ];
        Header {
            flash: Uuid::from_u128(1),
            epoch: Epoch(4),
            sequence: Sequence(7),
            at: LogSector(16),
            durable: Sequence(6),
            entries,
        }
    }

    #[test]
    fn a_counter_that_would_overflow_is_damage() {
        assert_eq!(Superblock::decode(&superblock().encode()), Ok(superblock()));
        for far in [1 << 62, u64::MAX] {
            let written = Superblock { written: far, ..superblock() };
            let durable = Superblock { durable: Sequence(far), ..superblock() };
            for superblock in [written, durable] {
                assert_eq!(Superblock::decode(&superblock.encode()), Err(Damage::Field));
            }
        }
    }

    #[test]
    fn what_is_written_is_read() {
        assert_eq!(Superblock::decode(&superblock().encode()), Ok(superblock()));
        let tag = Tag {
            disk: Uuid::from_u128(2),
            flash: Uuid::from_u128(1),
            epoch: Epoch(4),
            capacity: Lba(1000),
            tail_sequence: Sequence(7),
        };
        assert_eq!(Tag::decode(&tag.encode()), Ok(tag));
        assert_eq!(Header::decode(&header().encode()), Ok(header()));
        assert_eq!((superblock().encode().len(), tag.encode().len(), header().encode().len()), (512, 512, 4096));
    }

    #[test]
    fn the_longest_record_has_a_header_of_one_block() {
        let entry = Entry { range: SectorRange { start: Lba(1), sectors: 1 }, checksum: Some(0) };
        let header = Header { entries: vec![entry; MOST_ENTRIES], ..header() };
        assert_eq!(header.encode().len(), BLOCK_BYTES);
        assert_eq!(Header::decode(&header.encode()), Ok(header));
    }

    #[test]
    fn every_changed_bit_is_noticed() {
        for (bytes, decode) in [
            (superblock().encode(), (|bytes| Superblock::decode(bytes).is_ok()) as fn(&[u8]) -> bool),
            (header().encode(), |bytes| Header::decode(bytes).is_ok()),
        ] {
            assert!(decode(&bytes));
            for bit in 0..bytes.len() * 8 {
                let mut damaged = bytes.clone();
                damaged[bit / 8] ^= 1 << (bit % 8);
                assert!(!decode(&damaged), "bit {bit}");
            }
            assert!(!decode(&bytes[..bytes.len() - 1]));
        }
    }

    #[test]
    fn a_later_version_is_named() {
        let mut bytes = superblock().encode();
        bytes[8] = 2;
        assert_eq!(Superblock::decode(&seal(bytes[..508].to_vec(), 512)), Err(Damage::Version(2)));
    }

    #[test]
    fn the_entries_of_a_record_lie_one_behind_the_other() {
        let header = header();
        let logged: Vec<Logged> = header.logged().collect();
        assert_eq!(logged[0].source, Source::Zeroes(LogSector(16)));
        assert_eq!((logged[1].source, logged[1].metadata), (Source::Log(LogSector(24)), 8));
        assert_eq!((logged[2].source, logged[2].metadata), (Source::Log(LogSector(27)), 0));
        assert_eq!((header.data(), header.sectors(), header.end()), (11, 24, LogSector(40)));
        let data = [vec![1; 1536], vec![2; 4096]].concat();
        let damaged = |data: &[u8]| header.damaged(data).collect::<Vec<Logged>>();
        assert_eq!(damaged(&data), []);
        assert_eq!(damaged(&[vec![1; 1536], vec![3; 4096]].concat()), [logged[2]]);
        assert_eq!(damaged(&[vec![3; 1536], vec![2; 4096]].concat()), [logged[1]]);
        assert_eq!(damaged(&data[..2000]), [logged[2]], "cut off");
        assert_eq!(damaged(&[]), [logged[1], logged[2]], "cut off");
    }
}
