//! Which branch of a list: the first entry that can take the file, with as little moving as the list allows.
//!
//! The list is complete: a file goes nowhere else, and when no entry has room there is none. Preference is between
//! entries. Inside an entry any branch is right, so a file leaves an entry only for an earlier one that has room for
//! it. The default list is no preference at all: a file on any of its branches stays, because that list says where a
//! file begins, not where it is to go.
//!
//! A branch with a fill level takes files that are on their list elsewhere only up to its low mark. A file that it sent
//! away stays there until the file itself changes ([`super::evict`]), or is opened and a rule that asks for warm files
//! fetches it. Such a rule fills a branch only up to the low mark in any case.
//!
//! A file that only a hysteresis still holds to its list stays where it is, so the next decision never undoes a move. A
//! file always leaves a branch that takes nothing new (draining).

use umbrella_units::{BranchId, ByteSize};

use super::facts::{BranchView, FileFacts, Resident, view};
use super::leaving::BranchIds;
use super::rules::{Choice, Decision, EntryId, EntryInfo, MatchedEntry, Rules, Views};
use super::slot::Slot;
use super::spec::Offline;
use super::spread::{Pick, PickReason, SpreadRequest};
use super::surroundings::Surroundings;

/// Why a choice is what it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ChoiceReason {
    /// Its branch is offline: nothing can be fetched from there.
    HomeOffline,
    /// It came too recently.
    Held,
    /// It is on its list, within the hysteresis of a rule that it would not come under any more.
    Hysteresis,
    /// Only the default list decides, and it is on a branch of that.
    DefaultHome,
    /// It is on its list, at a place to which a fill level moved it.
    Evicted,
    /// It is on the entry at this place in its list, and no earlier one has room.
    Home(usize),
    /// The entry at this place in the list was picked.
    Picked(usize, PickReason),
    /// The entry at this place keeps its directory on one branch, which is full.
    TogetherFull(usize, BranchId),
    /// The branches of the entry at this place that have its directory are full, or take no new files.
    PathFull(usize),
    /// The first entry is offline, and the rule says that nothing is created meanwhile.
    FirstOffline,
    /// No branch of its list has room.
    Full,
}

impl Rules {
    /// Decides where a file belongs.
    pub fn decide(
        &self,
        facts: &FileFacts<'_>,
        branches: &[BranchView],
        resident: Option<&Resident>,
        around: &dyn Surroundings,
    ) -> Decision {
        let found = self.entry_for(facts, branches, resident);
        let with_stay = self.resident_with_min_stay(facts, branches, resident);
        let (choice, _) = self.choose(found, facts, branches, with_stay.as_ref(), around);
        Decision { entry: found.entry, choice }
    }

    /// Where a file belongs by one entry, and why.
    pub(super) fn choose(
        &self,
        found: MatchedEntry,
        facts: &FileFacts<'_>,
        branches: &[BranchView],
        resident: Option<&Resident>,
        around: &dyn Surroundings,
    ) -> (Choice, ChoiceReason) {
        let info = &self.entries[found.entry.index()];
        let mut current = None;
        if let Some(resident) = resident {
            match view(branches, resident.branch) {
                Some(branch) if branch.open() => current = Some(resident.branch),
                // It is being drained: as good as nowhere.
                Some(branch) if branch.online => {}
                _ => return (Choice::Stay, ChoiceReason::HomeOffline),
            }
            let must_leave = self.forbids(found.entry, resident.branch);
            if current.is_some() && resident.is_within_min_stay(facts.now) && !must_leave {
                return (Choice::Stay, ChoiceReason::Held);
            }
        }
        if current.is_some() && found.by_band {
            return (Choice::Stay, ChoiceReason::Hysteresis);
        }
        let home = current.and_then(|current| info.to.iter().position(|slot| slot.contains(current)));
        let is_listed = home.is_some();
        if is_listed && found.entry == self.default_entry() {
            return (Choice::Stay, ChoiceReason::DefaultHome);
        }
        let promotes = info.warm_from.is_some();
        if is_listed && resident.is_some_and(|resident| resident.is_evicted && !(promotes && resident.is_opened)) {
            return (Choice::Stay, ChoiceReason::Evicted);
        }
        let (mut limited, mut up_to_low_mark) = (Views::new(), BranchIds::new());
        let branches = if self.is_limited(info, current) {
            up_to_low_mark = self.with_levels();
            limited.extend_from_slice(branches);
            self.limit_arrivals(&mut limited);
            &limited
        } else {
            branches
        };
        let (choice, because) = if info.blocked(branches) {
            (Choice::NoRoom, ChoiceReason::FirstOffline)
        } else {
            let room = if resident.is_some() { BranchView::has_room_to_move } else { BranchView::has_room };
            let (path, need) = (facts.path, facts.need());
            let up_to_low_mark = &up_to_low_mark;
            let question = SpreadRequest { path, need, branches, excluding: &[], room, up_to_low_mark, around };
            self.along(info, &question, current)
        };
        match (choice, home) {
            (Choice::NoRoom, Some(place)) => (Choice::Stay, ChoiceReason::Home(place)),
            _ => (choice, because),
        }
    }

    /// Whether a file that is on `current` finds room on branches with a fill level only below their low mark: it could
    /// stay where it is.
    pub(super) fn is_limited(&self, info: &EntryInfo, current: Option<BranchId>) -> bool {
        !self.evicts.is_empty() && current.is_some_and(|current| info.contains(current) || info.warm_from.is_some())
    }

    /// Goes along a list, up to the entry that a file is on already.
    fn along(
        &self,
        info: &EntryInfo,
        question: &SpreadRequest<'_>,
        current: Option<BranchId>,
    ) -> (Choice, ChoiceReason) {
        for (place, slot) in info.to.iter().enumerate() {
            if current.is_some_and(|current| slot.contains(current)) {
                return (Choice::Stay, ChoiceReason::Home(place));
            }
            for set in &slot.sets {
                match set.pick(&self.groups, question) {
                    Pick::Member(branch, how) => return (Choice::Place(branch), ChoiceReason::Picked(place, how)),
                    Pick::TogetherFull(holder) => return (Choice::NoRoom, ChoiceReason::TogetherFull(place, holder)),
                    Pick::PathFull => return (Choice::NoRoom, ChoiceReason::PathFull(place)),
                    Pick::Full => {}
                }
            }
        }
        (Choice::NoRoom, ChoiceReason::Full)
    }

    /// The next branch for a file that has to leave those in `excluding`, because they are full. It is the first of the
    /// file's list that has `need` bytes above its `min_free`, else the first that has them at all. Where the members
    /// that have its directory are full and it may not be elsewhere, there is none.
    pub fn next_choice(
        &self,
        facts: &FileFacts<'_>,
        branches: &[BranchView],
        excluding: &[BranchId],
        need: ByteSize,
        around: &dyn Surroundings,
    ) -> Option<BranchId> {
        let found = self.entry_for(facts, branches, None);
        let info = &self.entries[found.entry.index()];
        if info.blocked(branches) {
            return None;
        }
        let with = |room: fn(&BranchView, ByteSize) -> bool| {
            let question =
                SpreadRequest { path: facts.path, need, branches, excluding, room, up_to_low_mark: &[], around };
            self.along(info, &question, None)
        };
        let found = match with(BranchView::has_room) {
            (Choice::NoRoom, ChoiceReason::Full) => with(|view, need| view.has_inode() && view.free >= need),
            found => found,
        };
        match found.0 {
            Choice::Place(branch) => Some(branch),
            Choice::Stay | Choice::NoRoom => None,
        }
    }

    /// Whether a branch serves a decision as well as the one that it chose: both are of the same entry of the list.
    pub fn is_as_good(&self, decision: Decision, branch: BranchId) -> bool {
        let Choice::Place(chosen) = decision.choice else { return false };
        let slots = self.entries.get(decision.entry.index()).map_or(&[][..], |info| &info.to);
        let place = |id| slots.iter().position(|slot| slot.contains(id));
        chosen == branch || place(chosen).is_some() && place(chosen) == place(branch)
    }

    /// The branches that a file may move between without any rule moving it again: those of the same entry of its list,
    /// or all of the default list. None while it is held there, and for one that belongs elsewhere.
    pub fn equals(
        &self,
        facts: &FileFacts<'_>,
        branches: &[BranchView],
        resident: &Resident,
        around: &dyn Surroundings,
    ) -> Vec<BranchId> {
        let with_stay = self.resident_with_min_stay(facts, branches, Some(resident));
        let resident = with_stay.as_ref().unwrap_or(resident);
        let found = self.entry_for(facts, branches, Some(resident));
        let (choice, because) = self.choose(found, facts, branches, Some(resident), around);
        if choice != Choice::Stay
            || matches!(because, ChoiceReason::Held | ChoiceReason::HomeOffline | ChoiceReason::Hysteresis)
        {
            return Vec::new();
        }
        let info = &self.entries[found.entry.index()];
        if !info.contains(resident.branch) {
            return Vec::new();
        }
        if found.entry == self.default_entry() {
            return info.to.iter().flat_map(Slot::members).collect();
        }
        // A later entry that has it too is of less worth.
        info.to.iter().find(|slot| slot.contains(resident.branch)).into_iter().flat_map(Slot::members).collect()
    }

    /// Whether a file that could not be placed is on a branch that its list does not name.
    pub fn is_misplaced(&self, decision: Decision, branch: BranchId) -> bool {
        let entry = self.entries.get(decision.entry.index());
        decision.choice == Choice::NoRoom && entry.is_some_and(|entry| !entry.contains(branch))
    }

    /// Whether a file must not be on a branch, not even for a moment: what decides names its branches one by one, and
    /// leaves this one out.
    pub fn forbids(&self, entry: EntryId, branch: BranchId) -> bool {
        self.entries.get(entry.index()).is_some_and(|info| info.is_strict && !info.contains(branch))
    }
}

impl EntryInfo {
    /// Whether nothing may be created because the first entry is offline.
    pub(super) fn blocked(&self, branches: &[BranchView]) -> bool {
        self.offline == Offline::Fail && self.to.first().is_some_and(|slot| !slot.is_online(branches))
    }

    /// Whether a branch is on the list.
    pub fn contains(&self, branch: BranchId) -> bool {
        self.to.iter().any(|slot| slot.contains(branch))
    }
}
