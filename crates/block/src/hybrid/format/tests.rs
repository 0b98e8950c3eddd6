//! What is written is read, and what is damaged is noticed.

use umbrella_policy::flash_cache::{Logged, Source};
use umbrella_units::SectorRange;

use super::record::Content;
use super::*;

fn superblock() -> FlashSuperblock {
    FlashSuperblock {
        version: VERSION,
        flash: Uuid::from_u128(1),
        disk: Uuid::from_u128(2),
        generation: 3,
        epoch: Epoch(4),
        state: PairState::Attached,
        capacity: Lba(1000),
        log_size: LEAST_LOG,
        tail: LogSector(16),
        tail_sequence: RecordNo(7),
        durable: RecordNo(6),
        written: 99,
        head: Some(5),
        tail_epoch: Epoch(2),
        tag: TagState::Due,
        lost: Vec::new(),
        unreported: 2,
    }
}

fn header() -> Header {
    let range = |start, sectors| SectorRange { start: Lba(start), sectors };
    let entries = vec![
        RecordEntry { range: range(900, 1 << 40), content: Content::Zeroes },
        RecordEntry { range: range(5, 3), content: Content::Data(crc32c::crc32c(&[1; 1536])) },
        RecordEntry { range: range(70, 8), content: Content::Data(crc32c::crc32c(&[2; 4096])) },
    ];
    Header {
        flash: Uuid::from_u128(1),
        epoch: Epoch(4),
        sequence: RecordNo(7),
        at: LogSector(16),
        marks: Marks { certain: RecordNo(5), promised: RecordNo(7) },
        entries,
        before: Some(vec![range(1, 2), range(3, 4)]),
    }
}

#[test]
fn a_superblock_lists_lost_sectors_behind_its_first_sector() {
    let lost = (0..MOST_LOST as u64).map(|number| SectorRange { start: Lba(number * 4), sectors: 2 }).collect();
    let superblock = FlashSuperblock { lost, ..superblock() };
    let bytes = superblock.encode();
    assert_eq!((bytes.len(), FlashSuperblock::decode(&bytes)), (BLOCK_BYTES, Ok(superblock.clone())));
    assert_eq!(FlashSuperblock::decode(&bytes[..512]), Err(Damage::Checksum), "the list is missing");
    let mut torn = bytes.clone();
    torn[2000..].fill(0);
    assert_eq!(FlashSuperblock::decode(&torn), Err(Damage::Checksum));
    let beyond = vec![SectorRange { start: Lba(990), sectors: 11 }];
    let beyond = FlashSuperblock { lost: beyond, ..superblock };
    assert_eq!(FlashSuperblock::decode(&beyond.encode()), Err(Damage::Field));
}

#[test]
fn a_counter_that_would_overflow_is_damage() {
    assert_eq!(FlashSuperblock::decode(&superblock().encode()), Ok(superblock()));
    for far in [1 << 62, u64::MAX] {
        let written = FlashSuperblock { written: far, ..superblock() };
        let durable = FlashSuperblock { durable: RecordNo(far), ..superblock() };
        for superblock in [written, durable] {
            assert_eq!(FlashSuperblock::decode(&superblock.encode()), Err(Damage::Field));
        }
    }
}

#[test]
fn what_is_written_is_read() {
    assert_eq!(FlashSuperblock::decode(&superblock().encode()), Ok(superblock()));
    let tag = DiskTag {
        disk: Uuid::from_u128(2),
        flash: Uuid::from_u128(1),
        epoch: Epoch(4),
        capacity: Lba(1000),
        tail_sequence: RecordNo(7),
        log_is_empty: false,
    };
    let empty = DiskTag { log_is_empty: true, ..tag };
    for tag in [tag, empty] {
        assert_eq!(DiskTag::decode(&tag.encode()), Ok(tag));
    }
    let written = FlashSuperblock { tag: TagState::Written, ..superblock() };
    assert_eq!(FlashSuperblock::decode(&written.encode()), Ok(written));
    let mark = Header { entries: Vec::new(), before: None, ..header() };
    let lost = Header { entries: vec![RecordEntry::lost(8)], ..header() };
    for header in [header(), mark, lost] {
        assert_eq!(Header::decode(&header.encode()), Ok(header));
    }
    assert_eq!((superblock().encode().len(), tag.encode().len(), header().encode().len()), (512, 512, 4096));
}

#[test]
fn the_longest_record_has_a_header_of_one_block() {
    let entry = RecordEntry { range: SectorRange { start: Lba(1), sectors: 1 }, content: Content::Data(0) };
    let before = Some(vec![entry.range; MOST_ENTRIES]);
    let header = Header { entries: vec![entry; MOST_ENTRIES], before, ..header() };
    assert_eq!(header.encode().len(), BLOCK_BYTES);
    assert_eq!(Header::decode(&header.encode()), Ok(header));
}

#[test]
fn every_changed_bit_is_noticed() {
    for (bytes, decode) in [
        (superblock().encode(), (|bytes| FlashSuperblock::decode(bytes).is_ok()) as fn(&[u8]) -> bool),
        (header().encode(), |bytes| Header::decode(bytes).is_ok()),
    ] {
        assert!(decode(&bytes));
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(!decode(&damaged), "bit {bit}");
        }
        assert!(!decode(&bytes[..bytes.len() - 1]));
    }
}

#[test]
fn a_later_version_is_named() {
    let mut bytes = superblock().encode();
    bytes[8] = 3;
    assert_eq!(FlashSuperblock::decode(&seal(bytes[..508].to_vec(), 512)), Err(Damage::Version(3)));
}

#[test]
fn the_entries_of_a_record_lie_one_behind_the_other() {
    let header = header();
    let logged: Vec<Logged> = header.logged().collect();
    assert_eq!(logged[0].source, Source::Zeroes(LogSector(16)));
    assert_eq!((logged[1].source, logged[1].metadata), (Source::Log(LogSector(24)), 8));
    assert_eq!((logged[2].source, logged[2].metadata), (Source::Log(LogSector(27)), 0));
    assert_eq!((header.data(), header.sectors(), header.end()), (11, 24, LogSector(40)));
    let data = [vec![1; 1536], vec![2; 4096]].concat();
    let damaged = |data: &[u8]| header.damaged(data).collect::<Vec<SectorRange>>();
    assert_eq!(damaged(&data), []);
    assert_eq!(damaged(&[vec![1; 1536], vec![3; 4096]].concat()), [logged[2].range]);
    assert_eq!(damaged(&[vec![3; 1536], vec![2; 4096]].concat()), [logged[1].range]);
    assert_eq!(damaged(&data[..2000]), [logged[2].range], "cut off");
    assert_eq!(damaged(&[]), [logged[1].range, logged[2].range], "cut off");
    let mended = header.without_damaged(&[vec![3; 1536], vec![2; 4096]].concat());
    assert_eq!(mended.logged().collect::<Vec<Logged>>(), [logged[0], Logged { metadata: 8, ..logged[2] }]);
    assert_eq!((mended.end(), mended.damaged(&[vec![3; 1536], vec![2; 4096]].concat()).count()), (header.end(), 0));
}
