//! Block traces: what was asked of a real device, and when.

use umbrella_units::{ByteSize, Nanos};

/// What a traced request did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TraceOp {
    /// Read bytes.
    Read,
    /// Wrote bytes.
    Write,
    /// Discarded bytes.
    Discard,
}

/// One request of a trace. Any byte range: the replay splits it on page borders.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record {
    /// When it was issued, from the beginning of the trace.
    pub time: Nanos,
    /// The device, numbered in the order of first appearance.
    pub device: u32,
    /// What it did.
    pub op: TraceOp,
    /// The first byte.
    pub offset: ByteSize,
    /// How many bytes; zero is possible.
    pub size: ByteSize,
}
