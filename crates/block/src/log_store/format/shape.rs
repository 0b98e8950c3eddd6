//! The numbers that all of a store is measured by.

use umbrella_units::BlockNo;

use super::error::{Field, FormatError, Limit, Structure};
use super::ids::{Blocks, MapPageNo, Slot};
use super::raw::check;
use super::{LogBlock, PAGE_ENTRIES, PLACE_BITS, SegmentNo, Stream};

/// The smallest and the largest segment, in blocks.
const SEGMENT_BLOCKS: Limit = Limit::PowerOfTwo(16, 65_536);
/// The most streams without that of the map.
const MOST_STREAMS: u64 = 15;

/// How many segments of how many blocks, how many logical blocks, how many streams: always possible ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    segment_blocks: u32,
    segments: u32,
    advertised: u64,
    map_stream: Stream,
}

impl Shape {
    /// `segments` segments of `segment_blocks` blocks, `advertised` logical blocks, and streams 0 to `map_stream`, the
    /// last that of the map.
    pub fn new(
        segment_blocks: u32,
        segments: u32,
        advertised: Blocks,
        map_stream: Stream,
    ) -> Result<Shape, FormatError> {
        Shape::checked(Structure::Superblock, segment_blocks, segments, advertised, map_stream)
    }

    pub(super) fn checked(
        structure: Structure,
        segment_blocks: u32,
        segments: u32,
        advertised: Blocks,
        map_stream: Stream,
    ) -> Result<Shape, FormatError> {
        check(structure, Field::SegmentBlocks, u64::from(segment_blocks), SEGMENT_BLOCKS)?;
        check(structure, Field::Segments, u64::from(segments), Limit::AtLeast(1))?;
        let places = u64::from(segments) * u64::from(segment_blocks);
        check(structure, Field::Places, places, Limit::AtMost((1 << PLACE_BITS) - 1))?;
        check(structure, Field::Advertised, advertised.0, Limit::AtLeast(1))?;
        check(structure, Field::Advertised, advertised.0, Limit::AtMost(places))?;
        check(structure, Field::Streams, u64::from(map_stream.0), Limit::AtLeast(1))?;
        check(structure, Field::Streams, u64::from(map_stream.0), Limit::AtMost(MOST_STREAMS))?;
        Ok(Shape { segment_blocks, segments, advertised: advertised.0, map_stream })
    }

    /// Blocks of a segment: a power of two.
    pub fn segment_blocks(&self) -> u32 {
        self.segment_blocks
    }

    /// How many segments there are.
    pub fn segments(&self) -> u32 {
        self.segments
    }

    /// How many logical blocks there are.
    pub fn advertised(&self) -> Blocks {
        Blocks(self.advertised)
    }

    /// The stream of map pages: the last one.
    pub fn map_stream(&self) -> Stream {
        self.map_stream
    }

    /// All streams, that of the map too.
    pub fn streams(&self) -> impl Iterator<Item = Stream> + use<> {
        (0..=self.map_stream.0).map(Stream)
    }

    /// Blocks of all segments; places are below it.
    pub fn places(&self) -> Blocks {
        Blocks(u64::from(self.segments) * u64::from(self.segment_blocks))
    }

    /// How many map pages there are.
    pub fn map_pages(&self) -> Blocks {
        Blocks(self.advertised.div_ceil(PAGE_ENTRIES))
    }

    /// The map page that has a logical block.
    pub fn map_page_of(&self, block: BlockNo) -> MapPageNo {
        MapPageNo(block.0 / PAGE_ENTRIES)
    }

    /// The block of a segment at a slot. Both must exist.
    pub fn place(&self, segment: SegmentNo, slot: Slot) -> LogBlock {
        LogBlock(u64::from(segment.0) * u64::from(self.segment_blocks) + u64::from(slot.0))
    }

    /// The segment of a place that exists.
    pub fn segment_of(&self, place: LogBlock) -> SegmentNo {
        SegmentNo((place.0 >> self.segment_blocks.trailing_zeros()) as u32)
    }

    /// The position of a place in its segment.
    pub fn slot_of(&self, place: LogBlock) -> Slot {
        Slot((place.0 & u64::from(self.segment_blocks - 1)) as u32)
    }
}
