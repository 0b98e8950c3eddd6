//! One way over the disk by ascending address, then back to the lowest (C-LOOK), reads and writes alike.

use std::collections::BTreeSet;

use umbrella_units::{Lba, Nanos};

use super::{Order, Slot, Waiting};

/// Requests by address, from where the last one began.
#[derive(Debug, Default)]
pub struct Elevator {
    waiting: BTreeSet<(Lba, Slot)>,
    at: Lba,
}

impl Order for Elevator {
    fn add(&mut self, _now: Nanos, request: Waiting) {
        self.waiting.insert((request.start, request.slot));
    }

    fn moved(&mut self, from: Lba, request: Waiting) {
        self.waiting.remove(&(from, request.slot));
        self.waiting.insert((request.start, request.slot));
    }

    fn next(&mut self, _now: Nanos) -> Option<Slot> {
        let ahead = self.waiting.range((self.at, Slot(0))..).next().copied();
        let next = ahead.or_else(|| self.waiting.first().copied())?;
        self.waiting.remove(&next);
        self.at = next.0;
        Some(next.1)
    }
}
