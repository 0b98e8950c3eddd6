//! How long each flush would take with the devices to itself: on a second pair of devices that serve nothing else.
//!
//! It writes what the log holds when the flush begins. The heads are where the last flush left them.

use umbrella_model::device::{Completion, Op};
use umbrella_policy::flash_cache::Log;
use umbrella_units::{Lba, Nanos, SectorRange};

use super::counters::FlushTimes;
use super::flush::Flush;
use super::requests::{FLUSH_READ, FLUSH_SYNC, FLUSH_WRITE};
use super::setup::HybridSetup;
use super::station::{Station, on_flash};

/// See the module.
pub(super) struct StandaloneDisk {
    disk: Station,
    flash: Station,
    now: Nanos,
    done: Vec<Completion>,
}

impl StandaloneDisk {
    /// Devices that spin and are idle.
    pub(super) fn new(disk: Station, flash: Station) -> StandaloneDisk {
        StandaloneDisk { disk, flash, now: Nanos(0), done: Vec::new() }
    }

    /// The times of a flush of the log's present contents.
    pub(super) fn flush(&mut self, now: Nanos, setup: &HybridSetup, log: &Log) -> FlushTimes {
        self.advance(now.max(self.now));
        let mut flush = Flush::new(setup.algorithm, setup.memory, log);
        let mut times = FlushTimes::default();
        loop {
            if let Some(part) = flush.next_write() {
                self.disk.submit(self.now, FLUSH_WRITE, Op::Write, part.range);
            }
            if let Some(read) = flush.next_read(log) {
                self.flash.submit(self.now, FLUSH_READ, Op::Read, on_flash(&self.flash, log, read.at, read.sectors));
            }
            if flush.is_written() {
                flush.sync_under_way = true;
                self.disk.submit(self.now, FLUSH_SYNC, Op::Flush, SectorRange { start: Lba(0), sectors: 0 });
            }
            let Some(next) = self.disk.next_event().into_iter().chain(self.flash.next_event()).min() else {
                return times;
            };
            times.add(&flush, next.since(self.now));
            self.advance(next.max(self.now));
            for completion in self.done.drain(..) {
                match completion.id {
                    FLUSH_READ => flush.read_under_way = false,
                    FLUSH_WRITE => flush.write_under_way = false,
                    _ => return times,
                }
            }
        }
    }

    fn advance(&mut self, to: Nanos) {
        self.now = to;
        self.done.clear();
        self.disk.advance(to, &mut self.done);
        self.flash.advance(to, &mut self.done);
    }
}
