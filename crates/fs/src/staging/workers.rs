//! The threads that bring files to their branches: one for each branch, while it has something to do.
//!
//! A caller that wants many files to leave only decides where each goes, and hands them over. So a branch whose disk
//! never answers holds up its own files, and no others. A worker hands a file on when it finds that the file belongs
//! elsewhere by now, or that its branch has no room.
//!
//! A branch *hangs* here when its worker has got no further with a file for [`HANGS`]. Only callers that have to wait
//! for it do. Its files stay in memory until it answers, and other branches free what has to be freed.

use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use rustc_hash::FxHashSet;
use smallvec::{SmallVec, smallvec};
use umbrella_units::{BranchId, FileId};

use crate::area::{Area, id_of};
use crate::ground::locks::{Condvar, LeafMutex, LeafMutexGuard, rank};
use crate::migrate::NotMoved;
use crate::node::Node;
use crate::staging::Staging;
use crate::warning::Warning;

/// How long a branch may take for one step with a file before no caller waits for it any more: longer than a disk that
/// sleeps takes to wake up.
pub(crate) const HANGS: Duration = Duration::from_secs(30);
/// Number of failures in a row after which the rest of a worker's files wait for another time.
const MOST_FAILURES: usize = 16;

/// Where a file cannot go, as far as it was tried.
pub(crate) struct TriedBranches {
    /// Branches without room for it, and the area itself.
    pub(crate) full: SmallVec<[BranchId; 4]>,
    /// The first failure.
    pub(crate) failure: Option<NotMoved>,
}

impl TriedBranches {
    pub(crate) fn nothing(area: &Area) -> TriedBranches {
        TriedBranches { full: smallvec![area.branch.id], failure: None }
    }
}

/// A file on its way out.
pub(crate) struct DestageTask {
    pub(crate) node: Arc<Node>,
    pub(crate) tried: TriedBranches,
}

/// What becomes of a file that a worker was given.
pub(crate) enum DestageOutcome {
    /// It left, or is not there any more.
    Left,
    /// It stays for now.
    Stays,
    /// It belongs on another branch.
    Elsewhere(BranchId, DestageTask),
}

/// What one branch's worker has to do.
#[derive(Default)]
struct DestageWorker {
    files: VecDeque<DestageTask>,
    /// When it got on last; `None`: there is no thread.
    since: Option<Instant>,
    /// Files that are done with, since the mount.
    finished: u64,
    /// The file that it moves now.
    at_work: Option<FileId>,
    /// The log has that it hangs.
    reported_hanging: bool,
}

impl DestageWorker {
    fn is_hanging(&self) -> bool {
        self.since.is_some_and(|since| since.elapsed() >= HANGS)
    }

    fn left_to_do(&self) -> u64 {
        self.files.len() as u64 + u64::from(self.at_work.is_some())
    }
}

#[derive(Default)]
struct WorkerTable {
    workers: BTreeMap<BranchId, DestageWorker>,
    /// Files that some worker has.
    handed: FxHashSet<FileId>,
    /// How often one has handed a file on to another, since the mount.
    handed_on: u64,
}

/// See the module. A leaf among the locks.
pub(crate) struct DestageWorkers {
    staging: Weak<Staging>,
    state: LeafMutex<rank::StagingWorkers, WorkerTable>,
    changed: Condvar,
}

/// A branch that hangs.
#[derive(Debug, Clone)]
pub(crate) struct HangingBranch {
    pub(crate) branch: BranchId,
    /// Since it got on last.
    pub(crate) for_now: Duration,
    /// Files that wait for it.
    pub(crate) files: u64,
}

impl DestageWorkers {
    pub(crate) fn new(staging: Weak<Staging>) -> DestageWorkers {
        DestageWorkers { staging, state: LeafMutex::default(), changed: Condvar::new() }
    }

    /// Leaves of files those that no worker has.
    pub(crate) fn retain_unassigned(&self, files: &mut Vec<FileId>) {
        let state = self.state.lock();
        files.retain(|file| !state.handed.contains(file));
    }

    /// Files of workers that get on, and files of all.
    pub(crate) fn handed(&self) -> (Vec<FileId>, FxHashSet<FileId>) {
        let state = self.state.lock();
        let moving = state.workers.values().filter(|worker| !worker.is_hanging());
        let of = |worker: &DestageWorker| {
            worker.at_work.into_iter().chain(worker.files.iter().map(|it| id_of(&it.node))).collect::<Vec<_>>()
        };
        (moving.flat_map(of).collect(), state.handed.clone())
    }

    /// Enqueues files for a branch's worker, in this order. Skips files that a worker has already. Returns whether any
    /// were new.
    fn enqueue(self: &Arc<Self>, branch: BranchId, files: impl IntoIterator<Item = DestageTask>) -> bool {
        let mut state = self.state.lock();
        let WorkerTable { workers, handed, .. } = &mut *state;
        let worker = workers.entry(branch).or_default();
        let before = worker.files.len();
        worker.files.extend(files.into_iter().filter(|it| handed.insert(id_of(&it.node))));
        let any = worker.files.len() > before;
        self.start(state, branch);
        any
    }

    /// Starts the worker of a branch, if it has something to do and no thread. Without a thread it is done here.
    fn start(self: &Arc<Self>, mut state: LeafMutexGuard<'_, WorkerTable>, branch: BranchId) {
        let Some(worker) = state.workers.get_mut(&branch) else { return };
        if worker.files.is_empty() || worker.since.is_some() {
            return;
        }
        worker.since = Some(Instant::now());
        drop(state);
        let this = Arc::clone(self);
        let started = std::thread::Builder::new().name("worker".to_owned()).spawn(move || this.run(branch));
        if started.is_err() {
            self.run(branch);
        }
    }

    /// A worker's thread. It holds the room only while it moves a file.
    fn run(self: &Arc<Self>, branch: BranchId) {
        let mut failures = 0;
        while let Some(task) = self.next(branch) {
            let file = id_of(&task.node);
            let staging = self.staging.upgrade();
            // The panic hook reports a panic; it ends nothing else.
            let outcome = catch_unwind(AssertUnwindSafe(|| {
                staging.as_ref().map_or(DestageOutcome::Stays, |staging| {
                    staging.destage_one(branch, task, failures >= MOST_FAILURES)
                })
            }));
            drop(staging);
            match outcome {
                Ok(DestageOutcome::Left) => failures = 0,
                Ok(DestageOutcome::Stays) | Err(_) => failures += 1,
                Ok(DestageOutcome::Elsewhere(..)) => {}
            }
            self.done(branch, file, outcome.unwrap_or(DestageOutcome::Stays));
        }
    }

    fn next(&self, branch: BranchId) -> Option<DestageTask> {
        let mut state = self.state.lock();
        let worker = state.workers.get_mut(&branch)?;
        let next = worker.files.pop_front();
        worker.at_work = next.as_ref().map(|task| id_of(&task.node));
        worker.since = next.is_some().then(Instant::now);
        next
    }

    /// A branch takes what its worker brings.
    pub(crate) fn note_progress(&self, branch: BranchId) {
        if let Some(worker) = self.state.lock().workers.get_mut(&branch) {
            worker.since = Some(Instant::now());
        }
    }

    fn done(self: &Arc<Self>, branch: BranchId, file: FileId, outcome: DestageOutcome) {
        let mut state = self.state.lock();
        if let Some(worker) = state.workers.get_mut(&branch) {
            (worker.finished, worker.at_work) = (worker.finished + 1, None);
        }
        self.changed.notify_all();
        match outcome {
            DestageOutcome::Left | DestageOutcome::Stays => _ = state.handed.remove(&file),
            DestageOutcome::Elsewhere(other, task) => {
                state.handed_on += 1;
                state.workers.entry(other).or_default().files.push_back(task);
                self.start(state, other);
            }
        }
    }

    /// Waits until the workers have done what they have now, also what one hands on to another, but not for those that
    /// hang.
    pub(crate) fn wait_until_idle(&self) {
        let mut state = self.state.lock();
        // As often as a file can be handed on for want of room; rules that change all the time hold up no caller.
        for _ in 0..=state.workers.len() + 1 {
            let handed_on = state.handed_on;
            self.settle_once(&mut state);
            if state.handed_on == handed_on {
                return;
            }
        }
    }

    fn settle_once(&self, state: &mut LeafMutexGuard<'_, WorkerTable>) {
        let marks: Vec<(BranchId, u64)> =
            state.workers.iter().map(|(branch, it)| (*branch, it.finished + it.left_to_do())).collect();
        loop {
            let waited_for = marks.iter().filter_map(|(branch, mark)| {
                let worker = state.workers.get(branch)?;
                (worker.finished < *mark && !worker.is_hanging()).then_some(worker.since.unwrap_or_else(Instant::now))
            });
            let Some(first) = waited_for.min() else { return };
            self.changed.wait_until(state, first + HANGS);
        }
    }

    /// Whether some worker has anything to do.
    pub(crate) fn are_at_work(&self) -> bool {
        self.state.lock().workers.values().any(|worker| worker.left_to_do() > 0)
    }

    /// The branches that hang.
    pub(crate) fn hanging(&self) -> Vec<HangingBranch> {
        let state = self.state.lock();
        let hanging = state.workers.iter().filter(|(_, worker)| worker.is_hanging());
        let told = |(branch, worker): (&BranchId, &DestageWorker)| HangingBranch {
            branch: *branch,
            for_now: worker.since.map_or(Duration::ZERO, |since| since.elapsed()),
            files: worker.left_to_do(),
        };
        hanging.map(told).collect()
    }

    /// Branches that have begun or ceased to hang since the last call.
    fn take_changes(&self) -> Vec<(BranchId, bool)> {
        let mut state = self.state.lock();
        let changed = state.workers.iter_mut().filter(|(_, worker)| worker.reported_hanging != worker.is_hanging());
        let told = changed.map(|(branch, worker)| {
            worker.reported_hanging = !worker.reported_hanging;
            (*branch, worker.reported_hanging)
        });
        told.collect()
    }
}

impl Staging {
    /// Hands files to the workers of the branches that they go to, in the order of their paths. Whether any were not
    /// there already.
    pub(crate) fn hand_to_workers(&self, area: &Area, nodes: Vec<Arc<Node>>) -> bool {
        let placed = nodes.into_iter().filter_map(|node| {
            let (target, path) = self.destination(area, &node)?;
            Some((target, path, node))
        });
        let mut placed: Vec<_> = placed.collect();
        placed.sort_by(|(one, its_path, _), (other, path, _)| (one, its_path).cmp(&(other, path)));
        let mut any = false;
        for files in placed.chunk_by(|(one, ..), (other, ..)| one == other) {
            let Some((target, ..)) = files.first() else { continue };
            let files = files
                .iter()
                .map(|(.., node)| DestageTask { node: Arc::clone(node), tried: TriedBranches::nothing(area) });
            any |= self.workers.enqueue(*target, files);
        }
        any
    }

    /// Where a file goes, and its path; the area itself where there is no place for it. `None`: another thread is
    /// moving it out, and may hang.
    fn destination(&self, area: &Area, node: &Arc<Node>) -> Option<(BranchId, Vec<u8>)> {
        let _nobody_takes_it_out = node.file()?.io.try_read()?;
        let attr = {
            let _names = self.tree.rename_lock.read();
            self.tree.attr_of(node)
        };
        let Ok(attr) = attr else { return Some((area.branch.id, Vec::new())) };
        let path = self.placement.deciding_path(node, &attr.meta);
        let target = self.destage_target(&path, &attr.meta, &[area.branch.id]).target;
        Some((target.unwrap_or(area.branch.id), path))
    }

    /// A worker's work on one file; where others could not leave before, it is left for another time.
    fn destage_one(&self, branch: BranchId, task: DestageTask, gives_up: bool) -> DestageOutcome {
        let Some(area) = self.staged.area() else { return DestageOutcome::Left };
        if self.context.is_stopping() {
            return DestageOutcome::Stays;
        }
        let node = Arc::clone(&task.node);
        let outcome = if gives_up { DestageOutcome::Stays } else { self.destage_to(branch, task) };
        match outcome {
            DestageOutcome::Left => self.write_back.await_room(&node),
            DestageOutcome::Stays => area.postpone(&node),
            DestageOutcome::Elsewhere(..) => {}
        }
        self.release_left();
        outcome
    }

    /// Says in the log which branches have come to hang, and which get on again.
    pub(crate) fn report_hanging(&self) {
        for (branch, hangs) in self.workers.take_changes() {
            let branch = self.placement.branch_name(branch);
            if hangs {
                let waited = HANGS.as_secs();
                tracing::warn!(
                    branch,
                    "for {waited} s it has not taken a file from the staging area: its files stay in memory"
                );
            } else {
                tracing::info!(branch, "it takes files from the staging area again");
            }
        }
    }

    /// What `umbrella status` says of branches that hold up files.
    pub(crate) fn hanging_warnings(&self) -> Vec<Warning> {
        let hanging = self.workers.hanging();
        let warning = |it: &HangingBranch| Warning::StagedFilesHeldUp {
            name: self.placement.branch_name(it.branch),
            waited: Duration::from_secs(it.for_now.as_secs()),
            files: it.files,
        };
        hanging.iter().filter(|it| !self.branches.is_staging(it.branch)).map(warning).collect()
    }

    /// Names of the branches that hold up files that leave the staging area.
    pub(crate) fn hanging_branches(&self) -> Vec<String> {
        let hanging = self.workers.hanging();
        hanging
            .iter()
            .filter(|it| !self.branches.is_staging(it.branch))
            .map(|it| self.placement.branch_name(it.branch))
            .collect()
    }
}
