//! Fill levels as the user wrote them: when a branch or group moves files elsewhere, which, and until when.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use umbrella_units::Amount;

use super::condition::Condition;
use crate::schedule::Schedule;

/// 100 %.
const WHOLE: u32 = 100_000;

/// `evict` of a branch or group.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EvictSpec {
    /// Name of the branch or group that files leave.
    pub of: String,
    /// Used space above which files leave.
    pub above: Amount,
    /// Used space at which no more files leave.
    pub until: Amount,
    /// Which file leaves first.
    pub order: EvictOrder,
    /// Where files go, as far as their own lists allow: branches or groups. Empty: to what follows in their lists.
    pub to: Vec<String>,
    /// Only files for which these conditions hold.
    pub only: Vec<Condition>,
    /// A file that was changed more recently stays.
    pub min_age: Duration,
    /// Hours of the week in which files leave; without any, always.
    pub window: Schedule,
}

/// Which file leaves a branch first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EvictOrder {
    /// The one whose data was changed longest ago.
    #[default]
    Oldest,
    /// The one that was read longest ago.
    LeastRecentlyUsed,
    /// The largest.
    Largest,
    /// The file that was opened least often recently; of those that are as cold, the one whose data was changed longest
    /// ago.
    Coldest,
}

impl EvictSpec {
    /// Whether both marks are of one kind, the low one not above the high one, and neither above the whole.
    pub fn are_marks_in_order(&self) -> bool {
        match (self.above, self.until) {
            (Amount::Bytes(above), Amount::Bytes(until)) => until <= above,
            (Amount::MilliPercent(above), Amount::MilliPercent(until)) => until <= above && above <= WHOLE,
            _ => false,
        }
    }

    /// With the default order, for files of any kind and age, at any time.
    pub fn new(of: &str, above: Amount, until: Amount) -> EvictSpec {
        EvictSpec {
            of: of.to_owned(),
            above,
            until,
            order: EvictOrder::default(),
            to: Vec::new(),
            only: Vec::new(),
            min_age: Duration::ZERO,
            window: Schedule::default(),
        }
    }
}
