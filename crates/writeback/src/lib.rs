//! Writes dirty pages back in a policy's order, before the kernel would. Observers report the dirty pages, and the file
//! system says where they lie.
//!
//! Never harmful: it calls `sync_file_range` and nothing else that writes. What it misses, the kernel's own write-back
//! takes care of.
//!
//! - `flusher`: the interface; `state`: what is known, and what each event does to it
//! - `recorded_policy`: the policy with its record, which `journal` writes to a file
//! - `files`, `place`, `geometry`: files, where their pages lie, where they will probably come to lie
//! - `recency`: which pages the page cache counts as recently used
//! - `flush_loop`: the thread that writes back; `gate`, `thresholds`: who waits, and from when on
//! - [`bpf`]: dirty pages of a file system that other processes write to
//! - `sys`: system calls

pub mod bpf;
mod error;
mod file;
mod files;
mod flush_loop;
mod flusher;
mod gate;
mod geometry;
mod journal;
mod place;
mod recency;
mod recorded_policy;
mod round;
mod settings;
mod shared;
mod state;
mod status;
mod sys;
mod thresholds;

pub use error::FlusherError;
pub use file::{FileHandle, FileRef, PageRange};
pub use flusher::{Flusher, Mark};
pub use settings::{LEAST_LIMIT, Limits, Settings};
pub use status::Status;
pub use sys::extents;
