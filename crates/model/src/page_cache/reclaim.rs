//! How pages leave for others: Linux 2.6's two lists (`mm/vmscan.c`, `shrink_zone`).

use umbrella_units::PageKey;

use super::slab::{self, flag};
use super::{Change, IDLE_INACTIVE, NeedsWriteBack, PageCache};

const IDLE_ACTIVE: usize = flag::ACTIVE as usize;

/// Active pages that are deactivated together when the inactive list has nothing to give (`SWAP_CLUSTER_MAX`).
const CLUSTER: usize = 32;

impl PageCache {
    /// Adds up to `pages` dirty pages that are not on their way yet, the one that reclaim would like to have first
    /// first: what `kswapd` writes. Active ones come last.
    pub fn least_recent_dirty(&self, pages: usize, out: &mut Vec<PageKey>) {
        let both = self.slab.backwards(slab::INACTIVE).chain(self.slab.backwards(slab::ACTIVE));
        let dirty = both.filter(|record| record.flags & (flag::DIRTY | flag::WRITE_BACK) == flag::DIRTY);
        out.extend(dirty.take(pages).map(|record| record.key));
    }

    /// Moves up to `pages` pages from the back of the active list to the inactive one. Reclaim does so by itself; this
    /// is for a driver whose policy never writes active pages when there are no others.
    pub fn deactivate(&mut self, pages: usize, changes: &mut Vec<Change>) {
        for _ in 0..pages {
            let Some(id) = self.slab.back(slab::ACTIVE) else { return };
            self.slab.unlink(id);
            self.slab.push_front(slab::INACTIVE, id);
            let flags = self.slab.at(id).flags;
            self.set_flags(id, flags & !(flag::ACTIVE | flag::REFERENCED));
            if flags & flag::DIRTY != 0 {
                changes.push(Change::Deactivated { page: self.slab.at(id).key });
            }
        }
    }

    /// Sees to it that `pages` pages can enter: clean pages leave, the least recently used first. Pages that are dirty
    /// or on their way to disk never leave.
    ///
    /// Ends: each round a page leaves, or goes around the inactive list behind a clean one that is in it, or the active
    /// list gets shorter.
    pub fn make_room(&mut self, pages: u64, changes: &mut Vec<Change>) -> Result<(), NeedsWriteBack> {
        let wanted = (self.slab.len() as u64).saturating_add(self.held).saturating_add(pages);
        let mut missing = wanted.saturating_sub(self.config.pages);
        while missing > 0 {
            if self.by_class[IDLE_INACTIVE] == 0 {
                if self.by_class[IDLE_ACTIVE] == 0 {
                    let pages = missing.saturating_sub(self.write_back).min(self.dirty);
                    return Err(NeedsWriteBack { pages, on_their_way: self.write_back });
                }
                self.deactivate(CLUSTER, changes);
                continue;
            }
            self.balance(changes);
            let Some(id) = self.slab.back(slab::INACTIVE) else { continue };
            let record = *self.slab.at(id);
            if record.flags & flag::BUSY == 0 {
                changes.push(Change::Dropped { page: record.key });
                self.drop_page(id);
                missing -= 1;
            } else {
                self.slab.at_mut(id).flags = record.flags & !flag::REFERENCED | flag::RECLAIM;
                self.slab.unlink(id);
                self.slab.push_front(slab::INACTIVE, id);
            }
        }
        Ok(())
    }

    /// Moves pages off the active list to match the scan of one inactive page. Both lists are scanned at a rate in
    /// proportion to their length. So one page is deactivated for each `inactive / active` pages of the inactive list
    /// that reclaim looked at (Linux 2.6.12, `shrink_zone`).
    fn balance(&mut self, changes: &mut Vec<Change>) {
        let (active, inactive) = (self.active(), self.inactive());
        self.owed += active;
        let pages = self.owed / inactive.max(1);
        self.owed %= inactive.max(1);
        self.deactivate(pages.min(CLUSTER), changes);
    }
}
