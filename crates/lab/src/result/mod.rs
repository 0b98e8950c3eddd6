//! What a run shows: one schema for JSON, CSV, tables and pages, and one table that names every figure.

mod command;
mod compare;
mod csv;
mod histogram;
pub mod html;
mod metric;
mod table;
mod unit;
mod windows;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use umbrella_units::ByteSize;

pub use command::shell_words;
pub use compare::{ComparisonRow, Difference, Group, Series, SweepResult, groups};
pub use csv::write_csv;
pub use histogram::Histogram;
pub use metric::{Better, METRICS, Metric, Unit, metric};
pub use table::Table;
pub use unit::change;
pub use windows::{SequentialWrites, WindowCounts, WriteWindows};

/// What was run: enough to run it again.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Setting {
    /// The policy with the parameters that differ from its defaults, such as `zone_segment:alpha=20`.
    pub policy: String,
    /// The workload with its parameters, or the trace's file name.
    pub input: String,
    /// The trace's path as it was given; `None` for a workload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<String>,
    /// The disk's profile.
    pub disk: String,
    /// The request scheduler.
    pub scheduler: String,
    /// Memory for the page cache.
    pub memory: ByteSize,
    /// Whether new files are staged in memory.
    pub staging: bool,
    /// The seed of everything random.
    pub seed: u64,
    /// The share of the papers' sizes, 0 to 1.
    pub scale: f64,
    /// What else differs from the defaults, as options of `umbrella lab run` without their dashes. A flag's value is
    /// empty.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub options: BTreeMap<String, String>,
    /// What a sweep set, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub swept: BTreeMap<String, String>,
}

/// Times of one kind of operation, in microseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Times {
    /// How many operations.
    pub count: u64,
    /// Their mean.
    pub mean: f64,
    /// Half of them took no longer.
    pub p50: f64,
    /// 90 % of them took no longer.
    pub p90: f64,
    /// 99 % of them took no longer.
    pub p99: f64,
    /// 99.9 % of them took no longer.
    pub p999: f64,
    /// The longest.
    pub max: f64,
}

impl From<&Histogram> for Times {
    fn from(times: &Histogram) -> Times {
        let micros = |nanos: umbrella_units::Nanos| nanos.0 as f64 / 1e3;
        Times {
            count: times.total(),
            mean: micros(times.mean()),
            p50: micros(times.quantile(0.5)),
            p90: micros(times.quantile(0.9)),
            p99: micros(times.quantile(0.99)),
            p999: micros(times.quantile(0.999)),
            max: micros(times.max()),
        }
    }
}

/// What a part of a workload took.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct PhaseTime {
    /// The phase's name.
    pub name: String,
    /// From its beginning to the beginning of the next, in seconds.
    pub time_s: f64,
    /// Operations done in it.
    pub operations: u64,
    /// Bytes read and written by the clients in it.
    pub bytes: u64,
}

/// The pages that reached the disk, by what made them go.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct WrittenBecause {
    /// More was dirty than the background or foreground threshold allows.
    pub threshold: u64,
    /// They had been dirty for too long.
    pub expired: u64,
    /// Memory was short.
    pub reclaim: u64,
    /// A client waited for them (fsync, sync).
    pub sync: u64,
    /// The run was over and the rest was written.
    pub drained: u64,
}

/// What had reached the disk when the last client finished, without the write-out that follows. Papers that measured
/// while their benchmarks ran are held against this.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct AtFinish {
    /// Bytes that had reached the disk.
    pub bytes_written: u64,
    /// Bytes that had come from the disk.
    pub bytes_read: u64,
    /// Write requests that the disk had served, after merging.
    pub write_requests: u64,
    /// Mean distance between the end of one write request and the beginning of the next, in blocks, as dispatched.
    pub write_distance: f64,
    /// Writes that fell into 1 MB within 100 ms.
    pub windows: WindowCounts,
    /// Runs of write requests that continue one another (UmbrellaFS figure 32).
    pub sequential: SequentialWrites,
}

impl WrittenBecause {
    /// All pages that were written.
    pub fn pages(&self) -> u64 {
        self.threshold + self.expired + self.reclaim + self.sync + self.drained
    }

    /// The share of the pages that no policy was asked about, in whole percent; all of nothing.
    pub fn unasked_percent(&self) -> u64 {
        let unasked = self.expired + self.sync + self.drained;
        (unasked * 100).checked_div(self.pages()).unwrap_or(100)
    }
}

/// One run's outcome.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// What was run.
    pub setting: Setting,
    /// Whether the run was ended before its input was (Ctrl-C).
    pub interrupted: bool,
    /// Until the last client had finished, in seconds.
    pub time_s: f64,
    /// Until the last dirty page was on disk, in seconds.
    pub drained_s: f64,
    /// Client operations done.
    pub operations: u64,
    /// Bytes that clients wrote.
    pub bytes_requested_write: u64,
    /// Bytes that clients read.
    pub bytes_requested_read: u64,
    /// Times of the clients' reads.
    pub read: Times,
    /// Times of the clients' writes.
    pub write: Times,
    /// Times of the clients' fsyncs.
    pub fsync: Times,
    /// Phases, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub phases: Vec<PhaseTime>,
    /// Bytes that reached the disk.
    pub bytes_written: u64,
    /// Bytes that came from the disk.
    pub bytes_read: u64,
    /// Write requests that the disk served, after merging.
    pub write_requests: u64,
    /// Read requests that the disk served, after merging.
    pub read_requests: u64,
    /// Mean distance between the end of one write request and the beginning of the next, in blocks, as dispatched.
    pub write_distance: f64,
    /// Cylinders that the heads travelled.
    pub seek_cylinders: u64,
    /// Times that the heads moved.
    pub seeks: u64,
    /// Time in which the disk was busy, in seconds.
    pub disk_busy_s: f64,
    /// Writes that fell into 1 MB within 100 ms (UmbrellaFS figure 26).
    pub windows: WindowCounts,
    /// Writes that began in another 1 MB than the one before.
    pub boundary_crossings: u64,
    /// Erase operations.
    pub erases: u64,
    /// Pages that the flash's garbage collection copied.
    pub pages_copied: u64,
    /// Time that clients waited because too much was dirty or no memory was free, in seconds, summed over the clients.
    pub throttled_s: f64,
    /// Why pages were written.
    pub written_because: WrittenBecause,
    /// Files that were staged and never touched the disk.
    pub staged_only: u64,
    /// Processor time that entering staged files in their directories took, in seconds; zero unless scanned entries
    /// cost time.
    #[serde(default)]
    pub moving_s: f64,
    /// Mean blocks between a file's first and last block, over the files that were deleted (MRAM, figure 4.6).
    pub file_distance: f64,
    /// The most memory of the policy's own structures and the index, in bytes.
    pub policy_bytes: u64,
    /// The most memory that TESA's structures would take (section IV-F): 1,292 bytes a zone, 16 a segment and 4 a page
    /// that may be chosen. Zero for policies without zones.
    #[serde(default)]
    pub tesa_bytes: u64,
    /// The most dirty pages at one time.
    pub peak_dirty: u64,
    /// The disk's part as it was when the last client finished; all else that is said of the disk goes to the end of
    /// the write-out.
    #[serde(default)]
    pub at_finish: AtFinish,
}

impl Outcome {
    /// Client bytes a second, until the last client had finished.
    pub fn throughput(&self) -> f64 {
        ratio((self.bytes_requested_read + self.bytes_requested_write) as f64, self.time_s)
    }

    /// The phase of that name.
    pub fn phase(&self, name: &str) -> Option<&PhaseTime> {
        self.phases.iter().find(|phase| phase.name == name)
    }
}

/// `part / whole`, and zero where there is no whole.
fn ratio(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}
