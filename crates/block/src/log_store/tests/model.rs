//! Any sequence of operations, held against an array.

use proptest::prelude::*;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::*;

#[derive(Debug, Clone)]
enum Op {
    Write {
        start: u64,
        sectors: u64,
        byte: u8,
        durability: Durability,
    },
    Zero {
        start: u64,
        sectors: u64,
        durability: Durability,
    },
    Discard {
        start: u64,
        sectors: u64,
    },
    Read {
        start: u64,
        sectors: u64,
    },
    Flush,
    Checkpoint,
    Close,
    /// Without closing it.
    Drop,
}

fn span() -> impl Strategy<Value = (u64, u64)> {
    let start = prop_oneof![3 => any::<u64>(), 2 => (0..2000_u64).prop_map(|block| block * 8)];
    let length = prop_oneof![4 => 1..20_u64, 4 => (1..40_u64).prop_map(|blocks| blocks * 8), 2 => 1..900_u64, 1 => Just(u64::MAX)];
    (start, length)
}

fn op() -> impl Strategy<Value = Op> {
    let through = || prop_oneof![3 => Just(Durability::Cached), 1 => Just(Durability::Through)];
    prop_oneof![
        14 => (span(), 1..=255_u8, through()).prop_map(|((start, sectors), byte, durability)| Op::Write { start, sectors, byte, durability }),
        2 => (span(), through()).prop_map(|((start, sectors), durability)| Op::Zero { start, sectors, durability }),
        2 => span().prop_map(|(start, sectors)| Op::Discard { start, sectors }),
        4 => span().prop_map(|(start, sectors)| Op::Read { start, sectors }),
        2 => Just(Op::Flush),
        1 => Just(Op::Checkpoint),
        1 => Just(Op::Close),
        1 => Just(Op::Drop),
    ]
}

fn a_scheme() -> impl Strategy<Value = &'static str> {
    let names: Vec<&'static str> = umbrella_policy::log_layout::schemes_for_disks().map(|info| info.name).collect();
    prop::sample::select(names)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]
    #[test]
    fn a_log_store_holds_what_an_array_holds(
        ops in prop::collection::vec(op(), 1..100),
        scheme in a_scheme(),
        threads in any::<bool>(),
        little_memory in any::<bool>(),
    ) {
        let device = made(90, scheme);
        let map_memory = if little_memory { ByteSize(1) } else { ByteSize(1 << 20) };
        let options = Options { threads, map_memory, checkpoint_every: ByteSize(2 << 20), ..Options::default() };
        let mut store = open(&device, options);
        let size = sectors_of(&store);
        let mut truth = fill(0, size);
        for op in ops {
            let clip = |start: u64, sectors: u64| (start % size, sectors.min(size - start % size));
            let span = |start: u64, sectors: u64| (start * 512) as usize..((start + sectors) * 512) as usize;
            match op {
                Op::Write { start, sectors, byte, durability } => {
                    let (start, sectors) = clip(start, sectors);
                    store.write(Lba(start), &fill(byte, sectors), durability)?;
                    truth[span(start, sectors)].fill(byte);
                }
                Op::Zero { start, sectors, durability } => {
                    let (start, sectors) = clip(start, sectors);
                    store.write_zeroes(range(start, sectors), Zeroes::Unmap, durability)?;
                    truth[span(start, sectors)].fill(0);
                }
                Op::Discard { start, sectors } => {
                    let (start, sectors) = clip(start, sectors);
                    store.discard(range(start, sectors))?;
                    let (first, end) = (start.div_ceil(8), (start + sectors) / 8);
                    if first < end {
                        truth[span(first * 8, (end - first) * 8)].fill(0);
                    }
                }
                Op::Read { start, sectors } => {
                    let (start, sectors) = clip(start, sectors);
                    prop_assert!(read(&store, start, sectors) == truth[span(start, sectors)]);
                }
                Op::Flush => store.flush()?,
                Op::Checkpoint => store.checkpoint()?,
                Op::Close => {
                    store.close()?;
                    store = open(&device, options);
                }
                Op::Drop => {
                    store.flush()?;
                    drop(store);
                    store = open(&device, options);
                }
            }
        }
        prop_assert!(read(&store, 0, size) == truth);
        store.close()?;
        store = open(&device, options);
        prop_assert!(read(&store, 0, size) == truth);
    }
}

#[test]
fn a_store_full_to_the_promised_size_takes_ten_random_rewrites_of_all() {
    for scheme in umbrella_policy::log_layout::schemes_for_disks() {
        for threads in [false, true] {
            let device = made(120, scheme.name);
            let store = open(&device, Options { threads, checkpoint_every: ByteSize(2 << 20), ..Options::default() });
            let blocks = sectors_of(&store) / 8;
            let mut random = StdRng::seed_from_u64(7);
            let mut truth = vec![0_u32; blocks as usize];
            let mut written = Vec::new();
            for number in 1..=10 * blocks as u32 {
                let block =
                    if u64::from(number) <= blocks { u64::from(number) - 1 } else { random.random_range(0..blocks) };
                store.write(Lba(block * 8), &content(number), Durability::Cached).expect("there is room");
                truth[block as usize] = number;
                if [2, 6, 10].contains(&(u64::from(number) / blocks)) && u64::from(number).is_multiple_of(blocks) {
                    written.push(store.stats().write_amplification * f64::from(number));
                }
            }
            for (block, number) in truth.iter().enumerate() {
                assert!(read(&store, block as u64 * 8, 8) == content(*number), "block {block} with {}", scheme.name);
            }
            // Later rewrites cost no more than earlier ones.
            let [filled, half, all] = written[..] else { panic!("three times of ten") };
            let (early, late) = (half - filled, all - half);
            println!("{} {threads}: {early:.0}, then {late:.0}", scheme.name);
            assert!(late < 1.25 * early, "{early} and then {late} blocks with {}", scheme.name);
            store.close().expect("it can be closed");
        }
    }
}

#[test]
fn cleaning_after_many_flushes_reads_each_segment_about_once() {
    // Segments of 1 MiB with chunks of two blocks.
    let device: Arc<dyn BlockDevice> = Arc::new(Memory::new(ByteSize(64 << 20)));
    let options = CreateOptions { segment: Some(ByteSize(1 << 20)), ..small("r_lfs") };
    create(Arc::clone(&device), "disk", &options).expect("it can be made");
    let store = open(&device, by_hand());
    let blocks = sectors_of(&store) / 16;
    let mut random = StdRng::seed_from_u64(3);
    for _ in 0..4 * blocks {
        let at = random.random_range(0..blocks) * 8;
        store.write(Lba(at), &fill(7, 8), Durability::Through).expect("there is room");
    }
    let stats = store.stats();
    assert!(stats.segments_cleaned > 20, "{stats:?}");
    assert!(stats.cleaner_read.0 <= stats.segments_cleaned * stats.segment.0 * 3 / 2, "{stats:?}");
}

#[test]
fn the_map_keeps_to_its_memory_and_is_right() {
    for threads in [false, true] {
        // 76 pages of map. At most 32 are in memory: the least with segments of 16 blocks.
        let device = made(2600, "r_lfs");
        let options = Options { threads, map_memory: ByteSize(1), ..Options::default() };
        let store = open(&device, options);
        let blocks = sectors_of(&store) / 8;
        let mut random = StdRng::seed_from_u64(5);
        let mut truth = vec![0_u32; blocks as usize];
        let mut most = 0;
        for number in 1..=blocks as u32 + 6000 {
            let block =
                if u64::from(number) <= blocks { u64::from(number) - 1 } else { random.random_range(0..blocks) };
            store.write(Lba(block * 8), &content(number), Durability::Cached).expect("there is room");
            truth[block as usize] = number;
            if number % 500 == 0 {
                most = most.max(store.stats().map_memory.0 / 4096);
            }
        }
        for (block, number) in truth.iter().enumerate() {
            assert!(read(&store, block as u64 * 8, 8) == content(*number), "block {block}");
        }
        let stats = store.stats();
        assert!(stats.map_reads > 100 && stats.segments_cleaned > 100, "{stats:?}");
        assert!(most <= 40, "{most} pages in memory");
        store.close().expect("it can be closed");
        assert_whole(&device);
    }
}
