//! How hardware and kernel behave: disks, flash, request schedulers, the page cache, block allocators.
//! Pure state machines in virtual time: no I/O, no clock, no threads, no randomness of their own (a seed comes in).

pub mod allocator;
pub mod device;
pub mod page_cache;
pub mod power;
pub mod scheduler;
