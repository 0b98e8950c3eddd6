//! Chunks on their way to the disk: those being filled, one a stream, and those that are complete and wait to be
//! written.

use std::sync::Arc;

use umbrella_policy::log_layout::{LogBlock, SegmentNo, Stream};

use super::format::{BLOCK_BYTES, ChunkHeader, Entry, FormatError, MAX_ENTRIES, Repeat, Sequence, Superblock};

/// Blocks of a chunk with its header. Fewer than a header could name, so that each has room for what is not mapped any
/// more.
pub(super) const CHUNK_BLOCKS: u32 = 241;
/// Ranges that are not mapped any more that one chunk always has room for, beside the mark of flushes.
pub(super) const MOST_UNMAPPED: usize = MAX_ENTRIES - (CHUNK_BLOCKS as usize - 1) - 1;

/// A chunk that is being filled.
#[derive(Debug)]
pub(super) struct Filling {
    /// Where its header goes.
    start: LogBlock,
    entries: Vec<Entry>,
    /// Room for the header, then the data.
    bytes: Vec<u8>,
    /// Whether it has something that the next flush must make durable.
    pub(super) of_user: bool,
}

/// A chunk that is complete.
#[derive(Debug)]
pub(super) struct Chunk {
    /// Its number.
    pub(super) sequence: Sequence,
    /// Where its header goes.
    pub(super) start: LogBlock,
    /// Header and data.
    pub(super) bytes: Vec<u8>,
    /// The segment that ends with it.
    pub(super) closes: Option<SegmentNo>,
}

impl Filling {
    /// An empty one, in memory that was used before.
    pub(super) fn new(start: LogBlock, mut bytes: Vec<u8>) -> Filling {
        bytes.clear();
        bytes.reserve_exact(CHUNK_BLOCKS as usize * BLOCK_BYTES);
        bytes.resize(BLOCK_BYTES, 0);
        Filling { start, entries: Vec::with_capacity(MAX_ENTRIES), bytes, of_user: false }
    }

    /// Takes a block; it lies at the next place.
    pub(super) fn push(&mut self, entry: Entry, data: &[u8]) {
        self.entries.push(entry);
        self.bytes.extend_from_slice(data);
    }

    /// Where its header goes.
    pub(super) fn start(&self) -> LogBlock {
        self.start
    }

    /// How many entries it has.
    pub(super) fn entries(&self) -> usize {
        self.entries.len()
    }

    /// The data at a place, if it is in here.
    pub(super) fn block(&self, place: LogBlock) -> Option<&[u8]> {
        block(&self.bytes, self.start, place)
    }

    /// The block at this place was replaced before it was written: no read must find it.
    pub(super) fn kill(&mut self, place: LogBlock) {
        let nth = place.0.checked_sub(self.start.0 + 1).and_then(|nth| usize::try_from(nth).ok());
        if let Some(entry) = nth.and_then(|nth| self.entries.get_mut(nth)) {
            *entry = Entry::Dead;
        }
    }

    /// Completes it: `header` has everything but the entries, `unmapped` come before the others, because they are
    /// older. Also what the chunk after it repeats of it.
    pub(super) fn seal(
        mut self,
        mut header: ChunkHeader,
        unmapped: impl Iterator<Item = Entry>,
        superblock: &Superblock,
        closes: Option<SegmentNo>,
    ) -> Result<(Chunk, Repeat), FormatError> {
        header.entries.extend(unmapped);
        header.entries.append(&mut self.entries);
        let block = header.encode(superblock, self.start)?;
        self.bytes.splice(..BLOCK_BYTES, block);
        let repeat = Repeat::of(&header, self.start);
        Ok((Chunk { sequence: header.sequence, start: self.start, bytes: self.bytes, closes }, repeat))
    }
}

impl Chunk {
    /// The data at a place, if it is in here.
    pub(super) fn block(&self, place: LogBlock) -> Option<&[u8]> {
        block(&self.bytes, self.start, place)
    }
}

/// The data of a place in a chunk that starts at `start`.
fn block(bytes: &[u8], start: LogBlock, place: LogBlock) -> Option<&[u8]> {
    let nth = usize::try_from(place.0.checked_sub(start.0)?).ok().filter(|nth| *nth > 0)?;
    bytes.get(nth.checked_mul(BLOCK_BYTES)?..)?.get(..BLOCK_BYTES)
}

/// All chunks that are not on the disk yet.
#[derive(Debug, Default)]
pub(super) struct Chunks {
    /// By stream.
    pub(super) filling: Vec<Option<Filling>>,
    /// Complete, to be written in this order.
    pub(super) waiting: std::collections::VecDeque<Arc<Chunk>>,
    /// Being written; those that could not be written stay here.
    pub(super) writing: Vec<Arc<Chunk>>,
    /// Memory of chunks that were written.
    pub(super) spare: Vec<Vec<u8>>,
}

impl Chunks {
    /// The data at a place, if it is not on the disk yet.
    pub(super) fn block(&self, place: LogBlock) -> Option<&[u8]> {
        let filling = self.filling.iter().flatten().find_map(|chunk| chunk.block(place));
        filling.or_else(|| self.waiting.iter().chain(&self.writing).find_map(|chunk| chunk.block(place)))
    }

    /// The block at this place was replaced; if its chunk is not complete yet, it will say so.
    pub(super) fn kill(&mut self, place: LogBlock) {
        for chunk in self.filling.iter_mut().flatten() {
            chunk.kill(place);
        }
    }

    /// The stream whose chunk has something for the next flush, if there is one.
    pub(super) fn of_user(&self) -> Option<Stream> {
        let streams = (0..).map(Stream).zip(&self.filling);
        streams
            .into_iter()
            .find(|(_, chunk)| chunk.as_ref().is_some_and(|chunk| chunk.of_user))
            .map(|(stream, _)| stream)
    }

    /// The number of the first chunk that is not on the disk.
    pub(super) fn first_unwritten(&self) -> Option<Sequence> {
        self.waiting.iter().chain(&self.writing).map(|chunk| chunk.sequence).min()
    }

    /// Whether some block of the segment is not on the disk yet.
    pub(super) fn has(&self, segment: SegmentNo, of: impl Fn(LogBlock) -> SegmentNo) -> bool {
        self.waiting.iter().chain(&self.writing).any(|chunk| of(chunk.start) == segment)
    }
}

/// A stretch of a segment that was read, with whole chunks in it. What is not needed may be zeroes.
#[derive(Debug, Default)]
pub(super) struct Window {
    start: u32,
    bytes: Vec<u8>,
    read: u64,
}

impl Window {
    /// A buffer for `blocks` blocks from a slot on, to read into.
    pub(super) fn begin(&mut self, slot: u32, blocks: u32) -> &mut [u8] {
        self.start = slot;
        self.read = u64::from(blocks);
        self.bytes.resize(blocks as usize * BLOCK_BYTES, 0);
        &mut self.bytes
    }

    /// Room for the blocks from one slot to another, to be read into, behind all that is there; what lies between is
    /// not read.
    pub(super) fn extend(&mut self, first: u32, behind: u32) -> &mut [u8] {
        self.read += u64::from(behind - first);
        self.pad(behind);
        self.bytes.get_mut((first - self.start) as usize * BLOCK_BYTES..).unwrap_or_default()
    }

    /// What lies before this slot will not be read any more.
    pub(super) fn pad(&mut self, slot: u32) {
        let bytes = (slot - self.start) as usize * BLOCK_BYTES;
        self.bytes.resize(bytes.max(self.bytes.len()), 0);
    }

    /// How many blocks were read.
    pub(super) fn blocks_read(&self) -> u64 {
        self.read
    }

    /// The header at a slot, which is the block `at` of the log, if it is in here.
    pub(super) fn header(
        &self,
        slot: u32,
        superblock: &Superblock,
        at: LogBlock,
    ) -> Option<Result<ChunkHeader, FormatError>> {
        let from = slot.checked_sub(self.start)? as usize * BLOCK_BYTES;
        Some(ChunkHeader::parse(self.bytes.get(from..)?.get(..BLOCK_BYTES)?, superblock, at))
    }

    /// The chunk at a slot, which is the block `at` of the log: header, and all of its bytes. `None` if the window does
    /// not hold all of it.
    pub(super) fn chunk(
        &self,
        slot: u32,
        superblock: &Superblock,
        at: LogBlock,
    ) -> Option<Result<(ChunkHeader, &[u8]), FormatError>> {
        let header = match self.header(slot, superblock, at)? {
            Ok(header) => header,
            Err(error) => return Some(Err(error)),
        };
        let from = slot.checked_sub(self.start)? as usize * BLOCK_BYTES;
        let bytes = self.bytes.get(from..)?.get(..header.blocks() as usize * BLOCK_BYTES)?;
        Some(Ok((header, bytes)))
    }
}
