//! Changes that waiting moves, or those of a dry run, will make. They concern the room on the branches, the branch that
//! holds a directory that is kept together, and the next branch.

use std::collections::BTreeSet;

use rustc_hash::FxHashMap;
use umbrella_policy::placement::spec::SpreadOrder;
use umbrella_policy::placement::{BranchView, DirUsage, Group, Surroundings};
use umbrella_units::{BranchId, ByteSize};

/// From where to where, and the bytes.
type PlannedMove = ([BranchId; 2], ByteSize);

/// What comes free on a branch, or is taken (below zero).
#[derive(Debug, Clone, Copy, Default)]
struct SpaceDelta {
    bytes: i64,
    inodes: i64,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Planned {
    /// By branch.
    room: Vec<SpaceDelta>,
    /// By directory that is kept together, the moves of its files.
    moves: FxHashMap<Box<[u8]>, Vec<PlannedMove>>,
    /// By group the member that got its last file.
    last_used: FxHashMap<usize, BranchId>,
}

impl Planned {
    /// A file of this size moves.
    pub(super) fn room(&mut self, [from, to]: [BranchId; 2], occupied: ByteSize) {
        let bytes = i64::try_from(occupied.0).unwrap_or(i64::MAX);
        let most = from.index().max(to.index()) + 1;
        self.room.resize(self.room.len().max(most), SpaceDelta::default());
        for (branch, bytes, inodes) in [(from, bytes, 1), (to, -bytes, -1)] {
            if let Some(planned) = self.room.get_mut(branch.index()) {
                planned.bytes = planned.bytes.saturating_add(bytes);
                planned.inodes += inodes;
            }
        }
    }

    /// A file of a dry run: the next ones see it where it would be.
    pub(super) fn plan_move(&mut self, groups: &[Group], path: &[u8], way: [BranchId; 2], occupied: ByteSize) {
        self.room(way, occupied);
        // Groups may share a directory.
        let dirs: BTreeSet<&[u8]> = groups.iter().filter_map(|group| group.kept_together(path)).collect();
        for dir in dirs {
            self.moves.entry(dir.into()).or_default().push((way, occupied));
        }
    }

    /// A file is sent to a branch: groups that take turns go on from it.
    pub(super) fn advance_round_robin(&mut self, groups: &[Group], to: BranchId) {
        let takes_turns = |group: &Group| group.spread.order == SpreadOrder::RoundRobin && group.members.contains(&to);
        let turns = groups.iter().enumerate().filter(|(_, group)| takes_turns(group));
        self.last_used.extend(turns.map(|(index, _)| (index, to)));
    }

    /// Forgets the planned moves after some of them were made; those that still wait are entered anew.
    pub(super) fn forget_moves(&mut self) {
        self.room.clear();
        self.moves.clear();
    }

    /// The branches as they will be.
    pub(super) fn apply(&self, views: &mut [BranchView]) {
        for (view, planned) in views.iter_mut().zip(&self.room) {
            view.free = ByteSize(view.free.0.saturating_add_signed(planned.bytes));
            if let Some(inodes) = &mut view.inodes {
                inodes.free = inodes.free.saturating_add_signed(planned.inodes);
            }
        }
    }

    /// The surroundings as they will be.
    pub(super) fn around<'p, S: Surroundings>(&'p self, now: &'p S) -> PlannedView<'p, S> {
        PlannedView { planned: self, now }
    }
}

/// See [`Planned::around`].
pub(super) struct PlannedView<'p, S> {
    planned: &'p Planned,
    now: &'p S,
}

impl<S: Surroundings> Surroundings for PlannedView<'_, S> {
    fn has_directory(&self, branch: BranchId, dir: &[u8]) -> bool {
        self.now.has_directory(branch, dir) || self.moves_of(dir).iter().any(|([_, to], _)| *to == branch)
    }

    fn usage_below(&self, dir: &[u8], branch: BranchId) -> DirUsage {
        let mut held = self.now.usage_below(dir, branch);
        for ([from, to], bytes) in self.moves_of(dir) {
            if *from == branch {
                held.bytes.0 = held.bytes.0.saturating_sub(bytes.0);
                held.files = held.files.saturating_sub(1);
            }
            if *to == branch {
                held.bytes.0 = held.bytes.0.saturating_add(bytes.0);
                held.files += 1;
            }
        }
        held
    }

    fn last_used(&self, group: usize) -> Option<BranchId> {
        self.planned.last_used.get(&group).copied().or_else(|| self.now.last_used(group))
    }

    fn random_number(&self) -> u64 {
        self.now.random_number()
    }
}

impl<S> PlannedView<'_, S> {
    fn moves_of(&self, dir: &[u8]) -> &[PlannedMove] {
        self.planned.moves.get(dir).map_or(&[], Vec::as_slice)
    }
}
