//! The rights that users see of a directory whose copies differ: through the pool no user gets what any copy denies.
//!
//! With *o*, *g*, *t* the owner's, the group's and the others' bits that all copies have in common:
//!
//! - The owner is the common one, else root, with *o*.
//! - The group is the common one, else root, with *g*. Where owners differ, a member of the group may own a copy:
//!   limited to *o* too. Where groups differ, a member may be one of the others somewhere: limited to *t* too.
//! - Others get *t*, limited to *o* where owners differ and to *g* where groups differ.
//! - A user or group that the ACL of any copy names is named in the result. Where a copy does not name a user, the
//!   user's groups there are unknown. So the user gets there only what all of its groups and its others have. A named
//!   user who owns another copy is limited to that owner's bits there.
//! - A set-id bit stays where all copies have it and agree on the id. The directory is sticky if any copy is.
//! - New entries get the default ACL that all copies have in common, with nothing for users and groups that only some
//!   name. Where some copies have none, the umask counts too.
//!
//! Root is not restricted by any of it.

use std::collections::BTreeSet;

use super::acl::{self, ALL, Acl};
use super::{Rights, SET_GID};

const STICKY: u32 = 0o1000;
const SET_UID: u32 = 0o4000;

/// What users see of a directory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ShownRights {
    pub(crate) rights: Rights,
    /// The umask is taken from new entries although there is a default ACL: some copy has none.
    pub(crate) umask_counts: bool,
}

/// The rights that users see of a directory with these copies; of one copy, the copy itself.
pub(crate) fn shown(copies: &[Rights]) -> ShownRights {
    let Some(first) = copies.first() else { return ShownRights::default() };
    let (default, umask_counts) = default_acl(copies);
    let access = |copy: &Rights| (copy.perm, copy.uid, copy.gid, copy.access.clone());
    if copies.iter().all(|copy| access(copy) == access(first)) {
        return ShownRights { rights: Rights { default, ..first.clone() }, umask_counts };
    }
    let acls: Vec<Acl> = copies.iter().map(Rights::acl).collect();
    let the_same = |id: fn(&Rights) -> u32| copies.iter().all(|copy| id(copy) == id(first)).then(|| id(first));
    let (owner, group) = (the_same(|copy| copy.uid), the_same(|copy| copy.gid));
    let all = common(copies, &acls, owner.is_some(), group.is_some());
    let mut perm = copies.iter().fold(0, |any, copy| any | copy.perm & STICKY);
    for (bit, agreed) in [(SET_UID, owner), (SET_GID, group)] {
        if agreed.is_some() && copies.iter().all(|copy| copy.perm & bit != 0) {
            perm |= bit;
        }
    }
    let entries = all.entries(all.mask());
    let access = (!all.is_minimal()).then(|| acl::attribute(&entries));
    perm |= acl::mode_of(&entries);
    ShownRights {
        rights: Rights { perm, uid: owner.unwrap_or(0), gid: group.unwrap_or(0), access, default },
        umask_counts,
    }
}

fn common(copies: &[Rights], acls: &[Acl], one_owner: bool, one_group: bool) -> Acl {
    let every = |bits: &dyn Fn(&Acl) -> u16| acls.iter().fold(ALL, |all, acl| all & bits(acl));
    let (owner, group, other) = (every(&|acl| acl.owner), every(&|acl| acl.group), every(&|acl| acl.other));
    let limit = if one_owner { ALL } else { owner };
    let both = || copies.iter().zip(acls);
    let user = |id: &u32| {
        let on_copy = |(copy, acl): (&Rights, &Acl)| match acl.users.get(id) {
            _ if copy.uid == *id => acl.owner,
            Some(bits) => *bits,
            None => acl.at_least(),
        };
        (*id, both().map(on_copy).fold(ALL, |all, bits| all & bits))
    };
    let named_group = |id: &u32| {
        let on_copy = |(copy, acl): (&Rights, &Acl)| match acl.groups.get(id) {
            Some(bits) => *bits,
            None if copy.gid == *id => acl.group,
            None => acl.at_least(),
        };
        (*id, both().map(on_copy).fold(limit, |all, bits| all & bits))
    };
    let users: BTreeSet<&u32> = acls.iter().flat_map(|acl| acl.users.keys()).collect();
    let groups: BTreeSet<&u32> = acls.iter().flat_map(|acl| acl.groups.keys()).collect();
    Acl {
        owner,
        users: users.into_iter().map(user).collect(),
        group: limit & if one_group { group } else { every(&Acl::at_least) },
        groups: groups.into_iter().map(named_group).collect(),
        other: other & limit & if one_group { ALL } else { group },
    }
}

/// The default ACL that all have in common, and whether the umask counts beside it.
fn default_acl(copies: &[Rights]) -> (Option<Vec<u8>>, bool) {
    let defaults: Vec<_> = copies.iter().map(|copy| copy.default.as_deref()).collect();
    let first = defaults.first().copied().flatten();
    if defaults.iter().all(|default| *default == first) {
        return (first.map(<[u8]>::to_vec), false);
    }
    let acls: Vec<Option<Acl>> = defaults
        .iter()
        .map(|default| default.and_then(acl::entries).map(|entries| Acl::of_entries(&entries)))
        .collect();
    let have = || acls.iter().flatten();
    let every = |bits: &dyn Fn(&Acl) -> u16| have().fold(ALL, |all, acl| all & bits(acl));
    // What a copy does not say of a user, the mode of the new entry says there, and that is not known yet.
    let by_all = |bits: &dyn Fn(&Acl) -> Option<u16>| {
        acls.iter().fold(ALL, |all, acl| all & acl.as_ref().and_then(bits).unwrap_or(0))
    };
    let users: BTreeSet<u32> = have().flat_map(|acl| acl.users.keys().copied()).collect();
    let groups: BTreeSet<u32> = have().flat_map(|acl| acl.groups.keys().copied()).collect();
    let all = Acl {
        owner: every(&|acl| acl.owner),
        users: users.into_iter().map(|id| (id, by_all(&|acl| acl.users.get(&id).copied()))).collect(),
        group: every(&|acl| acl.group),
        groups: groups.into_iter().map(|id| (id, by_all(&|acl| acl.groups.get(&id).copied()))).collect(),
        other: every(&|acl| acl.other),
    };
    // With a smaller mask, a mode could make that of a new entry empty, and Linux would not look at its ACL.
    let value = have().next().map(|_| acl::attribute(&all.entries(ALL)));
    (value, acls.iter().any(Option::is_none))
}
