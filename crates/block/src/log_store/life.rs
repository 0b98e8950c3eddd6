//! What a segment holds between two times that it is filled: what was read of it is of one life, and worth nothing in
//! the next.
//!
//! The clock says so, except within one tick. A segment may be opened, filled by the cleaner, emptied by discards,
//! freed and opened again while users write nothing, and then the clock is as it was, though what is written from then
//! on is new. So of a segment that was opened at the tick that it is looked at nothing must have become free since,
//! either.

use umbrella_policy::log_layout::{Clock, SegmentNo};

use super::engine::StoreState;

/// One life of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Life {
    opened: Clock,
    /// What had been freed, where the clock alone does not say that it goes on.
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
    pub(super) fn goes_on(self, state: &StoreState, number: SegmentNo) -> bool {
        let segment = state.core.layout.table().get(number.0 as usize);
        segment.is_some_and(|segment| segment.opened == self.opened)
            && self.freed.is_none_or(|freed| freed == state.freed)
    }
}
