//! Dirty pages of a file system that Umbrella does not write to, as two small BPF programs report them from the kernel.
//!
//! - [`Source`] attaches the programs and empties their ring; [`Mounted`] is the file system; [`Watch`] joins both with
//!   a [`crate::Flusher`].
//! - The programs are C (`dirty_pages.bpf.c`), compiled by clang when this crate is built. `programs` loads them
//!   through libbpf, which looks up the offsets of their fields in the running kernel. So one binary runs on every
//!   kernel from 5.18 on that has these tracepoints and types.
//! - `record` reads the records that the programs leave in the ring.
//!
//! Tracepoints are used instead of functions: they work where fentry and kprobes are refused or not built, and their
//! arguments have not changed since they were added. Steps: [`Source::watch`] makes the maps, loads and attaches;
//! [`Watch::step`] empties the ring by the clock. A wake-up for each page would cost the writers more than the program
//! itself.

mod dirtied;
mod error;
mod mounted;
mod programs;
mod record;
mod scan;
mod source;
mod watch;

#[cfg(test)]
mod tests;

pub use error::{BpfError, WatchError};
pub use mounted::Mounted;
pub use record::{FileKey, KernelReport, LostEvents};
pub use source::Source;
pub use watch::{Watch, WatchStatus};
