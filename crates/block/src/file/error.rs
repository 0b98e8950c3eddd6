//! Why a file cannot be a block device.

use std::io;
use std::path::PathBuf;

use thiserror::Error;
use umbrella_units::ByteSize;

use super::holder::Holder;

/// Why a file or device could not be opened as a block device.
#[derive(Debug, Error)]
pub enum OpenError {
    /// The system refused.
    #[error("{}: {source}", path.display())]
    Open {
        /// What was to be opened.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// Another program writes it, or reads it while it was to be written.
    #[error("{}: in use by {}", path.display(), by.as_ref().map_or("another program".to_owned(), ToString::to_string))]
    InUse {
        /// What was to be opened.
        path: PathBuf,
        /// By whom, if that can be seen.
        by: Option<Holder>,
    },
    /// A folder, a pipe, a terminal.
    #[error("{}: neither a regular file nor a block device", path.display())]
    WrongKind {
        /// What was to be opened.
        path: PathBuf,
    },
    /// Not one block fits into it.
    #[error("{}: {size} is less than one block of {logical_block} bytes", path.display())]
    TooSmall {
        /// What was to be opened.
        path: PathBuf,
        /// Its size.
        size: ByteSize,
        /// The least that it reads or writes.
        logical_block: u32,
    },
}
