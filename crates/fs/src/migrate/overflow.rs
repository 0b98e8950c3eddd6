//! A write finds its branch full: the file moves to the next branch that its rule allows, with all open handles.

use std::sync::Arc;
use std::time::{Duration, Instant};

use umbrella_policy::placement::{Choice, FileFacts};
use umbrella_units::{BranchId, ByteSize};

use crate::error::{OpError, OpResult};
use crate::ground::meta::Meta;
use crate::metrics::Metric;
use crate::migrate::Migrations;
use crate::migrate::mover::FIRST_RETRY;
use crate::migrate::moving::{MoveControl, MoveReason, NotMoved};
use crate::node::{DataPath, Handle};

/// How long to retry while attributes or names change, or while the file is open outside the mount.
const TIMEOUT: Duration = Duration::from_secs(1);

impl Migrations {
    /// A program says that its file will end here: while the file is empty, it is brought where one of that size
    /// belongs. One in the staging area leaves so in any case.
    pub(crate) fn place_announced(&self, handle: &Handle, end: u64) {
        let node = &handle.node;
        let Some(file) = node.file() else { return };
        if handle.data == DataPath::Passthrough || !self.placement.rules.load().rules.need_late_facts() {
            return;
        }
        let _io = file.io.write();
        let here = handle.current();
        let Ok(meta) = here.stat() else { return };
        let is_new = meta.size == 0 && meta.blocks == 0 && !file.state.read().unlinked;
        if !is_new || self.branches.is_staging(here.branch.id) || here.branch.settings().read_only {
            return;
        }
        let meta = Meta { size: end, ..meta };
        let path = self.placement.deciding_path(node, &meta);
        if let Choice::Place(target) = self.placement.decide(&path, &meta, &here.branch).choice {
            // One that cannot move now is judged again when it is closed.
            let _stays = self.transfer(node, target, MoveReason::Full, MoveControl::default());
        }
    }

    /// Takes the file behind a handle away from `branch`, which had no room for `need` more bytes, to one that is not
    /// in `full`. Afterwards the caller tries again. `NoRoom`: it is where it was.
    ///
    /// Reads and writes of this file wait meanwhile; everything else goes on.
    pub(crate) fn overflow(
        &self,
        handle: &Arc<Handle>,
        branch: BranchId,
        full: &[BranchId],
        need: ByteSize,
    ) -> OpResult<()> {
        let node = &handle.node;
        let file = node.file().ok_or(OpError::Stale)?;
        let _io = file.io.write();
        let here = handle.current();
        if here.branch.id != branch {
            return Ok(()); // Another writer of the same file was faster.
        }
        here.branch.invalidate_space();
        let area = self.staged.area().filter(|area| area.branch.id == branch);
        let (staged, cause) = (area.is_some(), area.map_or(MoveReason::Full, MoveReason::of_leaving));
        let mut full: smallvec::SmallVec<[BranchId; 4]> = full.iter().copied().collect();
        let (begun, mut want) = (Instant::now(), None);
        loop {
            let mut meta = here.stat()?;
            // So large it is about to be; its rule may look at that.
            meta.size = meta.size.saturating_add(need.0);
            let path = self.placement.deciding_path(node, &meta);
            // What the file occupies moves along; holes do not.
            let room = ByteSize(meta.occupied().0.saturating_add(need.0));
            let xattrs = self.placement.xattrs(&path, &meta, &here.branch);
            let facts = FileFacts { xattrs: xattrs.as_deref(), ..self.placement.facts(&path, &meta, &here.branch) };
            let Some(target) = self.placement.place_next(&facts, &full, room) else {
                return Err(want.unwrap_or(OpError::NoRoom));
            };
            let unlinked = file.state.read().unlinked;
            let moved = if unlinked {
                self.transfer_unnamed(node, &here, target)
            } else {
                self.transfer(node, target, cause, MoveControl::default())
            };
            match moved {
                Ok(_) if staged => {
                    self.staged.left(node);
                    return Ok(());
                }
                Ok(_) => {
                    self.context.count(Metric::Overflows);
                    tracing::info!(
                        path = %String::from_utf8_lossy(&path),
                        from = %here.branch.spec.name,
                        to = %self.placement.branch_name(target),
                        "branch is full; moved under its writer"
                    );
                    return Ok(());
                }
                Err(why @ (NotMoved::Busy(_) | NotMoved::Mapped)) => {
                    if begun.elapsed() >= TIMEOUT {
                        tracing::warn!(path = %String::from_utf8_lossy(&path), %why, "branch is full and the file cannot be moved");
                        return Err(OpError::NoRoom);
                    }
                    std::thread::sleep(FIRST_RETRY);
                }
                Err(why) => {
                    tracing::info!(path = %String::from_utf8_lossy(&path), to = %self.placement.branch_name(target), %why, "cannot move the file there; trying the next branch");
                    want = want.or(why.own_shortage());
                    full.push(target);
                }
            }
        }
    }
}
