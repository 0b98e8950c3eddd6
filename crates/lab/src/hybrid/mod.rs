//! A hybrid disk in virtual time: a flash log before a disk that sleeps, driven by a trace.
//!
//! [`umbrella_policy::flash_cache`] and [`umbrella_policy::spin_down`] decide everything, as in the live engine. This
//! module only does what happens in between. Requests arrive at their recorded times, whatever the disk does (an open
//! loop).
//!
//! While the disk does not spin:
//! - A write goes to the log, behind one sector of metadata. If it does not fit, the disk is woken, everything is
//!   flushed, and the write goes to the disk once that spins. If the log has older data of the same sectors, the write
//!   waits for the end of the flush.
//! - A read whose sectors are all in the log is served by the flash. Any other read wakes the disk, and gathers from
//!   both.
//!
//! While it spins, a write goes to the disk unless it overlaps data in the log.
//!
//! A flush (`flush.rs`) takes chunk after chunk of the plan, in the plan's order, with one read from flash and one
//! write to the disk at a time. With one buffer they alternate, with two they overlap. Then the disk's own buffer is
//! flushed, since the log must not be freed before its data is durable. Other requests for the disk take their turn in
//! the same queue.
//!
//! Assumed, where the paper is silent:
//! - The log is freed at the end of a flush, all at once.
//! - A flush does not count as an access for the spin-down policy, as in the live engine: the disk falls asleep after
//!   it if that is due.
//! - The contents of the log at the end of the trace are flushed then, so that no policy looks good by owing a flush.
//!   An infinite log is not flushed.
//! - The flash begins empty, and takes data in the order in which it comes.
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
