//! The answers of the real world to what groups ask.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::atomic::Ordering;

use umbrella_policy::placement::spec::SpreadOrder;
use umbrella_policy::placement::{Choice, Decision, DirUsage, Surroundings};
use umbrella_units::BranchId;

use crate::placement::{ActiveRules, Placement, holdings};

/// See the module.
pub(crate) struct PoolSurroundings<'a> {
    placement: &'a Placement,
    active: &'a ActiveRules,
}

impl Placement {
    pub(crate) fn around<'a>(&'a self, active: &'a ActiveRules) -> PoolSurroundings<'a> {
        PoolSurroundings { placement: self, active }
    }

    /// A file was made on a branch, or moved there: groups that take turns go on from it.
    pub(crate) fn note_used(&self, branch: BranchId) {
        let active = self.rules.load();
        for (group, last) in active.rules.groups().iter().zip(&active.last_used) {
            if group.spread.order == SpreadOrder::RoundRobin && group.members.contains(&branch) {
                last.store(branch.0.into(), Ordering::Relaxed);
            }
        }
    }

    /// A file is sent to a branch, and its directory with it, where that is kept together. True: another file was
    /// faster, and went elsewhere.
    pub(crate) fn begin(&self, active: &ActiveRules, path: &[u8], decision: Decision) -> bool {
        matches!(decision.choice, Choice::Place(branch) if self.begin_on(active, path, branch))
    }

    /// As [`Placement::begin`], for a file that goes to this branch.
    pub(crate) fn begin_on(&self, active: &ActiveRules, path: &[u8], branch: BranchId) -> bool {
        let with = active.rules.groups().iter().filter(|group| group.members.contains(&branch));
        let mut dirs = with.filter_map(|group| group.kept_together(path));
        dirs.any(|dir| self.holdings.begin(dir, branch))
    }
}

impl Surroundings for PoolSurroundings<'_> {
    fn has_directory(&self, branch: BranchId, dir: &[u8]) -> bool {
        self.placement.branches.get(branch).is_ok_and(|branch| holdings::has_directory(dir, &branch))
    }

    fn usage_below(&self, dir: &[u8], branch: BranchId) -> DirUsage {
        let branch = self.placement.branches.get(branch);
        branch.map_or_else(|_| DirUsage::default(), |branch| self.placement.holdings.held(dir, &branch))
    }

    fn last_used(&self, group: usize) -> Option<BranchId> {
        let last = self.active.last_used.get(group)?.load(Ordering::Relaxed);
        u16::try_from(last).ok().map(BranchId)
    }

    fn random_number(&self) -> u64 {
        // The standard library's seeds are the kernel's.
        RandomState::new().build_hasher().finish()
    }
}
