//! A disk's buffer: what it read ahead, and what it has taken but not yet written.
//!
//! Half of the buffer is for reads, in segments that each follow one stream, the least recently used one making place;
//! half holds writes, merged where they touch. The split is assumed: data sheets give only the size.

use super::geometry::SectorAddress;

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
    /// What was written last, where it is kept.
    written: Option<Segment>,
    /// Whether what is written takes the only segment, and the other way round.
    shared: bool,
}

impl ReadSegments {
    pub(super) fn new(segments: u32, sectors: u64) -> ReadSegments {
        let count = segments as usize;
        ReadSegments {
            segments: vec![Segment::default(); count].into(),
            sectors: sectors / u64::from(segments.max(1)),
            clock: 0,
            written: None,
            shared: false,
        }
    }

    /// `segments` segments of `sectors` sectors each, one of them for written data.
    pub(super) fn with_written(segments: u32, sectors: u64) -> ReadSegments {
        let reads = segments.saturating_sub(1).max(1);
        let shared = segments <= 1;
        ReadSegments { shared, ..ReadSegments::new(reads, sectors * u64::from(reads)) }
    }

    /// Keeps written data where reads find it, behind the data that it continues.
    pub(super) fn keep_written(&mut self, start: u64, end: u64) {
        if self.shared {
            self.segments.fill(Segment::default());
        }
        let first = self.written.filter(|written| written.end == start).map_or(start, |written| written.start);
        self.written = Some(Segment { start: first.max(end.saturating_sub(self.sectors)), end, used: 0 });
    }

    /// How many sectors from `start` on are there.
    pub(super) fn front(&self, start: u64) -> u64 {
        let ends = self.segments.iter().filter(|s| s.start <= start && start < s.end).map(|s| s.end - start);
        ends.max().unwrap_or_default()
    }

    /// Where the segment that holds the sectors before `end` ends.
    pub(super) fn end_behind(&self, end: u64) -> u64 {
        self.segments.iter().filter(|s| s.start < end && end <= s.end).map(|s| s.end).max().unwrap_or(end)
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
        self.written.is_some_and(|written| written.start <= start && end <= written.end)
    }

    /// Adds what was read: to the stream that it continues, else in place of the least recently used one.
    pub(super) fn add(&mut self, start: u64, end: u64) {
        self.clock += 1;
        let (clock, sectors) = (self.clock, self.sectors);
        if self.shared {
            self.written = None;
        }
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
        self.written = self.written.filter(|written| written.end <= start || end <= written.start);
    }
}

/// A run of sectors that are not on the media yet, and where on the media it begins.
#[derive(Debug, Clone, Copy)]
struct Run {
    start: u64,
    end: u64,
    place: SectorAddress,
}

/// The write half: runs of sectors by where they begin. The caller that makes a run says where on the media it is.
///
/// Disks keep a few hundred runs at most: a sorted list is faster than a tree, and its neighbours lie side by side.
#[derive(Debug, Clone, Default)]
pub(super) struct DirtyRuns {
    runs: Vec<Run>,
    sectors: u64,
}

impl DirtyRuns {
    pub(super) fn sectors(&self) -> u64 {
        self.sectors
    }

    /// Whether the last run ends there.
    pub(super) fn ends_at(&self, at: u64) -> bool {
        self.runs.last().is_some_and(|run| run.end == at)
    }

    /// How many runs there are.
    pub(super) fn len(&self) -> usize {
        self.runs.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// How many runs begin before `at`.
    fn count_before(&self, at: u64) -> usize {
        self.runs.partition_point(|run| run.start < at)
    }

    /// Adds a write; what it overlaps or touches becomes one run with it.
    pub(super) fn add(&mut self, mut start: u64, mut end: u64, place: impl Fn(u64) -> SectorAddress) {
        let mut first = self.count_before(start);
        while let Some(run) = self.runs[..first].last().filter(|run| run.end >= start) {
            start = run.start;
            first -= 1;
        }
        let mut last = first;
        while let Some(run) = self.runs.get(last).filter(|run| run.start <= end) {
            self.sectors -= run.end - run.start;
            end = end.max(run.end);
            last += 1;
        }
        self.sectors += end - start;
        let Some(joined) = self.runs[first..last].first_mut() else {
            self.runs.insert(first, Run { start, end, place: place(start) });
            return;
        };
        let begins = if joined.start == start { joined.place } else { place(start) };
        *joined = Run { start, end, place: begins };
        self.runs.drain(first + 1..last);
    }

    /// Whether all of it waits here.
    pub(super) fn covers(&self, start: u64, end: u64) -> bool {
        let from = self.runs.partition_point(|run| run.start <= start);
        from > 0 && end <= self.runs[from - 1].end
    }

    /// Takes up to `most` sectors from the front of the run that begins at `first`; returns where they end.
    pub(super) fn take(&mut self, first: u64, most: u64, place: impl Fn(u64) -> SectorAddress) -> u64 {
        let index = self.count_before(first);
        let Some(run) = self.runs.get_mut(index).filter(|run| run.start == first) else { return first };
        let end = run.end.min(first + most);
        self.sectors -= end - first;
        if end < run.end {
            (run.start, run.place) = (end, place(end));
        } else {
            self.runs.remove(index);
        }
        end
    }

    /// Drops what lies in the range.
    pub(super) fn discard(&mut self, start: u64, end: u64, place: impl Fn(u64) -> SectorAddress) {
        while let Some(index) = self.count_before(end).checked_sub(1) {
            let run = self.runs[index];
            if run.end <= start {
                break;
            }
            self.runs.remove(index);
            self.sectors -= run.end - run.start;
            for (from, to) in [(end, run.end), (run.start, start)] {
                if from < to {
                    self.runs.insert(index, Run { start: from, end: to, place: place(from) });
                    self.sectors += to - from;
                }
            }
            if run.start <= start {
                break;
            }
        }
    }

    /// The runs that begin at or after `at`, the nearest first: as a sector and on the media.
    #[inline]
    pub(super) fn after(&self, at: u64) -> impl Iterator<Item = (u64, SectorAddress)> + '_ {
        self.runs[self.count_before(at)..].iter().map(|run| (run.start, run.place))
    }

    /// The runs that begin before `at`, the nearest first.
    #[inline]
    pub(super) fn before(&self, at: u64) -> impl Iterator<Item = (u64, SectorAddress)> + '_ {
        self.runs[..self.count_before(at)].iter().rev().map(|run| (run.start, run.place))
    }
}
