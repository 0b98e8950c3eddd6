//! What can be wrong with a trace, and where: every error of a record names its line and byte.

use std::io;
use std::path::PathBuf;

use thiserror::Error;
use umbrella_units::Nanos;

use super::compression::Compression;
use super::format::Format;
use super::parquet::ParquetProblem;
use super::problem::{Position, Problem};

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
    /// It is not a file to read.
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
    #[error("not a trace in a known format")]
    UnknownFormat,
    /// The content could be of any of these formats.
    #[error("the format is not certain: by its first lines it may be {}", alternatives(candidates))]
    UncertainFormat {
        /// All that it may be; several, or one below a header that is not its own.
        candidates: Vec<Format>,
    },
    /// A record cannot be understood.
    #[error("{position}: {problem} (format {format})")]
    Malformed {
        /// Where.
        position: Position,
        /// The format it was read as.
        format: Format,
        /// The cause.
        problem: Problem,
    },
    /// A Parquet file, or a part of it, cannot be read.
    #[error(transparent)]
    Parquet(#[from] ParquetProblem),
    /// A record came too late to be put in its position.
    #[error(
        "{position}: {behind} s earlier than a record before it, beyond the reorder window",
        behind = latest.since(*time).as_secs_f64()
    )]
    Unsorted {
        /// Where.
        position: Position,
        /// The record's time.
        time: Nanos,
        /// The time that was reached before.
        latest: Nanos,
    },
    /// The clock jumps further than a trace is long.
    #[error("{position}: the time jumps by {gap} s", gap = gap.as_secs_f64())]
    TimeJump {
        /// Where.
        position: Position,
        /// How far.
        gap: Nanos,
    },
    /// More records than may be sorted in memory.
    #[error("more than {limit} records: too many to sort in memory")]
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
