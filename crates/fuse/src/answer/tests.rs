use super::*;

fn bytes(answer: &impl Parts) -> Vec<u8> {
    answer.with(|parts| parts.concat())
}

fn number(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}

#[test]
fn an_entry_keeps_node_and_inode_number_apart_and_both_times_to_live() {
    let attributes = Attributes::new(InodeNumber(77), FileType::RegularFile, 0o644);
    let (entry_ttl, attributes_ttl) = (Duration::from_secs(3), Duration::from_nanos(5_000_000_009));
    let sent = bytes(&Entry { node: NodeId(9), generation: 4, entry_ttl, attributes_ttl, attributes });
    assert_eq!(sent.len(), 128);
    assert_eq!([0, 8, 16, 24, 40].map(|at| number(&sent, at)), [9, 4, 3, 5, 77]);
    assert_eq!(number(&sent, 32) >> 32, 9, "nanoseconds of the attributes");
}

#[test]
fn a_negative_entry_has_no_node_and_a_time_to_live() {
    let sent = bytes(&Entry::negative(Duration::from_secs(8)));
    assert_eq!([0, 16, 24].map(|at| number(&sent, at)), [0, 8, 0]);
}

#[test]
fn a_statx_says_the_birth_time_only_if_there_is_one() {
    let attributes = Attributes::new(InodeNumber(5), FileType::Directory, 0o755);
    let answer = Statx { attributes, ttl: Duration::ZERO, birth: None };
    let mask = |answer: &Statx| u32::from_le_bytes(bytes(answer)[32..36].try_into().unwrap());
    assert_eq!(mask(&answer), libc::STATX_BASIC_STATS);
    let born = Statx { birth: Some(Timestamp { seconds: -3, nanoseconds: 0 }), ..answer };
    assert_eq!(mask(&born), libc::STATX_BASIC_STATS | libc::STATX_BTIME);
    assert_eq!(bytes(&born).len(), 288);
}

#[test]
fn a_listing_takes_what_has_room_and_no_more() {
    let mut listing = Listing::new(100);
    let entry = |name| Listed { ino: InodeNumber(1), next: 7, kind: FileType::RegularFile, name };
    assert!(listing.is_empty());
    assert_eq!(listing.add(&entry(OsStr::new("eight888"))), Ok(()));
    assert_eq!(listing.add(&entry(OsStr::new("nine99999"))), Ok(()));
    assert_eq!(listing.add(&entry(OsStr::new("x"))), Err(Full));
    let sent = bytes(&listing);
    assert_eq!(sent.len(), 32 + 40, "each is padded to eight bytes");
    assert_eq!((number(&sent, 8), &sent[24..32]), (7, &b"eight888"[..]));
    assert_eq!(sent[20], libc::DT_REG);
}

#[test]
fn a_created_file_is_an_entry_and_an_open_file() {
    let attributes = Attributes::new(InodeNumber(5), FileType::RegularFile, 0);
    let entry =
        Entry { node: NodeId(1), generation: 0, entry_ttl: Duration::ZERO, attributes_ttl: Duration::ZERO, attributes };
    // Only a backing file makes it a passthrough.
    let opened = Opened::new(FileHandle(12), OpenFlags::PASSTHROUGH | OpenFlags::NOFLUSH);
    let sent = bytes(&Created { entry, opened });
    assert_eq!((sent.len(), number(&sent, 128), sent[136]), (144, 12, 1 << 5));
}
