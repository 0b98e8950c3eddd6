//! What chunks show of checkpoints that are newer than the one that the log is followed from; see `lost_checkpoint`.

use std::cell::Cell;

use super::counts::MOST;
use super::format::{CheckpointNo, ChunkHeader, Entry, Sequence};

/// Epochs that one opening and what is written after it can add: of its first chunks, of its checkpoint, and of the one
/// being made.
pub(super) const OF_AN_OPENING: u64 = 4;

/// What chunks say of checkpoints after the one that the log is followed from.
#[derive(Debug)]
pub(super) struct LaterCheckpoint {
    /// The first chunk after the checkpoint that the log is followed from.
    begin: Sequence,
    /// The last epoch that shows that a checkpoint is lost.
    seen: Cell<Option<CheckpointNo>>,
}

impl LaterCheckpoint {
    /// For a log from this chunk on; `known` is a newer checkpoint whose header alone exists.
    pub(super) fn new(begin: Sequence, known: Option<CheckpointNo>) -> LaterCheckpoint {
        LaterCheckpoint { begin, seen: Cell::new(known) }
    }

    /// The last epoch that shows that a checkpoint is lost, if one does.
    pub(super) fn seen(&self) -> Option<CheckpointNo> {
        self.seen.get()
    }

    /// Whether a chunk lies in the log after the checkpoint; if so, what it shows is noted.
    pub(super) fn note(&self, header: &ChunkHeader, first_epoch: CheckpointNo) -> bool {
        let is_later = header.sequence >= self.begin && header.epoch >= first_epoch && header.clock.0 <= MOST;
        if is_later && follows_lost_checkpoint(header, first_epoch) {
            self.seen.set(self.seen.get().max(Some(header.epoch)));
        }
        is_later
    }
}

/// Whether a chunk was written after a checkpoint that is newer than `first` had become durable.
fn follows_lost_checkpoint(header: &ChunkHeader, first: CheckpointNo) -> bool {
    let has_data = || header.entries.iter().any(|entry| matches!(entry, Entry::Data { .. } | Entry::Copy { .. }));
    match header.epoch.0.saturating_sub(first.0) {
        0 | 1 => false,
        // An opening that was cut off may have written a chunk with the epoch behind all that it let count.
        ahead => (3..=OF_AN_OPENING).contains(&ahead) || has_data(),
    }
}
