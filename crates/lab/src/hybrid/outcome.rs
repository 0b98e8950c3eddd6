//! What came of a run.

use serde::{Deserialize, Serialize};
use umbrella_units::Nanos;

use crate::result::Histogram;

/// What came of a run. Times are in modelled seconds, sizes in bytes, energies in joules.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct HybridOutcome {
    /// What was asked of the disk.
    pub input: String,
    /// The disk's profile.
    pub disk: String,
    /// Whether the disk's own write buffer was on; none: as in the profile.
    pub write_cache: Option<bool>,
    /// The flash's profile.
    pub flash: String,
    /// The log's size; none when infinite.
    pub cache_bytes: Option<u64>,
    /// When the log was flushed.
    pub when: String,
    /// How it was flushed.
    pub algorithm: String,
    /// Memory for flushing.
    pub memory_bytes: u64,
    /// The spin-down policy.
    pub spin_down: String,
    /// Requests that read.
    pub reads: u64,
    /// Requests that wrote.
    pub writes: u64,
    /// What they read.
    pub read_bytes: u64,
    /// What they wrote.
    pub written_bytes: u64,
    /// Reads that came while the disk did not spin.
    pub reads_asleep: u64,
    /// Reads among them that the flash served.
    pub reads_from_flash: u64,
    /// Writes that went to the log.
    pub redirected: Redirected,
    /// Flushing.
    pub flushes: FlushFigures,
    /// The share of the flushes' time that the requests of others cost, in percent: what they take less with the
    /// devices to themselves.
    #[serde(default)]
    pub contention: f64,
    /// Where the disk's watts come from: measured, a data sheet, or assumed.
    pub disk_watts: String,
    /// And the flash's.
    pub flash_watts: String,
    /// What the devices took.
    pub energy: Joules,
    /// How often the motor was switched on.
    pub spin_ups: u64,
    /// What for.
    pub wakes: Wakes,
    /// How long its platters stood still.
    pub asleep_s: f64,
    /// How long the run took in all, the flush at its end too.
    pub time_s: f64,
    /// Requests answered after more than a second.
    pub delayed: u64,
    /// Requests that had to wait for the motor.
    pub waited_for_spin_up: u64,
    /// From the arrival of a request to its answer.
    pub response: Responses,
}

/// Writes that went to the log; data only, without metadata.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Redirected {
    /// How many.
    pub writes: u64,
    /// Bytes.
    pub bytes: u64,
    /// Bytes of different sectors.
    pub distinct_bytes: u64,
    /// Bytes on each day of the input.
    pub by_day: Vec<u64>,
    /// Bytes per time that the disk slept.
    pub per_sleep: Spread,
    /// Each of these.
    pub sleeps: Vec<u64>,
}

/// A distribution.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names say it")]
pub struct Spread {
    pub count: u64,
    pub mean: f64,
    pub p50: u64,
    pub p90: u64,
    pub p99: u64,
    pub max: u64,
}

impl Spread {
    /// Of these values.
    pub fn of(values: &[u64]) -> Spread {
        let mut sorted = values.to_vec();
        sorted.sort_unstable();
        let quantile = |share: f64| {
            let place = (share * sorted.len() as f64).ceil() as usize;
            sorted.get(place.saturating_sub(1)).copied().unwrap_or(0)
        };
        Spread {
            count: sorted.len() as u64,
            mean: sorted.iter().sum::<u64>() as f64 / sorted.len().max(1) as f64,
            p50: quantile(0.5),
            p90: quantile(0.9),
            p99: quantile(0.99),
            max: quantile(1.0),
        }
    }
}

/// Flushing, summed over all flushes. The time of a flush begins when the disk spins and ends when its data is durable.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct FlushFigures {
    /// How many.
    pub count: u64,
    /// How long they took.
    pub time_s: f64,
    /// Part of it in which a read from flash was under way.
    pub flash_s: f64,
    /// Part of it in which a write to the disk, or the flush of its buffer, was under way; with two buffers this
    /// overlaps the former.
    pub disk_s: f64,
    /// The one at the end of the run, which only the end asked for.
    pub at_end_s: f64,
    /// Bytes read from flash.
    pub read_bytes: u64,
    /// Bytes written to the disk.
    pub written_bytes: u64,
    /// Writes to the disk.
    pub writes: u64,
    /// What the same flushes would take if no other request came meanwhile.
    #[serde(default)]
    pub alone: AloneFigures,
}

/// Times of flushes that have the devices to themselves, as in [`FlushFigures`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names say it")]
pub struct AloneFigures {
    pub time_s: f64,
    pub flash_s: f64,
    pub disk_s: f64,
}

/// Energies.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names say it")]
pub struct Joules {
    pub active: f64,
    pub idle: f64,
    pub spinning_down: f64,
    pub standby: f64,
    pub spinning_up: f64,
    pub flash: f64,
    pub total: f64,
}

/// What the disk was woken for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wakes {
    /// A read that the log had not.
    pub read: u64,
    /// A write that did not fit into the log.
    pub full: u64,
    /// The high mark.
    pub mark: u64,
    /// The end of the run.
    pub end: u64,
}

impl Wakes {
    /// How often by a request: the end is not counted.
    pub fn asked(&self) -> u64 {
        self.read + self.full + self.mark
    }
}

/// Response times in seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names say it")]
pub struct Responses {
    pub count: u64,
    pub mean: f64,
    pub p50: f64,
    pub p90: f64,
    pub p99: f64,
    pub p999: f64,
    pub max: f64,
}

impl Responses {
    pub(super) fn of(times: &Histogram) -> Responses {
        let seconds = |time: Nanos| time.as_secs_f64();
        Responses {
            count: times.total(),
            mean: seconds(times.mean()),
            p50: seconds(times.quantile(0.5)),
            p90: seconds(times.quantile(0.9)),
            p99: seconds(times.quantile(0.99)),
            p999: seconds(times.quantile(0.999)),
            max: seconds(times.max()),
        }
    }
}
