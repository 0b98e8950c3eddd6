//! When a disk sleeps.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;
use thiserror::Error;
use umbrella_policy::spin_down::{Costs, SpinDown};
use umbrella_policy::{PolicyError, Spec};
use umbrella_units::Nanos;

/// When a disk sleeps: a spin-down policy with its parameters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub(crate) struct SleepSpec {
    text: String,
}

impl Default for SleepSpec {
    fn default() -> SleepSpec {
        SleepSpec { text: "adaptive".to_owned() }
    }
}

impl SleepSpec {
    /// Whether the disk should continue turning.
    pub(crate) fn is_never(&self) -> bool {
        self.text == "never"
    }
}

/// A spin-down policy that cannot be had.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(crate) enum BadSleep {
    #[error(transparent)]
    Policy(#[from] PolicyError),
    #[error("the policy {name:?} needs to know the future, which only the lab does")]
    Offline { name: &'static str },
}

impl FromStr for SleepSpec {
    type Err = BadSleep;

    fn from_str(text: &str) -> Result<SleepSpec, BadSleep> {
        let spec: Spec = text.parse()?;
        // Which parameters are good does not depend on the disk.
        let costs = Costs { break_even: Nanos::from_secs(10) };
        let policy = SpinDown::new(&spec.name, &spec.params, costs)?;
        if policy.info().offline {
            return Err(BadSleep::Offline { name: policy.name() });
        }
        Ok(SleepSpec { text: text.trim().to_owned() })
    }
}

impl fmt::Display for SleepSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}
