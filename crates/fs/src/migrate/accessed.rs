//! Rules on access times are evaluated when a file that was read is closed.
//!
//! Only the branch sees reads in passthrough, so the access time says whether there were any. It is compared between
//! the open of the first handle and the close of the last. Only files whose place may depend on it are looked at once
//! more.

use std::sync::Arc;

use umbrella_policy::heat::Opens;
use umbrella_units::{ByteSize, Timestamp};

use crate::branch::Branch;
use crate::ground::at::FileAt;
use crate::ground::meta::Meta;
use crate::migrate::Migrations;
use crate::node::{FileState, Node};

impl Migrations {
    /// A handle was opened, and nothing read through it yet. The caller holds the rename lock shared.
    pub(crate) fn note_opened(&self, node: &Arc<Node>, branch: &Branch, meta: &Meta) {
        let Some(file) = node.file() else { return };
        if branch.online().is_some_and(|online| self.placement.note_use(node, online.slot, Opens::ONE)) {
            file.state.write().is_warm = true;
        }
        if self.placement.rules.load().rules.asked().access_times
            && file.state.read().accessed.is_none()
            && self.placement.depends_on_access_time(&node.rule_path(), meta, branch)
        {
            file.state.write().accessed.get_or_insert(meta.atime);
        }
    }

    /// Notes bytes of a file that were read or written through the daemon since the last call.
    pub(crate) fn note_bytes(&self, node: &Node, at: &FileAt, bytes: ByteSize) {
        let (Some(file), Ok(meta)) = (node.file(), at.stat()) else { return };
        if self.placement.note_use(node, at.online.slot, Opens::of_bytes(bytes, ByteSize(meta.size))) {
            file.state.write().is_warm = true;
        }
    }

    /// The last handle is closed, and nothing but a read can have changed what rules look at. The caller holds the
    /// rename lock shared.
    pub(crate) fn evaluate_read(&self, node: &Arc<Node>, file: &FileAt, before: Timestamp) {
        if let Ok(meta) = file.stat()
            && meta.atime != before
            && meta.nlink > 0
        {
            self.evaluate_meta(node, &meta);
        }
    }
}

impl FileState {
    /// The access time before the handles were opened of which the last is closed now.
    pub(crate) fn take_accessed(&mut self) -> Option<Timestamp> {
        if self.any_handle().is_some() { None } else { self.accessed.take() }
    }
}
