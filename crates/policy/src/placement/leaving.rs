//! Where a file goes that leaves a branch because of its fill level ([`super::evict`]).

use smallvec::SmallVec;
use umbrella_units::{BranchId, ByteSize};

use super::condition::{Verdict, age};
use super::evict::{Evict, Urgency};
use super::facts::{BranchView, FileFacts, Resident};
use super::rules::{EntryInfo, Rules, Views};
use super::slot::Set;
use super::spec::TimeField;
use super::spread::{Pick, SpreadRequest};
use super::surroundings::Surroundings;

/// Branches.
pub(super) type BranchIds = SmallVec<[BranchId; 8]>;

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

impl Rules {
    /// The fill levels, those of branches first, in the order in which they were written.
    pub fn evicts(&self) -> &[Evict] {
        &self.evicts
    }

    /// Whether a fill level refers to a file at all: it is old enough, and `only` holds.
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
        let with_stay = self.resident_with_min_stay(facts, branches, Some(resident));
        let resident = with_stay.as_ref().unwrap_or(resident);
        let found = self.entry_for(facts, branches, Some(resident));
        let info = &self.entries[found.entry.index()];
        if urgency == Urgency::Level && resident.is_within_min_stay(facts.now) {
            return Leaving::Held;
        }
        if info.blocked(branches) {
            return Leaving::NoRoom;
        }
        let mut limited = Views::from_slice(branches);
        self.limit_arrivals(&mut limited);
        let question = SpreadRequest {
            path: facts.path,
            need: facts.need(),
            branches: &limited,
            excluding: &[],
            room: BranchView::has_room_to_move,
            up_to_low_mark: &self.with_levels(),
            around,
        };
        // Where only a hysteresis holds it to this list, another list may count elsewhere, and a rule would bring it
        // back.
        let lasts = |target: &BranchId| {
            let there = Resident { branch: *target, ..*resident };
            let entry = |resident| self.entry_for(facts, branches, Some(resident)).entry;
            !found.by_band || self.entries[entry(&there).index()].contains(*target)
        };
        let mut leaving = Leaving::Nowhere;
        for set in info.destinations(evict, resident.branch) {
            let set = Set { members: set.members.into_iter().filter(lasts).collect(), ..set };
            if set.members.is_empty() {
                continue;
            }
            match set.pick(&self.groups, &question) {
                Pick::Member(branch, _) => return Leaving::To(branch),
                Pick::Full | Pick::TogetherFull(_) | Pick::PathFull => leaving = Leaving::NoRoom,
            }
        }
        leaving
    }

    /// Whether some file could ever leave because of a fill level: a list names a branch that it may go to.
    pub fn can_evict(&self, evict: &Evict) -> bool {
        let leads_away =
            |entry: &EntryInfo| evict.members.iter().any(|current| !entry.destinations(evict, *current).is_empty());
        self.entries.iter().any(leads_away)
    }

    /// Whether a branch is on the list that a file falls under: the list may have changed since the file was sent
    /// there.
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

    /// The branches that have a fill level.
    pub(super) fn with_levels(&self) -> BranchIds {
        self.evicts.iter().flat_map(|evict| evict.members.iter().copied()).collect()
    }

    /// Leaves branches with a fill level only the room that is below their low mark: for files that exist, and come
    /// because a list prefers it so.
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

impl EntryInfo {
    /// Where a file of this entry may go that leaves a branch, in order.
    fn destinations(&self, evict: &Evict, current: BranchId) -> Vec<Set> {
        let place = self.to.iter().position(|slot| slot.contains(current));
        let sets: Vec<Set> = if evict.to.is_empty() {
            let first = place.map_or(0, |place| place + 1);
            self.to.iter().skip(first).flat_map(|slot| slot.sets.iter().cloned()).collect()
        } else {
            evict.to.clone()
        };
        let may = |id: &BranchId| !evict.members.contains(id) && self.contains(*id);
        let narrowed =
            sets.into_iter().map(|set| Set { members: set.members.into_iter().filter(may).collect(), ..set });
        narrowed.filter(|set| !set.members.is_empty()).collect()
    }
}
