//! The chunks that a replay finds behind the end of the log, in bounded memory.

use std::collections::BTreeMap;

use umbrella_policy::log_layout::LogBlock;

use super::format::{ChunkHeader, Sequence};

/// The most chunks that are kept: about 32 MiB. The checkpoints that a store makes by itself leave at most 65,536
/// chunks. If a log is longer, the rest counts as unknown.
pub(super) const MOST_CHUNKS: usize = if cfg!(test) { 4096 } else { 1 << 20 };

/// Chunks behind the end of the log: where the first of them lie, and what all of them say of flushes. Their headers
/// are read again where they are needed.
#[derive(Debug, Default)]
pub(super) struct Behind {
    places: BTreeMap<Sequence, LogBlock>,
    mark: (Sequence, Sequence),
    furthest: Sequence,
}

impl Behind {
    /// Notes a chunk. Of two with one number the first that is noted counts.
    pub(super) fn note(&mut self, place: LogBlock, header: &ChunkHeader) {
        if let Some((flushed, promised)) = header.mark() {
            self.mark = (self.mark.0.max(flushed), self.mark.1.max(promised));
        }
        self.furthest = self.furthest.max(header.sequence);
        self.places.entry(header.sequence).or_insert(place);
        if self.places.len() > MOST_CHUNKS {
            self.places.pop_last();
        }
    }

    /// How many chunks there are, at least.
    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    /// How far the log had been flushed, and promised to be, as all of them say.
    pub(super) fn mark(&self) -> (Sequence, Sequence) {
        self.mark
    }

    /// The highest number of a chunk.
    pub(super) fn furthest(&self) -> Option<Sequence> {
        (!self.places.is_empty()).then_some(self.furthest)
    }

    /// Where a chunk lies.
    pub(super) fn place(&self, number: Sequence) -> Option<LogBlock> {
        self.places.get(&number).copied()
    }

    /// The chunks with these numbers, in order.
    pub(super) fn range(&self, first: Sequence, last: Sequence) -> impl Iterator<Item = (Sequence, LogBlock)> {
        self.places.range(first..=last).map(|(number, place)| (*number, *place))
    }

    /// Whether the chunk before this one is missing, of those from `first` on.
    pub(super) fn follows_gap(&self, first: Sequence, number: Sequence) -> bool {
        number > first && !self.places.contains_key(&number.before())
    }
}
