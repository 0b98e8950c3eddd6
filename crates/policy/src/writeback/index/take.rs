//! What policies ask of the index, and how they take pages out of it. Whatever is taken is appended to `out` in the
//! order in which it is to be written, and is dirty no longer as far as the index knows.

use umbrella_units::{BlockNo, Extent, FileId, Nanos, PageIndex, PageKey, Pages};

use super::super::event::DirtyPage;
use super::files::{DirtyFile, Tail};
use super::runs::Run;
use super::slab::millis;
use super::zones::Zone;
use super::{DirtyIndex, page_hash};

/// How a dirty page was used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// How long ago it was written ([`super::Age`]).
    pub age: Nanos,
    /// How often it was written since it became dirty; 7: or more often.
    pub writes: u8,
    /// Whether the page cache counts it as recently used.
    pub active: bool,
}

impl From<Run> for Extent {
    fn from(run: Run) -> Extent {
        Extent { start: BlockNo(run.start), blocks: run.len }
    }
}

impl DirtyIndex {
    fn run(&self, find: impl FnOnce(&super::runs::RunSet) -> Option<Run>) -> Option<Extent> {
        find(&self.places.as_ref()?.runs).map(Extent::from)
    }

    /// The first segment that starts at `block` or later. Needs [`super::Needs::blocks`].
    pub fn segment_from(&self, block: BlockNo) -> Option<Extent> {
        self.run(|runs| runs.from(block.0))
    }

    /// The segment that holds `block`, else the first after it. Needs [`super::Needs::blocks`].
    pub fn segment_at_or_after(&self, block: BlockNo) -> Option<Extent> {
        self.run(|runs| runs.at_or_after(block.0))
    }

    /// The longest segment; the first on a tie. Needs [`super::Needs::blocks`].
    pub fn longest_segment(&mut self) -> Option<Extent> {
        self.places.as_mut()?.runs.longest().map(Extent::from)
    }

    /// How many segments there are. Needs [`super::Needs::blocks`].
    pub fn segments(&self) -> u64 {
        self.places.as_ref().map_or(0, |places| places.runs.runs() as u64)
    }

    fn zones(&self) -> Option<&super::zones::Zones> {
        self.places.as_ref()?.zones.as_ref()
    }

    /// The zone that holds `block`, if a segment of it is dirty. Needs [`super::BlockNeeds::zones`].
    pub fn zone_of(&self, block: BlockNo) -> Option<Zone> {
        let zones = self.zones()?;
        zones.get(zones.number(block.0))
    }

    /// The zone with most dirty pages; the lowest number on a tie. Needs [`super::ZoneOrder::Pages`].
    pub fn fullest_zone(&mut self) -> Option<Zone> {
        self.places.as_mut()?.zones.as_mut()?.fullest()
    }

    /// The zone with the greatest average segment length, if that is at least `shortest` pages; most dirty pages on a
    /// tie, then the lowest number. With `above_average` only zones with at least as many dirty pages as the average
    /// zone (TESA, equation 2). Needs [`super::ZoneOrder::Length`].
    pub fn longest_zone(&mut self, shortest: Pages, above_average: bool) -> Option<Zone> {
        self.places.as_mut()?.zones.as_mut()?.longest(shortest.0, above_average)
    }

    /// How many zones hold dirty pages. Needs [`super::BlockNeeds::zones`].
    pub fn dirty_zones(&self) -> u64 {
        self.zones().map_or(0, |zones| zones.totals().0)
    }

    /// The first zone with long segments (or with short ones, when not `long`) whose number is at least `number`. Needs
    /// [`super::ZoneOrder::Classes`].
    pub fn next_zone(&self, number: u64, long: bool) -> Option<Zone> {
        self.zones()?.next_in_class(number, long)
    }

    /// Dirty blocks in zones with long segments. Needs [`super::ZoneOrder::Classes`].
    pub fn pages_in_long_zones(&self) -> Pages {
        Pages(self.zones().map_or(0, super::zones::Zones::long_pages))
    }

    /// Dirty blocks: fewer than pages when some block is claimed twice. Needs [`super::BlockNeeds::zones`].
    pub fn dirty_blocks(&self) -> Pages {
        Pages(self.zones().map_or(0, |zones| zones.totals().1))
    }

    /// The ages ([`super::Needs::age`]) of the pages of a zone, summed up, and those of all pages: how long pages have
    /// waited in all. Needs [`super::ZoneOrder::LengthAndAges`].
    pub fn zone_age(&self, zone: Zone, now: Nanos) -> Option<(Nanos, Nanos)> {
        let zones = self.zones()?;
        let (stamps, all) = zones.stamps(zone.number)?;
        let now = u64::from(millis(now));
        // Nonsense for a while when the clock of 49 days begins anew; then zero rather than centuries.
        let age = |pages: u64, stamps: u64| Nanos((now * pages).saturating_sub(stamps).saturating_mul(1_000_000));
        Some((age(zone.pages, stamps), age(zones.totals().1, all)))
    }

    /// Sets or clears a zone's mark that it was hit. Needs [`super::BlockNeeds::zones`].
    pub fn set_hit(&mut self, zone: Zone, hit: bool) {
        if let Some(zones) = self.places.as_mut().and_then(|places| places.zones.as_mut()) {
            zones.set_hit(zone.number, hit);
        }
    }

    /// Whether some block is claimed by more than one page. Needs [`super::Needs::blocks`].
    pub fn has_shared_blocks(&self) -> bool {
        self.places.as_ref().is_some_and(super::places::Places::has_shared_blocks)
    }

    /// Takes the pages of blocks that lie in one segment, in block order. Needs [`super::Needs::blocks`].
    pub fn take_blocks(&mut self, blocks: Extent, out: &mut Vec<DirtyPage>) {
        let Some(places) = &mut self.places else { return };
        let mut taken = std::mem::take(&mut self.taken);
        let (pages, files) = (&self.pages, &self.files);
        let key = |slot: u32| {
            let entry = pages.get(slot);
            PageKey { file: files.id(entry.file), index: PageIndex(entry.index) }
        };
        places.take(Run { start: blocks.start.0, len: blocks.blocks }, pages, key, &mut taken);
        for slot in taken.drain(..) {
            out.push(DirtyPage { page: self.key(slot), block: self.pages.get(slot).block() });
            self.leave_lists(slot);
            self.forget(slot);
        }
        self.taken = taken;
        self.trim();
    }

    /// Takes all pages of a zone: of the segments that begin in it, in block order. Needs [`super::BlockNeeds::zones`].
    pub fn take_zone(&mut self, zone: Zone, out: &mut Vec<DirtyPage>) {
        let Some(size) = self.zones().map(super::zones::Zones::size) else { return };
        let start = zone.number.saturating_mul(size);
        while let Some(segment) = self.segment_from(BlockNo(start)).filter(|run| run.start.0 - start < size) {
            self.take_blocks(segment, out);
        }
    }

    fn take(&mut self, slot: u32, out: &mut Vec<DirtyPage>) -> bool {
        out.push(DirtyPage { page: self.key(slot), block: self.pages.get(slot).block() });
        self.remove(slot);
        true
    }

    /// Takes the page that was used longest ago. Needs [`super::Needs::recency`].
    pub fn take_oldest(&mut self, out: &mut Vec<DirtyPage>) -> bool {
        let oldest = self.recency.as_ref().map(|list| list.ends.first).filter(|&slot| slot != super::table::NONE);
        oldest.is_some_and(|slot| self.take(slot, out))
    }

    /// Takes the page of the highest rank. Needs [`super::Needs::ranks`].
    pub fn take_highest(&mut self, out: &mut Vec<DirtyPage>) -> bool {
        let highest = self.ranks.as_ref().and_then(super::ranks::Ranks::highest);
        highest.is_some_and(|slot| self.take(slot, out))
    }

    /// Gives a page a rank; nothing happens when it is not among those that can be selected. Needs
    /// [`super::Needs::ranks`].
    pub fn set_rank(&mut self, page: PageKey, rank: u64) {
        let Some(slot) = self.find(page).filter(|&slot| self.pages.get(slot).is_placed()) else { return };
        if let Some(ranks) = &mut self.ranks {
            ranks.set(slot, rank, &self.pages, &self.files);
        }
    }

    /// The first file in order: files not marked before those marked. Needs [`super::Needs::files`].
    pub fn first_file(&self) -> Option<DirtyFile> {
        self.files.first()
    }

    /// The first file behind this one's place, among those marked or not marked as the first file is; the first when
    /// there is none. Needs [`super::FileOrder::Number`].
    pub fn first_file_behind(&self, file: FileId) -> Option<DirtyFile> {
        self.files.first_behind(file)
    }

    /// Sets a file back behind all that are not marked, until it has no dirty pages. Needs [`super::Needs::files`].
    pub fn mark_file(&mut self, file: FileId) {
        self.files.mark(file);
    }

    /// Puts a file behind all others that are marked or not marked as it is. Needs [`super::FileOrder::FirstDirtied`].
    pub fn send_file_back(&mut self, file: FileId) {
        self.files.send_back(file);
    }

    /// Whether the file has a dirty page at `from` or behind it. Needs [`super::Needs::files`].
    pub fn is_dirty_from(&self, file: FileId, from: PageIndex) -> bool {
        self.files.find(file).is_some_and(|slot| matches!(self.files.tail(slot, from), Tail::Run(_)))
    }

    /// Takes at most `most` pages of a file from `from` on, in index order. Needs [`super::Needs::files`].
    pub fn take_from_page(&mut self, file: FileId, from: PageIndex, most: Pages, out: &mut Vec<DirtyPage>) {
        let mut left = most.0;
        while left > 0 {
            let Some(slot) = self.files.find(file) else { return };
            let Tail::Run(run) = self.files.tail(slot, from) else { return };
            let run = Run { start: run.start, len: run.len.min(left) };
            for index in run.start..run.end() {
                let key = PageKey { file, index: PageIndex(index) };
                let Some(page) = self.find(key) else { continue };
                out.push(DirtyPage { page: key, block: self.pages.get(page).block() });
                self.unplace(page);
                self.by_page.remove(page_hash(key.file, key.index.0), page);
                self.pages.remove(page);
            }
            self.files.remove_run(slot, run);
            left -= run.len;
        }
    }

    /// Where a page lies and how long ago it was written ([`super::Needs::age`]), if it is dirty.
    pub fn page(&self, page: PageKey, now: Nanos) -> Option<(BlockNo, Nanos)> {
        self.find(page).map(|slot| (self.pages.get(slot).block(), self.pages.get(slot).age(now)))
    }

    /// How the page at `block` was used. Needs [`super::Needs::blocks`].
    pub fn usage_at(&self, block: BlockNo, now: Nanos) -> Option<Usage> {
        let slot = self.places.as_ref()?.owner(block.0, &self.pages)?;
        let entry = self.pages.get(slot);
        Some(Usage { age: entry.age(now), writes: entry.writes(), active: entry.is_active() })
    }

    fn trim(&mut self) {
        const KEPT: usize = 4096;
        if self.taken.capacity() > KEPT {
            self.taken.shrink_to(KEPT);
        }
    }
}
