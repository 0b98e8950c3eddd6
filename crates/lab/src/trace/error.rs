//! What can be wrong with a trace, and where: every error names line and byte, and says what to do next.

use std::fmt;
use std::io;
use std::path::PathBuf;

use thiserror::Error;
use umbrella_units::Nanos;

use super::{Compression, Format, MAX_DEVICES, MAX_LINE, MAX_TRANSFER};

/// A place in a trace, after decompression.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Place {
    /// The line (of a binary format: the record), from 1.
    pub line: u64,
    /// The line's first byte, from 0.
    pub byte: u64,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {} (byte {})", self.line, self.byte)
    }
}

/// The beginning of a piece of the input, made printable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Excerpt(Box<str>);

impl Excerpt {
    const LONGEST: usize = 40;

    /// Of these bytes.
    pub fn new(bytes: &[u8]) -> Excerpt {
        let mut text: String =
            bytes.iter().take(Self::LONGEST).copied().flat_map(std::ascii::escape_default).map(char::from).collect();
        if bytes.len() > Self::LONGEST {
            text.push_str("...");
        }
        Excerpt(text.into())
    }
}

impl fmt::Display for Excerpt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0)
    }
}

/// What is wrong with one record.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Problem {
    /// The line ends too early.
    #[error("{field} is missing")]
    Missing {
        /// What should have followed.
        field: &'static str,
    },
    /// Not a number.
    #[error("{field} is {found}, not a number")]
    NotANumber {
        /// Which field.
        field: &'static str,
        /// What stands there.
        found: Excerpt,
    },
    /// A number that no 64 bits hold, or that they do not hold in nanoseconds or bytes.
    #[error("{field} is {found}, more than 64 bits hold (in nanoseconds or bytes)")]
    Overflow {
        /// Which field.
        field: &'static str,
        /// What stands there.
        found: Excerpt,
    },
    /// An operation that the format does not have.
    #[error("unknown operation {found} (known: {known})")]
    UnknownOp {
        /// What stands there.
        found: Excerpt,
        /// What could stand there.
        known: &'static str,
    },
    /// A field that is neither of two or three allowed values.
    #[error("{field} is {found} (expected: {expected})")]
    Unexpected {
        /// Which field.
        field: &'static str,
        /// What stands there.
        found: Excerpt,
        /// What should stand there.
        expected: &'static str,
    },
    /// The request ends beyond the last address there is.
    #[error("{size} bytes at {offset} end beyond the last address of 64 bits")]
    OutOfRange {
        /// The first byte.
        offset: u64,
        /// How many bytes.
        size: u64,
    },
    /// More than one request can transfer.
    #[error("{size} bytes in one request, the most a request transfers is {MAX_TRANSFER}")]
    TooLarge {
        /// How many bytes.
        size: u64,
    },
    /// The line does not end.
    #[error("a line of more than {MAX_LINE} bytes (not a text trace?)")]
    LineTooLong,
    /// A binary record that the end of the file cuts.
    #[error("the file ends inside a record: {found} of {expected} bytes")]
    CutRecord {
        /// The bytes that are there.
        found: usize,
        /// The bytes of a record.
        expected: usize,
    },
    /// More device names than a trace has devices.
    #[error("more than {MAX_DEVICES} devices (is another format meant? see --format)")]
    TooManyDevices,
    /// A name that is none.
    #[error("device name {found} is empty or longer than 255 bytes")]
    DeviceName {
        /// What stands there.
        found: Excerpt,
    },
}

/// A trace cannot be read, or not further.
#[derive(Debug, Error)]
pub enum TraceError {
    /// The file cannot be opened.
    #[error("cannot open {}: {source}", path.display())]
    Open {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// What stands there is not a file to read.
    #[error("{} is {kind}, not a trace", path.display())]
    NotAFile {
        /// Which one.
        path: PathBuf,
        /// What it is.
        kind: &'static str,
    },
    /// The file cannot be read further, or its compressed data are damaged.
    #[error("{} after byte {byte} of the {}: {source}", read_failure(*compression, source), unpacked(*compression))]
    Read {
        /// How it is compressed.
        compression: Compression,
        /// How many (decompressed) bytes could be read before.
        byte: u64,
        /// Why.
        source: io::Error,
    },
    /// There is nothing in it.
    #[error("the trace is empty")]
    Empty,
    /// The content is of no known format.
    #[error("not a trace in a known format (name the format with --format if it is one of {})", Format::NAMES)]
    UnknownFormat,
    /// The content could be of these formats, and it is not certain of which.
    #[error(
        "the format is not certain: by its first lines it may be {} (say which it is with --format)",
        alternatives(candidates)
    )]
    UncertainFormat {
        /// All that it may be; several, or one below a header that is not its own.
        candidates: Vec<Format>,
    },
    /// What blktrace itself writes.
    #[error("a binary file of blktrace, not its text (turn it into text: {command})")]
    BinaryBlktrace {
        /// How to make text of it.
        command: String,
    },
    /// A record cannot be understood.
    #[error("{place}: {problem} (format {format}; leave out what cannot be read: --lenient)")]
    Malformed {
        /// Where.
        place: Place,
        /// The format it was read as.
        format: Format,
        /// What is wrong.
        problem: Problem,
    },
    /// A record came too late to be put in its place.
    #[error(
        "{place}: {behind} s earlier than a record before it, beyond the reorder window (sort it: umbrella lab trace convert --sort)",
        behind = latest.since(*time).as_secs_f64()
    )]
    Unsorted {
        /// Where.
        place: Place,
        /// The record's time.
        time: Nanos,
        /// The time that was reached before.
        latest: Nanos,
    },
    /// The clock jumps further than a trace is long.
    #[error("{place}: the time jumps by {gap} s (a corrupt time? leave it out: without --strict; accept it: --max-gap)", gap = gap.as_secs_f64())]
    TimeJump {
        /// Where.
        place: Place,
        /// How far.
        gap: Nanos,
    },
    /// More records than may be sorted in memory.
    #[error("more than {limit} records: too many to sort in memory (cut the trace first: --from, --until, --device)")]
    TooManyToSort {
        /// How many may be.
        limit: usize,
    },
}

fn alternatives(formats: &[Format]) -> String {
    formats.iter().map(|format| format.name()).collect::<Vec<_>>().join(" or ")
}

fn read_failure(compression: Compression, source: &io::Error) -> String {
    match (compression, source.kind()) {
        (Compression::None, _) => "reading failed".to_owned(),
        (_, io::ErrorKind::UnexpectedEof) => format!("the {compression} data are cut short"),
        _ => format!("the {compression} data are damaged"),
    }
}

fn unpacked(compression: Compression) -> &'static str {
    if compression == Compression::None { "file" } else { "decompressed trace" }
}
