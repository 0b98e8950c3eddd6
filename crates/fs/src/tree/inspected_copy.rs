//! One copy of a directory: its owner, mode, ACLs and other attributes, and what is noted on it of changes.

use std::ffi::{OsStr, OsString};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::io::Errno;

use crate::error::OpResult;
use crate::ground::at::DirAt;
use crate::ground::fd_path::proc_path;
use crate::ground::kernel_cache::KernelCache;
use crate::ground::meta::Meta;
use crate::node::ModeAndOwner;
use crate::relocate;
use crate::relocate::{Attributes, ChangeNote, ChangedAt, CopyId, DirAttributes, FoundAttributes, Mark};
use crate::rights::{ACCESS, DEFAULT, Rights, SET_GID, ShownRights};

/// One copy of a directory, as it was found.
pub(crate) struct InspectedCopy {
    pub(crate) at: DirAt,
    pub(crate) meta: Meta,
    pub(crate) attributes: Attributes,
    pub(crate) mark: Option<Mark>,
    pub(crate) note: ChangeNote,
}

impl InspectedCopy {
    pub(crate) fn of(at: DirAt) -> OpResult<InspectedCopy> {
        let meta = at.stat_self()?;
        let dir = Arc::clone(&at.fd);
        let found = guarded(&at, move || relocate::dir_attributes(dir.as_fd()))?;
        let FoundAttributes { attributes, mark, plain_mark, note } = found;
        // Any user who may write to the directory may set this one, so it counts only where there is no other.
        let mark = mark.or((plain_mark && at.online.guarded).then_some(Mark::Behind));
        Ok(InspectedCopy { at, meta, attributes, mark, note })
    }

    pub(crate) fn id(&self) -> CopyId {
        CopyId { branch: self.at.online.uuid.to_u128_le(), ino: self.meta.ino }
    }

    /// Whether changes of mode and owner come to it.
    pub(crate) fn can_follow(&self) -> bool {
        self.at.online.abilities.ownership && !self.at.branch.settings().read_only
    }

    pub(crate) fn rights(&self) -> Rights {
        let acl = |name: &str| {
            let found = self.attributes.iter().find(|(known, _)| known == name);
            found.map(|(_, value)| value.clone())
        };
        let Meta { perm, uid, gid, .. } = self.meta;
        Rights { perm: perm & 0o7777, uid, gid, access: acl(ACCESS), default: acl(DEFAULT) }
    }

    /// Whether it has these, as far as its branch can tell.
    pub(crate) fn has(&self, wanted: &Rights) -> bool {
        let own = self.rights();
        let acls = !self.at.online.abilities.acl || (&own.access, &own.default) == (&wanted.access, &wanted.default);
        acls && (own.perm, own.uid, own.gid) == (wanted.perm, wanted.uid, wanted.gid)
    }

    /// Whether this copy may lack a change that the other has: the pool had not met it then.
    pub(crate) fn may_lack(&self, other: &InspectedCopy) -> bool {
        self.note.at < other.note.at && other.note.lagging.contains(&CopyId::unmet(self.id().branch))
    }

    /// Whether new entries in this copy inherit the same rights as those of a directory with the rights `wanted`.
    pub(crate) fn inherits_as(&self, wanted: &ShownRights) -> bool {
        let (own, abilities) = (self.rights(), &self.at.online.abilities);
        let ShownRights { rights: wanted, umask_counts } = wanted;
        let group = own.perm & SET_GID == wanted.perm & SET_GID && (own.perm & SET_GID == 0 || own.gid == wanted.gid);
        !abilities.ownership || group && !umask_counts && (!abilities.acl || own.default == wanted.default)
    }

    /// The attributes of a directory with these rights, and else with those of `like`.
    pub(crate) fn with_rights(wanted: &Rights, like: &InspectedCopy, changed: ChangedAt) -> DirAttributes {
        let mut attributes: Attributes =
            like.attributes.iter().filter(|(name, _)| name != ACCESS && name != DEFAULT).cloned().collect();
        for (name, acl) in [(ACCESS, &wanted.access), (DEFAULT, &wanted.default)] {
            attributes.extend(acl.iter().map(|value| (OsString::from(name), value.clone())));
        }
        attributes.sort();
        let Rights { perm, uid, gid, .. } = *wanted;
        DirAttributes { perm, uid, gid, attributes: Some(attributes), changed }
    }

    /// Sets these attributes. Returns false if some of them could not be set.
    pub(crate) fn apply_attributes(&self, wanted: DirAttributes, _: KernelCache) -> bool {
        if !self.can_follow() {
            return false;
        }
        let (dir, abilities) = (Arc::clone(&self.at.fd), self.at.online.abilities);
        let done = guarded(&self.at, move || {
            relocate::apply_dir_attributes(dir.as_fd(), &wanted, &abilities).map_err(|error| error.errno())
        });
        let branch = &self.at.branch.spec.name;
        let path = || std::fs::read_link(proc_path(self.at.fd.as_fd())).unwrap_or_default();
        match done {
            Ok(lost) if lost.is_empty() => return true,
            Ok(lost) => {
                tracing::warn!(%branch, path = ?path(), ?lost, "cannot keep a directory's owner, mode and ACLs in full here");
            }
            Err(error) => {
                tracing::warn!(%branch, path = ?path(), %error, "cannot set owner, mode or ACLs of a directory here");
            }
        }
        false
    }

    fn has_acl(&self) -> bool {
        self.attributes.iter().any(|(name, _)| name == ACCESS || name == DEFAULT)
    }

    /// Whether both have ACLs, and [`InspectedCopy::described`] tells them apart by nothing.
    pub(crate) fn differs_by_acl_only(&self, other: &InspectedCopy) -> bool {
        self.has_acl() && other.has_acl() && mode_and_owner(&self.meta) == mode_and_owner(&other.meta)
    }

    /// Notes that it has the change of this time, as it is. Returns false if that could not be noted.
    pub(crate) fn note_carried_over(&self, at: ChangedAt) -> bool {
        let (dir, note) = (Arc::clone(&self.at.fd), ChangeNote { at, lagging: self.note.lagging.clone() });
        self.can_follow() && guarded(&self.at, move || relocate::note_change(dir.as_fd(), &note)).is_ok()
    }

    pub(crate) fn described(&self) -> String {
        let acl = if self.has_acl() { " with an ACL" } else { "" };
        let Meta { perm, uid, gid, .. } = self.meta;
        format!("{} {:04o} of {uid}:{gid}{acl}", self.at.branch.spec.name, perm & 0o7777)
    }
}

pub(crate) fn mode_and_owner(meta: &Meta) -> ModeAndOwner {
    (meta.perm & 0o7777, meta.uid, meta.gid)
}

pub(crate) fn keeps_all(at: &DirAt) -> bool {
    at.online.abilities.acl && at.online.abilities.xattr
}

/// Whether a branch's root holds nothing of its users. One that cannot be read holds something.
pub(crate) fn is_empty_root(root: &DirAt) -> bool {
    let own = |name: &OsStr| name == crate::branch::HIDDEN_DIR || name == "lost+found";
    root.list(true).is_ok_and(|entries| entries.iter().all(|entry| own(&entry.name)))
}

/// Calls that may hang run on the branch's own workers.
pub(crate) fn guarded<T: Send + 'static>(
    at: &DirAt,
    call: impl FnOnce() -> Result<T, Errno> + Send + 'static,
) -> OpResult<T> {
    Ok(if at.online.guarded { at.branch.io(move |_| call())? } else { call()? })
}

/// Notes on copies that they change, as later than whatever is noted on them, and which ones lack the change. Copies
/// that lack an earlier change still lack it. Fails where no copy has room for the note.
pub(crate) fn note_change(copies: &[DirAt], lagging: &[CopyId]) -> OpResult<()> {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now = u64::try_from(since_1970.as_nanos()).unwrap_or(u64::MAX);
    let noted: Vec<ChangeNote> = copies
        .iter()
        .filter_map(|copy| {
            let dir = Arc::clone(&copy.fd);
            guarded(copy, move || Ok(ChangeNote::of(dir.as_fd()))).ok()
        })
        .collect();
    let latest = noted.iter().map(|note| note.at).max();
    let at = ChangedAt(latest.map_or(now, |ChangedAt(noted)| now.max(noted.saturating_add(1))));
    let gets_it = |lacks: &&CopyId| copies.iter().any(|copy| copy.online.uuid.to_u128_le() == lacks.branch);
    let mut lacking: Vec<CopyId> =
        noted.iter().flat_map(|note| &note.lagging).filter(|lacks| !gets_it(lacks)).copied().collect();
    lacking.extend(lagging);
    lacking.sort_unstable();
    lacking.dedup();
    let (mut any, mut full) = (false, None);
    for copy in copies.iter().filter(|copy| !copy.branch.settings().read_only) {
        let (dir, note) = (Arc::clone(&copy.fd), ChangeNote { at, lagging: lacking.clone() });
        match guarded(copy, move || relocate::note_change(dir.as_fd(), &note)) {
            Ok(()) => any = true,
            Err(error) if error.is_full() => full = Some(error),
            // Where copies differ later, what all of them allow is shown.
            Err(error) => {
                tracing::debug!(branch = %copy.branch.spec.name, %error, "cannot note a directory's change");
            }
        }
    }
    full.filter(|_| !any).map_or(Ok(()), Err)
}
