//! Reading and writing as a device.

use std::time::{Duration, Instant};

use parking_lot::MutexGuard;
use smallvec::SmallVec;
use umbrella_policy::log_layout::{Absent, LogBlock, PAGE_ENTRIES, SegmentNo};
use umbrella_units::{BLOCK_SECTORS, BlockNo, Lba, Pages, SECTOR_BYTES, SectorRange};

use super::checksums::Tag;
use super::engine::{LogStore, StoreShared, StoreState};
use super::error::LogStoreError;
use super::format::{BLOCK_BYTES, Checksum};
use super::life::Life;
use crate::device::{Allocation, BlockDevice, Durability, Geometry, Zeroes};
use crate::error::{BlockError, Operation};

/// Blocks that are read although they were not asked for, so that what lies before and behind them is one request.
const MOST_BETWEEN: u64 = 8;

/// Blocks that lie in a row on the disk and in the caller's memory.
#[derive(Debug, Clone, Copy)]
struct ReadRun {
    block: BlockNo,
    place: LogBlock,
    /// The life of its segment. After its end, the place may have held other data.
    life: Life,
    /// Where in the buffer, in blocks.
    at: usize,
    blocks: usize,
}

type ReadRuns = SmallVec<[ReadRun; 4]>;
/// By block of the caller's memory: what it must be.
type Tags = SmallVec<[Tag; 16]>;

/// The first block of runs that were read that is not what was written.
fn damaged(runs: &[ReadRun], tags: &[Tag], buffer: &[u8]) -> Option<(BlockNo, LogBlock)> {
    runs.iter().find_map(|run| {
        let (Some(data), Some(tags)) = (buffer.get(run.bytes()), tags.get(run.at..run.at + run.blocks)) else {
            // What cannot be compared is not passed on.
            return Some((run.block, run.place));
        };
        let blocks = (0..).zip(data.chunks(BLOCK_BYTES).zip(tags));
        let mut wrong = blocks.filter(|(nth, (data, tag))| !tag.fits(BlockNo(run.block.0 + nth), data));
        wrong.next().map(|(nth, _)| (BlockNo(run.block.0 + nth), LogBlock(run.place.0 + nth)))
    })
}

impl ReadRun {
    /// The place behind it.
    fn end(&self) -> LogBlock {
        LogBlock(self.place.0 + self.blocks as u64)
    }

    /// Where in the buffer it goes.
    fn bytes(&self) -> std::ops::Range<usize> {
        self.at * BLOCK_BYTES..(self.at + self.blocks) * BLOCK_BYTES
    }
}

impl BlockDevice for LogStore {
    fn geometry(&self) -> Geometry {
        self.shared.geometry()
    }

    fn read(&self, at: Lba, buffer: &mut [u8]) -> Result<(), BlockError> {
        let range = self.geometry().check(at, buffer.len())?;
        self.read_sectors(range.start, buffer, |state| {
            state.counts.reads += 1;
            state.last_access = Instant::now();
        })
    }

    fn write(&self, at: Lba, data: &[u8], durability: Durability) -> Result<(), BlockError> {
        let range = self.geometry().check(at, data.len())?;
        let mut state = self.shared.begin()?;
        let (first, skip) = split(range.start);
        let (head, rest) = data.split_at(data.len().min((BLOCK_BYTES - skip) % BLOCK_BYTES));
        let mut block = first;
        if !head.is_empty() {
            self.shared.write_part(&mut state, block, skip, head)?;
            block = BlockNo(block.0 + 1);
        }
        for data in rest.chunks(BLOCK_BYTES) {
            if data.len() == BLOCK_BYTES {
                self.shared.write_block(&mut state, block, data)?;
            } else {
                self.shared.write_part(&mut state, block, 0, data)?;
            }
            block = BlockNo(block.0 + 1);
        }
        self.shared.throttle(&mut state, data.len().div_ceil(BLOCK_BYTES));
        match durability {
            Durability::Through => self.shared.flush_user(&mut state),
            Durability::Cached => Ok(()),
        }
    }

    fn flush(&self) -> Result<(), BlockError> {
        let mut state = self.shared.begin()?;
        state.core.counters.flushes += 1;
        self.shared.flush_user(&mut state)
    }

    /// Makes whole blocks of it read as zeroes. Parts of blocks stay as they are.
    fn discard(&self, range: SectorRange) -> Result<(), BlockError> {
        self.geometry().check_range(range)?;
        let mut state = self.shared.begin()?;
        let (first, end) = (range.start.0.div_ceil(BLOCK_SECTORS), range.end().0 / BLOCK_SECTORS);
        self.shared.unmap(&mut state, BlockNo(first), BlockNo(end))
    }

    fn has_extents(&self) -> bool {
        true
    }

    fn first_extent(&self, range: SectorRange) -> Result<(SectorRange, Allocation), BlockError> {
        self.extent(range)
    }

    fn write_zeroes(&self, range: SectorRange, _zeroes: Zeroes, durability: Durability) -> Result<(), BlockError> {
        self.geometry().check_range(range)?;
        let mut state = self.shared.begin()?;
        let (start, end) = (range.start.0, range.end().0);
        let (first, last) = (start.div_ceil(BLOCK_SECTORS), end / BLOCK_SECTORS);
        let zeroes = [0; BLOCK_BYTES];
        let parts: &[(u64, u64)] =
            if first > last { &[(start, end)] } else { &[(start, first * BLOCK_SECTORS), (last * BLOCK_SECTORS, end)] };
        for (from, to) in parts.iter().copied().filter(|(from, to)| from < to) {
            let (block, skip) = split(Lba(from));
            let defect =
                || BlockError::impossible(&self.shared.named.name, Operation::Write, "a part of a block is longer");
            let part = zeroes.get(..((to - from) * SECTOR_BYTES) as usize).ok_or_else(defect)?;
            self.shared.write_part(&mut state, block, skip, part)?;
        }
        self.shared.unmap(&mut state, BlockNo(first), BlockNo(last))?;
        match durability {
            Durability::Through => self.shared.flush_user(&mut state),
            Durability::Cached => Ok(()),
        }
    }
}

impl LogStore {
    /// Reads sectors; `count` is called under the lock.
    pub(super) fn read_sectors(
        &self,
        at: Lba,
        buffer: &mut [u8],
        count: impl FnOnce(&mut StoreState),
    ) -> Result<(), BlockError> {
        let (first, skip) = split(at);
        let blocks = (skip + buffer.len()).div_ceil(BLOCK_BYTES);
        let mut state = self.shared.state.lock();
        count(&mut state);
        if skip == 0 && blocks * BLOCK_BYTES == buffer.len() {
            return self.shared.read(state, first, buffer);
        }
        let mut whole = vec![0; blocks * BLOCK_BYTES];
        self.shared.read(state, first, &mut whole)?;
        let defect = || self.shared.part_outside(Operation::Read);
        buffer.copy_from_slice(whole.get(skip..skip + buffer.len()).ok_or_else(defect)?);
        Ok(())
    }
}

/// The block of a sector, and the bytes before the sector in it.
fn split(at: Lba) -> (BlockNo, usize) {
    (BlockNo(at.0 / BLOCK_SECTORS), (at.0 % BLOCK_SECTORS * SECTOR_BYTES) as usize)
}

fn segment(state: &StoreState, place: LogBlock) -> SegmentNo {
    state.core.layout.shape().segment(place)
}

impl StoreShared {
    /// Something is about to be changed.
    fn begin(&self) -> Result<MutexGuard<'_, StoreState>, BlockError> {
        let mut state = self.state.lock();
        self.refuse_if_poisoned(&state)?;
        state.counts.writes += 1;
        state.last_access = Instant::now();
        Ok(state)
    }

    /// Reads whole blocks. A block that becomes free during the read may be overwritten, so it is located again.
    fn read(&self, mut state: MutexGuard<'_, StoreState>, first: BlockNo, buffer: &mut [u8]) -> Result<(), BlockError> {
        loop {
            // Locating blocks may release the lock, too.
            let freed = state.freed;
            let (runs, tags) = self.locate_blocks(&mut state, first, buffer)?;
            if runs.is_empty() {
                return Ok(());
            }
            let damaged = MutexGuard::unlocked(&mut state, || {
                self.read_runs(&runs, buffer).map(|()| damaged(&runs, &tags, buffer))
            })?;
            // What is not what was written may be what lies there now.
            if state.freed == freed || self.are_current(&mut state, &runs)? {
                return damaged.map_or(Ok(()), |(block, place)| Err(self.damaged(&mut state, block, place)));
            }
        }
    }

    /// Reads runs from the disk; those with little between them, such as a header, at once.
    fn read_runs(&self, runs: &[ReadRun], buffer: &mut [u8]) -> Result<(), BlockError> {
        let near = |a: &ReadRun, b: &ReadRun| b.place.0.checked_sub(a.end().0).is_some_and(|gap| gap <= MOST_BETWEEN);
        for group in runs.chunk_by(near) {
            // What was not asked for may be what cannot be read; then each run is read by itself.
            if group.len() > 1 && self.read_span(group, buffer) {
                continue;
            }
            for run in group {
                let defect =
                    || BlockError::impossible(&self.named.name, Operation::Read, "a block lies outside of the buffer");
                self.read_log(run.place, buffer.get_mut(run.bytes()).ok_or_else(defect)?)?;
            }
        }
        Ok(())
    }

    /// Reads runs, in order of their places, with what lies between them; whether it could be.
    fn read_span(&self, group: &[ReadRun], buffer: &mut [u8]) -> bool {
        let (Some(first), Some(last)) = (group.first(), group.last()) else { return true };
        let mut span = vec![0; (last.end().0 - first.place.0) as usize * BLOCK_BYTES];
        if self.read_log(first.place, &mut span).is_err() {
            return false;
        }
        for run in group {
            let from = (run.place.0 - first.place.0) as usize * BLOCK_BYTES;
            match (buffer.get_mut(run.bytes()), span.get(from..from + run.blocks * BLOCK_BYTES)) {
                (Some(to), Some(from)) => to.copy_from_slice(from),
                _ => return false,
            }
        }
        true
    }

    /// Fills in blocks that are in memory or were never written. Returns the runs that have to be read from the disk,
    /// sorted by place: random writes lie scattered, and are read in one pass over the disk.
    fn locate_blocks(
        &self,
        state: &mut MutexGuard<'_, StoreState>,
        first: BlockNo,
        buffer: &mut [u8],
    ) -> Result<(ReadRuns, Tags), BlockError> {
        let (mut runs, mut tags) = (ReadRuns::new(), Tags::new());
        let shape = state.core.layout.shape();
        for (at, data) in buffer.chunks_mut(BLOCK_BYTES).enumerate() {
            let block = BlockNo(first.0 + at as u64);
            let found = loop {
                let Some(place) = self.entry(state, block)? else {
                    data.fill(0);
                    break None;
                };
                if let Some(found) = state.core.chunks.block(place) {
                    data.copy_from_slice(found);
                    break None;
                }
                match state.core.sums.get(shape, place) {
                    Tag::NONE => self.load_checksum(state, block, place)?,
                    tag => break Some((place, tag)),
                }
            };
            tags.push(found.map_or(Tag::NONE, |(_, tag)| tag));
            let Some((place, _)) = found else { continue };
            match runs.last_mut() {
                Some(run) if run.end() == place && run.at + run.blocks == at => run.blocks += 1,
                _ => runs.push(ReadRun { block, place, life: Life::now(state, segment(state, place)), at, blocks: 1 }),
            }
        }
        runs.sort_unstable_by_key(|run| run.place);
        Ok((runs, tags))
    }

    /// Where a block lies; an error if that is not known, or the block is lost.
    pub(super) fn entry(
        &self,
        state: &mut MutexGuard<'_, StoreState>,
        block: BlockNo,
    ) -> Result<Option<LogBlock>, BlockError> {
        loop {
            let map = &mut state.core.map;
            match map.get(block) {
                Ok(None) if map.is_lost(block).is_ok_and(|is_lost| is_lost) => {
                    let device = self.named.name.clone();
                    return Err(LogStoreError::Lost { device, block }.on(&self.named.name));
                }
                Ok(entry) => return Ok(entry.map(|entry| entry.place)),
                Err(Absent(page)) => self.load_page(state, page)?,
            }
        }
    }

    /// A part of a block lies outside of it.
    fn part_outside(&self, operation: Operation) -> BlockError {
        BlockError::impossible(&self.named.name, operation, "a part of a block lies outside of it")
    }

    fn are_current(&self, state: &mut MutexGuard<'_, StoreState>, runs: &[ReadRun]) -> Result<bool, BlockError> {
        for run in runs {
            if !run.life.is_current(state, segment(state, run.place)) {
                return Ok(false);
            }
            for nth in 0..run.blocks as u64 {
                if self.entry(state, BlockNo(run.block.0 + nth))? != Some(LogBlock(run.place.0 + nth)) {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    fn write_block(
        &self,
        state: &mut MutexGuard<'_, StoreState>,
        block: BlockNo,
        data: &[u8],
    ) -> Result<(), BlockError> {
        let checksum = Checksum::of(data);
        loop {
            self.wait_for_write_room(state)?;
            match state.core.write(block, data, checksum) {
                Ok(()) => break,
                Err(stop) => self.unblock(state, stop)?,
            }
        }
        self.trim_map(state, None);
        self.wake_writers(state);
        Ok(())
    }

    /// Returns when another block may be written: few chunks wait, and no more of the map is changed than may be in
    /// memory.
    fn wait_for_write_room(&self, state: &mut MutexGuard<'_, StoreState>) -> Result<(), BlockError> {
        self.wait_for_writers(state)?;
        while self.map_is_full(state) {
            self.wait_for_room(state)?;
            self.wait_for_writers(state)?;
        }
        Ok(())
    }

    /// Writes a part of a block; the rest stays as it is.
    fn write_part(
        &self,
        state: &mut MutexGuard<'_, StoreState>,
        block: BlockNo,
        skip: usize,
        part: &[u8],
    ) -> Result<(), BlockError> {
        let mut whole = [0; BLOCK_BYTES];
        loop {
            self.wait_for_write_room(state)?;
            let place = self.entry(state, block)?;
            let found = place.and_then(|place| state.core.chunks.block(place));
            match (place, found) {
                (None, _) => whole.fill(0),
                (Some(_), Some(data)) => whole.copy_from_slice(data),
                (Some(place), None) => {
                    let shape = state.core.layout.shape();
                    let tag = state.core.sums.get(shape, place);
                    if tag == Tag::NONE {
                        self.load_checksum(state, block, place)?;
                        continue;
                    }
                    let freed = state.freed;
                    MutexGuard::unlocked(state, || self.read_log(place, &mut whole))?;
                    if self.entry(state, block)? != Some(place) || state.freed != freed {
                        continue;
                    }
                    // With a checksum of its own it would pass for what was written.
                    if !tag.fits(block, &whole) {
                        return Err(self.damaged(state, block, place));
                    }
                }
            }
            let defect = || self.part_outside(Operation::Write);
            whole.get_mut(skip..skip + part.len()).ok_or_else(defect)?.copy_from_slice(part);
            // The lock is released while room is made, so another write to this block may come between.
            let checksum = Checksum::of(&whole);
            match state.core.write(block, &whole, checksum) {
                Ok(()) => break,
                Err(stop) => self.unblock(state, stop)?,
            }
        }
        self.trim_map(state, None);
        self.wake_writers(state);
        Ok(())
    }

    /// Forgets blocks, and has the log say so.
    fn unmap(&self, state: &mut MutexGuard<'_, StoreState>, first: BlockNo, end: BlockNo) -> Result<(), BlockError> {
        let mut start = first;
        while start < end {
            self.refuse_if_poisoned(state)?;
            if !state.core.has_room_for_unmapped() {
                self.seal_for_unmapped(state)?;
                continue;
            }
            // One page of the map at a time, so that the log says nothing that has not been done. A page that is not in
            // memory is read also when all of it goes: it alone says which segments become emptier.
            start = state.core.map.next_used(start).min(end);
            let page_end = BlockNo((start.0 / PAGE_ENTRIES as u64 + 1) * PAGE_ENTRIES as u64).min(end);
            let (mut block, mut stopped, mut was_there) = (start, None, false);
            while block < page_end && stopped.is_none() {
                match state.core.unmap(block) {
                    Ok(was_mapped) => (block, was_there) = (block.next(), was_there || was_mapped),
                    Err(stop) => stopped = Some(stop),
                }
            }
            // Of what was not there the log need not say that it is gone.
            if was_there {
                state.core.note_unmapped(start, (block.0 - start.0) as u32);
            }
            start = block;
            if let Some(stop) = stopped {
                self.unblock(state, stop)?;
                self.call_cleaner_if_due(state);
            }
        }
        self.wake_writers(state);
        self.call_cleaner_if_due(state);
        Ok(())
    }

    /// A chunk is completed early, so that there is room for more ranges that are not mapped.
    fn seal_for_unmapped(&self, state: &mut MutexGuard<'_, StoreState>) -> Result<(), BlockError> {
        self.wait_for_writers(state)?;
        match state.core.seal_for_unmapped() {
            Ok(()) => self.wake_writers(state),
            Err(stop) => self.unblock(state, stop)?,
        }
        Ok(())
    }

    /// Delays a write while the log fills up: by a share of the time that cleaning its blocks takes. The share grows as
    /// the free segments approach the reserve.
    fn throttle(&self, state: &mut MutexGuard<'_, StoreState>, blocks: usize) {
        self.call_cleaner_if_due(state);
        if !state.threads {
            return;
        }
        let (cost, blocks) = (state.block_cost, Pages(blocks as u64));
        let delay = Duration::from_nanos(self.pace().write_delay(&state.core.layout, cost, blocks).0);
        if delay.is_zero() {
            return;
        }
        self.keeper.notify_one();
        let begun = Instant::now();
        let until = state.throttle.turn(begun, delay);
        while state.poisoned.is_none() && !self.room.wait_until(state, until).timed_out() && Instant::now() < until {}
        state.counts.slowed += 1;
        state.counts.slowed_time += begun.elapsed();
    }

    /// Wakes the cleaner if a checkpoint or cleaning is due. Without a cleaner, the writing thread does that work.
    fn call_cleaner_if_due(&self, state: &mut MutexGuard<'_, StoreState>) {
        if state.threads {
            if self.needs_checkpoint(state) {
                self.keeper.notify_one();
            }
        } else if let Err(error) = self.work(state) {
            tracing::error!(store = self.named.name, %error, "the log store cannot clean");
        }
    }
}
