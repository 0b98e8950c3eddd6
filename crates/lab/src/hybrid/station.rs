//! A device with a queue before it: requests beyond the device's queue depth wait in order.

use std::collections::VecDeque;

use umbrella_model::device::{Completion, Device, Op, Request, RequestId};
use umbrella_model::power::{PowerSpec, PowerState, PowerStats, Powered};
use umbrella_policy::flash_cache::{Log, LogSector};
use umbrella_units::{Lba, Nanos, SectorRange};

/// Where a place of the log is on flash. An infinite log goes around on what there is.
pub(super) fn on_flash(flash: &Station, log: &Log, at: LogSector, sectors: u64) -> SectorRange {
    let room = flash.capacity().0.saturating_sub(sectors).max(1);
    SectorRange { start: Lba(at.0 % log.size() % room), sectors }
}

pub(super) struct Station {
    device: Powered,
    waiting: VecDeque<Request>,
    under_way: usize,
}

impl Station {
    pub(super) fn new(device: Powered) -> Station {
        Station { device, waiting: VecDeque::new(), under_way: 0 }
    }

    /// Whether it serves at most `requests` requests.
    pub(super) fn is_idle_but(&self, requests: usize) -> bool {
        self.under_way <= requests
    }

    /// Whether its platters turn.
    pub(super) fn spins(&self) -> bool {
        matches!(self.device.state(), PowerState::Active | PowerState::Idle)
    }

    pub(super) fn capacity(&self) -> Lba {
        self.device.capacity()
    }

    pub(super) fn spec(&self) -> &PowerSpec {
        self.device.spec()
    }

    pub(super) fn stats(&self) -> PowerStats {
        self.device.power_stats()
    }

    pub(super) fn submit(&mut self, now: Nanos, id: RequestId, op: Op, range: SectorRange) {
        self.under_way += 1;
        let sectors = u32::try_from(range.sectors).unwrap_or(u32::MAX);
        self.waiting.push_back(Request { id, op, lba: range.start, sectors });
        self.hand_over(now);
    }

    fn hand_over(&mut self, now: Nanos) {
        while self.device.room() > 0
            && let Some(request) = self.waiting.pop_front()
        {
            self.device.submit(now, request);
        }
    }

    pub(super) fn wake(&mut self, now: Nanos) {
        self.device.wake(now);
    }

    pub(super) fn standby(&mut self, now: Nanos) {
        self.device.standby(now);
    }

    pub(super) fn next_event(&self) -> Option<Nanos> {
        self.device.next_event()
    }

    /// Works up to `now`; adds what is done.
    pub(super) fn advance(&mut self, now: Nanos, done: &mut Vec<Completion>) {
        let before = done.len();
        self.device.advance(now, done);
        self.under_way -= (done.len() - before).min(self.under_way);
        self.hand_over(now);
    }
}
