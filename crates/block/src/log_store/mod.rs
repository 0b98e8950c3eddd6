//! The log-structured store: a disk that is written in long runs, whatever the order of the writes that come.
//!
//! Every block that is written goes to the end of one of a few streams; the map says where each block lies. What lies
//! on the disk is [`format`](mod@format); which stream a block goes to, which segment is cleaned, and when one is free
//! is decided by [`umbrella_policy::log_layout`].
//!
//! A write (`transfer`):
//! 1. It is put into the chunk that its stream is filling, and into the map; now it returns, and is read back. As with
//!    any disk's cache, it may be lost until the next flush.
//! 2. A chunk that is full is written, header and data in one piece, by one of two threads, in the order of the chunks'
//!    numbers.
//!
//! A flush (`flush`), and a write with FUA:
//! 1. The chunks with something of users' are completed, full or not, and written. Each says how far the log is
//!    flushed, and up to where this flush promises (`loss`); a flush that has nothing to complete and promises more
//!    than any before adds a chunk that says only that, and so does an idle store when its last flush has been
//!    answered.
//! 2. When they and all before them are written, the device is flushed. One flush serves all who wait for one; the
//!    device is never asked for two at once, nor again after one that failed (`flush_serializer`).
//!
//! Cleaning is told in `clean`, checkpoints in `checkpoint`, opening in `recover` and `follow`, making and growing a
//! store in `create` and `grow`: each with its steps.
//!
//! After a write or a flush of the device has failed the store refuses writes; what can be read is still read.
//!
//! Source: R-LFS for regions; Rosenblum and Ousterhout, "The Design and Implementation of a Log-Structured File
//! System", for segments, summaries, checkpoints and roll-forward; the rules about what is durable when are ours.

#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing))]

mod behind;
mod buffer;
mod check;
mod checkpoint;
mod checksums;
mod chunks_behind;
mod clean;
mod core;
mod counts;
mod create;
mod discards;
mod engine;
mod error;
mod extents;
mod flush;
mod follow;
mod footprint;
pub mod format;
mod gather;
mod grow;
mod guess;
mod headers;
mod later_checkpoint;
mod life;
mod loss;
mod lost_checkpoint;
mod map_pages;
mod mend;
mod named;
mod problem;
mod rebuild;
mod recover;
mod salvage;
mod scrub;
mod skip;
mod stats;
#[cfg(test)]
mod tests;
mod timelines;
mod transfer;
mod verify;

pub use check::{CheckReport, Depth, MOST_PROBLEMS, check};
pub use checkpoint::Progress;
pub use create::{CreateOptions, MOST_BYTES, create, create_with};
pub use engine::{LogStore, Options};
pub use error::LogStoreError;
pub use loss::Loss;
pub use problem::Problem;
pub use recover::OpenMode;
pub use salvage::{Report as SalvageReport, Salvage, Unrecovered, Why};
pub use stats::{LogStoreStats, RegionStats};
