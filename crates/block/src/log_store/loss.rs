//! Losses at the end of the log, and how they are reported.

use std::fmt;
use std::ops::Range;

use umbrella_units::BlockNo;

use super::format::{CheckpointNo, PendingLoss, Sequence, joined};

/// The most runs of blocks that are shown.
const MOST_RUNS: usize = 32;
/// The most runs of blocks that are kept: 32 MiB at most while they are joined. Further losses count as unknown.
pub(super) const MOST_KEPT_RUNS: usize = if cfg!(test) { 4096 } else { 1 << 20 };

/// The most runs that wait to be joined, beside as many as there were after the last time.
const JOIN_FROM: usize = 1024;

/// Flushed data that the log has no more, for certain or perhaps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loss {
    /// The first chunk that is missing or not whole.
    pub first: Sequence,
    /// The last one that had been flushed, or promised.
    pub last: Sequence,
    /// Whether they had been flushed. If not, the store ended while it flushed them, and perhaps no flush reported that
    /// they are durable.
    pub is_certain: bool,
    /// Blocks that were written or discarded in them, as far as they are known, in order.
    pub blocks: Vec<Range<u64>>,
    /// Ranges of which only some blocks were written or discarded in them.
    pub among: Vec<Range<u64>>,
    /// Number of chunks whose blocks are unknown.
    pub unknown: u64,
}

/// Runs of blocks, a bounded number of them.
#[derive(Debug, Default)]
pub(super) struct BlockRuns {
    runs: Vec<Range<u64>>,
    /// How many there were when they were joined last.
    joined: usize,
}

impl BlockRuns {
    /// Adds some, unless there are too many. Returns whether it did.
    pub(super) fn add(&mut self, more: impl IntoIterator<Item = Range<u64>>) -> bool {
        if self.joined >= MOST_KEPT_RUNS / 2 {
            return false;
        }
        self.runs.extend(more);
        if self.runs.len() > 2 * self.joined + JOIN_FROM {
            self.runs = joined(std::mem::take(&mut self.runs));
            self.joined = self.runs.len();
        }
        true
    }

    /// In order, none of them touching the next.
    pub(super) fn joined(self) -> Vec<Range<u64>> {
        joined(self.runs)
    }
}

/// Ranges of blocks, for people: the first of them.
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
                "flushed data is lost: the log is damaged at chunk {first}, and had been flushed up to chunk {last};"
            )?;
        } else {
            write!(
                f,
                "flushed data is perhaps lost: the log ends before chunk {first}, and was being flushed up to chunk {last};"
            )?;
        }
        let mut reported = false;
        if !self.blocks.is_empty() {
            write!(f, " blocks {}", BlockRanges(&self.blocks))?;
            reported = true;
        }
        if !self.among.is_empty() {
            write!(f, "{} some of blocks {}", if reported { ", and" } else { "" }, BlockRanges(&self.among))?;
            reported = true;
        }
        match (self.unknown, reported) {
            (0, _) => {}
            (unknown, false) => write!(f, " unknown blocks in {unknown} chunks")?,
            (unknown, true) => write!(f, ", and unknown blocks in {unknown} chunks")?,
        }
        write!(f, " have older data")
    }
}

impl Loss {
    /// What an opening that was cut off had to tell, if anything.
    pub(super) fn of_pending(pending: &PendingLoss) -> Option<Loss> {
        let PendingLoss { first, last, unknown, ref blocks, ref among, .. } = *pending;
        let (blocks, among) = (blocks.clone(), among.clone());
        (first <= last).then_some(Loss { first, last, is_certain: false, blocks, among, unknown })
    }

    /// The entry in the superblock while the loss has not been reported. The log starts at this checkpoint, was flushed
    /// up to one chunk, and ends before the other.
    pub(super) fn pending(
        loss: Option<&Loss>,
        (checkpoint, flushed, end): (CheckpointNo, Sequence, Sequence),
    ) -> PendingLoss {
        let loss = loss.cloned().unwrap_or(Loss {
            first: Sequence(1),
            last: Sequence(0),
            is_certain: false,
            blocks: Vec::new(),
            among: Vec::new(),
            unknown: 0,
        });
        let Loss { first, last, blocks, among, unknown, .. } = loss;
        PendingLoss { checkpoint, flushed, end, first, last, unknown, blocks, among }.fitting()
    }

    /// Both together, each perhaps lost.
    pub(super) fn and(self, other: Loss) -> Loss {
        let both = |own: Vec<Range<u64>>, more: Vec<Range<u64>>| joined(own.into_iter().chain(more).collect());
        Loss {
            first: self.first.min(other.first),
            last: self.last.max(other.last),
            is_certain: false,
            blocks: both(self.blocks, other.blocks),
            among: both(self.among, other.among),
            unknown: self.unknown.saturating_add(other.unknown),
        }
    }

    /// Whether a block may be one of those that are lost.
    pub fn has(&self, block: BlockNo) -> bool {
        self.blocks.iter().chain(&self.among).any(|run| run.contains(&block.0))
    }
}
