//! Decides when dirty pages are written. Above the thresholds the policy chooses pages, in batches. Without being
//! chosen, pages are written when they are dirty for too long, when a client waits for them, and at the end.
//!
//! Staged files leave where the policy is asked ([`Computer::choose`]). For each unit that the write-out wants, as many
//! pages of the files used longest ago get their places first. Then the policy chooses among all dirty pages. So does
//! pdflush when it is woken to write: it looks for staged files and transforms them, so that they can be written (MRAM
//! 3.1.3). On the timer, which asks no policy, staged files do not leave (3.2.1).

use umbrella_model::page_cache::WriteStart;
use umbrella_policy::writeback::{DirtyPage, Event};
use umbrella_units::{BlockNo, FileId, Nanos, PageKey, Pages};

use super::client::Wait;
use super::config::Allocation;
use super::queue::{Waiting, WriteReason};
use super::{Computer, RunError, WATCH_EVERY};
use crate::experiment::Watch;

/// The policy is asked again when fewer pages than this wait: enough to keep the disk's queue full.
const LOW_WATER: usize = 256;

impl Computer {
    /// Asks the policy for what the thresholds demand, and hands the disk what it has room for.
    pub(super) fn feed(&mut self, now: Nanos) {
        self.wake_throttled(now);
        let low_water = (self.cache.batch() as usize).min(LOW_WATER);
        loop {
            let mut chosen = false;
            while self.queue.waiting_writes() < low_water {
                let Some((want, reason)) = self.due_pages(now) else { break };
                if !self.choose(now, want, reason) {
                    break;
                }
                chosen = true;
            }
            self.pump(now);
            // Pages that were deleted while they waited made no request: others have to, for nobody else comes by.
            if !chosen || self.queue.next_event().is_some() {
                return;
            }
        }
    }

    /// The number of pages to choose now, and the reason.
    fn due_pages(&mut self, now: Nanos) -> Option<(u64, WriteReason)> {
        let counts = self.cache.counts();
        let waiting = self.queue.waiting_writes() as u64;
        let batch = self.cache.batch();
        let demand = self.cache.demand(now);
        if demand.background > waiting {
            return Some((batch, WriteReason::Threshold));
        }
        let dirty = counts.dirty + self.files.staged_pages();
        if !self.starved.is_empty() && counts.write_back + waiting < batch && dirty > waiting {
            return Some((batch, WriteReason::Reclaim));
        }
        let throttled = demand.throttled && counts.write_back == 0 && waiting == 0 && dirty > 0;
        throttled.then_some((batch, WriteReason::Threshold))
    }

    /// Lets staged files leave, then queues the pages that the policy chooses; false when there are none to choose.
    fn choose(&mut self, now: Nanos, want: u64, reason: WriteReason) -> bool {
        self.transform_longest(now, want);
        self.note_memory();
        let mut selected = std::mem::take(&mut self.selected);
        let throttled = self.throttled.len();
        let zones = self.policy.policy().index().dirty_zones();
        self.policy.select(now, Pages(want), throttled, &mut selected);
        self.charge_zones(now, zones);
        let pressed = reason == WriteReason::Reclaim || throttled > 0;
        while selected.is_empty() && pressed && self.cache.counts().active > 0 {
            // All that is dirty is active. Memory has to come from somewhere: the list ages.
            let batch = self.cache.batch() as usize;
            self.cache.deactivate(batch, &mut self.changes);
            self.notify_policy(now);
            self.policy.select(now, Pages(want), throttled, &mut selected);
        }
        let any = !selected.is_empty();
        debug_assert!(selected.iter().all(|chosen| self.may_be_chosen(chosen)), "policy and page cache differ");
        if self.config.allocation == Allocation::Delayed {
            let pages: Vec<PageKey> = selected.iter().map(|chosen| self.files.page_of(chosen.page)).collect();
            self.allocate_blocks(now, &pages);
        }
        for DirtyPage { page, block } in selected.drain(..) {
            let page = self.files.page_of(page);
            let block = self.files.write_place(page).unwrap_or(block);
            self.cache.set_queued(page);
            self.queue.write(Waiting { page, block, reason });
        }
        self.selected = selected;
        any
    }

    /// Charges the processor's time for looking at all zones once for each target. There were `before` dirty zones. A
    /// target is written whole, and is no dirty zone any more.
    fn charge_zones(&mut self, now: Nanos, before: u64) {
        let each = self.config.bookkeeping.zone;
        if each > Nanos(0) && before > 0 {
            let targets = before.saturating_sub(self.policy.policy().index().dirty_zones()).max(1);
            self.charge(now, Nanos(each.0.saturating_mul(before * targets)));
        }
    }

    /// Whether the page is dirty, and not in use where the policy spares such.
    fn may_be_chosen(&self, chosen: &DirtyPage) -> bool {
        let page = self.files.page_of(chosen.page);
        self.cache.is_dirty(page) && !(self.policy.spares_active() && self.cache.is_active(page))
    }

    /// Pages that have no blocks yet get them when they are written back, each run of a file's pages together.
    pub(super) fn allocate_blocks(&mut self, now: Nanos, pages: &[PageKey]) {
        if self.config.allocation != Allocation::Delayed {
            return;
        }
        let mut rest = pages;
        while let Some(first) = rest.first() {
            let follows = |(at, page): &(usize, &PageKey)| {
                page.file == first.file && page.index.0 == first.index.0 + *at as u64 && self.files.is_predicted(**page)
            };
            let run = rest.iter().enumerate().take_while(follows).count();
            if run > 0 {
                let mut touched = std::mem::take(&mut self.touched);
                let given = self.files.allocate_delayed(*first, run as u64, &mut touched);
                self.touched = touched;
                if let Err(error) = given {
                    self.error = Some(self.files_failed(error));
                    return;
                }
            }
            rest = &rest[run.max(1)..];
        }
        self.dirty_metadata(None, now);
    }

    /// Queues pages that go without being chosen.
    fn queue_pages(&mut self, now: Nanos, pages: &mut Vec<PageKey>, reason: WriteReason) {
        self.allocate_blocks(now, pages);
        for page in pages.drain(..) {
            self.policy.on(now, Event::Clean { page: self.files.policy_key(page) });
            let Some(block) = self.files.write_place(page) else { continue };
            self.cache.set_queued(page);
            self.queue.write(Waiting { page, block, reason });
        }
    }

    /// The periodic write-back.
    pub(super) fn expire(&mut self, now: Nanos) {
        self.note_memory();
        let mut pages = std::mem::take(&mut self.keys);
        self.cache.expired(now, &mut pages);
        self.queue_pages(now, &mut pages, WriteReason::Expired);
        self.keys = pages;
    }

    /// The journal commits in ordered mode: all dirty data goes to disk first, file by file (Linux 2.6.12,
    /// fs/jbd/commit.c, `journal_submit_data_buffers`). Metadata goes to the journal, which is not modelled.
    pub(super) fn commit(&mut self, now: Nanos) {
        let mut pages = std::mem::take(&mut self.keys);
        for file in self.cache.dirty_files().filter(|file| *file != FileId::DEVICE) {
            self.cache.dirty_of(file, &mut pages);
        }
        self.queue_pages(now, &mut pages, WriteReason::Sync);
        self.keys = pages;
    }

    /// The client waits until the file's pages are on disk, those on their way already and its metadata too. Returns
    /// how many it waits for.
    pub(super) fn sync_file(&mut self, client: u32, now: Nanos, file: FileId) -> u32 {
        let mut pages = std::mem::take(&mut self.keys);
        self.cache.dirty_of(file, &mut pages);
        self.allocate_blocks(now, &pages);
        let mut blocks = std::mem::take(&mut self.touched);
        self.files.all_metadata_of(file, &mut blocks);
        blocks.sort_unstable();
        blocks.dedup();
        let dirty = |page: &PageKey| self.cache.is_dirty(*page);
        pages.extend(blocks.iter().copied().map(PageKey::device).filter(dirty));
        let mut on_their_way = Vec::new();
        if self.cache.write_back_of(file) + self.cache.write_back_of(FileId::DEVICE) > 0 {
            let of_metadata =
                |page: &PageKey| page.file == FileId::DEVICE && blocks.binary_search(&BlockNo(page.index.0)).is_ok();
            on_their_way.extend(self.queue.being_written().filter(|page| page.file == file || of_metadata(page)));
        }
        blocks.clear();
        self.touched = blocks;
        self.await_pages(client, now, pages, &on_their_way)
    }

    /// The client waits until everything that is dirty now, or on its way, is on disk.
    pub(super) fn sync_all(&mut self, client: u32, now: Nanos) -> u32 {
        let mut pages = std::mem::take(&mut self.keys);
        self.all_dirty(&mut pages);
        if self.config.allocation == Allocation::Delayed {
            self.allocate_blocks(now, &pages);
            pages.clear();
            self.all_dirty(&mut pages);
        }
        let on_their_way: Vec<PageKey> = self.queue.being_written().collect();
        self.await_pages(client, now, pages, &on_their_way)
    }

    fn all_dirty(&self, pages: &mut Vec<PageKey>) {
        for file in self.cache.dirty_files() {
            self.cache.dirty_of(file, pages);
        }
    }

    /// Queues the dirty `pages`; the client waits for them and for those that are on their way. Returns for how many.
    fn await_pages(&mut self, client: u32, now: Nanos, mut pages: Vec<PageKey>, on_their_way: &[PageKey]) -> u32 {
        let clean = on_their_way.iter().filter(|page| !self.cache.is_dirty(**page));
        let mut awaited = 0;
        for page in pages.iter().chain(clean) {
            self.syncing.entry(*page).or_default().push(client);
            awaited += 1;
        }
        self.queue_pages(now, &mut pages, WriteReason::Sync);
        self.keys = pages;
        awaited
    }

    /// Hands the disk what it has room for.
    pub(super) fn pump(&mut self, now: Nanos) {
        // A policy that goes by files writes them as the kernel does, which puts off their expiry.
        let by_files = self.policy.needs().files.is_some();
        let Computer { queue, cache, counters, deferred, syncing, .. } = self;
        let mut gone: Vec<PageKey> = Vec::new();
        queue.pump(now, |waiting| match cache.begin_queued(waiting.page) {
            WriteStart::Begun => {
                counters.written(waiting.reason);
                if waiting.reason == WriteReason::Threshold && by_files {
                    cache.written_in_part(waiting.page.file, now);
                }
                true
            }
            WriteStart::Later => {
                deferred.insert(waiting.page, *waiting);
                false
            }
            WriteStart::NotWanted => {
                // A page that a client waits for was written before, or is gone; it may be dirty again since.
                if syncing.contains_key(&waiting.page) && !cache.is_under_write_back(waiting.page) {
                    gone.push(waiting.page);
                }
                false
            }
        });
        for page in gone {
            self.synced(page, now);
        }
    }

    /// Takes what the disk completed.
    pub(super) fn collect(&mut self, now: Nanos) {
        let mut arrived = std::mem::take(&mut self.arrived);
        self.queue.advance(now, &mut arrived);
        let mut wrote = false;
        for what in arrived.drain(..) {
            wrote |= what.write;
            for page in &what.pages {
                if what.write { self.wrote(*page, now) } else { self.page_read(*page, now) }
            }
            self.queue.recycle(what.pages);
        }
        self.arrived = arrived;
        if wrote {
            self.wake_starved(now);
        }
    }

    fn wrote(&mut self, page: PageKey, now: Nanos) {
        self.cache.complete_write_back(page);
        if !self.deferred.is_empty()
            && let Some(again) = self.deferred.remove(&page)
        {
            self.queue.write(again);
            return;
        }
        if !self.syncing.is_empty() {
            self.synced(page, now);
        }
    }

    /// Nobody has to wait for the page any longer.
    fn synced(&mut self, page: PageKey, now: Nanos) {
        for client in self.syncing.remove(&page).into_iter().flatten() {
            self.page_awaited(client, now);
        }
    }

    fn wake_throttled(&mut self, now: Nanos) {
        if self.throttled.is_empty() || self.cache.demand(now).throttled {
            return;
        }
        for client in std::mem::take(&mut self.throttled) {
            self.wake(client, now);
        }
    }

    pub(super) fn wake_starved(&mut self, now: Nanos) {
        for client in std::mem::take(&mut self.starved) {
            self.wake(client, now);
        }
    }

    /// Writes all that is still dirty, staged files too. Returns when the last of it was on disk, and whether the
    /// watcher had enough before.
    pub(super) fn drain(&mut self, now: Nanos, watch: &mut Watch<'_>) -> Result<(Nanos, bool), RunError> {
        let mut now = now;
        loop {
            self.until_watch = self.until_watch.saturating_sub(1);
            if self.until_watch == 0 {
                self.until_watch = WATCH_EVERY;
                if !watch(Some(1.0)) {
                    return Ok((now, true));
                }
            }
            self.transform_longest(now, self.cache.batch());
            let waiting = self.queue.waiting_writes() as u64;
            if waiting == 0
                && self.deferred.is_empty()
                && self.cache.counts().dirty > 0
                && !self.choose(now, self.cache.batch(), WriteReason::Drained)
            {
                let mut pages = std::mem::take(&mut self.keys);
                self.cache.least_recent_dirty(usize::MAX, &mut pages);
                self.queue_pages(now, &mut pages, WriteReason::Drained);
                self.keys = pages;
            }
            self.pump(now);
            let Some(next) = self.queue.next_event() else {
                if self.queue.is_idle() && self.cache.counts().dirty == 0 {
                    debug_assert_eq!(
                        self.policy.policy().dirty(),
                        Pages(0),
                        "the policy knows of pages that are not dirty"
                    );
                    return Ok((now, false));
                }
                if waiting > 0 && self.queue.waiting_writes() == 0 {
                    // All that waited belonged to files that are gone: what is still dirty is chosen now.
                    continue;
                }
                return Err(self.stuck_error(now));
            };
            now = next.max(now);
            self.collect(now);
            if let Some(error) = self.error.take() {
                return Err(error);
            }
        }
    }

    /// Looks at the policy's memory whenever more is dirty than at any look before; a look costs a walk.
    fn note_memory(&mut self) {
        self.counters.tesa_bytes = self.counters.tesa_bytes.max(self.tesa_bytes());
        let dirty = self.policy.policy().dirty().0;
        if dirty <= self.most_seen + self.most_seen / 16 {
            return;
        }
        self.most_seen = dirty;
        self.counters.policy_bytes = self.counters.policy_bytes.max(self.policy.policy().memory().total().0);
    }

    /// What TESA's structures would take now: `zone_cb`, `seg_cb`, and a field of each page in them (section IV-F).
    fn tesa_bytes(&self) -> u64 {
        let policy = self.policy.policy();
        match policy.index().dirty_zones() {
            0 => 0,
            zones => 1292 * zones + 16 * policy.index().segments() + 4 * policy.eligible().0,
        }
    }

    /// One of the pages that the client waits for is there, or gone.
    pub(super) fn page_awaited(&mut self, client: u32, now: Nanos) {
        let state = &mut self.clients[client as usize];
        state.awaited = state.awaited.saturating_sub(1);
        if state.awaited == 0 && state.wait == Wait::Pages {
            self.wake(client, now);
        }
    }
}
