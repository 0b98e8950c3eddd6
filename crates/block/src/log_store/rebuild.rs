//! Rebuilding pages of the map that cannot be used, as they were at the last checkpoint, from the headers of chunks.
//!
//! 1. All pages of the map are read. Of the live blocks that the segment table counts in each segment, those are taken off that the other pages name, and the pages of the map
//!    themselves: what is left are blocks of the lost pages.
//! 2. The headers of all segments are read. For each block of the lost pages the newest entry counts.
//! 3. What a segment says is proved if all of its headers are whole and just as many blocks have their newest entry there as are left of its count: each live block
//!    has its newest entry where it lies, so these are the live ones. Where none are left none is live.
//! 4. Blocks whose newest entry lies in a segment that proves nothing are *doubtful*: they were written anew since, or discarded, and the entry that said so is gone. If blocks may be hidden
//!    behind a damaged header all blocks without an entry are doubtful too.
//!
//! Cost: every page of the map and every header of the log is read.

use std::collections::{BTreeMap, BTreeSet};

use umbrella_policy::log_layout::{Entries, MapEntry, MapPage, PAGE_ENTRIES, Place, SegmentNo, State};
use umbrella_units::BlockNo;

use super::core::Core;
use super::error::LogStoreError;
use super::format::{ChunkHeader, Entry};
use super::headers::{Order, headers, order};
use super::recover::Named;

/// Pages of the map that could not be used, and what they were.
#[derive(Debug, Default)]
pub(super) struct Rebuilt {
    pub(super) pages: BTreeMap<MapPage, Page>,
    /// Blocks of these pages of which nobody can tell where they lie. They are not in the pages.
    pub(super) doubtful: BTreeSet<BlockNo>,
}

#[derive(Debug)]
pub(super) struct Page {
    /// Why it cannot be used.
    pub(super) error: LogStoreError,
    pub(super) entries: Box<Entries>,
}

/// The newest that a header says of a block.
type Newest = BTreeMap<BlockNo, (Order, usize, Option<MapEntry>)>;

/// Rebuilds what is damaged of the map of a store as its checkpoint describes it.
pub(super) fn rebuild(named: &Named, core: &Core) -> Rebuilt {
    let shape = core.layout.shape();
    let mut left: Vec<i64> = core.layout.table().iter().map(|segment| i64::from(segment.live)).collect();
    let mut take = |place: Place| {
        if let Some(left) = left.get_mut(shape.segment(place).0 as usize) {
            *left -= 1;
        }
    };
    let mut rebuilt = Rebuilt::default();
    for page in (0..core.map.pages()).map(MapPage) {
        let Some(at) = core.page_place(page) else { continue };
        take(at);
        match named.page(core, page) {
            Ok(entries) => {
                entries.iter().filter_map(|word| MapEntry::unpack(*word)).for_each(|entry| take(entry.place));
            }
            Err(error) => {
                let entries = Box::new([0; PAGE_ENTRIES]);
                rebuilt.pages.insert(page, Page { error, entries });
            }
        }
    }
    if rebuilt.pages.is_empty() {
        return rebuilt;
    }
    let (newest, whole) = rebuilt.newest(named, core);
    let mut found = vec![0_i64; left.len()];
    for (_, _, entry) in newest.values() {
        if let Some(count) = entry.and_then(|entry| found.get_mut(shape.segment(entry.place).0 as usize)) {
            *count += 1;
        }
    }
    let of = |counts: &[i64], number: SegmentNo| counts.get(number.0 as usize).copied().unwrap_or(0);
    let is_whole = |number: SegmentNo| whole.get(number.0 as usize).copied().unwrap_or(true);
    let hides_some = (0..shape.segments).map(SegmentNo).any(|number| !is_whole(number) && of(&left, number) > 0);
    let blocks = core.map.blocks();
    for (page, Page { entries, .. }) in &mut rebuilt.pages {
        let first = u64::from(page.0) * PAGE_ENTRIES as u64;
        for (word, block) in entries.iter_mut().zip((first..blocks).map(BlockNo)) {
            let entry = newest.get(&block).and_then(|(_, _, entry)| *entry);
            let number = entry.map(|entry| shape.segment(entry.place));
            match number.filter(|number| of(&left, *number) != 0) {
                Some(number) if is_whole(number) && of(&left, number) == of(&found, number) => {
                    *word = MapEntry::pack(entry);
                }
                None if !hides_some => {}
                _ => _ = rebuilt.doubtful.insert(block),
            }
        }
    }
    rebuilt
}

impl Rebuilt {
    /// What is newest of the blocks of the lost pages, and of which segments all headers are whole.
    fn newest(&self, named: &Named, core: &Core) -> (Newest, Vec<bool>) {
        let mut newest = Newest::new();
        let mut whole = Vec::new();
        for (number, segment) in (0..).map(SegmentNo).zip(core.layout.table()) {
            let end = match segment.state {
                State::Full | State::Closing | State::Leaving | State::Cleaned => core.layout.shape().segment_blocks,
                State::Open => open_slot(core, number),
                State::Free | State::Next | State::System => 0,
            };
            let found = headers(named, &core.superblock, number, end);
            // One that is later than the checkpoint was written over what the checkpoint describes.
            let is_covered = |header: &ChunkHeader| header.sequence < core.next_sequence;
            for (place, header) in found.chunks.iter().filter(|(_, header)| is_covered(header)) {
                self.note(&mut newest, *place, header);
            }
            whole.push(found.is_whole && found.chunks.iter().all(|(_, header)| is_covered(header)));
        }
        (newest, whole)
    }

    fn note(&self, newest: &mut Newest, place: Place, header: &ChunkHeader) {
        let mut put = |block: BlockNo, nth: usize, entry: Option<MapEntry>| {
            let this = (order(header), nth, entry);
            let had = newest.entry(block).or_insert(this);
            if (had.0, had.1) < (this.0, this.1) {
                *had = this;
            }
        };
        for (nth, (entry, slot)) in header.slots().enumerate() {
            match *entry {
                Entry::Data { block, stamp, .. } | Entry::Copy { block, stamp, .. }
                    if self.pages.contains_key(&of(block)) =>
                {
                    let here = Place(place.0 + slot.map_or(0, |slot| u64::from(slot.0)));
                    put(block, nth, Some(MapEntry { place: here, stamp }));
                }
                Entry::Unmapped { start, blocks } => {
                    let end = start.0 + u64::from(blocks);
                    for page in self.pages.range(of(start)..=of(BlockNo(end.saturating_sub(1)))).map(|(page, _)| page) {
                        let first = u64::from(page.0) * PAGE_ENTRIES as u64;
                        let range = first.max(start.0)..end.min(first + PAGE_ENTRIES as u64);
                        range.for_each(|block| put(BlockNo(block), nth, None));
                    }
                }
                _ => {}
            }
        }
    }
}

fn of(block: BlockNo) -> MapPage {
    MapPage((block.0 / PAGE_ENTRIES as u64) as u32)
}

fn open_slot(core: &Core, number: SegmentNo) -> u32 {
    let open = core.layout.heads().filter_map(|head| head.open);
    open.into_iter().find(|(segment, _)| *segment == number).map_or(0, |(_, slot)| slot)
}
