//! A loss that an opening found at the end of the log, in the superblock. It has to be reported, and the evidence for
//! it is about to be overwritten.
//!
//! An opening writes it before it changes anything else. It removes it when it has reported the loss and its checkpoint
//! counts. An opening that a power cut ends leaves it to the next one. It follows the checksum in the block of the
//! superblock; if there is none, that place is zero.
//!
//! ```text
//! offset  bytes
//!    512      8  number of the checkpoint that the log was followed from
//!    520      8  the last chunk that had been flushed, as the log says
//!    528      8  the chunk before which the log ends
//!    536      8  the first chunk that is lost, or 1
//!    544      8  the last chunk that a flush had promised, or 0 if nothing is lost
//!    552      8  chunks whose blocks are unknown
//!    560      2  runs of lost blocks, together with those of the next field 220 at most
//!    562      2  ranges in which only some blocks are lost
//!    564      4  reserved
//!    568   3520  runs, then ranges, 16 bytes each: the first block, and the block behind the last
//!   4088      8  reserved
//! ```

use std::ops::Range;

use super::error::{Field, FormatError, Limit, Structure};
use super::ids::{CheckpointNo, Sequence};
use super::raw::{FieldReader, Writer, check};
use super::repeat::{joined, merge_until};

/// Runs and ranges that there is room for.
pub(super) const MOST_RUNS: usize = 220;
const THIS: Structure = Structure::Superblock;

/// A loss at the end of the log that was not reported yet, and how far the log had been flushed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PendingLoss {
    /// The checkpoint that the log was followed from.
    pub checkpoint: CheckpointNo,
    /// The last chunk that had been flushed, as the log says.
    pub flushed: Sequence,
    /// The chunk before which the log ends.
    pub end: Sequence,
    /// The first chunk that is lost.
    pub first: Sequence,
    /// The last one that a flush had promised; the one before `first` if nothing is lost.
    pub last: Sequence,
    /// Chunks whose blocks are unknown.
    pub unknown: u64,
    /// Blocks that were written or discarded in the others.
    pub blocks: Vec<Range<u64>>,
    /// Ranges in which only some blocks were.
    pub among: Vec<Range<u64>>,
}

impl PendingLoss {
    /// The same with no more runs than there is room for. If there are more, they become ranges in which only some
    /// blocks are lost.
    pub(in crate::log_store) fn fitting(mut self) -> PendingLoss {
        if self.blocks.len() + self.among.len() > MOST_RUNS {
            let all = std::mem::take(&mut self.blocks).into_iter().chain(std::mem::take(&mut self.among));
            self.among = merge_until(joined(all.collect()), |runs| runs.len() <= MOST_RUNS).0;
        }
        self
    }

    pub(super) fn parse(mut fields: FieldReader<'_>) -> Result<PendingLoss, FormatError> {
        let checkpoint = CheckpointNo(fields.u64()?);
        let [flushed, end] = [fields.u64()?, fields.u64()?].map(Sequence);
        let [first, last] = [fields.u64()?, fields.u64()?].map(Sequence);
        let unknown = fields.u64()?;
        let counts = [fields.u16()?, fields.u16()?];
        fields.reserved(4)?;
        let mut runs = |count| (0..count).map(|_| Ok(fields.u64()?..fields.u64()?)).collect::<Result<_, FormatError>>();
        let [blocks, among] = [runs(counts[0])?, runs(counts[1])?];
        fields.finish()?;
        Ok(PendingLoss { checkpoint, flushed, end, first, last, unknown, blocks, among })
    }

    pub(super) fn encode(&self, fields: &mut Writer) {
        fields.u64(self.checkpoint.0);
        for number in [self.flushed, self.end, self.first, self.last] {
            fields.u64(number.0);
        }
        fields.u64(self.unknown);
        fields.u16(self.blocks.len() as u16);
        fields.u16(self.among.len() as u16);
        fields.skip(4);
        for run in self.blocks.iter().chain(&self.among) {
            fields.u64(run.start);
            fields.u64(run.end);
        }
    }

    /// Checks that a store of `advertised` logical blocks can have lost it.
    pub(super) fn check(&self, advertised: u64) -> Result<(), FormatError> {
        let field = Field::PendingLoss;
        check(THIS, field, (self.blocks.len() + self.among.len()) as u64, Limit::AtMost(MOST_RUNS as u64))?;
        check(THIS, field, self.first.0, Limit::AtLeast(1))?;
        check(THIS, field, self.last.0, Limit::AtLeast(self.first.0 - 1))?;
        for run in self.blocks.iter().chain(&self.among) {
            check(THIS, field, run.end, Limit::AtMost(advertised))?;
            check(THIS, field, run.start, Limit::AtMost(run.end.saturating_sub(1)))?;
            check(THIS, field, run.end, Limit::AtLeast(1))?;
        }
        Ok(())
    }
}
