//! How long the heads take from track to track.
//!
//! A read at one track is followed at once by a read at another. The second ends when its block has passed, at once after the heads have arrived or up to a turn later. So
//! its response says: the way takes no longer than this, and longer than this less a turn. A block that will pass in the middle of what is left
//! is chosen next, and halves it.

use serde::Serialize;

use super::meter::{Meter, response, turned};
use super::tracks::Track;
use super::zones::Map;
use super::{MeasureError, elsewhere};

/// Pairs of reads for each way, at most.
const PAIRS: usize = 60;
/// The share of a time to which it is measured.
const EXACT: f64 = 0.01;
/// From a distance to the next one.
const FACTOR: f64 = std::f64::consts::SQRT_2;

/// The time for a distance.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct SeekTime {
    /// Cylinders.
    pub cylinders: u32,
    /// Milliseconds, settling included, before a read.
    pub ms: f64,
}

/// Seeks and head switches.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Seeks {
    pub(super) seeks: Vec<SeekTime>,
    pub(super) head_switch_ms: Option<f64>,
}

/// The way from one track to another.
#[derive(Debug, Clone, Copy)]
pub(super) struct Moves {
    pub(super) from: Track,
    pub(super) to: Track,
}

impl Moves {
    /// What it takes, in nanoseconds, and what a block from the buffer takes with it; to within `exact`.
    fn with_overhead(self, meter: &mut Meter<'_>, exact: f64) -> Result<f64, MeasureError> {
        let Moves { from, to } = self;
        let turn = meter.turn();
        let middle = to.start + to.len() / 2;
        let reference = meter.angle(middle)?;
        let block = turn / to.len() as f64;
        let (mut low, mut high) = (0.0_f64, f64::INFINITY);
        for _ in 0..PAIRS {
            let start = from.start + meter.random.below(from.len());
            let Some(first) = elsewhere(meter.read(start))? else { continue };
            if meter.is_hit(response(first)) {
                continue;
            }
            let wanted = if high.is_finite() { f64::midpoint(low, high) } else { turn / 2.0 };
            let along = turned(meter.angle_of(first.done) + wanted / turn - reference) * to.len() as f64;
            let target = (middle as f64 + along).round().clamp(to.start as f64, (to.end - 1) as f64) as u64;
            let Some(second) = elsewhere(meter.read(target))? else { continue };
            let time = response(second);
            if meter.is_hit(time) {
                continue;
            }
            (low, high) = (low.max(time - turn), high.min(time));
            if low > high + block {
                // One of them was late: from the beginning.
                (low, high) = (0.0, f64::INFINITY);
            } else if high - low < exact.max(high * EXACT).max(block * 1.5) {
                break;
            }
        }
        if high - low > turn / 8.0 || !high.is_finite() {
            return Err(MeasureError::Uneven);
        }
        Ok((f64::midpoint(low, high) - block).max(0.0))
    }

    /// What it takes, in nanoseconds; to within `exact`, or a hundredth.
    pub(super) fn measure(self, meter: &mut Meter<'_>, exact: f64) -> Result<f64, MeasureError> {
        let overhead = meter.hit().map_or(0.0, |hit| hit.median);
        Ok((self.with_overhead(meter, exact)? - overhead).max(0.0))
    }
}

impl Seeks {
    /// Measures ways over distances from one cylinder to all, the most telling ones first.
    pub(super) fn measure(&mut self, meter: &mut Meter<'_>, map: &Map) -> Result<(), MeasureError> {
        let (mut base, mut unreadable) = (0, meter.counts().1);
        if map.heads() > 1 {
            let moves = Moves { from: map.track(1, 0), to: map.track(1, 1) };
            self.head_switch_ms = elsewhere(moves.measure(meter, 0.0))?.map(|time| time / 1e6);
        }
        for cylinders in distances(map.cylinders()) {
            if meter.counts().1 > unreadable {
                // Not from where sectors cannot be read.
                (base, unreadable) = (base + 1, meter.counts().1);
            }
            // The longest way begins and ends at the edges.
            let from = base.min(map.cylinders() - 1 - cylinders);
            let moves = Moves { from: map.track(from, 0), to: map.track(from + cylinders, 0) };
            if let Some(time) = elsewhere(moves.measure(meter, 0.0))? {
                let place = self.seeks.partition_point(|known| known.cylinders < cylinders);
                self.seeks.insert(place, SeekTime { cylinders, ms: time / 1e6 });
            }
        }
        Ok(())
    }
}

/// Distances, each about 1.4 times as long as the one before. Every fourth comes first, the longest and the shortest before all.
fn distances(cylinders: u32) -> Vec<u32> {
    let stroke = cylinders.saturating_sub(1).max(1);
    let mut all = vec![stroke];
    let mut distance = 1.0;
    while distance < f64::from(stroke) * 0.9 {
        all.push(distance as u32);
        distance = (distance * FACTOR).max(distance + 1.0);
    }
    all.dedup();
    let of =
        |rest: usize| all.iter().enumerate().filter(move |(place, _)| place % 4 == rest).map(|(_, &distance)| distance);
    let shortest = (stroke > 1).then_some(1);
    let ordered = of(0).take(1).chain(shortest).chain([2, 0, 3, 1].into_iter().flat_map(of));
    let mut seen = Vec::new();
    for distance in ordered {
        if !seen.contains(&distance) {
            seen.push(distance);
        }
    }
    seen
}
