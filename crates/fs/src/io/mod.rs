//! Files: opening and closing, contents, attributes and flags.
//!
//! - `open`: handles, and how their data travels; `data`: reading, writing, syncing; `releases`: room that is about to
//!   be free
//! - `attr`, `inode_flags`: what else there is to change

mod attr;
mod data;
mod inode_flags;
mod open;
mod releases;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustc_hash::FxHashMap;

use crate::area::Staged;
use crate::branch::Branches;
use crate::context::Context;
use crate::error::{OpError, OpResult};
use crate::ground::locks::{RankedRwLock, rank};
use crate::migrate::Migrations;
use crate::node::{Handle, HandleId};
use crate::staging::Staging;
use crate::tree::Tree;
use crate::write_back::WriteBack;

pub use attr::{AttributeChange, NewTime};
pub(crate) use attr::{has_trusted, without_trusted};
pub use data::TreeSpace;
pub use open::{OpenRequest, Opened};
pub(crate) use releases::RoomRetry;

/// See the module.
pub(crate) struct Io {
    context: Arc<Context>,
    branches: Arc<Branches>,
    write_back: Arc<WriteBack>,
    staged: Arc<Staged>,
    tree: Arc<Tree>,
    migrate: Arc<Migrations>,
    staging: Arc<Staging>,
    handles: Vec<RankedRwLock<rank::IoHandles, FxHashMap<HandleId, Arc<Handle>>>>,
    next_handle: AtomicU64,
    releases: releases::Releases,
}

const HANDLE_SHARDS: usize = 16;

impl Io {
    pub(crate) fn new(tree: &Arc<Tree>, migrate: &Arc<Migrations>, staging: &Arc<Staging>) -> Arc<Io> {
        Arc::new(Io {
            context: Arc::clone(&tree.context),
            branches: Arc::clone(&tree.branches),
            write_back: Arc::clone(&migrate.write_back),
            staged: Arc::clone(&tree.placement.staged),
            tree: Arc::clone(tree),
            migrate: Arc::clone(migrate),
            staging: Arc::clone(staging),
            handles: (0..HANDLE_SHARDS).map(|_| RankedRwLock::default()).collect(),
            next_handle: AtomicU64::new(1),
            releases: releases::Releases::default(),
        })
    }

    fn handle_shard(&self, id: HandleId) -> &RankedRwLock<rank::IoHandles, FxHashMap<HandleId, Arc<Handle>>> {
        &self.handles[id.0 as usize % HANDLE_SHARDS]
    }

    pub(crate) fn add_handle(&self, handle: &Arc<Handle>) -> HandleId {
        let id = HandleId(self.next_handle.fetch_add(1, Ordering::Relaxed));
        self.handle_shard(id).write().insert(id, Arc::clone(handle));
        id
    }

    pub(crate) fn handle(&self, id: HandleId) -> OpResult<Arc<Handle>> {
        self.branches.note_use();
        self.handle_shard(id).read().get(&id).cloned().ok_or(OpError::Stale)
    }

    pub(crate) fn take_handle(&self, id: HandleId) -> OpResult<Arc<Handle>> {
        self.handle_shard(id).write().remove(&id).ok_or(OpError::Stale)
    }

    /// Whether any process has a file open.
    pub(crate) fn has_open_handles(&self) -> bool {
        self.handles.iter().any(|shard| !shard.read().is_empty())
    }

    pub(crate) fn open_handles(&self) -> Vec<Arc<Handle>> {
        self.handles.iter().flat_map(|shard| shard.read().values().cloned().collect::<Vec<_>>()).collect()
    }
}
