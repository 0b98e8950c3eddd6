//! Live mounts, on both transports. The file system is served by a child process, so that a fault of it cannot lock the
//! test up. Needs root and /dev/fuse.

mod bursts;
mod harness;
mod operations;
mod server;
mod transports;
