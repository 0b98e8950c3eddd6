//! Write-back of the real page cache in the order of a policy: which pages are dirty is told by whoever sees the writes, where they
//! lie is asked of the file system, and they are started on their way to disk before the kernel would do it, in better order.
//!
//! Never harmful: it calls `sync_file_range` and nothing else that writes. What it misses, the kernel's own write-back takes care of.

mod error;
mod file;
mod governor;
mod settings;
mod status;

pub use error::GovernorError;
pub use file::{FileHandle, FileRef, PageRange};
pub use governor::Governor;
pub use settings::{Limits, Settings};
pub use status::Status;
