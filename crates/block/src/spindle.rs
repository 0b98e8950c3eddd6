//! How a disk is put to sleep and woken.

use serde::Serialize;

use crate::error::BlockError;

/// What a disk's motor does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Power {
    /// It turns.
    Spinning,
    /// It stands still; the next access wakes it.
    Standby,
    /// It is on its way between the two.
    Changing,
}

/// A disk that can sleep. None of these calls wakes it but [`wake`](Spindle::wake).
pub trait Spindle: Send + Sync {
    /// Spins it down. What was written must have been flushed before.
    fn standby(&self) -> Result<(), BlockError>;

    /// Spins it up; returns when it can be used.
    fn wake(&self) -> Result<(), BlockError>;

    /// What it does now.
    fn power(&self) -> Result<Power, BlockError>;
}
