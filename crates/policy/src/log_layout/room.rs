//! How much of a log may be promised to the user.
//!
//! Cleaning must always be able to continue, whatever the user wrote. The segments that it may need at once are set
//! apart and never promised:
//!
//! - two segments a stream: the open one and the next;
//! - two more a stream, into which live blocks go before the segments they came from are free again. This number is
//!   cleaned before a flush, so that the chunks it cuts short cost less than was gained;
//! - twice the pages of the logical map: a checkpoint may have to write every page anew before the old ones are free;
//! - two, so that a checkpoint that frees nothing by itself does not stop cleaning;
//! - one in which the user's writes leave the first dead blocks.
//!
//! All else is promised, less the share that is kept spare for speed. So while the user's live blocks are at most that
//! many, some full segment holds a dead block. Cleaning it gains at least that block, and the log never ends in a state
//! that it cannot leave.

use super::ids::Shape;
use super::map::PAGE_ENTRIES;

/// What the size of a log is computed from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// The whole log.
    pub shape: Shape,
    /// Segments that are not part of it.
    pub system: u32,
    /// Streams, with that of the map if there is one.
    pub streams: u8,
    /// Blocks of a chunk with its header; nothing for a log without headers.
    pub chunk: Option<u32>,
    /// Whether the map lies in the log.
    pub map: bool,
}

/// Shares in thousandths.
const WHOLE: u64 = 1000;

impl Room {
    /// Blocks of a segment that can hold data: all but the headers.
    pub fn usable(self) -> u32 {
        let blocks = self.shape.segment_blocks;
        let Some(chunk) = self.chunk else { return blocks };
        let rest = blocks % chunk;
        blocks - blocks / chunk - rest.min(1)
    }

    /// Segments that two copies of all pages of the map take.
    pub fn map_segments(self) -> u32 {
        let pages = if self.map { self.shape.blocks().div_ceil(PAGE_ENTRIES as u64) } else { 0 };
        (2 * pages).div_ceil(u64::from(self.usable()).max(1)) as u32
    }

    /// Free segments that only the cleaner and checkpoints may open.
    pub fn reserve(self) -> u32 {
        (2 * u32::from(self.streams)).saturating_add(self.map_segments()).saturating_add(2)
    }

    /// How many blocks may be promised when `spare` thousandths of what is possible are kept back; nothing when the log
    /// is too small.
    pub fn advertised(self, spare: u32) -> Option<u64> {
        let kept = self.reserve().checked_add(2 * u32::from(self.streams) + 1)?.checked_add(self.system)?;
        let segments = self.shape.segments.checked_sub(kept)?;
        let blocks = u64::from(segments) * u64::from(self.usable());
        let promised = blocks / WHOLE * (WHOLE - u64::from(spare).min(WHOLE))
            + blocks % WHOLE * (WHOLE - u64::from(spare).min(WHOLE)) / WHOLE;
        (promised > 0).then_some(promised)
    }
}
