//! What a hybrid disk and a log store say of their holes: whatever is done to them, a hole reads as zeroes, and what
//! was never written is one.

use std::sync::Arc;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use umbrella_block::file::{FileDevice, OpenOptions};
use umbrella_block::hybrid::{self, Hybrid, PairHalf};
use umbrella_block::log_store::{self, CreateOptions, LogStore};
use umbrella_block::spindle::NoSpindle;
use umbrella_block::{Allocation, BlockDevice, Durability, Zeroes};
use umbrella_units::{Lba, SECTOR_BYTES, SectorRange};

const DISK: u64 = 48 << 20;
/// Where nothing is ever written, in sectors.
const NEVER: SectorRange = SectorRange { start: Lba(40_000), sectors: 16_000 };

fn file(folder: &tempfile::TempDir, name: &str, size: u64) -> Arc<dyn BlockDevice> {
    let path = folder.path().join(name);
    std::fs::File::create(&path).and_then(|file| file.set_len(size)).expect("a file");
    Arc::new(FileDevice::open(&path, OpenOptions::default()).expect("a device"))
}

/// All extents; they follow one another.
fn extents(device: &dyn BlockDevice) -> Vec<(SectorRange, Allocation)> {
    assert!(device.has_extents());
    let mut rest = SectorRange { start: Lba(0), sectors: device.geometry().capacity.0 };
    let mut found = Vec::new();
    while rest.sectors > 0 {
        let (extent, allocation) = device.first_extent(rest).expect("it can say");
        assert!(
            extent.start == rest.start && extent.sectors > 0 && extent.end() <= rest.end(),
            "{extent:?} of {rest:?}"
        );
        found.push((extent, allocation));
        rest = SectorRange::between(extent.end(), rest.end());
    }
    found
}

fn holes_are_zeroes(device: &dyn BlockDevice, when: &str) {
    for (extent, _) in extents(device).into_iter().filter(|(_, allocation)| *allocation == Allocation::Hole) {
        let mut data = vec![1; (extent.sectors * SECTOR_BYTES) as usize];
        device.read(extent.start, &mut data).expect("it can be read");
        assert!(data.iter().all(|byte| *byte == 0), "{when}: {extent:?} is no hole");
    }
    // All of it is a hole, in however many parts.
    let data = extents(device).into_iter().filter(|(_, allocation)| *allocation == Allocation::Data);
    let within: Vec<_> = data.filter(|(extent, _)| extent.start < NEVER.end() && NEVER.start < extent.end()).collect();
    assert!(within.is_empty(), "{when}: {within:?} was never written");
}

/// Writes, zeroes and forgets at random.
fn change(device: &dyn BlockDevice, dice: &mut ChaCha8Rng) {
    let sectors = dice.random_range(1..=256);
    let start = dice.random_range(0..NEVER.start.0 - sectors);
    let range = SectorRange { start: Lba(start), sectors };
    match dice.random_range(0..10) {
        0..6 => device.write(range.start, &vec![7; (sectors * SECTOR_BYTES) as usize], Durability::Cached),
        6..8 => device.write_zeroes(range, Zeroes::Unmap, Durability::Cached),
        8 => device.discard(range),
        _ => device.flush(),
    }
    .expect("nothing fails");
}

#[test]
fn holes_of_a_hybrid_disk_are_zeroes_before_and_after_it_is_drained() {
    let seed = 5;
    println!("seed {seed}");
    let (folder, mut dice) = (tempfile::tempdir().expect("a folder"), ChaCha8Rng::seed_from_u64(seed));
    let half = |name: &str, device| PairHalf { name: name.to_owned(), device };
    let disk = half("disk", file(&folder, "disk", DISK));
    let flash = half("flash", file(&folder, "flash", 16 << 20));
    hybrid::create(&disk, &flash).expect("they are joined");
    let hybrid = Hybrid::open(disk, flash, Arc::new(NoSpindle::default()), hybrid::Options::default(), None);
    let hybrid = hybrid.expect("it opens");
    holes_are_zeroes(&hybrid, "new");
    for round in 0..6 {
        for _ in 0..60 {
            change(&hybrid, &mut dice);
        }
        holes_are_zeroes(&hybrid, &format!("round {round}"));
        if round % 2 == 1 {
            hybrid.drain().expect("it is drained");
            holes_are_zeroes(&hybrid, &format!("round {round}, drained"));
        }
    }
    assert!(extents(&hybrid).iter().any(|(_, allocation)| *allocation == Allocation::Data));
    hybrid.close().expect("it closes");
}

#[test]
fn holes_of_a_log_store_are_zeroes_while_it_is_written_and_when_it_is_opened_again() {
    let seed = 6;
    println!("seed {seed}");
    let (folder, mut dice) = (tempfile::tempdir().expect("a folder"), ChaCha8Rng::seed_from_u64(seed));
    let disk = file(&folder, "disk", DISK);
    log_store::create(Arc::clone(&disk), "disk", &CreateOptions::default()).expect("it is made");
    let open = || {
        LogStore::open(Arc::clone(&disk), "disk", log_store::Options::default(), log_store::OpenMode::ReadWrite)
            .expect("it opens")
    };
    let mut store = open();
    assert_eq!(extents(&store).len(), 1, "an empty one is one hole");
    for round in 0..6 {
        for _ in 0..100 {
            change(&store, &mut dice);
        }
        holes_are_zeroes(&store, &format!("round {round}"));
        store.close().expect("it closes");
        store = open();
        holes_are_zeroes(&store, &format!("round {round}, opened again"));
    }
    assert!(extents(&store).iter().any(|(_, allocation)| *allocation == Allocation::Data));
    let beyond = SectorRange { start: store.geometry().capacity, sectors: 8 };
    assert!(store.first_extent(beyond).is_err());
    store.close().expect("it closes");
}
