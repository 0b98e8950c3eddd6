//! Which branch a file belongs on: ordered rules, the name table, preference lists, room and hysteresis.
//!
//! Source: UmbrellaFS, chapter III. Rules are looked at in order and the first match wins; the name table stands at one
//! place in that order, and inside it the pattern with the longest overall match wins. No match: the default list.

mod choose;
mod compile;
mod condition;
mod domain;
mod error;
mod explain;
mod expression;
mod facts;
mod glob;
mod name_table;
mod reach;
mod requirement;
mod rules;
pub mod spec;
mod treatment;
mod words;

#[cfg(test)]
mod tests;

pub use condition::check_glob;
pub use error::RuleError;
pub use explain::{Explained, Part, Step};
pub use facts::{BranchView, FileFacts, Inodes, Resident, Stage, Xattr};
pub use glob::GlobError;
pub use reach::Unreachable;
pub use rules::{Asked, Choice, Decision, EntryId, EntryInfo, Rules};
