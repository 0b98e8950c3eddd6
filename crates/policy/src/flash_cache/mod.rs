//! The flash cache of a hybrid disk (NVCache): what is in its log, when to flush it, and in which order.
//!
//! While the disk sleeps, writes go to a log on flash: data behind metadata that says where it belongs. All of this is
//! pure: the engine of the hybrid disk and the lab run the same code.
//!
//! - [`Log`] is the account of the log.
//! - [`FlushTrigger`] says when the log has to go to the disk.
//! - [`FlushPlanner`] says in which pieces and in which order.
//! - [`Options`] says at which pace.
//!
//! Source: Bisson and Brandt, "Flushing Policies for NVCache Enabled Hard Disks" (sections 2.1 to 2.3). `whole`,
//! `watermark` and `piggyback` are ours.

mod algorithm;
mod log;
mod map;
mod options;
mod plan;
#[cfg(test)]
mod tests;
mod when;

pub use algorithm::{Algorithm, UnknownAlgorithm};
pub use log::{Log, Logged, WriteRoute};
pub use map::{CachedExtent, LogMap, LogSector, Source};
pub use options::{DrainRate, MOST_WRITE, MOST_ZEROED_AT_ONCE, Options, frees, pass_end};
pub use plan::{DiskWrite, FlashRead, FlushChunk, FlushPlanner, WriteSource};
pub use when::{Fill, FlushTrigger, Moment, Percent, UnknownWhen};
