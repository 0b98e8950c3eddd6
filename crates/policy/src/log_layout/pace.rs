//! How hard the cleaner works, when a checkpoint is due, and how long writers wait for both.
//!
//! Users, the cleaner and checkpoints share one disk. Who gets how much of it follows from how much of the log is free:
//!
//! - Above the high mark nothing is cleaned. Down to the low one the cleaner works only in quiet times, when nobody has
//!   asked for anything for a while.
//! - Below the low mark it works also while others want the disk. After each piece of work it rests, so that it has its
//!   share of the disk's time and no more ([`CleanerPolicy::rest`]); the share grows to all of it at the reserve.
//! - Over the same stretch each write is held back for a growing part of what it costs to clean as much as it took
//!   ([`CleanerPolicy::hold_back`]). At the reserve writes wait until something is free.
//! - A checkpoint is due when so much log has been written since the last one that it would take long to read after a
//!   crash, or when so much of the map is changed that little more can be; in quiet times also when it frees segments.
//!
//! The toll, from 0 at the low mark to 1 at the reserve, is [`Layout::toll`].

use std::ops::RangeInclusive;

use umbrella_units::{Nanos, PAGE_BYTES, Pages};

use super::layout::Layout;
use super::map::PAGE_ENTRIES;
use super::reclaim::CleaningGoal;
use crate::flash_cache::Percent;

/// The longest that one write is held back because the log is filling up.
const MOST_DELAY: Nanos = Nanos::from_millis(100);
/// The longest rest after a piece of work, in times of it.
const MOST_REST: f64 = 20.0;
/// Pages of the map that are in memory however little memory there is: so many for each block of a segment. Cleaning a
/// segment may change as many pages as it has live blocks; if each needed several checkpoints, they could cost more
/// than it gains.
const LEAST_PAGES: u64 = 2;
/// Memory for the map that is not asked about, 16 MiB: where little is live, it may lie far apart.
const LITTLE_MAP: Pages = Pages((16 << 20) / PAGE_BYTES);
/// What the cleaner reads at once, if that is more than a segment: 4 MiB.
const READ_AT_ONCE: Pages = Pages(1024);
/// Of a victim little is live if it is at most such a part: with more, most of what lies between is read anyway.
const LITTLE: u64 = 6;
/// The most victims that are read at once.
const MOST_VICTIMS: u64 = 8;
/// Of the map's memory such a part is given up at once, when all of it is in use.
const GIVEN_UP: u64 = 8;
/// Of the log such a part is written between two checkpoints at most: what lies in it cannot be cleaned for good before
/// the next one.
const MOST_LOG: u64 = 8;
/// But at least so much, 1 MiB, however small the log is.
const LEAST_LOG: Pages = Pages((1 << 20) / PAGE_BYTES);
/// The low and the high mark of a log: such a part of its segments are free above the reserve, within these limits.
const LOW: (u32, RangeInclusive<u32>) = (50, 2..=256);
const HIGH: (u32, RangeInclusive<u32>) = (12, 4..=1024);

/// How many segments are free above the reserve when cleaning begins and ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Marks {
    /// With no more than so many cleaning is due.
    pub low: u32,
    /// With so many it is not worth while even when there is time.
    pub high: u32,
}

impl Marks {
    /// Those of a log of so many segments: a fiftieth of them and a twelfth, but neither so few that one flush uses
    /// them up, nor so many that a large log is cleaned long before it has to be.
    pub fn of(segments: u32) -> Marks {
        let part =
            |(divisor, limits): (u32, RangeInclusive<u32>)| (segments / divisor).clamp(*limits.start(), *limits.end());
        Marks { low: part(LOW), high: part(HIGH) }
    }
}

/// How a store shares its disk and its memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CleanerPolicy {
    /// The share of the disk's time that cleaning takes while others want the disk and there is no hurry.
    pub clean_share: Percent,
    /// How long nobody may have asked for anything before times are quiet.
    pub quiet: Nanos,
    /// The log that is written between two checkpoints at most.
    pub checkpoint_every: Pages,
    /// The most memory for the map, in pages of it.
    pub map_memory: Pages,
    /// How large a segment is.
    pub segment: Pages,
}

/// Where a store stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogUsage {
    /// Log written since the last checkpoint.
    pub since_checkpoint: Pages,
    /// Pages of the map that are changed.
    pub changed: Pages,
    /// For how long nobody has asked for anything.
    pub since_access: Nanos,
    /// How many writes wait for room.
    pub waiting: u32,
}

impl CleanerPolicy {
    /// How many pages of the map may be in memory: no more than 8 bytes for each block that is live, however far apart
    /// those lie, but for a little.
    pub fn map_pages(&self, layout: &Layout) -> Pages {
        let dense = layout.live().0.div_ceil(PAGE_ENTRIES as u64);
        Pages(self.map_memory.0.min(dense.max(LITTLE_MAP.0)).max(LEAST_PAGES * self.segment.0))
    }

    /// To how many pages of the map memory is cut down now, when `present` are there; nothing while there is no need,
    /// or when too many are changed for it to gain much.
    pub fn cut_down(&self, layout: &Layout, present: Pages, changed: Pages) -> Option<Pages> {
        let keep = self.map_pages(layout).0;
        let unchanged = present.0.saturating_sub(changed.0);
        (present.0 > keep && unchanged > keep / GIVEN_UP).then(|| Pages(keep - keep / GIVEN_UP))
    }

    /// Whether a checkpoint is due, however busy the store is: as much log has been written since the last one, or half
    /// as much of the map is changed, as there may be.
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

    /// How many victims are read at once, so that the disk can take them in the order that suits it; not so many that
    /// others would wait long for the disk.
    pub fn victims_at_once(&self) -> usize {
        (READ_AT_ONCE.0 / self.segment.0.max(1)).clamp(1, MOST_VICTIMS) as usize
    }

    /// How much of each of them is read then.
    pub fn read_at_once(&self) -> Pages {
        self.segment.min(READ_AT_ONCE)
    }

    /// Whether of a victim that has so much live only that is read. A segment larger than what is read at once is read
    /// chunk by chunk anyway; on a disk that rotates what lies between passes under the head all the same.
    pub fn reads_only_live(&self, live: Pages, rotational: bool) -> bool {
        !rotational && self.segment <= READ_AT_ONCE && live.0 * LITTLE <= self.segment.0
    }

    /// How long the cleaner rests after it has used the disk for so long: not at all when nobody else wants the disk,
    /// or somebody waits for room.
    pub fn rest(&self, layout: &Layout, standing: &LogUsage, worked: Nanos) -> Nanos {
        if self.is_quiet(standing) || standing.waiting > 0 {
            return Nanos(0);
        }
        let calm = f64::from(self.clean_share.0.clamp(1, 100)) / 100.0;
        let share = calm + (1.0 - calm) * layout.toll();
        Nanos((worked.0 as f64 * (1.0 / share - 1.0).clamp(0.0, MOST_REST)) as u64)
    }

    /// How long a write of so many blocks is held back.
    pub fn hold_back(&self, layout: &Layout, cost: BlockCost, blocks: Pages) -> Nanos {
        Nanos((cost.0 * blocks.0 as f64 * layout.toll() * 1e9) as u64).min(MOST_DELAY)
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
    /// What one more segment says: `gained` blocks in it were dead, and the cleaner worked so long for them.
    #[must_use]
    pub fn after(self, worked: Nanos, gained: Pages) -> BlockCost {
        BlockCost(self.0 * 0.8 + worked.as_secs_f64() / gained.0.max(1) as f64 * 0.2)
    }
}
