//! Following the log after a checkpoint: which chunks count, and what they say. What is damaged is skipped in `skip`.

use std::collections::BTreeMap;
use std::ops::Range;

use umbrella_policy::log_layout::{Absent, Clock, FoundChunk, LogBlock, LogicalMap, MapEntry};
use umbrella_units::BlockNo;

use super::chunks_behind::ChunksBehind;
use super::core::Core;
use super::counts::MOST;
use super::error::LogStoreError;
use super::format::{BLOCK_BYTES, CheckpointNo, ChunkHeader, Entry, Repeat, Sequence, Slot};
use super::later_checkpoint::LaterCheckpoint;
use super::named::NamedDevice;
use crate::error::BlockError;

/// Follows the log after a checkpoint.
pub(super) struct Replay<'a> {
    pub(super) named: &'a NamedDevice,
    pub(super) core: Core,
    pub(super) first_epoch: CheckpointNo,
    /// The last epoch whose chunks count.
    pub(super) last_epoch: CheckpointNo,
    /// What chunks say of newer checkpoints.
    pub(super) later: LaterCheckpoint,
    /// By stream: the next chunk there, if it has been looked for, and where.
    pub(super) waiting: Vec<Option<(LogBlock, Option<ChunkHeader>)>>,
    /// Where it could not be read.
    pub(super) unreadable: BTreeMap<LogBlock, BlockError>,
    /// How far the log was flushed, and promised to be, as its chunks say.
    pub(super) mark: (Sequence, Sequence),
    /// What to do when a page of the map cannot be used.
    pub(super) lost_pages: LostPages,
    /// Whether it ended because of one.
    pub(super) lacks_page: bool,
    /// What to do with a chunk that is damaged although it had been flushed.
    pub(super) on_damage: OnDamage,
    /// What was skipped.
    pub(super) skipped: Skipped,
}

/// What is done about a chunk that is damaged although it had been flushed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OnDamage {
    /// The log ends there.
    End,
    /// It is skipped if it is known which blocks are lost.
    Skip,
}

/// What was skipped.
#[derive(Debug, Default)]
pub(super) struct Skipped {
    /// Blocks that were lost in it, in no order; they may have been written later.
    pub(super) blocks: Vec<Range<u64>>,
    /// Chunks behind the first that was skipped, and the last that had been flushed.
    pub(super) behind: Option<(ChunksBehind, Sequence)>,
}

/// What to do when the log continues in a page of the map that cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LostPages {
    /// It ends with the error of that page.
    Fail,
    /// The replay continues without the page; reads of its blocks fail.
    Skip,
}

impl Replay<'_> {
    /// Takes chunk after chunk; how many there were.
    pub(super) fn run(&mut self) -> Result<u64, LogStoreError> {
        let streams = self.core.layout.heads().count();
        self.waiting.resize_with(streams, || None);
        let mut count = 0;
        loop {
            while let Some((place, header)) = self.next() {
                let mut data = vec![0; header.data_blocks() as usize * BLOCK_BYTES];
                let at = self.core.superblock.device_block(LogBlock(place.0 + 1));
                if let Err(error) = self.named.block(at, &mut data) {
                    self.unreadable.insert(place, error);
                    break;
                }
                if header.verify_data(&data).is_err() {
                    break;
                }
                self.enter(place, &header, |_| true)?;
                count += 1;
            }
            if self.extend() {
                continue;
            }
            if self.on_damage == OnDamage::End || !self.skip()? {
                return Ok(count);
            }
            count += 1;
        }
    }

    /// The chunk that comes next in order, if some stream has it. Of two with its number the later one: the other was
    /// abandoned.
    pub(super) fn next(&mut self) -> Option<(LogBlock, ChunkHeader)> {
        let wanted = self.core.next_sequence;
        let heads: Vec<_> = self.core.layout.heads().collect();
        let mut latest: Option<(LogBlock, ChunkHeader)> = None;
        for (stream, head) in heads.into_iter().enumerate() {
            let Some((segment, slot)) = head.open else { continue };
            let shape = self.core.layout.shape();
            if slot + 1 >= shape.segment_blocks {
                continue;
            }
            let place = shape.place(segment, slot);
            let known = self.waiting.get(stream).and_then(Option::as_ref).is_some_and(|(at, _)| *at == place);
            if !known {
                let found = self.header(place, stream);
                if let Some(slot) = self.waiting.get_mut(stream) {
                    *slot = Some((place, found));
                }
            }
            if let Some(Some((at, Some(header)))) = self.waiting.get(stream)
                && header.sequence == wanted
                && latest.as_ref().is_none_or(|(_, latest)| latest.epoch < header.epoch)
            {
                latest = Some((*at, header.clone()));
            }
        }
        latest
    }

    /// The header of a chunk that a stream wrote after the checkpoint.
    fn header(&mut self, place: LogBlock, stream: usize) -> Option<ChunkHeader> {
        let mut block = [0; BLOCK_BYTES];
        if let Err(error) = self.named.block(self.core.superblock.device_block(place), &mut block) {
            self.unreadable.insert(place, error);
            return None;
        }
        let header = ChunkHeader::parse(&block, &self.core.superblock, place).ok()?;
        self.note_later(&header);
        (usize::from(header.stream.0) == stream && self.is_of_this_log(&header)).then_some(header)
    }

    /// Whether a chunk was written since the checkpoint. The epoch of the log so far begins with that of the checkpoint
    /// and only grows: nothing older than either counts.
    pub(super) fn is_of_this_log(&self, header: &ChunkHeader) -> bool {
        let epochs = self.core.epoch..=self.last_epoch;
        header.clock.0 <= MOST && epochs.contains(&header.epoch)
    }

    /// How many streams continue behind the end of the log: with a chunk that is not whole, or one that comes after a
    /// gap.
    pub(super) fn abandoned(&self) -> u64 {
        let ahead = |(_, header): &&(LogBlock, Option<ChunkHeader>)| {
            header.as_ref().is_some_and(|header| header.sequence >= self.core.next_sequence)
        };
        self.waiting.iter().flatten().filter(ahead).count() as u64
    }

    /// Takes a chunk; of its data only what is whole, by its slots behind the header.
    pub(super) fn enter(
        &mut self,
        place: LogBlock,
        header: &ChunkHeader,
        is_whole: impl Fn(Slot) -> bool,
    ) -> Result<(), LogStoreError> {
        let chunk = self.begin(place, Repeat::of(header, place), header.clock)?;
        self.core.sums.note_chunk(&self.core.layout, place, header);
        self.core.discards.note(chunk.segment, &header.entries);
        for (entry, slot) in header.slots() {
            let here = LogBlock(place.0 + slot.map_or(0, |slot| u64::from(slot.0)));
            match *entry {
                Entry::Data { block, .. } | Entry::Copy { block, .. } if !slot.is_none_or(&is_whole) => {
                    self.lose(block)?;
                }
                Entry::Data { block, stamp, .. } | Entry::Copy { block, stamp, .. } => {
                    self.set(block, Some(MapEntry { place: here, stamp }))?;
                    let written = self.core.layout.stamps().clock(stamp, chunk.clock);
                    self.core.layout.replay_block(here, written);
                }
                Entry::Unmapped { start, blocks } => self.unmap(start, BlockNo(start.0 + u64::from(blocks)))?,
                // Written for a checkpoint that does not count.
                Entry::MapPage { .. } | Entry::Dead | Entry::Mark { .. } => {}
            }
        }
        if let Some((flushed, promised)) = header.mark() {
            self.mark = (self.mark.0.max(flushed), self.mark.1.max(promised));
        }
        self.core.epoch = header.epoch;
        self.core.counters.user_blocks = self.core.counters.user_blocks.max(header.clock.0);
        self.end(chunk)
    }

    /// A chunk comes next, at this place.
    pub(super) fn begin(&mut self, place: LogBlock, repeat: Repeat, clock: Clock) -> Result<FoundChunk, LogStoreError> {
        let shape = self.core.layout.shape();
        let (segment, start) = (shape.segment(place), shape.slot(place));
        let end = start + repeat.blocks;
        let chunk = FoundChunk { stream: repeat.stream, segment, start, end, next: repeat.next, clock };
        let replay = |source| LogStoreError::Replay { device: self.named.name.clone(), source };
        self.core.layout.replay_chunk(chunk).map_err(replay)?;
        if start == 0 {
            self.core.begin(segment);
        }
        self.core.last = Some(repeat);
        Ok(chunk)
    }

    /// All that the chunk says has been entered.
    pub(super) fn end(&mut self, chunk: FoundChunk) -> Result<(), LogStoreError> {
        // What a lost page hid had left the segment that the log continues in.
        if let Some(next) = chunk.next.filter(|_| !self.core.unusable.is_empty() || self.core.map.lost() > 0) {
            self.core.layout.replay_emptied(next);
        }
        let replay = |source| LogStoreError::Replay { device: self.named.name.clone(), source };
        self.core.layout.replay_end(chunk).map_err(replay)?;
        self.core.next_sequence = self.core.next_sequence.next();
        self.core.counters.header_blocks += 1;
        self.core.since_checkpoint += u64::from(chunk.end - chunk.start);
        Ok(())
    }

    fn unmap(&mut self, first: BlockNo, end: BlockNo) -> Result<(), LogStoreError> {
        let mut block = self.core.map.next_used(first);
        while block < end {
            self.set(block, None)?;
            block = self.core.map.next_used(block.next());
        }
        Ok(())
    }

    fn set(&mut self, block: BlockNo, entry: Option<MapEntry>) -> Result<(), LogStoreError> {
        self.change(|map| map.set(block, entry))
    }

    /// What a block held is lost.
    pub(super) fn lose(&mut self, block: BlockNo) -> Result<(), LogStoreError> {
        self.change(|map| map.lose(block))
    }

    /// Changes the map, and forgets where the block lay.
    fn change(
        &mut self,
        change: impl Fn(&mut LogicalMap) -> Result<Option<MapEntry>, Absent>,
    ) -> Result<(), LogStoreError> {
        loop {
            match change(&mut self.core.map) {
                Ok(old) => {
                    if let Some(old) = old {
                        self.core.layout.forget(old.place);
                    }
                    return Ok(());
                }
                Err(Absent(page)) => match self.named.load_page(&mut self.core, page) {
                    Err(error) if self.lost_pages == LostPages::Skip => {
                        self.core.unusable.insert(page, error);
                        return Ok(());
                    }
                    Err(error) => {
                        self.lacks_page = true;
                        return Err(error);
                    }
                    Ok(()) => {}
                },
            }
        }
    }
}
