//! Where a log-structured file system (NILFS, LFS) writes: whatever is written goes to the head of the log, wherever it
//! was before.
//!
//! The log is never cleaned. At its end it begins again at its start, as if all there had died meanwhile: give it more
//! room than a run writes.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use umbrella_units::{BlockNo, FileId, PageIndex, PageKey};

/// A log, and where in it each page was written last.
#[derive(Debug, Clone)]
pub struct Log {
    first: BlockNo,
    end: BlockNo,
    head: BlockNo,
    places: FxHashMap<FileId, BTreeMap<PageIndex, BlockNo>>,
}

impl Log {
    /// A log in the blocks from `first` to before `end`; of at least one block.
    pub fn new(first: BlockNo, end: BlockNo) -> Log {
        let end = BlockNo(end.0.max(first.0.saturating_add(1)));
        Log { first, end, head: first, places: FxHashMap::default() }
    }

    /// The page is written now: its new place, one behind the last one given.
    pub fn append(&mut self, page: PageKey) -> BlockNo {
        let at = self.head;
        self.places.entry(page.file).or_default().insert(page.index, at);
        self.head = if at.0 + 1 == self.end.0 { self.first } else { BlockNo(at.0 + 1) };
        at
    }

    /// Where the page was written last, if it ever was.
    pub fn place(&self, page: PageKey) -> Option<BlockNo> {
        self.places.get(&page.file)?.get(&page.index).copied()
    }

    /// The page was removed.
    pub fn forget(&mut self, page: PageKey) {
        if let Some(places) = self.places.get_mut(&page.file) {
            places.remove(&page.index);
        }
    }

    /// The file's pages from `first` on are no more. O(what was written of them).
    pub fn truncate(&mut self, file: FileId, first: PageIndex) {
        if first == PageIndex(0) {
            self.places.remove(&file);
        } else if let Some(places) = self.places.get_mut(&file) {
            places.split_off(&first);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(index: u64) -> PageKey {
        PageKey { file: FileId(7), index: PageIndex(index) }
    }

    #[test]
    fn what_is_written_lies_behind_what_was_written_before_it() {
        let mut log = Log::new(BlockNo(100), BlockNo(103));
        assert_eq!([9, 2, 9].map(|index| log.append(page(index)).0), [100, 101, 102]);
        assert_eq!(
            (log.place(page(9)), log.place(page(2)), log.place(page(3))),
            (Some(BlockNo(102)), Some(BlockNo(101)), None)
        );
        assert_eq!(log.append(page(3)), BlockNo(100), "at its end it begins again");
        log.forget(page(9));
        assert_eq!(log.place(page(9)), None);
        log.append(page(u64::MAX));
        log.truncate(FileId(7), PageIndex(3));
        assert_eq!([2, 3, u64::MAX].map(|index| log.place(page(index)).is_some()), [true, false, false]);
        log.truncate(FileId(7), PageIndex(0));
        assert_eq!(log.place(page(2)), None);
    }
}
