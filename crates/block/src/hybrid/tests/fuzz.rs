//! Images that nobody wrote: damaged at random, also where the checksums are right.
//!
//! UMBRELLA_FUZZ_SECONDS says for how long (default 5), UMBRELLA_FUZZ_SEED repeats a run.

use std::time::{Duration, Instant};

use super::*;
use crate::testing::{fuzz_seed, setting};

/// A pair with a few records, as the bytes of its halves.
fn images() -> [Vec<u8>; 2] {
    let (pair, hybrid) = sleeping_pair(600);
    for number in 0..6 {
        hybrid
            .write(Lba(90 * number), &fill(number as u8 + 1, 5 + 10 * number), Durability::Cached)
            .expect("to the log");
        hybrid.write_zeroes(range(90 * number, 2), Zeroes::Unmap, Durability::Through).expect("to the log");
    }
    drop(hybrid);
    [contents(&pair.disk), contents(&pair.flash)]
}

/// Changes something; often a number of a label or header, and often with the right checksum after it.
fn damage(image: &mut [u8], structures: &[(usize, usize)], random: &mut StdRng) {
    let (start, len) = structures[random.random_range(0..structures.len())];
    let bytes = &mut image[start..start + len];
    match random.random_range(0..4) {
        0 => bytes[random.random_range(0..len)] = random.random(),
        1 => {
            let at = random.random_range(0..len / 8) * 8;
            let number: u64 = match random.random_range(0..5) {
                0 => 0,
                1 => u64::MAX,
                2 => random.random_range(0..1 << 14),
                3 => 1 << random.random_range(0..64),
                _ => random.random(),
            };
            bytes[at..at + 8].copy_from_slice(&number.to_le_bytes());
        }
        2 => {
            let at = random.random_range(0..len / 4) * 4;
            bytes[at..at + 4].copy_from_slice(&random.random_range(0..200_u32).to_le_bytes());
        }
        _ => bytes.fill(random.random()),
    }
    if random.random_bool(0.8) {
        format::correct_checksum(bytes, len);
    }
}

#[test]
fn any_image_is_opened_or_refused() {
    let seed = fuzz_seed();
    let seconds = setting("UMBRELLA_FUZZ_SECONDS").unwrap_or(5);
    println!("UMBRELLA_FUZZ_SEED={seed}");
    let images = images();
    let log = (LOG_START.0 * 512) as usize;
    // Records of zeroes take 8 sectors, the others 8 and their data filled up to 8.
    let mut headers = Vec::new();
    let mut at = 0;
    for number in 0..6_usize {
        headers.push((log + at, 4096));
        at += 4096 + (5 + 10 * number).next_multiple_of(8) * 512;
        headers.push((log + at, 4096));
        at += 4096;
    }
    let mut on_flash = vec![(0, 512), (4096, 512)];
    on_flash.extend(headers);
    let on_disk = [(600 * 512, 512), (608 * 512, 512)];
    let mut random = StdRng::seed_from_u64(seed);
    let until = Instant::now() + Duration::from_secs(seconds);
    let (mut rounds, mut opened, mut skipped) = (0_u32, 0_u32, 0_u32);
    while Instant::now() < until || rounds < 50 {
        let [mut disk, mut flash] = images.clone();
        for _ in 0..random.random_range(1..4) {
            if random.random_bool(0.2) {
                damage(&mut disk, &on_disk, &mut random);
            } else {
                damage(&mut flash, &on_flash, &mut random);
            }
        }
        let pair = Pair::of(Memory::from_bytes(disk), Arc::new(Memory::from_bytes(flash)));
        let _ = check(&pair.disk, &pair.flash);
        let _ = refuse_occupied(&pair.disk, &pair.flash);
        let salvage = DamagedPair::open(pair.disk.clone(), pair.flash.clone());
        let lost = salvage.as_ref().map(|salvage| (salvage.damage().is_some(), salvage.losses()));
        if let Ok(salvage) = &salvage {
            let mut whole = fill(0, salvage.geometry().capacity.0);
            let read = salvage.read(Lba(0), &mut whole);
            let lost = salvage.losses().at_risk;
            assert_eq!(read.is_ok(), lost.is_empty(), "seed {seed}, round {rounds}: {lost:?}");
        }
        if let Ok(hybrid) = pair.try_open(by_hand(Algorithm::Alg4)) {
            opened += 1;
            let reported = !hybrid.perhaps_lost().is_empty();
            assert!(matches!(lost, Ok((false, lost)) if reported || lost.is_empty()), "seed {seed}, round {rounds}");
            let mut whole = fill(0, hybrid.geometry().capacity.0);
            let _ = hybrid.read(Lba(0), &mut whole);
            let _ = hybrid.sleep();
            let _ = hybrid.write(Lba(3), &fill(1, 40), Durability::Through);
            let _ = hybrid.dissolve();
        } else if let Ok(damaged) = salvage {
            if damaged.damage().is_some() && damaged.can_be_salvaged() {
                let lost = damaged.losses().at_risk;
                damaged.salvage().unwrap_or_else(|error| panic!("seed {seed}, round {rounds}: {error}"));
                let opened = pair.try_open(by_hand(Algorithm::Alg4));
                let hybrid = opened.unwrap_or_else(|error| panic!("seed {seed}, round {rounds}: {error}"));
                assert_eq!(hybrid.lost(), lost, "seed {seed}, round {rounds}");
                skipped += 1;
            } else {
                let _ = damaged.detach(|_| true);
            }
        }
        rounds += 1;
    }
    println!("seed {seed}: {rounds} images, {opened} opened, {skipped} without what is lost");
    assert!(opened > 0 && opened < rounds);
}
