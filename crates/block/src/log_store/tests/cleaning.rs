//! The cost of cleaning: how much is read for the blocks that are moved. With segments of 1 MiB, reading only a part
//! can be worth it.

use std::sync::Mutex;
use std::time::Duration;

use super::*;
use crate::device::Geometry;
use crate::error::BlockError;

/// A device that notes what is read.
pub(super) struct Counting {
    inner: Memory,
    rotational: bool,
    /// How long a read takes.
    pause: Duration,
    pub(super) reads: Mutex<Vec<Lba>>,
}

impl BlockDevice for Counting {
    crate::forward!(inner: write, flush, discard, write_zeroes);

    fn geometry(&self) -> Geometry {
        Geometry { rotational: self.rotational, ..self.inner.geometry() }
    }

    fn read(&self, at: Lba, buffer: &mut [u8]) -> Result<(), BlockError> {
        self.reads.lock().expect("nobody panics").push(at);
        std::thread::sleep(self.pause);
        self.inner.read(at, buffer)
    }
}

pub(super) fn large(mebibytes: u64, rotational: bool) -> Arc<Counting> {
    let inner = Memory::new(ByteSize(mebibytes << 20));
    let disk = Arc::new(Counting { inner, rotational, pause: Duration::ZERO, reads: Mutex::default() });
    let options = CreateOptions { segment: Some(ByteSize(1 << 20)), ..CreateOptions::default() };
    create(disk.clone(), "disk", &options).expect("it can be made");
    disk
}

/// What the cleaner read and moved, in blocks, and with how many requests at most.
#[derive(Debug)]
struct Cost {
    read: u64,
    moved: u64,
    requests: u64,
}

impl Cost {
    /// The cost of filling `used` hundredths of a store, and then writing `count` blocks again, nine of ten of them in
    /// the first tenth.
    fn of_hot_and_cold(used: u64, count: u64) -> Cost {
        Cost::of_hot_and_cold_on(&large(256, false), used, count)
    }

    fn of_hot_and_cold_on(disk: &Arc<Counting>, used: u64, count: u64) -> Cost {
        let device: Arc<dyn BlockDevice> = disk.clone();
        let store = open(&device, Options { checkpoint_every: ByteSize(32 << 20), ..by_hand() });
        let blocks = sectors_of(&store) / 8 * used / 100;
        let write = |block: u64, round: u64| put(&store, block, round << 32 | block);
        (0..blocks).for_each(|block| write(block, 0));
        let cost = || {
            let stats = store.stats();
            let [read, moved] = [stats.cleaner_read.0, stats.copied.0 + stats.map_written.0].map(|bytes| bytes / 4096);
            Cost { read, moved, requests: disk.reads.lock().expect("nobody panics").len() as u64 }
        };
        let before = cost();
        let mut random = StdRng::seed_from_u64(7);
        for round in 0..count {
            let of = if random.random_range(0..10) < 9 { 0..blocks / 10 } else { blocks / 10..blocks };
            write(random.random_range(of), round);
        }
        let after = cost();
        assert_eq!(store.stats().damaged_segments, 0, "what was moved had not been read");
        Cost {
            read: after.read - before.read,
            moved: after.moved - before.moved,
            requests: after.requests - before.requests,
        }
    }
}

#[test]
fn where_little_is_live_little_is_read() {
    let cost = Cost::of_hot_and_cold(60, 100_000);
    assert!(cost.read <= cost.moved * 4, "{cost:?}");
    assert!(cost.read >= cost.requests * 6, "requests are small: {cost:?}");
}

#[test]
fn a_store_that_is_85_percent_full_reads_little_more_than_twice_what_it_moves() {
    let cost = Cost::of_hot_and_cold(85, 100_000);
    assert!(cost.read * 10 <= cost.moved * 24, "{cost:?}");
    assert!(cost.read >= cost.requests * 30, "requests are small: {cost:?}");
}

#[test]
fn of_a_disk_that_rotates_each_victim_is_one_request() {
    let cost = Cost::of_hot_and_cold_on(&large(256, true), 60, 60_000);
    assert!(cost.read >= cost.requests * 250, "{cost:?}");
}

#[test]
fn what_is_read_while_others_write_is_cleaned() {
    // Meanwhile, writes change which victim is best.
    let disk =
        Counting { pause: Duration::from_millis(3), ..Arc::into_inner(large(256, true)).expect("nobody else has it") };
    let device: Arc<dyn BlockDevice> = Arc::new(disk);
    let store = open(&device, Options::default());
    let blocks = sectors_of(&store) / 8 * 8 / 10;
    std::thread::scope(|scope| {
        for part in 0..4 {
            let store = &store;
            scope.spawn(move || {
                let mut random = StdRng::seed_from_u64(part);
                for round in 0..40_000 {
                    let block = random.random_range(0..blocks / 4) * 4 + part;
                    store.write(Lba(block * 8), &numbered(round), Durability::Cached).expect("there is room");
                }
            });
        }
    });
    let stats = store.stats();
    let [read, cleaned] = [stats.cleaner_read.0 / 4096, stats.segments_cleaned * 256];
    assert!(read <= cleaned + cleaned / 20, "{read} blocks were read for segments of {cleaned}");
}

#[test]
fn what_was_written_at_random_is_read_on_one_way_over_the_disk() {
    let disk = large(48, true);
    let device: Arc<dyn BlockDevice> = disk.clone();
    let store = open(&device, by_hand());
    let mut blocks: Vec<u64> = (0..2048).collect();
    rand::seq::SliceRandom::shuffle(blocks.as_mut_slice(), &mut StdRng::seed_from_u64(3));
    for block in blocks {
        put(&store, block, block);
    }
    store.flush().expect("memory does not fail");
    disk.reads.lock().expect("nobody panics").clear();
    let got = read(&store, 512 * 8, 256 * 8);
    assert!(got == (512..768).flat_map(numbered).collect::<Vec<_>>());
    let reads = disk.reads.lock().expect("nobody panics");
    assert!(reads.len() > 20, "{} reads", reads.len());
    assert!(reads.is_sorted(), "{reads:?}");
}

/// Runs of random length are written and discarded; what is read is right all the time, and after a crash.
fn all_is_kept(options: Options, seed: u64) {
    let device: Arc<dyn BlockDevice> = large(48, false);
    let store = open(&device, options);
    let blocks = sectors_of(&store) / 8;
    let mut random = StdRng::seed_from_u64(seed);
    let mut holds = vec![None; blocks as usize];
    for round in 1..12_000_u64 {
        let first = random.random_range(0..blocks);
        let run = first..blocks.min(first + random.random_range(1..40));
        let is_discarded = random.random_range(0..8) == 0;
        if is_discarded {
            store.discard(range(run.start * 8, (run.end - run.start) * 8)).expect("it is discarded");
        }
        for block in run {
            if !is_discarded {
                let data = numbered(round << 32 | block);
                store.write(Lba(block * 8), &data, Durability::Cached).expect("there is room");
            }
            holds[block as usize] = (!is_discarded).then_some(round << 32 | block);
        }
    }
    let is_right = |store: &LogStore| {
        for (block, held) in (0..).zip(&holds) {
            assert!(read(store, block * 8, 8) == held.map_or(fill(0, 8), numbered), "block {block}");
        }
    };
    is_right(&store);
    store.flush().expect("memory does not fail");
    let stats = store.stats();
    assert_eq!(stats.damaged_segments, 0);
    assert!(stats.victims[0] + stats.victims[1] > 5, "little was ever live: {stats:?}");
    drop(store);
    is_right(&open(&device, by_hand()));
    assert_whole(&device);
}

#[test]
fn what_is_moved_from_a_segment_that_is_read_in_parts_is_what_was_written() {
    all_is_kept(by_hand(), 1);
    all_is_kept(Options { map_memory: ByteSize(1), ..by_hand() }, 2);
    all_is_kept(Options { quiet: std::time::Duration::ZERO, ..Options::default() }, 3);
}

#[test]
fn a_segment_whose_second_header_is_damaged_is_left_as_it_is() {
    let device: Arc<dyn BlockDevice> = large(48, false);
    let store = open(&device, by_hand());
    let blocks = fill_up(&store);
    store.checkpoint().expect("there is room");
    let (segment, at) = {
        let mut state = store.shared.state.lock();
        let entry = state.core.map.get(umbrella_units::BlockNo(1000)).expect("it is in memory").expect("it is mapped");
        let segment = state.core.layout.shape().segment(entry.place);
        let start = state.core.layout.shape().place(segment, super::super::buffer::CHUNK_BLOCKS);
        (segment, state.core.superblock.device_block(start))
    };
    device.write(Lba(at.0 * 8), &fill(0x77, 1), Durability::Cached).expect("memory takes it");
    // All but the last blocks of each segment.
    let last_ones: Vec<u64> = {
        let mut state = store.shared.state.lock();
        let shape = state.core.layout.shape();
        let slot = |block: u64| {
            let entry = state.core.map.get(umbrella_units::BlockNo(block)).ok().flatten().expect("it is mapped");
            shape.slot(entry.place)
        };
        let slots: Vec<u32> = (0..blocks).map(slot).collect();
        (0..blocks).filter(|block| slots[*block as usize] > 245).collect()
    };
    (0..blocks).filter(|block| !last_ones.contains(block)).for_each(|block| put(&store, block, block));
    while store.stats().damaged_segments == 0 {
        assert!(reclaim_once(&store));
    }
    assert_eq!(store.shared.state.lock().damaged, [segment]);
    for block in 0..blocks {
        assert!(read(&store, block * 8, 8) == numbered(block), "block {block}");
    }
}
