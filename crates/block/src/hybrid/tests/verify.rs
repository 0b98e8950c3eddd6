//! What is read of the log is what was written to it, or an error; and nothing else is brought to the disk.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::super::format::BLOCK;
use super::*;
use crate::error::Operation;

const DISK: u64 = 4000;

fn asleep(pair: &Pair, algorithm: Algorithm) -> Hybrid {
    let hybrid = pair.open(by_hand(algorithm));
    hybrid.sleep().expect("it sleeps");
    hybrid
}

/// Turns over a bit of a sector of the log.
fn flip(pair: &Pair, sector: u64, byte: usize) {
    let at = Lba(LOG_START.0 + sector);
    let mut bytes = read(&*pair.flash.device, at.0, 1);
    bytes[byte] ^= 16;
    pair.flash.device.write(at, &bytes, Durability::Cached).expect("memory");
}

#[test]
fn data_that_changes_in_the_flash_is_an_error_and_whole_again_when_it_is_written() {
    let pair = Pair::new(DISK);
    let hybrid = asleep(&pair, Algorithm::Whole);
    hybrid.write(Lba(0), &fill(1, 100), Durability::Through).expect("to the log");
    // A header, then the data: the fifth block of it.
    flip(&pair, BLOCK + 4 * BLOCK + 3, 77);
    let refused = hybrid.read(Lba(35), &mut fill(0, 1)).expect_err("it is not what was written");
    assert!(matches!(refused, BlockError::Io { operation: Operation::Read, .. }), "{refused:?}");
    assert!(refused.to_string().contains("its copy is damaged. Write these sectors again"), "{refused}");
    hybrid.read(Lba(0), &mut fill(0, 100)).expect_err("nor a part of a longer read");
    assert_eq!((read(&hybrid, 0, 32), read(&hybrid, 40, 60)), (fill(1, 32), fill(1, 60)));
    assert_eq!((hybrid.stats().damaged_reads, hybrid.stats().refuses_writes), (2, None));
    hybrid.write(Lba(32), &fill(2, 8), Durability::Cached).expect("to the log");
    assert_eq!(read(&hybrid, 0, 100), [fill(1, 32), fill(2, 8), fill(1, 60)].concat());
}

#[test]
fn damaged_data_is_not_brought_to_the_disk_and_what_replaces_it_is() {
    for algorithm in [Algorithm::Alg1, Algorithm::Alg2, Algorithm::Alg3, Algorithm::Alg4, Algorithm::Whole] {
        let pair = Pair::new(DISK);
        let hybrid = pair.open(by_hand(algorithm));
        hybrid.write(Lba(0), &fill(9, DISK), Durability::Cached).expect("to the disk");
        hybrid.sleep().expect("it sleeps");
        for number in 0..20 {
            hybrid.write(Lba(100 * number), &fill(1, 24), Durability::Cached).expect("to the log");
        }
        flip(&pair, 32 * 7 + 2 * BLOCK, 5);
        let refused = hybrid.drain().expect_err("the flash does not have what was written");
        assert!(refused.to_string().contains("its copy is damaged"), "{refused}");
        assert!(hybrid.stats().drain_failure.is_some() && hybrid.stats().refuses_writes.is_none());
        let on_disk = read(&pair.bed.inner, 700, 24);
        assert!(on_disk[8 * 512..16 * 512] == fill(9, 8), "{algorithm:?}: the disk has what it had");
        hybrid.read(Lba(708), &mut fill(0, 8)).expect_err("it is still kept, and still damaged");
        hybrid.write(Lba(708), &fill(2, 8), Durability::Cached).expect("to the log");
        hybrid.drain().expect("what is damaged is not needed any more");
        assert_eq!((hybrid.at_risk(), hybrid.stats().drain_failure), (vec![], None));
        assert_eq!(read(&pair.bed.inner, 700, 24), [fill(1, 8), fill(2, 8), fill(1, 8)].concat(), "{algorithm:?}");
        assert_eq!(read(&pair.bed.inner, 1900, 25), [fill(1, 24), fill(9, 1)].concat(), "{algorithm:?}");
    }
}

/// Records of any length, in this opening or an earlier one, also such that share blocks of the log.
#[test]
fn of_flipped_bytes_anywhere_in_the_log_none_is_served() {
    let seed: u64 = std::env::var("UMBRELLA_FUZZ_SEED")
        .map_or_else(|_| rand::rng().random(), |seed| seed.parse().expect("a number"));
    let mut random = StdRng::seed_from_u64(seed);
    let (mut refused, mut served) = (0, 0);
    for round in 0..60 {
        let pair = Pair::new(DISK);
        let mut hybrid = asleep(&pair, Algorithm::Whole);
        let mut truth = vec![0_u8; DISK as usize];
        for number in 1..60_u8 {
            let (at, sectors) = (random.random_range(0..DISK - 70), random.random_range(1..70));
            hybrid.write(Lba(at), &fill(number, sectors), Durability::Cached).expect("to the log");
            truth[at as usize..(at + sectors) as usize].fill(number);
            if number == 30 {
                hybrid.close().expect("it ends");
                hybrid = asleep(&pair, Algorithm::Whole);
            }
        }
        let used = hybrid.stats().log_used.0 / SECTOR_BYTES;
        for _ in 0..10 {
            flip(&pair, random.random_range(0..used), random.random_range(0..512));
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
    let pair = Pair::new(DISK);
    let hybrid = asleep(&pair, Algorithm::Whole);
    hybrid.write(Lba(0), &fill(1, 16), Durability::Through).expect("to the log");
    hybrid.close().expect("it ends");
    let damaged = DamagedPair::open(pair.disk.clone(), pair.flash.clone()).expect("it is a pair");
    flip(&pair, BLOCK, 0);
    damaged.read(Lba(0), &mut fill(0, 8)).expect_err("it has changed since");
    assert_eq!(read(&damaged, 8, 8), fill(1, 8));
}

#[test]
fn a_scrub_reads_what_only_the_flash_has_and_leaves_the_disk_asleep() {
    let pair = Pair::new(DISK);
    let hybrid = asleep(&pair, Algorithm::Whole);
    hybrid.write(Lba(0), &fill(1, 100), Durability::Through).expect("to the log");
    hybrid.write(Lba(1000), &fill(2, 900), Durability::Through).expect("to the log");
    hybrid
        .write_zeroes(SectorRange { start: Lba(3000), sectors: 100 }, Zeroes::Unmap, Durability::Through)
        .expect("to the log");
    flip(&pair, BLOCK + 4 * BLOCK + 3, 77);
    let (mut scrubbing, mut buffer) = (crate::scrub::Scrubbing::default(), crate::scrub::Buffer::default());
    while scrubbing.step(&hybrid, &mut buffer).is_some() {}
    assert_eq!(scrubbing.damaged, [SectorRange { start: Lba(32), sectors: 8 }]);
    assert_eq!(scrubbing.read.0, 1000 * SECTOR_BYTES);
    assert_eq!(hybrid.stats().disk, Motion::Asleep);
}
