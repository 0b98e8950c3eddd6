//! Everything that a store holds, compared with its checksums.

use umbrella_units::{BLOCK_SECTORS, ByteSize, Lba, SECTOR_BYTES, SectorRange};

use super::engine::LogStore;
use crate::device::{Allocation, BlockDevice};
use crate::error::BlockError;
use crate::scrub::{Scrub, ScrubId};

impl Scrub for LogStore {
    fn id(&self) -> ScrubId {
        ScrubId(self.shared.state.lock().core.superblock.store)
    }

    fn checksummed(&self) -> ByteSize {
        self.stats().live
    }

    fn scrub(&self, from: Lba, buffer: &mut [u8]) -> Option<(SectorRange, Result<(), BlockError>)> {
        let most = buffer.len() as u64 / SECTOR_BYTES;
        let end = self.geometry().capacity;
        let mut at = from;
        while at < end {
            match self.first_extent(SectorRange::between(at, end)) {
                Ok((hole, Allocation::Hole)) => at = hole.end(),
                Ok((data, Allocation::Data)) => {
                    let range = SectorRange { sectors: data.sectors.min(most), ..data };
                    let part = buffer.get_mut(..(range.sectors * SECTOR_BYTES) as usize)?;
                    // It is no access of users.
                    return Some((range, self.read_sectors(range.start, part, |_| ())));
                }
                // Where it cannot look up a block, it cannot read the block either.
                Err(error) => {
                    let unsure = SectorRange { start: at, sectors: BLOCK_SECTORS.min(end.0 - at.0) };
                    return Some((unsure, Err(error)));
                }
            }
        }
        None
    }
}
