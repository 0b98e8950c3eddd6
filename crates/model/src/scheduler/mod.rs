//! Request schedulers: what the block layer does between the page cache and a device. Each is itself a device.
//!
//! Their common part is here. Requests wait in a queue of limited length. A request that touches a waiting one of the
//! same kind is merged with it (up to 512 KiB, Linux's `max_sectors_kb`; a larger request goes through as it is).
//! Whenever the device has room, the order chooses the next one. A flush is never held back. The orders differ in that
//! choice alone; see [`noop`], [`elevator`], [`deadline`].

pub mod deadline;
pub mod elevator;
pub mod noop;
mod registry;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::collections::hash_map::Entry;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use umbrella_units::{Lba, Nanos};

use crate::device::{Completion, Device, DeviceStats, Op, Request, RequestId};

pub use registry::{SchedulerInfo, UnknownScheduler, scheduler, schedulers};

/// The largest request that merging makes, in sectors: 512 KiB.
pub const LARGEST_MERGE: u64 = 1024;

/// Where a waiting request is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(u32);

impl Slot {
    fn index(self) -> usize {
        self.0 as usize
    }
}

/// What an order sees of a waiting request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Waiting {
    /// Where it is kept; its name.
    pub slot: Slot,
    /// Whether it writes.
    pub write: bool,
    /// Its first sector.
    pub start: Lba,
    /// The sector behind its last.
    pub end: Lba,
}

/// Which waiting request goes to the device next.
pub trait Order {
    /// A request came at `now`.
    fn add(&mut self, now: Nanos, request: Waiting);

    /// A request now begins at `request.start` instead of `from`: another one was merged before it.
    fn moved(&mut self, from: Lba, request: Waiting);

    /// Takes the next one out.
    fn next(&mut self, now: Nanos) -> Option<Slot>;
}

/// One or more requests that go to the device as one.
#[derive(Debug)]
struct MergedRequest {
    op: Op,
    start: u64,
    end: u64,
    ids: SmallVec<[RequestId; 4]>,
}

/// A queue with an order before a device.
pub struct Scheduler {
    device: Box<dyn Device>,
    order: Box<dyn Order>,
    limit: usize,
    groups: Vec<MergedRequest>,
    free: Vec<Slot>,
    /// Waiting requests that end, or begin, at a sector.
    ends: FxHashMap<(bool, u64), Slot>,
    starts: FxHashMap<(bool, u64), Slot>,
    /// Flushes and discards, which no order holds back.
    urgent: VecDeque<Slot>,
    waiting: usize,
    now: Nanos,
    finished: Vec<Completion>,
}

impl Scheduler {
    /// A queue of `limit` requests before `device`.
    pub fn new(device: Box<dyn Device>, order: Box<dyn Order>, limit: usize) -> Scheduler {
        Scheduler {
            device,
            order,
            limit: limit.max(1),
            groups: Vec::new(),
            free: Vec::new(),
            ends: FxHashMap::default(),
            starts: FxHashMap::default(),
            urgent: VecDeque::new(),
            waiting: 0,
            now: Nanos(0),
            finished: Vec::new(),
        }
    }

    fn waiting(&self, slot: Slot) -> Waiting {
        let group = &self.groups[slot.index()];
        Waiting { slot, write: group.op == Op::Write, start: Lba(group.start), end: Lba(group.end) }
    }

    fn insert(&mut self, group: MergedRequest) -> Slot {
        if let Some(slot) = self.free.pop() {
            self.groups[slot.index()] = group;
            return slot;
        }
        self.groups.push(group);
        Slot(self.groups.len() as u32 - 1)
    }

    /// Makes it part of a waiting request that it touches, if there is one.
    fn merge(&mut self, write: bool, start: u64, end: u64, id: RequestId) -> bool {
        let fits = |group: &MergedRequest| group.end - group.start + (end - start) <= LARGEST_MERGE;
        if let Some(&slot) = self.ends.get(&(write, start))
            && fits(&self.groups[slot.index()])
        {
            let group = &mut self.groups[slot.index()];
            group.end = end;
            group.ids.push(id);
            self.ends.remove(&(write, start));
            self.ends.insert((write, end), slot);
            return true;
        }
        if let Some(&slot) = self.starts.get(&(write, end))
            && fits(&self.groups[slot.index()])
        {
            let group = &mut self.groups[slot.index()];
            group.start = start;
            group.ids.push(id);
            self.starts.remove(&(write, end));
            self.starts.insert((write, start), slot);
            let waiting = self.waiting(slot);
            self.order.moved(Lba(end), waiting);
            return true;
        }
        false
    }

    fn take(&mut self, now: Nanos) -> Option<Slot> {
        if let Some(slot) = self.urgent.pop_front() {
            return Some(slot);
        }
        let slot = self.order.next(now)?;
        let Waiting { write, start, end, .. } = self.waiting(slot);
        for (index, at) in [(&mut self.starts, start), (&mut self.ends, end)] {
            if let Entry::Occupied(found) = index.entry((write, at.0))
                && *found.get() == slot
            {
                found.remove();
            }
        }
        Some(slot)
    }

    fn dispatch(&mut self, now: Nanos) {
        while self.waiting > 0 && self.device.room() > 0 {
            let Some(slot) = self.take(now) else { return };
            self.waiting -= 1;
            let group = &self.groups[slot.index()];
            let sectors = (group.end - group.start) as u32;
            let request = Request { id: RequestId(u64::from(slot.0)), op: group.op, lba: Lba(group.start), sectors };
            self.device.submit(now, request);
        }
    }
}

impl Device for Scheduler {
    fn room(&self) -> usize {
        self.limit.saturating_sub(self.waiting)
    }

    fn submit(&mut self, now: Nanos, request: Request) {
        let now = now.max(self.now);
        self.now = now;
        let (start, end) = request.clamped(self.device.capacity());
        let write = request.op == Op::Write;
        let ranged = start < end && matches!(request.op, Op::Read | Op::Write);
        if !(ranged && self.merge(write, start, end, request.id)) {
            let slot =
                self.insert(MergedRequest { op: request.op, start, end, ids: SmallVec::from_slice(&[request.id]) });
            self.waiting += 1;
            if ranged {
                self.starts.insert((write, start), slot);
                self.ends.insert((write, end), slot);
                self.order.add(now, Waiting { slot, write, start: Lba(start), end: Lba(end) });
            } else {
                self.urgent.push_back(slot);
            }
        }
        self.dispatch(now);
    }

    fn next_event(&self) -> Option<Nanos> {
        self.device.next_event()
    }

    fn advance(&mut self, now: Nanos, done: &mut Vec<Completion>) {
        while let Some(at) = self.device.next_event() {
            if at > now {
                break;
            }
            self.now = self.now.max(at);
            let mut finished = std::mem::take(&mut self.finished);
            self.device.advance(at, &mut finished);
            for completion in finished.drain(..) {
                let slot = Slot(completion.id.0 as u32);
                let ids = std::mem::take(&mut self.groups[slot.index()].ids);
                done.extend(ids.into_iter().map(|id| Completion { id, at: completion.at }));
                self.free.push(slot);
            }
            self.finished = finished;
            self.dispatch(self.now);
        }
        self.now = self.now.max(now);
    }

    fn capacity(&self) -> Lba {
        self.device.capacity()
    }

    fn stats(&self) -> DeviceStats {
        self.device.stats()
    }
}
