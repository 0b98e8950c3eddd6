//! What is lost at the end of the log: told by the marks of flushes that later chunks carry, and by what each repeats of the chunk before it.
//!
//! The log ends at the first chunk that is missing or not whole. If a mark says that this chunk had been flushed, flushed data is lost. If it was promised by a flush of which nobody knows whether
//! it was answered, perhaps. Without either nobody was told that it is durable: so a power cut leaves the log. The very last chunk has no later one that speaks of it. There what is left of its own
//! header has to do.
//!
//! Which blocks a chunk held its header says, or the one of the chunk after it. Where both are damaged nobody knows.
//!
//! Damage may hide more than one chunk. The search goes on for [`NEAR`] behind what was found last of each stream in its segment, and in the segments beside it that hold nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Range;

use umbrella_policy::log_layout::{Place, Segment, SegmentNo, Shape};
use umbrella_units::BlockNo;

use super::buffer::CHUNK_BLOCKS;
use super::follow::Replay;
use super::format::{BLOCK_BYTES, ChunkHeader, Entry, Repeat, Sequence, Wanted, joined, promised_in};
use super::headers::headers_in;

/// How far behind the end of a stream later chunks are looked for, in blocks: 64 MiB.
const NEAR: u32 = 64 << 8;
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
    /// Blocks that were written or discarded in them, as far as they are known, in order.
    pub blocks: Vec<Range<u64>>,
    /// BlockRanges of blocks of which only some were.
    pub among: Vec<Range<u64>>,
    /// How many there are of which nobody knows which blocks they held.
    pub unknown: u64,
}

/// Chunks behind the end of the log, by their numbers, and where they lie.
pub(super) type Behind = BTreeMap<Sequence, (Place, ChunkHeader)>;

/// What the chunk after one repeats of it.
pub(super) fn repeated(behind: &Behind, number: Sequence) -> Option<&Repeat> {
    behind.get(&number.next()).and_then(|(_, header)| header.before.as_ref())
}

/// BlockRanges of blocks, for people: the first of them.
pub(super) struct BlockRanges<'a>(pub(super) &'a [Range<u64>]);

impl fmt::Display for BlockRanges<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (nth, run) in self.0.iter().take(MOST_RUNS).enumerate() {
            let (first, end) = (run.start, run.end - 1);
            write!(f, "{}", if nth == 0 { "" } else { ", " })?;
            if first == end { write!(f, "{end}")? } else { write!(f, "{first}-{end}")? }
        }
        let more: u64 = self.0.iter().skip(MOST_RUNS).map(|run| run.end - run.start).sum();
        if more > 0 { write!(f, " and {more} more") } else { Ok(()) }
    }
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
        let mut told = false;
        if !self.blocks.is_empty() {
            write!(f, " blocks {}", BlockRanges(&self.blocks))?;
            told = true;
        }
        if !self.among.is_empty() {
            write!(f, "{} some of blocks {}", if told { ", and of" } else { "" }, BlockRanges(&self.among))?;
            told = true;
        }
        match (self.unknown, told) {
            (0, _) => {}
            (unknown, false) => write!(f, " blocks that nobody knows, in {unknown} chunks,")?,
            (unknown, true) => write!(f, ", and of blocks that nobody knows in {unknown} chunks,")?,
        }
        write!(f, " there is what was written before")
    }
}

impl Loss {
    /// Whether a block may be one of those that are lost.
    pub fn has(&self, block: BlockNo) -> bool {
        self.blocks.iter().chain(&self.among).any(|run| run.contains(&block.0))
    }
}

impl Replay<'_> {
    /// How far the log had been flushed, and promised to be, as all chunks say that there are.
    pub(super) fn marks(&self, behind: &Behind) -> (Sequence, Sequence) {
        let marks = behind.values().filter_map(|(_, header)| header.mark()).chain([self.mark]);
        marks.fold((Sequence(0), Sequence(0)), |most, mark| (most.0.max(mark.0), most.1.max(mark.1)))
    }

    /// What is lost at the end of the log, if anything that was flushed may be.
    pub(super) fn loss(&self, behind: &Behind) -> Option<Loss> {
        let first = self.core.next_sequence;
        let (flushed, promised) = self.marks(behind);
        let promised = promised.max(self.promised_at_end().unwrap_or(first.before()));
        let is_certain = first <= flushed;
        let last = if is_certain { flushed } else { promised };
        if first > last {
            return None;
        }
        let found = || behind.range(first..=last).map(|(_, (_, header))| header);
        let is_missing = |number: &Sequence| *number >= first && !behind.contains_key(number);
        let missing = behind.range(first..=last.next()).map(|(number, _)| number.before()).filter(is_missing);
        let repeats: Vec<&Repeat> = missing.filter_map(|number| repeated(behind, number)).collect();
        let known = (found().count() + repeats.len()) as u64;
        let unknown = (last.0 - first.0).saturating_add(1).saturating_sub(known);
        let of = |is_exact: bool| {
            let repeats = repeats.iter().filter(move |repeat| repeat.is_exact == is_exact);
            repeats.flat_map(|repeat| repeat.runs.iter().cloned())
        };
        let written = found().flat_map(|header| header.entries.iter().map(Entry::blocks));
        let (blocks, among) = (joined(written.chain(of(true)).collect()), joined(of(false).collect()));
        Some(Loss { first, last, is_certain, blocks, among, unknown })
    }

    /// The last chunk that a flush may have promised and of which no more than a damaged header is left, where a stream goes on.
    fn promised_at_end(&self) -> Option<Sequence> {
        let (shape, first) = (self.core.layout.shape(), self.core.next_sequence);
        let heads: Vec<_> = self.core.layout.heads().filter_map(|head| head.open).collect();
        let wanted = Wanted {
            epochs: self.core.epoch..=self.first_epoch.next(),
            numbers: first..Sequence(first.0 + heads.len() as u64),
        };
        let with_room = heads.iter().filter(|(_, slot)| slot + 1 < shape.segment_blocks);
        let promised = with_room.filter_map(|(segment, slot)| {
            let mut block = [0; BLOCK_BYTES];
            self.named.log(&self.core.superblock, shape.place(*segment, *slot), &mut block).ok()?;
            promised_in(&block, &self.core.superblock, &wanted)
        });
        promised.max()
    }

    /// The headers of chunks behind the end of the log, as far as they are near to where it ends.
    pub(super) fn behind(&self) -> Behind {
        let shape = self.core.layout.shape();
        let heads: Vec<_> = self.core.layout.heads().collect();
        let open = heads.iter().filter_map(|head| head.open);
        let next = heads.iter().filter_map(|head| head.next).map(|segment| (segment, 0));
        let mut places: Vec<(SegmentNo, u32)> = open.chain(next).collect();
        let mut begun: BTreeSet<SegmentNo> = places.iter().map(|(segment, _)| *segment).collect();
        let mut beside = self.beside(&begun);
        let mut behind = Behind::new();
        loop {
            while let Some((segment, slot)) = places.pop() {
                let found = self.later_in(segment, slot..shape.segment_blocks.min(slot.saturating_add(NEAR)));
                if let Some((place, header)) = found.last() {
                    places.push((segment, shape.slot(*place) + header.blocks()));
                }
                let next = found.iter().filter_map(|(_, header)| header.next).filter(|next| begun.insert(*next));
                places.extend(next.map(|segment| (segment, 0)));
                for (place, header) in found {
                    behind.entry(header.sequence).or_insert((place, header));
                }
            }
            // The header that says where the log goes on may be damaged too.
            let Some(segment) = beside.pop_first() else { return behind };
            if !begun.contains(&segment) && !self.later_in(segment, 0..shape.segment_blocks.min(NEAR)).is_empty() {
                begun.insert(segment);
                places.push((segment, 0));
            }
        }
    }

    /// The chunks between two slots of a segment that come behind the end of the log.
    fn later_in(&self, segment: SegmentNo, slots: Range<u32>) -> Vec<(Place, ChunkHeader)> {
        let counts = |header: &ChunkHeader| self.is_of_this_log(header) && header.sequence >= self.core.next_sequence;
        headers_in(self.named, &self.core.superblock, segment, slots, counts).chunks
    }

    /// The segments beside these in which the log may go on. Where a chunk may fill its segment, its header alone says where it does; such segments are small, and so are stores of them: it is all
    /// others.
    fn beside(&self, begun: &BTreeSet<SegmentNo>) -> BTreeSet<SegmentNo> {
        let Shape { segments, segment_blocks } = self.core.layout.shape();
        let is_small = segment_blocks <= CHUNK_BLOCKS + 1;
        let near = if is_small { segments } else { (NEAR / 2).div_ceil(segment_blocks) };
        let is_beside = |number: u32| begun.iter().any(|begun| begun.0.abs_diff(number) <= near);
        let may_go_on = |(number, row): &(SegmentNo, &Segment)| {
            is_beside(number.0) && (is_small || row.live == 0) && !self.core.superblock.is_system(*number)
        };
        let rows = (0..).map(SegmentNo).zip(self.core.layout.table());
        rows.filter(may_go_on).map(|(number, _)| number).collect()
    }
}
