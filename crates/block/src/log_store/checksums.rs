//! The checksums of blocks, beside the map. Every read is compared with them, so that only data that was really written
//! is passed on.
//!
//! They lie in the headers of chunks. The checksums of blocks written since the opening are known. For another block,
//! the header is looked for when the first block of its chunk is read. In a segment with few chunks one header leads to
//! the next. In others it is the nearest header before the block, since a chunk is written in one piece over all that
//! lay there.
//!
//! A checksum is kept with the number of its block mixed in, so that another block at that place is found as well. It
//! takes 4 bytes a block, for as many segments as half of the memory of the map has room for.

use umbrella_policy::log_layout::{Layout, LogBlock, SegmentNo, Shape, State as SegmentState};
use umbrella_units::BlockNo;

use super::format::{Checksum, ChunkHeader, Entry};

/// Segments that are looked at at most when one has to go.
const STEPS: usize = 64;

/// The checksum of a block, and its number. Never that of no block.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Tag(u32);

impl Tag {
    /// The tag of a block that is not known, or that need not be compared.
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
    /// The slot behind the chunks that were followed from the first one on.
    followed: u32,
    used: bool,
}

impl BlockChecksums {
    /// No checksum is known yet; they may take `memory` bytes.
    pub(super) fn new(shape: Shape, memory: u64) -> BlockChecksums {
        let most = memory / (u64::from(shape.segment_blocks) * size_of::<Tag>() as u64);
        let mut segments = Vec::new();
        segments.resize_with(shape.segments as usize, || None);
        BlockChecksums { segments, present: 0, most: usize::try_from(most).unwrap_or(usize::MAX).max(32), hand: 0 }
    }

    pub(super) fn grow(&mut self, segments: u32) {
        self.segments.resize_with(segments as usize, || None);
    }

    /// Forgets a segment, whose contents will be overwritten.
    pub(super) fn begin(&mut self, number: SegmentNo) {
        if let Some(known) = self.segments.get_mut(number.0 as usize)
            && known.take().is_some()
        {
            self.present -= 1;
        }
    }

    /// What the header of a chunk says.
    pub(super) fn note_chunk(&mut self, layout: &Layout, place: LogBlock, header: &ChunkHeader) {
        for (entry, slot) in header.slots() {
            if let Some(slot) = slot {
                self.note(layout, LogBlock(place.0 + u64::from(slot.0)), entry);
            }
        }
    }

    /// Where to continue following the chunks of a segment, to get to a place.
    pub(super) fn followed(&self, shape: Shape, at: LogBlock) -> LogBlock {
        let known = self.segments.get(shape.segment(at).0 as usize).and_then(Option::as_ref);
        LogBlock(at.0 - u64::from(shape.slot(at)) + u64::from(known.map_or(0, |known| known.followed)))
    }

    /// What the headers of chunks say that were followed so far.
    pub(super) fn follow(&mut self, layout: &Layout, chunks: &[(LogBlock, ChunkHeader)]) {
        for (place, header) in chunks {
            self.note_chunk(layout, *place, header);
            let shape = layout.shape();
            let number = shape.segment(*place).0 as usize;
            if let Some(known) = self.segments.get_mut(number).and_then(Option::as_mut) {
                known.followed = shape.slot(*place) + header.blocks();
            }
        }
    }

    /// What lies at a place.
    pub(super) fn note(&mut self, layout: &Layout, place: LogBlock, entry: &Entry) {
        let (Entry::Data { block, checksum, .. } | Entry::Copy { block, checksum, .. }) = *entry else { return };
        let shape = layout.shape();
        let number = shape.segment(place);
        if self.segments.get(number.0 as usize).is_some_and(Option::is_none) {
            self.make_room(layout);
            self.present += 1;
        }
        let Some(known) = self.segments.get_mut(number.0 as usize) else { return };
        let none = || Known { tags: vec![Tag::NONE; shape.segment_blocks as usize].into(), followed: 0, used: true };
        let known = known.get_or_insert_with(none);
        known.used = true;
        if let Some(tag) = known.tags.get_mut(shape.slot(place) as usize) {
            *tag = Tag::new(block, checksum);
        }
    }

    /// What must lie at a place; [`Tag::NONE`] if that is not known.
    pub(super) fn get(&mut self, shape: Shape, place: LogBlock) -> Tag {
        let known = self.segments.get_mut(shape.segment(place).0 as usize).and_then(Option::as_mut);
        known.map_or(Tag::NONE, |known| {
            known.used = true;
            known.tags.get(shape.slot(place) as usize).copied().unwrap_or_default()
        })
    }

    /// Lets go of a segment that was not used lately, if there are too many. One that is still written cannot be read
    /// from the disk again.
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
