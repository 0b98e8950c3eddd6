//! How files leave the staging area.
//!
//! Steps of one file (`destage`):
//!
//! 1. Take its `io` lock, exclusively: reads and writes wait.
//! 2. Evaluate its rule, with its present size and attributes.
//! 3. Move it there as any file moves (see `transfer`), while it stays open.
//!
//! On the way out of volatile memory nothing is synced, only begun to be written. A caller that asked for more syncs
//! the moved files afterwards.

use std::ffi::{OsStr, OsString};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use smallvec::SmallVec;
use umbrella_policy::placement::spec::FileKind;
use umbrella_policy::placement::{Choice, EntryId, FileFacts, Stage};
use umbrella_units::{BranchId, ByteSize, format_duration};

use crate::area::Area;
use crate::error::{OpError, OpResult};
use crate::ground::at::DirAt;
use crate::ground::kernel_cache::KernelCache;
use crate::ground::meta::Meta;
use crate::metrics::Metric;
use crate::migrate::{MoveControl, MoveReason, NotMoved, show};
use crate::node::{Backing, Node, NodeId};
use crate::placement::settled_facts;
use crate::staging::Staging;
use crate::staging::workers::{DestageOutcome, DestageTask, HANGS, TriedBranches};
use crate::tree::Pinned;
use crate::tree::dirs::modified_at;

/// Told of an entry of the area: its directory, its name, its attributes.
type Visit<'a> = dyn FnMut(&Staging, &Arc<Node>, &OsStr, &Meta) -> OpResult<()> + 'a;

/// How often a worker tries a file whose attributes change while it is copied, or that is open outside the mount.
const ATTEMPTS: usize = 5;
/// How long a caller waits for that: a virus scanner has each new file open for a moment.
const BUSY_TIMEOUT: Duration = Duration::from_secs(1);
const FIRST_RETRY: Duration = Duration::from_millis(1);
const NEXT_RETRY: Duration = Duration::from_millis(10);

/// How long files that are busy for a moment are tried again at the end, after the last one that left.
const LAST_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a worker waits for locks of a file and of directories. A holder may wait for a branch that hangs.
const LOCK_TIMEOUT: Duration = Duration::from_millis(50);

/// The limits of a caller that moves a file out.
struct DestageLimits<'a> {
    /// To this branch only.
    only: Option<BranchId>,
    /// How long its lock and those of directories are waited for; `None`: as long as it takes.
    lock_timeout: Option<Duration>,
    /// Called whenever the copy gets on.
    alive: Option<&'a dyn Fn()>,
    /// The size that it is about to have, which its rule may look at.
    grows_to: u64,
}

impl DestageLimits<'_> {
    const ANY: DestageLimits<'static> = DestageLimits { only: None, lock_timeout: None, alive: None, grows_to: 0 };
}

/// What became of a file that was not refused.
enum DestageResult {
    /// It left, or is not there any more.
    Left,
    /// It belongs to a branch that was out of reach.
    Elsewhere(BranchId),
}

/// Where a file that leaves goes.
pub(crate) struct DestageTarget {
    /// The rule that was asked, when it is the first time.
    rule: Option<EntryId>,
    pub(crate) target: Option<BranchId>,
}

impl Staging {
    /// Moves a file out of the staging area. Does nothing if the file is not there.
    pub(crate) fn destage(&self, node: &Arc<Node>) -> Result<(), NotMoved> {
        let Some(area) = self.staged.area() else { return Ok(()) };
        self.destage_within(area, node, &mut TriedBranches::nothing(area), &DestageLimits::ANY).map(drop)
    }

    /// Takes a file out of the staging area to one branch, as its worker: other branches and locks are not waited for.
    pub(crate) fn destage_to(&self, branch: BranchId, mut task: DestageTask) -> DestageOutcome {
        let Some(area) = self.staged.area() else { return DestageOutcome::Left };
        let alive = || self.workers.note_progress(branch);
        let limits =
            DestageLimits { only: Some(branch), lock_timeout: Some(LOCK_TIMEOUT), alive: Some(&alive), grows_to: 0 };
        match self.destage_within(area, &task.node, &mut task.tried, &limits) {
            Ok(DestageResult::Left) => DestageOutcome::Left,
            Ok(DestageResult::Elsewhere(other)) => DestageOutcome::Elsewhere(other, task),
            Err(_) => DestageOutcome::Stays,
        }
    }

    fn destage_within(
        &self,
        area: &Area,
        node: &Arc<Node>,
        tried: &mut TriedBranches,
        limits: &DestageLimits<'_>,
    ) -> Result<DestageResult, NotMoved> {
        let file = node.file().ok_or(NotMoved::Busy("it is a directory"))?;
        let (begun, mut attempts) = (Instant::now(), 0);
        let left = loop {
            // Another thread that moves it already may wait for a branch that hangs.
            let io = match limits.lock_timeout {
                Some(lock_timeout) => file.io.try_write_for(lock_timeout),
                None => Some(file.io.write()),
            };
            let Some(io) = io else { break Err(NotMoved::Busy("it is in use")) };
            let (here, unlinked) = {
                let state = file.state.read();
                (state.backing.branch, state.unlinked)
            };
            if here != area.branch.id || unlinked {
                area.remove(node);
                return Ok(DestageResult::Left);
            }
            let left = self.destage_locked(node, area, tried, limits);
            drop(io);
            attempts += 1;
            let in_the_way = matches!(left, Err(NotMoved::Busy(_) | NotMoved::Mapped));
            let waits = attempts < ATTEMPTS || (limits.lock_timeout.is_none() && begun.elapsed() < BUSY_TIMEOUT);
            if !(in_the_way && waits) {
                break left;
            }
            std::thread::sleep(if attempts < ATTEMPTS { FIRST_RETRY } else { NEXT_RETRY });
        };
        match &left {
            Ok(DestageResult::Left) => {
                area.remove(node);
                self.context.count(Metric::StagedLeft);
                let _names = self.tree.rename_lock.read();
                self.migrate.evaluate_soon(node);
            }
            Ok(DestageResult::Elsewhere(_)) => {}
            Err(NotMoved::Op(OpError::Stale)) => {
                area.remove(node); // It is gone.
            }
            Err(why @ (NotMoved::Busy(_) | NotMoved::Mapped)) => {
                tracing::debug!(path = %show(node), %why, "it stays in staging for now");
            }
            Err(why) => area.note_stuck(node, why),
        }
        left
    }

    fn destage_locked(
        &self,
        node: &Arc<Node>,
        area: &Area,
        tried: &mut TriedBranches,
        limits: &DestageLimits<'_>,
    ) -> Result<DestageResult, NotMoved> {
        if let Some(file) = node.file() {
            // Later changes are not in the facts that its rule gets.
            file.state.write().needs_evaluation = false;
        }
        let meta = {
            let _names = self.tree.rename_lock.read();
            self.tree.attr_of(node)?.meta
        };
        let meta = Meta { size: meta.size.max(limits.grows_to), ..meta };
        let cause = MoveReason::of_leaving(area);
        let path = self.placement.deciding_path(node, &meta);
        loop {
            let DestageTarget { rule, target } = self.destage_target(&path, &meta, &tried.full);
            let Some(target) = target else {
                let refused = || self.placement.refusal().into();
                return Err(tried.failure.take().unwrap_or_else(refused));
            };
            if limits.only.is_some_and(|only| only != target) {
                return Ok(DestageResult::Elsewhere(target));
            }
            if let (Some(rule), rules) = (rule, self.placement.rules.load())
                && let Some(hits) = rules.hits.get(rule.index())
            {
                hits.fetch_add(1, Ordering::Relaxed);
            }
            let pace = MoveControl { alive: limits.alive, lock_timeout: limits.lock_timeout, ..MoveControl::default() };
            match self.migrate.transfer(node, target, cause, pace) {
                Ok(_) => return Ok(DestageResult::Left),
                Err(why @ (NotMoved::Busy(_) | NotMoved::Mapped | NotMoved::Op(OpError::Stale))) => return Err(why),
                Err(why) => {
                    if let (NotMoved::NoRoom, Ok(branch)) = (&why, self.branches.get(target)) {
                        branch.invalidate_space();
                    }
                    tried.failure.get_or_insert(why);
                    tried.full.push(target);
                }
            }
        }
    }

    /// Where a file that leaves belongs: the branch that its rule wants, else the next choice, else the branch where it
    /// would have been created. That last one matters because the branch that rules on size and the like want may be
    /// unable to keep it.
    pub(crate) fn destage_target(&self, path: &[u8], meta: &Meta, full: &[BranchId]) -> DestageTarget {
        let need = ByteSize(meta.blocks * 512);
        let area = self.staged.area();
        let xattrs = area.and_then(|area| self.placement.xattrs(path, meta, &area.branch));
        let facts = FileFacts { xattrs: xattrs.as_deref(), ..settled_facts(path, meta, meta.btime) };
        let mut found = DestageTarget { rule: None, target: None };
        if full.len() <= 1 {
            let decision = self.placement.decide_leaving(&facts);
            found.rule = Some(decision.entry);
            if let Choice::Place(target) = decision.choice
                && !full.contains(&target)
            {
                found.target = Some(target);
                return found;
            }
        }
        let as_new = || {
            let facts = FileFacts { stage: Stage::New, ..facts };
            let active = self.placement.rules.load();
            let around = self.placement.around(&active);
            active.rules.next_choice(&facts, &self.placement.views(), full, need, &around)
        };
        found.target = self.placement.place_next(&facts, full, need).or_else(as_new);
        found
    }

    /// Takes a file out of the staging area in the foreground.
    pub(crate) fn destage_now(&self, node: &Arc<Node>) -> OpResult<()> {
        self.destage(node).map_err(failed)
    }

    /// As [`Staging::destage_now`], before it gets this size.
    pub(crate) fn destage_to_grow(&self, node: &Arc<Node>, grows_to: u64) -> OpResult<()> {
        let Some(area) = self.staged.area() else { return Ok(()) };
        let limits = DestageLimits { grows_to, ..DestageLimits::ANY };
        self.destage_within(area, node, &mut TriedBranches::nothing(area), &limits).map(drop).map_err(failed)
    }

    /// Takes a file out of volatile staging before it is made durable. True: it was there, so that its name has to be
    /// synced too.
    pub(crate) fn destage_for_sync(&self, node: &Arc<Node>) -> OpResult<bool> {
        if self.staged.area_of(node).is_none_or(|area| !area.spec.volatile) {
            return Ok(false);
        }
        if node.file().is_some_and(|file| file.state.read().unlinked) {
            return Ok(false); // No program could find it after a power loss.
        }
        self.destage(node).map_err(failed)?;
        Ok(true)
    }

    /// Syncs a file's names.
    pub(crate) fn sync_names(&self, node: &Arc<Node>) -> OpResult<()> {
        let Some(file) = node.file() else { return Ok(()) };
        // What lasts is not done under the lock.
        let dirs = {
            let _names = self.tree.rename_lock.read();
            let (branch, names) = {
                let state = file.state.read();
                (state.backing.branch, state.names.clone())
            };
            names.iter().map(|(parent, _)| self.tree.dir_at(parent, branch)).collect::<OpResult<Vec<_>>>()?
        };
        dirs.iter().try_for_each(|dir| dir.fsync(false))
    }

    /// Takes the files of a directory out of volatile staging, because it is made durable.
    pub(crate) fn destage_dir_for_sync(&self, dir: &Arc<Node>) -> OpResult<()> {
        let Some(area) = self.staged.area().filter(|area| area.spec.volatile) else { return Ok(()) };
        self.adopt_staged()?;
        let known =
            |branch| dir.dir().is_some_and(|dir| dir.state.read().copies.iter().any(|copy| copy.branch == branch));
        if !known(area.branch.id) {
            return Ok(());
        }
        let copy = match self.tree.dir_at(dir, area.branch.id) {
            Err(OpError::Sys(Errno::NOENT)) => return Ok(()), // It went since.
            copy => copy?,
        };
        // Theirs are the inodes in the area's copy of the directory: not all that waits is looked through.
        let inodes = copy.list(false)?.into_iter().map(|entry| entry.ino);
        let backing = |ino| Backing { branch: area.branch.id, foreign_dev: 0, ino };
        for node in inodes.filter_map(|ino| self.tree.nodes.find(backing(ino))).filter(|node| node.file().is_some()) {
            self.destage(&node).map_err(failed)?;
            self.write_back.await_room(&node);
        }
        self.release_left();
        Ok(())
    }

    /// Takes everything out of volatile staging, because everything is made durable. Returns the first failure, after
    /// all were tried.
    pub(crate) fn destage_all_for_sync(&self) -> OpResult<()> {
        let Some(area) = self.staged.area().filter(|area| area.spec.volatile) else { return Ok(()) };
        let mut done = self.adopt_staged();
        // First the files that can leave by themselves. Then each that is still there: the sync waits for it, and gets
        // the reason if it cannot leave.
        let all = area.all();
        self.hand_to_workers(area, self.all_free(area));
        self.workers.wait_until_idle();
        for node in all.iter().filter(|node| area.holds(node)) {
            match self.destage(node) {
                Ok(()) => self.write_back.await_room(node),
                Err(why) if done.is_ok() && area.holds(node) => done = Err(failed(why)),
                // One that was removed meanwhile need not leave.
                Err(_) => {}
            }
        }
        self.release_left();
        done
    }

    /// Adopts the files that an earlier mount left in the area, once. Files in volatile memory are due at once.
    /// Concurrent callers wait.
    pub(crate) fn adopt_staged(&self) -> OpResult<()> {
        let Some(area) = self.staged.area() else { return Ok(()) };
        let mut done = self.taken_back.lock();
        if *done {
            return Ok(());
        }
        let (mut walks, mut found) = (0, 0_u64);
        loop {
            let mut missed = false;
            self.for_each_staged(&mut |pool, dir, name, meta| {
                if meta.kind == FileKind::Directory {
                    return Ok(());
                }
                let found_now = {
                    let _names = pool.tree.rename_lock.read();
                    pool.tree.lookup_in(dir, name)
                };
                let node = match found_now {
                    Ok((node, _)) => node,
                    // It was removed or renamed since it was listed.
                    Err(error) if error.is_missing() => {
                        missed = true;
                        return Ok(());
                    }
                    Err(error) => return Err(error),
                };
                // A second file of the name, on a branch, may be the one that is shown. What is known was made since
                // the mount.
                if pool.staged.area_of(&node).is_some() && !area.holds(&node) {
                    area.add(&node, dir.id, ByteSize(meta.size), None);
                    if area.spec.volatile {
                        area.schedule_destage_now(&node);
                    }
                    found += 1;
                }
                pool.tree.nodes.release(&node, 1);
                Ok(())
            })?;
            walks += 1;
            match missed {
                false => break,
                true if walks < MOST_WALKS => {}
                true => return Err(OpError::Sys(Errno::BUSY)),
            }
        }
        *done = true;
        if found > 0 {
            tracing::info!(files = found, "files that an earlier mount left in the staging area are in the tree");
        }
        Ok(())
    }

    /// At the end: everything leaves, then the area goes. What cannot leave stays there, for the next mount.
    pub(crate) fn close_staging(&self) {
        let Some(area) = self.staged.area() else { return };
        area.open.store(false, Ordering::Relaxed);
        let hanging = loop {
            self.empty_staging();
            let hanging = self.hanging_branches();
            // One that hung a moment ago may answer just now: what it takes is not left behind.
            if !hanging.is_empty() || !self.workers.are_at_work() {
                break hanging;
            }
        };
        if !hanging.is_empty() {
            // Nothing below can be asked of them. Files that left for other branches stay there nevertheless.
            if let Err(error) = self.write_back.sync_those(|branch| !hanging.contains(&branch.spec.name)) {
                tracing::error!(%error, "staged files may not be on disk yet");
            }
            tracing::error!(
                branches = hanging.join(", "),
                files = area.files(),
                area = %area.branch.spec.path.display(),
                "branches have not answered for {}; their staged files are kept in memory: mount again when they answer, before the machine is switched off",
                format_duration(HANGS)
            );
            return;
        }
        // A directory may be on no branch but on one that is gone.
        if let Err(error) = self.migrate.keep_dirs(&area.branch) {
            tracing::error!(%error, "some directories may exist only in the staging area; it stays mounted");
            return;
        }
        if self.context.metrics.get(Metric::StagedLeft) > 0
            && let Err(error) = self.write_back.sync_branches()
        {
            // After an unmount, users expect the files to stay.
            tracing::error!(%error, "staged files may not be on disk yet");
        }
        let mut left = Vec::new();
        let walked = self.for_each_staged(&mut |pool, dir, name, meta| {
            if meta.kind == FileKind::Directory {
                pool.advance_dir_times(dir, name);
            } else {
                left.push(crate::node::path_of(dir, name));
            }
            Ok(())
        });
        self.advance_times(&self.tree.root);
        if walked.is_err() || !left.is_empty() {
            let example = left.first().map(|path| String::from_utf8_lossy(path).into_owned());
            tracing::error!(
                files = left.len(),
                ?example,
                error = ?walked.err(),
                why = self.why_files_stay(),
                area = %area.branch.spec.path.display(),
                "no branch takes these staged files; they are kept in memory: remove the cause and mount again before the machine is switched off"
            );
            return;
        }
        crate::area::end(area, &self.context.state);
    }

    /// All that waits goes to its branch, as far as it can without waiting for a branch that hangs. New files go to
    /// their branches meanwhile, so that this ends although others write. Returns how many files stay.
    pub(crate) fn empty_staging(&self) -> u64 {
        let Some(area) = self.staged.area() else { return 0 };
        let _paused = area.pause();
        if let Err(error) = self.adopt_staged() {
            tracing::error!(%error, "cannot list the staging area");
        }
        let (mut fewest, mut until) = (u64::MAX, Instant::now());
        let mut waiting = self.all_free(area);
        if waiting.len() >= 1000 {
            tracing::info!(files = waiting.len(), "moving staged files to their branches");
        }
        loop {
            self.hand_to_workers(area, waiting);
            self.workers.wait_until_idle();
            self.report_hanging();
            self.release_left();
            waiting = self.retry_candidates(area);
            // However long it takes: only what stays while no other leaves is given up.
            if area.files() < fewest {
                (fewest, until) = (area.files(), Instant::now() + LAST_TIMEOUT);
            }
            if waiting.is_empty() || Instant::now() >= until {
                return area.files();
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// A directory of the area is about to go: its copies on the branches get the times that users saw.
    fn advance_dir_times(&self, parent: &Arc<Node>, name: &OsStr) {
        let looked = {
            let _names = self.tree.rename_lock.read();
            self.tree.lookup_in(parent, name)
        };
        if let Ok((node, _)) = looked {
            self.advance_times(&node);
            self.tree.nodes.release(&node, 1);
        }
    }

    /// Sees to it that a copy of a directory outside the area has the times that users see. One is enough, for they see
    /// the newest, and one on a branch that hangs is not asked to change.
    pub(crate) fn advance_times(&self, node: &Arc<Node>) {
        let Ok(copies) = self.tree.copies(node) else { return };
        let hanging = self.hanging_branches();
        let _keeping = node.dir().and_then(|dir| dir.times.keep(None));
        let seen = copies.iter().filter_map(|copy| copy.stat_self().ok());
        let Some(newest) = seen.max_by_key(|meta| meta.mtime) else { return };
        let stay: SmallVec<[_; 2]> = copies.iter().filter(|copy| !self.branches.is_staging(copy.id())).collect();
        if stay.iter().any(|copy| copy.stat_self().is_ok_and(|meta| meta.mtime >= newest.mtime)) {
            return;
        }
        let mut answer = stay.iter().filter(|copy| !hanging.contains(&copy.branch.spec.name));
        // Where none can be set a directory looks unchanged; nothing is lost.
        let _cosmetic =
            answer.any(|copy| copy.as_file().set_times(modified_at(&newest), KernelCache::SAME_SHOWN).is_ok());
    }

    /// Visits every entry of the area. Ends with an error at an entry that cannot be read, so that none is missed.
    fn for_each_staged(&self, tell: &mut Visit<'_>) -> OpResult<()> {
        let Some(area) = self.staged.area() else { return Ok(()) };
        let mut stack = vec![(Pinned::root(&self.tree), DirAt::root(&area.branch)?, None::<OsString>)];
        while let Some((above, dir, name)) = stack.pop() {
            // Opened when it is its turn: what waits holds no descriptor of its own.
            let (node, dir) = match name {
                None => (above, dir),
                Some(name) => {
                    let below =
                        dir.descend(&name).and_then(|at| Ok((Pinned::lookup(&self.tree, &above.node, &name)?, at)));
                    match below {
                        // Its last file has left, and it with it.
                        Err(_) if dir.find(&name)?.is_none() => continue,
                        below => below?,
                    }
                }
            };
            let entries = match dir.list(true) {
                Err(OpError::Sys(Errno::NOENT)) => continue,
                entries => entries?,
            };
            for entry in entries {
                if node.node.id == NodeId::ROOT && entry.name == crate::branch::HIDDEN_DIR {
                    continue;
                }
                let Some(meta) = dir.find(&entry.name)? else { continue };
                tell(self, &node.node, &entry.name, &meta)?;
                if meta.kind == FileKind::Directory {
                    stack.push((Pinned::again(&self.tree, &node.node), dir.clone(), Some(entry.name)));
                }
            }
        }
        Ok(())
    }
}

/// How often the area is walked where names change under the walk.
const MOST_WALKS: u32 = 20;

/// The error for a caller whose file could not leave.
fn failed(why: NotMoved) -> OpError {
    match why {
        NotMoved::NoRoom => OpError::NoRoom,
        NotMoved::Op(error) => error,
        NotMoved::Failed(error) => OpError::Sys(error.errno()),
        NotMoved::Busy(_) | NotMoved::Stopped | NotMoved::Mapped | NotMoved::Outdated => OpError::Sys(Errno::BUSY),
    }
}
