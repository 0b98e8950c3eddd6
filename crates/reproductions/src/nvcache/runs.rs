//! What is run, and how outcomes compare.

use umbrella_lab::hybrid::{FlushFigures, HybridSetup};
use umbrella_policy::flash_cache::{Algorithm, FlushTrigger};

/// The paper's algorithms.
pub(super) const PAPERS: [Algorithm; 4] = [Algorithm::Alg1, Algorithm::Alg2, Algorithm::Alg3, Algorithm::Alg4];

/// The paper's times of flushing.
pub(super) const EACH_AND_FULL: [FlushTrigger; 2] = [FlushTrigger::Each, FlushTrigger::Full];

/// The paper's disk, flushed then and so.
pub(super) fn setup(when: FlushTrigger, algorithm: Algorithm) -> HybridSetup {
    HybridSetup { when, algorithm, ..HybridSetup::default() }
}

/// The same flushes with the devices to themselves.
pub(super) fn alone(flushes: FlushFigures) -> FlushFigures {
    let of = flushes.alone;
    FlushFigures { time_s: of.time_s, flash_s: of.flash_s, disk_s: of.disk_s, ..flushes }
}

/// Megabytes, with a decimal.
pub(super) fn megabytes(bytes: u64) -> String {
    format!("{:.1}", bytes as f64 / 1e6)
}

/// By how many percent `new` is below `old`; 0 where there was nothing.
pub(super) fn less(old: f64, new: f64) -> f64 {
    if old > 0.0 { (1.0 - new / old) * 100.0 } else { 0.0 }
}

/// A share in percent; 0 of nothing.
pub(super) fn share(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole * 100.0 } else { 0.0 }
}
