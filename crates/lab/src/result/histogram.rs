//! A histogram of times with a bounded relative error: buckets of equal width inside each power of two.
//!
//! 32 buckets a power of two keep every quantile within 3.2 % of the true one; one fixed array, so recording is a few
//! instructions and never allocates. Source: the layout that HdrHistogram made common.

use umbrella_units::Nanos;

const STEPS_LOG2: u32 = 5;
const STEPS: usize = 1 << STEPS_LOG2;
const BUCKETS: usize = STEPS * (64 - STEPS_LOG2 as usize + 1);

/// How often times of each size were seen.
#[derive(Debug, Clone)]
pub struct Histogram {
    counts: Vec<u64>,
    total: u64,
    sum: u128,
    largest: Nanos,
}

impl Default for Histogram {
    fn default() -> Self {
        Histogram { counts: vec![0; BUCKETS], total: 0, sum: 0, largest: Nanos(0) }
    }
}

impl Histogram {
    /// Counts one time.
    pub fn record(&mut self, time: Nanos) {
        self.counts[bucket(time.0)] += 1;
        self.total += 1;
        self.sum += u128::from(time.0);
        self.largest = self.largest.max(time);
    }

    /// How many were recorded.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Their mean; zero when there are none.
    pub fn mean(&self) -> Nanos {
        Nanos(self.sum.checked_div(u128::from(self.total)).unwrap_or(0) as u64)
    }

    /// The largest.
    pub fn max(&self) -> Nanos {
        self.largest
    }

    /// The smallest time that at least `share` (0 to 1) of all do not exceed, rounded up to its bucket's end.
    pub fn quantile(&self, share: f64) -> Nanos {
        let wanted = ((self.total as f64 * share).ceil() as u64).max(1);
        let mut seen = 0;
        for (place, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                return Nanos(end_of(place)).min(self.largest);
            }
        }
        self.largest
    }
}

fn bucket(value: u64) -> usize {
    if value < STEPS as u64 {
        return value as usize;
    }
    let exponent = value.ilog2() - STEPS_LOG2;
    (exponent as usize + 1) * STEPS + (value >> exponent) as usize - STEPS
}

/// The last value that falls into a bucket.
fn end_of(place: usize) -> u64 {
    if place < STEPS {
        return place as u64;
    }
    let exponent = place / STEPS - 1;
    let step = (place % STEPS + STEPS) as u128;
    (((step + 1) << exponent) - 1).min(u128::from(u64::MAX)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_lies_in_a_bucket_that_ends_at_most_a_thirtysecond_above_it() {
        for value in (0..64)
            .flat_map(|bit| [1u64 << bit, (1u64 << bit).wrapping_mul(3) / 2, (1u64 << bit) - 1])
            .chain([u64::MAX])
        {
            let end = end_of(bucket(value));
            assert!(end >= value, "{value} ends at {end}");
            assert!(end - value <= value / 32, "{value} ends at {end}");
        }
    }

    #[test]
    fn quantiles_of_a_thousand_steps_are_the_steps() {
        let mut times = Histogram::default();
        for step in 1..=1000 {
            times.record(Nanos(step * 1000));
        }
        assert_eq!(times.total(), 1000);
        assert_eq!(times.mean(), Nanos(500_500));
        assert_eq!(times.max(), Nanos(1_000_000));
        for (share, expected) in [(0.5, 500_000.0), (0.9, 900_000.0), (0.99, 990_000.0), (1.0, 1_000_000.0)] {
            let got = times.quantile(share).0 as f64;
            assert!((got - expected).abs() <= expected / 32.0, "{share}: {got}");
        }
    }

    #[test]
    fn nothing_recorded_is_zero_everywhere() {
        let times = Histogram::default();
        assert_eq!((times.mean(), times.max(), times.quantile(0.5)), (Nanos(0), Nanos(0), Nanos(0)));
    }
}
