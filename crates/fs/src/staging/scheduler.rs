//! The thread that decides which files leave in time. It moves none itself: the [`workers`](crate::staging::workers)
//! do.

use std::sync::Arc;

use rustix::io::Errno;
use umbrella_units::{PAGE_BYTES, Pages};

use crate::area::{Area, high_water, id_of, low_water};
use crate::error::{OpError, OpResult};
use crate::ground::kernel_cache::KernelCache;
use crate::migrate::show;
use crate::node::{Node, NodeId, inode_key};
use crate::staging::{Staging, TICK};
use crate::tree::dirs::modified_at;
use crate::warning::{Warning, WarningSubject};

/// Most files that leave in one go: between two batches the scheduler looks again for the most urgent.
const BATCH: usize = 4096;

impl Staging {
    /// Files whose time has come and that no worker has.
    fn due(&self, area: &Area) -> Vec<Arc<Node>> {
        let now = area.now();
        let limit = area.limit();
        let queue = area.queue.lock();
        // What waits, and what workers have of it, as they are at one moment: a file that leaves in between would count
        // twice.
        let used = queue.used();
        let mut due = queue.waiting.expired(now);
        self.workers.retain_unassigned(&mut due);
        if due.is_empty() && used > high_water(limit) {
            // What workers that get on have is as good as gone; what waits for a branch that hangs is not.
            let (leaving, handed) = self.workers.handed();
            let leaving: u64 = leaving.iter().map(|file| (queue.waiting.pages_of(*file).0 + 1) * PAGE_BYTES).sum();
            let excess = used.0.saturating_sub(low_water(limit).0).saturating_sub(leaving);
            due = queue.waiting.pressure_among(Pages(excess.div_ceil(PAGE_BYTES)), |file| !handed.contains(&file));
        }
        due.iter().take(BATCH).filter_map(|file| queue.nodes.get(file).cloned()).collect()
    }

    /// All files that wait and that no worker has.
    pub(crate) fn all_free(&self, area: &Area) -> Vec<Arc<Node>> {
        let queue = area.queue.lock();
        let mut files: Vec<_> = queue.nodes.keys().copied().collect();
        self.workers.retain_unassigned(&mut files);
        files.iter().filter_map(|file| queue.nodes.get(file).cloned()).collect()
    }

    /// The scheduler's thread. Without an area it sleeps.
    pub(crate) fn run(&self) {
        let Some(area) = self.staged.await_area() else { return };
        while !self.context.is_stopping() {
            // Work that has ended since the last look is reported once more.
            let rested = area.queue.lock().is_idle();
            self.run_round(area);
            let taken_back = *self.taken_back.lock();
            let mut queue = area.queue.lock();
            if self.context.is_stopping() {
                return;
            }
            if rested && taken_back && queue.is_idle() {
                area.wake.wait(&mut queue);
            } else {
                area.wake.wait_for(&mut queue, TICK);
            }
        }
    }

    /// Ends the scheduler.
    pub(crate) fn stop(&self) {
        self.staged.end_wait();
        if let Some(area) = self.staged.area() {
            // A thread that has looked already waits by now.
            drop(area.queue.lock());
            area.wake.notify_all();
        }
    }

    /// Lets files leave whose time has come, as the scheduler does, and waits for it; not for branches that hang.
    pub(crate) fn destage_due(&self) {
        let Some(area) = self.staged.area() else { return };
        loop {
            let any = self.run_round(area);
            // Also for what was handed over only to make room.
            self.workers.wait_until_idle();
            self.report_hanging();
            self.release_left();
            if !any {
                return;
            }
        }
    }

    /// One round of the scheduler: adjusts the limit, and hands files over whose time has come; whether there were any.
    /// Waits for no branch.
    fn run_round(&self, area: &Area) -> bool {
        match self.adopt_staged() {
            Ok(()) => self.context.clear_warning(&WarningSubject::Staging),
            Err(error) => {
                let why = error.to_string();
                self.context.warn(WarningSubject::Staging, &Warning::StagingUnlisted { why });
            }
        }
        area.watch_memory();
        self.release_left();
        self.report_hanging();
        self.prune_area();
        self.begin_destage_if_short(area);
        let mut any = false;
        loop {
            let due = self.due(area);
            if due.is_empty() || self.context.is_stopping() || !self.hand_to_workers(area, due) {
                return any;
            }
            any = true;
        }
    }

    /// Copies of directories in which nothing waits any more go: each costs memory, and a look at every listing.
    fn prune_area(&self) {
        let Some(area) = self.staged.area() else { return };
        let emptied = area.queue.lock().emptied.clone();
        if emptied.is_empty() {
            return;
        }
        // What may wait for a branch is done before any thread is kept from names.
        for node in emptied.iter().filter_map(|id| self.tree.nodes.get(*id)).filter(|node| node.dir().is_some()) {
            let _names = self.tree.rename_lock.read();
            self.advance_times(&node);
        }
        // No thread may be resolving names: a directory found a moment ago would be gone. If a thread is, try another
        // time.
        let Some(_names) = self.tree.rename_lock.try_write() else { return };
        let mut dirs: Vec<_> = std::mem::take(&mut area.queue.lock().emptied).into_iter().collect();
        while let Some(id) = dirs.pop() {
            let Some(node) = self.tree.nodes.get(id).filter(|node| node.id != NodeId::ROOT) else { continue };
            let above = node.place().map(|(parent, _)| parent.id);
            // One that stays is in use, or nowhere else.
            if self.drop_copy_on(&node, area.branch.id).is_ok_and(|gone| gone) {
                dirs.extend(above);
            }
        }
    }

    /// Removes one copy of a directory if it is empty and others stay; true when it is gone. Users see no change. The
    /// caller holds the rename lock exclusively.
    pub(crate) fn drop_copy_on(&self, node: &Arc<Node>, branch: umbrella_units::BranchId) -> OpResult<bool> {
        let dir = node.dir().ok_or(OpError::Sys(Errno::NOTDIR))?;
        let _commit = dir.commit.lock();
        let copy = {
            let state = dir.state.read();
            let copy = state.copies.iter().find(|copy| copy.branch == branch).copied();
            copy.filter(|_| state.copies.len() > 1 && !state.removed)
        };
        let (Some(copy), Some((parent, name))) = (copy, node.place()) else { return Ok(false) };
        let (at, above) = (self.tree.dir_at(node, branch)?, self.tree.dir_at(&parent, branch)?);
        if !at.is_empty()? {
            return Ok(false);
        }
        self.advance_times(node);
        let meta = at.stat_self()?;
        let keeping = parent.dir().and_then(|dir| dir.times.keep(None));
        let before = above.stat_self()?;
        above.rmdir(&name)?;
        // A directory that looks changed; nothing is lost.
        let _cosmetic = above.as_file().set_times(modified_at(&before), KernelCache::SAME_SHOWN);
        drop(keeping);
        self.tree.drop_copy(node, dir, copy);
        self.tree.inodes.forget(inode_key(&above.online, &meta));
        Ok(true)
    }

    /// Gives back the references of nodes that wait no more.
    pub(crate) fn release_left(&self) {
        let Some(area) = self.staged.area() else { return };
        let released = std::mem::take(&mut area.queue.lock().released);
        for node in released {
            self.tree.nodes.release(&node, 1);
        }
    }
}

impl Area {
    /// A file could not leave. It is logged where no other is stuck for the same reason.
    pub(crate) fn note_stuck(&self, node: &Arc<Node>, why: &dyn std::fmt::Display) {
        let why: Arc<str> = why.to_string().into();
        let mut queue = self.queue.lock();
        if !queue.nodes.contains_key(&id_of(node)) {
            return; // Deleted meanwhile.
        }
        let is_news = !queue.stuck.values().any(|known| *known == why);
        queue.stuck.insert(id_of(node), Arc::clone(&why));
        drop(queue);
        if is_news {
            tracing::warn!("{}", stuck(node, &why, 0));
        }
    }
}

impl Staging {
    /// Files that no worker has and that nothing keeps here but that they were in use when it was their turn.
    pub(crate) fn retry_candidates(&self, area: &Area) -> Vec<Arc<Node>> {
        let queue = area.queue.lock();
        let mut files: Vec<_> = queue.nodes.keys().filter(|file| !queue.stuck.contains_key(file)).copied().collect();
        self.workers.retain_unassigned(&mut files);
        files.iter().filter_map(|file| queue.nodes.get(file).cloned()).collect()
    }

    /// Why one of the files that wait could not leave when it was its turn.
    pub(crate) fn why_files_stay(&self) -> String {
        let stuck = self.staged.area().and_then(|area| area.queue.lock().stuck.values().next().cloned());
        stuck.map_or_else(|| "they are in use".to_owned(), |why| why.to_string())
    }

    /// Of files that cannot leave the staging area.
    pub(crate) fn stuck_warning(&self) -> Option<Warning> {
        let (node, why, others) = {
            let queue = self.staged.area()?.queue.lock();
            let (file, why) = queue.stuck.first_key_value()?;
            (Arc::clone(queue.nodes.get(file)?), Arc::clone(why), queue.stuck.len() - 1)
        };
        Some(stuck(&node, &why, others))
    }
}

fn stuck(node: &Arc<Node>, why: &str, others: usize) -> Warning {
    Warning::StagedFilesStuck { file: show(node), others, why: why.to_owned() }
}
