//! The logical map: where each block of the device lies in the log, and when it was last written.
//!
//! An entry is eight bytes. Entries are in pages of 512. A page may be absent from memory. The owner of a map on a
//! disk then brings it in ([`LogicalMap::install`]), and may take clean pages away ([`LogicalMap::evict`]). So a map
//! larger than memory works. Pages that hold nothing take no memory.

use std::ops::Range;

use umbrella_units::BlockNo;

use super::ids::{LogBlock, Stamp};

/// Entries of a page.
pub const PAGE_ENTRIES: usize = 512;

/// A page of the map, by number: it holds the entries of blocks 512 × number and on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MapPage(pub u32);

/// Where a block lies and when it was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MapEntry {
    /// Where, in the log. Less than 2⁴⁰ - 1.
    pub place: LogBlock,
    /// When the user last wrote it.
    pub stamp: Stamp,
}

/// The bits of a packed entry that hold the place.
const PLACE: u64 = (1 << 40) - 1;
/// The packed entry of a block that is lost: it lies nowhere, and does not read as zeroes either.
pub const LOST: u64 = 1 << 40;

impl MapEntry {
    /// The entry in eight bytes: the place + 1 in the lower 40 bits, the stamp above. Zero stands for "nothing there".
    pub fn pack(entry: Option<MapEntry>) -> u64 {
        entry.map_or(0, |entry| (u64::from(entry.stamp.0) << 40) | ((entry.place.0 + 1) & PLACE))
    }

    /// The other way.
    pub fn unpack(word: u64) -> Option<MapEntry> {
        let place = (word & PLACE).checked_sub(1)?;
        Some(MapEntry { place: LogBlock(place), stamp: Stamp((word >> 40) as u32) })
    }
}

/// The entries of a page, packed.
pub type Entries = [u64; PAGE_ENTRIES];

#[derive(Debug)]
enum PageSlot {
    /// Nothing in it is mapped.
    Empty,
    /// It is on the disk only.
    Absent,
    Present(Box<Present>),
}

#[derive(Debug)]
struct Present {
    entries: Entries,
    mapped: u32,
    dirty: bool,
    used: bool,
}

/// The page has to be brought first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Absent(pub MapPage);

/// The map.
#[derive(Debug)]
pub struct LogicalMap {
    pages: Vec<PageSlot>,
    blocks: u64,
    present: usize,
    dirty: Vec<MapPage>,
    hand: usize,
    lost: u64,
}

impl LogicalMap {
    /// A map of `blocks` blocks, nothing mapped.
    pub fn new(blocks: u64) -> LogicalMap {
        let pages = (0..blocks.div_ceil(PAGE_ENTRIES as u64)).map(|_| PageSlot::Empty).collect();
        LogicalMap { pages, blocks, present: 0, dirty: Vec::new(), hand: 0, lost: 0 }
    }

    /// A map of which these pages exist outside memory.
    pub fn absent(blocks: u64, exists: impl Fn(MapPage) -> bool) -> LogicalMap {
        let mut map = LogicalMap::new(blocks);
        for (number, slot) in (0_u32..).zip(&mut map.pages) {
            if exists(MapPage(number)) {
                *slot = PageSlot::Absent;
            }
        }
        map
    }

    /// How many blocks it maps at most.
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// How many pages it has, in memory or not.
    pub fn pages(&self) -> u32 {
        self.pages.len() as u32
    }

    /// Makes room for more blocks.
    pub fn grow(&mut self, blocks: u64) {
        self.blocks = self.blocks.max(blocks);
        self.pages.resize_with(self.blocks.div_ceil(PAGE_ENTRIES as u64) as usize, || PageSlot::Empty);
    }

    /// The page of a block, and its entry there.
    fn split(block: BlockNo) -> (MapPage, usize) {
        (MapPage((block.0 / PAGE_ENTRIES as u64) as u32), (block.0 % PAGE_ENTRIES as u64) as usize)
    }

    /// Where a block lies; nothing for one that was never written, is lost, or is beyond the end.
    pub fn get(&mut self, block: BlockNo) -> Result<Option<MapEntry>, Absent> {
        let (page, index) = LogicalMap::split(block);
        match self.pages.get_mut(page.0 as usize) {
            None | Some(PageSlot::Empty) => Ok(None),
            Some(PageSlot::Absent) => Err(Absent(page)),
            Some(PageSlot::Present(present)) => {
                present.used = true;
                Ok(MapEntry::unpack(present.entries[index]))
            }
        }
    }

    /// Whether a block is lost: what it held is not known until it is written again.
    pub fn is_lost(&self, block: BlockNo) -> Result<bool, Absent> {
        let (page, index) = LogicalMap::split(block);
        match self.pages.get(page.0 as usize) {
            None | Some(PageSlot::Empty) => Ok(false),
            Some(PageSlot::Absent) => Err(Absent(page)),
            Some(PageSlot::Present(present)) => Ok(present.entries[index] == LOST),
        }
    }

    /// How many blocks are lost, on pages that are absent too.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Says how many are lost on pages that are absent.
    pub fn count_lost(&mut self, lost: u64) {
        self.lost = lost;
    }

    /// Enters where a block lies now, or that it is not mapped any more; gives what was there.
    pub fn set(&mut self, block: BlockNo, entry: Option<MapEntry>) -> Result<Option<MapEntry>, Absent> {
        self.set_word(block, MapEntry::pack(entry))
    }

    /// Enters that a block is lost; gives where it lay.
    pub fn lose(&mut self, block: BlockNo) -> Result<Option<MapEntry>, Absent> {
        self.set_word(block, LOST)
    }

    fn set_word(&mut self, block: BlockNo, new: u64) -> Result<Option<MapEntry>, Absent> {
        let (page, index) = LogicalMap::split(block);
        let Some(slot) = self.pages.get_mut(page.0 as usize) else { return Ok(None) };
        if matches!(slot, PageSlot::Empty) {
            if new == 0 {
                return Ok(None);
            }
            *slot = PageSlot::Present(Box::new(Present {
                entries: [0; PAGE_ENTRIES],
                mapped: 0,
                dirty: false,
                used: true,
            }));
            self.present += 1;
        }
        let PageSlot::Present(present) = slot else { return Err(Absent(page)) };
        present.used = true;
        let was = std::mem::replace(&mut present.entries[index], new);
        let old = MapEntry::unpack(was);
        if was == new {
            return Ok(old);
        }
        present.mapped += u32::from(new != 0);
        present.mapped -= u32::from(was != 0);
        self.lost += u64::from(new == LOST);
        self.lost = self.lost.saturating_sub(u64::from(was == LOST));
        if !present.dirty {
            present.dirty = true;
            self.dirty.push(page);
        }
        Ok(old)
    }

    /// Whether a page is neither in memory nor empty.
    pub fn is_absent(&self, page: MapPage) -> bool {
        matches!(self.pages.get(page.0 as usize), Some(PageSlot::Absent))
    }

    /// The first block at or after `from` whose page is not empty; the end, if there is none.
    pub fn next_used(&self, from: BlockNo) -> BlockNo {
        let (page, _) = LogicalMap::split(from);
        let rest = self.pages.iter().enumerate().skip(page.0 as usize);
        match rest.into_iter().find(|(_, slot)| !matches!(slot, PageSlot::Empty)) {
            Some((number, _)) => from.max(BlockNo(number as u64 * PAGE_ENTRIES as u64)),
            None => BlockNo(self.blocks),
        }
    }

    /// The parts of a range that are neither mapped nor lost, as far as that is known without pages that are absent.
    pub fn unmapped(&self, range: Range<u64>) -> Vec<Range<u64>> {
        let mut found: Vec<Range<u64>> = Vec::new();
        let mut add = |part: Range<u64>| match found.last_mut() {
            Some(last) if last.end == part.start => last.end = part.end,
            _ => found.push(part),
        };
        let (mut at, end) = (range.start, range.end.min(self.blocks));
        while at < end {
            let (page, index) = LogicalMap::split(BlockNo(at));
            let page_end = end.min((u64::from(page.0) + 1) * PAGE_ENTRIES as u64);
            match self.pages.get(page.0 as usize) {
                Some(PageSlot::Empty) => add(at..page_end),
                Some(PageSlot::Present(present)) => {
                    let words = present.entries[index..].iter().zip(at..page_end);
                    words.filter(|(word, _)| **word == 0).for_each(|(_, block)| add(block..block + 1));
                }
                Some(PageSlot::Absent) | None => {}
            }
            at = page_end;
        }
        found
    }

    /// Brings a page that was absent.
    pub fn install(&mut self, page: MapPage, entries: &Entries) {
        if let Some(slot @ PageSlot::Absent) = self.pages.get_mut(page.0 as usize) {
            let mapped = entries.iter().filter(|word| **word != 0).count() as u32;
            *slot = PageSlot::Present(Box::new(Present { entries: *entries, mapped, dirty: false, used: true }));
            self.present += 1;
        }
    }

    /// Takes clean pages out of memory until at most `keep` are left, those not used lately first; never `needed`.
    pub fn evict(&mut self, keep: usize, needed: Option<MapPage>) {
        let mut steps = 2 * self.pages.len();
        while self.present > keep && steps > 0 {
            steps -= 1;
            self.hand = (self.hand + 1) % self.pages.len();
            if needed.is_some_and(|page| page.0 as usize == self.hand) {
                continue;
            }
            let slot = &mut self.pages[self.hand];
            let PageSlot::Present(present) = slot else { continue };
            if present.dirty {
                continue;
            }
            if std::mem::take(&mut present.used) {
                continue;
            }
            *slot = PageSlot::Absent;
            self.present -= 1;
        }
    }

    /// How many pages are in memory.
    pub fn present(&self) -> usize {
        self.present
    }

    /// How many pages differ from those outside.
    pub fn dirty(&self) -> usize {
        self.dirty.len()
    }

    /// Takes the changed pages, in order. They count as unchanged then.
    pub fn take_dirty(&mut self) -> Vec<MapPage> {
        let mut dirty = std::mem::take(&mut self.dirty);
        dirty.sort_unstable();
        for page in &dirty {
            if let PageSlot::Present(present) = &mut self.pages[page.0 as usize] {
                present.dirty = false;
            }
        }
        dirty
    }

    /// A page in memory has to be written anew.
    pub fn mark_dirty(&mut self, page: MapPage) {
        if let Some(PageSlot::Present(present)) = self.pages.get_mut(page.0 as usize)
            && !present.dirty
        {
            present.dirty = true;
            self.dirty.push(page);
        }
    }

    /// The entries of a page in memory; nothing for an empty or an absent one.
    pub fn entries(&self, page: MapPage) -> Option<&Entries> {
        match self.pages.get(page.0 as usize) {
            Some(PageSlot::Present(present)) if present.mapped > 0 => Some(&present.entries),
            _ => None,
        }
    }

    /// Lets go of a page that holds nothing any more.
    pub fn drop_empty(&mut self, page: MapPage) {
        let Some(slot) = self.pages.get_mut(page.0 as usize) else { return };
        if matches!(slot, PageSlot::Present(present) if present.mapped == 0 && !present.dirty) {
            *slot = PageSlot::Empty;
            self.present -= 1;
        }
    }
}
