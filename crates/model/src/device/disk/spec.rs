//! What describes a rotating disk: the figures of a data sheet, from which everything else is computed.

use umbrella_units::{ByteSize, Nanos};

use super::measured::Measured;

/// Seek times of a data sheet, settling included, command overhead not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SeekTimes {
    /// To the next cylinder.
    pub track_to_track: Nanos,
    /// The mean over random pairs of cylinders.
    pub average: Nanos,
    /// From the first cylinder to the last.
    pub full_stroke: Nanos,
}

/// Bytes a second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rate(pub u64);

impl Rate {
    /// A rate in million bytes a second.
    pub const fn from_mb(megabytes: u64) -> Rate {
        Rate(megabytes * 1_000_000)
    }
}

/// A rotating disk.
#[derive(Debug, Clone, PartialEq)]
pub struct DiskSpec {
    /// All of it.
    pub capacity: ByteSize,
    /// Turns a minute.
    pub rpm: u32,
    /// Surfaces that hold data.
    pub heads: u32,
    /// Bands of cylinders with the same number of sectors on each track.
    pub zones: u32,
    /// Sustained rate at the outer edge (track switches included), where address 0 is.
    pub outer_rate: Rate,
    /// Sustained rate at the inner edge.
    pub inner_rate: Rate,
    /// Seeks before a read.
    pub read_seek: SeekTimes,
    /// Seeks before a write, which settle more carefully.
    pub write_seek: SeekTimes,
    /// From the end of a track to the next one, on another surface of the same cylinder (head skew).
    pub head_switch: Nanos,
    /// From the last track of a cylinder to the first one of the next (cylinder skew).
    pub cylinder_switch: Nanos,
    /// From a command's arrival to the first thing done for it.
    pub overhead: Nanos,
    /// What the interface carries.
    pub interface: Rate,
    /// The buffer.
    pub cache: ByteSize,
    /// Read streams that the buffer follows at once.
    pub read_segments: u32,
    /// Runs of sectors that the buffer keeps to be written, regardless of their size.
    pub write_runs: u32,
    /// Whether a write completes in the buffer.
    pub write_cache: bool,
    /// Commands that it takes at once.
    pub queue_depth: u32,
    /// A command that waited this long is served next, wherever it is.
    pub age_limit: Nanos,
    /// What was measured; it goes before what is computed from the figures above.
    pub measured: Measured,
}
