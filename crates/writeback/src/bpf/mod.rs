//! Dirty pages of a file system that nobody here writes to, as the kernel tells them to two small BPF programs.
//!
//! - [`Source`] attaches the programs and empties their ring; [`Mounted`] is the file system; [`Watch`] joins both with
//!   a [`crate::Flusher`].
//! - The programs are C (`dirty_pages.bpf.c`), compiled by clang when this crate is built. `programs` has libbpf load
//!   them, which looks up where the running kernel keeps the fields that they read, so that one binary runs on every
//!   kernel from 5.18 on that has these tracepoints and types; `record` reads what they leave behind.
//!
//! Tracepoints, not functions: they are there where fentry and kprobes are refused or not built, and what they are
//! given has not changed since they came. Steps: [`Source::watch`] makes the maps, loads and attaches; [`Watch::step`]
//! empties the ring by the clock, since a wake-up for each page would cost the writers more than the program itself.

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
pub use record::{FileKey, Lost, Seen};
pub use source::Source;
pub use watch::{Watch, WatchStatus};
