//! Each call to the device fails once, or from then on: what was flushed is there when the store is opened again, and
//! what is read meanwhile is right.

use std::time::{Duration, Instant};

use parking_lot::Mutex;
use proptest::prelude::ProptestConfig;
use rustix::io::Errno;

use super::*;
use crate::device::Geometry;
use crate::error::{BlockError, Operation};

/// How a call fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Failure {
    /// It alone, and it does nothing.
    Once,
    /// It alone; the first half of a write is done.
    Halfway,
    /// It alone, a write being done all the same.
    Done,
    /// It and all after it.
    ForEver,
}

/// A disk with a cache: what is on the medium for certain, and what is read.
pub(super) struct FailingDisk {
    geometry: Geometry,
    state: Mutex<Images>,
    fails: (u64, Failure),
}

struct Images {
    cached: Overlay,
    medium: Overlay,
    /// What is in the cache only.
    unflushed: Vec<SectorRange>,
    calls: u64,
}

impl FailingDisk {
    /// Begins with what a device holds, which must not change any more.
    pub(super) fn new(initial: &Arc<dyn BlockDevice>, fails: (u64, Failure)) -> Arc<FailingDisk> {
        let [cached, medium] = [(); 2].map(|()| Overlay::new(Arc::clone(initial)));
        let state = Mutex::new(Images { cached, medium, unflushed: Vec::new(), calls: 0 });
        Arc::new(FailingDisk { geometry: initial.geometry(), state, fails })
    }

    /// What is read.
    pub(super) fn cached(&self) -> Arc<dyn BlockDevice> {
        Arc::new(self.state.lock().cached.fork())
    }

    /// What is left after a power cut that loses all that may be lost.
    pub(super) fn medium(&self) -> Arc<dyn BlockDevice> {
        Arc::new(self.state.lock().medium.fork())
    }

    /// Counts a call; how it fails, if it does.
    fn fails(&self, state: &mut Images) -> Option<Failure> {
        state.calls += 1;
        let (nth, failure) = self.fails;
        (state.calls == nth || state.calls > nth && failure == Failure::ForEver).then_some(failure)
    }

    fn error(&self, operation: Operation) -> BlockError {
        BlockError::io(&"brittle".into(), operation, None, Errno::IO.into())
    }
}

impl BlockDevice for FailingDisk {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn read(&self, at: Lba, buffer: &mut [u8]) -> Result<(), BlockError> {
        self.geometry.check(at, buffer.len())?;
        let mut state = self.state.lock();
        if self.fails(&mut state).is_some() {
            buffer.fill(0xbd);
            return Err(self.error(Operation::Read));
        }
        state.cached.read(at, buffer)
    }

    fn write(&self, at: Lba, data: &[u8], durability: Durability) -> Result<(), BlockError> {
        self.geometry.check(at, data.len())?;
        let mut state = self.state.lock();
        let failure = self.fails(&mut state);
        let sectors = match failure {
            None | Some(Failure::Done) => sectors_of_bytes(data),
            Some(Failure::Halfway) => sectors_of_bytes(data) / 2,
            Some(Failure::Once | Failure::ForEver) => 0,
        };
        let data = &data[..sectors * SECTOR_BYTES as usize];
        state.cached.write(at, data, durability)?;
        match durability {
            Durability::Cached => state.unflushed.push(range(at.0, sectors as u64)),
            Durability::Through => state.medium.write(at, data, durability)?,
        }
        if failure.is_some() { Err(self.error(Operation::Write)) } else { Ok(()) }
    }

    fn flush(&self) -> Result<(), BlockError> {
        let mut state = self.state.lock();
        let failure = self.fails(&mut state);
        // As with Linux: what could not be written back is forgotten, and the next flush succeeds.
        let unflushed = std::mem::take(&mut state.unflushed);
        if failure.is_some() {
            return Err(self.error(Operation::Flush));
        }
        unflushed.into_iter().try_for_each(|SectorRange { start, sectors }| {
            state.medium.write(start, &read(&state.cached, start.0, sectors), Durability::Through)
        })
    }

    fn discard(&self, range: SectorRange) -> Result<(), BlockError> {
        self.geometry.check_range(range)
    }

    fn write_zeroes(&self, _: SectorRange, _: Zeroes, _: Durability) -> Result<(), BlockError> {
        unreachable!("the store writes no zeroes")
    }
}

fn sectors_of_bytes(data: &[u8]) -> usize {
    data.len() / SECTOR_BYTES as usize
}

/// What each sector may hold. A write that fails may have been done in part, block by block: until a sector is written
/// again it holds what it had or what was to be written.
struct Truth {
    /// What may be read.
    now: Vec<Vec<u8>>,
    /// What may be found after a power cut: what may have been there at the last flush, and what was to be written
    /// since.
    kept: Vec<Vec<u8>>,
    /// How many there are at least.
    least: u64,
}

impl Truth {
    fn new(held: &[u8]) -> Truth {
        let now: Vec<_> = held.iter().map(|byte| vec![*byte]).collect();
        Truth { kept: now.clone(), now, least: held.len() as u64 }
    }

    fn grow(&mut self, sectors: u64) {
        self.now.resize(sectors as usize, vec![0]);
        self.kept.resize(sectors as usize, vec![0]);
    }

    /// Something was written, or was not.
    fn wrote(&mut self, range: SectorRange, byte: u8, done: bool, durability: Durability) {
        for sector in range.start.0 as usize..range.end().0 as usize {
            let (now, kept) = (&mut self.now[sector], &mut self.kept[sector]);
            if done {
                now.clear();
            }
            if done && durability == Durability::Through {
                kept.clear();
            }
            now.push(byte);
            kept.push(byte);
        }
    }

    /// A sector was read: that is what it holds.
    fn was_read(&mut self, sector: usize, byte: u8) {
        let now = &mut self.now[sector];
        assert!(now.contains(&byte), "sector {sector} reads {byte:#x}, it may be {now:x?}");
        *now = vec![byte];
    }

    fn flushed(&mut self) {
        self.kept.clone_from(&self.now);
    }
}

/// Random work on a store that has to clean; whatever fails, it continues. Then the store grows, is written on, and is
/// closed.
fn work(store: LogStore, random: &mut StdRng, truth: &mut Truth) {
    for round in 0..70 {
        if round == 50 {
            if let Ok(size) = store.grow() {
                truth.least = size.0 / SECTOR_BYTES;
            }
            truth.grow(sectors_of(&store));
        }
        let blocks = sectors_of(&store) / 8;
        let block =
            if random.random_bool(0.5) { random.random_range(0..blocks / 8) } else { random.random_range(0..blocks) };
        let all = range(block * 8, random.random_range(1..=12).min(blocks - block) * 8);
        let durability = if random.random_bool(0.1) { Durability::Through } else { Durability::Cached };
        let byte = random.random();
        match random.random_range(0..24) {
            0..15 => {
                let done = store.write(all.start, &fill(byte, all.sectors), durability).is_ok();
                truth.wrote(all, byte, done, durability);
            }
            15 | 16 => {
                let part = range(all.start.0 + 3, 2);
                let done = store.write(part.start, &fill(byte, 2), durability).is_ok();
                truth.wrote(part, byte, done, durability);
            }
            17 => {
                let done = store.write_zeroes(all, Zeroes::Unmap, durability).is_ok();
                truth.wrote(all, 0, done, durability);
            }
            18 => {
                let done = store.discard(all).is_ok();
                truth.wrote(all, 0, done, Durability::Cached);
            }
            19 => _ = store.checkpoint(),
            20 | 21 => {
                let mut buffer = fill(0xee, all.sectors);
                if store.read(all.start, &mut buffer).is_ok() {
                    assert_read(&buffer, all.start.0, truth);
                }
            }
            _ => {
                if store.flush().is_ok() {
                    truth.flushed();
                }
            }
        }
    }
    if store.close().is_ok() {
        truth.flushed();
    }
}

fn assert_read(buffer: &[u8], start: u64, truth: &mut Truth) {
    for (sector, bytes) in (start as usize..).zip(buffer.chunks(SECTOR_BYTES as usize)) {
        assert!(bytes.iter().all(|other| *other == bytes[0]), "sector {sector} is mixed");
        truth.was_read(sector, bytes[0]);
    }
}

fn assert_kept(device: &Arc<dyn BlockDevice>, truth: &Truth, label: &str) {
    let report = try_check(device, Depth::Data).unwrap_or_else(|error| panic!("{label}: {error}"));
    let problems: Vec<_> = report.problems.iter().filter(|problem| !is_expected(problem)).collect();
    assert!(problems.is_empty(), "{label}: {problems:?}");
    let store = try_open(device, OpenMode::ReadWrite);
    let store = store.unwrap_or_else(|error| panic!("{label}: {error}"));
    let held = read(&store, 0, sectors_of(&store));
    for (sector, bytes) in held.chunks(SECTOR_BYTES as usize).enumerate() {
        let byte = bytes[0];
        assert!(bytes.iter().all(|other| *other == byte), "{label}: sector {sector} is mixed");
        // It may have grown although that failed.
        let may_be = truth.kept.get(sector).map_or(&[0][..], Vec::as_slice);
        assert!(may_be.contains(&byte), "{label}: sector {sector} holds {byte:#x}, it may be {may_be:x?}");
    }
    assert!(held.len() as u64 >= truth.least * SECTOR_BYTES, "{label}: it has shrunk");
}

/// A full store, on a device that has become larger and was not closed; and what its sectors hold.
fn before(seed: u64) -> (Arc<dyn BlockDevice>, Vec<u8>) {
    let (device, store) = opened(60);
    let mut random = StdRng::seed_from_u64(seed);
    let blocks = sectors_of(&store) / 8;
    for nth in 0..2 * blocks {
        let block = if nth < blocks { nth } else { random.random_range(0..blocks) };
        store.write(Lba(block * 8), &fill(random.random(), 8), Durability::Cached).expect("there is room");
    }
    store.checkpoint().expect("there is room");
    for _ in 0..60 {
        let block = random.random_range(0..blocks);
        store.write(Lba(block * 8), &fill(random.random(), 8), Durability::Cached).expect("there is room");
    }
    store.flush().expect("memory does not fail");
    let held = read(&store, 0, blocks * 8).chunks(512).map(|sector| sector[0]).collect();
    drop(store);
    (enlarged(&*device, 20), held)
}

/// The calls that all of it takes, if none fails.
fn run(initial: &Arc<dyn BlockDevice>, held: &[u8], seed: u64, fails: (u64, Failure), threads: bool) -> u64 {
    let label = format!("seed {seed}, call {} fails ({:?})", fails.0, fails.1);
    let disk = FailingDisk::new(initial, fails);
    let device: Arc<dyn BlockDevice> = disk.clone();
    let mut truth = Truth::new(held);
    let options = Options { threads, ..by_hand() };
    if let Ok(store) = LogStore::open(device, "disk", options, OpenMode::ReadWrite) {
        work(store, &mut StdRng::seed_from_u64(seed), &mut truth);
    }
    assert_kept(&disk.cached(), &truth, &format!("{label}, all that was written"));
    assert_kept(&disk.medium(), &truth, &format!("{label}, what was flushed"));
    disk.state.lock().calls
}

const FAILURES: [Failure; 4] = [Failure::Once, Failure::Halfway, Failure::Done, Failure::ForEver];

#[test]
fn whichever_call_fails_what_was_flushed_is_kept_and_what_is_read_is_right() {
    for seed in 0..u64::from(ProptestConfig::default().cases / 256).max(1) {
        let (initial, held) = before(seed);
        let calls = run(&initial, &held, seed, (u64::MAX, Failure::Once), false);
        assert!(calls > 100, "{calls} calls");
        for (nth, failure) in (1..=calls).zip(FAILURES.into_iter().cycle().skip(seed as usize)) {
            run(&initial, &held, seed, (nth, failure), false);
        }
        println!("{calls} calls");
    }
}

/// With threads no two runs are alike, so calls from all over fail, in no order, for a few seconds.
#[test]
fn whichever_call_fails_while_threads_write_and_clean_what_was_flushed_is_kept() {
    let begun = Instant::now();
    let (initial, held) = before(0);
    let calls = run(&initial, &held, 0, (u64::MAX, Failure::Once), true);
    assert!(calls > 100, "{calls} calls");
    let in_no_order = (0..calls).map(|nth| nth * 1009 % calls + 1);
    let runs = in_no_order.zip(FAILURES.into_iter().cycle());
    for (nth, failure) in runs.take_while(|_| begun.elapsed() < Duration::from_secs(4)) {
        run(&initial, &held, 0, (nth, failure), true);
    }
}
