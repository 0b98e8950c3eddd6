//! Changes of a directory's copies: those that users ask for, which make all copies equal, and the attributes that a
//! branch's root gets with its first entry.
//!
//! A change of owner, mode or ACLs:
//!
//! 1. what all copies are to have: what is shown, with that change;
//! 2. if a branch is away, a note of the change on every copy, which names the copies that lack it;
//! 3. a mark on every copy that says all of it: a kill from here on leaves a change that the next mount finishes;
//! 4. copy by copy the change, and where copies differ all that is shown;
//! 5. the marks go. Copies that could not follow are noted on the others, and notes of unmet copies go, which have
//!    the change now.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::io::Errno;
use umbrella_units::BranchId;

use crate::error::{OpError, OpResult};
use crate::ground::at::{DirAt, FileAt};
use crate::ground::kernel_cache::KernelCache;
use crate::node::{Dir, Node, NodeId, key_of};
use crate::relocate;
use crate::relocate::{ChangedAt, CopyId, DirAttributes, Intention};
use crate::rights::{Rights, RightsChange};
use crate::tree::Tree;
use crate::tree::dirs::DirCopies;
use crate::tree::inspected_copy::{InspectedCopy, guarded, is_empty_root, keeps_all, note_change};

impl Tree {
    /// Does the same to every writable copy of a directory. `change` names a change of rights, in which all copies are
    /// equal afterwards.
    pub(crate) fn change_dir(
        &self,
        node: &Arc<Node>,
        change: Option<&RightsChange>,
        cache: KernelCache,
        call: impl Fn(&FileAt) -> OpResult<()>,
    ) -> OpResult<()> {
        let dir = node.dir().ok_or(OpError::Sys(Errno::NOTDIR))?;
        self.refresh(node, dir)?;
        let _attributes = dir.attributes.lock();
        let copies = self.known_copies(node, dir)?;
        let wanted = match change {
            Some(change) if copies.len() > 1 => Some(self.rights_shown(dir, &copies)?.with(change)),
            _ => None,
        };
        copies.iter().for_each(|copy| dir.changes.note(copy));
        let away = if change.is_some() { self.copies_without_rights(node, dir) } else { self.copies_away(node, dir) };
        self.change_copies(node, (&copies, &away), wanted.as_ref(), cache, call)?;
        if change.is_some() && wanted.is_none() {
            // What a kill left half done is over: the copies that are away now get this change.
            unmark(&copies);
        }
        Ok(())
    }

    /// A change of the times of all copies, which no copy that is away has to learn.
    pub(crate) fn touch_dir(&self, node: &Arc<Node>, call: impl Fn(&FileAt) -> OpResult<()>) -> OpResult<()> {
        let dir = node.dir().ok_or(OpError::Sys(Errno::NOTDIR))?;
        self.refresh(node, dir)?;
        // A copy that is being made meanwhile is known afterwards, or gets what is set now.
        let _attributes = dir.attributes.lock();
        let copies = self.known_copies(node, dir)?;
        copies.iter().for_each(|copy| dir.changes.note(copy));
        let done: Vec<OpResult<()>> = copies.iter().map(|copy| call(&copy.as_file())).collect();
        outcome(done.into_iter())
    }

    /// The caller holds the lock on the directory's attributes. `copies`: those that change, and those that are
    /// away and do not get the change now. `wanted`: what all copies are to have.
    pub(crate) fn change_copies(
        &self,
        node: &Arc<Node>,
        (copies, away): (&DirCopies, &[CopyId]),
        wanted: Option<&Rights>,
        cache: KernelCache,
        call: impl Fn(&FileAt) -> OpResult<()>,
    ) -> OpResult<()> {
        let dir = node.dir().ok_or(OpError::Sys(Errno::NOTDIR))?;
        // Before anything is marked: what fails here changes nothing.
        let before = match wanted {
            Some(_) => {
                copies.iter().map(|copy| InspectedCopy::of(copy.clone())).collect::<OpResult<Vec<InspectedCopy>>>()?
            }
            None => Vec::new(),
        };
        // First: a note without its change is no harm, a change without its note would not hold against a copy that
        // comes back.
        let noted = self.is_any_branch_away();
        if noted {
            note_change(copies, away)?;
        }
        let divergence = dir.state.read().divergence.is_some();
        if let Some(rights) = wanted {
            let intention =
                Intention { rights: rights.clone(), copies: copies.iter().map(|copy| copy_id(dir, copy)).collect() };
            for copy in copies {
                mark(copy, &intention);
            }
        }
        let change = |copy: &DirAt| {
            // First: what fails changes nothing.
            call(&copy.as_file())?;
            if let Some(wanted) = wanted.filter(|_| divergence) {
                let seen = InspectedCopy::of(copy.clone())?;
                if seen.can_follow() && !seen.has(wanted) {
                    seen.apply_attributes(InspectedCopy::with_rights(wanted, &seen, ChangedAt::default()), cache);
                }
            }
            Ok(())
        };
        let done: Vec<OpResult<()>> = copies.iter().map(change).collect();
        if done.iter().any(|done| matches!(done, Err(error) if is_refusal(*error))) {
            // What one copy refuses, none keeps.
            for (seen, _) in before.iter().zip(&done).filter(|(_, done)| done.is_ok()) {
                seen.apply_attributes(InspectedCopy::with_rights(&seen.rights(), seen, ChangedAt::default()), cache);
            }
            unmark(copies);
            self.compare_later(node, dir);
            return outcome(done.into_iter());
        }
        if wanted.is_some() {
            unmark(copies);
        }
        let (changed, failed): (Vec<_>, Vec<_>) = copies.iter().zip(&done).partition(|(_, done)| done.is_ok());
        if !changed.is_empty() && !failed.is_empty() {
            let lagging = failed.iter().map(|(copy, _)| copy_id(dir, copy)).chain(away.iter().copied());
            let changed: Vec<DirAt> = changed.iter().map(|(copy, _)| (*copy).clone()).collect();
            // Where it cannot be noted, what all copies allow is shown.
            let _not_noted = note_change(&changed, &lagging.collect::<Vec<_>>());
        } else if !noted && node.id != NodeId::ROOT {
            let met: Vec<CopyId> = changed.iter().map(|(copy, _)| CopyId::unmet(copy_id(dir, copy).branch)).collect();
            self.clear_lagging(node, &before, &met);
        }
        if divergence || !failed.is_empty() {
            self.compare_later(node, dir);
        }
        outcome(done.into_iter())
    }

    /// What users see of a directory. The caller holds the lock on its attributes.
    fn rights_shown(&self, dir: &Dir, copies: &DirCopies) -> OpResult<Rights> {
        if let Some(divergence) = &dir.state.read().divergence {
            return Ok(divergence.shown.rights.clone());
        }
        let keeping_all = copies.iter().find(|copy| keeps_all(copy)).or(copies.first());
        Ok(InspectedCopy::of(keeping_all.ok_or(OpError::Offline)?.clone())?.rights())
    }

    /// Copies that do not get a change of rights now: besides [`Tree::copies_away`] one on each other branch that is
    /// away. Whether there is one, only its return shows.
    pub(crate) fn copies_without_rights(&self, node: &Arc<Node>, dir: &Dir) -> Vec<CopyId> {
        let mut copies = self.copies_away(node, dir);
        let is_known = |branch: &u128| copies.iter().any(|copy| copy.branch == *branch);
        let away = self.branches_away().into_iter().map(|(_, branch)| branch);
        let unmet: Vec<u128> = away.filter(|branch| !is_known(branch)).collect();
        copies.extend(unmet.into_iter().map(CopyId::unmet));
        copies
    }

    /// Branches that are away, with their identities.
    fn branches_away(&self) -> Vec<(BranchId, u128)> {
        let identity = |name: &str| self.context.state.branch(name).map(|known| known.uuid.to_u128_le());
        let away = self.branches.all().into_iter().filter(|branch| !branch.is_online());
        away.filter_map(|branch| Some((branch.id, identity(&branch.spec.name)?))).collect()
    }

    /// Copies that are known and cannot be reached now: of the root, every branch that is away.
    fn copies_away(&self, node: &Arc<Node>, dir: &Dir) -> Vec<CopyId> {
        let known = dir.state.read().copies.clone();
        let ino = |id| known.iter().find(|copy| copy.branch == id).map(|copy| copy.backing.ino);
        let copy = |(id, branch)| {
            let ino = if node.id == NodeId::ROOT { 0 } else { ino(id)? };
            Some(CopyId { branch, ino })
        };
        let mut copies: Vec<CopyId> = self.branches_away().into_iter().filter_map(copy).collect();
        let remembered = self.copies_away.lock().get(&node.ino).cloned().unwrap_or_default();
        copies.extend(remembered.into_iter().filter(|_| node.id != NodeId::ROOT));
        copies.sort_unstable();
        copies.dedup();
        copies
    }

    /// A branch goes: which directories have copies there, for the kernel will forget them. Their numbers tell them
    /// from others that get their inodes.
    pub(crate) fn remember_copies(&self, gone: BranchId, identity: u128) {
        let mut found = Vec::new();
        for node in self.nodes.snapshot() {
            let Some(dir) = node.dir() else { continue };
            let copies = dir.state.read().copies.clone();
            let Some(lost) = copies.iter().find(|copy| copy.branch == gone) else { continue };
            for copy in copies.iter().filter(|copy| copy.branch != gone) {
                let Some(online) = self.branches.get(copy.branch).ok().and_then(|branch| branch.online()) else {
                    continue;
                };
                let number = self.inodes.ino(key_of(&online, copy.backing));
                found.push((number, CopyId { branch: identity, ino: lost.backing.ino }));
            }
        }
        // Nothing else is locked under it.
        let mut away = self.copies_away.lock();
        for (number, copy) in found {
            away.entry(number).or_default().push(copy);
        }
    }

    /// A branch is back.
    pub(crate) fn forget_copies_away(&self, identity: u128) {
        self.copies_away.lock().retain(|_, copies| {
            copies.retain(|copy| copy.branch != identity);
            !copies.is_empty()
        });
    }

    /// Whether a branch may have copies that do not learn of a change now.
    pub(crate) fn is_any_branch_away(&self) -> bool {
        self.branches.all().iter().any(|branch| !branch.is_online())
    }

    /// Gives a branch's root that holds nothing yet the rights that users see of the root, before it gets an entry.
    pub(crate) fn prepare_root(&self, at: &DirAt) {
        let Some(dir) = self.root.dir() else { return };
        let is_empty = || {
            let state = dir.state.read();
            state.divergence.as_ref().filter(|divergence| divergence.empty.contains(&at.id())).cloned()
        };
        if is_empty().is_none() {
            return;
        }
        let _attributes = dir.attributes.lock();
        let Some(divergence) = is_empty() else { return };
        if is_empty_root(at)
            && let Ok(seen) = InspectedCopy::of(at.clone())
        {
            let rights = &divergence.shown.rights;
            // What it cannot keep, it does not count for.
            let _kept = seen.apply_attributes(
                InspectedCopy::with_rights(rights, &seen, ChangedAt::default()),
                KernelCache::SAME_SHOWN,
            );
        }
        self.compare_later(&self.root, dir);
    }

    /// Compares the copies after a change; where that fails, before their next use.
    fn compare_later(&self, node: &Arc<Node>, dir: &Dir) {
        if self.compare(node, dir).is_err() {
            dir.alike.store(0, Ordering::Release);
        }
    }

    /// What a new copy of a directory gets besides the times of `source`; `None`: all that `source` has.
    pub(crate) fn attributes_for_copy(&self, dir: &Dir, source: &DirAt) -> OpResult<Option<DirAttributes>> {
        let Some(divergence) = dir.state.read().divergence.clone() else { return Ok(None) };
        let seen = InspectedCopy::of(source.clone())?;
        Ok(Some(InspectedCopy::with_rights(&divergence.shown.rights, &seen, ChangedAt::default())))
    }
}

/// Whether a copy refuses a change: its branch is as it was before and goes on.
fn is_refusal(error: OpError) -> bool {
    let refused = |errno| matches!(errno, Errno::TOOBIG | Errno::RANGE | Errno::INVAL | Errno::PERM | Errno::ACCESS);
    error.is_full() || matches!(error, OpError::Sys(errno) if refused(errno))
}

/// A read-only copy cannot follow; the others count then.
fn outcome(done: impl Iterator<Item = OpResult<()>>) -> OpResult<()> {
    let (mut any, mut failure) = (false, None);
    for done in done {
        match done {
            Ok(()) => any = true,
            Err(error) => {
                failure.get_or_insert(error);
            }
        }
    }
    match failure {
        Some(OpError::Sys(Errno::ROFS)) if any => Ok(()),
        Some(error) => Err(error),
        None => Ok(()),
    }
}

fn copy_id(dir: &Dir, copy: &DirAt) -> CopyId {
    let state = dir.state.read();
    let ino = state.copies.iter().find(|known| known.branch == copy.id()).map_or(0, |known| known.backing.ino);
    CopyId { branch: copy.online.uuid.to_u128_le(), ino }
}

/// Takes the marks off copies.
fn unmark(copies: &DirCopies) {
    for copy in copies.iter().filter(|copy| !copy.branch.settings().read_only) {
        let dir = Arc::clone(&copy.fd);
        let _without_marks = guarded(copy, move || relocate::unmark(dir.as_fd()));
    }
}

fn mark(copy: &DirAt, intention: &Intention) {
    if copy.branch.settings().read_only {
        return;
    }
    let (dir, intention) = (Arc::clone(&copy.fd), intention.clone());
    if let Err(error) = guarded(copy, move || relocate::mark_changing(dir.as_fd(), &intention)) {
        // Then a kill in the midst leaves copies that differ, and what all allow is shown.
        tracing::debug!(branch = %copy.branch.spec.name, %error, "cannot mark a directory's change");
    }
}
