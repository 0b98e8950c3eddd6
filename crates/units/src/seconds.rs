//! Times in JSON: seconds with a fraction, for `#[serde(with = "umbrella_units::seconds")]`.

use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::Timestamp;

/// A time in seconds.
pub trait Seconds: Sized {
    /// Returns `None` for a time that is written as `null`.
    fn to_seconds(&self) -> Option<f64>;
    /// Returns `None` if the number is no such time.
    fn of_seconds(seconds: Option<f64>) -> Option<Self>;
}

impl Seconds for Duration {
    fn to_seconds(&self) -> Option<f64> {
        Some(self.as_secs_f64())
    }

    fn of_seconds(seconds: Option<f64>) -> Option<Duration> {
        Duration::try_from_secs_f64(seconds?).ok()
    }
}

/// Seconds since 1970-01-01 00:00 UTC. Nanoseconds are rounded to some hundreds.
impl Seconds for Timestamp {
    fn to_seconds(&self) -> Option<f64> {
        Some(self.secs as f64 + f64::from(self.nanos) / 1e9)
    }

    fn of_seconds(seconds: Option<f64>) -> Option<Timestamp> {
        let seconds = seconds.filter(|seconds| seconds.abs() < 1e15)?;
        let secs = seconds.floor();
        Some(Timestamp { secs: secs as i64, nanos: (((seconds - secs) * 1e9) as u32).min(999_999_999) })
    }
}

impl<T: Seconds> Seconds for Option<T> {
    fn to_seconds(&self) -> Option<f64> {
        self.as_ref().and_then(T::to_seconds)
    }

    fn of_seconds(seconds: Option<f64>) -> Option<Option<T>> {
        match seconds {
            None => Some(None),
            some => T::of_seconds(some).map(Some),
        }
    }
}

/// For serde.
pub fn serialize<T: Seconds, S: Serializer>(time: &T, serializer: S) -> Result<S::Ok, S::Error> {
    time.to_seconds().serialize(serializer)
}

/// For serde.
pub fn deserialize<'de, T: Seconds, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
    let seconds = Option::<f64>::deserialize(deserializer)?;
    T::of_seconds(seconds).ok_or_else(|| serde::de::Error::custom("not a time in seconds"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn through<T: Seconds>(time: &T) -> Option<T> {
        T::of_seconds(time.to_seconds())
    }

    #[test]
    fn a_time_in_seconds_comes_back() {
        assert_eq!(through(&Duration::from_millis(1_500)), Some(Duration::from_millis(1_500)));
        assert_eq!(through(&None::<Duration>), Some(None));
        let before_1970 = Timestamp { secs: -2, nanos: 250_000_000 };
        assert_eq!(before_1970.to_seconds(), Some(-1.75));
        assert_eq!(through(&before_1970), Some(before_1970));
    }

    #[test]
    fn what_is_no_time_is_refused() {
        assert_eq!(Duration::of_seconds(Some(-1.0)), None);
        assert_eq!(Duration::of_seconds(None), None);
        assert_eq!(Timestamp::of_seconds(Some(f64::NAN)), None);
        assert_eq!(Timestamp::of_seconds(Some(1e300)), None);
    }
}
