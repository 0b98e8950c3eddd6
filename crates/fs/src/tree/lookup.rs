//! Names to nodes, and what users see of a node.
//!
//! System calls: a lookup 1 on each branch that has the directory; attributes 1; the target of a link 1.

use std::ffi::OsStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::Errno;
use smallvec::{SmallVec, smallvec};
use umbrella_policy::placement::spec::FileKind;
use umbrella_units::{BranchId, Ino};

use crate::branch::Online;
use crate::error::{OpError, OpResult};
use crate::ground::at::DirAt;
use crate::ground::meta::Meta;
use crate::metrics::Metric;
use crate::node::{Backing, DirState, FileState, Node, NodeId, inode_key};
use crate::tree::dirs::DirCopies;
use crate::tree::{Tree, is_reserved};
use crate::warning::{Warning, WarningSubject};

/// Attributes of a node as users see them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attr {
    /// The node.
    pub node: NodeId,
    /// Inode number.
    pub ino: Ino,
    /// Everything else; `dev` and `ino` in it are the branch's own.
    pub meta: Meta,
    /// Whether the kernel may keep them. Not where they can change without the daemon learning of it.
    pub cacheable: bool,
}

impl Tree {
    /// Finds a name and gives its node one more reference.
    pub(crate) fn lookup(&self, parent: NodeId, name: &OsStr) -> OpResult<Attr> {
        let _names = self.rename_lock.read();
        let _under_way = self.lookups.begin();
        let parent = self.dir_node(parent)?;
        let (node, attr) = self.lookup_in(&parent, name)?;
        node.looks.note();
        Ok(attr)
    }

    /// As `lookup`, for callers that hold the rename lock.
    pub(crate) fn lookup_in(&self, parent: &Arc<Node>, name: &OsStr) -> OpResult<(Arc<Node>, Attr)> {
        let found = self.probe(parent, name)?.ok_or(OpError::Sys(Errno::NOENT))?;
        self.intern(parent, name, &found)
    }

    /// Looks for a name on every branch that has the directory. A relocation that takes the file from one branch to the
    /// other meanwhile is waited for.
    ///
    /// Cost: one `statx` a copy of the directory.
    pub(crate) fn probe(&self, parent: &Arc<Node>, name: &OsStr) -> OpResult<Option<MergedEntry>> {
        if is_reserved(parent, name) {
            return Ok(None);
        }
        let dir = parent.dir().ok_or(OpError::Sys(Errno::NOTDIR))?;
        loop {
            let moves = dir.moves.load(Ordering::Acquire);
            let mut found = self.probe_copies(&self.copies(parent)?, name)?;
            found.moves = Some(moves);
            let unsure = found.at.is_empty() || (found.at.len() > 1 && found.kind() != FileKind::Directory);
            if unsure && (moves % 2 == 1 || dir.moves.load(Ordering::Acquire) != moves) {
                drop(dir.commit.lock());
                continue;
            }
            if found.at.is_empty() {
                self.is_single(parent, name);
                // What is not found may be on the branch that is missing.
                return if self.branches.is_incomplete() { Err(OpError::Offline) } else { Ok(None) };
            }
            return Ok(Some(self.settle(parent, name, found)));
        }
    }

    fn probe_copies(&self, copies: &DirCopies, name: &OsStr) -> OpResult<MergedEntry> {
        let mut at = SmallVec::new();
        let mut failure = None;
        for dir in copies {
            match dir.find(name) {
                Ok(Some(meta)) => at.push((dir.clone(), meta)),
                Ok(None) => {}
                Err(error @ OpError::Sys(Errno::NAMETOOLONG | Errno::INVAL)) => return Err(error),
                Err(error) => failure = Some(error),
            }
        }
        match failure {
            // The name was not found, and not every branch could be searched. A branch that went away just now is
            // skipped like an absent one. Any other error must not become "there is none".
            Some(OpError::Offline | OpError::Sys(Errno::NOTCONN | Errno::TIMEDOUT)) if copies.len() > 1 => {
                Ok(MergedEntry { at, moves: None })
            }
            Some(error) if at.is_empty() => Err(error),
            _ => Ok(MergedEntry { at, moves: None }),
        }
    }

    /// Of several finds, keeps what users see: all copies of a directory; the newest of several files. The other files
    /// are reported.
    fn settle(&self, parent: &Arc<Node>, name: &OsStr, mut found: MergedEntry) -> MergedEntry {
        let directories = found.at.iter().filter(|(_, meta)| meta.kind == FileKind::Directory).count();
        if found.at.len() == 1 || directories == found.at.len() {
            self.is_single(parent, name);
            return found;
        }
        self.duplicates_told.store(true, Ordering::Relaxed);
        let path = String::from_utf8_lossy(&crate::node::path_of(parent, name)).into_owned();
        let branches: Vec<_> = found.at.iter().map(|(dir, _)| dir.branch.spec.name.clone()).collect();
        self.context.count(Metric::Duplicates);
        if directories > 0 {
            self.context.warn(WarningSubject::Name(path.clone()), &Warning::KindsDiffer { path, branches });
            found.at.retain(|(_, meta)| meta.kind == FileKind::Directory);
            return found;
        }
        // Newest first; on a tie the order of the branches.
        found.at.sort_by_key(|(dir, meta)| (std::cmp::Reverse((meta.mtime, meta.ctime)), dir.id()));
        let shown = found.at.first().map(|(dir, _)| dir.branch.spec.name.clone()).unwrap_or_default();
        self.context.warn(WarningSubject::Name(path.clone()), &Warning::Duplicate { path, branches, shown });
        found.at.truncate(1);
        found
    }

    /// What was said of this name as one of several files is so no more.
    fn is_single(&self, parent: &Arc<Node>, name: &OsStr) {
        if self.duplicates_told.load(Ordering::Relaxed) {
            let path = crate::node::path_of(parent, name);
            self.context.clear_warning(&WarningSubject::Name(String::from_utf8_lossy(&path).into_owned()));
        }
    }

    /// The node of what was found, with one more reference. What was found may have moved since: then it is looked for
    /// again.
    pub(crate) fn intern(&self, parent: &Arc<Node>, name: &OsStr, found: &MergedEntry) -> OpResult<(Arc<Node>, Attr)> {
        let mut again;
        let mut found = found;
        loop {
            let (dir, meta) = found.first()?;
            if meta.kind == FileKind::Directory && self.is_old_look(dir, name, meta, false) {
                again = self.probe(parent, name)?.ok_or(OpError::Sys(Errno::NOENT))?;
                found = &again;
                continue;
            }
            if meta.kind == FileKind::Directory {
                let (node, changed) = self.intern_dir(parent, name, found)?;
                if changed {
                    let attr = self.attr_of(&node).inspect_err(|_| self.nodes.release(&node, 1))?;
                    return Ok((node, attr));
                }
                let attr = self.merged_attr(&node, found.at.iter().map(|(_, meta)| *meta));
                return Ok((node, attr));
            }
            if let Some(node) = self.intern_file(parent, name, dir, meta, found.moves) {
                let meta = if dir.online.guarded { meta_of_open_file(&node, meta) } else { *meta };
                let attr = self.attr_with(&node, meta);
                return Ok((node, attr));
            }
            if let Some(above) = parent.dir() {
                drop(above.commit.lock());
            }
            again = self.probe(parent, name)?.ok_or(OpError::Sys(Errno::NOENT))?;
            found = &again;
        }
    }

    /// `None`: the file is not known, and something in the directory moved since `moves` was read, perhaps this.
    pub(crate) fn intern_file(
        &self,
        parent: &Arc<Node>,
        name: &OsStr,
        dir: &DirAt,
        meta: &Meta,
        moves: Option<u64>,
    ) -> Option<Arc<Node>> {
        let backing = Backing::of(&dir.branch, meta);
        // A move changes the place and the birth time that is kept under the file's lock.
        let fits = |node: &Node| {
            node.kind == meta.kind
                && node.file().is_some_and(|file| {
                    let state = file.state.read();
                    // Without a check: an old look at a name must not change the state of its inode.
                    let born = self.inodes.born(inode_key(&dir.online, meta)).or(meta.btime);
                    !state.unlinked && state.backing == backing && node.born == born
                })
        };
        // A node that does not fit goes only for a file that is there: the file that was seen may be gone, and its
        // inode another file's.
        let unfit = self.nodes.find(backing).is_some_and(|node| !fits(&node));
        if self.is_old_look(dir, name, meta, unfit) {
            return None;
        }
        let still = || moves.is_none_or(|moves| parent.is_unmoved_since(moves));
        let (node, new) = self.nodes.intern(backing, fits, |id| {
            if !still() {
                return None;
            }
            let (ino, born) = self.identity(&dir.online, meta);
            let place = Some((Arc::clone(parent), name.to_owned()));
            let node = Node::new_file(id, ino, meta.kind, born, file_state(backing, place));
            still().then_some(node)
        })?;
        if !new && !still() {
            // The name may have been seen before its file moved away, and the node may be that of the next file with
            // that inode.
            self.nodes.release(&node, 1);
            return None;
        }
        if !new && let Some(file) = node.file() {
            let known = |names: &SmallVec<[(Arc<Node>, std::ffi::OsString); 1]>| {
                names.iter().any(|(known, known_name)| known.id == parent.id && known_name == name)
            };
            if !known(&file.state.read().names) {
                let mut state = file.state.write();
                // The name was seen before the lock was held; a thread that gave the file another name since holds the
                // lock as well.
                if !known(&state.names)
                    && state.backing == backing
                    && let Ok(now) = dir.stat(name)
                    && Backing::of(&dir.branch, &now) == backing
                {
                    if now.nlink <= 1 {
                        state.names.clear();
                    }
                    state.names.push((Arc::clone(parent), name.to_owned()));
                }
            }
        }
        Some(node)
    }

    /// Whether a name has changed since it was seen. The check runs only where the old look contradicts the known state
    /// of the inode (or is `doubted`). An old look at an inode that is another file's by now must not take that file's
    /// number away.
    fn is_old_look(&self, dir: &DirAt, name: &OsStr, meta: &Meta, doubted: bool) -> bool {
        (doubted || self.inodes.contradicts(inode_key(&dir.online, meta), meta.btime))
            && !dir.stat(name).is_ok_and(|now| (now.ino, now.btime, now.kind) == (meta.ino, meta.btime, meta.kind))
    }

    /// The node, and whether the directory is not any more what was found.
    fn intern_dir(&self, parent: &Arc<Node>, name: &OsStr, found: &MergedEntry) -> OpResult<(Arc<Node>, bool)> {
        let backings: SmallVec<[Backing; 2]> =
            found.at.iter().map(|(dir, meta)| Backing::of(&dir.branch, meta)).collect();
        for backing in &backings {
            if let Some(node) = self.nodes.find(*backing)
                && node.place().is_some_and(|(above, known)| above.id != parent.id || known != name)
            {
                self.part(&node, &backings);
            }
        }
        let key = backings.iter().copied().find(|backing| self.nodes.find(*backing).is_some());
        let key = key.or_else(|| backings.first().copied()).ok_or(OpError::Sys(Errno::NOENT))?;
        let topology = self.branches.topology.load(Ordering::Acquire);
        let (first, meta) = found.first()?;
        let (ino, born) = self.identity(&first.online, meta);
        let interned = self.nodes.intern(
            key,
            |node| node.dir().is_some_and(|dir| !dir.state.read().removed),
            |id| {
                let place = Some((Arc::clone(parent), name.to_owned()));
                let state = DirState { place, topology, ..DirState::default() };
                Some(Node::new_dir(id, ino, born, state))
            },
        );
        let (node, _) = interned.ok_or(OpError::Stale)?;
        if let Some(dir) = node.dir() {
            let moved =
                dir.state.read().place.as_ref().is_none_or(|(above, known)| above.id != parent.id || known != name);
            if moved {
                dir.state.write().place = Some((Arc::clone(parent), name.to_owned()));
            }
            for (at, meta) in &found.at {
                if self.add_copy(&node, dir, &at.branch, meta) {
                    dir.alike.store(0, Ordering::Release);
                }
            }
            let looks: SmallVec<[_; 2]> = found.at.iter().map(|(at, meta)| (at.id(), *meta)).collect();
            let changed = self.recheck(&node, dir, &looks).inspect_err(|_| self.nodes.release(&node, 1))?;
            return Ok((node, changed));
        }
        Ok((node, false))
    }

    /// Inode number and birth time of an inode on a branch.
    pub(crate) fn identity(&self, online: &Online, meta: &Meta) -> (Ino, Option<umbrella_units::Timestamp>) {
        let key = inode_key(online, meta);
        (self.inodes.ino_checked(key, meta.btime), self.inodes.born(key).or(meta.btime))
    }

    /// What users see of a node.
    pub(crate) fn getattr(&self, node: NodeId) -> OpResult<Attr> {
        let _names = self.rename_lock.read();
        let node = self.node(node)?;
        node.looks.note();
        self.attr_of(&node)
    }

    pub(crate) fn attr_of(&self, node: &Arc<Node>) -> OpResult<Attr> {
        let Some(file) = node.file() else { return self.dir_attr(node) };
        loop {
            let (handle, name, backing) = {
                let state = file.state.read();
                (state.open_file(), state.names.first().cloned(), state.backing)
            };
            let meta = match (handle, name) {
                (Some(file), _) => file.stat()?,
                (None, Some((parent, name))) => match self.dir_at(&parent, backing.branch)?.stat(&name) {
                    Ok(meta) if (meta.foreign_dev, meta.ino) == (backing.foreign_dev, backing.ino) => meta,
                    // It moved between the two looks.
                    _ if file.state.read().backing != backing => continue,
                    Ok(_) => return Err(OpError::Stale),
                    Err(error) if error.is_missing() && self.prune_names(&mut file.state.write()) => continue,
                    Err(error) if error.is_missing() => return Err(OpError::Stale),
                    Err(error) => return Err(error),
                },
                (None, None) => return Err(OpError::Stale),
            };
            return Ok(self.attr_with(node, meta));
        }
    }

    fn dir_attr(&self, node: &Arc<Node>) -> OpResult<Attr> {
        let dir = node.dir().ok_or(OpError::Stale)?;
        let mut looks_again = true;
        loop {
            let times = dir.times.snapshot();
            let copies = self.copies(node)?;
            let look_at_all = || -> OpResult<SmallVec<[(BranchId, Meta); 2]>> {
                let (mut metas, mut failure) = (SmallVec::new(), OpError::Sys(Errno::NOENT));
                for copy in &copies {
                    match copy.stat_self() {
                        Ok(meta) => metas.push((copy.id(), meta)),
                        Err(error) => failure = error,
                    }
                }
                if metas.is_empty() { Err(failure) } else { Ok(metas) }
            };
            let mut metas = look_at_all()?;
            if std::mem::take(&mut looks_again) && self.recheck(node, dir, &metas)? {
                continue;
            }
            if dir.times.was_kept(&times) {
                let _still = dir.times.freeze();
                metas = look_at_all()?;
            }
            let mut attr = self.merged_attr(node, metas.into_iter().map(|(_, meta)| meta));
            attr.cacheable &= !dir.times.was_kept(&times);
            if node.is_removed() {
                attr.meta.nlink = 0;
            }
            return Ok(attr);
        }
    }

    /// One directory out of its copies: owner and mode as they are shown, the newest times.
    fn merged_attr(&self, node: &Node, metas: impl Iterator<Item = Meta>) -> Attr {
        let mut merged: Option<Meta> = None;
        for meta in metas {
            match &mut merged {
                None => merged = Some(meta),
                Some(all) => {
                    all.atime = all.atime.max(meta.atime);
                    all.mtime = all.mtime.max(meta.mtime);
                    all.ctime = all.ctime.max(meta.ctime);
                    all.size = all.size.max(meta.size);
                    all.blocks += meta.blocks;
                    // "Not counted", as btrfs says it: a number below the truth would hide directories from `find`.
                    all.nlink = 1;
                }
            }
        }
        let mut meta = merged.unwrap_or(Meta {
            kind: FileKind::Directory,
            perm: 0o755,
            uid: 0,
            gid: 0,
            nlink: 1,
            size: 0,
            blocks: 0,
            blksize: 4096,
            rdev: 0,
            foreign_dev: 0,
            ino: 0,
            atime: umbrella_units::Timestamp::default(),
            mtime: umbrella_units::Timestamp::default(),
            ctime: umbrella_units::Timestamp::default(),
            btime: None,
        });
        if let Some(divergence) = node.dir().and_then(|dir| dir.state.read().divergence.clone()) {
            let shown = &divergence.shown.rights;
            (meta.perm, meta.uid, meta.gid) = (shown.perm, shown.uid, shown.gid);
        }
        meta.btime = node.born.or(meta.btime);
        Attr { node: node.id, ino: node.ino, meta, cacheable: true }
    }

    /// Target of a symbolic link.
    pub(crate) fn readlink(&self, node: NodeId) -> OpResult<Vec<u8>> {
        let _names = self.rename_lock.read();
        let node = self.node(node)?;
        let (dir, name) = self.locate(&node)?;
        Ok(dir.readlink(&name)?.into_bytes())
    }

    /// Drops names that a file does not have any more (changed behind the mount's back); whether there were such.
    pub(crate) fn prune_names(&self, state: &mut FileState) -> bool {
        let (known, backing) = (state.names.len(), state.backing);
        state.names.retain(|(parent, name)| {
            match self.dir_at(parent, backing.branch).and_then(|dir| dir.find(name)) {
                Ok(found) => {
                    found.is_some_and(|meta| (meta.foreign_dev, meta.ino) == (backing.foreign_dev, backing.ino))
                }
                // What cannot be looked at is not known to be gone.
                Err(error) => !error.is_missing(),
            }
        });
        state.names.len() < known
    }

    /// A file's branch directory and name there.
    pub(crate) fn locate(&self, node: &Arc<Node>) -> OpResult<(DirAt, std::ffi::OsString)> {
        let file = node.file().ok_or(OpError::Sys(Errno::ISDIR))?;
        let (branch, place) = {
            let state = file.state.read();
            (state.backing.branch, state.names.first().cloned())
        };
        let (parent, name) = place.ok_or(OpError::Stale)?;
        Ok((self.dir_at(&parent, branch)?, name))
    }
}

/// Attributes of a file as its users see it. On some file systems a name may show a size of its own (FUSE) or an old
/// one (networks). So an open handle is asked, if there is one: the kernel appends at the end that it learned last.
fn meta_of_open_file(node: &Node, found: &Meta) -> Meta {
    let handle = node.file().and_then(|file| file.state.read().any_handle());
    handle.and_then(|handle| handle.current().stat().ok()).unwrap_or(*found)
}

/// State of a file that is not open.
pub(crate) fn file_state(backing: Backing, name: Option<(Arc<Node>, std::ffi::OsString)>) -> FileState {
    FileState {
        backing,
        unlinked: name.is_none(),
        names: name.into_iter().collect(),
        handles: SmallVec::new(),
        writers: 0,
        passthrough: 0,
        cached: 0,
        token: None,
        was_passthrough: false,
        shared_mapping: false,
        is_bare: AtomicBool::new(false),
        may_be_linked: false,
        has_unsynced_names: false,
        kept: None,
        accessed: None,
        is_warm: false,
        past_path: None,
        needs_evaluation: false,
        copying: None,
        copy_is_awaited: false,
    }
}

/// An entry as found on the branches: several only for directories and for names that more than one branch holds.
pub(crate) struct MergedEntry {
    pub(crate) at: SmallVec<[(DirAt, Meta); 2]>,
    /// The directory's count of moves before it was looked at; `None` for what cannot have moved since: it is new.
    pub(crate) moves: Option<u64>,
}

impl MergedEntry {
    /// Where a file is.
    pub(crate) fn first(&self) -> OpResult<&(DirAt, Meta)> {
        self.at.first().ok_or(OpError::Sys(Errno::NOENT))
    }

    pub(crate) fn kind(&self) -> FileKind {
        self.at.first().map_or(FileKind::File, |(_, meta)| meta.kind)
    }
}

/// What was listed on one branch.
pub(crate) fn found_one(at: &DirAt, meta: Meta, moves: Option<u64>) -> MergedEntry {
    MergedEntry { at: smallvec![(at.clone(), meta)], moves }
}
