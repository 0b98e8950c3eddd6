//! What can be wrong with rules.

use thiserror::Error;

use super::glob::GlobError;

/// Rules that cannot be compiled.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RuleError {
    /// A name that no branch has.
    #[error("rule \"{rule}\": there is no branch \"{branch}\"{}", known_names(.known))]
    UnknownBranch {
        /// The rule, or `default`.
        rule: String,
        /// The name it uses.
        branch: String,
        /// Names in these rules that do exist.
        known: Vec<String>,
    },
    /// A destination without a branch.
    #[error("rule \"{rule}\": `to` names no branch (give at least one)")]
    EmptyDestination {
        /// The rule.
        rule: String,
    },
    /// A default list without a branch.
    #[error("`default` names no branch (give at least one: files that no rule matches go there)")]
    EmptyDefault,
    /// A branch that stands twice in one list.
    #[error("rule \"{rule}\": branch \"{branch}\" is in the list twice (keep the first)")]
    DuplicateBranch {
        /// The rule, or `default`.
        rule: String,
        /// The branch.
        branch: String,
    },
    /// More than one name table.
    #[error("rule \"{rule}\": a second name table (the first is \"{first}\"; put all patterns there)")]
    SecondNameTable {
        /// The second.
        rule: String,
        /// The first.
        first: String,
    },
    /// A pattern that cannot be read.
    #[error("rule \"{rule}\": pattern \"{glob}\": {reason}")]
    BadGlob {
        /// The rule.
        rule: String,
        /// The pattern.
        glob: String,
        /// What is wrong with it.
        reason: GlobError,
    },
    /// Conditions inside conditions inside conditions...
    #[error(
        "rule \"{rule}\": `not`, `any` and `all` stand inside each other more than {} deep (write several rules)",
        super::spec::Condition::MAX_DEPTH
    )]
    TooDeep {
        /// The rule.
        rule: String,
    },
    /// A comparison that the condition does not have.
    #[error("rule \"{rule}\": `{condition}` can only be compared with = and !=")]
    BadComparison {
        /// The rule.
        rule: String,
        /// The condition.
        condition: &'static str,
    },
}

fn known_names(known: &[String]) -> String {
    if known.is_empty() {
        return String::new();
    }
    let quoted: Vec<String> = known.iter().map(|name| format!("\"{name}\"")).collect();
    format!(" (known here: {})", quoted.join(", "))
}
