//! What the store knows, and how it changes: everything that happens under its lock. No I/O.

use std::collections::BTreeMap;
use std::sync::Arc;

use umbrella_policy::log_layout::{
    Absent, Full, Layout, LogBlock, LogicalMap, MapEntry, MapPage, Put, SegmentNo, State, Stream,
};
use umbrella_units::{BlockNo, ByteSize};

use super::buffer::{Chunks, Filling, MOST_UNMAPPED};
use super::checksums::BlockChecksums;
use super::discards::Discards;
use super::error::LogStoreError;
use super::format::{
    CheckpointNo, Checksum, ChunkHeader, Counters, Entry, FormatError, Incompat, IndexEntry, MAX_ENTRIES, MapPageNo,
    Repeat, Sequence, Superblock,
};

/// Why something cannot be done now.
#[derive(Debug, Clone, Copy)]
pub(super) enum Blocked {
    /// This page of the map has to be read first.
    Absent(MapPage),
    /// There is no room: the cleaner has to work.
    Full,
    /// What was put together would not be read again: a defect of this program.
    Format(FormatError),
    /// Another defect of this program.
    Impossible(&'static str),
}

/// Every stream of the layout has a place among the chunks that are being filled.
const NO_SUCH_STREAM: Blocked = Blocked::Impossible("a stream has no place for its chunk");

/// Every page of the map has one.
const NO_SUCH_PAGE: Blocked = Blocked::Impossible("a page of the map has no entry in its index");

impl From<Absent> for Blocked {
    fn from(Absent(page): Absent) -> Blocked {
        Blocked::Absent(page)
    }
}

impl From<Full> for Blocked {
    fn from(_: Full) -> Blocked {
        Blocked::Full
    }
}

impl From<FormatError> for Blocked {
    fn from(error: FormatError) -> Blocked {
        Blocked::Format(error)
    }
}

/// What a block that is put into the log is.
#[derive(Debug, Clone, Copy)]
enum Origin {
    User,
    Cleaner,
}

/// The map, the layout, and what is on its way to the disk.
#[derive(Debug)]
pub(super) struct Core {
    pub(super) superblock: Superblock,
    pub(super) layout: Layout,
    pub(super) map: LogicalMap,
    /// Where each page of the map lies, and its checksum.
    pub(super) index: Vec<Option<IndexEntry>>,
    /// Pages that could not be used while the log was replayed. The log changes them further, so the version on the
    /// disk is incomplete, even if it can be read another time.
    pub(super) unusable: BTreeMap<MapPage, LogStoreError>,
    pub(super) chunks: Chunks,
    /// What blocks must be when they are read.
    pub(super) sums: BlockChecksums,
    /// Ranges that are not mapped any more, for the next chunk.
    unmapped: Vec<(BlockNo, u32)>,
    /// What the log has to say again of blocks that are not mapped.
    pub(super) discards: Discards,
    /// The number of the next chunk.
    pub(super) next_sequence: Sequence,
    /// What the next chunk repeats of the last one.
    pub(super) last: Option<Repeat>,
    /// The last chunk that a flush of the device covered, and the last that a flush of users promises.
    pub(super) flushed: Sequence,
    promised: Sequence,
    /// The last chunk that a mark says to be flushed.
    pub(super) marked: Sequence,
    /// The last chunk that has something of users, and the last one that a durable checkpoint covers.
    pub(super) of_users: Sequence,
    pub(super) covered: Sequence,
    /// What chunks are numbered after: the checkpoint before them.
    pub(super) epoch: CheckpointNo,
    pub(super) counters: Counters,
    /// Blocks of log since the last checkpoint.
    pub(super) since_checkpoint: u64,
    /// Segments that are full, and not all on the disk.
    closing: Vec<SegmentNo>,
}

impl Core {
    pub(super) fn new(
        superblock: Superblock,
        layout: Layout,
        map: LogicalMap,
        index: Vec<Option<IndexEntry>>,
        counters: Counters,
        map_memory: ByteSize,
    ) -> Core {
        let sums = BlockChecksums::new(layout.shape(), map_memory.0 / 2);
        let mut chunks = Chunks::default();
        chunks.filling.resize_with(layout.heads().count(), || None);
        Core {
            superblock,
            layout,
            map,
            index,
            unusable: BTreeMap::new(),
            chunks,
            sums,
            unmapped: Vec::new(),
            discards: Discards::default(),
            next_sequence: Sequence(0),
            last: None,
            flushed: Sequence(0),
            promised: Sequence(0),
            marked: Sequence(0),
            of_users: Sequence(0),
            covered: Sequence(0),
            epoch: CheckpointNo(0),
            counters,
            since_checkpoint: 0,
            closing: Vec::new(),
        }
    }

    /// The place of a page of the map; `None` if it was never written.
    pub(super) fn page_place(&self, page: MapPage) -> Result<Option<LogBlock>, Blocked> {
        Ok(self.page_entry(page)?.map(IndexEntry::place))
    }

    /// The same with its checksum.
    pub(super) fn page_entry(&self, page: MapPage) -> Result<Option<IndexEntry>, Blocked> {
        self.index.get(page.0 as usize).copied().ok_or(NO_SUCH_PAGE)
    }

    /// Enters a block that the user writes.
    pub(super) fn write(&mut self, block: BlockNo, data: &[u8], checksum: Checksum) -> Result<(), Blocked> {
        let old = self.map.get(block)?;
        let put = self.layout.write(old, None)?;
        let stamp = self.layout.stamps().stamp(self.layout.clock());
        self.map.set(block, Some(MapEntry { place: put.place, stamp }))?;
        if let Some(old) = old {
            self.chunks.kill(old.place);
        }
        self.counters.user_blocks += 1;
        self.append(put, Entry::Data { block, checksum, stamp }, data, Origin::User)
    }

    /// Moves a live block of the user's from where it is. Nothing happens if it is not there any more.
    pub(super) fn copy(
        &mut self,
        block: BlockNo,
        from: LogBlock,
        data: &[u8],
        checksum: Checksum,
    ) -> Result<bool, Blocked> {
        let Some(old) = self.map.get(block)?.filter(|entry| entry.place == from) else { return Ok(false) };
        let put = self.layout.copy(old, None)?;
        self.map.set(block, Some(MapEntry { place: put.place, ..old }))?;
        self.counters.copied_blocks += 1;
        self.append(put, Entry::Copy { block, checksum, stamp: old.stamp }, data, Origin::Cleaner)?;
        Ok(true)
    }

    /// Puts a page of the map into the log, for the next checkpoint.
    pub(super) fn write_page(&mut self, page: MapPage, data: &[u8]) -> Result<(), Blocked> {
        let old = self.page_place(page)?;
        let put = self.layout.write_map(old)?;
        let checksum = Checksum::of(data);
        *self.index.get_mut(page.0 as usize).ok_or(NO_SUCH_PAGE)? = Some(IndexEntry::new(put.place, checksum)?);
        if let Some(old) = old {
            self.chunks.kill(old);
        }
        self.counters.map_blocks += 1;
        let entry = Entry::MapPage { page: MapPageNo(u64::from(page.0)), checksum };
        self.append(put, entry, data, Origin::Cleaner)
    }

    /// A page of the map holds nothing any more.
    pub(super) fn drop_page(&mut self, page: MapPage) -> Result<(), Blocked> {
        self.map.drop_empty(page);
        if let Some(old) = self.index.get_mut(page.0 as usize).ok_or(NO_SUCH_PAGE)?.take() {
            self.layout.forget_page(old.place());
            self.chunks.kill(old.place());
        }
        Ok(())
    }

    /// A block is not mapped any more; whether it was, or was lost. The caller says so to the log with
    /// [`Core::note_unmapped`].
    pub(super) fn unmap(&mut self, block: BlockNo) -> Result<bool, Blocked> {
        let was_lost = self.map.is_lost(block)?;
        let Some(old) = self.map.set(block, None)? else { return Ok(was_lost) };
        self.layout.forget(old.place);
        self.chunks.kill(old.place);
        self.counters.discarded_blocks += 1;
        Ok(true)
    }

    /// Whether another range can be noted before a chunk is sealed.
    pub(super) fn has_room_for_unmapped(&self) -> bool {
        self.unmapped.len() < MOST_UNMAPPED
    }

    /// The next chunk that is sealed, of whichever stream, says that this range is not mapped: so it comes before
    /// everything that is written later.
    pub(super) fn note_unmapped(&mut self, start: BlockNo, blocks: u32) {
        if blocks == 0 {
            return;
        }
        if let Some((last, count)) = self.unmapped.last_mut()
            && last.0 + u64::from(*count) == start.0
            && let Some(sum) = count.checked_add(blocks)
        {
            *count = sum;
            return;
        }
        self.unmapped.push((start, blocks));
    }

    fn append(&mut self, put: Put, entry: Entry, data: &[u8], origin: Origin) -> Result<(), Blocked> {
        let before = put.place.0.checked_sub(1).ok_or(Blocked::Impossible("a block has no header before it"))?;
        let (start, stream) = (LogBlock(before), usize::from(put.stream.0));
        let is_new = self.chunks.filling.get(stream).ok_or(NO_SUCH_STREAM)?.is_none();
        if is_new && self.layout.shape().slot(start) == 0 {
            self.begin(self.layout.shape().segment(start));
        }
        let spare = &mut self.chunks.spare;
        let filling = self.chunks.filling.get_mut(stream).ok_or(NO_SUCH_STREAM)?;
        self.sums.note(&self.layout, put.place, &entry);
        let filling = filling.get_or_insert_with(|| Filling::new(start, spare.pop().unwrap_or_default()));
        filling.push(entry, data);
        filling.of_user |= matches!(origin, Origin::User);
        if put.full {
            self.seal(put.stream)?;
        }
        Ok(())
    }

    /// Forgets a segment, whose contents will be overwritten.
    pub(super) fn begin(&mut self, segment: SegmentNo) {
        self.sums.begin(segment);
        self.discards.forget(segment);
    }

    /// Completes the chunk that a stream is filling. One without data is begun if there is none.
    pub(super) fn seal(&mut self, stream: Stream) -> Result<(), Blocked> {
        let place = usize::from(stream.0);
        if self.chunks.filling.get(place).is_none_or(Option::is_none) {
            let start = self.layout.heads().nth(place).and_then(|head| head.open).ok_or(Blocked::Full)?;
            self.layout.open_chunk(stream)?;
            if start.1 == 0 {
                self.begin(start.0);
            }
            let start = self.layout.shape().place(start.0, start.1);
            let filling = Filling::new(start, self.chunks.spare.pop().unwrap_or_default());
            self.chunks.filling.get_mut(place).ok_or(NO_SUCH_STREAM)?.replace(filling);
        }
        let Some(filling) = self.chunks.filling.get_mut(place).and_then(Option::take) else { return Ok(()) };
        let sealed = self.layout.seal(stream);
        let header = ChunkHeader {
            store: self.superblock.store,
            stream,
            epoch: self.epoch,
            sequence: self.next_sequence,
            clock: self.layout.clock(),
            next: sealed.next,
            entries: Vec::new(),
            before: self.last.take().filter(|_| self.superblock.incompat.has(Incompat::REPEATS)),
        };
        let room = MAX_ENTRIES.saturating_sub(filling.entries() + 1);
        let count = self.unmapped.len().min(MOST_UNMAPPED);
        if filling.of_user || count > 0 {
            self.of_users = self.next_sequence;
        }
        let again = self.discards.entries(&self.map, room.saturating_sub(count));
        let unmapped = self.unmapped.drain(..count).map(|(start, blocks)| Entry::Unmapped { start, blocks });
        let unmapped: Vec<Entry> = unmapped.chain(again).collect();
        self.discards.note(self.layout.shape().segment(filling.start()), &unmapped);
        let promised = self.promised.0.saturating_sub(self.flushed.0);
        let mark = Entry::Mark { flushed: self.flushed, promised: u32::try_from(promised).unwrap_or(u32::MAX) };
        let mark = self.superblock.incompat.has(Incompat::MARKS).then_some(mark);
        let (chunk, repeat) =
            filling.seal(header, mark.into_iter().chain(unmapped), &self.superblock, sealed.closed)?;
        self.last = Some(repeat);
        self.marked = self.flushed;
        self.next_sequence = self.next_sequence.next();
        self.counters.header_blocks += 1;
        self.since_checkpoint += (chunk.bytes.len() / super::format::BLOCK_BYTES) as u64;
        self.chunks.waiting.push_back(Arc::new(chunk));
        Ok(())
    }

    /// Completes all chunks that have something for a flush, or all that have anything.
    pub(super) fn seal_all(&mut self, only_of_user: bool) -> Result<(), Blocked> {
        let before = self.next_sequence;
        if !only_of_user {
            let table = self.layout.table();
            let is_empty =
                |number: SegmentNo| table.get(number.0 as usize).is_none_or(|segment| segment.state == State::Cleaned);
            self.discards.repeat_of(is_empty);
        }
        for stream in (0..self.chunks.filling.len() as u8).map(Stream) {
            let filling = self.chunks.filling.get(usize::from(stream.0)).and_then(Option::as_ref);
            if filling.is_some_and(|filling| filling.of_user || !only_of_user) {
                self.promise(only_of_user);
                self.seal(stream)?;
            }
        }
        while !self.unmapped.is_empty() {
            // What users discard must leave the cleaner and the map their room, as what they write does.
            if only_of_user && !self.layout.admits() {
                return Err(Blocked::Full);
            }
            let ready = self.layout.ready().ok_or(Blocked::Full)?;
            self.promise(only_of_user);
            self.seal(ready)?;
        }
        while !only_of_user && self.discards.are_due() {
            match self.layout.ready() {
                Some(ready) if self.layout.free().0 > 0 => self.seal(ready)?,
                // There is no room for what is only good to have.
                _ => self.discards.drop_due(),
            }
        }
        // Chunks that were full, or that the cleaner or a checkpoint completed, do not say that a flush of users
        // promises them.
        let (last, said) = (self.of_users, self.promised.max(self.marked).max(self.covered));
        if only_of_user && self.next_sequence == before && last > said {
            self.promised = last;
            self.mark_with(|layout| layout.free().0 > 0)?;
        }
        Ok(())
    }

    /// The chunk that is completed next is promised to users.
    fn promise(&mut self, to_users: bool) {
        if to_users {
            self.promised = self.next_sequence;
        }
    }

    /// Completes a chunk that says how far the log is flushed, and nothing else, if there is room for one.
    pub(super) fn mark(&mut self) -> Result<(), Blocked> {
        self.mark_with(Layout::admits)
    }

    fn mark_with(&mut self, has_room: impl Fn(&Layout) -> bool) -> Result<(), Blocked> {
        if !self.superblock.incompat.has(Incompat::MARKS) || !has_room(&self.layout) {
            return Ok(());
        }
        match self.chunks.of_user().or(self.layout.ready()) {
            Some(stream) => self.seal(stream),
            None => Ok(()),
        }
    }

    /// Completes one chunk, so that there is room for more ranges that are not mapped.
    pub(super) fn seal_for_unmapped(&mut self) -> Result<(), Blocked> {
        if let Some(stream) = self.chunks.of_user() {
            return self.seal(stream);
        }
        if !self.layout.admits() {
            return Err(Blocked::Full);
        }
        self.seal(self.layout.ready().ok_or(Blocked::Full)?)
    }

    /// Whether there is something that is not mapped any more, and no chunk says so.
    pub(super) fn has_unmapped(&self) -> bool {
        !self.unmapped.is_empty()
    }

    /// Whether a flush has anything to complete.
    pub(super) fn has_unsealed_of_user(&self) -> bool {
        !self.unmapped.is_empty() || self.chunks.of_user().is_some()
    }

    /// A chunk is on the disk.
    pub(super) fn written(&mut self, chunk: &Arc<super::buffer::Chunk>) {
        self.chunks.writing.retain(|other| other.sequence != chunk.sequence);
        self.closing.extend(chunk.closes);
        let shape = self.layout.shape();
        let mut closing = std::mem::take(&mut self.closing);
        closing.retain(|segment| {
            let unwritten = self.chunks.has(*segment, |place| shape.segment(place));
            if !unwritten {
                self.layout.settled(*segment);
            }
            unwritten
        });
        self.closing = closing;
    }

    /// The last chunk that is on the disk with all before it, though perhaps not durable.
    pub(super) fn written_until(&self) -> Sequence {
        self.chunks.first_unwritten().unwrap_or(self.next_sequence).before()
    }
}

/// How the store continues after a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AfterCheckpoint {
    /// It is used further.
    GoesOn,
    /// It was closed in order.
    InOrder,
}
