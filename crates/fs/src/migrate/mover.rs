//! Moves files to the branch they belong on.
//!
//! Threads take files from a queue. A file is queued when it lies on a branch where it no longer belongs, and was
//! closed or renamed, or an attribute that rules look at was changed. Moves from or to one local branch run one after
//! the other, and so do those from or to one slow branch (network, FUSE). Other moves do not wait for them.
//!
//! Small files with the same way between local branches move together ([`crate::migrate::batch`]). A file that is open
//! for writing, or whose readers bypass the daemon, is left alone and judged again when it is closed. Moves are
//! invisible: names, inode number, contents and open handles stay.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustc_hash::FxHashSet;
use smallvec::SmallVec;
use umbrella_policy::placement::Choice;
use umbrella_policy::placement::spec::StagingMode;
use umbrella_units::{BranchId, ByteSize};

use crate::branch::Branch;
use crate::error::{OpError, OpResult};
use crate::ground::at::FileAt;
use crate::ground::locks::{Condvar, LeafMutex, rank};
use crate::ground::meta::Meta;
use crate::metrics::Metric;
use crate::migrate::Migrations;
use crate::migrate::batch::MoveResult;
use crate::migrate::moving::{MoveControl, MoveReason, NotMoved, show};
use crate::node::{Node, NodeId};
use crate::relocate::MOST_FILES;
use crate::warning::{Warning, WarningSubject};

/// Files waiting for their move.
pub(crate) struct Mover {
    queue: LeafMutex<rank::MoverQueue, MoveQueue>,
    wake: Condvar,
}

/// Threads that move files. One is always there for local branches, and one for slow ones.
pub(crate) const MOVERS: usize = 4;

/// Moves that come one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Lane {
    /// From one local branch to another.
    Local([BranchId; 2]),
    /// From or to this branch, which may be slow.
    Guarded(BranchId),
}

impl Lane {
    fn is_local(self) -> bool {
        matches!(self, Lane::Local(_))
    }

    /// Whether moves of both would use one branch.
    fn shares_branch_with(self, other: Lane) -> bool {
        match (self, other) {
            (Lane::Local(one), Lane::Local(other)) => one.iter().any(|branch| other.contains(branch)),
            _ => self == other,
        }
    }
}

/// Each file once.
#[derive(Default)]
struct MoveQueue {
    ready: BTreeMap<Lane, VecDeque<QueuedMove>>,
    /// Those that are ready.
    known: FxHashSet<NodeId>,
    /// Not before that time.
    later: Vec<(Instant, QueuedMove)>,
    /// In which a thread moves a file now.
    busy: SmallVec<[Lane; MOVERS]>,
    /// Files that were ready so far.
    arrived: u64,
}

/// A file that is to move.
struct QueuedMove {
    node: Arc<Node>,
    lane: Lane,
    /// Its place among all that were ready.
    number: u64,
    /// How often it was mapped when it was its turn.
    tries: u32,
}

impl MoveQueue {
    /// Whether it was not waiting yet. One that waits for a later time is ready now: something has changed.
    fn push(&mut self, node: &Arc<Node>, lane: Lane) -> bool {
        if !self.known.insert(node.id) {
            return false;
        }
        self.arrived += 1;
        let waiting = QueuedMove { node: Arc::clone(node), lane, number: self.arrived, tries: 0 };
        self.ready.entry(lane).or_default().push_back(waiting);
        let waited = self.later.iter().position(|(_, waiting)| waiting.node.id == node.id);
        waited.map(|at| self.later.swap_remove(at)).is_none()
    }

    /// The next files of the free lane in which a file waits longest, as many as may move together; it is busy from now
    /// on, until [`MoveQueue::leave`].
    fn pop(&mut self, now: Instant) -> Option<Vec<QueuedMove>> {
        let due = self.later.iter().position(|(due, waiting)| *due <= now && self.is_free(waiting.lane));
        let waiting = if let Some(due) = due {
            vec![self.later.swap_remove(due).1]
        } else {
            let free = self.ready.iter().filter(|(lane, _)| self.is_free(**lane));
            let lane = *free.min_by_key(|(_, files)| files.front().map(|file| file.number))?.0;
            let files = self.ready.get_mut(&lane)?;
            let count = if lane.is_local() { files.len().min(MOST_FILES) } else { 1 };
            let waiting: Vec<_> = files.drain(..count).collect();
            self.ready.retain(|_, files| !files.is_empty());
            for file in &waiting {
                self.known.remove(&file.node.id);
            }
            waiting
        };
        self.busy.push(waiting.first()?.lane);
        Some(waiting)
    }

    fn is_free(&self, lane: Lane) -> bool {
        let of_its_kind = self.busy.iter().filter(|busy| busy.is_local() == lane.is_local()).count();
        of_its_kind < MOVERS - 1 && !self.busy.iter().any(|busy| busy.shares_branch_with(lane))
    }

    fn release(&mut self, lane: Lane) {
        self.busy.retain(|busy| *busy != lane);
    }

    fn next_due(&self) -> Option<Instant> {
        self.later.iter().filter(|(_, waiting)| self.is_free(waiting.lane)).map(|(due, _)| *due).min()
    }

    /// All that wait.
    fn take(&mut self) -> Vec<QueuedMove> {
        self.known.clear();
        let ready = std::mem::take(&mut self.ready).into_values().flatten();
        ready.chain(self.later.drain(..).map(|(_, waiting)| waiting)).collect()
    }
}

/// A file that is mapped is tried again after this time, doubled each time, for a number of times. Then it waits for
/// the enforcer. Nothing reports the end of a mapping.
pub(super) const FIRST_RETRY: Duration = Duration::from_millis(5);
const RETRIES: u32 = 12;
/// A file with more names than this is not judged when it gets another.
const MOST_NAMES: u32 = 64;

/// Whether a file gets another turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Requeue {
    Over,
    Later,
}

impl Mover {
    pub(crate) fn new() -> Mover {
        Mover { queue: LeafMutex::default(), wake: Condvar::new() }
    }

    /// Queues a file, and says whether it was not queued yet. It holds on to the node until its turn is over.
    fn push(&self, node: &Arc<Node>, lane: Lane) -> bool {
        let mut queue = self.queue.lock();
        let new = queue.push(node, lane);
        if new {
            node.retain();
            self.wake.notify_one();
        }
        new
    }

    /// Gives a file that had its turn another one. `false`: it is queued anew already.
    fn again(&self, waiting: QueuedMove, due: Instant) -> bool {
        let mut queue = self.queue.lock();
        if queue.known.contains(&waiting.node.id) {
            return false;
        }
        queue.later.push((due, waiting));
        self.wake.notify_one();
        true
    }

    /// The next files whose time has come, all of one lane; waits for one. `None`: the pool ends. `done`: the lane of
    /// those before.
    fn next(&self, done: Option<Lane>, stopping: &AtomicBool) -> Option<Vec<QueuedMove>> {
        let mut queue = self.queue.lock();
        if let Some(lane) = done {
            queue.release(lane);
            self.wake.notify_one();
        }
        loop {
            if stopping.load(Ordering::Relaxed) {
                return None;
            }
            if let Some(waiting) = queue.pop(Instant::now()) {
                return Some(waiting);
            }
            match queue.next_due() {
                Some(due) => drop(self.wake.wait_until(&mut queue, due)),
                None => self.wake.wait(&mut queue),
            }
        }
    }

    /// Whether any file waits.
    pub(crate) fn is_waiting(&self) -> bool {
        let queue = self.queue.lock();
        !queue.ready.is_empty() || !queue.later.is_empty()
    }

    /// Whether this file waits.
    pub(crate) fn has(&self, node: &Arc<Node>) -> bool {
        let queue = self.queue.lock();
        queue.known.contains(&node.id) || queue.later.iter().any(|(_, waiting)| waiting.node.id == node.id)
    }
}

impl Migrations {
    /// A staged file was closed, or has another name. One that only waited for what is known now leaves soon, together
    /// with others; one that must be nowhere else, or not in memory, at once.
    pub(crate) fn evaluate_staged(&self, node: &Node, meta: &Meta) {
        let Some(area) = self.staged.area() else { return };
        let must_leave = match self.placement.staging_mode(node, meta, area) {
            StagingMode::Auto => return area.schedule_destage(node),
            StagingMode::Never => true,
            StagingMode::Always => {
                let xattrs = self.placement.xattrs_of(node, meta);
                self.placement.forbids(&node.paths(), meta, xattrs.as_deref(), area.branch.id)
            }
        };
        if must_leave {
            area.schedule_destage_now(node);
            area.wake.notify_one();
        }
    }

    /// Judges the place of a file that was just closed; queues it when it must move. The caller holds the rename lock
    /// shared.
    pub(crate) fn evaluate_closed(&self, node: &Arc<Node>, file: &FileAt) {
        if let Ok(meta) = file.stat() {
            self.placement.note_size(node, &meta);
            self.evaluate_meta(node, &meta);
        }
    }

    /// As `evaluate_closed`, for a file that changed without being open.
    pub(crate) fn evaluate_soon(&self, node: &Arc<Node>) {
        if is_due(node)
            && let Ok(attr) = self.tree.attr_of(node)
        {
            self.evaluate_meta(node, &attr.meta);
        }
    }

    /// As `evaluate_soon`, with known attributes, for a file that was just made or linked: it may never be closed. A
    /// file with very many names is left to the enforcer. All its names are looked at, so each new one would cost more
    /// than the one before.
    pub(crate) fn evaluate_created(&self, node: &Arc<Node>, meta: &Meta) {
        if meta.nlink <= MOST_NAMES && is_due(node) {
            self.evaluate_meta(node, meta);
        }
    }

    pub(crate) fn evaluate_meta(&self, node: &Arc<Node>, meta: &Meta) {
        let Some(file) = node.file() else { return };
        let branch = {
            let mut state = file.state.write();
            if !self.branches.is_staging(state.backing.branch) {
                state.needs_evaluation = false;
            }
            state.backing.branch
        };
        // What is staged is judged when it leaves.
        if self.branches.is_staging(branch) {
            return self.evaluate_staged(node, meta);
        }
        let Ok(branch) = self.branches.get(branch) else { return };
        if branch.settings().read_only {
            return;
        }
        if let Choice::Place(target) = self.placement.evaluate(&node.rule_path(), meta, &branch)
            && self.mover.push(node, self.lane(&branch, target))
        {
            self.context.count(Metric::RelocationsPending);
        }
    }

    fn lane(&self, from: &Branch, to: BranchId) -> Lane {
        let guarded = |branch: &Branch| branch.online().is_some_and(|online| online.guarded);
        match self.branches.get(to) {
            Ok(to) if guarded(&to) => Lane::Guarded(to.id),
            _ if guarded(from) => Lane::Guarded(from.id),
            _ => Lane::Local([from.id, to]),
        }
    }

    /// A thread of the mover; there are [`MOVERS`].
    pub(crate) fn run_mover(&self) {
        let mut done = None;
        while let Some(waiting) = self.mover.next(done, &self.context.stopping) {
            done = waiting.first().map(|waiting| waiting.lane);
            self.move_taken(waiting);
        }
    }

    /// Moves what is queued now, on the calling thread: for pools without a mover's thread, and for callers that cannot
    /// wait for it.
    pub(crate) fn move_all_queued(&self) {
        self.revisit_all();
        let waiting = self.mover.queue.lock().take();
        self.move_taken(waiting);
    }

    /// Moves files where they belong now, those with the same way together.
    fn move_taken(&self, waiting: Vec<QueuedMove>) {
        let mut ways: BTreeMap<([BranchId; 2], MoveReason), Vec<QueuedMove>> = BTreeMap::new();
        for waiting in waiting {
            match self.evaluate_again(&waiting.node) {
                Some(way) => ways.entry(way).or_default().push(waiting),
                None => self.end_turn(waiting, Requeue::Over),
            }
        }
        for (([_, target], cause), mut waiting) in ways {
            while !waiting.is_empty() {
                if cause == MoveReason::Warm && !self.placement.may_move_by_heat() {
                    // A later close, or the enforcer, finds them.
                    waiting.drain(..).for_each(|waiting| self.end_turn(waiting, Requeue::Over));
                    break;
                }
                self.move_first_of(&mut waiting, (target, cause));
            }
        }
    }

    fn move_first_of(&self, waiting: &mut Vec<QueuedMove>, (target, cause): (BranchId, MoveReason)) {
        let nodes: Vec<_> = waiting.iter().map(|waiting| Arc::clone(&waiting.node)).collect();
        let moved = self.run_until_shutdown(|pace| self.transfer_first(&nodes, target, cause, pace));
        let rest = waiting.split_off(moved.len().min(waiting.len()));
        for (waiting, moved) in std::mem::replace(waiting, rest).into_iter().zip(moved) {
            let turn = match moved {
                // Others of them took the room that it was judged by.
                Err(NotMoved::NoRoom | NotMoved::Outdated) if nodes.len() > 1 => {
                    if let Ok(branch) = self.branches.get(target) {
                        branch.invalidate_space();
                    }
                    self.move_queued(&waiting.node)
                }
                moved => self.note_moved_queued(&waiting.node, target, moved),
            };
            self.end_turn(waiting, turn);
        }
    }

    fn end_turn(&self, waiting: QueuedMove, turn: Requeue) {
        let QueuedMove { node, lane, number, tries } = waiting;
        if turn == Requeue::Later && tries < RETRIES {
            let due = Instant::now() + FIRST_RETRY * 2_u32.pow(tries);
            if self.mover.again(QueuedMove { node: Arc::clone(&node), lane, number, tries: tries + 1 }, due) {
                return;
            }
        } else if tries >= RETRIES
            && let Some(file) = node.file()
        {
            // Its next close, or the enforcer, finds it.
            file.state.write().needs_evaluation = true;
            self.moves_left.store(true, Ordering::Relaxed);
        }
        self.tree.nodes.release(&node, 1);
        self.context.metrics.sub(Metric::RelocationsPending, 1);
    }

    /// Wakes the threads, which see that the pool ends. `stopping` is set.
    pub(crate) fn stop(&self) {
        {
            // Under the lock: else it may have looked before, and not wait yet.
            let _queue = self.mover.queue.lock();
            self.mover.wake.notify_all();
        }
        self.disk_turns.stop();
        self.revisits.stop();
    }

    /// Whether a file waits for its move.
    pub(crate) fn is_queued(&self, node: &Arc<Node>) -> bool {
        self.mover.has(node)
    }

    /// Where a queued file is, and where it belongs now and may go, and why: since it was queued it may have changed
    /// again.
    pub(super) fn evaluate_again(&self, node: &Arc<Node>) -> Option<([BranchId; 2], MoveReason)> {
        let meta = {
            let _names = self.tree.rename_lock.read();
            self.tree.attr_of(node).ok()?.meta
        };
        let branch = self.branches.get(node.file()?.state.read().backing.branch).ok()?;
        let decision = self.placement.decide(&node.rule_path(), &meta, &branch);
        let Choice::Place(target) = decision.choice else { return None };
        if !self.placement.rules.load().rules.promotes(decision.entry) {
            return Some(([branch.id, target], MoveReason::Rule));
        }
        self.placement.may_move_by_heat().then_some(([branch.id, target], MoveReason::Warm))
    }

    fn move_queued(&self, node: &Arc<Node>) -> Requeue {
        let Some(([_, target], cause)) = self.evaluate_again(node) else { return Requeue::Over };
        let moved = self.run_until_shutdown(|pace| self.transfer(node, target, cause, pace));
        self.note_moved_queued(node, target, moved)
    }

    /// Runs moves that are given up when the pool ends.
    fn run_until_shutdown<T>(&self, run: impl FnOnce(MoveControl<'_>) -> T) -> T {
        let stop = || self.context.is_stopping();
        run(MoveControl { stop: Some(&stop), ..MoveControl::default() })
    }

    fn note_moved_queued(&self, node: &Arc<Node>, target: BranchId, moved: MoveResult) -> Requeue {
        match moved {
            Ok(bytes) => tracing::debug!(path = %show(node), to = %self.placement.branch_name(target), %bytes, "moved"),
            Err(why @ (NotMoved::Busy(_) | NotMoved::Stopped | NotMoved::Mapped | NotMoved::Outdated)) => {
                self.context.count(Metric::RelocationsBusy);
                tracing::debug!(path = %show(node), %why, "not moved now");
                if why.lacks_names() {
                    self.search_names(node);
                }
                if self.context.is_stopping() {
                    // Its copy was dropped for the end's sake.
                    self.moves_left.store(true, Ordering::Relaxed);
                }
                if matches!(why, NotMoved::Mapped | NotMoved::Outdated) {
                    return Requeue::Later;
                }
            }
            Err(why) if why.is_gone() || node.path() == b"/" => {}
            Err(why) => {
                self.context.count(Metric::RelocationsFailed);
                if matches!(why, NotMoved::NoRoom)
                    && let Ok(branch) = self.branches.get(target)
                {
                    branch.invalidate_space();
                }
                let (path, to) = (show(node), self.placement.branch_name(target));
                let warning = Warning::NotMoved { path: path.clone(), to, why: why.to_string() };
                self.context.warn(WarningSubject::Move(path), &warning);
            }
        }
        Requeue::Over
    }

    /// As `transfer`, but aborts a relocation of the same file that is under way. Retries until `timeout` has passed,
    /// while that relocation, or a close that the kernel has not finished, still has the file open.
    pub(crate) fn transfer_with_retries(
        &self,
        node: &Arc<Node>,
        target: BranchId,
        cause: MoveReason,
        pace: MoveControl<'_>,
        timeout: Duration,
    ) -> Result<ByteSize, NotMoved> {
        let until = Instant::now() + timeout;
        loop {
            if let Some(file) = node.file() {
                file.state.write().abort_copy();
            }
            match self.transfer(node, target, cause, pace) {
                Err(NotMoved::Mapped | NotMoved::Busy(_)) if Instant::now() < until => {
                    std::thread::sleep(FIRST_RETRY);
                }
                done => return done,
            }
        }
    }

    /// Moves a file in the foreground, whatever the rules say; for an exchange of names.
    pub(crate) fn move_now(&self, node: &Arc<Node>, target: BranchId) -> OpResult<()> {
        let file = node.file().ok_or(OpError::Sys(rustix::io::Errno::ISDIR))?;
        let _io = file.io.write();
        match self.transfer_with_retries(node, target, MoveReason::Full, MoveControl::default(), Duration::from_secs(1))
        {
            Ok(_) => Ok(()),
            Err(NotMoved::Busy(_) | NotMoved::Stopped | NotMoved::Mapped | NotMoved::Outdated) => {
                Err(OpError::Sys(rustix::io::Errno::BUSY))
            }
            Err(NotMoved::NoRoom) => Err(OpError::NoRoom),
            Err(NotMoved::Failed(error)) => Err(OpError::Sys(error.errno())),
            Err(NotMoved::Op(error)) => Err(error),
        }
    }
}

/// Whether a file is to be judged, and is not open: else its close would do that.
pub(crate) fn is_due(node: &Arc<Node>) -> bool {
    node.file().is_some_and(|file| {
        let state = file.state.read();
        state.needs_evaluation && state.writers == 0 && state.passthrough == 0 && !state.unlinked
    })
}
