//! Names that a branch may have made, and that no caller got. The branch's answer was lost or came too late, or the
//! next step with the new name failed. Such names are removed at once where the branch answers, else when it is back,
//! before any caller looks at it. Otherwise they would hide what was made elsewhere meanwhile.
//!
//! They are known until the daemon ends. A killed daemon leaves what it was making, an empty file.

use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{AtFlags, unlinkat};
use rustix::io::Errno;
use umbrella_policy::placement::spec::FileKind;

use crate::branch::beneath::parent_beneath;
use crate::branch::{Branch, Online};
use crate::error::OpError;
use crate::ground::at::DirAt;
use crate::ground::meta::{Meta, WANTED};
use crate::node::{Backing, Node, path_of};
use crate::relocate::{BranchUuid, is_doubtful};
use crate::tree::Tree;

/// A name that is to go.
#[derive(Debug, Clone)]
pub(crate) struct OrphanName {
    branch: BranchUuid,
    path: Vec<u8>,
    made: NewEntry,
}

/// What was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NewEntry {
    /// Something new of this kind.
    New(FileKind),
    /// Another name of a file.
    Link,
}

impl NewEntry {
    /// Whether the directory entry can be removed without loss.
    fn is_empty(self, found: &Meta) -> bool {
        match self {
            NewEntry::Link => found.kind != FileKind::Directory && found.nlink > 1,
            NewEntry::New(FileKind::Directory) => found.kind == FileKind::Directory,
            NewEntry::New(kind) => {
                found.kind == kind && found.nlink == 1 && (kind != FileKind::File || found.size == 0)
            }
        }
    }
}

impl OrphanName {
    /// Takes the name away. A doubtful error: it is not known.
    fn remove(&self, root: BorrowedFd<'_>) -> rustix::io::Result<()> {
        let gone = |errno: &Errno| matches!(*errno, Errno::NOENT | Errno::NOTDIR | Errno::NOTEMPTY | Errno::EXIST);
        let removed = || {
            let Some((dir, name)) = parent_beneath(root, &self.path)? else { return Ok(()) };
            let name = OsStr::from_bytes(name);
            let found = rustix::fs::statx(&dir, name, AtFlags::SYMLINK_NOFOLLOW, WANTED)?;
            let found = Meta::on(0, &found);
            if !self.made.is_empty(&found) {
                return Ok(());
            }
            let is_dir = found.kind == FileKind::Directory;
            unlinkat(&dir, name, if is_dir { AtFlags::REMOVEDIR } else { AtFlags::empty() })?;
            tracing::info!(path = %String::from_utf8_lossy(&self.path), "removed an entry that a hung branch created after its request had failed");
            Ok(())
        };
        match removed() {
            Err(errno) if gone(&errno) => Ok(()),
            done => done,
        }
    }
}

/// Whether what failed so may have happened.
fn is_unsure(error: OpError) -> bool {
    error == OpError::Offline || matches!(error, OpError::Sys(errno) if is_doubtful(errno))
}

/// How long a branch that has come back may take to end what hung.
const TIMEOUT: Duration = Duration::from_secs(20);

impl Tree {
    /// Removes an entry that a branch may have made although it reported a failure, or after a later step failed.
    /// Leaves an entry that another thread has found.
    pub(crate) fn undo_create(&self, parent: &Arc<Node>, name: &OsStr, dir: &DirAt, made: NewEntry) {
        let is_known = |found: &Meta| self.nodes.find(Backing::of(&dir.branch, found)).is_some();
        let removed = dir.find(name).and_then(|found| match found {
            Some(found) if made == NewEntry::Link || !made.is_empty(&found) || is_known(&found) => Ok(()),
            Some(found) if found.kind == FileKind::Directory => dir.rmdir(name),
            Some(_) => dir.unlink(name),
            None => Ok(()),
        });
        match removed {
            Err(error) if is_unsure(error) => {
                let (branch, path) = (BranchUuid(dir.online.uuid), path_of(parent, name));
                self.orphans.lock().push(OrphanName { branch, path, made });
                // While it is in use another file might get the name.
                dir.branch.take_offline_if(&dir.online, "it did not confirm a creation".to_owned());
            }
            Err(error) if !error.is_missing() => {
                tracing::warn!(%error, branch = %dir.branch.spec.name, name = %name.display(), "cannot remove an entry whose creation was reported as failed");
            }
            _ => {}
        }
    }

    /// [`Tree::undo_create`], if a branch that may hang failed so that it may have done what was asked.
    pub(crate) fn undo_create_if_unsure(
        &self,
        parent: &Arc<Node>,
        name: &OsStr,
        dir: &DirAt,
        made: NewEntry,
        error: OpError,
    ) {
        if dir.online.guarded && is_unsure(error) {
            self.undo_create(parent, name, dir, made);
        }
    }

    /// A thread found an entry whose creator did not know whether it was made.
    pub(crate) fn claim(&self, parent: &Arc<Node>, name: &OsStr, dir: &DirAt) {
        let mut orphans = if dir.online.guarded { self.orphans.lock() } else { return };
        if !orphans.is_empty() {
            let (branch, path) = (BranchUuid(dir.online.uuid), path_of(parent, name));
            orphans.retain(|one| one.branch != branch || one.path != path);
        }
    }

    /// Takes away what a branch made too late, before it is used again. False: it does not say; try again.
    pub(crate) fn remove_orphans(&self, branch: &Branch, online: &Online) -> bool {
        let uuid = BranchUuid(online.uuid);
        let mut orphans: Vec<_> = self.orphans.lock().extract_if(.., |one| one.branch == uuid).collect();
        if orphans.is_empty() {
            return true;
        }
        let theirs = orphans.clone();
        let remove = move |online: &Online| {
            let is_left = |one: &OrphanName| one.remove(online.root.as_fd()).is_err_and(is_doubtful);
            Ok(theirs.into_iter().filter(is_left).collect())
        };
        // As long as one of them is under way, its directory is locked.
        orphans = branch.io_within(TIMEOUT, remove).unwrap_or(orphans);
        let all_gone = orphans.is_empty();
        self.orphans.lock().extend(orphans);
        all_gone
    }
}
