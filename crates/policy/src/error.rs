//! What can be wrong with the choice of a policy.

use thiserror::Error;

use crate::params::ParamInfo;

/// A policy that cannot be made.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PolicyError {
    /// A name that no policy has.
    #[error("there is no policy \"{name}\"{}; known: {}", did_you_mean(*.nearest), .known.join(", "))]
    UnknownPolicy {
        /// The name.
        name: String,
        /// The known name that is most like it, if one is.
        nearest: Option<&'static str>,
        /// All known names.
        known: Vec<&'static str>,
    },
    /// A parameter that the policy does not have.
    #[error("policy \"{policy}\" has no parameter \"{param}\"{}", known_params(.known))]
    UnknownParam {
        /// The policy.
        policy: &'static str,
        /// The parameter.
        param: String,
        /// The parameters it has.
        known: Vec<&'static str>,
    },
    /// A value that the parameter does not allow.
    #[error("policy \"{policy}\": {}={value} is not possible (give {})", .param.name, .param.allowed())]
    BadValue {
        /// The policy.
        policy: &'static str,
        /// The parameter.
        param: &'static ParamInfo,
        /// What was given.
        value: String,
    },
    /// A parameter that is given twice.
    #[error("policy \"{policy}\": parameter \"{param}\" is given twice (leave one)")]
    Twice {
        /// The policy.
        policy: String,
        /// The parameter.
        param: String,
    },
    /// A parameter without a value.
    #[error("policy \"{policy}\": \"{text}\" is no parameter (write {policy}:name=value,name=value)")]
    NoValue {
        /// The policy.
        policy: String,
        /// What stands there.
        text: String,
    },
}

fn did_you_mean(name: Option<&'static str>) -> String {
    name.map_or_else(String::new, |name| format!(" (did you mean \"{name}\"?)"))
}

fn known_params(known: &[&'static str]) -> String {
    if known.is_empty() { "; it has none".to_owned() } else { format!("; it has: {}", known.join(", ")) }
}

impl PolicyError {
    /// A name that is not among the known ones.
    pub fn unknown(name: &str, known: Vec<&'static str>) -> PolicyError {
        PolicyError::UnknownPolicy { name: name.to_owned(), nearest: nearest(name, &known), known }
    }
}

/// The known name that differs from `name` in the fewest letters, if they are fewer than half of its own.
fn nearest(name: &str, known: &[&'static str]) -> Option<&'static str> {
    let best = *known.iter().min_by_key(|known| distance(name, known))?;
    (2 * distance(name, best) < best.len()).then_some(best)
}

/// Letters to insert, delete or change until one is the other.
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.chars().count()).collect();
    for (i, x) in a.chars().take(64).enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.chars().enumerate() {
            let change = diagonal + usize::from(x != y);
            let fewest = change.min(row[j] + 1).min(row[j + 1] + 1);
            diagonal = std::mem::replace(&mut row[j + 1], fewest);
        }
    }
    row.last().copied().unwrap_or(0)
}
