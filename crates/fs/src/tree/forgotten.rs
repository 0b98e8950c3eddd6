//! Directories that the kernel forgot while what changed in them is not durable. Their nodes stay for as long as their
//! notes (`node::dir_changes`) count, so that the next lookup finds the same node, and an fsync the notes.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::node::{Node, NodeId};
use crate::tree::Tree;

/// No more are kept.
const MOST: usize = 10_000;
const LEAST_SWEEP: usize = 64;

/// See the module.
#[derive(Default)]
pub(super) struct UnsyncedDirs {
    nodes: FxHashMap<NodeId, Arc<Node>>,
    sweep_at: usize,
}

impl Tree {
    /// Keeps a directory that was forgotten, if it has notes that count.
    pub(super) fn keep_unsynced(&self, node: Arc<Node>) {
        let counts =
            |node: &Node| !node.is_removed() && node.dir().is_some_and(|dir| dir.changes.any_counts(&self.branches));
        if !counts(&node) {
            return;
        }
        let mut kept = self.unsynced_dirs.lock();
        if kept.nodes.len() >= kept.sweep_at {
            kept.nodes.retain(|_, node| counts(node));
            kept.sweep_at = LEAST_SWEEP.max(2 * kept.nodes.len());
        }
        if kept.nodes.len() < MOST {
            kept.nodes.insert(node.id, node);
        }
    }
}
