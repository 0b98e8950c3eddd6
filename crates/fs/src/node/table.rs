//! All live nodes: by id, and by the inode on a branch that they stand for.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use rustc_hash::FxHashMap;

use super::{Backing, Node, NodeId};
use crate::ground::locks::{RankedMutex, RankedRwLock, rank};

const SHARDS: usize = 32;

/// See the module.
pub(crate) struct NodeTable {
    by_id: Vec<RankedRwLock<rank::NodesById, FxHashMap<NodeId, Arc<Node>>>>,
    by_backing: Vec<RankedMutex<rank::NodesByBacking, Backings>>,
    next: AtomicU64,
    /// Directories without a reference, until [`NodeTable::take_forgotten`].
    forgotten: RankedMutex<rank::NodesForgotten, Vec<Arc<Node>>>,
    any_forgotten: AtomicBool,
}

/// Nodes by inode.
#[derive(Default)]
struct Backings {
    live: FxHashMap<Backing, Arc<Node>>,
    /// Directories without a reference. Something below one may still be in use: another name of an open file, or a
    /// file that waits for its move. Until then a lookup of the directory must find the same node, because a second
    /// node would change its place without the first.
    unreferenced: FxHashMap<Backing, Weak<Node>>,
    sweep_at: usize,
}

const LEAST_SWEEP: usize = 64;

impl Backings {
    fn find(&self, backing: Backing) -> Option<Arc<Node>> {
        self.live.get(&backing).cloned().or_else(|| self.unreferenced.get(&backing).and_then(Weak::upgrade))
    }

    fn remove(&mut self, backing: Backing, id: NodeId) -> Option<Arc<Node>> {
        if self.live.get(&backing).is_some_and(|found| found.id == id) { self.live.remove(&backing) } else { None }
    }

    /// The directory may still be in use; those that are not are dropped now and then.
    fn retain_weakly(&mut self, backing: Backing, node: &Arc<Node>) {
        self.unreferenced.insert(backing, Arc::downgrade(node));
        if self.unreferenced.len() > self.sweep_at {
            self.unreferenced.retain(|_, node| node.strong_count() > 0);
            self.sweep_at = LEAST_SWEEP.max(2 * self.unreferenced.len());
        }
    }
}

impl NodeTable {
    pub(crate) fn new(root: Arc<Node>) -> NodeTable {
        let table = NodeTable {
            by_id: (0..SHARDS).map(|_| RankedRwLock::default()).collect(),
            by_backing: (0..SHARDS).map(|_| RankedMutex::default()).collect(),
            next: AtomicU64::new(NodeId::ROOT.0 + 1),
            forgotten: RankedMutex::default(),
            any_forgotten: AtomicBool::new(false),
        };
        table.ids(root.id).write().insert(root.id, root);
        table
    }

    fn ids(&self, id: NodeId) -> &RankedRwLock<rank::NodesById, FxHashMap<NodeId, Arc<Node>>> {
        &self.by_id[id.0 as usize % SHARDS]
    }

    fn backings(&self, backing: Backing) -> &RankedMutex<rank::NodesByBacking, Backings> {
        &self.by_backing[(backing.ino ^ u64::from(backing.branch.0)) as usize % SHARDS]
    }

    pub(crate) fn next_id(&self) -> NodeId {
        NodeId(self.next.fetch_add(1, Ordering::Relaxed))
    }

    pub(crate) fn get(&self, id: NodeId) -> Option<Arc<Node>> {
        self.ids(id).read().get(&id).cloned()
    }

    /// The node of an inode on a branch, with one more reference; made by `make` when there is none that `fits`.
    /// `None`: `make` would not. `fits` may lock the node, as the table is not locked then; `make` may not.
    pub(crate) fn intern(
        &self,
        backing: Backing,
        fits: impl Fn(&Node) -> bool,
        make: impl FnOnce(NodeId) -> Option<Arc<Node>>,
    ) -> Option<(Arc<Node>, bool)> {
        loop {
            let found = self.take(backing);
            if let Some(node) = &found
                && fits(node)
            {
                return Some((Arc::clone(node), false));
            }
            let mut shard = self.backings(backing).lock();
            let now = shard.find(backing).map(|node| node.id);
            let raced = now.is_some() && now != found.as_ref().map(|node| node.id);
            if raced {
                drop(shard);
                self.release_unfit(found.as_ref());
                continue;
            }
            let made = make(self.next_id());
            if let Some(node) = &made {
                shard.unreferenced.remove(&backing);
                shard.live.insert(backing, Arc::clone(node));
                self.ids(node.id).write().insert(node.id, Arc::clone(node));
            }
            drop(shard);
            self.release_unfit(found.as_ref());
            return made.map(|node| (node, true));
        }
    }

    fn release_unfit(&self, unfit: Option<&Arc<Node>>) {
        if let Some(node) = unfit {
            self.release(node, 1);
        }
    }

    /// The node of an inode, with one more reference.
    fn take(&self, backing: Backing) -> Option<Arc<Node>> {
        let mut shard = self.backings(backing).lock();
        let node = shard.find(backing)?;
        if node.refs.fetch_add(1, Ordering::AcqRel) == 0 {
            // It was forgotten, or is about to be: it is known again.
            shard.unreferenced.remove(&backing);
            shard.live.insert(backing, Arc::clone(&node));
            self.ids(node.id).write().insert(node.id, Arc::clone(&node));
        }
        Some(node)
    }

    /// Puts a node without an inode of its own in the index (a file without a name).
    pub(crate) fn insert(&self, node: &Arc<Node>) {
        self.ids(node.id).write().insert(node.id, Arc::clone(node));
    }

    /// The node of an inode, without a new reference.
    pub(crate) fn find(&self, backing: Backing) -> Option<Arc<Node>> {
        self.backings(backing).lock().find(backing)
    }

    /// Makes the node also stand for this inode.
    pub(crate) fn add_backing(&self, backing: Backing, node: &Arc<Node>) {
        let mut shard = self.backings(backing).lock();
        if node.dir().is_some() && node.refs.load(Ordering::Acquire) == 0 {
            shard.live.remove(&backing);
            return shard.retain_weakly(backing, node);
        }
        shard.unreferenced.remove(&backing);
        shard.live.insert(backing, Arc::clone(node));
    }

    /// The node no longer stands for this inode.
    pub(crate) fn remove_backing(&self, backing: Backing, node: &Node) {
        let mut shard = self.backings(backing).lock();
        shard.remove(backing, node.id);
        if shard.unreferenced.get(&backing).is_some_and(|found| std::ptr::eq(found.as_ptr(), node)) {
            shard.unreferenced.remove(&backing);
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
            // Another thread may have found it meanwhile. Then it stays.
            if node.refs.load(Ordering::Acquire) != 0 {
                return;
            }
            if shard.remove(backing, node.id).is_some() && node.dir().is_some() {
                shard.retain_weakly(backing, node);
            }
        }
        let mut ids = self.ids(node.id).write();
        // Checked under the lock: a thread that finds an unreferenced directory counts first, then puts it back.
        if node.refs.load(Ordering::Acquire) == 0 {
            ids.remove(&node.id);
            if node.dir().is_some() {
                self.forgotten.lock().push(Arc::clone(node));
                self.any_forgotten.store(true, Ordering::Release);
            }
        }
    }

    /// Directories that were forgotten since it was last asked; none of them is known again.
    pub(crate) fn take_forgotten(&self) -> Vec<Arc<Node>> {
        if !self.any_forgotten.swap(false, Ordering::AcqRel) {
            return Vec::new();
        }
        let mut forgotten = std::mem::take(&mut *self.forgotten.lock());
        forgotten.retain(|node| self.get(node.id).is_none());
        forgotten
    }

    pub(crate) fn len(&self) -> usize {
        self.by_id.iter().map(|shard| shard.read().len()).sum()
    }

    /// All nodes at this moment.
    pub(crate) fn snapshot(&self) -> Vec<Arc<Node>> {
        self.by_id.iter().flat_map(|shard| shard.read().values().cloned().collect::<Vec<_>>()).collect()
    }
}
