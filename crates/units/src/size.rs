//! Sizes in bytes and shares of a space, as people write them.

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
    /// A number of bytes.
    Bytes(ByteSize),
    /// A share of the whole: 5 % is 5000.
    MilliPercent(u32),
}

/// A size or amount that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{input:?} is {}", .wrong.reason())]
pub struct ParseSizeError {
    /// What was given.
    pub input: String,
    /// The cause.
    pub wrong: WrongSize,
}

/// An error in a size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WrongSize {
    /// It is none.
    NoSize,
    /// It is neither a size nor a share of a whole.
    NoAmount,
    /// It is one of 16 EiB or more.
    TooLarge,
}

impl WrongSize {
    fn reason(self) -> &'static str {
        match self {
            WrongSize::NoSize => "not a size (write for example \"512\", \"10MB\" or \"4GiB\")",
            WrongSize::NoAmount => "not a size (write for example \"512\", \"10MB\", \"4GiB\" or \"5%\")",
            WrongSize::TooLarge => "too large (write less than 16 EiB)",
        }
    }
}

impl Amount {
    /// Whether it is zero, whatever the whole is.
    pub fn is_zero(self) -> bool {
        matches!(self, Amount::Bytes(ByteSize(0)) | Amount::MilliPercent(0))
    }

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
        let wrong = |wrong| ParseSizeError { input: input.to_owned(), wrong };
        let bad = || wrong(WrongSize::NoSize);
        let too_large = || wrong(WrongSize::TooLarge);
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
            "e" | "eib" => 1 << 60,
            "kb" => 1_000,
            "mb" => 1_000_000,
            "gb" => 1_000_000_000,
            "tb" => 1_000_000_000_000,
            "pb" => 1_000_000_000_000_000,
            "eb" => 1_000_000_000_000_000_000,
            _ => return Err(bad()),
        };
        if let Ok(whole) = number.parse::<u64>() {
            return whole.checked_mul(scale).map(ByteSize).ok_or_else(too_large);
        }
        let value = number.parse::<f64>().map_err(|_| bad())? * scale as f64;
        if value < u64::MAX as f64 { Ok(ByteSize(value as u64)) } else { Err(too_large()) }
    }
}

impl FromStr for Amount {
    type Err = ParseSizeError;

    fn from_str(input: &str) -> Result<Self, Self::Err> {
        let Some(share) = input.trim().strip_suffix('%') else {
            let amount = |wrong| if wrong == WrongSize::NoSize { WrongSize::NoAmount } else { wrong };
            let or_share = |error: ParseSizeError| ParseSizeError { wrong: amount(error.wrong), ..error };
            return input.parse().map(Amount::Bytes).map_err(or_share);
        };
        let bad = || ParseSizeError { input: input.to_owned(), wrong: WrongSize::NoAmount };
        let value: f64 = share.trim().parse().map_err(|_| bad())?;
        if (0.0..=100.0).contains(&value) {
            Ok(Amount::MilliPercent((value * 1000.0).round() as u32))
        } else {
            Err(bad())
        }
    }
}

impl ByteSize {
    /// Two sizes in words that differ if they do: with their bytes where they would look alike.
    pub fn told_apart(self, other: ByteSize) -> [String; 2] {
        let rounded = [self, other].map(|size| size.to_string());
        match &rounded {
            [a, b] if a == b && self != other => [self, other].map(|size| format!("{size} ({} bytes)", size.0)),
            _ => rounded,
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_unit_of_a_size_is_read() {
        let cases = [
            ("0", 0),
            ("4096", 4096),
            ("512 B", 512),
            ("1k", 1 << 10),
            ("1KiB", 1 << 10),
            ("1kB", 1_000),
            ("4m", 4 << 20),
            ("4MiB", 4 << 20),
            ("10MB", 10_000_000),
            ("4 GiB", 4 << 30),
            ("2gb", 2_000_000_000),
            ("1TiB", 1 << 40),
            ("1TB", 1_000_000_000_000),
            ("3PiB", 3 << 50),
            ("3pb", 3_000_000_000_000_000),
            ("8 EiB", 8 << 60),
            ("2EB", 2_000_000_000_000_000_000),
            ("1.5 KiB", 1536),
            (" 7 ", 7),
            ("18446744073709551615", u64::MAX),
        ];
        for (text, bytes) in cases {
            assert_eq!(text.parse(), Ok(ByteSize(bytes)), "{text:?}");
        }
    }

    #[test]
    fn what_is_no_size_is_refused_and_quoted() {
        let refused = |text: &str, wrong| {
            let error = ParseSizeError { input: text.to_owned(), wrong };
            assert_eq!(text.parse::<ByteSize>(), Err(error), "{text:?}");
        };
        for text in ["", "MiB", "-1", "1 XB", "5%", "1..5", ".", "1e3", "\u{e9}"] {
            refused(text, WrongSize::NoSize);
        }
        for text in ["16777216 TiB", "99999999999999999999", "16EiB", "16.5 EiB", "18446744073709551616.0"] {
            refused(text, WrongSize::TooLarge);
        }
        let reported = |text: &str| text.parse::<Amount>().unwrap_err().to_string();
        assert_eq!(reported("16EiB"), "\"16EiB\" is too large (write less than 16 EiB)");
        assert!(
            reported("1 XB").starts_with("\"1 XB\" is not a size (write for example ")
                && reported("1 XB").contains("5%")
        );
        assert!(!"1 XB".parse::<ByteSize>().unwrap_err().to_string().contains("5%"));
    }

    #[test]
    fn two_sizes_that_look_alike_are_reported_in_bytes_too() {
        let reported = |a: u64, b: u64| ByteSize(a).told_apart(ByteSize(b));
        assert_eq!(reported(8_069_120, 8_073_216), ["7.6 MiB (8069120 bytes)", "7.6 MiB (8073216 bytes)"]);
        assert_eq!(reported(1 << 20, 2 << 20), ["1 MiB", "2 MiB"]);
        assert_eq!(reported(5, 5), ["5 B", "5 B"]);
    }

    #[test]
    fn sizes_are_written_with_one_decimal_rounded_down() {
        let cases = [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1 KiB"),
            (1536, "1.5 KiB"),
            (2047, "1.9 KiB"),
            (u64::MAX, "16383.9 PiB"),
        ];
        for (bytes, text) in cases {
            assert_eq!(ByteSize(bytes).to_string(), text);
        }
    }

    #[test]
    fn an_amount_is_bytes_or_a_share_of_the_whole() {
        assert_eq!("10KiB".parse(), Ok(Amount::Bytes(ByteSize(10_240))));
        assert_eq!("5%".parse(), Ok(Amount::MilliPercent(5_000)));
        assert_eq!(" 0.125 % ".parse(), Ok(Amount::MilliPercent(125)));
        assert!("0".parse::<Amount>().unwrap().is_zero() && "0%".parse::<Amount>().unwrap().is_zero());
        assert!(!"1".parse::<Amount>().unwrap().is_zero() && !"1%".parse::<Amount>().unwrap().is_zero());
        assert_eq!(Amount::Bytes(ByteSize(7)).of(ByteSize(1)), ByteSize(7));
        assert_eq!(Amount::MilliPercent(5_000).of(ByteSize(1_000)), ByteSize(50));
        assert_eq!(Amount::MilliPercent(33_333).of(ByteSize(10)), ByteSize(3));
    }

    #[test]
    fn a_share_below_nothing_or_above_everything_is_refused() {
        for text in ["-1%", "100.5%", "NaN%", "inf%", "%", "x%"] {
            assert!(text.parse::<Amount>().is_err(), "{text:?}");
        }
        assert_eq!("100%".parse::<Amount>().unwrap().of(ByteSize(u64::MAX)), ByteSize(u64::MAX));
    }

    proptest! {
        #[test]
        fn a_written_size_is_read_back_within_a_tenth_of_its_unit(bytes in any::<u64>()) {
            let back: ByteSize = ByteSize(bytes).to_string().parse().unwrap();
            prop_assert!(back.0 <= bytes);
            prop_assert!(bytes - back.0 <= bytes / 10 + 1, "{} came back as {}", bytes, back.0);
        }

        #[test]
        fn a_written_share_is_read_back(share in 0u32..=100_000) {
            let amount = Amount::MilliPercent(share);
            prop_assert_eq!(amount.to_string().parse(), Ok(amount));
        }

        #[test]
        fn a_share_is_never_more_than_the_whole(share in 0u32..=100_000, total in any::<u64>()) {
            prop_assert!(Amount::MilliPercent(share).of(ByteSize(total)).0 <= total);
        }

        #[test]
        fn any_text_is_read_or_refused(text in "[ 0-9a-zA-Z.%é-]{0,24}|.{0,12}") {
            let _ = text.parse::<ByteSize>();
            let _ = text.parse::<Amount>();
        }
    }
}
