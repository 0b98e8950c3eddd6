//! Counts of what was asked of a device and carried out.

use std::sync::atomic::{AtomicU64, Ordering};

use umbrella_units::ByteSize;

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
    /// Flushes.
    pub flushes: u64,
    /// Zeroes written, and the like.
    pub others: u64,
}

/// Counts, from any thread.
#[derive(Debug, Default)]
pub(super) struct Counters {
    reads: AtomicU64,
    read: AtomicU64,
    writes: AtomicU64,
    written: AtomicU64,
    flushes: AtomicU64,
    others: AtomicU64,
}

impl Counters {
    pub(super) fn read(&self, bytes: usize) {
        add(&self.reads, 1);
        add(&self.read, bytes as u64);
    }

    pub(super) fn write(&self, bytes: usize) {
        add(&self.writes, 1);
        add(&self.written, bytes as u64);
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
            flushes: get(&self.flushes),
            others: get(&self.others),
        }
    }
}

fn add(counter: &AtomicU64, number: u64) {
    counter.fetch_add(number, Ordering::Relaxed);
}
