//! Times of files, and durations as people write them.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// A wall-clock time: seconds since 1970 (negative before) and nanoseconds within that second, as `struct timespec`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Timestamp {
    /// Seconds since 1970-01-01 00:00 UTC.
    pub secs: i64,
    /// 0 to 999,999,999.
    pub nanos: u32,
}

impl Timestamp {
    /// How long before `now` this time was; zero for a time in the future.
    pub fn age(self, now: Timestamp) -> Duration {
        let from = i128::from(self.secs) * 1_000_000_000 + i128::from(self.nanos);
        let to = i128::from(now.secs) * 1_000_000_000 + i128::from(now.nanos);
        let nanos = (to - from).max(0) as u128;
        Duration::new((nanos / 1_000_000_000) as u64, (nanos % 1_000_000_000) as u32)
    }
}

/// A duration that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{input:?} is not a duration (write for example \"30s\", \"10m\", \"2h\", \"1h30m\", \"30d\" or \"2w\")")]
pub struct ParseDurationError {
    /// What was given.
    pub input: String,
}

/// Reads `"30s"`, `"10 m"`, `"1h30m"`, `"5d"`, `"2w"`, `"500ms"`, `"1y"` (365 days).
pub fn parse_duration(input: &str) -> Result<Duration, ParseDurationError> {
    let bad = || ParseDurationError { input: input.to_owned() };
    let mut rest = input.trim();
    let mut total = Duration::ZERO;
    if rest.is_empty() {
        return Err(bad());
    }
    if rest == "0" {
        return Ok(total);
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(bad)?;
        let number: u64 = rest[..digits].parse().map_err(|_| bad())?;
        rest = rest[digits..].trim_start();
        let letters = rest.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(rest.len());
        let millis: u64 = match &rest[..letters] {
            "ms" => 1,
            "s" | "sec" => 1_000,
            "m" | "min" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            "w" => 7 * 86_400_000,
            "y" => 365 * 86_400_000,
            _ => return Err(bad()),
        };
        let part = number.checked_mul(millis).map(Duration::from_millis).ok_or_else(bad)?;
        total = total.checked_add(part).ok_or_else(bad)?;
        rest = rest[letters..].trim_start();
    }
    Ok(total)
}

/// Writes a duration as [`parse_duration`] reads it, largest units first: `1h30m`.
pub fn format_duration(duration: Duration) -> String {
    let mut millis = duration.as_millis();
    let mut text = String::new();
    for (unit, scale) in [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)] {
        if millis >= scale {
            text.push_str(&(millis / scale).to_string());
            text.push_str(unit);
            millis %= scale;
        }
    }
    if text.is_empty() { "0s".to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(secs: i64, nanos: u32) -> Timestamp {
        Timestamp { secs, nanos }
    }

    #[test]
    fn age_borrows_from_the_seconds() {
        assert_eq!(at(10, 900_000_000).age(at(12, 100_000_000)), Duration::from_millis(1_200));
    }

    #[test]
    fn a_time_before_1970_has_an_age() {
        assert_eq!(at(-2, 500_000_000).age(at(1, 0)), Duration::from_millis(2_500));
    }

    #[test]
    fn a_time_in_the_future_is_zero_old() {
        assert_eq!(at(10, 1).age(at(10, 0)), Duration::ZERO);
        assert_eq!(at(i64::MAX, 0).age(at(i64::MIN, 0)), Duration::ZERO);
    }

    #[test]
    fn the_longest_age_there_is_fits() {
        assert_eq!(at(i64::MIN, 0).age(at(i64::MAX, 0)), Duration::from_secs(u64::MAX));
    }

    #[test]
    fn every_unit_of_a_duration_is_read() {
        let cases = [
            ("0", 0),
            ("500ms", 500),
            ("30s", 30_000),
            ("30 sec", 30_000),
            ("10m", 600_000),
            ("10min", 600_000),
            ("2h", 7_200_000),
            ("1h30m", 5_400_000),
            (" 1h 30m ", 5_400_000),
            ("5d", 432_000_000),
            ("2w", 1_209_600_000),
            ("1y", 31_536_000_000),
        ];
        for (text, millis) in cases {
            assert_eq!(parse_duration(text), Ok(Duration::from_millis(millis)), "{text:?}");
        }
    }

    #[test]
    fn what_is_no_duration_is_refused_and_quoted() {
        for text in [
            "",
            " ",
            "5",
            "h",
            "5 parsecs",
            "-5s",
            "1.5h",
            "5S",
            "1h30",
            "\u{e9}",
            "99999999999999999999s",
            "18446744073709551615y",
        ] {
            assert_eq!(parse_duration(text), Err(ParseDurationError { input: text.to_owned() }), "{text:?}");
        }
        assert!(parse_duration("5 parsecs").unwrap_err().to_string().contains("\"5 parsecs\" is not a duration"));
    }

    #[test]
    fn durations_are_written_largest_units_first() {
        assert_eq!(format_duration(Duration::from_millis(5_400_250)), "1h30m250ms");
        assert_eq!(format_duration(Duration::from_secs(86_400 * 40)), "40d");
        assert_eq!(format_duration(Duration::ZERO), "0s");
    }

    proptest! {
        #[test]
        fn a_written_duration_is_read_back(millis in any::<u64>()) {
            let duration = Duration::from_millis(millis);
            prop_assert_eq!(parse_duration(&format_duration(duration)), Ok(duration));
        }

        #[test]
        fn any_text_is_read_or_refused(text in "[ 0-9a-z.é-]{0,24}|.{0,12}") {
            let _ = parse_duration(&text);
        }

        #[test]
        fn adding_an_age_to_a_time_gives_now(secs in -1_000_000_000_000i64..1_000_000_000_000, nanos in 0u32..1_000_000_000, age in 0u64..1_000_000_000_000_000) {
            let age = Duration::from_nanos(age);
            let total = u64::from(nanos) + u64::from(age.subsec_nanos());
            let now = at(secs + age.as_secs() as i64 + (total / 1_000_000_000) as i64, (total % 1_000_000_000) as u32);
            prop_assert_eq!(at(secs, nanos).age(now), age);
        }
    }
}
