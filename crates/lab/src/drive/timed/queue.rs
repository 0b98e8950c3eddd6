//! What many reads at once gain: a disk that has several to choose from serves the nearest one first.

use serde::Serialize;

use super::MeasureError;
use super::meter::Meter;

/// Reads on their way at once.
const DEPTHS: [u32; 7] = [1, 2, 4, 8, 16, 32, 64];
/// Reads at each depth, and more of them for each read that is on its way.
const READS: usize = 256;
const MORE_READS: usize = 16;
/// A depth that reaches this share of the best is enough.
const ENOUGH: f64 = 0.92;

/// Throughput of random reads.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct QueueTimings {
    /// By depth.
    pub depths: Vec<DepthTiming>,
}

/// Throughput at one depth.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct DepthTiming {
    /// Reads on their way at any time.
    pub depth: u32,
    /// Reads done a second.
    pub reads_per_second: f64,
}

impl QueueTimings {
    /// Measures one depth after the other.
    pub(super) fn measure(&mut self, meter: &mut Meter<'_>) -> Result<(), MeasureError> {
        self.measure_reads(meter, |depth| READS + MORE_READS * depth as usize, 1)
    }

    /// Like [`QueueTimings::measure`], with `reads` reads of `sectors` sectors at each depth.
    pub(super) fn measure_reads(
        &mut self,
        meter: &mut Meter<'_>,
        reads: impl Fn(u32) -> usize,
        sectors: u32,
    ) -> Result<(), MeasureError> {
        for depth in DEPTHS {
            let reads = reads(depth);
            let together = meter.read_together(reads, sectors, depth)?;
            let read = (reads as u64).saturating_sub(together.unreadable) as f64;
            let reads_per_second = read / together.time.as_secs_f64().max(1e-9);
            self.depths.push(DepthTiming { depth, reads_per_second });
        }
        Ok(())
    }

    /// The least depth that gives nearly as much as any; `None` if fewer than two were measured.
    pub fn enough(&self) -> Option<u32> {
        let best = self.depths.iter().map(|timing| timing.reads_per_second).fold(0.0, f64::max);
        let enough = self.depths.iter().find(|timing| timing.reads_per_second >= best * ENOUGH);
        enough.filter(|_| self.depths.len() > 1).map(|timing| timing.depth)
    }
}
