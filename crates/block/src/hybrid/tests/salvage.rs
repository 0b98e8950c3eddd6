//! A log with damage in it: what is whole is read, what is lost is an error, and nothing is guessed.

use rustix::io::Errno;

use super::*;
use crate::error::Operation;
use crate::fault::CallFault;

/// Sectors of a record of the tests: a header and as much data.
const RECORD: u64 = 16;

/// Three records in a log before a disk of threes, each flushed: 8 sectors of ones at 0, of twos at 100, of nines at 4.
fn three_records() -> Pair {
    let pair = Pair::new(1000);
    let hybrid = pair.open(by_hand(Algorithm::Whole));
    hybrid.write(Lba(0), &fill(3, 1000), Durability::Through).expect("to the disk");
    hybrid.sleep().expect("it sleeps");
    for (start, byte) in [(0, 1), (100, 2), (4, 9)] {
        hybrid.write(Lba(start), &fill(byte, 8), Durability::Through).expect("to the log");
    }
    pair
}

fn losses(at_risk: &[SectorRange], unknown_records: u64) -> Losses {
    Losses { at_risk: at_risk.to_vec(), unknown_records }
}

#[test]
fn damaged_data_is_an_error_exactly_where_nothing_newer_replaces_it() {
    let pair = three_records();
    pair.flip(12, 300);
    assert!(matches!(
        pair.try_open(Options::default()).map(|_| ()),
        Err(HybridError::Corrupt { sequence: RecordNo(1), .. })
    ));
    let before = (contents(&pair.disk), contents(&pair.flash));
    let salvage = pair.damaged();
    assert!(matches!(salvage.damage(), Some(HybridError::Corrupt { fault: Fault::Data, .. })));
    assert_eq!((salvage.losses(), salvage.cached()), (losses(&[range(0, 4)], 0), sectors(16)));
    for start in 0..4 {
        let refused = salvage.read(Lba(start), &mut fill(0, 1)).expect_err("it is lost");
        assert!(refused.to_string().contains("damaged part of the log of flash"), "{refused}");
    }
    salvage.read(Lba(3), &mut fill(0, 2)).expect_err("half of it is lost");
    assert_eq!(read(&salvage, 4, 996), [fill(9, 8), fill(3, 88), fill(2, 8), fill(3, 892)].concat());
    salvage.flush().expect("there is nothing to flush");
    for refused in [
        salvage.write(Lba(500), &fill(1, 1), Durability::Cached),
        salvage.discard(range(500, 1)),
        salvage.write_zeroes(range(500, 1), Zeroes::Unmap, Durability::Cached),
    ] {
        assert!(matches!(refused, Err(BlockError::ReadOnly { .. })), "{refused:?}");
    }
    assert!(before == (contents(&pair.disk), contents(&pair.flash)), "nothing is written");
    let report = pair.checked();
    assert_eq!((report.records, report.losses), (3, losses(&[range(0, 4)], 0)));
    assert_eq!(report.only_in_log, [range(4, 8), range(100, 8)]);
}

/// A record has one header for up to 1 MiB.
#[test]
fn of_a_long_write_only_the_damaged_block_is_lost_or_its_neighbours_in_the_longest_records() {
    for (written, lost) in [(24, 8), (800, 8), (1600, 16), (2048, 32)] {
        let pair = Pair::new(4000);
        let hybrid = pair.open(by_hand(Algorithm::Whole));
        hybrid.write(Lba(0), &fill(3, 4000), Durability::Through).expect("to the disk");
        hybrid.sleep().expect("it sleeps");
        hybrid.write(Lba(1000), &fill(1, written), Durability::Through).expect("to the log");
        hybrid.close().expect("it ends");
        pair.flip(8 + 19, 300);
        let start = 1000 + 16 / lost * lost;
        assert_eq!(pair.damaged().losses(), losses(&[range(start, lost)], 0), "{written} sectors");
        pair.damaged().salvage().expect("it is known what is lost");
        let hybrid = pair.open(by_hand(Algorithm::Whole));
        assert_eq!(hybrid.lost(), [range(start, lost)], "{written} sectors");
        let (behind, end) = (start + lost, 1000 + written);
        let whole = [fill(1, end - behind), fill(3, 4000 - end)].concat();
        assert!(read(&hybrid, behind, 4000 - behind) == whole, "{written} sectors");
    }
}

#[test]
fn behind_a_header_that_is_lost_what_the_last_opening_wrote_still_counts() {
    let pair = three_records();
    pair.flip(RECORD, 300);
    let salvage = pair.damaged();
    assert!(matches!(salvage.damage(), Some(HybridError::Corrupt { sequence: RecordNo(2), fault: Fault::Header, .. })));
    assert_eq!(salvage.losses(), losses(&[range(100, 8)], 0), "the third says what the second held");
    assert_eq!(read(&salvage, 0, 100), [fill(1, 4), fill(9, 8), fill(3, 88)].concat());
    salvage.read(Lba(107), &mut fill(0, 1)).expect_err("it is lost");
}

#[test]
fn behind_a_header_that_is_lost_what_may_be_a_leftover_is_lost_too() {
    let pair = three_records();
    pair.open(by_hand(Algorithm::Whole)).close().expect("it can be closed");
    pair.flip(RECORD, 300);
    let salvage = pair.damaged();
    assert_eq!(salvage.losses(), losses(&[range(4, 8)], 1));
    assert_eq!(read(&salvage, 0, 4), fill(1, 4));
    salvage.read(Lba(11), &mut fill(0, 1)).expect_err("it cannot be known whether it is the newest");
}

#[test]
fn a_leftover_behind_a_lost_header_is_not_taken_for_data() {
    let pair = three_records();
    // A power cut took the second, which was never reported as durable, and left the third.
    pair.flash.device.write(Lba(LOG_START.0 + RECORD), &fill(0, RECORD), Durability::Cached).expect("memory");
    let mut third = read(&*pair.flash.device, LOG_START.0 + 2 * RECORD, 8);
    third[56..72].fill(0);
    format::correct_checksum(&mut third, format::BLOCK_BYTES);
    pair.flash.device.write(Lba(LOG_START.0 + 2 * RECORD), &third, Durability::Cached).expect("memory");
    let hybrid = pair.open(by_hand(Algorithm::Whole));
    assert_eq!(read(&hybrid, 4, 8), [fill(1, 4), fill(3, 4)].concat(), "the third does not count");
    hybrid.sleep().expect("it sleeps");
    hybrid.write(Lba(200), &fill(7, 8), Durability::Through).expect("to the log");
    hybrid.close().expect("it can be closed");
    pair.flip(RECORD, 300);
    let salvage = pair.damaged();
    assert_eq!(salvage.losses(), losses(&[range(4, 8)], 1));
    salvage.read(Lba(4), &mut fill(0, 8)).expect_err("not what the leftover says");
}

#[test]
fn a_record_cannot_say_that_the_one_before_it_held_sectors_beyond_the_disk() {
    let pair = three_records();
    let third = Lba(LOG_START.0 + 2 * RECORD);
    let header = format::Header::decode(&read(&*pair.flash.device, third.0, 8)).expect("it is whole");
    let header = format::Header { before: Some(vec![range(1000, 8)]), ..header };
    pair.flash.device.write(third, &header.encode(), Durability::Cached).expect("memory");
    pair.flip(RECORD, 300);
    assert_eq!(pair.damaged().losses(), losses(&[], 1));
}

#[test]
fn what_was_durable_and_is_gone_to_the_end_is_counted() {
    let pair = three_records();
    pair.open(by_hand(Algorithm::Whole)).close().expect("it can be closed");
    pair.flash.device.write(Lba(LOG_START.0 + RECORD), &fill(0, 2 * RECORD), Durability::Cached).expect("memory");
    let salvage = pair.damaged();
    assert_eq!(salvage.losses(), losses(&[], 2));
    assert_eq!(read(&salvage, 0, 9), [fill(1, 8), fill(3, 1)].concat());
}

#[test]
fn sectors_of_flash_that_cannot_be_read_are_as_damaged_ones() {
    for (sector, found) in [
        (8, losses(&[range(0, 4)], 0)),
        (15, losses(&[range(0, 4)], 0)),
        (RECORD + 2, losses(&[range(100, 8)], 0)),
        (2 * RECORD + 8, losses(&[range(4, 8)], 0)),
        // Whether there was a record nobody knows.
        (3 * RECORD, losses(&[], 1)),
    ] {
        let pair = three_records();
        let broken = Rule::on(Operation::Read, CallFault::Error(Errno::IO)).within(range(LOG_START.0 + sector, 1));
        let pair = pair.with_flash(Arc::new(faulty_copy_of(&pair.flash, broken)));
        let opened = pair.try_open(Options::default()).map(|_| ());
        assert!(matches!(opened, Err(HybridError::LogUnreadable { .. })), "a whole pair needs all of it");
        let salvage = pair.damaged();
        assert_eq!(salvage.losses(), found, "sector {sector}");
        assert_eq!(pair.checked().losses, found);
        if sector == RECORD + 2 {
            salvage.read(Lba(100), &mut fill(0, 1)).expect_err("it is lost");
        } else {
            assert_eq!(read(&salvage, 100, 8), fill(2, 8));
        }
    }
}

#[test]
fn what_an_opening_has_found_is_durable_and_later_damage_of_it_is_noticed() {
    let pair = three_records();
    drop(pair.open(by_hand(Algorithm::Whole)));
    pair.flip(2 * RECORD + 10, 300);
    let opened = pair.try_open(Options::default()).map(|_| ());
    assert!(matches!(opened, Err(HybridError::Corrupt { sequence: RecordNo(3), .. })), "{opened:?}");
}

#[test]
fn a_whole_pair_is_read_as_it_is() {
    let pair = three_records();
    let salvage = pair.damaged();
    assert!(salvage.damage().is_none());
    assert_eq!((salvage.losses(), salvage.geometry().capacity), (losses(&[], 0), Lba(1000)));
    assert_eq!(read(&salvage, 0, 13), [fill(1, 4), fill(9, 8), fill(3, 1)].concat());
}

#[test]
fn a_changed_disk_and_a_foreign_flash_are_not_salvaged() {
    let pair = three_records();
    let other = Pair::new(1000);
    let opened = DamagedPair::open(other.disk.clone(), pair.flash.clone()).map(|_| ());
    assert!(matches!(opened, Err(HybridError::ForeignDisk { .. })), "{opened:?}");
    pair.open(by_hand(Algorithm::Whole)).close().expect("it can be closed");
    pair.sleeping_disk.inner.write(Lba(2), &fill(7, 1), Durability::Cached).expect("memory");
    let opened = DamagedPair::open(pair.disk.clone(), pair.flash.clone()).map(|_| ());
    assert!(matches!(opened, Err(HybridError::Changed { .. })), "{opened:?}");
}

#[test]
fn taking_a_damaged_pair_apart_brings_what_is_whole_to_the_disk() {
    let pair = three_records();
    pair.open(by_hand(Algorithm::Whole)).close().expect("it can be closed");
    pair.flip(12, 300);
    let mut reported = Vec::new();
    pair.damaged()
        .detach(|done| {
            reported.push(done);
            true
        })
        .expect("the disk is well");
    assert_eq!(reported, [sectors(8), sectors(16)]);
    let plain = [fill(3, 4), fill(9, 8), fill(3, 88), fill(2, 8), fill(3, 892), fill(0, TAG_SECTORS)].concat();
    assert!(contents(&pair.disk) == plain, "the lost sectors are as they were before");
    assert!(matches!(check(&pair.disk, &pair.flash), Err(HybridError::Detached { .. })));
    refuse_occupied(&pair.disk, &pair.flash).expect("both are free again");
}

#[test]
fn taking_a_damaged_pair_apart_can_be_stopped_and_done_again() {
    let pair = three_records();
    pair.open(by_hand(Algorithm::Whole)).close().expect("it can be closed");
    pair.flip(12, 300);
    let stopped = pair.damaged().detach(|_| false);
    assert!(matches!(stopped, Err(HybridError::Stopped)), "{stopped:?}");
    let again = pair.damaged();
    assert_eq!(again.losses(), losses(&[range(0, 4)], 0));
    assert_eq!(read(&again, 4, 104), [fill(9, 8), fill(3, 88), fill(2, 8)].concat());
    again.detach(|_| true).expect("the disk is well");
    assert_eq!(read(&pair.sleeping_disk.inner, 0, 12), [fill(3, 4), fill(9, 8)].concat());
}

#[test]
fn a_flash_that_is_lost_for_good_is_forgotten_when_told_so() {
    let pair = three_records();
    forget_flash(&pair.disk).expect("it has a tag");
    assert_eq!(contents(&pair.disk), [fill(3, 1000), fill(0, TAG_SECTORS)].concat());
    assert!(matches!(pair.try_open(Options::default()).map(|_| ()), Err(HybridError::TagGone { .. })));
    assert!(free_flash(&pair.disk, &pair.flash).expect("it is of such a disk"));
    assert!(matches!(pair.try_open(Options::default()).map(|_| ()), Err(HybridError::Detached { .. })));
    assert!(matches!(forget_flash(&pair.disk), Err(HybridError::NoTag { .. })), "there is nothing to forget");
}
