//! A run of a policy as text: every event and every selection with its time and answer, so that it can be decided
//! again.
//!
//! A line each, words between blanks, numbers in decimal. Time is expected in nanoseconds since the line before.
//!
//! ```text
//! umbrella-events 1                        format and version
//! policy zone_segment:alpha=50             the policy that decided
//! d 1200 77 0 4 90112 -                    77's pages 0 to 3 became dirty; they lie from block 90112 on; - inactive, a active
//! w 30 77 2 1                              written again        t read        a activated        i deactivated        c clean
//! m 0 77 8 2 90200                         pages 8 and 9 lie from block 90200 on
//! f 0 77 8 2 5000000                       they will be written next at that time
//! x 10 77 3                                77 ends before page 3
//! k 10 77                                  77 is gone
//! s 400 256 1                              256 pages were asked for, and one run of pages was the answer:
//! > 77 0 3 90112
//! end 9 1f0c5a0d1a2b3c4d                   lines before, and the FNV-1a sum (64 bits) of their bytes
//! ```
//!
//! The record is text, because it is looked at with `grep` as often as it is replayed. A record without its end was cut
//! short (a crash, a full disk). Its complete lines can still be replayed, and the reader reports that it was cut.

mod read;
#[cfg(test)]
mod tests;
mod write;

use thiserror::Error;
use umbrella_units::{Nanos, Pages};

use super::{DirtyPage, Event};

pub use read::RecordReader;
pub use write::Recorder;

/// The version that is written.
pub const VERSION: u32 = 1;

/// The word that a record begins with.
const MAGIC: &str = "umbrella-events";

/// The most pages that one line may name, so that the memory for a line is bounded.
const LONGEST_RUN: u64 = 1 << 16;

/// Pages of one answer: no more are ever dirty at a time (16 GiB).
const MOST_SELECTED: u64 = 4 << 20;

/// What a record holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecordEntry {
    /// Something happened.
    Event(Nanos, Event),
    /// The policy was asked.
    Selected {
        /// When.
        now: Nanos,
        /// For how many pages.
        want: Pages,
        /// What it answered.
        pages: Vec<DirtyPage>,
    },
}

/// A record that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RecordError {
    /// It is something else.
    #[error("line 1: not a record of write-back events (it begins with \"umbrella-events 1\")")]
    NotARecord,
    /// It is of a later version.
    #[error("line 1: unknown version {found} of the format (known: {VERSION})")]
    Version {
        /// Which.
        found: String,
    },
    /// A line that means nothing.
    #[error("line {line}: \"{text}\" is not an event")]
    BadLine {
        /// Which line.
        line: u64,
        /// Its beginning.
        text: String,
    },
    /// A run of no page, or of more than a line may tell of.
    #[error("line {line}: {pages} pages (a line has 1 to {LONGEST_RUN})")]
    BadRun {
        /// Which line.
        line: u64,
        /// How many pages.
        pages: u64,
    },
    /// An answer of more pages than any selection has.
    #[error("line {line}: an answer of more than {MOST_SELECTED} pages")]
    TooManySelected {
        /// Which line.
        line: u64,
    },
    /// The sum at the end is another one.
    #[error(
        "line {line}: the record was changed or damaged: its checksum is {found:016x}, but should be {expected:016x}"
    )]
    BadSum {
        /// Which line.
        line: u64,
        /// The sum of what was read.
        found: u64,
        /// What the record says.
        expected: u64,
    },
    /// Lines are missing.
    #[error("line {line}: the record has {found} lines before its end, but {expected} were written")]
    BadCount {
        /// Which line.
        line: u64,
        /// What was read.
        found: u64,
        /// What the record says.
        expected: u64,
    },
    /// Something behind the end.
    #[error("line {line}: something follows the record's end")]
    BehindEnd {
        /// Which line.
        line: u64,
    },
}

/// FNV-1a, 64 bits.
#[derive(Debug, Clone, Copy)]
struct Fnv1a(u64);

impl Fnv1a {
    const EMPTY: Fnv1a = Fnv1a(0xcbf2_9ce4_8422_2325);

    /// Adds a line, with the line feed that ends it.
    fn add(&mut self, line: &str) {
        for byte in line.bytes().chain([b'\n']) {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
}
