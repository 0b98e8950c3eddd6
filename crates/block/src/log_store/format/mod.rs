//! The format on disk, version 1, and version 2 of the headers of chunks: what each structure looks like, and whether
//! bytes are one. No I/O.
//!
//! All numbers are little-endian, all checksums CRC32C, all blocks 4096 bytes.
//!
//! ```text
//! block 0             superblock, copy 0
//! block 256           superblock, copy 1
//! first block         segment 0            usually block 512; superblock.first says it
//!   + segment_blocks  segment 1
//!   ...               up to segment segments - 1; behind it nothing of ours
//!
//! log segment         chunk | chunk | ...  each a header of one block and up to 252 blocks of data
//! system segment      part of one of the two checkpoint areas: header block, then the payload
//! map page            the data of a chunk's block: where 512 adjacent logical blocks lie
//! ```
//!
//! How a store is found (each step needs the one before it):
//! 1. [`choose`] takes the superblock from its two copies. It says where segments and checkpoint areas lie.
//! 2. The header of each area is parsed; the one with the higher number whose [`Payload`] is whole is where the store
//!    was.
//! 3. From its heads on, [`ChunkHeader`]s are followed while they are of this store, this checkpoint, and the next
//!    sequence number.
//!
//! What is lost at the end of the log is told by marks of flushes in the headers of chunks ([`Entry::Mark`]), and by
//! what each repeats of the one before it ([`Repeat`]). Stores that were made without have both features since they
//! were first written by a program that knows them.
//!
//! Common rules. Magic and version stand at the front and keep their place in all versions, as does the checksum: so a
//! newer version is told from damage. Superblock and checkpoint header use the first 512 bytes of their block, so that
//! a power cut leaves the old or the new one. Reserved bytes are zero, and whoever finds another value refuses the
//! structure. Only the superblock has feature flags; they speak for the whole store: with an unknown *compatible* flag
//! a store may be read and written (the flag is kept), with an unknown *incompatible* one it may not be touched. What
//! is encoded is checked first: nothing is written that would not be read.

#![cfg_attr(not(test), deny(clippy::panic))]

mod area;
mod checkpoint;
mod checksum;
mod chunk;
mod error;
mod ids;
mod map_page;
mod payload;
mod pending_loss;
mod raw;
mod remains;
mod repeat;
mod shape;
mod superblock;
#[cfg(test)]
mod tests;

pub use umbrella_policy::log_layout::{Clock, Place, SegmentNo, Stamp, Stream};

pub(in crate::log_store) use area::payload_bytes;
pub use area::{area_bytes, area_segments};
pub use checkpoint::{CheckpointHeader, Counters, Head, OpenSegment, PayloadSum};
pub use checksum::Checksum;
pub use chunk::{ChunkBuilder, ChunkHeader, Entry, MAX_ENTRIES};
pub use error::{Field, FormatError, Limit, Structure};
pub use ids::{Blocks, CheckpointNo, MapPageNo, SegmentState, Sequence, Slot};
pub use map_page::{IndexEntry, MapEntry, MapPage};
pub use payload::{Payload, PayloadEncoder, SegmentEntry};
pub use pending_loss::PendingLoss;
pub use raw::Block;
pub(in crate::log_store) use remains::{Wanted, promised_in};
pub use repeat::Repeat;
pub(in crate::log_store) use repeat::joined;
pub use shape::Shape;
pub use superblock::{
    Area, ChooseError, Chosen, Compat, Generation, Incompat, Scheme, Superblock, UnixSeconds, choose,
};

/// The version of all structures but the headers of chunks: this code reads no other.
pub const VERSION: u32 = 1;
/// Bytes of a block, the unit of everything on disk.
pub const BLOCK_BYTES: usize = 4096;
/// Logical blocks of a map page.
pub const PAGE_ENTRIES: u64 = 512;
/// Bits of the number of a logical block, and of a place in the log plus one.
pub const PLACE_BITS: u32 = 40;
/// Bits of a stamp, and of the checksum of a map page in the map index.
pub const STAMP_BITS: u32 = 24;
