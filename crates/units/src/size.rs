use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// A number of bytes. Parsed from `4096`, `"10MB"` (powers of 1000) or `"10MiB"` (powers of 1024).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ByteSize(pub u64);

/// An amount of a branch's space: bytes, or a share of its size in thousandths of a percent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Amount {
    /// So many bytes.
    Bytes(ByteSize),
    /// A share of the whole: 5 % is 5000.
    MilliPercent(u32),
}

/// A size or amount that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{input:?} is not a size (write for example \"512\", \"10MB\", \"4GiB\" or, where a share is allowed, \"5%\")")]
pub struct ParseSizeError {
    /// What was given.
    pub input: String,
}

impl Amount {
    /// The amount in bytes, for a branch of `total` bytes; rounded down.
    pub fn of(self, total: ByteSize) -> ByteSize {
        match self {
            Amount::Bytes(bytes) => bytes,
            Amount::MilliPercent(share) => ByteSize((u128::from(total.0) * u128::from(share) / 100_000) as u64),
        }
    }
}

impl FromStr for ByteSize {
    type Err = ParseSizeError;

    fn from_str(input: &str) -> Result<Self, Self::Err> {
        let bad = || ParseSizeError { input: input.to_owned() };
        let text = input.trim();
        let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (number, unit) = text.split_at(digits);
        let scale: u64 = match unit.trim().to_ascii_lowercase().as_str() {
            "" | "b" => 1,
            "k" | "kib" => 1 << 10,
            "m" | "mib" => 1 << 20,
            "g" | "gib" => 1 << 30,
            "t" | "tib" => 1 << 40,
            "p" | "pib" => 1 << 50,
            "kb" => 1_000,
            "mb" => 1_000_000,
            "gb" => 1_000_000_000,
            "tb" => 1_000_000_000_000,
            "pb" => 1_000_000_000_000_000,
            _ => return Err(bad()),
        };
        if let Ok(whole) = number.parse::<u64>() {
            return whole.checked_mul(scale).map(ByteSize).ok_or_else(bad);
        }
        let value = number.parse::<f64>().map_err(|_| bad())? * scale as f64;
        if value.is_finite() && value >= 0.0 && value < u64::MAX as f64 {
            Ok(ByteSize(value as u64))
        } else {
            Err(bad())
        }
    }
}

impl FromStr for Amount {
    type Err = ParseSizeError;

    fn from_str(input: &str) -> Result<Self, Self::Err> {
        let Some(share) = input.trim().strip_suffix('%') else {
            return input.parse().map(Amount::Bytes);
        };
        let bad = || ParseSizeError { input: input.to_owned() };
        let value: f64 = share.trim().parse().map_err(|_| bad())?;
        if (0.0..=100.0).contains(&value) {
            Ok(Amount::MilliPercent((value * 1000.0).round() as u32))
        } else {
            Err(bad())
        }
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(&str, u64); 5] =
            [("PiB", 1 << 50), ("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
        for (unit, scale) in UNITS {
            if self.0 >= scale {
                let tenths = u128::from(self.0) * 10 / u128::from(scale);
                return if tenths.is_multiple_of(10) {
                    write!(f, "{} {unit}", tenths / 10)
                } else {
                    write!(f, "{}.{} {unit}", tenths / 10, tenths % 10)
                };
            }
        }
        write!(f, "{} B", self.0)
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Amount::Bytes(bytes) => bytes.fmt(f),
            Amount::MilliPercent(share) => write!(f, "{}%", f64::from(*share) / 1000.0),
        }
    }
}
