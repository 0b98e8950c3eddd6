//! The life of a segment: the time between two fillings. Blocks that were read in one life are worthless in the next.
//!
//! The clock tells lives apart, except within one tick. While users write nothing, the clock stands still. Yet a
//! segment may be opened, filled by the cleaner, emptied by discards, freed and opened again, and its blocks are new
//! from then on. So a segment that was opened at the current tick has the same life only if no segment has become free
//! since.

use umbrella_policy::log_layout::{Clock, SegmentNo};

use super::engine::StoreState;

/// One life of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Life {
    opened: Clock,
    /// What had been freed, where the clock alone does not say that it continues.
    freed: Option<u64>,
}

impl Life {
    /// The one that a segment has now.
    pub(super) fn now(state: &StoreState, number: SegmentNo) -> Life {
        let layout = &state.core.layout;
        let opened = layout.table().get(number.0 as usize).map_or(Clock(0), |segment| segment.opened);
        Life { opened, freed: (opened == layout.clock()).then_some(state.freed) }
    }

    /// Whether a segment has it still.
    pub(super) fn is_current(self, state: &StoreState, number: SegmentNo) -> bool {
        let segment = state.core.layout.table().get(number.0 as usize);
        segment.is_some_and(|segment| segment.opened == self.opened)
            && self.freed.is_none_or(|freed| freed == state.freed)
    }
}
