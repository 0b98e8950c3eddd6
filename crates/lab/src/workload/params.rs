//! Parameters of workloads: their names, valid values, and the sources of their defaults. Also the values that a user
//! gave, checked once, so that a workload reads them without errors.

use std::fmt;
use std::str::FromStr;

use umbrella_units::{ByteSize, Nanos, parse_duration};

use super::WorkloadError;

/// What a parameter may be.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ParamKind {
    /// A whole number.
    Count {
        /// The least.
        min: u64,
        /// The most.
        max: u64,
    },
    /// A size in bytes: `4096`, `16KiB`, `649MB`.
    Size {
        /// The least.
        min: ByteSize,
        /// The most.
        max: ByteSize,
    },
    /// A length of time: `60s`, `5min`.
    Duration,
    /// Any number.
    Number {
        /// The least.
        min: f64,
        /// The most.
        max: f64,
    },
    /// `true` or `false`.
    Flag,
    /// A path.
    Path,
}

impl fmt::Display for ParamKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ParamKind::Count { min, max } => write!(f, "a whole number from {min} to {max}"),
            ParamKind::Size { min, max } => write!(f, "a size from {} B to {max}, for example \"16KiB\"", min.0),
            ParamKind::Duration => write!(f, "a length of time above zero, for example \"60s\""),
            ParamKind::Number { min, max } => write!(f, "a number from {min} to {max}"),
            ParamKind::Flag => write!(f, "true or false"),
            ParamKind::Path => write!(f, "a path without commas"),
        }
    }
}

/// A parameter of a workload.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Param {
    /// Its name in a spec.
    pub name: &'static str,
    /// What it may be.
    pub kind: ParamKind,
    /// The value when none is given, as one would write it.
    pub default: &'static str,
    /// Where the default comes from: a paper, a program, or "assumed".
    pub source: &'static str,
    /// What it does.
    pub help: &'static str,
}

/// A value that fits its parameter.
#[derive(Debug, Clone, PartialEq)]
pub enum ParamValue {
    /// Of [`ParamKind::Count`].
    Count(u64),
    /// Of [`ParamKind::Size`].
    Size(ByteSize),
    /// Of [`ParamKind::Duration`].
    Duration(Nanos),
    /// Of [`ParamKind::Number`].
    Number(f64),
    /// Of [`ParamKind::Flag`].
    Flag(bool),
    /// Of [`ParamKind::Path`].
    Path(String),
}

impl ParamKind {
    /// Reads a value; `None` when it is not of this kind or out of range.
    fn parse(self, text: &str) -> Option<ParamValue> {
        match self {
            ParamKind::Count { min, max } => {
                text.parse().ok().filter(|n| (min..=max).contains(n)).map(ParamValue::Count)
            }
            ParamKind::Size { min, max } => {
                text.parse().ok().filter(|size: &ByteSize| (min..=max).contains(size)).map(ParamValue::Size)
            }
            ParamKind::Duration => {
                let nanos = u64::try_from(parse_duration(text).ok()?.as_nanos()).ok()?;
                (nanos > 0).then_some(ParamValue::Duration(Nanos(nanos)))
            }
            ParamKind::Number { min, max } => {
                text.parse().ok().filter(|n: &f64| (min..=max).contains(n)).map(ParamValue::Number)
            }
            ParamKind::Flag => text.parse().ok().map(ParamValue::Flag),
            ParamKind::Path => (!text.is_empty()).then(|| ParamValue::Path(text.to_owned())),
        }
    }
}

/// A value for each parameter of one workload: what was given, else the defaults.
#[derive(Debug, Clone, PartialEq)]
pub struct Params {
    workload: &'static str,
    known: &'static [Param],
    values: Vec<ParamValue>,
    given: Vec<bool>,
}

impl Params {
    /// Checks what was given against the parameters that there are.
    pub fn new<'a>(
        workload: &'static str,
        params: &'static [Param],
        given: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Params, WorkloadError> {
        let read = |param: &Param, text: &str| {
            param.kind.parse(text).ok_or_else(|| WorkloadError::BadValue {
                workload,
                param: param.name,
                value: text.to_owned(),
                wanted: param.kind.to_string(),
            })
        };
        let values = params.iter().map(|param| read(param, param.default)).collect::<Result<Vec<_>, _>>()?;
        let mut all = Params { workload, known: params, values, given: vec![false; params.len()] };
        for (name, text) in given {
            let Some(at) = params.iter().position(|param| param.name == name) else {
                let known: Vec<_> = params.iter().map(|param| param.name).collect();
                return Err(WorkloadError::UnknownParam { workload, param: name.to_owned(), known: known.join(", ") });
            };
            if std::mem::replace(&mut all.given[at], true) {
                return Err(WorkloadError::Repeated { workload, param: params[at].name });
            }
            all.values[at] = read(&params[at], text)?;
        }
        Ok(all)
    }

    /// The workload they are for.
    pub fn workload(&self) -> &'static str {
        self.workload
    }

    /// Whether the user gave it, also when it is the default.
    pub fn is_given(&self, name: &str) -> bool {
        self.known.iter().zip(&self.given).any(|(param, given)| param.name == name && *given)
    }

    /// A value by name. A name that the registry does not have is a mistake in the workload's own file.
    fn get(&self, name: &str) -> &ParamValue {
        let at = self.known.iter().position(|param| param.name == name);
        at.map_or_else(|| unreachable!("{} has no parameter {name}", self.workload), |at| &self.values[at])
    }

    /// A whole number.
    pub(super) fn count(&self, name: &str) -> u64 {
        match self.get(name) {
            ParamValue::Count(n) => *n,
            other => unreachable!("{}: {name} is no count but {other:?}", self.workload),
        }
    }

    /// A size.
    pub(super) fn size(&self, name: &str) -> ByteSize {
        match self.get(name) {
            ParamValue::Size(size) => *size,
            other => unreachable!("{}: {name} is no size but {other:?}", self.workload),
        }
    }

    /// A length of time.
    pub(super) fn duration(&self, name: &str) -> Nanos {
        match self.get(name) {
            ParamValue::Duration(time) => *time,
            other => unreachable!("{}: {name} is no duration but {other:?}", self.workload),
        }
    }

    /// A number.
    pub(super) fn number(&self, name: &str) -> f64 {
        match self.get(name) {
            ParamValue::Number(n) => *n,
            other => unreachable!("{}: {name} is no number but {other:?}", self.workload),
        }
    }

    /// A yes or no.
    pub(super) fn flag(&self, name: &str) -> bool {
        match self.get(name) {
            ParamValue::Flag(on) => *on,
            other => unreachable!("{}: {name} is no flag but {other:?}", self.workload),
        }
    }

    /// A path.
    pub(super) fn path(&self, name: &str) -> &str {
        match self.get(name) {
            ParamValue::Path(path) => path,
            other => unreachable!("{}: {name} is no path but {other:?}", self.workload),
        }
    }
}

/// The share of a workload that is run: from a millionth to 1. What exactly it shrinks each workload says; the lab
/// shrinks memory by the same factor, so that the ratio of data to memory stays.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub struct Scale(f64);

impl Scale {
    /// The whole workload.
    pub const FULL: Scale = Scale(1.0);

    /// This share of it.
    pub fn new(share: f64) -> Result<Scale, WorkloadError> {
        if (1e-6..=1.0).contains(&share) {
            Ok(Scale(share))
        } else {
            Err(WorkloadError::BadScale { value: format!("{share:?}") })
        }
    }

    /// The share, from a millionth to 1.
    pub fn share(self) -> f64 {
        self.0
    }

    /// A scaled count, rounded; never zero, unless `n` is.
    pub fn count(self, n: u64) -> u64 {
        if n == 0 { 0 } else { ((n as f64 * self.0).round() as u64).max(1) }
    }

    /// A scaled size; at least `unit` and a multiple of it, unless the scale is full.
    pub fn size(self, size: ByteSize, unit: ByteSize) -> ByteSize {
        if self == Scale::FULL {
            return size;
        }
        let units = (size.0 as f64 * self.0 / unit.0 as f64).round() as u64;
        ByteSize(units.max(1) * unit.0)
    }

    /// Shortened by this factor, but never to nothing.
    pub fn time(self, time: Nanos) -> Nanos {
        Nanos(((time.0 as f64 * self.0).round() as u64).max(1))
    }
}

impl FromStr for Scale {
    type Err = WorkloadError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let share = text.parse().map_err(|_| WorkloadError::BadScale { value: text.to_owned() })?;
        Scale::new(share)
    }
}
