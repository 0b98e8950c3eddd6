//! What a disk takes from its supply, which says when sleeping pays: its break-even time, or the watts that it is
//! reckoned from.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::Serialize;
use toml::Spanned;
use umbrella_model::power::{Milliwatts, Phase, PowerSpec as Supply, SpindleSpec};
use umbrella_units::Nanos;

use super::file::PowerFile;
use super::values::word;
use crate::config::complaints::Complaints;
use crate::config::problem::Problem;
use crate::config::values::{Number, Scalar};

const MOST_WATTS: f64 = 1000.0;
const VALID_WATTS: &str = "more than 0, and at most 1000";
const LONGEST: Duration = Duration::from_secs(24 * 3600);
const VALID_TIME: &str = "more than 0, and at most 1d";

/// What `[power]` says.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(untagged)]
pub(crate) enum PowerSpec {
    /// The time itself.
    BreakEven {
        #[serde(serialize_with = "as_text")]
        break_even: Duration,
    },
    /// What it is reckoned from.
    Watts(Watts),
}

/// The powers of a disk in watts.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Watts {
    /// Turning, with nothing to do.
    pub(crate) idle: f64,
    /// Standing still.
    pub(crate) standby: f64,
    /// While it spins up.
    pub(crate) spin_up: f64,
    /// How long that takes, if it is not to be measured.
    #[serde(serialize_with = "as_text_or_null")]
    pub(crate) spin_up_time: Option<Duration>,
    pub(crate) source: WattsSource,
}

impl Watts {
    /// The break-even time of a disk that spins up in `time`; the motor takes nothing while it runs out.
    pub(crate) fn break_even(&self, time: Nanos) -> Nanos {
        let milli = |watts: f64| Milliwatts((watts * 1000.0) as u32);
        let rest = Phase { time: Nanos(0), power: milli(self.standby) };
        let spin_up = Phase { time, power: milli(self.spin_up) };
        let spindle = Some(SpindleSpec { standby: milli(self.standby), spin_down: rest, spin_up });
        let supply = Supply { active: milli(self.idle), idle: milli(self.idle), spindle };
        supply.break_even().unwrap_or(Nanos::NEVER)
    }
}

/// Where watts come from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum WattsSource {
    /// The maker's data sheet.
    #[default]
    Datasheet,
    /// A meter.
    Measured,
}

impl WattsSource {
    const WORDS: [&str; 2] = ["datasheet", "measured"];
}

impl FromStr for WattsSource {
    type Err = ();

    fn from_str(word: &str) -> Result<WattsSource, ()> {
        match word {
            "datasheet" => Ok(WattsSource::Datasheet),
            "measured" => Ok(WattsSource::Measured),
            _ => Err(()),
        }
    }
}

impl fmt::Display for WattsSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            WattsSource::Datasheet => "of a data sheet",
            WattsSource::Measured => "measured",
        })
    }
}

/// What a table says, if that is enough.
pub(super) fn power(c: &mut Complaints, file: &Spanned<PowerFile>) -> Option<PowerSpec> {
    let PowerFile { break_even, idle, standby, spin_up, spin_up_time, source } = file.get_ref();
    let others = [
        ("idle", idle.as_ref().map(Spanned::span)),
        ("standby", standby.as_ref().map(Spanned::span)),
        ("spin_up", spin_up.as_ref().map(Spanned::span)),
        ("spin_up_time", spin_up_time.as_ref().map(Spanned::span)),
        ("source", source.as_ref().map(Spanned::span)),
    ];
    if let Some(given) = break_even {
        for (key, span) in others.into_iter().filter_map(|(key, span)| Some((key, span?))) {
            c.fail(span, Problem::BesideBreakEven { key });
        }
        return Some(PowerSpec::BreakEven { break_even: time(c, "break_even", given)? });
    }
    let mut needed = |key, given: &Option<Spanned<Number>>| {
        if let Some(given) = given {
            return watts(c, key, given);
        }
        c.fail(file.span(), Problem::PowerNeedsKey { key });
        None
    };
    let (idle, standby_watts, spin_up) = (needed("idle", idle), needed("standby", standby), needed("spin_up", spin_up));
    let spin_up_time = spin_up_time.as_ref().and_then(|given| time(c, "spin_up_time", given));
    let source = source.as_ref().map_or_else(WattsSource::default, |given| word(c, Some(given), &WattsSource::WORDS));
    let (idle, watts, spin_up) = (idle?, standby_watts?, spin_up?);
    if let Some(given) = standby.as_ref().filter(|_| watts >= idle) {
        let given_text = given.get_ref().0.to_string();
        c.fail(given.span(), Problem::OutOfRange { key: "standby", given: given_text, valid: "less than idle" });
    }
    Some(PowerSpec::Watts(Watts { idle, standby: watts, spin_up, spin_up_time, source }))
}

fn watts(c: &mut Complaints, key: &'static str, given: &Spanned<Number>) -> Option<f64> {
    let watts = given.get_ref().0;
    if watts > 0.0 && watts <= MOST_WATTS {
        return Some(watts);
    }
    c.fail(given.span(), Problem::OutOfRange { key, given: watts.to_string(), valid: VALID_WATTS });
    None
}

fn time(c: &mut Complaints, key: &'static str, given: &Spanned<Scalar>) -> Option<Duration> {
    let time = c.duration(key, Some(given), Duration::from_secs(1));
    if !time.is_zero() && time <= LONGEST {
        return Some(time);
    }
    c.fail(given.span(), Problem::OutOfRange { key, given: given.get_ref().text(), valid: VALID_TIME });
    None
}

fn as_text<S: serde::Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&umbrella_units::format_duration(*time))
}

#[expect(clippy::ref_option, reason = "as serde calls it")]
fn as_text_or_null<S: serde::Serializer>(time: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    match time {
        Some(time) => as_text(time, serializer),
        None => serializer.serialize_none(),
    }
}
