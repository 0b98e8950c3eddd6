//! Advice: which settings would have suited recorded requests best, and whether that is more than chance.
//!
//! 1. [`Recording`]: the requests, cut to what can be simulated in bounded time, and one variant of them a seed.
//! 2. [`write_back`]: each policy with each size of memory, on the machine of [`crate::write_back`]; then the best
//!    once more, to confirm it.
//! 3. [`sleep`]: each spin-down policy with each size of flash, on the machine of [`crate::hybrid`].
//! 4. [`placement`]: what rules that bring files to flash gain, on the machine of [`crate::write_back`].
//!
//! They list the runs to make and judge the outcomes; the caller makes the runs ([`crate::experiment::run`]). They are
//! separate: the hybrid disk gets the requests as they were recorded, not as a policy would order them.
//!
//! The judgement is the one of `compare`: the figures of a setting are means over the seeds, and where the seeds of two
//! settings overlap there is no difference. Among settings without a difference, the one that changes least is best.

pub mod placement;
mod recording;
mod samples;
pub mod sleep;
pub mod write_back;

pub use recording::Recording;
pub use samples::Samples;

/// The seeds of all advice.
pub const SEEDS: [u64; 3] = [1, 2, 3];
