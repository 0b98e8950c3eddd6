//! Which branch a file belongs on: ordered rules, the name table, lists of branches and groups, room and hysteresis.
//!
//! Source: UmbrellaFS, chapter III. Rules are looked at in order, and the first match wins. The name table stands at
//! one place in that order; inside it the pattern with the longest overall match wins. No match: the default list.
//! Groups are our own: they decide which of several equal disks gets a file.

mod choose;
mod compile;
mod condition;
mod domain;
mod error;
mod evict;
mod explain;
mod expression;
mod facts;
mod glob;
mod group;
mod last_sizes;
mod leaving;
mod name_table;
mod outlook;
mod reach;
mod requirement;
mod rules;
mod slot;
pub mod spec;
mod spread;
mod surroundings;
mod treatment;
mod words;

#[cfg(test)]
mod tests;

pub use condition::check_glob;
pub use error::RuleError;
pub use evict::{Evict, Level, Selection, Urgency};
pub use explain::{Explained, ExplainedCondition, ExplainedRule};
pub use facts::{BranchView, FileFacts, Inodes, Resident, SizePeers, Stage, Xattr};
pub use glob::GlobError;
pub use group::{Group, NamePattern};
pub use last_sizes::LastSizes;
pub use leaving::Leaving;
pub use outlook::Outlook;
pub use reach::Unreachable;
pub use rules::{Asked, Choice, Decision, EntryId, EntryInfo, Rules};
pub use slot::Slot;
pub use surroundings::{DirUsage, Empty, Surroundings};
