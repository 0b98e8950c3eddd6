//! What can be wrong with a parameter file of DiskSim.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use thiserror::Error;

/// A line of one of the files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceLine {
    /// The file's name.
    pub file: Arc<str>,
    /// Counted from 1.
    pub number: u32,
}

impl fmt::Display for SourceLine {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{}, line {}", self.file, self.number)
    }
}

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
    #[error("{line}: {name:?} is not a plain file in the same directory; put it there and name it without a directory")]
    NotBeside {
        /// Where.
        line: SourceLine,
        /// The name.
        name: String,
    },
    /// A file that is named could not be read.
    #[error("{line}: {name}: {source}")]
    Named {
        /// Where.
        line: SourceLine,
        /// The name.
        name: String,
        /// Why.
        source: io::Error,
    },
    /// Blocks within each other without end.
    #[error("{line}: blocks are nested more than {most} deep")]
    TooDeep {
        /// Where.
        line: SourceLine,
        /// How deep they may be.
        most: usize,
    },
    /// A mark where a key should be.
    #[error("{line}: a mark is out of place behind {after:?}; an entry is KEY = VALUE,")]
    Unexpected {
        /// Where.
        line: SourceLine,
        /// What is before it.
        after: String,
    },
    /// The text ends within a block.
    #[error("{line}: the text ends within {block:?}, which begins here")]
    Unfinished {
        /// Where the block begins.
        line: SourceLine,
        /// The block's kind.
        block: String,
    },
    /// No drive.
    #[error("no disksim_disk block, here or in the files that it names; give the .parv file of a drive")]
    NoDisk,
    /// More than one drive.
    #[error("{line}: there are {count} disksim_disk blocks, and this is the second; leave one")]
    ManyDisks {
        /// Where the second one begins.
        line: SourceLine,
        /// How many there are.
        count: usize,
    },
    /// Something needed is not there.
    #[error("{line}: {block} has no {key:?}")]
    Missing {
        /// Where the block begins.
        line: SourceLine,
        /// The block's kind.
        block: String,
        /// The key.
        key: String,
    },
    /// Not a number.
    #[error("{line}: {key:?} is not a number")]
    NotANumber {
        /// Where.
        line: SourceLine,
        /// The key.
        key: String,
    },
    /// A number that no drive has.
    #[error("{line}: {key:?} is {value}, which is impossible for a drive")]
    OutOfRange {
        /// Where.
        line: SourceLine,
        /// The key.
        key: String,
        /// What it says.
        value: f64,
    },
    /// A word that is not known.
    #[error("{line}: {key:?} is {value:?} (known: {known})")]
    Unknown {
        /// Where.
        line: SourceLine,
        /// The key.
        key: String,
        /// What it says.
        value: String,
        /// What it may say.
        known: &'static str,
    },
    /// A line of a seek curve that is not a point of it.
    #[error("{line}: a distance in cylinders, a comma and milliseconds are expected")]
    NotAPoint {
        /// Where.
        line: SourceLine,
    },
    /// A seek curve without points.
    #[error("{line}: the seek curve {name:?} has no points")]
    NoPoints {
        /// Where it is named.
        line: SourceLine,
        /// Its file.
        name: String,
    },
    /// What was read makes no drive.
    #[error("{line}: {source}")]
    Profile {
        /// Where the drive's block begins.
        line: SourceLine,
        /// Why.
        source: super::super::profile::ProfileError,
    },
}
