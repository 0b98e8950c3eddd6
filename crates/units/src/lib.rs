//! Units shared by every crate: byte sizes, amounts of space, block addresses, pages, times and ids. Also random
//! numbers from a seed, and, for error messages, the known word nearest to an unknown one.
//!
//! Depends on nothing of ours. Every type is a newtype, so that a block is not mistaken for a page, or a page for a
//! byte. Plain integers remain where the kernel's interface has them: offsets and lengths of calls, inode numbers of
//! branches, and attributes from `statx`.

mod block;
mod hint;
mod ids;
mod random;
pub mod seconds;
mod size;
mod time;

pub use block::{
    BLOCK_SECTORS, BlockNo, Extent, FileId, Lba, Nanos, PAGE_BYTES, PageIndex, PageKey, Pages, SECTOR_BYTES,
    SectorRange,
};
pub use hint::{did_you_mean, nearest};
pub use ids::{BranchId, Ino};
pub use random::{SplitMix64, mix64};
pub use size::{Amount, ByteSize, ParseSizeError, WrongSize};
pub use time::{ParseDurationError, Timestamp, format_duration, parse_duration};
