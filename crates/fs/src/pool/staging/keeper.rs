//! The thread that lets files leave in time.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use umbrella_units::{ByteSize, PAGE_BYTES, Pages};

use super::memory::{Memory, high_water, low_water};
use super::{Staging, TICK, id_of};
use crate::node::{Node, NodeId};
use crate::pool::Pool;

/// Files that leave in one go, at most: between two batches it is looked again what is most urgent.
const BATCH: usize = 4096;
/// After so many failures in a row a round ends.
pub(super) const HOPELESS: usize = 16;

impl Staging {
    /// Adjusts the limit to the memory there is.
    pub(super) fn watch_memory(&self) {
        let room = self.branch.space();
        let memory = if self.spec.volatile { Memory::now() } else { None };
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

    /// Files whose time has come, in the order of their paths.
    fn due(&self) -> Vec<Arc<Node>> {
        let now = self.now();
        let (used, limit) = (self.used(), self.limit());
        let mut nodes: Vec<_> = {
            let queue = self.queue.lock();
            let mut due = queue.waiting.expired(now);
            if due.is_empty() && used > high_water(limit) {
                let excess = used.0.saturating_sub(low_water(limit).0);
                due = queue.waiting.pressure(Pages(excess.div_ceil(PAGE_BYTES)));
            }
            due.iter().take(BATCH).filter_map(|file| queue.nodes.get(file).cloned()).collect()
        };
        nodes.sort_by_cached_key(|node| node.judged_path());
        nodes
    }

    /// All files that wait, in the order of their paths.
    pub(super) fn all(&self) -> Vec<Arc<Node>> {
        let mut nodes: Vec<_> = self.queue.lock().nodes.values().cloned().collect();
        nodes.sort_by_cached_key(|node| node.judged_path());
        nodes
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
        while !self.stopping.load(Ordering::Relaxed) {
            self.keep_staging();
            let mut queue = staging.queue.lock();
            staging.wake.wait_for(&mut queue, TICK);
        }
    }

    /// One round of the keeper: adjusts the limit, and lets files leave whose time has come.
    pub fn keep_staging(&self) {
        let Some(staging) = &self.staging else { return };
        match self.take_back_staged() {
            Ok(()) => self.unwarn("staging"),
            Err(error) => {
                self.warn("staging", format!("the staging area cannot be looked through: {error}; it is tried again"));
            }
        }
        staging.watch_memory();
        self.release_left();
        self.prune_area();
        self.ease(staging, 0);
        loop {
            let nodes = staging.due();
            if nodes.is_empty() {
                return;
            }
            let (mut left, mut failures) = (false, 0);
            for node in nodes {
                if self.stopping.load(Ordering::Relaxed) {
                    return;
                }
                // Where so many find no room the others need not try now.
                if failures >= HOPELESS {
                    staging.postpone(&node);
                    continue;
                }
                if self.leave_staging(&node).is_ok() {
                    (left, failures) = (true, 0);
                    self.await_room(&node);
                } else {
                    failures += 1;
                    staging.postpone(&node);
                }
            }
            self.release_left();
            if !left {
                return; // None can leave now.
            }
        }
    }

    /// Copies of directories in which nothing waits any more go: each costs memory, and a look at every listing.
    fn prune_area(&self) {
        let Some(staging) = &self.staging else { return };
        if staging.queue.lock().emptied.is_empty() {
            return;
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
