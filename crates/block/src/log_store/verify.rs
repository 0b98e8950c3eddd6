//! Whether a block that is read is the one that was written.

use parking_lot::MutexGuard;
use umbrella_policy::log_layout::Place;
use umbrella_units::BlockNo;

use super::buffer::CHUNK_BLOCKS;
use super::checksums::Tag;
use super::engine::{StoreShared, StoreState};
use super::error::LogStoreError;
use super::format::{BLOCK_BYTES, ChunkHeader};
use super::life::Life;
use crate::error::BlockError;

/// Blocks before one that are looked through for its header: first few, for who reads in order.
const LOOKED_THROUGH: [u32; 2] = [4, CHUNK_BLOCKS];
impl StoreShared {
    /// Looks for the checksum of a block that lies on the disk, if it is not known. The lock is let go of meanwhile: what was looked up has to be looked up again then.
    ///
    /// An error if the header of its chunk cannot be found, or names another block.
    pub(super) fn learn(
        &self,
        state: &mut MutexGuard<'_, StoreState>,
        block: BlockNo,
        at: Place,
    ) -> Result<(), BlockError> {
        let shape = state.core.layout.shape();
        let life = Life::now(state, shape.segment(at));
        for blocks in LOOKED_THROUGH {
            let count = blocks.min(shape.slot(at));
            let start = Place(at.0 - u64::from(count));
            let superblock = state.core.superblock.clone();
            let found = MutexGuard::unlocked(state, || -> Result<_, BlockError> {
                let mut bytes = vec![0; count as usize * BLOCK_BYTES];
                self.read_log(start, &mut bytes)?;
                Ok(bytes.chunks(BLOCK_BYTES).enumerate().rev().find_map(|(nth, bytes)| {
                    let place = Place(start.0 + nth as u64);
                    ChunkHeader::parse(bytes, &superblock, place).ok().map(|header| (place, header))
                }))
            });
            if !life.goes_on(state, shape.segment(at)) {
                return Ok(());
            }
            if let Some((place, header)) = found? {
                let core = &mut state.core;
                core.sums.note_chunk(&core.layout, place, &header);
                break;
            }
        }
        let is_there = state.core.map.get(block).is_ok_and(|entry| entry.is_some_and(|entry| entry.place == at));
        if is_there && state.core.sums.get(shape, at) == Tag::NONE {
            state.counts.damaged_reads += 1;
            let device = self.named.name.clone();
            return Err(LogStoreError::Unverified { device, block, place: at }.on(&self.named.name));
        }
        Ok(())
    }

    /// A block was read, and is not what was written.
    pub(super) fn damaged(&self, state: &mut StoreState, block: BlockNo, place: Place) -> BlockError {
        state.counts.damaged_reads += 1;
        let error = LogStoreError::Damaged { device: self.named.name.clone(), block, place };
        tracing::error!(store = self.named.name, %error, "a block cannot be read");
        error.on(&self.named.name)
    }
}
