//! Skips damaged parts of the log that had been flushed, for a store that has to continue without them (`--salvage`).
//!
//! A chunk whose header is whole is taken, without its damaged blocks. A chunk whose header is damaged is known by what
//! the next header repeats of it. Those blocks are *lost*: the map marks them until they are written or discarded
//! again, and reads of them fail. If the next header does not name the blocks, or only roughly, nothing is skipped:
//! older data would be taken for the flushed data.

use std::ops::Range;

use umbrella_units::BlockNo;

use super::chunks_behind::ChunksBehind;
use super::error::LogStoreError;
use super::follow::Replay;
use super::format::{BLOCK_BYTES, Checksum, ChunkHeader, LogBlock, Sequence, Slot, joined};

/// The most blocks that may be lost. Lost discards may concern any number of blocks, and with more the map would not
/// fit into memory.
const MOST_LOST: u64 = 1 << 22;

impl Replay<'_> {
    /// Skips the next chunk if it had been flushed and the blocks lost with it are known. Returns whether it did.
    pub(super) fn skip(&mut self) -> Result<bool, LogStoreError> {
        let (behind, certain) = self.skipped.behind.take().unwrap_or_else(|| {
            let behind = self.behind();
            let (certain, _) = self.marks(&behind);
            (behind, certain)
        });
        let wanted = self.core.next_sequence;
        let done = if wanted > certain {
            Ok(false)
        } else if let Some((place, header)) = self.next() {
            self.take_intact_blocks(place, &header)
        } else {
            self.skip_unread(&behind, wanted)
        };
        self.skipped.behind = Some((behind, certain));
        done
    }

    /// Blocks that were skipped and have not been written since, in order.
    pub(super) fn still_lost(&mut self) -> Vec<Range<u64>> {
        let mut lost = Vec::new();
        for run in joined(std::mem::take(&mut self.skipped.blocks)) {
            let is_lost = |block: &u64| self.core.map.is_lost(BlockNo(*block)).unwrap_or(true);
            lost.extend(run.filter(is_lost).map(|block| block..block + 1));
        }
        joined(lost)
    }

    fn take_intact_blocks(&mut self, place: LogBlock, header: &ChunkHeader) -> Result<bool, LogStoreError> {
        let mut block = [0; BLOCK_BYTES];
        let (mut bad, mut lost) = (Vec::new(), Vec::new());
        for (entry, slot) in header.slots() {
            let (Some(slot), Some(checksum)) = (slot, entry.checksum()) else { continue };
            let at = LogBlock(place.0 + u64::from(slot.0));
            let is_read = self.named.log(&self.core.superblock, at, &mut block).is_ok();
            if !is_read || Checksum::of(&block) != checksum {
                bad.push(slot);
                lost.push(entry.blocks());
            }
        }
        if lost.len() as u64 + self.core.map.lost() > MOST_LOST {
            return Ok(false);
        }
        self.skipped.blocks.extend(lost);
        self.unreadable.remove(&place);
        self.enter(place, header, |slot: Slot| !bad.contains(&slot))?;
        Ok(true)
    }

    /// Skips a chunk whose header cannot be used.
    fn skip_unread(&mut self, behind: &ChunksBehind, number: Sequence) -> Result<bool, LogStoreError> {
        let Some(repeat) = self.repeated(behind, number).filter(|repeat| repeat.is_exact) else {
            return Ok(false);
        };
        let (shape, place) = (self.core.layout.shape(), repeat.place);
        let head = self.core.layout.heads().nth(usize::from(repeat.stream.0)).and_then(|head| head.open);
        let lost: u64 = repeat.runs.iter().map(|run| run.end - run.start).sum();
        if head != Some((shape.segment(place), shape.slot(place))) || lost + self.core.map.lost() > MOST_LOST {
            return Ok(false);
        }
        let runs = repeat.runs.clone();
        let chunk = self.begin(place, repeat, self.core.layout.clock())?;
        for block in runs.iter().cloned().flatten() {
            self.lose(BlockNo(block))?;
        }
        self.skipped.blocks.extend(runs);
        self.unreadable.remove(&place);
        self.end(chunk)?;
        Ok(true)
    }
}
