//! When a cleaned segment is free again, and which one is cleaned next.

use super::free::Geography;
use super::ids::SegmentNo;
use super::layout::Layout;
use super::table::State;
use super::victim::Victim;

/// How far the log has come: what was cleaned until then.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mark(u64);

/// Why to clean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CleaningGoal {
    /// Only what is due.
    Due,
    /// As much as is worthwhile when there is nothing else to do.
    Ahead,
}

/// The next step to make room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReclaimStep {
    /// Nothing: there is enough, or nothing can be gained.
    None,
    /// Move what is live out of this segment.
    Clean(SegmentNo),
    /// Make durable what was appended, and say so ([`Layout::synced`]).
    Sync,
    /// Make a checkpoint.
    Checkpoint,
}

/// The most of a victim that may be live while others could be cleaned: 19 of 20.
const MOST_LIVE: (u32, u32) = (19, 20);

/// How much nearness to the middle raises the score of a victim. It is multiplied by the share of the log that holds
/// nothing live, and by the nearness of the segment.
const CENTRE_WEIGHT: f64 = 4.0;

impl Layout {
    /// Everything that happened until now. To be taken before a flush or a checkpoint begins.
    pub fn mark(&self) -> Mark {
        Mark(self.cleanings)
    }

    /// All that was appended before `mark` is durable: segments cleaned before it are free, except those that recovery
    /// would read.
    pub fn synced(&mut self, mark: Mark) {
        self.free_cleaned(mark, false);
    }

    /// A checkpoint begins: its image is what the layout is now, after this call. Streams that waited for one get their
    /// segments.
    pub fn checkpoint(&mut self) -> Mark {
        self.open_heads(true);
        self.covered.append(&mut self.fresh);
        self.mark()
    }

    /// That checkpoint is durable.
    pub fn checkpointed(&mut self, mark: Mark) {
        for number in std::mem::take(&mut self.covered) {
            self.table[number.0 as usize].fresh = false;
        }
        for growing in &mut self.growing {
            growing.held = false;
        }
        self.free_cleaned(mark, true);
    }

    /// That checkpoint failed or was given up: what it covered is still read by recovery.
    pub fn checkpoint_failed(&mut self) {
        let mut covered = std::mem::take(&mut self.covered);
        self.fresh.append(&mut covered);
    }

    fn free_cleaned(&mut self, mark: Mark, fresh: bool) {
        let mut kept = Vec::new();
        for (at, number) in std::mem::take(&mut self.cleaned) {
            let segment = &mut self.table[number.0 as usize];
            if at < mark.0 && (fresh || !segment.fresh) {
                segment.state = State::Free;
                self.live -= u64::from(std::mem::take(&mut segment.live));
                segment.fresh = false;
                self.free.add(number);
            } else {
                kept.push((at, number));
            }
        }
        self.cleaned = kept;
        self.choose_nexts();
    }

    /// Cleaned segments that wait: for a flush, and for a checkpoint.
    pub fn waiting(&self) -> (u32, u32) {
        let fresh = self.cleaned.iter().filter(|(_, number)| self.table[number.0 as usize].fresh).count();
        ((self.cleaned.len() - fresh) as u32, fresh as u32 + self.retiring)
    }

    /// Whether some stream cannot continue before a checkpoint.
    pub fn stopped(&self) -> bool {
        self.growing.iter().any(|growing| growing.head.open.is_none())
    }

    /// What to do next. While the user's writes wait, segments are cleaned in batches, so that a flush or a checkpoint
    /// gains more than it costs. What was cleaned ahead is made free when there is no more to clean.
    ///
    /// Cost: O(segments).
    pub fn reclaim_step(&self, goal: CleaningGoal) -> ReclaimStep {
        let (after_sync, after_checkpoint) = self.waiting();
        let free = self.free.len();
        if self.stopped() && free + after_sync + after_checkpoint > 0 {
            return ReclaimStep::Checkpoint;
        }
        let batch = self.batch();
        let last = free <= self.map_room + 1;
        if !self.admits() {
            if after_sync > 0 && (after_sync >= batch || last) {
                return ReclaimStep::Sync;
            }
            if after_checkpoint > 0 && (after_checkpoint >= batch + self.map_room || last) {
                return ReclaimStep::Checkpoint;
            }
        }
        match self.victim(goal) {
            Some(victim) => ReclaimStep::Clean(victim),
            None if self.admits() && goal == CleaningGoal::Due => ReclaimStep::None,
            None if after_sync > 0 => ReclaimStep::Sync,
            None if after_checkpoint > 0 => ReclaimStep::Checkpoint,
            None => ReclaimStep::None,
        }
    }

    /// Number of segments that are cleaned before a flush, so that it costs less than was gained: a flush may cut short
    /// a chunk of every stream.
    fn batch(&self) -> u32 {
        self.growing.len() as u32 + 1
    }

    /// Whether cleaning is due: the log, or a region of it, has come near to its last free segments. Worth asking once
    /// a segment.
    pub fn due(&self) -> bool {
        let wanted = self.reserve + self.low;
        self.free.len() + self.cleaned.len() as u32 <= wanted || !self.short_regions(wanted, &[]).is_empty()
    }

    /// The share of the cleaning cost of a write that it should wait: 0 while there is plenty of room, 1 at the
    /// reserve.
    pub fn delay_share(&self) -> f64 {
        let above = (self.free.len() + self.cleaned.len() as u32).saturating_sub(self.reserve);
        1.0 - f64::from(above.min(self.low)) / f64::from(self.low.max(1))
    }

    /// The regions that have less than their share of what should be free, the shortest first.
    fn short_regions(&self, wanted: u32, chosen: &[SegmentNo]) -> Vec<(u32, usize)> {
        if !self.has_regions() {
            return Vec::new();
        }
        let mut have: Vec<(u32, usize)> =
            (0..self.free.regions()).map(|region| (self.free.len_of(region), region)).collect();
        for number in self.cleaned.iter().map(|(_, number)| number).chain(chosen) {
            have[self.free.region(*number)].0 += 1;
        }
        have.retain(|(free, _)| *free < self.share(wanted));
        have.sort_unstable();
        have
    }

    /// Number of segments that a region should have free, of `wanted` in all.
    fn share(&self, wanted: u32) -> u32 {
        (wanted / self.free.regions() as u32).max(1)
    }

    /// The segment to clean next; nothing if enough is free or nothing can be gained.
    ///
    /// With regions, a region that is short cleans inside itself. First it sends home segments that others have
    /// borrowed from it, if they have room again. Then it takes the best victim that is hardly fuller than the emptiest
    /// anywhere. Without one it borrows. When the log as a whole is short, it takes the best victim anywhere. Cost:
    /// O(segments).
    pub fn victim(&self, goal: CleaningGoal) -> Option<SegmentNo> {
        self.victim_after(goal, &[])
    }

    /// The segments to clean next in order, at most `most`. They are worth reading at once. The next step is decided
    /// again before each is cleaned, but near the reserve no more are named than are cleaned before a flush.
    ///
    /// Cost: O(segments) for each.
    pub fn victims(&self, goal: CleaningGoal, most: usize) -> Vec<SegmentNo> {
        let (after_sync, _) = self.waiting();
        let is_near = self.free.len() <= self.reserve + self.batch();
        let before_sync = self.batch().saturating_sub(after_sync).max(1) as usize;
        let most = if is_near { most.min(before_sync) } else { most };
        let mut chosen = Vec::new();
        while chosen.len() < most
            && let Some(victim) = self.victim_after(goal, &chosen)
        {
            chosen.push(victim);
        }
        chosen
    }

    /// Which of those that were chosen and read to clean next: the one that is asked for now, or, when another has
    /// become better meanwhile, the first. Its blocks are in memory, which is worth more than the few that are live in
    /// it and not in the other.
    pub fn next_of(&self, goal: CleaningGoal, mut read: impl Iterator<Item = SegmentNo> + Clone) -> Option<SegmentNo> {
        let asked = self.victim(goal)?;
        if read.clone().any(|number| number == asked) { Some(asked) } else { read.next() }
    }

    /// The segment to clean when those that are chosen are cleaned.
    fn victim_after(&self, goal: CleaningGoal, chosen: &[SegmentNo]) -> Option<SegmentNo> {
        let ahead = if goal == CleaningGoal::Due { self.low } else { self.high };
        // While writes wait, a whole batch is cleaned before it is made durable, or that might cost more than was
        // gained, again and again.
        let least = if self.admits() { 0 } else { self.batch() + self.map_room };
        let wanted = self.reserve + ahead.max(least);
        let have = self.free.len() + (self.cleaned.len() + chosen.len()) as u32;
        let full = have <= self.reserve;
        if !full {
            let share = self.share(wanted);
            let short = self.short_regions(wanted, chosen);
            if let Some(victim) = short.into_iter().find_map(|(_, region)| self.victim_in(region, share, chosen)) {
                return Some(victim);
            }
        }
        if have >= wanted {
            return None;
        }
        let limit = if full { self.usable } else { self.most_live() };
        let other = |number: SegmentNo| !chosen.contains(&number);
        self.best(other, limit).or_else(|| self.best(other, self.usable))
    }

    /// The live blocks from which on a victim is not worth its while as long as there are others.
    fn most_live(&self) -> u32 {
        (self.usable * MOST_LIVE.0 / MOST_LIVE.1).max(1)
    }

    /// The number of live blocks from which on a region should rather borrow than clean inside itself. It lies a
    /// quarter of the way from the emptiest full segment anywhere to the average one. A scheme may say otherwise.
    fn most_live_in_region(&self) -> u32 {
        if let Some(limit) = self.scheme.cleans_inside() {
            return limit.of(u64::from(self.usable)) as u32;
        }
        let full = self.table.iter().filter(|segment| segment.state == State::Full);
        let (count, live, least) = full.fold((0_u64, 0_u64, self.usable), |(count, live, least), segment| {
            (count + 1, live + u64::from(segment.live), least.min(segment.live))
        });
        let average = live.checked_div(count).unwrap_or(0) as u32;
        (least + average.saturating_sub(least).div_ceil(4)).min(self.most_live())
    }

    fn victim_in(&self, region: usize, share: u32, chosen: &[SegmentNo]) -> Option<SegmentNo> {
        let inside = |number: SegmentNo| self.free.region(number) == region && !chosen.contains(&number);
        let guest = |number: SegmentNo| {
            let home = self.free.home_region(self.table[number.0 as usize].stream);
            inside(number) && home != region && self.free.len_of(home) >= share + 2
        };
        self.best(guest, self.usable + 1).or_else(|| self.best(inside, self.most_live_in_region()))
    }

    /// How much more a victim in the middle of the disk is worth than one at its edges. Where streams lie around the
    /// middle without borders, dead blocks there make the way of the heads longer. So they are cleaned sooner than
    /// elsewhere, but less so the fuller the log is. `Greedy` looks at live blocks only.
    fn centre_weight(&self) -> f64 {
        if !matches!(self.free.geography(), Geography::Centred { .. }) || self.choice != Victim::CostBenefit {
            return 0.0;
        }
        CENTRE_WEIGHT * (1.0 - self.live as f64 / self.shape.blocks().max(1) as f64)
    }

    /// The best victim among those with fewer than `limit` live blocks.
    fn best(&self, allowed: impl Fn(SegmentNo) -> bool, limit: u32) -> Option<SegmentNo> {
        let centre_weight = self.centre_weight();
        let mut best: Option<(f64, SegmentNo)> = None;
        for (number, segment) in (0..).map(SegmentNo).zip(&self.table) {
            if segment.state == State::Full && segment.live < limit && allowed(number) {
                let nearer = 1.0 + centre_weight * self.free.nearness(number);
                let score = nearer * self.choice.score(segment, self.shape.segment_blocks, self.clock);
                if best.is_none_or(|(most, _)| score > most) {
                    best = Some((score, number));
                }
            }
        }
        best.map(|(_, number)| number)
    }
}
