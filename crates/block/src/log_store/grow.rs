//! Grows a store, while it is used, onto a device that has become larger.
//!
//! 1. A checkpoint is made, so that little is left to do. Then all chunks are completed, written and flushed; from here
//!    to the end no other thread gets the lock. Pages of the map that have changed meanwhile are put into the log,
//!    written and flushed: the checkpoint of step 3 covers the chunks that changed them.
//! 2. The new segments become free. If the checkpoint areas are too small for the larger store, two new ones are made
//!    at the beginning of the new space, and the old ones become free.
//! 3. A checkpoint of the larger store is written and flushed, to the area that does not hold the last one. If the
//!    areas are new, it goes to both.
//! 4. The second copy of the superblock is written and flushed, then the first. With the second copy the store is
//!    larger.
//!
//! A crash before step 4 leaves the smaller store as it was. It does not know the new segments, and it ignores the
//! checkpoint of the larger store.

use std::sync::atomic::Ordering;

use parking_lot::MutexGuard;
use umbrella_policy::log_layout::{SegmentNo, State as SegmentState};
use umbrella_units::{BLOCK_SECTORS, ByteSize, Lba, PAGE_BYTES};

use super::checkpoint::take_image;
use super::core::AfterCheckpoint;
use super::create::size;
use super::engine::{LogStore, StoreShared, StoreState};
use super::error::LogStoreError;
use super::footprint::{memory_of_machine, refuse_without_memory};
use super::format::{Area, Blocks, Shape, Superblock, area_segments};
use crate::device::Durability;
use crate::error::{BlockError, Operation};

impl LogStore {
    /// Takes the space by which the device has become larger. Returns the size that the store promises then. Does
    /// nothing if there is no more space.
    pub fn grow(&self) -> Result<ByteSize, LogStoreError> {
        let shared = &*self.shared;
        shared.named.device.refresh()?;
        loop {
            self.checkpoint()?;
            let _no_checkpoint = shared.checkpointing.lock();
            let mut state = shared.state.lock();
            shared.refuse_if_poisoned(&state)?;
            let Some(larger) = shared.larger(&state)? else { break };
            shared.make_all_durable(&mut state)?;
            // Where there was no room for the map, the next checkpoint makes some.
            if !shared.write_map_at_once(&mut state)? {
                continue;
            }
            if let Err(error) = shared.grow_to(&mut state, &larger) {
                // What is in memory has grown, and the disk has not: it must not be used further.
                shared.poison(&mut state, Operation::Write, &error.clone().on(&shared.named.name));
                return Err(error);
            }
            break;
        }
        Ok(ByteSize(shared.advertised.load(Ordering::Acquire) * PAGE_BYTES))
    }
}

impl StoreShared {
    /// The superblock of the larger store; `None` if the device has no room for another segment.
    fn larger(&self, state: &StoreState) -> Result<Option<Superblock>, LogStoreError> {
        let old = &state.core.superblock;
        let (segment_blocks, streams) = (old.shape.segment_blocks(), old.shape.map_stream().0);
        let blocks = self.named.device.geometry().capacity.block().0.saturating_sub(old.first.0);
        let segments = u32::try_from(blocks / u64::from(segment_blocks)).unwrap_or(u32::MAX);
        if segments <= old.shape.segments() {
            return Ok(None);
        }
        let format = |source| self.named.format(source);
        let Some((shape, area)) = size(segment_blocks, segments, streams, spare(old)).transpose().map_err(format)?
        else {
            return Ok(None);
        };
        refuse_without_memory(&self.named.name, &shape, memory_of_machine())?;
        let promised = shape.advertised().0.max(old.shape.advertised().0);
        let shape = Shape::new(segment_blocks, segments, Blocks(promised), old.shape.map_stream()).map_err(format)?;
        let is_enough = old.areas.iter().all(|area| u64::from(area.segments) >= area_segments(&shape));
        let first = old.shape.segments();
        let areas = match first.checked_add(2 * area) {
            _ if is_enough => old.areas,
            Some(end) if end < segments => [
                Area { first: SegmentNo(first), segments: area },
                Area { first: SegmentNo(first + area), segments: area },
            ],
            // Not even the larger checkpoints fit into the new space.
            _ => return Ok(None),
        };
        let generation = old.generation.next();
        Ok(Some(Superblock { generation, shape, areas, ..old.clone() }))
    }

    /// Completes, writes and flushes everything; returns with the lock held and nothing under way.
    fn make_all_durable(&self, state: &mut MutexGuard<'_, StoreState>) -> Result<(), LogStoreError> {
        loop {
            self.seal_all(state, false)?;
            if state.core.has_unmapped() {
                return Err(LogStoreError::NoRoom { device: self.named.name.clone() });
            }
            let goal = state.core.next_sequence.before();
            self.flush_until(state, goal)?;
            let all_sealed =
                state.core.chunks.filling.iter().all(Option::is_none) && !state.core.has_unsealed_of_user();
            if all_sealed && state.core.next_sequence.before() == goal && !state.flushing {
                return Ok(());
            }
        }
    }

    /// Puts the changed pages of the map into the log, and makes them durable, without letting go of the lock. Nothing
    /// else is under way. Whether there was room.
    fn write_map_at_once(&self, state: &mut StoreState) -> Result<bool, LogStoreError> {
        if !self.write_map(state)? {
            return Ok(false);
        }
        self.seal_at_once(state)?;
        let done = self.write_waiting(state);
        if let Err((operation, error)) = done {
            self.poison(state, operation, &error);
            return Err(error.into());
        }
        state.flushed_until = state.core.next_sequence.before();
        state.core.flushed = state.flushed_until;
        self.written.notify_all();
        Ok(true)
    }

    /// Writes all complete chunks, and flushes.
    fn write_waiting(&self, state: &mut StoreState) -> Result<(), (Operation, BlockError)> {
        while let Some(chunk) = state.core.chunks.waiting.front().cloned() {
            let block = self.device_block(chunk.start);
            let written = self.named.device.write(Lba(block.0 * BLOCK_SECTORS), &chunk.bytes, Durability::Cached);
            written.map_err(|error| (Operation::Write, error))?;
            state.core.chunks.waiting.pop_front();
            state.core.written(&chunk);
        }
        self.named.flush().map_err(|error| (Operation::Flush, error))
    }

    fn grow_to(&self, state: &mut MutexGuard<'_, StoreState>, larger: &Superblock) -> Result<(), LogStoreError> {
        let format = |source| self.named.format(source);
        let moved = larger.areas != state.core.superblock.areas;
        let core = &mut state.core;
        core.layout.grow(larger.shape.segments(), |segment| larger.is_system(segment));
        core.sums.grow(larger.shape.segments());
        core.map.grow(larger.shape.advertised().0);
        core.index.resize(larger.shape.map_pages().0 as usize, None);
        core.superblock = larger.clone();
        let mut image = take_image(state, AfterCheckpoint::GoesOn);
        if moved {
            // There is always one to fall back to, and whatever else lies there is no header.
            image.area = 1;
            image.write(&self.named)?;
            image.area = 0;
        }
        let (mark, area, number) = (image.mark, image.area, image.header.number);
        image.write(&self.named)?;
        let block = larger.encode().map_err(format)?;
        for copy in Superblock::COPIES.into_iter().rev() {
            self.named.device.write(Lba(copy.0 * BLOCK_SECTORS), &block, Durability::Cached)?;
            self.named.flush()?;
        }
        state.core.layout.checkpointed(mark);
        state.area = area;
        state.noted = number;
        state.freed += 1;
        self.advertised.store(larger.shape.advertised().0, Ordering::Release);
        self.room.notify_all();
        let free = state.core.layout.table().iter().filter(|segment| segment.state == SegmentState::Free).count();
        tracing::debug!(store = self.named.name, segments = larger.shape.segments(), free, "the log store has grown");
        Ok(())
    }
}

/// The thousandths that a store keeps spare.
fn spare(superblock: &Superblock) -> u32 {
    let shape = &superblock.shape;
    let all = size(shape.segment_blocks(), shape.segments(), shape.map_stream().0, 0);
    let Some(Ok((all, _))) = all else { return 0 };
    let kept = all.advertised().0.saturating_sub(shape.advertised().0);
    u32::try_from(kept.saturating_mul(1000) / all.advertised().0.max(1)).unwrap_or(0)
}
