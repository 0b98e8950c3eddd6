//! A device with a store on it: reading the structures that say where everything is.

use std::sync::Arc;

use umbrella_policy::log_layout::{Entries, LogBlock, MapPage, PAGE_ENTRIES, Segment, SegmentNo, State};
use umbrella_units::{BLOCK_SECTORS, BlockNo, Lba};

use super::core::Core;
use super::error::LogStoreError;
use super::format::{
    BLOCK_BYTES, CheckpointHeader, CheckpointNo, Chosen, ChunkHeader, FormatError, Incompat, IndexEntry, MapPageNo,
    Payload, SegmentEntry, SegmentState, Sequence, Structure, Superblock, choose,
};
use super::map_pages::decode_page;
use crate::device::{BlockDevice, Durability, is_zero};
use crate::error::{BlockError, Operation};
use crate::flush_serializer::FlushSerializer;

/// A device with a name for messages.
pub(super) struct NamedDevice {
    pub(super) name: String,
    pub(super) device: Arc<dyn BlockDevice>,
}

/// A checkpoint that was found.
pub(super) struct LoadedCheckpoint {
    pub(super) header: CheckpointHeader,
    pub(super) index: Vec<Option<IndexEntry>>,
    pub(super) table: Vec<Segment>,
    pub(super) area: usize,
    /// The number of a newer checkpoint that is damaged, and where the log stood at it. Only if it still reaches so far
    /// from this one is nothing lost.
    pub(super) reaches: Option<(CheckpointNo, Sequence)>,
    /// The error in the other one, if that may have been newer.
    pub(super) in_doubt: Option<FormatError>,
    /// Whether the other one cannot be used although there was one.
    pub(super) is_only: bool,
}

impl NamedDevice {
    pub(super) fn new(name: &str, device: Arc<dyn BlockDevice>) -> NamedDevice {
        NamedDevice { name: name.to_owned(), device: Arc::new(FlushSerializer::new(device)) }
    }

    /// Makes durable what the device was given.
    pub(super) fn flush(&self) -> Result<(), BlockError> {
        self.device.flush()
    }

    /// Writes a superblock that differs from the last one. Each copy is written and flushed by itself.
    pub(super) fn replace_superblock(&self, changed: Superblock) -> Result<Superblock, LogStoreError> {
        let superblock = Superblock { generation: changed.generation.next(), ..changed };
        let block = superblock.encode().map_err(|source| self.format(source))?;
        for copy in Superblock::COPIES.into_iter().rev() {
            self.device.write(Lba(copy.0 * BLOCK_SECTORS), &block, Durability::Cached)?;
            self.flush()?;
        }
        Ok(superblock)
    }

    /// Lets chunks of a store that was made before say how far the log is flushed, and repeat each other.
    pub(super) fn upgrade(&self, old: &Superblock) -> Result<Superblock, LogStoreError> {
        let superblock = self.replace_superblock(Superblock { incompat: Incompat::ALL, ..old.clone() })?;
        tracing::warn!(
            store = self.name,
            "the store now records what damage loses (marks of flushes, repeats): earlier versions of this program can no longer open it"
        );
        Ok(superblock)
    }

    pub(super) fn format(&self, source: FormatError) -> LogStoreError {
        LogStoreError::Format { device: self.name.clone(), source: Box::new(source) }
    }

    pub(super) fn block(&self, at: BlockNo, buffer: &mut [u8]) -> Result<(), BlockError> {
        self.device.read(Lba(at.0 * BLOCK_SECTORS), buffer)
    }

    /// Reads blocks of the log.
    pub(super) fn log(&self, superblock: &Superblock, at: LogBlock, buffer: &mut [u8]) -> Result<(), BlockError> {
        self.block(superblock.device_block(at), buffer)
    }

    /// The header of the chunk at a place of the log, if one can be read there.
    pub(super) fn chunk_header(&self, superblock: &Superblock, at: LogBlock) -> Option<ChunkHeader> {
        let mut block = [0; BLOCK_BYTES];
        self.log(superblock, at, &mut block).ok()?;
        ChunkHeader::parse(&block, superblock, at).ok()
    }

    /// The superblock that counts; the store must fit onto the device.
    pub(super) fn superblock(&self) -> Result<Chosen, LogStoreError> {
        self.superblock_within(self.device.geometry().capacity)
    }

    /// The valid superblock of a store that fits into this much memory.
    pub(super) fn superblock_within(&self, capacity: Lba) -> Result<Chosen, LogStoreError> {
        let copies = Superblock::COPIES.map(|at| {
            let mut block = [0; BLOCK_BYTES];
            match self.block(at, &mut block) {
                Ok(()) => Superblock::parse(&block, capacity),
                Err(_) => Err(FormatError::Unreadable { structure: Structure::Superblock }),
            }
        });
        let [first, second] = copies;
        choose(first, second)
            .map_err(|source| LogStoreError::Superblock { device: self.name.clone(), source: Box::new(source) })
    }

    /// The newest checkpoint that is whole.
    pub(super) fn checkpoint(&self, superblock: &Superblock) -> Result<LoadedCheckpoint, LogStoreError> {
        let found = [0, 1].map(|area| self.checkpoint_in(superblock, area));
        match found {
            [Ok(first), Ok(second)] => Ok(if first.header.number > second.header.number { first } else { second }),
            [Ok(only), Err(error)] | [Err(error), Ok(only)] => {
                // The header is written last: one that is whole and newer counted, and segments were written anew
                // since.
                let other = self.checkpoint_header(superblock, 1 - only.area).ok();
                // Of one that cannot be read nothing is known. Only a new store has none: there are zeroes.
                let in_doubt = match &other {
                    Some((header, _)) => header.number > only.header.number,
                    None => only.header.number.0 > 1 || !self.is_blank(superblock, 1 - only.area),
                };
                let in_doubt = in_doubt.then_some(error);
                let is_only = other.is_some() || in_doubt.is_some();
                let newer = other.filter(|(header, _)| header.number > only.header.number);
                let reaches = newer.map(|(header, _)| (header.number, header.next_sequence));
                Ok(LoadedCheckpoint { reaches, in_doubt, is_only, ..only })
            }
            [Err(first), Err(second)] => Err(LogStoreError::Checkpoints {
                device: self.name.clone(),
                first: Box::new(first),
                second: Box::new(second),
            }),
        }
    }

    /// The header of the checkpoint in an area, and the block where it lies.
    fn checkpoint_header(
        &self,
        superblock: &Superblock,
        area: usize,
    ) -> Result<(CheckpointHeader, BlockNo), FormatError> {
        let (block, start) = self.first_of_area(superblock, area)?;
        Ok((CheckpointHeader::parse(&block, superblock)?, start))
    }

    /// Whether no checkpoint was ever written to an area.
    fn is_blank(&self, superblock: &Superblock, area: usize) -> bool {
        self.first_of_area(superblock, area).is_ok_and(|(block, _)| is_zero(&block))
    }

    fn first_of_area(&self, superblock: &Superblock, area: usize) -> Result<([u8; BLOCK_BYTES], BlockNo), FormatError> {
        let unreadable = |structure| FormatError::Unreadable { structure };
        let first = superblock.areas.get(area).ok_or(unreadable(Structure::Checkpoint))?.first;
        let start = LogBlock(u64::from(first.0) * u64::from(superblock.shape.segment_blocks()));
        let start = superblock.device_block(start);
        let mut block = [0; BLOCK_BYTES];
        self.block(start, &mut block).map_err(|_| unreadable(Structure::Checkpoint))?;
        Ok((block, start))
    }

    /// The checkpoint in an area.
    pub(super) fn checkpoint_in(&self, superblock: &Superblock, area: usize) -> Result<LoadedCheckpoint, FormatError> {
        let (header, start) = self.checkpoint_header(superblock, area)?;
        let bytes = (header.payload.bytes.0 as usize).next_multiple_of(BLOCK_BYTES);
        let mut payload = vec![0; bytes];
        self.block(BlockNo(start.0 + 1), &mut payload)
            .map_err(|_| FormatError::Unreadable { structure: Structure::Payload })?;
        let parsed = Payload::parse(&payload, &header, superblock)?;
        let mut index: Vec<Option<IndexEntry>> = parsed.map().collect();
        let mut table: Vec<Segment> = parsed.segments().map(from_disk).collect();
        // What the store has grown by since is empty.
        index.resize(superblock.shape.map_pages().0 as usize, None);
        table.resize(superblock.shape.segments() as usize, Segment::FREE);
        for (number, segment) in (0..).map(SegmentNo).zip(&mut table) {
            if superblock.is_system(number) {
                *segment = Segment { state: State::System, ..Segment::FREE };
            }
        }
        Ok(LoadedCheckpoint { header, index, table, area, reaches: None, in_doubt: None, is_only: false })
    }
}

impl NamedDevice {
    /// Reads a page of the map into memory.
    pub(super) fn load_page(&self, core: &mut Core, page: MapPage) -> Result<(), LogStoreError> {
        if let Some(error) = core.unusable.get(&page) {
            return Err(error.clone());
        }
        let entries = self.page(core, page)?;
        core.map.install(page, &entries);
        Ok(())
    }

    /// A page of the map as in the checkpoint.
    pub(super) fn page(&self, core: &Core, page: MapPage) -> Result<Entries, LogStoreError> {
        let unknown = |_| BlockError::impossible(&self.name, Operation::Read, "a page of the map is not in its index");
        let Some(at) = core.page_entry(page).map_err(unknown)? else { return Ok([0; PAGE_ENTRIES]) };
        self.read_page(&core.superblock, page, at)
    }

    /// Reads a page of the map from the disk; once more if that fails or is not what was written, for a disk may
    /// misread.
    pub(super) fn read_page(
        &self,
        superblock: &Superblock,
        page: MapPage,
        at: IndexEntry,
    ) -> Result<Entries, LogStoreError> {
        let read = || {
            let mut block = [0; BLOCK_BYTES];
            self.log(superblock, at.place(), &mut block)?;
            self.decode_page(&block, superblock, page, at)
        };
        let found = read();
        let Err(error) = found else { return found };
        let again = read();
        if again.is_ok() {
            tracing::warn!(store = self.name, page = page.0, %error, "a page of the map was misread; a second read was good");
        }
        again
    }

    /// The entries of a page of the map as it was read, if its number matches the index.
    pub(super) fn decode_page(
        &self,
        block: &[u8],
        superblock: &Superblock,
        page: MapPage,
        at: IndexEntry,
    ) -> Result<Entries, LogStoreError> {
        let entries = at.verify(block).and_then(|()| decode_page(block, superblock, page));
        entries.map_err(|source| LogStoreError::MapPage {
            device: self.name.clone(),
            page: MapPageNo(u64::from(page.0)),
            place: at.place(),
            source: Box::new(source),
        })
    }
}

/// The other way.
fn from_disk(entry: SegmentEntry) -> Segment {
    let state = match entry.state {
        SegmentState::Free => State::Free,
        SegmentState::Open => State::Open,
        SegmentState::Next => State::Next,
        SegmentState::Full => State::Full,
        SegmentState::Cleaned => State::Cleaned,
        SegmentState::System => State::System,
    };
    let SegmentEntry { stream, live, youngest, opened, .. } = entry;
    let fresh = matches!(state, State::Open | State::Next);
    Segment { state, stream, live, youngest, opened, fresh }
}
