//! Counts of the requests to a device that were carried out.

use std::sync::atomic::{AtomicU64, Ordering};

use umbrella_units::{ByteSize, SECTOR_BYTES, SectorRange};

/// What was carried out so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Reads.
    pub reads: u64,
    /// Bytes of them.
    pub read: ByteSize,
    /// Writes of data.
    pub writes: u64,
    /// Bytes of them.
    pub written: ByteSize,
    /// From the end of each write to the beginning of the next, summed.
    pub write_distance: ByteSize,
    /// Flushes.
    pub flushes: u64,
    /// Zeroes written, and the like.
    pub others: u64,
}

/// Counts, from any thread.
#[derive(Debug, Default)]
pub(super) struct TrafficCounters {
    reads: AtomicU64,
    read: AtomicU64,
    writes: AtomicU64,
    written: AtomicU64,
    /// The sector behind the last write.
    written_to: AtomicU64,
    /// Sectors between writes.
    write_distance: AtomicU64,
    flushes: AtomicU64,
    others: AtomicU64,
}

impl TrafficCounters {
    pub(super) fn read(&self, bytes: usize) {
        add(&self.reads, 1);
        add(&self.read, bytes as u64);
    }

    pub(super) fn write(&self, range: SectorRange) {
        add(&self.writes, 1);
        add(&self.written, range.sectors * SECTOR_BYTES);
        let before = self.written_to.swap(range.end().0, Ordering::Relaxed);
        add(&self.write_distance, before.abs_diff(range.start.0));
    }

    pub(super) fn flush(&self) {
        add(&self.flushes, 1);
    }

    pub(super) fn other(&self) {
        add(&self.others, 1);
    }

    pub(super) fn so_far(&self) -> Traffic {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Traffic {
            reads: get(&self.reads),
            read: ByteSize(get(&self.read)),
            writes: get(&self.writes),
            written: ByteSize(get(&self.written)),
            write_distance: ByteSize(get(&self.write_distance).saturating_mul(SECTOR_BYTES)),
            flushes: get(&self.flushes),
            others: get(&self.others),
        }
    }
}

fn add(counter: &AtomicU64, number: u64) {
    counter.fetch_add(number, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use umbrella_units::Lba;

    use super::*;

    #[test]
    fn the_distance_of_a_write_is_from_the_end_of_the_one_before_in_either_direction() {
        let counters = TrafficCounters::default();
        for (start, sectors) in [(0, 8), (8, 8), (116, 4), (20, 1)] {
            counters.write(SectorRange { start: Lba(start), sectors });
        }
        let Traffic { writes, written, write_distance, .. } = counters.so_far();
        assert_eq!((writes, written), (4, ByteSize(21 * SECTOR_BYTES)));
        assert_eq!(write_distance, ByteSize((100 + 100) * SECTOR_BYTES));
    }
}
