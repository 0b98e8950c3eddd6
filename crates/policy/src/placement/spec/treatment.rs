//! How a rule's files are treated, apart from where they belong.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Whether new files wait in memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StagingMode {
    /// They wait while the rules need a fact that they do not have yet, and no longer.
    #[default]
    Auto,
    /// All of them wait, for as long as the staging area allows.
    Always,
    /// They are made on their branch at once.
    Never,
}

/// What a rule says of its files; what it does not say, a later rule or the branch does.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Treatment {
    /// Whether they wait in memory while they are new.
    pub staging: Option<StagingMode>,
    /// Whether their data may pass the daemon by.
    pub passthrough: Option<bool>,
    /// How long one that moved stays before it may move again.
    pub min_stay: Option<Duration>,
}

impl Treatment {
    /// Whether it says nothing.
    pub fn is_empty(&self) -> bool {
        *self == Treatment::default()
    }

    /// What this says, and what it leaves to the other.
    #[must_use]
    pub fn or(self, other: Treatment) -> Treatment {
        Treatment {
            staging: self.staging.or(other.staging),
            passthrough: self.passthrough.or(other.passthrough),
            min_stay: self.min_stay.or(other.min_stay),
        }
    }
}
