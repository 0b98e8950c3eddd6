//! Offers a block device to programs: NBD, and a file for loop devices.

pub mod nbd;
