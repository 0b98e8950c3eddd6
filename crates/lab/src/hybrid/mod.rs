//! A hybrid disk in virtual time: a flash log before a disk that sleeps, driven by a trace.
//!
//! Everything is decided by [`umbrella_policy::flash_cache`] and [`umbrella_policy::spin_down`], as in the live engine;
//! here is only what happens meanwhile. Requests arrive at their recorded times, whatever the disk does (an open loop).
//!
//! While the disk does not spin:
//! - A write goes to the log, behind one sector of metadata. If it does not fit, the disk is woken, everything is
//!   flushed, and the write goes to the disk once that spins, unless the log has older data of its sectors; then it
//!   waits for the end of the flush.
//! - A read that the log has entirely is served by the flash; any other one wakes the disk, and gathers from both.
//!
//! While it spins, a write goes to the disk unless it overlaps what the log has.
//!
//! A flush (`flush.rs`): chunk after chunk of the plan; one read from flash and one write to the disk at a time, in the
//! plan's order; with one buffer they alternate, with two they overlap. Then the disk's own buffer is flushed, since
//! the log must not be freed before its data is durable. What else is asked of the disk takes its turn in the same
//! queue.
//!
//! Assumed, where the paper is silent:
//! - The log is freed at the end of a flush, all at once.
//! - Flushing is no access in the eyes of the spin-down policy, as in the live engine: the disk falls asleep after it,
//!   if that is due.
//! - What is in the log at the end of the trace is flushed then, so that no policy looks good by owing a flush. An
//!   infinite log is not.
//! - The flash begins empty, and takes what comes in the order of coming.
//!
//! Source: Bisson and Brandt, "Flushing Policies for NVCache Enabled Hard Disks", sections 2 and 3.

mod alone;
mod counters;
mod engine;
mod flush;
mod foresight;
mod input;
mod machine;
mod outcome;
mod probe;
mod requests;
mod setup;
mod station;
#[cfg(test)]
mod tests;
mod week;

pub use input::{Arrival, Direction, HybridInput};
pub use outcome::{AloneFigures, FlushFigures, HybridOutcome, Joules, Redirected, Responses, Spread, Wakes};
pub use setup::{Cache, HybridSetup};
