//! Finds losses at the end of the log, by the marks of flushes that later chunks carry and by what each chunk repeats
//! of the one before it.
//!
//! The log ends at the first chunk that is missing or not whole. There are three cases:
//! - A mark says that this chunk had been flushed: flushed data is lost.
//! - A flush had promised the chunk, and whether that flush was answered is unknown: flushed data is perhaps lost.
//! - Neither: the chunk was never reported as durable. That is how a power cut leaves the log.
//!
//! No later chunk repeats the very last one. For it only the remains of its own header are left to go by.
//!
//! The blocks of a chunk are named by its own header, and by that of the chunk after it. If both are damaged,
//! nothing names them.
//!
//! Damage may hide more than one chunk. So in each stream the search continues for [`SEARCH_DISTANCE`] behind the last
//! chunk found in its segment, and in the neighbouring segments that hold nothing.
//!
//! Memory: at most 64 MiB, however much lies behind the end: numbers and places of chunks (32 MiB), and runs of lost
//! blocks. Headers are read again when they are needed.

use std::collections::BTreeSet;
use std::ops::Range;

use umbrella_policy::log_layout::{LogBlock, Segment, SegmentNo, Shape};

use super::buffer::CHUNK_BLOCKS;
use super::chunks_behind::ChunksBehind;
use super::follow::Replay;
use super::format::{BLOCK_BYTES, ChunkHeader, Entry, ExpectedChunk, Repeat, Sequence, promised_in};
use super::headers::for_each_header;
use super::loss::{BlockRuns, Loss};

/// How far behind the end of a stream later chunks are looked for, in blocks: 64 MiB.
const SEARCH_DISTANCE: u32 = 64 << 8;
impl Replay<'_> {
    /// How far the log had been flushed, and promised to be, as all chunks say that there are.
    pub(super) fn marks(&self, behind: &ChunksBehind) -> (Sequence, Sequence) {
        let (flushed, promised) = behind.mark();
        (self.mark.0.max(flushed), self.mark.1.max(promised))
    }

    /// What is lost at the end of the log, if anything that was flushed may be.
    pub(super) fn loss(&self, behind: &ChunksBehind) -> Option<Loss> {
        let first = self.core.next_sequence;
        let (flushed, promised) = self.marks(behind);
        let promised = promised.max(self.promised_at_end().unwrap_or(first.before()));
        let is_certain = first <= flushed;
        let last = if is_certain { flushed } else { promised };
        if first > last {
            return None;
        }
        let (mut blocks, mut among, mut known) = (BlockRuns::default(), BlockRuns::default(), 0);
        for (number, place) in behind.range(first, last.next()) {
            let Some(header) = self.behind_at(place, number) else { continue };
            if number <= last {
                known += u64::from(blocks.add(header.entries.iter().map(Entry::blocks)));
            }
            if behind.follows_gap(first, number)
                && let Some(Repeat { runs, is_exact, .. }) = header.before
            {
                known += u64::from(if is_exact { blocks.add(runs) } else { among.add(runs) });
            }
        }
        let unknown = (last.0 - first.0).saturating_add(1).saturating_sub(known);
        Some(Loss { first, last, is_certain, blocks: blocks.joined(), among: among.joined(), unknown })
    }

    /// What the chunk after one repeats of it.
    pub(super) fn repeated(&self, behind: &ChunksBehind, number: Sequence) -> Option<Repeat> {
        let next = number.next();
        self.behind_at(behind.place(next)?, next)?.before
    }

    /// A chunk that was found behind the end of the log.
    fn behind_at(&self, place: LogBlock, number: Sequence) -> Option<ChunkHeader> {
        let counts = |header: &ChunkHeader| self.is_of_this_log(header) && header.sequence == number;
        self.named.chunk_header(&self.core.superblock, place).filter(counts)
    }

    /// The last chunk that a flush may have promised, if only a damaged header is left of it where a stream continues.
    fn promised_at_end(&self) -> Option<Sequence> {
        let (shape, first) = (self.core.layout.shape(), self.core.next_sequence);
        let heads: Vec<_> = self.core.layout.heads().filter_map(|head| head.open).collect();
        let wanted = ExpectedChunk {
            epochs: self.core.epoch..=self.last_epoch,
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

    /// The chunks behind the end of the log, as far as they are near to where it ends.
    pub(super) fn behind(&self) -> ChunksBehind {
        let shape = self.core.layout.shape();
        let heads: Vec<_> = self.core.layout.heads().collect();
        let open = heads.iter().filter_map(|head| head.open);
        let next = heads.iter().filter_map(|head| head.next).map(|segment| (segment, 0));
        let mut places: Vec<(SegmentNo, u32)> = open.chain(next).collect();
        let mut begun: BTreeSet<SegmentNo> = places.iter().map(|(segment, _)| *segment).collect();
        let mut beside = self.beside(&begun);
        let mut behind = ChunksBehind::default();
        loop {
            while let Some((segment, slot)) = places.pop() {
                let (mut continues, mut next) = (None, Vec::new());
                let slots = slot..shape.segment_blocks.min(slot.saturating_add(SEARCH_DISTANCE));
                self.for_each_later(segment, slots, |place, header| {
                    continues = Some((segment, shape.slot(place) + header.blocks()));
                    next.extend(header.next.filter(|next| begun.insert(*next)).map(|segment| (segment, 0)));
                    behind.note(place, header);
                });
                places.extend(continues.into_iter().chain(next));
            }
            // The header that says where the log continues may be damaged too.
            let Some(segment) = beside.pop_first() else { return behind };
            if !begun.contains(&segment) {
                let mut found = false;
                self.for_each_later(segment, 0..shape.segment_blocks.min(SEARCH_DISTANCE), |_, _| found = true);
                if found {
                    begun.insert(segment);
                    places.push((segment, 0));
                }
            }
        }
    }

    /// Gives `each` the chunks between two slots of a segment that come behind the end of the log.
    fn for_each_later(&self, segment: SegmentNo, slots: Range<u32>, each: impl FnMut(LogBlock, &ChunkHeader)) {
        let counts = |header: &ChunkHeader| {
            self.later.note(header, self.first_epoch);
            self.is_of_this_log(header) && header.sequence >= self.core.next_sequence
        };
        for_each_header((self.named, &self.core.superblock), segment, slots, counts, each);
    }

    /// The segments beside these in which the log may continue. Where a chunk may fill its segment, its header alone
    /// says where it does; such segments are small, and so are stores of them: it is all others.
    fn beside(&self, begun: &BTreeSet<SegmentNo>) -> BTreeSet<SegmentNo> {
        let Shape { segments, segment_blocks } = self.core.layout.shape();
        let is_small = segment_blocks <= CHUNK_BLOCKS + 1;
        let near = if is_small { segments } else { (SEARCH_DISTANCE / 2).div_ceil(segment_blocks) };
        let is_beside = |number: u32| begun.iter().any(|begun| begun.0.abs_diff(number) <= near);
        let may_go_on = |(number, row): &(SegmentNo, &Segment)| {
            is_beside(number.0) && (is_small || row.live == 0) && !self.core.superblock.is_system(*number)
        };
        let rows = (0..).map(SegmentNo).zip(self.core.layout.table());
        rows.filter(may_go_on).map(|(number, _)| number).collect()
    }
}
