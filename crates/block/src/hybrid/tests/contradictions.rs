//! Labels and records that no program wrote, with right checksums: each is refused with a name, or reported.

use super::super::format::{
    BLOCK, Content, DiskTag, Epoch, FlashSuperblock, Header, PairState, TagState, correct_checksum,
};
use super::super::pair::{read_labels, write_superblock};
use super::*;
use umbrella_policy::flash_cache::LogSector;

const DISK: u64 = 1000;

/// Ten blocks in the log, all flushed, and the log says so.
fn used() -> Pair {
    let (pair, hybrid) = sleeping_pair(DISK);
    for number in 0..10 {
        let data = fill(number as u8 + 1, BLOCK);
        hybrid.write(Lba(number * BLOCK), &data, Durability::Through).expect("to the log");
    }
    hybrid.close().expect("it ends");
    pair
}

fn set_superblock(pair: &Pair, change: impl Fn(&mut FlashSuperblock)) {
    let mut superblock = read_superblock(&pair.flash).expect("it is whole");
    superblock.generation += 1;
    change(&mut superblock);
    write_superblock(&*pair.flash.device, &superblock).expect("memory");
}

fn set_tag(pair: &Pair, change: impl Fn(&mut DiskTag)) {
    let mut tag = read_labels(&pair.disk, &pair.flash).expect("they are whole").tag;
    change(&mut tag);
    let bytes = tag.encode();
    for at in [DISK, DISK + BLOCK] {
        pair.disk.device.write(Lba(at), &bytes, Durability::Cached).expect("memory");
    }
}

fn set_record(pair: &Pair, number: u64, change: impl Fn(&mut Header)) {
    let at = Lba(LOG_START.0 + number * 2 * BLOCK);
    let mut header = Header::decode(&read(&*pair.flash.device, at.0, BLOCK)).expect("it is whole");
    change(&mut header);
    pair.flash.device.write(at, &header.encode(), Durability::Cached).expect("memory");
}

type Case = (&'static str, fn(&Pair));

const CASES: &[Case] = &[
    ("the flash says that the disk is larger", |pair| set_superblock(pair, |it| it.capacity = Lba(DISK + 8))),
    ("the disk says that it is larger", |pair| set_tag(pair, |it| it.capacity = Lba(DISK + 8))),
    ("the log is longer than the flash", |pair| set_superblock(pair, |it| it.log_size += 8)),
    ("the log is shorter than the smallest", |pair| set_superblock(pair, |it| it.log_size = 8)),
    ("the flash is two openings ahead", |pair| set_superblock(pair, |it| it.epoch = Epoch(it.epoch.0 + 2))),
    ("the flash is one ahead and says that the tag is written", |pair| {
        set_superblock(pair, |it| (it.epoch, it.tag) = (it.epoch.next(), TagState::Written));
    }),
    ("the disk is one opening ahead", |pair| set_tag(pair, |it| it.epoch = it.epoch.next())),
    ("the disk knows of a later tail", |pair| set_tag(pair, |it| it.tail_sequence = RecordNo(99))),
    ("the disk is of another flash", |pair| set_tag(pair, |it| it.flash = uuid::Uuid::from_u128(7))),
    ("the flash is of another disk", |pair| set_superblock(pair, |it| it.disk = uuid::Uuid::from_u128(7))),
    ("the disk says that the log is empty", |pair| set_tag(pair, |it| it.log_is_empty = true)),
    ("the flash was detached, and its log is full", |pair| set_superblock(pair, |it| it.state = PairState::Detached)),
    ("the tail is of a later opening", |pair| set_superblock(pair, |it| it.tail_epoch = it.epoch.next())),
    ("the log begins behind its end", |pair| {
        set_superblock(pair, |it| (it.tail, it.tail_sequence) = (LogSector(400), RecordNo(5)));
    }),
    ("the log begins where no record does", |pair| set_superblock(pair, |it| it.tail = LogSector(8))),
    ("more is durable than there is", |pair| set_superblock(pair, |it| it.durable = RecordNo(40))),
    ("lost sectors lie behind the end", |pair| set_superblock(pair, |it| it.lost = vec![range(DISK, 8)])),
    ("a record lies elsewhere than it says", |pair| set_record(pair, 4, |it| it.at = LogSector(0))),
    ("two records have one number", |pair| set_record(pair, 4, |it| it.sequence = RecordNo(4))),
    ("a record is of another flash", |pair| set_record(pair, 4, |it| it.flash = uuid::Uuid::from_u128(7))),
    ("a record is of a later opening", |pair| set_record(pair, 4, |it| it.epoch = Epoch(77))),
    ("a record is of an earlier opening", |pair| set_record(pair, 4, |it| it.epoch = Epoch(1))),
    ("a record goes behind the end of the disk", |pair| {
        set_record(pair, 4, |it| it.entries[0].range = range(DISK - 4, BLOCK));
    }),
    ("a record has the checksum of other data", |pair| {
        set_record(pair, 4, |it| it.entries[0].content = Content::Data(7));
    }),
];

/// All that can be read is what was written, and each block that cannot is an error.
fn assert_true(device: &dyn BlockDevice, label: &str) {
    let mut found = fill(0, BLOCK);
    for number in 0..10 {
        let is_read = device.read(Lba(number * BLOCK), &mut found).is_ok();
        assert!(!is_read || found == fill(number as u8 + 1, BLOCK), "{label}: block {number} is wrong in silence");
    }
}

#[test]
fn what_contradicts_itself_is_refused_with_a_name_or_reported() {
    for (label, change) in CASES {
        let pair = used();
        change(&pair);
        let before = (contents(&pair.flash), contents(&pair.disk));
        let report = check(&pair.disk, &pair.flash);
        let reported = match &report {
            Ok(report) => report.damage.is_some() || !report.perhaps_lost.is_empty(),
            Err(error) => !error.to_string().is_empty(),
        };
        assert!(reported, "{label}: check says nothing: {report:?}");
        if let Ok(damaged) = DamagedPair::open(pair.disk.clone(), pair.flash.clone())
            && damaged.losses().unknown_records == 0
        {
            assert_true(&damaged, label);
        }
        _ = PairRemains::open(pair.disk.clone(), pair.flash.clone());
        assert!(contents(&pair.flash) == before.0, "{label}: flash is written");
        assert!(contents(&pair.disk) == before.1, "{label}: the disk is written");
        let opened = pair.try_open(by_hand(Algorithm::Whole));
        assert!(
            opened.as_ref().is_ok_and(|it| !it.perhaps_lost().is_empty()) || opened.is_err(),
            "{label}: it is served"
        );
        if let Ok(hybrid) = opened
            && hybrid.perhaps_lost().unknown_records == 0
        {
            assert_true(&hybrid, label);
        }
    }
}

#[test]
fn an_entry_that_runs_over_the_largest_number_is_no_record() {
    let pair = used();
    let at = LOG_START.0 + 8 * BLOCK;
    let mut header = read(&*pair.flash.device, at, BLOCK);
    header[80..88].copy_from_slice(&u64::MAX.to_le_bytes());
    correct_checksum(&mut header, 4096);
    pair.flash.device.write(Lba(at), &header, Durability::Cached).expect("memory");
    assert!(check(&pair.disk, &pair.flash).is_ok_and(|report| report.damage.is_some()));
}
