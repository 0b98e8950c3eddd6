//! Rules as the user wrote them: branch names, not ids. Plain data, sent as JSON when rules are reloaded on a live mount.

mod condition;
mod treatment;

use serde::{Deserialize, Serialize};

pub use condition::*;
pub use treatment::*;

/// All rules of a pool, in order, and the default list.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RulesSpec {
    /// First match wins.
    pub rules: Vec<RuleSpec>,
    /// Where a file goes that no rule names: branch names in order of preference.
    pub default: Vec<String>,
}

/// One rule, or the name table.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RuleSpec {
    /// Shown by `explain` and in the counters.
    pub name: String,
    /// What the rule looks at.
    pub kind: RuleKindSpec,
    /// How its files are treated; of the name table, nothing.
    #[serde(default)]
    pub treatment: Treatment,
}

/// A metadata rule, or THE name table (at most one in a pool).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RuleKindSpec {
    /// All conditions must hold.
    When {
        /// Joined by and; empty matches every file.
        conditions: Vec<Condition>,
        /// Where a matching file belongs.
        to: DestinationSpec,
    },
    /// As `When`, for the treatment of files: the next rules say where they belong.
    Treat {
        /// Joined by and; empty matches every file.
        conditions: Vec<Condition>,
    },
    /// The longest overall match wins.
    Names(Vec<NameEntrySpec>),
}

/// One pattern of the name table.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NameEntrySpec {
    /// Matched against the path inside the pool, which begins with `/`. `**` crosses directories; `*` and `?` do not.
    pub glob: String,
    /// Where a matching file belongs.
    pub to: DestinationSpec,
}

/// Branches in order of preference.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DestinationSpec {
    /// Branch names; the first that is online and has room is used.
    pub branches: Vec<String>,
    /// Whether, when none of them has room, the default list and then any other branch may be used.
    pub spill: bool,
}
