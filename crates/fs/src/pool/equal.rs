//! Copies of a directory are equal in mode, owner, attributes and ACLs.
//!
//! Those that the pool made differ only when one was away while the others were changed: the one that was changed last decides, as is noted on it
//! ([`relocate::note_change`]). Where nothing is noted (somebody changed a copy on its branch; a crash came between two copies), and of those that others made,
//! any may have been closed for a reason: each gets what all of them allow. Where the owners differ the directory is root's, and status tells.
//!
//! Compared are all copies before the first use of the directory, and again before its first use after a branch came or went
//! ([`Pool::compare_once`]); beyond that, a lookup that finds modes or owners different has them compared. What the comparison cannot
//! make alike (a branch that is read-only, or cannot keep it) is remembered, with the copy that counts.
//!
//! Steps: 1. nobody else changes the directory's attributes (its lock); 2. of each copy time of change and attributes are read; 3. who is
//! right is chosen, never a copy that was left half changed (`relocate::level_dir`), nor, for ACLs, a branch that keeps none; 4. the
//! others are changed one by one; 5. what is left different is noted.

use std::ffi::OsString;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::io::Errno;
use smallvec::SmallVec;
use umbrella_units::BranchId;

use super::Pool;
use super::acl::{self, Acl};
use super::lookup::Found;
use crate::at::DirAt;
use crate::branch::Origin;
use crate::error::{OpError, OpResult};
use crate::meta::Meta;
use crate::node::{Dir, Look, Node, NodeId, Unlike};
use crate::relocate::{self, Attributes, ChangedAt, DirFace, FoundAttributes};

const STICKY: u32 = 0o1000;
const SET_ID: u32 = 0o6000;

/// One copy of a directory, as it was found.
struct Face {
    at: DirAt,
    meta: Meta,
    attributes: Attributes,
    /// Left half changed: no model for others.
    behind: bool,
    changed: ChangedAt,
}

impl Face {
    fn of(at: DirAt) -> OpResult<Face> {
        let meta = at.stat_self()?;
        let dir = Arc::clone(&at.fd);
        let FoundAttributes { attributes, behind, changed } =
            guarded(&at, move || relocate::dir_attributes(dir.as_fd()))?;
        Ok(Face { at, meta, attributes, behind, changed })
    }

    fn keeps_all(&self) -> bool {
        keeps_all(&self.at)
    }

    /// Whether changes of mode and owner come to it.
    fn can_follow(&self) -> bool {
        self.at.online.abilities.ownership && !self.at.branch.spec.read_only
    }

    fn acl(&self) -> Acl {
        let value = self.attributes.iter().find(|(name, _)| name == acl::ACCESS).map(|(_, value)| value);
        value.and_then(|value| Acl::parse(value)).unwrap_or_else(|| Acl::of_mode(self.meta.perm))
    }

    /// Whether it is what it should be, as far as its branch can tell.
    fn is(&self, wanted: &DirFace) -> bool {
        let abilities = &self.at.online.abilities;
        let attributes = wanted.attributes.as_ref().is_none_or(|wanted| {
            relocate::kept_of(wanted, abilities) == relocate::kept_of(&self.attributes, abilities)
        });
        !self.behind && attributes && look(&self.meta) == (wanted.perm, wanted.uid, wanted.gid)
    }

    /// Makes it so. False: it could not be done, or not all of it.
    fn become_like(&self, wanted: &DirFace) -> bool {
        let (dir, abilities, wanted) = (Arc::clone(&self.at.fd), self.at.online.abilities, wanted.clone());
        if self.at.branch.spec.read_only || !abilities.ownership {
            return false;
        }
        let done = guarded(&self.at, move || {
            relocate::level_dir(dir.as_fd(), &wanted, &abilities).map_err(|error| error.errno())
        });
        let branch = &self.at.branch.spec.name;
        match done {
            Ok(lost) if lost.is_empty() => true,
            Ok(lost) => {
                tracing::info!(%branch, ?lost, "a directory's copy could not be made like the others");
                false
            }
            Err(error) => {
                tracing::info!(%branch, %error, "a directory's copy could not be made like the others");
                false
            }
        }
    }
}

impl Pool {
    /// Makes the copies of a directory that was just found equal. Whether it is not any more what was found.
    pub(super) fn equalise(&self, node: &Arc<Node>, dir: &Dir, found: &Found) -> bool {
        let topology = self.topology.load(Ordering::Acquire);
        if dir.alike.load(Ordering::Acquire) != topology {
            return self.compare_once(node, dir, topology);
        }
        let mut looks = found.at.iter().map(|(at, meta)| (at.id(), look(meta)));
        let first = looks.next();
        if looks.clone().all(|(_, look)| first.is_some_and(|(_, first)| first == look)) {
            return false;
        }
        let accepted = |unlike: &Unlike| first.iter().copied().chain(looks.clone()).all(|it| unlike.left.contains(&it));
        if dir.state.read().unlike.as_deref().is_some_and(accepted) {
            return false;
        }
        let _attributes = dir.attributes.lock();
        self.compare(node, dir)
    }

    /// Compares the copies of a directory, unless it was done since branches came or went. Whether anything was changed.
    pub(super) fn compare_once(&self, node: &Arc<Node>, dir: &Dir, topology: u64) -> bool {
        let _attributes = dir.attributes.lock();
        if dir.alike.load(Ordering::Acquire) == topology {
            return false;
        }
        let changed = self.compare(node, dir);
        dir.alike.store(topology, Ordering::Release);
        changed
    }

    /// The caller holds the lock on the directory's attributes.
    fn compare(&self, node: &Arc<Node>, dir: &Dir) -> bool {
        let copies = dir.state.read().copies.clone();
        let mut faces: SmallVec<[Face; 2]> = SmallVec::new();
        let mut unlike = false;
        for copy in copies.iter().filter(|_| copies.len() > 1) {
            match self.dir_at(node, copy.branch).and_then(Face::of) {
                Ok(face) => faces.push(face),
                Err(OpError::Offline | OpError::Sys(Errno::NOENT | Errno::NOTDIR | Errno::LOOP)) => {}
                Err(error) => {
                    let branch = self.branch_name(copy.branch);
                    tracing::warn!(%branch, %error, "a directory's copy could not be compared with the others");
                    unlike = true;
                }
            }
        }
        if faces.is_empty() || faces.len() < 2 && !unlike {
            dir.state.write().unlike = None;
            return false;
        }
        let number =
            |face: &Face| self.inodes.ino_checked(Pool::inode_key(&face.at.online, &face.meta), face.meta.btime);
        // Copies that the pool made have the number of their original.
        let first = faces.first().map(number);
        let made_here = if node.id == NodeId::ROOT {
            !faces.iter().any(|face| face.at.online.origin == Origin::Stranger)
        } else {
            faces.iter().all(|face| Some(number(face)) == first)
        };
        let noted = made_here.then(|| newest(&faces)).flatten();
        let told = noted.is_some();
        let Some((ruling, wanted)) = noted.or_else(|| strictest(&faces, made_here)) else { return false };
        let mut changed = false;
        for (face, wanted) in faces.iter().zip(&wanted).filter(|(face, wanted)| !face.is(wanted)) {
            let done = face.become_like(wanted);
            (changed, unlike) = (changed || done, unlike || !done);
        }
        if changed && !told {
            self.warn_of_strangers(node, &faces);
        }
        let now = |face: &Face| if changed { face.at.stat_self().unwrap_or(face.meta) } else { face.meta };
        let left: SmallVec<[(BranchId, Look); 2]> = faces.iter().map(|face| (face.at.id(), look(&now(face)))).collect();
        let differ = left.iter().any(|(_, look)| left.first().is_some_and(|(_, first)| first != look));
        let noted = (unlike || differ).then(|| Box::new(Unlike { ruling: unlike.then_some(ruling), left }));
        dir.state.write().unlike = noted;
        changed || unlike
    }

    /// A branch that joins and holds nothing takes the root's mode, owner and attributes from those that were in the pool before, else from the first. The
    /// roots of the others are compared as other directories are, at the first use: what one that brings files has closed is not opened.
    pub(super) fn equalise_root(&self, at: &DirAt) {
        if at.online.origin != Origin::Empty {
            return;
        }
        let others = |root: &DirAt| root.id() != at.id() && root.online.origin != Origin::Empty;
        let mut roots: Vec<DirAt> = self.branches.load().iter().filter_map(|branch| DirAt::root(branch).ok()).collect();
        if roots.iter().any(others) {
            roots.retain(others);
        } else {
            roots.truncate(1);
        }
        let models: Vec<Face> = roots.into_iter().filter_map(|root| Face::of(root).ok()).collect();
        let model = newest(&models).or_else(|| strictest(&models, true));
        let (Some((_, wanted)), Ok(face)) = (model, Face::of(at.clone())) else { return };
        let Some(wanted) = wanted.first().filter(|wanted| !face.is(wanted)) else { return };
        if face.meta.perm & 0o777 != wanted.perm & 0o777 {
            let (name, as_is, to_be) = (&at.branch.spec.name, face.meta.perm & 0o7777, wanted.perm & 0o7777);
            self.warn(
                format!("mode of {name}"),
                format!("the directory of branch {name:?} had mode {as_is:04o}; it has {to_be:04o} now, as the root of the pool"),
            );
        }
        // What it cannot keep, others do.
        let _kept = face.become_like(wanted);
    }

    fn warn_of_strangers(&self, node: &Arc<Node>, faces: &[Face]) {
        let path = String::from_utf8_lossy(&node.path()).into_owned();
        let modes = faces.iter().map(|face| {
            let acl = if face.attributes.iter().any(|(name, _)| name == acl::ACCESS) { " and an ACL" } else { "" };
            let Meta { perm, uid, gid, .. } = face.meta;
            format!("{} {:04o} of {uid}:{gid}{acl}", face.at.branch.spec.name, perm & 0o7777)
        });
        let modes = modes.collect::<Vec<_>>().join(", ");
        self.warn(
            format!("modes {path}"),
            format!(
                "{path} was open to different people on its branches ({modes}); it allows what all of them did now, is root's if it had several owners, and chmod, chown and setfacl through the pool change it everywhere"
            ),
        );
    }

    /// The copy whose attributes users see.
    pub(super) fn ruling_copy(&self, node: &Arc<Node>, dir: &Dir) -> OpResult<DirAt> {
        let copies = self.copies(node)?;
        let ruling: Option<BranchId> = dir.state.read().unlike.as_ref().and_then(|unlike| unlike.ruling);
        let ruling = copies.iter().find(|copy| ruling == Some(copy.id()));
        let chosen = ruling.or_else(|| copies.iter().find(|copy| keeps_all(copy))).or(copies.first());
        chosen.cloned().ok_or(OpError::Offline)
    }
}

/// What every copy should be when the pool made them, and the one that says so: the one on which the latest change is noted. `None` where they differ
/// and nothing is noted.
fn newest(faces: &[Face]) -> Option<(BranchId, Vec<DirFace>)> {
    let sound = || faces.iter().filter(|face| !face.behind);
    let changed = sound().map(|face| face.changed).max()?;
    let latest = || sound().filter(|face| face.changed == changed);
    let model = latest().find(|face| face.at.online.abilities.ownership).or_else(|| latest().next())?;
    let keeper = latest().find(|face| face.keeps_all());
    let Meta { perm, uid, gid, .. } = model.meta;
    let attributes = keeper.map(|face| face.attributes.clone());
    let wanted = DirFace { perm: perm & 0o7777, uid, gid, attributes, changed };
    // Several copies with the same note, or with none, tell only where they agree.
    if !latest().filter(|face| face.can_follow()).all(|face| face.is(&wanted)) {
        return None;
    }
    Some((keeper.unwrap_or(model).at.id(), vec![wanted; faces.len()]))
}

/// What every copy should be when nobody says who is right: none allows anything that another does not. The one that says so keeps ACLs, if one does.
/// A copy that could not follow changes has no say where the pool made them (`made_here`).
fn strictest(faces: &[Face], made_here: bool) -> Option<(BranchId, Vec<DirFace>)> {
    let follows = |face: &&Face| face.can_follow() || !(made_here && faces.iter().any(Face::can_follow));
    let counts = |face: &&Face| face.at.online.abilities.ownership && follows(face);
    let any = faces.iter().any(|face| counts(&face));
    let counted = || faces.iter().filter(|face| !any || counts(face));
    let acls: Vec<Acl> = faces.iter().map(Face::acl).collect();
    let common = counted().map(Face::acl).reduce(|all, acl| all.and(&acl))?;
    let sticky = counted().fold(0, |any, face| any | face.meta.perm & STICKY);
    let set_id = counted().fold(SET_ID, |all, face| all & face.meta.perm);
    let changed = counted().map(|face| face.changed).max().unwrap_or_default();
    let the_same = |id: fn(&Meta) -> u32| {
        let mut ids = counted().map(|face| id(&face.meta));
        let first = ids.next();
        first.filter(|first| ids.all(|id| id == *first))
    };
    let (owner, group) = (the_same(|meta| meta.uid), the_same(|meta| meta.gid));
    let (uid, gid) = (owner.unwrap_or(0), group.unwrap_or(0));
    let wanted = faces.iter().zip(&acls).map(|(face, acl)| {
        let perm = face.meta.perm;
        let kept = sticky | if owner.is_some() && group.is_some() { set_id } else { 0 };
        if *acl == common {
            // Its own way to write it is as good.
            return DirFace { perm: perm & 0o777 | kept, uid, gid, attributes: None, changed };
        }
        let mut attributes = face.attributes.clone();
        attributes.retain(|(name, _)| name != acl::ACCESS);
        attributes.extend(common.attribute().map(|value| (OsString::from(acl::ACCESS), value)));
        attributes.sort();
        DirFace { perm: common.mode() | kept, uid, gid, attributes: Some(attributes), changed }
    });
    let writable = |face: &&Face| !face.at.branch.spec.read_only && face.at.online.abilities.ownership;
    let ruling = faces.iter().filter(|face| face.keeps_all()).find(writable).or_else(|| faces.iter().find(writable));
    Some((ruling.or(faces.first())?.at.id(), wanted.collect()))
}

/// Notes on copies that they change, as later than whatever is noted on them.
pub(super) fn note_change(copies: &[DirAt]) {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now = u64::try_from(since_1970.as_nanos()).unwrap_or(u64::MAX);
    let noted = copies.iter().filter_map(|copy| {
        let dir = Arc::clone(&copy.fd);
        guarded(copy, move || Ok(ChangedAt::of(dir.as_fd()))).ok()
    });
    let at = ChangedAt(noted.max().map_or(now, |ChangedAt(noted)| now.max(noted.saturating_add(1))));
    for copy in copies {
        let dir = Arc::clone(&copy.fd);
        if let Err(error) = guarded(copy, move || relocate::note_change(dir.as_fd(), at)) {
            // Where copies differ later, each then gets what all of them allow.
            tracing::debug!(branch = %copy.branch.spec.name, %error, "a directory's change cannot be noted");
        }
    }
}

fn look(meta: &Meta) -> Look {
    (meta.perm & 0o7777, meta.uid, meta.gid)
}

fn keeps_all(at: &DirAt) -> bool {
    at.online.abilities.acl && at.online.abilities.xattr
}

/// Calls that may hang run on the branch's own workers.
fn guarded<T: Send + 'static>(at: &DirAt, call: impl FnOnce() -> Result<T, Errno> + Send + 'static) -> OpResult<T> {
    Ok(if at.online.guarded { at.branch.io(move |_| call())? } else { call()? })
}
