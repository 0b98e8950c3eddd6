//! Offers a block device to programs: NBD, a file for loop devices, and ublk.

mod errno;
pub mod loop_device;
pub mod loop_file;
pub mod nbd;
mod traffic;
#[cfg(feature = "ublk")]
pub mod ublk;

pub use traffic::Traffic;
