//! All live nodes: by id, and by the inode on a branch that they stand for.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};
use rustc_hash::FxHashMap;

use super::{Backing, Node, NodeId};

const SHARDS: usize = 32;

/// See the module.
pub(crate) struct NodeTable {
    by_id: Vec<RwLock<FxHashMap<NodeId, Arc<Node>>>>,
    by_backing: Vec<Mutex<FxHashMap<Backing, Arc<Node>>>>,
    next: AtomicU64,
}

impl NodeTable {
    pub(crate) fn new(root: Arc<Node>) -> NodeTable {
        let table = NodeTable {
            by_id: (0..SHARDS).map(|_| RwLock::default()).collect(),
            by_backing: (0..SHARDS).map(|_| Mutex::default()).collect(),
            next: AtomicU64::new(NodeId::ROOT.0 + 1),
        };
        table.ids(root.id).write().insert(root.id, root);
        table
    }

    fn ids(&self, id: NodeId) -> &RwLock<FxHashMap<NodeId, Arc<Node>>> {
        &self.by_id[id.0 as usize % SHARDS]
    }

    fn backings(&self, backing: Backing) -> &Mutex<FxHashMap<Backing, Arc<Node>>> {
        &self.by_backing[(backing.ino ^ u64::from(backing.branch.0)) as usize % SHARDS]
    }

    pub(crate) fn next_id(&self) -> NodeId {
        NodeId(self.next.fetch_add(1, Ordering::Relaxed))
    }

    pub(crate) fn get(&self, id: NodeId) -> Option<Arc<Node>> {
        self.ids(id).read().get(&id).cloned()
    }

    /// The node of an inode on a branch, with one more reference; made by `make` when there is none that `fits`.
    pub(crate) fn intern(
        &self,
        backing: Backing,
        fits: impl FnOnce(&Node) -> bool,
        make: impl FnOnce(NodeId) -> Arc<Node>,
    ) -> (Arc<Node>, bool) {
        let mut shard = self.backings(backing).lock();
        if let Some(node) = shard.get(&backing)
            && fits(node)
        {
            node.retain();
            return (Arc::clone(node), false);
        }
        let node = make(self.next_id());
        shard.insert(backing, Arc::clone(&node));
        self.ids(node.id).write().insert(node.id, Arc::clone(&node));
        (node, true)
    }

    /// Puts a node without an inode of its own in the index (a file without a name).
    pub(crate) fn insert(&self, node: &Arc<Node>) {
        self.ids(node.id).write().insert(node.id, Arc::clone(node));
    }

    /// The node of an inode, without a new reference.
    pub(crate) fn find(&self, backing: Backing) -> Option<Arc<Node>> {
        self.backings(backing).lock().get(&backing).cloned()
    }

    /// From now on the node also stands for this inode.
    pub(crate) fn add_backing(&self, backing: Backing, node: &Arc<Node>) {
        self.backings(backing).lock().insert(backing, Arc::clone(node));
    }

    /// The node no longer stands for this inode.
    pub(crate) fn remove_backing(&self, backing: Backing, node: &Node) {
        let mut shard = self.backings(backing).lock();
        if shard.get(&backing).is_some_and(|found| found.id == node.id) {
            shard.remove(&backing);
        }
    }

    /// Gives `count` references back; forgets the node when none is left.
    pub(crate) fn release(&self, node: &Arc<Node>, count: u64) {
        if node.id == NodeId::ROOT {
            return;
        }
        if node.refs.fetch_sub(count, Ordering::AcqRel) != count {
            return;
        }
        let backings: smallvec::SmallVec<[Backing; 2]> = match &node.body {
            super::Body::Dir(dir) => dir.state.read().copies.iter().map(|copy| copy.backing).collect(),
            super::Body::File(file) => smallvec::smallvec![file.state.read().backing],
        };
        for backing in backings {
            let mut shard = self.backings(backing).lock();
            // Somebody may have found it meanwhile: then it lives on.
            if node.refs.load(Ordering::Acquire) != 0 {
                return;
            }
            if shard.get(&backing).is_some_and(|found| found.id == node.id) {
                shard.remove(&backing);
            }
        }
        if node.refs.load(Ordering::Acquire) == 0 {
            self.ids(node.id).write().remove(&node.id);
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.by_id.iter().map(|shard| shard.read().len()).sum()
    }

    /// All nodes at this moment.
    pub(crate) fn snapshot(&self) -> Vec<Arc<Node>> {
        self.by_id.iter().flat_map(|shard| shard.read().values().cloned().collect::<Vec<_>>()).collect()
    }
}
