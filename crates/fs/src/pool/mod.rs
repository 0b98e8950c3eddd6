//! The pool: branches, rules and the merged tree over them. Knows nothing of FUSE.
//!
//! - `dirs`: copies of a directory on the branches, and their descriptors
//! - `lookup`: names to nodes, attributes
//! - `create`, `remove`, `rename`, `exchange`: changes of names; `unclaimed`: names that came too late
//! - `attr`, `open`, `data`: changes and contents of one file; `equal`, `equalise`: copies of a directory that differ, and changes of all of them; `repair`: making them equal
//! - `place`: which branch; `mover`: whose turn it is; `transfer`, `copying`, `commit`, `unnamed`: getting it there; `overflow`: when a branch is full; `enforce`: the whole tree; `revisit`: what names that changed, `accessed`: what a read has to do with
//! - `staging`: new files that wait in memory
//! - `govern`: write-back in the order of a policy
//! - `admin`, `monitor`: branches that come and go; `disk_errors`: those that fail; `replace`: a disk in another's place; `bind`: rules and branches by name; `report`: what `status` and `explain` say

mod accessed;
mod admin;
mod attr;
mod bind;
mod commit;
mod copying;
mod create;
mod data;
mod dirs;
mod disk_errors;
mod drain;
mod enforce;
mod equal;
mod equalise;
mod exchange;
mod face;
mod found;
mod govern;
mod inode_flags;
mod leftover;
mod list;
mod lookup;
mod monitor;
mod mover;
mod moving;
mod names;
mod not_moved;
mod open;
mod overflow;
mod pinned;
mod place;
mod releases;
mod reload;
mod remove;
mod rename;
mod repair;
mod replace;
mod report;
mod revisit;
mod schedule;
mod staging;
mod transfer;
mod unclaimed;
mod unnamed;
mod walks;

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use parking_lot::{Mutex, MutexGuard, RwLock};
use rustc_hash::{FxHashMap, FxHashSet};
use rustix::event::{EventfdFlags, eventfd};
use umbrella_units::{BranchId, Ino};

pub use attr::{Change, NewTime};
pub(crate) use attr::{has_trusted, without_trusted};
pub(crate) use bind::ActiveRules;
pub use data::TreeSpace;
pub use enforce::Walk;
pub use lookup::Attr;
pub(crate) use mover::MOVERS;
pub use names::Behind;
pub use open::{OpenRequest, Opened};
pub use rename::Replace;
pub use repair::Equalise;
pub(crate) use staging::HANGS;
pub use staging::obstacle as staging_obstacle;

use crate::attention::Attention;
use crate::branch::mounts::MountId;
use crate::branch::{Branch, Online, StateDir};
use crate::control::protocol::TransportStatus;
use crate::error::{Error, OpError, OpResult};
use crate::inode_map::{BackingKey, InodeMap};
use crate::metrics::{Metric, Metrics};
use crate::node::{Backing, DirState, Handle, HandleId, Node, NodeId, NodeTable, PassthroughToken};
use crate::relocate::CopyId;
use crate::spec::{OnBranchError, PoolSpec};

pub use crate::branch::HIDDEN;

/// What the pool asks of the kernel's side of the mount. Never called with a lock held, but for `register`, `drop_attributes` and `drop_names`, which wait for
/// nobody.
pub trait Kernel: Send + Sync {
    /// Forget the attributes and ACLs of one node. Waits for nothing.
    fn drop_attributes(&self, node: NodeId);
    /// Forget attributes and contents (for a directory: the listing) of one node.
    fn drop_contents(&self, node: NodeId);
    /// Forget every name in the tree. Waits for nothing.
    fn drop_names(&self);
    /// Lets the kernel reach this file past the daemon for as long as the token lives.
    fn register(&self, file: std::os::fd::BorrowedFd<'_>) -> std::io::Result<PassthroughToken>;
    /// Whether the mount is still in use: in the tree, or detached with somebody in it.
    fn is_mounted(&self) -> bool;
    /// How requests come.
    fn transport(&self) -> TransportStatus;

    /// Why requests may wait in the kernel, if they may, and what to do about it.
    fn shortage(&self) -> Option<String>;
}

/// See the module.
pub struct Pool {
    pub(crate) spec: PoolSpec,
    pub(crate) state: Arc<StateDir>,
    pub(crate) started: Instant,
    /// By id; a removed branch stays as a tombstone, so that ids are never reused.
    pub(crate) branches: ArcSwap<Vec<Arc<Branch>>>,
    /// One change of the branches at a time; by branch the epoch that the tree has been told of.
    pub(crate) told: Mutex<Vec<Option<u64>>>,
    /// Counts changes of which branches are online.
    pub(crate) topology: AtomicU64,
    pub(crate) rules: ArcSwap<ActiveRules>,
    pub(crate) nodes: NodeTable,
    pub(crate) root: Arc<Node>,
    pub(crate) inodes: Arc<InodeMap>,
    pub(crate) dir_fds: dirs::DirFds,
    handles: Vec<RwLock<FxHashMap<HandleId, Arc<Handle>>>>,
    next_handle: AtomicU64,
    releases: releases::Releases,
    pub(crate) walks: walks::Walks,
    pub(crate) revisits: revisit::Revisits,
    /// Copies whose moves were given up, so that recovery does not finish them. A few bytes each.
    pub(crate) given_up: Mutex<FxHashSet<OsString>>,
    /// What branches may have made although they did not say so.
    pub(crate) unclaimed: Mutex<Vec<unclaimed::Unclaimed>>,
    /// Shared by commits of moves on branches that may be slow; exclusive while a directory changes its place, so that it waits for them before it
    /// keeps others from resolving names.
    pub(crate) slow_commits: RwLock<()>,
    /// Exclusive while a directory changes its place; shared by everything that resolves names.
    pub(crate) rename_lock: RwLock<()>,
    pub(crate) mover: mover::Mover,
    pub(crate) flushers: govern::Flushers,
    pub(crate) metrics: Metrics,
    pub(crate) kernel: OnceLock<Box<dyn Kernel>>,
    /// Things a person should look at, by subject.
    warnings: Mutex<BTreeMap<String, String>>,
    /// The mount.
    pub(crate) mounted_as: OnceLock<MountId>,
    /// Directories whose copies differ.
    pub(crate) differing: equal::Differing,
    /// Of directories by number: their copies on branches that are away.
    pub(crate) copies_away: Mutex<FxHashMap<Ino, Vec<CopyId>>>,
    /// The kernel gives passthrough.
    pub(crate) passthrough: AtomicBool,
    pub(crate) stopping: Arc<AtomicBool>,
    /// Can be read from once the pool ends, for who waits for something else as well.
    pub(crate) ends: OwnedFd,
    /// Wakes the monitor.
    pub(crate) attention: Arc<Attention>,
    /// Somebody used the tree since the branches were asked last.
    pub(crate) used: AtomicBool,
    disk_errors: disk_errors::DiskErrors,
    /// Where new files wait.
    pub(crate) staging: Option<staging::Staging>,
    /// Files may be where they do not belong without waiting for their move: the enforcer has to look.
    pub(crate) moves_left: AtomicBool,
    /// A file on several branches was told of since the mount.
    pub(crate) duplicates_told: AtomicBool,
}

const HANDLE_SHARDS: usize = 16;

impl Pool {
    /// Takes in all branches and finishes what a crash left half done. `missing` names branches that may be absent
    /// besides the optional ones.
    pub fn assemble(spec: PoolSpec, state_dir: &Path, missing: &[String]) -> Result<Arc<Pool>, Error> {
        let state = StateDir::open(state_dir, &spec.mount).map_err(|error| Error::Io {
            doing: format!("state directory {}", state_dir.display()),
            source: std::io::Error::other(error),
        })?;
        let ends = eventfd(0, EventfdFlags::CLOEXEC)
            .map_err(|error| Error::Io { doing: "begin".to_owned(), source: error.into() })?;
        // Before the branches are used for the first time.
        let disk_errors = disk_errors::DiskErrors::listen();
        let inodes = Arc::new(InodeMap::new());
        let mut branches = Vec::with_capacity(spec.branches.len());
        for (index, branch_spec) in spec.branches.iter().enumerate() {
            let branch = Branch::new(BranchId(index as u16), branch_spec.clone(), Arc::clone(&state));
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
        let staging = staging::open(&spec, state_dir, &state, BranchId(branches.len() as u16))?;
        branches.extend(staging.as_ref().map(|staging| Arc::clone(&staging.branch)));
        let attention = Arc::default();
        for branch in &branches {
            branch.set_attention(&attention);
        }
        let root_state = DirState { place: None, ..DirState::default() };
        let root = Node::new_dir(NodeId::ROOT, Ino(1), None, root_state);
        let pool = Arc::new(Pool {
            spec,
            state,
            started: Instant::now(),
            branches: ArcSwap::from_pointee(branches),
            told: Mutex::default(),
            topology: AtomicU64::new(1),
            rules: ArcSwap::from_pointee(rules),
            nodes: NodeTable::new(Arc::clone(&root)),
            root,
            inodes,
            dir_fds: dirs::DirFds::new(),
            handles: (0..HANDLE_SHARDS).map(|_| RwLock::default()).collect(),
            next_handle: AtomicU64::new(1),
            releases: releases::Releases::default(),
            walks: walks::Walks::default(),
            revisits: revisit::Revisits::default(),
            given_up: Mutex::default(),
            unclaimed: Mutex::default(),
            slow_commits: RwLock::new(()),
            rename_lock: RwLock::new(()),
            mounted_as: OnceLock::new(),
            mover: mover::Mover::new(),
            flushers: govern::Flushers::default(),
            metrics: Metrics::default(),
            kernel: OnceLock::new(),
            warnings: Mutex::default(),
            differing: equal::Differing::default(),
            copies_away: Mutex::default(),
            passthrough: AtomicBool::new(false),
            stopping: Arc::new(AtomicBool::new(false)),
            ends,
            attention,
            used: AtomicBool::new(false),
            disk_errors,
            staging,
            moves_left: AtomicBool::new(false),
            duplicates_told: AtomicBool::new(false),
        });
        if let Some(staging) = &pool.staging {
            staging.set_pool(&pool);
        }
        pool.load_branches();
        Ok(pool)
    }

    /// Connects the pool with the kernel's side of its mount; without it (in tests) there is nobody to tell.
    pub fn set_kernel(&self, kernel: Box<dyn Kernel>) {
        // Set once, by the mount; a second call would be a second mount of one pool.
        let _ = self.kernel.set(kernel);
    }

    /// Whether the kernel offers passthrough.
    pub fn set_passthrough(&self, offered: bool) {
        self.passthrough.store(offered, Ordering::Relaxed);
    }

    /// How the pool was configured at its start.
    pub fn spec(&self) -> &PoolSpec {
        &self.spec
    }

    /// The figures.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// A branch by id.
    pub(crate) fn branch(&self, id: BranchId) -> OpResult<Arc<Branch>> {
        self.branches.load().get(id.index()).cloned().ok_or(OpError::Offline)
    }

    /// Somebody uses the tree: its branches are asked as often as the configuration says.
    pub(crate) fn note_use(&self) {
        if !self.used.load(Ordering::Relaxed) && !self.used.swap(true, Ordering::Relaxed) {
            self.attention.call();
        }
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    pub(crate) fn node(&self, id: NodeId) -> OpResult<Arc<Node>> {
        self.note_use();
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
    pub fn forget(&self, id: NodeId, count: u64) {
        if let Some(node) = self.nodes.get(id) {
            self.nodes.release(&node, count);
            drop(node);
            self.close_forgotten();
        }
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
        self.note_use();
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

    /// Keeps something for `umbrella status`; the newest text of a subject wins, and their number is bounded. The log has all of them.
    pub(crate) fn warn(&self, subject: impl Into<String>, text: impl Into<String>) {
        const MOST: usize = 1000;
        // Of files that cannot move there may be many: what is said of anything else must not go under.
        const MOST_OF_FILES: usize = 900;
        let (subject, text) = (subject.into(), text.into());
        let mut warnings = self.warnings.lock();
        if warnings.get(&subject) == Some(&text) {
            return;
        }
        tracing::warn!("{text}");
        let most = if subject.starts_with("move ") { MOST_OF_FILES } else { MOST };
        if warnings.len() < most || warnings.contains_key(&subject) {
            warnings.insert(subject, text);
        }
    }

    pub(crate) fn unwarn(&self, subject: &str) {
        self.warnings.lock().remove(subject);
    }

    pub(crate) fn warnings(&self) -> Vec<String> {
        let mut warnings: Vec<String> = self.warnings.lock().values().cloned().collect();
        warnings.extend(self.failing_warnings());
        warnings.extend(self.differing_warning());
        warnings.extend(self.hanging_warnings());
        warnings.extend(self.stuck_warning());
        warnings.extend(self.descriptor_warning());
        warnings.extend(self.kernel.get().and_then(|kernel| kernel.shortage()));
        warnings
    }

    /// Any error of a branch fails a listing.
    pub(crate) fn is_strict(&self) -> bool {
        self.spec.on_branch_error == OnBranchError::Fail
    }

    /// A branch is missing, and that is to be seen (UmbrellaFS: OR semantics).
    pub(crate) fn is_incomplete(&self) -> bool {
        self.is_strict()
            && self.branches.load().iter().any(|branch| !branch.spec.name.is_empty() && branch.in_use().is_none())
    }

    pub(crate) fn count(&self, metric: Metric) {
        self.metrics.add(metric, 1);
    }

    pub(crate) fn backing(branch: &Branch, meta: &crate::meta::Meta) -> Backing {
        Backing { branch: branch.id, foreign_dev: meta.foreign_dev, ino: meta.ino }
    }
}

/// Whether a name at the root is Umbrella's own.
pub(crate) fn is_reserved(parent: &Node, name: &OsStr) -> bool {
    parent.id == NodeId::ROOT && name == HIDDEN
}

/// Locks something; `None`: it took longer than it may.
fn lock_within<T>(lock: &Mutex<T>, patience: Option<Duration>) -> Option<MutexGuard<'_, T>> {
    patience.map_or_else(|| Some(lock.lock()), |patience| lock.try_lock_for(patience))
}

/// The key of an inode's number.
fn key_of(online: &Online, backing: Backing) -> BackingKey {
    BackingKey { slot: online.slot, foreign_dev: backing.foreign_dev, ino: backing.ino }
}
