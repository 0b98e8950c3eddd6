//! One move of one file to another branch, from the first look to the last fsync. It is invisible: names, inode number,
//! contents and open handles stay.
//!
//! Steps of one move (`transfer`); the durable ones are in `relocate`:
//!
//! 1. Under the file's lock: check that no process writes or copies the file, nor maps it where it moves by itself.
//!    Leave a flag that a writer sets.
//! 2. Without locks: copy to a hidden name on the target, fsync; then make the directories there. A branch that hangs
//!    mostly does so at the copy, while no one waits for a lock.
//! 3. Names on its path that renames have just given are made durable (`node::dir_changes`). Then, under the locks of
//!    the file and its directories: check that the flag is not set, the source is what was copied, and no write to it
//!    has failed. Check that the rules still send it there, as it may have changed before step 1. Open the copy once
//!    for each reader. Record the intent, rename into place, unlink the source, sync both directories.
//! 4. The node now stands for the new inode; readers are handed over.
//!
//! A move that no one waits for has a turn on its disks ([`crate::migrate::disk_turns`]) and may rest in step 2 only.
//! In a batch ([`crate::migrate::batch`]) many files take each step together, and step 3 syncs nothing.

use std::ffi::{OsStr, OsString};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::OFlags;
use rustix::io::Errno;
use smallvec::SmallVec;
use umbrella_policy::placement::FileFacts;
use umbrella_units::{BranchId, ByteSize};

use crate::branch::{Branch, Online};
use crate::error::{OpError, OpResult};
use crate::ground::at::{DirAt, FileAt};
use crate::ground::meta::Meta;
use crate::metrics::Metric;
use crate::migrate::Migrations;
use crate::migrate::commit::{commit_guarded, record_abandoned};
use crate::migrate::copying::{CopyOptions, Endpoint, TempCopy};
use crate::migrate::disk_turns::DiskTurn;
use crate::migrate::moving::{
    BatchedMove, MoveControl, MoveReason, MoveSeqGuard, MovedLink, NotMoved, OTHER_NAMES, ReservedSpace, show,
};
use crate::node::{Backing, FileState, Handle, NameChange, Node, key_of, path_of};
use crate::relocate;
use crate::relocate::{Durability, EntryAt, Limits, RelocateError, Removal};
use crate::tree::lock_within;
use crate::tree::unsynced_names::{CopiesToSync, NamesToSync};
use crate::warning::WarningSubject;

/// One move of one file.
pub(crate) struct Migration<'a> {
    pub(crate) node: &'a Arc<Node>,
    /// The inode that moves.
    pub(crate) backing: Backing,
    /// Its new branch, as it is while the move lasts.
    pub(crate) target: Arc<Branch>,
    pub(crate) online: Arc<Online>,
    pub(crate) cause: MoveReason,
    pub(crate) pace: MoveControl<'a>,
    /// Set by a change of the file meanwhile.
    pub(crate) cancel: Arc<AtomicBool>,
    /// Of the copy, and of the directories that are made for it.
    pub(crate) durability: Durability,
}

/// What a file is when its move begins: its inode, and the names that are known.
pub(crate) type MoveBegun = (Backing, NodeNames);
/// Directories on a new branch that were made for a move.
pub(crate) type MadeDirs = Vec<(Arc<Node>, DirAt)>;
pub(crate) type NodeNames = SmallVec<[(Arc<Node>, OsString); 1]>;

impl Migration<'_> {
    fn to(&self) -> Endpoint<'_> {
        Endpoint { branch: &self.target, online: &self.online }
    }
}

impl Migrations {
    /// Moves a file to another branch and returns the bytes copied. The caller does not hold the rename lock. It is
    /// taken, shared, only while names are resolved and while the move is committed, so a long copy holds up no other
    /// thread.
    pub(crate) fn transfer(
        &self,
        node: &Arc<Node>,
        target: BranchId,
        cause: MoveReason,
        pace: MoveControl<'_>,
    ) -> Result<ByteSize, NotMoved> {
        let from = node.file().ok_or(NotMoved::Busy("it is a directory"))?.state.read().backing.branch;
        let turn = self.turn_on_disks([from, target], cause, pace)?;
        let pace = MoveControl { turn: turn.as_ref(), ..pace };
        if from != target {
            self.refuse_mapped(node, cause)?;
        }
        let cancel = Arc::new(AtomicBool::new(false));
        let Some((backing, names)) = self.begin_move(node, target, cause, &cancel)? else { return Ok(ByteSize(0)) };
        if turn.is_some() && backing.branch != from {
            end_move(node, &cancel);
            return Err(NotMoved::Outdated);
        }
        let migration = || {
            let target = self.branches.get(target)?;
            let online = target.online().ok_or(OpError::Offline)?;
            let (cancel, durability) = (Arc::clone(&cancel), cause.durability());
            Ok(Migration { node, backing, target, online, cause, pace, cancel, durability })
        };
        let moved = migration().and_then(|migration| self.copy_and_commit(&migration, &names));
        if moved.is_err() {
            end_move(node, &cancel);
        }
        moved
    }

    /// The turn of a move between two branches on their disks; it waits for it. `None`: it needs none.
    pub(crate) fn turn_on_disks(
        &self,
        [from, to]: [BranchId; 2],
        cause: MoveReason,
        pace: MoveControl<'_>,
    ) -> Result<Option<DiskTurn<'_>>, NotMoved> {
        if !cause.is_background() || from == to {
            return Ok(None);
        }
        let stop = || self.context.is_stopping() || pace.stop.is_some_and(|stop| stop());
        if stop() {
            return Err(NotMoved::Stopped);
        }
        let (from, to) = (self.branches.get(from)?, self.branches.get(to)?);
        let (Some(from_online), Some(to_online)) = (from.online(), to.online()) else { return Ok(None) };
        if from_online.guarded || to_online.guarded {
            return Ok(None);
        }
        let turn = self.disk_turns.take([(&from, &from_online), (&to, &to_online)], &stop);
        turn.map(Some).ok_or(NotMoved::Stopped)
    }

    /// Step 1. `None`: the file is there already. Where the move does not happen in the end, [`end_move`] ends it.
    pub(crate) fn begin_move(
        &self,
        node: &Arc<Node>,
        target: BranchId,
        cause: MoveReason,
        cancel: &Arc<AtomicBool>,
    ) -> Result<Option<MoveBegun>, NotMoved> {
        let file = node.file().ok_or(NotMoved::Busy("it is a directory"))?;
        let mut state = file.state.write();
        may_move(&mut state, cause)?;
        if state.copying.is_some() {
            return Err(NotMoved::Busy("it is being copied already"));
        }
        if state.backing.branch == target {
            return Ok(None);
        }
        state.copy_begins(cancel, !cause.is_background());
        Ok(Some((state.backing, state.names.clone())))
    }

    /// Before a copy that may be long: no process maps the file. Whether that is so is looked at again before the move
    /// is committed.
    fn refuse_mapped(&self, node: &Arc<Node>, cause: MoveReason) -> Result<(), NotMoved> {
        let Some(file) = node.file() else { return Ok(()) };
        let mut state = file.state.write();
        may_move(&mut state, cause)?;
        // A thread that copies it already has it open, too.
        let may_be_mapped = state.copying.is_none() && self.may_be_mapped(&state);
        if may_be_mapped { self.not_mapped(&mut state) } else { Ok(()) }
    }

    /// Whether the file could be in use in a way that the node does not know. That is a mapping that outlived its
    /// descriptor, of this mount or of a killed one before it. Or it is a creation that has made the file and not yet
    /// its node.
    fn may_be_mapped(&self, state: &FileState) -> bool {
        state.was_passthrough || state.handles.is_empty()
    }

    /// A mapping of an earlier passthrough open would go on with the old inode.
    fn not_mapped(&self, state: &mut FileState) -> Result<(), NotMoved> {
        match self.tree.held_elsewhere(state) {
            Some(false) => {
                state.was_passthrough = false;
                Ok(())
            }
            Some(true) => Err(NotMoved::Mapped),
            None if state.was_passthrough => {
                Err(NotMoved::Busy("its file system cannot say whether it is mapped into memory"))
            }
            None => Ok(()),
        }
    }

    fn copy_and_commit(
        &self,
        migration: &Migration<'_>,
        names: &[(Arc<Node>, OsString)],
    ) -> Result<ByteSize, NotMoved> {
        let (sources, _) = self.sources(migration, names)?;
        let (Some(from), Some((_, name))) = (sources.first(), names.first()) else {
            return Err(NotMoved::Busy("it has no name"));
        };
        let temp_name = self.tree.temp_name();
        let copied = self.copy_file(migration, (from, name), &temp_name)?;
        let done = self.links(migration, names, &sources).and_then(|(links, unsynced)| {
            self.sync_made_dirs(&unsynced, migration.target.id)?;
            self.commit_copy(migration, &links, &temp_name, &copied, None)?;
            Ok(links)
        });
        if done.as_ref().is_err_and(NotMoved::is_settled) {
            // After the rename there is nothing left under this name.
            drop_copy(&migration.target, temp_name);
        }
        self.note_moved(migration, &done?, &copied);
        from.branch.invalidate_space();
        migration.target.invalidate_space();
        Ok(copied.bytes)
    }

    /// Where a file's names are on its branch, and its attributes: it is what its node says.
    pub(crate) fn sources(
        &self,
        migration: &Migration<'_>,
        names: &[(Arc<Node>, OsString)],
    ) -> Result<(Vec<DirAt>, Meta), NotMoved> {
        let Migration { node, backing, .. } = migration;
        if migration.online.hidden.is_none() {
            return Err(NotMoved::Op(OpError::Sys(Errno::ROFS)));
        }
        let sources = {
            let _names = self.tree.rename_lock.read();
            names
                .iter()
                .map(|(parent, _)| self.tree.dir_at(parent, backing.branch))
                .collect::<Result<Vec<_>, OpError>>()?
        };
        let (Some(from), Some((_, name))) = (sources.first(), names.first()) else {
            return Err(NotMoved::Busy("it has no name"));
        };
        if from.branch.settings().read_only {
            return Err(NotMoved::Op(OpError::Sys(Errno::ROFS)));
        }
        let meta = from.stat(name)?;
        if (meta.foreign_dev, meta.ino) != (backing.foreign_dev, backing.ino) {
            return Err(NotMoved::Busy("it changed behind the mount's back"));
        }
        if names.len() > meta.nlink as usize
            && node.file().is_some_and(|file| self.tree.prune_names(&mut file.state.write()))
        {
            return Err(NotMoved::Mapped); // Known better now: once more.
        }
        if meta.nlink as usize != names.len() {
            return Err(NotMoved::Busy(OTHER_NAMES));
        }
        Ok((sources, meta))
    }

    /// After a move.
    pub(crate) fn note_moved(&self, migration: &Migration<'_>, links: &[MovedLink], copied: &relocate::DurableCopy) {
        let Migration { node, target, cause, pace, .. } = migration;
        let Some(first) = links.first() else { return };
        self.placement.note_used(target.id);
        self.branches.levels.note();
        if *cause == MoveReason::Staged {
            first.to.online.unsynced.note();
            self.write_back.note_arrived(&first.to, &first.name, copied.bytes);
            let _names = self.tree.rename_lock.read();
            for link in links {
                link.advance_times(pace.lock_timeout);
            }
            target.invalidate_space();
        } else {
            self.context.count(Metric::Relocations);
            self.context.metrics.add(Metric::RelocationBytes, copied.bytes.0);
            if *cause == MoveReason::Warm {
                self.context.count(Metric::Promotions);
                self.context.metrics.add(Metric::PromotionBytes, copied.bytes.0);
                self.placement.note_moved_by_heat(copied.bytes);
            }
            first.from.branch.note_moved_out();
            target.note_moved_in();
        }
        self.context.clear_warning(&WarningSubject::Move(show(node)));
        self.context.forget_attributes(node.id);
        // A program that read the directories meanwhile saw them change.
        for link in links {
            self.context.forget_attributes(link.parent.id);
        }
    }

    /// The names of a file, with their directories on its new branch; and those of them that are to be synced, where
    /// the move has to last.
    pub(crate) fn links(
        &self,
        migration: &Migration<'_>,
        names: &[(Arc<Node>, OsString)],
        sources: &[DirAt],
    ) -> Result<(Vec<MovedLink>, MadeDirs), NotMoved> {
        let (target, lock_timeout) = (migration.target.id, migration.pace.lock_timeout);
        let mut links = Vec::with_capacity(names.len());
        let mut unsynced = Vec::new();
        {
            let _names = self.tree.rename_lock.read();
            for ((parent, name), from) in names.iter().zip(sources) {
                let to = self.tree.ensure_dir_within(parent, target, lock_timeout).map_err(|error| match error {
                    OpError::Sys(Errno::BUSY) if lock_timeout.is_some() => NotMoved::Busy(DIRECTORY_BUSY),
                    error => error.into(),
                })?;
                // What leaves volatile memory owes a power loss nothing.
                if migration.cause.durability() == Durability::Now {
                    unsynced.extend(self.tree.unsynced_copies(parent, target)?);
                }
                links.push(MovedLink { parent: Arc::clone(parent), name: name.clone(), from: from.clone(), to });
            }
        }
        Ok((links, unsynced))
    }

    pub(crate) fn sync_made_dirs(&self, unsynced: &[(Arc<Node>, DirAt)], target: BranchId) -> Result<(), NotMoved> {
        unsynced.iter().try_for_each(|(_, copy)| copy.fsync(false))?;
        note_synced(unsynced, target);
        Ok(())
    }

    /// The copy of a file at one of its names, under a name in the hidden place of its new branch.
    pub(crate) fn copy_file(
        &self,
        migration: &Migration<'_>,
        (from, name): (&DirAt, &OsStr),
        temp_name: &OsStr,
    ) -> Result<relocate::DurableCopy, NotMoved> {
        let Migration { cause, cancel, pace, durability, .. } = migration;
        let (dir, name, temp_name) = (Arc::clone(&from.fd), name.to_owned(), temp_name.to_owned());
        let from = Endpoint { branch: &from.branch, online: &from.online };
        // For a file that leaves staging the flusher is informed once the file has its name, and the caller that let it
        // leave waits for it.
        let flusher_sees = (*cause != MoveReason::Staged).then(|| cause.holds());
        let copying =
            CopyOptions { from, to: migration.to(), cancel, pace: *pace, durability: *durability, flusher_sees };
        let (online, abilities) = (Arc::clone(&migration.online), migration.target.abilities());
        let copy = move |limits: &Limits<'_>| {
            let hidden = online.hidden.as_ref().ok_or(RelocateError::Changed)?;
            let temp = EntryAt { dir: hidden.tmp.as_fd(), name: &temp_name };
            let copied = relocate::copy(EntryAt { dir: dir.as_fd(), name: &name }, temp, &abilities, limits)?;
            Ok((copied, TempCopy::new(Arc::clone(&online), temp_name)))
        };
        let (copied, made) = self.copy_over(copying, copy)?;
        made.keep();
        Ok(copied)
    }

    /// Whether the rules still send a file to its new branch, of which copies have taken this much already. The file is
    /// locked.
    fn still_belongs(
        &self,
        first: &MovedLink,
        paths: &[Vec<u8>],
        migration: &Migration<'_>,
        taken: ReservedSpace,
    ) -> Result<bool, NotMoved> {
        let target = migration.target.id;
        let Some(path) = paths.first() else { return Ok(false) };
        let meta = first.from.stat(&first.name)?;
        let resident = self.placement.resident(&first.from.branch, &meta);
        let xattrs = self.placement.xattrs(path, &meta, &first.from.branch);
        let facts = FileFacts { xattrs: xattrs.as_deref(), ..self.placement.facts(path, &meta, &first.from.branch) };
        let inodes = migration.target.inodes_without(taken.files);
        if inodes.is_some_and(|inodes| inodes.free == 0) {
            return Err(NotMoved::NoRoom);
        }
        let mut views = self.placement.views();
        if let Some(view) = views.get_mut(target.index()) {
            view.free = ByteSize(view.free.0.saturating_add(taken.bytes.0).saturating_add(facts.occupied.0));
            view.inodes = inodes;
        }
        let active = self.placement.rules.load();
        let names = paths.iter().map(Vec::as_slice);
        let path = active.rules.deciding_name(names, &facts, &views, Some(&resident)).unwrap_or(path);
        let facts = FileFacts { path, ..facts };
        if migration.cause == MoveReason::Evict {
            return Ok(active.rules.may_be_on(&facts, &views, &resident, target));
        }
        let around = self.placement.around(&active);
        let decided = active.rules.decide(&facts, &views, Some(&resident), &around);
        // Among equals another one may be better now; that is no reason to copy once more.
        Ok(active.rules.is_as_good(decided, target)
            || active.rules.equals(&facts, &views, &resident, &around).contains(&target))
    }

    /// The names in the directories of files, and in those above, that must be durable on the old branch before the
    /// files move. The caller holds the lock on names.
    pub(crate) fn given_names<'m>(
        &self,
        moves: impl Iterator<Item = (&'m Migration<'m>, &'m MovedLink)>,
    ) -> OpResult<CopiesToSync> {
        let mut given = NamesToSync::default();
        for (migration, link) in moves {
            let from = migration.backing.branch;
            // What memory loses with the power has no old name after it.
            if !self.branches.is_staging(from) {
                given.add_path(&link.parent, |name| name.change == NameChange::Given && name.branch == from);
                if migration.node.file().is_some_and(|file| file.state.read().has_unsynced_names) {
                    given.add(&link.parent, |name| name.change == NameChange::Moved);
                }
            }
        }
        self.tree.copies_to_sync(given)
    }

    /// Steps 3 and 4. `in_batch`: of a file of a batch.
    pub(crate) fn commit_copy(
        &self,
        migration: &Migration<'_>,
        links: &[MovedLink],
        temp: &OsStr,
        copied: &relocate::DurableCopy,
        in_batch: Option<&BatchedMove<'_>>,
    ) -> Result<(), NotMoved> {
        let Migration { node, backing, target, cause, cancel, .. } = migration;
        let (backing, cause, lock_timeout) = (*backing, *cause, migration.pace.lock_timeout);
        let first = links.first().ok_or(NotMoved::Busy("it has no name"))?;
        let file = node.file().ok_or(NotMoved::Busy("it is a directory"))?;
        let mut parents: SmallVec<[&Arc<Node>; 2]> = links.iter().map(|link| &link.parent).collect();
        parents.sort_by_key(|parent| parent.id);
        parents.dedup_by_key(|parent| parent.id);
        let slow = first.from.online.guarded || target.online().is_some_and(|online| online.guarded);
        // A batch holds it until its end.
        let _slow = (slow && in_batch.is_none()).then(|| self.tree.slow_commits.read());
        let _names = self.tree.rename_lock.read();
        let paths: Vec<_> = links.iter().map(|link| path_of(&link.parent, &link.name)).collect();
        self.given_names(links.iter().map(|link| (migration, link)))?.sync()?;
        let locked = parents.iter().filter_map(|parent| parent.dir()).map(|dir| lock_within(&dir.commit, lock_timeout));
        let _commits = locked.collect::<Option<SmallVec<[_; 2]>>>().ok_or(NotMoved::Busy(DIRECTORY_BUSY))?;
        let _moving = MoveSeqGuard::begin(&parents);
        let mut state = file.state.write();
        let same_names = state.names.len() == links.len()
            && links
                .iter()
                .all(|link| state.names.iter().any(|(parent, name)| parent.id == link.parent.id && *name == link.name));
        let same_path = in_batch.is_none_or(|in_batch| paths.first().is_some_and(|path| path == in_batch.path));
        if cancel.load(Ordering::Relaxed) || state.backing != backing || !(same_names && same_path) {
            self.context.count(Metric::CopiesCancelled);
            return Err(NotMoved::Busy("it changed while it was copied"));
        }
        may_move(&mut state, cause)?;
        // Since it was chosen; nothing new comes to a branch that is about to be removed.
        if target.draining() {
            return Err(NotMoved::Busy("its new branch is being drained"));
        }
        if self.may_be_mapped(&state) {
            self.not_mapped(&mut state)?;
        }
        // In a batch, where it is placed.
        if in_batch.is_none() {
            first.verify_unchanged(copied)?;
        }
        let taken = in_batch.map_or(ReservedSpace { bytes: copied.bytes, files: 1 }, |in_batch| in_batch.taken);
        if cause.is_background() && !self.still_belongs(first, &paths, migration, taken)? {
            return Err(NotMoved::Outdated);
        }
        // Every open handle gets the copy before it has its name: after the commit nothing may fail.
        let handles: Vec<_> = state.handles.iter().filter_map(std::sync::Weak::upgrade).collect();
        handles.iter().try_for_each(|handle| handle.collect_write_errors())?;
        let online = target.online().ok_or(OpError::Offline)?;
        if in_batch.is_some() && online.epoch != migration.online.epoch {
            return Err(NotMoved::Op(OpError::Offline));
        }
        let reopened = reopen_all(&handles, temp, target, &online)?;
        // Until the times of the directories are put back.
        let kept = parents.iter().filter_map(|parent| parent.dir()).map(|dir| dir.times.keep(lock_timeout));
        let kept = kept.collect::<Option<SmallVec<[_; 2]>>>().ok_or(NotMoved::Busy(DIRECTORY_BUSY))?;
        // The number is passed on before the old inode is free to be used again.
        let new = Backing { branch: target.id, foreign_dev: 0, ino: copied.target.ino };
        let keys = (key_of(&first.from.online, backing), key_of(&online, new));
        let stays_away = self.stays_away(cause, keys.0, first);
        let came_from_elsewhere = self.tree.inodes.born(keys.0);
        // Says which file the number is for: after a crash it would not be believed without.
        self.tree.inodes.moved_checked(keys.0, keys.1, node.born, copied.target.btime);
        self.tree.nodes.add_backing(new, node);
        let to = Endpoint { branch: target, online: &online };
        let done = match in_batch {
            Some(in_batch) => in_batch.commit(first, temp, copied),
            None => commit_guarded(links, &paths, to, temp, copied, cause.durability()),
        };
        drop(kept);
        match done {
            Ok(Removal::Done) => {}
            // When the branch is back, recovery removes the rest of the source. A branch that does not hang is still at
            // it, because the other is late.
            Ok(Removal::Unsure { errno: Errno::TIMEDOUT }) if !first.from.online.guarded => {}
            Ok(Removal::Unsure { errno }) => {
                first.from.branch.take_offline(format!("it did not confirm the removal of a moved file ({errno})"));
            }
            Err(error) => {
                self.tree.nodes.remove_backing(new, node);
                self.tree.inodes.moved_back(keys.1, keys.0, came_from_elsewhere);
                let is_kept = match error {
                    RelocateError::GivenUp => true,
                    // Names of several that were gone may hang as they are given back.
                    RelocateError::InDoubt { errno } => links.len() == 1 || errno != Errno::TIMEDOUT,
                    _ => false,
                };
                if is_kept {
                    self.given_up.lock().insert(temp.to_owned());
                    record_abandoned(&first.from, &online, &paths, temp, copied);
                }
                if !error.is_settled() {
                    // Whether the copy has its name is for recovery to say: until then its branch is not looked at.
                    target.take_offline(format!("a move to it: {error}"));
                }
                return Err(error.into());
            }
        }
        if cause == MoveReason::Evict {
            self.placement.note_evicted(node);
        }
        if stays_away {
            self.mark_evicted(keys.1, first);
        }
        state.backing = new;
        state.has_unsynced_names = in_batch.is_some() || cause.durability() == Durability::Begun;
        state.copying = None;
        for (handle, file) in handles.iter().zip(reopened) {
            handle.file.store(Arc::new(file));
        }
        drop(state);
        self.note_gone(backing);
        self.tree.nodes.remove_backing(backing, node);
        Ok(())
    }
}

const DIRECTORY_BUSY: &str = "its directory is being changed";

/// The move that has this flag does not happen.
pub(crate) fn end_move(node: &Node, cancel: &Arc<AtomicBool>) {
    if let Some(file) = node.file() {
        file.state.write().copy_ended(cancel);
    }
}

/// These directories are durable on a branch, with those above them.
pub(crate) fn note_synced(dirs: &[(Arc<Node>, DirAt)], target: BranchId) {
    for dir in dirs.iter().filter_map(|(node, _)| node.dir()) {
        dir.state.write().unsynced.retain(|branch| *branch != target);
    }
}

/// Deletes what was copied to the hidden place of a branch. What cannot be deleted is at the next mount.
pub(crate) fn drop_copy(branch: &Branch, name: OsString) {
    let unlink = move |online: &Online| match &online.hidden {
        Some(hidden) => rustix::fs::unlinkat(&hidden.tmp, &name, rustix::fs::AtFlags::empty()),
        None => Ok(()),
    };
    let _leftover = branch.io(unlink);
}

/// The copy in the hidden place of its branch, opened once for each handle, as that is open.
pub(crate) fn reopen_all(
    handles: &[Arc<Handle>],
    copy: &OsStr,
    branch: &Arc<Branch>,
    online: &Arc<Online>,
) -> Result<Vec<FileAt>, OpError> {
    let reopen = |handle: &Arc<Handle>| {
        let flags = handle.flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let (copy, theirs) = (copy.to_owned(), Arc::clone(online));
        let open = move |_: &Online| {
            let hidden = theirs.hidden.as_ref().ok_or(Errno::ROFS)?;
            rustix::fs::openat(&hidden.tmp, &copy, flags, rustix::fs::Mode::empty())
        };
        let fd = branch.io(open).map_err(OpError::Sys)?;
        Ok(FileAt { branch: Arc::clone(branch), online: Arc::clone(online), fd: Arc::new(online.own(fd)) })
    };
    handles.iter().map(reopen).collect()
}

/// Whether the file may move now; otherwise it is judged again when it is closed.
fn may_move(state: &mut FileState, cause: MoveReason) -> Result<(), NotMoved> {
    let may = may_move_now(state, cause);
    state.needs_evaluation |= may.is_err();
    may
}

fn may_move_now(state: &FileState, cause: MoveReason) -> Result<(), NotMoved> {
    if state.unlinked || state.names.is_empty() {
        return Err(NotMoved::Busy("it has no name"));
    }
    if state.passthrough > 0 {
        return Err(NotMoved::Busy("it is open"));
    }
    if cause.is_background() && state.writers > 0 {
        return Err(NotMoved::Busy("it is open for writing"));
    }
    if cause == MoveReason::Evict && state.handles.iter().any(|handle| handle.strong_count() > 0) {
        return Err(NotMoved::Busy("it is open"));
    }
    Ok(())
}
