//! What the tests of several devices share.

use std::time::{Duration, Instant};

use umbrella_units::{Lba, SECTOR_BYTES, SectorRange};

use crate::device::{BlockDevice, Durability, Geometry, Zeroes};
use crate::error::BlockError;
use crate::memory::Memory;
use crate::record::{CrashState, CrashStates, Medium, Recording, Step};

pub(crate) fn range(start: u64, sectors: u64) -> SectorRange {
    SectorRange { start: Lba(start), sectors }
}

pub(crate) fn fill(byte: u8, sectors: u64) -> Vec<u8> {
    vec![byte; (sectors * SECTOR_BYTES) as usize]
}

pub(crate) fn read(device: &dyn BlockDevice, start: u64, sectors: u64) -> Vec<u8> {
    let mut buffer = fill(0xee, sectors);
    device.read(Lba(start), &mut buffer).expect("it can be read");
    buffer
}

/// A number from the environment.
pub(crate) fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|value| value.parse().expect("a number"))
}

/// `UMBRELLA_FUZZ_SEED`, or another one each time.
pub(crate) fn fuzz_seed() -> u64 {
    setting("UMBRELLA_FUZZ_SEED").unwrap_or_else(rand::random)
}

/// A thousandth of `UMBRELLA_FUZZ_ROUNDS`.
pub(crate) fn fuzz_rounds(default: u64) -> u64 {
    setting("UMBRELLA_FUZZ_ROUNDS").map_or(default, |rounds| rounds / 1000)
}

/// How long anything is waited for; longer, and the test has failed.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);

/// Waits for something that another thread does.
pub(crate) fn until(what: &str, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < TIMEOUT, "it never comes to it that {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A disk with blocks of 4 KiB: it refuses to read or write less.
pub(crate) struct Coarse(pub(crate) Memory);

impl BlockDevice for Coarse {
    crate::forward!(0: flush, discard);

    fn geometry(&self) -> Geometry {
        Geometry { logical_block: 4096, ..self.0.geometry() }
    }

    fn read(&self, at: Lba, buffer: &mut [u8]) -> Result<(), BlockError> {
        self.geometry().check(at, buffer.len())?;
        self.0.read(at, buffer)
    }

    fn write(&self, at: Lba, data: &[u8], durability: Durability) -> Result<(), BlockError> {
        self.geometry().check(at, data.len())?;
        self.0.write(at, data, durability)
    }

    fn write_zeroes(&self, range: SectorRange, zeroes: Zeroes, durability: Durability) -> Result<(), BlockError> {
        self.geometry().check(range.start, range.bytes().0 as usize)?;
        self.0.write_zeroes(range, zeroes, durability)
    }
}

/// Turns over a bit of a byte.
pub(crate) fn flip(device: &dyn BlockDevice, byte: usize) {
    flip_bit(device, byte, 4);
}

pub(crate) fn flip_bit(device: &dyn BlockDevice, byte: usize, bit: usize) {
    let (sector, within) = (byte as u64 / SECTOR_BYTES, byte % SECTOR_BYTES as usize);
    let mut bytes = read(device, sector, 1);
    bytes[within] ^= 1 << bit;
    device.write(Lba(sector), &bytes, Durability::Through).expect("memory takes it");
}

/// Each state that a power cut can leave, at every moment.
pub(crate) fn each_crash_state(mut states: CrashStates, mut each: impl FnMut(&CrashState)) {
    while states.advance().expect("memory does not fail") != Step::End {
        states.states().for_each(|state| each(&state.expect("memory does not fail")));
    }
}

/// Checks each state that a power cut can leave, with what the device above may hold then. How many there were.
pub(crate) fn check_crash_states(
    recording: &Recording,
    mut states: CrashStates,
    mut expected: Medium,
    mut check: impl FnMut(&CrashState, &Medium),
) -> usize {
    let mut count = 0;
    loop {
        let step = states.advance().expect("memory does not fail");
        expected.advance(recording, states.cut()).expect("memory does not fail");
        match step {
            Step::End => return count,
            Step::Same => continue,
            Step::Changed => {}
        }
        for state in states.states() {
            count += 1;
            check(&state.expect("memory does not fail"), &expected);
        }
    }
}
