//! The entries of a list: each is a set of branches among which there is no preference.

use smallvec::SmallVec;
use umbrella_units::BranchId;

use super::facts::{BranchView, is_online};

/// Branches among which one is chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Set {
    /// In order.
    pub(super) members: SmallVec<[BranchId; 2]>,
    /// Whose spread chooses; without a group, most free space does.
    pub(super) group: Option<usize>,
}

/// One entry of a list. A file on any of its branches is in its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slot {
    /// As it was written: the name of a branch or group, `default` or `any`.
    pub name: String,
    /// The id of the branch or group, for conditions.
    pub(super) id: Option<BranchId>,
    /// More than one only for `default`; a new file goes to the first of them that has room.
    pub(super) sets: SmallVec<[Set; 1]>,
}

impl Slot {
    /// Its branches.
    pub fn members(&self) -> impl Iterator<Item = BranchId> + '_ {
        self.sets.iter().flat_map(|set| set.members.iter().copied())
    }

    /// The branch, where the entry is a single one.
    pub fn branch(&self) -> Option<BranchId> {
        let mut members = self.members();
        members.next().filter(|_| members.next().is_none())
    }

    /// Whether a branch is one of them.
    pub fn contains(&self, branch: BranchId) -> bool {
        self.members().any(|member| member == branch)
    }

    /// Whether any of them can be reached.
    pub(super) fn is_online(&self, branches: &[BranchView]) -> bool {
        self.members().any(|member| is_online(branches, member))
    }
}
