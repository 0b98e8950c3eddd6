//! The page cache as plain lists, to compare with: slow, and short enough to be seen to be right.

use std::collections::BTreeMap;

use umbrella_units::{FileId, Nanos, PageKey};

use super::{Change, ExpireBy, PageCacheConfig};

#[derive(Debug, Clone, Copy, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of a page, and any of them may be set")]
pub(super) struct State {
    referenced: bool,
    pub(super) dirty: bool,
    pub(super) write_back: bool,
    wanted: bool,
    pub(super) since: Nanos,
}

/// Lists from the front (used last) to the back.
#[derive(Debug, Default)]
pub(super) struct Naive {
    pub(super) config: PageCacheConfig,
    pub(super) inactive: Vec<PageKey>,
    pub(super) active: Vec<PageKey>,
    pub(super) pages: BTreeMap<PageKey, State>,
    /// In the order in which they became dirty.
    pub(super) dirty_files: Vec<(FileId, Nanos)>,
    pub(super) held: u64,
    pub(super) owed: usize,
}

impl Naive {
    fn busy(&self, page: PageKey) -> bool {
        self.pages[&page].dirty || self.pages[&page].write_back
    }

    fn has_idle(&self, list: &[PageKey]) -> bool {
        list.iter().any(|&page| !self.busy(page))
    }

    /// A page that is absent enters. False: no room.
    pub(super) fn enter(&mut self, page: PageKey, changes: &mut Vec<Change>) -> bool {
        if !self.pages.contains_key(&page) {
            if !self.reclaim(1, changes) {
                return false;
            }
            self.inactive.insert(0, page);
            self.pages.insert(page, State::default());
        }
        true
    }

    pub(super) fn write(&mut self, now: Nanos, page: PageKey, changes: &mut Vec<Change>) -> bool {
        if !self.enter(page, changes) {
            return false;
        }
        let active = self.active.contains(&page);
        let state = self.pages.get_mut(&page).unwrap();
        let was_dirty = std::mem::replace(&mut state.dirty, true);
        if !was_dirty {
            state.since = now;
        }
        changes.push(if was_dirty { Change::Rewritten { page } } else { Change::Dirtied { page, active } });
        if self.dirty_files.iter().all(|&(file, _)| file != page.file) {
            self.dirty_files.push((page.file, now));
        }
        self.used(page, changes);
        true
    }

    pub(super) fn used(&mut self, page: PageKey, changes: &mut Vec<Change>) {
        let state = self.pages.get_mut(&page).unwrap();
        if self.active.contains(&page) || !state.referenced {
            state.referenced = true;
            return;
        }
        state.referenced = false;
        let dirty = state.dirty;
        self.inactive.retain(|&other| other != page);
        self.active.insert(0, page);
        if dirty {
            changes.push(Change::Activated { page });
        }
    }

    /// What is dirty for too long; it counts as dirty since `now`.
    pub(super) fn expired(&mut self, now: Nanos, after: Nanos) -> Vec<PageKey> {
        let files: Vec<(FileId, Nanos)> = self.dirty_files.clone();
        let by_files = self.config.expire_by == ExpireBy::Files;
        let mut out = Vec::new();
        for (file, since) in files {
            if by_files && since + after > now {
                continue;
            }
            for (&page, state) in self.pages.iter_mut().filter(|(page, state)| page.file == file && state.dirty) {
                if by_files || state.since + after <= now {
                    state.since = now;
                    out.push(page);
                }
            }
            if by_files {
                self.dirty_files.retain(|&(other, _)| other != file);
                self.dirty_files.push((file, now));
            }
        }
        out
    }

    /// The page is not dirty any more; its file may not be either.
    pub(super) fn settle(&mut self) {
        let pages = &self.pages;
        self.dirty_files.retain(|&(file, _)| pages.iter().any(|(page, state)| page.file == file && state.dirty));
    }

    pub(super) fn remove(&mut self, page: PageKey) {
        self.pages.remove(&page);
        self.inactive.retain(|&other| other != page);
        self.active.retain(|&other| other != page);
        self.settle();
    }

    pub(super) fn begin(&mut self, page: PageKey) -> bool {
        let Some(state) = self.pages.get_mut(&page).filter(|state| state.dirty && !state.write_back) else {
            return false;
        };
        (state.dirty, state.write_back) = (false, true);
        self.settle();
        true
    }

    pub(super) fn complete(&mut self, page: PageKey) {
        let Some(state) = self.pages.get_mut(&page).filter(|state| state.write_back) else { return };
        state.write_back = false;
        let next = std::mem::replace(&mut state.wanted, false) && !state.dirty;
        if next && self.inactive.contains(&page) {
            self.inactive.retain(|&other| other != page);
            self.inactive.push(page);
        }
    }

    pub(super) fn deactivate(&mut self, pages: usize, changes: &mut Vec<Change>) {
        for _ in 0..pages {
            let Some(page) = self.active.pop() else { return };
            self.inactive.insert(0, page);
            let state = self.pages.get_mut(&page).unwrap();
            state.referenced = false;
            if state.dirty {
                changes.push(Change::Deactivated { page });
            }
        }
    }

    pub(super) fn reclaim(&mut self, pages: u64, changes: &mut Vec<Change>) -> bool {
        let mut leave = (self.pages.len() as u64 + self.held + pages).saturating_sub(self.config.pages);
        while leave > 0 {
            if !self.has_idle(&self.inactive) {
                if !self.has_idle(&self.active) {
                    return false;
                }
                self.deactivate(32, changes);
                continue;
            }
            let (active, inactive) = (self.active.len(), self.inactive.len());
            let owed = self.owed + active;
            self.owed = owed % inactive;
            self.deactivate((owed / inactive).min(32), changes);
            let page = *self.inactive.last().unwrap();
            if self.busy(page) {
                let state = self.pages.get_mut(&page).unwrap();
                (state.referenced, state.wanted) = (false, true);
                self.inactive.pop();
                self.inactive.insert(0, page);
            } else {
                changes.push(Change::Dropped { page });
                self.remove(page);
                leave -= 1;
            }
        }
        true
    }
}
