//! Access ACLs as numbers, and what several of them allow at once.
//!
//! Asked for directories that were on several branches before the pool: what the merged one allows to anybody must be allowed by every copy. Of
//! whom a copy does not name it is not known which of its groups he is in, so he gets what all of them and everybody else have there: never more
//! than the truth. (POSIX.1e draft 17, 23.1.5: the access check; `acl(5)`.)

use std::collections::BTreeMap;

/// The attribute that holds it.
pub(super) const ACCESS: &str = "system.posix_acl_access";

const VERSION: u32 = 2;
const USER_OBJ: u16 = 0x01;
const USER: u16 = 0x02;
const GROUP_OBJ: u16 = 0x04;
const GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;
const READ: u16 = 4;
const NO_ID: u32 = u32::MAX;

/// Who may what, with the mask already taken into account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Acl {
    owner: u16,
    users: BTreeMap<u32, u16>,
    group: u16,
    groups: BTreeMap<u32, u16>,
    other: u16,
}

impl Acl {
    /// What a mode alone says.
    pub(super) fn of_mode(perm: u32) -> Acl {
        let bits = |shift: u32| (perm >> shift & 7) as u16;
        Acl { owner: bits(6), users: BTreeMap::new(), group: bits(3), groups: BTreeMap::new(), other: bits(0) }
    }

    /// From an extended attribute; `None` when it is not one of an ACL.
    pub(super) fn parse(value: &[u8]) -> Option<Acl> {
        let (version, mut rest) = value.split_first_chunk::<4>()?;
        let mut acl = Acl::of_mode(0);
        let mut mask = 7;
        while let Some((entry, after)) = rest.split_first_chunk::<8>() {
            let [tag_low, tag_high, perm_low, perm_high, id @ ..] = *entry;
            let perm = u16::from_le_bytes([perm_low, perm_high]) & 7;
            let id = u32::from_le_bytes(id);
            match u16::from_le_bytes([tag_low, tag_high]) {
                USER_OBJ => acl.owner = perm,
                USER => drop(acl.users.insert(id, perm)),
                GROUP_OBJ => acl.group = perm,
                GROUP => drop(acl.groups.insert(id, perm)),
                MASK => mask = perm,
                OTHER => acl.other = perm,
                _ => return None,
            }
            rest = after;
        }
        acl.group &= mask;
        acl.users.values_mut().chain(acl.groups.values_mut()).for_each(|perm| *perm &= mask);
        (u32::from_le_bytes(*version) == VERSION && rest.is_empty()).then_some(acl)
    }

    /// As an extended attribute; `None` when the mode says it all.
    pub(super) fn attribute(&self) -> Option<Vec<u8>> {
        if self.users.is_empty() && self.groups.is_empty() {
            return None;
        }
        let mut bytes = VERSION.to_le_bytes().to_vec();
        let mut push = |tag: u16, perm: u16, id: u32| {
            bytes.extend_from_slice(&tag.to_le_bytes());
            bytes.extend_from_slice(&perm.to_le_bytes());
            bytes.extend_from_slice(&id.to_le_bytes());
        };
        push(USER_OBJ, self.owner, NO_ID);
        self.users.iter().for_each(|(id, perm)| push(USER, *perm, *id));
        push(GROUP_OBJ, self.group, NO_ID);
        self.groups.iter().for_each(|(id, perm)| push(GROUP, *perm, *id));
        push(MASK, self.mask(), NO_ID);
        push(OTHER, self.other, NO_ID);
        Some(bytes)
    }

    /// The nine bits of the mode that go with it.
    pub(super) fn mode(&self) -> u32 {
        u32::from(self.owner) << 6 | u32::from(self.mask()) << 3 | u32::from(self.other)
    }

    /// Linux does not look at an ACL whose mask is empty, and takes who is shut out by name for one of the others: then it says more than the
    /// entries, which changes nobody's rights.
    fn mask(&self) -> u16 {
        match self.users.values().chain(self.groups.values()).fold(self.group, |all, perm| all | perm) {
            0 if !(self.users.is_empty() && self.groups.is_empty()) => READ,
            mask => mask,
        }
    }

    /// What anybody may who is not named: at least this.
    fn at_least(&self) -> u16 {
        self.groups.values().fold(self.group & self.other, |all, perm| all & perm)
    }

    /// What both allow.
    pub(super) fn and(&self, with: &Acl) -> Acl {
        let both = |mine: &BTreeMap<u32, u16>, theirs: &BTreeMap<u32, u16>| {
            let allowed = |id: &u32| {
                let (mine, theirs) = (mine.get(id).copied(), theirs.get(id).copied());
                (*id, mine.unwrap_or(self.at_least()) & theirs.unwrap_or(with.at_least()))
            };
            mine.keys().chain(theirs.keys()).map(allowed).collect()
        };
        Acl {
            owner: self.owner & with.owner,
            users: both(&self.users, &with.users),
            group: self.group & with.group,
            groups: both(&self.groups, &with.groups),
            other: self.other & with.other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `u::rwx,u:7:<perm>,g::r-x,m::<mask>,o::r-x`.
    fn naming(perm: u16, mask: u16) -> Vec<u8> {
        let mut bytes = VERSION.to_le_bytes().to_vec();
        for (tag, perm, id) in
            [(USER_OBJ, 7, NO_ID), (USER, perm, 7), (GROUP_OBJ, 5, NO_ID), (MASK, mask, NO_ID), (OTHER, 5, NO_ID)]
        {
            bytes.extend_from_slice(&u16::to_le_bytes(tag));
            bytes.extend_from_slice(&u16::to_le_bytes(perm));
            bytes.extend_from_slice(&u32::to_le_bytes(id));
        }
        bytes
    }

    #[test]
    fn an_acl_that_is_read_is_written_as_it_was() {
        let bytes = naming(7, 7);
        assert_eq!(Acl::parse(&bytes).unwrap().attribute(), Some(bytes));
        assert_eq!(Acl::of_mode(0o751).attribute(), None);
        assert_eq!(Acl::of_mode(0o751).mode(), 0o751);
    }

    #[test]
    fn what_is_no_acl_is_refused() {
        assert_eq!(Acl::parse(b""), None);
        assert_eq!(Acl::parse(&[2, 0, 0, 0, 1]), None);
        assert_eq!(Acl::parse(&[3, 0, 0, 0]), None);
        assert_eq!(Acl::parse(&[2, 0, 0, 0, 0x40, 0, 7, 0, 0, 0, 0, 0]), None);
    }

    #[test]
    fn the_mask_takes_away_what_an_entry_gives() {
        assert_eq!(Acl::parse(&naming(7, 5)), Acl::parse(&naming(5, 7)));
    }

    #[test]
    fn who_is_named_by_one_gets_no_more_than_the_other_gives_to_anybody() {
        let open = Acl::parse(&naming(7, 7)).unwrap();
        assert_eq!(open.and(&Acl::of_mode(0o750)).users[&7], 0);
        assert_eq!(open.and(&Acl::of_mode(0o755)).users[&7], 5);
        assert_eq!(open.and(&Acl::of_mode(0o705)).users[&7], 0, "he may be in the group");
        assert_eq!(open.and(&Acl::of_mode(0o750)).mode(), 0o750);
    }

    #[test]
    fn who_is_shut_out_by_one_stays_shut_out() {
        let shut = Acl::parse(&naming(0, 7)).unwrap();
        let all = shut.and(&Acl::of_mode(0o777));
        assert_eq!(all, Acl::of_mode(0o777).and(&shut));
        assert_eq!((all.users[&7], all.other), (0, 5));
        let nobody = Acl { group: 0, ..all };
        assert_ne!(nobody.mode() & 0o070, 0, "or the kernel would not ask the ACL");
        assert_eq!(Acl::parse(&nobody.attribute().unwrap()), Some(nobody));
    }
}
