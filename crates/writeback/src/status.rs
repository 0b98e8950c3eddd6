//! What a flusher says of itself.

use serde::{Deserialize, Serialize};
use umbrella_units::{ByteSize, Nanos};

/// How a flusher is doing.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// The policy with the parameters that were given.
    pub policy: String,
    /// Dirty, as far as it knows.
    pub dirty: ByteSize,
    /// On its way to disk.
    pub in_flight: ByteSize,
    /// Where writers are held back.
    pub limit: ByteSize,
    /// Where write-back begins.
    pub background: ByteSize,
    /// Bytes a second that reached the disk lately.
    pub flush_rate: ByteSize,
    /// Bytes that it wrote back since its start.
    pub flushed: ByteSize,
    /// In how many calls.
    pub runs: u64,
    /// Bytes that others wrote back or deleted before their turn.
    pub cleaned: ByteSize,
    /// Writers that wait now.
    pub waiting: u64,
    /// Writers that had to wait since the start.
    pub waits: u64,
    /// How long they waited in all.
    pub waited: Nanos,
    /// Write-backs that failed.
    pub errors: u64,
    /// Whether writers are released because nothing has reached the disk for a long time.
    pub stalled: bool,
    /// Whether a record of the events is being written.
    pub recording: bool,
    /// Memory for the index of dirty pages, places and recency.
    pub memory: ByteSize,
}

impl Status {
    /// Mean length of a run that one call wrote back; zero before the first.
    pub fn mean_run(&self) -> ByteSize {
        ByteSize(self.flushed.0.checked_div(self.runs).unwrap_or(0))
    }
}
