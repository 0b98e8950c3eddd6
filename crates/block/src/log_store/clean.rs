//! Cleaning: moves the live blocks out of a segment, so that the segment can be used anew.
//!
//! 1. The next few segments are read at once, so that the disk can order the requests itself; the rest of a large one
//!    follows chunk by chunk. Each chunk's header names the blocks behind it. If little of a segment is live, only that
//!    is read, unless the disk rotates (`gather`).
//! 2. Blocks that the map still places there are put into the chunks being filled. From then on they are read from
//!    those chunks or from the new place. Pages of the map are written by the next checkpoint. Discards that the
//!    headers name are repeated as long as an older segment may have a copy of those blocks (`discards`).
//! 3. When nothing in the segment is live any more, it is *cleaned*. It is free after a flush of the moved blocks, or
//!    after the next checkpoint ([`Layout::synced`](umbrella_policy::log_layout::Layout::synced)). Until then nothing
//!    is written to it.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use parking_lot::MutexGuard;
use umbrella_policy::log_layout::{
    CleaningGoal, Clock, LogBlock, MapPage, PAGE_ENTRIES, ReclaimStep, SegmentNo, State as SegmentState,
};
use umbrella_units::{BlockNo, Pages};

use super::buffer::{CHUNK_BLOCKS, Window};
use super::core::{AfterCheckpoint, Blocked};
use super::engine::{StoreShared, StoreState, nanos};
use super::error::LogStoreError;
use super::flush::MARK_AFTER;
use super::format::{BLOCK_BYTES, Checksum, ChunkHeader, Entry};
use super::life::Life;
use crate::error::BlockError;

/// How often the keeper looks when no other thread calls it.
const LOOK: Duration = Duration::from_secs(1);
/// Pages of the map that are read at most to see what of a chunk's discarded blocks still is.
const MOST_BROUGHT: u32 = 64;
/// Blocks that are moved before others get the lock.
const AT_ONCE: usize = 32;

/// What cleaning a segment came to.
enum Cleaned {
    /// Nothing is live in it.
    Whole,
    /// There is no room for more now.
    NoRoom,
    /// A part of it cannot be read.
    Damaged,
}

/// A segment that is to be cleaned, as it was when it was read.
#[derive(Debug, Clone, Copy)]
pub(super) struct ChosenVictim {
    pub(super) number: SegmentNo,
    /// Blocks in it that are live.
    pub(super) live: Pages,
    life: Life,
    /// When the oldest of the others was opened.
    oldest: Option<Clock>,
}

impl ChosenVictim {
    fn now(state: &StoreState, number: SegmentNo) -> Option<ChosenVictim> {
        let segment = state.core.layout.table().get(number.0 as usize)?;
        let (live, life) = (Pages(segment.live.into()), Life::now(state, number));
        Some(ChosenVictim { number, live, life, oldest: state.core.layout.oldest_except(number) })
    }

    /// Blocks in it that are live now, if it still holds what was read.
    fn live_blocks(self, state: &StoreState) -> Option<Pages> {
        let segment = state.core.layout.table().get(self.number.0 as usize)?;
        let is_there = segment.state == SegmentState::Full && self.life.is_current(state, self.number);
        is_there.then_some(Pages(segment.live.into()))
    }

    fn is_valid(self, state: &StoreState) -> bool {
        self.live_blocks(state).is_some()
    }
}

impl StoreShared {
    /// The thread that cleans and makes checkpoints, until the store is closed.
    pub(super) fn keep(&self) {
        let mut state = self.state.lock();
        while !state.closing {
            if state.poisoned.is_some() {
                self.keeper.wait(&mut state);
                continue;
            }
            match self.work(&mut state) {
                Ok(true) => {}
                Ok(false) if self.mark_flushed(&mut state).unwrap_or(false) => {}
                Ok(false) => {
                    let wait = self.until_mark(&state);
                    self.keeper.wait_for(&mut state, wait);
                }
                Err(error) => {
                    tracing::error!(store = self.named.name, %error, "the log store cannot clean");
                    self.keeper.wait_for(&mut state, LOOK);
                }
            }
        }
    }

    /// How long to wait for a call: no longer than until an answered flush is to be marked.
    fn until_mark(&self, state: &StoreState) -> Duration {
        let left = MARK_AFTER.saturating_sub(state.answered_at.elapsed());
        let is_due = state.answered > state.core.marked && !left.is_zero();
        if is_due { left.min(LOOK) } else { LOOK }
    }

    /// Does what is most urgent; whether there was anything.
    pub(super) fn work(&self, state: &mut MutexGuard<'_, StoreState>) -> Result<bool, LogStoreError> {
        let pace = self.pace();
        let makes_checkpoint = pace.makes_checkpoint(&state.core.layout, &state.usage());
        if makes_checkpoint && MutexGuard::unlocked(state, || self.checkpoint(AfterCheckpoint::GoesOn))? {
            return Ok(true);
        }
        match pace.cleans(&state.core.layout, &state.usage()) {
            Some(goal) => self.reclaim_once(state, goal),
            None => Ok(false),
        }
    }

    /// Whether a checkpoint must not wait any longer.
    pub(super) fn needs_checkpoint(&self, state: &StoreState) -> bool {
        self.pace().checkpoint_is_due(&state.core.layout, &state.usage())
    }

    /// Does what the layout asks for; whether anything was gained.
    pub(super) fn reclaim_once(
        &self,
        state: &mut MutexGuard<'_, StoreState>,
        goal: CleaningGoal,
    ) -> Result<bool, LogStoreError> {
        // Until then nothing becomes free.
        while state.repairing_map {
            self.room.wait(state);
        }
        // Cleaning could not continue with this much of the map changed.
        if self.needs_checkpoint(state) && MutexGuard::unlocked(state, || self.checkpoint(AfterCheckpoint::GoesOn))? {
            self.room.notify_all();
            return Ok(true);
        }
        let step = state.core.layout.reclaim_step(goal);
        let (counters, segments) = (state.core.counters, state.core.layout.table().len());
        let gains = match step {
            ReclaimStep::None => false,
            _ if state.room_attempts.attempt_is_futile(&counters, segments) => false,
            ReclaimStep::Clean(_) => self.clean(state, goal).map(|()| true)?,
            ReclaimStep::Sync => self.sync(state).map(|()| true)?,
            // Without room for the map nothing can be gained by trying at once again.
            ReclaimStep::Checkpoint => MutexGuard::unlocked(state, || self.checkpoint(AfterCheckpoint::GoesOn))?,
        };
        // A writer that waits although the log has room continues. Otherwise no room can be made.
        let has_room = step == ReclaimStep::None && state.core.layout.admits();
        state.stuck = !gains && state.wanted > 0 && !has_room;
        self.room.notify_all();
        Ok(gains)
    }

    /// Waits until something has been done for room; without a keeper, does it.
    pub(super) fn wait_for_room(&self, state: &mut MutexGuard<'_, StoreState>) -> Result<(), BlockError> {
        self.refuse_if_poisoned(state)?;
        if state.stuck {
            return Err(LogStoreError::NoRoom { device: self.named.name.clone() }.on(&self.named.name));
        }
        let begun = Instant::now();
        state.wanted += 1;
        let done = if state.threads {
            self.keeper.notify_one();
            self.room.wait(state);
            Ok(true)
        } else {
            self.reclaim_once(state, CleaningGoal::Due)
        };
        state.wanted -= 1;
        state.counts.slowed += 1;
        state.counts.slowed_time += begun.elapsed();
        done.map(drop).map_err(|error| error.on(&self.named.name))
    }

    /// Makes durable all that was appended; what was cleaned before is free then, unless recovery would read it.
    pub(super) fn sync(&self, state: &mut MutexGuard<'_, StoreState>) -> Result<(), LogStoreError> {
        let mark = state.core.layout.mark();
        self.seal_all(state, false)?;
        let goal = state.core.next_sequence.before();
        // What is not said to be unmapped would be looked for in the segments that become free.
        let is_whole = !state.core.has_unmapped();
        self.flush_until(state, goal)?;
        if is_whole && !state.repairing_map {
            state.core.layout.synced(mark);
            state.freed += 1;
        }
        Ok(())
    }

    /// Cleans the next victims, which are read at once. What has been read is cleaned although another may have become
    /// a little better meanwhile: reading costs more than that.
    fn clean(&self, state: &mut MutexGuard<'_, StoreState>, goal: CleaningGoal) -> Result<(), LogStoreError> {
        let chosen = state.core.layout.victims(goal, self.pace().victims_at_once());
        let victims: Vec<_> = chosen.into_iter().filter_map(|number| ChosenVictim::now(state, number)).collect();
        let begun = Instant::now();
        let windows = MutexGuard::unlocked(state, || self.read_victims(&victims));
        let took = begun.elapsed() / victims.len().max(1) as u32;
        state.core.counters.cleaner_reads += windows.iter().map(Window::blocks_read).sum::<u64>();
        let mut read: VecDeque<_> = victims.into_iter().zip(windows).collect();
        loop {
            read.retain(|(victim, _)| victim.is_valid(state));
            match state.core.layout.reclaim_step(goal) {
                ReclaimStep::Clean(_) => {
                    let next = state.core.layout.next_of(goal, read.iter().map(|(victim, _)| victim.number));
                    let at = read.iter().position(|(victim, _)| Some(victim.number) == next);
                    let Some((victim, window)) = at.and_then(|at| read.remove(at)) else { return Ok(()) };
                    let cleaned = self.clean_one(state, victim, window, took)?;
                    if matches!(cleaned, Cleaned::NoRoom) || self.needs_checkpoint(state) {
                        return Ok(());
                    }
                }
                ReclaimStep::Sync if !read.is_empty() => {
                    let freed = state.freed;
                    self.sync(state)?;
                    self.room.notify_all();
                    if state.freed == freed {
                        return Ok(());
                    }
                }
                _ => return Ok(()),
            }
        }
    }

    /// Cleans a segment whose first part has been read, which took `took`.
    fn clean_one(
        &self,
        state: &mut MutexGuard<'_, StoreState>,
        victim: ChosenVictim,
        window: Window,
        took: Duration,
    ) -> Result<Cleaned, LogStoreError> {
        let (begun, paused) = (Instant::now(), state.paused);
        let segment_blocks = state.core.layout.shape().segment_blocks;
        let number = victim.number;
        let live = state.core.layout.table().get(number.0 as usize).map_or(0, |segment| segment.live);
        let tenths = (u64::from(live) * 10 / u64::from(segment_blocks)) as usize;
        let cleaned = match self.empty(state, victim, window, took) {
            // It may have been emptied, freed and written anew meanwhile.
            Ok(Cleaned::Damaged) if !victim.is_valid(state) => Cleaned::NoRoom,
            Ok(cleaned) => cleaned,
            Err(error) if state.poisoned.is_some() => return Err(error),
            // Without the page of the map that says what is live in it there is no telling. Others can be cleaned.
            Err(error) => {
                tracing::error!(store = self.named.name, segment = number.0, %error, "cannot clean a segment");
                Cleaned::Damaged
            }
        };
        match cleaned {
            Cleaned::Whole => {
                state.core.counters.cleaned_segments += 1;
                if let Some(count) = state.counts.victims.get_mut(tenths) {
                    *count += 1;
                }
                let gained = Pages(segment_blocks.saturating_sub(live).into());
                let worked = took + begun.elapsed().saturating_sub(state.paused.saturating_sub(paused));
                state.block_cost = state.block_cost.after(nanos(worked), gained);
            }
            Cleaned::NoRoom => {}
            Cleaned::Damaged => {
                tracing::error!(
                    store = self.named.name,
                    segment = number.0,
                    "cannot clean a segment; its readable blocks stay there"
                );
                state.core.layout.set_aside(number);
                state.damaged.push(number);
            }
        }
        Ok(cleaned)
    }

    /// Moves the live blocks out of a segment; `window` holds the part that has been read already.
    fn empty(
        &self,
        state: &mut MutexGuard<'_, StoreState>,
        victim: ChosenVictim,
        mut window: Window,
        mut worked: Duration,
    ) -> Result<Cleaned, LogStoreError> {
        let shape = state.core.layout.shape();
        let (mut slot, mut pages) = (0, 0);
        while victim.is_valid(state) && slot + 1 < shape.segment_blocks {
            let at = shape.place(victim.number, slot);
            let mut chunk = window.chunk(slot, &state.core.superblock, at);
            if chunk.is_none() {
                // Before the next piece is read, so that the disk serves others in between.
                self.pause(state, worked);
                let begun = Instant::now();
                let blocks = CHUNK_BLOCKS.min(shape.segment_blocks - slot);
                let read = MutexGuard::unlocked(state, || self.read_log(at, window.begin(slot, blocks)));
                state.core.counters.cleaner_reads += u64::from(blocks);
                worked = begun.elapsed();
                chunk = read.ok().and_then(|()| window.chunk(slot, &state.core.superblock, at));
            }
            let Some(Ok((header, bytes))) = chunk else { return Ok(Cleaned::Damaged) };
            match self.move_chunk(state, &header, at, bytes, (victim, &mut pages))? {
                Cleaned::Whole => slot += header.blocks(),
                other => return Ok(other),
            }
        }
        self.pause(state, worked);
        if let Some(live) = victim.live_blocks(state) {
            if live > Pages(pages) {
                return Ok(Cleaned::Damaged);
            }
            state.core.layout.retire(victim.number);
            // Its headers have been read.
            state.core.discards.forget(victim.number);
        }
        Ok(Cleaned::Whole)
    }

    /// Moves the live blocks of a chunk that was read whole, with its header.
    fn move_chunk(
        &self,
        state: &mut MutexGuard<'_, StoreState>,
        header: &ChunkHeader,
        at: LogBlock,
        window: &[u8],
        (victim, pages): (ChosenVictim, &mut u64),
    ) -> Result<Cleaned, LogStoreError> {
        self.keep_unmapped(state, header, victim);
        for (nth, (entry, slot)) in header.slots().enumerate() {
            let Some(slot) = slot else { continue };
            let from = LogBlock(at.0 + u64::from(slot.0));
            let begin = slot.0 as usize * BLOCK_BYTES;
            let Some(data) = window.get(begin..begin + BLOCK_BYTES) else { return Ok(Cleaned::Damaged) };
            if nth % AT_ONCE == AT_ONCE - 1 {
                MutexGuard::bump(state);
            }
            self.wait_for_writers(state)?;
            // It was emptied meanwhile; what was read may have been written anew since.
            if !victim.is_valid(state) {
                return Ok(Cleaned::Whole);
            }
            match self.move_block(state, (entry, from), data, (victim, &mut *pages))? {
                Cleaned::Whole => {}
                other => return Ok(other),
            }
        }
        self.wake_writers(state);
        Ok(Cleaned::Whole)
    }

    /// Has the log say again which blocks are not mapped, where a chunk that is cleaned says so and something older may
    /// be left of them.
    fn keep_unmapped(&self, state: &mut MutexGuard<'_, StoreState>, header: &ChunkHeader, victim: ChosenVictim) {
        let entries = header.entries.iter().filter(|entry| matches!(entry, Entry::Unmapped { .. }));
        let ranges: Vec<_> = entries.map(Entry::blocks).collect();
        if ranges.is_empty() || victim.oldest.is_none_or(|oldest| oldest > header.clock) {
            return;
        }
        let mut brought = 0;
        for range in &ranges {
            let mut block = state.core.map.next_used(BlockNo(range.start));
            while block.0 < range.end && brought < MOST_BROUGHT {
                let page = MapPage((block.0 / PAGE_ENTRIES as u64) as u32);
                if state.core.map.is_absent(page) {
                    brought += 1;
                    // Without the page nothing is said of its blocks.
                    _ = self.load_page(state, page);
                }
                block = state.core.map.next_used(BlockNo((u64::from(page.0) + 1) * PAGE_ENTRIES as u64));
            }
        }
        let kept: Vec<_> = ranges.into_iter().flat_map(|range| state.core.map.unmapped(range)).collect();
        state.core.discards.repeat(kept);
    }

    fn move_block(
        &self,
        state: &mut MutexGuard<'_, StoreState>,
        (entry, from): (&Entry, LogBlock),
        data: &[u8],
        (victim, pages): (ChosenVictim, &mut u64),
    ) -> Result<Cleaned, LogStoreError> {
        let Some(checksum) = entry.checksum() else { return Ok(Cleaned::Whole) };
        loop {
            let whole = || Checksum::of(data) == checksum;
            let moved = match *entry {
                Entry::Data { block, .. } | Entry::Copy { block, .. } => {
                    let there = state.core.map.get(block).map(|entry| entry.is_some_and(|entry| entry.place == from));
                    match there {
                        Ok(true) if !whole() => return Ok(Cleaned::Damaged),
                        Ok(true) => state.core.copy(block, from, data, checksum).map(drop),
                        Ok(false) => Ok(()),
                        Err(absent) => Err(absent.into()),
                    }
                }
                Entry::MapPage { page, .. } => {
                    let noted = mark_for_checkpoint(state, MapPage(page.0 as u32), from);
                    noted.map(|is_live| *pages += u64::from(is_live))
                }
                Entry::Dead | Entry::Unmapped { .. } | Entry::Mark { .. } => Ok(()),
            };
            match moved {
                Ok(()) => return Ok(Cleaned::Whole),
                Err(Blocked::Full) => return Ok(Cleaned::NoRoom),
                // More of the map is changed than may be in memory: a checkpoint has to come first.
                Err(Blocked::Absent(_)) if self.map_is_full(state) => return Ok(Cleaned::NoRoom),
                Err(stop) => self.unblock(state, stop)?,
            }
            // Others had the lock meanwhile, and may have written to where it was.
            if !victim.is_valid(state) {
                return Ok(Cleaned::Whole);
            }
        }
    }

    /// Leaves the disk to others for a while, if there are any and cleaning is not urgent.
    fn pause(&self, state: &mut MutexGuard<'_, StoreState>, worked: Duration) {
        if !state.threads {
            return;
        }
        let rest = self.pace().rest(&state.core.layout, &state.usage(), nanos(worked));
        let begun = Instant::now();
        let until = begun + Duration::from_nanos(rest.0);
        while !state.closing && state.wanted == 0 && Instant::now() < until {
            self.keeper.wait_until(state, until);
        }
        state.paused += begun.elapsed();
    }
}

/// Marks a page of the map for the next checkpoint, if it lies at `from`. Returns whether it does.
fn mark_for_checkpoint(state: &mut StoreState, page: MapPage, from: LogBlock) -> Result<bool, Blocked> {
    if state.core.page_place(page)? != Some(from) {
        return Ok(false);
    }
    if state.core.map.is_absent(page) {
        return Err(Blocked::Absent(page));
    }
    state.core.map.mark_dirty(page);
    Ok(true)
}
