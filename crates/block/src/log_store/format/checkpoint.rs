//! The header of a checkpoint: where the store was, and where it continues. The first block of a checkpoint area; the
//! [payload](super::Payload) lies behind it, and is written and flushed before it. Checkpoints go to the two areas in
//! turn; the higher number counts.
//!
//! ```text
//! offset  bytes
//!      0      8  magic "UMBLGCKP"
//!      8      4  version, 1
//!     12      4  segments, not more than the superblock says
//!     16     16  uuid of the store
//!     32      8  number of the checkpoint
//!     40      8  sequence number of the next chunk
//!     48      8  clock
//!     56      8  logical blocks, not more than the superblock says
//!     64      8  bytes of the payload
//!     72      4  CRC32C of the payload
//!     76      1  streams without that of the map, as in the superblock
//!     77      1  1 if the store was closed in order, else 0
//!     78      2  reserved
//!     80    192  heads, 12 bytes each, of streams 0 to 15; those that do not exist are zero
//!    272      8  counters: blocks that users wrote
//!    280      8            blocks copied by the cleaner
//!    288      8            map pages written
//!    296      8            headers of chunks written
//!    304      8            blocks read by the cleaner
//!    312      8            segments cleaned
//!    320      8            flushes by users
//!    328      8            blocks discarded
//!    336      8  blocks that are lost, until they are written again
//!    344    164  reserved
//!    508      4  CRC32C of all other bytes of the block
//!    512   3584  reserved
//!
//! head 0      4  open segment, or 0xffffffff
//!      4      4  its first slot that is not written; 0 without an open segment
//!      8      4  segment that follows, or 0xffffffff
//! ```
//!
//! A store that was grown after the checkpoint has more segments and logical blocks than its header says: all free, all
//! never written.

use umbrella_units::ByteSize;
use uuid::Uuid;

use super::area::payload_bytes;
use super::checksum::Checksum;
use super::error::{Field, FormatError, Limit, Structure};
use super::ids::{Blocks, CheckpointNo, Sequence, Slot};
use super::raw::{Block, FieldReader, Writer, check, out_of_range};
use super::shape::Shape;
use super::superblock::Superblock;
use super::{Clock, SegmentNo, Stream, VERSION};

const MAGIC: &[u8; 8] = b"UMBLGCKP";
const CHECKSUM_AT: usize = 508;
const HEADS: usize = 16;
const HEAD_BYTES: usize = 12;
const THIS: Structure = Structure::Checkpoint;

/// The segment that a stream is written to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct OpenSegment {
    /// Which one.
    pub segment: SegmentNo,
    /// The first slot that is not written; the number of a segment's blocks if it is full.
    pub slot: Slot,
}

/// Where a stream continues.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Head {
    /// In this segment, if it has one.
    pub open: Option<OpenSegment>,
    /// And then in this one, if it is chosen.
    pub next: Option<SegmentNo>,
}

/// What the store did since it was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Blocks that users wrote.
    pub user_blocks: u64,
    /// Blocks copied by the cleaner.
    pub copied_blocks: u64,
    /// Map pages written.
    pub map_blocks: u64,
    /// Headers of chunks written.
    pub header_blocks: u64,
    /// Blocks read by the cleaner.
    pub cleaner_reads: u64,
    /// Segments cleaned.
    pub cleaned_segments: u64,
    /// Flushes by users.
    pub flushes: u64,
    /// Blocks discarded.
    pub discarded_blocks: u64,
}

/// Where the store was, and where it continues.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckpointHeader {
    /// The store.
    pub store: Uuid,
    /// The checkpoint with the higher one counts.
    pub number: CheckpointNo,
    /// The number of the first chunk after it.
    pub next_sequence: Sequence,
    /// Blocks that users had written.
    pub clock: Clock,
    /// Segments, logical blocks and streams when it was written.
    pub shape: Shape,
    /// One for each stream, the last for that of the map.
    pub heads: Vec<Head>,
    /// What the store did since it was made.
    pub counters: Counters,
    /// Length and checksum of the payload.
    pub payload: PayloadSum,
    /// Number of lost blocks in the map. Blocks on pages that cannot be used count as well.
    pub lost: u64,
    /// Whether nothing was written after it, and the store was closed in order.
    pub clean: bool,
}

/// Length and checksum of a payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PayloadSum {
    /// Its bytes, without the zeroes behind it.
    pub bytes: ByteSize,
    /// Their checksum.
    pub checksum: Checksum,
}

impl CheckpointHeader {
    /// Whether a block is one of some store, with its checksum right.
    pub(in crate::log_store) fn is_one(bytes: &[u8]) -> bool {
        FieldReader::open(THIS, bytes, MAGIC, CHECKSUM_AT).is_ok()
    }

    /// Of a header whose superblock is lost: the store, its segments, logical blocks, and streams without that of the
    /// map.
    pub(in crate::log_store) fn identity(bytes: &[u8]) -> Option<(Uuid, u32, u64, u8)> {
        let mut fields = FieldReader::open(THIS, bytes, MAGIC, CHECKSUM_AT).ok()?;
        fields.u32().ok()?;
        let (segments, store) = (fields.u32().ok()?, fields.uuid().ok()?);
        fields.bytes(24).ok()?;
        let advertised = fields.u64().ok()?;
        fields.bytes(12).ok()?;
        Some((store, segments, advertised, fields.u8().ok()?))
    }

    /// Reads one.
    pub fn parse(bytes: &[u8], superblock: &Superblock) -> Result<CheckpointHeader, FormatError> {
        let mut fields = FieldReader::open(THIS, bytes, MAGIC, CHECKSUM_AT)?;
        let version = fields.u32()?;
        fields.known(version)?;
        let segments = fields.u32()?;
        let store = fields.uuid()?;
        let (number, next_sequence) = (CheckpointNo(fields.u64()?), Sequence(fields.u64()?));
        let (clock, advertised) = (Clock(fields.u64()?), Blocks(fields.u64()?));
        let payload = PayloadSum { bytes: ByteSize(fields.u64()?), checksum: Checksum(fields.u32()?) };
        let map_stream = Stream(fields.u8()?);
        let clean = match fields.u8()? {
            0 => false,
            1 => true,
            other => return Err(out_of_range(THIS, Field::Clean, u64::from(other), Limit::AtMost(1))),
        };
        fields.reserved(2)?;
        let shape = Shape::checked(THIS, superblock.shape.segment_blocks(), segments, advertised, map_stream)?;
        let heads = parse_heads(&mut fields, shape)?;
        let counters = Counters::parse(&mut fields)?;
        let lost = fields.u64()?;
        fields.finish()?;
        let header =
            CheckpointHeader { store, number, next_sequence, clock, shape, heads, counters, payload, lost, clean };
        header.check(superblock)?;
        Ok(header)
    }

    /// As it is written, a block; an error if it would not be read.
    pub fn encode(&self, superblock: &Superblock) -> Result<Block, FormatError> {
        self.check(superblock)?;
        let mut fields = Writer::new(MAGIC);
        fields.u32(VERSION);
        fields.u32(self.shape.segments());
        fields.uuid(self.store);
        let numbers = [self.number.0, self.next_sequence.0, self.clock.0, self.shape.advertised().0];
        for number in numbers.into_iter().chain([self.payload.bytes.0]) {
            fields.u64(number);
        }
        fields.u32(self.payload.checksum.0);
        fields.u8(self.shape.map_stream().0);
        fields.u8(u8::from(self.clean));
        fields.skip(2);
        for head in &self.heads {
            fields.segment(head.open.map(|open| open.segment));
            fields.u32(head.open.map_or(0, |open| open.slot.0));
            fields.segment(head.next);
        }
        fields.skip(HEADS.saturating_sub(self.heads.len()) * HEAD_BYTES);
        self.counters.numbers().into_iter().chain([self.lost]).for_each(|number| fields.u64(number));
        Ok(fields.seal(CHECKSUM_AT))
    }

    /// Streams with their heads.
    pub fn streams(&self) -> impl Iterator<Item = (Stream, &Head)> {
        self.shape.streams().zip(&self.heads)
    }

    /// Whether it fits together, and to the superblock.
    fn check(&self, superblock: &Superblock) -> Result<(), FormatError> {
        if self.store != superblock.store {
            return Err(FormatError::OtherStore { structure: THIS, found: self.store, expected: superblock.store });
        }
        let (own, whole) = (&self.shape, &superblock.shape);
        let sizes = [
            (Field::SegmentBlocks, own.segment_blocks(), Limit::Exactly(whole.segment_blocks().into())),
            (Field::Segments, own.segments(), Limit::AtMost(whole.segments().into())),
            (Field::Streams, own.map_stream().0.into(), Limit::Exactly(whole.map_stream().0.into())),
        ];
        for (field, value, limit) in sizes {
            check(THIS, field, u64::from(value), limit)?;
        }
        check(THIS, Field::Advertised, own.advertised().0, Limit::AtMost(whole.advertised().0))?;
        check(THIS, Field::PayloadBytes, self.payload.bytes.0, Limit::Exactly(payload_bytes(own).0))?;
        check(THIS, Field::Count, self.lost, Limit::AtMost(own.advertised().0))?;
        check(THIS, Field::Heads, self.heads.len() as u64, Limit::Exactly(own.streams().count() as u64))?;
        let last = Limit::AtMost(u64::from(own.segments()) - 1);
        let mut seen = Vec::new();
        for (stream, head) in self.streams() {
            if let Some(open) = head.open {
                check(THIS, Field::HeadSegment(stream), u64::from(open.segment.0), last)?;
                let slot = Limit::AtMost(u64::from(own.segment_blocks()));
                check(THIS, Field::HeadSlot(stream), u64::from(open.slot.0), slot)?;
            }
            if let Some(next) = head.next {
                check(THIS, Field::HeadNext(stream), u64::from(next.0), last)?;
            }
            for segment in head.open.map(|open| open.segment).into_iter().chain(head.next) {
                if let Some(&(_, first)) = seen.iter().find(|(other, _)| *other == segment) {
                    return Err(FormatError::SharedSegment { segment, first, second: stream });
                }
                seen.push((segment, stream));
            }
        }
        Ok(())
    }
}

impl Counters {
    fn parse(fields: &mut FieldReader<'_>) -> Result<Counters, FormatError> {
        Ok(Counters {
            user_blocks: fields.u64()?,
            copied_blocks: fields.u64()?,
            map_blocks: fields.u64()?,
            header_blocks: fields.u64()?,
            cleaner_reads: fields.u64()?,
            cleaned_segments: fields.u64()?,
            flushes: fields.u64()?,
            discarded_blocks: fields.u64()?,
        })
    }

    fn numbers(&self) -> [u64; 8] {
        [
            self.user_blocks,
            self.copied_blocks,
            self.map_blocks,
            self.header_blocks,
            self.cleaner_reads,
            self.cleaned_segments,
            self.flushes,
            self.discarded_blocks,
        ]
    }
}

fn parse_heads(fields: &mut FieldReader<'_>, shape: Shape) -> Result<Vec<Head>, FormatError> {
    let heads = shape.streams().map(|stream| {
        let (segment, slot, next) = (fields.segment()?, Slot(fields.u32()?), fields.segment()?);
        if segment.is_none() {
            check(THIS, Field::HeadSlot(stream), u64::from(slot.0), Limit::Exactly(0))?;
        }
        Ok(Head { open: segment.map(|segment| OpenSegment { segment, slot }), next })
    });
    let heads = heads.collect::<Result<Vec<Head>, FormatError>>()?;
    fields.reserved(HEADS.saturating_sub(heads.len()) * HEAD_BYTES)?;
    Ok(heads)
}
