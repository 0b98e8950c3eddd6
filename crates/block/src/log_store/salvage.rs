//! Salvage of a damaged store: the newest readable copy of each block, and for each copy that may not be the newest the
//! reason. Nothing is written to the store.
//!
//! 1. A superblock is chosen from its copies; where both are damaged, from what the checkpoints say (`guess`).
//! 2. The store is opened for reading, and every damaged page of the map is rebuilt (`rebuild`). Then the map says
//!    where each block lies.
//! 3. If that fails (no checkpoint, or a log that contradicts it) there is no map: of each block the newest entry in
//!    any header counts, and nothing is proved.
//! 4. Some blocks at a time, all headers are read: they have the checksums, and the places of older copies. A block is
//!    taken from where the map has it if its checksum is right, else the newest older copy whose checksum is. What was
//!    found behind the end of the log is newer than all of that: a whole copy from there is taken first. A block that
//!    was discarded there, or that a chunk without its header held there, as the next header repeats, is not proved to
//!    be the newest.
//!
//! Cost: all data in use is read once, the headers once for each 4 GiB of the store's size; more often where there are
//! many older copies. Memory: some 200 MiB.

use std::ops::Range;
use std::sync::Arc;

use umbrella_policy::log_layout::{Absent, LogBlock, SegmentNo};
use umbrella_units::{BlockNo, ByteSize, Lba, PAGE_BYTES};

use super::checkpoint::Progress;
use super::chunks_behind::ChunksBehind;
use super::core::Core;
use super::error::LogStoreError;
use super::format::{
    BLOCK_BYTES, Block, CheckpointNo, Checksum, ChooseError, ChunkHeader, Entry, Sequence, Superblock,
};
use super::guess::guess;
use super::headers::{Order, for_each_header, order};
use super::loss::BlockRuns;
use super::named::NamedDevice;
use super::recover::{Recovered, recover_all};
use super::timelines::Timelines;
use crate::device::{BlockDevice, Geometry};

/// Blocks whose copies are looked for at once.
const WINDOW: u64 = 1 << 20;
/// Copies that are looked for at once; with more of them it is fewer blocks.
const MOST_VERSIONS: usize = if cfg!(test) { 300 } else { 2 << 20 };
/// Blocks that are read at once.
const PIECE: u64 = 64;
/// Blocks of a page of them that is discarded as a whole.
const PAGE: usize = 512;
/// Pages of the map that may stay in memory.
const PAGES: usize = 1 << 15;

/// What is to be said of a block that may not be what was written last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum DoubtReason {
    /// No copy can be read; it is left empty.
    Lost,
    /// Nothing was found of it, but where it should be is damaged; it is left empty.
    MaybeLost,
    /// The newest copy is damaged; this is an older one.
    Old,
    /// The newest copy that was found; there may have been a newer one, or it was discarded.
    OldOrDiscarded,
    /// It lies where it should be, but its checksum is not known.
    Unverified,
    /// A copy behind the damaged end of the log: newer than what the store would read.
    BehindEnd,
}

/// Adjacent blocks that may not be what was written last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unrecovered {
    /// The first one.
    pub first: BlockNo,
    /// How many.
    pub blocks: u64,
    /// What is to be said of them.
    pub why: DoubtReason,
}

/// What was recovered.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// Data that was copied.
    pub copied: ByteSize,
    /// Blocks that may not be what was written last, in order.
    pub unrecovered: Vec<Unrecovered>,
    /// Chunks at the end of the log whose headers are lost, at least: it is not known which blocks they held.
    pub missing_chunks: u64,
}

/// A damaged store, for reading.
pub struct Salvage {
    named: NamedDevice,
    superblock: Superblock,
    /// The store as it was opened; without, nothing is proved.
    opened: Option<Recovered>,
    headless: Headless,
    damage: Vec<LogStoreError>,
}

/// Chunks behind the end of the log whose headers are lost.
#[derive(Default)]
struct Headless {
    /// Blocks that were written or discarded in them, as the headers after them repeat, in order.
    blocks: Vec<Range<u64>>,
    /// Number of chunks whose blocks no header names.
    unknown: u64,
}

/// What a header says of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct BlockCopy {
    block: BlockNo,
    order: Order,
    nth: u32,
    place: LogBlock,
    checksum: u32,
}

/// What all headers say of some blocks.
struct CopyWindow {
    first: BlockNo,
    end: BlockNo,
    /// Sorted: of each block the newest last.
    versions: Vec<BlockCopy>,
    /// What comes before this proves nothing of discards.
    since: Order,
    /// By block, and by page of blocks: when it was last discarded since, as a whole.
    gone: Vec<Option<(Order, u32)>>,
    gone_pages: Vec<Option<(Order, u32)>>,
}

/// Reads blocks of the log, in pieces as long as they lie in a row.
struct ReadAhead {
    start: u64,
    bytes: Vec<u8>,
    next: u64,
    /// The block that was read last.
    block: Block,
}

struct Source<'a> {
    named: &'a NamedDevice,
    superblock: &'a Superblock,
    ahead: &'a mut ReadAhead,
}

impl Salvage {
    /// Opens what is on a device; an error if there never was a store, or nothing tells how it was laid out.
    pub fn open(device: Arc<dyn BlockDevice>, name: &str) -> Result<Salvage, LogStoreError> {
        let named = NamedDevice::new(name, device);
        let mut damage = Vec::new();
        // What lies behind the end of a device that was cut cannot be read, as if it were damaged.
        let superblock = match named.superblock_within(Lba(u64::MAX)) {
            Ok(chosen) => {
                damage.extend(cut_off(&named, &chosen.superblock));
                chosen.superblock
            }
            Err(error) => {
                let is_foreign = matches!(&error, LogStoreError::Superblock { source, .. } if matches!(**source, ChooseError::Foreign));
                let Some(superblock) = guess(&named) else { return Err(error) };
                if !is_foreign {
                    damage.push(error);
                }
                superblock
            }
        };
        let opened = match recover_all(&named, superblock.clone()) {
            // What the map says was true before segments were written anew.
            Ok(Recovered { checkpoint: Some(source), loss: Some(loss), .. }) if loss.is_certain => {
                damage.push(named.format(source));
                damage.push(LogStoreError::FlushedLost { device: name.to_owned(), loss: Box::new(loss) });
                None
            }
            Ok(mut opened) => {
                damage.extend(std::mem::take(&mut opened.rebuilt).into_iter().map(|(_, error, _)| error));
                damage.extend(opened.checkpoint.map(|source| named.format(source)));
                damage.extend(opened.unreadable.take().map(LogStoreError::Device));
                Some(opened)
            }
            Err(error) => {
                damage.push(error);
                None
            }
        };
        let mut salvage = Salvage { named, superblock, opened, headless: Headless::default(), damage };
        salvage.headless = salvage.headless();
        Ok(salvage)
    }

    /// What the store promises.
    pub fn size(&self) -> ByteSize {
        ByteSize(self.superblock.shape.advertised().0 * PAGE_BYTES)
    }

    /// The damage to structures that say where blocks lie.
    pub fn damage(&self) -> &[LogStoreError] {
        &self.damage
    }

    /// Whether the map tells where blocks lie; without it nothing is proved.
    pub fn has_map(&self) -> bool {
        self.opened.is_some()
    }

    /// Gives `write` each block that is not empty, in order. `progress` gets the number of blocks looked at, and that
    /// of all. Ends with the first error of `write`.
    pub fn copy<E>(
        &mut self,
        mut write: impl FnMut(BlockNo, &[u8]) -> Result<(), E>,
        progress: Progress<'_>,
    ) -> Result<Report, E> {
        let blocks = self.superblock.shape.advertised().0;
        let abandoned = if self.has_map() { Timelines::default() } else { self.timelines() };
        let mut report = Report { missing_chunks: self.headless.unknown, ..Report::default() };
        let mut ahead = ReadAhead { start: 0, bytes: Vec::new(), next: 0, block: [0; BLOCK_BYTES] };
        let mut first = 0;
        while first < blocks {
            let window = self.window(BlockNo(first), BlockNo(blocks.min(first + WINDOW)), &abandoned);
            for block in (first..window.end.0).map(BlockNo) {
                let (has_data, why) = self.take(&window, block, &mut ahead);
                if has_data {
                    report.copied.0 += PAGE_BYTES;
                    if ahead.block.iter().any(|byte| *byte != 0) {
                        write(block, &ahead.block)?;
                    }
                }
                if let Some(why) = why {
                    report.add(block, why);
                }
                if block.0 % 256 == 255 {
                    progress(block.0 + 1, blocks);
                }
            }
            first = window.end.0;
        }
        progress(blocks, blocks);
        Ok(report)
    }

    /// Reads the newest copy of a block that can be read; whether there is data, and what is to be said of it.
    fn take(&mut self, window: &CopyWindow, block: BlockNo, ahead: &mut ReadAhead) -> (bool, Option<DoubtReason>) {
        let versions = window.of(block);
        let mut from = Source { named: &self.named, superblock: &self.superblock, ahead };
        let Some(opened) = &mut self.opened else {
            let newest = versions.last().map(|newest| (newest.order, newest.nth));
            if newest.is_none() || window.gone(block) >= newest {
                return (false, None);
            }
            return from.newest(versions.iter().rev(), DoubtReason::OldOrDiscarded, DoubtReason::Lost);
        };
        let end = end_of(opened);
        let core = &mut opened.core;
        let is_behind = |version: &&BlockCopy| is_later(version.order, end);
        let gone = window.gone(block);
        if let Some(found) = versions.iter().rev().filter(is_behind).find(|version| from.is_whole(version)) {
            let is_gone = gone > Some((found.order, found.nth));
            return (true, Some(if is_gone { DoubtReason::OldOrDiscarded } else { DoubtReason::BehindEnd }));
        }
        let is_newest = !versions.iter().any(|version| is_behind(&version));
        let was_headless = self.headless.has(block);
        let others = versions.iter().rev().filter(|version| !is_behind(version));
        let place = match place_of(core, &self.named, block) {
            Ok(Mapping::At(place)) => place,
            Ok(Mapping::Nothing) if !is_newest => return (false, Some(DoubtReason::Lost)),
            Ok(Mapping::Nothing) => return (false, was_headless.then_some(DoubtReason::MaybeLost)),
            Ok(Mapping::Lost) | Err(_) => {
                return from.newest(others, DoubtReason::OldOrDiscarded, DoubtReason::MaybeLost);
            }
        };
        let whole = match versions.iter().find(|version| version.place == place) {
            Some(version) => from.is_whole(version).then_some(None),
            None => from.read(place).then_some(Some(DoubtReason::Unverified)),
        };
        match whole {
            Some(None) if !is_newest => (true, Some(DoubtReason::Old)),
            Some(None) if was_headless || gone.is_some() => (true, Some(DoubtReason::OldOrDiscarded)),
            Some(why) => (true, why),
            None => from.newest(others.filter(|version| version.place != place), DoubtReason::Old, DoubtReason::Lost),
        }
    }

    /// All chunks that can be found.
    fn chunks(&self, mut each: impl FnMut(LogBlock, &ChunkHeader)) {
        let shape = &self.superblock.shape;
        for number in (0..shape.segments()).map(SegmentNo).filter(|number| !self.superblock.is_system(*number)) {
            let slots = 0..shape.segment_blocks();
            for_each_header((&self.named, &self.superblock), number, slots, |_| true, &mut each);
        }
    }

    /// What there must have been behind the end of the log whose headers are not found.
    fn headless(&self) -> Headless {
        let Some(opened @ Recovered { loss, .. }) = &self.opened else { return Headless::default() };
        let end @ (_, first) = end_of(opened);
        let mut behind = ChunksBehind::default();
        self.chunks(|place, header| {
            if is_later(order(header), end) {
                behind.note(place, header);
            }
        });
        let Some(last) = behind.furthest() else {
            return Headless { blocks: Vec::new(), unknown: loss.as_ref().map_or(0, |loss| loss.unknown) };
        };
        let (mut blocks, mut known) = (BlockRuns::default(), behind.len() as u64);
        for (number, place) in behind.range(first, last).filter(|(number, _)| behind.follows_gap(first, *number)) {
            let header = self.named.chunk_header(&self.superblock, place).filter(|header| header.sequence == number);
            let repeat = header.and_then(|header| header.before);
            known += u64::from(repeat.is_some_and(|repeat| blocks.add(repeat.runs)));
        }
        let unknown = (last.0 - first.0).saturating_add(1).saturating_sub(known);
        Headless { blocks: blocks.joined(), unknown }
    }

    fn timelines(&self) -> Timelines {
        let mut timelines = Timelines::default();
        self.chunks(|_, header| timelines.note(order(header)));
        timelines
    }

    fn window(&self, first: BlockNo, end: BlockNo, timelines: &Timelines) -> CopyWindow {
        // The map has all discards before the end of the log.
        let since = self.opened.as_ref().map_or((CheckpointNo(0), Sequence(0)), end_of);
        let mut window = CopyWindow::new(first, end, since);
        self.chunks(|place, header| {
            if !timelines.abandoned(order(header)) {
                window.note(place, header);
            }
        });
        window.versions.sort_unstable();
        window
    }
}

impl CopyWindow {
    fn new(first: BlockNo, end: BlockNo, since: Order) -> CopyWindow {
        let blocks = (end.0 - first.0) as usize;
        let (gone, gone_pages) = (vec![None; blocks], vec![None; blocks.div_ceil(PAGE)]);
        CopyWindow { first, end, versions: Vec::new(), since, gone, gone_pages }
    }

    fn note(&mut self, place: LogBlock, header: &ChunkHeader) {
        let order = order(header);
        for (nth, (entry, slot)) in (0..).zip(header.slots()) {
            match *entry {
                Entry::Data { block, checksum, .. } | Entry::Copy { block, checksum, .. }
                    if (self.first..self.end).contains(&block) =>
                {
                    let place = LogBlock(place.0 + slot.map_or(0, |slot| u64::from(slot.0)));
                    self.versions.push(BlockCopy { block, order, nth, place, checksum: checksum.0 });
                    if self.versions.len() >= MOST_VERSIONS {
                        self.shrink();
                    }
                }
                Entry::Unmapped { .. } if is_later(order, self.since) => self.note_gone(entry, (order, nth)),
                _ => {}
            }
        }
    }

    fn note_gone(&mut self, entry: &Entry, when: (Order, u32)) {
        let blocks = entry.blocks();
        let within = |block: u64| (block.clamp(self.first.0, self.end.0) - self.first.0) as usize;
        let (mut at, to) = (within(blocks.start), within(blocks.end));
        while at < to {
            let next = (at / PAGE + 1) * PAGE;
            let is_all = at.is_multiple_of(PAGE) && next <= to;
            let range = if is_all {
                self.gone_pages.get_mut(at / PAGE..=at / PAGE)
            } else {
                self.gone.get_mut(at..next.min(to))
            };
            for gone in range.unwrap_or_default() {
                *gone = (*gone).max(Some(when));
            }
            at = next;
        }
    }

    /// Looks at half of the blocks; of a single block at the newer half of its copies.
    fn shrink(&mut self) {
        let blocks = self.end.0 - self.first.0;
        if blocks < 2 {
            self.versions.sort_unstable();
            self.versions.drain(..MOST_VERSIONS / 2);
            return;
        }
        self.end = BlockNo(self.first.0 + blocks.div_ceil(2));
        let end = self.end;
        self.versions.retain(|version| version.block < end);
    }

    /// The copies of a block, the newest last.
    fn of(&self, block: BlockNo) -> &[BlockCopy] {
        let from = self.versions.partition_point(|version| version.block < block);
        let rest = self.versions.get(from..).unwrap_or_default();
        let count = rest.iter().take_while(|version| version.block == block).count();
        rest.get(..count).unwrap_or_default()
    }

    fn gone(&self, block: BlockNo) -> Option<(Order, u32)> {
        let at = (block.0 - self.first.0) as usize;
        let gone = [self.gone.get(at), self.gone_pages.get(at / PAGE)];
        gone.into_iter().flatten().copied().max().flatten()
    }
}

/// That a device ends before its store does, if it is so.
fn cut_off(named: &NamedDevice, superblock: &Superblock) -> Option<LogStoreError> {
    let Geometry { capacity, .. } = named.device.geometry();
    let bytes = |blocks: BlockNo| ByteSize(blocks.0 * PAGE_BYTES);
    let (present, needed) = (bytes(capacity.block()), bytes(superblock.end()));
    (present < needed).then(|| LogStoreError::CutOff { device: named.name.clone(), present, needed })
}

/// What comes behind the end of the log has at least this epoch and this number.
fn end_of(opened: &Recovered) -> Order {
    (opened.noted, opened.core.next_sequence)
}

fn is_later(order: Order, end: Order) -> bool {
    order.0 >= end.0 && order.1 >= end.1
}

impl Headless {
    /// Whether a block may have been written or discarded in one of them.
    fn has(&self, block: BlockNo) -> bool {
        let nth = self.blocks.partition_point(|run| run.end <= block.0);
        self.blocks.get(nth).is_some_and(|run| run.contains(&block.0))
    }
}

/// What the map says of a block.
enum Mapping {
    Nothing,
    Lost,
    At(LogBlock),
}

fn place_of(core: &mut Core, named: &NamedDevice, block: BlockNo) -> Result<Mapping, LogStoreError> {
    if core.map.present() > PAGES {
        core.map.evict(PAGES / 2, None);
    }
    loop {
        match core.map.get(block) {
            Ok(Some(entry)) => return Ok(Mapping::At(entry.place)),
            Ok(None) if core.map.is_lost(block).is_ok_and(|is_lost| is_lost) => return Ok(Mapping::Lost),
            Ok(None) => return Ok(Mapping::Nothing),
            Err(Absent(page)) => named.load_page(core, page)?,
        }
    }
}

impl Source<'_> {
    /// Reads the first of some copies, the newest first, that is what was written. What to say of it if that is the
    /// newest, and if there is none.
    fn newest<'b>(
        &mut self,
        copies: impl Iterator<Item = &'b BlockCopy>,
        newest: DoubtReason,
        none: DoubtReason,
    ) -> (bool, Option<DoubtReason>) {
        for (nth, copy) in copies.enumerate() {
            if self.is_whole(copy) {
                return (true, Some(if nth == 0 { newest } else { DoubtReason::Old }));
            }
        }
        (false, Some(none))
    }

    /// Reads a copy; whether it is what was written.
    fn is_whole(&mut self, version: &BlockCopy) -> bool {
        self.read(version.place) && Checksum::of(&self.ahead.block).0 == version.checksum
    }

    /// Reads a block of the log; whether it could be.
    fn read(&mut self, place: LogBlock) -> bool {
        let ahead = &mut *self.ahead;
        let from = |own: &ReadAhead| place.0.checked_sub(own.start).map(|nth| nth as usize * BLOCK_BYTES);
        if from(ahead).is_none_or(|from| from + BLOCK_BYTES > ahead.bytes.len()) {
            let rest = self.superblock.shape.places().0.saturating_sub(place.0);
            let blocks = if place.0 == ahead.next { PIECE.min(rest).max(1) } else { 1 };
            ahead.start = place.0;
            ahead.bytes.resize(blocks as usize * BLOCK_BYTES, 0);
            let mut done = self.named.log(self.superblock, place, &mut ahead.bytes);
            if done.is_err() && blocks > 1 {
                ahead.bytes.truncate(BLOCK_BYTES);
                done = self.named.log(self.superblock, place, &mut ahead.bytes);
            }
            if done.is_err() {
                ahead.bytes.clear();
            }
        }
        ahead.next = place.0 + 1;
        let found = from(ahead).and_then(|from| ahead.bytes.get(from..from + BLOCK_BYTES));
        found.is_some_and(|found| {
            ahead.block.copy_from_slice(found);
            true
        })
    }
}

impl Report {
    /// Notes what is to be said of a block; in the order of their numbers.
    pub fn add(&mut self, block: BlockNo, why: DoubtReason) {
        match self.unrecovered.last_mut() {
            Some(last) if last.why == why && last.first.0 + last.blocks == block.0 => last.blocks += 1,
            _ => self.unrecovered.push(Unrecovered { first: block, blocks: 1, why }),
        }
    }
}
