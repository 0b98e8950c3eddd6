//! Every figure of a run, once: its name, its unit, what it means, which way is better. Tables, CSV, pages and sweeps
//! are made from this table.

use super::{Outcome, ratio};

/// What a figure counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Seconds.
    Seconds,
    /// Microseconds.
    Micros,
    /// Bytes.
    Bytes,
    /// Bytes a second.
    BytesPerSecond,
    /// Blocks of 4 KiB.
    Blocks,
    /// A number of things.
    Count,
    /// Things a second.
    PerSecond,
}

/// Which way a figure is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Better {
    /// Less is better.
    Lower,
    /// More is better.
    Higher,
    /// Neither by itself.
    Neither,
}

/// One figure of a run.
#[derive(Debug, Clone, Copy)]
pub struct Metric {
    /// Its name in CSV, in `--metric` and in the docs.
    pub name: &'static str,
    /// A short heading for tables.
    pub heading: &'static str,
    /// What it counts.
    pub unit: Unit,
    /// Which way is better.
    pub better: Better,
    /// What it means.
    pub help: &'static str,
    /// Takes it from an outcome.
    pub of: fn(&Outcome) -> f64,
}

/// The figure of that name.
pub fn metric(name: &str) -> Option<&'static Metric> {
    METRICS.iter().find(|metric| metric.name == name)
}

/// All figures, in the order of the tables.
#[rustfmt::skip]
pub const METRICS: &[Metric] = &[
    Metric { name: "time_s", heading: "time", unit: Unit::Seconds, better: Better::Lower, help: "until the last client had finished", of: |o| o.time_s },
    Metric { name: "drained_s", heading: "drained", unit: Unit::Seconds, better: Better::Lower, help: "until the last dirty page was on disk", of: |o| o.drained_s },
    Metric { name: "operations_per_s", heading: "operations/s", unit: Unit::PerSecond, better: Better::Higher, help: "client operations a second, until the last dirty page was on disk", of: |o| ratio(o.operations as f64, o.drained_s) },
    Metric { name: "throughput", heading: "throughput", unit: Unit::BytesPerSecond, better: Better::Higher, help: "bytes that clients read and wrote, a second", of: Outcome::throughput },
    Metric { name: "write_mean_us", heading: "write mean", unit: Unit::Micros, better: Better::Lower, help: "mean time of a client's write", of: |o| o.write.mean },
    Metric { name: "write_p50_us", heading: "write p50", unit: Unit::Micros, better: Better::Lower, help: "median time of a client's write", of: |o| o.write.p50 },
    Metric { name: "write_p99_us", heading: "write p99", unit: Unit::Micros, better: Better::Lower, help: "99 % of the clients' writes took no longer", of: |o| o.write.p99 },
    Metric { name: "write_p999_us", heading: "write p99.9", unit: Unit::Micros, better: Better::Lower, help: "99.9 % of the clients' writes took no longer", of: |o| o.write.p999 },
    Metric { name: "write_max_us", heading: "write max", unit: Unit::Micros, better: Better::Lower, help: "the longest write of a client", of: |o| o.write.max },
    Metric { name: "read_mean_us", heading: "read mean", unit: Unit::Micros, better: Better::Lower, help: "mean time of a client's read", of: |o| o.read.mean },
    Metric { name: "read_p50_us", heading: "read p50", unit: Unit::Micros, better: Better::Lower, help: "median time of a client's read", of: |o| o.read.p50 },
    Metric { name: "read_p99_us", heading: "read p99", unit: Unit::Micros, better: Better::Lower, help: "99 % of the clients' reads took no longer", of: |o| o.read.p99 },
    Metric { name: "read_p999_us", heading: "read p99.9", unit: Unit::Micros, better: Better::Lower, help: "99.9 % of the clients' reads took no longer", of: |o| o.read.p999 },
    Metric { name: "fsync_p99_us", heading: "fsync p99", unit: Unit::Micros, better: Better::Lower, help: "99 % of the clients' fsyncs took no longer", of: |o| o.fsync.p99 },
    Metric { name: "bytes_written", heading: "written", unit: Unit::Bytes, better: Better::Lower, help: "bytes that reached the disk", of: |o| o.bytes_written as f64 },
    Metric { name: "bytes_read", heading: "read", unit: Unit::Bytes, better: Better::Lower, help: "bytes that came from the disk", of: |o| o.bytes_read as f64 },
    Metric { name: "write_requests", heading: "requests", unit: Unit::Count, better: Better::Lower, help: "write requests that the disk served, after merging", of: |o| o.write_requests as f64 },
    Metric { name: "write_request_bytes", heading: "request", unit: Unit::Bytes, better: Better::Higher, help: "mean size of a write request", of: |o| ratio(o.bytes_written as f64, o.write_requests as f64) },
    Metric { name: "write_distance", heading: "distance", unit: Unit::Blocks, better: Better::Lower, help: "mean distance from the end of one write request to the beginning of the next, in blocks", of: |o| o.write_distance },
    Metric { name: "seek_cylinders", heading: "seek cyl.", unit: Unit::Count, better: Better::Lower, help: "cylinders that the heads travelled", of: |o| o.seek_cylinders as f64 },
    Metric { name: "seeks", heading: "seeks", unit: Unit::Count, better: Better::Lower, help: "times that the heads moved", of: |o| o.seeks as f64 },
    Metric { name: "disk_busy_s", heading: "busy", unit: Unit::Seconds, better: Better::Neither, help: "time in which the disk was busy; of an array, that of its disks added up", of: |o| o.disk_busy_s },
    Metric { name: "windows_over_16", heading: "1 MB windows > 16", unit: Unit::Count, better: Better::Higher, help: "1 MB areas that took more than 16 writes within 100 ms", of: |o| o.windows.over_16() as f64 },
    Metric { name: "windows_up_to_16", heading: "1 MB windows <= 16", unit: Unit::Count, better: Better::Lower, help: "1 MB areas that took 1 to 16 writes within 100 ms", of: |o| o.windows.up_to_16() as f64 },
    Metric { name: "boundary_crossings", heading: "crossings", unit: Unit::Count, better: Better::Lower, help: "writes that began in another 1 MB than the one before", of: |o| o.boundary_crossings as f64 },
    Metric { name: "erases", heading: "erases", unit: Unit::Count, better: Better::Lower, help: "erase operations of the flash", of: |o| o.erases as f64 },
    Metric { name: "pages_copied", heading: "copied", unit: Unit::Count, better: Better::Lower, help: "pages that the flash's garbage collection copied", of: |o| o.pages_copied as f64 },
    Metric { name: "throttled_s", heading: "throttled", unit: Unit::Seconds, better: Better::Lower, help: "time that clients waited because too much was dirty or no memory was free, summed over the clients", of: |o| o.throttled_s },
    Metric { name: "file_distance", heading: "file distance", unit: Unit::Blocks, better: Better::Lower, help: "mean blocks between the first and last block of the files that were deleted", of: |o| o.file_distance },
    Metric { name: "policy_bytes", heading: "memory", unit: Unit::Bytes, better: Better::Lower, help: "the most memory of the policy's structures and the index of dirty pages", of: |o| o.policy_bytes as f64 },
    Metric { name: "peak_dirty", heading: "peak dirty", unit: Unit::Blocks, better: Better::Neither, help: "the most dirty pages at one time", of: |o| o.peak_dirty as f64 },
];
