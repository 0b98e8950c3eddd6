//! Figures as people read them: three significant digits and the unit that keeps the number short, and long times in
//! minutes, hours and days. Terminals and pages share this code, so that a figure looks the same wherever it is shown.

use super::{Metric, Unit};

const DECIMAL: [&str; 5] = ["", " k", " M", " G", " T"];
const BINARY: [&str; 6] = [" B", " KiB", " MiB", " GiB", " TiB", " PiB"];
const TIME: [&str; 4] = [" ns", " \u{b5}s", " ms", " s"];
/// Above this many nanoseconds a time is shown in minutes, hours or days.
const LONG: f64 = 120e9;
/// Below this a count is written out.
const WRITTEN_OUT: f64 = 10_000.0;

impl Metric {
    /// The value with its unit: `1.53 s`, `4.2 MiB`, `81 MiB/s`, `1.2 M`; `-` where there is no number.
    pub fn show(&self, value: f64) -> String {
        self.unit.show(value)
    }
}

impl Unit {
    /// The value with this unit, in the unit's own steps of 1000 or 1024.
    pub fn show(self, value: f64) -> String {
        if !value.is_finite() {
            return "-".to_owned();
        }
        match self {
            Unit::Seconds => time(value * 1e9),
            Unit::Micros => time(value * 1e3),
            Unit::Bytes => scaled(value, 1024.0, &BINARY),
            Unit::BytesPerSecond => scaled(value, 1024.0, &BINARY) + "/s",
            Unit::Blocks | Unit::Count => count(value),
            Unit::PerSecond => count(value) + "/s",
        }
    }

    /// What is a round number in this unit: steps of an axis are round multiples of it.
    pub(crate) fn step(self, value: f64) -> f64 {
        match self {
            Unit::Bytes | Unit::BytesPerSecond if value >= 1.0 => 1024_f64.powf(value.log(1024.0).floor()),
            _ => 1.0,
        }
    }
}

/// How much `value` differs from `first`: `-12 %`, `+3.4 %`, `x25`. `None` if a share would have no meaning.
pub fn change(first: f64, value: f64) -> Option<String> {
    if !(first.is_finite() && value.is_finite() && first > 0.0 && value >= 0.0) {
        return None;
    }
    let percent = (value / first - 1.0) * 100.0;
    Some(match percent.abs() {
        part if part < 0.05 => "0 %".to_owned(),
        part if part < 9.95 => format!("{percent:+.1} %"),
        part if part < 999.5 => format!("{percent:+.0} %"),
        _ => format!("x{:.0}", value / first),
    })
}

fn time(nanos: f64) -> String {
    match nanos {
        0.0 => "0 s".to_owned(),
        _ if nanos > LONG => long_time((nanos / 1e9).round() as u64),
        _ => scaled(nanos, 1000.0, &TIME),
    }
}

/// A time in its two largest units.
fn long_time(seconds: u64) -> String {
    let (minutes, hours) = ((seconds + 30) / 60, (seconds + 1800) / 3600);
    let (whole, unit, rest, small) = match seconds {
        ..3600 => (seconds / 60, "min", seconds % 60, "s"),
        _ if minutes < 24 * 60 => (minutes / 60, "h", minutes % 60, "min"),
        _ => (hours / 24, "d", hours % 24, "h"),
    };
    if rest == 0 { format!("{whole} {unit}") } else { format!("{whole} {unit} {rest} {small}") }
}

fn count(value: f64) -> String {
    if rounded(value).abs() < WRITTEN_OUT { digits(value) } else { scaled(value, 1000.0, &DECIMAL) }
}

fn scaled(mut value: f64, base: f64, units: &[&str]) -> String {
    let mut unit = 0;
    while unit + 1 < units.len() && rounded(value).abs() >= base {
        value /= base;
        unit += 1;
    }
    digits(value) + units[unit]
}

/// Decimals that leave three significant digits.
fn decimals(value: f64) -> usize {
    match value.abs() {
        size if size < 9.995 => 2,
        size if size < 99.95 => 1,
        _ => 0,
    }
}

fn rounded(value: f64) -> f64 {
    let scale = 10_f64.powi(decimals(value) as i32);
    (value * scale).round() / scale
}

fn digits(value: f64) -> String {
    let text = format!("{:.*}", decimals(value), rounded(value));
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::METRICS;

    #[test]
    fn every_unit_is_shown_with_three_digits() {
        let cases = [
            (Unit::Seconds, 1.534, "1.53 s"),
            (Unit::Seconds, 0.0123, "12.3 ms"),
            (Unit::Seconds, 120.0, "120 s"),
            (Unit::Seconds, 278.3, "4 min 38 s"),
            (Unit::Seconds, 300.0, "5 min"),
            (Unit::Seconds, 3599.6, "1 h"),
            (Unit::Seconds, 86_399.0, "1 d"),
            (Unit::Seconds, 577_000.0, "6 d 16 h"),
            (Unit::Micros, 278.3e6, "4 min 38 s"),
            (Unit::Seconds, 0.0, "0 s"),
            (Unit::Seconds, 0.99996, "1 s"),
            (Unit::Micros, 0.25, "250 ns"),
            (Unit::Micros, 850.0, "850 \u{b5}s"),
            (Unit::Micros, 2_500_000.0, "2.5 s"),
            (Unit::Bytes, 0.0, "0 B"),
            (Unit::Bytes, 1023.7, "1 KiB"),
            (Unit::Bytes, 4.2 * 1024.0 * 1024.0, "4.2 MiB"),
            (Unit::BytesPerSecond, 81.0 * 1024.0 * 1024.0, "81 MiB/s"),
            (Unit::Blocks, 1234.0, "1234"),
            (Unit::Blocks, 33.333, "33.3"),
            (Unit::Count, 9999.6, "10 k"),
            (Unit::Count, 1_234_567.0, "1.23 M"),
            (Unit::PerSecond, 12_345.0, "12.3 k/s"),
            (Unit::Bytes, u64::MAX as f64, "16384 PiB"),
        ];
        for (unit, value, text) in cases {
            assert_eq!(unit.show(value), text, "{unit:?} {value}");
        }
    }

    #[test]
    fn what_is_no_number_is_a_dash_in_every_figure() {
        for metric in METRICS {
            assert_eq!([f64::NAN, f64::INFINITY].map(|value| metric.show(value)), ["-", "-"], "{}", metric.name);
        }
    }

    #[test]
    fn a_change_is_a_signed_share_of_the_first_and_a_factor_when_large() {
        let cases = [(100.0, 88.0, "-12 %"), (100.0, 103.4, "+3.4 %"), (7.0, 7.0, "0 %"), (1.0, 25.0, "x25")];
        for (first, value, text) in cases {
            assert_eq!(change(first, value).as_deref(), Some(text));
        }
        assert_eq!(change(0.0, 5.0), None);
        assert_eq!(change(1.0, f64::NAN), None);
    }
}
