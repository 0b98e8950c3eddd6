//! Which names were given by a rename that is perhaps not on the disk yet.
//!
//! A file must not move under such a name. After a power loss it would have that name on its new branch, and the one
//! before on its old branch.
//!
//! 1. A rename on one branch notes its time in the node of the file or directory. A rename over several branches is
//!    durable when it returns.
//! 2. An fsync of a directory that succeeds notes when it began.
//! 3. Before a file moves, [`LateNames`] finds the names on its path that were given later than step 2. Their
//!    directories are synced on the old branch, and the notes of step 1 go.
//!
//! A rename two minutes ago does not count: every file system has written it by then. The note is lost with its node,
//! when the kernel forgets that.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::branch::SETTLED;
use crate::error::OpResult;
use crate::ground::at::DirAt;
use crate::node::{Node, NodeId};

const SECOND: u64 = 1_000_000_000;
const NO_TIME: u64 = 0;

/// A moment, in nanoseconds since the machine was started.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SyncStart(u64);

impl SyncStart {
    pub(crate) fn now() -> SyncStart {
        SyncStart(uptime_nanos())
    }
}

/// Such a moment in a node; at first none.
#[derive(Default)]
pub(crate) struct NotedTime(AtomicU64);

impl Node {
    /// Step 1, after the rename.
    pub(crate) fn note_renamed(&self) {
        self.renamed.0.store(uptime_nanos(), Ordering::Release);
    }

    /// Step 2, after all copies of this directory were synced.
    pub(crate) fn note_names_synced(&self, began: SyncStart) {
        if let Some(dir) = self.dir() {
            dir.names_synced.0.fetch_max(began.0, Ordering::AcqRel);
        }
    }

    /// When it got a name in this directory that is perhaps not durable.
    fn renamed_lately(&self, parent: &Node) -> Option<u64> {
        let at = self.renamed.0.load(Ordering::Acquire);
        let synced = parent.dir().map_or(NO_TIME, |dir| dir.names_synced.0.load(Ordering::Acquire));
        (at > synced && uptime_nanos() < at.saturating_add(SETTLED * SECOND)).then_some(at)
    }
}

/// Names that are made durable before files move under them.
#[derive(Default)]
pub(crate) struct LateNames {
    renamed: Vec<(Arc<Node>, u64)>,
    /// Their directories, on the branch that the files leave.
    dirs: Vec<(NodeId, DirAt)>,
}

impl LateNames {
    /// Adds those of a file and of the directories above it; `parent` holds the file. The caller holds the lock on
    /// names.
    pub(crate) fn add(
        &mut self,
        file: &Arc<Node>,
        parent: &Arc<Node>,
        copy_of: impl Fn(&Arc<Node>) -> OpResult<DirAt>,
    ) -> OpResult<()> {
        let (mut below, mut next) = (Arc::clone(file), Some(Arc::clone(parent)));
        while let Some(above) = next {
            if let Some(at) = below.renamed_lately(&above) {
                if !self.dirs.iter().any(|(known, _)| *known == above.id) {
                    self.dirs.push((above.id, copy_of(&above)?));
                }
                self.renamed.push((below, at));
            }
            next = above.place().map(|(parent, _)| parent);
            below = above;
        }
        Ok(())
    }

    /// Step 3.
    pub(crate) fn sync(self) -> OpResult<()> {
        self.dirs.iter().try_for_each(|(_, copy)| copy.fsync(false))?;
        for (node, at) in self.renamed {
            // One that was renamed meanwhile keeps its note.
            let _renamed = node.renamed.0.compare_exchange(at, NO_TIME, Ordering::AcqRel, Ordering::Relaxed);
        }
        Ok(())
    }
}

fn uptime_nanos() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    now.tv_sec as u64 * SECOND + now.tv_nsec as u64
}
