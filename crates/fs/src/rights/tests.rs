//! What is shown never allows what one copy denies: against the access check of Linux, written down a second time.

use proptest::collection::{btree_map, vec};
use proptest::prelude::*;

use super::acl::{AclEntry, GROUP, GROUP_OBJ, MASK, OTHER, USER, USER_OBJ, attribute, entries};
use super::*;

/// A user with groups.
#[derive(Debug, Clone)]
struct Caller {
    uid: u32,
    groups: Vec<u32>,
}

/// `generic_permission` and `posix_acl_permission` of Linux, root aside.
fn linux_allows(rights: &Rights, caller: &Caller, wanted: u16) -> bool {
    let bits = |shift: u32| (rights.perm >> shift & 7) as u16;
    let grants = |bits: u16| bits & wanted == wanted;
    if caller.uid == rights.uid {
        return grants(bits(6));
    }
    let in_group = |gid: u32| caller.groups.contains(&gid);
    let Some(acl) = rights.access.as_deref().filter(|_| bits(3) != 0).map(|value| entries(value).unwrap()) else {
        return grants(if in_group(rights.gid) { bits(3) } else { bits(0) });
    };
    let mask = acl.iter().find(|entry| entry.tag == MASK).map_or(7, |entry| entry.bits);
    let mut in_class = false;
    for AclEntry { tag, bits, id } in acl {
        let is_his = match tag {
            USER => {
                if id == caller.uid {
                    return grants(bits & mask);
                }
                false
            }
            GROUP_OBJ => in_group(rights.gid),
            GROUP => in_group(id),
            OTHER => return !in_class && grants(bits),
            _ => false,
        };
        if is_his {
            if grants(bits) {
                return grants(mask);
            }
            in_class = true;
        }
    }
    false
}

/// `posix_acl_create` of Linux: a new entry that `caller` makes with this mode.
fn linux_creates(dir: &Rights, maker: &Caller, perm: u32, umask: u32) -> Rights {
    let owner = Rights { uid: maker.uid, gid: maker.groups[0], ..Rights::default() };
    let Some(mut acl) = dir.default.as_deref().map(|value| entries(value).unwrap()) else {
        return Rights { perm: perm & !umask, ..owner };
    };
    let has_mask = acl.iter().any(|entry| entry.tag == MASK);
    for entry in &mut acl {
        entry.bits &= match entry.tag {
            USER_OBJ => perm >> 6 & 7,
            GROUP_OBJ if !has_mask => perm >> 3 & 7,
            MASK => perm >> 3 & 7,
            OTHER => perm & 7,
            _ => 7,
        } as u16;
    }
    let of = |tag: u16| acl.iter().find(|entry| entry.tag == tag).map(|entry| u32::from(entry.bits));
    let class = of(MASK).or(of(GROUP_OBJ)).unwrap();
    let perm = of(USER_OBJ).unwrap() << 6 | class << 3 | of(OTHER).unwrap();
    Rights { perm, access: has_mask.then(|| attribute(&acl)), ..owner }
}

const IDS: std::ops::Range<u32> = 0..4;

/// An ACL and the nine bits of the mode that go with it.
fn an_acl() -> impl Strategy<Value = (Vec<u8>, u32)> {
    let named = || btree_map(IDS, 0..8_u16, 0..3);
    (0..8_u16, named(), 0..8_u16, named(), 0..8_u16, 0..8_u16).prop_map(|(owner, users, group, groups, mask, other)| {
        let mut acl = vec![AclEntry { tag: USER_OBJ, bits: owner, id: u32::MAX }];
        acl.extend(users.iter().map(|(id, bits)| AclEntry { tag: USER, bits: *bits, id: *id }));
        acl.push(AclEntry { tag: GROUP_OBJ, bits: group, id: u32::MAX });
        acl.extend(groups.iter().map(|(id, bits)| AclEntry { tag: GROUP, bits: *bits, id: *id }));
        acl.push(AclEntry { tag: MASK, bits: mask, id: u32::MAX });
        acl.push(AclEntry { tag: OTHER, bits: other, id: u32::MAX });
        (attribute(&acl), u32::from(owner) << 6 | u32::from(mask) << 3 | u32::from(other))
    })
}

fn a_copy() -> impl Strategy<Value = Rights> {
    let acl = || proptest::option::of(an_acl());
    (0..0o10000_u32, IDS, IDS, acl(), acl()).prop_map(|(perm, uid, gid, access, default)| {
        let perm = access.as_ref().map_or(perm, |(_, mode)| perm & 0o7000 | mode);
        Rights { perm, uid, gid, access: access.map(|(acl, _)| acl), default: default.map(|(acl, _)| acl) }
    })
}

fn a_caller() -> impl Strategy<Value = Caller> {
    // Root may do anything; it may be in any group, and others in its.
    (1..5_u32, vec(0..5_u32, 1..4)).prop_map(|(uid, groups)| Caller { uid, groups })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn what_is_shown_allows_nobody_what_one_copy_denies(copies in vec(a_copy(), 1..4), caller in a_caller()) {
        let shown = shown(&copies).rights;
        for wanted in 1..8 {
            let allowed = linux_allows(&shown, &caller, wanted);
            for copy in copies.iter().filter(|_| allowed) {
                prop_assert!(linux_allows(copy, &caller, wanted), "{wanted} of {copy:?} by {shown:?}");
            }
        }
    }

    #[test]
    fn a_new_entry_allows_nobody_what_one_of_any_copy_would_deny(
        copies in vec(a_copy(), 1..4), maker in a_caller(), caller in a_caller(), perm in 0..0o1000_u32, umask in 0..0o1000_u32
    ) {
        let (mode, access) = inherited(&shown(&copies), perm, umask);
        let made = Rights { perm: mode, uid: maker.uid, gid: maker.groups[0], access, default: None };
        for wanted in 1..8 {
            let allowed = linux_allows(&made, &caller, wanted);
            for copy in copies.iter().filter(|_| allowed) {
                let other = linux_creates(copy, &maker, perm, umask);
                prop_assert!(linux_allows(&other, &caller, wanted), "{wanted} of {other:?} by {made:?}");
            }
        }
    }

    #[test]
    fn copies_that_agree_are_shown_as_they_are(copy in a_copy(), count in 1..4_usize) {
        prop_assert_eq!(shown(&vec![copy.clone(); count]), ShownRights { rights: copy, umask_counts: false });
    }

    #[test]
    fn the_order_of_the_copies_does_not_matter(one in a_copy(), two in a_copy()) {
        prop_assert_eq!(shown(&[one.clone(), two.clone()]), shown(&[two, one]));
    }

    /// chmod, chown and setfacl as Linux does them.
    #[test]
    fn the_mode_goes_with_the_acl_after_every_change(copy in a_copy(), perm in 0..0o10000_u32, acl in an_acl()) {
        let changed = copy.with(&RightsChange::Mode { perm: Some(perm), uid: Some(7), gid: None });
        prop_assert_eq!((changed.perm, changed.uid, changed.gid), (perm, 7, copy.gid));
        let (value, mode) = acl;
        for rights in [changed, copy.with(&RightsChange::Access(Some(value)))] {
            if let Some(acl) = rights.access.as_deref().map(|value| entries(value).unwrap()) {
                prop_assert_eq!(super::acl::mode_of(&acl), rights.perm & 0o777);
            }
        }
        prop_assert_eq!(copy.with(&RightsChange::Access(Some(an_acl_of(mode)))).access, None);
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in vec(any::<u8>(), 0..80), perm in 0..0o10000_u32) {
        let copy = Rights { perm, access: Some(bytes.clone()), default: Some(bytes.clone()), ..Rights::default() };
        let shown = shown(&[copy.clone(), Rights { perm: 0o777, ..Rights::default() }]);
        inherited(&shown, perm, 0o22);
        copy.with(&RightsChange::Default(Some(bytes)));
    }
}

/// An ACL that says no more than a mode.
fn an_acl_of(perm: u32) -> Vec<u8> {
    attribute(&Acl::of_mode(perm).entries(7))
}

fn copy(uid: u32, gid: u32, perm: u32) -> Rights {
    Rights { perm, uid, gid, ..Rights::default() }
}

fn shown_of(copies: &[Rights]) -> (u32, u32, u32) {
    let ShownRights { rights, .. } = shown(copies);
    assert_eq!(rights.access, None);
    (rights.uid, rights.gid, rights.perm)
}

#[test]
fn the_owner_is_the_common_one_or_root() {
    assert_eq!(shown_of(&[copy(1000, 1000, 0o2775), copy(0, 0, 0o2775)]), (0, 0, 0o755));
    assert_eq!(shown_of(&[copy(1000, 1000, 0o750), copy(1001, 1001, 0o705)]), (0, 0, 0o700));
    assert_eq!(shown_of(&[copy(1000, 100, 0o770), copy(1001, 100, 0o770)]), (0, 100, 0o770));
    assert_eq!(shown_of(&[copy(1000, 100, 0o750), copy(1000, 100, 0o705)]), (1000, 100, 0o700));
}

#[test]
fn of_the_group_and_others_nobody_gets_what_he_lacks_as_an_owner() {
    assert_eq!(shown_of(&[copy(1000, 100, 0o077), copy(1001, 100, 0o777)]), (0, 100, 0o000));
    assert_eq!(shown_of(&[copy(1000, 100, 0o757), copy(1000, 101, 0o777)]), (1000, 0, 0o755));
}

#[test]
fn a_set_id_bit_stays_where_all_have_it_for_the_same_id_and_sticky_where_one_has_it() {
    assert_eq!(shown_of(&[copy(1000, 100, 0o6755), copy(1000, 100, 0o6755)]).2, 0o6755);
    assert_eq!(shown_of(&[copy(1000, 100, 0o6755), copy(1000, 101, 0o6755)]).2, 0o4755);
    assert_eq!(shown_of(&[copy(1000, 100, 0o6755), copy(1001, 100, 0o6755)]).2, 0o2755);
    assert_eq!(shown_of(&[copy(1000, 100, 0o2755), copy(1000, 100, 0o1755)]).2, 0o1755);
}

/// `u::rwx,u:<uid>:<bits>,g::r-x,m::rwx,o::r-x`.
fn naming(uid: u32, bits: u16) -> Vec<u8> {
    let users = [(uid, bits)].into();
    attribute(&Acl { users, ..Acl::of_mode(0o755) }.entries(7))
}

#[test]
fn a_named_user_who_owns_another_copy_has_no_more_than_its_owner() {
    let named = Rights { access: Some(naming(1001, 7)), ..copy(1000, 100, 0o775) };
    let all = shown(&[named, copy(1001, 100, 0o577)]).rights;
    assert_eq!(entries(&all.access.unwrap()).unwrap()[1], AclEntry { tag: USER, bits: 5, id: 1001 });
    assert_eq!(all.perm, 0o555);
}

#[test]
fn whom_one_copy_names_has_no_more_than_the_other_gives_to_anybody() {
    let named = Rights { access: Some(naming(7, 7)), ..copy(1000, 100, 0o775) };
    let of_him = |other: u32| {
        let all = shown(&[named.clone(), copy(1000, 100, other)]).rights;
        assert_eq!(super::acl::mode_of(&entries(all.access.as_ref().unwrap()).unwrap()), all.perm);
        entries(&all.access.unwrap()).unwrap()[1].bits
    };
    assert_eq!([0o750, 0o755, 0o705].map(of_him), [0, 5, 0]);
}

#[test]
fn a_default_acl_of_some_copies_gives_nothing_to_whom_it_names_and_the_umask_counts() {
    let with = Rights { default: Some(naming(7, 7)), ..copy(1000, 100, 0o775) };
    let all = shown(&[with.clone(), copy(1000, 100, 0o775)]);
    assert!(all.umask_counts);
    let (mode, access) = inherited(&all, 0o666, 0o027);
    assert_eq!((mode, entries(&access.unwrap()).unwrap()[1].bits), (0o640, 0));
    let both = shown(&[with.clone(), with]);
    assert_eq!((inherited(&both, 0o666, 0o027).0, both.umask_counts), (0o664, false));
}

#[test]
fn what_is_no_acl_is_refused() {
    for bytes in [&b""[..], &[2, 0, 0, 0, 1], &[3, 0, 0, 0], &[2, 0, 0, 0, 0x40, 0, 7, 0, 0, 0, 0, 0]] {
        assert_eq!(entries(bytes), None);
    }
    assert_eq!(attribute(&entries(&naming(7, 5)).unwrap()), naming(7, 5));
}
