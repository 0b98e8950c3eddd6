//! The pool: branches, rules and the merged tree over them. Knows nothing of FUSE.
//!
//! - `dirs`: copies of a directory on the branches, and their descriptors
//! - `lookup`: names to nodes, attributes
//! - `create`, `remove`, `rename`, `exchange`: changes of names; `unclaimed`: names that came too late
//! - `attr`, `open`, `data`: changes and contents of one file; `equal`, `equalise`: copies of a directory that differ, and changes of all of them; `repair`: making them equal
//! - `place`: which branch; `mover`: whose turn it is; `transfer`, `copying`, `commit`, `unnamed`: getting it there; `overflow`: when a branch is full; `enforce`: the whole tree; `revisit`: what names that changed, `accessed`: what a read has to do with
//! - `staging`: new files that wait in memory
//! - `write_back`: write-back in the order of a policy
//! - `admin`, `monitor`: branches that come and go; `disk_errors`: those that fail; `replace`: a disk in another's place; `bind`: rules and branches by name; `report`: what `status` and `explain` say

mod admin;
mod attr;
mod create;
mod data;
mod disk_errors;
mod ending;
mod exchange;
mod inode_flags;
mod monitor;
mod names;
mod open;
mod releases;
mod reload;
mod rename;
mod repair;
mod replace;
mod report;
mod unlink;

use crate::area;
use crate::area::Staged;
use crate::control::protocol::EnforceSummary;
use crate::control::protocol::Progress;
use crate::listing::Entry;
use crate::listing::Listing;
use crate::migrate::Migrations;
use crate::placement::ActiveRules;
use crate::placement::Placement;
use crate::staging::Staging;
use crate::tree::Tree;
use crate::tree::new_root;
use std::ffi::OsStr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use arc_swap::ArcSwap;
use parking_lot::RwLock;
use rustc_hash::FxHashMap;
use umbrella_policy::placement::spec::RulesSpec;
use umbrella_units::{BranchId, Ino};

pub use crate::migrate::Walk;
pub use crate::tree::Attr;
pub use attr::{Change, NewTime};
pub(crate) use attr::{has_trusted, without_trusted};
pub use data::TreeSpace;

pub use names::Behind;
pub use open::{OpenRequest, Opened};
pub use rename::Replace;
pub use repair::Equalise;

pub use crate::area::obstacle as staging_obstacle;

use crate::branch::{Branch, Branches};
use crate::context::Context;
use crate::error::{Error, OpError, OpResult};
use crate::inode_map::InodeMap;
use crate::metrics::Metrics;
use crate::node::{Handle, HandleId, NodeId, NodeTable};
use crate::spec::PoolSpec;
use crate::write_back::WriteBack;

pub use crate::branch::HIDDEN;

pub use crate::context::Kernel;

/// See the module.
pub struct Pool {
    pub(crate) context: Arc<Context>,
    pub(crate) branches: Arc<Branches>,
    pub(crate) write_back: Arc<WriteBack>,
    pub(crate) started: Instant,
    pub(crate) staged: Arc<Staged>,
    pub(crate) placement: Arc<Placement>,
    pub(crate) tree: Arc<Tree>,
    pub(crate) migrate: Arc<Migrations>,
    pub(crate) staging: Arc<Staging>,
    handles: Vec<RwLock<FxHashMap<HandleId, Arc<Handle>>>>,
    next_handle: AtomicU64,
    releases: releases::Releases,
    disk_errors: disk_errors::DiskErrors,
}

const HANDLE_SHARDS: usize = 16;

impl Pool {
    /// Takes in all branches and finishes what a crash left half done. `missing` names branches that may be absent
    /// besides the optional ones.
    pub fn assemble(spec: PoolSpec, state_dir: &Path, missing: &[String]) -> Result<Arc<Pool>, Error> {
        let context = Context::open(spec, state_dir)?;
        let Context { spec, state, .. } = &*context;
        // Before the branches are used for the first time.
        let disk_errors = disk_errors::DiskErrors::listen();
        let inodes = Arc::new(InodeMap::new());
        let mut branches = Vec::with_capacity(spec.branches.len());
        for (index, branch_spec) in spec.branches.iter().enumerate() {
            let branch = Branch::new(BranchId(index as u16), branch_spec.clone(), Arc::clone(state));
            branch.set_access_times(spec.access_times);
            if let Err(error) = branch.bring_online() {
                if !branch_spec.optional && !missing.contains(&branch_spec.name) {
                    return Err(Error::BranchMissing { name: branch_spec.name.clone(), reason: error.to_string() });
                }
                tracing::warn!(branch = %branch_spec.name, %error, "branch is missing; going on without it");
            }
            branches.push(branch);
        }
        let rules = ActiveRules::bind(spec.rules.clone(), &branches)?;
        let staging = area::open(spec, state_dir, state, BranchId(branches.len() as u16))?;
        branches.extend(staging.as_ref().map(|staging| Arc::clone(&staging.branch)));
        let staging_id = staging.as_ref().map(|staging| staging.branch.id);
        let branches = Branches::new(&context, branches, staging_id);
        let write_back = WriteBack::new(&context, &branches);
        let staged = Staged::new(&context, staging);
        let root = new_root();
        let nodes = Arc::new(NodeTable::new(Arc::clone(&root)));
        let placement = Arc::new(Placement {
            context: Arc::clone(&context),
            branches: Arc::clone(&branches),
            staged: Arc::clone(&staged),
            nodes: Arc::clone(&nodes),
            inodes: Arc::clone(&inodes),
            rules: ArcSwap::from_pointee(rules),
        });
        let tree = Tree::new(&placement, root);
        let migrate = Migrations::new(&tree, &write_back);
        let staging = Staging::new(&tree, &write_back, &migrate);
        let pool = Arc::new(Pool {
            context,
            branches,
            write_back,
            started: Instant::now(),
            staged,
            placement,
            tree,
            migrate,
            staging,
            handles: (0..HANDLE_SHARDS).map(|_| RwLock::default()).collect(),
            next_handle: AtomicU64::new(1),
            releases: releases::Releases::default(),
            disk_errors,
        });
        pool.load_branches();
        Ok(pool)
    }

    /// Connects the pool with the kernel's side of its mount; without it (in tests) there is nobody to tell.
    pub fn set_kernel(&self, kernel: Box<dyn Kernel>) {
        // Set once, by the mount; a second call would be a second mount of one pool.
        let _ = self.context.kernel.set(kernel);
    }

    /// Whether the kernel offers passthrough.
    pub fn set_passthrough(&self, offered: bool) {
        self.context.passthrough.store(offered, Ordering::Relaxed);
    }

    /// Uses other rules from now on. Their counters begin at zero.
    pub fn reload_rules(&self, spec: &RulesSpec) -> Result<(), Error> {
        self.placement.reload_rules(spec)
    }

    /// Finds a name and gives its node one more reference.
    pub fn lookup(&self, parent: NodeId, name: &OsStr) -> OpResult<Attr> {
        self.tree.lookup(parent, name)
    }

    /// What users see of a node.
    pub fn getattr(&self, node: NodeId) -> OpResult<Attr> {
        self.tree.getattr(node)
    }

    /// Target of a symbolic link.
    pub fn readlink(&self, node: NodeId) -> OpResult<Vec<u8>> {
        self.tree.readlink(node)
    }

    /// Somebody opens a directory to list it. True: nobody else has it open for that.
    pub fn begin_listing(&self, node: NodeId) -> bool {
        self.tree.begin_listing(node)
    }

    /// Somebody closes it. A branch that came or went meanwhile had the kernel forget the listing, perhaps before it was given this one.
    pub fn end_listing(&self, node: NodeId) {
        self.tree.end_listing(node)
    }

    /// The merged listing, for a reader at `cookie`; made anew for a reader that begins.
    pub fn list(&self, node: NodeId, cookie: u64) -> OpResult<Arc<Listing>> {
        self.tree.list(node, cookie)
    }

    /// Node and attributes of an entry, with one more reference, as `lookup` would give them.
    pub fn lookup_entry(&self, parent: NodeId, listing: &Listing, entry: &Entry) -> OpResult<Attr> {
        self.tree.lookup_entry(parent, listing, entry)
    }

    /// The parent of a directory (of the root: itself) with its inode number, for `..`.
    pub fn parent_of(&self, node: NodeId) -> OpResult<(NodeId, Ino)> {
        self.tree.parent_of(node)
    }

    /// A node's own inode number.
    pub fn ino_of(&self, node: NodeId) -> OpResult<Ino> {
        self.tree.ino_of(node)
    }

    /// Gives `count` references to a node back (the kernel's FORGET).
    pub fn forget(&self, id: NodeId, count: u64) {
        self.tree.forget(id, count)
    }

    /// Walks the tree. `tell` hears of each file that moves and, now and then, how far the walk is; it ends the walk by
    /// returning false, also in the middle of a file: what was copied of it is dropped.
    pub fn enforce(&self, walk: Walk, tell: &mut dyn FnMut(&Progress) -> bool) -> Result<EnforceSummary, Error> {
        self.migrate.enforce(walk, tell)
    }

    /// Empties a branch: nothing new goes there, and every file moves to where else it may be. `Branch::set_draining` stays on,
    /// over unmounts too, until [`Migrations::stop_drain`].
    pub fn drain(&self, name: &str, tell: &mut dyn FnMut(&Progress) -> bool) -> Result<EnforceSummary, Error> {
        self.migrate.drain(name, tell)
    }

    /// Places new files on a branch again, and ends the walk that empties it.
    pub fn stop_drain(&self, name: &str) -> Result<(), Error> {
        self.migrate.stop_drain(name)
    }

    /// Moves what is queued now, on the calling thread: for pools without a mover's thread, and for those who cannot wait for it.
    pub fn move_all_queued(&self) {
        self.migrate.move_all_queued()
    }

    /// Lets files leave whose time has come, as the keeper does, and waits for it; not for branches that hang.
    pub fn keep_staging(&self) {
        self.staging.keep_staging()
    }

    /// At the end: everything leaves, then the area goes. What cannot leave stays there, for the next mount.
    pub fn close_staging(&self) {
        self.staging.close_staging()
    }

    /// How the pool was configured at its start.
    pub fn spec(&self) -> &PoolSpec {
        &self.context.spec
    }

    /// The figures.
    pub fn metrics(&self) -> &Metrics {
        &self.context.metrics
    }

    fn handle_shard(&self, id: HandleId) -> &RwLock<FxHashMap<HandleId, Arc<Handle>>> {
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

    /// Whether anybody has a file open.
    pub(crate) fn has_open_handles(&self) -> bool {
        self.handles.iter().any(|shard| !shard.read().is_empty())
    }

    pub(crate) fn open_handles(&self) -> Vec<Arc<Handle>> {
        self.handles.iter().flat_map(|shard| shard.read().values().cloned().collect::<Vec<_>>()).collect()
    }

    pub(crate) fn warnings(&self) -> Vec<String> {
        let mut warnings: Vec<String> = self.context.warnings();
        warnings.extend(self.failing_warnings());
        warnings.extend(self.tree.differing_warning());
        warnings.extend(self.staging.hanging_warnings());
        warnings.extend(self.staging.stuck_warning());
        warnings.extend(self.descriptor_warning());
        warnings
    }
}
