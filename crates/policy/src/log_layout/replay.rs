//! Recovery: the log after the last checkpoint, chunk by chunk, in the order in which it was written.

use std::collections::BTreeSet;

use thiserror::Error;

use super::ids::{Clock, LogBlock, SegmentNo, Stream};
use super::layout::{Head, Layout};
use super::table::{Segment, State};

/// A chunk that was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FoundChunk {
    /// Its writer.
    pub stream: Stream,
    /// Its segment.
    pub segment: SegmentNo,
    /// The slot of its header.
    pub start: u32,
    /// The slot after its last block.
    pub end: u32,
    /// The segment after this one, as its header says.
    pub next: Option<SegmentNo>,
    /// The clock, as its header says.
    pub clock: Clock,
}

/// A chunk that the log cannot have written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum ReplayError {
    /// It is not where its stream stands.
    #[error("chunk at slot {start} of segment {} is not at the write position of stream {}", segment.0, stream.0)]
    NotAtHead {
        /// Whose.
        stream: Stream,
        /// Where it is.
        segment: SegmentNo,
        /// Where in it.
        start: u32,
    },
    /// The segment it continues in holds data.
    #[error("stream {} continues in segment {}, which is in use", stream.0, next.0)]
    NextInUse {
        /// Whose.
        stream: Stream,
        /// Which segment.
        next: SegmentNo,
    },
}

impl Layout {
    /// Open segments without room for another chunk are full. The log never leaves one open.
    pub(super) fn close_full_heads(&mut self) {
        let least = self.least();
        for growing in &mut self.growing {
            let Some((segment, slot)) = growing.head.open else { continue };
            if self.shape.segment_blocks.saturating_sub(slot) >= least {
                continue;
            }
            self.table[segment.0 as usize].state = State::Full;
            growing.head = Head { open: growing.head.next.map(|segment| (segment, 0)), next: None };
            if let Some(next) = growing.head.open {
                self.table[next.0.0 as usize].state = State::Open;
            }
        }
    }

    /// A chunk of the log: moves its stream on. Its blocks follow with [`Layout::replay_block`], and
    /// [`Layout::replay_end`] ends it.
    pub fn replay_chunk(&mut self, chunk: FoundChunk) -> Result<(), ReplayError> {
        let FoundChunk { stream, segment, start, end, .. } = chunk;
        let not_at_head = ReplayError::NotAtHead { stream, segment, start };
        let growing = self.growing.get_mut(usize::from(stream.0)).ok_or(not_at_head)?;
        if growing.head.open != Some((segment, start)) || end <= start || end > self.shape.segment_blocks {
            return Err(not_at_head);
        }
        growing.head.open = Some((segment, end));
        self.clock = self.clock.max(chunk.clock);
        Ok(())
    }

    /// A block of that chunk that is current now.
    pub fn replay_block(&mut self, place: LogBlock, written: Clock) {
        self.enter(place, written);
    }

    /// The chunk has been entered: its segment may be full now, and its stream may have been given another next one.
    pub fn replay_end(&mut self, chunk: FoundChunk) -> Result<(), ReplayError> {
        let FoundChunk { stream, segment, next, .. } = chunk;
        if let Some(wanted) = next {
            self.replay_next(stream, wanted)?;
        }
        let sealed = self.shape.segment_blocks - chunk.end < 2;
        if sealed {
            self.table[segment.0 as usize].state = State::Closing;
            self.fresh.push(segment);
            let growing = &mut self.growing[usize::from(stream.0)];
            let after = growing.head.next.take();
            growing.head.open = after.map(|segment| (segment, 0));
            if let Some(after) = after {
                let opened = self.clock;
                let entry = &mut self.table[after.0 as usize];
                entry.state = State::Open;
                entry.opened = opened;
            }
            self.settled(segment);
        }
        Ok(())
    }

    /// Notes that the log continues in this segment, so nothing in it is current any more, although the map does not
    /// say what took its place. For a log whose map has lost pages; to be called before [`Layout::replay_end`].
    pub fn replay_emptied(&mut self, number: SegmentNo) {
        let Some(segment) = self.table.get_mut(number.0 as usize) else { return };
        if !matches!(segment.state, State::Full | State::Retiring) {
            return;
        }
        self.live -= u64::from(std::mem::take(&mut segment.live));
        self.reclaim(number);
    }

    /// Sets the number of current blocks of a full segment, whatever the table said: for a log whose map has lost some
    /// of those that were.
    pub fn recount(&mut self, number: SegmentNo, live: u32) {
        let Some(segment) = self.table.get_mut(number.0 as usize) else { return };
        self.live = self.live.saturating_sub(segment.live.into()) + u64::from(live);
        segment.live = live;
        if live == 0 && matches!(segment.state, State::Full | State::Retiring) {
            self.reclaim(number);
        }
    }

    /// Gives a stream the next segment that a header names, in place of the one it has.
    fn replay_next(&mut self, stream: Stream, next: SegmentNo) -> Result<(), ReplayError> {
        let in_use = ReplayError::NextInUse { stream, next };
        let Head { next: had, .. } = self.growing[usize::from(stream.0)].head;
        if had == Some(next) {
            return Ok(());
        }
        let state = self.table.get(next.0 as usize).ok_or(in_use)?.state;
        match state {
            State::Free => _ = self.free.remove(next),
            // It leaves the list of those at the end.
            State::Cleaned => {}
            _ => return Err(in_use),
        }
        if let Some(had) = had {
            self.hold(stream, false);
            self.table[had.0 as usize] = Segment::FREE;
            self.free.add(had);
        }
        self.hold(stream, true);
        self.table[next.0 as usize] =
            Segment { state: State::Next, stream, fresh: true, opened: self.clock, ..Segment::FREE };
        self.growing[usize::from(stream.0)].head.next = Some(next);
        Ok(())
    }

    /// The log ends here: streams that have no segment get one. A checkpoint has to follow before anything is written.
    pub fn replayed(&mut self) {
        let mut seen = BTreeSet::new();
        let table = &self.table;
        let is_cleaned = |number: SegmentNo| table.get(number.0 as usize).is_some_and(|it| it.state == State::Cleaned);
        let last = self.cleaned.iter().rev().filter(|(_, number)| is_cleaned(*number) && seen.insert(*number));
        let mut cleaned: Vec<_> = last.copied().collect();
        cleaned.reverse();
        self.cleaned = cleaned;
        self.open_heads(false);
    }
}
