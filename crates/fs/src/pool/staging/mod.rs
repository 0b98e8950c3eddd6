//! Staging: a new file waits in memory until its size and its fate are known (MRAM's Temporary-ramfs, on a stock kernel).
//!
//! The staging area is a branch of its own, a tmpfs or a directory on memory that keeps its contents, which no rule can name: files are
//! created there, and leave for the branch that their rule chooses by the means by which any file changes its branch. So names,
//! attributes, links, listings, open handles and inode numbers are what they are anywhere in the tree.
//!
//! A file leaves ([`leave`]) when
//! - it grows beyond `max_file`: under its writer, before the write that would;
//! - it has been there for `max_age`;
//! - memory gets short ([`memory`]): those used longest ago first;
//! - somebody wants it durable (fsync, `O_SYNC`, fsync of its directory, `umbrella sync`), where memory is volatile;
//! - the branches get full: it has its room before others take it ([`room`]);
//! - it is renamed over a file of a branch, so that no power loss can take both;
//! - a rule that must not be passed over (`spill = false`) comes to decide; where one decides from the first, nothing is staged;
//! - the tree is unmounted, or staging is no longer configured.
//!
//! What becomes of it decides `policy::staging`. Files that leave together do so in the order of their paths, so that neighbours lie
//! together. One that is deleted before touches no disk.
//!
//! # What can go wrong
//!
//! | when | what happens |
//! | --- | --- |
//! | the daemon is killed | the tmpfs stays mounted; the next mount takes it back and its files leave at once |
//! | the daemon is killed while a file leaves | the intent lies in the staging area: the move is undone or finished at the next mount |
//! | power loss, volatile | what was not synced and is younger than `max_age` is gone, as out of any page cache |
//! | a branch hangs | what goes there stays in memory until it answers, and nothing else waits for it ([`leavers`]) |
//! | no branch has room | nothing is staged that its branch could not take when it was created, and who writes to a branch does not take that room; what cannot leave all the same stays, with a warning |
//! | no room at unmount | the area stays mounted, its files are in the tree again at the next mount |
//! | the tmpfs is full | new files go to their branch at once; a file that is written leaves, and is synced on its way: there is no room for its intent |
//! | staging is taken out of the configuration | what is left of it is taken in once more, and leaves |

mod area;
mod groups;
mod keeper;
mod leave;
mod leavers;
mod memory;
mod room;
mod stuck;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use rustc_hash::{FxHashMap, FxHashSet};
use umbrella_policy::staging::{Config, Staging as Waiting};
use umbrella_units::{BranchId, ByteSize, FileId, Nanos, PAGE_BYTES};

use groups::Groups;

use super::Pool;
use super::moving::Cause;
use super::place::NewFile;
use crate::at::DirAt;
use crate::branch::Branch;
use crate::control::protocol::{Abilities, StagingStatus};
use crate::error::{OpError, OpResult};
use crate::meta::Meta;
use crate::metrics::Metric;
use crate::node::{Node, NodeId};
use crate::spec::StagingSpec;

use leavers::Leavers;

pub use area::obstacle;
pub(crate) use area::open;
pub(crate) use leavers::HANGS;

/// What an area takes in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Intake {
    /// It is configured: new files come.
    NewFiles,
    /// An earlier configuration left files in it: they leave, and no others come.
    Nothing,
}

/// The staging area and what waits in it.
pub(crate) struct Staging {
    spec: StagingSpec,
    pub(crate) branch: Arc<Branch>,
    intake: Intake,
    /// What an earlier mount left was looked for.
    taken_back: Mutex<bool>,
    /// New files are taken in.
    open: AtomicBool,
    started: Instant,
    queue: Mutex<Queue>,
    wake: Condvar,
    leavers: Arc<Leavers>,
    groups: Groups,
    /// Bytes that may wait; follows the memory that is free.
    limit: AtomicU64,
    /// When not all could leave that was to make way for writers. Held while it leaves.
    stuck: Mutex<Option<Instant>>,
}

/// A leaf among the locks: nothing is locked while it is held.
struct Queue {
    waiting: Waiting,
    /// Each waiting file's node, with a reference.
    nodes: FxHashMap<FileId, Arc<Node>>,
    /// Nodes whose reference is to be given back; who put them here may have held their lock.
    released: Vec<Arc<Node>>,
    /// Directories that a file was in that waits no more.
    emptied: FxHashSet<NodeId>,
    /// Waiting files that could not leave when it was their turn, and why.
    stuck: BTreeMap<FileId, Arc<str>>,
}

impl Queue {
    /// Whether the keeper has nothing to look after.
    fn is_at_rest(&self) -> bool {
        self.nodes.is_empty() && self.released.is_empty() && self.emptied.is_empty()
    }
}

fn id_of(node: &Node) -> FileId {
    FileId(node.id.0)
}

impl Staging {
    fn new(spec: StagingSpec, branch: Arc<Branch>, intake: Intake) -> Staging {
        let max_age = spec.max_age.map_or(Nanos::NEVER, |age| Nanos(u64::try_from(age.as_nanos()).unwrap_or(u64::MAX)));
        let waiting = Waiting::new(Config { threshold: spec.max_file, max_age });
        Staging {
            spec,
            branch,
            intake,
            taken_back: Mutex::default(),
            open: AtomicBool::new(intake == Intake::NewFiles),
            started: Instant::now(),
            queue: Mutex::new(Queue {
                waiting,
                nodes: FxHashMap::default(),
                released: Vec::new(),
                emptied: FxHashSet::default(),
                stuck: BTreeMap::new(),
            }),
            wake: Condvar::new(),
            leavers: Arc::default(),
            groups: Groups::of_this_process(),
            limit: AtomicU64::new(0),
            stuck: Mutex::default(),
        }
    }

    /// To be told before files leave.
    pub(crate) fn set_pool(&self, pool: &Arc<Pool>) {
        self.leavers.set_pool(Arc::downgrade(pool));
    }

    /// Why a file moves that leaves. What is not synced on its way needs a little room in the area, for its intent; where that is full, it leaves
    /// as from any full branch.
    pub(crate) fn cause(&self) -> Cause {
        if !self.spec.volatile {
            return Cause::Full;
        }
        let room = self.branch.space_now();
        let has_room = room.free_for_root >= INTENTS && room.files_free >= SPARE_INODES;
        if has_room { Cause::Staged } else { Cause::Full }
    }

    fn now(&self) -> Nanos {
        Nanos(u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    /// Bytes of the files that wait.
    fn bytes(&self) -> ByteSize {
        ByteSize(self.queue.lock().waiting.pages().0 * PAGE_BYTES)
    }

    /// What the files that wait cost in memory: their bytes, and for each about a page of bookkeeping in the kernel and here.
    fn used(&self) -> ByteSize {
        let queue = self.queue.lock();
        ByteSize((queue.waiting.pages().0 + queue.waiting.files()) * PAGE_BYTES)
    }

    fn holds(&self, node: &Node) -> bool {
        self.queue.lock().nodes.contains_key(&id_of(node))
    }

    fn files(&self) -> u64 {
        self.queue.lock().waiting.files()
    }

    fn limit(&self) -> ByteSize {
        ByteSize(self.limit.load(Ordering::Relaxed))
    }

    /// Whether more waits than may. A file that is written leaves then: files come in small and grow.
    fn is_overfull(&self) -> bool {
        self.used() > self.limit()
    }

    /// Whether another file may come. Wakes the keeper early enough that there is room again soon, and when the limit may have been found while
    /// memory was short.
    fn has_room(&self) -> bool {
        let (used, limit) = (self.used().0, self.limit().0);
        let fits = used + self.spec.max_file.0 <= limit;
        if !fits || used > memory::high_water(ByteSize(limit)).0 {
            self.wake.notify_one();
        }
        fits
    }

    /// When a file leaves, for people.
    pub(crate) fn leaves_when(&self) -> &'static str {
        match (self.spec.volatile, self.spec.max_age) {
            (true, _) => "when it is old enough, outgrows staging, or is synced",
            (false, Some(_)) => "when it is old enough, outgrows staging, or the pool is unmounted",
            (false, None) => "when it outgrows staging, too much waits, or the pool is unmounted",
        }
    }

    /// A file waits from now on.
    fn add(&self, node: &Arc<Node>, parent: NodeId, size: ByteSize) {
        let now = self.now();
        let mut queue = self.queue.lock();
        if queue.nodes.contains_key(&id_of(node)) {
            return;
        }
        node.retain();
        queue.waiting.create(now, id_of(node), FileId(parent.0));
        queue.waiting.write(id_of(node), size);
        if queue.is_at_rest() {
            self.wake.notify_one();
        }
        queue.nodes.insert(id_of(node), Arc::clone(node));
    }

    /// A file waits no more: it left, or is deleted. May be called with the file locked.
    fn remove(&self, node: &Node) -> bool {
        let mut queue = self.queue.lock();
        if let Some(staged) = queue.waiting.leave(id_of(node)) {
            queue.emptied.insert(NodeId(staged.dir.0));
        }
        queue.stuck.remove(&id_of(node));
        let known = queue.nodes.remove(&id_of(node));
        let was_there = known.is_some();
        queue.released.extend(known);
        was_there
    }

    /// A file was written up to this byte.
    fn wrote(&self, node: &Node, end: u64) {
        // Never beyond `max_file`: such a write takes it out first.
        self.queue.lock().waiting.extend(id_of(node), ByteSize(end));
    }

    fn resized(&self, node: &Node, size: ByteSize) {
        self.queue.lock().waiting.write(id_of(node), size);
    }

    fn used_now(&self, node: &Node) {
        self.queue.lock().waiting.touch(id_of(node));
    }
}

impl Pool {
    /// Whether new files may wait in memory.
    pub(crate) fn takes_new_files(&self) -> bool {
        self.staging.as_ref().is_some_and(|staging| staging.open.load(Ordering::Relaxed))
    }

    /// Where a file is staged now, if it is.
    pub(crate) fn staging_of(&self, node: &Node) -> Option<&Staging> {
        let staging = self.staging.as_ref()?;
        let here = node.file()?.state.read().backing.branch == staging.branch.id;
        here.then_some(staging)
    }

    /// Makes a new file in the staging area. `None`: it is to be made on its branch at once.
    pub(crate) fn make_staged<T>(
        &self,
        new: &NewFile<'_>,
        call: impl Fn(&DirAt) -> OpResult<T>,
    ) -> OpResult<Option<(DirAt, T)>> {
        let Some(staging) = self.staging.as_ref().filter(|_| self.takes_new_files()) else { return Ok(None) };
        // Its rule must have a place for it, with room for all that waits: what is staged has to be able to leave.
        let (home, decision) = self.place_by(new, &[]).inspect_err(|_| self.context.count(Metric::NoRoom))?;
        // What must be nowhere else is not in memory either, which may be swapped out, or keep it for others to find.
        if self.rules.load().rules.forbids(decision, staging.branch.id) || !is_stageable(new.name, 1) {
            return Ok(None);
        }
        let home = self.branches.get(home)?;
        let (view, inodes) = (home.view(), home.space());
        let spare = view.free.0.saturating_sub(view.keep_free.0);
        // Not every file system counts its inodes.
        let few_inodes = inodes.files_total > 0 && inodes.files_free < staging.files() + SPARE_INODES;
        if !keeps_all(&home.abilities()) {
            return Ok(None);
        }
        if few_inodes
            || !staging.has_room()
            || spare < staging.used().0.saturating_add(staging.spec.max_file.0.saturating_mul(2))
        {
            return Ok(None);
        }
        let made = self
            .ensure_dir(new.parent, staging.branch.id)
            .and_then(|dir| new.parent.change_entries(&dir, || call(&dir)).map(|file| (dir, file)));
        match made {
            Ok(made) => Ok(Some(made)),
            Err(error @ OpError::Sys(rustix::io::Errno::EXIST | rustix::io::Errno::NAMETOOLONG)) => Err(error),
            Err(error) => {
                tracing::debug!(%error, "a new file cannot be staged; it goes to its branch");
                Ok(None)
            }
        }
    }

    /// A file that was made in the staging area waits from now on.
    pub(crate) fn stage(&self, node: &Arc<Node>, parent: NodeId, size: ByteSize) {
        if let Some(staging) = self.staging_of(node) {
            staging.add(node, parent, size);
            self.context.count(Metric::StagedFiles);
        }
    }

    /// A staged file was closed, or has another name: one that must be nowhere else leaves at once.
    pub(crate) fn judge_staged(&self, node: &Node, meta: &Meta) {
        if let Some(staging) = &self.staging
            && self.forbids(&node.paths(), meta, staging.branch.id)
        {
            staging.hurry(node);
            staging.wake.notify_one();
        }
    }

    /// The last name of a file went. May be called with the file locked; `branch`: where it was.
    pub(crate) fn unstage_deleted(&self, node: &Node, branch: BranchId) {
        if let Some(staging) = self.staging.as_ref().filter(|staging| staging.branch.id == branch)
            && staging.remove(node)
        {
            self.context.count(Metric::StagedDeleted);
        }
    }

    /// A file left by way of an overflow.
    pub(crate) fn left_staging(&self, node: &Node) {
        if let Some(staging) = &self.staging {
            staging.remove(node);
            self.context.count(Metric::StagedLeft);
        }
    }

    /// Whether a file on this branch must leave staging before it may reach this size.
    pub(crate) fn outgrows(&self, branch: BranchId, end: u64) -> bool {
        self.staging.as_ref().is_some_and(|staging| staging.branch.id == branch && end > staging.spec.max_file.0)
    }

    /// Whether a file on this branch must leave staging before it may be written up to this byte.
    pub(crate) fn may_not_grow(&self, branch: BranchId, end: u64) -> bool {
        let staging = self.staging.as_ref().filter(|staging| staging.branch.id == branch);
        staging.is_some_and(|staging| end > staging.spec.max_file.0 || staging.is_overfull())
    }

    /// A file on this branch was written up to this byte.
    pub(crate) fn staged_wrote(&self, node: &Node, branch: BranchId, end: u64) {
        if let Some(staging) = self.staging.as_ref().filter(|staging| staging.branch.id == branch) {
            staging.wrote(node, end);
        }
    }

    /// A file on this branch has this size now.
    pub(crate) fn staged_resized(&self, node: &Node, branch: BranchId, size: u64) {
        if let Some(staging) = self.staging.as_ref().filter(|staging| staging.branch.id == branch) {
            staging.resized(node, ByteSize(size));
        }
    }

    /// A file on this branch was read.
    pub(crate) fn staged_read(&self, node: &Node, branch: BranchId) {
        if let Some(staging) = self.staging.as_ref().filter(|staging| staging.branch.id == branch) {
            staging.used_now(node);
        }
    }

    /// Bytes that wait to take room on the branches.
    pub(crate) fn staged_bytes(&self) -> u64 {
        self.staging.as_ref().map_or(0, |staging| staging.bytes().0)
    }

    /// Files that wait to take an inode on the branches.
    pub(crate) fn staged_files(&self) -> u64 {
        self.staging.as_ref().map_or(0, Staging::files)
    }

    /// For `umbrella status`.
    pub(crate) fn staging_status(&self) -> Option<StagingStatus> {
        let staging = self.staging.as_ref()?;
        // The keeper looks at memory only while something waits.
        staging.watch_memory();
        let (files, used) = {
            let queue = staging.queue.lock();
            (queue.waiting.files(), ByteSize(queue.waiting.pages().0 * PAGE_BYTES))
        };
        Some(StagingStatus {
            path: staging.branch.spec.path.parent().unwrap_or(&staging.branch.spec.path).to_owned(),
            volatile: staging.spec.volatile,
            accepts: staging.open.load(Ordering::Relaxed),
            files,
            used,
            limit: staging.limit(),
            max_file: staging.spec.max_file,
            max_age: staging.spec.max_age,
            files_staged: self.context.metrics.get(Metric::StagedFiles),
            files_left: self.context.metrics.get(Metric::StagedLeft),
            files_deleted: self.context.metrics.get(Metric::StagedDeleted),
        })
    }
}

/// Whether every file system keeps a file with so many names, of which this is one. Memory keeps more; what is beyond that is for the branch to judge.
pub(crate) fn is_stageable(name: &OsStr, names: usize) -> bool {
    name.len() <= 128 && names <= 64
}

/// Whether a branch keeps whatever memory keeps, so that nothing is promised that it would have refused.
fn keeps_all(able: &Abilities) -> bool {
    able.ownership && able.hard_links && able.xattr && able.acl && able.holes && able.nanoseconds
}

/// Room for intents that an area must have for those who leave in its own way: more than the longest has, whoever writes meanwhile.
const INTENTS: ByteSize = ByteSize(1 << 20);

/// Inodes that a branch must have besides those of the files that wait: for directories, and for what is made there at once.
const SPARE_INODES: u64 = 64;

/// How long the keeper sleeps while anything waits, when nobody wakes it.
const TICK: Duration = Duration::from_millis(200);
