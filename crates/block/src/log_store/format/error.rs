//! Why bytes are not the structure that they should be.

use std::fmt;

use thiserror::Error;
use umbrella_units::{BlockNo, ByteSize};
use uuid::Uuid;

use super::checksum::Checksum;
use super::ids::{MapPageNo, SegmentState, Slot};
use super::{BLOCK_BYTES, LogBlock, SegmentNo, Stream};

/// What bytes were taken for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Structure {
    /// A copy of the superblock.
    Superblock,
    /// The header of a checkpoint.
    Checkpoint,
    /// Map index and segment table of a checkpoint.
    Payload,
    /// The header of a chunk.
    Chunk,
    /// The blocks behind the header of a chunk.
    ChunkData,
    /// A map page.
    MapPage,
}

/// A field of a structure; those of a list also name the item.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Field {
    /// Version.
    Version,
    /// Bytes of a block.
    BlockBytes,
    /// Blocks of a segment.
    SegmentBlocks,
    /// Number of segments.
    Segments,
    /// Blocks of all segments together.
    Places,
    /// Where segment 0 begins.
    FirstBlock,
    /// Logical blocks that users see.
    Advertised,
    /// Number of streams.
    Streams,
    /// Segment where a checkpoint area begins, or ends.
    Area(u8),
    /// Segments of a checkpoint area.
    AreaSegments(u8),
    /// Bytes of the placement scheme's text.
    SchemeLength,
    /// Bytes of a checkpoint's payload.
    PayloadBytes,
    /// Whether the store was closed in order.
    Clean,
    /// Something that is counted since the store was made: checkpoints, chunks, blocks.
    Count,
    /// A loss that was not reported yet.
    PendingLoss,
    /// Number of heads.
    Heads,
    /// Open segment of a stream.
    HeadSegment(Stream),
    /// Next free slot of a stream's open segment.
    HeadSlot(Stream),
    /// Segment that a stream continues in.
    HeadNext(Stream),
    /// Place of a map page plus one in the map index.
    MapIndex(MapPageNo),
    /// State of a segment.
    State(SegmentNo),
    /// Stream of a segment.
    SegmentStream(SegmentNo),
    /// Reserved bytes in the row of a segment.
    SegmentReserved(SegmentNo),
    /// Live blocks of a segment.
    Live(SegmentNo),
    /// Stream of a chunk.
    Stream,
    /// Where a chunk lies.
    ChunkPlace,
    /// Segment that follows a chunk's.
    NextSegment,
    /// Number of entries of a chunk.
    Entries,
    /// Blocks of data of a chunk.
    DataBlocks,
    /// Kind of a chunk's entry.
    Kind(u16),
    /// Logical block of an entry, or map page, or the end of a range of blocks.
    EntryBlock(u16),
    /// Checksum of an entry that has no data.
    EntryChecksum(u16),
    /// Value of an entry.
    EntryValue(u16),
    /// What a chunk repeats of the one before it.
    Repeat,
    /// A place.
    Place,
    /// Place plus one in an entry of a map page.
    MapPlace(u16),
    /// Number of a map page.
    MapPage,
    /// A stamp.
    Stamp,
}

/// What a field may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Limit {
    /// Not more.
    AtMost(u64),
    /// Not less.
    AtLeast(u64),
    /// This and nothing else.
    Exactly(u64),
    /// Anything but this.
    Not(u64),
    /// A power of two from the first to the second.
    PowerOfTwo(u64, u64),
}

fn bytes(blocks: BlockNo) -> ByteSize {
    ByteSize(blocks.0.saturating_mul(BLOCK_BYTES as u64))
}

/// Why bytes are not the structure that they should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum FormatError {
    /// It could not be read: what the caller says of a copy that the device did not give.
    #[error("the {structure} cannot be read")]
    Unreadable {
        /// What was to be read.
        structure: Structure,
    },
    /// A later write of it is known, and is not there.
    #[error("the {structure} is older than the log: the disk has lost a write of it")]
    NotWritten {
        /// What was to be written.
        structure: Structure,
    },
    /// Too few bytes.
    #[error("the {structure} is cut off: {} of {} bytes", present.0, needed.0)]
    Truncated {
        /// What they were taken for.
        structure: Structure,
        /// How many it has.
        needed: ByteSize,
        /// How many there are.
        present: ByteSize,
    },
    /// Other magic: never written, or overwritten.
    #[error("no {structure}: the magic number is missing")]
    Foreign {
        /// What was looked for.
        structure: Structure,
    },
    /// A later program wrote it.
    #[error("the {structure} has version {found}, this program knows version {known}; use a newer one")]
    NewerVersion {
        /// What it is.
        structure: Structure,
        /// Its version.
        found: u32,
        /// The version known here.
        known: u32,
    },
    /// A later program wrote it, and this one would do damage.
    #[error("the {structure} has features that this program does not know (flags {flags:#x}); use a newer one")]
    UnknownFeatures {
        /// What it is.
        structure: Structure,
        /// The unknown ones.
        flags: u32,
    },
    /// It is not what was written.
    #[error("the checksum of the {structure} is wrong ({stored}, its bytes give {computed})")]
    Checksum {
        /// What is damaged.
        structure: Structure,
        /// What it says.
        stored: Checksum,
        /// What its bytes give.
        computed: Checksum,
    },
    /// Data of a chunk is not what was written.
    #[error("the checksum of entry {entry} of the chunk is wrong ({stored}, the block gives {computed})")]
    DataChecksum {
        /// Which entry.
        entry: u16,
        /// Its block, counted from the header on.
        slot: Slot,
        /// What the header says.
        stored: Checksum,
        /// What the block gives.
        computed: Checksum,
    },
    /// A number that makes no sense.
    #[error("{structure}: {field} is {value}, must be {limit}")]
    OutOfRange {
        /// Where.
        structure: Structure,
        /// Which one.
        field: Field,
        /// What it is.
        value: u64,
        /// What it may be.
        limit: Limit,
    },
    /// A reserved byte is used.
    #[error("{structure}: the reserved byte {offset} is not zero")]
    Reserved {
        /// Where.
        structure: Structure,
        /// The first one, from the beginning of the structure.
        offset: u64,
    },
    /// Text that is not UTF-8.
    #[error("{structure}: the text is not UTF-8 from byte {offset} on")]
    NotText {
        /// Where.
        structure: Structure,
        /// From the beginning of the structure.
        offset: u64,
    },
    /// It belongs to another store.
    #[error("the {structure} belongs to the store {found}, not to {expected}")]
    OtherStore {
        /// What it is.
        structure: Structure,
        /// Whose it is.
        found: Uuid,
        /// Whose it should be.
        expected: Uuid,
    },
    /// The device ends before the store does.
    #[error(
        "the device has {}, the store needs {}: copy it to a larger device. If a file was cut off, `truncate -s {} COPY` lets you open the rest, if that is more than half",
        bytes(*present).told_apart(bytes(*needed))[0], bytes(*present).told_apart(bytes(*needed))[1], bytes(*needed).0
    )]
    DeviceTooSmall {
        /// Blocks up to the end of the last segment.
        needed: BlockNo,
        /// Blocks of the device.
        present: BlockNo,
    },
    /// The two checkpoint areas have a segment in common.
    #[error("the checkpoint areas overlap in segment {}", segment.0)]
    AreasOverlap {
        /// The first one.
        segment: SegmentNo,
    },
    /// Two heads, or both ends of one, in the same segment.
    #[error("segment {} belongs to the heads of two streams, {} and {}", segment.0, first.0, second.0)]
    SharedSegment {
        /// Which one.
        segment: SegmentNo,
        /// One of them.
        first: Stream,
        /// The other, possibly the same.
        second: Stream,
    },
    /// Head and segment table disagree.
    #[error("segment {} is {found} in the segment table, and {expected} by heads and checkpoint areas", segment.0)]
    SegmentMismatch {
        /// Which one.
        segment: SegmentNo,
        /// What the table says.
        found: SegmentState,
        /// What it must be.
        expected: SegmentState,
    },
    /// An open or next segment of no head.
    #[error("segment {} is {state}, and no head has it", segment.0)]
    NoHead {
        /// Which one.
        segment: SegmentNo,
        /// What the table says.
        state: SegmentState,
    },
    /// A map page lies where nothing is.
    #[error("map page {} lies at {}, in a segment that is {state} and holds nothing there", page.0, place.0)]
    NothingThere {
        /// Which page.
        page: MapPageNo,
        /// Where the map index says it is.
        place: LogBlock,
        /// What the segment is.
        state: SegmentState,
    },
}

impl FormatError {
    /// Whether there is no telling what it was; otherwise its checksum is right, and what it says counts.
    pub fn is_damage(&self) -> bool {
        matches!(
            self,
            FormatError::Unreadable { .. }
                | FormatError::Truncated { .. }
                | FormatError::Foreign { .. }
                | FormatError::Checksum { .. }
        )
    }
}

impl fmt::Display for Structure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Structure::Superblock => "superblock",
            Structure::Checkpoint => "checkpoint header",
            Structure::Payload => "checkpoint payload",
            Structure::Chunk => "chunk header",
            Structure::ChunkData => "chunk data",
            Structure::MapPage => "map page",
        })
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Field::Version => f.write_str("version"),
            Field::BlockBytes => f.write_str("bytes of a block"),
            Field::SegmentBlocks => f.write_str("blocks of a segment"),
            Field::Segments => f.write_str("number of segments"),
            Field::Places => f.write_str("blocks of all segments"),
            Field::FirstBlock => f.write_str("block of segment 0"),
            Field::Advertised => f.write_str("number of logical blocks"),
            Field::Streams => f.write_str("number of streams"),
            Field::Area(area) => write!(f, "a segment of checkpoint area {area}"),
            Field::AreaSegments(area) => write!(f, "segments of checkpoint area {area}"),
            Field::SchemeLength => f.write_str("bytes of the placement scheme"),
            Field::PayloadBytes => f.write_str("bytes of the payload"),
            Field::Clean => f.write_str("clean flag"),
            Field::Count => f.write_str("a counter"),
            Field::PendingLoss => f.write_str("loss not yet reported"),
            Field::Heads => f.write_str("number of heads"),
            Field::HeadSegment(stream) => write!(f, "open segment of stream {}", stream.0),
            Field::HeadSlot(stream) => write!(f, "slot of stream {}", stream.0),
            Field::HeadNext(stream) => write!(f, "next segment of stream {}", stream.0),
            Field::MapIndex(page) => write!(f, "place plus one of map page {}", page.0),
            Field::State(segment) => write!(f, "state of segment {}", segment.0),
            Field::SegmentStream(segment) => write!(f, "stream of segment {}", segment.0),
            Field::SegmentReserved(segment) => write!(f, "a reserved byte of segment {}", segment.0),
            Field::Live(segment) => write!(f, "live blocks of segment {}", segment.0),
            Field::Stream => f.write_str("stream"),
            Field::ChunkPlace => f.write_str("place of the chunk"),
            Field::NextSegment => f.write_str("next segment"),
            Field::Entries => f.write_str("number of entries"),
            Field::DataBlocks => f.write_str("number of data blocks"),
            Field::Kind(entry) => write!(f, "kind of entry {entry}"),
            Field::EntryBlock(entry) => write!(f, "block of entry {entry}"),
            Field::EntryChecksum(entry) => write!(f, "checksum of entry {entry}"),
            Field::EntryValue(entry) => write!(f, "value of entry {entry}"),
            Field::Repeat => f.write_str("what it repeats of the previous chunk"),
            Field::Place => f.write_str("place"),
            Field::MapPlace(entry) => write!(f, "place plus one in entry {entry}"),
            Field::MapPage => f.write_str("number of the map page"),
            Field::Stamp => f.write_str("stamp"),
        }
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Limit::AtMost(limit) => write!(f, "at most {limit}"),
            Limit::AtLeast(limit) => write!(f, "at least {limit}"),
            Limit::Exactly(limit) => write!(f, "{limit}"),
            Limit::Not(limit) => write!(f, "anything but {limit}"),
            Limit::PowerOfTwo(least, most) => write!(f, "a power of two from {least} to {most}"),
        }
    }
}
