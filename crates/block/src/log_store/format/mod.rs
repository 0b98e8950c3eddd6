//! The format on disk, version 1, and version 2 of the headers of chunks: how each structure is laid out, and whether
//! given bytes are valid. No I/O.
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
//! 2. The header of each area is parsed. The store is at the checkpoint with the higher number whose [`Payload`] is
//!    whole.
//! 3. From the heads of that checkpoint on, [`ChunkHeader`]s are followed while they have this store, this checkpoint,
//!    and the next sequence number.
//!
//! Headers of chunks show losses at the end of the log: by marks of flushes ([`Entry::Mark`]), and by repeating the
//! header before them ([`Repeat`]). A store that was made without these two features gets both when a program that
//! knows them first writes to it.
//!
//! Common rules:
//! - Magic, version and checksum keep their place in all versions, magic and version at the front. So a newer version
//!   is not mistaken for damage.
//! - Superblock and checkpoint header use the first 512 bytes of their block, so that a power cut leaves the old or the
//!   new one.
//! - Reserved bytes are zero; a structure with another value there is refused.
//! - Only the superblock has feature flags; they hold for the whole store. With an unknown *compatible* flag a store
//!   may be read and written, and the flag is kept. With an unknown *incompatible* one it may not be touched.
//! - Structures are checked before they are encoded: nothing is written that would not be read.

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

pub use umbrella_policy::log_layout::{Clock, LogBlock, SegmentNo, Stamp, Stream};

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
pub(in crate::log_store) use remains::{ExpectedChunk, promised_in};
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
