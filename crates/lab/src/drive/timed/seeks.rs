//! How long the heads take from track to track.
//!
//! A read at one track is followed at once by a read at another. The second ends when its block has passed, at once
//! after the heads have arrived or up to a turn later. So its response says: the way takes no longer than this, and
//! longer than this less a turn. A block that will pass in the middle of what is left is chosen next, and halves it.

use serde::Serialize;

use super::meter::{Meter, response, turned};
use super::tracks::Track;
use super::zones::Map;
use super::{MeasureError, none_if_local};

/// Pairs of reads for each way, at most.
const PAIRS: usize = 60;
/// The share of a time to which it is measured.
const EXACT: f64 = 0.01;
/// Times that it is tried whether less would do.
const CHECKS: usize = 2;
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

/// Bounds of a time, in nanoseconds.
#[derive(Debug, Clone)]
struct Bounds {
    /// The time is longer than each of these, except those that come from a late answer.
    lows: Vec<f64>,
    /// The time is no longer than this.
    high: f64,
}

impl Default for Bounds {
    fn default() -> Bounds {
        Bounds { lows: Vec::new(), high: f64::INFINITY }
    }
}

impl Bounds {
    fn low(&self) -> f64 {
        self.lows.iter().copied().fold(0.0, f64::max)
    }

    fn width(&self) -> f64 {
        self.high - self.low()
    }

    fn middle(&self) -> Option<f64> {
        self.high.is_finite().then(|| f64::midpoint(self.low(), self.high))
    }

    /// A read that followed at once took so long.
    fn note(&mut self, time: f64, turn: f64, block: f64) {
        self.high = self.high.min(time);
        self.lows.push(time - turn);
        // Nothing takes less than it does. So what says that it is longer than this was late.
        let high = self.high;
        self.lows.retain(|&low| low <= high + block);
    }
}

impl Moves {
    /// What it takes, in nanoseconds, and what a block from the buffer takes with it; to within `exact`.
    fn with_overhead(self, meter: &mut Meter<'_>, exact: f64) -> Result<f64, MeasureError> {
        let Moves { from, to } = self;
        let turn = meter.turn;
        let middle = to.start + to.len() / 2;
        let mut reference = meter.angle(middle)?;
        let block = turn / to.len() as f64;
        let mut bounds = Bounds::default();
        let mut checks = 0;
        for _ in 0..PAIRS {
            let start = from.start + meter.random.below(from.len());
            let Some(first) = none_if_local(meter.read(start))? else { continue };
            if meter.is_hit(response(first)) {
                continue;
            }
            let is_narrow = bounds.width() < exact.max(bounds.high * EXACT).max(block * 1.5);
            if is_narrow && checks == CHECKS {
                break;
            }
            // Once it is narrow: whether less would do as well.
            let less = exact.max(block * 2.0).max(bounds.width());
            let wanted = match bounds.middle() {
                None => turn / 2.0,
                Some(_) if is_narrow => (bounds.low() - less).max(0.0),
                Some(middle) => middle,
            };
            checks = if is_narrow { checks + 1 } else { 0 };
            let along = turned(meter.angle_of(first.done) + wanted / turn - reference) * to.len() as f64;
            let target = (middle as f64 + along).round().clamp(to.start as f64, (to.end - 1) as f64) as u64;
            let Some(second) = none_if_local(meter.read(target))? else { continue };
            if !meter.is_hit(response(second)) {
                bounds.note(response(second), turn, block);
                reference = meter.angle_of(second.done) - (target as f64 - middle as f64) / to.len() as f64;
            }
        }
        let middle = bounds.middle().filter(|_| bounds.width() < turn / 8.0).ok_or(MeasureError::Uneven)?;
        Ok((middle - block).max(0.0))
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
            self.head_switch_ms = none_if_local(moves.measure(meter, 0.0))?.map(|time| time / 1e6);
        }
        for cylinders in distances(map.cylinders()) {
            if meter.counts().1 > unreadable {
                // Not from where sectors cannot be read.
                (base, unreadable) = (base + 1, meter.counts().1);
            }
            if let Some(ms) = seek(meter, map, base, cylinders)? {
                let place = self.seeks.partition_point(|known| known.cylinders < cylinders);
                self.seeks.insert(place, SeekTime { cylinders, ms });
            }
        }
        for place in 1..self.seeks.len() {
            if let Some(SeekTime { cylinders, .. }) = self.seeks.get(place).copied()
                && !self.is_between_neighbours(place)
                && let Some(ms) = seek(meter, map, base, cylinders)?
                && let Some(again) = self.seeks.get_mut(place)
            {
                again.ms = ms;
            }
        }
        Ok(())
    }

    /// Whether a time is about between those of the next distances; a seek that was measured badly is not.
    fn is_between_neighbours(&self, place: usize) -> bool {
        let ms = |place: usize| self.seeks.get(place).map(|seek| seek.ms);
        let (Some(before), Some(own), Some(after)) = (ms(place - 1), ms(place), ms(place + 1)) else { return true };
        own >= before.min(after) * 0.95 - 0.02 && own <= before.max(after) * 1.05 + 0.02
    }
}

/// The time of a seek over `cylinders` cylinders, in milliseconds.
fn seek(meter: &mut Meter<'_>, map: &Map, base: u32, cylinders: u32) -> Result<Option<f64>, MeasureError> {
    // The longest way begins and ends at the edges.
    let from = base.min(map.cylinders().saturating_sub(1 + cylinders));
    let moves = Moves { from: map.track(from, 0), to: map.track(from + cylinders, 0) };
    Ok(none_if_local(moves.measure(meter, 0.0))?.map(|time| time / 1e6))
}

/// Distances, each about 1.4 times as long as the one before. Every fourth comes first, the longest and the shortest
/// before all.
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
