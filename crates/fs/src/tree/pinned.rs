//! Nodes that a walk needs for a while, whatever the kernel forgets.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use crate::error::{OpError, OpResult};
use crate::node::{Node, NodeId};
use crate::tree::{Tree, is_reserved};

/// A node that is kept for as long as a walk needs it.
pub(crate) struct Pinned<'a> {
    tree: &'a Tree,
    pub(crate) node: Arc<Node>,
}

impl<'a> Pinned<'a> {
    pub(crate) fn root(tree: &'a Tree) -> Pinned<'a> {
        Pinned::again(tree, &tree.root)
    }

    /// A node that is kept already, for longer.
    pub(crate) fn again(tree: &'a Tree, node: &Arc<Node>) -> Pinned<'a> {
        node.retain();
        Pinned { tree, node: Arc::clone(node) }
    }

    pub(crate) fn lookup(tree: &'a Tree, parent: &Arc<Node>, name: &OsStr) -> OpResult<Pinned<'a>> {
        let _names = tree.rename_lock.read();
        let (node, _) = tree.lookup_in(parent, name)?;
        Ok(Pinned { tree, node })
    }

    /// What is at a path of the pool.
    pub(crate) fn at_path(tree: &'a Tree, path: &[u8]) -> OpResult<Pinned<'a>> {
        let mut at = Pinned::root(tree);
        for name in path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()).map(OsStr::from_bytes) {
            if is_reserved(&at.node, name) {
                return Err(OpError::Reserved);
            }
            at = Pinned::lookup(tree, &at.node, name)?;
        }
        Ok(at)
    }
}

impl Drop for Pinned<'_> {
    fn drop(&mut self) {
        if self.node.id != NodeId::ROOT {
            self.tree.nodes.release(&self.node, 1);
        }
    }
}
