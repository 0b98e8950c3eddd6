//! First come, first served.

use std::collections::VecDeque;

use umbrella_units::{Lba, Nanos};

use crate::device::{Completion, Device, DeviceStats, Request};

/// Hands requests to its device in their order.
pub struct Noop {
    device: Box<dyn Device>,
    waiting: VecDeque<Request>,
    limit: usize,
    now: Nanos,
}

impl Noop {
    /// A queue of `limit` requests before `device`.
    pub fn new(device: Box<dyn Device>, limit: usize) -> Noop {
        Noop { device, waiting: VecDeque::new(), limit, now: Nanos(0) }
    }

    fn dispatch(&mut self, now: Nanos) {
        while self.device.room() > 0 {
            let Some(request) = self.waiting.pop_front() else { return };
            self.device.submit(now, request);
        }
    }
}

impl Device for Noop {
    fn room(&self) -> usize {
        self.limit.saturating_sub(self.waiting.len())
    }

    fn submit(&mut self, now: Nanos, request: Request) {
        self.now = self.now.max(now);
        self.waiting.push_back(request);
        self.dispatch(self.now);
    }

    fn next_event(&self) -> Option<Nanos> {
        self.device.next_event()
    }

    fn advance(&mut self, now: Nanos, done: &mut Vec<Completion>) {
        while let Some(at) = self.device.next_event() {
            if at > now {
                break;
            }
            self.device.advance(at, done);
            self.now = self.now.max(at);
            self.dispatch(at);
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
