//! A read of the log returns what was written to it, or an error; and nothing else is copied to the disk.

use super::super::format::{BLOCK, MOST_LOST};
use super::*;
use crate::error::Operation;
use crate::fault::CallFault;
use crate::testing::fuzz_seed;

const DISK: u64 = 4000;

#[test]
fn data_that_changes_in_the_flash_is_an_error_and_whole_again_when_it_is_written() {
    let (pair, hybrid) = sleeping_pair(DISK);
    hybrid.write(Lba(0), &fill(1, 100), Durability::Through).expect("to the log");
    // A header, then the data: the fifth block of it.
    pair.flip(BLOCK + 4 * BLOCK + 3, 77);
    let refused = hybrid.read(Lba(35), &mut fill(0, 1)).expect_err("it is not what was written");
    assert!(matches!(refused, BlockError::Io { operation: Operation::Read, .. }), "{refused:?}");
    assert!(refused.to_string().contains("of the disk. Write these sectors again"), "{refused}");
    hybrid.read(Lba(0), &mut fill(0, 100)).expect_err("nor a part of a longer read");
    assert_eq!((read(&hybrid, 0, 32), read(&hybrid, 40, 60)), (fill(1, 32), fill(1, 60)));
    assert_eq!((hybrid.stats().damaged_reads, hybrid.stats().refuses_writes), (2, None));
    hybrid.write(Lba(32), &fill(2, 8), Durability::Cached).expect("to the log");
    assert_eq!(read(&hybrid, 0, 100), [fill(1, 32), fill(2, 8), fill(1, 60)].concat());
}

#[test]
fn a_drain_continues_around_damaged_blocks_which_are_lost_until_they_are_written_again() {
    for algorithm in Algorithm::ALL {
        let pair = Pair::new(DISK);
        let hybrid = pair.open(by_hand(algorithm));
        hybrid.write(Lba(0), &fill(9, DISK), Durability::Cached).expect("to the disk");
        hybrid.sleep().expect("it sleeps");
        for number in 0..20 {
            hybrid.write(Lba(100 * number), &fill(1, 24), Durability::Cached).expect("to the log");
        }
        pair.flip(32 * 7 + 2 * BLOCK, 5);
        hybrid.drain().expect("it continues around what is damaged");
        let (stats, damaged) = (hybrid.stats(), range(708, 8));
        assert_eq!((hybrid.lost(), stats.log_used, stats.damaged_reads), (vec![damaged], ByteSize(0), 1));
        assert_eq!((stats.drain_failure, stats.refuses_writes), (None, None));
        assert_eq!(
            read(&pair.sleeping_disk.inner, 700, 24),
            [fill(1, 8), fill(9, 8), fill(1, 8)].concat(),
            "{algorithm:?}"
        );
        assert_eq!(read(&pair.sleeping_disk.inner, 1900, 25), [fill(1, 24), fill(9, 1)].concat(), "{algorithm:?}");
        hybrid.read(Lba(700), &mut fill(0, 24)).expect_err("what the disk has there is old");
        drop(hybrid);
        let hybrid = pair.open(by_hand(algorithm));
        assert_eq!(hybrid.lost(), [damaged], "the flash says so");
        hybrid.write(Lba(708), &fill(2, 8), Durability::Cached).expect("to the log");
        assert_eq!(read(&hybrid, 700, 24), [fill(1, 8), fill(2, 8), fill(1, 8)].concat(), "{algorithm:?}");
        hybrid.drain().expect("nothing is wrong");
        assert_eq!((hybrid.at_risk(), hybrid.lost()), (vec![], vec![]));
        assert_eq!(
            read(&pair.sleeping_disk.inner, 700, 24),
            [fill(1, 8), fill(2, 8), fill(1, 8)].concat(),
            "{algorithm:?}"
        );
    }
}

#[test]
fn a_damaged_block_can_be_written_again_while_the_log_is_full() {
    let (pair, hybrid) = sleeping_pair(DISK);
    hybrid.write(Lba(0), &fill(1, 80), Durability::Cached).expect("to the log");
    pair.flip(BLOCK + 4 * BLOCK, 5);
    // A record takes two blocks, and two stay free for marks.
    while hybrid.stats().log_used.0 + (4 * BLOCK * SECTOR_BYTES) <= hybrid.stats().log_size.0 {
        hybrid.write(Lba(1000), &fill(3, 8), Durability::Cached).expect("to the log");
    }
    hybrid.write(Lba(32), &fill(2, 8), Durability::Through).expect("the log makes room");
    assert_eq!(read(&hybrid, 0, 80), [fill(1, 32), fill(2, 8), fill(1, 40)].concat());
    assert_eq!((hybrid.lost(), hybrid.stats().drains), (vec![], 1));
}

/// One superblock can list [`MOST_LOST`] ranges. A drain that finds one more leaves it in the log.
#[test]
fn a_drain_that_finds_more_damage_than_can_be_listed_leaves_it_in_the_log() {
    let (pair, hybrid) = sleeping_pair(DISK);
    for number in 0..=MOST_LOST as u64 {
        hybrid.write(Lba(16 * number), &fill(1, 8), Durability::Cached).expect("to the log");
        pair.flip(2 * BLOCK * number + BLOCK, 5);
    }
    let refused = hybrid.drain().expect_err("too many");
    assert!(matches!(refused, HybridError::Damaged { .. }), "{refused}");
    assert_eq!((hybrid.lost().len(), hybrid.at_risk().len()), (MOST_LOST, MOST_LOST + 1));
    hybrid.write(Lba(0), &fill(2, 8), Durability::Cached).expect("to the log");
    hybrid.drain().expect("there is room for the last one now");
    assert_eq!((hybrid.lost().len(), hybrid.at_risk()), (MOST_LOST, vec![]));
    let hybrid = pair.open(by_hand(Algorithm::Whole));
    assert_eq!((hybrid.lost().len(), read(&hybrid, 0, 8)), (MOST_LOST, fill(2, 8)));
}

#[test]
fn a_drain_around_damage_that_is_cut_off_at_any_superblock_leaves_the_damage_or_its_list() {
    let mut outcomes = (0, 0);
    for written in 0..12 {
        let pair = Pair::new(DISK);
        let cut =
            Rule::on(Operation::Write, CallFault::Error(rustix::io::Errno::IO)).within(range(0, 16)).from_nth(written);
        let pair = pair.with_flash(Arc::new(faulty_copy_of(&pair.flash, cut)));
        let Ok(hybrid) = pair.try_open(by_hand(Algorithm::Whole)) else { continue };
        hybrid.write(Lba(700), &fill(9, 24), Durability::Cached).expect("to the disk");
        let slept = hybrid.sleep();
        let logged = hybrid.write(Lba(700), &fill(1, 24), Durability::Through);
        // It says that the one before is certain.
        let logged = logged.and_then(|()| hybrid.write(Lba(900), &fill(1, 8), Durability::Through));
        if slept.and(logged.map_err(Into::into)).is_err() {
            continue;
        }
        pair.flip(2 * BLOCK, 5);
        let drained = hybrid.drain();
        drop(hybrid);
        let left = pair.with_flash(Arc::new(copy_of(&pair.flash)));
        match left.try_open(by_hand(Algorithm::Whole)) {
            Ok(hybrid) => assert_eq!(hybrid.lost(), [range(708, 8)], "{written}"),
            Err(error) => {
                assert!(drained.is_err() && matches!(error, HybridError::Corrupt { .. }), "{written}: {error}");
                assert_eq!(left.damaged().losses().at_risk, [range(708, 8)], "{written}");
            }
        }
        let counted = if drained.is_ok() { &mut outcomes.0 } else { &mut outcomes.1 };
        *counted += 1;
    }
    assert!(outcomes.0 > 0 && outcomes.1 > 0, "{outcomes:?}");
}

/// Records of any length, in this opening or an earlier one, also such that share blocks of the log.
#[test]
fn of_flipped_bytes_anywhere_in_the_log_none_is_served() {
    let seed = fuzz_seed();
    let mut random = StdRng::seed_from_u64(seed);
    let (mut refused, mut served) = (0, 0);
    for round in 0..60 {
        let pair = Pair::new(DISK);
        let mut hybrid = pair.asleep();
        let mut truth = vec![0_u8; DISK as usize];
        for number in 1..60_u8 {
            let (at, sectors) = (random.random_range(0..DISK - 70), random.random_range(1..70));
            hybrid.write(Lba(at), &fill(number, sectors), Durability::Cached).expect("to the log");
            truth[at as usize..(at + sectors) as usize].fill(number);
            if number == 30 {
                hybrid.close().expect("it ends");
                hybrid = pair.asleep();
            }
        }
        let used = hybrid.stats().log_used.0 / SECTOR_BYTES;
        for _ in 0..10 {
            pair.flip(random.random_range(0..used), random.random_range(0..512));
        }
        for (sector, value) in (0..).zip(&truth) {
            let mut found = fill(0xee, 1);
            if hybrid.read(Lba(sector), &mut found).is_err() {
                refused += 1;
                continue;
            }
            served += 1;
            assert!(found == fill(*value, 1), "seed {seed}, round {round}: sector {sector} is wrong, and was served");
        }
        assert_eq!(hybrid.stats().refuses_writes, None, "seed {seed}, round {round}");
    }
    println!("seed {seed}: {refused} refused, {served} served");
    assert!(refused > 0 && served > refused);
}

#[test]
fn a_damaged_pair_that_is_only_read_is_compared_too() {
    let (pair, hybrid) = sleeping_pair(DISK);
    hybrid.write(Lba(0), &fill(1, 16), Durability::Through).expect("to the log");
    hybrid.close().expect("it ends");
    let damaged = pair.damaged();
    pair.flip(BLOCK, 0);
    damaged.read(Lba(0), &mut fill(0, 8)).expect_err("it has changed since");
    assert_eq!(read(&damaged, 8, 8), fill(1, 8));
}

#[test]
fn a_scrub_reads_what_only_the_flash_has_and_leaves_the_disk_asleep() {
    let (pair, hybrid) = sleeping_pair(DISK);
    hybrid.write(Lba(0), &fill(1, 100), Durability::Through).expect("to the log");
    hybrid.write(Lba(1000), &fill(2, 900), Durability::Through).expect("to the log");
    hybrid.write_zeroes(range(3000, 100), Zeroes::Unmap, Durability::Through).expect("to the log");
    pair.flip(BLOCK + 4 * BLOCK + 3, 77);
    let (mut scrubbing, mut buffer) = (crate::scrub::Scrubbing::default(), crate::scrub::Buffer::default());
    while scrubbing.step(&hybrid, &mut buffer).is_some() {}
    assert_eq!(scrubbing.damaged, [range(32, 8)]);
    assert_eq!(scrubbing.read.0, 1000 * SECTOR_BYTES);
    assert_eq!(hybrid.stats().disk, Motion::Asleep);
}
