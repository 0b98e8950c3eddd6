//! Checkpoints: the state of the store, in one of two places in turn.
//!
//! 1. Under the lock: the changed pages of the map are put into the log, all chunks are completed, and the image is
//!    taken. Chunks that are completed later say that they come after this checkpoint.
//! 2. All chunks of the image are written, and the device is flushed: what a checkpoint names must be there when it
//!    counts.
//! 3. The payload is written over that of the checkpoint before the last one, and flushed.
//! 4. Its header, one sector, is written and flushed. From now on it counts.
//! 5. Segments that were cleaned before step 1 are free.
//!
//! A crash before step 4 leaves the last checkpoint and all of the log after it; the chunks that already named the new
//! one follow in the same order.

use parking_lot::MutexGuard;
use umbrella_policy::log_layout::{Layout, MapPage, Mark, Segment, State as TableState};
use umbrella_units::{BLOCK_SECTORS, ByteSize, Lba};

use super::core::{AfterCheckpoint, Blocked};
use super::engine::{StoreShared, StoreState};
use super::error::LogStoreError;
use super::format::{
    BLOCK_BYTES, CheckpointHeader, CheckpointNo, Checksum, Counters, FormatError, Head, IndexEntry, OpenSegment,
    PayloadEncoder, PayloadSum, SegmentEntry, SegmentState, Sequence, Slot, Structure, Superblock, payload_bytes,
};
use super::map_pages::encode_page;
use super::named::NamedDevice;
use crate::device::Durability;
use crate::error::Operation;

/// Gets the amount of work that is done, and that of all work.
pub type Progress<'a> = &'a mut dyn FnMut(u64, u64);

/// Bytes written at once.
const PIECE: usize = 1 << 20;

/// What a checkpoint says.
pub(super) struct Image {
    superblock: Superblock,
    pub(super) header: CheckpointHeader,
    index: Vec<Option<IndexEntry>>,
    table: Vec<Segment>,
    pub(super) mark: Mark,
    /// The last chunk that it covers.
    goal: Sequence,
    pub(super) area: usize,
}

impl StoreShared {
    /// Makes a checkpoint; whether there was room for the map.
    pub(super) fn checkpoint(&self, end: AfterCheckpoint) -> Result<bool, LogStoreError> {
        let _one_at_a_time = self.checkpointing.lock();
        let mut state = self.state.lock();
        self.refuse_if_poisoned(&state)?;
        // The lock is held until the image is taken: a write in between would be neither in the image nor in the log
        // after it.
        let has_room = self.write_map(&mut state)?;
        if !has_room {
            self.wake_writers(&mut state);
            return Ok(false);
        }
        self.seal_at_once(&mut state)?;
        let mut image = take_image(&mut state, end);
        self.trim_map(&mut state, None);
        self.wake_writers(&mut state);
        self.flush_until(&mut state, image.goal)?;
        let (mark, area, number) = (image.mark, image.area, image.header.number);
        let written = MutexGuard::unlocked(&mut state, || image.write(&self.named));
        match written {
            Ok(()) => {
                state.core.layout.checkpointed(mark);
                state.core.covered = image.goal;
                state.area = area;
                state.noted = number;
                state.freed += 1;
                state.counts.checkpoints += 1;
                self.room.notify_all();
                Ok(true)
            }
            Err(error) => {
                state.core.layout.checkpoint_failed();
                self.poison(&mut state, Operation::Flush, &error.clone().on(&self.named.name));
                Err(error)
            }
        }
    }

    /// Puts the changed pages of the map into the log. Whether there was room for all.
    pub(super) fn write_map(&self, state: &mut StoreState) -> Result<bool, LogStoreError> {
        let mut pages = state.core.map.take_dirty().into_iter();
        while let Some(page) = pages.next() {
            match self.write_page(state, page) {
                Ok(()) => {}
                Err(Blocked::Full) => {
                    state.core.map.mark_dirty(page);
                    pages.for_each(|page| state.core.map.mark_dirty(page));
                    return Ok(false);
                }
                Err(stop) => return Err(self.defect(state, stop).into()),
            }
        }
        Ok(true)
    }

    /// Completes all chunks. What is not mapped any more may be left over: those pages of the map have just been
    /// written.
    pub(super) fn seal_at_once(&self, state: &mut StoreState) -> Result<(), LogStoreError> {
        match state.core.seal_all(false) {
            Ok(()) | Err(Blocked::Full) => Ok(()),
            Err(stop) => Err(self.defect(state, stop).into()),
        }
    }

    fn write_page(&self, state: &mut StoreState, page: MapPage) -> Result<(), Blocked> {
        let Some(entries) = state.core.map.entries(page) else {
            return state.core.drop_page(page);
        };
        let block = encode_page(entries, &state.core.superblock, page)?;
        state.core.write_page(page, &block)
    }
}

impl Image {
    /// Writes it to its area.
    pub(super) fn write(&mut self, named: &NamedDevice) -> Result<(), LogStoreError> {
        self.write_with(named, &mut |_, _| {})
    }

    /// The same; `progress` gets the number of bytes written, and that of all bytes.
    pub(super) fn write_with(&mut self, named: &NamedDevice, progress: Progress<'_>) -> Result<(), LogStoreError> {
        let total = payload_bytes(&self.superblock.shape).0;
        let mut done = 0;
        let superblock = &self.superblock;
        let unreadable = FormatError::Unreadable { structure: Structure::Checkpoint };
        let area = superblock.areas.get(self.area).ok_or_else(|| named.format(unreadable))?;
        let start = superblock.device_block(superblock.first_place(area.first));
        let device = &*named.device;
        let mut encoder = PayloadEncoder::new(self.index.iter().copied(), self.table.iter().map(on_disk));
        let mut buffer = vec![0; PIECE];
        let mut at = start.0 + 1;
        loop {
            let filled = encoder.fill(&mut buffer);
            let Some(piece) = buffer.get(..filled).filter(|piece| !piece.is_empty()) else { break };
            device.write(Lba(at * BLOCK_SECTORS), piece, Durability::Cached)?;
            at += (filled / BLOCK_BYTES) as u64;
            done += filled as u64;
            progress(done.min(total), total);
        }
        named.flush()?;
        self.header.payload = encoder.sum();
        let header = self.header.encode(superblock).map_err(|source| named.format(source))?;
        device.write(Lba(start.0 * BLOCK_SECTORS), &header, Durability::Cached)?;
        named.flush()?;
        Ok(())
    }
}

/// The image of a store that was never used.
pub(super) fn first_image(superblock: &Superblock, layout: &Layout, end: AfterCheckpoint) -> Image {
    let pages = superblock.shape.map_pages().0 as usize;
    let header = header(superblock, layout, (CheckpointNo(1), Sequence(1)), (Counters::default(), 0), end);
    let (table, mark) = (layout.table().to_vec(), layout.mark());
    Image { superblock: superblock.clone(), header, index: vec![None; pages], table, mark, goal: Sequence(0), area: 0 }
}

/// The image of the store as it is now. Chunks that are completed later belong to the next checkpoint.
pub(super) fn take_image(state: &mut StoreState, end: AfterCheckpoint) -> Image {
    let core = &mut state.core;
    let mark = core.layout.checkpoint();
    let number = core.epoch.next();
    core.epoch = number;
    core.since_checkpoint = 0;
    let counts = (core.counters, core.map.lost());
    let header = header(&core.superblock, &core.layout, (number, core.next_sequence), counts, end);
    Image {
        superblock: core.superblock.clone(),
        header,
        index: core.index.clone(),
        table: core.layout.table().to_vec(),
        mark,
        goal: core.next_sequence.before(),
        area: 1 - state.area.min(1),
    }
}

fn header(
    superblock: &Superblock,
    layout: &Layout,
    (number, next_sequence): (CheckpointNo, Sequence),
    (counters, lost): (Counters, u64),
    end: AfterCheckpoint,
) -> CheckpointHeader {
    let heads = layout.heads().map(|head| Head {
        open: head.open.map(|(segment, slot)| OpenSegment { segment, slot: Slot(slot) }),
        next: head.next,
    });
    CheckpointHeader {
        store: superblock.store,
        number,
        next_sequence,
        clock: layout.clock(),
        shape: superblock.shape,
        heads: heads.collect(),
        counters,
        payload: PayloadSum { bytes: ByteSize(0), checksum: Checksum(0) },
        lost,
        clean: end == AfterCheckpoint::InOrder,
    }
}

fn on_disk(segment: &Segment) -> SegmentEntry {
    let state = match segment.state {
        TableState::Free => SegmentState::Free,
        TableState::Open => SegmentState::Open,
        TableState::Next => SegmentState::Next,
        TableState::Closing | TableState::Full | TableState::Retiring => SegmentState::Full,
        TableState::Cleaned => SegmentState::Cleaned,
        TableState::System => SegmentState::System,
    };
    let Segment { stream, live, youngest, opened, .. } = *segment;
    SegmentEntry { state, stream, live, youngest, opened }
}
