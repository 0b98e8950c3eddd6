//! The log-structured store: a disk that is written in long runs, whatever the order of the writes that come.
//!
//! [`format`](mod@format) is what lies on the disk.

pub mod format;
