//! Rebuilds pages of the map that cannot be used, as they were at the last checkpoint, from the headers of chunks.
//!
//! 1. All pages of the map are read, in the order in which they lie on the disk. The segment table counts the live
//!    blocks of each segment. The blocks that the readable pages name, and the pages of the map themselves, are
//!    subtracted from that count. The remaining blocks belong to the lost pages.
//! 2. The headers of the segments with remaining blocks are read. For each block of the lost pages the newest entry
//!    counts.
//! 3. A segment is proved if all of its headers are whole, and if the number of blocks whose newest entry lies there
//!    equals its remaining count. Each of these blocks is live then. If the remaining count is zero, no block of the
//!    lost pages is live in the segment.
//! 4. If that leaves a block in doubt, the headers of all segments are read: one without live blocks may say that an
//!    entry elsewhere is not the newest.
//! 5. A block is *doubtful* if its newest entry lies in a segment that is not proved. It was written anew or discarded
//!    since, and the entry that said so is gone. A block without an entry is doubtful too if a damaged header may hide
//!    one, or if the checkpoint counts more lost blocks than the other pages have. A doubtful block is lost.
//!
//! Cost: every page of the map is read. For a lost page the headers of at most 512 segments are read; in step 4 every
//! header of the log. If more than 4096 pages are lost, these headers are read twice for each 4096 of them. Memory: 40
//! bytes for each block of up to 4096 pages, and all lost pages themselves.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::time::{Duration, Instant};

use umbrella_policy::log_layout::{
    Entries, LOST, Layout, LogBlock, LogicalMap, MapEntry, MapPage, PAGE_ENTRIES, SegmentNo, State,
};

use super::core::Core;
use super::error::LogStoreError;
use super::format::{ChunkHeader, Entry};
use super::headers::{Order, headers, order};
use super::named::NamedDevice;
use crate::error::{BlockError, Operation};

/// Pages that are rebuilt at once.
const WINDOW: usize = if cfg!(test) { 2 } else { 4096 };
/// How often a rebuild reports its progress.
const TELL_EVERY: Duration = Duration::from_secs(10);

/// Pages of the map that could not be used, and their rebuilt contents.
#[derive(Debug, Default)]
pub(super) struct Rebuilt {
    pub(super) pages: BTreeMap<MapPage, Page>,
    /// Blocks of these pages whose place is unknown. They are lost.
    pub(super) doubtful: u64,
    /// By page, blocks that are lost on all other pages, if there are any.
    lost: BTreeMap<MapPage, u64>,
    /// Blocks that were lost on these before they were damaged.
    hidden: u64,
    /// By segment, blocks that are live in it, though no page says so any more.
    skipped: BTreeMap<SegmentNo, u32>,
}

#[derive(Debug)]
pub(super) struct Page {
    /// Why it cannot be used.
    pub(super) error: LogStoreError,
    pub(super) entries: Box<Entries>,
}

impl Page {
    /// Whether the disk could not read it, perhaps for now only.
    pub(super) fn is_unread(&self) -> bool {
        matches!(self.error, LogStoreError::Device(_))
    }

    /// How many of its blocks are lost.
    pub(super) fn doubtful(&self) -> u64 {
        lost_of(&self.entries)
    }
}

fn lost_of(entries: &Entries) -> u64 {
    entries.iter().filter(|word| **word == LOST).count() as u64
}

/// When something was said of a block: in which chunk, and by which of its entries.
type EntryPosition = (Order, usize);

/// The newest that headers say of the blocks of some pages.
struct Newest<'a> {
    pages: &'a [MapPage],
    blocks: Vec<Option<(EntryPosition, u64)>>,
    /// By page, when all of it was discarded.
    gone: Vec<Option<EntryPosition>>,
}

/// What the segment table and the headers say of each segment.
struct LiveCounts<'a> {
    /// Live blocks that no other page names.
    left: &'a [u32],
    /// Blocks of lost pages that have their newest entry there.
    found: Vec<u32>,
    seen: Vec<HeaderCoverage>,
}

/// Which headers of a segment could be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HeaderCoverage {
    All,
    /// It was written over since the checkpoint: all that lived in it had been moved, and the log says where to.
    WrittenOver,
    /// Some may be damaged.
    Some,
}

/// Which segments have their headers read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HeaderScope {
    /// Those where something is left of the count.
    Counted,
    All,
}

/// Says how far a rebuild is, since it may take long, and whether it should continue.
struct RebuildProgress<'a> {
    store: &'a str,
    continues: &'a dyn Fn() -> bool,
    reported: Cell<Instant>,
}

impl RebuildProgress<'_> {
    fn step(&self, done: usize, all: usize, of: &str) -> Option<()> {
        if self.reported.get().elapsed() >= TELL_EVERY {
            self.reported.set(Instant::now());
            tracing::info!(store = self.store, done, all, "rebuilding the map: reading {of}");
        }
        (self.continues)().then_some(())
    }
}

/// Rebuilds the damaged pages of a store's map, as its checkpoint describes the store. `None` if `continues` stops it.
pub(super) fn rebuild(named: &NamedDevice, core: &Core, continues: &dyn Fn() -> bool) -> Option<Rebuilt> {
    let watch = RebuildProgress { store: &named.name, continues, reported: Cell::new(Instant::now()) };
    let mut left: Vec<u32> = core.layout.table().iter().map(|segment| segment.live).collect();
    let mut rebuilt = Rebuilt::default();
    let mut pages: Vec<MapPage> = (0..core.map.pages()).map(MapPage).collect();
    pages.sort_unstable_by_key(|page| core.page_place(*page).ok().flatten());
    for (nth, page) in pages.iter().enumerate() {
        watch.step(nth, pages.len(), "pages")?;
        rebuilt.check_page(*page, named, core, &mut left);
    }
    rebuilt.hidden = core.map.lost().saturating_sub(rebuilt.lost.values().sum());
    for which in [HeaderScope::Counted, HeaderScope::All] {
        rebuilt.fill_from_headers((named, core), &left, which, &watch)?;
        rebuilt.doubtful = rebuilt.pages.values().map(Page::doubtful).sum();
        if rebuilt.doubtful == 0 {
            break;
        }
    }
    rebuilt.count(core, left);
    Some(rebuilt)
}

impl Rebuilt {
    /// Reads a page, and subtracts the blocks that it names from `left`.
    fn check_page(&mut self, page: MapPage, named: &NamedDevice, core: &Core, left: &mut [u32]) {
        let shape = core.layout.shape();
        let mut take = |place: LogBlock| {
            if let Some(left) = left.get_mut(shape.segment(place).0 as usize) {
                *left = left.saturating_sub(1);
            }
        };
        match core.page_place(page) {
            Ok(None) => return,
            Ok(Some(at)) => take(at),
            // Reading it says why.
            Err(_) => {}
        }
        match named.page(core, page) {
            Ok(entries) => {
                let lost = lost_of(&entries);
                if lost > 0 {
                    self.lost.insert(page, lost);
                }
                entries.iter().filter_map(|word| MapEntry::unpack(*word)).for_each(|entry| take(entry.place));
            }
            Err(error) => {
                self.pages.insert(page, Page { error, entries: Box::new([0; PAGE_ENTRIES]) });
            }
        }
    }

    /// Fills in the entries that the headers of some segments prove.
    fn fill_from_headers(
        &mut self,
        (named, core): (&NamedDevice, &Core),
        left: &[u32],
        which: HeaderScope,
        watch: &RebuildProgress<'_>,
    ) -> Option<()> {
        let segments = left.len();
        let mut counts = LiveCounts { left, found: vec![0; segments], seen: vec![HeaderCoverage::All; segments] };
        let lost: Vec<MapPage> = self.pages.keys().copied().collect();
        let shape = core.layout.shape();
        let read =
            |number: SegmentNo| which == HeaderScope::All || left.get(number.0 as usize).is_some_and(|left| *left > 0);
        let mut only = None;
        for pages in lost.chunks(WINDOW) {
            let newest = Newest::of(pages, (named, core), &mut counts.seen, &read, watch)?;
            for place in newest.places() {
                if let Some(count) = counts.found.get_mut(shape.segment(place).0 as usize) {
                    *count += 1;
                }
            }
            only = (lost.len() <= WINDOW).then_some(newest);
        }
        let mut seen = vec![HeaderCoverage::All; segments];
        for pages in lost.chunks(WINDOW) {
            let newest = match only.take() {
                Some(newest) => newest,
                None => Newest::of(pages, (named, core), &mut seen, &read, watch)?,
            };
            self.fill(&newest, core, &counts);
        }
        Some(())
    }

    /// Fills in the proved entries of some pages.
    fn fill(&mut self, newest: &Newest<'_>, core: &Core, counts: &LiveCounts<'_>) {
        let (shape, blocks) = (core.layout.shape(), core.map.blocks());
        let hides_some =
            counts.seen.iter().zip(counts.left).any(|(seen, left)| *seen == HeaderCoverage::Some && *left > 0);
        let hides_lost = self.hidden > 0;
        let of = |counts: &[u32], number: SegmentNo| counts.get(number.0 as usize).copied().unwrap_or(0);
        for (nth, page) in newest.pages.iter().enumerate() {
            let Some(Page { entries, .. }) = self.pages.get_mut(page) else { continue };
            let used = blocks.saturating_sub(first_of(*page)).min(PAGE_ENTRIES as u64) as usize;
            for (word, index) in entries.iter_mut().take(used).zip(0..) {
                let found = newest.at(nth, index);
                let number = MapEntry::unpack(found).map(|entry| shape.segment(entry.place));
                *word = match number.filter(|number| of(counts.left, *number) != 0) {
                    Some(number)
                        if counts.seen.get(number.0 as usize) == Some(&HeaderCoverage::All)
                            && of(counts.left, number) == of(&counts.found, number) =>
                    {
                        found
                    }
                    None if !hides_some && !hides_lost => 0,
                    _ => LOST,
                };
            }
        }
    }

    /// LiveCounts what is in doubt.
    fn count(&mut self, core: &Core, mut left: Vec<u32>) {
        let shape = core.layout.shape();
        if self.pages.is_empty() {
            return;
        }
        for entry in self.pages.values().flat_map(|page| page.entries.iter()).filter_map(|word| MapEntry::unpack(*word))
        {
            if let Some(left) = left.get_mut(shape.segment(entry.place).0 as usize) {
                *left = left.saturating_sub(1);
            }
        }
        let rest = (0..).map(SegmentNo).zip(left).filter(|(_, left)| *left > 0);
        self.skipped = rest.collect();
    }

    /// Forgets the other pages.
    pub(super) fn retain(&mut self, is_needed: impl Fn(MapPage) -> bool) {
        self.pages.retain(|page, _| is_needed(*page));
        self.doubtful = self.pages.values().map(Page::doubtful).sum();
    }

    /// How many blocks are lost with these pages: on them, on those that are in memory, and on all others on the disk.
    pub(super) fn lost_with(&self, map: &LogicalMap) -> u64 {
        let present: u64 = (0..map.pages()).filter_map(|page| map.entries(MapPage(page))).map(lost_of).sum();
        let absent: u64 = self.lost.iter().filter(|(page, _)| map.is_absent(**page)).map(|(_, lost)| lost).sum();
        self.doubtful + present + absent
    }

    /// Whether a page that the disk could not read leaves blocks in doubt: it may be readable later.
    pub(super) fn may_be_read_later(&self) -> bool {
        self.pages.values().any(|page| page.is_unread() && page.doubtful() > 0)
    }

    /// Takes blocks that are in doubt off what is live. A segment that counts fewer is a defect: with too low a count,
    /// live blocks would be written over.
    pub(super) fn skip_doubtful(&self, layout: &mut Layout, store: &str) -> Result<(), BlockError> {
        let counts = self.skipped.iter().map(|(number, count)| {
            let live = layout.table().get(number.0 as usize)?.live;
            Some((*number, live.checked_sub(*count)?))
        });
        let counts: Option<Vec<_>> = counts.collect();
        let counts = counts.ok_or_else(|| {
            BlockError::impossible(store, Operation::Read, "a segment counts fewer live blocks than are in doubt")
        })?;
        for (number, live) in counts {
            layout.recount(number, live);
        }
        Ok(())
    }

    /// Puts the pages into the map of a store that is being opened. Why each could not be used, and how many of its
    /// blocks are lost.
    pub(super) fn install(
        self,
        core: &mut Core,
        store: &str,
    ) -> Result<Vec<(MapPage, LogStoreError, u64)>, LogStoreError> {
        if self.pages.is_empty() {
            return Ok(Vec::new());
        }
        self.skip_doubtful(&mut core.layout, store)?;
        core.map.count_lost(self.lost_with(&core.map));
        let install = |(number, page): (MapPage, Page)| {
            core.map.install(number, &page.entries);
            // The next checkpoint writes it; and until then it cannot be read.
            core.map.mark_dirty(number);
            let doubtful = page.doubtful();
            (number, page.error, doubtful)
        };
        Ok(self.pages.into_iter().map(install).collect())
    }
}

impl<'a> Newest<'a> {
    /// The newest entries for the blocks of some pages. Notes in `seen` which headers of each segment could be read.
    fn of(
        pages: &'a [MapPage],
        (named, core): (&NamedDevice, &Core),
        seen: &mut [HeaderCoverage],
        is_read: &dyn Fn(SegmentNo) -> bool,
        watch: &RebuildProgress<'_>,
    ) -> Option<Newest<'a>> {
        let (blocks, gone) = (vec![None; pages.len() * PAGE_ENTRIES], vec![None; pages.len()]);
        let mut newest = Newest { pages, blocks, gone };
        for ((number, segment), seen) in (0..).map(SegmentNo).zip(core.layout.table()).zip(seen) {
            if !is_read(number) {
                continue;
            }
            watch.step(number.0 as usize, core.layout.table().len(), "headers of segments")?;
            let end = match segment.state {
                State::Full | State::Closing | State::Retiring | State::Cleaned => core.layout.shape().segment_blocks,
                State::Open => open_slot(core, number),
                State::Free | State::Next | State::System => 0,
            };
            let found = headers(named, &core.superblock, number, end);
            // One that is later than the checkpoint was written over what the checkpoint describes.
            let is_covered = |header: &ChunkHeader| header.sequence < core.next_sequence;
            for (place, header) in found.chunks.iter().filter(|(_, header)| is_covered(header)) {
                newest.note(*place, header);
            }
            let begins_later = found
                .chunks
                .first()
                .is_some_and(|(place, header)| core.layout.shape().slot(*place) == 0 && !is_covered(header));
            *seen = if begins_later {
                HeaderCoverage::WrittenOver
            } else if found.is_whole && found.chunks.iter().all(|(_, header)| is_covered(header)) {
                HeaderCoverage::All
            } else {
                HeaderCoverage::Some
            };
        }
        Some(newest)
    }

    fn note(&mut self, place: LogBlock, header: &ChunkHeader) {
        for (nth, (entry, slot)) in header.slots().enumerate() {
            let when = (order(header), nth);
            match *entry {
                Entry::Data { block, stamp, .. } | Entry::Copy { block, stamp, .. } => {
                    let place = LogBlock(place.0 + slot.map_or(0, |slot| u64::from(slot.0)));
                    let word = MapEntry::pack(Some(MapEntry { place, stamp }));
                    self.put(block.0..block.0 + 1, when, word);
                }
                Entry::Unmapped { .. } => self.put(entry.blocks(), when, 0),
                Entry::Dead | Entry::MapPage { .. } | Entry::Mark { .. } => {}
            }
        }
    }

    /// Notes an entry for these blocks, as far as they are on these pages.
    fn put(&mut self, blocks: Range<u64>, when: EntryPosition, word: u64) {
        let from = self.pages.partition_point(|page| first_of(*page) + PAGE_ENTRIES as u64 <= blocks.start);
        for (nth, page) in self.pages.iter().enumerate().skip(from) {
            let first = first_of(*page);
            if first >= blocks.end {
                return;
            }
            let (start, end) = (blocks.start.max(first), blocks.end.min(first + PAGE_ENTRIES as u64));
            if end - start == PAGE_ENTRIES as u64 {
                if let Some(gone) = self.gone.get_mut(nth) {
                    *gone = (*gone).max(Some(when));
                }
                continue;
            }
            let at = nth * PAGE_ENTRIES + (start - first) as usize;
            for had in self.blocks.iter_mut().skip(at).take((end - start) as usize) {
                if had.is_none_or(|(had, _)| had < when) {
                    *had = Some((when, word));
                }
            }
        }
    }

    /// The newest entry of a block of a page.
    fn at(&self, page: usize, index: usize) -> u64 {
        let gone = self.gone.get(page).copied().flatten();
        let newest = self.blocks.get(page * PAGE_ENTRIES + index).copied().flatten();
        newest.filter(|(when, _)| gone.is_none_or(|gone| gone < *when)).map_or(0, |(_, word)| word)
    }

    fn places(&self) -> impl Iterator<Item = LogBlock> {
        let words =
            (0..self.pages.len()).flat_map(move |page| (0..PAGE_ENTRIES).map(move |index| self.at(page, index)));
        words.filter_map(MapEntry::unpack).map(|entry| entry.place)
    }
}

/// The first block of a page.
fn first_of(page: MapPage) -> u64 {
    u64::from(page.0) * PAGE_ENTRIES as u64
}

fn open_slot(core: &Core, number: SegmentNo) -> u32 {
    let open = core.layout.heads().filter_map(|head| head.open);
    open.into_iter().find(|(segment, _)| *segment == number).map_or(0, |(_, slot)| slot)
}

/// The message about a rebuilt page of the map.
pub(super) fn describe_page(MapPage(number): MapPage, doubtful: u64) -> String {
    let lost = if doubtful > 0 {
        format!("; {doubtful} of its blocks are lost until they are written again")
    } else {
        String::new()
    };
    format!("page {number} of the map was damaged, and was rebuilt from the log{lost}")
}
