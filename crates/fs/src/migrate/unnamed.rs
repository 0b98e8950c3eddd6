//! Files that are open and have no name: unlinked ones, and those made without (`O_TMPFILE`).
//!
//! When such a file goes to another branch, its copy has no name either; all open handles go on with the copy. A crash
//! loses nothing that any program could find.
//!
//! A file that may still be given a name is copied into one that may too (`O_TMPFILE` on the target). Its inode number
//! goes with it, as with a named file. If it was not given a name, the last close forgets the number.

use std::ffi::OsString;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use rustix::io::Errno;
use umbrella_units::{BranchId, ByteSize};

use crate::error::OpError;
use crate::ground::at::FileAt;
use crate::metrics::Metric;
use crate::migrate::Migrations;
use crate::migrate::copying::{CopyOptions, Endpoint, TempCopy};
use crate::migrate::moving::{MoveControl, NotMoved};
use crate::migrate::transfer::{drop_copy, reopen_all};
use crate::node::{Backing, FileState, Handle, Node, key_of};
use crate::relocate;
use crate::relocate::{Durability, DurableCopy, EntryAt, Fingerprint, Limits, RelocateError};
use crate::write_back::CopyLocks;

/// A finished copy, and how open handles get at it.
enum FinishedCopy {
    /// Under this name in the hidden place of its branch.
    Hidden(OsString),
    /// It has no name either, but may be given one.
    Nameless(FileAt),
}

/// One move of one file without a name.
struct UnnamedMigration<'a> {
    node: &'a Arc<Node>,
    /// The file of the open handles.
    here: &'a FileAt,
    backing: Backing,
    to: Endpoint<'a>,
    /// Set by a change of the file meanwhile.
    cancel: &'a AtomicBool,
}

impl Migrations {
    /// Moves a file that has no name (any more) but is open. The caller holds the file's `io` lock exclusively. Steps
    /// as those of a file with a name:
    ///
    /// 1. Under the file's lock: check that it is not being copied; leave a flag that a change sets.
    /// 2. Without locks: copy.
    /// 3. Under the file's lock: check that the flag is not set, that the source is what was copied, and that no write
    ///    to it has failed. Open the copy once for each handle, and hand it over.
    pub(crate) fn transfer_unnamed(
        &self,
        node: &Arc<Node>,
        here: &FileAt,
        target: BranchId,
    ) -> Result<ByteSize, NotMoved> {
        let file = node.file().ok_or(NotMoved::Busy("it is a directory"))?;
        let branch = self.branches.get(target)?;
        let online = branch.online().ok_or(OpError::Offline)?;
        let cancel = Arc::new(AtomicBool::new(false));
        let (backing, may_be_linked) = {
            let mut state = file.state.write();
            may_move(&state)?;
            if state.copying.is_some() {
                return Err(NotMoved::Busy("it is being copied already"));
            }
            state.copy_begins(&cancel, true);
            (state.backing, state.may_be_linked)
        };
        let to = Endpoint { branch: &branch, online: &online };
        let migration = UnnamedMigration { node, here, backing, to, cancel: &cancel };
        let moved = self.copy_of_unnamed(&migration, may_be_linked).and_then(|(copied, made)| {
            let done = self.switch_handles(&migration, &copied, &made);
            if let FinishedCopy::Hidden(name) = made {
                drop_copy(&branch, name);
            }
            done.map(|()| copied.bytes)
        });
        if moved.is_err() {
            file.state.write().copy_ended(&cancel);
        }
        moved
    }

    fn switch_handles(
        &self,
        migration: &UnnamedMigration<'_>,
        copied: &DurableCopy,
        made: &FinishedCopy,
    ) -> Result<(), NotMoved> {
        let UnnamedMigration { node, here, backing, to, cancel } = *migration;
        let file = node.file().ok_or(NotMoved::Busy("it is a directory"))?;
        let mut state = file.state.write();
        if cancel.load(Ordering::Relaxed) || state.backing != backing {
            self.context.count(Metric::CopiesCancelled);
            return Err(NotMoved::Busy("it changed while it was copied"));
        }
        may_move(&state)?;
        if to.branch.draining() {
            return Err(NotMoved::Busy("its new branch is being drained"));
        }
        let (fd, print) = (Arc::clone(&here.fd), copied.source);
        if here.branch.io(move |_| Fingerprint::of_fd(fd.as_fd())).map_err(OpError::Sys)? != print {
            return Err(NotMoved::Busy("it changed while it was copied"));
        }
        let handles: Vec<_> = state.handles.iter().filter_map(Weak::upgrade).collect();
        handles.iter().try_for_each(|handle| handle.collect_write_errors())?;
        let reopened = match made {
            FinishedCopy::Hidden(name) => reopen_all(&handles, name, to.branch, to.online)?,
            FinishedCopy::Nameless(made) => {
                handles.iter().map(|handle| made.reopen(handle.flags)).collect::<Result<_, _>>()?
            }
        };
        state.backing = Backing { branch: to.branch.id, foreign_dev: 0, ino: copied.target.ino };
        state.copying = None;
        if state.may_be_linked {
            let keys = (key_of(&here.online, backing), key_of(to.online, state.backing));
            self.tree.inodes.moved_checked(keys.0, keys.1, node.born, copied.target.btime);
        }
        for (handle, file) in handles.iter().zip(reopened) {
            handle.file.store(Arc::new(file));
        }
        self.tree.nodes.add_backing(state.backing, node);
        drop(state);
        self.note_gone(backing);
        self.tree.nodes.remove_backing(backing, node);
        Ok(())
    }

    /// A copy that its writers wait for.
    fn copy_of_unnamed(
        &self,
        migration: &UnnamedMigration<'_>,
        may_be_linked: bool,
    ) -> Result<(DurableCopy, FinishedCopy), NotMoved> {
        let UnnamedMigration { here, to, cancel, .. } = *migration;
        let abilities = to.branch.abilities();
        let copying = CopyOptions {
            from: Endpoint { branch: &here.branch, online: &here.online },
            to,
            cancel,
            pace: MoveControl::default(),
            durability: Durability::Now,
            flusher_sees: Some(CopyLocks::Locks),
        };
        let (fd, theirs) = (Arc::clone(&here.fd), Arc::clone(to.online));
        if may_be_linked {
            if !abilities.tmpfile {
                return Err(NotMoved::Op(OpError::Sys(Errno::OPNOTSUPP)));
            }
            let copy = move |limits: &Limits<'_>| {
                let hidden = theirs.hidden.as_ref().ok_or(RelocateError::Changed)?;
                relocate::copy_unnamed(fd.as_fd(), hidden.tmp.as_fd(), &abilities, limits)
            };
            let (copied, fd) = self.copy_over(copying, copy)?;
            let (branch, online) = (Arc::clone(to.branch), Arc::clone(to.online));
            return Ok((copied, FinishedCopy::Nameless(FileAt { branch, fd: Arc::new(online.own(fd)), online })));
        }
        let name = self.tree.temp_name();
        let temp_name = name.clone();
        let copy = move |limits: &Limits<'_>| {
            let hidden = theirs.hidden.as_ref().ok_or(RelocateError::Changed)?;
            let temp = EntryAt { dir: hidden.tmp.as_fd(), name: &temp_name };
            let copied = relocate::copy_from_fd(fd.as_fd(), temp, &abilities, limits)?;
            Ok((copied, TempCopy::new(Arc::clone(&theirs), temp_name)))
        };
        let (copied, temp) = self.copy_over(copying, copy)?;
        temp.keep();
        Ok((copied, FinishedCopy::Hidden(name)))
    }

    /// Forgets the inode number of a file that was to be given a name and has none, when its last handle is closed. Its
    /// inode cannot be another file's yet.
    pub(crate) fn forget_unnamed(&self, state: &FileState, last: &Handle) {
        if state.unlinked && state.may_be_linked && state.handles.is_empty() {
            self.tree.inodes.forget(key_of(&last.current().online, state.backing));
        }
    }
}

fn may_move(state: &FileState) -> Result<(), NotMoved> {
    if state.passthrough > 0 || !state.unlinked {
        return Err(NotMoved::Busy("it is open, or has a name again"));
    }
    Ok(())
}
