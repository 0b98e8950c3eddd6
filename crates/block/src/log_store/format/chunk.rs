//! The header of a chunk: it names the blocks behind it. A chunk is a header of one block and its data blocks in the
//! same segment, written in one piece.
//!
//! ```text
//! offset  bytes
//!      0      4  magic "ULCK"
//!      4      2  version, 1 or 2
//!      6      2  entries, 0 to 252
//!      8      2  data blocks: one for each entry of kind 0 to 3
//!     10      1  stream
//!     11      1  reserved
//!     12      4  segment that the stream continues in, or 0xffffffff
//!     16     16  uuid of the store
//!     32      8  epoch: number of the last checkpoint before it
//!     40      8  sequence number: one more than that of the chunk before it, of any stream
//!     48      8  clock
//!     56   4032  entries, 16 bytes each; those that do not exist are zero
//!   4088      4  reserved
//!   4092      4  CRC32C of all other bytes of the block
//!
//! entry 0     8  bits 0 to 39: logical block or map page; bits 40 to 55: zero; bits 56 to 63: kind
//!       8     4  CRC32C of its data block
//!      12     4  value
//!
//! kind                block                checksum    value
//!    0  dead          0                    0           0              its data block was overwritten before it was
//!                                                                     written; nobody reads it
//!    1  data          logical block        of the data stamp
//!    2  copy          logical block        of the data stamp          copied by the cleaner
//!    3  map page      number of the page   of the page 0
//!    4  unmapped      first logical block  0           blocks, >= 1   has no data block
//!    5  mark          last chunk flushed   0           chunks         has no data block; with the incompatible feature
//!                                                                     of marks
//! ```
//!
//! A mark sets two limits. The first is how far the log was whole at the last device flush that had ended when the
//! chunk was completed. The second adds the chunks that the flush under way promises. A damaged chunk up to the first
//! limit held flushed data; one up to the second perhaps did. No flush reported later ones as durable.
//!
//! Version 2, with the incompatible feature of repeats, where there was a chunk before it:
//!
//! ```text
//!     56   3276  entries, 13 bytes each; those that do not exist are zero
//!   3332    756  what it repeats of the chunk before it: a [repeat](super::Repeat)
//!   4088      8  as in version 1
//!
//! entry 0     1  kind
//!       1     5  block; of a mark the lower 40 bits of the last chunk flushed
//!       6     4  checksum; of an unmapped range its blocks, of a mark its chunks
//!      10     3  stamp; of a mark the upper 24 bits
//! ```
//!
//! Data blocks lie in the order of the entries that have one, the first at slot 1 behind the header. A later entry for
//! a block replaces an earlier one.

use smallvec::SmallVec;
use umbrella_units::{BlockNo, ByteSize};
use uuid::Uuid;

use super::checksum::Checksum;
use super::error::{Field, FormatError, Limit, Structure};
use super::ids::{Blocks, CheckpointNo, MapPageNo, Sequence, Slot};
use super::raw::{Block, FieldReader, Writer, check, out_of_range};
use super::repeat::{REPEAT_BYTES, Repeat, fitting};
use super::shape::Shape;
use super::superblock::Superblock;
use super::{BLOCK_BYTES, Clock, LogBlock, PLACE_BITS, STAMP_BITS, SegmentNo, Stamp, Stream, VERSION};

pub(super) const MAGIC: &[u8; 4] = b"ULCK";
pub(super) const FIRST_ENTRY_AT: usize = 56;
const ENTRY_BYTES: usize = 16;
/// The version of a header with a repeat, and the bytes of an entry in it.
pub(super) const WITH_REPEAT: u16 = 2;
const PACKED_BYTES: usize = 13;
pub(super) const CHECKSUM_AT: usize = 4092;
const KIND_SHIFT: u32 = 56;
const THIS: Structure = Structure::Chunk;

/// The most entries of a chunk.
pub const MAX_ENTRIES: usize = (CHECKSUM_AT - FIRST_ENTRY_AT) / ENTRY_BYTES;

/// What a chunk says of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Entry {
    /// A data block that is not needed: it was overwritten before it was written out. Its data is not checked.
    Dead,
    /// A user's block.
    Data {
        /// Which one.
        block: BlockNo,
        /// The checksum of the data.
        checksum: Checksum,
        /// When it was written.
        stamp: Stamp,
    },
    /// A user's block that the cleaner copied.
    Copy {
        /// Which one.
        block: BlockNo,
        /// The checksum of the data.
        checksum: Checksum,
        /// When the user wrote it.
        stamp: Stamp,
    },
    /// A page of the map.
    MapPage {
        /// Which one.
        page: MapPageNo,
        /// The checksum of the page.
        checksum: Checksum,
    },
    /// Blocks that read as zeroes. Has no data block.
    Unmapped {
        /// The first one.
        start: BlockNo,
        /// How many; never zero.
        blocks: u32,
    },
    /// How far the log was flushed. Has no data block.
    Mark {
        /// The last chunk that had been flushed.
        flushed: Sequence,
        /// How many more the flush under way promises.
        promised: u32,
    },
}

/// The header of a chunk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChunkHeader {
    /// The store.
    pub store: Uuid,
    /// Whose chunk it is.
    pub stream: Stream,
    /// The last checkpoint before it.
    pub epoch: CheckpointNo,
    /// Its number among all chunks.
    pub sequence: Sequence,
    /// Blocks that users had written.
    pub clock: Clock,
    /// Where the stream continues when this segment is full.
    pub next: Option<SegmentNo>,
    /// What lies behind it, and what does not need to.
    pub entries: Vec<Entry>,
    /// What it repeats of the chunk before it.
    pub before: Option<Repeat>,
}

/// Entries of a chunk that is being put together: as many as fit into the header, and into the segment.
#[derive(Debug, Clone)]
pub struct ChunkBuilder {
    entries: Vec<Entry>,
    data_blocks: u32,
    room: u32,
}

impl Entry {
    /// Whether it has a data block.
    pub fn has_data(&self) -> bool {
        !matches!(self, Entry::Unmapped { .. } | Entry::Mark { .. })
    }

    /// What its data block must have, if that matters.
    pub fn checksum(&self) -> Option<Checksum> {
        match *self {
            Entry::Data { checksum, .. } | Entry::Copy { checksum, .. } | Entry::MapPage { checksum, .. } => {
                Some(checksum)
            }
            Entry::Dead | Entry::Unmapped { .. } | Entry::Mark { .. } => None,
        }
    }

    /// If it is a mark: the last chunk that had been flushed, and the last that a flush under way promised.
    pub(super) fn mark(&self) -> Option<(Sequence, Sequence)> {
        match *self {
            Entry::Mark { flushed, promised } => {
                Some((flushed, Sequence(flushed.0.saturating_add(u64::from(promised)))))
            }
            _ => None,
        }
    }

    /// The user's blocks that it refers to.
    pub fn blocks(&self) -> std::ops::Range<u64> {
        match *self {
            Entry::Data { block, .. } | Entry::Copy { block, .. } => block.0..block.0.saturating_add(1),
            Entry::Unmapped { start, blocks } => start.0..start.0.saturating_add(blocks.into()),
            Entry::Dead | Entry::MapPage { .. } | Entry::Mark { .. } => 0..0,
        }
    }

    /// As stored in a header of a version.
    pub(super) fn bytes(&self, version: u16) -> SmallVec<[u8; ENTRY_BYTES]> {
        if version == WITH_REPEAT {
            return SmallVec::from_slice(&self.packed());
        }
        let (kind, block, checksum, value) = self.fields();
        let mut bytes = SmallVec::from_slice(&(kind << KIND_SHIFT | block).to_le_bytes());
        bytes.extend(checksum.to_le_bytes().into_iter().chain(value.to_le_bytes()));
        bytes
    }

    fn packed(&self) -> [u8; PACKED_BYTES] {
        let (kind, block, checksum, value) = match *self {
            Entry::Unmapped { start, blocks } => (4, start.0, blocks, 0),
            Entry::Mark { flushed, promised } => (5, flushed.0, promised, (flushed.0 >> PLACE_BITS) as u32),
            _ => self.fields(),
        };
        let mut bytes = [0; PACKED_BYTES];
        let fields = std::iter::once(kind as u8).chain(block.to_le_bytes().into_iter().take(5));
        let fields = fields.chain(checksum.to_le_bytes()).chain(value.to_le_bytes().into_iter().take(3));
        bytes.iter_mut().zip(fields).for_each(|(to, from)| *to = from);
        bytes
    }

    pub(super) fn parse_packed(fields: &mut FieldReader<'_>, number: u16) -> Result<Entry, FormatError> {
        let (kind, low, high) = (fields.u8()?, fields.u32()?, fields.u8()?);
        let block = u64::from(low) | u64::from(high) << 32;
        let checksum = Checksum(fields.u32()?);
        let value = u32::from(fields.u16()?) | u32::from(fields.u8()?) << 16;
        match kind {
            4 => {
                check(THIS, Field::EntryValue(number), value.into(), Limit::Exactly(0))?;
                Ok(Entry::Unmapped { start: BlockNo(block), blocks: checksum.0 })
            }
            5 => {
                let flushed = Sequence(block | u64::from(value) << PLACE_BITS);
                Ok(Entry::Mark { flushed, promised: checksum.0 })
            }
            _ => Entry::of(number, u64::from(kind), block, (checksum, value)),
        }
    }

    /// Kind, block, checksum and value.
    fn fields(&self) -> (u64, u64, u32, u32) {
        match *self {
            Entry::Dead => (0, 0, 0, 0),
            Entry::Data { block, checksum, stamp } => (1, block.0, checksum.0, stamp.0),
            Entry::Copy { block, checksum, stamp } => (2, block.0, checksum.0, stamp.0),
            Entry::MapPage { page, checksum } => (3, page.0, checksum.0, 0),
            Entry::Unmapped { start, blocks } => (4, start.0, 0, blocks),
            Entry::Mark { flushed, promised } => (5, flushed.0, 0, promised),
        }
    }

    pub(super) fn parse(fields: &mut FieldReader<'_>, number: u16) -> Result<Entry, FormatError> {
        let (word, checksum, value) = (fields.u64()?, Checksum(fields.u32()?), fields.u32()?);
        Entry::of(number, word >> KIND_SHIFT, word & ((1 << KIND_SHIFT) - 1), (checksum, value))
    }

    fn of(number: u16, kind: u64, block: u64, (checksum, value): (Checksum, u32)) -> Result<Entry, FormatError> {
        let zero = |field, value: u32| check(THIS, field, u64::from(value), Limit::Exactly(0));
        match kind {
            0 => {
                check(THIS, Field::EntryBlock(number), block, Limit::Exactly(0))?;
                zero(Field::EntryChecksum(number), checksum.0)?;
                zero(Field::EntryValue(number), value)?;
                Ok(Entry::Dead)
            }
            1 => Ok(Entry::Data { block: BlockNo(block), checksum, stamp: Stamp(value) }),
            2 => Ok(Entry::Copy { block: BlockNo(block), checksum, stamp: Stamp(value) }),
            3 => {
                zero(Field::EntryValue(number), value)?;
                Ok(Entry::MapPage { page: MapPageNo(block), checksum })
            }
            4 => {
                zero(Field::EntryChecksum(number), checksum.0)?;
                Ok(Entry::Unmapped { start: BlockNo(block), blocks: value })
            }
            5 => {
                zero(Field::EntryChecksum(number), checksum.0)?;
                Ok(Entry::Mark { flushed: Sequence(block), promised: value })
            }
            _ => Err(out_of_range(THIS, Field::Kind(number), kind, Limit::AtMost(5))),
        }
    }

    /// Whether the store has what it refers to.
    fn check(&self, number: u16, shape: &Shape) -> Result<(), FormatError> {
        let (block, value) = (Field::EntryBlock(number), Field::EntryValue(number));
        let Blocks(advertised) = shape.advertised();
        match *self {
            Entry::Dead => Ok(()),
            Entry::Mark { flushed, .. } => check(THIS, block, flushed.0, Limit::AtMost((1 << KIND_SHIFT) - 1)),
            Entry::Data { block: at, stamp, .. } | Entry::Copy { block: at, stamp, .. } => {
                check(THIS, block, at.0, Limit::AtMost(advertised - 1))?;
                check(THIS, value, u64::from(stamp.0), Limit::AtMost((1 << STAMP_BITS) - 1))
            }
            Entry::MapPage { page, .. } => check(THIS, block, page.0, Limit::AtMost(shape.map_pages().0 - 1)),
            Entry::Unmapped { start, blocks } => {
                check(THIS, value, u64::from(blocks), Limit::AtLeast(1))?;
                let end = start.0.saturating_add(u64::from(blocks));
                check(THIS, block, end, Limit::AtMost(advertised))
            }
        }
    }
}

impl ChunkHeader {
    /// Reads one from the block at `at` of the log.
    pub fn parse(bytes: &[u8], superblock: &Superblock, at: LogBlock) -> Result<ChunkHeader, FormatError> {
        let mut fields = FieldReader::open(THIS, bytes, MAGIC, CHECKSUM_AT)?;
        let version = fields.u16()?;
        match version {
            WITH_REPEAT => {}
            0 | 1 => fields.known(u32::from(version))?,
            _ => {
                let (found, known) = (u32::from(version), u32::from(WITH_REPEAT));
                return Err(FormatError::NewerVersion { structure: THIS, found, known });
            }
        }
        let (count, data_blocks, stream) = (fields.u16()?, fields.u16()?, Stream(fields.u8()?));
        fields.reserved(1)?;
        let (next, store) = (fields.segment()?, fields.uuid()?);
        let (epoch, sequence, clock) = (CheckpointNo(fields.u64()?), Sequence(fields.u64()?), Clock(fields.u64()?));
        check(THIS, Field::Entries, u64::from(count), Limit::AtMost(MAX_ENTRIES as u64))?;
        let entry = if version == WITH_REPEAT { Entry::parse_packed } else { Entry::parse };
        let entries = (0..count).map(|number| entry(&mut fields, number));
        let entries = entries.collect::<Result<Vec<Entry>, FormatError>>()?;
        let before = if version == WITH_REPEAT {
            fields.reserved((MAX_ENTRIES - entries.len()) * PACKED_BYTES)?;
            Some(Repeat::parse(fields.bytes(REPEAT_BYTES)?, &superblock.shape)?)
        } else {
            None
        };
        fields.finish()?;
        let header = ChunkHeader { store, stream, epoch, sequence, clock, next, entries, before };
        let counted = Limit::Exactly(u64::from(header.data_blocks()));
        check(THIS, Field::DataBlocks, u64::from(data_blocks), counted)?;
        header.check(superblock, at)?;
        Ok(header)
    }

    /// The last chunk that had been flushed when it was completed, and the last that a flush under way promised.
    pub fn mark(&self) -> Option<(Sequence, Sequence)> {
        self.entries.iter().find_map(Entry::mark)
    }

    /// As it is written to the block at `at` of the log; an error if it would not be read.
    pub fn encode(&self, superblock: &Superblock, at: LogBlock) -> Result<Block, FormatError> {
        self.check(superblock, at)?;
        let mut fields = Writer::new(MAGIC);
        let version = if self.before.is_some() { WITH_REPEAT } else { VERSION as u16 };
        fields.u16(version);
        fields.u16(self.entries.len() as u16);
        fields.u16(self.data_blocks() as u16);
        fields.u8(self.stream.0);
        fields.skip(1);
        fields.segment(self.next);
        fields.uuid(self.store);
        for number in [self.epoch.0, self.sequence.0, self.clock.0] {
            fields.u64(number);
        }
        for entry in &self.entries {
            fields.bytes(&entry.bytes(version));
        }
        if let Some(before) = &self.before {
            fields.skip((MAX_ENTRIES - self.entries.len()) * PACKED_BYTES);
            fields.bytes(&before.encode());
        }
        Ok(fields.seal(CHECKSUM_AT))
    }

    /// How many data blocks lie behind it.
    pub fn data_blocks(&self) -> u32 {
        self.entries.iter().filter(|entry| entry.has_data()).count() as u32
    }

    /// Blocks of the whole chunk.
    pub fn blocks(&self) -> u32 {
        1 + self.data_blocks()
    }

    /// Its entries, and where the data block of each lies, counted from the header on.
    pub fn slots(&self) -> impl Iterator<Item = (&Entry, Option<Slot>)> {
        let mut slot = 0;
        self.entries.iter().map(move |entry| {
            slot += u32::from(entry.has_data());
            (entry, entry.has_data().then_some(Slot(slot)))
        })
    }

    /// Whether `data`, the blocks behind the header, is what was written; otherwise the first entry whose block is not.
    pub fn verify_data(&self, data: &[u8]) -> Result<(), FormatError> {
        let mut blocks = data.chunks_exact(BLOCK_BYTES);
        for (entry, (item, slot)) in (0..).zip(self.slots()) {
            let Some(slot) = slot else { continue };
            let Some(block) = blocks.next() else {
                let needed = ByteSize(u64::from(self.data_blocks()) * BLOCK_BYTES as u64);
                let present = ByteSize(data.len() as u64);
                return Err(FormatError::Truncated { structure: Structure::ChunkData, needed, present });
            };
            let Some(stored) = item.checksum() else { continue };
            let computed = Checksum::of(block);
            if stored != computed {
                return Err(FormatError::DataChecksum { entry, slot, stored, computed });
            }
        }
        Ok(())
    }

    /// Whether it fits into the store, and to its place.
    fn check(&self, superblock: &Superblock, at: LogBlock) -> Result<(), FormatError> {
        if self.store != superblock.store {
            return Err(FormatError::OtherStore { structure: THIS, found: self.store, expected: superblock.store });
        }
        let shape = &superblock.shape;
        check(THIS, Field::ChunkPlace, at.0, Limit::AtMost(shape.places().0 - 1))?;
        let last_stream = Limit::AtMost(u64::from(shape.map_stream().0));
        check(THIS, Field::Stream, u64::from(self.stream.0), last_stream)?;
        if let Some(next) = self.next {
            check(THIS, Field::NextSegment, u64::from(next.0), Limit::AtMost(u64::from(shape.segments()) - 1))?;
            let own = Limit::Not(u64::from(shape.segment_of(at).0));
            check(THIS, Field::NextSegment, u64::from(next.0), own)?;
        }
        check(THIS, Field::Entries, self.entries.len() as u64, Limit::AtMost(MAX_ENTRIES as u64))?;
        let room = shape.segment_blocks() - shape.slot_of(at).0 - 1;
        check(THIS, Field::DataBlocks, u64::from(self.data_blocks()), Limit::AtMost(u64::from(room)))?;
        (0..).zip(&self.entries).try_for_each(|(number, entry)| entry.check(number, shape))?;
        self.before.as_ref().map_or(Ok(()), |before| before.check(shape))
    }
}

impl ChunkBuilder {
    /// No entries yet; `room` slots are left in the segment, the header's among them.
    pub fn new(room: Blocks) -> ChunkBuilder {
        let room = room.0.saturating_sub(1).min(MAX_ENTRIES as u64) as u32;
        ChunkBuilder { entries: Vec::new(), data_blocks: 0, room }
    }

    /// Takes an entry, and says where its data block belongs, counted from the header on; `None` if the entry does not
    /// fit.
    ///
    /// An entry without data lies nowhere: its slot is that of the header, 0.
    pub fn push(&mut self, entry: Entry) -> Option<Slot> {
        let full = self.entries.len() >= MAX_ENTRIES || (entry.has_data() && self.data_blocks >= self.room);
        if full {
            return None;
        }
        self.entries.push(entry);
        if !entry.has_data() {
            return Some(Slot(0));
        }
        self.data_blocks += 1;
        Some(Slot(self.data_blocks))
    }

    /// Makes the entry of a data block dead. Returns the former entry; `None` if there is no such slot.
    pub fn kill(&mut self, slot: Slot) -> Option<Entry> {
        let nth = usize::try_from(slot.0).ok()?.checked_sub(1)?;
        let entry = self.entries.iter_mut().filter(|entry| entry.has_data()).nth(nth)?;
        Some(std::mem::replace(entry, Entry::Dead))
    }

    /// How many more data blocks fit.
    pub fn room(&self) -> Blocks {
        let entries = (MAX_ENTRIES - self.entries.len().min(MAX_ENTRIES)) as u32;
        Blocks(u64::from(entries.min(self.room - self.data_blocks)))
    }

    /// What it took so far.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// What it took, for [`ChunkHeader::entries`].
    pub fn into_entries(self) -> Vec<Entry> {
        self.entries
    }
}

// A logical block fits into its bits: there are fewer of them than places.
const _: () = assert!(PLACE_BITS <= KIND_SHIFT);
const _: () = assert!(FIRST_ENTRY_AT + MAX_ENTRIES * PACKED_BYTES + REPEAT_BYTES == 4088);

impl Repeat {
    /// The repeat of a chunk at a place of the log.
    pub(in crate::log_store) fn of(header: &ChunkHeader, place: LogBlock) -> Repeat {
        let (runs, is_exact) = fitting(header.entries.iter().map(Entry::blocks).collect());
        Repeat { stream: header.stream, place, blocks: header.blocks(), next: header.next, runs, is_exact }
    }
}
