//! What can be wrong with the choice of a policy.

use thiserror::Error;
use umbrella_units::did_you_mean;

use crate::param_info::ParamInfo;

/// A policy that cannot be made.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PolicyError {
    /// A name that no policy has.
    #[error("there is no policy \"{name}\"{}; known: {}", did_you_mean(name, known.iter().copied()), .known.join(", "))]
    UnknownPolicy {
        /// The name.
        name: String,
        /// All known names.
        known: Vec<&'static str>,
    },
    /// A name that no placement scheme of a log store has.
    #[error("there is no placement scheme \"{name}\"{}; known: {}", did_you_mean(name, known.iter().copied()), .known.join(", "))]
    UnknownScheme {
        /// The name.
        name: String,
        /// The allowed names.
        known: Vec<&'static str>,
    },
    /// A placement scheme for the lab only.
    #[error("the placement scheme \"{name}\" needs to know the future, which only the lab does; for a disk there are: {}", .known.join(", "))]
    NeedsFuture {
        /// The scheme.
        name: &'static str,
        /// Those for a disk.
        known: Vec<&'static str>,
    },
    /// A parameter that the policy does not have.
    #[error("\"{policy}\" has no parameter \"{param}\"{}{}", did_you_mean(param, known.iter().copied()), known_params(known))]
    UnknownParam {
        /// The policy.
        policy: &'static str,
        /// The parameter.
        param: String,
        /// The parameters it has.
        known: Vec<&'static str>,
    },
    /// A value that the parameter does not allow.
    #[error("\"{policy}\": {}={value} is not possible (give {})", .param.name, .param.allowed())]
    BadValue {
        /// The policy.
        policy: &'static str,
        /// The parameter.
        param: &'static ParamInfo,
        /// What was given.
        value: String,
    },
    /// A parameter that is given twice.
    #[error("\"{policy}\": parameter \"{param}\" is given twice (leave one)")]
    Twice {
        /// The policy.
        policy: String,
        /// The parameter.
        param: String,
    },
    /// A parameter without a value.
    #[error("\"{policy}\": \"{text}\" is not a parameter (write {policy}:name=value,name=value)")]
    NoValue {
        /// The policy.
        policy: String,
        /// The value found there.
        text: String,
    },
}

fn known_params(known: &[&'static str]) -> String {
    if known.is_empty() { "; it has no parameters".to_owned() } else { format!("; it has: {}", known.join(", ")) }
}

impl PolicyError {
    /// A name that is not among the known ones.
    pub fn unknown(name: &str, known: Vec<&'static str>) -> PolicyError {
        PolicyError::UnknownPolicy { name: name.to_owned(), known }
    }
}
