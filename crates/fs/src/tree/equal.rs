//! What users see of a directory whose copies differ, and the changes that copies still lack.
//!
//! The pool never changes a disk that it was only asked to show. So copies of a directory that differ in owner, mode or
//! ACL stay as they are. The pool chooses the rights that users see, which the kernel enforces ([`crate::rights`]).
//! Only a requested change is carried on, in two cases:
//!
//! - A copy missed it while its branch was away, or could not follow. The others have a note of it that names the copy.
//! - A kill interrupted it. The copies have a mark that holds all of it.
//!
//! A branch that was away from the mount on may bring a directory that the pool has not met. Whether it was a copy of
//! the changed one, nobody knows:
//!
//! - A directory that was made or renamed meanwhile may have its name by chance, and the same owner and mode.
//! - Somebody may have made or renamed it, or a directory above it, where the disk was. Its own times do not show the
//!   latter, and the clock there may be wrong.
//!
//! So such a directory is not changed. The note of a change of rights names it as unmet ([`CopyId::unmet`]). Until a
//! change through the pool reaches it, what all copies allow is shown, whatever the rule. What the change took away
//! does not come back, and what the disk denies stays denied. A kill after the note and before its change does the
//! same. A note has one entry for each branch that was away.
//!
//! All copies are compared before the first use of the directory, and again before its first use after a branch came or
//! went ([`Tree::compare_once`]). A look that finds another mode, owner or change time than then has them compared as
//! well ([`Tree::recheck`]).
//!
//! Copies on branches that are online count, except
//!
//! - staging copies;
//! - roots that hold nothing of their own, so that a fresh disk closes no pool; if all are such, the first counts;
//! - those on a branch that keeps no owners and modes, if another's does;
//! - those that a change could not be carried over to;
//! - those on a branch without ACLs that agree with the others in all else.

use std::ffi::OsStr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustc_hash::FxHashSet;
use rustix::io::Errno;
use smallvec::SmallVec;
use umbrella_units::{BranchId, Ino};

use crate::error::{OpError, OpResult};
use crate::ground::advice::advised;
use crate::ground::at::DirAt;
use crate::ground::kernel_cache::KernelCache;
use crate::ground::locks::{RankedMutex, rank};
use crate::ground::meta::Meta;
use crate::node::{ComparedCopy, Comparison, Dir, Divergence, Node, NodeId, inode_key};
use crate::relocate;
use crate::relocate::{ChangedAt, CopyId, Intention, Mark};
use crate::rights::{ACCESS, DEFAULT, Rights, ShownRights, shown};
use crate::spec::DirectoryRule;
use crate::tree::Tree;
use crate::tree::inspected_copy::{InspectedCopy, guarded, is_empty_root, keeps_all, mode_and_owner, note_change};
use crate::warning::Warning;

/// How long a directory whose entries change is not compared again.
const COMPARE_PAUSE: Duration = Duration::from_secs(1);
/// [`Dir::alike`] while the copies are compared: no topology.
const COMPARING: u64 = u64::MAX;

/// Directories that were met whose copies differ.
#[derive(Default)]
pub(crate) struct Differing(RankedMutex<rank::TreeDiffering, DifferingDirs>);

#[derive(Default)]
struct DifferingDirs {
    dirs: FxHashSet<Ino>,
    example: Option<(Ino, String)>,
    /// Their number when the log last reported them.
    reported: usize,
}

impl Tree {
    /// Compares the copies of a directory that were just looked at, if one is not what it was when they were compared.
    /// Whether what users see changed.
    pub(crate) fn recheck(&self, node: &Arc<Node>, dir: &Dir, looks: &[(BranchId, Meta)]) -> OpResult<bool> {
        let topology = self.branches.topology.load(Ordering::Acquire);
        if dir.alike.load(Ordering::Acquire) != topology {
            return self.compare_once(node, dir, topology);
        }
        let change = {
            let state = dir.state.read();
            match &state.comparison {
                // It stays what it was.
                _ if state.removed => None,
                Some(comparison) => looks.iter().map(|(branch, meta)| comparison.change(*branch, meta)).max(),
                // The second copy was made since.
                None => (looks.len() > 1).then_some(CopyChange::Attributes),
            }
        };
        let attributes = match change.unwrap_or(CopyChange::Nothing) {
            CopyChange::Nothing => return Ok(false),
            // Whoever has it locked may wait for a disk, and this can wait.
            CopyChange::Entries => dir.attributes.try_lock(),
            CopyChange::Attributes => Some(dir.attributes.lock()),
        };
        attributes.map_or(Ok(false), |_held| self.compare(node, dir))
    }

    /// Compares the copies of a directory, unless it was done since branches came or went. Whether anything changed.
    pub(crate) fn compare_once(&self, node: &Arc<Node>, dir: &Dir, topology: u64) -> OpResult<bool> {
        let _attributes = dir.attributes.lock();
        if dir.alike.load(Ordering::Acquire) == topology {
            return Ok(false);
        }
        // A thread that adds a copy meanwhile, or leaves one out, puts 0 there: then the next look compares again.
        dir.alike.store(COMPARING, Ordering::Release);
        let changed = self.compare(node, dir).inspect_err(|_| dir.alike.store(0, Ordering::Release))?;
        let _unless_changed = dir.alike.compare_exchange(COMPARING, topology, Ordering::AcqRel, Ordering::Acquire);
        Ok(changed)
    }

    /// The caller holds the lock on the directory's attributes. Fails where the attributes of a copy that was opened
    /// cannot be read: what it denies is not known.
    pub(crate) fn compare(&self, node: &Arc<Node>, dir: &Dir) -> OpResult<bool> {
        let forget = |changed: &OpResult<bool>| {
            if !matches!(changed, Ok(false)) {
                self.context.forget_attributes(node.id);
            }
        };
        KernelCache::invalidate_after(|cache| self.compare_copies(node, dir, cache), forget)
    }

    fn compare_copies(&self, node: &Arc<Node>, dir: &Dir, cache: KernelCache) -> OpResult<bool> {
        let mut inspected = self.inspect_copies(node, dir)?;
        let (divergence, changed, differ) = if inspected.len() < 2 {
            (None, false, false)
        } else {
            let late = self.carry_over(node, &mut inspected, cache);
            let counted = self.counted(node, &inspected, &late);
            let shown = self.rule(&counted);
            let differ = !counted.iter().all(|seen| seen.has(&shown.rights));
            (self.divergence(node, &inspected, &counted, shown), late.changed, differ)
        };
        self.note_differing(node, differ.then_some(&*inspected));
        let comparison = (inspected.len() > 1).then(|| Box::new(self.comparison(&inspected)));
        let before = {
            let mut state = dir.state.write();
            state.comparison = comparison;
            std::mem::replace(&mut state.divergence, divergence.clone())
        };
        Ok(changed
            || before.map(|divergence| divergence.shown.clone())
                != divergence.map(|divergence| divergence.shown.clone()))
    }

    /// Describes copies whose rights are not all the ones that users see.
    fn divergence(
        &self,
        node: &Arc<Node>,
        inspected: &[InspectedCopy],
        counted: &[&InspectedCopy],
        shown: ShownRights,
    ) -> Option<Arc<Divergence>> {
        let follows = |seen: &&InspectedCopy| {
            let wanted = || InspectedCopy::with_rights(&shown.rights, seen, ChangedAt::default());
            // Memory is no disk of the user's.
            seen.has(&shown.rights)
                || self.branches.is_staging(seen.at.id()) && seen.apply_attributes(wanted(), KernelCache::SAME_SHOWN)
        };
        let (alike, others): (Vec<&InspectedCopy>, Vec<&InspectedCopy>) = inspected.iter().partition(follows);
        if others.is_empty() && !shown.umask_counts {
            return None;
        }
        let model = counted.iter().find(|seen| keeps_all(&seen.at)).or(counted.first());
        let inherits_as = inspected.iter().filter(|seen| seen.inherits_as(&shown));
        let staged = alike
            .iter()
            .filter(|seen| self.branches.is_staging(seen.at.id()) && !shown.umask_counts)
            .map(|seen| seen.at.id());
        let empty = others.iter().filter(|seen| node.id == NodeId::ROOT && is_empty_root(&seen.at));
        Some(Arc::new(Divergence {
            model: model.map(|seen| seen.at.id()),
            inherits_as: inherits_as.map(|seen| seen.at.id()).chain(staged).collect(),
            empty: empty.map(|seen| seen.at.id()).collect(),
            shown,
        }))
    }

    /// What later looks are compared with.
    fn comparison(&self, inspected: &[InspectedCopy]) -> Comparison {
        let compared = |seen: &InspectedCopy| {
            // A staged copy got what is shown.
            let is_staged = self.branches.is_staging(seen.at.id());
            let meta = if is_staged { seen.at.stat_self().unwrap_or(seen.meta) } else { seen.meta };
            ComparedCopy { branch: seen.at.id(), seen: mode_and_owner(&meta), ctime: meta.ctime }
        };
        Comparison { at: Instant::now(), copies: inspected.iter().map(compared).collect() }
    }

    /// All copies that can be reached now. One that can be reached and not read is an error.
    pub(crate) fn inspect_copies(&self, node: &Arc<Node>, dir: &Dir) -> OpResult<SmallVec<[InspectedCopy; 2]>> {
        let copies = dir.state.read().copies.clone();
        let mut inspected = SmallVec::new();
        for copy in copies.iter().filter(|_| copies.len() > 1) {
            let reached = self.dir_at(node, copy.branch).and_then(|at| at.stat_self().map(|_| at));
            match reached {
                Ok(at) => {
                    let branch = Arc::clone(&at.branch);
                    match InspectedCopy::of(at) {
                        Ok(seen) => inspected.push(seen),
                        // It has just gone offline, because it did not answer.
                        Err(_) if !self.context.is_strict() && !branch.is_online() => {}
                        Err(error) => return Err(error),
                    }
                }
                Err(OpError::Offline | OpError::Sys(Errno::NOENT | Errno::NOTDIR | Errno::LOOP)) => {}
                Err(error) if error.is_own_shortage() || self.context.is_strict() => return Err(error),
                // Nothing on it can be reached either. What it denies holds again once it can be read.
                Err(error) => {
                    dir.alike.store(0, Ordering::Release);
                    let branch = self.placement.branch_name(copy.branch);
                    tracing::warn!(%branch, %error, "cannot read a copy of a directory; it is left out");
                }
            }
        }
        Ok(inspected)
    }

    /// Gives copies the changes that they lack; see the module.
    fn carry_over(&self, node: &Arc<Node>, inspected: &mut [InspectedCopy], cache: KernelCache) -> LaggingCopies {
        let mut late = self.finish_interrupted(node, inspected, cache);
        let sound = |seen: &&InspectedCopy| seen.mark.is_none() && seen.at.online.abilities.ownership;
        let newest = inspected.iter().filter(sound).map(|seen| seen.note.at).max().unwrap_or_default();
        let models: Vec<&InspectedCopy> =
            inspected.iter().filter(sound).filter(|seen| seen.note.at == newest).collect();
        let models = if models.is_empty() { inspected.iter().collect() } else { models };
        let lacks_change = |seen: &InspectedCopy| {
            let lacks = seen.mark.is_none() && seen.note.at < newest && self.lacks_change(node, seen, &models);
            (seen.mark.is_some() || lacks) && seen.at.online.abilities.ownership
        };
        let lagging: Vec<bool> = inspected.iter().map(lacks_change).collect();
        if !lagging.contains(&true) {
            return late;
        }
        let wanted = self.rule(&models).rights;
        let keeper = models.iter().find(|seen| keeps_all(&seen.at) && seen.mark.is_none());
        let mut carried = Vec::new();
        for (seen, _) in inspected.iter().zip(&lagging).filter(|(_, lagging)| **lagging) {
            let wanted = InspectedCopy::with_rights(&wanted, keeper.unwrap_or(&seen), newest);
            let is_so = seen.mark.is_none() && mode_and_owner(&seen.meta) == (wanted.perm, wanted.uid, wanted.gid) && {
                let abilities = &seen.at.online.abilities;
                let all = wanted.attributes.as_deref().unwrap_or_default();
                relocate::kept_of(all, abilities) == relocate::kept_of(&seen.attributes, abilities)
            };
            if is_so {
                // Else a change that is made on its branch from now on would be taken for the missed one, and undone.
                if seen.note_carried_over(newest) {
                    carried.push(seen.id());
                }
                continue;
            }
            if seen.apply_attributes(wanted, cache) {
                carried.push(seen.id());
            } else {
                late.branches.push(seen.at.id());
            }
        }
        self.clear_lagging(node, models, &carried);
        late.changed |= !carried.is_empty();
        reread(inspected, &carried);
        late
    }

    /// Finishes a change that a kill interrupted.
    fn finish_interrupted(
        &self,
        node: &Arc<Node>,
        inspected: &mut [InspectedCopy],
        cache: KernelCache,
    ) -> LaggingCopies {
        let mut late = LaggingCopies::default();
        let begun = inspected.iter().find_map(|seen| match &seen.mark {
            Some(Mark::Changing(intention)) => Some(intention.clone()),
            _ => None,
        });
        let Some(Intention { rights, copies }) = begun else { return late };
        // All copies are marked before the first is changed, and each loses its mark with the change. So a copy without
        // a mark had either the whole change, and perhaps later ones, or none of it. The marked copies get its state.
        let is_settled = |seen: &InspectedCopy| {
            seen.mark.is_none() && seen.at.online.abilities.ownership && !self.branches.is_staging(seen.at.id())
        };
        if inspected.iter().any(|seen| is_settled(seen) && names(node, &copies, seen.id())) {
            return late;
        }
        let is_one =
            |seen: &InspectedCopy| matches!(seen.mark, Some(Mark::Changing(_))) || names(node, &copies, seen.id());
        // Branches that are away now did not get it, or not all of it.
        let away: Vec<CopyId> = {
            let is_here = |copy: &CopyId| inspected.iter().any(|seen| names(node, &[*copy], seen.id()));
            copies.iter().filter(|copy| !is_here(copy)).copied().collect()
        };
        let (ours, others): (Vec<&InspectedCopy>, Vec<&InspectedCopy>) =
            inspected.iter().partition(|seen| is_one(seen));
        if !away.is_empty() {
            let dirs: Vec<DirAt> = ours.iter().map(|seen| seen.at.clone()).collect();
            let _not_noted = note_change(&dirs, &away);
        }
        let mut done = Vec::new();
        for seen in ours {
            if seen.apply_attributes(InspectedCopy::with_rights(&rights, seen, ChangedAt::default()), cache) {
                done.push(seen.id());
            } else if seen.at.online.abilities.ownership {
                late.branches.push(seen.at.id());
            }
        }
        tracing::info!(dir = %String::from_utf8_lossy(&node.path()), others = others.len(), "finished a directory change that the last run left half done");
        late.changed = !done.is_empty();
        reread(inspected, &done);
        late
    }

    /// Whether a copy lacks the change that is noted on the `models`: they name it, or the pool made it (such copies
    /// have the number of their original).
    fn lacks_change(&self, node: &Arc<Node>, seen: &InspectedCopy, models: &[&InspectedCopy]) -> bool {
        let number =
            |seen: &InspectedCopy| self.inodes.ino_checked(inode_key(&seen.at.online, &seen.meta), seen.meta.btime);
        models.iter().any(|model| {
            names(node, &model.note.lagging, seen.id()) || node.id != NodeId::ROOT && number(model) == number(seen)
        })
    }

    /// The copies that got a change are named no longer, because another directory may get the inode.
    pub(crate) fn clear_lagging<'f>(
        &self,
        node: &Arc<Node>,
        models: impl IntoIterator<Item = &'f InspectedCopy>,
        carried: &[CopyId],
    ) {
        let named = |lagging: &CopyId| {
            carried.iter().any(|copy| names(node, &[*lagging], *copy) || *lagging == CopyId::unmet(copy.branch))
        };
        for seen in models.into_iter().filter(|seen| seen.note.lagging.iter().any(named)) {
            let mut note = seen.note.clone();
            note.lagging.retain(|lagging| !named(lagging));
            let dir = Arc::clone(&seen.at.fd);
            let _stays_named = guarded(&seen.at, move || relocate::note_change(dir.as_fd(), &note));
        }
    }

    /// The copies that count.
    fn counted<'f>(
        &self,
        node: &Arc<Node>,
        inspected: &'f [InspectedCopy],
        late: &LaggingCopies,
    ) -> Vec<&'f InspectedCopy> {
        let mut counted: Vec<&InspectedCopy> = inspected.iter().collect();
        let mut keep = |counts: &dyn Fn(&InspectedCopy) -> bool| {
            let some: Vec<&InspectedCopy> = counted.iter().copied().filter(|seen| counts(seen)).collect();
            let any = !some.is_empty();
            if any {
                counted = some;
            }
            any
        };
        keep(&|seen| !self.branches.is_staging(seen.at.id()));
        keep(&|seen| seen.at.online.abilities.ownership);
        keep(&|seen| !late.branches.contains(&seen.at.id()));
        let alike = inspected.iter().all(|seen| inspected.first().is_some_and(|first| seen.has(&first.rights())));
        if node.id == NodeId::ROOT && !alike && !keep(&|seen| !is_empty_root(&seen.at)) {
            counted.truncate(1);
        }
        counted
    }

    /// The rights that users see of these copies.
    fn rule(&self, counted: &[&InspectedCopy]) -> ShownRights {
        let rights = |inspected: &[&InspectedCopy]| inspected.iter().map(|seen| seen.rights()).collect::<Vec<Rights>>();
        let first_decides = counted.first().is_none_or(|first| !counted.iter().any(|other| first.may_lack(other)));
        if self.context.settings().directories == DirectoryRule::First && first_decides {
            return shown(&rights(counted.get(..1).unwrap_or_default()));
        }
        let (mut full, without_acls): (Vec<&InspectedCopy>, Vec<&InspectedCopy>) =
            counted.iter().copied().partition(|seen| seen.at.online.abilities.acl);
        if full.is_empty() {
            return shown(&rights(counted));
        }
        let of_full = shown(&rights(&full));
        full.extend(without_acls.into_iter().filter(|seen| !seen.has(&of_full.rights)));
        shown(&rights(&full))
    }

    /// Counts a directory whose copies differ, or takes it out of the count. The log reports the first.
    fn note_differing(&self, node: &Arc<Node>, inspected: Option<&[InspectedCopy]>) {
        let mut met = self.differing.0.lock();
        let Some(inspected) = inspected else {
            if met.dirs.remove(&node.ino) && met.example.as_ref().is_some_and(|(ino, _)| *ino == node.ino) {
                met.example = None;
            }
            return;
        };
        met.dirs.insert(node.ino);
        if met.example.as_ref().is_none_or(|(ino, _)| *ino == node.ino) {
            let copies: Vec<String> = inspected.iter().map(InspectedCopy::described).collect();
            let path = String::from_utf8_lossy(&node.path()).into_owned();
            let by_acl =
                inspected.first().is_some_and(|first| inspected.iter().all(|it| it.differs_by_acl_only(first)));
            let what = if by_acl { "; the ACLs differ" } else { "" };
            met.example = Some((node.ino, format!("{path}: {}{what}", copies.join(", "))));
        }
        if met.dirs.len() >= met.reported.saturating_mul(10).max(1) {
            met.reported = met.dirs.len();
            if let Some(warning) = self.warning_of(&met) {
                tracing::warn!("{}", advised(&warning));
            }
        }
    }

    /// A directory is gone.
    pub(crate) fn forget_differing(&self, node: &Arc<Node>) {
        self.note_differing(node, None);
    }

    pub(crate) fn differing_warning(&self) -> Option<Warning> {
        self.warning_of(&self.differing.0.lock())
    }

    fn warning_of(&self, met: &DifferingDirs) -> Option<Warning> {
        (!met.dirs.is_empty()).then(|| Warning::DirectoriesDiffer {
            mount: self.context.spec.mount.clone(),
            directories: met.dirs.len(),
            example: met.example.as_ref().map(|(_, text)| text.clone()),
            rule: self.context.settings().directories,
        })
    }

    /// The copy whose other attributes users see, besides owner, mode and ACLs.
    pub(crate) fn shown_copy(&self, node: &Arc<Node>, dir: &Dir) -> OpResult<DirAt> {
        let copies = self.copies(node)?;
        let model: Option<BranchId> = dir.state.read().divergence.as_ref().and_then(|divergence| divergence.model);
        let model = copies.iter().find(|copy| model == Some(copy.id()));
        let chosen = model.or_else(|| copies.iter().find(|copy| keeps_all(copy))).or(copies.first());
        chosen.cloned().ok_or(OpError::Offline)
    }

    /// The value of an ACL that users see of a directory whose copies differ; `None`: ask [`Tree::shown_copy`].
    pub(crate) fn shown_acl(&self, node: &Arc<Node>, name: &OsStr) -> OpResult<Option<Vec<u8>>> {
        let Some(dir) = node.dir().filter(|_| name == ACCESS || name == DEFAULT) else { return Ok(None) };
        self.refresh(node, dir)?;
        let state = dir.state.read();
        let Some(divergence) = &state.divergence else { return Ok(None) };
        let ShownRights { rights, .. } = &divergence.shown;
        let value = if name == ACCESS { &rights.access } else { &rights.default };
        value.clone().map(Some).ok_or(OpError::Sys(Errno::NODATA))
    }
}

/// How a copy of a directory differs from what it was when it was compared.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum CopyChange {
    Nothing,
    /// Entries were made or removed. An ACL may have been changed before.
    Entries,
    Attributes,
}

impl Comparison {
    fn change(&self, branch: BranchId, meta: &Meta) -> CopyChange {
        match self.copies.iter().find(|copy| copy.branch == branch && copy.seen == mode_and_owner(meta)) {
            Some(copy) if copy.ctime == meta.ctime => CopyChange::Nothing,
            // A change of entries sets both times.
            Some(_) if meta.ctime == meta.mtime && self.at.elapsed() < COMPARE_PAUSE => CopyChange::Nothing,
            Some(_) if meta.ctime == meta.mtime => CopyChange::Entries,
            _ => CopyChange::Attributes,
        }
    }
}

/// Copies that a change could not be carried over to, and whether any was changed.
#[derive(Default)]
struct LaggingCopies {
    branches: SmallVec<[BranchId; 2]>,
    changed: bool,
}

/// Whether a list names a copy. Of the root there is one on each branch, whatever its inode.
fn names(node: &Arc<Node>, list: &[CopyId], copy: CopyId) -> bool {
    list.iter().any(|named| named.branch == copy.branch && (node.id == NodeId::ROOT || named.ino == copy.ino))
}

/// Looks again at copies that were changed.
fn reread(inspected: &mut [InspectedCopy], changed: &[CopyId]) {
    for seen in inspected.iter_mut().filter(|seen| changed.contains(&seen.id())) {
        if let Ok(now) = InspectedCopy::of(seen.at.clone()) {
            *seen = now;
        }
    }
}
