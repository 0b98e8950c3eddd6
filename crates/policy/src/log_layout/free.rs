//! Free segments, by where on the disk they lie, and which one a stream gets.

use std::collections::BTreeSet;
use std::ops::Range;

use super::ids::{SegmentNo, Shape, Stream};

/// Where on the disk the streams write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Geography {
    /// Anywhere: the next free segment after the last one that was opened, as a log goes round.
    Log,
    /// Each stream has a region of its own, all of one size. The hottest stream has the middle of the disk, each colder
    /// one both sides of it (an organ pipe).
    ///
    /// Source: R-LFS, section 2, figure 1.
    Regions,
    /// An organ pipe without borders. Each stream writes as far from the middle as the segments of the hotter streams
    /// reach. The coldest stays outside of the middle `centre` hundredths of the disk as long as there is room there,
    /// and the streams between keep out in proportion.
    Centred {
        /// Hundredths of the disk.
        centre: u8,
    },
}

/// The disk divided by this is the stretch that is borrowed in a row on one side of the middle, before the other side
/// has its turn.
const STRIP: u32 = 16;

/// The free segments.
#[derive(Debug)]
pub(super) struct FreeSegments {
    geography: Geography,
    shape: Shape,
    /// The region of each segment: looked up for every one whenever a victim is chosen.
    region_of: Vec<u8>,
    /// By region; one where there are none.
    pools: Vec<BTreeSet<u32>>,
    /// The segment that each stream got last.
    last: Vec<u32>,
    count: u32,
}

impl FreeSegments {
    /// None free yet; `streams` counts those that have a region.
    pub(super) fn new(geography: Geography, shape: Shape, streams: u8, all_streams: usize) -> FreeSegments {
        let regions = if geography == Geography::Regions { usize::from(streams) } else { 1 };
        let middle = shape.segments / 2;
        let start = if geography == Geography::Regions { middle } else { 0 };
        let region_of = (0..shape.segments).map(|number| region_at(number, shape, regions as u64)).collect();
        FreeSegments {
            geography,
            shape,
            region_of,
            pools: vec![BTreeSet::new(); regions],
            last: vec![start; all_streams],
            count: 0,
        }
    }

    pub(super) fn geography(&self) -> Geography {
        self.geography
    }

    /// How many are free.
    pub(super) fn len(&self) -> u32 {
        self.count
    }

    /// How many regions there are.
    pub(super) fn regions(&self) -> usize {
        self.pools.len()
    }

    /// How many are free in a region.
    pub(super) fn len_of(&self, region: usize) -> u32 {
        self.pools.get(region).map_or(0, |pool| pool.len() as u32)
    }

    /// The region that a segment lies in: 0 at the edges of the disk, the last in the middle.
    pub(super) fn region(&self, segment: SegmentNo) -> usize {
        self.region_of.get(segment.0 as usize).copied().map_or(0, usize::from)
    }

    /// The region that a stream's data belong in. What has none of its own (the map) belongs in the middle.
    pub(super) fn home_region(&self, stream: Stream) -> usize {
        usize::from(stream.0).min(self.pools.len() - 1)
    }

    /// How near to the middle of the disk a segment lies: 0 at the edges, 1 there.
    pub(super) fn nearness(&self, segment: SegmentNo) -> f64 {
        let half = f64::from(self.shape.segments) / 2.0;
        1.0 - (f64::from(segment.0) - half).abs() / half.max(1.0)
    }

    pub(super) fn add(&mut self, segment: SegmentNo) {
        let region = self.region(segment);
        self.count += u32::from(self.pools[region].insert(segment.0));
    }

    pub(super) fn remove(&mut self, segment: SegmentNo) -> bool {
        let region = self.region(segment);
        let removed = self.pools[region].remove(&segment.0);
        self.count -= u32::from(removed);
        removed
    }

    /// Takes a segment for a stream; `inside` counts the segments that belong nearer to the middle than its own, which
    /// are `own`.
    ///
    /// Cost: O(log segments).
    pub(super) fn pick(&mut self, stream: Stream, inside: u32, own: u32) -> Option<SegmentNo> {
        let segment = match self.geography {
            Geography::Log => self.after(0, self.last.iter().copied().next().unwrap_or(0)),
            Geography::Centred { centre } => self
                .in_band(stream, (inside, own), centre)
                .or_else(|| self.at_distance(inside.saturating_add(own / 2) / 2, stream)),
            Geography::Regions => {
                let home = self.home_region(stream);
                let last = self.last.get(usize::from(stream.0)).copied().unwrap_or(0);
                self.after(home, last).or_else(|| self.take_from_other_region(home, last))
            }
        }?;
        self.remove(segment);
        if self.geography == Geography::Log {
            self.last.fill(segment.0);
        } else if let Some(last) = self.last.get_mut(usize::from(stream.0)) {
            *last = segment.0;
        }
        Some(segment)
    }

    /// The first free one of a region after a segment, going round.
    fn after(&self, region: usize, last: u32) -> Option<SegmentNo> {
        let pool = self.pools.get(region)?;
        pool.range(last + 1..).next().or_else(|| pool.first()).copied().map(SegmentNo)
    }

    /// A free segment of another region, within a [`STRIP`] of the one nearest to the stream's own region. Within that
    /// it is the first one after the stream's last. So successive writes are not spread over both sides of the disk.
    fn take_from_other_region(&self, home: usize, last: u32) -> Option<SegmentNo> {
        let source = self.source_region(home, last)?;
        let pool = self.pools.get(source)?;
        let middle = self.shape.segments / 2;
        let strip = (self.shape.segments / STRIP).max(1);
        let sides = if source < home {
            // From outside: those nearest to the middle.
            let near = nearest(pool, middle)?.0.abs_diff(middle);
            [middle.saturating_sub(near + strip - 1)..middle + 1, middle..middle + near + strip]
        } else {
            let far = [pool.first(), pool.last()].into_iter().flatten().map(|end| end.abs_diff(middle)).max()?;
            let inner = far.saturating_sub(strip - 1);
            [middle - far..middle.saturating_sub(inner) + 1, middle + inner..middle + far + 1]
        };
        next_in(pool, &sides, last + 1)
    }

    /// The region to take a segment from: the one where the stream wrote last, while it has at least half as many free
    /// segments as the region with most. Else the nearest such region.
    fn source_region(&self, home: usize, last: u32) -> Option<usize> {
        let most = self.pools.iter().map(BTreeSet::len).max()?;
        let rich =
            |region: &usize| self.pools.get(*region).is_some_and(|pool| !pool.is_empty() && 2 * pool.len() >= most);
        let of_last = self.region(SegmentNo(last));
        (0..self.pools.len()).filter(rich).min_by_key(|region| (*region != of_last, home.abs_diff(*region)))
    }

    /// The first free one after the stream's last in its band, going round. The bands share the disk as the streams'
    /// segments share the used part of it, so that each has its part of the free ones.
    fn in_band(&self, stream: Stream, (inside, own): (u32, u32), centre: u8) -> Option<SegmentNo> {
        let pool = self.pools.first()?;
        let all = u64::from(self.shape.segments);
        let used = all.saturating_sub(self.count.into()).max(1);
        let radius = |segments: u32| (u64::from(segments) * all / used / 2).min(all / 2) as u32;
        let hottest = self.last.len().saturating_sub(1).max(1) as u64;
        let kept = (all * u64::from(centre) * hottest.saturating_sub(stream.0.into()) / (200 * hottest)) as u32;
        let inner = radius(inside).max(kept);
        let outer = inner + radius(inside.saturating_add(own).saturating_add(1)) - radius(inside) + 1;
        let middle = self.shape.segments / 2;
        let below = middle.saturating_sub(outer)..middle.saturating_sub(inner);
        let above = middle.saturating_add(inner)..middle.saturating_add(outer);
        let next = self.last.get(usize::from(stream.0)).map_or(0, |last| last + 1);
        next_in(pool, &[below, above], next)
    }

    /// The free one whose distance from the middle is nearest to `radius`; of two, the one nearer to where the stream
    /// wrote last.
    fn at_distance(&self, radius: u32, stream: Stream) -> Option<SegmentNo> {
        let middle = self.shape.segments / 2;
        let pool = self.pools.first()?;
        let last = self.last.get(usize::from(stream.0)).copied().unwrap_or(middle);
        let sides = [middle.saturating_sub(radius), middle.saturating_add(radius).min(self.shape.segments - 1)];
        let found = sides.into_iter().filter_map(|target| Some((nearest(pool, target)?, target)));
        found
            .min_by_key(|(segment, target)| (segment.0.abs_diff(*target), segment.0.abs_diff(last)))
            .map(|(segment, _)| segment)
    }
}

/// Which of `regions` regions a segment lies in.
fn region_at(number: u32, shape: Shape, regions: u64) -> u8 {
    let from_middle = (2 * u64::from(number) + 1).abs_diff(u64::from(shape.segments));
    let outwards = from_middle * regions / u64::from(shape.segments).max(1);
    (regions - 1 - outwards.min(regions - 1)) as u8
}

/// The first member of one of the ranges, which are in order, from `from` on, going round.
fn next_in(pool: &BTreeSet<u32>, ranges: &[Range<u32>; 2], from: u32) -> Option<SegmentNo> {
    let after = |from: u32| {
        let of = |range: &Range<u32>| {
            let start = from.max(range.start);
            (start < range.end).then(|| pool.range(start..range.end).next().copied()).flatten()
        };
        ranges.iter().find_map(of)
    };
    after(from).or_else(|| after(0)).map(SegmentNo)
}

/// The member nearest to `target`.
fn nearest(pool: &BTreeSet<u32>, target: u32) -> Option<SegmentNo> {
    let above = pool.range(target..).next();
    let below = pool.range(..target).next_back();
    above.into_iter().chain(below).min_by_key(|found| found.abs_diff(target)).copied().map(SegmentNo)
}
