//! Whether a checkpoint is lost that was newer than the one that the store is opened from: a disk can damage it, or
//! lose the write of it.
//!
//! Nothing about the checkpoints themselves tells a lost write from a power cut in the middle of a checkpoint. The log
//! does:
//!
//! * A chunk that is two checkpoints ahead was written after the one between them had become durable. An opening that
//!   is cut off writes such chunks too, but only pages of the map are in them.
//! * A chunk says how far the log had been flushed when it was written. If it lies where the log continues, and says
//!   that what should be there had been flushed, its segment was written anew after a checkpoint that is lost.
//!
//! With such evidence the chunks after the lost checkpoint count as well, so that the log is followed to its end. What
//! it no longer has is lost, and reported ([`Loss`](super::loss::Loss)).
//!
//! Cost: a block for each stream, and one for each segment if the newest checkpoint is damaged or a stream waits for
//! one that is not there.

use umbrella_policy::log_layout::{LogBlock, SegmentNo};

use super::follow::Replay;
use super::format::{CheckpointNo, ChunkHeader, Sequence};
use super::later_checkpoint::OF_AN_OPENING;

impl Replay<'_> {
    /// Whether a newer checkpoint than the one that the log is followed from is lost.
    pub(super) fn lacks_checkpoint(&self) -> bool {
        self.later.seen().is_some()
    }

    /// Whether nothing says that the log should continue.
    pub(super) fn ends_at_checkpoint(&self) -> bool {
        !self.lacks_checkpoint() && self.mark.0 < self.core.next_sequence
    }

    /// Notes what a chunk says of later checkpoints, wherever it lies.
    pub(super) fn note_later(&mut self, header: &ChunkHeader) {
        if self.later.note(header, self.first_epoch)
            && let Some((flushed, _)) = header.mark()
        {
            self.mark.0 = self.mark.0.max(flushed);
        }
    }

    /// Lets the chunks after a lost checkpoint count, if one is; whether more of them do than before.
    pub(super) fn extend(&mut self) -> bool {
        self.note_begins_of_segments();
        let Some(seen) = self.later.seen() else { return false };
        let last = CheckpointNo((self.first_epoch.0 + OF_AN_OPENING).max(seen.0.saturating_add(1)));
        if last <= self.last_epoch {
            return false;
        }
        self.last_epoch = last;
        self.waiting.fill(None);
        true
    }

    /// The segments in which streams continue may have been written anew.
    fn note_begins_of_segments(&mut self) {
        let heads: Vec<_> = self.core.layout.heads().collect();
        let open = heads.iter().filter_map(|head| head.open).map(|(segment, _)| segment);
        for segment in open.chain(heads.iter().filter_map(|head| head.next)).collect::<Vec<_>>() {
            self.note_begin(segment);
        }
    }

    /// Notes what the first chunk of a segment says; its number if it says nothing of flushes, as those of older
    /// programs do.
    fn note_begin(&mut self, segment: SegmentNo) -> Option<Sequence> {
        let place: LogBlock = self.core.layout.shape().place(segment, 0);
        let header = self.named.chunk_header(&self.core.superblock, place)?;
        self.note_later(&header);
        (header.mark().is_none() && self.later.note(&header, self.first_epoch)).then_some(header.sequence)
    }

    /// Whether a stream cannot continue before a checkpoint says where.
    pub(super) fn waits_for_checkpoint(&self) -> bool {
        self.core.layout.heads().any(|head| head.open.is_none())
    }

    /// Notes what the first chunk of every segment says. If a newer checkpoint is damaged, all chunks that say nothing
    /// may have been flushed.
    ///
    /// Cost: a block of every segment is read.
    pub(super) fn note_all_segments(&mut self, is_damaged: bool) {
        let segments = (0..self.core.layout.shape().segments).map(SegmentNo);
        let of_log: Vec<_> = segments.filter(|segment| !self.core.superblock.is_system(*segment)).collect();
        let store = &self.named.name;
        tracing::warn!(
            store,
            segments = of_log.len(),
            "a checkpoint is damaged: reading the beginning of each segment"
        );
        let last = of_log.into_iter().filter_map(|segment| self.note_begin(segment)).max();
        self.mark.0 = self.mark.0.max(last.filter(|_| is_damaged).unwrap_or_default());
    }
}
