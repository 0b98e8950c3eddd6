//! The disk's heads: where they are, and how far they went.

use umbrella_policy::log_layout::LogBlock;
use umbrella_units::Pages;

use super::outcome::Travel;

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Head {
    at: u64,
    travel: Travel,
}

impl Head {
    /// Serves a request for `blocks` blocks there.
    pub(super) fn serve(&mut self, start: LogBlock, blocks: Pages) {
        self.travel.distance.0 += self.at.abs_diff(start.0);
        self.travel.requests += 1;
        self.at = start.0 + blocks.0;
    }

    /// How far the heads went.
    pub(super) fn travel(&self) -> Travel {
        self.travel
    }

    /// Forgets how far they went, not where they are.
    pub(super) fn reset(&mut self) {
        self.travel = Travel::default();
    }
}
