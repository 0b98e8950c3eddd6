//! Renames. A rename within one branch is one system call. A rename over several branches is recorded first, so that
//! the next mount finishes or undoes it after a crash halfway (see `relocate`). `exchange` handles exchanges in which a
//! directory takes part.
//!
//! System calls on one branch: 2 (look, rename); 4 where a file is replaced, which is looked at too.

use std::ffi::OsStr;
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::RenameFlags;
use rustix::io::Errno;
use umbrella_policy::placement::spec::FileKind;
use umbrella_units::BranchId;

use crate::area::is_stageable;
use crate::error::{OpError, OpResult};
use crate::ground::at::DirAt;
use crate::ground::locks::WriteGuard;
use crate::ground::meta::{Meta, now};
use crate::migrate::MoveSeqGuard;
use crate::names::several::{OldName, RenameSide};
use crate::names::{Names, several};
use crate::node::{Backing, FileState, NameChange, Node, NodeId, path_of};
use crate::tree::is_reserved;
use crate::tree::lookup::MergedEntry;
use crate::tree::remove_dir::hold_special;

/// How long a directory that gets another name waits for all others, and they for it, in turn.
const TURN: Duration = Duration::from_millis(100);

/// What happens to an entry that has the new name already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replace {
    /// It is replaced.
    Yes,
    /// The rename fails.
    No,
    /// The two change names.
    Exchange,
}

/// What became of a rename as one of files; the nodes come with a reference.
enum Renamed {
    /// Done; the file that has the new name now, as it was found, and the one that had it.
    Done(Arc<Node>, Meta, Option<Arc<Node>>),
    /// The file is staged, and is to replace one on a branch: a power loss must not take both.
    LeaveFirst(Arc<Node>),
    /// The file is to replace one on another branch. What is not on disk of it takes its time, while no thread is held
    /// up.
    SyncFirst(Arc<Node>),
    /// One of the two files must come to the other's branch first.
    MoveFirst { node: Arc<Node>, other: Arc<Node>, here: BranchId, there: BranchId },
    /// A directory is concerned.
    Directory,
}

impl Names {
    /// Gives an entry another name.
    pub(crate) fn rename(
        &self,
        parent: NodeId,
        name: &OsStr,
        to: NodeId,
        to_name: &OsStr,
        replace: Replace,
    ) -> OpResult<()> {
        self.rename_leaving((parent, name), (to, to_name), replace, OldName::Nothing)
    }

    /// Gives an entry another name, and leaves something at the old one.
    pub(crate) fn rename_leaving(
        &self,
        (parent, name): (NodeId, &OsStr),
        (to, to_name): (NodeId, &OsStr),
        replace: Replace,
        behind: OldName,
    ) -> OpResult<()> {
        let from = RenameSide { parent: self.tree.dir_node(parent)?, name, behind };
        let to = RenameSide { parent: self.tree.dir_node(to)?, name: to_name, behind: OldName::Nothing };
        if is_reserved(&from.parent, name) || is_reserved(&to.parent, to_name) {
            return Err(OpError::Reserved);
        }
        let mut synced = false;
        loop {
            // It may replace a file on another branch now, and that may take as long as a commit.
            let _slow = synced.then(|| self.tree.slow_commits.read());
            let locked = self.tree.rename_lock.read();
            match self.rename_file(&from, &to, replace, synced)? {
                Renamed::Done(node, found, other) => {
                    self.migrate.evaluate_renamed(&node, Some(Meta { ctime: now(), ..found }));
                    self.tree.nodes.release(&node, 1);
                    if let Some(other) = other {
                        self.migrate.evaluate_renamed(&other, None);
                        self.tree.nodes.release(&other, 1);
                    }
                    return Ok(());
                }
                Renamed::LeaveFirst(node) => {
                    drop(locked);
                    let left = self.staging.destage_now(&node);
                    self.tree.nodes.release(&node, 1);
                    left?;
                }
                Renamed::SyncFirst(node) => {
                    drop(locked);
                    // The rename itself reports a failure here.
                    let _told_later = self.sync_contents(&node);
                    self.tree.nodes.release(&node, 1);
                    synced = true;
                }
                // First onto one branch, so that the exchange itself is one system call.
                Renamed::MoveFirst { node, other, here, there } => {
                    let moves = self.colocation_moves(&from, &to, [(&node, there), (&other, here)]);
                    drop(locked);
                    let moved = self.move_to_one_branch(&node, &other, [here, there], moves);
                    // Another thread moved one of them meanwhile, perhaps from a branch that was removed: look again.
                    let is_outdated = branch_of(&node) != Some(here) || branch_of(&other) != Some(there);
                    self.tree.nodes.release(&node, 1);
                    self.tree.nodes.release(&other, 1);
                    if !is_outdated {
                        moved?;
                    }
                }
                Renamed::Directory => break,
            }
        }
        let _slow = self.tree.slow_commits.write();
        let _names = self.lock_names();
        self.rename_dir(&from, &to, replace)
    }

    /// Waits until no thread resolves names, and keeps others from it. A thread that waits for this lock holds up all
    /// that come later, and a holder may wait for a disk that does not answer. So all others have their turns
    /// meanwhile.
    fn lock_names(&self) -> WriteGuard<'_, ()> {
        loop {
            if let Some(names) = self.tree.rename_lock.try_write_for(TURN) {
                return names;
            }
            std::thread::sleep(TURN);
        }
    }

    /// Which of two files that are to change names may move to the other's branch, the better way first. A file goes
    /// where neither rule of its names forbids it (its list has neither `default` nor `any`); else where that of its
    /// new name does not.
    fn colocation_moves<'a>(
        &self,
        from: &RenameSide<'_>,
        to: &RenameSide<'_>,
        [(node, there), (other, here)]: [(&'a Arc<Node>, BranchId); 2],
    ) -> Vec<(&'a Arc<Node>, BranchId)> {
        let (from, to) = (path_of(&from.parent, from.name), path_of(&to.parent, to.name));
        let forbidden = |node: &Arc<Node>, old: &Vec<u8>, new: &Vec<u8>, target| {
            let Ok(attr) = self.tree.attr_of(node) else { return [true, true] };
            let names = node.paths();
            let renamed: Vec<_> =
                names.iter().map(|name| if name == old { new.clone() } else { name.clone() }).collect();
            let xattrs = self.placement.xattrs_of(node, &attr.meta);
            [&renamed, &names].map(|names| self.placement.forbids(names, &attr.meta, xattrs.as_deref(), target))
        };
        let mut ways = vec![
            (forbidden(other, &to, &from, here), (other, here)),
            (forbidden(node, &from, &to, there), (node, there)),
        ];
        ways.retain(|([by_new, _], _)| !by_new);
        ways.sort_by_key(|([_, by_old], _)| *by_old);
        ways.into_iter().map(|(_, way)| way).collect()
    }

    /// Two files that are to change names, on `here` and `there`, come to one branch. Nothing comes into the staging
    /// area.
    fn move_to_one_branch(
        &self,
        node: &Arc<Node>,
        other: &Arc<Node>,
        [here, there]: [BranchId; 2],
        ways: Vec<(&Arc<Node>, BranchId)>,
    ) -> OpResult<()> {
        if self.branches.is_staging(here) {
            return self.staging.destage_now(node);
        }
        if self.branches.is_staging(there) {
            return self.staging.destage_now(other);
        }
        let mut moved = Err(OpError::NoRoom);
        for (node, target) in ways {
            moved = self.migrate.move_now(node, target);
            if moved.is_ok() {
                break;
            }
        }
        moved
    }

    fn sync_contents(&self, node: &Arc<Node>) -> OpResult<()> {
        let Some(file) = node.file().filter(|_| node.kind == FileKind::File) else { return Ok(()) };
        let opened = {
            let state = file.state.read();
            self.tree.open_inode(&state)?.reopen(rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::NONBLOCK)?
        };
        opened.fsync(false)
    }

    /// The nodes of both sides, each with one more reference.
    fn intern_ends(
        &self,
        (from, source): (&RenameSide<'_>, &MergedEntry),
        (to, target): (&RenameSide<'_>, Option<&MergedEntry>),
    ) -> OpResult<(Arc<Node>, Option<Arc<Node>>)> {
        let (node, _) = self.tree.intern(&from.parent, from.name, source)?;
        let other = target.map(|found| self.tree.intern(&to.parent, to.name, found)).transpose();
        let other = other.inspect_err(|_| self.tree.nodes.release(&node, 1))?;
        Ok((node, other.map(|(node, _)| node)))
    }

    fn source(&self, from: &RenameSide<'_>) -> OpResult<MergedEntry> {
        self.tree.probe(&from.parent, from.name)?.ok_or(OpError::Sys(Errno::NOENT))
    }

    /// Renames a file into a directory that is on the file's branch only: that nothing has the new name there, the
    /// branch says itself. `None`: something has it, or it has to be looked for.
    fn rename_on_only_copy(
        &self,
        from: &RenameSide<'_>,
        to: &RenameSide<'_>,
        source: &MergedEntry,
    ) -> OpResult<Option<Renamed>> {
        let (dir, meta) = source.first()?;
        if source.kind() == FileKind::Directory
            || self.branches.is_staging(dir.id())
            || !dir.branch.abilities().rename_flags
            || to.parent.divergence().is_some()
        {
            return Ok(None);
        }
        // Not under the lock on the other directory: it may wait for the one on this.
        let (node, _) = self.tree.intern(&from.parent, from.name, source)?;
        match self.rename_into_only_copy(from, to, &node, source) {
            Ok(true) => return Ok(Some(Renamed::Done(node, *meta, None))),
            Ok(false) | Err(OpError::Sys(Errno::EXIST)) => {}
            Err(error) => {
                self.tree.nodes.release(&node, 1);
                return Err(error);
            }
        }
        self.tree.nodes.release(&node, 1);
        Ok(None)
    }

    /// False: the directory is on other branches too, or something moved meanwhile.
    fn rename_into_only_copy(
        &self,
        from: &RenameSide<'_>,
        to: &RenameSide<'_>,
        node: &Arc<Node>,
        source: &MergedEntry,
    ) -> OpResult<bool> {
        let branch = source.first()?.0.id();
        match self.tree.only_copy(&to.parent)?.filter(|(copy, _)| copy.id() == branch) {
            Some((to_dir, _locked)) => self.rename_nodes(from, to, Replace::No, (node, source, &to_dir), None),
            None => Ok(false),
        }
    }

    /// The file that is staged, of two that are to change names, as a power loss must not take one name of the change
    /// only.
    fn staged_end(&self, ends: [(&RenameSide<'_>, &MergedEntry); 2]) -> OpResult<Option<Arc<Node>>> {
        for (end, found) in ends {
            if found.kind() != FileKind::Directory && self.branches.is_staging(found.first()?.0.id()) {
                return Ok(Some(self.tree.intern(&end.parent, end.name, found)?.0));
            }
        }
        Ok(None)
    }

    /// `synced`: the file that is renamed has been synced just now.
    fn rename_file(
        &self,
        from: &RenameSide<'_>,
        to: &RenameSide<'_>,
        replace: Replace,
        synced: bool,
    ) -> OpResult<Renamed> {
        loop {
            let source = self.source(from)?;
            if replace != Replace::Exchange
                && let Some(renamed) = self.rename_on_only_copy(from, to, &source)?
            {
                return Ok(renamed);
            }
            let target = self.tree.probe(&to.parent, to.name)?;
            if source.kind() == FileKind::Directory
                || (replace == Replace::Exchange && target.as_ref().is_some_and(|it| it.kind() == FileKind::Directory))
            {
                let target = target.filter(|_| replace == Replace::Exchange);
                let staged = target.and_then(|target| self.staged_end([(from, &source), (to, &target)]).transpose());
                return staged.map_or(Ok(Renamed::Directory), |node| node.map(Renamed::LeaveFirst));
            }
            match (&target, replace) {
                (Some(_), Replace::No) => return Err(OpError::Sys(Errno::EXIST)),
                (None, Replace::Exchange) => return Err(OpError::Sys(Errno::NOENT)),
                (Some(target), _) if target.kind() == FileKind::Directory => return Err(OpError::Sys(Errno::ISDIR)),
                _ => {}
            }
            let (node, other) = self.intern_ends((from, &source), (to, target.as_ref()))?;
            if let (Replace::Exchange, Some(other), Some(target)) = (replace, &other, &target)
                && other.id != node.id
                && target.first()?.0.id() != source.first()?.0.id()
            {
                let (here, there) = (source.first()?.0.id(), target.first()?.0.id());
                return Ok(Renamed::MoveFirst { node, other: Arc::clone(other), here, there });
            }
            if let (Replace::Yes, Some(target)) = (replace, &target) {
                let (here, there) = (source.first()?.0.id(), target.first()?.0.id());
                let leaves = self.branches.is_staging(here) && !self.branches.is_staging(there);
                if leaves || (here != there && !synced) {
                    if let Some(other) = &other {
                        self.tree.nodes.release(other, 1);
                    }
                    return Ok(if leaves { Renamed::LeaveFirst(node) } else { Renamed::SyncFirst(node) });
                }
            }
            // A whiteout waits for nothing: it belongs on a branch.
            if self.branches.is_staging(source.first()?.0.id())
                && (!is_stageable(to.name, 1) || from.behind == OldName::Whiteout)
            {
                if let Some(other) = &other {
                    self.tree.nodes.release(other, 1);
                }
                return Ok(Renamed::LeaveFirst(node));
            }
            let target = other.as_ref().zip(target.as_ref());
            let (at, meta) = source.first()?;
            let done = self
                .tree
                .ensure_dir(&to.parent, at.id())
                .and_then(|to_dir| self.rename_nodes(from, to, replace, (&node, &source, &to_dir), target));
            if matches!(done, Ok(true)) {
                return Ok(Renamed::Done(node, *meta, other));
            }
            for node in std::iter::once(&node).chain(&other) {
                self.tree.nodes.release(node, 1);
            }
            done?;
        }
    }

    /// False: something moved meanwhile, look again.
    fn rename_nodes(
        &self,
        from: &RenameSide<'_>,
        to: &RenameSide<'_>,
        replace: Replace,
        (node, source, to_dir): (&Arc<Node>, &MergedEntry, &DirAt),
        target: Option<(&Arc<Node>, &MergedEntry)>,
    ) -> OpResult<bool> {
        let (dir, meta) = source.first()?;
        let moves = target.and_then(|(_, found)| found.moves);
        let target = match target {
            Some((other, _)) if other.id == node.id => return Ok(true),
            Some((other, found)) => Some((other, found.first()?)),
            None => None,
        };
        let file = node.file().ok_or(OpError::Stale)?;
        let other = target.and_then(|(other, _)| other.file().map(|file| (other, file)));
        // On two branches the name is twice for a moment, which no caller may see.
        let in_two = target.is_some_and(|(_, (target_dir, _))| target_dir.id() != dir.id());
        let _commit = to.parent.dir().filter(|_| in_two).map(|dir| dir.commit.lock());
        let _moving = in_two.then(|| MoveSeqGuard::begin(&[&to.parent]));
        // Both files are locked in the order of their ids.
        let (mut state, mut other_state) = match &other {
            Some((other, other_file)) if other.id < node.id => {
                let other_state = other_file.state.write();
                (file.state.write(), Some(other_state))
            }
            Some((_, other_file)) => {
                let state = file.state.write();
                (state, Some(other_file.state.write()))
            }
            None => (file.state.write(), None),
        };
        let unchanged = |state: &FileState, dir: &DirAt, meta: &Meta| state.backing == Backing::of(&dir.branch, meta);
        if !unchanged(&state, dir, meta) {
            return Ok(false);
        }
        if let Some((_, (target_dir, target_meta))) = target
            && !other_state.as_ref().is_some_and(|state| unchanged(state, target_dir, target_meta))
        {
            return Ok(false);
        }
        if state.has_unsynced_names || other_state.as_ref().is_some_and(|state| state.has_unsynced_names) {
            self.tree.sync_moved([&from.parent, &to.parent])?;
        }
        state.abort_copy();
        if let Some(state) = other_state.as_mut() {
            state.abort_copy();
        }
        let last_link = match (target, &other_state) {
            (Some((_, (_, found))), Some(state)) if state.has_only_name(found, (&to.parent, to.name), moves) => true,
            (Some((_, (target_dir, _))), _) => target_dir.stat(to.name)?.nlink <= 1,
            (None, _) => false,
        };
        let number = target
            .filter(|_| replace != Replace::Exchange)
            .and_then(|(_, (target_dir, target_meta))| self.tree.hold_number(target_dir, to.name, target_meta));
        let kept = target
            .filter(|_| replace != Replace::Exchange)
            .and_then(|(_, (target_dir, target_meta))| hold_special(target_dir, to.name, target_meta));
        match target {
            Some((_, (target_dir, _))) if in_two => {
                self.change_both(from, to, (dir, to_dir), || {
                    several::supersede(from, to, dir, to_dir, target_dir)?;
                    note_changed(&to.parent, target_dir);
                    leave_whiteout(from, dir)
                })?;
            }
            _ => {
                self.change_both(from, to, (dir, to_dir), || {
                    dir.rename(from.name, to_dir, to.name, flags_of(replace, to_dir) | from.flags())
                })?;
                let old_name = if replace == Replace::Exchange { NameChange::Given } else { NameChange::Gone };
                note_renamed((from, dir), (to, to_dir), old_name);
            }
        }
        rename_known(&mut state, from, to);
        state.needs_evaluation = true;
        self.tree.forget_late_replies(node);
        if let (Some(state), Some((other, _))) = (other_state.as_mut(), target) {
            if replace == Replace::Exchange {
                self.tree.forget_late_replies(other);
                rename_known(state, to, from);
                state.needs_evaluation = true;
            } else {
                forget_name(state, to);
                state.needs_evaluation = true;
                if last_link {
                    state.lose_last_name(&to.parent, to.name);
                    state.kept = kept;
                    self.staged.deleted(other, state.backing.branch);
                    self.migrate.note_gone(state.backing);
                    self.tree.nodes.remove_backing(state.backing, other);
                    self.tree.drop_number(number);
                }
            }
        }
        Ok(true)
    }

    /// Renames a directory on every branch that has it. The caller holds the rename lock exclusively.
    fn rename_dir(&self, from: &RenameSide<'_>, to: &RenameSide<'_>, replace: Replace) -> OpResult<()> {
        let (source, target) = (self.source(from)?, self.tree.probe(&to.parent, to.name)?);
        match (&target, replace) {
            (Some(_), Replace::No) => return Err(OpError::Sys(Errno::EXIST)),
            (None, Replace::Exchange) => return Err(OpError::Sys(Errno::NOENT)),
            (Some(target), Replace::Yes) if target.kind() != FileKind::Directory => {
                return Err(OpError::Sys(Errno::NOTDIR));
            }
            _ => {}
        }
        if source.kind() != FileKind::Directory && replace != Replace::Exchange {
            return Err(OpError::Sys(Errno::BUSY)); // It was a directory a moment ago; the caller may try again.
        }
        let (node, other) = self.intern_ends((from, &source), (to, target.as_ref()))?;
        let done = match (&other, &target) {
            (Some(other), Some(target)) if other.id != node.id && replace == Replace::Exchange => {
                self.exchange_dirs(from, to, (&node, &source), (other, target))
            }
            (Some(other), _) if other.id == node.id => Ok(()),
            _ => self.replace_dir(from, to, &node, other.as_ref()),
        };
        for changed in [&node, &from.parent, &to.parent].into_iter().chain(&other) {
            self.tree.forget_late_replies(changed);
        }
        for node in std::iter::once(&node).chain(&other) {
            self.tree.nodes.release(node, 1);
        }
        done
    }

    fn replace_dir(
        &self,
        from: &RenameSide<'_>,
        to: &RenameSide<'_>,
        node: &Arc<Node>,
        other: Option<&Arc<Node>>,
    ) -> OpResult<()> {
        let copies = self.tree.copies(node)?;
        let mut places = Vec::with_capacity(copies.len());
        for copy in &copies {
            places.push((self.tree.dir_at(&from.parent, copy.id())?, self.tree.ensure_dir(&to.parent, copy.id())?));
        }
        let rename = || rename_copies(from, to, &places, other.is_some());
        match other {
            None => rename()?,
            Some(other) => {
                let replaced: Vec<_> = copies.iter().map(DirAt::id).collect();
                self.tree.remove_dir_for(other, to.name, &replaced, rename)?;
            }
        }
        for (old, new) in &places {
            note_changed(&from.parent, old);
            note_changed(&to.parent, new);
        }
        if let [(old, new)] = places.as_slice() {
            note_renamed((from, old), (to, new), NameChange::Gone);
        }
        if let Some(dir) = node.dir() {
            dir.state.write().place = Some((Arc::clone(&to.parent), to.name.to_owned()));
        }
        self.migrate.revisit_below(node);
        Ok(())
    }

    /// Changes entries of the copies of both directories for a user.
    fn change_both<T>(
        &self,
        from: &RenameSide<'_>,
        to: &RenameSide<'_>,
        (old, new): (&DirAt, &DirAt),
        change: impl FnOnce() -> OpResult<T>,
    ) -> OpResult<T> {
        self.tree.change_entries(&from.parent, old, || self.tree.change_entries(&to.parent, new, change))
    }
}

/// Entries of a directory's copy have changed, and no sync has made that durable yet.
pub(crate) fn note_changed(parent: &Node, copy: &DirAt) {
    if let Some(dir) = parent.dir() {
        dir.changes.note(copy);
    }
}

/// One name was changed for another on one branch, and no sync has made that durable yet. On several branches the
/// change itself does.
pub(crate) fn note_renamed(
    (from, old): (&RenameSide<'_>, &DirAt),
    (to, new): (&RenameSide<'_>, &DirAt),
    old_name: NameChange,
) {
    from.parent.note_name(old, old_name);
    to.parent.note_name(new, NameChange::Given);
}

fn rename_copies(
    from: &RenameSide<'_>,
    to: &RenameSide<'_>,
    places: &[(DirAt, DirAt)],
    replaced: bool,
) -> OpResult<()> {
    match places {
        [(old, new)] => old.rename(from.name, new, to.name, from.flags()),
        places => {
            several::rename_dir(from, to, places, replaced)?;
            places.first().map_or(Ok(()), |(old, _)| leave_whiteout(from, old))
        }
    }
}

impl RenameSide<'_> {
    fn flags(&self) -> RenameFlags {
        match self.behind {
            OldName::Nothing => RenameFlags::empty(),
            OldName::Whiteout => RenameFlags::WHITEOUT,
        }
    }
}

/// Where several branches are concerned the whiteout is a step of its own: after a crash before it, the name is just
/// gone.
fn leave_whiteout(from: &RenameSide<'_>, dir: &DirAt) -> OpResult<()> {
    const WHITEOUT_DEVICE: u64 = 0;
    match from.behind {
        OldName::Nothing => Ok(()),
        OldName::Whiteout => dir.mknod(from.name, libc::S_IFCHR, 0, WHITEOUT_DEVICE),
    }
}

/// Where a file is now.
fn branch_of(node: &Node) -> Option<BranchId> {
    node.file().map(|file| file.state.read().backing.branch)
}

fn flags_of(replace: Replace, to: &DirAt) -> RenameFlags {
    match replace {
        // It was looked for; the flag refuses what came behind the mount's back since.
        Replace::No if to.branch.abilities().rename_flags => RenameFlags::NOREPLACE,
        Replace::Yes | Replace::No => RenameFlags::empty(),
        Replace::Exchange => RenameFlags::EXCHANGE,
    }
}

pub(crate) fn rename_known(state: &mut FileState, from: &RenameSide<'_>, to: &RenameSide<'_>) {
    forget_name(state, from);
    state.names.push((Arc::clone(&to.parent), to.name.to_owned()));
}

fn forget_name(state: &mut FileState, end: &RenameSide<'_>) {
    state.names.retain(|(parent, name)| parent.id != end.parent.id || name != end.name);
}
