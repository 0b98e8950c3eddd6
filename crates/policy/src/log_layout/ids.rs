//! Names of the log's parts.

/// A segment of the log, by its position on the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SegmentNo(pub u32);

/// A block of the log: segment × blocks of a segment + slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogBlock(pub u64);

/// One of the places where the log grows: each has an open segment and a write buffer. The higher, the hotter, where a
/// scheme knows of heat.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stream(pub u8);

/// When a block was last written by the user: the lowest 24 bits of a [`Clock`] in coarse units.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stamp(pub u32);

/// The log's clock: how many blocks the user has written since the store was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Clock(pub u64);

impl Clock {
    /// Blocks written since then.
    pub fn since(self, earlier: Clock) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// How much log there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// How many segments.
    pub segments: u32,
    /// Blocks of a segment: a power of two.
    pub segment_blocks: u32,
}

impl Shape {
    /// The segment that a place lies in.
    pub fn segment(self, place: LogBlock) -> SegmentNo {
        SegmentNo((place.0 >> self.segment_blocks.trailing_zeros()) as u32)
    }

    /// The slot of a place in its segment.
    pub fn slot(self, place: LogBlock) -> u32 {
        place.0 as u32 & (self.segment_blocks - 1)
    }

    /// The place of a slot.
    pub fn place(self, segment: SegmentNo, slot: u32) -> LogBlock {
        LogBlock(u64::from(segment.0) * u64::from(self.segment_blocks) + u64::from(slot))
    }

    /// Blocks in all segments.
    pub fn blocks(self) -> u64 {
        u64::from(self.segments) * u64::from(self.segment_blocks)
    }
}

/// Turns clocks into stamps and back into ages: 24 bits reach over eight rewrites of the whole log before they repeat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamps {
    shift: u32,
}

/// How many different stamps there are.
const STAMPS: u64 = 1 << 24;

impl Stamps {
    /// For a log of that shape.
    pub fn of(shape: Shape) -> Stamps {
        Stamps { shift: (shape.blocks() * 8).div_ceil(STAMPS).next_power_of_two().trailing_zeros() }
    }

    /// For a store on a disk, which may grow: the same as long as its segments have this size. 2 TiB of writes with
    /// segments of 2 MiB before they repeat.
    pub fn of_segments(segment_blocks: u32) -> Stamps {
        Stamps { shift: segment_blocks.trailing_zeros().saturating_sub(4) }
    }

    /// The stamp of now.
    pub fn stamp(self, now: Clock) -> Stamp {
        Stamp(((now.0 >> self.shift) % STAMPS) as u32)
    }

    /// The latest clock not after `now` that has this stamp.
    pub fn clock(self, stamp: Stamp, now: Clock) -> Clock {
        let units = now.0 >> self.shift;
        let ago = units.wrapping_sub(u64::from(stamp.0)) % STAMPS;
        Clock(units.saturating_sub(ago) << self.shift)
    }
}
