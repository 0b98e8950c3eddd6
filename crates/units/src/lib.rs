//! Units shared by every crate: byte sizes, amounts of space, wall-clock times, and ids.
//!
//! Depends on nothing of ours. Every type is a newtype, so that no signature carries a bare `u64`.

mod ids;
mod size;
mod time;

pub use ids::{BranchId, Ino};
pub use size::{Amount, ByteSize, ParseSizeError};
pub use time::{ParseDurationError, Timestamp, format_duration, parse_duration};
