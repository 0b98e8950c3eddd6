//! POSIX ACLs: as the attribute holds them, entry by entry, and as what they grant.
//!
//! Source: POSIX.1e draft 17, 23.1.5 (the access check) and 23.3 (inheritance); `acl(5)`; Linux `fs/posix_acl.c`.

use std::collections::BTreeMap;

/// The attribute of the access ACL of a directory.
pub(crate) const ACCESS: &str = "system.posix_acl_access";
/// The attribute of the ACL that new entries of a directory get.
pub(crate) const DEFAULT: &str = "system.posix_acl_default";

const VERSION: u32 = 2;
pub(super) const USER_OBJ: u16 = 0x01;
pub(super) const USER: u16 = 0x02;
pub(super) const GROUP_OBJ: u16 = 0x04;
pub(super) const GROUP: u16 = 0x08;
pub(super) const MASK: u16 = 0x10;
pub(super) const OTHER: u16 = 0x20;
const NO_ID: u32 = u32::MAX;
pub(super) const READ: u16 = 4;
pub(super) const ALL: u16 = 7;

/// One entry of an ACL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct AclEntry {
    pub(super) tag: u16,
    pub(super) bits: u16,
    pub(super) id: u32,
}

/// The entries of an ACL attribute; `None` when it is none.
pub(super) fn entries(value: &[u8]) -> Option<Vec<AclEntry>> {
    let (version, mut rest) = value.split_first_chunk::<4>()?;
    let mut entries = Vec::new();
    while let Some((entry, after)) = rest.split_first_chunk::<8>() {
        let [tag_low, tag_high, bits_low, bits_high, id @ ..] = *entry;
        let tag = u16::from_le_bytes([tag_low, tag_high]);
        if !matches!(tag, USER_OBJ | USER | GROUP_OBJ | GROUP | MASK | OTHER) {
            return None;
        }
        entries.push(AclEntry {
            tag,
            bits: u16::from_le_bytes([bits_low, bits_high]) & ALL,
            id: u32::from_le_bytes(id),
        });
        rest = after;
    }
    (u32::from_le_bytes(*version) == VERSION && rest.is_empty()).then_some(entries)
}

/// The attribute that holds these entries.
pub(super) fn attribute(entries: &[AclEntry]) -> Vec<u8> {
    let mut bytes = VERSION.to_le_bytes().to_vec();
    for AclEntry { tag, bits: granted, id } in entries {
        bytes.extend_from_slice(&tag.to_le_bytes());
        bytes.extend_from_slice(&granted.to_le_bytes());
        bytes.extend_from_slice(&id.to_le_bytes());
    }
    bytes
}

/// Whether the nine bits of a mode say all that these entries do.
pub(super) fn is_minimal(entries: &[AclEntry]) -> bool {
    entries.iter().all(|entry| matches!(entry.tag, USER_OBJ | GROUP_OBJ | OTHER))
}

/// The nine bits of the mode that go with these entries.
pub(super) fn mode_of(entries: &[AclEntry]) -> u32 {
    let bits = |tag: u16| entries.iter().find(|entry| entry.tag == tag).map(|entry| u32::from(entry.bits));
    let class = bits(MASK).or_else(|| bits(GROUP_OBJ));
    bits(USER_OBJ).unwrap_or(0) << 6 | class.unwrap_or(0) << 3 | bits(OTHER).unwrap_or(0)
}

/// What an ACL grants, with the mask already taken into account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Acl {
    pub(super) owner: u16,
    pub(super) users: BTreeMap<u32, u16>,
    pub(super) group: u16,
    pub(super) groups: BTreeMap<u32, u16>,
    pub(super) other: u16,
}

impl Acl {
    /// What a mode alone grants.
    pub(super) fn of_mode(perm: u32) -> Acl {
        let bits = |shift: u32| (perm >> shift & 7) as u16;
        Acl { owner: bits(6), users: BTreeMap::new(), group: bits(3), groups: BTreeMap::new(), other: bits(0) }
    }

    pub(super) fn of_entries(entries: &[AclEntry]) -> Acl {
        let mut acl = Acl::of_mode(0);
        let mut mask = ALL;
        for AclEntry { tag, bits, id } in entries.iter().copied() {
            match tag {
                USER_OBJ => acl.owner = bits,
                USER => drop(acl.users.insert(id, bits)),
                GROUP_OBJ => acl.group = bits,
                GROUP => drop(acl.groups.insert(id, bits)),
                MASK => mask = bits,
                _ => acl.other = bits,
            }
        }
        acl.group &= mask;
        acl.users.values_mut().chain(acl.groups.values_mut()).for_each(|bits| *bits &= mask);
        acl
    }

    pub(super) fn is_minimal(&self) -> bool {
        self.users.is_empty() && self.groups.is_empty()
    }

    /// As entries, with this mask where a user or group is named.
    pub(super) fn entries(&self, mask: u16) -> Vec<AclEntry> {
        let mut entries = vec![AclEntry { tag: USER_OBJ, bits: self.owner, id: NO_ID }];
        entries.extend(self.users.iter().map(|(id, bits)| AclEntry { tag: USER, bits: *bits, id: *id }));
        entries.push(AclEntry { tag: GROUP_OBJ, bits: self.group, id: NO_ID });
        entries.extend(self.groups.iter().map(|(id, bits)| AclEntry { tag: GROUP, bits: *bits, id: *id }));
        if !self.is_minimal() {
            entries.push(AclEntry { tag: MASK, bits: mask, id: NO_ID });
        }
        entries.push(AclEntry { tag: OTHER, bits: self.other, id: NO_ID });
        entries
    }

    /// The smallest mask that takes nothing away. Linux ignores an ACL whose mask is empty, so a user that it shuts out
    /// by name would count as one of the others. The mask is then larger than the entries need, which changes no user's
    /// rights.
    pub(super) fn mask(&self) -> u16 {
        match self.users.values().chain(self.groups.values()).fold(self.group, |all, bits| all | bits) {
            0 if !self.is_minimal() => READ,
            mask => mask,
        }
    }

    /// The least that is granted to a user who is neither named nor the owner.
    pub(super) fn at_least(&self) -> u16 {
        self.groups.values().fold(self.group & self.other, |all, bits| all & bits)
    }
}
