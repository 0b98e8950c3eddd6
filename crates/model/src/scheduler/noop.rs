//! First come, first served (Linux `noop`): merging is all it does.

use std::collections::VecDeque;

use umbrella_units::{Lba, Nanos};

use super::{Order, Slot, Waiting};

/// Requests in the order in which they came.
#[derive(Debug, Default)]
pub struct Noop {
    waiting: VecDeque<Slot>,
}

impl Order for Noop {
    fn add(&mut self, _now: Nanos, request: Waiting) {
        self.waiting.push_back(request.slot);
    }

    fn moved(&mut self, _from: Lba, _request: Waiting) {}

    fn next(&mut self, _now: Nanos) -> Option<Slot> {
        self.waiting.pop_front()
    }
}
