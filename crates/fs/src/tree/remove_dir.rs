//! Removes names of files and directories.

use std::ffi::OsStr;
use std::sync::Arc;

use rustix::io::Errno;
use umbrella_policy::placement::spec::FileKind;

use crate::error::{OpError, OpResult};
use crate::ground::at::{DirAt, FileAt};
use crate::ground::meta::Meta;
use crate::node::{Node, inode_key};
use crate::tree::Tree;

/// An inode of which something is known, kept from being used again.
pub(crate) struct HeldNumber {
    key: crate::inode_map::BackingKey,
    _open: FileAt,
}

impl Tree {
    /// Holds the inode of a file before its last name goes. The number of the inode is forgotten afterwards; until then
    /// no other file may get the inode, so it is kept open. `None` when no number is stored for it, or names are left.
    pub(crate) fn hold_number(&self, dir: &DirAt, name: &OsStr, meta: &Meta) -> Option<HeldNumber> {
        let key = inode_key(&dir.online, meta);
        if meta.nlink > 1 || self.inodes.born(key).is_none() {
            return None;
        }
        Some(HeldNumber { key, _open: dir.refer(name).ok()? })
    }

    /// See `hold_number`.
    pub(crate) fn drop_number(&self, held: Option<HeldNumber>) {
        if let Some(held) = held {
            self.inodes.forget(held.key);
        }
    }

    /// Removes a directory with all its copies:
    ///
    /// 1. Look into every copy.
    /// 2. Remove the copies one after the other.
    /// 3. If one cannot be removed because it got new entries outside the pool, recreate the removed ones.
    ///
    /// A crash between leaves an empty directory, which is the same as not having removed it.
    pub(crate) fn remove_dir(&self, node: &Arc<Node>, name: &OsStr) -> OpResult<()> {
        self.remove_dir_for(node, name, &[], || Ok(()))
    }

    /// As `remove_dir`, for a directory that `rename` replaces on some branches. It is found empty first, then `rename`
    /// is called, then the copies that it did not replace go. Nothing is gone when `rename` fails.
    pub(crate) fn remove_dir_for(
        &self,
        node: &Arc<Node>,
        name: &OsStr,
        replaced: &[umbrella_units::BranchId],
        rename: impl FnOnce() -> OpResult<()>,
    ) -> OpResult<()> {
        let dir = node.dir().ok_or(OpError::Sys(Errno::NOTDIR))?;
        // Relocations into the directory, and copies of it being made, wait or have finished.
        let commit = dir.commit.lock();
        let copies = self.copies(node)?;
        if node.is_removed() {
            return Err(OpError::Sys(Errno::NOENT));
        }
        // The branch of an only copy says so itself, and nothing is half done then.
        let says_itself = replaced.is_empty() && matches!(copies.as_slice(), [copy] if !copy.online.guarded);
        for copy in copies.iter().filter(|_| !says_itself) {
            if !copy.is_empty()? {
                return Err(OpError::Sys(Errno::NOTEMPTY));
            }
        }
        let (parent, _) = node.place().ok_or(OpError::Sys(Errno::BUSY))?;
        rename()?;
        let mut removed = Vec::with_capacity(copies.len());
        for copy in copies.iter().filter(|copy| !replaced.contains(&copy.id())) {
            let above = self.dir_at(&parent, copy.id())?;
            let meta = copy.stat_self()?;
            match self.remove_entry(&parent, &above, || above.rmdir(name)) {
                Ok(()) | Err(OpError::Sys(Errno::NOENT)) => removed.push((above, meta, copy)),
                // The new directory has the name already; an empty copy of the old one is a copy of it from now on.
                Err(_) if !replaced.is_empty() => {}
                Err(error) => {
                    for (above, meta, gone) in &removed {
                        self.restore_dir(node, above, name, meta, (gone, copy));
                    }
                    return Err(error);
                }
            }
        }
        let gone = {
            let mut state = dir.state.write();
            let has_gone = |copy: &&DirAt| {
                replaced.contains(&copy.id()) || removed.iter().any(|(_, _, gone)| gone.id() == copy.id())
            };
            state.kept = copies.iter().filter(has_gone).cloned().collect();
            state.removed = true;
            state.copies.clone()
        };
        // A thread that makes a listing holds it, and may wait for a commit.
        drop(commit);
        self.forget_differing(node);
        *dir.listing.lock() = None;
        for copy in &gone {
            self.nodes.remove_backing(copy.backing, node);
            self.dir_fds.drop_node(node.id, copy.branch);
        }
        for (above, meta, _) in &removed {
            self.inodes.forget(inode_key(&above.online, meta));
        }
        Ok(())
    }

    /// Makes a copy again that was removed, as it was: its inode lives on while its descriptor is held. Where it does
    /// not, it gets what is shown, and the rest from the copy that `stays`.
    fn restore_dir(&self, node: &Arc<Node>, above: &DirAt, name: &OsStr, meta: &Meta, (gone, stays): (&DirAt, &DirAt)) {
        let Some(dir) = node.dir() else { return };
        // No lookup may take it for a foreign one before it has its number.
        let _attributes = dir.attributes.lock();
        let place = node.place();
        let keeping = place.as_ref().and_then(|(parent, _)| parent.dir()).and_then(|dir| dir.times.keep(None));
        let as_shown = || self.clone_copy(stays, self.attributes_for_copy(dir, stays)?, above, name);
        let restored = self.clone_copy(gone, None, above, name).or_else(|_| as_shown());
        drop(keeping);
        let noted = restored.and_then(|made| {
            let (now, other) = (made.stat_self()?, stays.stat_self()?);
            let key = inode_key(&made.online, &now);
            self.inodes.forget(inode_key(&above.online, meta));
            self.inodes.alias(inode_key(&stays.online, &other), key);
            self.inodes.ino_checked(key, now.btime);
            self.add_copy(node, dir, &above.branch, &now);
            self.dir_fds.put(node.id, &made);
            Ok(())
        });
        if let Err(error) = noted {
            tracing::warn!(branch = %above.branch.spec.name, %error, "cannot restore a copy of a directory");
        }
    }
}

/// Keeps the inode of a pipe or device open before its last name is removed, for as long as the kernel knows it. The
/// daemon has no handle of such a file, however many processes have it open. Not for regular files, whose space must
/// become free at once.
pub(crate) fn hold_special(dir: &DirAt, name: &OsStr, meta: &Meta) -> Option<Box<FileAt>> {
    let is_special = meta.kind != FileKind::File && meta.nlink <= 1;
    is_special.then(|| dir.refer(name).ok().map(Box::new)).flatten()
}
