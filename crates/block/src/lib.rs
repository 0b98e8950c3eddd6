//! Block devices: what reads and writes sectors, what stands before a disk, and who offers it to programs.
//!
//! [`BlockDevice`] is the one interface. Below it: a [`file`](mod@file) or real device, [`memory`], an [`emulated`]
//! disk with true timing; around it: a [`record`]er and a [`fault`] injector for tests; above it: the [`hybrid`] disk,
//! a flash log before a disk that sleeps; the [`log_store`], which writes one after the other what comes at random.
//! [`serve`] offers any of them to others, and a [`scrub`] looks for damage. [`spindle`] is how a disk is put to sleep.

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
