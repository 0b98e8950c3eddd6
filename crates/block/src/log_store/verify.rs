//! Checks that a block reads as it was written.

use parking_lot::MutexGuard;
use umbrella_policy::log_layout::LogBlock;
use umbrella_units::BlockNo;

use super::buffer::CHUNK_BLOCKS;
use super::checksums::Tag;
use super::engine::{StoreShared, StoreState};
use super::error::LogStoreError;
use super::format::{BLOCK_BYTES, ChunkHeader, Superblock};
use super::life::Life;
use crate::error::BlockError;

/// The most headers that are followed to a place. Each is one block, but the disk has to find it.
const FOLLOWED: u64 = 8;

/// How many blocks before one are looked through for its header where nothing says how long chunks are. If it is not
/// there, four times as many, and so on.
const FIRST_SEARCH: u32 = 4;

/// The most unreadable blocks that are skipped in one read: on a disk that fails altogether, each may take long.
const MOST_FAILED: u32 = 4;

/// The last chunk that begins in blocks that were read from `start` on, and those before it that lead to one another.
fn chunks_in(bytes: &[u8], start: LogBlock, superblock: &Superblock) -> Vec<(LogBlock, ChunkHeader)> {
    let mut found: Vec<(LogBlock, ChunkHeader)> = Vec::new();
    for (nth, bytes) in bytes.chunks(BLOCK_BYTES).enumerate().rev() {
        let place = LogBlock(start.0 + nth as u64);
        let Ok(header) = ChunkHeader::parse(bytes, superblock, place) else { continue };
        let leads_on = |(next, _): &(LogBlock, ChunkHeader)| place.0 + u64::from(header.blocks()) == next.0;
        if found.last().is_none_or(leads_on) {
            found.push((place, header));
        }
    }
    found
}

impl StoreShared {
    /// Loads the checksum of a block on the disk, if it is not known. Releases the lock meanwhile, so the caller has to
    /// locate its blocks again.
    ///
    /// An error if the header of its chunk cannot be found, or names another block.
    pub(super) fn load_checksum(
        &self,
        state: &mut MutexGuard<'_, StoreState>,
        block: BlockNo,
        at: LogBlock,
    ) -> Result<(), BlockError> {
        let shape = state.core.layout.shape();
        let life = Life::now(state, shape.segment(at));
        let superblock = state.core.superblock.clone();
        let from = state.core.sums.followed(shape, at);
        let found = MutexGuard::unlocked(state, || self.chunks_up_to(from, at, &superblock));
        if !life.is_current(state, shape.segment(at)) {
            return Ok(());
        }
        let mut length = found.last().map_or(FIRST_SEARCH, |(_, header)| header.blocks());
        let core = &mut state.core;
        core.sums.follow(&core.layout, &found);
        if core.sums.get(shape, at) != Tag::NONE {
            return Ok(());
        }
        let mut looked_through = 0;
        loop {
            let blocks = length.min(CHUNK_BLOCKS).min(shape.slot(at));
            let (start, count) = (LogBlock(at.0 - u64::from(blocks)), blocks - looked_through);
            if count == 0 {
                break;
            }
            (looked_through, length) = (blocks, blocks * 4);
            let found = MutexGuard::unlocked(state, || -> Result<_, BlockError> {
                let mut bytes = vec![0; count as usize * BLOCK_BYTES];
                self.read_what_can_be(start, &mut bytes)?;
                Ok(chunks_in(&bytes, start, &superblock))
            });
            if !life.is_current(state, shape.segment(at)) {
                return Ok(());
            }
            let found = found?;
            let core = &mut state.core;
            for (place, header) in &found {
                core.sums.note_chunk(&core.layout, *place, header);
            }
            if !found.is_empty() {
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

    /// The chunks from `from` on that lead to a place, as long as few more would at the length of the last one. One
    /// that cannot be read or is damaged leads nowhere.
    fn chunks_up_to(&self, from: LogBlock, at: LogBlock, superblock: &Superblock) -> Vec<(LogBlock, ChunkHeader)> {
        let (mut found, mut place) = (Vec::new(), from);
        while place < at && (found.len() as u64) < FOLLOWED {
            let mut block = [0; BLOCK_BYTES];
            let read = self.read_log(place, &mut block).ok();
            let Some(header) = read.and_then(|()| ChunkHeader::parse(&block, superblock, place).ok()) else { break };
            let blocks = u64::from(header.blocks());
            found.push((place, header));
            place = LogBlock(place.0 + blocks);
            if at.0.saturating_sub(place.0) / blocks > FOLLOWED {
                break;
            }
        }
        found
    }

    /// Reads blocks of the log to look for headers: one that cannot be read must not hide the others, and is zeroes. An
    /// error if many cannot.
    fn read_what_can_be(&self, start: LogBlock, buffer: &mut [u8]) -> Result<(), BlockError> {
        if self.read_log(start, buffer).is_ok() {
            return Ok(());
        }
        let mut failed = 0;
        for (nth, block) in (0..).zip(buffer.chunks_mut(BLOCK_BYTES)) {
            if let Err(error) = self.read_log(LogBlock(start.0 + nth), block) {
                failed += 1;
                if failed > MOST_FAILED {
                    return Err(error);
                }
                block.fill(0);
            }
        }
        Ok(())
    }

    /// A block was read, and is not what was written.
    pub(super) fn damaged(&self, state: &mut StoreState, block: BlockNo, place: LogBlock) -> BlockError {
        state.counts.damaged_reads += 1;
        let error = LogStoreError::Damaged { device: self.named.name.clone(), block, place };
        tracing::error!(store = self.named.name, %error, "cannot read a block");
        error.on(&self.named.name)
    }
}
