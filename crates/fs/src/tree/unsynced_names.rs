//! Syncs changes of names before what depends on them; `node::dir_changes` has the steps.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::error::OpResult;
use crate::ground::at::DirAt;
use crate::node::{NameChange, Node, UnsyncedName};
use crate::tree::Tree;

/// Changes of names that are to be durable, with their directories.
#[derive(Default)]
pub(crate) struct NamesToSync(SmallVec<[(Arc<Node>, UnsyncedName); 2]>);

/// The same, with the copies of these directories.
pub(crate) struct CopiesToSync(SmallVec<[(Arc<Node>, UnsyncedName, DirAt); 2]>);

impl NamesToSync {
    /// Adds those of a directory and of all above it.
    pub(crate) fn add_path(&mut self, dir: &Arc<Node>, wanted: impl Fn(&UnsyncedName) -> bool) {
        let mut next = Some(Arc::clone(dir));
        while let Some(at) = next {
            self.add(&at, &wanted);
            next = at.place().map(|(above, _)| above);
        }
    }

    /// Adds those of a directory.
    pub(crate) fn add(&mut self, at: &Arc<Node>, wanted: impl Fn(&UnsyncedName) -> bool) {
        for name in at.dir().map(|dir| dir.changes.unsynced_names(wanted)).unwrap_or_default() {
            if !self.0.iter().any(|(dir, known)| dir.id == at.id && *known == name) {
                self.0.push((Arc::clone(at), name));
            }
        }
    }

    /// These are durable.
    pub(crate) fn synced(self) {
        for (dir, name) in self.0 {
            if let Some(dir) = dir.dir() {
                dir.changes.names_synced(&[name]);
            }
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Tree {
    /// Files that have just moved out of these directories in batches are gone there for good. The caller holds the
    /// lock on names.
    pub(crate) fn sync_moved(&self, dirs: [&Arc<Node>; 2]) -> OpResult<()> {
        let mut moved = NamesToSync::default();
        for dir in dirs {
            moved.add(dir, |name| name.change == NameChange::Moved);
        }
        self.copies_to_sync(moved)?.sync()
    }

    /// The copies of these directories. The caller holds the lock on names.
    pub(crate) fn copies_to_sync(&self, names: NamesToSync) -> OpResult<CopiesToSync> {
        let mut copies = SmallVec::new();
        for (dir, name) in names.0 {
            match self.dir_at(&dir, name.branch) {
                Ok(copy) if copy.branch.settings().read_only => {}
                Ok(copy) => copies.push((dir, name, copy)),
                Err(error) if error.is_own_shortage() || name.change == NameChange::Given => return Err(error),
                // The branch is away, and is compared when it returns. Or this copy has gone itself, which the
                // directory above has a note of.
                Err(_) => {}
            }
        }
        Ok(CopiesToSync(copies))
    }
}

impl CopiesToSync {
    /// The caller holds no lock that others wait for long.
    pub(crate) fn sync(self) -> OpResult<()> {
        for (dir, name, copy) in self.0 {
            copy.fsync(false)?;
            if let Some(dir) = dir.dir() {
                dir.changes.names_synced(&[name]);
            }
        }
        Ok(())
    }
}
