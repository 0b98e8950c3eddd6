//! How long the heads take from one cylinder to another.
//!
//! The curve is the usual one: `a + b * sqrt(d)` while the arm accelerates and brakes, linear where it coasts (Ruemmler and
//! Wilkes, "An introduction to disk drive modeling", IEEE Computer 27(3), 1994). Both pieces meet with the same value and the
//! same slope. That leaves one free number, the knee; it is found by bisection so that the mean over all pairs of cylinders is the data
//! sheet's average. Nothing else is fitted.

use umbrella_units::Nanos;

use super::spec::SeekTimes;

/// Distances whose time is stored one by one.
const NEAR: u32 = 512;
/// Samples of the far table, between which it interpolates.
const SAMPLES_LOG2: u32 = 12;

/// Seek times for every distance, read from small tables.
#[derive(Debug, Clone)]
pub struct SeekCurve {
    near: Box<[u32]>,
    far: Box<[u32]>,
    shift: u32,
}

/// The curve's formula.
#[derive(Debug, Clone, Copy)]
struct Formula {
    a: f64,
    b: f64,
    knee: f64,
}

impl Formula {
    /// The curve through `first` at distance 1 and `full` at `stroke` whose pieces meet at `knee`.
    fn through(first: f64, full: f64, stroke: f64, knee: f64) -> Formula {
        let root = knee.sqrt();
        let b = (full - first) / (root / 2.0 + stroke / (2.0 * root) - 1.0).max(f64::MIN_POSITIVE);
        Formula { a: first - b, b, knee }
    }

    fn at(&self, distance: f64) -> f64 {
        if distance <= self.knee {
            return self.a + self.b * distance.sqrt();
        }
        let root = self.knee.sqrt();
        self.a + self.b * root / 2.0 + self.b * distance / (2.0 * root)
    }

    /// The mean over random pairs of cylinders: distance `d` has the weight `2 (stroke - d) / stroke^2`.
    fn mean(&self, stroke: f64) -> f64 {
        let steps = 512;
        let (mut sum, mut weights) = (0.0, 0.0);
        for step in 0..steps {
            let distance = (f64::from(step) + 0.5) / f64::from(steps) * stroke;
            let weight = stroke - distance;
            sum += weight * self.at(distance.max(1.0));
            weights += weight;
        }
        sum / weights
    }
}

impl SeekCurve {
    /// The curve of a disk with `cylinders` cylinders.
    ///
    /// An average that no such curve can have (below a third or above 53 % of the way from shortest to full stroke) gives the nearest.
    pub fn new(times: SeekTimes, cylinders: u32) -> SeekCurve {
        let stroke = f64::from(cylinders.max(3) - 1);
        let [first, average, full] = [times.track_to_track, times.average, times.full_stroke].map(|t| t.0 as f64);
        let (mut low, mut high) = (1.0, stroke);
        for _ in 0..60 {
            let middle = f64::midpoint(low, high);
            if Formula::through(first, full, stroke, middle).mean(stroke) < average {
                low = middle;
            } else {
                high = middle;
            }
        }
        let formula = Formula::through(first, full, stroke, f64::midpoint(low, high));
        let time = |distance: u32| if distance == 0 { 0 } else { formula.at(f64::from(distance)).max(0.0) as u32 };
        let shift = (32 - (cylinders.max(2) - 1).leading_zeros()).saturating_sub(SAMPLES_LOG2);
        let samples = (cylinders >> shift) + 2;
        SeekCurve {
            near: (0..NEAR).map(time).collect(),
            far: (0..samples).map(|sample| time(sample << shift)).collect(),
            shift,
        }
    }

    /// The time for so many cylinders; none for zero. Beyond the stroke, the full stroke's.
    #[inline]
    pub fn time(&self, distance: u32) -> Nanos {
        if let Some(&near) = self.near.get(distance as usize) {
            return Nanos(u64::from(near));
        }
        let last = self.far.len() - 2;
        let sample = ((distance >> self.shift) as usize).min(last);
        let (low, high) = (u64::from(self.far[sample]), u64::from(self.far[sample + 1]));
        let rest = u64::from(distance & ((1 << self.shift) - 1));
        Nanos(low + ((high.saturating_sub(low) * rest) >> self.shift))
    }
}
