//! Power states of a disk, and the energy that they take.
//!
//! [`PowerSpec`] holds what a data sheet says; [`Powered`] puts a motor before any [`Device`](crate::device::Device):
//! it can be sent to sleep, is woken by what needs the platters, and measures the time in each state. Energy follows
//! from that time.

mod powered;
mod spec;
mod stats;

#[cfg(test)]
mod tests;

pub use powered::Powered;
pub use spec::{Energy, Milliwatts, Phase, PowerSpec, PowerState, SpindleSpec};
pub use stats::PowerStats;
