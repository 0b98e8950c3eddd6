use umbrella_units::SplitMix64;

use super::*;
use crate::device::profiles::{Options, profile};
use crate::device::testing::{random, run, sequential};

const CHUNK: u64 = 128;

fn array() -> Raid5 {
    let disk = profile("cheetah_10k7").unwrap();
    Raid5::new((0..5).map(|_| disk.build(&Options::default())).collect(), ByteSize(64 << 10))
}

/// Reads and writes of the members for one request.
fn parts(lba: u64, sectors: u32) -> (u64, u64) {
    let mut array = array();
    run(&mut array, [(Op::Write, Lba(lba), sectors)], 1);
    (array.stats().reads, array.stats().writes)
}

#[test]
fn a_small_write_is_two_reads_and_two_writes() {
    assert_eq!(parts(0, 8), (2, 2));
    assert_eq!(parts(5 * CHUNK + 16, 64), (2, 2));
}

#[test]
fn a_full_stripe_is_written_without_reading() {
    assert_eq!(parts(0, 4 * CHUNK as u32), (0, 5));
    // Two stripes: adjacent parts of one disk are one request.
    assert_eq!(parts(0, 8 * CHUNK as u32).0, 0);
}

#[test]
fn a_write_of_most_of_a_stripe_reads_what_it_leaves() {
    // Three chunks of four: reading the fourth is cheaper than four reads.
    assert_eq!(parts(0, 3 * CHUNK as u32), (1, 4));
    // Two of four: reconstructing takes two reads, modifying three.
    assert_eq!(parts(0, 2 * CHUNK as u32), (2, 3));
}

#[test]
fn data_and_parity_lie_on_different_disks_and_parity_rotates() {
    let array = array();
    for stripe in 0..20 {
        let mut disks: Vec<usize> = (0..4).map(|index| array.data_disk(stripe, index)).collect();
        disks.push(array.parity_disk(stripe));
        disks.sort_unstable();
        assert_eq!(disks, [0, 1, 2, 3, 4]);
    }
    // Left-symmetric: parity on the last disk first, data from the first disk on.
    assert_eq!((array.parity_disk(0), array.data_disk(0, 0)), (4, 0));
    assert_eq!((array.parity_disk(1), array.data_disk(1, 0)), (3, 4));
}

#[test]
fn no_two_addresses_share_a_sector_of_a_disk() {
    let array = array();
    let mut seen = std::collections::BTreeSet::new();
    for chunk in 0..200 {
        let parts = array.plan_read(chunk * CHUNK, (chunk + 1) * CHUNK);
        assert_eq!(parts.len(), 1);
        assert!(seen.insert((parts[0].disk, parts[0].start)));
        let stripe = chunk / 4;
        assert!(!seen.contains(&(array.parity_disk(stripe), stripe * CHUNK)));
    }
}

#[test]
fn a_write_touches_its_data_and_one_parity_a_stripe() {
    let array = array();
    let mut numbers = SplitMix64::new(1);
    for _ in 0..2000 {
        let (start, sectors) = (numbers.below(1 << 20), numbers.below(3000) + 1);
        let (_, writes) = array.plan_write(start, start + sectors);
        let written: u64 = writes.iter().map(|part| part.end - part.start).sum();
        let stripes = (start + sectors - 1) / (4 * CHUNK) - start / (4 * CHUNK) + 1;
        assert!(written > sectors && written <= sectors + stripes * CHUNK, "{start} {sectors}");
    }
}

#[test]
fn long_reads_use_all_disks() {
    let (mut array, mut disk) = (array(), profile("cheetah_10k7").unwrap().build(&Options::default()));
    let together = run(&mut array, sequential(Op::Read, 64, Lba(0), 2048), 8).1;
    let alone = run(&mut *disk, sequential(Op::Read, 64, Lba(0), 2048), 8).1;
    assert!(alone.as_secs_f64() / together.as_secs_f64() > 2.5, "{alone} {together}");
}

#[test]
fn a_small_random_write_takes_longer_than_on_one_disk() {
    let (mut array, mut disk) = (array(), profile("cheetah_10k7").unwrap().build(&Options::default()));
    let requests = random(Op::Write, 500, disk.capacity(), 2);
    let together = run(&mut array, requests.clone(), 1).1;
    let alone = run(&mut *disk, requests, 1).1;
    assert!(together > alone, "{alone} {together}");
}
