//! Pages of the map between memory and disk.

use umbrella_policy::log_layout::{Entries, LOST, MapEntry, MapPage, PAGE_ENTRIES};
use umbrella_units::BlockNo;

use super::format::{Block, FormatError, MapEntry as EntryOnDisk, MapPage as PageOnDisk, MapPageNo, Superblock};

/// The entries of a page of the map as it lies on the disk.
pub(super) fn decode_page(block: &[u8], superblock: &Superblock, page: MapPage) -> Result<Entries, FormatError> {
    let number = MapPageNo(u64::from(page.0));
    let parsed = PageOnDisk::parse(block, &superblock.shape, number)?;
    let mut entries = [0; PAGE_ENTRIES];
    for (block, entry) in parsed.mapped(number) {
        let entry = MapEntry { place: entry.place(), stamp: entry.stamp() };
        if let Some(word) = entries.get_mut((block.0 % PAGE_ENTRIES as u64) as usize) {
            *word = MapEntry::pack(Some(entry));
        }
    }
    for block in parsed.lost(number) {
        if let Some(word) = entries.get_mut((block.0 % PAGE_ENTRIES as u64) as usize) {
            *word = LOST;
        }
    }
    Ok(entries)
}

/// A page of the map as it lies on the disk.
pub(super) fn encode_page(entries: &Entries, superblock: &Superblock, page: MapPage) -> Result<Block, FormatError> {
    let mut encoded = PageOnDisk::default();
    let first = u64::from(page.0) * PAGE_ENTRIES as u64;
    for (nth, word) in (0..).zip(entries) {
        if *word == LOST {
            encoded.lose(BlockNo(first + nth));
        } else if let Some(entry) = MapEntry::unpack(*word) {
            encoded.set(BlockNo(first + nth), Some(EntryOnDisk::new(entry.place, entry.stamp)?));
        }
    }
    encoded.encode(&superblock.shape, MapPageNo(u64::from(page.0)))
}
