//! The thread that lets files leave in time.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use umbrella_units::{ByteSize, FileId, PAGE_BYTES};

use super::memory::{Memory, high_water, low_water};
use super::{Staging, TICK, id_of};
use crate::node::Node;
use crate::pool::Pool;
use crate::relocate::Durability;

/// Files that leave in one go, at most: between two batches it is looked again what is most urgent.
const BATCH: usize = 4096;

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

    /// Files whose time has come, in the order of their paths, and whether it was their age.
    fn due(&self) -> (Vec<Arc<Node>>, Durability) {
        let now = self.now();
        let (used, limit) = (self.used(), self.limit());
        let (mut nodes, why) = {
            let queue = self.queue.lock();
            let by_age = queue.waiting.expired(now);
            let (due, why): (Vec<FileId>, _) = if !by_age.is_empty() {
                // As old as unsynced data may get: the disk is to have it now.
                (by_age, Durability::Begun)
            } else if used > high_water(limit) {
                let excess = used.0.saturating_sub(low_water(limit).0);
                (queue.waiting.pressure(excess.div_ceil(PAGE_BYTES)), Durability::Later)
            } else {
                (Vec::new(), Durability::Later)
            };
            let nodes: Vec<_> = due.iter().take(BATCH).filter_map(|file| queue.nodes.get(file).cloned()).collect();
            (nodes, why)
        };
        nodes.sort_by_cached_key(|node| node.judged_path());
        (nodes, why)
    }

    /// All files that wait, in the order of their paths.
    pub(super) fn all(&self) -> Vec<Arc<Node>> {
        let mut nodes: Vec<_> = self.queue.lock().nodes.values().cloned().collect();
        nodes.sort_by_cached_key(|node| node.judged_path());
        nodes
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
        if !staging.taken_back.swap(true, Ordering::Relaxed) {
            self.take_back_staged();
        }
        staging.watch_memory();
        self.release_left();
        loop {
            let (nodes, durability) = staging.due();
            if nodes.is_empty() {
                return;
            }
            let mut left = false;
            for node in nodes {
                if self.stopping.load(Ordering::Relaxed) {
                    return;
                }
                match self.leave_staging(&node, durability) {
                    Ok(()) => {
                        left = true;
                        self.await_room(&node);
                    }
                    Err(_) => staging.postpone(&node),
                }
            }
            self.release_left();
            if !left {
                return; // None can leave now.
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
