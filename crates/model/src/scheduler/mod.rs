//! Request schedulers: what the block layer does between the page cache and a device. Each is itself a device.

mod noop;

pub use noop::Noop;
