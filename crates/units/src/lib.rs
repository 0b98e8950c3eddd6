//! Units shared by every crate: byte sizes, amounts of space, block addresses, pages, times, and ids.
//!
//! Depends on nothing of ours. Every type is a newtype, so that no signature carries a bare `u64`.

mod block;
mod ids;
mod size;
mod time;

pub use block::{
    BLOCK_SECTORS, BlockNo, Extent, FileId, Lba, Nanos, PAGE_BYTES, PageIndex, PageKey, Pages, SECTOR_BYTES,
    SectorRange,
};
pub use ids::{BranchId, Ino};
pub use size::{Amount, ByteSize, ParseSizeError};
pub use time::{ParseDurationError, Timestamp, format_duration, parse_duration};
