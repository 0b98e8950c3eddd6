//! One damaged place anywhere in a pair that was killed, or is open: reads return what was flushed last or written
//! since, or the damage is reported.

use std::collections::BTreeMap;

use super::super::format::{BLOCK, BLOCK_BYTES, FlashSuperblock, Header};
use super::*;
use crate::testing::{fuzz_rounds, fuzz_seed};

/// Corruptions of each pair.
const EACH: u64 = 20;
/// Blocks of the disk.
const BLOCKS: u64 = 200;

/// A pair that was killed, and what each block may read as: what was flushed last, and what was written since.
struct Killed {
    pair: Pair,
    /// The bytes of its flash.
    flash: Vec<u8>,
    allowed: Vec<Vec<u8>>,
}

fn keep_last(allowed: &mut [Vec<u8>]) {
    for values in allowed {
        values.drain(..values.len() - 1);
    }
}

fn killed(seed: u64) -> Killed {
    let mut random = StdRng::seed_from_u64(seed);
    let pair = Pair::new(BLOCKS * BLOCK);
    let mut hybrid = pair.open(by_hand(Algorithm::Alg4));
    let mut allowed: Vec<Vec<u8>> = vec![vec![0]; BLOCKS as usize];
    for number in 1..random.random_range(20..120_u8) {
        let count = if random.random_bool(0.8) { 1 } else { random.random_range(1..30) };
        let first = random.random_range(0..BLOCKS - count);
        let written = range(first * BLOCK, count * BLOCK);
        let value = if random.random_bool(0.1) { 0 } else { number };
        let durability = if random.random_bool(0.1) { Durability::Through } else { Durability::Cached };
        match value {
            0 => hybrid.write_zeroes(written, Zeroes::Unmap, durability).expect("there is room"),
            _ => hybrid.write(written.start, &fill(value, written.sectors), durability).expect("there is room"),
        }
        allowed[first as usize..(first + count) as usize].iter_mut().for_each(|values| values.push(value));
        match random.random_range(0..20) {
            0 | 1 => hybrid.sleep().expect("it sleeps"),
            2 if number < 90 => hybrid.drain().expect("to the disk"),
            3 | 4 => {
                hybrid.flush().expect("it is flushed");
                keep_last(&mut allowed);
            }
            5 => {
                drop(hybrid);
                hybrid = pair.open(by_hand(Algorithm::Alg4));
            }
            _ => {}
        }
    }
    if random.random_bool(0.5) {
        hybrid.flush().expect("it is flushed");
        keep_last(&mut allowed);
    }
    drop(hybrid);
    Killed { flash: contents(&pair.flash), pair, allowed }
}

/// Where something lies, in bytes of its device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Structure {
    Superblock,
    DiskTag,
    Header,
    Mark,
    Data,
}

type Place = (Structure, std::ops::Range<usize>);

impl Killed {
    /// All that can be damaged but the last header of the log: nothing comes behind it that could say that it is
    /// missing.
    fn places(&self) -> Vec<Place> {
        let log = (LOG_START.0 * SECTOR_BYTES) as usize;
        let tags = (BLOCKS * BLOCK * SECTOR_BYTES) as usize;
        let mut places: Vec<Place> = [0, BLOCK_BYTES].map(|at| (Structure::Superblock, at..at + 512)).to_vec();
        places.extend([tags, tags + BLOCK_BYTES].map(|at| (Structure::DiskTag, at..at + 512)));
        let tail = FlashSuperblock::decode(&self.flash[..BLOCK_BYTES]).expect("it is whole").tail;
        // What lies before the tail, or was left over from before a crash, does not count.
        let counts = |header: &Header, at: usize| {
            header.at >= tail && (header.at.0 % LEAST_LOG * SECTOR_BYTES) as usize == at - log
        };
        let headers: Vec<(Header, usize)> = (log..self.flash.len())
            .step_by(BLOCK_BYTES)
            .filter_map(|at| Some((Header::decode(&self.flash[at..at + BLOCK_BYTES]).ok()?, at)))
            .filter(|(header, at)| counts(header, *at))
            .collect();
        let last = headers.iter().map(|(header, _)| header.sequence).max();
        for (header, at) in headers {
            let kind = if header.is_mark() { Structure::Mark } else { Structure::Header };
            if Some(header.sequence) != last {
                places.push((kind, at..at + BLOCK_BYTES));
            }
            if header.data() > 0 {
                let data = at + BLOCK_BYTES;
                places.push((Structure::Data, data..data + (header.data() * SECTOR_BYTES) as usize));
            }
        }
        places
    }

    /// Reads all of it; returns the number of refused blocks. A block that is read must be allowed, or reported.
    fn refused(&self, device: &dyn BlockDevice, reported: &Losses, label: &str) -> usize {
        let mut found = fill(0, BLOCK);
        let blocks = (0..).zip(&self.allowed).filter(|(block, values)| {
            let place = range(block * BLOCK, BLOCK);
            let read = device.read(place.start, &mut found);
            let is_reported = reported.unknown_records > 0 || reported.at_risk.iter().any(|lost| lost.overlaps(place));
            let is_allowed = values.iter().any(|value| found == fill(*value, BLOCK));
            assert!(
                read.is_err() || is_allowed || is_reported,
                "{label}: block {block} is wrong, and no error is reported"
            );
            read.is_err()
        });
        blocks.count()
    }
}

/// What came of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    /// It is not opened, nor skipped.
    Refused,
    /// It is refused, and `--salvage` continues with errors for what is lost.
    SkippedThenErrors,
    /// Blocks are errors.
    Errors,
    /// It is opened, and said to be lost perhaps.
    Reported,
    /// The other copy is used, and both are whole again.
    Repaired,
    /// Nothing that counts was there.
    Whole,
}

fn damage(half: &PairHalf, place: &Place, random: &mut StdRng) {
    let at = random.random_range(place.1.clone());
    let sector = Lba(at as u64 / SECTOR_BYTES);
    let mut bytes = read(&*half.device, sector.0, 1);
    // A bit, or a whole sector that was never written or written elsewhere.
    match random.random_range(0..4) {
        0 => bytes.fill(0),
        1 => bytes.fill(random.random()),
        _ => bytes[at % SECTOR_BYTES as usize] ^= 1 << random.random_range(0..8),
    }
    half.device.write(sector, &bytes, Durability::Cached).expect("memory");
}

/// Damage that is there when the pair is opened.
fn outcome_at_opening(killed: &Killed, pair: &Pair<Overlay>, structure: Structure, label: &str) -> Outcome {
    let report = check(&pair.disk, &pair.flash);
    if let Ok(hybrid) = pair.try_open(by_hand(Algorithm::Whole)) {
        let reported = hybrid.perhaps_lost().clone();
        assert_eq!(report.expect("check reads it").perhaps_lost, reported, "{label}");
        assert_eq!(killed.refused(&hybrid, &reported, label), 0, "{label}");
        hybrid.drain().unwrap_or_else(|error| panic!("{label}: {error}"));
        assert_eq!(killed.refused(&hybrid, &reported, label), 0, "{label}");
        drop(hybrid);
        let is_label = matches!(structure, Structure::Superblock | Structure::DiskTag);
        return if !reported.is_empty() {
            Outcome::Reported
        } else if is_label {
            Outcome::Repaired
        } else {
            Outcome::Whole
        };
    }
    assert!(report.map_or(true, |report| report.damage.is_some()), "{label}: check says nothing");
    let Ok(damaged) = DamagedPair::open(pair.disk.clone(), pair.flash.clone()) else { return Outcome::Refused };
    killed.refused(&damaged, &damaged.losses(), label);
    if !damaged.can_be_salvaged() {
        return Outcome::Refused;
    }
    damaged.salvage().unwrap_or_else(|error| panic!("{label}: {error}"));
    for _ in 0..2 {
        let hybrid = pair.open(by_hand(Algorithm::Whole));
        let lost = hybrid.lost().iter().map(|lost| lost.sectors).sum::<u64>();
        let refused = killed.refused(&hybrid, &Losses::default(), label) as u64;
        assert_eq!(refused * BLOCK, lost, "{label}");
        hybrid.drain().unwrap_or_else(|error| panic!("{label}: {error}"));
        killed.refused(&hybrid, &Losses::default(), label);
    }
    Outcome::SkippedThenErrors
}

/// Damage that comes while the pair is open.
fn outcome_while_open(killed: &Killed, pair: &Pair<Overlay>, hybrid: &Hybrid, label: &str) -> Outcome {
    let refused = killed.refused(hybrid, &Losses::default(), label);
    hybrid.sleep().expect("it sleeps");
    hybrid.drain().unwrap_or_else(|error| panic!("{label}: {error}"));
    let lost = |hybrid: &Hybrid| hybrid.lost().iter().map(|lost| lost.sectors).sum::<u64>();
    assert_eq!((hybrid.stats().log_used, lost(hybrid)), (ByteSize(0), refused as u64 * BLOCK), "{label}");
    assert_eq!(killed.refused(hybrid, &Losses::default(), label), refused, "{label}: damage went to the disk");
    assert_eq!(hybrid.stats().damaged_reads > 0, refused > 0, "{label}");
    assert_eq!(pair.sleeping_disk.disturbed(), 0, "{label}");
    let again = pair.open(by_hand(Algorithm::Whole));
    assert_eq!(killed.refused(&again, &Losses::default(), label), refused, "{label}: it is forgotten");
    if refused > 0 { Outcome::Errors } else { Outcome::Whole }
}

/// `UMBRELLA_FUZZ_ROUNDS`: a thousand times as many corruptions.
#[test]
fn one_damaged_place_in_a_pair_is_never_wrong_data_in_silence() {
    let (seed, count) = (fuzz_seed(), fuzz_rounds(600));
    println!("seed {seed}");
    let mut table: BTreeMap<(Structure, bool, Outcome), u64> = BTreeMap::new();
    for round in 0..count.div_ceil(EACH) {
        let seed_of_round = seed.wrapping_mul(1 << 20).wrapping_add(round);
        let killed = killed(seed_of_round);
        let places = killed.places();
        let mut random = StdRng::seed_from_u64(!seed_of_round);
        for number in 0..EACH {
            // Each structure as often as any other, as far as the pair has it.
            let kinds =
                [Structure::Superblock, Structure::DiskTag, Structure::Header, Structure::Mark, Structure::Data];
            let of = |kind: Structure| places.iter().filter(move |(structure, _)| *structure == kind);
            let kinds: Vec<Structure> = kinds.into_iter().filter(|kind| of(*kind).next().is_some()).collect();
            let wanted = kinds[number as usize % kinds.len()];
            let of_kind: Vec<&Place> = of(wanted).collect();
            let place = of_kind[random.random_range(0..of_kind.len())];
            let pair = killed.pair.copy();
            let half = if wanted == Structure::DiskTag { pair.disk.clone() } else { pair.flash.clone() };
            let is_open = random.random_bool(0.3);
            let label = format!("seed {seed}, round {round}, number {number}: {place:?}, open {is_open}");
            let outcome = if is_open {
                let hybrid = pair.open(by_hand(Algorithm::Alg2));
                damage(&half, place, &mut random);
                outcome_while_open(&killed, &pair, &hybrid, &label)
            } else {
                damage(&half, place, &mut random);
                outcome_at_opening(&killed, &pair, wanted, &label)
            };
            *table.entry((wanted, is_open, outcome)).or_default() += 1;
        }
    }
    for ((structure, is_open, outcome), count) in &table {
        let when = if *is_open { "while open" } else { "at opening" };
        println!("{:<12} {when:<12} {:<18} {count}", format!("{structure:?}"), format!("{outcome:?}"));
    }
    let has = |wanted: Outcome| table.keys().any(|(_, _, outcome)| *outcome == wanted);
    let all = [Outcome::SkippedThenErrors, Outcome::Errors, Outcome::Reported, Outcome::Repaired, Outcome::Whole];
    assert!(count < 300 || all.into_iter().all(has), "{table:?}");
}
