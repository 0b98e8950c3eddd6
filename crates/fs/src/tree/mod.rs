//! The merged tree: nodes and their names, directories over branches, their copies and listings, inode numbers. What
//! changes names or moves files stands on it.
//!
//! - `dirs`: copies of a directory on the branches, and their descriptors
//! - `lookup`: names to nodes, attributes; `list`: listings
//! - `equal`, `equalise`: copies of a directory that differ, and changes of all of them
//! - `file`: what the kernel may keep of a file; `remove_dir`: directories that go; `orphans`: names that came too late
//! - `pinned`: nodes that a walk needs; `unsynced_names`: changes of names that are durable before something else
//! - `forgotten`: directories that the kernel forgot too early

pub(crate) mod dirs;
pub(crate) mod equal;
mod equalise;
mod file;
mod forgotten;
pub(crate) mod inspected_copy;
mod list;
pub(crate) mod lookup;
pub(crate) mod orphans;
mod pinned;
pub(crate) mod remove_dir;
pub(crate) mod unsynced_names;

use std::ffi::{OsStr, OsString};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use rustc_hash::FxHashMap;
use umbrella_units::Ino;

use crate::branch::{Branches, HIDDEN_DIR};
use crate::context::Context;
use crate::error::{OpError, OpResult};
use crate::ground::locks::rank::Ranked;
use crate::ground::locks::{RankedMutex, RankedMutexGuard, RankedRwLock, rank};
use crate::inode_map::InodeMap;
use crate::node::looks::Lookups;
use crate::node::{DirState, Node, NodeId, NodeTable};
use crate::placement::Placement;
use crate::relocate::CopyId;

pub use lookup::Attr;
pub(crate) use pinned::Pinned;

/// See the module.
pub(crate) struct Tree {
    pub(crate) context: Arc<Context>,
    pub(crate) branches: Arc<Branches>,
    pub(crate) placement: Arc<Placement>,
    pub(crate) nodes: Arc<NodeTable>,
    pub(crate) root: Arc<Node>,
    pub(crate) inodes: Arc<InodeMap>,
    pub(crate) dir_fds: dirs::DirFds,
    /// Shared by batches of moves, and by commits on branches that may be slow. Exclusive while a directory changes its
    /// place: that waits for the commits before it keeps others from resolving names.
    pub(crate) slow_commits: RankedRwLock<rank::TreeSlowCommits, ()>,
    /// Exclusive while a directory changes its place; shared by everything that resolves names.
    pub(crate) rename_lock: RankedRwLock<rank::TreeNames, ()>,
    /// Lookups by users.
    lookups: Lookups,
    /// What branches may have made although they did not say so.
    orphans: RankedMutex<rank::TreeOrphans, Vec<orphans::OrphanName>>,
    /// Directories that the kernel forgot, with changes that are not durable.
    unsynced_dirs: RankedMutex<rank::TreeUnsyncedDirs, forgotten::UnsyncedDirs>,
    /// Directories whose copies differ.
    differing: equal::Differing,
    /// Of directories by number: their copies on branches that are away.
    copies_away: RankedMutex<rank::TreeCopiesAway, FxHashMap<Ino, Vec<CopyId>>>,
    /// A file on several branches has been reported since the mount.
    duplicates_told: AtomicBool,
    /// Names given in hidden places.
    temp_names: AtomicU64,
}

/// A root that nothing is known of yet.
pub(crate) fn new_root() -> Arc<Node> {
    let state = DirState { place: None, ..DirState::default() };
    Node::new_dir(NodeId::ROOT, Ino(1), None, state)
}

impl Tree {
    pub(crate) fn new(placement: &Arc<Placement>, root: Arc<Node>) -> Arc<Tree> {
        Arc::new(Tree {
            context: Arc::clone(&placement.context),
            branches: Arc::clone(&placement.branches),
            placement: Arc::clone(placement),
            nodes: Arc::clone(&placement.nodes),
            root,
            inodes: Arc::clone(&placement.inodes),
            dir_fds: dirs::DirFds::new(),
            slow_commits: RankedRwLock::new(()),
            rename_lock: RankedRwLock::new(()),
            lookups: Lookups::default(),
            orphans: RankedMutex::default(),
            unsynced_dirs: RankedMutex::default(),
            differing: equal::Differing::default(),
            copies_away: RankedMutex::default(),
            duplicates_told: AtomicBool::new(false),
            temp_names: AtomicU64::new(0),
        })
    }

    /// A name for a copy in the making, in the hidden place of a branch.
    pub(crate) fn temp_name(&self) -> OsString {
        let number = self.temp_names.fetch_add(1, Ordering::Relaxed);
        OsString::from(format!("move-{}-{number}", std::process::id()))
    }

    pub(crate) fn node(&self, id: NodeId) -> OpResult<Arc<Node>> {
        self.branches.note_use();
        if id == NodeId::ROOT {
            return Ok(Arc::clone(&self.root));
        }
        self.nodes.get(id).ok_or(OpError::Stale)
    }

    pub(crate) fn dir_node(&self, id: NodeId) -> OpResult<Arc<Node>> {
        let node = self.node(id)?;
        if node.dir().is_some() { Ok(node) } else { Err(OpError::Sys(rustix::io::Errno::NOTDIR)) }
    }

    /// Gives `count` references to a node back (the kernel's FORGET).
    pub(crate) fn forget(&self, id: NodeId, count: u64) {
        if let Some(node) = self.nodes.get(id) {
            self.nodes.release(&node, count);
            drop(node);
            self.close_forgotten();
        }
    }
}

/// Whether a name at the root is Umbrella's own.
pub(crate) fn is_reserved(parent: &Node, name: &OsStr) -> bool {
    parent.id == NodeId::ROOT && name == HIDDEN_DIR
}

/// Locks something; `None`: it took longer than it may.
pub(crate) fn lock_within<R: Ranked, T>(
    lock: &RankedMutex<R, T>,
    timeout: Option<Duration>,
) -> Option<RankedMutexGuard<'_, T>> {
    timeout.map_or_else(|| Some(lock.lock()), |timeout| lock.try_lock_for(timeout))
}
