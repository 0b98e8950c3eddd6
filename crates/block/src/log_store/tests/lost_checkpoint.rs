//! The newest checkpoint is gone: its header is empty, or is the former one, as on a disk that loses a write. Data
//! flushed since is found in the log, or reported as lost.

use super::*;
use crate::log_store::format::Superblock;

/// What became of the newest checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Gone {
    /// Its header is empty.
    Zeroed,
    /// Its header was never written.
    HeaderNotWritten,
    /// Nothing of it was.
    NothingWritten,
}

const ALL: [Gone; 3] = [Gone::Zeroed, Gone::HeaderNotWritten, Gone::NothingWritten];

/// Where the area of the newest checkpoint lies, in bytes.
fn newest_area(bytes: &[u8], superblock: &Superblock) -> std::ops::Range<usize> {
    let areas = areas(superblock).into_iter().zip(superblock.areas);
    let (at, area) = areas.max_by_key(|(at, _)| checkpoint_number(bytes, superblock, *at)).expect("there are two");
    at..at + area.segments as usize * SEGMENT as usize
}

/// A device whose newest checkpoint is gone; `before` is what the device held before it was written.
fn without_newest(bytes: &[u8], before: &[u8], gone: Gone) -> Arc<dyn BlockDevice> {
    let mut bytes = bytes.to_vec();
    let area = newest_area(&bytes, &superblock(&bytes));
    let header = area.start..area.start + 4096;
    match gone {
        Gone::Zeroed => bytes[header].fill(0),
        Gone::HeaderNotWritten => bytes[header.clone()].copy_from_slice(&before[header]),
        Gone::NothingWritten => bytes[area.clone()].copy_from_slice(&before[area]),
    }
    Arc::new(Memory::from_bytes(bytes))
}

/// What a store comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    /// It is served with all that was flushed.
    Whole,
    /// It is not served until the lost data is given up, and a check says so.
    Reported,
}

fn outcome(device: &Arc<dyn BlockDevice>, held: &[u8], label: &str) -> Outcome {
    let checked = try_check(device, Depth::Data);
    let losses = |report: &CheckReport| report.problems.iter().filter(|it| matches!(it, Problem::Loss(_))).count();
    match try_open(device, OpenMode::ReadWrite) {
        Ok(store) => {
            let report = checked.unwrap_or_else(|error| panic!("{label}: it is served, and the check says {error}"));
            assert!(read(&store, 0, sectors_of(&store)) == held, "{label}: flushed data is gone in silence");
            assert_eq!(losses(&report), 0, "{label}: {:?}", report.problems);
            drop(store);
            let again = try_check(device, Depth::Data).expect("it was opened");
            assert_eq!(again.problem_count, 0, "{label}: {:?}", again.problems);
            let store = open(device, by_hand());
            assert!(
                read(&store, 0, sectors_of(&store)) == held,
                "{label}: flushed data is gone when it is opened again"
            );
            Outcome::Whole
        }
        Err(error) => {
            println!("{label}: {error}");
            assert!(checked.map_or(true, |report| report.problem_count > 0), "{label}: the check is silent of {error}");
            assert!(
                matches!(error, LogStoreError::FlushedLost { .. } | LogStoreError::Doubtful { .. }),
                "{label}: {error}"
            );
            Outcome::Reported
        }
    }
}

#[test]
fn what_was_flushed_after_an_opening_whose_checkpoint_is_gone_is_there() {
    for closed_before in [false, true] {
        let device = made(80, "r_lfs");
        if closed_before {
            let store = open(&device, by_hand());
            store.write(Lba(8), &numbered(7), Durability::Through).expect("there is room");
            store.close().expect("it can be closed");
        }
        let before = bytes_of(&*device);
        let store = open(&device, by_hand());
        for block in 2..40 {
            store.write(Lba(block * 8), &numbered(block), Durability::Through).expect("there is room");
        }
        let held = read(&store, 0, sectors_of(&store));
        drop(store);
        for gone in ALL {
            let device = without_newest(&bytes_of(&*device), &before, gone);
            assert_eq!(outcome(&device, &held, &format!("{gone:?}, {closed_before}")), Outcome::Whole);
        }
    }
}

#[test]
fn a_discard_after_an_opening_whose_checkpoint_is_gone_is_not_forgotten() {
    let (device, store) = opened(80);
    store.write(Lba(8), &numbered(7), Durability::Through).expect("there is room");
    store.close().expect("it can be closed");
    let before = bytes_of(&*device);
    let store = open(&device, by_hand());
    store.write_zeroes(range(8, 8), Zeroes::Unmap, Durability::Through).expect("it is zeroed");
    let held = read(&store, 0, sectors_of(&store));
    drop(store);
    for gone in ALL {
        let device = without_newest(&bytes_of(&*device), &before, gone);
        assert_eq!(outcome(&device, &held, &format!("{gone:?}")), Outcome::Whole);
    }
}

#[test]
fn what_was_flushed_around_a_checkpoint_that_is_gone_is_there_or_reported() {
    let mut seen = std::collections::BTreeMap::new();
    for (seed, more) in (0..12).flat_map(|seed| [0, 5, 40, 200, 700].map(|more| (seed, more))) {
        let device = made(60, "r_lfs");
        let store = open(&device, Options { checkpoint_every: ByteSize(1 << 30), ..by_hand() });
        let blocks = sectors_of(&store) / 8;
        let mut random = StdRng::seed_from_u64(seed);
        let mut write = |count| write_at_random(&store, &mut random, count);
        write(blocks * 2);
        store.checkpoint().expect("there is room");
        write(100 + seed * 20);
        let before = bytes_of(&*device);
        store.checkpoint().expect("there is room");
        let checkpoints = store.stats().checkpoints;
        write(more);
        let held = read(&store, 0, blocks * 8);
        // Only then is it known what the areas held before.
        let is_newest = store.stats().checkpoints == checkpoints;
        drop(store);
        for gone in ALL.into_iter().filter(|_| is_newest) {
            let device = without_newest(&bytes_of(&*device), &before, gone);
            let outcome = outcome(&device, &held, &format!("seed {seed}, {more} more, {gone:?}"));
            *seen.entry((gone as u8, outcome)).or_insert(0) += 1;
        }
    }
    println!("{seen:?}");
    for gone in ALL {
        assert!(seen.contains_key(&(gone as u8, Outcome::Whole)), "{gone:?} is never repaired: {seen:?}");
        assert!(seen.contains_key(&(gone as u8, Outcome::Reported)), "{gone:?} never costs anything: {seen:?}");
    }
}
