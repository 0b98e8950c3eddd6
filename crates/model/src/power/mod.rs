//! Power states of a disk, and the energy that they take.
//!
//! The figures of a data sheet are in [`PowerSpec`]. A [`Powered`] puts a motor before any
//! [`Device`](crate::device::Device). The motor can be sent to sleep, wakes for requests that need the platters, and
//! measures the time in each state. Energy follows from that time.

mod powered;
mod spec;
mod stats;

#[cfg(test)]
mod tests;

pub use powered::Powered;
pub use spec::{Energy, Milliwatts, Phase, PowerSpec, PowerState, SpindleSpec};
pub use stats::PowerStats;
