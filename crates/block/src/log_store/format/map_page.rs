//! A map page: the places of 512 adjacent logical blocks in the log. It is the data of a block of a chunk, with its
//! checksum in the chunk's entry. Its own place is in the map index of a checkpoint.
//!
//! ```text
//! offset  bytes
//!      0      8  entry of logical block 512 n
//!      8      8  entry of logical block 512 n + 1
//!    ...
//!   4088      8  entry of logical block 512 n + 511; behind the last logical block of the store, 0
//!
//! entry           bits 0 to 39: place + 1; bits 40 to 63: stamp. All zero: the block was never written, or unmapped.
//!                 Bit 40 alone: it is lost, until it is written again
//! index entry     bits 0 to 39: place of the map page + 1; bits 40 to 63: the lower ones of the CRC32C of the page.
//!                 All zero: nothing in the page was ever written
//! ```
//!
//! A page has no room for its checksum, so 24 bits of it are kept beside its place in the index. Any change of a single
//! byte is found, and all but one in 2²⁴ of other changes, such as an older or another page at that place. A page has
//! no room for its own number either. If an index exchanges two pages and their checksums are valid, only a check finds
//! it; no damage does that. A block that such a page places is not mistaken for another one, because the header of its
//! chunk names its number.

use std::fmt;
use std::num::NonZeroU64;

use umbrella_units::BlockNo;

use super::checksum::Checksum;
use super::error::{Field, FormatError, Limit, Structure};
use super::ids::MapPageNo;
use super::raw::{Block, check, out_of_range, whole};
use super::shape::Shape;
use super::{BLOCK_BYTES, LogBlock, PAGE_ENTRIES, PLACE_BITS, STAMP_BITS, Stamp};

const ENTRIES: usize = PAGE_ENTRIES as usize;
const PLACE_MASK: u64 = (1 << PLACE_BITS) - 1;
const THIS: Structure = Structure::MapPage;
/// The entry of a block that is lost.
const LOST: u64 = 1 << PLACE_BITS;

/// Where a logical block lies, and when it was written. As large as it is on disk, also as an `Option`.
// The lower 40 bits are never zero.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct MapEntry(NonZeroU64);

/// Where a map page lies, and what it is known by. As large as it is on disk, also as an `Option`.
// The lower 40 bits are zero only in one that was read, until it is checked.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct IndexEntry(NonZeroU64);

/// Where 512 adjacent logical blocks lie.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MapPage {
    entries: Box<[u64; ENTRIES]>,
}

impl MapEntry {
    /// Both, if they fit: the place into 40 bits with one added, the stamp into 24.
    pub fn new(place: LogBlock, stamp: Stamp) -> Result<MapEntry, FormatError> {
        let most = Limit::AtMost(PLACE_MASK - 1);
        check(THIS, Field::Place, place.0, most)?;
        check(THIS, Field::Stamp, u64::from(stamp.0), Limit::AtMost((1 << STAMP_BITS) - 1))?;
        let word = NonZeroU64::new((place.0 + 1) | u64::from(stamp.0) << PLACE_BITS);
        word.map(MapEntry).ok_or(out_of_range(THIS, Field::Place, place.0, most))
    }

    fn of(word: u64) -> Option<MapEntry> {
        NonZeroU64::new(word).filter(|word| word.get() & PLACE_MASK != 0).map(MapEntry)
    }

    /// Where the block lies.
    pub fn place(self) -> LogBlock {
        LogBlock((self.0.get() & PLACE_MASK) - 1)
    }

    /// When it was written.
    pub fn stamp(self) -> Stamp {
        Stamp((self.0.get() >> PLACE_BITS) as u32)
    }
}

impl fmt::Debug for MapEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MapEntry").field("place", &self.place()).field("stamp", &self.stamp()).finish()
    }
}

impl IndexEntry {
    /// The entry of a page with this checksum; the place must fit into 40 bits with one added.
    pub fn new(place: LogBlock, page: Checksum) -> Result<IndexEntry, FormatError> {
        let MapEntry(word) = MapEntry::new(place, Stamp(short(page).0))?;
        Ok(IndexEntry(word))
    }

    /// Where the page lies.
    pub fn place(self) -> LogBlock {
        LogBlock(self.place_plus_one().saturating_sub(1))
    }

    /// Refuses what is not the page that was written.
    pub fn verify(self, page: &[u8]) -> Result<(), FormatError> {
        let (stored, computed) = (Checksum((self.0.get() >> PLACE_BITS) as u32), short(Checksum::of(page)));
        if stored == computed { Ok(()) } else { Err(FormatError::Checksum { structure: THIS, stored, computed }) }
    }

    /// As stored in the index; one that was not checked may lie nowhere.
    pub(super) fn from_bytes(bytes: [u8; 8]) -> Option<IndexEntry> {
        NonZeroU64::new(u64::from_le_bytes(bytes)).map(IndexEntry)
    }

    /// The other way.
    pub(super) fn to_bytes(entry: Option<IndexEntry>) -> [u8; 8] {
        entry.map_or(0, |entry| entry.0.get()).to_le_bytes()
    }

    /// Place plus one.
    pub(super) fn place_plus_one(self) -> u64 {
        self.0.get() & PLACE_MASK
    }
}

/// The bits of a page's checksum that an index entry has.
fn short(checksum: Checksum) -> Checksum {
    Checksum(checksum.0 & ((1 << STAMP_BITS) - 1))
}

impl fmt::Debug for IndexEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let checksum = Checksum((self.0.get() >> PLACE_BITS) as u32);
        f.debug_struct("IndexEntry").field("place", &self.place()).field("checksum", &checksum).finish()
    }
}

impl Default for MapPage {
    fn default() -> MapPage {
        MapPage { entries: Box::new([0; ENTRIES]) }
    }
}

impl MapPage {
    /// Reads a page of the map.
    pub fn parse(bytes: &[u8], shape: &Shape, page: MapPageNo) -> Result<MapPage, FormatError> {
        let (words, _) = whole(THIS, bytes, BLOCK_BYTES as u64)?.as_chunks::<8>();
        let mut map = MapPage::default();
        for (entry, bytes) in map.entries.iter_mut().zip(words) {
            *entry = u64::from_le_bytes(*bytes);
        }
        map.check(shape, page)?;
        Ok(map)
    }

    /// As it is written, a block; an error if it would not be read.
    pub fn encode(&self, shape: &Shape, page: MapPageNo) -> Result<Block, FormatError> {
        self.check(shape, page)?;
        let mut block = [0; BLOCK_BYTES];
        for (bytes, entry) in block.as_chunks_mut::<8>().0.iter_mut().zip(self.entries.iter()) {
            *bytes = entry.to_le_bytes();
        }
        Ok(block)
    }

    /// The entry of a logical block of this page.
    pub fn get(&self, block: BlockNo) -> Option<MapEntry> {
        self.entries.get(index(block)).copied().and_then(MapEntry::of)
    }

    /// Replaces the entry of a logical block of this page, and returns the one before.
    pub fn set(&mut self, block: BlockNo, entry: Option<MapEntry>) -> Option<MapEntry> {
        let word = entry.map_or(0, |entry| entry.0.get());
        self.entries.get_mut(index(block)).and_then(|own| MapEntry::of(std::mem::replace(own, word)))
    }

    /// Marks a logical block of this page as lost.
    pub fn lose(&mut self, block: BlockNo) {
        if let Some(own) = self.entries.get_mut(index(block)) {
            *own = LOST;
        }
    }

    /// The logical blocks of the page that are somewhere; `page` says which page it is.
    pub fn mapped(&self, page: MapPageNo) -> impl Iterator<Item = (BlockNo, MapEntry)> {
        self.blocks(page).filter_map(|(block, word)| MapEntry::of(word).map(|entry| (block, entry)))
    }

    /// The logical blocks of the page that are lost.
    pub fn lost(&self, page: MapPageNo) -> impl Iterator<Item = BlockNo> {
        self.blocks(page).filter(|(_, word)| *word == LOST).map(|(block, _)| block)
    }

    fn blocks(&self, page: MapPageNo) -> impl Iterator<Item = (BlockNo, u64)> {
        let first = page.0.saturating_mul(PAGE_ENTRIES);
        let blocks = (0..PAGE_ENTRIES).map(move |number| BlockNo(first.saturating_add(number)));
        blocks.zip(self.entries.iter().copied())
    }

    fn check(&self, shape: &Shape, page: MapPageNo) -> Result<(), FormatError> {
        check(THIS, Field::MapPage, page.0, Limit::AtMost(shape.map_pages().0 - 1))?;
        let used = shape.advertised().0 - page.0 * PAGE_ENTRIES;
        for (number, word) in (0..).zip(self.entries.iter().copied()) {
            let is_used = u64::from(number) < used;
            if word == 0 || (word == LOST && is_used) {
                continue;
            }
            let place = word & PLACE_MASK;
            check(THIS, Field::MapPlace(number), place, Limit::AtLeast(1))?;
            let most = if is_used { shape.places().0 } else { 0 };
            check(THIS, Field::MapPlace(number), place, Limit::AtMost(most))?;
        }
        Ok(())
    }
}

fn index(block: BlockNo) -> usize {
    (block.0 % PAGE_ENTRIES) as usize
}
