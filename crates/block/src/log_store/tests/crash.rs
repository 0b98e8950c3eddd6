//! A power cut at every moment, in every state that it can leave; see [`crate::record`] for the rules.

use std::collections::BTreeMap;
use std::fmt;

use proptest::prelude::ProptestConfig;

use super::*;
use crate::log_store::format::{ChunkHeader, LogBlock, Superblock};
use crate::record::{Bounds, CheckError, CrashStates, DeviceNo, Discarded, Journal, Medium, Recorder, Recording, Step};
use crate::testing::setting;

const ON_DISK: DeviceNo = DeviceNo(0);
const STORE: DeviceNo = DeviceNo(1);

/// What the disk and the store did, all in one order.
pub(super) struct Scene {
    journal: Arc<Journal>,
    pub(super) disk: Arc<dyn BlockDevice>,
    initial: Arc<dyn BlockDevice>,
}

impl Scene {
    /// Begins with what a device holds, which must not change any more.
    pub(super) fn new(initial: Arc<dyn BlockDevice>) -> Scene {
        let journal = Journal::new();
        let recorder = Recorder::new(Overlay::new(Arc::clone(&initial)), ON_DISK, Arc::clone(&journal));
        Scene { journal, disk: Arc::new(recorder), initial }
    }

    pub(super) fn open(&self) -> Recorder<LogStore> {
        Recorder::new(open(&self.disk, by_hand()), STORE, Arc::clone(&self.journal))
    }

    pub(super) fn states(&self, bounds: Bounds) -> CrashStates {
        CrashStates::new(self.journal.recording(), [(ON_DISK, Arc::clone(&self.initial))], bounds)
    }
}

/// Opens what a power cut left, without a trace.
fn reopen(devices: &[Overlay]) -> Result<LogStore, LogStoreError> {
    let [disk] = devices else { panic!("one disk") };
    LogStore::open(Arc::new(disk.fork()), "disk", by_hand(), OpenMode::ReadWrite)
}

/// Random work on a store that is nearly full, so that it has to clean.
pub(super) fn work(store: &Recorder<LogStore>, random: &mut StdRng, operations: u32) {
    let blocks = sectors_of(store) / 8;
    for _ in 0..operations {
        let hot = random.random_bool(0.5);
        let block = if hot { random.random_range(0..blocks / 8) } else { random.random_range(0..blocks) };
        let count = random.random_range(1..=12).min(blocks - block);
        let durability = if random.random_bool(0.1) { Durability::Through } else { Durability::Cached };
        let all = range(block * 8, count * 8);
        match random.random_range(0..24) {
            0..16 => {
                let data: Vec<u8> = (0..count * 8).flat_map(|_| fill(random.random(), 1)).collect();
                store.write(all.start, &data, durability).expect("it is written");
            }
            16 => store.write(Lba(block * 8 + 3), &fill(random.random(), 2), durability).expect("a part is written"),
            17 => store.write_zeroes(all, Zeroes::Unmap, durability).expect("it is zeroed"),
            18 => store.discard(all).expect("it is discarded"),
            19 => store.inner().checkpoint().expect("it is noted"),
            _ => store.flush().expect("it is flushed"),
        }
    }
}

/// Checks all states of the scene; returns how many there were. What the store held before is `before`.
fn check_states(scene: &Scene, before: Vec<u8>, bounds: Bounds, label: &str) -> usize {
    let recording = scene.journal.recording();
    let sectors = before.len() as u64 / SECTOR_BYTES;
    let expected = Medium::new(STORE, Arc::new(Memory::from_bytes(before)), Discarded::Zeroed);
    let mut count = 0;
    check_crash_states(&recording, scene.states(bounds), expected, |state, expected| {
        count += 1;
        if count % 5 == 0 {
            assert_no_problem(
                &(Arc::new(state.devices[0].fork()) as Arc<dyn BlockDevice>),
                &format!("{label}: {state}"),
            );
        }
        let store = reopen(&state.devices).unwrap_or_else(|error| panic!("{label}: {state}: {error}"));
        if let Err(error) = expected.check(&recording, &store, range(0, sectors)) {
            panic!("{label}: {state}: {error}");
        }
    })
}

/// A check finds nothing but a copy of the superblock that was being written.
fn assert_no_problem(device: &Arc<dyn BlockDevice>, label: &str) {
    let report = try_check(device, Depth::Data).unwrap_or_else(|error| panic!("{label}: {error}"));
    let problems: Vec<_> = report.problems.iter().filter(|problem| !is_expected(problem)).collect();
    assert!(problems.is_empty(), "{label}: {problems:?}");
}

pub(super) fn bounds(seed: u64) -> Bounds {
    Bounds { whole: 3, torn: 8, sampled: 10, seed, discarded: Discarded::Kept }
}

/// The device of a store that was filled, and the contents of the store.
pub(super) fn filled(segments: u64, scheme: &str, seed: u64) -> (Arc<dyn BlockDevice>, Vec<u8>) {
    let device = made(segments, scheme);
    let store = open(&device, by_hand());
    let mut random = StdRng::seed_from_u64(seed);
    for block in 0..sectors_of(&store) / 8 {
        store.write(Lba(block * 8), &fill(random.random(), 8), Durability::Cached).expect("there is room");
    }
    let held = bytes_of(&store);
    store.close().expect("it can be closed");
    (device, held)
}

#[test]
fn a_power_cut_loses_nothing_that_was_flushed_and_invents_nothing() {
    let seeds = u64::from(ProptestConfig::default().cases / 32).max(1);
    let names: Vec<_> = umbrella_policy::log_layout::schemes_for_disks().map(|info| info.name).collect();
    let (mut states, mut cleaned) = (0, 0);
    for seed in 0..seeds {
        let (disk, held) = filled(60, names[seed as usize % names.len()], seed);
        let scene = Scene::new(disk);
        let store = scene.open();
        work(&store, &mut StdRng::seed_from_u64(seed), 60);
        cleaned += store.inner().stats().segments_cleaned;
        drop(store);
        states += check_states(&scene, held, bounds(seed), &format!("seed {seed}"));
    }
    println!("{states} states of {seeds} seeds, {cleaned} segments cleaned");
    assert!(states >= 2000 * seeds as usize, "{states} states: the work leaves too little in question");
    assert!(cleaned >= seeds, "{cleaned} segments cleaned");
}

/// The result of a power cut and a damaged bit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    /// The store is refused, and `check` says why. It is refused as well with the order to skip lost data.
    Refused,
    /// The store is refused, except with the order to skip lost data.
    GivenUp,
    /// The store is used, and reports damage or a possible loss.
    Reported,
    /// The store is used; damaged blocks cannot be read.
    Errors,
    /// The store is used, and nothing is lost.
    Whole,
}

/// Flips a bit of something that was written, half of the time in a structure of the store's own. Returns the name of
/// that structure. `None` if there is only the last header of all, which looks like one that was never written.
fn flip_a_bit(disk: &Overlay, random: &mut StdRng) -> Option<&'static str> {
    let capacity = disk.geometry().capacity;
    let block = |at: usize| read(disk, at as u64 * 8, 8);
    let superblock = [0, 256].into_iter().find_map(|copy| Superblock::parse(&block(copy), capacity).ok());
    let superblock = superblock.expect("one of them is whole");
    let (first, count) = (superblock.first.0 as usize, capacity.0 as usize / 8);
    let header = |at: usize| {
        let place = LogBlock(at.checked_sub(first)? as u64);
        ChunkHeader::parse(&block(at), &superblock, place).ok()
    };
    let is_data = |at: usize| block(at).chunks(512).all(|sector| sector.iter().all(|byte| *byte == sector[0]));
    let newest = (first..count).filter_map(|at| header(at).map(|header| ((header.epoch, header.sequence), at))).max();
    let metadata = random.random_bool(0.5);
    let at = (0..200).map(|_| random.random_range(0..count)).find(|at| {
        let is_used = block(*at).iter().any(|byte| *byte != 0);
        is_used && !(metadata && is_data(*at))
    })?;
    if newest.is_some_and(|(_, newest)| newest == at) {
        return None;
    }
    let what = match header(at) {
        Some(_) => "header of a chunk",
        None if is_data(at) => "data",
        None if block(at).starts_with(b"UMBLGSUP") => "superblock",
        None if superblock.areas.iter().any(|area| {
            area.has(crate::log_store::format::SegmentNo(((at.saturating_sub(first)) / 16) as u32)) && at >= first
        }) =>
        {
            "checkpoint"
        }
        None => "map page, or what is left of a chunk",
    };
    let sector_no = at as u64 * 8 + random.random_range(0..8);
    let mut sector = read(disk, sector_no, 1);
    sector[random.random_range(0..512)] ^= 1 << random.random_range(0..8);
    disk.write(Lba(sector_no), &sector, Durability::Cached).expect("memory takes it");
    Some(what)
}

/// Checks that each block reads as something it may hold, or as an error, unless `is_reported`. Returns the number of
/// errors.
fn errors(
    store: &LogStore,
    (expected, recording): (&Medium, &Recording),
    is_reported: impl Fn(BlockNo) -> bool,
    label: &dyn fmt::Display,
) -> usize {
    let sectors = sectors_of(store);
    if expected.check(recording, store, range(0, sectors)).is_ok() {
        return 0;
    }
    let is_error = |block: &u64| match expected.check(recording, store, range(block * 8, 8)) {
        Ok(()) => false,
        Err(CheckError::Read(_)) => true,
        Err(_) if is_reported(BlockNo(*block)) => false,
        Err(error) => panic!("{label}: {error}"),
    };
    (0..sectors / 8).filter(is_error).count()
}

/// Opens what a power cut and a damaged bit left, as it is, and giving up what is lost.
fn come_of(disk: &Overlay, expected: (&Medium, &Recording), label: &dyn fmt::Display) -> Outcome {
    let checked = || check(Arc::new(disk.fork()), "disk", Depth::Structure, &mut |_, _| {});
    let opened = |access| LogStore::open(Arc::new(disk.fork()), "disk", by_hand(), access);
    let store = match opened(OpenMode::ReadWrite) {
        Ok(store) => store,
        Err(error) => {
            assert!(
                checked().map_or(true, |report| report.problem_count > 0),
                "{label}: check says nothing of {error}"
            );
            let Some(store) = opened(OpenMode::Salvage).ok().filter(|store| !store.is_read_only()) else {
                return Outcome::Refused;
            };
            errors(&store, expected, |_| false, &format!("{label}, skipped"));
            return Outcome::GivenUp;
        }
    };
    let reported = !store.stats().repaired.is_empty();
    let losses = if reported { losses_of(checked().expect("it was opened")) } else { Vec::new() };
    let is_reported = |block| losses.iter().any(|loss| loss.unknown > 0 || loss.has(block));
    match errors(&store, expected, is_reported, label) {
        _ if reported => Outcome::Reported,
        0 => Outcome::Whole,
        _ => Outcome::Errors,
    }
}

/// `UMBRELLA_CRASH_STATES`: how many states are tried at least (default: 5,000).
#[test]
fn a_power_cut_and_one_damaged_bit_are_never_wrong_data_nor_silence_about_flushed_data() {
    let wanted = setting("UMBRELLA_CRASH_STATES").unwrap_or(5000);
    let (mut tried, mut seed) = (0_u64, 5000);
    let mut table: BTreeMap<(&str, Outcome), u64> = BTreeMap::new();
    while tried < wanted {
        seed += 1;
        let (disk, held) = filled(40, "r_lfs", seed);
        let scene = Scene::new(disk);
        let store = scene.open();
        let mut random = StdRng::seed_from_u64(seed);
        work(&store, &mut random, 30);
        drop(store);
        let recording = scene.journal.recording();
        let mut states = scene.states(bounds(seed));
        let mut expected = Medium::new(STORE, Arc::new(Memory::from_bytes(held)), Discarded::Zeroed);
        while tried < wanted && states.advance().expect("memory does not fail") != Step::End {
            expected.advance(&recording, states.cut()).expect("memory does not fail");
            for state in states.states() {
                let state = state.expect("memory does not fail");
                let disk = state.devices[0].fork();
                let Some(what) = flip_a_bit(&disk, &mut random) else { continue };
                tried += 1;
                let label = format!("seed {seed}: {state}, and a bit of a {what}");
                *table.entry((what, come_of(&disk, (&expected, &recording), &label))).or_default() += 1;
            }
        }
    }
    println!("{tried} states");
    for ((what, outcome), count) in &table {
        println!("{what:<40} {outcome:?} {count}");
    }
    let of = |wanted| table.iter().filter(|((_, outcome), _)| *outcome == wanted).map(|(_, count)| count).sum::<u64>();
    let outcomes = [Outcome::Refused, Outcome::GivenUp, Outcome::Reported, Outcome::Errors, Outcome::Whole];
    assert!(outcomes.into_iter().map(of).all(|count| count > tried / 500), "{table:?}");
}

#[test]
fn a_power_cut_while_recovering_from_one_changes_nothing() {
    let mut states = 0;
    for seed in 0..4 {
        let (disk, _) = filled(60, "r_lfs", seed);
        let scene = Scene::new(disk);
        let store = scene.open();
        let mut random = StdRng::seed_from_u64(1000 + seed);
        work(&store, &mut random, 40);
        drop(store);
        let mut walk = scene.states(bounds(seed));
        while walk.advance().expect("memory does not fail") != Step::End {
            if !random.random_bool(0.05) {
                continue;
            }
            let Some(state) = walk.states().last() else { continue };
            let left = state.expect("memory does not fail").devices;
            let held = bytes_of(&reopen(&left).expect("it can be opened"));
            let second = Scene::new(Arc::new(left[0].fork()));
            let store = second.open();
            work(&store, &mut random, 8);
            drop(store);
            states += check_states(&second, held, bounds(seed), &format!("seed {seed}, a second time"));
        }
    }
    println!("{states} states");
    assert!(states > 500, "{states} states");
}

#[test]
fn making_a_store_is_all_or_nothing() {
    let scene = Scene::new(memory(60));
    create(Arc::clone(&scene.disk), "disk", &small("r_lfs")).expect("it can be made");
    let (mut opened, mut refused) = (0, 0);
    each_crash_state(scene.states(bounds(1)), |state| match reopen(&state.devices) {
        Ok(store) => {
            assert!(bytes_of(&store).iter().all(|byte| *byte == 0));
            opened += 1;
        }
        Err(LogStoreError::Superblock { .. }) => refused += 1,
        Err(error) => panic!("{error}"),
    });
    assert!(opened > 0 && refused > 0, "{opened} opened, {refused} refused");
}

#[test]
fn growing_a_store_is_all_or_nothing_and_loses_nothing() {
    let mut states = 0;
    for (seed, more) in [(1, 40), (2, 3)] {
        let (disk, _) = filled(60, "r_lfs", seed);
        let scene = Scene::new(enlarged(&*disk, more));
        let store = scene.open();
        let held = bytes_of(&store);
        let old = sectors_of(&store);
        let mut random = StdRng::seed_from_u64(seed);
        work(&store, &mut random, 6);
        let new = store.inner().grow().expect("it grows").0 / SECTOR_BYTES;
        assert!(new > old, "{old} sectors, then {new}");
        assert_eq!(sectors_of(&store), new);
        work(&store, &mut random, 12);
        store.flush().expect("it is flushed");
        drop(store);
        // What lies beyond the old end is part of the store in some states only.
        let before = Memory::new(ByteSize(new * SECTOR_BYTES));
        before.write(Lba(0), &held, Durability::Cached).expect("it is larger");
        let mut expected = Medium::new(STORE, Arc::new(before), Discarded::Zeroed);
        let recording = scene.journal.recording();
        each_crash_state(scene.states(bounds(seed)), |state| {
            expected.advance(&recording, state.cut).expect("memory does not fail");
            states += 1;
            let store = reopen(&state.devices).unwrap_or_else(|error| panic!("{state}: {error}"));
            let size = sectors_of(&store);
            assert!(size == old || size == new, "{state}: {size} sectors");
            if let Err(error) = expected.check(&recording, &store, range(0, size)) {
                panic!("seed {seed}: {state}: {error}");
            }
            assert_no_problem(
                &(Arc::new(state.devices[0].fork()) as Arc<dyn BlockDevice>),
                &format!("seed {seed}: {state}"),
            );
        });
    }
    println!("{states} states");
    assert!(states > 500, "{states} states");
}
