//! Going on without what damage has taken.

use super::super::format::{BLOCK, MOST_LOST};
use super::*;
use crate::error::Operation;
use crate::fault::{CallFault, ReadFault};

/// Sectors of a record with one block of data.
const RECORD: u64 = 2 * BLOCK;
const DISK: u64 = 16_000;

/// Block `number` of the disk has `number + 1` from now on, in a log before a disk of zeroes. All is flushed, and the
/// log says so.
fn blocks(pair: &Pair, count: u64) {
    let hybrid = pair.asleep();
    for number in 0..count {
        hybrid.write(Lba(number * BLOCK), &fill(number as u8 + 1, BLOCK), Durability::Cached).expect("to the log");
    }
    hybrid.close().expect("it ends");
}

/// Twenty blocks. The fourth has damaged data and the eleventh a damaged header; both are skipped.
fn skipped() -> Pair {
    let pair = Pair::new(DISK);
    blocks(&pair, 20);
    pair.flip(3 * RECORD + BLOCK, 300);
    pair.flip(10 * RECORD, 300);
    assert!(matches!(pair.try_open(Options::default()).map(|_| ()), Err(HybridError::Corrupt { .. })));
    assert!(pair.damaged().can_be_salvaged());
    pair.damaged().salvage().expect("it is known what is lost");
    pair
}

const LOST: [u64; 2] = [3, 10];

fn assert_holds(hybrid: &dyn BlockDevice, lost: &[u64]) {
    for number in 0..20 {
        let mut found = fill(0, BLOCK);
        let read = hybrid.read(Lba(number * BLOCK), &mut found);
        assert_eq!(read.is_err(), lost.contains(&number), "block {number}");
        assert!(read.is_err() || found == fill(number as u8 + 1, BLOCK), "block {number}");
    }
}

#[test]
fn a_damaged_pair_continues_and_what_is_lost_is_an_error_also_after_restarts() {
    let pair = skipped();
    for _ in 0..2 {
        let hybrid = pair.open(by_hand(Algorithm::Whole));
        assert_eq!(hybrid.lost(), LOST.map(|number| range(number * BLOCK, BLOCK)));
        assert_holds(&hybrid, &LOST);
        drop(hybrid);
    }
    let hybrid = pair.open(by_hand(Algorithm::Whole));
    hybrid.drain().expect("what is whole is brought to the disk");
    assert_holds(&hybrid, &LOST);
    hybrid.close().expect("it ends");
    let report = check(&pair.disk, &pair.flash).expect("it is a pair");
    assert_eq!((report.damage, report.losses.at_risk.len(), report.records), (None, 2, 0));
    assert_eq!((report.cached, report.cached_zeroes), (ByteSize(0), ByteSize(0)), "what is lost is no zeroes");
    assert_holds(&pair.open(by_hand(Algorithm::Whole)), &LOST);
    assert_holds(&pair.damaged(), &LOST);
}

#[test]
fn lost_sectors_that_are_written_again_are_whole_after_a_crash_and_before_a_flush_they_may_be_lost_again() {
    let pair = skipped();
    // The disk spins: what is not lost would go past the log.
    let hybrid = pair.open(by_hand(Algorithm::Whole));
    hybrid.write(Lba(3 * BLOCK), &fill(4, BLOCK), Durability::Through).expect("to the log");
    hybrid.write(Lba(10 * BLOCK), &fill(9, 3), Durability::Through).expect("a part of it");
    assert_eq!((hybrid.lost(), hybrid.stats().writes_to_log), (vec![range(83, 5)], 2));
    assert_eq!(read(&hybrid, 3 * BLOCK, BLOCK), fill(4, BLOCK));
    hybrid.read(Lba(80), &mut fill(0, 4)).expect_err("a part of it is still lost");
    drop(hybrid);
    let hybrid = pair.open(by_hand(Algorithm::Whole));
    assert_eq!((hybrid.lost(), read(&hybrid, 80, 3)), (vec![range(83, 5)], fill(9, 3)));
    hybrid.write(Lba(83), &fill(9, 5), Durability::Cached).expect("to the log");
    hybrid.drain().expect("to the disk");
    hybrid.close().expect("it ends");
    assert_eq!(read_superblock(&pair.flash).expect("it is one").lost, []);
    let hybrid = pair.open(by_hand(Algorithm::Whole));
    assert_eq!((hybrid.lost(), read(&hybrid, 80, 8)), (vec![], fill(9, 8)));
}

#[test]
fn a_record_that_is_lost_with_a_power_cut_leaves_its_sectors_lost() {
    let pair = skipped();
    let hybrid = pair.asleep();
    hybrid.write(Lba(3 * BLOCK), &fill(4, BLOCK), Durability::Cached).expect("to the log");
    let used = hybrid.stats().log_used.0 / SECTOR_BYTES;
    drop(hybrid);
    pair.flash.device.write(Lba(LOG_START.0 + used - RECORD), &fill(0, RECORD), Durability::Cached).expect("memory");
    assert_holds(&pair.open(by_hand(Algorithm::Whole)), &LOST);
}

#[test]
fn a_crash_at_any_write_of_passing_over_leaves_the_damage_or_its_list() {
    for writes in 0..6 {
        let pair = Pair::new(DISK);
        blocks(&pair, 20);
        pair.flip(3 * RECORD + BLOCK, 300);
        pair.flip(10 * RECORD, 300);
        let failing = Rule::on(Operation::Write, CallFault::Error(rustix::io::Errno::IO)).from_nth(writes);
        let flash = Arc::new(faulty_copy_of(&pair.flash, failing));
        let done = pair.with_flash(flash.clone()).damaged().salvage();
        let left = pair.with_flash(Arc::new(Overlay::new(flash)));
        match left.try_open(by_hand(Algorithm::Whole)) {
            Ok(hybrid) => assert_holds(&hybrid, &LOST),
            Err(error) => {
                assert!(done.is_err() && matches!(error, HybridError::Corrupt { .. }), "{writes}: {error}");
                left.damaged().salvage().expect("it is done again");
                assert_holds(&left.open(by_hand(Algorithm::Whole)), &LOST);
            }
        }
    }
}

#[test]
fn flash_that_cannot_be_read_until_it_is_written_again_is_skipped_too() {
    for (sector, lost) in [(3 * RECORD + BLOCK, 3), (3 * RECORD, 3)] {
        let pair = Pair::new(DISK);
        blocks(&pair, 20);
        let latent = Rule::on_read(ReadFault::Latent).within(range(LOG_START.0 + sector, BLOCK));
        let pair = pair.with_flash(Arc::new(faulty_copy_of(&pair.flash, latent)));
        let opened = pair.try_open(by_hand(Algorithm::Whole)).map(|_| ());
        assert!(matches!(opened, Err(HybridError::LogUnreadable { .. })));
        pair.damaged().salvage().expect("it is known what is lost");
        assert_holds(&pair.open(by_hand(Algorithm::Whole)), &[lost]);
    }
}

#[test]
fn where_nobody_knows_what_is_lost_or_it_is_too_much_the_pair_is_only_read() {
    let pair = Pair::new(DISK);
    blocks(&pair, 20);
    pair.flip(10 * RECORD, 300);
    pair.flip(11 * RECORD, 300);
    let before = read(&*pair.flash.device, 0, 64);
    assert!(!pair.damaged().can_be_salvaged());
    assert!(matches!(pair.damaged().salvage(), Err(HybridError::LossUnknown { .. })));
    assert!(read(&*pair.flash.device, 0, 64) == before, "nothing is written");

    let pair = Pair::new(DISK);
    {
        let hybrid = pair.asleep();
        for number in 0..=MOST_LOST as u64 {
            hybrid.write(Lba(number * 2 * BLOCK), &fill(1, BLOCK), Durability::Cached).expect("to the log");
        }
        hybrid.close().expect("it ends");
    }
    for number in 0..=MOST_LOST as u64 {
        pair.flip(number * RECORD + BLOCK, 300);
    }
    assert_eq!(pair.damaged().losses().at_risk.len(), MOST_LOST + 1);
    assert!(!pair.damaged().can_be_salvaged());
}

#[test]
fn a_list_that_is_full_refuses_a_write_that_would_split_it_and_takes_others() {
    let (pair, hybrid) = sleeping_pair(DISK);
    hybrid.write(Lba(0), &fill(1, 1000), Durability::Cached).expect("to the log");
    hybrid.close().expect("it ends");
    (1..=125).for_each(|block| pair.flip(block * BLOCK, 300));
    pair.damaged().salvage().expect("it is known what is lost");
    let hybrid = pair.open(by_hand(Algorithm::Whole));
    assert_eq!(hybrid.lost(), [range(0, 1000)]);
    for number in 1..MOST_LOST as u64 {
        hybrid.write(Lba(number * 3), &fill(2, 1), Durability::Cached).expect("to the log");
    }
    assert_eq!(hybrid.lost().len(), MOST_LOST);
    let refused = hybrid.write(Lba(900), &fill(2, 1), Durability::Cached).expect_err("there is no room");
    assert!(refused.to_string().contains("write the lost sectors around"), "{refused}");
    hybrid.write(Lba(0), &fill(3, 10), Durability::Cached).expect("it makes the list shorter");
    hybrid.flush().expect("it is flushed");
    let lost = hybrid.lost();
    drop(hybrid);
    assert_eq!(pair.open(by_hand(Algorithm::Whole)).lost(), lost);
}

#[test]
fn a_disk_with_lost_sectors_is_not_whole_by_itself_and_its_copy_reports_it() {
    let pair = skipped();
    let hybrid = pair.open(by_hand(Algorithm::Whole));
    assert_eq!(hybrid.first_extent(range(80, 100)).expect("it is known").1, crate::device::Allocation::Data);
    hybrid.discard(range(3 * BLOCK, BLOCK)).expect("it changes nothing");
    hybrid.detach().expect("what is whole is on the disk");
    assert!(super::super::flash_of(&pair.disk).expect("it has a tag").is_some());
    assert_holds(&pair.open(by_hand(Algorithm::Whole)), &LOST);
    pair.open(by_hand(Algorithm::Whole)).dissolve().expect("it ends knowingly");
}
