//! The counters and the state of a hybrid disk.

use serde::Serialize;
use umbrella_units::{ByteSize, Nanos};

/// What the disk below does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Motion {
    /// It turns.
    Spinning,
    /// It is being put to sleep.
    Stopping,
    /// It sleeps.
    Asleep,
    /// It is being woken.
    Starting,
}

/// The counters of a hybrid disk since it was opened, and its state.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HybridStats {
    /// What the disk does.
    pub disk: Motion,
    /// Bytes of the log that may not be overwritten.
    pub log_used: ByteSize,
    /// Bytes of the log.
    pub log_size: ByteSize,
    /// Bytes of the disk whose newest data is only in the log.
    pub cached: ByteSize,
    /// The zeroes among them, which take no room in the log.
    pub cached_zeroes: ByteSize,
    /// Bytes ever written to the flash.
    pub flash_written: ByteSize,
    /// How often the log was written from one end to the other.
    pub log_laps: f64,
    /// Calls that read.
    pub reads: u64,
    /// The reads among them that needed nothing of the disk.
    pub reads_from_log: u64,
    /// The reads among them that had to wake the disk.
    pub reads_that_woke: u64,
    /// Calls that wrote.
    pub writes: u64,
    /// The writes among them that went to the log.
    pub writes_to_log: u64,
    /// Records written to the log.
    pub records: u64,
    /// Calls that flushed.
    pub flushes: u64,
    /// Times the disk was woken.
    pub spin_ups: u64,
    /// Times it was put to sleep.
    pub spin_downs: u64,
    /// Time that it slept.
    pub asleep: Nanos,
    /// Whether the log is being drained.
    pub draining: bool,
    /// Times the log was drained.
    pub drains: u64,
    /// Bytes written to the disk by draining.
    pub drained: ByteSize,
    /// Time spent draining.
    pub drain_time: Nanos,
    /// Bytes that the drain under way has yet to write, at most.
    pub drain_left: ByteSize,
    /// Reads of the flash, by programs or to drain it, that did not give back what was written.
    pub damaged_reads: u64,
    /// Writes that were held back because the log was filling up.
    pub slowed: u64,
    /// The sum of their waiting times; some of them waited at the same time.
    pub slowed_time: Nanos,
    /// Why it refuses writes; `None` when all is well.
    pub refuses_writes: Option<String>,
    /// Why the last drain stopped; `None` when it went through.
    pub drain_failure: Option<String>,
}
