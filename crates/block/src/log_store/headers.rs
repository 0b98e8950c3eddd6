//! The chunks of a segment, found by their headers: for a store without its map.
//!
//! A header says how many blocks lie behind it, so each one leads to the next from the beginning of the segment on.
//! Behind a damaged header, the next one is searched for block by block. It must be later than those before it. So
//! neither the remains of an earlier life of the segment nor a user's data is mistaken for one.

use std::ops::Range;

use umbrella_policy::log_layout::{LogBlock, SegmentNo};

use super::format::{BLOCK_BYTES, CheckpointNo, ChunkHeader, Sequence, Slot, Superblock};
use super::named::NamedDevice;

/// Blocks that are read at once where the next header has to be searched for.
const PIECE: u32 = 256;

/// Where in the log a chunk stands. A later one has a higher epoch, or the same and a higher number.
pub(super) type Order = (CheckpointNo, Sequence);

/// What was found in a segment.
#[derive(Debug, Default)]
pub(super) struct Headers {
    /// Chunks, and where they begin.
    pub(super) chunks: Vec<(LogBlock, ChunkHeader)>,
    /// Whether each led to the next, so that there are no others.
    pub(super) is_whole: bool,
}

/// Reads blocks of a segment, in larger pieces if they are wanted one after the other.
struct SegmentBlocks<'a> {
    named: &'a NamedDevice,
    superblock: &'a Superblock,
    first: LogBlock,
    start: u32,
    piece: Vec<u8>,
}

impl SegmentBlocks<'_> {
    /// The header at a slot, if there is one.
    fn header(&mut self, slot: u32, ahead: u32) -> Option<ChunkHeader> {
        let at = LogBlock(self.first.0 + u64::from(slot));
        if self.block(slot).is_none() {
            self.start = slot;
            self.piece.resize(ahead.max(1) as usize * BLOCK_BYTES, 0);
            let mut read = self.named.log(self.superblock, at, &mut self.piece);
            if read.is_err() && ahead > 1 {
                // One block that cannot be read must not hide the others.
                self.piece.truncate(BLOCK_BYTES);
                read = self.named.log(self.superblock, at, &mut self.piece);
            }
            if read.is_err() {
                self.piece.clear();
            }
        }
        let bytes = self.block(slot);
        ChunkHeader::parse(bytes?, self.superblock, at).ok()
    }

    fn block(&self, slot: u32) -> Option<&[u8]> {
        let from = slot.checked_sub(self.start)? as usize * BLOCK_BYTES;
        self.piece.get(from..from + BLOCK_BYTES)
    }
}

/// Finds the chunks of a segment up to the slot `end`. If each holds only discards, they take more memory than on the
/// disk. Callers that need one after the other use [`for_each_header`].
pub(super) fn headers(named: &NamedDevice, superblock: &Superblock, segment: SegmentNo, end: u32) -> Headers {
    let mut chunks = Vec::new();
    let note = |place, header: &ChunkHeader| chunks.push((place, header.clone()));
    let is_whole = for_each_header((named, superblock), segment, 0..end, |_| true, note);
    Headers { chunks, is_whole }
}

/// Gives `each` the chunks between two slots of a segment, if they count. A chunk should begin at the first of these
/// slots. Returns whether each chunk led to the next.
pub(super) fn for_each_header(
    (named, superblock): (&NamedDevice, &Superblock),
    segment: SegmentNo,
    slots: Range<u32>,
    counts: impl Fn(&ChunkHeader) -> bool,
    mut each: impl FnMut(LogBlock, &ChunkHeader),
) -> bool {
    let shape = &superblock.shape;
    let first = shape.place(segment, Slot(0));
    let mut blocks = SegmentBlocks { named, superblock, first, start: 0, piece: Vec::new() };
    // A device that was cut ends before its store does.
    let present = named.device.geometry().capacity.block().0.saturating_sub(superblock.device_block(first).0);
    let end = slots.end.min(u32::try_from(present).unwrap_or(u32::MAX));
    let mut is_whole = end == slots.end;
    let (mut slot, mut ahead) = (slots.start, 1);
    let mut last: Option<Order> = None;
    // The last slot of a full segment has no room for a chunk.
    while slot < end && slot + 1 < shape.segment_blocks() {
        let header = blocks.header(slot, ahead.min(end - slot)).filter(&counts);
        if let Some(header) = header.filter(|header| last.is_none_or(|last| last < order(header))) {
            last = Some(order(&header));
            each(LogBlock(first.0 + u64::from(slot)), &header);
            (slot, ahead) = (slot + header.blocks(), 1);
        } else {
            is_whole = false;
            (slot, ahead) = (slot + 1, PIECE);
        }
    }
    is_whole
}

/// Where a chunk is in the log.
pub(super) fn order(header: &ChunkHeader) -> Order {
    (header.epoch, header.sequence)
}
