//! One damaged bit anywhere in a store that was killed: reads return what was flushed last or written since, or the
//! damage is reported.

use std::collections::BTreeMap;

use super::*;
use crate::log_store::format::{ChunkHeader, Superblock};
use crate::testing::{fuzz_rounds, fuzz_seed};

/// Bits that are damaged in each store.
const BITS: u64 = 20;

/// A store that was killed: its device, and what each block may read as: what was flushed last, and what was written
/// since.
struct Killed {
    device: Arc<dyn BlockDevice>,
    bytes: Vec<u8>,
    superblock: Superblock,
    allowed: Vec<Vec<u64>>,
}

fn killed(seed: u64) -> Killed {
    let mut random = StdRng::seed_from_u64(seed);
    let device = made(60, "r_lfs");
    let options = Options { checkpoint_every: ByteSize(random.random_range(1..8) << 18), ..by_hand() };
    let store = open(&device, options);
    let blocks = sectors_of(&store) / 8;
    let mut allowed: Vec<Vec<u64>> = vec![vec![0]; blocks as usize];
    let flushed = |allowed: &mut Vec<Vec<u64>>| {
        for values in allowed {
            values.drain(..values.len() - 1);
        }
    };
    for number in 1..random.random_range(2..1500_u64) {
        let block = random.random_range(0..blocks);
        match random.random_range(0..40) {
            0 => {
                store.flush().expect("memory does not fail");
                flushed(&mut allowed);
            }
            1 => {
                store.write(Lba(block * 8), &numbered(number), Durability::Through).expect("there is room");
                allowed[block as usize].push(number);
                flushed(&mut allowed);
            }
            2 => {
                let count = random.random_range(1..20).min(blocks - block);
                store
                    .write_zeroes(range(block * 8, count * 8), Zeroes::Unmap, Durability::Cached)
                    .expect("it is zeroed");
                (block..block + count).for_each(|block| allowed[block as usize].push(0));
            }
            _ => {
                put(&store, block, number);
                allowed[block as usize].push(number);
            }
        }
    }
    let superblock = store.shared.state.lock().core.superblock.clone();
    drop(store);
    Killed { bytes: bytes_of(&*device), device, superblock, allowed }
}

impl Killed {
    /// What lies in a block of the device.
    fn structure(&self, block: usize) -> &'static str {
        let bytes = &self.bytes[block * 4096..(block + 1) * 4096];
        match self.header(block) {
            Some(_) => "chunk header",
            None if bytes.iter().all(|&byte| byte == 0) => "nothing",
            None if bytes.chunks(8).all(|word| *word == bytes[..8]) => "data",
            None => "superblock, checkpoint or map page",
        }
    }

    fn header(&self, block: usize) -> Option<ChunkHeader> {
        let first = self.superblock.device_block(umbrella_policy::log_layout::LogBlock(0)).0 as usize;
        let place = umbrella_policy::log_layout::LogBlock(block.checked_sub(first)? as u64);
        ChunkHeader::parse(&self.bytes[block * 4096..(block + 1) * 4096], &self.superblock, place).ok()
    }
}

/// What came of a damaged bit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    Refused,
    Reported,
    Errors,
    Whole,
}

fn outcome(store: &Killed, at: usize, bit: usize, label: &str) -> Outcome {
    let device = copy_of(&store.device);
    flip_bit(&*device, at, bit);
    let report = try_check(&device, Depth::Structure);
    let Ok(opened) = try_open(&device, OpenMode::ReadWrite) else {
        let is_reported = report.map_or(true, |report| !report.problems.is_empty());
        assert!(is_reported, "{label}: check says nothing");
        return Outcome::Refused;
    };
    let losses = report.map_or_else(|_| Vec::new(), losses_of);
    let (mut errors, mut block) = (0, fill(0, 8));
    for (number, values) in (0..).zip(&store.allowed) {
        if opened.read(Lba(number * 8), &mut block).is_err() {
            errors += 1;
            continue;
        }
        let is_allowed = values.iter().any(|value| block == numbered(*value));
        let is_reported = losses.iter().any(|loss| loss.unknown > 0 || loss.has(BlockNo(number)));
        assert!(is_allowed || is_reported, "{label}: block {number} is wrong, and no error is reported");
    }
    match (errors, opened.stats().repaired.is_empty()) {
        (_, false) => Outcome::Reported,
        (0, true) => Outcome::Whole,
        _ => Outcome::Errors,
    }
}

/// `UMBRELLA_FUZZ_ROUNDS`: a thousand times as many bits as are damaged.
#[test]
fn one_damaged_bit_in_a_killed_store_is_never_wrong_data_in_silence() {
    let (seed, bits) = (fuzz_seed(), fuzz_rounds(600));
    let mut table: BTreeMap<(&str, Outcome), u64> = BTreeMap::new();
    for round in 0..bits.div_ceil(BITS) {
        let seed_of_round = seed.wrapping_mul(1 << 20).wrapping_add(round);
        let store = killed(seed_of_round);
        let mut random = StdRng::seed_from_u64(!seed_of_round);
        let used: Vec<usize> =
            (0..store.bytes.len() / 4096).filter(|block| store.structure(*block) != "nothing").collect();
        let metadata: Vec<usize> = used.iter().copied().filter(|block| store.structure(*block) != "data").collect();
        for _ in 0..BITS {
            let from = if random.random_bool(0.5) { &used } else { &metadata };
            let block = from[random.random_range(0..from.len())];
            let at = block * 4096 + random.random_range(0..4096);
            let label = format!("seed {seed}, round {round}, byte {at} ({})", store.structure(block));
            let outcome = outcome(&store, at, random.random_range(0..8), &label);
            *table.entry((store.structure(block), outcome)).or_default() += 1;
        }
    }
    println!("seed {seed}");
    for ((structure, outcome), count) in &table {
        println!("{structure:<36} {outcome:?} {count}");
    }
    let has = |wanted: Outcome| table.keys().any(|(_, outcome)| *outcome == wanted);
    let all = [Outcome::Refused, Outcome::Reported, Outcome::Errors, Outcome::Whole];
    assert!(bits < 300 || all.into_iter().all(has), "{table:?}");
}
