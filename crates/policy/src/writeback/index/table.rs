//! A hash table of slots: four bytes an entry; the keys stay in the slab. A line of sixteen entries is searched at
//! once. It counts the entries that found it full and went on. So a search knows where to end, and a removal leaves
//! nothing behind. (Counted overflow as in F14: Shi and Bronson, Folly 2019.)
//!
//! Sixteen neighbouring keys belong to one line, which is one of the processor's cache, because dirty pages and blocks
//! come in runs. The bits of an entry that the slot does not need hold a part of the key's hash, so that a search
//! rarely reads the slab without a match.

/// No slot.
pub(super) const NONE: u32 = u32::MAX;

const NEIGHBOURS_BITS: u32 = 4;
const LINE: usize = 1 << NEIGHBOURS_BITS;
const FEWEST_BITS: u32 = 6;
/// At this number of entries that went on from it, a line stops counting, up and down, until the table grows.
const SATURATED: u8 = u8::MAX;

/// The hash of a key: where it belongs, and the tag that tells it from others there.
#[derive(Clone, Copy)]
pub(super) struct Hash {
    high: u64,
    neighbour: u64,
}

impl Hash {
    /// The line where it belongs in a table of `2^bits` cells.
    pub(super) fn line(self, bits: u32) -> usize {
        (self.high >> (64 - (bits - NEIGHBOURS_BITS))) as usize
    }
}

/// The hash of position `place` in space `space` (a file's page, a block, a zone).
pub(super) fn hash(space: u64, place: u64) -> Hash {
    let mixed = (place >> NEIGHBOURS_BITS) ^ space.wrapping_mul(0xff51_afd7_ed55_8ccd);
    let high = mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let high = (high ^ (high >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    Hash { high, neighbour: place & ((1 << NEIGHBOURS_BITS) - 1) }
}

/// The scattered hash of a place whose neighbours are most likely there too (a zone, a chunk). Unscattered they would
/// fill whole lines, and a probe would have to pass them all.
pub(super) fn scattered(space: u64, place: u64) -> Hash {
    hash(space, place.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(32))
}

/// Slots, found by the hash of a key that their owner keeps.
#[derive(Debug, Default)]
pub(super) struct SlotTable {
    lines: Vec<Line>,
    /// How many entries went on from each line.
    passed: Vec<u8>,
    /// Log2 of the number of cells.
    bits: u32,
    len: usize,
}

#[derive(Debug, Clone)]
#[repr(align(64))]
struct Line([u32; LINE]);

impl Line {
    /// A bit for each cell that is `like` another in the bits of `mask`.
    fn alike(&self, like: u32, mask: u32) -> u32 {
        self.0.iter().enumerate().fold(0, |bits, (at, cell)| bits | u32::from((cell ^ like) & mask == 0) << at)
    }

    fn free(&self) -> Option<usize> {
        let free = self.alike(NONE, NONE);
        (free != 0).then(|| free.trailing_zeros() as usize)
    }
}

/// The lines in which an entry may be, in the order in which they are tried; each of them once.
struct Probe {
    line: usize,
    step: usize,
    lines: usize,
}

impl Iterator for Probe {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        if self.step == self.lines {
            return None;
        }
        let line = self.line;
        self.step += 1;
        self.line = (line + self.step) & (self.lines - 1);
        Some(line)
    }
}

impl SlotTable {
    fn probe(&self, hash: Hash) -> Probe {
        Probe { line: hash.line(self.bits), step: 0, lines: self.lines.len() }
    }

    fn tag(&self, hash: Hash) -> u32 {
        ((hash.high as u32) ^ (hash.neighbour as u32).wrapping_mul(0x9e37_79b9)) & !self.slot_mask()
    }

    fn slot_mask(&self) -> u32 {
        ((1_u64 << self.bits) - 1) as u32
    }

    /// Reads the line of a hash, so that the processor has it in its cache when it comes to be searched. Several such
    /// reads wait for memory together, searches one after the other.
    pub(super) fn warm(&self, hash: Hash) {
        if self.len > 0 {
            std::hint::black_box(self.lines[hash.line(self.bits)].0[0]);
        }
    }

    /// The slot with this hash for which `is_it` holds.
    pub(super) fn find(&self, hash: Hash, is_it: impl Fn(u32) -> bool) -> Option<u32> {
        self.position(hash, is_it).map(|(line, at)| self.lines[line].0[at] & self.slot_mask())
    }

    fn position(&self, hash: Hash, is_it: impl Fn(u32) -> bool) -> Option<(usize, usize)> {
        if self.len == 0 {
            return None;
        }
        let (tag, mask) = (self.tag(hash), self.slot_mask());
        for line in self.probe(hash) {
            let mut alike = self.lines[line].alike(tag, !mask);
            while alike != 0 {
                let at = alike.trailing_zeros() as usize;
                let cell = self.lines[line].0[at];
                if cell != NONE && is_it(cell & mask) {
                    return Some((line, at));
                }
                alike &= alike - 1;
            }
            if self.passed[line] == 0 {
                break;
            }
        }
        None
    }

    /// Adds a slot that is not in the table. `slots` is how many slots its owner has, which are to fit below the tag;
    /// `hash_of` gives the hash of those that are in the table already.
    pub(super) fn insert(&mut self, hash: Hash, slot: u32, slots: usize, hash_of: impl Fn(u32) -> Hash) {
        self.fit((self.len + 1).max(slots + 1), hash_of);
        self.put(hash, slot);
        self.len += 1;
    }

    /// Grows until there is room for `wanted` entries, and their slots fit below the tag.
    fn fit(&mut self, wanted: usize, hash_of: impl Fn(u32) -> Hash) {
        if self.lines.is_empty() || wanted * 8 > self.lines.len() * LINE * 7 {
            self.grow(wanted, hash_of);
        }
    }

    fn put(&mut self, hash: Hash, slot: u32) {
        debug_assert_eq!(slot & !self.slot_mask(), 0, "the slot reaches into the tag");
        for line in self.probe(hash) {
            if let Some(at) = self.lines[line].free() {
                self.lines[line].0[at] = slot | self.tag(hash);
                return;
            }
            self.passed[line] = self.passed[line].saturating_add(1);
        }
        unreachable!("an eighth of the cells is free, and all lines were tried");
    }

    fn grow(&mut self, wanted: usize, hash_of: impl Fn(u32) -> Hash) {
        let (before, mask) = (std::mem::take(&mut self.lines), if self.bits == 0 { 0 } else { self.slot_mask() });
        self.bits = self.bits.max(FEWEST_BITS);
        while wanted * 8 > (1_usize << self.bits) * 7 {
            self.bits += 1;
        }
        let lines = 1 << (self.bits - NEIGHBOURS_BITS);
        self.lines = vec![Line([NONE; LINE]); lines];
        self.passed = vec![0; lines];
        for cell in before.iter().flat_map(|line| line.0).filter(|&cell| cell != NONE) {
            self.put(hash_of(cell & mask), cell & mask);
        }
    }

    /// Takes a slot out; nothing happens when it is not in the table.
    pub(super) fn remove(&mut self, hash: Hash, slot: u32) {
        let Some((line, at)) = self.position(hash, |other| other == slot) else { return };
        self.lines[line].0[at] = NONE;
        self.len -= 1;
        for passed in self.probe(hash).take_while(|&passed| passed != line) {
            if self.passed[passed] != SATURATED {
                self.passed[passed] -= 1;
            }
        }
    }

    /// Puts another slot in the place of one, for the same key. The other may be one of the last of the `slots`, none
    /// of which was ever in the table.
    pub(super) fn replace(&mut self, hash: Hash, slot: u32, by: u32, slots: usize, hash_of: impl Fn(u32) -> Hash) {
        self.fit(slots + 1, hash_of);
        if let Some((line, at)) = self.position(hash, |other| other == slot) {
            self.lines[line].0[at] = by | self.tag(hash);
        }
    }

    /// Bytes held.
    pub(super) fn bytes(&self) -> usize {
        self.lines.capacity() * size_of::<Line>() + self.passed.capacity()
    }
}
