//! Why a Parquet file cannot be read as a trace.

use parquet::errors::ParquetError;
use thiserror::Error;

/// Why a Parquet file cannot be read as a trace.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ParquetProblem {
    /// The file is damaged, or uses what the reader does not know.
    #[error("the Parquet data cannot be read: {source}")]
    Damaged {
        /// What the decoder says.
        #[from]
        source: ParquetError,
    },
    /// The decoder gave up on what no sound file has.
    #[error("the Parquet data are damaged: the decoder gave up on a row after row {row}")]
    GaveUp {
        /// The last row that was read.
        row: u64,
    },
    /// No column has the times, the offsets and so on.
    #[error("no column has the {what}: name one of them {names}")]
    MissingColumn {
        /// What it would have.
        what: &'static str,
        /// How it may be called.
        names: &'static str,
    },
    /// Two columns could be meant.
    #[error("two columns have the {what} (leave one of {names})")]
    TwoColumns {
        /// What they have.
        what: &'static str,
        /// How it may be called.
        names: &'static str,
    },
    /// A column of another type.
    #[error("column {column:?} is not a {expected}")]
    ColumnType {
        /// Its name.
        column: String,
        /// What it should be.
        expected: &'static str,
    },
    /// A column's pages are compressed in a way that is not read.
    #[error("column {column:?} is compressed with {codec}: write it with Snappy, Zstandard, or without compression")]
    Codec {
        /// Its name.
        column: String,
        /// Its compression.
        codec: &'static str,
    },
    /// More than a file of a sound writer needs.
    #[error("{what} of {found} bytes; the limit is {most}")]
    TooLarge {
        /// Which part.
        what: &'static str,
        /// Its size.
        found: u64,
        /// The most that is read.
        most: u64,
    },
    /// Columns of one row group that do not have the rows that it says.
    #[error("the Parquet data are damaged: the columns of a row group differ in length after row {row}")]
    Uneven {
        /// The last row that was read.
        row: u64,
    },
    /// A pipe or a compressed file that is larger than what is kept in memory.
    #[error(
        "Parquet is read from its end, so a pipe or compressed file is held in memory, at most {most} bytes: save it \
        as a plain file first"
    )]
    StreamTooLong {
        /// The most that is kept.
        most: u64,
    },
}
