//! All contents of the index, for callers that need them: another policy that takes over, a comparison with the page
//! cache.

use umbrella_units::{BlockNo, FileId, Nanos, PageKey, Pages};

use super::DirtyIndex;

/// A dirty page, with all that the index knows of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IndexedPage {
    /// Which page.
    pub page: PageKey,
    /// Where it lies on disk.
    pub block: BlockNo,
    /// How long ago it was written ([`super::Age`]), in whole milliseconds.
    pub age: Nanos,
    /// How often it was written since it became dirty; 7: or more often.
    pub writes: u8,
    /// Whether the page cache counts it as recently used.
    pub active: bool,
}

impl DirtyIndex {
    /// All dirty pages, the oldest first; pages of one age by file and index.
    ///
    /// Cost: O(pages log pages).
    pub fn known(&self, now: Nanos) -> Vec<IndexedPage> {
        let known_at = |slot| {
            let entry = self.pages.get(slot);
            IndexedPage {
                page: self.key(slot),
                block: entry.block(),
                age: entry.age(now),
                writes: entry.writes(),
                active: entry.is_active(),
            }
        };
        let mut known: Vec<IndexedPage> = self.pages.used().map(known_at).collect();
        known.sort_unstable_by_key(|known| (std::cmp::Reverse(known.age), known.page));
        known
    }

    /// How many pages of a file are dirty.
    pub fn dirty_in(&self, file: FileId) -> Pages {
        Pages(self.files.find(file).map_or(0, |slot| self.files.pages_in(slot)))
    }
}
