//! Which blocks were never written, or discarded: the map has no place for them, and they read as zeroes.

use umbrella_units::{BLOCK_SECTORS, BlockNo, Lba, SectorRange};

use super::engine::LogStore;
use crate::device::{Allocation, BlockDevice};
use crate::error::BlockError;

/// Blocks that are looked up at most before others have their turn.
const MOST: u64 = 16 << 10;

impl LogStore {
    /// As [`BlockDevice::first_extent`].
    pub(super) fn extent(&self, range: SectorRange) -> Result<(SectorRange, Allocation), BlockError> {
        self.geometry().check_range(range)?;
        let first = range.start.0 / BLOCK_SECTORS;
        let end = range.end().0.div_ceil(BLOCK_SECTORS).min(first + MOST);
        let mut state = self.shared.state.lock();
        // Where it cannot be known, the read of the block says so.
        let mut is_mapped_at =
            |block: u64| self.shared.entry(&mut state, BlockNo(block)).map_or(true, |place| place.is_some());
        let is_mapped = is_mapped_at(first);
        let mut next = first + 1;
        while next < end && is_mapped_at(next) == is_mapped {
            next += 1;
        }
        // Nothing at all is quickly passed over.
        let next = if is_mapped { next } else { next.max(state.core.map.next_used(BlockNo(next)).0) };
        let end = Lba(next.saturating_mul(BLOCK_SECTORS)).min(range.end());
        let allocation = if is_mapped { Allocation::Data } else { Allocation::Hole };
        Ok((SectorRange::between(range.start, end), allocation))
    }
}
