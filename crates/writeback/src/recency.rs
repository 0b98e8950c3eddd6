//! Which pages the page cache counts as recently used, inferred from the reads and writes that pass by.
//!
//! It follows Linux (`mm/swap.c`, `mark_page_accessed`): the first use of a page is noted, the second moves it to the
//! active list. Linux moves pages back when memory gets short. Here there is a bound instead: pages leave the inactive
//! list, the least recently used first, and the active list may be as long as the inactive one (`inactive_is_low`). It
//! does not matter whether a page is dirty. The number of pages is bounded; unknown pages count as not used.

use rustc_hash::FxHashMap;
use umbrella_policy::writeback::Event;
use umbrella_units::{PageIndex, PageKey};

/// Pages known at most: 512 MiB of page cache, in 20 MiB.
const MOST: usize = 1 << 17;

/// Active pages that go back together.
const CLUSTER: usize = 32;

const NONE: u32 = u32::MAX;

/// Tells one file from the next with the same inode number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Life(pub(crate) u64);

#[derive(Debug, Clone, Copy)]
struct Slot {
    life: Life,
    page: PageKey,
    before: u32,
    after: u32,
    referenced: bool,
    active: bool,
}

#[derive(Debug, Clone, Copy)]
struct List {
    first: u32,
    last: u32,
    len: usize,
}

const EMPTY: List = List { first: NONE, last: NONE, len: 0 };

/// See the module.
#[derive(Debug)]
pub(crate) struct Recency {
    most: usize,
    pages: FxHashMap<(Life, PageIndex), u32>,
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// The inactive and the active list, most recently used first.
    lists: [List; 2],
}

impl Default for Recency {
    fn default() -> Recency {
        Recency::new(MOST)
    }
}

impl Recency {
    fn new(most: usize) -> Recency {
        Recency { most, pages: FxHashMap::default(), slots: Vec::new(), free: Vec::new(), lists: [EMPTY; 2] }
    }

    /// Whether the page counts as recently used.
    pub(crate) fn is_active(&self, life: Life, page: PageKey) -> bool {
        let slot = self.pages.get(&(life, page.index));
        slot.and_then(|slot| self.slots.get(*slot as usize)).is_some_and(|slot| slot.active)
    }

    /// How many pages do.
    pub(crate) fn active(&self) -> usize {
        self.lists[1].len
    }

    /// The page was used.
    pub(crate) fn used(&mut self, life: Life, page: PageKey, emit: &mut impl FnMut(Event)) {
        let Some(&at) = self.pages.get(&(life, page.index)) else { return self.enter(life, page, emit) };
        let slot = &mut self.slots[at as usize];
        if !slot.referenced {
            slot.referenced = true;
        } else if !slot.active {
            slot.referenced = false;
            self.unlink(at);
            self.slots[at as usize].active = true;
            self.push(at);
            emit(Event::Activate { page });
        }
    }

    /// Moves up to `pages` pages, the least recently used first, from the active list to the inactive one.
    pub(crate) fn deactivate(&mut self, pages: usize, emit: &mut impl FnMut(Event)) {
        for _ in 0..pages {
            let at = self.lists[1].last;
            if at == NONE {
                return;
            }
            self.unlink(at);
            let slot = &mut self.slots[at as usize];
            (slot.active, slot.referenced) = (false, false);
            let page = slot.page;
            self.push(at);
            emit(Event::Deactivate { page });
        }
    }

    /// Bytes held.
    pub(crate) fn bytes(&self) -> usize {
        self.slots.capacity() * size_of::<Slot>() + self.pages.capacity() * size_of::<((Life, PageIndex), u32)>()
    }

    fn enter(&mut self, life: Life, page: PageKey, emit: &mut impl FnMut(Event)) {
        if self.pages.len() >= self.most {
            let more = self.lists[1].len.saturating_sub(self.lists[0].len);
            self.deactivate(more.min(CLUSTER), emit);
            self.drop_last();
        }
        let slot = Slot { life, page, before: NONE, after: NONE, referenced: true, active: false };
        let at = if let Some(at) = self.free.pop() {
            self.slots[at as usize] = slot;
            at
        } else {
            self.slots.push(slot);
            (self.slots.len() - 1) as u32
        };
        self.push(at);
        self.pages.insert((life, page.index), at);
    }

    /// The inactive page that was used longest ago is not known any more.
    fn drop_last(&mut self) {
        let at = self.lists[0].last;
        if at == NONE {
            return;
        }
        self.unlink(at);
        let slot = self.slots[at as usize];
        self.pages.remove(&(slot.life, slot.page.index));
        self.free.push(at);
    }

    fn push(&mut self, at: u32) {
        let list = &mut self.lists[usize::from(self.slots[at as usize].active)];
        let first = std::mem::replace(&mut list.first, at);
        list.len += 1;
        if first == NONE {
            list.last = at;
        } else {
            self.slots[first as usize].before = at;
        }
        let slot = &mut self.slots[at as usize];
        (slot.before, slot.after) = (NONE, first);
    }

    fn unlink(&mut self, at: u32) {
        let Slot { before, after, active, .. } = self.slots[at as usize];
        let list = &mut self.lists[usize::from(active)];
        list.len -= 1;
        if before == NONE {
            list.first = after;
        } else {
            self.slots[before as usize].after = after;
        }
        let list = &mut self.lists[usize::from(active)];
        if after == NONE {
            list.last = before;
        } else {
            self.slots[after as usize].before = before;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use umbrella_units::FileId;

    fn page(index: u64) -> PageKey {
        PageKey { file: FileId(7), index: PageIndex(index) }
    }

    fn use_all(recency: &mut Recency, indexes: impl IntoIterator<Item = u64>) -> Vec<Event> {
        let mut events = Vec::new();
        for index in indexes {
            recency.used(Life(1), page(index), &mut |event| events.push(event));
        }
        events
    }

    #[test]
    fn the_second_use_activates() {
        let mut recency = Recency::new(8);
        assert_eq!(use_all(&mut recency, [1, 2]), []);
        assert_eq!(use_all(&mut recency, [2, 2, 2]), [Event::Activate { page: page(2) }]);
        assert!(recency.is_active(Life(1), page(2)) && !recency.is_active(Life(1), page(1)));
    }

    #[test]
    fn another_file_with_the_same_number_begins_anew() {
        let mut recency = Recency::new(8);
        use_all(&mut recency, [2, 2]);
        assert!(!recency.is_active(Life(2), page(2)));
    }

    #[test]
    fn pages_go_back_in_the_order_in_which_they_came() {
        let mut recency = Recency::new(8);
        use_all(&mut recency, [1, 2, 1, 2]);
        let mut events = Vec::new();
        recency.deactivate(5, &mut |event| events.push(event));
        assert_eq!(events, [1, 2].map(|index| Event::Deactivate { page: page(index) }));
        assert_eq!(recency.active(), 0);
    }

    #[test]
    fn the_number_of_pages_is_bounded_and_active_pages_age() {
        let mut recency = Recency::new(8);
        use_all(&mut recency, (0..8).chain(0..8));
        assert_eq!(recency.active(), 8);
        let events = use_all(&mut recency, 8..1000);
        assert!(events.iter().all(|event| matches!(event, Event::Deactivate { .. })), "{events:?}");
        assert!(recency.active() < 8 && recency.pages.len() <= 8 && recency.slots.len() <= 9);
    }
}
