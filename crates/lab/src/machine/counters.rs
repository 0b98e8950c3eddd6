//! What a machine counts while it runs.

use umbrella_units::{ByteSize, Nanos, PAGE_BYTES};

use super::queue::WriteReason;
use crate::result::{Histogram, Outcome, PhaseTime, Setting, Times, WrittenBecause};
use crate::workload::FileOperation;

/// Counters of one run.
#[derive(Debug, Default)]
pub(super) struct MachineCounters {
    pub(super) operations: u64,
    pub(super) bytes_write: u64,
    pub(super) bytes_read: u64,
    read: Histogram,
    write: Histogram,
    fsync: Histogram,
    phases: Vec<PhaseCounters>,
    pub(super) throttled: Nanos,
    because: WrittenBecause,
    pub(super) staged_only: u64,
    /// The processor's time for giving staged files their names on disk.
    pub(super) moving: Nanos,
    pub(super) policy_bytes: u64,
    pub(super) tesa_bytes: u64,
    pub(super) peak_dirty: u64,
    pub(super) distances: Distances,
}

/// Mean distance between the first and last block of files.
#[derive(Debug, Default)]
pub(super) struct Distances {
    sum: u128,
    files: u64,
}

impl Distances {
    /// Counts a file of more than one block.
    pub(super) fn add(&mut self, blocks: u64) {
        self.sum += u128::from(blocks);
        self.files += 1;
    }

    fn mean(&self) -> f64 {
        if self.files == 0 { 0.0 } else { self.sum as f64 / self.files as f64 }
    }
}

#[derive(Debug)]
struct PhaseCounters {
    name: &'static str,
    began: Nanos,
    operations: u64,
    bytes: u64,
}

impl MachineCounters {
    /// A client's step is done; it was due at `began`.
    pub(super) fn step(&mut self, step: &FileOperation, began: Nanos, now: Nanos) {
        let took = now - began;
        match step {
            FileOperation::Write { size, .. } => {
                self.write.record(took);
                self.bytes_write += size.0;
            }
            FileOperation::Read { size, .. } => {
                self.read.record(took);
                self.bytes_read += size.0;
            }
            FileOperation::Fsync { .. } | FileOperation::Sync => self.fsync.record(took),
            FileOperation::Think { .. } | FileOperation::Phase { .. } => return,
            _ => {}
        }
        self.operations += 1;
    }

    /// Another phase begins.
    pub(super) fn phase(&mut self, name: &'static str, now: Nanos) {
        // Clients announce phases together; the first of them counts.
        if self.phases.last().is_none_or(|last| last.name != name) {
            let bytes = self.bytes_read + self.bytes_write;
            self.phases.push(PhaseCounters { name, began: now, operations: self.operations, bytes });
        }
    }

    /// A page goes to disk.
    pub(super) fn written(&mut self, reason: WriteReason) {
        let counter = match reason {
            WriteReason::Threshold => &mut self.because.threshold,
            WriteReason::Expired => &mut self.because.expired,
            WriteReason::Reclaim => &mut self.because.reclaim,
            WriteReason::Sync => &mut self.because.sync,
            WriteReason::Drained => &mut self.because.drained,
        };
        *counter += 1;
    }

    fn phases(&self, end: Nanos) -> Vec<PhaseTime> {
        let bytes_end = self.bytes_read + self.bytes_write;
        let ends = self.phases.iter().skip(1).map(|next| (next.began, next.operations, next.bytes));
        let ends = ends.chain([(end, self.operations, bytes_end)]);
        let phase = |(phase, (end, operations, bytes)): (&PhaseCounters, (Nanos, u64, u64))| PhaseTime {
            name: phase.name.to_owned(),
            time_s: (end - phase.began).as_secs_f64(),
            operations: operations - phase.operations,
            bytes: bytes - phase.bytes,
        };
        self.phases.iter().zip(ends).map(phase).collect()
    }

    /// The run's outcome, except the disk's own counters.
    pub(super) fn outcome(&self, setting: Setting, finished: Nanos, drained: Nanos, interrupted: bool) -> Outcome {
        Outcome {
            setting,
            interrupted,
            time_s: finished.as_secs_f64(),
            drained_s: drained.as_secs_f64(),
            operations: self.operations,
            bytes_requested_write: self.bytes_write,
            bytes_requested_read: self.bytes_read,
            read: Times::from(&self.read),
            write: Times::from(&self.write),
            fsync: Times::from(&self.fsync),
            phases: self.phases(finished),
            throttled_s: self.throttled.as_secs_f64(),
            written_because: self.because,
            staged_only: self.staged_only,
            moving_s: self.moving.as_secs_f64(),
            file_distance: self.distances.mean(),
            policy_bytes: self.policy_bytes,
            tesa_bytes: self.tesa_bytes,
            peak_dirty: self.peak_dirty,
            bytes_written: 0,
            bytes_read: 0,
            write_requests: 0,
            read_requests: 0,
            write_distance: 0.0,
            seek_cylinders: 0,
            seeks: 0,
            disk_busy_s: 0.0,
            windows: crate::result::WindowCounts::default(),
            boundary_crossings: 0,
            erases: 0,
            pages_copied: 0,
            at_finish: crate::result::AtFinish::default(),
        }
    }
}

/// The pages that a byte range touches: the first, and how many; none for an empty range.
pub(super) fn pages_of(offset: ByteSize, size: ByteSize) -> (u64, u64) {
    if size.0 == 0 {
        return (offset.0 / PAGE_BYTES, 0);
    }
    let first = offset.0 / PAGE_BYTES;
    let last = offset.0.saturating_add(size.0 - 1) / PAGE_BYTES;
    (first, last - first + 1)
}
