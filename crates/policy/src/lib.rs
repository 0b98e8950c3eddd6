//! Umbrella's decisions: pure, deterministic state machines. No I/O, no clock, no threads, no randomness of their own.

pub mod placement;
pub mod writeback;
