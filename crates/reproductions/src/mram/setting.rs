//! The machine of chapter 4, the four methods that it compares, and its measure of performance.
//!
//! Known (table 4.2): Athlon 64 3000+, 512 MB, a Maxtor of 80 GB and 7200 rpm, and ext2. Linux is 2.6.12, so the
//! thresholds are 10 % and 40 %. The original method is Linux as it is: it writes by file, and writes pages that are
//! dirty for 30 s. (Section 3.2.1 refers to this periodic check as something that only non-volatile memory can do
//! without.) Zones have 2048 pages (section 4.3).

use umbrella_lab::result::Outcome;
use umbrella_lab::write_back::{MachineSpec, WriteBackCell, WriteBackInput};
use umbrella_units::{ByteSize, PAGE_BYTES};

use crate::{Effort, kernel, processor};

/// Said beside the figures.
pub(super) const ASSUMED: &str = "All of the memory holds file pages. The original writes what has been dirty for 30 s; the others do not. \
     System calls, copying, scanned directory entries and the bookkeeping of zones cost processor time; nothing \
     else does. The file system is new. One seed.";

/// The memory of the machine.
pub(super) const MEMORY: ByteSize = ByteSize(512 << 20);

/// The clock of an Athlon 64 3000+ (table 4.2); those of socket 939 have 1,800.
const ATHLON_MHZ: u64 = 2000;

/// Pages of a zone.
pub(super) const ZONE: u64 = 2048;

/// All sizes and the memory, times this, in a quick run.
const QUICK: f64 = 0.1;

/// The same input for every run.
const SEED: u64 = 1;

/// What is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Method {
    /// Linux as it is.
    Original,
    /// With Temporary-ramfs.
    Staging,
    /// With the hybrid segment/zone algorithm of WASL.
    Wasl,
    /// With both.
    Hybrid,
}

/// All four, in the order of the cells.
pub(super) const METHODS: [Method; 4] = [Method::Original, Method::Staging, Method::Wasl, Method::Hybrid];

impl Method {
    /// The policy, with zones of `zone` pages.
    fn policy(self, zone: u64) -> String {
        match self {
            Method::Original | Method::Staging => kernel::by_files("file"),
            Method::Wasl | Method::Hybrid => format!("wasl_segment_zone:zone={}KiB", zone * PAGE_BYTES / 1024),
        }
    }

    fn stages(self) -> bool {
        matches!(self, Method::Staging | Method::Hybrid)
    }
}

/// One run.
#[derive(Debug, Clone)]
pub(super) struct Run {
    pub(super) method: Method,
    pub(super) workload: String,
    pub(super) memory: ByteSize,
    pub(super) zone: u64,
    pub(super) scale: f64,
}

impl Run {
    /// The method on the workload, on the paper's machine.
    pub(super) fn new(method: Method, workload: impl Into<String>, effort: Effort) -> Run {
        Run { method, workload: workload.into(), memory: MEMORY, zone: ZONE, scale: effort.scale(QUICK) }
    }

    /// As a cell.
    pub(super) fn cell(self) -> WriteBackCell {
        let default = MachineSpec::default();
        let machine = MachineSpec {
            policy: self.method.policy(self.zone),
            seed: SEED,
            scale: self.scale,
            disk: "maxtor_80gb".to_owned(),
            memory: self.memory,
            background_percent: 10,
            foreground_percent: 40,
            expire_after: default.expire_after.filter(|_| self.method == Method::Original),
            staging: self.method.stages(),
            bookkeeping: processor::bookkeeping(ATHLON_MHZ),
            ..default
        };
        WriteBackCell::new(WriteBackInput::Workload { spec: self.workload }, machine)
    }
}

/// All four methods on one workload.
pub(super) fn all_methods(workload: &str, effort: Effort) -> Vec<WriteBackCell> {
    METHODS.into_iter().map(|method| Run::new(method, workload, effort).cell()).collect()
}

/// By how many percent performance, the inverse of the time, is better than the original's.
pub(super) fn gain(original: &Outcome, other: &Outcome) -> f64 {
    gain_in_time(original.time_s, other.time_s)
}

/// The same of two times.
pub(super) fn gain_in_time(original: f64, other: f64) -> f64 {
    if other > 0.0 { (original / other - 1.0) * 100.0 } else { 0.0 }
}
