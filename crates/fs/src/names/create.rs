//! New names: files, directories, links, device nodes, and files without a name.
//!
//! 1. The name is looked for on every branch that has the directory.
//! 2. The rules choose a branch by the known facts of the new file.
//! 3. The directory's copy is made there if it is not there yet ([`crate::tree::dirs`]).
//! 4. The name is made, exclusively. Where the branch is full, read-only or gone, step 2 goes on to the next branch of
//!    the list.
//! 5. Its owner is set. Until then root owned it, with the mode that was asked for.
//! 6. It becomes a node.
//!
//! Nothing is synced: as on any file system, a new name is on the disk once the file or its directory is synced. A
//! crash after step 3 leaves an empty copy of a directory; after step 4, a file that root owns.
//!
//! System calls on a branch that has the directory:
//!
//! - a file: 2 for root (make, look), 4 for others (look at the directory, set the owner)
//! - a directory: 2 for root, 5 for others
//! - a node, symbolic link or file without a name: 2
//! - a hard link: 3

use std::ffi::OsStr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::fs::{OFlags, XattrFlags};
use rustix::io::Errno;
use smallvec::SmallVec;
use umbrella_policy::placement::spec::FileKind;
use umbrella_units::{BranchId, ByteSize};

use crate::area::is_stageable;
use crate::error::{OpError, OpResult};
use crate::ground::at::{DirAt, FileAt};
use crate::ground::creds::Caller;
use crate::ground::kernel_cache::KernelCache;
use crate::ground::meta::Meta;
use crate::io::{OpenRequest, Opened, RoomRetry};
use crate::metrics::Metric;
use crate::names::Names;
use crate::node::{Backing, Divergence, Node, NodeId, path_of};
use crate::placement::NewFile;
use crate::rights::{ACCESS, DEFAULT, SET_GID, ShownRights, inherited, mode_without_acl};
use crate::tree::lookup::{MergedEntry, file_state};
use crate::tree::orphans::NewEntry;
use crate::tree::{Attr, is_reserved};

impl Names {
    /// Creates and opens a file; opens it when it appeared meanwhile and `exclusive` is not asked for.
    pub(crate) fn create(
        &self,
        parent: NodeId,
        name: &OsStr,
        perm: u32,
        caller: Caller,
        request: OpenRequest,
    ) -> OpResult<(Attr, Opened)> {
        self.staging.destage_before_create();
        let _names = self.tree.rename_lock.read();
        let parent = self.tree.dir_node(parent)?;
        if is_reserved(&parent, name) {
            return Err(OpError::Reserved);
        }
        let new = NewFile { parent: &parent, name, kind: FileKind::File, perm, caller };
        // Root's until it is the caller's: no program that runs as root meanwhile.
        let set_id = if caller.uid == 0 { 0 } else { perm & 0o6000 };
        let call = |dir: &DirAt| {
            let divergence = parent.divergence();
            let first = first_perm(divergence.as_deref(), dir, perm & !set_id);
            self.tree.opening(|| dir.create(name, OFlags::RDWR, first, caller.umask)).map(|file| (file, divergence))
        };
        let wait = self.staging.wait_of(&new);
        let alone = if wait.is_some() { None } else { self.create_on_only_copy(&new, call)? };
        let made = match alone {
            Some(made) => Some(made),
            None => match self.tree.probe(&parent, name)? {
                Some(_) if request.exclusive => return Err(OpError::Sys(Errno::EXIST)),
                Some(found) => {
                    let (node, attr) = self.tree.intern(&parent, name, &found)?;
                    let opened =
                        self.io.open_node(&node, request).inspect_err(|_| self.tree.nodes.release(&node, 1))?;
                    return Ok((attr, opened));
                }
                None if wait.is_some() => self.staging.make_staged(&new, call)?,
                None => None,
            },
        };
        let (dir, (file, divergence)) = made.map_or_else(|| self.make(&new, call), Ok)?;
        let interned = set_owner(&new, &file, &dir, set_id, divergence.as_deref()).and_then(|meta| {
            let node = self.tree.intern_file(&parent, name, &dir, &meta, None).ok_or(OpError::Stale)?;
            Ok((meta, node))
        });
        let (meta, node) =
            interned.inspect_err(|_| self.tree.undo_create(&parent, name, &dir, NewEntry::New(FileKind::File)))?;
        self.context.count(Metric::Creates);
        self.staged.add(&node, parent.id, ByteSize(0), wait.as_ref());
        let attr = self.tree.attr_with(&node, meta);
        let opened = self.io.add_open(&node, file, OFlags::RDWR, request, &meta)?;
        if let Some(made) = node.file() {
            made.state.read().is_bare.store(true, Ordering::Relaxed);
        }
        Ok((attr, opened))
    }

    /// Creates and opens a file without a name (`O_TMPFILE`).
    pub(crate) fn create_unnamed(
        &self,
        parent: NodeId,
        perm: u32,
        caller: Caller,
        request: OpenRequest,
    ) -> OpResult<(Attr, Opened)> {
        let _names = self.tree.rename_lock.read();
        let parent = self.tree.dir_node(parent)?;
        let name = OsStr::new("#unnamed");
        let new = NewFile { parent: &parent, name, kind: FileKind::File, perm, caller };
        let exclusive = if request.exclusive { OFlags::EXCL } else { OFlags::empty() };
        let (dir, file) = self.make(&new, |dir| dir.create_unnamed(OFlags::RDWR | exclusive, perm, caller.umask))?;
        let meta = set_owner(&new, &file, &dir, 0, parent.divergence().as_deref())?;
        let backing = Backing::of(&dir.branch, &meta);
        let (ino, born) = self.tree.identity(&dir.online, &meta);
        let mut state = file_state(backing, None);
        state.may_be_linked = !request.exclusive;
        state.past_path = Some(path_of(&parent, name).into());
        let node = Node::new_file(self.tree.nodes.next_id(), ino, meta.kind, born, state);
        self.tree.nodes.insert(&node);
        self.tree.nodes.add_backing(backing, &node);
        let attr = self.tree.attr_with(&node, meta);
        Ok((attr, self.io.add_open(&node, file, OFlags::RDWR, request, &meta)?))
    }

    /// Makes a directory.
    pub(crate) fn mkdir(&self, parent: NodeId, name: &OsStr, perm: u32, caller: Caller) -> OpResult<Attr> {
        let make = |dir: &DirAt, perm| dir.mkdir(name, perm, caller.umask);
        self.make_named(parent, name, (FileKind::Directory, perm & 0o7777), caller, make)
    }

    /// Makes a device node, a pipe, a socket or an empty file.
    pub(crate) fn mknod(&self, parent: NodeId, name: &OsStr, mode: u32, rdev: u64, caller: Caller) -> OpResult<Attr> {
        let kind = crate::ground::meta::kind_of_mode(mode);
        self.make_named(parent, name, (kind, mode & 0o7777), caller, |dir, perm| {
            dir.mknod(name, mode & !0o7777 | perm, caller.umask, rdev)
        })
    }

    /// Makes a symbolic link.
    pub(crate) fn symlink(&self, parent: NodeId, name: &OsStr, target: &OsStr, caller: Caller) -> OpResult<Attr> {
        self.make_named(parent, name, (FileKind::Symlink, 0o777), caller, |dir, _| dir.symlink(name, target))
    }

    fn make_named(
        &self,
        parent: NodeId,
        name: &OsStr,
        (kind, perm): (FileKind, u32),
        caller: Caller,
        call: impl Fn(&DirAt, u32) -> OpResult<()>,
    ) -> OpResult<Attr> {
        let _names = self.tree.rename_lock.read();
        let parent = self.tree.dir_node(parent)?;
        let new = NewFile { parent: &parent, name, kind, perm, caller };
        let call = |dir: &DirAt| {
            let divergence = parent.divergence();
            call(dir, first_perm(divergence.as_deref(), dir, perm)).map(|()| divergence)
        };
        let (dir, divergence) = match self.create_on_only_copy(&new, call)? {
            Some(made) => made,
            None if self.tree.probe(&parent, name)?.is_some() => return Err(OpError::Sys(Errno::EXIST)),
            None => self.make(&new, call)?,
        };
        // What is made as root for root is as it should be.
        let given = match divergence.as_deref() {
            None if caller.uid == 0 && caller.gid == 0 => dir.stat(name),
            divergence => dir.refer(name).and_then(|made| set_owner(&new, &made, &dir, 0, divergence)),
        };
        let meta = given.inspect_err(|_| self.tree.undo_create(&parent, name, &dir, NewEntry::New(kind)))?;
        let found = MergedEntry { at: smallvec::smallvec![(dir, meta)], moves: None };
        if kind != FileKind::Directory {
            self.context.count(Metric::Creates);
        }
        let (node, attr) = self.tree.intern(&parent, name, &found)?;
        if let Some(file) = node.file() {
            file.state.write().needs_evaluation = true;
            self.migrate.evaluate_created(&node, &attr.meta);
        }
        Ok(attr)
    }

    /// Another name for a file, on the branch where it is.
    pub(crate) fn link(&self, node: NodeId, parent: NodeId, name: &OsStr) -> OpResult<Attr> {
        let node = self.tree.node(node)?;
        if self.staged.area_of(&node).is_some() && !is_stageable(name, node.paths().len() + 1) {
            self.staging.destage_now(&node)?;
        }
        let _names = self.tree.rename_lock.read();
        let parent = self.tree.dir_node(parent)?;
        let file = node.file().ok_or(OpError::Sys(Errno::PERM))?;
        if self.probe_new(&parent, name)?.is_some() {
            return Err(OpError::Sys(Errno::EXIST));
        }
        // The directory's copy is made before the file is locked (see the order of locks), for the branch it is on
        // then.
        let (branch, to, mut state) = loop {
            let branch = file.state.read().backing.branch;
            let to = self.tree.ensure_dir(&parent, branch)?;
            let state = file.state.write();
            if state.backing.branch == branch {
                break (branch, to, state);
            }
        };
        state.abort_copy();
        loop {
            let linked =
                self.tree.change_entries(&parent, &to, || match (state.names.first().cloned(), state.any_handle()) {
                    (Some((from, old_name)), _) => self.tree.dir_at(&from, branch)?.link(&old_name, &to, name),
                    (None, Some(handle)) => to.link_open(&handle.current(), name),
                    (None, None) => Err(OpError::Stale),
                });
            match linked {
                Err(error) if error.is_missing() && self.tree.prune_names(&mut state) => {}
                done => {
                    done.inspect_err(|error| {
                        self.tree.undo_create_if_unsure(&parent, name, &to, NewEntry::Link, *error);
                    })?;
                    break self.tree.claim(&parent, name, &to);
                }
            }
        }
        state.names.push((Arc::clone(&parent), name.to_owned()));
        if state.unlinked {
            state.unlinked = false;
            state.may_be_linked = false;
            state.past_path = None;
        }
        state.needs_evaluation = true; // Rules may look at the number of links.
        // Before the lock is released, because afterwards the file and all its names may move.
        let meta = to.stat(name);
        drop(state);
        node.retain();
        let meta = meta?;
        if meta.nlink <= 1 {
            self.staged.add(&node, parent.id, ByteSize(meta.size), None); // It had no name, and waits again.
        }
        self.migrate.evaluate_created(&node, &meta);
        Ok(self.tree.attr_with(&node, meta))
    }

    /// Looks for a name that is about to be made.
    fn probe_new(&self, parent: &Arc<Node>, name: &OsStr) -> OpResult<Option<MergedEntry>> {
        if is_reserved(parent, name) {
            return Err(OpError::Reserved);
        }
        self.tree.probe(parent, name)
    }

    /// Makes something where the directory's only copy is, if the rules choose that branch: that the name is new, the
    /// branch says itself. `None`: it has to be made as [`Names::make`] does, when the name was looked for.
    fn create_on_only_copy<T>(
        &self,
        new: &NewFile<'_>,
        call: impl Fn(&DirAt) -> OpResult<T>,
    ) -> OpResult<Option<(DirAt, T)>> {
        if is_reserved(new.parent, new.name) {
            return Err(OpError::Reserved);
        }
        if new.parent.divergence().is_some() {
            return Ok(None);
        }
        let Some((dir, _locked)) = self.tree.only_copy(new.parent)? else { return Ok(None) };
        let Some((_, decision)) = self.placement.choose_new(new, &[]).ok().filter(|(branch, _)| *branch == dir.id())
        else {
            return Ok(None);
        };
        let made = self.tree.change_entries(new.parent, &dir, || call(&dir)).ok();
        if made.is_some() {
            self.placement.count_hit(decision);
            self.note_made(new, &dir);
        }
        Ok(made.map(|made| (dir, made)))
    }

    /// Groups that take turns count files, not the directories that are made for them.
    fn note_made(&self, new: &NewFile<'_>, dir: &DirAt) {
        dir.branch.note_made();
        if new.kind != FileKind::Directory {
            self.placement.note_used(dir.id());
        }
    }

    /// Makes something on the branch that the rules choose, and on the next one when that is full.
    fn make<T>(&self, new: &NewFile<'_>, call: impl Fn(&DirAt) -> OpResult<T>) -> OpResult<(DirAt, T)> {
        let mut full: SmallVec<[BranchId; 4]> = SmallVec::new();
        let mut first_refusal = None;
        let mut looked_again = false;
        let mut retry = RoomRetry::default();
        loop {
            let branch = match self.placement.place_new(new, &full) {
                Ok(branch) => branch,
                Err(error) => {
                    let refusal = first_refusal.unwrap_or(error);
                    if refusal != OpError::NoRoom || !self.io.may_get_room(&mut retry) {
                        self.context.count(Metric::NoRoom);
                        return Err(refusal);
                    }
                    full.clear();
                    first_refusal = None;
                    continue;
                }
            };
            let make = |dir: DirAt| match self.tree.change_entries(new.parent, &dir, || call(&dir)) {
                Ok(made) => {
                    self.tree.claim(new.parent, new.name, &dir);
                    Ok((dir, made))
                }
                Err(error) => {
                    self.tree.undo_create_if_unsure(new.parent, new.name, &dir, NewEntry::New(new.kind), error);
                    Err(error)
                }
            };
            match self.tree.ensure_dir(new.parent, branch).and_then(make) {
                Ok(made) => {
                    self.note_made(new, &made.0);
                    return Ok(made);
                }
                Err(error) if error.is_full() || error == OpError::Sys(Errno::ROFS) || error == OpError::Offline => {
                    self.branches.get(branch)?.invalidate_space();
                    full.push(branch);
                    first_refusal.get_or_insert(if error.is_full() { OpError::NoRoom } else { error });
                }
                // The branch cannot hold a file of this kind (a device node on a FUSE branch, a link on FAT).
                Err(error @ OpError::Sys(Errno::PERM | Errno::OPNOTSUPP | Errno::NOSYS))
                    if new.kind != FileKind::File =>
                {
                    full.push(branch);
                    first_refusal.get_or_insert(error);
                }
                // The directory's copy vanished behind the mount's back: another one, or a new one, serves.
                Err(error) if error.is_missing() && !looked_again => {
                    looked_again = true;
                    self.tree.drop_vanished(new.parent);
                }
                Err(error) => return Err(error),
            }
        }
    }
}

/// The permissions that something is made with. Where the directory's copy passes on something else than is shown, no
/// caller reaches it before it has what is shown.
fn first_perm(divergence: Option<&Divergence>, dir: &DirAt, perm: u32) -> u32 {
    let inherits_as = divergence.is_none_or(|divergence| divergence.inherits_as.contains(&dir.id()));
    if inherits_as { perm } else { perm & 0o700 }
}

/// Gives what was just made to the caller. A set-group-id directory has already given it its group. With it come the
/// bits that it could not have while it was root's. `divergence`: of the parent, as [`first_perm`] saw it.
fn set_owner(
    new: &NewFile<'_>,
    made: &FileAt,
    dir: &DirAt,
    set_id: u32,
    divergence: Option<&Divergence>,
) -> OpResult<Meta> {
    let caller = new.caller;
    if let Some(divergence) = divergence.filter(|divergence| !divergence.inherits_as.contains(&dir.id())) {
        return apply_inherited(new, made, dir, &divergence.shown);
    }
    let meta = made.stat()?;
    if caller.uid == 0 && caller.gid == 0 {
        return Ok(meta);
    }
    let inherits = meta.gid != 0 || (caller.gid != 0 && dir.stat_self()?.perm & 0o2000 != 0);
    let gid = (!inherits).then_some(caller.gid);
    made.chown(Some(caller.uid), gid, KernelCache::NEW_INODE)?;
    // chown clears set-user-id and set-group-id of files.
    let perm = meta.perm | set_id;
    if perm & 0o6000 != 0 && meta.kind != FileKind::Symlink {
        made.chmod(perm, KernelCache::NEW_INODE)?;
    }
    Ok(Meta { uid: caller.uid, gid: gid.unwrap_or(meta.gid), perm, ..meta })
}

/// Sets owner and inherited rights of a new entry as the shown directory would. Its copy on this branch would let the
/// entry inherit other rights.
fn apply_inherited(new: &NewFile<'_>, made: &FileAt, dir: &DirAt, shown: &ShownRights) -> OpResult<Meta> {
    let caller = new.caller;
    let inherits = shown.rights.perm & SET_GID != 0;
    let gid = if inherits { shown.rights.gid } else { caller.gid };
    made.chown(Some(caller.uid), Some(gid), KernelCache::NEW_INODE)?;
    if new.kind == FileKind::Symlink {
        return made.stat();
    }
    let is_dir = new.kind == FileKind::Directory;
    let (mut perm, access) = inherited(shown, new.perm, caller.umask);
    if dir.online.abilities.acl {
        set_acl(made, ACCESS, access.as_deref())?;
        if is_dir {
            set_acl(made, DEFAULT, shown.rights.default.as_deref())?;
        }
    } else {
        perm = mode_without_acl(perm, access.as_deref());
    }
    let passed_on = if is_dir && inherits { SET_GID } else { 0 };
    made.chmod(perm | new.perm & 0o7000 | passed_on, KernelCache::NEW_INODE)?;
    made.stat()
}

fn set_acl(made: &FileAt, name: &str, value: Option<&[u8]>) -> OpResult<()> {
    match value {
        Some(value) => made.set_xattr(OsStr::new(name), value, XattrFlags::empty(), KernelCache::NEW_INODE),
        None => match made.remove_xattr(OsStr::new(name), KernelCache::NEW_INODE) {
            Err(OpError::Sys(Errno::NODATA | Errno::OPNOTSUPP)) => Ok(()),
            done => done,
        },
    }
}
