//! Offers a block device to programs: NBD, a file for loop devices, and ublk.

#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing))]

mod errno;
pub mod loop_device;
pub mod loop_file;
pub mod nbd;
mod traffic;
#[cfg(feature = "ublk")]
pub mod ublk;

pub use traffic::Traffic;
