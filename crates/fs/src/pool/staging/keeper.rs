//! The thread that decides which files leave in time. It brings none anywhere itself: that is for the [`leavers`](super::leavers).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use umbrella_units::{ByteSize, PAGE_BYTES, Pages};

use super::memory::{Memory, high_water, low_water};
use super::{Staging, TICK, id_of};
use crate::node::{Node, NodeId};
use crate::pool::Pool;

/// Files that leave in one go, at most: between two batches it is looked again what is most urgent.
const BATCH: usize = 4096;

impl Staging {
    /// Adjusts the limit to the memory there is.
    pub(super) fn watch_memory(&self) {
        let room = self.branch.space();
        let memory = if self.spec.volatile { Memory::now() } else { None };
        let memory = memory.map(|memory| self.groups.bound(memory));
        let size = self.spec.size.map(|size| size.of(memory.map_or(room.total, |memory| memory.total)));
        let used = self.used();
        // A part of the area stays free, so that a directory can always be made in it.
        let area = ByteSize((used.0.saturating_add(room.free_for_root.0)) / 10 * 9);
        let limit = match memory {
            Some(memory) => memory.limit(used, size),
            None => size.unwrap_or(area),
        };
        self.limit.store(limit.0.min(area.0), Ordering::Relaxed);
    }

    /// Files whose time has come and that no leaver has.
    fn due(&self) -> Vec<Arc<Node>> {
        let now = self.now();
        let (used, limit) = (self.used(), self.limit());
        let queue = self.queue.lock();
        let mut due = queue.waiting.expired(now);
        self.leavers.keep_free(&mut due);
        if due.is_empty() && used > high_water(limit) {
            // What leavers that get on have is as good as gone; what waits for a branch that hangs is not.
            let (leaving, handed) = self.leavers.handed();
            let leaving: u64 = leaving.iter().map(|file| (queue.waiting.pages_of(*file).0 + 1) * PAGE_BYTES).sum();
            let excess = used.0.saturating_sub(low_water(limit).0).saturating_sub(leaving);
            due = queue.waiting.pressure_among(Pages(excess.div_ceil(PAGE_BYTES)), |file| !handed.contains(&file));
        }
        due.iter().take(BATCH).filter_map(|file| queue.nodes.get(file).cloned()).collect()
    }

    /// All files that wait.
    pub(super) fn all(&self) -> Vec<Arc<Node>> {
        self.queue.lock().nodes.values().cloned().collect()
    }

    /// All files that wait and that no leaver has.
    pub(super) fn all_free(&self) -> Vec<Arc<Node>> {
        let queue = self.queue.lock();
        let mut files: Vec<_> = queue.nodes.keys().copied().collect();
        self.leavers.keep_free(&mut files);
        files.iter().filter_map(|file| queue.nodes.get(file).cloned()).collect()
    }

    pub(super) fn hurry(&self, node: &Node) {
        self.queue.lock().waiting.hurry(id_of(node));
    }

    pub(super) fn postpone(&self, node: &Node) {
        let now = self.now();
        self.queue.lock().waiting.postpone(now, id_of(node));
    }
}

impl Pool {
    /// The keeper's thread.
    pub(crate) fn run_staging(&self) {
        let Some(staging) = &self.staging else { return };
        while !self.is_stopping() {
            // What came to an end since the last look is told once more.
            let rested = staging.queue.lock().is_at_rest();
            self.look_after_staging(staging);
            let taken_back = *staging.taken_back.lock();
            let mut queue = staging.queue.lock();
            if self.is_stopping() {
                return;
            }
            if rested && taken_back && queue.is_at_rest() {
                staging.wake.wait(&mut queue);
            } else {
                staging.wake.wait_for(&mut queue, TICK);
            }
        }
    }

    /// Ends the keeper.
    pub(crate) fn stop_keeper(&self) {
        if let Some(staging) = &self.staging {
            // Who has looked already waits by now.
            drop(staging.queue.lock());
            staging.wake.notify_all();
        }
    }

    /// Lets files leave whose time has come, as the keeper does, and waits for it; not for branches that hang.
    pub fn keep_staging(&self) {
        let Some(staging) = &self.staging else { return };
        loop {
            let any = self.look_after_staging(staging);
            // Also for what was handed over only to make room.
            staging.leavers.settle();
            self.tell_hanging(staging);
            self.release_left();
            if !any {
                return;
            }
        }
    }

    /// One round of the keeper: adjusts the limit, and hands files over whose time has come; whether there were any. Waits for no branch.
    fn look_after_staging(&self, staging: &Staging) -> bool {
        match self.take_back_staged() {
            Ok(()) => self.unwarn("staging"),
            Err(error) => {
                self.warn("staging", format!("the staging area cannot be listed: {error}; trying again"));
            }
        }
        staging.watch_memory();
        self.release_left();
        self.tell_hanging(staging);
        self.prune_area();
        self.begin_to_ease(staging);
        let mut any = false;
        loop {
            let due = staging.due();
            if due.is_empty() || self.stopping.load(Ordering::Relaxed) || !self.hand_to_leavers(staging, due) {
                return any;
            }
            any = true;
        }
    }

    /// Copies of directories in which nothing waits any more go: each costs memory, and a look at every listing.
    fn prune_area(&self) {
        let Some(staging) = &self.staging else { return };
        let emptied = staging.queue.lock().emptied.clone();
        if emptied.is_empty() {
            return;
        }
        // What may wait for a branch is done before anybody is kept from names.
        for node in emptied.iter().filter_map(|id| self.nodes.get(*id)).filter(|node| node.dir().is_some()) {
            let _names = self.rename_lock.read();
            self.lift_times(&node);
        }
        // Nobody may be among names: a directory found a moment ago would be gone. Another time, if somebody is.
        let Some(_names) = self.rename_lock.try_write() else { return };
        let mut dirs: Vec<_> = std::mem::take(&mut staging.queue.lock().emptied).into_iter().collect();
        while let Some(id) = dirs.pop() {
            let Some(node) = self.nodes.get(id).filter(|node| node.id != NodeId::ROOT) else { continue };
            let above = node.place().map(|(parent, _)| parent.id);
            // One that stays is in use, or nowhere else.
            if self.drop_copy_on(&node, staging.branch.id).is_ok_and(|gone| gone) {
                dirs.extend(above);
            }
        }
    }

    /// Gives back the references of nodes that wait no more.
    pub(super) fn release_left(&self) {
        let Some(staging) = &self.staging else { return };
        let released = std::mem::take(&mut staging.queue.lock().released);
        for node in released {
            self.nodes.release(&node, 1);
        }
    }
}
