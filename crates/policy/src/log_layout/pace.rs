//! How hard the cleaner works, when a checkpoint is due, and how long writers wait for both.
//!
//! Users, the cleaner and checkpoints share one disk. Their shares follow from how much of the log is free:
//!
//! - Above the high mark nothing is cleaned. Down to the low one the cleaner works only in quiet times, when no request
//!   has come for a while.
//! - Below the low mark it works also while others want the disk. After each piece of work it rests, so that it has its
//!   share of the disk's time and no more. The share grows to all of it at the reserve ([`CleanerPolicy::rest`]).
//! - Over the same stretch each write is held back for a growing part of what it costs to clean as much as it took
//!   ([`CleanerPolicy::write_delay`]). At the reserve writes wait until something is free.
//! - A checkpoint is due when the log since the last one would take long to read after a crash. It is also due when
//!   little more of the map may change. In quiet times it is also made when it frees segments.
//!
//! The share, from 0 at the low mark to 1 at the reserve, is [`Layout::delay_share`].

use std::ops::RangeInclusive;

use umbrella_units::{Nanos, PAGE_BYTES, Pages};

use super::layout::Layout;
use super::map::PAGE_ENTRIES;
use super::reclaim::CleaningGoal;
use crate::flash_cache::Percent;

/// The longest that one write is held back because the log is filling up.
const MOST_DELAY: Nanos = Nanos::from_millis(100);
/// The longest rest after a piece of work, as a multiple of that work.
const MOST_REST: f64 = 20.0;
/// Least number of pages of the map in memory for each block of a segment, however little memory there is. Cleaning a
/// segment may change as many pages as it has live blocks. If each cleaning needed several checkpoints, they could cost
/// more than it gains.
const LEAST_PAGES: u64 = 2;
/// Memory that the map may always have, 16 MiB: the live blocks may be few and lie far apart.
const LITTLE_MAP: Pages = Pages((16 << 20) / PAGE_BYTES);
/// Most that the cleaner reads at once: 4 MiB. A larger segment is read in parts.
const READ_AT_ONCE: Pages = Pages(1024);
/// Little of a victim is live if that is at most the segment divided by this. With more, most of what lies between is
/// read anyway.
const SPARSE_DIVISOR: u64 = 6;
/// The most victims that are read at once.
const MOST_VICTIMS: u64 = 8;
/// When the map's memory is all in use, it divided by this is given up at once.
const GIVEN_UP: u64 = 8;
/// The log divided by this is the most that is written between two checkpoints: what lies in it cannot be cleaned for
/// good before the next one.
const MOST_LOG: u64 = 8;
/// Least that may be written between two checkpoints, 1 MiB, however small the log is.
const LEAST_LOG: Pages = Pages((1 << 20) / PAGE_BYTES);
/// The low and the high mark of a log: its segments divided by the first number are free above the reserve, within the
/// limits.
const LOW: (u32, RangeInclusive<u32>) = (50, 2..=256);
const HIGH: (u32, RangeInclusive<u32>) = (12, 4..=1024);

/// How many segments are free above the reserve when cleaning begins and ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Marks {
    /// Number of free segments from which down cleaning is due.
    pub low: u32,
    /// Number of free segments from which up cleaning is not worthwhile even when there is time.
    pub high: u32,
}

impl Marks {
    /// The marks of a log of this number of segments: a fiftieth of them and a twelfth. Limits keep one flush from
    /// using them up, and a large log from being cleaned long before it has to be.
    pub fn of(segments: u32) -> Marks {
        let part =
            |(divisor, limits): (u32, RangeInclusive<u32>)| (segments / divisor).clamp(*limits.start(), *limits.end());
        Marks { low: part(LOW), high: part(HIGH) }
    }
}

/// How a store shares its disk and its memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CleanerPolicy {
    /// The share of the disk's time that cleaning takes while others want the disk and cleaning is not urgent.
    pub clean_share: Percent,
    /// How long no request may have come before times are quiet.
    pub quiet: Nanos,
    /// The log that is written between two checkpoints at most.
    pub checkpoint_every: Pages,
    /// The most memory for the map, in pages of it.
    pub map_memory: Pages,
    /// How large a segment is.
    pub segment: Pages,
}

/// The state of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogUsage {
    /// Log written since the last checkpoint.
    pub since_checkpoint: Pages,
    /// Pages of the map that are changed.
    pub changed: Pages,
    /// For how long no request has come.
    pub since_access: Nanos,
    /// How many writes wait for room.
    pub waiting: u32,
}

impl CleanerPolicy {
    /// Most pages of the map that may be in memory: 8 bytes for each live block, however far apart the blocks lie, but
    /// at least a little.
    pub fn map_pages(&self, layout: &Layout) -> Pages {
        let dense = layout.live().0.div_ceil(PAGE_ENTRIES as u64);
        Pages(self.map_memory.0.min(dense.max(LITTLE_MAP.0)).max(LEAST_PAGES * self.segment.0))
    }

    /// Number of pages to which the map in memory is cut down now, when `present` are there. `None` while there is no
    /// need, or when too many are changed for it to gain much.
    pub fn cut_down(&self, layout: &Layout, present: Pages, changed: Pages) -> Option<Pages> {
        let keep = self.map_pages(layout).0;
        let unchanged = present.0.saturating_sub(changed.0);
        (present.0 > keep && unchanged > keep / GIVEN_UP).then(|| Pages(keep - keep / GIVEN_UP))
    }

    /// Whether a checkpoint is due, however busy the store is. It is due when the log since the last one has reached
    /// its limit, or when the changed pages of the map are half of their limit.
    pub fn checkpoint_is_due(&self, layout: &Layout, standing: &LogUsage) -> bool {
        let most = self.checkpoint_every.0.min(layout.shape.blocks() / MOST_LOG).max(LEAST_LOG.0);
        standing.since_checkpoint.0 >= most || standing.changed.0 >= self.map_pages(layout).0 / 2
    }

    /// Whether to make a checkpoint now: one is due, or times are quiet and it frees segments.
    pub fn makes_checkpoint(&self, layout: &Layout, standing: &LogUsage) -> bool {
        let (_, after_checkpoint) = layout.waiting();
        self.checkpoint_is_due(layout, standing) || (self.is_quiet(standing) && after_checkpoint > 0)
    }

    /// What to clean for now; nothing while enough is free.
    pub fn cleans(&self, layout: &Layout, standing: &LogUsage) -> Option<CleaningGoal> {
        if self.is_quiet(standing) {
            return Some(CleaningGoal::Ahead);
        }
        (standing.waiting > 0 || layout.due() || layout.stopped()).then_some(CleaningGoal::Due)
    }

    /// Number of victims that are read at once, so that the disk can take them in the order that suits it. It is
    /// limited, so that others do not wait long for the disk.
    pub fn victims_at_once(&self) -> usize {
        (READ_AT_ONCE.0 / self.segment.0.max(1)).clamp(1, MOST_VICTIMS) as usize
    }

    /// How much of each of them is read then.
    pub fn read_at_once(&self) -> Pages {
        self.segment.min(READ_AT_ONCE)
    }

    /// Whether only the live blocks of a victim with `live` of them are read. A segment larger than what is read at
    /// once is read chunk by chunk anyway. On a disk that rotates, what lies between passes under the head all the
    /// same.
    pub fn reads_only_live(&self, live: Pages, rotational: bool) -> bool {
        !rotational && self.segment <= READ_AT_ONCE && live.0 * SPARSE_DIVISOR <= self.segment.0
    }

    /// How long the cleaner rests after it has used the disk for `worked`: not at all while no other request waits for
    /// the disk, or a write waits for room.
    pub fn rest(&self, layout: &Layout, standing: &LogUsage, worked: Nanos) -> Nanos {
        if self.is_quiet(standing) || standing.waiting > 0 {
            return Nanos(0);
        }
        let calm = f64::from(self.clean_share.0.clamp(1, 100)) / 100.0;
        let share = calm + (1.0 - calm) * layout.delay_share();
        Nanos((worked.0 as f64 * (1.0 / share - 1.0).clamp(0.0, MOST_REST)) as u64)
    }

    /// How long a write of `blocks` blocks waits.
    pub fn write_delay(&self, layout: &Layout, cost: BlockCost, blocks: Pages) -> Nanos {
        Nanos((cost.0 * blocks.0 as f64 * layout.delay_share() * 1e9) as u64).min(MOST_DELAY)
    }

    fn is_quiet(&self, standing: &LogUsage) -> bool {
        standing.since_access >= self.quiet
    }
}

/// Seconds that cleaning takes for a block that it gains, as it was lately.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub struct BlockCost(pub f64);

impl Default for BlockCost {
    /// What is taken for it before anything was cleaned: 0.1 ms.
    fn default() -> BlockCost {
        BlockCost(1e-4)
    }
}

impl BlockCost {
    /// The cost after one more segment: `gained` blocks in it were dead, and the cleaner worked for `worked`.
    #[must_use]
    pub fn after(self, worked: Nanos, gained: Pages) -> BlockCost {
        BlockCost(self.0 * 0.8 + worked.as_secs_f64() / gained.0.max(1) as f64 * 0.2)
    }
}
