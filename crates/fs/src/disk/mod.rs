//! Reports of the kernel about the disks below branches. In passthrough the daemon sees neither data nor errors, so it
//! listens:
//!
//! - `kernel_log`: lines of `/dev/kmsg` that report a failed request or a damaged file system;
//! - `devices`: on which block devices a branch lies, and to which of them such a line belongs;
//! - `file_system`: what file systems report through fanotify, and what they count;
//! - `block_device`: whether the disk still answers.

pub(crate) mod block_device;
pub(crate) mod devices;
pub(crate) mod file_system;
pub(crate) mod kernel_log;
