//! The marks of later records about earlier ones: up to which record the log was durable, or promised (see
//! [`super::marks`]).
//!
//! Headers behind a damaged record are read once, and only as far as an answer needs them. Their marks are kept in
//! heaps, the highest mark first. Questions go forward through the log, so a header that does not count for one
//! question counts for no later one.
//!
//! Cost: O(n log n) for all questions on a log of n blocks, regardless of its contents.

use std::collections::BinaryHeap;

use umbrella_policy::flash_cache::LogSector;

use super::format::{BLOCK, Epoch, Header, RecordNo};
use super::scanner::{Expected, SEARCH_DISTANCE, Scanner};

/// What a header says of the records up to a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Mark {
    up_to: RecordNo,
    at: LogSector,
    sequence: RecordNo,
    epoch: Epoch,
}

impl Mark {
    fn counts_for(&self, expected: Expected) -> bool {
        self.at >= expected.at && self.sequence > expected.sequence && self.epoch >= expected.epoch
    }

    /// Whether it answers every question that the other mark answers.
    fn replaces(&self, other: &Mark) -> bool {
        self.up_to >= other.up_to && self.at >= other.at && self.sequence >= other.sequence && self.epoch >= other.epoch
    }
}

/// Marks of one kind.
#[derive(Debug, Default)]
struct MarkHeap {
    heap: BinaryHeap<Mark>,
    /// The last one, which in a sound log replaces all before.
    last: Option<Mark>,
}

impl MarkHeap {
    fn add(&mut self, mark: Mark) {
        if let Some(last) = self.last.replace(mark)
            && !mark.replaces(&last)
        {
            self.heap.push(last);
        }
    }

    /// Whether one says it of the record that is expected.
    fn has(&mut self, expected: Expected) -> bool {
        while self.heap.peek().is_some_and(|mark| !mark.counts_for(expected)) {
            self.heap.pop();
        }
        let last = self.last.filter(|mark| mark.counts_for(expected));
        self.heap.peek().copied().into_iter().chain(last).any(|mark| mark.up_to >= expected.sequence)
    }
}

/// The marks behind a place of the log. Each question is for a later record than the one before.
#[derive(Debug, Default)]
pub(super) struct LaterMarks {
    certain: MarkHeap,
    promised: MarkHeap,
    /// Where it looks next, and where it found the last header.
    next: LogSector,
    found: LogSector,
}

impl LaterMarks {
    /// Whether a later record says that the one that is expected had been durable.
    pub(super) fn is_certain(&mut self, scanner: &mut Scanner<'_>, expected: Expected) -> bool {
        self.find_mark(scanner, expected, |marks| &mut marks.certain)
    }

    /// Whether one of the last opening says that a flush would make it durable.
    pub(super) fn is_promised(&mut self, scanner: &mut Scanner<'_>, expected: Expected) -> bool {
        self.find_mark(scanner, expected, |marks| &mut marks.promised)
    }

    /// Whether any later record was found; once it was asked for marks, there is none near by if not.
    pub(super) fn has_any(&self) -> bool {
        self.certain.last.is_some()
    }

    fn find_mark(
        &mut self,
        scanner: &mut Scanner<'_>,
        expected: Expected,
        kind: impl Fn(&mut LaterMarks) -> &mut MarkHeap,
    ) -> bool {
        self.next = self.next.max(expected.at);
        self.found = self.found.max(expected.at);
        while !kind(self).has(expected) {
            let end = scanner.end().0.min(self.found.0.saturating_add(SEARCH_DISTANCE));
            if self.next.0 >= end {
                return false;
            }
            // What cannot be read proves nothing.
            if let Ok(Some(header)) = scanner.header(self.next)
                && expected.is_before(&header)
            {
                self.add(&header, scanner.superblock.epoch);
            }
            self.next.0 += BLOCK;
        }
        true
    }

    fn add(&mut self, header: &Header, last_epoch: Epoch) {
        let Header { at, sequence, epoch, marks, .. } = *header;
        self.found = at;
        self.certain.add(Mark { up_to: marks.certain, at, sequence, epoch });
        if epoch == last_epoch {
            self.promised.add(Mark { up_to: marks.promised, at, sequence, epoch });
        }
    }
}
