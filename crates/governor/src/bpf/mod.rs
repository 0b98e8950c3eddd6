//! Dirty pages of a file system that nobody here writes to, as the kernel tells them to two small BPF programs.
//!
//! - [`Source`] attaches the programs and empties their ring; [`Mounted`] is the file system; [`Watch`] joins both with a
//!   [`crate::Governor`].
//! - The programs are written down here instruction by instruction (`program`, `code`), the places of the kernel's fields are
//!   looked up in the kernel's own type information when it starts (`btf`), and they are loaded by bpf(2) (`sys`). Two
//!   programs of some forty instructions do not warrant more: libbpf would bring clang, libelf and a file of the kernel's
//!   types to every build, and an object compiled beforehand a binary that nobody can read. So the build needs nothing, and one
//!   binary runs on every kernel from 5.18 on that has these tracepoints and types.
//!
//! Tracepoints, not functions: they are there where fentry and kprobes are refused or not built, and what they are given has not
//! changed since they came. Steps: [`Source::watch`] reads the types, makes the maps, loads and attaches; [`Watch::step`]
//! empties the ring by the clock, since a wake-up for each page would cost the writers more than the program itself.

mod btf;
mod code;
mod dirtied;
mod error;
mod mounted;
mod program;
mod scan;
mod source;
mod sys;
mod watch;

#[cfg(test)]
mod tests;

pub use error::BpfError;
pub use mounted::Mounted;
pub use source::{FileKey, Lost, Seen, Source};
pub use watch::{Watch, WatchError, WatchStatus};
