//! A log-structured store without contents: which blocks a trace writes where, how many blocks the cleaner has to move
//! for it, and how far the heads travel.
//!
//! [`umbrella_policy::log_layout`] decides everything, as in the live store. This module only does what happens in
//! between. No time passes: a request follows the one before it at once, writes are durable at once, and the cleaner
//! works as soon as it is due, once a segment.
//!
//! - The data: all pages that the trace reads or writes, packed in the order of their addresses ([`LogInput`]), except
//!   those that end discarded. They are written once, in that order, before anything is counted. The size of the log
//!   follows from the most blocks that are live at a time and the stated share ([`LogSetup::utilisation`]).
//! - The run: the trace, repeated from its beginning until the user has written four times as many blocks as the log
//!   has.
//! - The disk's requests: reads where the blocks lie, each full segment as one write, and the cleaner's reads of whole
//!   victims. Reads of adjacent blocks are one request, and those of blocks in a write buffer need none. A segment is
//!   the user's if the user wrote most of it, else the cleaner's.
//! - Seek distance: blocks between the end of a request and the start of the next one, counted as in the paper. It is
//!   given for the requests of the trace alone, and with the cleaner's.
//!
//! Source: Chiang and Huang, "Improving the Performance of Log-Structured File Systems with Adaptive Block
//! Rearrangement", section 4.

mod error;
mod foresight;
mod head;
mod input;
mod machine;
mod outcome;
mod packed;
mod percent;
mod setup;
mod store;
mod synthetic;
#[cfg(test)]
mod tests;

pub use error::LogError;
pub use input::{LogInput, Request};
pub use outcome::{LogOutcome, SeekTotals};
pub use percent::Percent;
pub use setup::LogSetup;
