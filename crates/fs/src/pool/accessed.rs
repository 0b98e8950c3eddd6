//! Rules on access times are asked when a file that was read is closed.
//!
//! Reads in passthrough are seen by nobody but the branch, so the access time says whether there were any: as it was when the first handle was opened
//! against what it is when the last is closed. Where no rule asks for access times, nothing is looked at.

use std::sync::Arc;

use umbrella_units::Timestamp;

use super::Pool;
use crate::at::FileAt;
use crate::meta::Meta;
use crate::node::{FileState, Node};

impl Pool {
    /// A handle is about to be opened.
    pub(super) fn note_opened(&self, state: &mut FileState, meta: &Meta) {
        if state.accessed.is_none() && self.rules.load().rules.asked().access_times {
            state.accessed = Some(meta.atime);
        }
    }

    /// The last handle is closed, and nothing but a read can have changed what rules look at. The caller holds the rename lock shared.
    pub(super) fn judge_read(&self, node: &Arc<Node>, file: &FileAt, before: Timestamp) {
        if let Ok(meta) = file.stat()
            && meta.atime != before
            && meta.nlink > 0
        {
            self.judge_meta(node, &meta);
        }
    }
}

impl FileState {
    /// The access time before the handles were opened of which the last is closed now.
    pub(super) fn take_accessed(&mut self) -> Option<Timestamp> {
        if self.any_handle().is_some() { None } else { self.accessed.take() }
    }
}
