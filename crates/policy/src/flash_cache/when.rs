//! When the log is flushed.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// When the log is flushed, always all that it then has. Source of `Each` and `Full`: section 2.1; the others are ours.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FlushTrigger {
    /// At every spin-up, whatever the disk was woken for.
    Each,
    /// Only when the next write does not fit.
    Full,
    /// As soon as the log has filled up to the high mark, so that writers need not wait for the disk.
    Watermark,
    /// That, and whenever something else has woken the disk and it has become quiet again: it costs no spin-up and is
    /// in no request's way.
    #[default]
    Piggyback,
}

/// What just happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// The disk has spun up.
    SpunUp,
    /// A write went into the log.
    Logged,
    /// The disk spins, and no request has come for a while.
    Quiet,
    /// A write does not fit into the log.
    Full,
}

/// How full the log is, in sectors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fill {
    /// What may not be overwritten.
    pub used: u64,
    /// What there is.
    pub size: u64,
}

/// A share of a hundred.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Percent(pub u8);

impl Percent {
    /// That share of `whole`, rounded down; never more than all.
    pub fn of(self, whole: u64) -> u64 {
        let share = u128::from(whole) * u128::from(self.0.min(100)) / 100;
        share as u64
    }
}

impl FlushTrigger {
    /// All of them, in the order of the documentation.
    pub const ALL: [FlushTrigger; 4] =
        [FlushTrigger::Each, FlushTrigger::Full, FlushTrigger::Watermark, FlushTrigger::Piggyback];

    /// The high mark, unless the user says otherwise.
    pub const HIGH: Percent = Percent(75);

    /// Whether to flush now.
    pub fn flushes(self, moment: Moment, fill: Fill, high: Percent) -> bool {
        let marked = fill.used > 0 && fill.used >= high.of(fill.size);
        match moment {
            Moment::Full => true,
            Moment::SpunUp => self == FlushTrigger::Each && fill.used > 0,
            Moment::Logged => matches!(self, FlushTrigger::Watermark | FlushTrigger::Piggyback) && marked,
            Moment::Quiet => self == FlushTrigger::Piggyback && fill.used > 0,
        }
    }

    /// What users call it.
    pub fn name(self) -> &'static str {
        match self {
            FlushTrigger::Each => "each",
            FlushTrigger::Full => "full",
            FlushTrigger::Watermark => "watermark",
            FlushTrigger::Piggyback => "piggyback",
        }
    }
}

impl fmt::Display for FlushTrigger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A name that no policy has.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("no policy for flushing is called {name:?} (known: each, full, watermark, piggyback)")]
pub struct UnknownWhen {
    /// What was asked for.
    pub name: String,
}

impl FromStr for FlushTrigger {
    type Err = UnknownWhen;

    fn from_str(name: &str) -> Result<FlushTrigger, UnknownWhen> {
        let known = FlushTrigger::ALL.into_iter().find(|when| when.name() == name);
        known.ok_or_else(|| UnknownWhen { name: name.to_owned() })
    }
}
