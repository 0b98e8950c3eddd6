//! Splits requests on page borders: a page is the unit of write-back, and many requests do not begin or end on one.

use umbrella_units::{BlockNo, PAGE_BYTES};

use super::Record;

/// A page that a request touches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PagePart {
    /// Which page.
    pub block: BlockNo,
    /// Whether only a part of it: a write would need the rest from the disk.
    pub partial: bool,
}

/// The pages of a request, in the order of their addresses.
#[derive(Debug, Clone)]
pub struct PageSpan {
    start: u64,
    end: u64,
}

/// The pages that a request touches; there are none if it has no bytes.
pub fn pages(record: &Record) -> PageSpan {
    PageSpan { start: record.offset.0, end: record.offset.0.saturating_add(record.size.0) }
}

impl Iterator for PageSpan {
    type Item = PagePart;

    fn next(&mut self) -> Option<PagePart> {
        if self.start >= self.end {
            return None;
        }
        let block = BlockNo(self.start / PAGE_BYTES);
        let left_of_page = PAGE_BYTES - self.start % PAGE_BYTES;
        let bytes = left_of_page.min(self.end - self.start);
        self.start += bytes;
        Some(PagePart { block, partial: bytes < PAGE_BYTES })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        if self.start >= self.end {
            return (0, Some(0));
        }
        let count = usize::try_from((self.end - 1) / PAGE_BYTES - self.start / PAGE_BYTES + 1).unwrap_or(usize::MAX);
        (count, Some(count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::TraceOp;
    use proptest::prelude::*;
    use umbrella_units::{ByteSize, Nanos};

    fn parts(offset: u64, size: u64) -> Vec<(u64, bool)> {
        let record =
            Record { time: Nanos(0), device: 0, op: TraceOp::Write, offset: ByteSize(offset), size: ByteSize(size) };
        pages(&record).map(|part| (part.block.0, part.partial)).collect()
    }

    #[test]
    fn an_aligned_request_touches_whole_pages() {
        assert_eq!(parts(8192, 8192), [(2, false), (3, false)]);
    }

    #[test]
    fn a_misaligned_request_touches_parts_at_its_ends() {
        assert_eq!(parts(4095, 4098), [(0, true), (1, false), (2, true)]);
        assert_eq!(parts(512, 512), [(0, true)]);
    }

    #[test]
    fn a_request_of_no_bytes_touches_nothing() {
        assert_eq!(parts(4096, 0), []);
    }

    #[test]
    fn the_last_page_there_is_can_be_touched() {
        assert_eq!(parts(u64::MAX - 1, 1), [(u64::MAX / 4096, true)]);
    }

    proptest! {
        #[test]
        fn pages_cover_the_request_and_count_as_announced(offset in 0u64..100_000, size in 0u64..100_000) {
            let found = parts(offset, size);
            let all: Vec<u64> = if size == 0 { vec![] } else { (offset / 4096..=(offset + size - 1) / 4096).collect() };
            prop_assert_eq!(found.iter().map(|part| part.0).collect::<Vec<_>>(), all);
            for (block, partial) in found {
                let whole = offset <= block * 4096 && (block + 1) * 4096 <= offset + size;
                prop_assert_eq!(partial, !whole);
            }
            let record = Record { time: Nanos(0), device: 0, op: TraceOp::Write, offset: ByteSize(offset), size: ByteSize(size) };
            prop_assert_eq!(pages(&record).size_hint().0, pages(&record).count());
        }
    }
}
