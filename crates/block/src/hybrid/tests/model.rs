//! Any sequence of operations, held against an array.

use proptest::prelude::*;

use super::*;

const DISK: u64 = 3000;

#[derive(Debug, Clone)]
enum Op {
    Write { start: u64, sectors: u64, byte: u8, durability: Durability },
    Zero { start: u64, sectors: u64 },
    Discard { start: u64, sectors: u64 },
    Read { start: u64, sectors: u64 },
    Flush,
    Sleep,
    Wake,
    Drain,
    Reopen,
}

fn span() -> impl Strategy<Value = (u64, u64)> {
    let length = prop_oneof![4 => 1..20_u64, 3 => 1..600_u64, 1 => Just(DISK)];
    (0..DISK, length).prop_map(|(start, sectors)| (start, sectors.min(DISK - start)))
}

fn op() -> impl Strategy<Value = Op> {
    let through = prop_oneof![3 => Just(Durability::Cached), 1 => Just(Durability::Through)];
    prop_oneof![
        12 => (span(), 1..=255_u8, through).prop_map(|((start, sectors), byte, durability)| Op::Write { start, sectors, byte, durability }),
        2 => span().prop_map(|(start, sectors)| Op::Zero { start, sectors }),
        1 => span().prop_map(|(start, sectors)| Op::Discard { start, sectors }),
        4 => span().prop_map(|(start, sectors)| Op::Read { start, sectors }),
        1 => Just(Op::Flush),
        5 => Just(Op::Sleep),
        2 => Just(Op::Wake),
        1 => Just(Op::Drain),
        1 => Just(Op::Reopen),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]
    #[test]
    fn a_hybrid_disk_holds_what_an_array_holds(
        ops in prop::collection::vec(op(), 1..120),
        algorithm in prop::sample::select(Algorithm::ALL.to_vec()),
    ) {
        let pair = Pair::new(DISK);
        let mut hybrid = pair.open(by_hand(algorithm));
        let mut truth = fill(0, DISK);
        for op in ops {
            let span = |start: u64, sectors: u64| (start * 512) as usize..((start + sectors) * 512) as usize;
            match op {
                Op::Write { start, sectors, byte, durability } => {
                    hybrid.write(Lba(start), &fill(byte, sectors), durability)?;
                    truth[span(start, sectors)].fill(byte);
                }
                Op::Zero { start, sectors } => {
                    hybrid.write_zeroes(range(start, sectors), Zeroes::Keep, Durability::Cached)?;
                    truth[span(start, sectors)].fill(0);
                }
                // Memory keeps what is discarded.
                Op::Discard { start, sectors } => hybrid.discard(range(start, sectors))?,
                Op::Read { start, sectors } => prop_assert!(read(&hybrid, start, sectors) == truth[span(start, sectors)]),
                Op::Flush => hybrid.flush()?,
                Op::Sleep => hybrid.sleep()?,
                Op::Wake => hybrid.wake()?,
                Op::Drain => {
                    hybrid.drain()?;
                    prop_assert_eq!(hybrid.at_risk(), []);
                    prop_assert!(read(&pair.sleeping_disk.inner, 0, DISK) == truth);
                }
                Op::Reopen => {
                    drop(hybrid);
                    hybrid = pair.open(by_hand(algorithm));
                }
            }
        }
        prop_assert!(read(&hybrid, 0, DISK) == truth);
        drop(hybrid);
        hybrid = pair.open(by_hand(algorithm));
        prop_assert!(read(&hybrid, 0, DISK) == truth);
        hybrid.dissolve()?;
        prop_assert!(read(&pair.sleeping_disk.inner, 0, DISK) == truth);
        prop_assert_eq!(pair.sleeping_disk.disturbed(), 0);
    }
}

#[test]
fn halves_with_blocks_of_4_kib_are_read_and_written_in_such_blocks() {
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    for (seed, algorithm) in Algorithm::ALL.into_iter().enumerate() {
        let mut random = StdRng::seed_from_u64(seed as u64);
        let disk = Coarse(Memory::new(sectors(DISK / 8 * 8 + TAG_SECTORS)));
        let pair = Pair::created(disk, Arc::new(Coarse(flash_of(LEAST_LOG))));
        // Memory that is no multiple of a block.
        let hybrid = pair.open(Options { memory: ByteSize(70_001), ..by_hand(algorithm) });
        let mut truth = fill(0, DISK / 8 * 8);
        for _ in 0..200 {
            let block = random.random_range(0..DISK / 8);
            let blocks = random.random_range(1..=20).min(DISK / 8 - block);
            let bytes = block as usize * 4096..(block + blocks) as usize * 4096;
            let byte = random.random();
            match random.random_range(0..12) {
                0 => hybrid.drain().expect("it is drained"),
                1..4 => hybrid.sleep().expect("it sleeps"),
                4 => {
                    let zeroed = range(block * 8, blocks * 8);
                    hybrid.write_zeroes(zeroed, Zeroes::Keep, Durability::Cached).expect("it is zeroed");
                    truth[bytes].fill(0);
                }
                _ => {
                    hybrid.write(Lba(block * 8), &fill(byte, blocks * 8), Durability::Cached).expect("it is written");
                    truth[bytes].fill(byte);
                }
            }
        }
        assert!(read(&hybrid, 0, DISK / 8 * 8) == truth, "{algorithm}");
        hybrid.dissolve().expect("it can be detached");
        assert!(read(&pair.sleeping_disk.inner.0, 0, DISK / 8 * 8) == truth, "{algorithm}");
    }
}
