//! Block devices: the ones that hold sectors, the ones that sit in front of a disk, and the servers that offer them to
//! programs.
//!
//! [`BlockDevice`] is the one interface. Its implementations:
//! - below it: a [`file`](mod@file) or real device, [`memory`], and an [`emulated`] disk with true timing;
//! - around it: a [`record`]er and a [`fault`] injector for tests;
//! - above it: the [`hybrid`] disk, a flash log before a disk that sleeps, and the [`log_store`], which turns random
//!   writes into sequential ones.
//!
//! [`serve`] offers any of them to other programs, a [`scrub`] looks for damage, and [`spindle`] puts a disk to sleep.

mod checksum;
mod device;
pub mod emulated;
mod error;
pub mod fault;
pub mod file;
mod flush_serializer;
pub mod hybrid;
pub mod log_store;
pub mod memory;
pub mod record;
pub mod scrub;
pub mod serve;
pub mod spindle;
#[cfg(test)]
mod testing;

pub use device::{Allocation, BlockDevice, Durability, Geometry, Zeroes};
pub use error::{BlockError, Operation};
