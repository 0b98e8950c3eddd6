//! The clients of a machine: each does one step after the other, and waits where a process would wait.

use umbrella_units::{FileId, Nanos};

use crate::workload::FileOperation;

/// Why a client does not continue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wait {
    /// It continues at a time that is in the queue of events.
    Ready,
    /// It waits for this many pages to come or go.
    Pages,
    /// Too much is dirty (`balance_dirty_pages`).
    Throttled,
    /// No memory is free.
    Memory,
    /// It has done all its steps.
    Finished,
}

/// What a client's step came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Done, at this cost to the processor.
    Done(Nanos),
    /// To be tried again when what it waits for has happened.
    Blocked(Wait),
}

/// Where a client reads, and how far ahead.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ReadAhead {
    pub(super) file: FileId,
    pub(super) next: u64,
    pub(super) window: u32,
}

/// One client.
#[derive(Debug)]
pub(super) struct ClientState {
    pub(super) step: Option<FileOperation>,
    /// When the step was due.
    pub(super) began: Nanos,
    /// Pages of the step that are done.
    pub(super) done: u64,
    /// Pages that it waits for.
    pub(super) awaited: u32,
    pub(super) wait: Wait,
    /// Since when it waits.
    pub(super) since: Nanos,
    pub(super) ahead: ReadAhead,
}

impl ClientState {
    pub(super) fn new() -> ClientState {
        ClientState {
            step: None,
            began: Nanos(0),
            done: 0,
            awaited: 0,
            wait: Wait::Ready,
            since: Nanos(0),
            ahead: ReadAhead::default(),
        }
    }
}
