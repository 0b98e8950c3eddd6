//! Block traces: the requests to a real device, and their times.
//!
//! Traces come in many formats and are large, old and damaged. So a reader streams (memory does not grow with the file)
//! and detects the format itself ([`Format::detect`], also through gzip and Zstandard). It answers anything odd with a
//! typed error that names line and byte. Each [`Format`] has its own file. Steps of a read: decompress, cut into lines
//! or fixed records, parse, sort by time, count times from the first record.

mod alibaba;
mod ascii;
mod biosnoop;
mod blkparse;
mod blktrace;
mod columns;
mod compression;
mod csv;
mod cursor;
mod detect;
mod devices;
mod digits;
mod disksim;
mod encoder;
mod error;
mod fio;
mod fiu;
mod format;
mod frame;
mod fuzz;
mod input;
mod iotrace;
mod msr;
mod order;
mod pages;
mod parquet;
mod parse;
mod problem;
mod reader;
mod recording;
mod registry;
mod sort;
mod spc;
mod srt;
mod summary;
mod systor;
mod tencent;
mod tracefs;
mod vscsi;
mod writer;

use serde::{Deserialize, Serialize};
use umbrella_units::{ByteSize, Nanos};

pub use columns::{Columns, OPERATIONS};
pub use compression::Compression;
pub use devices::Devices;
pub use encoder::Encoder;
pub use error::TraceError;
pub use format::{Format, UnknownFormatName};
pub use fuzz::fuzz_one;
pub use pages::{PagePart, PageSpan, pages};
pub use parquet::ParquetProblem;
pub use parse::{Event, Unwritable};
pub use problem::{Excerpt, MAX_DEVICES, MAX_LINE, MAX_TRANSFER, Position, Problem};
pub use reader::{OpenOptions, Order, Progress, Skipped, Strictness, TimeOrigin, TraceReader, from_reader, open};
pub use sort::{Sorted, sort};
pub use summary::{DeviceSummary, Digest, Gaps, Sizes, Summary, read_all};
pub use tracefs::{BlockEvent, CSV_HEADER, lost_events, parse_trace_pipe};
pub use writer::{WriteError, Writer};

/// What a traced request did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TraceOp {
    /// Read bytes.
    Read,
    /// Wrote bytes.
    Write,
    /// Discarded bytes.
    Discard,
}

/// One request of a trace. Any byte range: the replay splits it on page borders ([`pages`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Record {
    /// When it was issued, from the beginning of the trace.
    pub time: Nanos,
    /// The device, numbered in the order of first appearance.
    pub device: u32,
    /// What it did.
    pub op: TraceOp,
    /// The first byte.
    pub offset: ByteSize,
    /// How many bytes; zero is possible. The end, `offset + size`, fits.
    pub size: ByteSize,
}
