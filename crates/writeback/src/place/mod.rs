//! Where the pages of a file lie, as far as it is known, and where the others will probably come to lie.
//!
//! When a page is written about which nothing is known, the file system is asked (FIEMAP). It is asked again when pages
//! without a place may have got one: after a write-back of the file, or when the answer is some seconds old.
//!
//! A page without a place is assumed to follow the last page before it that has one. A file without any gets an assumed
//! stretch where the file system would look first ([`Geometry`]). Stretches are handed out in order, so files that were
//! made one after the other lie side by side, as they will on the disk.

use umbrella_units::{BlockNo, FileId, Nanos, PageIndex};

use crate::geometry::Geometry;
use crate::sys::Mapped;

/// Extents kept of one file.
const MOST_EXTENTS: usize = 4096;
/// Number of pages that one query covers; it begins at a multiple of this: 128 MiB.
const WINDOW: u64 = 1 << 15;
/// Number of pages before the wanted page at which a query begins, if the file has too many pieces for one answer to
/// cover a window. The extents of these pages fit into one answer, most likely with the one before the page.
const PAGES_BEFORE: u64 = 64;
/// Queries for pages without a place are repeated after this time: the kernel may have written them.
const OLD: Nanos = Nanos::from_secs(5);

/// The known places of one file.
#[derive(Debug, Default)]
pub(crate) struct Places {
    /// Everything from here ...
    from: PageIndex,
    /// ... to here is known.
    to: PageIndex,
    extents: Vec<Mapped>,
    asked: Nanos,
    /// The last answer covered less than was asked for.
    in_pieces: bool,
    /// Pages without a place may have got one since.
    stale: bool,
    promise: Option<BlockNo>,
}

impl Places {
    /// The first page from which the file system has to map a write at `page`; `None` if its place is known.
    pub(crate) fn first_unmapped(&self, page: PageIndex, now: Nanos) -> Option<PageIndex> {
        if page >= self.to && page.0 - self.to.0 < WINDOW && self.to > self.from {
            return Some(if self.in_pieces && page.0 - self.to.0 > PAGES_BEFORE {
                Places::align_down(page)
            } else {
                self.to
            });
        }
        if !(self.from..self.to).contains(&page) {
            return Some(if self.in_pieces { Places::align_down(page) } else { PageIndex(page.0 - page.0 % WINDOW) });
        }
        if self.mapped(page).is_some() || !(self.stale || now.since(self.asked) > OLD) {
            return None;
        }
        Some(self.before(page).map_or(self.from, |extent| extent.pages.first.max(self.from)))
    }

    fn align_down(page: PageIndex) -> PageIndex {
        PageIndex(page.0.saturating_sub(PAGES_BEFORE))
    }

    /// Records the file system's answer about the pages from `from` up to `to`.
    pub(crate) fn record_places(&mut self, from: PageIndex, to: PageIndex, found: &[Mapped], now: Nanos) {
        let joins = (self.from..=self.to).contains(&from) && self.extents.len() + found.len() <= MOST_EXTENTS;
        // An extent that begins before `from` is given whole.
        let start = found.first().map_or(from, |first| first.pages.first.min(from));
        if joins {
            self.cut(start);
            self.from = self.from.min(start);
        } else {
            self.extents.clear();
            self.from = start;
        }
        self.extents.extend_from_slice(found);
        self.to = to;
        self.in_pieces = to.0.saturating_sub(from.0) < WINDOW;
        self.asked = now;
        self.stale = false;
    }

    /// The file was written back: what had no place may have one.
    pub(crate) fn written_back(&mut self) {
        self.stale = true;
    }

    /// The file ends before `from` now.
    pub(crate) fn cut(&mut self, from: PageIndex) {
        self.extents.retain(|extent| extent.pages.first < from);
        if let Some(last) = self.extents.last_mut() {
            last.pages.pages.0 = last.pages.pages.0.min(from.0 - last.pages.first.0);
        }
    }

    /// Forgets all places.
    pub(crate) fn forget(&mut self) {
        *self = Places { promise: self.promise, ..Places::default() };
    }

    /// Extents kept.
    pub(crate) fn extents(&self) -> &[Mapped] {
        &self.extents
    }

    fn mapped(&self, page: PageIndex) -> Option<BlockNo> {
        let extent = self.before(page)?;
        (page < extent.pages.end()).then(|| BlockNo(extent.block.0 + (page.0 - extent.pages.first.0)))
    }

    /// The last extent that begins at `page` or before it.
    fn before(&self, page: PageIndex) -> Option<&Mapped> {
        let place = self.extents.partition_point(|extent| extent.pages.first <= page);
        self.extents.get(place.checked_sub(1)?)
    }

    /// Where the page lies, or is expected to.
    pub(crate) fn block_of(&mut self, file: FileId, page: PageIndex, promises: &mut Promises) -> BlockNo {
        if let Some(extent) = self.before(page) {
            return BlockNo(extent.block.0.saturating_add(page.0 - extent.pages.first.0));
        }
        let promise = *self.promise.get_or_insert_with(|| promises.next(file));
        BlockNo(promise.0.saturating_add(page.0))
    }
}

/// Hands out places for files that have none.
#[derive(Debug)]
pub(crate) struct Promises {
    geometry: Geometry,
    /// By region, how much of it was handed out.
    given: rustc_hash::FxHashMap<u64, u64>,
}

/// Blocks handed out at once: 64 KiB.
const STRETCH: u64 = 16;
/// Regions remembered.
const MOST_REGIONS: usize = 1 << 16;

impl Promises {
    pub(crate) fn new(geometry: Geometry) -> Promises {
        Promises { geometry, given: rustc_hash::FxHashMap::default() }
    }

    fn next(&mut self, file: FileId) -> BlockNo {
        let region = self.geometry.region_of(file);
        if self.given.len() >= MOST_REGIONS {
            self.given.clear();
        }
        let given = self.given.entry(region.start.0).or_default();
        let place = region.start.0.saturating_add(*given % region.blocks.max(1));
        *given = given.wrapping_add(STRETCH);
        BlockNo(place)
    }
}

#[cfg(test)]
mod tests;
