//! What can be wrong with a parameter file of DiskSim.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

/// Why a parameter file could not be read.
#[derive(Debug, Error)]
pub enum ImportError {
    /// A file could not be read.
    #[error("{}: {source}", path.display())]
    Read {
        /// Which one.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The files are larger than any description of a drive.
    #[error("the files are larger than {0} bytes together; give the parameter file of one drive")]
    TooLarge(u64),
    /// Files that name each other.
    #[error("more than {0} files are named; give the parameter file of one drive")]
    TooManyFiles(usize),
    /// A name that leads out of the directory.
    #[error(
        "the file names {name:?}, which is not a plain file beside it; put it there and name it without a directory"
    )]
    NotBeside {
        /// The name.
        name: String,
    },
    /// Blocks within blocks.
    #[error("blocks are nested more than {0} deep")]
    TooDeep(usize),
    /// A mark in the wrong place.
    #[error("a mark is out of place behind {after:?}; an entry is KEY = VALUE,")]
    Unexpected {
        /// What stands before it.
        after: String,
    },
    /// The text ends within a block.
    #[error("the text ends within {block:?}")]
    Unfinished {
        /// The block's kind.
        block: String,
    },
    /// No drive.
    #[error("there is no disksim_disk block, here or in the files that are named; give the .parv file of a drive")]
    NoDisk,
    /// More than one drive.
    #[error("there are {0} disksim_disk blocks; leave one")]
    ManyDisks(usize),
    /// Something needed is not there.
    #[error("{block} has no {key:?}")]
    Missing {
        /// The block's kind.
        block: String,
        /// The key.
        key: String,
    },
    /// Not a number.
    #[error("{key:?} is not a number")]
    NotANumber {
        /// The key.
        key: String,
    },
    /// A number that no drive has.
    #[error("{key:?} is {value}, which no drive has")]
    OutOfRange {
        /// The key.
        key: String,
        /// What it says.
        value: f64,
    },
    /// A word that is not known.
    #[error("{key:?} is {value:?} (known: {known})")]
    Unknown {
        /// The key.
        key: String,
        /// What it says.
        value: String,
        /// What it may say.
        known: &'static str,
    },
    /// What was read makes no drive.
    #[error(transparent)]
    Profile(#[from] super::super::profile::ProfileError),
}
