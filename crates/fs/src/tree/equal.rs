//! What is shown of a directory whose copies differ, and changes that copies still lack.
//!
//! The pool never changes a disk that it was only asked to show. So copies of a directory that differ in owner, mode or ACL stay as they are, and what counts is
//! decided in what is shown, which the kernel enforces ([`crate::rights`]). Only a change that was asked for is carried on: one that a copy missed while its branch was
//! away, or could not follow (the others have a note of it that names the copy), and one that a kill interrupted (the copies have a mark that says all of it).
//!
//! Compared are all copies before the first use of the directory, and again before its first use after a branch came or went
//! ([`Tree::compare_once`]); beyond that, a look that finds modes or owners other than then has them compared.
//!
//! Which copies count: those on branches that are online, but
//! - no staging copy;
//! - of roots none that holds nothing of its own, so that a fresh disk closes no pool; of only such ones, the first;
//! - none on a branch that keeps no owners and modes, if another's does;
//! - none that a change could not be carried over to;
//! - none on a branch without ACLs that agrees with the others in all else.

use std::ffi::OsStr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;
use rustc_hash::FxHashSet;
use rustix::io::Errno;
use smallvec::SmallVec;
use umbrella_units::{BranchId, Ino};

use crate::at::DirAt;
use crate::error::{OpError, OpResult};
use crate::kernel_cache::KernelCache;
use crate::node::{Dir, Divergence, Look, Node, NodeId, inode_key};
use crate::relocate;
use crate::relocate::{ChangedAt, CopyId, Intention, Mark};
use crate::rights::{ACCESS, DEFAULT, Rights, Shown, shown};
use crate::spec::DirectoryRule;
use crate::tree::Tree;
use crate::tree::face::{Face, guarded, is_empty_root, keeps_all, look, note_change};
use crate::tree::lookup::Found;

/// [`Dir::alike`] while the copies are compared: no topology.
const COMPARING: u64 = u64::MAX;

/// Directories that were met whose copies differ.
#[derive(Default)]
pub(crate) struct Differing(Mutex<Met>);

#[derive(Default)]
struct Met {
    dirs: FxHashSet<Ino>,
    example: Option<(Ino, String)>,
    /// How many there were when the log told of them last.
    told: usize,
}

impl Tree {
    /// Looks whether the copies of a directory that was just found are what they were when they were compared. Whether something changed since.
    pub(crate) fn recheck_found(&self, node: &Arc<Node>, dir: &Dir, found: &Found) -> OpResult<bool> {
        let looks: SmallVec<[(BranchId, Look); 2]> = found.at.iter().map(|(at, meta)| (at.id(), look(meta))).collect();
        self.recheck(node, dir, &looks)
    }

    /// As [`Tree::recheck_found`], by branch.
    pub(crate) fn recheck(&self, node: &Arc<Node>, dir: &Dir, looks: &[(BranchId, Look)]) -> OpResult<bool> {
        let topology = self.branches.topology.load(Ordering::Acquire);
        if dir.alike.load(Ordering::Acquire) != topology {
            return self.compare_once(node, dir, topology);
        }
        let as_compared = match &dir.state.read().divergence {
            None => looks.iter().all(|(_, look)| looks.first().is_some_and(|(_, first)| first == look)),
            Some(divergence) => looks.iter().all(|look| divergence.left.contains(look)),
        };
        if as_compared {
            return Ok(false);
        }
        let _attributes = dir.attributes.lock();
        self.compare(node, dir)
    }

    /// Compares the copies of a directory, unless it was done since branches came or went. Whether anything changed.
    pub(crate) fn compare_once(&self, node: &Arc<Node>, dir: &Dir, topology: u64) -> OpResult<bool> {
        let _attributes = dir.attributes.lock();
        if dir.alike.load(Ordering::Acquire) == topology {
            return Ok(false);
        }
        // Whoever adds a copy meanwhile, or leaves one out, puts 0 there: then the next look compares again.
        dir.alike.store(COMPARING, Ordering::Release);
        let changed = self.compare(node, dir).inspect_err(|_| dir.alike.store(0, Ordering::Release))?;
        let _unless_changed = dir.alike.compare_exchange(COMPARING, topology, Ordering::AcqRel, Ordering::Acquire);
        Ok(changed)
    }

    /// The caller holds the lock on the directory's attributes. Fails where the attributes of a copy that was opened cannot be read: what it denies is not known.
    pub(crate) fn compare(&self, node: &Arc<Node>, dir: &Dir) -> OpResult<bool> {
        let forget = |changed: &OpResult<bool>| {
            if !matches!(changed, Ok(false)) {
                self.context.forget_attributes(node.id);
            }
        };
        KernelCache::dropping(|cache| self.compare_copies(node, dir, cache), forget)
    }

    fn compare_copies(&self, node: &Arc<Node>, dir: &Dir, cache: KernelCache) -> OpResult<bool> {
        let mut faces = self.faces(node, dir)?;
        let (divergence, changed, differ) = if faces.len() < 2 {
            (None, false, false)
        } else {
            let late = self.carry_over(node, &mut faces, cache);
            let counted = self.counted(node, &faces, &late);
            let shown = self.rule(&counted);
            let differ = !counted.iter().all(|face| face.has(&shown.rights));
            (self.divergence(node, &faces, &counted, shown), late.changed, differ)
        };
        self.note_differing(node, differ.then_some(&*faces));
        let before = std::mem::replace(&mut dir.state.write().divergence, divergence.clone());
        Ok(changed
            || before.map(|divergence| divergence.shown.clone())
                != divergence.map(|divergence| divergence.shown.clone()))
    }

    /// What is remembered of copies that do not all have what is shown.
    fn divergence(&self, node: &Arc<Node>, faces: &[Face], counted: &[&Face], shown: Shown) -> Option<Arc<Divergence>> {
        let follows = |face: &&Face| {
            let wanted = || Face::wearing(&shown.rights, face, ChangedAt::default());
            // Memory is no disk of the user's.
            face.has(&shown.rights)
                || self.branches.is_staging(face.at.id()) && face.become_like(wanted(), KernelCache::SAME_SHOWN)
        };
        let (alike, others): (Vec<&Face>, Vec<&Face>) = faces.iter().partition(follows);
        if others.is_empty() && !shown.umask_counts {
            return None;
        }
        let now = |face: &Face| {
            if self.branches.is_staging(face.at.id()) { face.at.stat_self().unwrap_or(face.meta) } else { face.meta }
        };
        let model = counted.iter().find(|face| keeps_all(&face.at)).or(counted.first());
        let passes_on = faces.iter().filter(|face| face.passes_on(&shown));
        let staged = alike
            .iter()
            .filter(|face| self.branches.is_staging(face.at.id()) && !shown.umask_counts)
            .map(|face| face.at.id());
        let empty = others.iter().filter(|face| node.id == NodeId::ROOT && is_empty_root(&face.at));
        Some(Arc::new(Divergence {
            model: model.map(|face| face.at.id()),
            left: faces.iter().map(|face| (face.at.id(), look(&now(face)))).collect(),
            passes_on: passes_on.map(|face| face.at.id()).chain(staged).collect(),
            empty: empty.map(|face| face.at.id()).collect(),
            shown,
        }))
    }

    /// All copies that can be reached now. One that can be reached and not read is an error.
    pub(crate) fn faces(&self, node: &Arc<Node>, dir: &Dir) -> OpResult<SmallVec<[Face; 2]>> {
        let copies = dir.state.read().copies.clone();
        let mut faces = SmallVec::new();
        for copy in copies.iter().filter(|_| copies.len() > 1) {
            let reached = self.dir_at(node, copy.branch).and_then(|at| at.stat_self().map(|_| at));
            match reached {
                Ok(at) => faces.push(Face::of(at)?),
                Err(OpError::Offline | OpError::Sys(Errno::NOENT | Errno::NOTDIR | Errno::LOOP)) => {}
                Err(error) if error.is_own_want() || self.context.is_strict() => return Err(error),
                // Nothing on it can be reached either. What it denies holds again once it can be read.
                Err(error) => {
                    dir.alike.store(0, Ordering::Release);
                    let branch = self.placement.branch_name(copy.branch);
                    tracing::warn!(%branch, %error, "a directory's copy cannot be read; it is left out");
                }
            }
        }
        Ok(faces)
    }

    /// Gives copies the changes that they lack; see the module.
    fn carry_over(&self, node: &Arc<Node>, faces: &mut [Face], cache: KernelCache) -> Late {
        let mut late = self.finish_interrupted(node, faces, cache);
        let sound = |face: &&Face| face.mark.is_none() && face.at.online.abilities.ownership;
        let newest = faces.iter().filter(sound).map(|face| face.note.at).max().unwrap_or_default();
        let models: Vec<&Face> = faces.iter().filter(sound).filter(|face| face.note.at == newest).collect();
        let models = if models.is_empty() { faces.iter().collect() } else { models };
        let is_owed = |face: &Face| {
            let lacks = face.mark.is_none() && face.note.at < newest && self.is_owed(node, face, &models);
            (face.mark.is_some() || lacks) && face.at.online.abilities.ownership
        };
        let owed: Vec<bool> = faces.iter().map(is_owed).collect();
        if !owed.contains(&true) {
            return late;
        }
        let wanted = self.rule(&models).rights;
        let keeper = models.iter().find(|face| keeps_all(&face.at) && face.mark.is_none());
        let mut carried = Vec::new();
        for (face, _) in faces.iter().zip(&owed).filter(|(_, owed)| **owed) {
            let wanted = Face::wearing(&wanted, keeper.unwrap_or(&face), newest);
            let is_so = face.mark.is_none() && look(&face.meta) == (wanted.perm, wanted.uid, wanted.gid) && {
                let abilities = &face.at.online.abilities;
                let all = wanted.attributes.as_deref().unwrap_or_default();
                relocate::kept_of(all, abilities) == relocate::kept_of(&face.attributes, abilities)
            };
            if is_so {
                continue;
            }
            if face.become_like(wanted, cache) {
                carried.push(face.id());
            } else {
                late.branches.push(face.at.id());
            }
        }
        self.owe_no_more(node, &models, &carried);
        late.changed |= !carried.is_empty();
        reread(faces, &carried);
        late
    }

    /// Finishes a change that a kill interrupted.
    fn finish_interrupted(&self, node: &Arc<Node>, faces: &mut [Face], cache: KernelCache) -> Late {
        let mut late = Late::default();
        let begun = faces.iter().find_map(|face| match &face.mark {
            Some(Mark::Changing(intention)) => Some(intention.clone()),
            _ => None,
        });
        let Some(Intention { rights, copies }) = begun else { return late };
        // All copies are marked before the first is changed, and each loses its mark with the change: one that has none had the whole change, and perhaps
        // later ones, or none of it. The marked ones get what it has.
        let is_settled = |face: &Face| {
            face.mark.is_none() && face.at.online.abilities.ownership && !self.branches.is_staging(face.at.id())
        };
        if faces.iter().any(|face| is_settled(face) && names(node, &copies, face.id())) {
            return late;
        }
        let is_one = |face: &Face| matches!(face.mark, Some(Mark::Changing(_))) || names(node, &copies, face.id());
        // Who is away now did not get it, or not all of it.
        let away: Vec<CopyId> = {
            let is_here = |copy: &CopyId| faces.iter().any(|face| names(node, &[*copy], face.id()));
            copies.iter().filter(|copy| !is_here(copy)).copied().collect()
        };
        let (ours, others): (Vec<&Face>, Vec<&Face>) = faces.iter().partition(|face| is_one(face));
        if !away.is_empty() {
            let dirs: Vec<DirAt> = ours.iter().map(|face| face.at.clone()).collect();
            let _not_noted = note_change(&dirs, &away);
        }
        let mut done = Vec::new();
        for face in ours {
            if face.become_like(Face::wearing(&rights, face, ChangedAt::default()), cache) {
                done.push(face.id());
            } else if face.at.online.abilities.ownership {
                late.branches.push(face.at.id());
            }
        }
        tracing::info!(dir = %String::from_utf8_lossy(&node.path()), others = others.len(), "finished the change of a directory that the last run left half done");
        late.changed = !done.is_empty();
        reread(faces, &done);
        late
    }

    /// Whether a copy lacks the change that is noted on the `models`: they name it, or the pool made it (such copies have the number of their original).
    fn is_owed(&self, node: &Arc<Node>, face: &Face, models: &[&Face]) -> bool {
        let number = |face: &Face| self.inodes.ino_checked(inode_key(&face.at.online, &face.meta), face.meta.btime);
        models.iter().any(|model| {
            names(node, &model.note.owed, face.id()) || node.id != NodeId::ROOT && number(model) == number(face)
        })
    }

    /// Who got a change is not named any more: another directory may get that inode.
    fn owe_no_more(&self, node: &Arc<Node>, models: &[&Face], carried: &[CopyId]) {
        let named = |owed: &CopyId| carried.iter().any(|copy| names(node, &[*owed], *copy));
        for face in models.iter().filter(|face| face.note.owed.iter().any(named)) {
            let mut note = face.note.clone();
            note.owed.retain(|owed| !named(owed));
            let dir = Arc::clone(&face.at.fd);
            let _stays_named = guarded(&face.at, move || relocate::note_change(dir.as_fd(), &note));
        }
    }

    /// The copies that count.
    fn counted<'f>(&self, node: &Arc<Node>, faces: &'f [Face], late: &Late) -> Vec<&'f Face> {
        let mut counted: Vec<&Face> = faces.iter().collect();
        let mut keep = |counts: &dyn Fn(&Face) -> bool| {
            let some: Vec<&Face> = counted.iter().copied().filter(|face| counts(face)).collect();
            let any = !some.is_empty();
            if any {
                counted = some;
            }
            any
        };
        keep(&|face| !self.branches.is_staging(face.at.id()));
        keep(&|face| face.at.online.abilities.ownership);
        keep(&|face| !late.branches.contains(&face.at.id()));
        let alike = faces.iter().all(|face| faces.first().is_some_and(|first| face.has(&first.rights())));
        if node.id == NodeId::ROOT && !alike && !keep(&|face| !is_empty_root(&face.at)) {
            counted.truncate(1);
        }
        counted
    }

    /// What is shown of these copies.
    fn rule(&self, counted: &[&Face]) -> Shown {
        let rights = |faces: &[&Face]| faces.iter().map(|face| face.rights()).collect::<Vec<Rights>>();
        if self.context.spec.directories == DirectoryRule::First {
            return shown(&rights(counted.get(..1).unwrap_or_default()));
        }
        let (mut full, without_acls): (Vec<&Face>, Vec<&Face>) =
            counted.iter().copied().partition(|face| face.at.online.abilities.acl);
        if full.is_empty() {
            return shown(&rights(counted));
        }
        let of_full = shown(&rights(&full));
        full.extend(without_acls.into_iter().filter(|face| !face.has(&of_full.rights)));
        shown(&rights(&full))
    }

    /// Counts a directory whose copies differ, or that it is none any more; the first is told in the log.
    fn note_differing(&self, node: &Arc<Node>, faces: Option<&[Face]>) {
        let mut met = self.differing.0.lock();
        let Some(faces) = faces else {
            if met.dirs.remove(&node.ino) && met.example.as_ref().is_some_and(|(ino, _)| *ino == node.ino) {
                met.example = None;
            }
            return;
        };
        met.dirs.insert(node.ino);
        if met.example.as_ref().is_none_or(|(ino, _)| *ino == node.ino) {
            let copies: Vec<String> = faces.iter().map(Face::described).collect();
            let path = String::from_utf8_lossy(&node.path()).into_owned();
            met.example = Some((node.ino, format!("{path}: {}", copies.join(", "))));
        }
        if met.dirs.len() >= met.told.saturating_mul(10).max(1) {
            met.told = met.dirs.len();
            tracing::warn!("{}", self.differing_text(&met).unwrap_or_default());
        }
    }

    /// A directory is gone.
    pub(crate) fn forget_differing(&self, node: &Arc<Node>) {
        self.note_differing(node, None);
    }

    pub(crate) fn differing_warning(&self) -> Option<String> {
        self.differing_text(&self.differing.0.lock())
    }

    fn differing_text(&self, met: &Met) -> Option<String> {
        let have = match met.dirs.len() {
            0 => return None,
            1 => "1 directory has different owners, modes or ACLs on its branches".to_owned(),
            count => format!("{count} directories have different owners, modes or ACLs on their branches"),
        };
        let example = met.example.as_ref().map_or_else(String::new, |(_, text)| format!("; example: {text}"));
        let shown = match self.context.spec.directories {
            DirectoryRule::Safe => "what all copies allow",
            DirectoryRule::First => "the copy on the first branch",
        };
        let mount = self.context.spec.mount.display();
        Some(format!(
            "{have} (seen since the mount{example}). The pool shows {shown} and changes no disk. To list them: `umbrella repair --equalise {mount} --dry-run`. To make the copies equal: the same without --dry-run; `--like BRANCH` makes them as on that branch"
        ))
    }

    /// The copy whose attributes users see, besides what is shown of owner, mode and ACLs.
    pub(crate) fn ruling_copy(&self, node: &Arc<Node>, dir: &Dir) -> OpResult<DirAt> {
        let copies = self.copies(node)?;
        let model: Option<BranchId> = dir.state.read().divergence.as_ref().and_then(|divergence| divergence.model);
        let model = copies.iter().find(|copy| model == Some(copy.id()));
        let chosen = model.or_else(|| copies.iter().find(|copy| keeps_all(copy))).or(copies.first());
        chosen.cloned().ok_or(OpError::Offline)
    }

    /// The value of an ACL that is shown of a directory whose copies differ; `None`: ask [`Tree::ruling_copy`].
    pub(crate) fn shown_acl(&self, node: &Arc<Node>, name: &OsStr) -> OpResult<Option<Vec<u8>>> {
        let Some(dir) = node.dir().filter(|_| name == ACCESS || name == DEFAULT) else { return Ok(None) };
        self.refresh(node, dir)?;
        let state = dir.state.read();
        let Some(divergence) = &state.divergence else { return Ok(None) };
        let Shown { rights, .. } = &divergence.shown;
        let value = if name == ACCESS { &rights.access } else { &rights.default };
        value.clone().map(Some).ok_or(OpError::Sys(Errno::NODATA))
    }
}

/// Copies that a change could not be carried over to, and whether any was changed.
#[derive(Default)]
struct Late {
    branches: SmallVec<[BranchId; 2]>,
    changed: bool,
}

/// Whether a list names a copy. Of the root there is one on each branch, whatever its inode.
fn names(node: &Arc<Node>, list: &[CopyId], copy: CopyId) -> bool {
    list.iter().any(|named| named.branch == copy.branch && (node.id == NodeId::ROOT || named.ino == copy.ino))
}

/// Looks again at copies that were changed.
fn reread(faces: &mut [Face], changed: &[CopyId]) {
    for face in faces.iter_mut().filter(|face| changed.contains(&face.id())) {
        if let Ok(now) = Face::of(face.at.clone()) {
            *face = now;
        }
    }
}
