//! A disk's buffer: what it read ahead, and what it has taken but not yet written.
//!
//! Half of the buffer is for reads, in segments that each follow one stream, the least recently used one making place; half
//! holds writes, merged where they touch. The split is assumed: data sheets give only the size.

use std::collections::BTreeMap;

use super::geometry::Place;

/// A run of sectors that was read, or is being read ahead.
#[derive(Debug, Clone, Copy, Default)]
struct Segment {
    start: u64,
    end: u64,
    used: u64,
}

/// The read half.
#[derive(Debug, Clone)]
pub(super) struct ReadSegments {
    segments: Box<[Segment]>,
    sectors: u64,
    clock: u64,
}

impl ReadSegments {
    pub(super) fn new(segments: u32, sectors: u64) -> ReadSegments {
        let count = segments as usize;
        ReadSegments {
            segments: vec![Segment::default(); count].into(),
            sectors: sectors / u64::from(segments.max(1)),
            clock: 0,
        }
    }

    /// How many sectors a segment holds.
    pub(super) fn segment_sectors(&self) -> u64 {
        if self.segments.is_empty() { 0 } else { self.sectors }
    }

    /// Whether all of it is there; if so, its stream was just used.
    #[inline]
    pub(super) fn hit(&mut self, start: u64, end: u64) -> bool {
        for segment in &mut self.segments {
            if segment.start <= start && end <= segment.end {
                self.clock += 1;
                segment.used = self.clock;
                return true;
            }
        }
        false
    }

    /// Adds what was read: to the stream that it continues, else in place of the least recently used one.
    pub(super) fn add(&mut self, start: u64, end: u64) {
        self.clock += 1;
        let (clock, sectors) = (self.clock, self.sectors);
        let found = self.segments.iter().position(|s| s.start <= start && start <= s.end && s.end > s.start);
        let slot = found.or_else(|| (0..self.segments.len()).min_by_key(|&slot| self.segments[slot].used));
        let Some(slot) = slot else { return };
        let segment = &mut self.segments[slot];
        let first = if found.is_some() { segment.start } else { start };
        let end = if found.is_some() { end.max(segment.end) } else { end };
        *segment = Segment { start: first.max(end.saturating_sub(sectors)), end, used: clock };
    }

    /// Forgets the streams that hold any of it.
    #[inline]
    pub(super) fn forget(&mut self, start: u64, end: u64) {
        for segment in &mut self.segments {
            if segment.start < end && start < segment.end {
                *segment = Segment::default();
            }
        }
    }
}

/// A run of sectors that are not on the media yet: where it ends, and where on the media it begins.
#[derive(Debug, Clone, Copy)]
struct Run {
    end: u64,
    place: Place,
}

/// The write half: runs of sectors by where they begin. Who makes runs says where on the media a sector is.
#[derive(Debug, Clone, Default)]
pub(super) struct DirtyRuns {
    runs: BTreeMap<u64, Run>,
    sectors: u64,
}

impl DirtyRuns {
    pub(super) fn sectors(&self) -> u64 {
        self.sectors
    }

    /// How many runs there are.
    pub(super) fn len(&self) -> usize {
        self.runs.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Adds a write; what it overlaps or touches becomes one run with it.
    pub(super) fn add(&mut self, mut start: u64, mut end: u64, place: impl Fn(u64) -> Place) {
        let mut begins = None;
        while let Some((&first, &run)) = self.runs.range(..=end).next_back() {
            if run.end < start {
                break;
            }
            self.remove(first);
            if first <= start {
                (start, begins) = (first, Some(run.place));
            }
            end = end.max(run.end);
        }
        let place = begins.unwrap_or_else(|| place(start));
        self.runs.insert(start, Run { end, place });
        self.sectors += end - start;
    }

    /// Whether all of it waits here.
    pub(super) fn covers(&self, start: u64, end: u64) -> bool {
        self.runs.range(..=start).next_back().is_some_and(|(_, run)| end <= run.end)
    }

    fn remove(&mut self, first: u64) {
        if let Some(run) = self.runs.remove(&first) {
            self.sectors -= run.end - first;
        }
    }

    /// Takes up to `most` sectors from the front of the run that begins at `first`; returns where they end.
    pub(super) fn take(&mut self, first: u64, most: u64, place: impl Fn(u64) -> Place) -> u64 {
        let Some(run) = self.runs.remove(&first) else { return first };
        let end = run.end.min(first + most);
        self.sectors -= end - first;
        if end < run.end {
            self.runs.insert(end, Run { end: run.end, place: place(end) });
        }
        end
    }

    /// Drops what lies in the range.
    pub(super) fn discard(&mut self, start: u64, end: u64, place: impl Fn(u64) -> Place) {
        while let Some((&first, &run)) = self.runs.range(..end).next_back() {
            if run.end <= start {
                break;
            }
            self.remove(first);
            for (from, to) in [(first, start), (end, run.end)] {
                if from < to {
                    self.runs.insert(from, Run { end: to, place: place(from) });
                    self.sectors += to - from;
                }
            }
            if first <= start {
                break;
            }
        }
    }

    /// The runs that begin at or after `at`, the nearest first: as a sector and on the media.
    pub(super) fn after(&self, at: u64) -> impl Iterator<Item = (u64, Place)> + '_ {
        self.runs.range(at..).map(|(&first, run)| (first, run.place))
    }

    /// The runs that begin before `at`, the nearest first.
    pub(super) fn before(&self, at: u64) -> impl Iterator<Item = (u64, Place)> + '_ {
        self.runs.range(..at).rev().map(|(&first, run)| (first, run.place))
    }
}
