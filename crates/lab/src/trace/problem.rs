//! An error in one record, and where it is.

use std::fmt;

use thiserror::Error;

/// The most devices that one trace may have; more is garbage read as names.
pub const MAX_DEVICES: usize = 65_536;

/// The longest line, in bytes; more is an error, so that garbage cannot fill the memory.
pub const MAX_LINE: usize = 64 << 10;

/// The most bytes of one read or write: what the 32-bit size of a Linux bio (`bi_size`) holds.
pub const MAX_TRANSFER: u64 = u32::MAX as u64;

/// A position in a trace, after decompression.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Position {
    /// The line (of a binary format: the record), from 1.
    pub line: u64,
    /// The line's first byte, from 0.
    pub byte: u64,
}

impl fmt::Display for Position {
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

/// An error in one record.
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
        /// The value found there.
        found: Excerpt,
    },
    /// A number that no 64 bits hold, or that they do not hold in nanoseconds or bytes.
    #[error("{field} is {found}, too large for 64 bits (in nanoseconds or bytes)")]
    Overflow {
        /// Which field.
        field: &'static str,
        /// The value found there.
        found: Excerpt,
    },
    /// An operation that the format does not have.
    #[error("unknown operation {found} (known: {known})")]
    UnknownOp {
        /// The value found there.
        found: Excerpt,
        /// The values allowed there.
        known: &'static str,
    },
    /// A field that is neither of two or three allowed values.
    #[error("{field} is {found} (expected: {expected})")]
    Unexpected {
        /// Which field.
        field: &'static str,
        /// The value found there.
        found: Excerpt,
        /// The value expected there.
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
    #[error("{size} bytes in one request; the limit is {MAX_TRANSFER}")]
    TooLarge {
        /// How many bytes.
        size: u64,
    },
    /// The line does not end.
    #[error("a line of more than {MAX_LINE} bytes (not a text trace?)")]
    LineTooLong,
    /// Bytes that begin no binary record: where the next one begins nobody knows.
    #[error("{found} does not begin a record; the rest cannot be read")]
    NoRecord {
        /// The value found there.
        found: Excerpt,
    },
    /// A binary record that the end of the file cuts.
    #[error("the file ends inside a record: {found} of {expected} bytes")]
    CutRecord {
        /// The bytes that are there.
        found: usize,
        /// The bytes of a record.
        expected: usize,
    },
    /// More device names than a trace has devices.
    #[error("more than {MAX_DEVICES} devices")]
    TooManyDevices,
    /// A name that is none.
    #[error("device name {found} is empty or longer than 255 bytes")]
    DeviceName {
        /// The value found there.
        found: Excerpt,
    },
}
