//! Linux's deadline scheduler (`block/deadline-iosched.c`, 2.6): batches by ascending address, reads before writes, and
//! no request waits much past its deadline.
//!
//! A batch continues in one direction from where it is, for up to 16 requests. A new batch reads, unless reads have
//! gone before waiting writes twice already. It begins with the oldest request of its direction when that one's
//! deadline has passed, and otherwise continues from where the last batch of that direction ended.

use std::collections::{BTreeMap, BTreeSet};

use umbrella_units::{Lba, Nanos};

use super::{Order, Slot, Waiting};

/// The scheduler's settings, by their Linux names; the default is Linux's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeadlineSettings {
    /// How long a read may wait.
    pub read_expire: Nanos,
    /// How long a write may wait.
    pub write_expire: Nanos,
    /// Requests of one batch.
    pub fifo_batch: u32,
    /// Batches of reads that may go before waiting writes.
    pub writes_starved: u32,
}

impl Default for DeadlineSettings {
    fn default() -> Self {
        DeadlineSettings {
            read_expire: Nanos::from_millis(500),
            write_expire: Nanos::from_secs(5),
            fifo_batch: 16,
            writes_starved: 2,
        }
    }
}

/// Requests of one direction.
#[derive(Debug, Default)]
struct Direction {
    /// By address; the value says when they came, which finds them in the other index.
    sorted: BTreeMap<(Lba, Slot), u64>,
    /// By age; the address finds them in the other index.
    aged: BTreeSet<(u64, Slot, Lba)>,
    deadlines: BTreeMap<u64, Nanos>,
    /// Where the next batch continues.
    at: Option<Lba>,
}

impl Direction {
    fn insert(&mut self, serial: u64, deadline: Nanos, start: Lba, slot: Slot) {
        self.sorted.insert((start, slot), serial);
        self.aged.insert((serial, slot, start));
        self.deadlines.insert(serial, deadline);
    }

    fn moved(&mut self, from: Lba, start: Lba, slot: Slot) {
        if let Some(serial) = self.sorted.remove(&(from, slot)) {
            self.aged.remove(&(serial, slot, from));
            self.sorted.insert((start, slot), serial);
            self.aged.insert((serial, slot, start));
        }
    }

    /// The next one by address from where the batch is, if any.
    fn ahead(&self) -> Option<(Lba, Slot)> {
        self.sorted.range((self.at?, Slot(0))..).next().map(|(&key, _)| key)
    }

    /// The one that a new batch begins with.
    fn first(&self, now: Nanos) -> Option<(Lba, Slot)> {
        let &(serial, slot, start) = self.aged.first()?;
        let expired = self.deadlines.get(&serial).is_some_and(|&deadline| deadline <= now);
        if expired { Some((start, slot)) } else { self.ahead().or(Some((start, slot))) }
    }

    fn take(&mut self, key: (Lba, Slot)) -> Slot {
        if let Some(serial) = self.sorted.remove(&key) {
            self.aged.remove(&(serial, key.1, key.0));
            self.deadlines.remove(&serial);
        }
        self.at = Some(key.0);
        key.1
    }
}

/// Deadline's order.
#[derive(Debug, Default)]
pub struct Deadline {
    settings: DeadlineSettings,
    reads: Direction,
    writes: Direction,
    writing: bool,
    batched: u32,
    starved: u32,
    serial: u64,
}

impl Deadline {
    /// An empty queue with these settings.
    pub fn new(settings: DeadlineSettings) -> Deadline {
        // The first request begins a batch.
        Deadline { settings, batched: settings.fifo_batch, ..Deadline::default() }
    }

    fn direction(&mut self, write: bool) -> &mut Direction {
        if write { &mut self.writes } else { &mut self.reads }
    }

    /// Which direction the next batch has.
    fn turn(&mut self) -> bool {
        let (reads, writes) = (!self.reads.sorted.is_empty(), !self.writes.sorted.is_empty());
        if reads && writes && self.starved < self.settings.writes_starved {
            self.starved += 1;
            return false;
        }
        if writes {
            self.starved = 0;
        }
        writes
    }
}

impl Order for Deadline {
    fn add(&mut self, now: Nanos, request: Waiting) {
        let expire = if request.write { self.settings.write_expire } else { self.settings.read_expire };
        self.serial += 1;
        let serial = self.serial;
        self.direction(request.write).insert(serial, now + expire, request.start, request.slot);
    }

    fn moved(&mut self, from: Lba, request: Waiting) {
        self.direction(request.write).moved(from, request.start, request.slot);
    }

    fn next(&mut self, now: Nanos) -> Option<Slot> {
        if self.batched < self.settings.fifo_batch {
            let writing = self.writing;
            if let Some(key) = self.direction(writing).ahead() {
                self.batched += 1;
                return Some(self.direction(writing).take(key));
            }
        }
        self.writing = self.turn();
        let writing = self.writing;
        let key = self.direction(writing).first(now)?;
        self.batched = 1;
        Some(self.direction(writing).take(key))
    }
}
