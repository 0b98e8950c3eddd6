//! Offers a block device to programs: NBD, and a file for loop devices.

pub mod loop_device;
pub mod loop_file;
pub mod nbd;
mod traffic;

pub use traffic::Traffic;
