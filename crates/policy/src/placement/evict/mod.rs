//! Fill levels: when a branch or group is too full, which files leave it, and where they go.
//!
//! - A fill level begins above its high mark, in its hours; below `min_free` at any hour. It ends at its low mark.
//! - A file goes only where its own rule's list allows: to an entry after the one that it is on or, where `to` is given, to those of that list which
//!   the file's list names.
//! - What comes to a branch with a fill level because a rule prefers it there stops at the low mark ([`Rules::limit_arrivals`]), and so does what
//!   another fill level sends. No move between branches makes a fill level begin, so that two never send files to and fro.

mod selection;

use std::time::Duration;

use umbrella_units::{Amount, BranchId, ByteSize};

use super::condition::{Verdict, age};
use super::expression::Expression;
use super::facts::{BranchView, FileFacts, Resident, view};
use super::rules::{EntryInfo, Rules, Views};
use super::slot::Set;
use super::spec::{EvictOrder, TimeField};
use super::spread::{Pick, Question};
use super::surroundings::Surroundings;
use crate::schedule::Schedule;

pub use selection::Selection;

/// The fill level of a branch or group, compiled.
#[derive(Debug, Clone)]
pub struct Evict {
    /// Name of the branch or group.
    pub of: String,
    /// Its branches.
    pub members: Vec<BranchId>,
    /// The high mark.
    pub above: Amount,
    /// The low mark.
    pub until: Amount,
    /// Which file leaves first.
    pub order: EvictOrder,
    /// Hours of the week; without any, always.
    pub window: Schedule,
    /// Where files go; empty: to what follows in their lists.
    pub(super) to: Vec<Set>,
    pub(super) only: Expression,
    pub(super) min_age: Duration,
}

/// How full a branch or group is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Level {
    /// Size.
    pub total: ByteSize,
    /// What is not free.
    pub used: ByteSize,
    /// What is missing to `min_free`.
    pub short: ByteSize,
}

/// Why files leave now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Urgency {
    /// The level is above the high mark.
    Level,
    /// Less than `min_free` is free: hours and `min_stay` do not count.
    Short,
}

/// Whether a file may leave, and where to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leaving {
    /// It may go to this branch.
    To(BranchId),
    /// It came too recently (`min_stay`).
    Held,
    /// Where it may go has no room, or is offline.
    NoRoom,
    /// Its own list names no other branch for it.
    Nowhere,
}

impl Evict {
    /// How full it is; `None` while a member is offline, as the sum over the others says nothing.
    pub fn level(&self, branches: &[BranchView]) -> Option<Level> {
        let mut level = Level::default();
        for id in &self.members {
            let view = view(branches, *id).filter(|view| view.online)?;
            level.total.0 = level.total.0.saturating_add(view.total.0);
            level.used.0 = level.used.0.saturating_add(view.total.0.saturating_sub(view.free.0));
            level.short.0 = level.short.0.saturating_add(view.min_free.0.saturating_sub(view.free.0));
        }
        Some(level)
    }

    /// Whether files are to leave.
    pub fn begins(&self, level: Level, in_hours: bool) -> Option<Urgency> {
        if level.short.0 > 0 {
            return Some(Urgency::Short);
        }
        (in_hours && level.used > self.above.of(level.total)).then_some(Urgency::Level)
    }

    /// What has to come free until it ends.
    pub fn excess(&self, level: Level) -> ByteSize {
        ByteSize(level.used.0.saturating_sub(self.until.of(level.total).0).max(level.short.0))
    }

    /// By its order: the file with the lowest key leaves first.
    pub fn key(&self, facts: &FileFacts<'_>) -> i128 {
        let time = |time: umbrella_units::Timestamp| i128::from(time.secs) * 1_000_000_000 + i128::from(time.nanos);
        match self.order {
            EvictOrder::Oldest => time(facts.mtime),
            EvictOrder::LeastRecentlyUsed => time(facts.atime),
            EvictOrder::Largest => -i128::from(facts.size.0),
        }
    }

    /// The room that is left below the low mark.
    fn room(&self, branches: &[BranchView]) -> Option<ByteSize> {
        let level = self.level(branches)?;
        Some(ByteSize(self.until.of(level.total).0.saturating_sub(level.used.0)))
    }
}

impl Rules {
    /// The fill levels, those of branches first, in the order in which they were written.
    pub fn evicts(&self) -> &[Evict] {
        &self.evicts
    }

    /// Whether a fill level speaks of a file at all: it is old enough, and `only` holds.
    pub fn is_evictable(&self, evict: &Evict, facts: &FileFacts<'_>, branches: &[BranchView]) -> bool {
        if age(facts, TimeField::Mtime).is_some_and(|age| age < evict.min_age) {
            return false;
        }
        let mut buffer = Views::new();
        let branches = self.for_conditions(branches, &mut buffer);
        evict.only.holds(&|test| test.verdict(facts, branches, false) == Verdict::Holds)
    }

    /// Where a file goes that leaves a branch because of its fill level. `branches`: as they are.
    pub fn leaving(
        &self,
        (evict, urgency): (&Evict, Urgency),
        facts: &FileFacts<'_>,
        branches: &[BranchView],
        resident: &Resident,
        around: &dyn Surroundings,
    ) -> Leaving {
        let found = self.entry_for(facts, branches, Some(resident));
        let info = &self.entries[found.entry.index()];
        if urgency == Urgency::Level && resident.is_held(facts.now) {
            return Leaving::Held;
        }
        if info.blocked(branches) {
            return Leaving::NoRoom;
        }
        let mut limited = Views::from_slice(branches);
        self.limit_arrivals(&mut limited);
        let question = Question {
            path: facts.path,
            need: facts.need(),
            branches: &limited,
            excluding: &[],
            room: BranchView::has_room,
            around,
        };
        let mut leaving = Leaving::Nowhere;
        for set in evict.destinations(info, resident.branch) {
            match set.pick(&self.groups, &question) {
                Pick::Member(branch, _) => return Leaving::To(branch),
                Pick::Full | Pick::TogetherFull(_) | Pick::PathFull => leaving = Leaving::NoRoom,
            }
        }
        leaving
    }

    /// Whether a branch is on the list that a file falls under: the list may have changed since the file was sent there.
    pub fn may_be_on(
        &self,
        facts: &FileFacts<'_>,
        branches: &[BranchView],
        resident: &Resident,
        target: BranchId,
    ) -> bool {
        let found = self.entry_for(facts, branches, Some(resident));
        let info = &self.entries[found.entry.index()];
        info.contains(target) && !info.blocked(branches)
    }

    /// Leaves branches with a fill level only the room that is below their low mark: for files that exist, and come because a list prefers it so.
    pub fn limit_arrivals(&self, branches: &mut [BranchView]) {
        for evict in &self.evicts {
            let Some(room) = evict.room(branches) else { continue };
            for id in &evict.members {
                if let Some(view) = branches.get_mut(id.index()) {
                    view.min_free = view.min_free.max(ByteSize(view.free.0.saturating_sub(room.0)));
                }
            }
        }
    }
}

impl Evict {
    /// Where a file may go that is under this entry, in order.
    fn destinations(&self, info: &EntryInfo, home: BranchId) -> Vec<Set> {
        let place = info.to.iter().position(|slot| slot.contains(home));
        let sets: Vec<Set> = if self.to.is_empty() {
            let first = place.map_or(0, |place| place + 1);
            info.to.iter().skip(first).flat_map(|slot| slot.sets.iter().cloned()).collect()
        } else {
            self.to.clone()
        };
        let may = |id: &BranchId| !self.members.contains(id) && info.contains(*id);
        let narrowed =
            sets.into_iter().map(|set| Set { members: set.members.into_iter().filter(may).collect(), ..set });
        narrowed.filter(|set| !set.members.is_empty()).collect()
    }
}
