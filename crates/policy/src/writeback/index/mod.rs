//! One index of dirty pages for all policies. A policy says what it needs ([`Needs`]); only that is kept.
//!
//! | structure | cost | kept for |
//! | --- | --- | --- |
//! | slab of pages: index, block, file, counts, time | 24 bytes a page | everybody |
//! | page -> slot | 4 to 10 bytes a page | everybody |
//! | files; links of their pages, or runs of pages in index order | 48 bytes a file; 8 bytes a page, or as segments | everybody |
//! | block -> slot | 4 to 10 bytes a page | [`Needs::blocks`] |
//! | segments in block order | 2 to 11 bytes a page, 110 bytes for each 128 MiB in use | [`Needs::blocks`] |
//! | zones: pages, segments, one or two heaps | 30 to 70 bytes a zone | [`BlockNeeds::zones`] |
//! | recency list | 8 bytes a page | [`Needs::recency`] |
//! | ranks | 16 bytes a page | [`Needs::ranks`] |
//!
//! A page enters the orders from which pages are selected when it becomes dirty. If it is active and the policy takes
//! inactive pages only ([`Needs::inactive_only`]), it enters at [`Event::Deactivate`] and leaves at [`Event::Activate`]
//! (TESA, III-B). The index knows it all the while.

mod chunk;
mod contents;
mod files;
mod heap;
mod places;
mod ranks;
mod runs;
mod slab;
mod table;
mod take;
mod zones;

#[cfg(test)]
mod tests;

use umbrella_units::{BlockNo, ByteSize, FileId, Nanos, PageIndex, PageKey};

pub use contents::IndexedPage;
pub use files::{DirtyFile, FileOrder};
pub use take::Usage;
pub use zones::{Zone, ZoneOrder};

use self::files::{Files, Tail};
use self::places::Places;
use self::ranks::Ranks;
use self::slab::{LIMIT, Links, ListEnds, PageEntry, Slab};
use self::table::{Hash, SlotTable, hash};
use self::zones::Zones;
use super::event::Event;

/// What a policy needs of the index.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Needs {
    /// Active pages are never selected.
    pub inactive_only: bool,
    /// Segments in block order.
    pub blocks: Option<BlockNeeds>,
    /// Pages in order of use.
    pub recency: Option<Recency>,
    /// Files in order, and their pages in index order.
    pub files: Option<FileOrder>,
    /// Pages in the order of [`super::Policy::rank`]; with it come [`Event::Foresee`] and its times.
    pub ranks: bool,
    /// From when a page's age counts.
    pub age: Age,
}

impl Needs {
    /// Whether dirty pages are counted by zones.
    pub fn has_zones(&self) -> bool {
        self.blocks.is_some_and(|blocks| blocks.zones.is_some())
    }
}

/// What a policy needs of the places on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockNeeds {
    /// Whether segments end at the borders of zones.
    pub segments: Segments,
    /// The zones to count.
    pub zones: Option<ZoneNeeds>,
}

/// What a segment is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Segments {
    /// A maximal run of dirty blocks; it belongs to the zone of its first block (TESA, III-C).
    Whole,
    /// A maximal run of dirty blocks inside a zone (MRAM, 3.2.6).
    InZones,
}

/// What a policy needs of zones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ZoneNeeds {
    /// Blocks of a zone; at least one.
    pub blocks: u64,
    /// The choice among them.
    pub order: ZoneOrder,
}

/// What counts as use in the recency list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recency {
    /// Writes.
    Writes,
    /// Writes and reads; entering the inactive list again counts as well.
    Uses,
}

/// From when a page's age counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Age {
    /// Its last write.
    #[default]
    LastWrite,
    /// The write that made it dirty.
    FirstWrite,
}

/// What an event did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Applied {
    /// Nothing: the page is not in the index.
    Nothing,
    /// The page was written.
    Written {
        /// Its writes since it became dirty; 7: or more.
        writes: u8,
        /// Where it lies.
        block: BlockNo,
    },
    /// Something else.
    Changed,
}

/// Bytes held by each structure of the index, counted from capacities.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Memory {
    /// The slab of pages.
    pub pages: usize,
    /// Page -> slot.
    pub page_table: usize,
    /// Files and their pages.
    pub files: usize,
    /// Block -> slot.
    pub block_table: usize,
    /// Segments.
    pub segments: usize,
    /// Zones.
    pub zones: usize,
    /// The recency list.
    pub recency: usize,
    /// Ranks.
    pub ranks: usize,
    /// What the policy itself holds.
    pub policy: usize,
}

impl Memory {
    /// All together.
    pub fn total(&self) -> ByteSize {
        let index = self.pages + self.page_table + self.files + self.block_table + self.segments;
        ByteSize((index + self.zones + self.recency + self.ranks + self.policy) as u64)
    }
}

#[derive(Debug)]
struct RecencyList {
    links: Links,
    ends: ListEnds,
    kind: Recency,
}

/// The index.
#[derive(Debug)]
pub struct DirtyIndex {
    needs: Needs,
    pages: Slab,
    by_page: SlotTable,
    files: Files,
    places: Option<Places>,
    recency: Option<RecencyList>,
    ranks: Option<Ranks>,
    eligible: u64,
    /// Room for slots on their way out.
    taken: Vec<u32>,
}

impl DirtyIndex {
    /// An empty index that keeps what is needed. A zone has at least one block, whatever the needs say.
    pub fn new(needs: Needs) -> DirtyIndex {
        let places = needs.blocks.map(|blocks| {
            let zone = blocks.zones.map(|zones| zones.blocks.max(1));
            let cut = if blocks.segments == Segments::InZones { zone.unwrap_or(0) } else { 0 };
            Places::new(cut, blocks.zones.map(|zones| Zones::new(zones.blocks.max(1), zones.order)))
        });
        let recency = needs.recency.map(|kind| RecencyList { links: Links::default(), ends: ListEnds::EMPTY, kind });
        DirtyIndex {
            needs,
            pages: Slab::new(),
            by_page: SlotTable::default(),
            files: Files::new(needs.files),
            places,
            recency,
            ranks: needs.ranks.then(Ranks::default),
            eligible: 0,
            taken: Vec::new(),
        }
    }

    /// Dirty pages, active ones included.
    pub fn len(&self) -> u64 {
        self.pages.len() as u64
    }

    /// Whether no page is dirty.
    pub fn is_empty(&self) -> bool {
        self.pages.len() == 0
    }

    /// Pages that can be selected.
    pub fn eligible(&self) -> u64 {
        self.eligible
    }

    /// Files with dirty pages.
    pub fn dirty_files(&self) -> u64 {
        self.files.len() as u64
    }

    /// Brings the index up to date with an event. A page or block whose byte offset does not fit in 64 bits does not
    /// exist, and events about it change nothing.
    pub fn apply(&mut self, now: Nanos, event: Event) -> Applied {
        match event {
            Event::Dirty { page, block, active } => self.dirty(now, page, block, active),
            Event::Rewrite { page } => self.find(page).map_or(Applied::Nothing, |slot| self.rewrite(now, slot)),
            Event::Touch { page } => self.with(page, |index, slot| {
                if index.recency.as_ref().is_some_and(|list| list.kind == Recency::Uses) {
                    index.refresh(slot);
                }
            }),
            Event::Activate { page } => self.with(page, |index, slot| index.set_active(slot, true)),
            Event::Deactivate { page } => self.with(page, |index, slot| index.set_active(slot, false)),
            Event::Clean { page } => self.with(page, DirtyIndex::remove),
            Event::Truncate { file, from } => self.truncate(file, from),
            Event::Delete { file } => self.truncate(file, PageIndex(0)),
            Event::Remap { page, block } if block.0 < LIMIT => {
                self.with(page, |index, slot| index.move_to(slot, block))
            }
            Event::Remap { .. } => Applied::Nothing,
            Event::Foresee { page, .. } => self.with(page, |_, _| {}),
        }
    }

    fn with(&mut self, page: PageKey, change: impl FnOnce(&mut DirtyIndex, u32)) -> Applied {
        let Some(slot) = self.find(page) else { return Applied::Nothing };
        change(self, slot);
        Applied::Changed
    }

    fn find(&self, page: PageKey) -> Option<u32> {
        self.by_page.find(page_hash(page.file, page.index.0), |slot| {
            let entry = self.pages.get(slot);
            entry.index == page.index.0 && self.files.id(entry.file) == page.file
        })
    }

    fn key(&self, slot: u32) -> PageKey {
        let entry = self.pages.get(slot);
        PageKey { file: self.files.id(entry.file), index: PageIndex(entry.index) }
    }

    fn dirty(&mut self, now: Nanos, page: PageKey, block: BlockNo, active: bool) -> Applied {
        self.by_page.warm(page_hash(page.file, page.index.0));
        if let Some(places) = &mut self.places {
            places.warm(block.0);
        }
        if let Some(slot) = self.find(page) {
            return self.rewrite(now, slot);
        }
        if page.index.0 >= LIMIT || block.0 >= LIMIT {
            return Applied::Nothing;
        }
        let file = self.files.find_or_add(page.file);
        let slot = self.pages.insert(PageEntry::new(file, page.index, block, active, now));
        let (pages, files) = (&self.pages, &self.files);
        self.by_page.insert(page_hash(page.file, page.index.0), slot, pages.entries.len(), |slot| {
            let entry = pages.get(slot);
            page_hash(files.id(entry.file), entry.index)
        });
        self.files.add_page(file, slot, page.index.0);
        if !(active && self.needs.inactive_only) {
            self.place(slot);
        }
        Applied::Written { writes: 1, block }
    }

    fn rewrite(&mut self, now: Nanos, slot: u32) -> Applied {
        let entry = self.pages.get_mut(slot);
        entry.count_write();
        let (writes, block) = (entry.writes(), entry.block());
        if self.needs.age == Age::LastWrite {
            let before = entry.stamp();
            entry.set_stamp(now);
            let (stamp, placed) = (entry.stamp(), entry.is_placed());
            if let (Some(places), true) = (&mut self.places, placed)
                && places.zones.is_some()
                && places.owner(block.0, &self.pages) == Some(slot)
                && let Some(zones) = &mut places.zones
            {
                zones.change_stamps(block.0, stamp, before);
            }
        }
        self.refresh(slot);
        Applied::Written { writes, block }
    }

    fn refresh(&mut self, slot: u32) {
        let placed = self.pages.get(slot).is_placed();
        if let (Some(list), true) = (&mut self.recency, placed) {
            list.links.remove(&mut list.ends, slot);
            list.links.append(&mut list.ends, slot);
        }
    }

    fn set_active(&mut self, slot: u32, active: bool) {
        let entry = self.pages.get_mut(slot);
        let changed = entry.is_active() != active;
        entry.set_active(active);
        if changed && self.needs.inactive_only {
            if active {
                self.unplace(slot);
            } else {
                self.place(slot);
            }
        }
    }

    fn move_to(&mut self, slot: u32, block: BlockNo) {
        if self.pages.get(slot).block() == block {
            return;
        }
        let placed = self.pages.get(slot).is_placed();
        if let (Some(places), true) = (&mut self.places, placed) {
            places.remove(slot, &self.pages);
        }
        self.pages.get_mut(slot).set_block(block);
        if let (Some(places), true) = (&mut self.places, placed) {
            places.add(slot, &self.pages);
        }
        if let (Some(ranks), true) = (&mut self.ranks, placed) {
            ranks.changed(slot, &self.pages, &self.files);
        }
    }

    /// Lets a page into the orders from which pages are selected.
    fn place(&mut self, slot: u32) {
        self.pages.get_mut(slot).set_placed(true);
        self.eligible += 1;
        if let Some(places) = &mut self.places {
            places.add(slot, &self.pages);
        }
        if let Some(list) = &mut self.recency {
            list.links.append(&mut list.ends, slot);
        }
        if let Some(ranks) = &mut self.ranks {
            ranks.insert(slot, &self.pages, &self.files);
        }
    }

    fn unplace(&mut self, slot: u32) {
        if !self.pages.get(slot).is_placed() {
            return;
        }
        if let Some(places) = &mut self.places {
            places.remove(slot, &self.pages);
        }
        self.leave_lists(slot);
    }

    /// Takes a page out of all orders but that of places, from which it is gone.
    fn leave_lists(&mut self, slot: u32) {
        self.pages.get_mut(slot).set_placed(false);
        self.eligible -= 1;
        if let Some(list) = &mut self.recency {
            list.links.remove(&mut list.ends, slot);
        }
        if let Some(ranks) = &mut self.ranks {
            ranks.remove(slot, &self.pages, &self.files);
        }
    }

    /// Forgets a page that no order holds any more.
    fn forget(&mut self, slot: u32) {
        let key = self.key(slot);
        self.by_page.remove(page_hash(key.file, key.index.0), slot);
        self.files.remove_page(self.pages.get(slot).file, slot, key.index.0);
        self.pages.remove(slot);
    }

    fn remove(&mut self, slot: u32) {
        self.unplace(slot);
        self.forget(slot);
    }

    /// Cost: the pages that go. An index that lists the pages of files also walks to them. That walk passes at most the
    /// dirty pages of the file, or the indexes that are cut off, whichever are fewer.
    fn truncate(&mut self, id: FileId, from: PageIndex) -> Applied {
        let Some(mut file) = self.files.find(id) else { return Applied::Nothing };
        let before = self.pages.len();
        loop {
            match self.files.tail(file, from) {
                Tail::Empty => break,
                Tail::Run(run) => {
                    for index in run.start..run.end() {
                        self.remove_if_there(PageKey { file: id, index: PageIndex(index) });
                    }
                }
                Tail::Probe { from, to } => {
                    for index in from..=to {
                        self.remove_if_there(PageKey { file: id, index: PageIndex(index) });
                    }
                    break;
                }
                Tail::Walk(first) => {
                    self.remove_listed(first, from);
                    break;
                }
            }
            match self.files.find(id) {
                Some(same) => file = same,
                None => break,
            }
        }
        self.files.cut(id, from);
        if self.pages.len() == before { Applied::Nothing } else { Applied::Changed }
    }

    fn remove_if_there(&mut self, page: PageKey) {
        if let Some(slot) = self.find(page) {
            self.remove(slot);
        }
    }

    fn remove_listed(&mut self, first: u32, from: PageIndex) {
        let mut next = Some(first);
        while let Some(slot) = next {
            next = self.files.next_listed(slot);
            if self.pages.get(slot).index >= from.0 {
                self.remove(slot);
            }
        }
    }

    /// Bytes held, by structure. Walks leaves and files: for reports, not for every event.
    pub fn memory(&self) -> Memory {
        let places = self.places.as_ref();
        Memory {
            pages: self.pages.bytes() + self.taken.capacity() * size_of::<u32>(),
            page_table: self.by_page.bytes(),
            files: self.files.bytes(),
            block_table: places.map_or(0, Places::table_bytes),
            segments: places.map_or(0, |places| places.runs.bytes()),
            zones: places.and_then(|places| places.zones.as_ref()).map_or(0, Zones::bytes),
            recency: self.recency.as_ref().map_or(0, |list| list.links.bytes()),
            ranks: self.ranks.as_ref().map_or(0, Ranks::bytes),
            policy: 0,
        }
    }
}

fn page_hash(file: FileId, index: u64) -> Hash {
    hash(file.0 ^ 0x5bd1_e995, index)
}
