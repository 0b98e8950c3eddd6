//! Which blocks were never written, or discarded: the map has no place for them, and they read as zeroes.

use parking_lot::MutexGuard;
use umbrella_policy::log_layout::PAGE_ENTRIES;
use umbrella_units::{BLOCK_SECTORS, BlockNo, Lba, SectorRange};

use super::engine::{LogStore, StoreState};
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
        let (is_mapped, mut next) = self.mapped_until(&mut state, first);
        while next < end {
            let (is_next_mapped, behind) = self.mapped_until(&mut state, next);
            if is_next_mapped != is_mapped {
                break;
            }
            next = behind;
        }
        // Nothing at all is quickly passed over.
        let next = if is_mapped { next } else { next.max(state.core.map.next_used(BlockNo(next)).0) };
        let end = Lba(next.saturating_mul(BLOCK_SECTORS)).min(range.end());
        let allocation = if is_mapped { Allocation::Data } else { Allocation::Hole };
        Ok((SectorRange::between(range.start, end), allocation))
    }

    /// Whether a block is mapped, and the end of the range for which that holds. Where the map cannot be read, the
    /// whole page counts as mapped, and a read of the block returns the error.
    fn mapped_until(&self, state: &mut MutexGuard<'_, StoreState>, block: u64) -> (bool, u64) {
        let page = PAGE_ENTRIES as u64;
        match self.shared.entry(state, BlockNo(block)) {
            Ok(place) => (place.is_some(), block + 1),
            Err(_) if state.core.map.is_lost(BlockNo(block)).is_ok() => (true, block + 1),
            Err(_) => (true, (block / page + 1) * page),
        }
    }
}
