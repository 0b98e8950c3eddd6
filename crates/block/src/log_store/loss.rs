//! What is lost at the end of the log: told by the marks of flushes that later chunks carry.
//!
//! The log ends at the first chunk that is missing or not whole. If a mark says that this chunk had been flushed, flushed data is lost. If it was promised by a flush of which nobody knows whether
//! it was answered, perhaps. Without either nobody was told that it is durable: so a power cut leaves the log.

use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;

use umbrella_policy::log_layout::SegmentNo;
use umbrella_units::BlockNo;

use super::buffer::CHUNK_BLOCKS;
use super::follow::Replay;
use super::format::{ChunkHeader, Entry, Sequence};
use super::headers::headers_in;

/// So many runs of blocks are told.
const MOST_RUNS: usize = 32;

/// Flushed data that the log has no more, for certain or perhaps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loss {
    /// The first chunk that is missing or not whole.
    pub first: Sequence,
    /// The last one that had been flushed, or promised.
    pub last: Sequence,
    /// Whether they had been flushed: else the store ended while it flushed them, and perhaps nobody was told that they are durable.
    pub is_certain: bool,
    /// Blocks that were written or discarded in those of them whose headers are whole, in order.
    pub blocks: Vec<Range<u64>>,
    /// How many there are whose headers are not: nobody knows which blocks they held.
    pub unknown: u64,
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (first, last) = (self.first.0, self.last.0);
        if self.is_certain {
            write!(
                f,
                "flushed data is lost: the log is damaged at chunk {first}, and had been flushed up to chunk {last}; of"
            )?;
        } else {
            write!(
                f,
                "flushed data is perhaps lost: the log ends before chunk {first}, and was being flushed up to chunk {last}; of"
            )?;
        }
        let runs = &self.blocks;
        for (nth, run) in runs.iter().take(MOST_RUNS).enumerate() {
            let (first, end) = (run.start, run.end - 1);
            write!(f, "{}", if nth == 0 { " blocks " } else { ", " })?;
            if first == end { write!(f, "{end}")? } else { write!(f, "{first}-{end}")? }
        }
        let more: u64 = runs.iter().skip(MOST_RUNS).map(|run| run.end - run.start).sum();
        if more > 0 {
            write!(f, " and {more} more")?;
        }
        match (self.unknown, runs.is_empty()) {
            (0, _) => {}
            (unknown, true) => write!(f, " blocks that nobody knows, in {unknown} chunks,")?,
            (unknown, false) => write!(f, ", and of blocks that nobody knows in {unknown} chunks,")?,
        }
        write!(f, " there is what was written before")
    }
}

impl Loss {
    /// Whether a block is one of those that are known to be lost.
    pub fn has(&self, block: BlockNo) -> bool {
        self.blocks.iter().any(|run| run.contains(&block.0))
    }
}

/// The same blocks in as few runs as there can be, in order.
fn joined(mut runs: Vec<Range<u64>>) -> Vec<Range<u64>> {
    runs.sort_unstable_by_key(|run| run.start);
    let mut joined: Vec<Range<u64>> = Vec::new();
    for run in runs {
        match joined.last_mut() {
            Some(last) if run.start <= last.end => last.end = last.end.max(run.end),
            _ => joined.push(run),
        }
    }
    joined
}

impl Replay<'_> {
    /// What is lost at the end of the log, if anything that was flushed may be.
    pub(super) fn loss(&self) -> Option<Loss> {
        let behind = self.behind();
        let first = self.core.next_sequence;
        let marks = behind.iter().filter_map(ChunkHeader::mark).chain([self.mark]);
        let (flushed, promised) =
            marks.fold((Sequence(0), Sequence(0)), |most, mark| (most.0.max(mark.0), most.1.max(mark.1)));
        let is_certain = first <= flushed;
        let last = if is_certain { flushed } else { promised };
        if first > last {
            return None;
        }
        let lost = || behind.iter().filter(|header| header.sequence <= last);
        let found: BTreeSet<Sequence> = lost().map(|header| header.sequence).collect();
        let unknown = (last.0 - first.0 + 1).saturating_sub(found.len() as u64);
        let blocks = lost().flat_map(|header| &header.entries).map(|entry| match *entry {
            Entry::Data { block, .. } | Entry::Copy { block, .. } => block.0..block.0 + 1,
            Entry::Unmapped { start, blocks } => start.0..start.0 + u64::from(blocks),
            Entry::Dead | Entry::MapPage { .. } | Entry::Mark { .. } => 0..0,
        });
        let blocks = joined(blocks.filter(|run| !run.is_empty()).collect());
        Some(Loss { first, last, is_certain, blocks, unknown })
    }

    /// The headers of chunks behind the end of the log. A chunk that is damaged hides no more blocks than a chunk has.
    fn behind(&self) -> Vec<ChunkHeader> {
        let shape = self.core.layout.shape();
        let heads: Vec<_> = self.core.layout.heads().collect();
        let open = heads.iter().filter_map(|head| head.open);
        let next = heads.iter().filter_map(|head| head.next).map(|segment| (segment, 0));
        let mut places: Vec<(SegmentNo, u32)> = open.chain(next).collect();
        let mut begun: BTreeSet<SegmentNo> = places.iter().map(|(segment, _)| *segment).collect();
        let counts = |header: &ChunkHeader| self.is_of_this_log(header) && header.sequence >= self.core.next_sequence;
        let mut behind = Vec::new();
        while let Some((segment, slot)) = places.pop() {
            let end = shape.segment_blocks.min(slot + CHUNK_BLOCKS + 1);
            let found = headers_in(self.named, &self.core.superblock, segment, slot..end, counts).chunks;
            if let Some((place, header)) = found.last() {
                places.push((segment, shape.slot(*place) + header.blocks()));
            }
            let next = found.iter().filter_map(|(_, header)| header.next).filter(|next| begun.insert(*next));
            places.extend(next.map(|segment| (segment, 0)));
            behind.extend(found.into_iter().map(|(_, header)| header));
            // Where a chunk may fill its segment, its header alone says where the log goes on. Such segments are small, and so are stores of them.
            if places.is_empty() && shape.segment_blocks <= CHUNK_BLOCKS + 1 {
                let others = (0..shape.segments).map(SegmentNo).filter(|segment| begun.insert(*segment));
                places.extend(others.map(|segment| (segment, 0)));
            }
        }
        behind
    }
}
