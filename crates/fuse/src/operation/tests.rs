use std::ffi::OsStr;

use zerocopy::IntoBytes;

use super::*;
use crate::extensions::SecurityContext;
use crate::ioctl::FileIoctl;

fn header(opcode: u32) -> abi::InHeader {
    abi::InHeader { opcode, nodeid: 7, ..abi::InHeader::default() }
}

/// The request as both transports bring it.
#[track_caller]
fn both<'a>(header: &abi::InHeader, head: &'a [u8], rest: &'a [u8], joined: &'a mut Vec<u8>) -> Operation<'a> {
    *joined = [head, rest].concat();
    let mut apart = [0xee; 128];
    apart[..head.len()].copy_from_slice(head);
    let apart: &'a [u8; 128] = Box::leak(Box::new(apart));
    let shape = Shape { setxattr_ext: true };
    let by_ring = parse(header, &mut Body::split(apart, rest), shape).unwrap();
    let by_device = parse(header, &mut Body::joined(joined), shape).unwrap();
    assert_eq!(by_ring, by_device);
    by_device
}

#[test]
fn a_lookup_is_a_name() {
    let mut joined = Vec::new();
    let found = both(&header(opcode::LOOKUP), &[], b"name\0", &mut joined);
    assert_eq!(found, Operation::Lookup(Lookup { parent: NodeId(7), name: OsStr::new("name") }));
}

#[test]
fn a_rename_has_two_names_and_flags() {
    let head = abi::Rename2In { newdir: 9, flags: 4, padding: 0 };
    let mut joined = Vec::new();
    let found = both(&header(opcode::RENAME2), head.as_bytes(), b"old\0new\0", &mut joined);
    let Operation::Rename(found) = found else { panic!("{found:?}") };
    assert_eq!((found.name, found.new_name, found.new_parent), (OsStr::new("old"), OsStr::new("new"), NodeId(9)));
    assert_eq!(found.flags, RenameFlags::WHITEOUT);
}

#[test]
fn a_write_has_its_data_and_says_what_is_special() {
    let head = abi::WriteIn { fh: 3, offset: 1 << 40, size: 4, write_flags: 6, lock_owner: 5, flags: 2, padding: 0 };
    let mut joined = Vec::new();
    let Operation::Write(found) = both(&header(opcode::WRITE), head.as_bytes(), b"data", &mut joined) else { panic!() };
    assert_eq!((found.data, found.offset, found.lock_owner), (&b"data"[..], 1 << 40, Some(LockOwner(5))));
    assert_eq!(found.write_flags, WriteFlags::KILL_SUIDGID | WriteFlags::LOCK_OWNER);
}

#[test]
fn a_write_with_less_data_than_it_says_is_refused() {
    let head = abi::WriteIn { size: 5, ..abi::WriteIn::default() };
    let bytes = [head.as_bytes(), b"data"].concat();
    assert_eq!(parse(&header(opcode::WRITE), &mut Body::joined(&bytes), Shape::default()), Err(Malformed));
}

#[test]
fn a_name_without_an_end_is_refused() {
    assert_eq!(parse(&header(opcode::UNLINK), &mut Body::joined(b"name"), Shape::default()), Err(Malformed));
}

#[test]
fn attributes_are_set_as_far_as_they_are_given() {
    let valid = fattr::ATIME | fattr::ATIME_NOW | fattr::MTIME | fattr::SIZE | fattr::KILL_SUIDGID;
    let head =
        abi::SetattrIn { valid, size: 10, mtime: -5_i64 as u64, mtimensec: 9, mode: 1, ..abi::SetattrIn::default() };
    let mut joined = Vec::new();
    let Operation::SetAttr(found) = both(&header(opcode::SETATTR), head.as_bytes(), &[], &mut joined) else { panic!() };
    assert_eq!((found.mode, found.size, found.handle, found.kill_suidgid), (None, Some(10), None, true));
    assert_eq!(found.atime, Some(NewTime::Now));
    assert_eq!(found.mtime, Some(NewTime::At(Timestamp { seconds: -5, nanoseconds: 9 })));
}

#[test]
fn an_extended_attribute_is_read_in_both_forms() {
    let body = b"user.a\0value";
    let long = abi::SetxattrIn { size: 5, flags: 1, setxattr_flags: 1, padding: 0 };
    let mut joined = Vec::new();
    let Operation::SetXattr(found) = both(&header(opcode::SETXATTR), long.as_bytes(), body, &mut joined) else {
        panic!()
    };
    assert_eq!((found.name, found.value, found.kill_sgid), (OsStr::new("user.a"), &b"value"[..], true));
    let short = abi::SetxattrShortIn { size: 5, flags: 2 };
    let bytes = [short.as_bytes(), body].concat();
    let Ok(Operation::SetXattr(found)) = parse(&header(opcode::SETXATTR), &mut Body::joined(&bytes), Shape::default())
    else {
        panic!()
    };
    assert_eq!((found.value, found.flags, found.kill_sgid), (&b"value"[..], 2, false));
}

#[test]
fn groups_and_security_contexts_follow_what_creates() {
    let mut extensions = Vec::new();
    let groups = [5_u32, 6, 7];
    let size = 8 + 4 + 12;
    extensions.extend(abi::ExtHeader { size, kind: abi::EXT_GROUPS }.as_bytes());
    extensions.extend(3_u32.as_bytes());
    extensions.extend(groups.as_bytes());
    let context = [abi::Secctx { size: 5, padding: 0 }.as_bytes(), b"security.x\0", b"label"].concat();
    extensions.extend(abi::ExtHeader { size: 8 + context.len() as u32, kind: 1 }.as_bytes());
    extensions.extend(&context);
    extensions.resize(extensions.len().next_multiple_of(8), 0);
    let header = abi::InHeader { total_extlen: (extensions.len() / 8) as u16, ..header(opcode::MKDIR) };
    let head = abi::MkdirIn { mode: 0o755, umask: 0o22 };
    let rest = [b"dir\0", &extensions[..]].concat();
    let mut joined = Vec::new();
    let Operation::MkDir(found) = both(&header, head.as_bytes(), &rest, &mut joined) else { panic!() };
    assert_eq!((found.name, found.mode, found.umask), (OsStr::new("dir"), 0o755, 0o22));
    assert_eq!(found.extensions.groups, groups);
    let security = SecurityContext { name: OsStr::new("security.x"), value: b"label" };
    assert_eq!(found.extensions.security, [security]);
}

#[test]
fn an_extension_that_never_ends_is_refused() {
    let extension = abi::ExtHeader { size: 0, kind: 1 };
    let header = abi::InHeader { total_extlen: 1, ..header(opcode::MKDIR) };
    let bytes = [abi::MkdirIn::default().as_bytes(), b"d\0", extension.as_bytes()].concat();
    assert_eq!(parse(&header, &mut Body::joined(&bytes), Shape::default()), Err(Malformed));
}

#[test]
fn many_forgets_take_no_more_memory_than_they_bring() {
    let bytes = abi::BatchForgetIn { count: u32::MAX, dummy: 0 };
    let bytes = bytes.as_bytes();
    assert_eq!(parse(&header(opcode::BATCH_FORGET), &mut Body::joined(bytes), Shape::default()), Err(Malformed));
}

#[test]
fn a_copy_of_the_older_form_asks_for_no_more_than_it_can_answer() {
    let head = abi::CopyFileRangeIn { len: u64::MAX, ..abi::CopyFileRangeIn::default() };
    let most = |number| {
        let mut joined = Vec::new();
        match both(&header(number), head.as_bytes(), &[], &mut joined) {
            Operation::CopyFileRange(found) => found.length,
            other => panic!("{other:?}"),
        }
    };
    assert!(u32::try_from(most(opcode::COPY_FILE_RANGE)).is_ok());
    assert_eq!(most(opcode::COPY_FILE_RANGE_64), u64::MAX);
}

#[test]
fn retrieved_data_comes_with_its_struct_beside_it() {
    let head = abi::NotifyRetrieveIn { offset: 4096, size: 4, ..abi::NotifyRetrieveIn::default() };
    let rest = [head.as_bytes(), b"data"].concat();
    let mut joined = Vec::new();
    let Operation::Retrieved(found) = both(&header(opcode::NOTIFY_REPLY), &[], &rest, &mut joined) else { panic!() };
    assert_eq!((found.offset, found.data), (4096, &b"data"[..]));
}

#[test]
fn the_ioctls_of_chattr_are_known() {
    let ask = |command, input: &'static [u8]| {
        let (node, handle, flags) = (NodeId(1), FileHandle(0), IoctlFlags::empty());
        Ioctl { node, handle, flags, command, argument: 0, input, output_size: 4 }.file_ioctl()
    };
    assert_eq!(ask(0x8008_6601, &[]), Some(FileIoctl::GetFlags));
    assert_eq!(ask(0x4008_6602, &[1, 2, 0, 0]), Some(FileIoctl::SetFlags(0x201)));
    assert_eq!(ask(0x4008_6602, &[1]), None, "too short");
    assert_eq!(ask(0x5401, &[]), None);
}
