//! Copies of a directory on the branches, and the descriptors that lead to them.
//!
//! A copy is made from the top down, each level so:
//!
//! 1. An empty directory in the branch's hidden place.
//! 2. Its owner, attributes, ACLs, mode and times, from a copy that can be reached.
//! 3. Rename into its parent's copy.
//!
//! Where a file that exists elsewhere is to go there, the directory is synced before step 3 and its parent after it;
//! else it becomes durable with its first file. A crash leaves the hidden one, which the next mount removes, or a whole
//! copy.

use std::ffi::OsStr;
use std::num::NonZeroUsize;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use lru::LruCache;
use rustc_hash::FxBuildHasher;
use rustix::fs::{Timespec, Timestamps, UTIME_OMIT};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};
use smallvec::SmallVec;
use umbrella_units::BranchId;

use crate::error::{OpError, OpResult};
use crate::ground::at::DirAt;
use crate::ground::kernel_cache::KernelCache;
use crate::ground::locks::{RankedMutex, RankedMutexGuard, rank};
use crate::node::times::ENTRIES_CHANGED;
use crate::node::{Backing, Dir, DirCopy, NameChange, Node, NodeId, inode_key, key_of};
use crate::relocate::{DirAttributes, EntryAt, clone_dir_whole};
use crate::tree::{Tree, lock_within};

/// Copies of one directory that can be used now.
pub(crate) type DirCopies = SmallVec<[DirAt; 2]>;

const SHARDS: usize = 16;
/// Descriptors kept open at most, all shards together; never more than a quarter of what the daemon may have.
const CAPACITY: usize = 16 << 10;

type DirFdShard = RankedMutex<rank::TreeDirFds, LruCache<(NodeId, BranchId), DirAt, FxBuildHasher>>;

/// Open descriptors of directories, least recently used closed first.
pub(crate) struct DirFds {
    shards: Vec<DirFdShard>,
}

impl DirFds {
    pub(crate) fn new() -> DirFds {
        let may_have = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let capacity = CAPACITY.min(usize::try_from(may_have / 4).unwrap_or(CAPACITY));
        let each = NonZeroUsize::new(capacity / SHARDS).unwrap_or(NonZeroUsize::MIN);
        let shard = || RankedMutex::new(LruCache::with_hasher(each, FxBuildHasher));
        DirFds { shards: (0..SHARDS).map(|_| shard()).collect() }
    }

    fn shard(&self, node: NodeId) -> &DirFdShard {
        &self.shards[node.0 as usize % SHARDS]
    }

    fn get(&self, node: NodeId, branch: BranchId, epoch: u64) -> Option<DirAt> {
        let mut shard = self.shard(node).lock();
        shard.get(&(node, branch)).filter(|at| at.online.epoch == epoch).cloned()
    }

    pub(crate) fn put(&self, node: NodeId, at: &DirAt) {
        self.shard(node).lock().put((node, at.id()), at.clone());
    }

    pub(crate) fn drop_node(&self, node: NodeId, branch: BranchId) {
        self.shard(node).lock().pop(&(node, branch));
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().len()).sum()
    }

    /// Closes the half that was not used for longest.
    fn shrink(&self) {
        for shard in &self.shards {
            let mut shard = shard.lock();
            for _ in 0..shard.len().div_ceil(2) {
                shard.pop_lru();
            }
        }
    }

    /// Closes everything on a branch, so that it can be unmounted.
    pub(crate) fn drop_branch(&self, branch: BranchId) {
        for shard in &self.shards {
            let mut shard = shard.lock();
            let stale: Vec<_> = shard.iter().map(|(key, _)| *key).filter(|key| key.1 == branch).collect();
            for key in stale {
                shard.pop(&key);
            }
        }
    }
}

impl Tree {
    /// A directory's copy on a branch where it is known to be.
    ///
    /// Cost: one cache lookup; one `openat2` for each level that is not cached.
    pub(crate) fn dir_at(&self, node: &Arc<Node>, branch: BranchId) -> OpResult<DirAt> {
        let found = self.branches.get(branch)?;
        let online = found.in_use().ok_or(OpError::Offline)?;
        let mut missing: SmallVec<[(Arc<Node>, std::ffi::OsString); 4]> = SmallVec::new();
        let mut at = Arc::clone(node);
        let mut dir = loop {
            if at.id == NodeId::ROOT {
                break DirAt::root(&found)?;
            }
            if let Some(dir) = self.dir_fds.get(at.id, branch, online.epoch) {
                break dir;
            }
            let (parent, name) = at.place().ok_or(OpError::Stale)?;
            missing.push((at, name));
            at = parent;
        };
        for (node, name) in missing.iter().rev() {
            dir = self.opening(|| dir.descend(name))?;
            self.dir_fds.put(node.id, &dir);
        }
        if !missing.is_empty() {
            self.close_forgotten();
        }
        Ok(dir)
    }

    /// Closes the directories that are no longer known; their numbers never come again.
    pub(crate) fn close_forgotten(&self) {
        for node in self.nodes.take_forgotten() {
            for branch in self.branches.list.load().iter() {
                self.dir_fds.drop_node(node.id, branch.id);
            }
            self.keep_unsynced(node);
        }
    }

    /// Opens something; where no descriptor is left, once more without half of those that are only kept to be faster.
    pub(crate) fn opening<T>(&self, open: impl Fn() -> OpResult<T>) -> OpResult<T> {
        match open() {
            Err(error) if error.lacks_descriptor() => {
                self.dir_fds.shrink();
                open()
            }
            opened => opened,
        }
    }

    /// All usable copies of a directory, in the order of the branches. Copies that vanished behind our back are
    /// dropped.
    pub(crate) fn copies(&self, node: &Arc<Node>) -> OpResult<DirCopies> {
        let dir = node.dir().ok_or(OpError::Sys(Errno::NOTDIR))?;
        self.refresh(node, dir)?;
        self.known_copies(node, dir)
    }

    /// The branch of a directory's only copy, locked: as long as the guard lives, none is made elsewhere, and no file
    /// moves in or out. So what the branch says of a name holds for the pool. `None` where there are several, where a
    /// branch is missing without which nothing may be said, where it would have to be waited for, and where the branch
    /// may hang.
    pub(crate) fn only_copy<'a>(&self, node: &'a Arc<Node>) -> OpResult<Option<(DirAt, RankedMutexGuard<'a, ()>)>> {
        let dir = node.dir().ok_or(OpError::Sys(Errno::NOTDIR))?;
        let Some(commit) = dir.commit.try_lock() else { return Ok(None) };
        let mut copies = self.copies(node)?;
        if copies.len() != 1 || node.is_removed() || self.branches.is_incomplete() {
            return Ok(None);
        }
        Ok(copies.pop().filter(|copy| !copy.online.guarded).map(|copy| (copy, commit)))
    }

    /// As `copies`, without looking for new ones. For a directory that was removed: the copies that it had, in which
    /// there are no names.
    pub(crate) fn known_copies(&self, node: &Arc<Node>, dir: &Dir) -> OpResult<DirCopies> {
        let known: SmallVec<[DirCopy; 2]> = {
            let state = dir.state.read();
            if state.removed {
                return Ok(state.kept.clone());
            }
            state.copies.clone()
        };
        let mut copies = DirCopies::new();
        let mut failure = None;
        for copy in &known {
            match self.dir_at(node, copy.branch) {
                Ok(at) => copies.push(at),
                Err(error @ (OpError::Offline | OpError::Sys(Errno::TIMEDOUT))) => failure = Some(error),
                Err(OpError::Sys(Errno::NOENT | Errno::NOTDIR | Errno::LOOP)) => self.drop_copy(node, dir, *copy),
                // That the daemon lacks something says nothing of the branch: there may be files.
                Err(error) if error.is_own_shortage() || self.context.is_strict() => return Err(error),
                Err(error) => {
                    tracing::warn!(branch = %self.placement.branch_name(copy.branch), %error, "cannot open a directory");
                    failure = Some(error);
                }
            }
        }
        if copies.is_empty() && node.is_removed() {
            // Meanwhile.
            return Ok(dir.state.read().kept.clone());
        }
        match failure {
            Some(OpError::Sys(Errno::TIMEDOUT)) if copies.is_empty() => Err(OpError::Offline),
            Some(error) if copies.is_empty() => Err(error),
            None if copies.is_empty() => Err(OpError::Sys(Errno::NOENT)),
            _ => Ok(copies),
        }
    }

    /// Forgets copies of a directory that were removed on their branch.
    pub(crate) fn drop_vanished(&self, node: &Arc<Node>) {
        let Some(dir) = node.dir() else { return };
        let known = dir.state.read().copies.clone();
        for copy in known {
            let gone = match self.dir_at(node, copy.branch).and_then(|at| at.stat_self()) {
                Ok(meta) => meta.nlink == 0,
                Err(error) => error.is_missing(),
            };
            if gone {
                self.drop_copy(node, dir, copy);
            }
        }
    }

    /// A copy is none any more: it is gone, or has another name. It no longer has the directory's number.
    pub(crate) fn drop_copy(&self, node: &Arc<Node>, dir: &Dir, copy: DirCopy) {
        dir.state.write().copies.retain(|known| *known != copy);
        self.nodes.remove_backing(copy.backing, node);
        self.dir_fds.drop_node(node.id, copy.branch);
        if let Some(online) = self.branches.get(copy.branch).ok().and_then(|branch| branch.online()) {
            self.inodes.forget(key_of(&online, copy.backing));
        }
    }

    /// Handles a directory that was found under a name that is not the node's. If some copy of the node is still where
    /// the node is, the found copies are another directory now. Either a branch that was offline during a rename has
    /// returned, or they were renamed directly on their branch. They are no longer copies of the node, and get a number
    /// of their own. Otherwise the node has moved, and copies that were not found are no longer its copies.
    pub(crate) fn part(&self, node: &Arc<Node>, found: &[Backing]) {
        let (Some(dir), Some((parent, name))) = (node.dir(), node.place()) else { return };
        let known = dir.state.read().copies.clone();
        let (here, elsewhere): (Vec<DirCopy>, Vec<DirCopy>) =
            known.into_iter().partition(|copy| found.contains(&copy.backing));
        let is_at_its_place = |copy: &DirCopy| match self.dir_at(&parent, copy.branch).map(|dir| (dir.find(&name), dir))
        {
            Ok((Ok(Some(meta)), dir)) => Backing::of(&dir.branch, &meta) == copy.backing,
            Ok((Ok(None), _)) => false,
            // It cannot be looked at now: it keeps its known state.
            Ok((Err(_), _)) | Err(_) => true,
        };
        let stays = elsewhere.iter().any(is_at_its_place);
        for copy in if stays { here } else { elsewhere } {
            self.drop_copy(node, dir, copy);
        }
    }

    /// Looks for copies on branches that came online since they were last looked for, from the root downwards. The
    /// directory's copies are compared before any caller sees one that is new.
    pub(crate) fn refresh(&self, node: &Arc<Node>, dir: &Dir) -> OpResult<()> {
        let topology = self.branches.topology.load(Ordering::Acquire);
        let (removed, seen) = {
            let state = dir.state.read();
            (state.removed, state.topology)
        };
        if removed {
            return Ok(());
        }
        if seen != topology {
            self.refresh_chain(node, topology)?;
        }
        if dir.alike.load(Ordering::Acquire) != topology {
            self.compare_once(node, dir, topology)?;
        }
        Ok(())
    }

    fn refresh_chain(&self, node: &Arc<Node>, topology: u64) -> OpResult<()> {
        let mut chain: SmallVec<[Arc<Node>; 8]> = SmallVec::new();
        let mut at = Arc::clone(node);
        loop {
            let fresh = at.dir().is_none_or(|dir| dir.state.read().topology == topology);
            let above = at.place();
            if fresh {
                break;
            }
            chain.push(at);
            match above {
                Some((parent, _)) => at = parent,
                None => break,
            }
        }
        chain.iter().rev().try_for_each(|node| self.refresh_one(node, topology))
    }

    fn refresh_one(&self, node: &Arc<Node>, topology: u64) -> OpResult<()> {
        let Some(dir) = node.dir() else { return Ok(()) };
        for branch in self.branches.list.load().iter() {
            if dir.state.read().copies.iter().any(|copy| copy.branch == branch.id) || branch.in_use().is_none() {
                continue;
            }
            let found = match node.place() {
                None => DirAt::root(branch).and_then(|root| root.stat_self()).map(Some),
                Some((parent, name)) => {
                    let on_branch = parent
                        .dir()
                        .is_some_and(|dir| dir.state.read().copies.iter().any(|copy| copy.branch == branch.id));
                    if on_branch { self.dir_at(&parent, branch.id).and_then(|at| at.find(&name)) } else { Ok(None) }
                }
            };
            match found {
                Ok(Some(meta)) if meta.kind == node.kind => {
                    self.add_copy(node, dir, branch, &meta);
                }
                Ok(_) => {}
                Err(error) if error.is_own_shortage() => return Err(error),
                Err(error) => tracing::warn!(branch = %branch.spec.name, %error, "cannot look for a directory"),
            }
        }
        dir.state.write().topology = topology;
        Ok(())
    }

    /// Notes a copy of a directory; the order of the branches is kept. Whether it was not known.
    pub(crate) fn add_copy(
        &self,
        node: &Arc<Node>,
        dir: &Dir,
        branch: &crate::branch::Branch,
        meta: &crate::ground::meta::Meta,
    ) -> bool {
        let backing = Backing::of(branch, meta);
        let mut state = dir.state.write();
        if let Some(old) = state.copies.iter_mut().find(|copy| copy.branch == branch.id) {
            if old.backing == backing {
                return false;
            }
            let stale = old.backing;
            old.backing = backing;
            drop(state);
            self.nodes.remove_backing(stale, node);
            self.dir_fds.drop_node(node.id, branch.id);
        } else {
            let at = state.copies.iter().position(|copy| copy.branch > branch.id).unwrap_or(state.copies.len());
            state.copies.insert(at, DirCopy { branch: branch.id, backing });
            drop(state);
        }
        if node.id != NodeId::ROOT {
            self.nodes.add_backing(backing, node);
        }
        true
    }

    /// The directory's copy on `branch`, made there (with its parents) if it is not there yet, with the mode, owner,
    /// times, attributes and ACLs that users see.
    pub(crate) fn ensure_dir(&self, node: &Arc<Node>, branch: BranchId) -> OpResult<DirAt> {
        self.ensure_dir_within(node, branch, None)
    }

    /// As [`Tree::ensure_dir`]; EBUSY where another thread has a directory locked for longer than this.
    pub(crate) fn ensure_dir_within(
        &self,
        node: &Arc<Node>,
        branch: BranchId,
        lock_timeout: Option<Duration>,
    ) -> OpResult<DirAt> {
        let mut missing: SmallVec<[Arc<Node>; 4]> = SmallVec::new();
        let mut at = Arc::clone(node);
        let mut dir = loop {
            let here = at.dir().ok_or(OpError::Sys(Errno::NOTDIR))?;
            self.refresh(&at, here)?;
            let known = {
                let state = here.state.read();
                if state.removed {
                    return Err(OpError::Sys(Errno::NOENT));
                }
                state.copies.iter().any(|copy| copy.branch == branch)
            };
            if known {
                match self.dir_at(&at, branch) {
                    Ok(dir) => {
                        if at.id == NodeId::ROOT {
                            self.prepare_root(&dir);
                        }
                        break dir;
                    }
                    Err(OpError::Sys(Errno::NOENT)) if at.id != NodeId::ROOT => {
                        let stale = here.state.read().copies.iter().find(|copy| copy.branch == branch).copied();
                        if let Some(copy) = stale {
                            self.drop_copy(&at, here, copy);
                        }
                    }
                    Err(error) => return Err(error),
                }
            }
            let Some((parent, _)) = at.place() else { return Err(OpError::Offline) };
            missing.push(at);
            at = parent;
        };
        for node in missing.iter().rev() {
            dir = self.clone_dir(node, &dir, lock_timeout)?;
        }
        Ok(dir)
    }

    /// A directory and those above it whose copies on a branch were made here and are perhaps not on its disk yet. The
    /// directory that holds the topmost of them is included. They are synced where no thread waits, before the only
    /// copy of a file comes into them.
    pub(crate) fn unsynced_copies(&self, node: &Arc<Node>, branch: BranchId) -> OpResult<Vec<(Arc<Node>, DirAt)>> {
        let mut unsynced = Vec::new();
        let mut at = Arc::clone(node);
        loop {
            let is_synced = at.dir().is_none_or(|dir| !dir.state.read().unsynced.contains(&branch));
            if !(is_synced && unsynced.is_empty()) {
                unsynced.push((Arc::clone(&at), self.dir_at(&at, branch)?));
            }
            match at.place() {
                Some((parent, _)) if !is_synced => at = parent,
                _ => return Ok(unsynced),
            }
        }
    }

    /// Changes entries of a directory's copy for a user.
    pub(crate) fn change_entries<T>(
        &self,
        node: &Node,
        copy: &DirAt,
        change: impl FnOnce() -> OpResult<T>,
    ) -> OpResult<T> {
        let Some(dir) = node.dir() else { return change() };
        let changed = KernelCache::invalidate_after(
            |cache| dir.times.changing(change, || copy.as_file().set_times(ENTRIES_CHANGED, cache)),
            |_| self.forget_late_replies(node),
        );
        if changed.is_ok() {
            dir.changes.note(copy);
        }
        changed
    }

    /// As [`Tree::change_entries`], of a change that takes a name away.
    pub(crate) fn remove_entry<T>(
        &self,
        node: &Node,
        copy: &DirAt,
        remove: impl FnOnce() -> OpResult<T>,
    ) -> OpResult<T> {
        let removed = self.change_entries(node, copy, remove)?;
        node.note_name(copy, NameChange::Gone);
        Ok(removed)
    }

    /// Makes a directory like another one, whole or not at all. `attributes`: what it gets besides the times; `None`:
    /// all that `like` has.
    pub(crate) fn clone_copy(
        &self,
        like: &DirAt,
        attributes: Option<DirAttributes>,
        parent: &DirAt,
        name: &OsStr,
    ) -> OpResult<DirAt> {
        let (from, to, abilities) = (Arc::clone(&like.fd), Arc::clone(&parent.fd), parent.online.abilities);
        let (online, temp_name, new_name) = (Arc::clone(&parent.online), self.temp_name(), name.to_owned());
        let call = move || {
            let hidden = online.hidden.as_ref().ok_or(Errno::ROFS)?;
            let temp = EntryAt { dir: hidden.tmp.as_fd(), name: &temp_name };
            let place = EntryAt { dir: to.as_fd(), name: &new_name };
            clone_dir_whole(from.as_fd(), attributes.as_ref(), temp, place, &abilities).map_err(|error| error.errno())
        };
        match [parent, like].into_iter().find(|at| at.online.guarded) {
            Some(guarded) => guarded.branch.io(move |_| call()),
            None => call(),
        }?;
        parent.descend(name)
    }

    /// Makes the copy of one directory in its parent's copy.
    fn clone_dir(&self, node: &Arc<Node>, parent: &DirAt, lock_timeout: Option<Duration>) -> OpResult<DirAt> {
        let dir = node.dir().ok_or(OpError::Sys(Errno::NOTDIR))?;
        let source = self.shown_copy(node, dir)?;
        let (above, name) = node.place().ok_or(OpError::Stale)?;
        // A new copy would take the names that this directory must not get, or lose.
        if source.as_file().is_pinned() {
            return Err(OpError::Sys(Errno::PERM));
        }
        // No thread may remove the directory while it is made: its removal takes the same lock.
        let busy = OpError::Sys(Errno::BUSY);
        let _commit = lock_within(&dir.commit, lock_timeout).ok_or(busy)?;
        if dir.state.read().removed {
            return Err(OpError::Sys(Errno::NOENT));
        }
        // No thread may change the source meanwhile either, and leave out the copy.
        let _attributes = lock_within(&dir.attributes, lock_timeout).ok_or(busy)?;
        // A copy is no change of the tree: the parent's time stays what users saw.
        let keeping = above.dir().map(|above| above.times.keep(lock_timeout).ok_or(busy)).transpose()?;
        let before = parent.stat_self()?;
        let attributes = self.attributes_for_copy(dir, &source)?;
        let made = self.clone_copy(&source, attributes, parent, &name)?;
        let meta = made.stat_self()?;
        // A directory that looks changed; nothing is lost.
        let _cosmetic = parent.as_file().set_times(modified_at(&before), KernelCache::SAME_SHOWN);
        drop(keeping);
        // A program that read it meanwhile saw it change.
        self.context.forget_attributes(above.id);
        let original = source.stat_self()?;
        let keys = (inode_key(&source.online, &original), inode_key(&made.online, &meta));
        self.inodes.alias(keys.0, keys.1);
        // Says which directories the number is for: without it the next mount would not believe it.
        self.inodes.ino_checked(keys.0, original.btime);
        self.inodes.ino_checked(keys.1, meta.btime);
        dir.state.write().unsynced.push(made.id());
        self.add_copy(node, dir, &made.branch, &meta);
        self.dir_fds.put(node.id, &made);
        Ok(made)
    }
}

/// The modification time of a directory, to set it again; the access time stays as it is.
pub(crate) fn modified_at(meta: &crate::ground::meta::Meta) -> Timestamps {
    let last_modification = Timespec { tv_sec: meta.mtime.secs, tv_nsec: i64::from(meta.mtime.nanos) };
    Timestamps { last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT }, last_modification }
}
