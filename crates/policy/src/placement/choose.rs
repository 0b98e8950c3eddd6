//! Which branch of a preference list: the first that can take the file, with as little moving as the list allows.
//!
//! A file that only a hysteresis still holds to its list stays where it is, so a move is never undone by the next decision.
//! So does a file that no rule names on any branch of the default list: that list says where such a file begins, not where it is to go.
//! Any other file that is on a branch of its list leaves it only for an earlier branch that has room for it. A file that had to spill
//! stays where it is until a branch of its list has room again. A branch that takes nothing new (draining) is left in any case.

use umbrella_units::{BranchId, ByteSize, Timestamp};

use super::facts::{BranchView, FileFacts, Resident, view};
use super::rules::{Choice, Decision, EntryInfo, Found, Rules};

/// Where an entry sends its files.
#[derive(Debug, Clone, Copy)]
pub(super) struct Destination<'a> {
    /// Order of preference.
    pub(super) to: &'a [BranchId],
    /// The default list, when the entry may spill.
    pub(super) spill: Option<&'a [BranchId]>,
    /// Only a hysteresis keeps the file here.
    pub(super) by_band: bool,
    /// No rule names the file: `to` is the default list.
    pub(super) by_default: bool,
}

impl Destination<'_> {
    /// Whether a file may be on this branch at all.
    fn allows(&self, branch: BranchId) -> bool {
        self.spill.is_some() || self.to.contains(&branch)
    }
}

/// Why a choice is what it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Because {
    /// Its branch is offline: nothing can be fetched from there.
    HomeOffline,
    /// It came too recently.
    Held,
    /// It is on its list, within the hysteresis of a rule that it would not come under any more.
    Hysteresis,
    /// Only the default list decides, and it is on a branch of that.
    DefaultHome,
    /// It is on its list, and no earlier branch has room.
    Home,
    /// The first of its list with room.
    Listed,
    /// No branch of its list has room; it has spilled already.
    Spilled,
    /// No branch of its list has room; the first of the default list with room.
    Default,
    /// No branch of either list has room; the one with most free space.
    Roomiest,
    /// No branch has room.
    Full,
}

/// Where a file of `need` bytes belongs, and why.
pub(super) fn choose(
    destination: Destination<'_>,
    need: ByteSize,
    now: Timestamp,
    branches: &[BranchView],
    resident: Option<&Resident>,
) -> (Choice, Because) {
    let mut home = None;
    if let Some(resident) = resident {
        match view(branches, resident.branch) {
            Some(branch) if branch.open() && resident.is_held(now) && destination.allows(resident.branch) => {
                return (Choice::Stay, Because::Held);
            }
            Some(branch) if branch.open() => home = Some(resident.branch),
            // It is being drained: as good as nowhere.
            Some(branch) if branch.online => {}
            _ => return (Choice::Stay, Because::HomeOffline),
        }
    }
    if home.is_some() && destination.by_band {
        return (Choice::Stay, Because::Hysteresis);
    }
    if destination.by_default && home.is_some_and(|home| destination.to.contains(&home)) {
        return (Choice::Stay, Because::DefaultHome);
    }
    for &branch in destination.to {
        if home == Some(branch) {
            return (Choice::Stay, Because::Home);
        }
        if takes(branches, branch, need) {
            return (Choice::Place(branch), Because::Listed);
        }
    }
    let Some(default) = destination.spill else {
        return (Choice::NoRoom, Because::Full);
    };
    if home.is_some() {
        return (Choice::Stay, Because::Spilled);
    }
    if let Some(&branch) = default.iter().find(|&&branch| takes(branches, branch, need)) {
        return (Choice::Place(branch), Because::Default);
    }
    match roomiest(branches, |branch| branch.has_room(need), &[]) {
        Some(branch) => (Choice::Place(branch), Because::Roomiest),
        None => (Choice::NoRoom, Because::Full),
    }
}

/// The next branch for a file that has to leave those in `excluding`.
pub(super) fn next(
    destination: Destination<'_>,
    need: ByteSize,
    branches: &[BranchView],
    excluding: &[BranchId],
) -> Option<BranchId> {
    let first_with = |fits: &dyn Fn(&BranchView) -> bool| {
        let listed = destination.to.iter().chain(destination.spill.unwrap_or_default()).copied();
        let mut open = listed.filter(|branch| !excluding.contains(branch));
        open.find(|&branch| view(branches, branch).is_some_and(|view| view.open() && fits(view)))
            .or_else(|| destination.spill.and_then(|_| roomiest(branches, fits, excluding)))
    };
    first_with(&|branch| branch.has_room(need))
        .or_else(|| first_with(&|branch| branch.has_inode() && branch.free >= need))
}

impl Rules {
    /// Decides where a file belongs. Allocates nothing.
    pub fn decide(&self, facts: &FileFacts<'_>, branches: &[BranchView], resident: Option<&Resident>) -> Decision {
        let found = self.entry_for(facts, branches, resident);
        let held = self.held(facts, branches, resident);
        let (choice, _) = choose(self.destination(found), facts.need(), facts.now, branches, held.as_ref());
        Decision { entry: found.entry, choice }
    }

    /// The next branch for a file that has to leave those in `excluding`, because they are full: the first of its list (then, if the
    /// entry may spill, of the default list, then the one with most free space) that has `need` bytes above its `min_free`; when
    /// there is none, the first that has them at all.
    pub fn next_choice(
        &self,
        facts: &FileFacts<'_>,
        branches: &[BranchView],
        excluding: &[BranchId],
        need: ByteSize,
    ) -> Option<BranchId> {
        let found = self.entry_for(facts, branches, None);
        next(self.destination(found), need, branches, excluding)
    }

    pub(super) fn destination(&self, found: Found) -> Destination<'_> {
        let info = &self.entries[found.entry.index()];
        let default = &self.entries[self.default_entry().index()].to;
        let by_default = found.entry == self.default_entry();
        Destination { to: &info.to, spill: info.spill.then_some(default), by_band: found.by_band, by_default }
    }

    /// Whether a file must not be on a branch: what decides does not let it spill, and its list leaves the branch out.
    pub fn forbids(&self, decision: Decision, branch: BranchId) -> bool {
        self.entries.get(decision.entry.index()).is_some_and(|entry| !entry.spill && !entry.to.contains(&branch))
    }

    /// Whether a file that stays by this decision is on none of the branches of its list, for they have no room: it spilled.
    pub fn has_spilled(
        &self,
        decision: Decision,
        facts: &FileFacts<'_>,
        branches: &[BranchView],
        resident: &Resident,
    ) -> bool {
        let listed = |entry: &EntryInfo| entry.to.contains(&resident.branch);
        decision.choice == Choice::Stay
            && self.entries.get(decision.entry.index()).is_some_and(|entry| !listed(entry))
            && view(branches, resident.branch).is_some_and(BranchView::open)
            && !self.held(facts, branches, Some(resident)).is_some_and(|held| held.is_held(facts.now))
    }
}

fn takes(branches: &[BranchView], branch: BranchId, need: ByteSize) -> bool {
    view(branches, branch).is_some_and(|branch| branch.open() && branch.has_room(need))
}

/// The open branch with most free space, the lowest id on a tie.
fn roomiest(branches: &[BranchView], fits: impl Fn(&BranchView) -> bool, excluding: &[BranchId]) -> Option<BranchId> {
    (0..=u16::MAX)
        .map(BranchId)
        .zip(branches)
        .filter(|(id, branch)| branch.open() && fits(branch) && !excluding.contains(id))
        .max_by_key(|(id, branch)| (branch.free, std::cmp::Reverse(*id)))
        .map(|(id, _)| id)
}
