//! Pages in and out of the cache: reads, read-ahead, room, metadata blocks, and what the page cache tells the policy.

use umbrella_model::page_cache::{Access, Change};
use umbrella_policy::writeback::Event;
use umbrella_units::{BlockNo, FileId, Nanos, PAGE_BYTES, PageIndex, PageKey};

use super::client::ReadAhead;
use super::step::METADATA_ROOM;
use super::{Computer, RunError, Waiters, WriteLog};

impl Computer {
    /// Passes the changes of the page cache to the policy.
    pub(super) fn notify_policy(&mut self, now: Nanos) {
        let mut changes = std::mem::take(&mut self.changes);
        self.charge_zone_pages(now, &changes);
        for change in changes.drain(..) {
            let key = |page| self.files.policy_key(page);
            let event = match change {
                Change::Dirtied { page, active } => match self.files.block_of(page) {
                    Some(block) => Event::Dirty { page: key(page), block, active },
                    None => continue,
                },
                Change::Rewritten { page } => Event::Rewrite { page: key(page) },
                Change::Touched { page } => Event::Touch { page: key(page) },
                Change::Activated { page } => Event::Activate { page: key(page) },
                Change::Deactivated { page } => Event::Deactivate { page: key(page) },
                Change::Cleaned { page } => Event::Clean { page: key(page) },
                Change::Dropped { .. } => continue,
            };
            self.policy.on(now, event);
        }
        self.changes = changes;
    }

    /// The processor's time for pages that enter the policy's zones.
    fn charge_zone_pages(&mut self, now: Nanos, changes: &[Change]) {
        let each = self.config.bookkeeping.zone_page;
        if each == Nanos(0) || !self.policy.needs().has_zones() {
            return;
        }
        let spares_active = self.policy.needs().inactive_only;
        let enters = |change: &&Change| match change {
            Change::Dirtied { active, .. } => !(spares_active && *active),
            Change::Deactivated { .. } => spares_active,
            _ => false,
        };
        let pages = changes.iter().filter(enters).count() as u64;
        if pages > 0 {
            self.charge(now, Nanos(each.0 * pages));
        }
    }

    /// A client or the file system writes a page whose block is known. Where there is no room at all it goes to disk
    /// past the cache, as a synchronous write would.
    pub(super) fn write_page(&mut self, now: Nanos, page: PageKey) {
        let access = self.cache.write(now, page, &mut self.changes);
        self.counters.peak_dirty = self.counters.peak_dirty.max(self.cache.counts().unwritten);
        self.notify_policy(now);
        if access == Access::Full {
            self.allocate_blocks(now, &[page]);
            if let Some(block) = self.files.block_of(page) {
                self.queue.write_through(block, page);
            }
        }
        if let Some(log) = &mut self.log
            && !log.record(page, now)
        {
            self.error.get_or_insert(RunError::TooMuchToForesee { most: WriteLog::MOST });
        }
        if let Some(foresight) = &mut self.foresight {
            let next_write = foresight.next_end(page, now);
            self.policy.on(now, Event::Foresee { page: self.files.policy_key(page), next_write });
        }
    }

    /// Records, for the policy with foresight, that the file's pages from `from` on are about to be removed: writing
    /// them was needless.
    pub(super) fn record_end_of_pages(&mut self, now: Nanos, file: FileId, from: PageIndex) {
        if self.log.is_none() && self.foresight.is_none() {
            return;
        }
        for index in from.0..self.files.bytes(file).div_ceil(PAGE_BYTES) {
            let page = PageKey { file, index: PageIndex(index) };
            if let Some(log) = &mut self.log
                && !log.record(page, now)
            {
                self.error.get_or_insert(RunError::TooMuchToForesee { most: WriteLog::MOST });
                return;
            }
            if let Some(foresight) = &mut self.foresight {
                foresight.next_end(page, now);
            }
        }
    }

    /// Makes room for `pages` pages in the cache. False: the caller has to wait for the disk first.
    pub(super) fn room(&mut self, now: Nanos, pages: u64) -> bool {
        let free = self.cache.make_room(pages, &mut self.changes).is_ok();
        self.reclaimed(now, if free { 0 } else { pages });
        free || (self.files.staged_pages() > 0 && self.cache.make_room(pages, &mut self.changes).is_ok())
    }

    /// Passes on the events of the page cache, and lets staged files give up their share of what reclaim took.
    fn reclaimed(&mut self, now: Nanos, short: u64) {
        let staged = self.files.staged_pages() > 0;
        let dropped = |change: &&Change| matches!(change, Change::Dropped { .. });
        let reclaimed = if staged { self.changes.iter().filter(dropped).count() as u64 } else { 0 };
        self.notify_policy(now);
        if staged && reclaimed + short > 0 {
            let leave = self.files.pressure(reclaimed, self.cache.counts().pages, short);
            let left = self.transform_while_there_is_room(now, &leave);
            self.files.carry_over_owed(left);
        }
    }

    /// The metadata blocks in `touched` are dirty now. Blocks that are on disk but not in memory are read first, and
    /// `client` waits for them; a block that was never used before needs no reading.
    pub(super) fn dirty_metadata(&mut self, client: Option<u32>, now: Nanos) {
        let mut touched = std::mem::take(&mut self.touched);
        touched.sort_unstable();
        touched.dedup();
        for block in touched.drain(..) {
            let page = PageKey::device(block);
            if self.files.is_on_disk(block) && !self.cache.holds(page) {
                if !self.reading.contains_key(&page) {
                    self.missing.push((block, page));
                }
                self.wait_for_page(page, client);
            }
            self.files.now_on_disk(block);
            self.write_page(now, page);
        }
        self.touched = touched;
        self.read_missing();
    }

    /// The client waits for the page, which is about to be read or is being read already.
    fn wait_for_page(&mut self, page: PageKey, client: Option<u32>) {
        let waiters: &mut Waiters = self.reading.entry(page).or_default();
        if let Some(client) = client {
            waiters.push(client);
            self.clients[client as usize].awaited += 1;
        }
    }

    /// Reads what is in `missing`: adjacent blocks with one request.
    pub(super) fn read_missing(&mut self) {
        let missing = std::mem::take(&mut self.missing);
        let mut keys = std::mem::take(&mut self.keys);
        let mut rest = missing.as_slice();
        while let Some((first, _)) = rest.first() {
            let run = rest.iter().enumerate().take_while(|(at, (block, _))| block.0 == first.0 + *at as u64).count();
            keys.extend(rest[..run].iter().map(|(_, page)| *page));
            self.queue.read(*first, &keys);
            keys.clear();
            rest = &rest[run..];
        }
        self.keys = keys;
        self.missing = missing;
        self.missing.clear();
    }

    /// A page whose rest is on disk is about to be written in part: its rest is read, and the client waits for it.
    pub(super) fn read_rest(&mut self, client: u32, page: PageKey) {
        if self.cache.holds(page) {
            return;
        }
        if let Some(block) = self.files.block_of(page).filter(|_| !self.files.is_predicted(page)) {
            if !self.reading.contains_key(&page) {
                self.missing.push((block, page));
            }
            self.wait_for_page(page, Some(client));
            self.read_missing();
        }
    }

    /// The client reads pages of a file. What is missing is on its way when this returns; the client waits for it.
    pub(super) fn read_pages(&mut self, client: u32, now: Nanos, file: FileId, first: u64, pages: u64) {
        let file_pages = self.files.pages(file);
        let end = (first + pages).min(file_pages);
        let mut found = false;
        for index in first..end {
            let page = PageKey { file, index: PageIndex(index) };
            if self.cache.read(now, page, &mut self.changes) == Access::Hit {
                continue;
            }
            if !found {
                found = true;
                self.find_page(client, now, page);
            }
            self.request(page, Some(client), now);
        }
        self.notify_policy(now);
        self.read_ahead(client, now, file, first, end, file_pages);
        self.read_missing();
    }

    /// Before a page can be read, its directory, inode and indirect blocks are read. They are requested together with
    /// it, while a kernel reads one after the other.
    fn find_page(&mut self, client: u32, now: Nanos, page: PageKey) {
        let mut blocks = std::mem::take(&mut self.touched);
        self.files.metadata_of(page.file, page.index, &mut blocks);
        for block in blocks.drain(..) {
            let metadata = PageKey::device(block);
            if self.cache.read(now, metadata, &mut self.changes) == Access::Miss {
                self.request(metadata, Some(client), now);
            }
        }
        self.touched = blocks;
    }

    /// Puts a page that is not in memory on the list to read, unless it is on its way or has no block.
    fn request(&mut self, page: PageKey, client: Option<u32>, now: Nanos) {
        if self.reading.contains_key(&page) {
            self.wait_for_page(page, client);
        } else if let Some(block) = self.files.block_of(page) {
            self.missing.push((block, page));
            self.wait_for_page(page, client);
        } else {
            // A hole: a page of zeros.
            let _ = self.cache.fill(now, page, &mut self.changes);
        }
    }

    /// Sequential readers get the pages that follow, twice as many each time (Linux: up to 128 KiB), before they ask.
    fn read_ahead(&mut self, client: u32, now: Nanos, file: FileId, first: u64, end: u64, file_pages: u64) {
        let ahead = self.clients[client as usize].ahead;
        let sequential = ahead.file == file && ahead.next == first && first > 0;
        let largest = self.config.read_ahead;
        let window = if sequential { (ahead.window * 2).max(4).min(largest) } else { 0 };
        self.clients[client as usize].ahead = ReadAhead { file, next: end, window };
        if window == 0 || file == FileId::DEVICE {
            return;
        }
        // Read on only when half of the pages read ahead are used up.
        let middle = PageKey { file, index: PageIndex(end + u64::from(window) / 2) };
        if middle.index.0 < file_pages && (self.cache.holds(middle) || self.reading.contains_key(&middle)) {
            return;
        }
        for index in end..(end + u64::from(window)).min(file_pages) {
            let page = PageKey { file, index: PageIndex(index) };
            if !self.cache.holds(page) && !self.reading.contains_key(&page) {
                self.request(page, None, now);
            }
        }
    }

    /// Handles a page that was read from disk.
    pub(super) fn page_read(&mut self, page: PageKey, now: Nanos) {
        let waiters = self.reading.remove(&page).unwrap_or_default();
        // Where there is no room the reader gets the page too, but it is not kept.
        let _ = if waiters.is_empty() {
            self.cache.fill_ahead(page, &mut self.changes)
        } else {
            self.cache.fill(now, page, &mut self.changes)
        };
        self.reclaimed(now, 0);
        for client in waiters {
            self.page_awaited(client, now);
        }
    }

    /// Gives the staged files used longest ago, with at least `pages` pages together, their places on disk.
    pub(super) fn transform_longest(&mut self, now: Nanos, pages: u64) {
        let files = self.files.staged_longest(pages);
        self.transform_while_there_is_room(now, &files);
    }

    /// Gives staged files their places on disk as long as there is room for the metadata that this dirties. The others
    /// wait for the disk as everybody does, unless there is nothing to wait for. Returns how many pages those have.
    pub(super) fn transform_while_there_is_room(&mut self, now: Nanos, mut files: &[FileId]) -> u64 {
        while let [file, rest @ ..] = files {
            let room = self.cache.make_room(METADATA_ROOM, &mut self.changes).is_ok();
            self.notify_policy(now);
            let counts = self.cache.counts();
            if !room && counts.dirty + counts.write_back > 0 {
                break;
            }
            self.transform(now, *file);
            files = rest;
        }
        files.iter().map(|file| self.files.pages(*file)).sum()
    }

    /// A staged file gets its place on disk: inode and all blocks at once; its pages are dirty pages from now on.
    pub(super) fn transform(&mut self, now: Nanos, file: FileId) {
        let mut touched = std::mem::take(&mut self.touched);
        let placed = self.files.transform(file, &mut touched);
        self.touched = touched;
        self.cache.set_held(self.files.staged_pages());
        match placed {
            Ok(pages) => {
                for index in 0..pages {
                    self.write_page(now, PageKey { file, index: PageIndex(index) });
                }
            }
            Err(error) => self.error = Some(self.files_failed(error)),
        }
        self.counters.moving = self.counters.moving + self.charge_scans(now);
        self.dirty_metadata(None, now);
    }

    /// Where a page of the device itself lies; an error beyond the end.
    pub(super) fn check_address(&self, last: BlockNo) -> Result<(), super::RunError> {
        if last < self.capacity {
            return Ok(());
        }
        Err(super::RunError::BeyondEnd {
            address: last.0.saturating_mul(umbrella_units::PAGE_BYTES),
            capacity: self.capacity.0.saturating_mul(umbrella_units::PAGE_BYTES),
        })
    }
}
