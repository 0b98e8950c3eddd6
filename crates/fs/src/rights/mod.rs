//! The access rights of a directory: owner, group, mode and ACLs, as numbers. Pure.
//!
//! [`shown`] decides what users see and the kernel enforces where the copies of a directory differ.

mod acl;
mod shown;
#[cfg(test)]
mod tests;

pub(crate) use acl::{ACCESS, DEFAULT};
pub(crate) use shown::{ShownRights, shown};

use std::collections::BTreeMap;

use acl::{Acl, AclEntry, GROUP_OBJ, MASK, OTHER, USER_OBJ};

/// Set-group-id.
pub(crate) const SET_GID: u32 = 0o2000;

/// Owner, group, mode and ACLs of a directory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Rights {
    /// Permission bits, 07777.
    pub(crate) perm: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// The access ACL as its attribute; `None`: the mode says it all.
    pub(crate) access: Option<Vec<u8>>,
    /// The ACL that new entries get, as its attribute.
    pub(crate) default: Option<Vec<u8>>,
}

/// A change of [`Rights`] that a user asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RightsChange {
    /// chmod, chown.
    Mode { perm: Option<u32>, uid: Option<u32>, gid: Option<u32> },
    /// Set-group-id goes.
    DropSetGid,
    /// The access ACL, or none.
    Access(Option<Vec<u8>>),
    /// The default ACL, or none.
    Default(Option<Vec<u8>>),
}

impl Rights {
    /// What it grants. Linux does not look at an ACL when the mode gives its group class nothing.
    fn acl(&self) -> Acl {
        let entries = self.access.as_deref().filter(|_| self.perm & 0o070 != 0).and_then(acl::entries);
        entries.map_or_else(|| Acl::of_mode(self.perm), |entries| Acl::of_entries(&entries))
    }

    /// As it is after a change, by the rules of Linux.
    pub(crate) fn with(&self, change: &RightsChange) -> Rights {
        let mut rights = self.clone();
        match change {
            RightsChange::Mode { perm, uid, gid } => {
                (rights.uid, rights.gid) = (uid.unwrap_or(self.uid), gid.unwrap_or(self.gid));
                if let Some(perm) = perm {
                    rights.perm = perm & 0o7777;
                    rights.access = self.access.as_deref().and_then(acl::entries).map(|mut entries| {
                        set_mode(&mut entries, rights.perm);
                        acl::attribute(&entries)
                    });
                }
            }
            RightsChange::DropSetGid => rights.perm &= !SET_GID,
            RightsChange::Access(Some(value)) => {
                if let Some(entries) = acl::entries(value) {
                    rights.perm = self.perm & !0o777 | acl::mode_of(&entries);
                    rights.access = (!acl::is_minimal(&entries)).then(|| value.clone());
                }
            }
            RightsChange::Access(None) => rights.access = None,
            // An empty one is none.
            RightsChange::Default(value) => {
                rights.default = value.clone().filter(|value| acl::entries(value).is_some_and(|all| !all.is_empty()));
            }
        }
        rights
    }
}

/// What chmod does to an access ACL: the group's bits are the mask's, if it has one.
fn set_mode(entries: &mut [AclEntry], perm: u32) {
    let class = if entries.iter().any(|entry| entry.tag == MASK) { MASK } else { GROUP_OBJ };
    for entry in entries {
        let shift = match entry.tag {
            USER_OBJ => 6,
            OTHER => 0,
            tag if tag == class => 3,
            _ => continue,
        };
        entry.bits = (perm >> shift & 7) as u16;
    }
}

/// What a new entry of a directory gets: permission bits (0777), and its access ACL if the bits do not say it all.
pub(crate) fn inherited(shown: &ShownRights, perm: u32, umask: u32) -> (u32, Option<Vec<u8>>) {
    let masked = perm & 0o777 & !umask;
    let Some(mut entries) = shown.rights.default.as_deref().and_then(acl::entries) else { return (masked, None) };
    let asked = if shown.umask_counts { masked } else { perm & 0o777 };
    let class = if entries.iter().any(|entry| entry.tag == MASK) { MASK } else { GROUP_OBJ };
    for entry in &mut entries {
        let shift = match entry.tag {
            USER_OBJ => 6,
            OTHER => 0,
            tag if tag == class => 3,
            _ => continue,
        };
        entry.bits &= (asked >> shift & 7) as u16;
    }
    let is_open = |entry: &AclEntry| entry.tag == MASK && entry.bits != 0;
    if shown.umask_counts && class == MASK && perm & 0o070 != 0 && !entries.iter().any(is_open) {
        // Linux would not look at it, and take whom some copy shuts out for one of the others.
        for entry in entries.iter_mut().filter(|entry| !matches!(entry.tag, USER_OBJ | OTHER)) {
            entry.bits = if entry.tag == MASK { acl::READ } else { 0 };
        }
    }
    (acl::mode_of(&entries), (!acl::is_minimal(&entries)).then(|| acl::attribute(&entries)))
}

/// The permission bits of a new entry where its branch keeps no ACLs: those without the named users and groups.
pub(crate) fn mode_without_acl(perm: u32, access: Option<&[u8]>) -> u32 {
    let Some(entries) = access.and_then(acl::entries) else { return perm };
    acl::mode_of(&Acl { users: BTreeMap::new(), groups: BTreeMap::new(), ..Acl::of_entries(&entries) }.entries(0))
}
