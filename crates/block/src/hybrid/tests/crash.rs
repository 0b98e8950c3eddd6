//! A power cut at every moment, in every state that it can leave; see [`crate::record`] for the rules.

use proptest::prelude::ProptestConfig;

use super::*;
use crate::record::{Bounds, CrashStates, DeviceNo, Discarded, Journal, Medium, Recorder, Step};
use crate::testing::setting;

const DISK: u64 = 256;
const ON_DISK: DeviceNo = DeviceNo(0);
const ON_FLASH: DeviceNo = DeviceNo(1);
const HYBRID: DeviceNo = DeviceNo(2);

/// What both halves and the hybrid disk did, all in one order.
struct Scene {
    journal: Arc<Journal>,
    pair: Pair<Recorder<Overlay>>,
    initial: [Arc<dyn BlockDevice>; 2],
}

impl Scene {
    /// Begins with what the halves hold, which must not change any more.
    fn new(disk: Arc<dyn BlockDevice>, flash: Arc<dyn BlockDevice>) -> Scene {
        let journal = Journal::new();
        let recorded = |device: &Arc<dyn BlockDevice>, number| {
            Recorder::new(Overlay::new(Arc::clone(device)), number, Arc::clone(&journal))
        };
        let pair = Pair::of(recorded(&disk, ON_DISK), Arc::new(recorded(&flash, ON_FLASH)));
        Scene { pair, journal, initial: [disk, flash] }
    }

    /// With a new pair.
    fn fresh() -> Scene {
        let Pair { disk, flash, .. } = Pair::new(DISK);
        Scene::new(disk.device, flash.device)
    }

    /// With what a power cut left.
    fn after(devices: &[Overlay]) -> Scene {
        let [disk, flash] = devices else { panic!("two halves") };
        Scene::new(Arc::new(disk.fork()), Arc::new(flash.fork()))
    }

    fn open(&self, algorithm: Algorithm) -> Hybrid {
        self.pair.open(by_hand(algorithm))
    }

    fn recorded(&self, hybrid: Hybrid) -> Recorder<Hybrid> {
        Recorder::new(hybrid, HYBRID, Arc::clone(&self.journal))
    }

    fn states(&self, bounds: Bounds) -> CrashStates {
        let halves = [ON_DISK, ON_FLASH].into_iter().zip(self.initial.iter().cloned());
        CrashStates::new(self.journal.recording(), halves, bounds)
    }
}

fn whole() -> SectorRange {
    range(0, DISK)
}

/// Opens what a power cut left, without a trace.
fn reopen(devices: &[Overlay]) -> Result<Hybrid, HybridError> {
    let [disk, flash] = devices else { panic!("two halves") };
    Pair::of(disk.fork(), Arc::new(flash.fork())).try_open(by_hand(Algorithm::Whole))
}

/// Random work on a recorded pair. Small, so that few changes are in question at once.
fn work(hybrid: &Recorder<Hybrid>, random: &mut StdRng, operations: u32) {
    for _ in 0..operations {
        let start = random.random_range(0..DISK);
        let sectors = random.random_range(1..=24).min(DISK - start);
        let durability = if random.random_bool(0.2) { Durability::Through } else { Durability::Cached };
        match random.random_range(0..20) {
            0..11 => {
                let data: Vec<u8> = (0..sectors).flat_map(|_| fill(random.random(), 1)).collect();
                hybrid.write(Lba(start), &data, durability).expect("it is written");
            }
            11 => hybrid.write_zeroes(range(start, sectors), Zeroes::Unmap, durability).expect("it is zeroed"),
            12..15 => hybrid.flush().expect("it is flushed"),
            15 => hybrid.inner().drain().expect("it is drained"),
            16 => hybrid.inner().wake().expect("it wakes"),
            _ => hybrid.inner().sleep().expect("it sleeps"),
        }
    }
}

/// Checks all states of the scene; returns how many there were. What the hybrid disk held before is `before`.
fn check_states(scene: &Scene, before: Memory, bounds: Bounds, label: &str) -> usize {
    let recording = scene.journal.recording();
    let expected = Medium::new(HYBRID, Arc::new(before), Discarded::Kept);
    check_crash_states(&recording, scene.states(bounds), expected, |state, expected| {
        let hybrid = reopen(&state.devices).unwrap_or_else(|error| panic!("{label}: {state}: {error}"));
        if let Err(error) = expected.check(&recording, &hybrid, whole()) {
            panic!("{label}: {state}: {error}");
        }
    })
}

fn bounds(seed: u64) -> Bounds {
    Bounds { whole: 3, torn: 12, sampled: 12, seed, discarded: Discarded::Kept }
}

#[test]
fn a_power_cut_loses_nothing_that_was_flushed_and_invents_nothing() {
    let seeds = u64::from(ProptestConfig::default().cases / 32).max(1);
    let mut states = 0;
    for seed in 0..seeds {
        let scene = Scene::fresh();
        let hybrid = scene.recorded(scene.open(Algorithm::ALL[seed as usize % 5]));
        work(&hybrid, &mut StdRng::seed_from_u64(seed), 60);
        drop(hybrid);
        states += check_states(&scene, Memory::new(sectors(DISK)), bounds(seed), &format!("seed {seed}"));
    }
    println!("{states} states of {seeds} seeds");
    assert!(states >= 1500 * seeds as usize, "{states} states: the work leaves too little in question");
}

/// Flips a bit of a record of the log. `None` if there is only the last header of all, which looks like one that was
/// cut off.
fn flip_a_bit(flash: &Overlay, random: &mut StdRng) -> Option<()> {
    let read_block = |number: u64| read(flash, LOG_START.0 + number * format::BLOCK, format::BLOCK);
    let header = |number: u64| Some((number, format::Header::decode(&read_block(number)).ok()?));
    let headers: Vec<_> = (0..LEAST_LOG / format::BLOCK).filter_map(header).collect();
    let newest = headers.iter().max_by_key(|(_, header)| (header.epoch, header.sequence))?.0;
    let (chosen, header) = &headers[random.random_range(0..headers.len())];
    let block = chosen + random.random_range(0..header.sectors() / format::BLOCK);
    if block == newest {
        return None;
    }
    let mut bytes = read_block(block);
    bytes[random.random_range(0..4096)] ^= 1 << random.random_range(0..8);
    flash.write(Lba(LOG_START.0 + block * format::BLOCK), &bytes, Durability::Cached).expect("memory");
    Some(())
}

/// `UMBRELLA_CRASH_STATES`: how many states are tried at least (default: 5,000).
#[test]
fn a_power_cut_and_one_damaged_bit_lose_nothing_that_was_flushed_in_silence() {
    let wanted = setting("UMBRELLA_CRASH_STATES").unwrap_or(5000);
    let (mut tried, mut refused, mut reported, mut seed) = (0_u64, 0, 0, 3000);
    while tried < wanted {
        seed += 1;
        let scene = Scene::fresh();
        let hybrid = scene.recorded(scene.open(Algorithm::ALL[seed as usize % 5]));
        let mut random = StdRng::seed_from_u64(seed);
        work(&hybrid, &mut random, 40);
        drop(hybrid);
        let recording = scene.journal.recording();
        let mut expected = Medium::new(HYBRID, Arc::new(Memory::new(sectors(DISK))), Discarded::Kept);
        each_crash_state(scene.states(bounds(seed)), |state| {
            expected.advance(&recording, state.cut).expect("memory does not fail");
            let devices = [state.devices[0].fork(), state.devices[1].fork()];
            if flip_a_bit(&devices[1], &mut random).is_none() {
                return;
            }
            tried += 1;
            match reopen(&devices) {
                Ok(hybrid) if hybrid.perhaps_lost().is_empty() => {
                    if let Err(error) = expected.check(&recording, &hybrid, whole()) {
                        panic!("seed {seed}: {state}, and a bit: {error}");
                    }
                }
                Ok(_) => reported += 1,
                Err(HybridError::Corrupt { .. }) => refused += 1,
                Err(error) => panic!("seed {seed}: {state}, and a bit: {error}"),
            }
        });
    }
    println!("{tried} states, {refused} refused, {reported} reported");
    assert!(refused > tried / 50 && reported > tried / 500, "{tried} states, {refused} refused, {reported} reported");
}

#[test]
fn a_power_cut_while_recovering_from_one_changes_nothing() {
    let mut states = 0;
    for seed in 0..8 {
        let scene = Scene::fresh();
        let hybrid = scene.recorded(scene.open(Algorithm::Whole));
        let mut random = StdRng::seed_from_u64(1000 + seed);
        work(&hybrid, &mut random, 40);
        drop(hybrid);
        let mut walk = scene.states(bounds(seed));
        while walk.advance().expect("memory does not fail") != Step::End {
            // One state of a few moments is enough of a beginning: each has many continuations.
            if !random.random_bool(0.03) {
                continue;
            }
            let Some(state) = walk.states().last() else { continue };
            let left = state.expect("memory does not fail").devices;
            let held = Memory::from_bytes(read(&reopen(&left).expect("it can be opened"), 0, DISK));
            let second = Scene::after(&left);
            let hybrid = second.recorded(second.open(Algorithm::Whole));
            hybrid.inner().sleep().expect("it sleeps");
            work(&hybrid, &mut random, 6);
            drop(hybrid);
            states += check_states(&second, held, bounds(seed), &format!("seed {seed}, a second time"));
        }
    }
    println!("{states} states");
    assert!(states > 100, "{states} states");
}

#[test]
fn what_is_perhaps_lost_is_reported_by_the_next_opening_if_one_is_cut_off() {
    // A header and two blocks each.
    const RECORD: u64 = 24;
    let damages: [&[u64]; 4] =
        [&[4 * RECORD], &[4 * RECORD, 5 * RECORD], &[4 * RECORD + 8], &[3 * RECORD + 16, 6 * RECORD]];
    for damage in damages {
        let scene = Scene::fresh();
        let hybrid = scene.open(Algorithm::Whole);
        hybrid.sleep().expect("it sleeps");
        for number in 0..8 {
            hybrid.write(Lba(16 * number), &fill(number as u8 + 1, 16), Durability::Cached).expect("to the log");
        }
        hybrid.flush().expect("it is flushed");
        drop(hybrid);
        for sector in damage {
            scene.pair.flip(*sector, 20);
        }
        let scene = Scene::new(scene.pair.disk.device, scene.pair.flash.device);
        let hybrid = scene.open(Algorithm::Whole);
        let (reported, held) = (hybrid.perhaps_lost().clone(), read(&hybrid, 0, DISK));
        assert!(!reported.is_empty(), "{damage:?}");
        drop(hybrid);
        let (mut finished, mut unfinished) = (0, 0);
        each_crash_state(scene.states(bounds(1)), |state| {
            let label = read_superblock(&half("flash", Arc::new(state.devices[1].fork()))).expect("one copy is whole");
            let is_finished = label.epoch == Epoch(3) && label.tag == format::TagState::Written;
            finished += u64::from(is_finished);
            let hybrid = reopen(&state.devices).expect("it can be opened");
            assert_eq!(read(&hybrid, 0, DISK), held, "{damage:?}: {state}");
            let expected = if is_finished { Losses::default() } else { reported.clone() };
            assert_eq!(*hybrid.perhaps_lost(), expected, "{damage:?}: {state}");
            unfinished += usize::from(!is_finished);
            if !is_finished && unfinished % 40 == 1 {
                cut_off_again(&Scene::after(&state.devices), &reported, &held);
            }
        });
        assert!(finished > 0, "the opening did finish");
        assert!(unfinished > 10, "openings that were cut off were cut off again");
    }
}

/// An opening after one that was cut off, and cut off itself.
fn cut_off_again(scene: &Scene, reported: &Losses, held: &[u8]) {
    drop(scene.open(Algorithm::Whole));
    each_crash_state(scene.states(bounds(2)), |state| {
        let label = read_superblock(&half("flash", Arc::new(state.devices[1].fork()))).expect("one copy is whole");
        let hybrid = reopen(&state.devices).expect("it can be opened");
        assert_eq!(read(&hybrid, 0, DISK), held, "{state}");
        if label.unreported > 0 || label.tag != format::TagState::Written || label.epoch == Epoch(2) {
            assert_eq!(hybrid.perhaps_lost(), reported, "{state}");
        }
    });
}

#[test]
fn a_power_cut_after_the_program_was_killed_and_started_again_loses_nothing_that_was_flushed() {
    let mut states = 0;
    for seed in 0..6 {
        let scene = Scene::fresh();
        let mut random = StdRng::seed_from_u64(2000 + seed);
        for life in 0..3 {
            let hybrid = scene.recorded(scene.open(Algorithm::ALL[seed as usize % 5]));
            // Of what the life before has written, too.
            hybrid.flush().expect("it is flushed");
            work(&hybrid, &mut random, 10);
            // What it leaves is in the caches of the halves, which keep it: only the program ends here.
            if (seed + life) % 2 == 0 {
                hybrid.inner().sleep().expect("it sleeps");
            } else {
                hybrid.inner().drain().expect("it is drained");
            }
            let (at, data) = (random.random_range(0..DISK - 5), fill(100 + life as u8, 5));
            hybrid.write(Lba(at), &data, Durability::Cached).expect("to the log, or to the disk");
        }
        states += check_states(&scene, Memory::new(sectors(DISK)), bounds(seed), &format!("seed {seed}, killed"));
    }
    println!("{states} states");
    assert!(states > 1000, "{states} states");
}

#[test]
fn creating_a_pair_is_all_or_nothing() {
    let scene = Scene::new(Arc::new(Memory::new(sectors(DISK + TAG_SECTORS))), Arc::new(flash_of(LEAST_LOG)));
    create(&scene.pair.disk, &scene.pair.flash).expect("it can be made");
    let (mut opened, mut refused) = (0, 0);
    each_crash_state(scene.states(bounds(1)), |state| match reopen(&state.devices) {
        Ok(hybrid) => {
            assert_eq!(read(&hybrid, 0, DISK), fill(0, DISK));
            opened += 1;
        }
        Err(HybridError::NoSuperblock { .. } | HybridError::NoTag { .. } | HybridError::FlashLost { .. }) => {
            refused += 1;
        }
        Err(HybridError::Stale { .. }) => panic!("a tag of an epoch without its superblock"),
        Err(error) => panic!("{error}"),
    });
    assert!(opened > 0 && refused > 0);
}

#[test]
fn detaching_can_be_interrupted_and_done_again() {
    let scene = Scene::fresh();
    let hybrid = scene.open(Algorithm::Whole);
    hybrid.sleep().expect("it sleeps");
    hybrid.write(Lba(7), &fill(7, 9), Durability::Through).expect("to the log");
    let written = scene.journal.now();
    hybrid.dissolve().expect("it can be detached");
    let (mut attached, mut apart) = (0, 0);
    each_crash_state(scene.states(bounds(1)), |state| {
        if state.cut < written {
            return;
        }
        let devices = &state.devices;
        match reopen(devices) {
            Ok(hybrid) => {
                assert_eq!(read(&hybrid, 7, 9), fill(7, 9));
                hybrid.dissolve().expect("it can be detached");
                attached += 1;
            }
            Err(HybridError::Detached { .. }) => {
                assert_eq!(read(&devices[0], 7, 9), fill(7, 9), "the disk alone has it");
                let [disk, flash] = [&devices[0], &devices[1]].map(|device| half("half", Arc::new(device.fork())));
                finish_detach(&disk, &flash).expect("it can be finished");
                assert_eq!(read(&*disk.device, DISK, TAG_SECTORS), fill(0, TAG_SECTORS));
                apart += 1;
            }
            Err(error) => panic!("{error}"),
        }
    });
    assert!(attached > 0 && apart > 0);
}

/// A disk whose next write waits for the test to release it.
struct Gate {
    inner: Arc<SleepingDisk<Recorder<Overlay>>>,
    closed: AtomicBool,
    waits: AtomicBool,
}

impl BlockDevice for Gate {
    crate::forward!(inner: geometry, read, flush, discard, write_zeroes);

    fn write(&self, at: Lba, data: &[u8], durability: Durability) -> Result<(), BlockError> {
        while self.closed.load(Ordering::SeqCst) {
            self.waits.store(true, Ordering::SeqCst);
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        self.inner.write(at, data, durability)
    }
}

#[test]
fn what_is_replaced_while_it_is_drained_is_not_lost_before_its_replacement_is_durable() {
    for algorithm in Algorithm::ALL {
        let scene = Scene::fresh();
        let gate = Arc::new(Gate {
            inner: scene.pair.sleeping_disk.clone(),
            closed: AtomicBool::new(false),
            waits: AtomicBool::new(false),
        });
        // Buffers of 4 KiB: the last of these writes is planned after the first has been brought to the disk.
        let options = Options { memory: ByteSize(8 << 10), ..by_hand(algorithm) };
        let Pair { sleeping_disk, flash, .. } = &scene.pair;
        let opened = Hybrid::open(half("disk", gate.clone()), flash.clone(), sleeping_disk.clone(), options, None);
        let hybrid = scene.recorded(opened.expect("it can be opened"));
        hybrid.inner().sleep().expect("it sleeps");
        for number in 0..6 {
            hybrid.write(Lba(30 * number), &fill(number as u8 + 1, 8), Durability::Cached).expect("to the log");
        }
        hybrid.flush().expect("it is flushed");
        gate.closed.store(true, Ordering::SeqCst);
        std::thread::scope(|scope| {
            let drain = scope.spawn(|| hybrid.inner().drain().expect("it is drained"));
            until("the drain waits", || gate.waits.load(Ordering::SeqCst));
            hybrid.write(Lba(30 * 5), &fill(99, 8), Durability::Cached).expect("to the log");
            gate.closed.store(false, Ordering::SeqCst);
            drain.join().expect("no panic");
        });
        drop(hybrid);
        check_states(&scene, Memory::new(sectors(DISK)), bounds(1), algorithm.name());
    }
}
