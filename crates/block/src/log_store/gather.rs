//! Reads segments for cleaning.
//!
//! A segment is usually read whole, in one request. One in which little is live is read chunk by chunk. First comes the
//! chunk's header, which names the blocks behind it, then those of them that the map still places there. Small gaps
//! between the blocks are read with them. So the disk gets requests for ever higher blocks of one segment, and skips
//! the rest. Pages of the map are not read: the next checkpoint writes them from memory.
//!
//! On a disk that rotates, a segment is always read whole. The blocks between pass under its head anyway, and each
//! further request may cost a turn. On a modelled disk hot and cold writes took 7 % longer when it was read in parts.

use std::thread::ScopedJoinHandle;

use umbrella_policy::log_layout::{LogBlock, MapPage};

use super::buffer::Window;
use super::clean::ChosenVictim;
use super::core::Blocked;
use super::engine::{StoreShared, StoreState};
use super::format::{ChunkHeader, Entry};
use crate::error::BlockError;

/// The most blocks without live data that are read so that the live ones before and behind them take one request. Also
/// the size of a chunk from which on its header is worth a request of its own: 64 KiB.
const BRIDGED: u32 = 16;

/// Blocks in a row, by their slots: the first, and the one behind the last.
type SlotRun = (u32, u32);

impl StoreShared {
    /// Reads each, or the beginning of a large one. What cannot be read is left out.
    pub(super) fn read_victims(&self, victims: &[ChosenVictim]) -> Vec<Window> {
        let read = |victim: ChosenVictim| self.read_victim(victim).unwrap_or_default();
        std::thread::scope(|scope| {
            let start = |victim| std::thread::Builder::new().spawn_scoped(scope, move || read(victim));
            let others: Vec<_> = victims.iter().skip(1).map(|victim| (*victim, start(*victim))).collect();
            let first = victims.first().map(|victim| read(*victim));
            // Without a thread for it, or if that panicked, nothing has been read yet.
            let other = |(victim, reader): (_, std::io::Result<ScopedJoinHandle<'_, Window>>)| match reader {
                Ok(reader) => reader.join().unwrap_or_default(),
                Err(_) => read(victim),
            };
            first.into_iter().chain(others.into_iter().map(other)).collect()
        })
    }

    fn read_victim(&self, victim: ChosenVictim) -> Result<Window, BlockError> {
        let (pace, mut window) = (self.pace(), Window::default());
        let start = LogBlock(u64::from(victim.number.0) * self.segment_blocks);
        if pace.reads_only_live(victim.live, self.named.device.geometry().rotational) {
            self.gather(&mut window, start, victim.live.0)?;
        } else {
            self.read_log(start, window.begin(0, pace.read_at_once().0 as u32))?;
        }
        Ok(window)
    }

    /// Reads of a segment the headers, and what is live, until that has been found.
    fn gather(&self, window: &mut Window, start: LogBlock, live: u64) -> Result<(), BlockError> {
        let segment_blocks = self.segment_blocks as u32;
        let (mut slot, mut found) = (0, 0);
        while slot + 1 < segment_blocks && found < live {
            let at = LogBlock(start.0 + u64::from(slot));
            self.read_log(at, window.extend(slot, slot + 1))?;
            let (blocks, runs) = {
                let mut state = self.state.lock();
                // The later move of its blocks finds that it is damaged.
                let Some(Ok(header)) = window.header(slot, &state.core.superblock, at) else { return Ok(()) };
                // The later move of its blocks finds that a page is impossible.
                let Ok((runs, count)) = live_runs(&mut state, &header, at, slot) else { return Ok(()) };
                found += count;
                (header.blocks(), runs)
            };
            // After many flushes there are many small chunks: a request for each would cost more.
            let rest = (slot + 1, segment_blocks);
            let (runs, end) = if blocks <= BRIDGED { (vec![rest], segment_blocks) } else { (runs, slot + blocks) };
            for (first, behind) in runs {
                self.read_log(LogBlock(start.0 + u64::from(first)), window.extend(first, behind))?;
            }
            window.pad(end);
            slot = end;
        }
        Ok(())
    }
}

/// What of a chunk at a slot of its segment has to be read for moving it, and how many blocks in it are live for
/// certain.
fn live_runs(
    state: &mut StoreState,
    header: &ChunkHeader,
    at: LogBlock,
    slot: u32,
) -> Result<(Vec<SlotRun>, u64), Blocked> {
    let (mut runs, mut found): (Vec<SlotRun>, u64) = (Vec::new(), 0);
    for (entry, behind) in header.slots() {
        let Some(behind) = behind else { continue };
        let from = LogBlock(at.0 + u64::from(behind.0));
        let is_live = match *entry {
            Entry::Data { block, .. } | Entry::Copy { block, .. } => {
                let there = state.core.map.get(block).map(|entry| entry.is_some_and(|entry| entry.place == from));
                found += u64::from(there == Ok(true));
                // Where the map is not in memory, it may be.
                there.unwrap_or(true)
            }
            Entry::MapPage { page, .. } => {
                found += u64::from(state.core.page_place(MapPage(page.0 as u32))? == Some(from));
                false
            }
            Entry::Dead | Entry::Unmapped { .. } | Entry::Mark { .. } => false,
        };
        let this = slot + behind.0;
        match runs.last_mut() {
            _ if !is_live => {}
            Some((_, end)) if this - *end <= BRIDGED => *end = this + 1,
            _ => runs.push((this, this + 1)),
        }
    }
    Ok((runs, found))
}
