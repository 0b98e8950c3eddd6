//! One way over the disk by ascending address, then back to the lowest (C-LOOK), reads and writes alike.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use umbrella_units::{Lba, Nanos};

use super::{Order, Slot, Waiting};

/// Requests of one way, the lowest address first.
type Way = BinaryHeap<Reverse<(Lba, Slot)>>;

/// Requests by address, from where the last one began.
#[derive(Debug, Default)]
pub struct Elevator {
    /// On this way: at or behind where the last one began.
    ahead: Way,
    /// On the next way.
    behind: Way,
    at: Lba,
}

impl Order for Elevator {
    fn add(&mut self, _now: Nanos, request: Waiting) {
        let way = if request.start >= self.at { &mut self.ahead } else { &mut self.behind };
        way.push(Reverse((request.start, request.slot)));
    }

    fn moved(&mut self, from: Lba, request: Waiting) {
        let way = if from >= self.at { &mut self.ahead } else { &mut self.behind };
        way.retain(|&Reverse(waiting)| waiting != (from, request.slot));
        self.add(Nanos(0), request);
    }

    fn next(&mut self, _now: Nanos) -> Option<Slot> {
        if self.ahead.is_empty() {
            std::mem::swap(&mut self.ahead, &mut self.behind);
        }
        let Reverse((start, slot)) = self.ahead.pop()?;
        self.at = start;
        Some(slot)
    }
}
