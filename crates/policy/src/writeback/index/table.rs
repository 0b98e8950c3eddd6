//! A hash table of slots: four bytes an entry, the keys stay in the slab. Open addressing with linear probing and
//! backward shift, so that nothing is left behind by a removal.
//!
//! Sixteen neighbouring keys share a cache line (`home`), because dirty pages and blocks come in runs. The bits of an
//! entry that the slot does not need hold a part of the key's hash, so that a probe rarely looks into the slab in vain.

/// No slot.
pub(super) const NONE: u32 = u32::MAX;

const NEIGHBOURS_BITS: u32 = 4;
const FEWEST_BITS: u32 = 6;

/// The hash of a key: where it belongs, and the tag that tells it from others there.
#[derive(Clone, Copy)]
pub(super) struct Hash {
    high: u64,
    neighbour: u64,
}

/// The hash of position `place` in space `space` (a file's page, a block, a zone).
pub(super) fn hash(space: u64, place: u64) -> Hash {
    let mixed = (place >> NEIGHBOURS_BITS) ^ space.wrapping_mul(0xff51_afd7_ed55_8ccd);
    let high = mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let high = (high ^ (high >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    Hash { high, neighbour: place & ((1 << NEIGHBOURS_BITS) - 1) }
}

/// The hash of a place whose neighbours are most likely there too (a zone, a chunk), so that they would fill whole lines
/// and a probe had to pass them all: they are scattered.
pub(super) fn scattered(space: u64, place: u64) -> Hash {
    hash(space, place.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(32))
}

/// Slots, found by the hash of a key that their owner keeps.
#[derive(Debug, Default)]
pub(super) struct SlotTable {
    cells: Vec<u32>,
    bits: u32,
    len: usize,
}

impl SlotTable {
    fn home(&self, hash: Hash) -> usize {
        let line = hash.high >> (64 - (self.bits - NEIGHBOURS_BITS));
        ((line << NEIGHBOURS_BITS) | hash.neighbour) as usize
    }

    fn tag(&self, hash: Hash) -> u32 {
        ((hash.high as u32) ^ (hash.neighbour as u32).wrapping_mul(0x9e37_79b9)) & !self.slot_mask()
    }

    fn slot_mask(&self) -> u32 {
        ((1_u64 << self.bits) - 1) as u32
    }

    /// Reads where a hash belongs, so that the processor has it at hand when it comes to be searched: several such reads
    /// wait for memory together, searches one after the other.
    pub(super) fn warm(&self, hash: Hash) {
        if self.len > 0 {
            std::hint::black_box(self.cells[self.home(hash)]);
        }
    }

    /// The slot with this hash for which `is_it` holds.
    pub(super) fn find(&self, hash: Hash, is_it: impl Fn(u32) -> bool) -> Option<u32> {
        self.position(hash, is_it).map(|at| self.cells[at] & self.slot_mask())
    }

    fn position(&self, hash: Hash, is_it: impl Fn(u32) -> bool) -> Option<usize> {
        if self.len == 0 {
            return None;
        }
        let (tag, mask, wrap) = (self.tag(hash), self.slot_mask(), self.cells.len() - 1);
        let mut at = self.home(hash);
        loop {
            let cell = self.cells[at];
            if cell == NONE {
                return None;
            }
            if cell & !mask == tag && is_it(cell & mask) {
                return Some(at);
            }
            at = (at + 1) & wrap;
        }
    }

    /// Adds a slot that is not in the table. `slots` is how many slots its owner has, which are to fit below the tag;
    /// `hash_of` gives the hash of those that are in the table already.
    pub(super) fn insert(&mut self, hash: Hash, slot: u32, slots: usize, hash_of: impl Fn(u32) -> Hash) {
        let wanted = (self.len + 1).max(slots + 1);
        if self.cells.is_empty() || wanted * 8 > self.cells.len() * 7 {
            self.grow(wanted, hash_of);
        }
        self.put(hash, slot);
        self.len += 1;
    }

    fn put(&mut self, hash: Hash, slot: u32) {
        let wrap = self.cells.len() - 1;
        let mut at = self.home(hash);
        while self.cells[at] != NONE {
            at = (at + 1) & wrap;
        }
        self.cells[at] = slot | self.tag(hash);
    }

    fn grow(&mut self, wanted: usize, hash_of: impl Fn(u32) -> Hash) {
        let (before, mask) = (std::mem::take(&mut self.cells), if self.bits == 0 { 0 } else { self.slot_mask() });
        self.bits = self.bits.max(FEWEST_BITS);
        while wanted * 8 > (1_usize << self.bits) * 7 {
            self.bits += 1;
        }
        self.cells = vec![NONE; 1 << self.bits];
        for cell in before {
            if cell != NONE {
                self.put(hash_of(cell & mask), cell & mask);
            }
        }
    }

    /// Takes a slot out; nothing happens when it is not in the table.
    pub(super) fn remove(&mut self, hash: Hash, slot: u32, hash_of: impl Fn(u32) -> Hash) {
        let Some(mut hole) = self.position(hash, |other| other == slot) else { return };
        let (mask, wrap) = (self.slot_mask(), self.cells.len() - 1);
        let mut at = hole;
        loop {
            at = (at + 1) & wrap;
            let cell = self.cells[at];
            if cell == NONE {
                break;
            }
            let home = self.home(hash_of(cell & mask));
            let from_home = at.wrapping_sub(home) & wrap;
            let from_hole = at.wrapping_sub(hole) & wrap;
            if from_home >= from_hole {
                self.cells[hole] = cell;
                hole = at;
            }
        }
        self.cells[hole] = NONE;
        self.len -= 1;
    }

    /// Puts another slot in the place of one, for the same key.
    pub(super) fn replace(&mut self, hash: Hash, slot: u32, by: u32) {
        if let Some(at) = self.position(hash, |other| other == slot) {
            self.cells[at] = by | self.tag(hash);
        }
    }

    /// Bytes held.
    pub(super) fn bytes(&self) -> usize {
        self.cells.capacity() * size_of::<u32>()
    }
}
