//! What damage of the log takes away.

use super::ranges::joined;
use serde::{Deserialize, Serialize};
use umbrella_units::SectorRange;

/// Lost parts of the newest data.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Losses {
    /// Sectors whose newest data is lost.
    pub at_risk: Vec<SectorRange>,
    /// Records that are lost with no trace of their contents: any sector may be older than it should be.
    pub unknown_records: u64,
}

impl Losses {
    /// Whether nothing is lost.
    pub fn is_empty(&self) -> bool {
        *self == Losses::default()
    }

    /// Both together.
    #[must_use]
    pub fn and(mut self, more: Losses) -> Losses {
        self.at_risk.extend(more.at_risk);
        self.at_risk.sort_unstable_by_key(|range| range.start);
        Losses { at_risk: joined(self.at_risk), unknown_records: self.unknown_records + more.unknown_records }
    }
}
