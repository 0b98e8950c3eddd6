//! What each step of a client does.

use umbrella_policy::writeback::Event;
use umbrella_units::{BlockNo, ByteSize, FileId, Nanos, PAGE_BYTES, PageIndex, PageKey};

use super::client::{Verdict, Wait};
use super::counters::pages_of;
use super::{Computer, RunError};
use crate::experiment::Watch;
use crate::workload::FileOperation;

/// A step is done except for the pages that it waits for.
const ALL_DONE: u64 = u64::MAX;

/// Number of bytes of a file that are laid out between two checks whether to continue; a multiple of the page size.
const LAYOUT_PIECE: u64 = 16 << 20;

/// Number of pages after which a writer checks whether too much is dirty (`ratelimit_pages`).
const CHECK_EVERY: u64 = 32;

/// Pages that a step may dirty besides its own: inode, bitmaps, group descriptors, directories, indirect blocks.
pub(super) const METADATA_ROOM: u64 = 32;

impl Computer {
    /// Sets up: what is on disk, and in no cache, before time begins. Large files are laid out piece by piece; false
    /// when the watcher had enough.
    pub(super) fn prepare(&mut self, step: &FileOperation, watch: &mut Watch<'_>) -> Result<bool, RunError> {
        let FileOperation::Write { file, offset, size } = *step else {
            self.prepare_piece(step)?;
            return Ok(watch(None));
        };
        let (end, capacity) = (offset.0.saturating_add(size.0), self.capacity.0.saturating_mul(PAGE_BYTES));
        if end > capacity {
            return Err(RunError::LargerThanDisk { size: ByteSize(end), capacity: ByteSize(capacity) });
        }
        let mut at = offset.0;
        while at < end {
            let piece = LAYOUT_PIECE.min(end - at);
            self.prepare_piece(&FileOperation::Write { file, offset: ByteSize(at), size: ByteSize(piece) })?;
            at += piece;
            if !watch(None) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn prepare_piece(&mut self, step: &FileOperation) -> Result<(), RunError> {
        let mut touched = std::mem::take(&mut self.touched);
        let done = self.files.prepare(step, &mut touched);
        for block in touched.drain(..) {
            self.files.now_on_disk(block);
        }
        self.touched = touched;
        self.files.take_scanned();
        done.map_err(|error| self.files_failed(error))
    }

    /// Does the client's step, or continues with it.
    pub(super) fn do_step(&mut self, client: u32, now: Nanos) -> Result<Verdict, RunError> {
        let Some(step) = self.clients[client as usize].step else { return Ok(Verdict::Done(Nanos(0))) };
        let cost = self.cost(&step);
        self.files.set_writer(client);
        if self.clients[client as usize].done == ALL_DONE {
            return Ok(Verdict::Done(cost));
        }
        match step {
            FileOperation::Write { file, offset, size } => return self.write(client, now, file, offset, size, cost),
            FileOperation::Phase { name } => self.counters.phase(name, now),
            FileOperation::Think { time } => return Ok(Verdict::Done(time)),
            FileOperation::Read { file, offset, size } => {
                let (first, pages) = pages_of(offset, size);
                if self.files.is_device(file) {
                    self.check_address(BlockNo(first + pages.saturating_sub(1)))?;
                }
                if !self.files.touch_staged(file) {
                    self.read_pages(client, now, file, first, pages);
                }
            }
            FileOperation::Fsync { file } => {
                if self.files.is_staged(file) {
                    if !self.room(now, METADATA_ROOM) {
                        return Ok(Verdict::Blocked(Wait::Memory));
                    }
                    if self.files.is_staged(file) {
                        self.transform(now, file);
                    }
                }
                self.clients[client as usize].awaited += self.sync_file(client, now, file);
            }
            FileOperation::Sync => self.clients[client as usize].awaited += self.sync_all(client, now),
            FileOperation::Mkdir { .. }
            | FileOperation::Create { .. }
            | FileOperation::Truncate { .. }
            | FileOperation::Delete { .. } => {
                if !self.room(now, METADATA_ROOM) {
                    return Ok(Verdict::Blocked(Wait::Memory));
                }
                self.change_files(client, now, &step)?;
            }
        }
        Ok(self.all_done(client, cost))
    }

    fn all_done(&mut self, client: u32, cost: Nanos) -> Verdict {
        let state = &mut self.clients[client as usize];
        if state.awaited == 0 {
            return Verdict::Done(cost);
        }
        state.done = ALL_DONE;
        Verdict::Blocked(Wait::Pages)
    }

    fn cost(&self, step: &FileOperation) -> Nanos {
        let pages = match step {
            FileOperation::Write { offset, size, .. } | FileOperation::Read { offset, size, .. } => {
                pages_of(*offset, *size).1
            }
            FileOperation::Phase { .. } => return Nanos(0),
            _ => 0,
        };
        Nanos(self.config.cpu_per_step.0 + self.config.cpu_per_page.0.saturating_mul(pages))
    }

    fn write(
        &mut self,
        client: u32,
        now: Nanos,
        file: FileId,
        offset: ByteSize,
        size: ByteSize,
        cost: Nanos,
    ) -> Result<Verdict, RunError> {
        let (first, pages) = pages_of(offset, size);
        let device = self.files.is_device(file);
        if device {
            self.check_address(BlockNo(first + pages.saturating_sub(1)))?;
        }
        if self.files.is_staged(file)
            && let Some(verdict) = self.write_staged(client, now, file, offset, size, cost)
        {
            return Ok(verdict);
        }
        let end_bytes = offset.0.saturating_add(size.0);
        let old_bytes = self.files.bytes(file);
        while self.clients[client as usize].done < pages {
            let done = self.clients[client as usize].done;
            if self.cache.demand(now).throttled {
                return Ok(Verdict::Blocked(Wait::Throttled));
            }
            let chunk = CHECK_EVERY.min(pages - done);
            if !self.room(now, chunk + if device { 0 } else { METADATA_ROOM }) {
                return Ok(Verdict::Blocked(Wait::Memory));
            }
            for index in first + done..first + done + chunk {
                let page = PageKey { file, index: PageIndex(index) };
                if !device {
                    self.place(client, now, page, offset.0, end_bytes, old_bytes)?;
                }
                self.write_page(now, page);
            }
            self.clients[client as usize].done += chunk;
            if self.cache.demand(now).background > 0 {
                self.feed(now);
            }
        }
        self.files.grow(file, end_bytes);
        Ok(self.all_done(client, cost))
    }

    /// Gives the page a block, and reads what of it is not overwritten.
    fn place(
        &mut self,
        client: u32,
        now: Nanos,
        page: PageKey,
        from: u64,
        until: u64,
        old_bytes: u64,
    ) -> Result<(), RunError> {
        let begin = page.index.0 * PAGE_BYTES;
        let end = (begin + PAGE_BYTES).min(old_bytes);
        if begin < old_bytes && (from > begin || until < end) {
            self.read_rest(client, page);
        }
        let mut touched = std::mem::take(&mut self.touched);
        let placed = self.files.place(page, &mut touched);
        self.touched = touched;
        placed.map_err(|error| self.files_failed(error))?;
        if !self.touched.is_empty() {
            self.dirty_metadata(Some(client), now);
        }
        Ok(())
    }

    fn write_staged(
        &mut self,
        client: u32,
        now: Nanos,
        file: FileId,
        offset: ByteSize,
        size: ByteSize,
        cost: Nanos,
    ) -> Option<Verdict> {
        let more = self.files.staged_growth(file, offset, size);
        if !self.room(now, more + METADATA_ROOM) {
            let counts = self.cache.counts();
            if counts.dirty + counts.write_back + self.files.staged_pages() > 0 {
                return Some(Verdict::Blocked(Wait::Memory));
            }
            // Nothing can leave any more: it is larger than memory.
            self.transform(now, file);
        }
        if self.cache.demand(now).throttled {
            return Some(Verdict::Blocked(Wait::Throttled));
        }
        // Making room may have transformed this very file: then it is written as any other.
        if !self.files.is_staged(file) {
            return None;
        }
        let transform = self.files.write_staged(file, offset, size);
        self.cache.set_held(self.files.staged_pages());
        if transform {
            self.transform(now, file);
        }
        if transform || self.cache.demand(now).background > 0 {
            self.feed(now);
        }
        Some(self.all_done(client, cost))
    }

    /// Steps that change what files there are.
    fn change_files(&mut self, client: u32, now: Nanos, step: &FileOperation) -> Result<(), RunError> {
        let mut touched = std::mem::take(&mut self.touched);
        let done = match *step {
            FileOperation::Mkdir { dir, parent } => self.files.mkdir(dir, parent, &mut touched),
            FileOperation::Create { file, dir } => self.files.create(file, dir, &mut touched),
            FileOperation::Truncate { file, size } => {
                let from = PageIndex(size.0.div_ceil(PAGE_BYTES));
                if size.0 < self.files.bytes(file) {
                    if let Some(inode) = self.files.inode_of(file) {
                        self.policy.on(now, Event::Truncate { file: inode, from });
                    }
                    self.record_end_of_pages(now, file, from);
                    self.cache.truncate(file, from, &mut self.changes);
                    self.changes.clear();
                }
                let cut = self.files.truncate(file, size, &mut touched);
                self.cache.set_held(self.files.staged_pages());
                cut
            }
            FileOperation::Delete { file } => {
                if self.files.is_staged(file) {
                    self.counters.staged_only += 1;
                } else if let Some(distance) = self.files.distance(file) {
                    self.counters.distances.add(distance);
                }
                if let Some(inode) = self.files.inode_of(file) {
                    self.policy.on(now, Event::Delete { file: inode });
                }
                self.record_end_of_pages(now, file, PageIndex(0));
                self.cache.delete(file, &mut self.changes);
                self.changes.clear();
                let deleted = self.files.delete(file, &mut touched);
                self.cache.set_held(self.files.staged_pages());
                deleted
            }
            _ => Ok(()),
        };
        self.touched = touched;
        done.map_err(|error| self.files_failed(error))?;
        self.charge_scans(now);
        self.dirty_metadata(Some(client), now);
        self.forget_metadata(now);
        Ok(())
    }

    /// The processor's time for the directory entries that were scanned just now.
    pub(super) fn charge_scans(&mut self, now: Nanos) -> Nanos {
        let scanned = self.files.take_scanned();
        let time = Nanos(self.config.bookkeeping.entry.0.saturating_mul(scanned));
        if time > Nanos(0) {
            self.charge(now, time);
        }
        time
    }

    /// Indirect and directory blocks of removed files need not be written any more.
    fn forget_metadata(&mut self, now: Nanos) {
        let mut forgotten = std::mem::take(&mut self.touched);
        self.files.forgotten(&mut forgotten);
        for block in forgotten.drain(..) {
            self.cache.forget(PageKey::device(block), &mut self.changes);
            self.files.no_longer_on_disk(block);
        }
        self.touched = forgotten;
        self.notify_policy(now);
    }
}
