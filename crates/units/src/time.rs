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
            text.push_str(&format!("{}{unit}", millis / scale));
            millis %= scale;
        }
    }
    if text.is_empty() { "0s".to_owned() } else { text }
}
