//! The checksums of blocks, beside the map: what is read is compared with them, so that nothing is passed on that is not what was written.
//!
//! They lie in the headers of chunks. Of what was written since the opening they are known; of other blocks the header is looked for when the first of its chunk is read:
//! the nearest one before it, since a chunk is written in one piece over all that lay there.
//!
//! A checksum is kept with the number of its block mixed in, so that another block at that place is told from it as well. 4 bytes a block, for as many segments as half of
//! the memory of the map has room for.

use parking_lot::MutexGuard;
use umbrella_policy::log_layout::{Layout, Place, SegmentNo, Shape, State as SegmentState};
use umbrella_units::BlockNo;

use super::buffer::CHUNK_BLOCKS;
use super::engine::{Shared, State};
use super::error::LogStoreError;
use super::format::{BLOCK_BYTES, Checksum, ChunkHeader, Entry};
use super::life::Life;
use crate::error::BlockError;

/// Blocks before one that are looked through for its header: first few, for who reads in order.
const LOOKED_THROUGH: [u32; 2] = [4, CHUNK_BLOCKS];
/// Segments that are looked at at most when one has to go.
const STEPS: usize = 64;

/// The checksum of a block, and its number. Never that of no block.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Tag(u32);

impl Tag {
    /// Of a block that is not known, or that need not be compared.
    pub(super) const NONE: Tag = Tag(0);

    pub(super) fn new(block: BlockNo, checksum: Checksum) -> Tag {
        Tag(checksum.append(&block.0.to_le_bytes()).0.max(1))
    }

    /// Whether `data` is that block.
    pub(super) fn fits(self, block: BlockNo, data: &[u8]) -> bool {
        self == Tag::NONE || self == Tag::new(block, Checksum::of(data))
    }
}

/// By segment and slot.
#[derive(Debug)]
pub(super) struct BlockChecksums {
    segments: Vec<Option<Known>>,
    present: usize,
    most: usize,
    hand: usize,
}

#[derive(Debug)]
struct Known {
    tags: Box<[Tag]>,
    used: bool,
}

impl BlockChecksums {
    /// Nothing known; for so many bytes of memory.
    pub(super) fn new(shape: Shape, memory: u64) -> BlockChecksums {
        let most = memory / (u64::from(shape.segment_blocks) * size_of::<Tag>() as u64);
        let mut segments = Vec::new();
        segments.resize_with(shape.segments as usize, || None);
        BlockChecksums { segments, present: 0, most: usize::try_from(most).unwrap_or(usize::MAX).max(32), hand: 0 }
    }

    pub(super) fn grow(&mut self, segments: u32) {
        self.segments.resize_with(segments as usize, || None);
    }

    /// What lay in a segment is written over from now on.
    pub(super) fn begin(&mut self, number: SegmentNo) {
        if let Some(known) = self.segments.get_mut(number.0 as usize)
            && known.take().is_some()
        {
            self.present -= 1;
        }
    }

    /// What the header of a chunk says.
    pub(super) fn note_chunk(&mut self, layout: &Layout, place: Place, header: &ChunkHeader) {
        for (entry, slot) in header.slots() {
            if let Some(slot) = slot {
                self.note(layout, Place(place.0 + u64::from(slot.0)), entry);
            }
        }
    }

    /// What lies at a place.
    pub(super) fn note(&mut self, layout: &Layout, place: Place, entry: &Entry) {
        let (Entry::Data { block, checksum, .. } | Entry::Copy { block, checksum, .. }) = *entry else { return };
        let shape = layout.shape();
        let number = shape.segment(place);
        if self.segments.get(number.0 as usize).is_some_and(Option::is_none) {
            self.make_room(layout);
            self.present += 1;
        }
        let Some(known) = self.segments.get_mut(number.0 as usize) else { return };
        let none = || Known { tags: vec![Tag::NONE; shape.segment_blocks as usize].into(), used: true };
        let known = known.get_or_insert_with(none);
        known.used = true;
        if let Some(tag) = known.tags.get_mut(shape.slot(place) as usize) {
            *tag = Tag::new(block, checksum);
        }
    }

    /// What must lie at a place; [`Tag::NONE`] if that is not known.
    pub(super) fn get(&mut self, shape: Shape, place: Place) -> Tag {
        let known = self.segments.get_mut(shape.segment(place).0 as usize).and_then(Option::as_mut);
        known.map_or(Tag::NONE, |known| {
            known.used = true;
            known.tags.get(shape.slot(place) as usize).copied().unwrap_or_default()
        })
    }

    /// Lets go of a segment that was not used lately, if there are too many. One that is still written cannot be read from the disk again.
    fn make_room(&mut self, layout: &Layout) {
        for _ in 0..STEPS {
            if self.present < self.most {
                return;
            }
            self.hand = (self.hand + 1) % self.segments.len().max(1);
            let is_full = layout.table().get(self.hand).is_some_and(|segment| segment.state == SegmentState::Full);
            let Some(slot) = self.segments.get_mut(self.hand).filter(|_| is_full) else { continue };
            match slot {
                Some(known) if known.used => known.used = false,
                Some(_) => {
                    *slot = None;
                    self.present -= 1;
                }
                None => {}
            }
        }
    }
}

impl Shared {
    /// Looks for the checksum of a block that lies on the disk, if it is not known. The lock is let go of meanwhile: what was looked up has to be looked up again then.
    ///
    /// An error if the header of its chunk cannot be found, or names another block.
    pub(super) fn learn(&self, state: &mut MutexGuard<'_, State>, block: BlockNo, at: Place) -> Result<(), BlockError> {
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
            state.tally.damaged_reads += 1;
            let device = self.named.name.clone();
            return Err(LogStoreError::Unverified { device, block, place: at }.on(&self.named.name));
        }
        Ok(())
    }

    /// A block was read, and is not what was written.
    pub(super) fn damaged(&self, state: &mut State, block: BlockNo, place: Place) -> BlockError {
        state.tally.damaged_reads += 1;
        let error = LogStoreError::Damaged { device: self.named.name.clone(), block, place };
        tracing::error!(store = self.named.name, %error, "a block cannot be read");
        error.on(&self.named.name)
    }
}
