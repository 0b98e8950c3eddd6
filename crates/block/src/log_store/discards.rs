//! Discards that the log has to repeat.
//!
//! A chunk records that blocks are not mapped any more. When its segment becomes free, that record is gone, but older
//! copies of these blocks may be left elsewhere. Then the rebuild of a damaged page of the map would have to doubt
//! them. So a later chunk with room repeats the record before the segment becomes free. For a segment that is cleaned,
//! the ranges come from its headers. For one that becomes empty by itself, they were noted since the opening.
//!
//! Ranges that do not fit are not repeated. Then more blocks are in doubt after damage, but old data is never taken for
//! proved.

use std::collections::BTreeMap;
use std::ops::Range;

use umbrella_policy::log_layout::{LogicalMap, SegmentNo};
use umbrella_units::BlockNo;

use super::format::{Entry, joined};

/// The most ranges that wait to be repeated at once, and the most that are noted.
const MOST: usize = 1024;
const MOST_NOTED: usize = 1 << 16;

/// Ranges of blocks that the log says are not mapped.
#[derive(Debug, Default)]
pub(super) struct Discards {
    /// To be said again.
    due: Vec<Range<u64>>,
    /// By segment, what its chunks say.
    noted: BTreeMap<SegmentNo, Vec<Range<u64>>>,
    count: usize,
}

impl Discards {
    /// A chunk in this segment says so of some ranges.
    pub(super) fn note<'a>(&mut self, segment: SegmentNo, entries: impl IntoIterator<Item = &'a Entry>) {
        let ranges = entries.into_iter().filter(|entry| matches!(entry, Entry::Unmapped { .. })).map(Entry::blocks);
        for range in ranges.take(MOST_NOTED.saturating_sub(self.count)) {
            self.noted.entry(segment).or_default().push(range);
            self.count += 1;
        }
    }

    /// What the chunks of a segment say has been taken care of, or is gone.
    pub(super) fn forget(&mut self, segment: SegmentNo) -> Vec<Range<u64>> {
        let ranges = self.noted.remove(&segment).unwrap_or_default();
        self.count -= ranges.len();
        ranges
    }

    /// Repeats the discards that chunks of these segments record.
    pub(super) fn repeat_of(&mut self, is_leaving: impl Fn(SegmentNo) -> bool) {
        let leaving: Vec<SegmentNo> = self.noted.keys().copied().filter(|segment| is_leaving(*segment)).collect();
        for segment in leaving {
            let ranges = self.forget(segment);
            self.repeat(ranges);
        }
    }

    /// Marks ranges whose discards have to be recorded again.
    pub(super) fn repeat(&mut self, ranges: impl IntoIterator<Item = Range<u64>>) {
        self.due.extend(ranges);
        if self.due.len() > MOST {
            self.due = joined(std::mem::take(&mut self.due));
        }
        self.due.truncate(MOST);
    }

    /// Whether there is anything to be said again.
    pub(super) fn are_due(&self) -> bool {
        !self.due.is_empty()
    }

    /// Nothing is said again.
    pub(super) fn drop_due(&mut self) {
        self.due.clear();
    }

    /// At most `room` entries of ranges that have to be repeated and are still not mapped.
    pub(super) fn entries(&mut self, map: &LogicalMap, room: usize) -> Vec<Entry> {
        if self.due.is_empty() {
            return Vec::new();
        }
        let due = joined(std::mem::take(&mut self.due));
        let mut ranges = due.into_iter().flat_map(|range| map.unmapped(range));
        let entry = |range: Range<u64>| {
            let blocks = u32::try_from(range.end - range.start).unwrap_or(u32::MAX);
            Entry::Unmapped { start: BlockNo(range.start), blocks }
        };
        let entries = ranges.by_ref().take(room).map(entry).collect();
        self.due = ranges.collect();
        entries
    }
}
