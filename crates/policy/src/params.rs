//! Parameters of policies: what each is and allows, and the values that a user gave.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use umbrella_units::{Nanos, PAGE_BYTES, Pages};

use crate::error::PolicyError;
use crate::param_info::ParamInfo;

/// Parameters as a user gave them; a policy's defaults stand in for the others.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Params {
    given: BTreeMap<String, String>,
}

impl Params {
    /// No parameter: all defaults.
    pub fn new() -> Params {
        Params::default()
    }

    /// Gives a parameter a value, in place of the one it has.
    #[must_use]
    pub fn with(mut self, name: &str, value: &str) -> Params {
        self.given.insert(name.to_owned(), value.to_owned());
        self
    }

    /// The parameters that were given, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.given.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Checks the parameters against those that the policy has.
    pub(crate) fn check(&self, policy: &'static str, infos: &'static [ParamInfo]) -> Result<ParamValues, PolicyError> {
        let mut values = BTreeMap::new();
        for info in infos {
            let text = self.given.get(info.name).map_or(info.default, String::as_str);
            let bad = || PolicyError::BadValue { policy, param: info, value: text.to_owned() };
            values.insert(info.name, info.value(text).ok_or_else(bad)?);
        }
        match self.given.keys().find(|name| !values.contains_key(name.as_str())) {
            None => Ok(ParamValues { values }),
            Some(name) => Err(PolicyError::UnknownParam {
                policy,
                param: name.clone(),
                known: infos.iter().map(|info| info.name).collect(),
            }),
        }
    }
}

/// A policy's name with parameters: `zone_segment:alpha=50,zone=8MiB`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spec {
    /// The name.
    pub name: String,
    /// The parameters.
    pub params: Params,
}

impl fmt::Display for Spec {
    /// As [`Spec::from_str`] reads it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        for (place, (name, value)) in self.params.iter().enumerate() {
            write!(f, "{}{name}={value}", if place == 0 { ':' } else { ',' })?;
        }
        Ok(())
    }
}

impl FromStr for Spec {
    type Err = PolicyError;

    fn from_str(text: &str) -> Result<Spec, PolicyError> {
        let (name, rest) = text.split_once(':').unwrap_or((text, ""));
        let policy = || name.trim().to_owned();
        let mut params = Params::new();
        for part in rest.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let no_value = || PolicyError::NoValue { policy: policy(), text: part.to_owned() };
            let (param, value) = part.split_once('=').ok_or_else(no_value)?;
            let param = param.trim().to_owned();
            if params.given.contains_key(&param) {
                return Err(PolicyError::Twice { policy: policy(), param });
            }
            params.given.insert(param, value.trim().to_owned());
        }
        Ok(Spec { name: policy(), params })
    }
}

/// A policy's parameters, all of them, checked. To ask for one that the policy has not declared gives zero.
#[derive(Debug, Clone)]
pub struct ParamValues {
    values: BTreeMap<&'static str, u64>,
}

impl ParamValues {
    fn get(&self, name: &str) -> u64 {
        self.values.get(name).copied().unwrap_or(0)
    }

    /// A size, in whole pages.
    pub fn pages(&self, name: &str) -> Pages {
        Pages(self.get(name) / PAGE_BYTES)
    }

    /// A number.
    pub fn number(&self, name: &str) -> u64 {
        self.get(name)
    }

    /// A number with decimals.
    pub fn decimal(&self, name: &str) -> f64 {
        self.get(name) as f64 / 1000.0
    }

    /// A time.
    pub fn duration(&self, name: &str) -> Nanos {
        Nanos(self.get(name))
    }

    /// A flag.
    pub fn flag(&self, name: &str) -> bool {
        self.get(name) != 0
    }
}
