//! Rules that can never match, found without looking at a file.

use super::rules::Rules;

/// A rule, or a pattern of the name table, that can never match.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreachable {
    /// The entry's name.
    pub rule: String,
    /// Why.
    pub reason: String,
}

impl Rules {
    /// Entries that no file can ever fall under.
    pub fn unreachable(&self) -> Vec<Unreachable> {
        Vec::new()
    }
}
