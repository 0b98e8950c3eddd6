//! The layout of a log-structured store: where each block is written, what each segment holds, and which one is cleaned
//! next.
//!
//! The disk is a row of equal segments. Blocks are appended to a few streams, and each stream fills a segment of its
//! own. A block that is written again leaves a dead one behind. The cleaner moves the live blocks out of a segment to
//! use it anew. All of it is pure: the store on a disk and the lab run the same code.
//!
//! - A [`Scheme`] says which stream a block goes to.
//! - A [`Geography`] says where on the disk a stream writes.
//! - A [`Victim`] says which segment is cleaned.
//! - [`Layout`] is the account of it all.
//! - [`LogicalMap`] says where each block lies.
//!
//! The paper leaves some things open. They are decided so:
//!
//! - A region with no free segment *borrows* from another one that has many, in a row. When the lender is short itself,
//!   it first sends such guests home if their own region has room again.
//! - A region is not cleaned without gain. It borrows rather than take a victim that is much fuller than the emptiest
//!   segment anywhere. Victims with more than 95 % live are left alone until nothing else is left.
//! - [`Room`] says how much has to be kept back so that cleaning can always continue.
//!
//! Source: Chiang and Huang, "Improving the Performance of Log-Structured File Systems with Adaptive Block
//! Rearrangement" (R-LFS); Rosenblum and Ousterhout, "The Design and Implementation of a Log-Structured File System".

mod free;
mod grow;
mod ids;
mod layout;
mod map;
mod pace;
mod reclaim;
mod replay;
mod room;
mod scheme;
mod table;
#[cfg(test)]
mod tests;
mod victim;

pub use free::Geography;
pub use ids::{Clock, LogBlock, SegmentNo, Shape, Stamp, Stamps, Stream};
pub use layout::{Full, Head, Layout, Put, Sealed, Settings};
pub use map::{Absent, Entries, LOST, LogicalMap, MapEntry, MapPage, PAGE_ENTRIES};
pub use pace::{BlockCost, CleanerPolicy, LogUsage, Marks};
pub use reclaim::{CleaningGoal, Mark, ReclaimStep};
pub use replay::{FoundChunk, ReplayError};
pub use room::Room;
pub use scheme::{Copied, Reclaimed, ReplacedVersion, Scheme, SchemeInfo, Written, schemes, schemes_for_disks};
pub use table::{Segment, State};
pub use victim::{UnknownVictim, Victim};
