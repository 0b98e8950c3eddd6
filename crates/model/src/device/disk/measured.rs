//! What was measured of a drive beyond a data sheet. Each part is an option: without it the model computes what the
//! data sheet says.

use serde::{Deserialize, Serialize};
use umbrella_units::Nanos;

use super::layout::SectorLayout;

/// What was measured of a drive; by default nothing.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Measured {
    /// Where its sectors lie.
    pub layout: Option<SectorLayout>,
    /// Seek times before a read: distances in cylinders, rising, and their times. Between them the time is on a line.
    pub seeks: Option<Box<[(u32, Nanos)]>>,
    /// How much longer settling for a write takes than for a read, in nanoseconds, after a seek as after a head switch.
    pub write_settle: i64,
    /// Whether the heads settle again on the cylinder where they are, because reading and writing elements are not at
    /// the same place. That takes as long as a head switch before a write. Before a read that follows a write, it takes
    /// as long as a seek to the next cylinder.
    pub settles_again: bool,
    /// The times of commands and the bus.
    pub commands: Option<CommandTimes>,
    /// The rules of the buffer.
    pub buffer: Option<BufferRules>,
}

/// A time that depends on what the command before was.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CommandGaps {
    /// After a read.
    pub read: Nanos,
    /// After a write.
    pub write: Nanos,
}

/// What a command takes apart from moving the heads and passing over the sectors.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CommandTimes {
    /// Until data flows, for a read from the buffer.
    pub read_hit: CommandGaps,
    /// Until the heads move, for a read from the media.
    pub read_miss: CommandGaps,
    /// Until data flows, for a write that completes in the buffer.
    pub write_hit: CommandGaps,
    /// Until the heads may move, for a write that completes on the media.
    pub write_miss: CommandGaps,
    /// What a write's heads wait longer than that.
    pub write_seek_delay: Nanos,
    /// From then on until the media is written at the earliest, unless the write continues the command before.
    pub write_positioning: Nanos,
    /// Before the data of a read flows from the buffer.
    pub read_prepare: Nanos,
    /// The same where data had to come from the media; beside the media's work.
    pub read_resume: Nanos,
    /// Before the data of a write flows.
    pub write_prepare: Nanos,
    /// Behind a read's data.
    pub read_done: Nanos,
    /// Behind a write's data.
    pub write_done: Nanos,
    /// A sector on the bus, to the host.
    pub read_sector: Nanos,
    /// A sector on the bus, from the host.
    pub write_sector: Nanos,
    /// How much of a read is in the buffer before it goes over the bus, in thousandths of the request: whole sectors,
    /// at least one.
    ///
    /// Source: DiskSim 4.0 reference manual, "High (read) water mark". That it is rounded down is what DiskSim does.
    pub read_share: u16,
    /// What is different for a write that leaves the bus once more.
    pub extra_disconnect: Option<ExtraDisconnect>,
}

/// A write that leaves the bus between its command and its data. Each time replaces that of another write.
///
/// Such a drive does so when a write follows a write that it does not continue. Source: DiskSim 4.0 reference manual,
/// "Extra write disconnect". The manual does not say when; DiskSim checks whether the segment of writes was used last.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ExtraDisconnect {
    /// In place of `write_miss`.
    pub overhead: Nanos,
    /// In place of `write_seek_delay`.
    pub seek_delay: Nanos,
    /// In place of `write_prepare`.
    pub prepare: Nanos,
    /// In place of `write_done`.
    pub done: Nanos,
}

/// How far the heads read on behind a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReadAheadTo {
    /// Not at all.
    Nowhere,
    /// To the end of the track.
    TrackEnd,
    /// To the end of the cylinder.
    CylinderEnd,
    /// Until the segment is full.
    SegmentEnd,
    /// To the end of the next track when the read before it was on the track before, else to the end of the track.
    NextTrackEnd,
}

/// Which writes complete in the buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WriteBack {
    /// None.
    Never,
    /// Writes that find the write segment empty, or continue its contents.
    OneStream,
}

/// A buffer of segments, each of which follows one stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(clippy::struct_excessive_bools, reason = "each is a line of a profile, and none depends on another")]
pub struct BufferRules {
    /// How many there are. One of them holds what was written; a single one holds what was used last.
    pub segments: u32,
    /// Sectors in each.
    pub segment_sectors: u32,
    /// How far to read ahead.
    pub read_ahead: ReadAheadTo,
    /// Sectors read ahead at most.
    pub read_ahead_sectors: u32,
    /// Whether what was asked for stays in its segment while more is read ahead.
    pub keeps_requested: bool,
    /// Whether a read from the buffer starts reading ahead.
    pub read_ahead_after_hits: bool,
    /// Whether sectors that pass before the first one of a read are kept.
    pub keeps_passing: bool,
    /// Whether a read may find what was written.
    pub reads_written: bool,
    /// Whether the sectors of a read are taken in the order in which they pass.
    pub any_order: bool,
    /// Which writes complete in it.
    pub write_back: WriteBack,
}
