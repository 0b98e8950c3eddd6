//! Virtual time, which follows the wall clock at some pace.

use std::time::{Duration, Instant};

use thiserror::Error;
use umbrella_units::Nanos;

/// How long a second of the model takes in real time: 1 is true to life, 0.1 ten times faster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeScale {
    millionths: u64,
}

/// A pace at which no clock can run.
#[derive(Debug, Clone, Copy, PartialEq, Error)]
#[error("a speed factor of {factor} is not possible (give one from 0.000001 to 1000; 0.1 is ten times faster)")]
pub struct BadTimeScale {
    /// What was given.
    pub factor: f64,
}

impl TimeScale {
    /// As long as the device would take.
    pub const REAL: TimeScale = TimeScale { millionths: 1_000_000 };

    /// The scale of that factor, in steps of a millionth.
    pub fn new(factor: f64) -> Result<TimeScale, BadTimeScale> {
        if (0.000_001..=1000.0).contains(&factor) {
            Ok(TimeScale { millionths: (factor * 1e6).round() as u64 })
        } else {
            Err(BadTimeScale { factor })
        }
    }
}

/// A clock that was started at virtual time zero. It never drifts from the wall clock: after an oversleep, more time
/// has passed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Clock {
    start: Instant,
    scale: TimeScale,
}

impl Clock {
    pub(super) fn start(scale: TimeScale) -> Clock {
        Clock { start: Instant::now(), scale }
    }

    /// The virtual time.
    pub(super) fn now(&self) -> Nanos {
        self.virtual_time(self.start.elapsed())
    }

    /// How long it is until then, in real time; nothing when it is over.
    pub(super) fn until(&self, then: Nanos) -> Duration {
        self.real_time(then).saturating_sub(self.start.elapsed())
    }

    fn virtual_time(&self, real: Duration) -> Nanos {
        let time = real.as_nanos() * 1_000_000 / u128::from(self.scale.millionths);
        Nanos(u64::try_from(time).unwrap_or(u64::MAX))
    }

    /// Rounded up, so that the virtual time has come when it is over.
    fn real_time(&self, time: Nanos) -> Duration {
        let real = (u128::from(time.0) * u128::from(self.scale.millionths)).div_ceil(1_000_000);
        Duration::from_nanos(u64::try_from(real).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_has_come_when_its_real_time_is_over() {
        for factor in [0.000_001, 0.1, 1.0, 0.333_333, 1000.0] {
            let clock = Clock::start(TimeScale::new(factor).expect("it is possible"));
            for time in [0, 1, 999, 1_000_003, 86_400_000_000_000] {
                let then = clock.virtual_time(clock.real_time(Nanos(time)));
                assert!(then >= Nanos(time), "{factor}: {then} for {time}");
                assert!(then - Nanos(time) <= Nanos(1_000_000), "{factor}: {then} for {time}");
            }
        }
    }

    #[test]
    fn ten_times_faster_a_second_takes_a_tenth() {
        let clock = Clock::start(TimeScale::new(0.1).expect("it is possible"));
        assert_eq!(clock.real_time(Nanos::from_secs(1)), Duration::from_millis(100));
        assert_eq!(clock.virtual_time(Duration::from_millis(100)), Nanos::from_secs(1));
        assert_eq!(clock.until(Nanos(0)), Duration::ZERO);
        assert!(clock.until(Nanos::NEVER) > Duration::from_secs(1 << 30));
    }

    #[test]
    fn no_clock_stands_still_or_runs_backwards() {
        for factor in [0.0, -1.0, 0.000_000_1, 1001.0, f64::NAN, f64::INFINITY] {
            assert!(TimeScale::new(factor).is_err(), "{factor}");
        }
        let error = TimeScale::new(0.0).expect_err("it stands still").to_string();
        assert!(error.starts_with("a speed factor of 0 is not possible"), "{error}");
        assert_eq!(TimeScale::new(1.0), Ok(TimeScale::REAL));
    }
}
