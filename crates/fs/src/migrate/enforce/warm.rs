//! Files that a walk has found to move because they are warm. They move when all are known, the warmest first. So those
//! get what `max_move` and the room allow, in whatever order the walk met them.

use std::ffi::OsString;
use std::sync::Arc;

use umbrella_policy::placement::Selection;
use umbrella_units::ByteSize;

use crate::control::protocol::MoveEvent;
use crate::ground::meta::Meta;
use crate::migrate::enforce::EnforceWalker;
use crate::node::Node;
use crate::tree::Pinned;

/// Most files that are remembered: the warmest.
pub(super) const MOST_WARM: usize = 1 << 14;

/// A file that is to move.
pub(super) struct WarmFile {
    pub(super) dir: Arc<Node>,
    pub(super) name: OsString,
    pub(super) meta: Meta,
    pub(super) event: MoveEvent,
}

impl EnforceWalker<'_> {
    pub(super) fn move_warm(&mut self) {
        let found = std::mem::replace(&mut self.warm, Selection::new(ByteSize(u64::MAX), MOST_WARM));
        for WarmFile { dir, name, meta, event } in found.into_sorted() {
            if self.stopped || !self.migrations.placement.may_move_by_heat() {
                return;
            }
            let Ok(file) = Pinned::lookup(&self.migrations.tree, &dir, &name) else { continue };
            // Those before may have taken the room.
            let Some(([_, target], cause)) = self.migrations.evaluate_again(&file.node) else { continue };
            let event = MoveEvent { to: self.migrations.placement.branch_name(target), ..event };
            let moved = self.transfer(&file.node, target, cause);
            self.note_unless_gone((&dir, &name), &meta, event, moved);
        }
    }
}
