//! A flash drive of the first generation: block-mapped, with a few log blocks (Kim et al., "A space-efficient flash
//! translation layer for CompactFlash systems", IEEE Trans. Consumer Electronics 48(2), 2002).
//!
//! Why there is a boundary: the drive stripes over its chips. So a *unit*, which it maps, allocates and erases as one
//! piece, is one erase block on every chip: 1 MB with eight chips. A write goes to the log unit of its unit. As long as
//! that is open, the write costs only its pages. The first write to another unit has to open a log for it (its map
//! entry is read and written). When all logs are open, the least recently written one is merged first:
//!
//! - switch: the log holds the whole unit in order, and simply becomes it: one erase;
//! - partial: it holds the beginning in order; the rest is copied behind it: copies and one erase;
//! - full: anything else; all pages are copied to a fresh unit: copies and two erases.
//!
//! That is the penalty for crossing a boundary, and the reason why random writes are slow. The drive counts as used:
//! all of its pages hold data, so merges always copy. It serves one request after another, without a write buffer, and
//! ignores discards, as drives of that time did.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use umbrella_units::{ByteSize, Lba, Nanos, SECTOR_BYTES};

use super::disk::Rate;
use super::{Completion, Device, DeviceStats, Op, Request};

/// The window in which [`DeviceStats::boundary_crossings`] counts, in sectors: 1 MiB.
const WINDOW_SECTORS: u64 = (1 << 20) / SECTOR_BYTES;

/// A flash drive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SsdSpec {
    /// What it offers.
    pub capacity: ByteSize,
    /// What is read or programmed at once on one chip.
    pub page: ByteSize,
    /// What is erased at once on one chip.
    pub erase_block: ByteSize,
    /// Chips that work at the same time.
    pub channels: u32,
    /// Reading a page.
    pub read: Nanos,
    /// Programming a page.
    pub program: Nanos,
    /// Erasing a block.
    pub erase: Nanos,
    /// Units that can be open for writing at once.
    pub log_units: u32,
    /// From a command's arrival to the first thing done for it.
    pub overhead: Nanos,
    /// What the interface carries.
    pub interface: Rate,
    /// Commands that it takes at once.
    pub queue_depth: u32,
}

/// A unit that is open for writing.
#[derive(Debug, Clone, Copy)]
struct LogUnit {
    unit: u64,
    written: u64,
    /// Whether page `n` of the log is page `n` of the unit.
    in_order: bool,
}

/// A flash drive with log blocks.
#[derive(Debug, Clone)]
pub struct Ssd {
    spec: SsdSpec,
    capacity: u64,
    page_sectors: u64,
    unit_pages: u64,
    /// A sector's time on the interface, in nanoseconds times 2^16.
    interface: u64,
    /// Open logs, the least recently written first.
    logs: VecDeque<LogUnit>,
    window: u64,
    now: Nanos,
    free_at: Nanos,
    in_flight: VecDeque<Completion>,
    stats: DeviceStats,
}

impl Ssd {
    /// A drive full of data, with no log open.
    pub fn new(spec: &SsdSpec) -> Ssd {
        let page_sectors = (spec.page.0 / SECTOR_BYTES).max(1);
        let block_pages = (spec.erase_block.0 / SECTOR_BYTES / page_sectors).max(1);
        Ssd {
            capacity: (spec.capacity.0 / SECTOR_BYTES).max(1),
            page_sectors,
            unit_pages: block_pages * u64::from(spec.channels.max(1)),
            interface: ((SECTOR_BYTES * 1_000_000_000) << 16) / spec.interface.0.max(1 << 16),
            logs: VecDeque::with_capacity(spec.log_units as usize + 1),
            window: 0,
            now: Nanos(0),
            free_at: Nanos(0),
            in_flight: VecDeque::new(),
            stats: DeviceStats::default(),
            spec: SsdSpec { log_units: spec.log_units.max(1), channels: spec.channels.max(1), ..spec.clone() },
        }
    }

    /// Makes the first `capacity` sectors all there is.
    #[must_use]
    pub fn with_capacity(mut self, capacity: Lba) -> Ssd {
        self.capacity = self.capacity.min(capacity.0.max(1));
        self
    }

    /// Bytes of a unit.
    pub fn unit(&self) -> ByteSize {
        ByteSize(self.unit_pages * self.page_sectors * SECTOR_BYTES)
    }

    /// The time of `pages` operations of `each`, spread over the chips.
    fn striped(&self, pages: u64, each: Nanos) -> Nanos {
        Nanos(pages.div_ceil(u64::from(self.spec.channels)).saturating_mul(each.0))
    }

    /// Erases a unit: its blocks lie on different chips.
    fn erase_unit(&mut self) -> Nanos {
        self.stats.erases += u64::from(self.spec.channels);
        self.spec.erase
    }

    fn copy(&mut self, pages: u64) -> Nanos {
        self.stats.pages_copied += pages;
        self.striped(pages, self.spec.read + self.spec.program)
    }

    fn merge(&mut self, log: LogUnit) -> Nanos {
        if !log.in_order {
            return self.copy(self.unit_pages) + self.erase_unit() + self.erase_unit();
        }
        self.copy(self.unit_pages - log.written) + self.erase_unit()
    }

    /// Makes the unit's log the most recently written one, opening it if need be; returns what that costs.
    fn open(&mut self, unit: u64) -> Nanos {
        if self.logs.back().is_some_and(|log| log.unit == unit) {
            return Nanos(0);
        }
        if let Some(log) = self.logs.iter().position(|log| log.unit == unit).and_then(|at| self.logs.remove(at)) {
            self.logs.push_back(log);
            return Nanos(0);
        }
        let mut cost = self.spec.read + self.spec.program;
        if self.logs.len() >= self.spec.log_units as usize
            && let Some(oldest) = self.logs.pop_front()
        {
            cost = cost + self.merge(oldest);
        }
        self.logs.push_back(LogUnit { unit, written: 0, in_order: true });
        cost
    }

    /// Writes `pages` pages from page `first` of the unit.
    fn write_unit(&mut self, unit: u64, first: u64, pages: u64) -> Nanos {
        let (mut cost, mut first, mut left) = (Nanos(0), first, pages);
        while left > 0 {
            cost = cost + self.open(unit);
            let Some(log) = self.logs.back_mut() else { break };
            let here = left.min(self.unit_pages - log.written);
            log.in_order &= log.written == first;
            log.written += here;
            let log = *log;
            cost = cost + self.striped(here, self.spec.program);
            if log.written == self.unit_pages {
                self.logs.pop_back();
                cost = cost + self.merge(log);
            }
            first += here;
            left -= here;
        }
        cost
    }

    fn write(&mut self, start: u64, end: u64) -> Nanos {
        let window = start / WINDOW_SECTORS;
        self.stats.boundary_crossings += u64::from(window != self.window);
        self.window = window;
        let (mut page, last) = (start / self.page_sectors, (end - 1) / self.page_sectors);
        // A page that is written in part is read first; once, also if it is so at both ends.
        let (cut_first, cut_last) = (!start.is_multiple_of(self.page_sectors), !end.is_multiple_of(self.page_sectors));
        let partial =
            if page == last { u64::from(cut_first || cut_last) } else { u64::from(cut_first) + u64::from(cut_last) };
        let mut cost = self.striped(partial, self.spec.read);
        while page <= last {
            let (unit, first) = (page / self.unit_pages, page % self.unit_pages);
            let pages = (last - page + 1).min(self.unit_pages - first);
            cost = cost + self.write_unit(unit, first, pages);
            page += pages;
        }
        cost
    }

    fn read(&self, start: u64, end: u64) -> Nanos {
        let pages = (end - 1) / self.page_sectors - start / self.page_sectors + 1;
        self.striped(pages, self.spec.read)
    }
}

impl Device for Ssd {
    fn room(&self) -> usize {
        (self.spec.queue_depth.max(1) as usize).saturating_sub(self.in_flight.len())
    }

    fn submit(&mut self, now: Nanos, request: Request) {
        self.now = self.now.max(now);
        let (start, end) = request.clamped(Lba(self.capacity));
        let sectors = end - start;
        let flash = match request.op {
            Op::Read => {
                self.stats.reads += 1;
                self.stats.sectors_read += sectors;
                if sectors > 0 { self.read(start, end) } else { Nanos(0) }
            }
            Op::Write => {
                self.stats.writes += 1;
                self.stats.sectors_written += sectors;
                if sectors > 0 { self.write(start, end) } else { Nanos(0) }
            }
            Op::Flush | Op::Discard => Nanos(0),
        };
        // The interface carries one part while the chips work on another; the slower of the two decides.
        let carried = match request.op {
            Op::Read | Op::Write => Nanos(sectors.saturating_mul(self.interface) >> 16),
            Op::Flush | Op::Discard => Nanos(0),
        };
        let begin = self.now.max(self.free_at);
        let at = begin + self.spec.overhead + flash.max(carried);
        self.stats.busy = self.stats.busy + at.since(begin);
        self.free_at = at;
        self.in_flight.push_back(Completion { id: request.id, at });
    }

    fn next_event(&self) -> Option<Nanos> {
        self.in_flight.front().map(|completion| completion.at)
    }

    fn advance(&mut self, now: Nanos, done: &mut Vec<Completion>) {
        self.now = self.now.max(now);
        while self.in_flight.front().is_some_and(|completion| completion.at <= now) {
            done.extend(self.in_flight.pop_front());
        }
    }

    fn capacity(&self) -> Lba {
        Lba(self.capacity)
    }

    fn stats(&self) -> DeviceStats {
        self.stats
    }
}
