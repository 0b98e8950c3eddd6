//! What became dirty in one step, put in order.

use rustc_hash::FxHashMap;

use super::record::FileKey;
use crate::file::PageRange;

/// Ranges of pages by file, as they come.
#[derive(Debug, Default)]
pub(super) struct Dirtied {
    places: FxHashMap<FileKey, usize>,
    files: Vec<(FileKey, Vec<PageRange>)>,
    /// How many pages were reported, repeated ones each time.
    pub(super) pages: u64,
}

impl Dirtied {
    /// Adds a range.
    pub(super) fn add(&mut self, file: FileKey, range: PageRange) {
        self.pages += range.pages.0;
        let files = &mut self.files;
        let place = *self.places.entry(file).or_insert_with(|| {
            files.push((file, Vec::new()));
            files.len() - 1
        });
        if let Some((_, ranges)) = self.files.get_mut(place) {
            ranges.push(range);
        }
    }

    /// The files in order of arrival. The pages of each are sorted and unique, with adjacent pages in one range.
    pub(super) fn in_order(self) -> impl Iterator<Item = (FileKey, PageRange)> {
        self.files.into_iter().flat_map(|(file, mut ranges)| {
            ranges.sort_unstable_by_key(|range| range.first);
            ranges.dedup_by(|next, last| {
                let joins = next.first <= last.end();
                if joins {
                    last.pages.0 = last.end().0.max(next.end().0) - last.first.0;
                }
                joins
            });
            ranges.into_iter().map(move |range| (file, range))
        })
    }
}
