//! A log-structured store without contents: which blocks a trace writes where, what the cleaner has to move for it, and
//! how far the heads travel.
//!
//! Everything is decided by [`umbrella_policy::log_layout`], as in the live store; here is only what happens meanwhile.
//! No time passes: a request follows the one before it at once, what is written is durable at once, and the cleaner
//! works as soon as it is due, once a segment.
//!
//! - The data: all pages that the trace reads or writes, packed in the order of their addresses ([`LogInput`]), but
//!   those that it ends with discarding. They are written once, in that order, before anything is counted. The log is
//!   as large as makes the most that is live at a time the stated share of it ([`LogSetup::utilisation`]).
//! - The run: the trace, from its beginning again as often as it takes, until the user has written four times as many
//!   blocks as the log has.
//! - The disk's requests: reads where the blocks lie (adjacent ones are one request; what is still in a write buffer
//!   needs none), each full segment as one write, the cleaner's reads of whole victims. A segment is the user's if the
//!   user wrote most of it, else the cleaner's.
//! - Seek distance: blocks between the end of a request and the start of the next one, as the paper counts it: for the
//!   requests of the trace alone, and with the cleaner's.
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
pub use outcome::{LogOutcome, Travel};
pub use percent::Percent;
pub use setup::LogSetup;
