//! The superblock: what the store is, and where everything lies. Two copies, at blocks 0 and 256, written and flushed
//! one after the other.
//!
//! ```text
//! offset  bytes
//!      0      8  magic "UMBLGSUP"
//!      8      4  version, 1
//!     12      4  compatible features: none in version 1
//!     16      4  incompatible features: bit 0, chunks may have marks of flushes; bit 1, chunks repeat the one before,
//!                and blocks may be lost; bit 2, a loss was not reported yet
//!     20      4  bytes of a block, 4096
//!     24      8  generation: grows with each superblock written
//!     32     16  uuid of the store
//!     48      8  created, seconds since 1970
//!     56      4  blocks of a segment: a power of two, 16 to 65536
//!     60      4  segments
//!     64      8  block of the device where segment 0 begins, 257 or more
//!     72      8  logical blocks
//!     80      4  checkpoint area 0: first segment
//!     84      4                     segments
//!     88      4  checkpoint area 1: first segment
//!     92      4                     segments
//!     96      1  streams without that of the map, 1 to 15
//!     97      1  reserved
//!     98      2  bytes of the placement scheme, 0 to 256
//!    100    256  the placement scheme, UTF-8, filled with zeroes
//!    356    152  reserved
//!    508      4  CRC32C of all other bytes of the block
//!    512   3584  the loss that was not reported yet ([`PendingLoss`](super::PendingLoss)); reserved if there is none
//! ```

use std::fmt;

use thiserror::Error;
use umbrella_units::{BlockNo, Lba};
use uuid::Uuid;

use super::area::area_segments;
use super::error::{Field, FormatError, Limit, Structure};
use super::ids::Blocks;
use super::pending_loss::PendingLoss;
use super::raw::{Block, FieldReader, Writer, check, out_of_range};
use super::shape::Shape;
use super::{BLOCK_BYTES, LogBlock, SegmentNo, Stream, VERSION};

const MAGIC: &[u8; 8] = b"UMBLGSUP";
const CHECKSUM_AT: usize = 508;
const SCHEME_BYTES: usize = 256;
const SCHEME_AT: u64 = 100;
const THIS: Structure = Structure::Superblock;

/// Counts superblocks written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Generation(pub u64);

impl Generation {
    /// The generation of the next superblock.
    pub(in crate::log_store) fn next(self) -> Generation {
        Generation(self.0.saturating_add(1))
    }
}

/// Compatible features, a bit each. Version 1 has none; those of later programs are kept.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Compat(pub u32);

/// Incompatible features, a bit each: a program that does not know one must not touch the store.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Incompat(u32);

impl Incompat {
    /// Chunks may say how far the log was flushed. Stores that were made before do not have it.
    pub const MARKS: Incompat = Incompat(1);
    /// Chunks repeat what the one before held, and blocks of the map may be lost. Stores that were made before do not
    /// have it.
    pub const REPEATS: Incompat = Incompat(2);
    /// A loss was not reported yet: set where [`Superblock::pending_loss`] is.
    const PENDING_LOSS: Incompat = Incompat(4);
    /// The features of the stores that this program makes.
    pub const ALL: Incompat = Incompat(Incompat::MARKS.0 | Incompat::REPEATS.0);

    /// Whether it has all of `other`.
    pub fn has(self, other: Incompat) -> bool {
        self.0 & other.0 == other.0
    }
}

/// A time in seconds since 1970-01-01 00:00 UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnixSeconds(pub u64);

/// How blocks are placed, as `name:param=value`; at most 256 bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scheme(String);

/// Segments that checkpoints are written to, one behind the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Area {
    /// The first one.
    pub first: SegmentNo,
    /// How many.
    pub segments: u32,
}

/// What the store is, and where everything lies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Superblock {
    /// Compatible features, those that are unknown here too.
    pub compat: Compat,
    /// Incompatible ones.
    pub incompat: Incompat,
    /// The copy with the higher one counts.
    pub generation: Generation,
    /// This store.
    pub store: Uuid,
    /// When it was made.
    pub created: UnixSeconds,
    /// Its segments, logical blocks and streams.
    pub shape: Shape,
    /// The block of the device where segment 0 begins.
    pub first: BlockNo,
    /// Where checkpoints are written, in turn.
    pub areas: [Area; 2],
    /// How blocks are placed.
    pub scheme: Scheme,
    /// The loss that no opening has reported yet.
    pub pending_loss: Option<PendingLoss>,
}

/// The superblock that counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chosen {
    /// It.
    pub superblock: Superblock,
    /// The block of the other copy, if that is damaged or older: it is to be written anew.
    pub repair: Option<BlockNo>,
}

/// No superblock, or no telling which one counts.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ChooseError {
    /// There never was a store.
    #[error("no log store is on this device: it has no superblock")]
    Foreign,
    /// Both copies are damaged.
    #[error("both copies of the superblock are damaged (first: {first}; second: {second})")]
    Damaged {
        /// The error in the first copy.
        first: FormatError,
        /// And with the second.
        second: FormatError,
    },
    /// A copy is whole, and says that the store cannot be used like this. The other one is older, or says the same.
    #[error("{}{source}", prefix(*copy, source))]
    Unusable {
        /// Which one: 0 or 1.
        copy: u8,
        /// Why.
        source: FormatError,
    },
    /// The copies are of different stores.
    #[error("the copies of the superblock are of two stores, {first} and {second}: one was copied over the other")]
    TwoStores {
        /// The store of the first copy.
        first: Uuid,
        /// The id in the second copy.
        second: Uuid,
    },
    /// Both copies claim to be the newest, and differ.
    #[error("the copies of the superblock differ, and both have generation {}", generation.0)]
    Contradiction {
        /// The generation of both.
        generation: Generation,
    },
}

impl Scheme {
    /// That text, if it is short enough.
    pub fn new(text: &str) -> Result<Scheme, FormatError> {
        check(THIS, Field::SchemeLength, text.len() as u64, Limit::AtMost(SCHEME_BYTES as u64))?;
        Ok(Scheme(text.to_owned()))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Area {
    /// The segment behind the last one, as a number that cannot overflow.
    fn end(self) -> u64 {
        u64::from(self.first.0) + u64::from(self.segments)
    }

    /// Whether the segment is one of them.
    pub fn has(self, segment: SegmentNo) -> bool {
        segment >= self.first && u64::from(segment.0) < self.end()
    }
}

/// Which copy it is about; that a device is too small is about all of it.
fn prefix(copy: u8, source: &FormatError) -> String {
    match source {
        FormatError::DeviceTooSmall { .. } => String::new(),
        _ => format!("copy {copy} of the superblock: "),
    }
}

impl Superblock {
    /// Where the copies lie.
    pub const COPIES: [BlockNo; 2] = [BlockNo(0), BlockNo(256)];

    /// Reads one from a block of a device of `capacity` sectors.
    pub fn parse(bytes: &[u8], capacity: Lba) -> Result<Superblock, FormatError> {
        let mut fields = FieldReader::open(THIS, bytes, MAGIC, CHECKSUM_AT)?;
        let version = fields.u32()?;
        fields.known(version)?;
        let (compat, incompat) = (Compat(fields.u32()?), fields.u32()?);
        let unknown = incompat & !(Incompat::ALL.0 | Incompat::PENDING_LOSS.0);
        if unknown != 0 {
            return Err(FormatError::UnknownFeatures { structure: THIS, flags: unknown });
        }
        let has_pending_loss = Incompat(incompat).has(Incompat::PENDING_LOSS);
        let incompat = Incompat(incompat & Incompat::ALL.0);
        let block_bytes = fields.u32()?;
        check(THIS, Field::BlockBytes, u64::from(block_bytes), Limit::Exactly(BLOCK_BYTES as u64))?;
        let (generation, store, created) = (Generation(fields.u64()?), fields.uuid()?, UnixSeconds(fields.u64()?));
        let (segment_blocks, segments) = (fields.u32()?, fields.u32()?);
        let (first, advertised) = (BlockNo(fields.u64()?), Blocks(fields.u64()?));
        let areas = [parse_area(&mut fields)?, parse_area(&mut fields)?];
        let map_stream = Stream(fields.u8()?);
        fields.reserved(1)?;
        let scheme = parse_scheme(&mut fields)?;
        let fields = fields.behind_checksum()?;
        let pending_loss = if has_pending_loss {
            Some(PendingLoss::parse(fields)?)
        } else {
            fields.finish()?;
            None
        };
        let shape = Shape::new(segment_blocks, segments, advertised, map_stream)?;
        let superblock =
            Superblock { compat, incompat, generation, store, created, shape, first, areas, scheme, pending_loss };
        superblock.check()?;
        superblock.check_capacity(capacity)?;
        Ok(superblock)
    }

    /// As it is written, a block; an error if it would not be read.
    pub fn encode(&self) -> Result<Block, FormatError> {
        self.check()?;
        let mut fields = Writer::new(MAGIC);
        fields.u32(VERSION);
        fields.u32(self.compat.0);
        let pending = self.pending_loss.as_ref().map_or(0, |_| Incompat::PENDING_LOSS.0);
        fields.u32(self.incompat.0 | pending);
        fields.u32(BLOCK_BYTES as u32);
        fields.u64(self.generation.0);
        fields.uuid(self.store);
        fields.u64(self.created.0);
        fields.u32(self.shape.segment_blocks());
        fields.u32(self.shape.segments());
        fields.u64(self.first.0);
        fields.u64(self.shape.advertised().0);
        for area in self.areas {
            fields.u32(area.first.0);
            fields.u32(area.segments);
        }
        fields.u8(self.shape.map_stream().0);
        fields.skip(1);
        fields.u16(self.scheme.0.len() as u16);
        fields.bytes(self.scheme.0.as_bytes());
        fields.behind_checksum(CHECKSUM_AT);
        if let Some(loss) = &self.pending_loss {
            loss.encode(&mut fields);
        }
        Ok(fields.seal(CHECKSUM_AT))
    }

    /// Whether all of it fits together, on a device that is large enough.
    pub fn check(&self) -> Result<(), FormatError> {
        let shape = &self.shape;
        let [_, last_copy] = Superblock::COPIES;
        check(THIS, Field::FirstBlock, self.first.0, Limit::AtLeast(last_copy.0 + 1))?;
        let most = u64::MAX / BLOCK_BYTES as u64 - shape.places().0;
        check(THIS, Field::FirstBlock, self.first.0, Limit::AtMost(most))?;
        let needed = area_segments(shape);
        for (number, area) in (0..).zip(self.areas) {
            check(THIS, Field::AreaSegments(number), u64::from(area.segments), Limit::AtLeast(needed))?;
            check(THIS, Field::Area(number), area.end(), Limit::AtMost(u64::from(shape.segments())))?;
        }
        let [a, b] = self.areas;
        let later = a.first.max(b.first);
        if a.has(later) && b.has(later) {
            return Err(FormatError::AreasOverlap { segment: later });
        }
        // Each log segment begins with the header of a chunk.
        let system = u64::from(a.segments) + u64::from(b.segments);
        let log = u64::from(shape.segments()).saturating_sub(system);
        let room = log * u64::from(shape.segment_blocks() - 1);
        check(THIS, Field::Advertised, shape.advertised().0, Limit::AtMost(room))?;
        self.pending_loss.as_ref().map_or(Ok(()), |loss| loss.check(shape.advertised().0))
    }

    /// Whether a device of `capacity` sectors has all segments.
    pub fn check_capacity(&self, capacity: Lba) -> Result<(), FormatError> {
        let (needed, present) = (self.end(), capacity.block());
        if needed > present { Err(FormatError::DeviceTooSmall { needed, present }) } else { Ok(()) }
    }

    /// The block of the device behind the last segment.
    pub fn end(&self) -> BlockNo {
        self.device_block(LogBlock(self.shape.places().0))
    }

    /// The place where a segment begins.
    pub(in crate::log_store) fn first_place(&self, segment: SegmentNo) -> LogBlock {
        LogBlock(u64::from(segment.0) * u64::from(self.shape.segment_blocks()))
    }

    /// Where on the device a block of the log lies.
    pub fn device_block(&self, place: LogBlock) -> BlockNo {
        BlockNo(self.first.0.saturating_add(place.0))
    }

    /// Whether the segment belongs to a checkpoint area.
    pub fn is_system(&self, segment: SegmentNo) -> bool {
        self.areas.iter().any(|area| area.has(segment))
    }
}

fn parse_area(fields: &mut FieldReader<'_>) -> Result<Area, FormatError> {
    Ok(Area { first: SegmentNo(fields.u32()?), segments: fields.u32()? })
}

fn parse_scheme(fields: &mut FieldReader<'_>) -> Result<Scheme, FormatError> {
    let len = usize::from(fields.u16()?);
    let Some(rest) = SCHEME_BYTES.checked_sub(len) else {
        let limit = Limit::AtMost(SCHEME_BYTES as u64);
        return Err(out_of_range(THIS, Field::SchemeLength, len as u64, limit));
    };
    let text = std::str::from_utf8(fields.bytes(len)?);
    let text = text.map_err(|error| {
        let offset = SCHEME_AT + error.valid_up_to() as u64;
        FormatError::NotText { structure: THIS, offset }
    })?;
    fields.reserved(rest)?;
    Scheme::new(text)
}

/// The superblock that counts, of the copies at [`Superblock::COPIES`].
///
/// A damaged copy is passed over. One that is whole but cannot be used (newer version, device too small) is not: the
/// other one is older.
pub fn choose(
    first: Result<Superblock, FormatError>,
    second: Result<Superblock, FormatError>,
) -> Result<Chosen, ChooseError> {
    for (copy, result) in (0..).zip([&first, &second]) {
        if let Err(source) = result
            && !source.is_damage()
        {
            return Err(ChooseError::Unusable { copy, source: *source });
        }
    }
    let [block_of_first, block_of_second] = Superblock::COPIES;
    let (first, second) = match (first, second) {
        (Ok(first), Ok(second)) => (first, second),
        (Ok(superblock), Err(_)) => return Ok(Chosen { superblock, repair: Some(block_of_second) }),
        (Err(_), Ok(superblock)) => return Ok(Chosen { superblock, repair: Some(block_of_first) }),
        (Err(FormatError::Foreign { .. }), Err(FormatError::Foreign { .. })) => return Err(ChooseError::Foreign),
        (Err(first), Err(second)) => return Err(ChooseError::Damaged { first, second }),
    };
    if first.store != second.store {
        return Err(ChooseError::TwoStores { first: first.store, second: second.store });
    }
    match first.generation.cmp(&second.generation) {
        std::cmp::Ordering::Greater => Ok(Chosen { superblock: first, repair: Some(block_of_second) }),
        std::cmp::Ordering::Less => Ok(Chosen { superblock: second, repair: Some(block_of_first) }),
        std::cmp::Ordering::Equal if first == second => Ok(Chosen { superblock: first, repair: None }),
        std::cmp::Ordering::Equal => Err(ChooseError::Contradiction { generation: first.generation }),
    }
}
