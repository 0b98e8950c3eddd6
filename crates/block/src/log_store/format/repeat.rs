//! The part of a chunk's header that repeats the chunk before it, of whichever stream. If that chunk's own header is
//! damaged, its block numbers are still known, though not their contents.
//!
//! ```text
//! offset  bytes
//!      0      1  1: it held these blocks; 2: it held some of these blocks, and no others
//!      1      1  its stream
//!      2      2  its blocks, with its header
//!      4      4  segment that its stream continues in, or 0xffffffff
//!      8      8  where it lies in the log
//!     16      1  bits of a gap, 0 to 41
//!     17      1  bits of a length, 0 to 41
//!     18      2  runs
//!     20    736  runs of blocks: the gap behind the run before, and the length less one, in as many bits; the lowest
//!                bits first; then zeroes
//! ```
//!
//! Runs are in order, and do not touch. If they do not all fit, the nearest ones are joined across the blocks between
//! them.

use std::ops::Range;

use super::error::{Field, FormatError, Limit, Structure};
use super::raw::{FieldReader, check};
use super::shape::Shape;
use super::{LogBlock, SegmentNo, Stream};

const THIS: Structure = Structure::Chunk;
/// Bytes that it takes in the header of a chunk.
pub(super) const REPEAT_BYTES: usize = 756;
const FRONT: usize = 20;
const ROOM: usize = (REPEAT_BYTES - FRONT) * 8;
/// No number of blocks needs more.
const MOST_BITS: u32 = 41;

/// What a chunk repeats of the chunk before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repeat {
    /// Its stream.
    pub stream: Stream,
    /// Where it lies.
    pub place: LogBlock,
    /// Its blocks, with its header.
    pub blocks: u32,
    /// Where its stream continues when its segment is full.
    pub next: Option<SegmentNo>,
    /// The blocks that were written or discarded in it: in order, none of them touching the next.
    pub runs: Vec<Range<u64>>,
    /// Whether it held all of them; else some.
    pub is_exact: bool,
}

/// The same blocks in as few runs as there can be, in order.
pub(in crate::log_store) fn joined(mut runs: Vec<Range<u64>>) -> Vec<Range<u64>> {
    runs.retain(|run| !run.is_empty());
    runs.sort_unstable_by_key(|run| run.start);
    joined_over(runs, 0)
}

/// The same with what lies between those that are not farther apart than this.
fn joined_over(runs: Vec<Range<u64>>, gap: u64) -> Vec<Range<u64>> {
    let mut joined: Vec<Range<u64>> = Vec::with_capacity(runs.len());
    for run in runs {
        match joined.last_mut() {
            Some(last) if run.start <= last.end.saturating_add(gap) => last.end = last.end.max(run.end),
            _ => joined.push(run),
        }
    }
    joined
}

/// The gap before each run, and its length less one.
fn pairs(runs: &[Range<u64>]) -> impl Iterator<Item = (u64, u64)> {
    let ends = std::iter::once(0).chain(runs.iter().map(|run| run.end));
    ends.zip(runs).map(|(end, run)| (run.start.saturating_sub(end), (run.end - run.start).saturating_sub(1)))
}

/// Bits of a gap and of a length that all of them fit into.
fn widths(runs: &[Range<u64>]) -> (u32, u32) {
    let width = |most: u64| u64::BITS - most.leading_zeros();
    let (gaps, lengths) = pairs(runs).fold((0, 0), |most, pair| (most.0 | pair.0, most.1 | pair.1));
    (width(gaps), width(lengths))
}

fn bits(runs: &[Range<u64>]) -> usize {
    let (gap, length) = widths(runs);
    runs.len() * (gap + length) as usize
}

/// As many of the runs as fit, small gaps filled where they do not, and whether these are all of them.
pub(super) fn fitting(runs: Vec<Range<u64>>) -> (Vec<Range<u64>>, bool) {
    merge_until(joined(runs), |runs| bits(runs) <= ROOM)
}

/// Fills the smallest gaps between the runs until they fit; whether they did at once.
pub(super) fn merge_until(mut runs: Vec<Range<u64>>, fits: impl Fn(&[Range<u64>]) -> bool) -> (Vec<Range<u64>>, bool) {
    let mut is_exact = true;
    while !fits(&runs) {
        let least = pairs(&runs).skip(1).map(|(gap, _)| gap).min().unwrap_or(0);
        runs = joined_over(runs, least);
        is_exact = false;
    }
    (runs, is_exact)
}

impl Repeat {
    /// As stored in a header.
    pub(super) fn encode(&self) -> [u8; REPEAT_BYTES] {
        let mut bytes = [0; REPEAT_BYTES];
        let (gap_bits, length_bits) = widths(&self.runs);
        let next = self.next.map_or(u32::MAX, |segment| segment.0);
        let front = [if self.is_exact { 1 } else { 2 }, self.stream.0].into_iter();
        let front = front.chain((self.blocks as u16).to_le_bytes()).chain(next.to_le_bytes());
        let front = front.chain(self.place.0.to_le_bytes()).chain([gap_bits as u8, length_bits as u8]);
        let front = front.chain((self.runs.len() as u16).to_le_bytes());
        bytes.iter_mut().zip(front).for_each(|(to, from)| *to = from);
        let (mut word, mut filled, mut rest) = (0_u128, 0, bytes.iter_mut().skip(FRONT));
        for (gap, length) in pairs(&self.runs) {
            word |= u128::from(gap) << filled | u128::from(length) << (filled + gap_bits);
            filled += gap_bits + length_bits;
            while filled >= 8 {
                if let Some(byte) = rest.next() {
                    *byte = word as u8;
                }
                word >>= 8;
                filled -= 8;
            }
        }
        if let Some(byte) = rest.next() {
            *byte = word as u8;
        }
        bytes
    }

    /// Reads it from a header.
    pub(super) fn parse(bytes: &[u8], shape: &Shape) -> Result<Repeat, FormatError> {
        let mut fields = FieldReader::plain(THIS, bytes);
        let kind = fields.u8()?;
        check(THIS, Field::Repeat, u64::from(kind), Limit::AtLeast(1))?;
        check(THIS, Field::Repeat, u64::from(kind), Limit::AtMost(2))?;
        let (stream, blocks, next) = (Stream(fields.u8()?), u32::from(fields.u16()?), fields.segment()?);
        let (place, gap_bits, length_bits) = (LogBlock(fields.u64()?), fields.u8()?, fields.u8()?);
        let count = usize::from(fields.u16()?);
        for width in [gap_bits, length_bits] {
            check(THIS, Field::Repeat, u64::from(width), Limit::AtMost(MOST_BITS.into()))?;
        }
        let needed = count * (usize::from(gap_bits) + usize::from(length_bits));
        check(THIS, Field::Repeat, needed as u64, Limit::AtMost(ROOM as u64))?;
        let (mut word, mut filled, mut rest) = (0_u128, 0, bytes.iter().skip(FRONT));
        let mut take = |width: u8| {
            while filled < u32::from(width) {
                word |= u128::from(rest.next().copied().unwrap_or(0)) << filled;
                filled += 8;
            }
            let value = word as u64 & ((1 << width) - 1);
            word >>= width;
            filled -= u32::from(width);
            value
        };
        let (mut runs, mut end) = (Vec::with_capacity(count), 0_u64);
        for _ in 0..count {
            let start = end.saturating_add(take(gap_bits));
            end = start.saturating_add(take(length_bits)).saturating_add(1);
            runs.push(start..end);
        }
        let repeat = Repeat { stream, place, blocks, next, runs, is_exact: kind == 1 };
        repeat.check(shape)?;
        // There is one way to write it.
        check(THIS, Field::Repeat, u64::from(repeat.encode().as_slice() == bytes), Limit::Exactly(1))?;
        Ok(repeat)
    }

    /// Whether the store has what it refers to.
    pub(super) fn check(&self, shape: &Shape) -> Result<(), FormatError> {
        let most = |value: u64, most: u64| check(THIS, Field::Repeat, value, Limit::AtMost(most));
        most(u64::from(self.stream.0), u64::from(shape.map_stream().0))?;
        most(self.place.0, shape.places().0 - 1)?;
        check(THIS, Field::Repeat, u64::from(self.blocks), Limit::AtLeast(1))?;
        most(u64::from(shape.slot_of(self.place).0) + u64::from(self.blocks), u64::from(shape.segment_blocks()))?;
        if let Some(next) = self.next {
            most(u64::from(next.0), u64::from(shape.segments()) - 1)?;
            let own = Limit::Not(u64::from(shape.segment_of(self.place).0));
            check(THIS, Field::Repeat, u64::from(next.0), own)?;
        }
        most(bits(&self.runs) as u64, ROOM as u64)?;
        most(self.runs.last().map_or(0, |run| run.end), shape.advertised().0)?;
        let apart = self.runs.iter().zip(self.runs.iter().skip(1)).all(|(run, next)| run.end < next.start);
        check(THIS, Field::Repeat, u64::from(apart && self.runs.iter().all(|run| !run.is_empty())), Limit::Exactly(1))
    }
}
