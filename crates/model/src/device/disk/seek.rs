//! How long the heads take from one cylinder to another.
//!
//! The curve is the usual one: `a + b * sqrt(d)` while the arm accelerates and brakes, linear where it coasts (Ruemmler
//! and Wilkes, "An introduction to disk drive modeling", IEEE Computer 27(3), 1994). Both pieces meet with the same
//! value and the same slope. That leaves one free number, the knee. Bisection finds the knee for which the mean over
//! all pairs of cylinders is the data sheet's average.
//!
//! With some fast arms even the square root alone stays below that average. Then a part of a fourth root takes the
//! place of the linear piece, again as much as gives the average. Only square roots are taken, which every machine
//! rounds alike.

use umbrella_units::Nanos;

use super::spec::{DiskSpec, SeekTimes};

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
enum Formula {
    /// `a + b * sqrt(d)` up to the knee, linear beyond.
    Knee { a: f64, b: f64, knee: f64 },
    /// From `first` to `full` along a mixture of the square and the fourth root.
    Steep { first: f64, full: f64, stroke: f64, fourth: f64 },
}

impl Formula {
    /// The curve through `first` at distance 1 and `full` at `stroke` whose pieces meet at `knee`.
    fn with_knee(first: f64, full: f64, stroke: f64, knee: f64) -> Formula {
        let root = knee.sqrt();
        let b = (full - first) / (root / 2.0 + stroke / (2.0 * root) - 1.0).max(f64::MIN_POSITIVE);
        Formula::Knee { a: first - b, b, knee }
    }

    fn at(&self, distance: f64) -> f64 {
        match *self {
            Formula::Knee { a, b, knee } if distance <= knee => a + b * distance.sqrt(),
            Formula::Knee { a, b, knee } => a + b * knee.sqrt() / 2.0 + b * distance / (2.0 * knee.sqrt()),
            Formula::Steep { first, full, stroke, fourth } => {
                let (root, whole) = (distance.sqrt(), stroke.sqrt());
                let square = (root - 1.0) / (whole - 1.0);
                let steep = (root.sqrt() - 1.0) / (whole.sqrt() - 1.0);
                first + (full - first) * ((1.0 - fourth) * square + fourth * steep)
            }
        }
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

    /// The curve of a data sheet.
    fn of(times: SeekTimes, stroke: f64) -> Formula {
        let [first, average, full] = [times.track_to_track, times.average, times.full_stroke].map(|t| t.0 as f64);
        let knee = |knee: f64| Formula::with_knee(first, full, stroke, knee);
        let steep = |fourth: f64| Formula::Steep { first, full, stroke, fourth };
        if knee(stroke).mean(stroke) < average {
            return steep(bisect(0.0, 1.0, |fourth| steep(fourth).mean(stroke) < average));
        }
        knee(bisect(1.0, stroke, |at| knee(at).mean(stroke) < average))
    }
}

/// Where `below` turns from true to false between `low` and `high`.
fn bisect(mut low: f64, mut high: f64, below: impl Fn(f64) -> bool) -> f64 {
    for _ in 0..60 {
        let middle = f64::midpoint(low, high);
        if below(middle) {
            low = middle;
        } else {
            high = middle;
        }
    }
    f64::midpoint(low, high)
}

/// The time for `distance` on the lines between the points; beyond them, that of the nearest.
fn between(points: &[(u32, Nanos)], distance: u32) -> Nanos {
    let next = points.partition_point(|&(at, _)| at < distance);
    match (next.checked_sub(1).and_then(|before| points.get(before)), points.get(next)) {
        (Some(&(from, low)), Some(&(to, high))) => {
            let (along, whole) = (i128::from(distance - from), i128::from(to - from));
            let time = i128::from(low.0) + (i128::from(high.0) - i128::from(low.0)) * along / whole.max(1);
            Nanos(time as u64)
        }
        (Some(&(_, time)), None) | (None, Some(&(_, time))) => time,
        (None, None) => Nanos(0),
    }
}

impl SeekCurve {
    /// The curve of a disk with `cylinders` cylinders.
    ///
    /// An average that no such curve can have (below a third or above 70 % of the way from shortest to full stroke)
    /// gives the nearest.
    pub fn new(times: SeekTimes, cylinders: u32) -> SeekCurve {
        let formula = Formula::of(times, f64::from(cylinders.max(4) - 1));
        SeekCurve::of(cylinders, |distance| formula.at(f64::from(distance)).max(0.0) as u32)
    }

    /// Before a read: as measured, else of the data sheet.
    pub(super) fn before_read(spec: &DiskSpec, cylinders: u32) -> SeekCurve {
        SeekCurve::of_spec(spec, spec.read_seek, cylinders, 0)
    }

    /// Before a write.
    pub(super) fn before_write(spec: &DiskSpec, cylinders: u32) -> SeekCurve {
        SeekCurve::of_spec(spec, spec.write_seek, cylinders, spec.measured.write_settle)
    }

    fn of_spec(spec: &DiskSpec, times: SeekTimes, cylinders: u32, settle: i64) -> SeekCurve {
        let Some(points) = &spec.measured.seeks else { return SeekCurve::new(times, cylinders) };
        SeekCurve::of(cylinders, |distance| {
            let time = between(points, distance).0.saturating_add_signed(settle);
            u32::try_from(time).unwrap_or(u32::MAX)
        })
    }

    /// Its tables: `time` at all near distances, and at samples of the others.
    fn of(cylinders: u32, time: impl Fn(u32) -> u32) -> SeekCurve {
        let time = |distance: u32| if distance == 0 { 0 } else { time(distance) };
        let shift = (32 - (cylinders.max(2) - 1).leading_zeros()).saturating_sub(SAMPLES_LOG2);
        let samples = (cylinders >> shift) + 2;
        SeekCurve {
            near: (0..NEAR).map(time).collect(),
            far: (0..samples).map(|sample| time(sample << shift)).collect(),
            shift,
        }
    }

    /// The time for `distance` cylinders; none for zero. Beyond the stroke, the full stroke's.
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
