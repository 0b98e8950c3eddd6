//! The segment table.

use super::ids::{Clock, Stream};

/// What a segment is used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Nothing; it may be opened.
    Free,
    /// The log grows in it.
    Open,
    /// Its stream continues in it when the open one is full.
    Next,
    /// Full, but its last blocks are not written out yet.
    Closing,
    /// It holds data and does not change.
    Full,
    /// Only pages of the map are live in it, and the next checkpoint writes them elsewhere.
    Retiring,
    /// Nothing in it is needed any more, but what replaced it may not be durable yet.
    Cleaned,
    /// Not part of the log: checkpoints lie there.
    System,
}

/// A segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// What it is used for.
    pub state: State,
    /// The stream that wrote it.
    pub stream: Stream,
    /// Blocks in it that are still current.
    pub live: u32,
    /// When the user wrote the youngest block of it.
    pub youngest: Clock,
    /// When it was opened.
    pub opened: Clock,
    /// Whether it is free only after a checkpoint: recovery reads it, as the log since the last one passes through it
    /// or a page of the map was in it.
    pub fresh: bool,
}

impl Segment {
    /// One that holds nothing.
    pub const FREE: Segment =
        Segment { state: State::Free, stream: Stream(0), live: 0, youngest: Clock(0), opened: Clock(0), fresh: false };
}
