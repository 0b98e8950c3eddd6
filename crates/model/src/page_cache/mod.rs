//! The page cache of a kernel, in virtual time: which pages are in memory, which of them are dirty, when they must be
//! written, and which must leave.
//!
//! It follows Linux 2.6 (`mm/page-writeback.c`, `mm/vmscan.c`, `mm/swap.c`, `fs/fs-writeback.c`), the kernel of the
//! papers, with its constants in a [`PageCacheConfig`]:
//!
//! - A page enters the inactive list. Its use is noted once; the second use moves it to the active list
//!   (`mark_page_accessed`). Only reclaim moves pages back.
//! - Dirty pages above the background threshold are to be written, in batches. The driver of the cache asks a policy
//!   which ones. When dirty pages and those on their way to disk are above the foreground threshold, they hold up the
//!   writers ([`PageCache::demand`]). Pages that others hold ([`PageCache::set_held`]) count for both.
//! - Every 5 s the files that are dirty for 30 s or more are written whole ([`PageCache::expired`]); on a block device
//!   whose files are unknown, the pages that are.
//! - Reclaim takes clean pages from the back of the inactive list. A dirty one goes once around the list; when there
//!   are only such pages, some must be written ([`NeedsWriteBack`]).
//!
//! The cache reports all it does as a list of [`Change`]s, in order, so that write-back policies can follow. Left out:
//! mapped pages, zones of memory, and the rate at which the kernel looks at its thresholds (it looks at every write
//! here).

mod change;
mod config;
mod files;
#[cfg(test)]
mod naive;
mod reclaim;
mod slab;
#[cfg(test)]
mod tests;

use umbrella_units::{FileId, Nanos, PageIndex, PageKey};

pub use change::{Access, Change, Counts, Demand, NeedsWriteBack, WriteStart};
pub use config::{ExpireBy, PageCacheConfig};
use files::Files;
use slab::{Id, NONE, Slab, flag};

/// See the module.
#[derive(Debug, Clone)]
pub struct PageCache {
    config: PageCacheConfig,
    background: u64,
    foreground: u64,
    batch: u64,
    slab: Slab,
    files: Files,
    /// Pages by [`flag::ACTIVE`] and [`flag::BUSY`].
    by_class: [usize; 4],
    dirty: u64,
    write_back: u64,
    /// Pages of memory that others hold, and that are nowhere on disk.
    held: u64,
    /// What the scan owes the active list, in pages times the length of the inactive list.
    owed: usize,
}

const CLASS: u8 = flag::ACTIVE | flag::BUSY;
const IDLE_INACTIVE: usize = 0;

impl PageCache {
    /// An empty cache.
    pub fn new(config: PageCacheConfig) -> PageCache {
        let config = PageCacheConfig { pages: config.pages.min(u64::from(u32::MAX) - 16), ..config };
        PageCache {
            background: config.background_pages(),
            foreground: config.foreground_pages(),
            batch: config.batch_pages(),
            slab: Slab::new(config.pages as usize),
            files: Files::new(),
            by_class: [0; 4],
            dirty: 0,
            write_back: 0,
            held: 0,
            owed: 0,
            config,
        }
    }

    /// What it was built with.
    pub fn config(&self) -> &PageCacheConfig {
        &self.config
    }

    /// The unit of background write-back, in pages ([`PageCacheConfig::batch_pages`]).
    pub fn batch(&self) -> u64 {
        self.batch
    }

    /// Pages by state.
    pub fn counts(&self) -> Counts {
        Counts {
            pages: self.slab.len() as u64,
            active: self.active() as u64,
            dirty: self.dirty,
            write_back: self.write_back,
            unwritten: (self.by_class[usize::from(flag::BUSY)] + self.by_class[usize::from(CLASS)]) as u64,
        }
    }

    /// Bytes that the model itself takes.
    pub fn bytes(&self) -> usize {
        self.slab.bytes() + self.files.bytes()
    }

    /// Sets the number of pages of the memory that others hold and that are nowhere on disk (staged files). They count
    /// as dirty for both thresholds. The cache has as many fewer from now on, and gives back the surplus with the next
    /// [`PageCache::make_room`].
    pub fn set_held(&mut self, pages: u64) {
        self.held = pages;
    }

    /// Whether the page is in memory.
    pub fn holds(&self, page: PageKey) -> bool {
        self.slab.find(page).is_some()
    }

    /// Whether the page is dirty.
    pub fn is_dirty(&self, page: PageKey) -> bool {
        self.slab.find(page).is_some_and(|id| self.slab.at(id).flags & flag::DIRTY != 0)
    }

    /// Whether the page is on its way to disk.
    pub fn is_under_write_back(&self, page: PageKey) -> bool {
        self.slab.find(page).is_some_and(|id| self.slab.at(id).flags & flag::WRITE_BACK != 0)
    }

    /// Whether the page is on the active list.
    pub fn is_active(&self, page: PageKey) -> bool {
        self.slab.find(page).is_some_and(|id| self.slab.at(id).flags & flag::ACTIVE != 0)
    }

    /// A page is written as a whole, or its rest is already in memory. A page that is absent enters, dirty, if there is
    /// room or a clean page can leave.
    pub fn write(&mut self, now: Nanos, page: PageKey, changes: &mut Vec<Change>) -> Access {
        let (id, access) = match self.slab.find(page) {
            Some(id) => (id, Access::Hit),
            None if self.make_room(1, changes).is_err() => return Access::Full,
            None => (self.enter(page), Access::Miss),
        };
        let flags = self.slab.at(id).flags;
        if flags & flag::DIRTY == 0 {
            self.dirty_page(now, id);
            changes.push(Change::Dirtied { page, active: flags & flag::ACTIVE != 0 });
        } else {
            changes.push(Change::Rewritten { page });
        }
        self.accessed(id, changes);
        access
    }

    /// A page is read.
    pub fn read(&mut self, _now: Nanos, page: PageKey, changes: &mut Vec<Change>) -> Access {
        let Some(id) = self.slab.find(page) else { return Access::Miss };
        if self.slab.at(id).flags & flag::DIRTY != 0 {
            changes.push(Change::Touched { page });
        }
        self.accessed(id, changes);
        Access::Hit
    }

    /// The page that a reader waits for came from disk: it enters, used once. Nothing changes if it is there already.
    pub fn fill(&mut self, _now: Nanos, page: PageKey, changes: &mut Vec<Change>) -> Result<(), NeedsWriteBack> {
        if self.slab.find(page).is_none() {
            self.make_room(1, changes)?;
            let id = self.enter(page);
            self.accessed(id, changes);
        }
        Ok(())
    }

    /// A page that nobody waits for came from disk (read-ahead): it enters, not used yet. Nothing changes if it is
    /// there already.
    pub fn fill_ahead(&mut self, page: PageKey, changes: &mut Vec<Change>) -> Result<(), NeedsWriteBack> {
        if self.slab.find(page).is_none() {
            self.make_room(1, changes)?;
            self.enter(page);
        }
        Ok(())
    }

    /// The file ends before page `from`: later pages leave, written or not. Cost: O(pages of the file in memory).
    pub fn truncate(&mut self, file: FileId, from: PageIndex, changes: &mut Vec<Change>) {
        let Some(place) = self.files.find(file) else { return };
        let heads = [self.files.at(place).clean, self.files.at(place).dirty];
        for head in heads {
            let mut id = head;
            while id != NONE {
                let record = *self.slab.at(id);
                let next = record.file_next;
                if record.key.index >= from {
                    let page = record.key;
                    let dirty = record.flags & flag::DIRTY != 0;
                    changes.push(if dirty { Change::Cleaned { page } } else { Change::Dropped { page } });
                    self.drop_page(id);
                }
                id = next;
            }
        }
    }

    /// The file is gone, and its pages. Cost: O(pages of the file in memory).
    pub fn delete(&mut self, file: FileId, changes: &mut Vec<Change>) {
        self.truncate(file, PageIndex(0), changes);
    }

    /// The page leaves, written or not: nobody needs what it holds (a metadata block that was freed).
    pub fn forget(&mut self, page: PageKey, changes: &mut Vec<Change>) {
        let Some(id) = self.slab.find(page) else { return };
        let dirty = self.slab.at(id).flags & flag::DIRTY != 0;
        changes.push(if dirty { Change::Cleaned { page } } else { Change::Dropped { page } });
        self.drop_page(id);
    }

    /// Begins the write of a dirty page to disk. False if it is not dirty, or is still on its way from before. Stable
    /// pages are off: the page may be written again meanwhile, and is dirty then, but goes to disk once at a time.
    pub fn begin_write_back(&mut self, page: PageKey) -> bool {
        let Some(id) = self.slab.find(page) else { return false };
        let flags = self.slab.at(id).flags;
        if flags & (flag::DIRTY | flag::WRITE_BACK) != flag::DIRTY {
            return false;
        }
        self.start_write_back(id);
        true
    }

    /// A dirty page waits to be written from now on; see [`PageCache::begin_queued`].
    pub fn set_queued(&mut self, page: PageKey) {
        if let Some(id) = self.slab.find(page)
            && self.slab.at(id).flags & flag::DIRTY != 0
        {
            self.slab.at_mut(id).flags |= flag::QUEUED;
        }
    }

    /// The turn of a page that was queued has come. A page that is queued twice is written once: what is dirty again
    /// since it was written is to be chosen again.
    pub fn begin_queued(&mut self, page: PageKey) -> WriteStart {
        let Some(id) = self.slab.find(page) else { return WriteStart::NotWanted };
        let flags = self.slab.at(id).flags;
        if flags & flag::QUEUED == 0 {
            return WriteStart::NotWanted;
        }
        if flags & flag::WRITE_BACK != 0 {
            return WriteStart::Later;
        }
        self.start_write_back(id);
        WriteStart::Begun
    }

    fn start_write_back(&mut self, id: Id) {
        self.clean_page(id);
        self.set_flags(id, self.slab.at(id).flags & !flag::QUEUED | flag::WRITE_BACK);
        self.write_back += 1;
        let place = self.slab.at(id).file;
        self.files.at_mut(place).write_back_pages += 1;
    }

    /// A page's write-back is done. Nothing happens if none was under way: the page may have been cut off its file.
    pub fn complete_write_back(&mut self, page: PageKey) {
        let Some(id) = self.slab.find(page) else { return };
        let flags = self.slab.at(id).flags;
        if flags & flag::WRITE_BACK == 0 {
            return;
        }
        self.set_flags(id, flags & !(flag::WRITE_BACK | flag::RECLAIM));
        self.write_back -= 1;
        let place = self.slab.at(id).file;
        self.files.at_mut(place).write_back_pages -= 1;
        // Reclaim waited for this one: it goes next (`rotate_reclaimable_page`).
        if flags & (flag::RECLAIM | flag::ACTIVE | flag::DIRTY) == flag::RECLAIM {
            self.slab.unlink(id);
            self.slab.push_back(slab::INACTIVE, id);
        }
    }

    /// What the thresholds ask for now.
    #[inline]
    pub fn demand(&self, _now: Nanos) -> Demand {
        let dirty = self.dirty + self.held;
        let over = dirty.saturating_sub(self.background);
        // Most often nothing is over, and a division costs as much as the rest.
        let batches = if over == 0 { 0 } else { over.div_ceil(self.batch) };
        Demand {
            background: batches.saturating_mul(self.batch).min(dirty),
            throttled: dirty + self.write_back > self.foreground,
        }
    }

    /// When the periodic write-back looks next; `None`: never.
    pub fn next_wake(&self, now: Nanos) -> Option<Nanos> {
        self.config.expire_after?;
        let every = self.config.wake_every.0.max(1);
        Some(Nanos((now.0 / every).saturating_add(1).saturating_mul(every)))
    }

    /// Adds the dirty pages of all files that are dirty for too long: files in the order in which they became dirty,
    /// pages in index order. The caller writes them all. A file counts as dirty since `now` if it stays dirty or
    /// becomes so again. Except after [`PageCache::written_in_part`], no page waits for longer than the time of expiry
    /// and one wake-up.
    ///
    /// With [`ExpireBy::Pages`] each page's own time counts, and nothing puts it off.
    pub fn expired(&mut self, now: Nanos, out: &mut Vec<PageKey>) {
        let Some(expire_after) = self.config.expire_after else { return };
        match self.config.expire_by {
            ExpireBy::Files => self.expired_files(now, expire_after, out),
            ExpireBy::Pages => self.expired_pages(now, expire_after, out),
        }
    }

    fn expired_files(&mut self, now: Nanos, expire_after: Nanos, out: &mut Vec<PageKey>) {
        while let Some(place) = self.files.dirtied_first() {
            if self.files.at(place).since + expire_after > now || self.files.at(place).since >= now {
                break;
            }
            self.add_dirty(place, out);
            self.files.became_clean(place);
            self.files.became_dirty(place, now);
        }
    }

    fn expired_pages(&mut self, now: Nanos, expire_after: Nanos, out: &mut Vec<PageKey>) {
        let places: Vec<u32> = self.files.dirty_places().collect();
        for place in places {
            let from = out.len();
            for _ in 0..self.files.at(place).dirty_pages {
                let file = self.files.at_mut(place);
                let Some(id) = self.slab.file_last(file.dirty) else { break };
                if !self.slab.is_dirty_for(id, expire_after, now) {
                    break;
                }
                out.push(self.slab.at(id).key);
                self.slab.file_unlink(&mut file.dirty, id);
                self.slab.file_push(&mut file.dirty, id);
                self.slab.set_dirtied(id, now);
            }
            out[from..].sort_unstable();
        }
    }

    /// Background write-back wrote some of the file's pages and leaves others dirty. The file counts as dirty since
    /// `now`, and goes behind all other dirty files, "so that other inodes on this superblock will get some writeout".
    /// Source: `__sync_single_inode` of Linux 2.6.12, which sets `dirtied_when` anew.
    pub fn written_in_part(&mut self, file: FileId, now: Nanos) {
        let Some(place) = self.files.find(file) else { return };
        if self.files.at(place).dirty_pages > 0 && self.files.at(place).since < now {
            self.files.became_clean(place);
            self.files.became_dirty(place, now);
        }
    }

    /// Adds the file's dirty pages in index order, also those that are still on their way from before.
    pub fn dirty_of(&self, file: FileId, out: &mut Vec<PageKey>) {
        if let Some(place) = self.files.find(file) {
            self.add_dirty(place, out);
        }
    }

    /// How many of the file's pages are on their way to disk.
    pub fn write_back_of(&self, file: FileId) -> u64 {
        self.files.find(file).map_or(0, |place| u64::from(self.files.at(place).write_back_pages))
    }

    /// Dirty files, the one that is dirty for longest first.
    pub fn dirty_files(&self) -> impl Iterator<Item = FileId> {
        self.files.dirty().map(|file| file.id)
    }

    fn active(&self) -> usize {
        self.by_class[usize::from(flag::ACTIVE)] + self.by_class[usize::from(flag::ACTIVE | flag::BUSY)]
    }

    fn inactive(&self) -> usize {
        self.slab.len() - self.active()
    }

    /// Sets a page's flags, and its class with them.
    fn set_flags(&mut self, id: Id, flags: u8) {
        let busy = if flags & (flag::DIRTY | flag::WRITE_BACK) == 0 { 0 } else { flag::BUSY };
        let flags = flags & !flag::BUSY | busy;
        let record = self.slab.at_mut(id);
        let before = record.flags & CLASS;
        record.flags = flags;
        self.by_class[usize::from(before)] -= 1;
        self.by_class[usize::from(flags & CLASS)] += 1;
    }

    fn enter(&mut self, page: PageKey) -> Id {
        let place = self.files.place(page.file);
        let id = self.slab.insert(page, place, 0);
        self.slab.push_front(slab::INACTIVE, id);
        let file = self.files.at_mut(place);
        file.pages += 1;
        self.slab.file_push(&mut file.clean, id);
        self.by_class[IDLE_INACTIVE] += 1;
        id
    }

    fn drop_page(&mut self, id: Id) {
        let record = *self.slab.at(id);
        if record.flags & flag::DIRTY != 0 {
            self.clean_page(id);
        }
        if record.flags & flag::WRITE_BACK != 0 {
            self.write_back -= 1;
            self.files.at_mut(record.file).write_back_pages -= 1;
        }
        let class = self.slab.at(id).flags & CLASS;
        self.by_class[usize::from(class)] -= 1;
        self.slab.unlink(id);
        let file = self.files.at_mut(record.file);
        self.slab.file_unlink(&mut file.clean, id);
        file.pages -= 1;
        let last = file.pages == 0;
        self.slab.remove(id);
        if last {
            self.files.forget(record.file);
        }
    }

    fn dirty_page(&mut self, now: Nanos, id: Id) {
        self.set_flags(id, self.slab.at(id).flags | flag::DIRTY);
        self.dirty += 1;
        let place = self.slab.at(id).file;
        let file = self.files.at_mut(place);
        self.slab.file_unlink(&mut file.clean, id);
        self.slab.file_push(&mut file.dirty, id);
        self.slab.set_dirtied(id, now);
        file.dirty_pages += 1;
        if file.dirty_pages == 1 {
            self.files.became_dirty(place, now);
        }
    }

    fn clean_page(&mut self, id: Id) {
        self.set_flags(id, self.slab.at(id).flags & !flag::DIRTY);
        self.dirty -= 1;
        let place = self.slab.at(id).file;
        let file = self.files.at_mut(place);
        self.slab.file_unlink(&mut file.dirty, id);
        self.slab.file_push(&mut file.clean, id);
        file.dirty_pages -= 1;
        if file.dirty_pages == 0 {
            self.files.became_clean(place);
        }
    }

    /// `mark_page_accessed`.
    fn accessed(&mut self, id: Id, changes: &mut Vec<Change>) {
        let record = self.slab.at_mut(id);
        let flags = record.flags;
        if flags & flag::REFERENCED == 0 {
            record.flags = flags | flag::REFERENCED;
            return;
        }
        if flags & flag::ACTIVE != 0 {
            return;
        }
        let page = record.key;
        self.slab.unlink(id);
        self.slab.push_front(slab::ACTIVE, id);
        self.set_flags(id, flags & !flag::REFERENCED | flag::ACTIVE);
        if flags & flag::DIRTY != 0 {
            changes.push(Change::Activated { page });
        }
    }

    fn add_dirty(&self, place: u32, out: &mut Vec<PageKey>) {
        let from = out.len();
        out.extend(self.slab.file_pages(self.files.at(place).dirty).map(|(_, record)| record.key));
        out[from..].sort_unstable();
    }
}
