//! The staging area, and what waits in it. How files leave it: [`crate::staging`].

mod groups;
mod memory;
mod open;
mod promises;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use arc_swap::{ArcSwap, Guard};
use rustc_hash::{FxHashMap, FxHashSet};
use umbrella_policy::staging::{Config, Staging as Waiting};
use umbrella_units::{BranchId, ByteSize, FileId, Nanos, PAGE_BYTES};

use groups::Groups;
use memory::Memory;

use crate::branch::{Abilities, Branch};
use crate::context::Context;
use crate::control::protocol::StagingStatus;
use crate::ground::locks::{Condvar, LeafMutex, rank};
use crate::ground::wakeup::Wakeup;
use crate::metrics::Metric;
use crate::node::{Node, NodeId};
use crate::spec::{AreaPlace, StagingSpec};

pub(crate) use memory::{high_water, low_water};
pub use open::obstacle;
pub(crate) use open::{check, end, open, open_at_mount, required_area};
pub(crate) use promises::{Promises, Wait};

/// Longer than any wait.
const A_DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// What waits in memory, if anything may.
pub(crate) struct Staged {
    context: Arc<Context>,
    /// Opened at the mount or by a reload, and there until the end.
    area: OnceLock<Area>,
    /// Called when an area was opened, and at the end.
    opened: Wakeup,
}

/// What an area takes in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Intake {
    /// It is configured: new files come.
    NewFiles,
    /// An earlier configuration left files in it: they leave, and no others come.
    Nothing,
}

/// The staging area and what waits in it.
pub(crate) struct Area {
    pub(crate) spec: AreaPlace,
    /// As configured; a reload changes it.
    settings: ArcSwap<StagingSpec>,
    pub(crate) branch: Arc<Branch>,
    pub(crate) intake: Intake,
    /// New files are taken in.
    pub(crate) open: AtomicBool,
    /// How many empty the area just now; no new files are taken in meanwhile.
    pauses: AtomicU32,
    pub(crate) started: Instant,
    pub(crate) queue: LeafMutex<rank::AreaQueue, StagedQueue>,
    pub(crate) wake: Condvar,
    pub(crate) groups: Groups,
    /// Bytes that may wait; follows the memory that is free.
    pub(crate) limit: AtomicU64,
}

/// What waits, and what is to be done about it.
pub(crate) struct StagedQueue {
    pub(crate) waiting: Waiting,
    /// Each waiting file's node, with a reference.
    pub(crate) nodes: FxHashMap<FileId, Arc<Node>>,
    /// Nodes whose reference is to be released. The thread that added them may have held their lock.
    pub(crate) released: Vec<Arc<Node>>,
    /// Directories that a file was in that waits no more.
    pub(crate) emptied: FxHashSet<NodeId>,
    /// Waiting files that could not leave when it was their turn, and why.
    pub(crate) stuck: BTreeMap<FileId, Arc<str>>,
    /// The branches that files were promised room on.
    pub(crate) promises: Promises,
}

impl StagedQueue {
    /// Whether the scheduler has nothing to look after.
    pub(crate) fn is_idle(&self) -> bool {
        self.nodes.is_empty() && self.released.is_empty() && self.emptied.is_empty()
    }

    /// What the files that wait cost in memory: their bytes, and for each about a page of bookkeeping in the kernel and
    /// here.
    pub(crate) fn used(&self) -> ByteSize {
        ByteSize((self.waiting.pages().0 + self.waiting.files()) * PAGE_BYTES)
    }
}

/// See [`Area::pause`].
pub(crate) struct IntakePause<'a>(&'a Area);

impl Drop for IntakePause<'_> {
    fn drop(&mut self) {
        self.0.pauses.fetch_sub(1, Ordering::Relaxed);
    }
}

pub(crate) fn id_of(node: &Node) -> FileId {
    FileId(node.id.0)
}

impl Area {
    pub(crate) fn new(spec: StagingSpec, branch: Arc<Branch>, intake: Intake) -> Area {
        let waiting = Waiting::new(config_of(&spec));
        Area {
            spec: AreaPlace { path: spec.path.clone(), volatile: spec.volatile },
            settings: ArcSwap::from_pointee(spec),
            branch,
            intake,
            open: AtomicBool::new(intake == Intake::NewFiles),
            pauses: AtomicU32::new(0),
            started: Instant::now(),
            queue: LeafMutex::new(StagedQueue {
                waiting,
                nodes: FxHashMap::default(),
                released: Vec::new(),
                emptied: FxHashSet::default(),
                stuck: BTreeMap::new(),
                promises: Promises::default(),
            }),
            wake: Condvar::new(),
            groups: Groups::of_this_process(),
            limit: AtomicU64::new(0),
        }
    }

    /// Takes no new files in until the result is dropped.
    pub(crate) fn pause(&self) -> IntakePause<'_> {
        self.pauses.fetch_add(1, Ordering::Relaxed);
        IntakePause(self)
    }

    fn takes_new_files(&self) -> bool {
        self.open.load(Ordering::Relaxed) && self.pauses.load(Ordering::Relaxed) == 0
    }

    /// As it is configured now. Cheap.
    pub(crate) fn settings(&self) -> Guard<Arc<StagingSpec>> {
        self.settings.load()
    }

    /// Sets other limits, also for files that wait already.
    pub(crate) fn configure(&self, spec: StagingSpec) {
        let now = self.now();
        self.queue.lock().waiting.configure(now, config_of(&spec));
        self.settings.store(Arc::new(spec));
        open::resize(self);
        self.branch.invalidate_space();
        self.watch_memory();
        self.wake.notify_one();
    }

    /// Whether it has the little room that its intents need.
    pub(crate) fn has_room_for_intents(&self) -> bool {
        let room = self.branch.space_now();
        room.free_for_root >= INTENTS && room.files_free >= SPARE_INODES
    }

    pub(crate) fn now(&self) -> Nanos {
        Nanos(u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    /// Bytes of the files that wait.
    pub(crate) fn bytes(&self) -> ByteSize {
        ByteSize(self.queue.lock().waiting.pages().0 * PAGE_BYTES)
    }

    /// As [`StagedQueue::used`].
    pub(crate) fn used(&self) -> ByteSize {
        self.queue.lock().used()
    }

    pub(crate) fn holds(&self, node: &Node) -> bool {
        self.queue.lock().nodes.contains_key(&id_of(node))
    }

    pub(crate) fn files(&self) -> u64 {
        self.queue.lock().waiting.files()
    }

    pub(crate) fn limit(&self) -> ByteSize {
        ByteSize(self.limit.load(Ordering::Relaxed))
    }

    /// Whether more waits than may. A file that is written leaves then: files come in small and grow.
    pub(crate) fn is_overfull(&self) -> bool {
        self.used() > self.limit()
    }

    /// Whether another file may come. Wakes the scheduler early enough that there is room again soon, and when the
    /// limit may have been found while memory was short.
    pub(crate) fn has_room(&self) -> bool {
        let (used, limit) = (self.used().0, self.limit().0);
        let fits = used + self.settings().max_file.0 <= limit;
        if !fits || used > memory::high_water(ByteSize(limit)).0 {
            self.wake.notify_one();
        }
        fits
    }

    /// When a file leaves, for people.
    pub(crate) fn leaves_when(&self) -> &'static str {
        match (self.spec.volatile, self.settings().max_age) {
            (true, _) => "when it is old enough, outgrows staging, or is synced",
            (false, Some(_)) => "when it is old enough, outgrows staging, or the pool is unmounted",
            (false, None) => "when it outgrows staging, too much waits, or the pool is unmounted",
        }
    }

    /// Adds a waiting file.
    pub(crate) fn add(&self, node: &Arc<Node>, parent: NodeId, size: ByteSize, wait: Option<&Wait>) {
        let now = self.now();
        let mut queue = self.queue.lock();
        let is_known = queue.nodes.contains_key(&id_of(node));
        if !is_known {
            node.retain();
            queue.waiting.create(now, id_of(node), FileId(parent.0));
            queue.waiting.write(id_of(node), size);
        }
        if let Some(wait) = wait {
            queue.waiting.bound(id_of(node), wait.threshold);
            queue.promises.add(id_of(node), &wait.list);
        }
        if is_known {
            return;
        }
        if queue.is_idle() {
            self.wake.notify_one();
        }
        queue.nodes.insert(id_of(node), Arc::clone(node));
    }

    /// A file waits no more: it left, or is deleted. May be called with the file locked.
    pub(crate) fn remove(&self, node: &Node) -> bool {
        let mut queue = self.queue.lock();
        if let Some(staged) = queue.waiting.remove(id_of(node)) {
            queue.emptied.insert(NodeId(staged.dir.0));
        }
        queue.stuck.remove(&id_of(node));
        queue.promises.remove(id_of(node));
        let known = queue.nodes.remove(&id_of(node));
        let was_there = known.is_some();
        queue.released.extend(known);
        was_there
    }

    /// A file was written up to this byte.
    pub(crate) fn wrote(&self, node: &Node, end: u64) {
        // Never beyond `max_file`: such a write takes it out first.
        self.queue.lock().waiting.extend(id_of(node), ByteSize(end));
    }

    pub(crate) fn resized(&self, node: &Node, size: ByteSize) {
        self.queue.lock().waiting.write(id_of(node), size);
    }

    /// The size beyond which a file leaves.
    fn threshold_of(&self, node: &Node) -> ByteSize {
        self.queue.lock().waiting.threshold_of(id_of(node)).unwrap_or(self.settings().max_file)
    }

    pub(crate) fn used_now(&self, node: &Node) {
        self.queue.lock().waiting.touch(id_of(node));
    }

    /// Adjusts the limit to the memory there is.
    pub(crate) fn watch_memory(&self) {
        let room = self.branch.space();
        let memory = if self.spec.volatile { Memory::now() } else { None };
        let memory = memory.map(|memory| self.groups.limit_to_groups(memory));
        let size = self.settings().size.map(|size| size.of(memory.map_or(room.total, |memory| memory.total)));
        let used = self.used();
        // A part of the area stays free, so that a directory can always be made in it.
        let area = ByteSize((used.0.saturating_add(room.free_for_root.0)) / 10 * 9);
        let limit = match memory {
            Some(memory) => memory.limit(used, size),
            None => size.unwrap_or(area),
        };
        self.limit.store(limit.0.min(area.0), Ordering::Relaxed);
    }

    /// Schedules a file to leave the area, because its rules can be evaluated. It leaves a little later, so that
    /// programs can first write further files, and set attributes and names.
    pub(crate) fn schedule_destage(&self, node: &Node) {
        let due = self.now() + DESTAGE_DELAY;
        self.queue.lock().waiting.schedule_destage(id_of(node), due);
    }

    /// Schedules a file to leave the area at once.
    pub(crate) fn schedule_destage_now(&self, node: &Node) {
        self.queue.lock().waiting.schedule_destage_now(id_of(node));
    }

    pub(crate) fn postpone(&self, node: &Node) {
        let now = self.now();
        self.queue.lock().waiting.postpone(now, id_of(node));
    }
    /// All files that wait.
    pub(crate) fn all(&self) -> Vec<Arc<Node>> {
        self.queue.lock().nodes.values().cloned().collect()
    }
}

fn config_of(spec: &StagingSpec) -> Config {
    let max_age = spec.max_age.map_or(Nanos::NEVER, |age| Nanos(u64::try_from(age.as_nanos()).unwrap_or(u64::MAX)));
    Config { threshold: spec.max_file, max_age }
}

impl Staged {
    pub(crate) fn new(context: &Arc<Context>, area: Option<Area>) -> Arc<Staged> {
        let area = area.map_or_else(OnceLock::new, OnceLock::from);
        Arc::new(Staged { context: Arc::clone(context), area, opened: Wakeup::default() })
    }

    /// The area, if there is one. Cheap.
    pub(crate) fn area(&self) -> Option<&Area> {
        self.area.get()
    }

    /// Sets the area in which files may wait. There was none before.
    pub(crate) fn set_area(&self, area: Area) {
        let was_none = self.area.set(area).is_ok();
        debug_assert!(was_none, "one reload at a time");
        self.opened.wake();
    }

    /// Waits until there is an area; `None` at the end.
    pub(crate) fn await_area(&self) -> Option<&Area> {
        while self.area().is_none() && !self.context.is_stopping() {
            self.opened.wait_until(Instant::now() + A_DAY);
        }
        self.area()
    }

    /// Ends such a wait.
    pub(crate) fn end_wait(&self) {
        self.opened.wake();
    }

    /// Whether new files may wait in memory.
    pub(crate) fn takes_new_files(&self) -> bool {
        self.area().is_some_and(Area::takes_new_files)
    }

    /// Where a file is staged now, if it is.
    pub(crate) fn area_of(&self, node: &Node) -> Option<&Area> {
        let area = self.area()?;
        let here = node.file()?.state.read().backing.branch == area.branch.id;
        here.then_some(area)
    }

    /// Adds a file that was created in the staging area to the waiting files.
    pub(crate) fn add(&self, node: &Arc<Node>, parent: NodeId, size: ByteSize, wait: Option<&Wait>) {
        if let Some(area) = self.area_of(node) {
            area.add(node, parent, size, wait);
            self.context.count(Metric::StagedFiles);
        }
    }

    /// The last name of a file went. May be called with the file locked; `branch`: where it was.
    pub(crate) fn deleted(&self, node: &Node, branch: BranchId) {
        if let Some(area) = self.area().filter(|area| area.branch.id == branch)
            && area.remove(node)
        {
            self.context.count(Metric::StagedDeleted);
        }
    }

    /// A file left by way of an overflow.
    pub(crate) fn left(&self, node: &Node) {
        if let Some(area) = self.area() {
            area.remove(node);
            self.context.count(Metric::StagedLeft);
        }
    }

    /// Whether a file on this branch must leave staging before it may reach this size.
    pub(crate) fn outgrows(&self, node: &Node, branch: BranchId, end: u64) -> bool {
        let area = self.area().filter(|area| area.branch.id == branch);
        area.is_some_and(|area| end > area.threshold_of(node).0)
    }

    /// Whether a file on this branch must leave staging before it may be written up to this byte.
    pub(crate) fn may_not_grow(&self, node: &Node, branch: BranchId, end: u64) -> bool {
        let area = self.area().filter(|area| area.branch.id == branch);
        area.is_some_and(|area| end > area.threshold_of(node).0 || area.is_overfull())
    }

    /// A file on this branch was written up to this byte.
    pub(crate) fn wrote(&self, node: &Node, branch: BranchId, end: u64) {
        if let Some(area) = self.area().filter(|area| area.branch.id == branch) {
            area.wrote(node, end);
        }
    }

    /// A file on this branch has this size now.
    pub(crate) fn resized(&self, node: &Node, branch: BranchId, size: u64) {
        if let Some(area) = self.area().filter(|area| area.branch.id == branch) {
            area.resized(node, ByteSize(size));
        }
    }

    /// A file on this branch was read.
    pub(crate) fn read(&self, node: &Node, branch: BranchId) {
        if let Some(area) = self.area().filter(|area| area.branch.id == branch) {
            area.used_now(node);
        }
    }

    /// Bytes that wait to take room on the branches.
    pub(crate) fn bytes(&self) -> u64 {
        self.area().map_or(0, |area| area.bytes().0)
    }

    /// Files that wait to take an inode on the branches.
    pub(crate) fn files(&self) -> u64 {
        self.area().map_or(0, Area::files)
    }

    /// For `umbrella status`.
    pub(crate) fn status(&self) -> Option<StagingStatus> {
        let area = self.area()?;
        // The scheduler looks at memory only while something waits.
        area.watch_memory();
        let (files, used) = {
            let queue = area.queue.lock();
            (queue.waiting.files(), ByteSize(queue.waiting.pages().0 * PAGE_BYTES))
        };
        Some(StagingStatus {
            path: area.branch.spec.path.parent().unwrap_or(&area.branch.spec.path).to_owned(),
            volatile: area.spec.volatile,
            mode: area.settings().mode,
            accepts: area.open.load(Ordering::Relaxed),
            files,
            used,
            limit: area.limit(),
            max_file: area.settings().max_file,
            max_age: area.settings().max_age,
            files_staged: self.context.metrics.get(Metric::StagedFiles),
            files_left: self.context.metrics.get(Metric::StagedLeft),
            files_deleted: self.context.metrics.get(Metric::StagedDeleted),
        })
    }
}

/// Whether every file system can keep a file with this name and `names` hard links. Memory keeps more; for longer names
/// or more links the branch decides.
pub(crate) fn is_stageable(name: &OsStr, names: usize) -> bool {
    name.len() <= 128 && names <= 64
}

/// Whether a branch keeps everything that memory keeps, so that staging promises nothing that the branch would refuse.
pub(crate) fn keeps_all(able: &Abilities) -> bool {
    able.ownership && able.hard_links && able.xattr && able.acl && able.holes && able.nanoseconds
}

/// Room for intents that an area must have for files that leave in its own way: more than the longest intent has,
/// whatever is written meanwhile.
const INTENTS: ByteSize = ByteSize(1 << 20);

/// How long a file that was closed is left alone.
const DESTAGE_DELAY: Nanos = Nanos::from_secs(1);

/// Inodes that a branch must have besides those of the files that wait: for directories, and for what is made there at
/// once.
pub(crate) const SPARE_INODES: u64 = 64;
