//! The destination of files in a walk: by the rules, or by another plan.

use umbrella_policy::heat::Opens;
use umbrella_units::BranchId;

use crate::branch::Branch;
use crate::control::protocol::MoveEvent;
use crate::ground::meta::Meta;
use crate::migrate::Migrations;
use crate::migrate::enforce::EnforceWalker;

/// A file that a walk meets.
pub(crate) struct VisitedFile<'a> {
    /// All names of it that are known.
    pub(crate) names: &'a [Vec<u8>],
    /// The one that decides by the rules.
    pub(crate) path: &'a [u8],
    pub(crate) branch: &'a Branch,
    pub(crate) meta: &'a Meta,
}

/// Where a file is to go.
pub(super) struct Target {
    pub(super) branch: BranchId,
    /// Reports the move.
    pub(super) event: MoveEvent,
    /// How warm it is, where it moves for that.
    pub(super) warmth: Option<Opens>,
}

/// Decides in place of the rules.
pub(crate) trait PlacementOverride {
    /// The cause of its moves, as reported to people.
    fn name(&self) -> &'static str;

    /// Where it is to go; nowhere: it stays.
    fn target_of(&mut self, migrations: &Migrations, file: &VisitedFile<'_>) -> Option<BranchId>;
}

impl EnforceWalker<'_> {
    /// Where a file is to go that is not there.
    pub(super) fn target_of(&mut self, file: &VisitedFile<'_>) -> Option<Target> {
        let Some(placement_override) = &mut self.placement_override else {
            return self.by_rules(file.path, file.branch, file.meta);
        };
        let branch = placement_override.target_of(self.migrations, file)?;
        let name = placement_override.name().to_owned();
        let event = self.event(file.path, [file.branch.id, branch], file.meta, name);
        Some(Target { branch, event, warmth: None })
    }
}
