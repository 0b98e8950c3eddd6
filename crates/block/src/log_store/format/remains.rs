//! The readable remains of a damaged header of a chunk: enough to know that there was one, and whether a flush had
//! promised it.
//!
//! If a power cut tore the header, its first sector is whole or absent. Then magic, store, epoch, number and mark
//! agree, and the mark shows that no flush had promised anything. If damage hit the header, one of them may be wrong.
//! If another epoch or mark makes the header whole, that field was the wrong one.

use std::ops::{Range, RangeInclusive};

use super::chunk::{CHECKSUM_AT, Entry, FIRST_ENTRY_AT, MAGIC, WITH_REPEAT};
use super::error::Structure;
use super::raw::{Block, FieldReader};
use super::{CheckpointNo, Incompat, Sequence, Superblock};

const STORE_AT: usize = 16;
const EPOCH_AT: usize = 32;
const NUMBER_AT: usize = 40;

/// What may be in the header of a chunk that comes next.
#[derive(Debug, Clone)]
pub(in crate::log_store) struct ExpectedChunk {
    /// The checkpoints that it may come after.
    pub(in crate::log_store) epochs: RangeInclusive<CheckpointNo>,
    /// Its number.
    pub(in crate::log_store) numbers: Range<Sequence>,
}

/// How many chunks before it may be the last that its mark says to be flushed, where that is tried.
const MOST_UNFLUSHED: u64 = 4096;

/// A block that was the header of a chunk, or that had a part of one.
struct Remains<'a> {
    bytes: &'a Block,
    version: u16,
}

/// The number of the chunk whose header this was, if it may have been reported as durable.
pub(in crate::log_store) fn promised_in(
    bytes: &Block,
    superblock: &Superblock,
    wanted: &ExpectedChunk,
) -> Option<Sequence> {
    let remains = Remains { bytes, version: u16::from_le_bytes(field(bytes, 4)) };
    if remains.is_whole() || !superblock.incompat.has(Incompat::MARKS) {
        return None;
    }
    let epoch = CheckpointNo(u64::from_le_bytes(field(bytes, EPOCH_AT)));
    let found = Sequence(u64::from_le_bytes(field(bytes, NUMBER_AT)));
    let is_numbered = wanted.numbers.contains(&found);
    let is_right = [
        bytes.starts_with(MAGIC),
        field(bytes, STORE_AT) == *superblock.store.as_bytes(),
        wanted.epochs.contains(&epoch),
        is_numbered,
    ];
    if is_right.into_iter().filter(|right| *right).count() < 3 {
        return None;
    }
    let number = if is_numbered { found } else { wanted.numbers.start };
    // What was there before the last opening has another epoch.
    let is_of_this_log = wanted.epochs.contains(&epoch) || remains.is_whole_with_epoch(&wanted.epochs);
    (is_of_this_log && remains.is_promised(number)).then_some(number)
}

impl Remains<'_> {
    fn is_whole(&self) -> bool {
        FieldReader::open(Structure::Chunk, self.bytes, MAGIC, CHECKSUM_AT).is_ok()
    }

    fn is_whole_with(&self, at: usize, field: &[u8]) -> bool {
        let mut bytes = *self.bytes;
        bytes.iter_mut().skip(at).zip(field).for_each(|(to, from)| *to = *from);
        Remains { bytes: &bytes, ..*self }.is_whole()
    }

    fn is_whole_with_epoch(&self, epochs: &RangeInclusive<CheckpointNo>) -> bool {
        (epochs.start().0..=epochs.end().0).any(|epoch| self.is_whole_with(EPOCH_AT, &epoch.to_le_bytes()))
    }

    /// Whether its mark promises it, or may have done so before it was damaged.
    fn is_promised(&self, number: Sequence) -> bool {
        if self.mark().is_none_or(|(_, promised)| promised >= number) {
            return true;
        }
        let mark = |flushed| Entry::Mark { flushed: Sequence(flushed), promised: (number.0 - flushed) as u32 };
        let mut flushed = number.0.saturating_sub(MOST_UNFLUSHED)..number.0;
        flushed.any(|flushed| self.is_whole_with(FIRST_ENTRY_AT, &mark(flushed).bytes(self.version)))
    }

    /// Its mark, which is the first entry of each chunk.
    fn mark(&self) -> Option<(Sequence, Sequence)> {
        let mut fields = FieldReader::plain(Structure::Chunk, self.bytes.get(FIRST_ENTRY_AT..)?);
        let entry = match self.version {
            1 => Entry::parse(&mut fields, 0),
            WITH_REPEAT => Entry::parse_packed(&mut fields, 0),
            _ => return None,
        };
        entry.ok()?.mark()
    }
}

fn field<const N: usize>(bytes: &Block, at: usize) -> [u8; N] {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).copied().unwrap_or([0; N])
}
