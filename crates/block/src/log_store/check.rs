//! Checks whether superblock, checkpoint, log, map, summaries and usage of a store agree. Nothing is written.
//!
//! 1. The store is opened as usual, but only for reading: both superblocks, the newest checkpoint, the log after it.
//! 2. Every page of the map is read; a damaged one is rebuilt from the log, as an opening does. No two blocks may lie
//!    at one place, and none where nothing can be.
//! 3. Each segment's live blocks are counted and compared with the segment table.
//! 4. Each segment with live blocks is read, chunk by chunk: the headers must name exactly those blocks. If the data is
//!    checked too, its checksums must be right.
//! 5. If a header is damaged, the blocks behind it can still be read by the map, but it is not known whether they are
//!    what was written. The map is read once more to name those blocks.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use umbrella_policy::log_layout::{Absent, LOST, LogBlock, MapEntry, MapPage, PAGE_ENTRIES, SegmentNo, State};
use umbrella_units::{BlockNo, ByteSize, PAGE_BYTES};
use uuid::Uuid;

use super::buffer::{CHUNK_BLOCKS, Window};
use super::engine::Options;
use super::error::LogStoreError;
use super::format::{BLOCK_BYTES, Checksum, ChunkHeader, Entry};
use super::named::NamedDevice;
use super::problem::{MOST_RUNS, Problem};
use super::rebuild::{Rebuilt, rebuild};
use super::recover::{OpenMode, Recovered, as_noted, recover};
use crate::device::BlockDevice;

/// How much is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// All but the data of users.
    Structure,
    /// The data too: everything that is in use is read.
    Data,
}

/// What a check found.
#[derive(Debug, Clone)]
pub struct CheckReport {
    /// The store.
    pub store: Uuid,
    /// How blocks are placed.
    pub scheme: String,
    /// Whether it was closed in order.
    pub clean: bool,
    /// Chunks found after the last checkpoint.
    pub replayed: u64,
    /// Chunks found behind the end of the log, at least: never flushed, if it ended without being closed; else the log
    /// is damaged there.
    pub abandoned: u64,
    /// What is promised.
    pub size: ByteSize,
    /// What of it is in use.
    pub live: ByteSize,
    /// All segments.
    pub segments: u32,
    /// How large they are.
    pub segment: ByteSize,
    /// Bytes of data whose checksums were compared.
    pub data_checked: ByteSize,
    /// What is wrong: the first [`MOST_PROBLEMS`] of it.
    pub problems: Vec<Problem>,
    /// How much is wrong in all.
    pub problem_count: u64,
}

/// The most problems that are listed one by one.
pub const MOST_PROBLEMS: usize = 1000;

/// Checks the store on a device. `progress` gets the number of steps done, and that of all steps.
pub fn check(
    device: Arc<dyn BlockDevice>,
    name: &str,
    depth: Depth,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<CheckReport, LogStoreError> {
    let named = NamedDevice::new(name, device);
    let options = Options::default();
    let recovered = recover(&named, options, OpenMode::ReadOnly)?;
    let superblock = &recovered.core.superblock;
    let report = CheckReport {
        store: superblock.store,
        scheme: superblock.scheme.as_str().to_owned(),
        clean: recovered.clean,
        replayed: recovered.replayed,
        abandoned: recovered.abandoned,
        size: ByteSize(superblock.shape.advertised().0 * PAGE_BYTES),
        live: ByteSize(0),
        segments: superblock.shape.segments(),
        segment: ByteSize(u64::from(superblock.shape.segment_blocks()) * PAGE_BYTES),
        data_checked: ByteSize(0),
        problems: Vec::new(),
        problem_count: 0,
    };
    let segments = superblock.shape.segments() as usize;
    let places = superblock.shape.places().0;
    let steps = u64::from(recovered.core.map.pages()) + segments as u64;
    let repair = recovered.repair;
    let keep = (options.map_memory.0 / PAGE_BYTES) as usize;
    let taken = vec![0; places.div_ceil(64) as usize];
    let unnamed = BTreeMap::new();
    let mut check = Check {
        named: &named,
        recovered,
        depth,
        report,
        taken,
        live: vec![0; segments],
        reported_pages: BTreeSet::new(),
        lost_pages: BTreeSet::new(),
        rebuilt: None,
        lost: Vec::new(),
        lost_count: 0,
        unnamed,
        keep,
    };
    if let Some(loss) = check.recovered.loss.take() {
        check.found(Problem::Loss(loss));
    }
    if let Some(error) = check.recovered.checkpoint {
        check.found(Problem::Checkpoint(error));
    }
    for (page, error, doubtful) in std::mem::take(&mut check.recovered.rebuilt) {
        check.damaged_page(page, error, doubtful);
    }
    if let Some(copy) = repair {
        check.found(Problem::SuperblockCopy(copy));
    }
    if let Some(error) = check.recovered.unreadable.take() {
        check.found(Problem::LogUnreadable(error));
    }
    let mut done = 0;
    for page in (0..check.recovered.core.map.pages()).map(MapPage) {
        check.page(page);
        done += 1;
        progress(done, steps);
    }
    let (said, found) = (check.recovered.core.map.lost(), check.lost_count);
    if said != found && check.lost_pages.is_empty() {
        check.found(Problem::LostCount(said, found));
    }
    if found > 0 {
        let runs = std::mem::take(&mut check.lost);
        check.found(Problem::Lost(said.max(found), runs));
    }
    for segment in (0..segments as u32).map(SegmentNo) {
        check.segment(segment);
        done += 1;
        progress(done, steps);
    }
    check.report_unnamed();
    Ok(check.report)
}

struct Check<'a> {
    named: &'a NamedDevice,
    recovered: Recovered,
    depth: Depth,
    report: CheckReport,
    /// A bit for each place that something lies at.
    taken: Vec<u64>,
    /// By segment, what was found.
    live: Vec<u32>,
    /// Damaged pages of the map that have been reported.
    reported_pages: BTreeSet<MapPage>,
    /// Pages of the map that cannot be used. The blocks that they name are not counted.
    lost_pages: BTreeSet<MapPage>,
    /// Pages of the map that turned out to be damaged, if one did.
    rebuilt: Option<Rebuilt>,
    /// The first runs of blocks that are lost.
    lost: Vec<Range<u64>>,
    /// How many blocks are lost.
    lost_count: u64,
    /// Segments whose headers do not name all that lies there: up to which slot they do, and what they do not name.
    unnamed: BTreeMap<SegmentNo, Unnamed>,
    /// Pages of the map that may stay in memory.
    keep: usize,
}

/// What no header of a segment names.
#[derive(Debug, Default)]
struct Unnamed {
    /// The first slot whose header cannot be used.
    from: u32,
    count: u32,
    runs: Vec<(BlockNo, u32)>,
}

impl Unnamed {
    /// Another one: a block, or a page of the map.
    fn add(&mut self, block: Option<BlockNo>) {
        self.count += 1;
        let Some(block) = block else { return };
        if let Some((first, count)) = self.runs.last_mut()
            && first.0 + u64::from(*count) == block.0
        {
            *count += 1;
        } else if self.runs.len() < MOST_RUNS {
            self.runs.push((block, 1));
        }
    }
}

impl Check<'_> {
    fn found(&mut self, problem: Problem) {
        self.report.problem_count += 1;
        if self.report.problems.len() < MOST_PROBLEMS {
            self.report.problems.push(problem);
        }
    }

    /// Whether something can lie at a place; takes it.
    fn take(&mut self, place: LogBlock) -> Result<(), fn(LogBlock) -> Option<Problem>> {
        let layout = &self.recovered.core.layout;
        let shape = layout.shape();
        let number = shape.segment(place);
        let state = layout.table().get(number.0 as usize).map(|segment| segment.state);
        let is_written = match state {
            Some(State::Full | State::Closing | State::Retiring) => true,
            Some(State::Open) => layout
                .heads()
                .any(|head| head.open.is_some_and(|(open, slot)| open == number && shape.slot(place) < slot)),
            _ => false,
        };
        if !is_written || shape.slot(place) == 0 {
            return Err(|_| None);
        }
        let bit = 1 << (place.0 % 64);
        let Some(word) = self.taken.get_mut((place.0 / 64) as usize) else { return Err(|_| None) };
        if *word & bit != 0 {
            return Err(|place| Some(Problem::Twice(place)));
        }
        *word |= bit;
        if let Some(live) = self.live.get_mut(number.0 as usize) {
            *live += 1;
        }
        Ok(())
    }

    /// A page of the map, and all that it names.
    fn page(&mut self, page: MapPage) {
        // A page without a place in the index is reported when it is read.
        if let Ok(Some(place)) = self.recovered.core.page_place(page)
            && let Err(problem) = self.take(place)
        {
            self.found(problem(place).unwrap_or(Problem::MisplacedPage(page, place)));
        }
        if self.recovered.core.map.is_absent(page)
            && let Err(error) = self.named.load_page(&mut self.recovered.core, page)
        {
            let mut rebuilt = self.rebuild();
            let whole = rebuilt.pages.remove(&page).filter(|rebuilt| rebuilt.doubtful() == 0);
            self.damaged_page(page, error, u64::from(whole.is_none()));
            self.rebuilt = Some(rebuilt);
            let Some(whole) = whole else { return };
            self.recovered.core.map.install(page, &whole.entries);
            // What lies on the disk is damaged: it stays in memory.
            self.recovered.core.map.mark_dirty(page);
        }
        let Some(entries) = self.recovered.core.map.entries(page).copied() else { return };
        for (nth, word) in (0..).zip(entries) {
            let block = BlockNo(u64::from(page.0) * PAGE_ENTRIES as u64 + nth);
            if word == LOST {
                self.lose(block);
            }
            let Some(MapEntry { place, .. }) = MapEntry::unpack(word) else { continue };
            self.report.live.0 += PAGE_BYTES;
            if let Err(problem) = self.take(place) {
                self.found(problem(place).unwrap_or(Problem::Misplaced(block, place)));
            }
        }
        if self.recovered.core.map.present() > self.keep {
            self.recovered.core.map.evict(self.keep / 2, None);
        }
    }

    /// All damaged pages of the map as the log has them, as an opening would rebuild them.
    fn rebuild(&mut self) -> Rebuilt {
        self.rebuilt.take().unwrap_or_else(|| {
            let core = as_noted(self.named, Options::default(), self.recovered.noted).ok();
            core.and_then(|core| rebuild(self.named, &core, &|| true)).unwrap_or_default()
        })
    }

    /// Reports a damaged page that has `doubtful` blocks in doubt.
    fn damaged_page(&mut self, page: MapPage, error: LogStoreError, doubtful: u64) {
        self.reported_pages.insert(page);
        if doubtful == 0 {
            self.found(Problem::RebuiltPage(page));
            return;
        }
        self.found(Problem::Page(page, error));
        self.lost_pages.insert(page);
    }

    /// Notes a block that is lost; in the order of their numbers.
    fn lose(&mut self, BlockNo(block): BlockNo) {
        self.lost_count += 1;
        let count = self.lost.len();
        match self.lost.last_mut() {
            Some(last) if last.end == block => last.end += 1,
            _ if count < MOST_RUNS => self.lost.push(block..block + 1),
            _ => {}
        }
    }

    fn segment(&mut self, number: SegmentNo) {
        let at = number.0 as usize;
        let Some(segment) = self.recovered.core.layout.table().get(at).copied() else { return };
        let live = self.live.get(at).copied().unwrap_or(0);
        if segment.live != live && (self.lost_pages.is_empty() || live >= segment.live) {
            self.found(Problem::Live(number, segment.live, live));
        }
        if live == 0 {
            return;
        }
        let mut slot = 0;
        match self.named_in(number, &mut slot) {
            Ok(named) if named != live => self.found(Problem::Summary(number, live, named)),
            Ok(_) => {}
            Err(problem) => {
                self.found(problem);
                self.unnamed.insert(number, Unnamed { from: slot, ..Unnamed::default() });
            }
        }
    }

    /// Goes through the map once more for what lies in segments behind damaged headers.
    fn report_unnamed(&mut self) {
        if self.unnamed.is_empty() {
            return;
        }
        let shape = self.recovered.core.layout.shape();
        let mut unnamed = std::mem::take(&mut self.unnamed);
        let mut note = |place: LogBlock, block: Option<BlockNo>| {
            let own = unnamed.get_mut(&shape.segment(place)).filter(|own| shape.slot(place) > own.from);
            if let Some(own) = own {
                own.add(block);
            }
        };
        for page in (0..self.recovered.core.map.pages()).map(MapPage) {
            if let Ok(Some(place)) = self.recovered.core.page_place(page) {
                note(place, None);
            }
            // That it cannot be read has been said.
            if self.recovered.core.map.is_absent(page) && self.named.load_page(&mut self.recovered.core, page).is_err()
            {
                continue;
            }
            let Some(entries) = self.recovered.core.map.entries(page) else { continue };
            for (nth, word) in (0..).zip(entries) {
                if let Some(MapEntry { place, .. }) = MapEntry::unpack(*word) {
                    note(place, Some(BlockNo(u64::from(page.0) * PAGE_ENTRIES as u64 + nth)));
                }
            }
            if self.recovered.core.map.present() > self.keep {
                self.recovered.core.map.evict(self.keep / 2, None);
            }
        }
        for (segment, Unnamed { count, runs, .. }) in unnamed {
            if count > 0 {
                self.found(Problem::Unnamed(segment, count, runs));
            }
        }
    }

    /// How many of the blocks that the map has in a segment its headers name; `slot` is that of the header that was
    /// looked at last.
    fn named_in(&mut self, number: SegmentNo, slot: &mut u32) -> Result<u32, Problem> {
        let shape = self.recovered.core.layout.shape();
        let mut named = 0;
        let live = self.live.get(number.0 as usize).copied().unwrap_or(0);
        let mut window = Window::default();
        while *slot + 1 < shape.segment_blocks && named < live {
            let at = shape.place(number, *slot);
            if self.depth == Depth::Structure {
                let mut block = [0; BLOCK_BYTES];
                self.read(number, at, &mut block)?;
                let header = ChunkHeader::parse(&block, &self.recovered.core.superblock, at);
                let header = header.map_err(|error| Problem::Header(number, *slot, error))?;
                named += self.entries(&header, at, &[]);
                *slot += header.blocks();
                continue;
            }
            if window.chunk(*slot, &self.recovered.core.superblock, at).is_none() {
                self.read(number, at, window.begin(*slot, CHUNK_BLOCKS.min(shape.segment_blocks - *slot)))?;
            }
            match window.chunk(*slot, &self.recovered.core.superblock, at) {
                Some(Ok((header, bytes))) => {
                    named += self.entries(&header, at, bytes);
                    *slot += header.blocks();
                }
                Some(Err(error)) => return Err(Problem::Header(number, *slot, error)),
                // A header cannot name more than there is behind it in the segment.
                None => return Ok(named),
            }
        }
        Ok(named)
    }

    fn read(&self, number: SegmentNo, at: LogBlock, buffer: &mut [u8]) -> Result<(), Problem> {
        let read = self.named.log(&self.recovered.core.superblock, at, buffer);
        read.map_err(|error| Problem::Unreadable(number, error))
    }

    /// How many entries of a chunk the map agrees with.
    fn entries(&mut self, header: &ChunkHeader, at: LogBlock, window: &[u8]) -> u32 {
        let mut named = 0;
        for (entry, slot) in header.slots() {
            let Some(slot) = slot else { continue };
            let place = LogBlock(at.0 + u64::from(slot.0));
            let problem = match *entry {
                Entry::Data { block, .. } | Entry::Copy { block, .. } if self.lies_at(block, place) => {
                    Problem::Damaged(block, place)
                }
                Entry::MapPage { page, .. } if matches!(self.recovered.core.page_place(MapPage(page.0 as u32)), Ok(Some(at)) if at == place) => {
                    Problem::DamagedPage(MapPage(page.0 as u32), place)
                }
                _ => continue,
            };
            named += 1;
            let begin = slot.0 as usize * BLOCK_BYTES;
            if let Some(data) = window.get(begin..begin + BLOCK_BYTES) {
                self.report.data_checked.0 += PAGE_BYTES;
                let is_reported =
                    matches!(problem, Problem::DamagedPage(page, _) if self.reported_pages.contains(&page));
                if !is_reported && entry.checksum() != Some(Checksum::of(data)) {
                    self.found(problem);
                }
            }
        }
        named
    }

    fn lies_at(&mut self, block: BlockNo, place: LogBlock) -> bool {
        loop {
            match self.recovered.core.map.get(block) {
                Ok(entry) => return entry.is_some_and(|entry| entry.place == place),
                Err(Absent(page)) => {
                    // That it cannot be read has been said.
                    if self.named.load_page(&mut self.recovered.core, page).is_err() {
                        return false;
                    }
                }
            }
        }
    }
}
