//! Umbrella's decisions: pure, deterministic state machines. No I/O, no clock, no threads, no randomness of their own.

pub mod flash_cache;
pub mod placement;
pub mod spin_down;
pub mod writeback;
