//! A device that does not turn: latency by size, and throughput.

use serde::Serialize;
use umbrella_units::SECTOR_BYTES;

use super::meter::{Meter, quantile, response};
use super::queue::QueueTimings;
use super::{MeasureError, none_if_local};

/// Sizes of reads, in sectors: 4 KiB to 1 MiB.
const SIZES: [u32; 5] = [8, 32, 128, 512, 2048];
/// Reads of each size.
const READS: usize = 200;
/// Reads at each depth.
const QUEUED: usize = 1000;
/// Reads of 1 MiB, one behind the other.
const STREAM: u64 = 64;

/// Latency and throughput of a device without platters.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct FlashTimings {
    /// Of random reads one at a time, by size.
    pub latencies: Vec<Latency>,
    /// Of random reads of 4 KiB.
    pub queue: QueueTimings,
    /// Reading on from one place, in bytes a second; `None` if it was not measured.
    pub sequential_bytes_per_second: Option<f64>,
}

/// Latencies of random reads.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Latency {
    /// Bytes of a read.
    pub bytes: u64,
    /// Half of them take less, in milliseconds.
    pub median_ms: f64,
    /// 99 of 100 take less, in milliseconds.
    pub p99_ms: f64,
}

impl FlashTimings {
    /// Measures what it can until the time is over.
    pub(super) fn measure(&mut self, meter: &mut Meter<'_>) -> Result<(), MeasureError> {
        for sectors in SIZES {
            let blocks = u64::from(sectors.div_ceil(meter.block()));
            let mut times = Vec::with_capacity(READS);
            for _ in 0..READS {
                let at = meter.anywhere();
                times.extend(none_if_local(meter.read_blocks(at, blocks))?.map(response));
            }
            if !times.is_empty() {
                let (median_ms, p99_ms) = (quantile(&mut times, 0.5) / 1e6, quantile(&mut times, 0.99) / 1e6);
                let bytes = blocks * u64::from(meter.block()) * SECTOR_BYTES;
                self.latencies.push(Latency { bytes, median_ms, p99_ms });
            }
        }
        self.sequential_bytes_per_second = stream(meter)?;
        self.queue.measure_reads(meter, |_| QUEUED, SIZES[0])
    }
}

fn stream(meter: &mut Meter<'_>) -> Result<Option<f64>, MeasureError> {
    let blocks = (2048 / u64::from(meter.block())).max(1);
    let reads = STREAM.min(meter.blocks() / blocks);
    let start = meter.random.below(meter.blocks() - reads * blocks + 1);
    let (mut bytes, mut nanos) = (0, 0.0);
    for number in 0..reads {
        if let Some(timed) = none_if_local(meter.read_blocks(start + number * blocks, blocks))? {
            bytes += blocks * u64::from(meter.block()) * SECTOR_BYTES;
            nanos += response(timed);
        }
    }
    Ok((nanos > 0.0).then(|| bytes as f64 / nanos * 1e9))
}
