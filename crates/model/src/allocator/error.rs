//! What can go wrong with an allocation.

use umbrella_units::{FileId, PageIndex};

/// Why a block, an inode or a whole file system could not be had.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AllocError {
    /// No block is free.
    #[error("no space left: all {blocks} blocks are in use")]
    NoSpace {
        /// Blocks of the file system.
        blocks: u64,
    },
    /// No inode is free.
    #[error("no inode left: all {inodes} are in use")]
    NoInodes {
        /// Inodes of the file system.
        inodes: u64,
    },
    /// More than three levels of indirect blocks reach.
    #[error("file {}: page {} is beyond the largest file", file.0, index.0)]
    FileTooLarge {
        /// The file.
        file: FileId,
        /// The page.
        index: PageIndex,
    },
    /// There is no such file or directory.
    #[error("there is no file {}", file.0)]
    NoSuchFile {
        /// The number that was asked for.
        file: FileId,
    },
    /// It exists already.
    #[error("file {} exists already", file.0)]
    Exists {
        /// The number that was to be made.
        file: FileId,
    },
    /// It is a file and not a directory, or the other way around.
    #[error("{} is of the wrong kind for this operation", file.0)]
    WrongKind {
        /// Its number.
        file: FileId,
    },
    /// The directory holds something, or is the root.
    #[error("cannot remove directory {}", directory.0)]
    InUse {
        /// The directory.
        directory: FileId,
    },
    /// The file system would have room for nothing, or its block numbers would not fit 31 bits.
    #[error("{blocks} blocks make no file system: at least {least}, at most {most}")]
    BadSize {
        /// What was asked for.
        blocks: u64,
        /// The least that makes one.
        least: u64,
        /// The most.
        most: u64,
    },
}
