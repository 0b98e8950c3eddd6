//! The dirty pages themselves: 24 bytes each, found by slot.

use umbrella_units::{BlockNo, Nanos, PageIndex};

use super::table::NONE;

/// Pages of a file and blocks of a disk whose byte offsets fit in 64 bits are fewer than this.
pub(super) const LIMIT: u64 = 1 << 52;

const FLAG_BITS: u32 = 12;
const WRITES: u64 = 0b111;
const ACTIVE: u64 = 1 << 3;
const PLACED: u64 = 1 << 4;

/// A dirty page.
#[derive(Debug, Clone, Copy)]
pub(super) struct PageEntry {
    pub(super) index: u64,
    /// The block, above twelve bits of flags.
    word: u64,
    /// The file's slot; the next free slot when the entry is free.
    pub(super) file: u32,
    /// The first or last write, in milliseconds; wraps after 49 days.
    stamp: u32,
}

impl PageEntry {
    pub(super) fn new(file: u32, index: PageIndex, block: BlockNo, active: bool, now: Nanos) -> PageEntry {
        let word = (block.0 << FLAG_BITS) | if active { ACTIVE } else { 0 } | 1;
        PageEntry { index: index.0, word, file, stamp: millis(now) }
    }

    pub(super) fn block(&self) -> BlockNo {
        BlockNo(self.word >> FLAG_BITS)
    }

    pub(super) fn set_block(&mut self, block: BlockNo) {
        self.word = (block.0 << FLAG_BITS) | (self.word & ((1 << FLAG_BITS) - 1));
    }

    /// Writes since the page became dirty; seven stands for more as well.
    pub(super) fn writes(&self) -> u8 {
        (self.word & WRITES) as u8
    }

    pub(super) fn count_write(&mut self) {
        if self.word & WRITES != WRITES {
            self.word += 1;
        }
    }

    pub(super) fn is_active(&self) -> bool {
        self.word & ACTIVE != 0
    }

    pub(super) fn set_active(&mut self, active: bool) {
        self.word = if active { self.word | ACTIVE } else { self.word & !ACTIVE };
    }

    /// Whether the orders from which pages are selected hold the page.
    pub(super) fn is_placed(&self) -> bool {
        self.word & PLACED != 0
    }

    pub(super) fn set_placed(&mut self, placed: bool) {
        self.word = if placed { self.word | PLACED } else { self.word & !PLACED };
    }

    pub(super) fn stamp(&self) -> u32 {
        self.stamp
    }

    pub(super) fn set_stamp(&mut self, now: Nanos) {
        self.stamp = millis(now);
    }

    /// How long ago the stamp was set, in whole milliseconds.
    pub(super) fn age(&self, now: Nanos) -> Nanos {
        Nanos::from_millis(u64::from(millis(now).wrapping_sub(self.stamp)))
    }
}

pub(super) fn millis(time: Nanos) -> u32 {
    (time.0 / 1_000_000) as u32
}

/// Slots of dirty pages; a freed slot is used again before a new one is made.
#[derive(Debug)]
pub(super) struct Slab {
    pub(super) entries: Vec<PageEntry>,
    free: u32,
    len: usize,
}

impl Slab {
    pub(super) fn new() -> Slab {
        Slab { entries: Vec::new(), free: NONE, len: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn get(&self, slot: u32) -> &PageEntry {
        &self.entries[slot as usize]
    }

    pub(super) fn get_mut(&mut self, slot: u32) -> &mut PageEntry {
        &mut self.entries[slot as usize]
    }

    pub(super) fn insert(&mut self, entry: PageEntry) -> u32 {
        self.len += 1;
        if self.free != NONE {
            let slot = self.free;
            self.free = self.entries[slot as usize].file;
            self.entries[slot as usize] = entry;
            return slot;
        }
        push(&mut self.entries, entry);
        (self.entries.len() - 1) as u32
    }

    pub(super) fn remove(&mut self, slot: u32) {
        self.entries[slot as usize].file = self.free;
        self.free = slot;
        self.len -= 1;
    }

    /// The slots that hold a page, in no order that means anything.
    pub(super) fn used(&self) -> impl Iterator<Item = u32> {
        let mut free = vec![false; self.entries.len()];
        let mut next = self.free;
        while let Some(slot) = free.get_mut(next as usize) {
            *slot = true;
            next = self.entries[next as usize].file;
        }
        (0..self.entries.len() as u32).filter(move |slot| !free[*slot as usize])
    }

    pub(super) fn bytes(&self) -> usize {
        self.entries.capacity() * size_of::<PageEntry>()
    }
}

/// Appends to a vector that grows by a sixteenth instead of doubling: a large one is mostly full.
pub(super) fn push<T>(vec: &mut Vec<T>, value: T) {
    if vec.len() == vec.capacity() {
        vec.reserve_exact(vec.len() / 16 + 64);
    }
    vec.push(value);
}

/// Two links for each slot: a doubly linked list, or many that share no slot.
#[derive(Debug, Default)]
pub(super) struct Links {
    links: Vec<[u32; 2]>,
}

/// The ends of a list.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ends {
    pub(super) first: u32,
    pub(super) last: u32,
}

impl Ends {
    pub(super) const EMPTY: Ends = Ends { first: NONE, last: NONE };
}

impl Links {
    /// The slot after this one in its list, [`NONE`] after the last.
    pub(super) fn next(&self, slot: u32) -> u32 {
        self.links[slot as usize][1]
    }

    /// Adds a slot at the end of a list.
    pub(super) fn append(&mut self, list: &mut Ends, slot: u32) {
        while self.links.len() <= slot as usize {
            push(&mut self.links, [NONE; 2]);
        }
        self.links[slot as usize] = [list.last, NONE];
        if list.last == NONE {
            list.first = slot;
        } else {
            self.links[list.last as usize][1] = slot;
        }
        list.last = slot;
    }

    /// Takes a slot out of its list.
    pub(super) fn remove(&mut self, list: &mut Ends, slot: u32) {
        let [before, after] = self.links[slot as usize];
        if before == NONE {
            list.first = after;
        } else {
            self.links[before as usize][1] = after;
        }
        if after == NONE {
            list.last = before;
        } else {
            self.links[after as usize][0] = before;
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.links.capacity() * size_of::<[u32; 2]>()
    }
}
