//! Which sectors have their newest data in the log.

use std::collections::BTreeMap;
use std::ops::Bound;

use serde::{Deserialize, Serialize};
use umbrella_units::{Lba, SectorRange};

/// A position in the log, in sectors since it was made; it only grows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct LogSector(pub u64);

/// Where the data of a run of sectors is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// In the log, from there on.
    Log(LogSector),
    /// Nowhere: they were zeroed by the record there.
    Zeroes(LogSector),
}

impl Source {
    /// The place in the log that says so.
    pub fn at(self) -> LogSector {
        match self {
            Source::Log(at) | Source::Zeroes(at) => at,
        }
    }

    /// The source of what begins `sectors` sectors later.
    fn skip(self, sectors: u64) -> Source {
        match self {
            Source::Log(at) => Source::Log(LogSector(at.0 + sectors)),
            zeroes @ Source::Zeroes(_) => zeroes,
        }
    }
}

/// A run of sectors whose newest data the log has in one piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CachedExtent {
    /// Where it belongs on the disk.
    pub range: SectorRange,
    /// Where it is.
    pub source: Source,
}

/// Which sectors have their newest data in the log. What came later replaces what it overlaps.
///
/// Cost: O(log n) and the pieces that an operation touches.
#[derive(Debug, Clone, Default)]
pub struct LogMap {
    /// By first sector: the end, and the source of the first.
    pieces: BTreeMap<u64, (u64, Source)>,
    sectors: u64,
    zeroes: u64,
}

impl LogMap {
    /// Whether it has nothing.
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// How many sectors of the disk it stands for.
    pub fn sectors(&self) -> u64 {
        self.sectors
    }

    /// How many of them are zeroes, which take no room in the log.
    pub fn zeroes(&self) -> u64 {
        self.zeroes
    }

    /// How many pieces it has.
    pub fn len(&self) -> usize {
        self.pieces.len()
    }

    /// The newest data of `range` is there.
    pub fn insert(&mut self, range: SectorRange, source: Source) {
        if range.sectors == 0 {
            return;
        }
        self.remove(range, |_| true);
        self.sectors += range.sectors;
        if matches!(source, Source::Zeroes(_)) {
            self.zeroes += range.sectors;
        }
        self.pieces.insert(range.start.0, (range.end().0, source));
    }

    /// Forgets what of `range` lies before `tail` in the log.
    pub fn release(&mut self, range: SectorRange, tail: LogSector) {
        self.remove(range, |source| source.at() < tail);
    }

    /// Whether it has any sector of `range`.
    pub fn overlaps(&self, range: SectorRange) -> bool {
        self.pieces.range(..range.end().0).next_back().is_some_and(|(_, &(end, _))| end > range.start.0)
            && range.sectors > 0
    }

    /// The pieces inside `range`, in order, cut at its borders. What is between them is on the disk.
    pub fn pieces(&self, range: SectorRange) -> impl Iterator<Item = CachedExtent> + '_ {
        let before = self.pieces.range(..range.start.0).next_back();
        let inside = self.pieces.range(range.start.0..range.end().0);
        before.into_iter().chain(inside).filter_map(move |(&start, &(end, source))| {
            let cut = SectorRange::between(Lba(start), Lba(end)).intersection(range);
            (cut.sectors > 0).then(|| CachedExtent { range: cut, source: source.skip(cut.start.0 - start) })
        })
    }

    /// All pieces at or behind `from`, in order.
    pub fn pieces_from(&self, from: Lba) -> impl Iterator<Item = CachedExtent> + '_ {
        self.pieces(SectorRange::between(from, Lba(u64::MAX)))
    }

    fn remove(&mut self, range: SectorRange, wanted: impl Fn(Source) -> bool) {
        let (first, end) = (range.start.0, range.end().0);
        let straddling = self.pieces.range(..first).next_back().map(|(&start, &(end, source))| (start, end, source));
        if let Some((start, piece_end, source)) = straddling.filter(|&(_, end, source)| end > first && wanted(source)) {
            self.pieces.insert(start, (first, source));
            if piece_end > end {
                self.pieces.insert(end, (piece_end, source.skip(end - start)));
            }
            self.discount(source, piece_end.min(end) - first);
        }
        let mut from = Bound::Included(first);
        while let Some((&start, &(piece_end, source))) = self.pieces.range((from, Bound::Excluded(end))).next() {
            from = Bound::Excluded(start);
            if !wanted(source) {
                continue;
            }
            self.pieces.remove(&start);
            if piece_end > end {
                self.pieces.insert(end, (piece_end, source.skip(end - start)));
            }
            self.discount(source, piece_end.min(end) - start);
        }
    }

    fn discount(&mut self, source: Source, sectors: u64) {
        self.sectors -= sectors;
        if matches!(source, Source::Zeroes(_)) {
            self.zeroes -= sectors;
        }
    }
}
