//! What came of a run.

use serde::{Deserialize, Serialize};
use umbrella_units::Pages;

/// How far the heads went.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeekTotals {
    /// Blocks between the end of a request and the start of the next, summed up.
    pub distance: Pages,
    /// Requests.
    pub requests: u64,
}

/// What came of a run; nothing of the first writing of the data is counted.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct LogOutcome {
    /// What was asked of the store.
    pub input: String,
    /// The scheme, with its parameters.
    pub scheme: String,
    /// How victims were chosen.
    pub victim: String,
    /// How much of the log the data are, in percent.
    pub utilisation: u32,
    /// Segments of the log.
    pub segments: u32,
    /// Blocks of a segment.
    pub segment_blocks: u32,
    /// Blocks of data.
    pub blocks: Pages,
    /// Blocks that the user wrote.
    pub written: Pages,
    /// Blocks that the user read.
    pub read: Pages,
    /// Blocks that the user discarded.
    pub discarded: Pages,
    /// Live blocks that the cleaner moved.
    pub copied: Pages,
    /// Blocks that the cleaner read: whole segments.
    pub cleaner_read: Pages,
    /// Segments that the cleaner emptied; those in which nothing was live any more are not among them.
    pub cleaned: u64,
    /// Blocks written by user and cleaner for each that the user wrote.
    pub write_amplification: f64,
    /// Heads that serve the requests of the trace only.
    pub foreground: SeekTotals,
    /// Heads that serve the cleaner as well.
    pub all: SeekTotals,
    /// Live blocks at the end, a share of the log's.
    pub live_share: f64,
}
