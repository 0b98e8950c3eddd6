//! The account of the log: where the next record goes, what is in it, and what may be overwritten.
//!
//! Positions never go back: a [`LogSector`] counts all sectors ever appended, and lies on flash at its remainder by the
//! log's size. So the order of positions is the order of writing, what is before the tail is free, and no counter
//! besides is needed.

use std::collections::VecDeque;

use umbrella_units::{ByteSize, SECTOR_BYTES, SectorRange};

use super::map::{LogMap, LogSector, Source};
use super::when::Fill;

/// A write that the log has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Logged {
    /// Where it belongs on the disk.
    pub range: SectorRange,
    /// Where its data is, or that it is zeroes.
    pub source: Source,
    /// Sectors of metadata just before, that are read with it.
    pub metadata: u32,
}

impl Logged {
    /// Where what is read for it begins.
    pub fn begin(&self) -> LogSector {
        LogSector(self.source.at().0.saturating_sub(u64::from(self.metadata)))
    }

    /// Sectors of data in the log.
    pub fn data(&self) -> u64 {
        match self.source {
            Source::Log(_) => self.range.sectors,
            Source::Zeroes(_) => 0,
        }
    }

    /// Where its data ends.
    pub fn end(&self) -> LogSector {
        LogSector(self.source.at().0 + self.data())
    }
}

/// Where a write goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteRoute {
    /// Into the log.
    Log,
    /// To the disk.
    Disk,
}

/// What is in the log, and where.
///
/// A record is reserved, then written to flash, then committed with the writes that it has; records are committed in
/// the order of their places.
#[derive(Debug, Clone)]
pub struct Log {
    size: u64,
    /// Where the next record goes, at the earliest.
    head: LogSector,
    committed: LogSector,
    tail: LogSector,
    requests: VecDeque<Logged>,
    /// How many requests were released before the first of `requests`.
    released: u64,
    map: LogMap,
}

impl Log {
    /// An empty log that continues at `head`.
    pub fn new(size: ByteSize, head: LogSector) -> Log {
        let size = (size.0 / SECTOR_BYTES).max(1);
        let (requests, map) = (VecDeque::new(), LogMap::default());
        Log { size, head, committed: head, tail: head, requests, released: 0, map }
    }

    /// Sectors that it can hold.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Sectors that may not be overwritten.
    pub fn used(&self) -> u64 {
        self.head.0 - self.tail.0
    }

    /// How full it is.
    pub fn fill(&self) -> Fill {
        Fill { used: self.used(), size: self.size }
    }

    /// Where the last committed record ends.
    pub fn committed(&self) -> LogSector {
        self.committed
    }

    /// What is before it is free.
    pub fn tail(&self) -> LogSector {
        self.tail
    }

    /// How often it was written from one end to the other.
    pub fn laps(&self) -> f64 {
        self.head.0 as f64 / self.size as f64
    }

    /// What is newest where.
    pub fn map(&self) -> &LogMap {
        &self.map
    }

    /// The writes in it from the given one on, with their numbers: they are counted from the first that the log ever
    /// had.
    pub fn requests(&self, from: u64) -> impl Iterator<Item = (u64, Logged)> + '_ {
        let skipped = from.saturating_sub(self.released).min(self.requests.len() as u64);
        let first = self.released + skipped;
        self.requests.range(skipped as usize..).enumerate().map(move |(index, logged)| (first + index as u64, *logged))
    }

    /// Where a record of `sectors` sectors goes, and where the tail is then. A record does not run over the end of the
    /// log: it begins at the start again, and the rest at the end stays unused for this lap.
    fn place(&self, sectors: u64) -> Option<(LogSector, LogSector)> {
        let offset = self.head.0 % self.size;
        let skip = if offset + sectors > self.size { self.size - offset } else { 0 };
        let at = LogSector(self.head.0 + skip);
        let tail = if self.used() == 0 { at } else { self.tail };
        (sectors <= self.size && at.0 + sectors - tail.0 <= self.size).then_some((at, tail))
    }

    /// Whether a record of `sectors` sectors can be reserved.
    pub fn has_room(&self, sectors: u64) -> bool {
        self.place(sectors).is_some()
    }

    /// Takes the place of a record of `sectors` sectors, if there is room.
    pub fn reserve(&mut self, sectors: u64) -> Option<LogSector> {
        let (at, tail) = self.place(sectors)?;
        self.tail = tail;
        self.head = LogSector(at.0 + sectors);
        Some(at)
    }

    /// A record is on flash, up to `end`: its writes are newer than all others, and each replaces what it overlaps.
    pub fn commit(&mut self, end: LogSector, writes: impl IntoIterator<Item = Logged>) {
        for logged in writes {
            self.map.insert(logged.range, logged.source);
            self.requests.push_back(logged);
        }
        self.committed = self.committed.max(end);
        self.head = self.head.max(end);
    }

    /// All that is before `tail` is on the disk: forgets it and makes its place free.
    pub fn release(&mut self, tail: LogSector) {
        let tail = tail.min(self.committed);
        let count = self.requests.partition_point(|logged| logged.source.at() < tail);
        self.released += count as u64;
        for logged in self.requests.drain(..count) {
            self.map.release(logged.range, tail);
        }
        self.tail = self.tail.max(tail);
    }

    /// Where a write goes: into the log while the disk sleeps, to the disk while it spins. If the log has older data of
    /// the same sectors, the write goes into the log in any case. After a crash the log would win over newer data on
    /// the disk.
    pub fn route(&self, range: SectorRange, disk_spins: bool) -> WriteRoute {
        if disk_spins && !self.map.overlaps(range) { WriteRoute::Disk } else { WriteRoute::Log }
    }
}
