//! Changes of attributes, and extended attributes. A directory's are changed on all its copies.
//!
//! System calls on a file:
//!
//! - a change of attributes: 4
//! - an extended attribute read or set: 3 (open, look, do it)
//! - an extended attribute read from a file that is open: 1

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use rustix::fs::{OFlags, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, XattrFlags};
use rustix::io::Errno;
use umbrella_policy::placement::spec::FileKind;
use umbrella_units::Timestamp;

use crate::error::{OpError, OpResult};
use crate::ground::at::FileAt;
use crate::ground::creds::Asker;
use crate::ground::kernel_cache::KernelCache;
use crate::io::Io;
use crate::io::data::Effect;
use crate::migrate::is_due;
use crate::node::{File, FileState, HandleId, Node, NodeId};
use crate::relocate::is_reserved_xattr;
use crate::rights::{ACCESS, DEFAULT, Rights, RightsChange};
use crate::tree::Attr;

/// What the kernel asks for before the first write to a file, which takes capabilities away.
const CAPABILITY: &str = "security.capability";

/// A new access or modification time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NewTime {
    /// The time of the call.
    Now,
    /// This one.
    At(Timestamp),
}

/// What is to change.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AttributeChange {
    /// Permission bits, 07777.
    pub perm: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Length.
    pub size: Option<u64>,
    /// Last access.
    pub atime: Option<NewTime>,
    /// Last modification.
    pub mtime: Option<NewTime>,
    /// An open handle to work through.
    pub handle: Option<HandleId>,
    /// Set-user-id and set-group-id go.
    pub drop_set_id: bool,
    /// Nothing else was asked for, and by this user.
    pub nothing_by: Option<Asker>,
}

impl AttributeChange {
    fn times(&self) -> Option<Timestamps> {
        if self.atime.is_none() && self.mtime.is_none() {
            return None;
        }
        let spec = |time: Option<NewTime>| match time {
            None => Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
            Some(NewTime::Now) => Timespec { tv_sec: 0, tv_nsec: UTIME_NOW },
            Some(NewTime::At(at)) => Timespec { tv_sec: at.secs, tv_nsec: i64::from(at.nanos) },
        };
        Some(Timestamps { last_access: spec(self.atime), last_modification: spec(self.mtime) })
    }

    /// The parts of it that change the access rights of a directory.
    fn of_rights(&self) -> Option<RightsChange> {
        let AttributeChange { perm, uid, gid, .. } = *self;
        (perm.is_some() || uid.is_some() || gid.is_some()).then_some(RightsChange::Mode { perm, uid, gid })
    }

    fn apply(&self, file: &FileAt) -> OpResult<()> {
        if self.uid.is_some() || self.gid.is_some() || self.nothing_by.is_some() {
            file.chown(self.uid, self.gid, KernelCache::REPLIED)?;
        }
        if let Some(perm) = self.perm {
            file.chmod(perm & 0o7777, KernelCache::REPLIED)?;
        }
        if let Some(times) = self.times() {
            file.set_times(times, KernelCache::REPLIED)?;
        }
        Ok(())
    }
}

impl AttributeChange {
    /// Whether every file system has these times; memory has more.
    fn times_are_common(&self) -> bool {
        let is_common = |time| !matches!(time, Some(NewTime::At(at)) if i32::try_from(at.secs).is_err());
        is_common(self.atime) && is_common(self.mtime)
    }
}

/// Most bytes of an extended attribute of a file in the staging area, and of all their names: every file system keeps
/// this much.
const STAGED_VALUE: usize = 256;
const STAGED_NAMES: usize = 32;

impl Io {
    /// Changes attributes.
    pub(crate) fn setattr(&self, node: NodeId, change: &AttributeChange) -> OpResult<Attr> {
        let node = self.tree.node(node)?;
        if let Some(size) = change.size
            && self.staged.area_of(&node).is_some_and(|staging| self.staged.outgrows(&node, staging.branch.id, size))
        {
            self.staging.destage_to_grow(&node, size)?;
        }
        if !change.times_are_common() && self.staged.area_of(&node).is_some() {
            // If it cannot leave now, its branch makes of them what it can when it does.
            let _later = self.staging.destage_now(&node);
        }
        // Before the names are locked: it may be on its way to another branch for long.
        let _io = match node.file() {
            Some(file) if change.size.is_some() => Some(file.io.read()),
            _ => None,
        };
        let _names = self.tree.rename_lock.read();
        let changed = match node.file() {
            None => self.change_dir_attributes(&node, change),
            Some(file) => self.change_file(&node, file, change),
        };
        // A part of it may be done, and the kernel takes no attributes from an error.
        let attr = changed.and_then(|()| self.tree.attr_of(&node));
        let attr = attr.inspect_err(|_| self.context.forget_attributes(node.id))?;
        if is_due(&node) {
            self.migrate.evaluate_meta(&node, &attr.meta);
        }
        Ok(attr)
    }

    fn change_dir_attributes(&self, node: &Arc<Node>, change: &AttributeChange) -> OpResult<()> {
        let apply = || match change.of_rights() {
            Some(of_rights) => {
                self.tree.change_dir(node, Some(&of_rights), KernelCache::REPLIED, |copy| change.apply(copy))
            }
            None => self.tree.touch_dir(node, |copy| change.apply(copy)),
        };
        let (Some(dir), Some(times)) = (node.dir(), change.times()) else { return apply() };
        // All copies: what is put back on one may come from another.
        let again = || {
            for copy in &self.tree.known_copies(node, dir)? {
                let _told_before = copy.as_file().set_times(times.clone(), KernelCache::REPLIED);
            }
            Ok(())
        };
        dir.times.changing(apply, again)
    }

    fn change_file(&self, node: &Arc<Node>, file: &File, change: &AttributeChange) -> OpResult<()> {
        {
            let mut state = file.state.write();
            state.abort_copy();
            let target = self.tree.open_inode(&state)?;
            // Before the contents change: if this fails, the program is as it was.
            if change.drop_set_id {
                self.tree.drop_set_id(node, &target)?;
            }
            if let Some(size) = change.size {
                self.truncate(&state, &target, size)?;
                self.after_write(node, &target, Effect::Resized { size });
            }
            match change.nothing_by {
                Some(asker) => self.change_nothing(node, &state, &target, asker)?,
                None => change.apply(&target)?,
            }
            state.needs_evaluation = true;
        }
        Ok(())
    }

    /// Linux sends an empty change in two cases:
    ///
    /// - before a write to a file that may not keep its set-id bits
    /// - for a chown(2) that names neither owner nor group; it clears the bits as well, but needs the owner or root
    ///
    /// Only the first of the caller's groups is known, so a caller who may be of another group counts as outside the
    /// file's group.
    fn change_nothing(&self, node: &Node, state: &FileState, target: &FileAt, asker: Asker) -> OpResult<()> {
        let is_written = state.handles.iter().filter_map(Weak::upgrade).any(|handle| handle.writer);
        if is_written && asker.may_write(node.ino.0) {
            return self.tree.drop_set_id(node, target);
        }
        let caller = asker.caller;
        let meta = target.stat()?;
        let foreign_group = caller.uid != 0 && meta.perm & 0o2000 != 0 && caller.gid != meta.gid;
        if (meta.is_set_id() || foreign_group) && caller.uid != 0 && caller.uid != meta.uid {
            return Err(OpError::Sys(Errno::PERM));
        }
        if foreign_group {
            target.chmod(meta.perm & !0o6000, KernelCache::REPLIED)?;
        }
        target.chown(None, None, KernelCache::REPLIED)
    }

    fn truncate(&self, state: &FileState, target: &FileAt, size: u64) -> OpResult<()> {
        let writer = state.handles.iter().filter_map(Weak::upgrade).find(|handle| handle.writer);
        match writer {
            Some(handle) => handle.current().truncate(size, KernelCache::REPLIED)?,
            // Never waits: what a user put in the file's place on the branch may be a pipe.
            None if target.stat()?.kind != FileKind::File => return Err(OpError::Stale),
            None => target.reopen(OFlags::WRONLY | OFlags::NONBLOCK)?.truncate(size, KernelCache::REPLIED)?,
        }
        Ok(())
    }

    fn on_node<T>(&self, node: &Arc<Node>, call: impl Fn(&FileAt) -> OpResult<T>) -> OpResult<T> {
        match node.file() {
            Some(file) => call(&self.tree.open_inode(&file.state.read())?),
            None => call(&self.tree.shown_copy(node, node.dir().ok_or(OpError::Stale)?)?.as_file()),
        }
    }

    /// Of a directory, `of_rights` says how it changes who may use it.
    fn change_node(
        &self,
        node: NodeId,
        of_rights: Option<&RightsChange>,
        call: impl Fn(&FileAt, KernelCache) -> OpResult<()>,
    ) -> OpResult<()> {
        let _names = self.tree.rename_lock.read();
        let node = self.tree.node(node)?;
        self.tree.change_without_reply(&node, |cache| match node.file() {
            Some(file) => {
                let mut state = file.state.write();
                state.abort_copy();
                call(&self.tree.open_inode(&state)?, cache)
            }
            None => self.tree.change_dir(&node, of_rights, cache, |copy| call(copy, cache)),
        })
    }

    /// Value of an extended attribute.
    pub(crate) fn getxattr(&self, node: NodeId, name: &OsStr) -> OpResult<Vec<u8>> {
        if is_reserved_xattr(name) {
            return Err(OpError::Sys(Errno::NODATA));
        }
        let _names = self.tree.rename_lock.read();
        let found = self.tree.node(node)?;
        // Once: what is done behind the mount is seen from the next question on.
        if name == CAPABILITY
            && found.file().is_some_and(|file| file.state.read().is_bare.swap(false, Ordering::Relaxed))
        {
            return Err(OpError::Sys(Errno::NODATA));
        }
        if let Some(acl) = self.tree.shown_acl(&found, name)? {
            return Ok(acl);
        }
        self.on_node(&found, |file| file.get_xattr(name))
    }

    /// Names of all extended attributes, each ended by a zero byte.
    pub(crate) fn listxattr(&self, node: NodeId) -> OpResult<Vec<u8>> {
        let _names = self.tree.rename_lock.read();
        let node = self.tree.node(node)?;
        let mut names = self.on_node(&node, FileAt::list_xattr)?;
        if let Some(divergence) = node.divergence() {
            let Rights { access, default, .. } = &divergence.shown.rights;
            let acls = [(ACCESS, access), (DEFAULT, default)];
            names = without(names, |name| acls.iter().any(|(acl, _)| name == acl.as_bytes()));
            for (acl, _) in acls.iter().filter(|(_, value)| value.is_some()) {
                names.extend_from_slice(acl.as_bytes());
                names.push(0);
            }
        }
        Ok(without(names, |name| is_reserved_xattr(OsStr::from_bytes(name))))
    }

    /// Takes set-group-id away.
    pub(crate) fn drop_set_gid(&self, node: NodeId) -> OpResult<()> {
        self.change_node(node, Some(&RightsChange::DropSetGid), |file, cache| {
            let meta = file.stat()?;
            if meta.perm & 0o2000 == 0 { Ok(()) } else { file.chmod(meta.perm & !0o2000, cache) }
        })
    }

    /// Sets an extended attribute.
    pub(crate) fn setxattr(&self, node: NodeId, name: &OsStr, value: &[u8], flags: XattrFlags) -> OpResult<()> {
        if is_reserved_xattr(name) {
            return Err(OpError::Reserved);
        }
        let of_rights = acl_change(name, Some(value));
        let set = || {
            self.change_node(node, of_rights.as_ref(), |file, cache| file.set_xattr(name, value, flags, cache))?;
            self.evaluate_xattr(node, name);
            Ok(())
        };
        let file = self.tree.node(node)?;
        if self.staged.area_of(&file).is_none() {
            return set();
        }
        // A branch may not keep what memory does: more than a little is for it to judge.
        if value.len() > STAGED_VALUE || self.listxattr(node)?.len() + name.len() + 1 > STAGED_NAMES {
            self.staging.destage_now(&file)?;
            return set();
        }
        match set() {
            // And the other way round.
            Err(OpError::Sys(Errno::OPNOTSUPP | Errno::NOSPC)) => {
                self.staging.destage_now(&file)?;
                set()
            }
            done => done,
        }
    }

    /// Removes an extended attribute.
    pub(crate) fn removexattr(&self, node: NodeId, name: &OsStr) -> OpResult<()> {
        if is_reserved_xattr(name) {
            return Err(OpError::Sys(Errno::NODATA));
        }
        self.change_node(node, acl_change(name, None).as_ref(), |file, cache| file.remove_xattr(name, cache))?;
        self.evaluate_xattr(node, name);
        Ok(())
    }

    /// An attribute of a file changed: where rules look at it, the file may belong elsewhere.
    fn evaluate_xattr(&self, node: NodeId, name: &OsStr) {
        if !self.tree.placement.looks_at_xattr(name) {
            return;
        }
        let _names = self.tree.rename_lock.read();
        let Ok(node) = self.tree.node(node) else { return };
        if let Some(file) = node.file() {
            file.state.write().needs_evaluation = true;
            self.migrate.evaluate_soon(&node);
        }
    }
}

/// The change that a new value of an attribute makes to the access rights of a directory.
fn acl_change(name: &OsStr, value: Option<&[u8]>) -> Option<RightsChange> {
    let value = value.map(<[u8]>::to_vec);
    match name.to_str() {
        Some(ACCESS) => Some(RightsChange::Access(value)),
        Some(DEFAULT) => Some(RightsChange::Default(value)),
        _ => None,
    }
}

fn is_trusted(name: &[u8]) -> bool {
    name.starts_with(b"trusted.")
}

/// Whether a list of attributes has some that file systems show to root only.
pub(crate) fn has_trusted(names: &[u8]) -> bool {
    names.split(|&byte| byte == 0).any(is_trusted)
}

/// A list of attributes as file systems show it to others than root.
pub(crate) fn without_trusted(names: Vec<u8>) -> Vec<u8> {
    without(names, is_trusted)
}

/// A list of attributes, each with a 0 at its end, without some.
fn without(names: Vec<u8>, left_out: impl Fn(&[u8]) -> bool) -> Vec<u8> {
    if !names.split(|&byte| byte == 0).any(&left_out) {
        return names;
    }
    let stays = |name: &&[u8]| !left_out(name.strip_suffix(b"\0").unwrap_or(name));
    names.split_inclusive(|&byte| byte == 0).filter(stays).flatten().copied().collect()
}
