//! The log-structured store: it writes a disk in long runs, in whatever order the writes come.
//!
//! Every written block goes to the end of one of a few streams; the map says where each block lies. The layout on disk
//! is in [`format`](mod@format). [`umbrella_policy::log_layout`] decides which stream a block goes to, which segment is
//! cleaned, and when a segment is free.
//!
//! A write (`transfer`):
//! 1. It is put into the chunk that its stream is filling, and into the map. Now it returns, and reads see it. As in
//!    any disk's cache, it may be lost until the next flush.
//! 2. A full chunk is written, header and data in one piece, by one of two threads, in the order of the chunks'
//!    numbers.
//!
//! A flush (`flush`), and a write with FUA:
//! 1. Chunks that hold users' data are completed, full or not, and written. Each says how far the log is flushed, and
//!    up to where this flush promises (`loss`). If a flush has nothing to complete but promises more than any before,
//!    it adds a chunk that says only that. An idle store adds one as well when its last flush has been answered.
//! 2. When they and all before them are written, the device is flushed. One flush serves all callers that wait. The
//!    device never gets two flushes at once, and none after one that failed (`flush_serializer`).
//!
//! The other operations are described, each with its steps, in `clean` (cleaning), `checkpoint` (checkpoints),
//! `recover` and `follow` (opening), `create` and `grow` (making and growing a store).
//!
//! After a write or a flush of the device has failed, the store refuses writes; reads continue as far as possible.
//!
//! Source: R-LFS for regions; for segments, summaries, checkpoints and roll-forward Rosenblum and Ousterhout, "The
//! Design and Implementation of a Log-Structured File System". The rules about durability are ours.

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
mod named;
mod problem;
mod rebuild;
mod recover;
mod repair_map;
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
pub use salvage::{DoubtReason, Report as SalvageReport, Salvage, Unrecovered};
pub use stats::{LogStoreStats, RegionStats};
