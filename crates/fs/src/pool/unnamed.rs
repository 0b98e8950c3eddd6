//! Files that are open and have no name: unlinked ones, and those made without (`O_TMPFILE`).
//!
//! When such a file goes to another branch, its copy has no name either; all who have it open go on with the copy. A crash loses nothing that
//! anybody could find. What may still be given a name is copied into a file that may (`O_TMPFILE` on the target), and its inode number goes
//! with it as that of a file with a name does; it is forgotten at the last close if no name was given.

use std::os::fd::AsFd;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Weak};

use rustix::io::Errno;
use umbrella_units::{BranchId, ByteSize};

use super::Pool;
use super::copying::{Copying, End, Unclaimed};
use super::govern::Holds;
use super::transfer::{NotMoved, Pace, drop_copy, key_of, reopen_all};
use crate::at::FileAt;
use crate::branch::{Branch, Online};
use crate::error::OpError;
use crate::handle::Handle;
use crate::node::{Backing, FileState, Node};
use crate::relocate::{self, Copied, Durability, Limits, Place, RelocateError};

/// A copy that its writers wait for.
fn copying<'a>(
    here: &'a FileAt,
    branch: &'a Arc<Branch>,
    online: &'a Arc<Online>,
    cancel: &'a AtomicBool,
) -> Copying<'a> {
    Copying {
        from: End { branch: &here.branch, online: &here.online },
        to: End { branch, online },
        cancel,
        pace: Pace::default(),
        durability: Durability::Now,
        governed: Some(Holds::Locks),
    }
}

impl Pool {
    /// Moves a file that has no name (any more) but is open. The caller holds the file's `io` lock exclusively.
    pub(super) fn transfer_unnamed(
        &self,
        node: &Arc<Node>,
        here: &FileAt,
        target: BranchId,
    ) -> Result<ByteSize, NotMoved> {
        let file = node.file().ok_or(NotMoved::Busy("it is a directory"))?;
        let branch = self.branch(target)?;
        let online = branch.online().ok_or(OpError::Offline)?;
        let mut state = file.state.write();
        if state.passthrough > 0 || !state.unlinked {
            return Err(NotMoved::Busy("it is open, or has a name again"));
        }
        if branch.draining() {
            return Err(NotMoved::Op(OpError::NoRoom));
        }
        let handles: Vec<_> = state.handles.iter().filter_map(Weak::upgrade).collect();
        handles.iter().try_for_each(|handle| handle.ask_for_errors())?;
        let (copied, reopened) = if state.may_be_linked {
            self.copy_to_be_linked(here, &branch, &online, &handles)?
        } else {
            self.copy_of_unlinked(here, &branch, &online, &handles)?
        };
        let old = state.backing;
        state.backing = Backing { branch: target, dev: online.dev, ino: copied.target.ino };
        if state.may_be_linked {
            let keys = (key_of(&here.online, old), key_of(&online, state.backing));
            self.inodes.moved(keys.0, keys.1, node.born);
            self.inodes.ino_checked(keys.1, copied.target.btime);
        }
        for (handle, file) in handles.iter().zip(reopened) {
            handle.file.store(Arc::new(file));
        }
        self.nodes.add_backing(state.backing, node);
        drop(state);
        self.note_gone(old);
        self.nodes.remove_backing(old, node);
        Ok(copied.bytes)
    }

    fn copy_of_unlinked(
        &self,
        here: &FileAt,
        branch: &Arc<Branch>,
        online: &Arc<Online>,
        handles: &[Arc<Handle>],
    ) -> Result<(Copied, Vec<FileAt>), NotMoved> {
        let temp_name = self.mover.temp_name();
        let stop = AtomicBool::new(false);
        let (fd, name, abilities) = (Arc::clone(&here.fd), temp_name.clone(), branch.abilities());
        let theirs = Arc::clone(online);
        let copy = move |limits: &Limits<'_>| {
            let hidden = theirs.hidden.as_ref().ok_or(RelocateError::Changed)?;
            let temp = Place { dir: hidden.tmp.as_fd(), name: &name };
            let copied = relocate::copy_from_fd(fd.as_fd(), temp, &abilities, limits)?;
            Ok((copied, Unclaimed::new(Arc::clone(&theirs), name)))
        };
        let (copied, unclaimed) = self.copy_over(copying(here, branch, online, &stop), copy)?;
        unclaimed.keep();
        let reopened = reopen_all(handles, &temp_name, branch, online);
        drop_copy(branch, temp_name);
        Ok((copied, reopened?))
    }

    fn copy_to_be_linked(
        &self,
        here: &FileAt,
        branch: &Arc<Branch>,
        online: &Arc<Online>,
        handles: &[Arc<Handle>],
    ) -> Result<(Copied, Vec<FileAt>), NotMoved> {
        if !branch.abilities().tmpfile {
            return Err(NotMoved::Op(OpError::Sys(Errno::OPNOTSUPP)));
        }
        let stop = AtomicBool::new(false);
        let (fd, theirs, abilities) = (Arc::clone(&here.fd), Arc::clone(online), branch.abilities());
        let copy = move |limits: &Limits<'_>| {
            let hidden = theirs.hidden.as_ref().ok_or(RelocateError::Changed)?;
            relocate::copy_unnamed(fd.as_fd(), hidden.tmp.as_fd(), &abilities, limits)
        };
        let (copied, fd) = self.copy_over(copying(here, branch, online, &stop), copy)?;
        let made = FileAt { branch: Arc::clone(branch), online: Arc::clone(online), fd: Arc::new(online.own(fd)) };
        let reopened = handles.iter().map(|handle| made.reopen(handle.flags)).collect::<Result<_, _>>()?;
        Ok((copied, reopened))
    }

    /// The last handle of a file that was to be given a name is closed, and it has none: its inode number is forgotten while its inode
    /// cannot be another file's yet.
    pub(super) fn forget_unnamed(&self, state: &FileState, last: &Handle) {
        if state.unlinked && state.may_be_linked && state.handles.is_empty() {
            self.inodes.forget(key_of(&last.current().online, state.backing));
        }
    }
}
