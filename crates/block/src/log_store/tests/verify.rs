//! What is read is what was written, or an error: whatever was damaged meanwhile, and wherever.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::error::BlockError;

/// A store that was filled and written over at random, and closed: its device, and what each block holds.
fn closed(seed: u64) -> (Arc<dyn BlockDevice>, Vec<u64>) {
    let (device, store) = opened(60);
    let blocks = sectors_of(&store) / 8;
    let mut random = StdRng::seed_from_u64(seed);
    let mut truth: Vec<u64> = (1..=blocks).collect();
    let write = |block: u64, number| put(&store, block, number);
    (0..blocks).for_each(|block| write(block, block + 1));
    for number in blocks + 1..blocks * 2 {
        let block = random.random_range(0..blocks);
        write(block, number);
        truth[block as usize] = number;
    }
    store.close().expect("it can be closed");
    (device, truth)
}

/// Reads all of a store; how many blocks were refused. What is read must be right.
fn assert_right(store: &LogStore, truth: &[u64], label: &str) -> usize {
    let mut block = fill(0, 8);
    let refused = truth.iter().enumerate().filter(|(number, truth)| {
        let read = store.read(Lba(*number as u64 * 8), &mut block);
        assert!(read.is_err() || block == numbered(**truth), "{label}: block {number} is wrong, and was served");
        read.is_err()
    });
    refused.count()
}

#[test]
fn one_flipped_byte_anywhere_in_a_closed_store_is_refused_mended_or_an_error_but_never_wrong_data() {
    let (whole, truth) = closed(1);
    let mut random = StdRng::seed_from_u64(2);
    let (mut not_opened, mut repaired, mut refused) = (0, 0, 0);
    for block in [0, 256].into_iter().chain(512..sectors_of(&*whole) as usize / 8) {
        let at = block * 4096 + random.random_range(0..4096);
        let device = copy_of(&whole);
        flip_bit(&*device, at, random.random_range(0..8));
        let Ok(store) = try_open(&device, OpenMode::ReadWrite) else {
            not_opened += 1;
            continue;
        };
        match assert_right(&store, &truth, &format!("byte {at}")) {
            0 => repaired += 1,
            _ => refused += 1,
        }
    }
    println!("{not_opened} not opened, {repaired} not touched or repaired, {refused} with blocks that were refused");
    assert!(not_opened < 4 && refused > 300 && repaired > 100, "{not_opened}, {repaired}, {refused}");
}

#[test]
fn a_block_that_changes_while_the_store_is_used_is_refused_and_whole_again_when_it_is_written() {
    let (device, store) = opened(60);
    store.write(Lba(0), &fill(1, 800), Durability::Through).expect("there is room");
    flip(&*device, byte_of(&store, 50) + 1000);
    let error = store.read(Lba(400), &mut fill(0, 8)).expect_err("it is not what was written");
    assert!(error.to_string().contains("block 50 of the store"), "{error}");
    assert!(matches!(error, BlockError::Io { .. }), "{error:?}");
    store.read(Lba(0), &mut fill(0, 800)).expect_err("nor a part of a longer read");
    assert_eq!((read(&store, 0, 400), read(&store, 408, 392)), (fill(1, 400), fill(1, 392)));
    assert_eq!(store.stats().damaged_reads, 2);
    let refused = store.write(Lba(401), &fill(2, 2), Durability::Through);
    refused.expect_err("the rest of the block would pass for what was written");
    store.write(Lba(400), &fill(2, 8), Durability::Through).expect("it is written as a whole");
    assert_eq!(read(&store, 400, 8), fill(2, 8));
}

#[test]
fn a_write_that_the_disk_lost_is_noticed() {
    let (device, store) = opened(60);
    (0..100).for_each(|block| put(&store, block, block));
    store.close().expect("it can be closed");
    let store = open(&device, by_hand());
    assert_eq!(read(&store, 0, 8), numbered(0));
    // What another block of the same chunk holds is there in the place of it.
    let (from, to) = (byte_of(&store, 3) as u64 / 512, byte_of(&store, 4) as u64 / 512);
    drop(store);
    let other = read(&*device, from, 8);
    device.write(Lba(to), &other, Durability::Through).expect("memory takes it");
    let store = open(&device, by_hand());
    store.read(Lba(32), &mut fill(0, 8)).expect_err("it is another block");
    assert_eq!(read(&store, 24, 8), numbered(3));
}

#[test]
fn blocks_behind_a_damaged_header_are_refused_until_they_are_written() {
    let (device, store) = opened(60);
    store.write(Lba(0), &fill(1, 96), Durability::Through).expect("there is room");
    store.write(Lba(800), &fill(2, 8), Durability::Through).expect("there is room");
    let header = byte_of(&store, 0) - 4096;
    store.close().expect("it can be closed");
    flip(&*device, header + 99);
    let store = open(&device, by_hand());
    let error = store.read(Lba(0), &mut fill(0, 8)).expect_err("its checksum is gone");
    assert!(error.to_string().contains("its checksum is damaged"), "{error}");
    assert_eq!(read(&store, 800, 8), fill(2, 8));
    store.write(Lba(0), &fill(3, 96), Durability::Through).expect("there is room");
    assert_eq!(read(&store, 0, 96), fill(3, 96));
}

#[test]
fn with_little_memory_all_is_read_and_compared_too() {
    let (device, truth) = closed(7);
    let store = open(&device, Options { map_memory: ByteSize(4096), ..by_hand() });
    for round in 0..3 {
        assert_eq!(assert_right(&store, &truth, &format!("round {round}")), 0);
    }
    let places: Vec<usize> = (0..truth.len() as u64).step_by(97).map(|block| byte_of(&store, block)).collect();
    for at in &places {
        flip(&*device, at + 5);
    }
    assert_eq!(assert_right(&store, &truth, "damaged"), places.len());
}

/// A device that counts how often it is read.
struct CountsReads(Arc<dyn BlockDevice>, Arc<AtomicUsize>);

impl BlockDevice for CountsReads {
    crate::forward!(0: geometry, write, flush, discard, write_zeroes);

    fn read(&self, at: Lba, buffer: &mut [u8]) -> Result<(), BlockError> {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.read(at, buffer)
    }
}

#[test]
fn each_header_is_read_once_however_its_blocks_are_read() {
    // Chunks of 31 blocks, eight of them in a segment; of 6, which are too many to follow. At the end of a segment is a
    // short one.
    for in_chunk in [30, 5] {
        let device: Arc<dyn BlockDevice> = Arc::new(Memory::new(ByteSize(64 << 20)));
        let options = CreateOptions { segment: Some(ByteSize(1 << 20)), ..small("r_lfs") };
        create(Arc::clone(&device), "disk", &options).expect("it can be made");
        let (store, headers) = (open(&device, by_hand()), 1200 / in_chunk as usize + 2 * 6);
        for first in (0..1200).step_by(in_chunk as usize) {
            let data: Vec<u8> = (first..first + in_chunk).flat_map(numbered).collect();
            store.write(Lba(first * 8), &data, Durability::Through).expect("there is room");
        }
        store.close().expect("it can be closed");
        let reads = Arc::new(AtomicUsize::new(0));
        let device: Arc<dyn BlockDevice> = Arc::new(CountsReads(device, Arc::clone(&reads)));
        let store = open(&device, by_hand());
        let before = reads.load(Ordering::Relaxed);
        for block in (0..1200).rev() {
            assert!(read(&store, block * 8, 8) == numbered(block), "block {block}");
        }
        let reads = reads.load(Ordering::Relaxed) - before - 1200;
        assert!(reads <= headers, "{reads} reads beside those of blocks, for {headers} headers");
    }
}

#[test]
fn a_scrub_names_the_damaged_blocks_and_continues_where_it_was() {
    let (device, truth) = closed(3);
    let store = open(&device, by_hand());
    let blocks = truth.len() as u64;
    store.discard(range(80, 80)).expect("it can be");
    for block in [5, 6, 40, blocks - 1] {
        assert_eq!(read(&store, block * 8, 8), numbered(truth[block as usize]));
        let place = byte_of(&store, block);
        flip(&*device, place + 100);
    }
    let (mut scrubbing, mut buffer) = (crate::scrub::Scrubbing::default(), crate::scrub::Buffer::default());
    assert!(scrubbing.step(&store, &mut buffer).is_some());
    // As it is kept while the daemon is away.
    let kept = serde_json::to_string(&scrubbing).expect("it can be written");
    let mut scrubbing: crate::scrub::Scrubbing = serde_json::from_str(&kept).expect("and read");
    while scrubbing.step(&store, &mut buffer).is_some() {}
    assert_eq!(scrubbing.damaged, [range(40, 16), range(320, 8), range((blocks - 1) * 8, 8)]);
    assert_eq!(scrubbing.read.0, (blocks - 10) * 4096);
}

#[test]
fn a_scrub_leaves_a_store_idle() {
    let store = open(&closed(3).0, by_hand());
    let last_access = || store.shared.state.lock().last_access;
    let (before, reads) = (last_access(), store.stats().reads);
    let (mut scrubbing, mut buffer) = (crate::scrub::Scrubbing::default(), crate::scrub::Buffer::default());
    while scrubbing.step(&store, &mut buffer).is_some() {}
    assert!(scrubbing.read.0 > 0);
    assert_eq!((last_access(), store.stats().reads), (before, reads));
    read(&store, 0, 8);
    assert_ne!(last_access(), before);
}

#[test]
fn problems_of_adjacent_blocks_take_one_line() {
    let damaged = |block| Problem::Damaged(BlockNo(block), format::LogBlock(block + 70));
    let rebuilt = |page| Problem::RebuiltPage(umbrella_policy::log_layout::MapPage(page));
    let problems: Vec<_> = (17..=391).map(damaged).chain([damaged(400)]).chain((3..5).map(rebuilt)).collect();
    let problems: Vec<_> = problems.iter().collect();
    let lines = Problem::lines(&problems);
    let counts: Vec<_> = lines.iter().map(|(count, _)| *count).collect();
    assert_eq!(counts, [375, 1, 2]);
    assert_eq!(lines[0].1, "blocks 17-391 are not what was written");
    assert_eq!(lines[1].1, "block 400 at 470 is not what was written");
    assert!(lines[2].1.starts_with("pages 3-4 of the map are damaged"), "{}", lines[2].1);
}
