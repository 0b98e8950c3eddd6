//! What happens while a drain, a flush or a record is under way: a gate holds one call of a device until the test has
//! done the rest.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use umbrella_policy::spin_down::{Costs, SpinDown};
use umbrella_units::Nanos;

use super::*;
use crate::error::Operation;
use crate::testing::TIMEOUT;

/// A device whose calls of one kind stop at its gate while that is closed.
pub(super) struct Gated {
    pub(super) inner: Memory,
    pub(super) gate: Mutex<Gate>,
    changed: Condvar,
}

#[derive(Default)]
pub(super) struct Gate {
    pub(super) closed: Option<(Operation, SectorRange)>,
    pub(super) waiting: usize,
    /// How many calls have ever stood there.
    pub(super) stood: usize,
    /// Writes there fail once the gate is open again.
    broken: Option<SectorRange>,
}

impl Gated {
    fn new(inner: Memory) -> Gated {
        Gated { inner, gate: Mutex::default(), changed: Condvar::new() }
    }

    pub(super) fn close(&self, operation: Operation, range: SectorRange) {
        self.gate.lock().closed = Some((operation, range));
    }

    pub(super) fn open(&self) {
        self.gate.lock().closed = None;
        self.changed.notify_all();
    }

    /// Releases what waits there, and stops the next one elsewhere.
    pub(super) fn moves_on_to(&self, operation: Operation, range: SectorRange) {
        self.close(operation, range);
        self.changed.notify_all();
    }

    fn breaks(&self, range: SectorRange) {
        self.gate.lock().broken = Some(range);
    }

    /// Returns when `calls` calls wait at the gate.
    pub(super) fn holds(&self, calls: usize) {
        let mut gate = self.gate.lock();
        self.changed.wait_while_for(&mut gate, |gate| gate.waiting < calls, TIMEOUT);
        assert!(gate.waiting >= calls, "nothing came to the gate");
    }

    fn pass(&self, operation: Operation, range: SectorRange) -> Result<(), BlockError> {
        let mut gate = self.gate.lock();
        let stops = |gate: &Gate| gate.closed.is_some_and(|(kind, closed)| kind == operation && closed.overlaps(range));
        if stops(&gate) {
            gate.waiting += 1;
            gate.stood += 1;
            self.changed.notify_all();
            self.changed.wait_while_for(&mut gate, |gate| stops(gate), TIMEOUT);
            gate.waiting -= 1;
        }
        if operation == Operation::Write && gate.broken.is_some_and(|broken| broken.overlaps(range)) {
            return Err(BlockError::ReadOnly { device: "broken".into() });
        }
        Ok(())
    }
}

impl BlockDevice for Gated {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn read(&self, at: Lba, buffer: &mut [u8]) -> Result<(), BlockError> {
        self.pass(Operation::Read, range(at.0, buffer.len() as u64 / SECTOR_BYTES))?;
        self.inner.read(at, buffer)
    }

    fn write(&self, at: Lba, data: &[u8], durability: Durability) -> Result<(), BlockError> {
        self.pass(Operation::Write, range(at.0, data.len() as u64 / SECTOR_BYTES))?;
        self.inner.write(at, data, durability)
    }

    fn flush(&self) -> Result<(), BlockError> {
        self.pass(Operation::Flush, range(0, self.geometry().capacity.0))?;
        self.inner.flush()
    }

    fn discard(&self, range: SectorRange) -> Result<(), BlockError> {
        self.pass(Operation::Discard, range)?;
        self.inner.write_zeroes(range, Zeroes::Unmap, Durability::Cached)
    }

    fn write_zeroes(&self, range: SectorRange, zeroes: Zeroes, durability: Durability) -> Result<(), BlockError> {
        self.pass(Operation::Write, range)?;
        self.inner.write_zeroes(range, zeroes, durability)
    }
}

/// A pair with a gate before each half.
pub(super) struct GatedPair {
    pub(super) pair: Pair<Gated>,
    pub(super) flash: Arc<Gated>,
}

impl GatedPair {
    pub(super) fn new() -> GatedPair {
        let flash = Arc::new(Gated::new(flash_of(LEAST_LOG)));
        let pair = Pair::created(Gated::new(Memory::new(sectors(8000 + TAG_SECTORS))), flash.clone());
        GatedPair { pair, flash }
    }

    pub(super) fn hybrid(&self, algorithm: Algorithm) -> Hybrid {
        self.pair.open(by_hand(algorithm))
    }

    /// An open pair with `count` sectors of `byte` at `start`, which only the log holds.
    pub(super) fn asleep_with(&self, algorithm: Algorithm, start: u64, count: u64, byte: u8) -> Hybrid {
        let hybrid = self.hybrid(algorithm);
        hybrid.sleep().expect("it sleeps");
        hybrid.write(Lba(start), &fill(byte, count), Durability::Through).expect("to the log");
        hybrid
    }

    pub(super) fn disk(&self) -> &Gated {
        &self.pair.sleeping_disk.inner
    }
}

/// The disk is put to sleep by hand only; but a keeper drains the log.
pub(super) fn never() -> SpinDown {
    SpinDown::parse("never", Costs { break_even: Nanos::NEVER }).expect("it is one")
}

pub(super) fn starts<'s, T: Send + 's>(
    scope: &'s Scope<'s, '_>,
    work: impl FnOnce() -> T + Send + 's,
) -> ScopedJoinHandle<'s, T> {
    scope.spawn(work)
}

pub(super) fn ends<T>(work: ScopedJoinHandle<'_, T>) -> T {
    until("it ends", || work.is_finished());
    work.join().expect("no panic")
}

#[test]
fn what_is_written_discarded_and_read_while_it_is_drained_stays_the_newest() {
    for algorithm in Algorithm::ALL {
        let gated = GatedPair::new();
        let hybrid = gated.asleep_with(algorithm, 1000, 16, 1);
        std::thread::scope(|scope| {
            gated.disk().close(Operation::Write, range(1000, 16));
            let drain = starts(scope, || hybrid.drain());
            gated.disk().holds(1);
            assert_eq!(read(&hybrid, 1000, 16), fill(1, 16), "from the log");
            hybrid.write(Lba(1004), &fill(2, 4), Durability::Cached).expect("to the log");
            hybrid.discard(range(1000, 16)).expect("the log has newer data: nothing is discarded");
            hybrid.write_zeroes(range(1010, 2), Zeroes::Unmap, Durability::Through).expect("to the log");
            hybrid.flush().expect("all is durable");
            assert_eq!(hybrid.stats().writes_to_log, 3);
            gated.disk().open();
            ends(drain).expect("the disk is well");
        });
        let newest = [fill(1, 4), fill(2, 4), fill(1, 2), fill(0, 2), fill(1, 4)].concat();
        assert_eq!(read(&hybrid, 1000, 16), newest, "{algorithm}");
        assert_eq!(hybrid.at_risk(), [range(1004, 4), range(1010, 2)], "{algorithm}");
        drop(hybrid);
        let hybrid = gated.hybrid(algorithm);
        assert_eq!(read(&hybrid, 1000, 16), newest, "{algorithm}, after a crash");
        hybrid.dissolve().expect("the disk is well");
        assert_eq!(read(&gated.disk().inner, 1000, 16), newest, "{algorithm}, on the plain disk");
    }
}

#[test]
fn a_record_that_is_written_while_a_drain_ends_counts_after_a_crash() {
    // The longer one is freed before the drain has ended, which then finds no record at all.
    for (algorithm, count) in [(Algorithm::Whole, 16), (Algorithm::Alg1, 1040)] {
        let gated = GatedPair::new();
        let hybrid = gated.asleep_with(algorithm, 1000, count, 1);
        std::thread::scope(|scope| {
            gated.disk().close(Operation::Write, range(1000, 16));
            let drain = starts(scope, || hybrid.drain());
            gated.disk().holds(1);
            gated.flash.close(Operation::Write, range(LOG_START.0, LEAST_LOG));
            let write = starts(scope, || hybrid.write(Lba(1000), &fill(2, 16), Durability::Through));
            gated.flash.holds(1);
            gated.disk().open();
            ends(drain).expect("the disk is well");
            gated.flash.open();
            ends(write).expect("the flash is well");
        });
        assert_eq!(read(&hybrid, 1000, 16), fill(2, 16));
        drop(hybrid);
        assert_eq!(read(&gated.hybrid(algorithm), 1000, 16), fill(2, 16), "{algorithm}");
    }
}

#[test]
fn a_drain_that_fails_in_the_middle_of_a_record_leaves_the_rest_of_it_in_the_log() {
    let gated = GatedPair::new();
    let hybrid = gated.asleep_with(Algorithm::Alg1, 10, 1, 9);
    std::thread::scope(|scope| {
        // Two writes join one record while the one before is being written.
        gated.flash.close(Operation::Write, range(LOG_START.0, LEAST_LOG));
        let first = starts(scope, || hybrid.write(Lba(20), &fill(8, 1), Durability::Cached));
        gated.flash.holds(1);
        let second = starts(scope, || hybrid.write(Lba(2000), &fill(1, 1040), Durability::Cached));
        let joined = |count| until("it joins", || hybrid.shared.state.lock().joined >= count);
        joined(3);
        let third = starts(scope, || hybrid.write(Lba(5000), &fill(2, 900), Durability::Cached));
        joined(4);
        gated.flash.open();
        for write in [first, second, third] {
            ends(write).expect("the flash is well");
        }
    });
    assert_eq!(hybrid.stats().records, 3);
    hybrid.flush().expect("the flash is well");
    gated.disk().breaks(range(5000, 900));
    hybrid.drain().expect_err("the disk is broken");
    assert_eq!(read(&hybrid, 5000, 900), fill(2, 900));
    drop(hybrid);
    assert!(gated.pair.checked().damage.is_none());
    gated.disk().gate.lock().broken = None;
    let hybrid = gated.hybrid(Algorithm::Alg1);
    assert_eq!(read(&hybrid, 5000, 900), fill(2, 900));
    assert_eq!(read(&hybrid, 2000, 1040), fill(1, 1040));
}

#[test]
fn records_of_an_earlier_opening_that_a_drain_did_not_reach_still_count() {
    let gated = GatedPair::new();
    let hybrid = gated.asleep_with(Algorithm::Alg1, 2000, 1040, 1);
    hybrid.write(Lba(5000), &fill(2, 900), Durability::Through).expect("to the log");
    hybrid.close().expect("it can be closed");
    let hybrid = gated.hybrid(Algorithm::Alg1);
    gated.disk().breaks(range(5000, 900));
    hybrid.drain().expect_err("the disk is broken");
    assert_eq!(hybrid.at_risk(), [range(5000, 900)], "the first was freed");
    drop(hybrid);
    gated.disk().gate.lock().broken = None;
    assert_eq!(read(&gated.hybrid(Algorithm::Alg1), 5000, 900), fill(2, 900));
}

#[test]
fn a_second_drain_waits_for_the_first() {
    let gated = GatedPair::new();
    let hybrid = gated.asleep_with(Algorithm::Whole, 1000, 16, 1);
    std::thread::scope(|scope| {
        gated.disk().close(Operation::Write, range(1000, 16));
        let first = starts(scope, || hybrid.drain());
        gated.disk().holds(1);
        let second = starts(scope, || hybrid.drain());
        std::thread::sleep(Duration::from_millis(20));
        assert!(!second.is_finished() && gated.disk().gate.lock().waiting == 1, "nothing is drained twice");
        gated.disk().open();
        ends(first).expect("the disk is well");
        ends(second).expect("nothing is left");
    });
    assert_eq!((hybrid.stats().drains, hybrid.at_risk()), (1, vec![]));
}

#[test]
fn a_flush_returns_only_when_what_was_written_to_the_disk_is_durable() {
    let gated = GatedPair::new();
    let hybrid = gated.hybrid(Algorithm::Whole);
    hybrid.write(Lba(100), &fill(1, 8), Durability::Cached).expect("to the disk");
    std::thread::scope(|scope| {
        gated.disk().close(Operation::Flush, range(0, 1));
        let first = starts(scope, || hybrid.flush());
        gated.disk().holds(1);
        let second = starts(scope, || hybrid.flush());
        // The disk is in use: it does not fall asleep now.
        let sleep = starts(scope, || hybrid.sleep());
        std::thread::sleep(Duration::from_millis(20));
        assert!(!first.is_finished() && !second.is_finished() && !sleep.is_finished());
        assert_eq!(gated.disk().gate.lock().waiting, 1, "two flushes at once");
        gated.disk().open();
        for flush in [first, second] {
            ends(flush).expect("the disk is well");
        }
        ends(sleep).expect("now it sleeps");
    });
    assert_eq!((hybrid.stats().disk, gated.pair.sleeping_disk.disturbed()), (Motion::Asleep, 0));
}

#[test]
fn a_disk_that_is_read_or_written_does_not_fall_asleep_under_it() {
    for operation in [Operation::Read, Operation::Write] {
        let gated = GatedPair::new();
        let hybrid = gated.hybrid(Algorithm::Whole);
        std::thread::scope(|scope| {
            gated.disk().close(operation, range(4000, 8));
            let call = starts(scope, || match operation {
                Operation::Read => hybrid.read(Lba(4000), &mut fill(0, 8)),
                _ => hybrid.write(Lba(4000), &fill(1, 8), Durability::Cached),
            });
            gated.disk().holds(1);
            let sleep = starts(scope, || hybrid.sleep());
            let begun = Instant::now();
            while hybrid.stats().disk != Motion::Stopping {
                assert!(begun.elapsed() < TIMEOUT && !sleep.is_finished(), "it waits for {operation}");
            }
            // What comes now is not for the disk, which is about to sleep.
            let later = starts(scope, || hybrid.write(Lba(4004), &fill(2, 2), Durability::Cached));
            std::thread::sleep(Duration::from_millis(20));
            assert!(!sleep.is_finished() && !later.is_finished());
            gated.disk().open();
            ends(call).expect("the disk is well");
            ends(sleep).expect("now it sleeps");
            ends(later).expect("to the log");
        });
        assert_eq!((hybrid.at_risk(), gated.pair.sleeping_disk.disturbed()), (vec![range(4004, 2)], 0));
    }
}

#[test]
fn a_write_waits_for_an_older_one_to_the_same_sectors_that_is_on_its_way_to_the_disk() {
    let gated = GatedPair::new();
    let hybrid = gated.asleep_with(Algorithm::Whole, 4004, 1, 7);
    hybrid.wake().expect("it wakes");
    hybrid.write(Lba(3000), &fill(1, 1), Durability::Cached).expect("to the disk");
    std::thread::scope(|scope| {
        gated.disk().close(Operation::Write, range(4000, 1));
        let older = starts(scope, || hybrid.write(Lba(4000), &fill(1, 4), Durability::Cached));
        gated.disk().holds(1);
        // It overlaps what the log has, and the write that is under way.
        let newer = starts(scope, || hybrid.write(Lba(4000), &fill(2, 8), Durability::Cached));
        std::thread::sleep(Duration::from_millis(20));
        assert!(!newer.is_finished());
        gated.disk().open();
        ends(older).expect("the disk is well");
        ends(newer).expect("to the log");
    });
    hybrid.drain().expect("the disk is well");
    assert_eq!(read(&gated.disk().inner, 4000, 8), fill(2, 8));
}

#[test]
fn of_a_write_on_its_way_into_the_log_and_a_newer_one_the_newer_wins_and_stays() {
    let gated = GatedPair::new();
    let hybrid = gated.hybrid(Algorithm::Whole);
    hybrid.sleep().expect("it sleeps");
    std::thread::scope(|scope| {
        gated.flash.close(Operation::Write, range(LOG_START.0, LEAST_LOG));
        let older = starts(scope, || hybrid.write(Lba(1000), &fill(1, 16), Durability::Cached));
        gated.flash.holds(1);
        hybrid.wake().expect("it wakes");
        gated.disk().close(Operation::Write, range(1000, 16));
        let newer = starts(scope, || hybrid.write(Lba(1000), &fill(2, 16), Durability::Cached));
        until("it goes somewhere", || hybrid.shared.state.lock().joined >= 2 || gated.disk().gate.lock().waiting > 0);
        assert!(!older.is_finished() && !newer.is_finished());
        gated.flash.open();
        ends(older).expect("the flash is well");
        // Should the newer one stand before the disk, it is overtaken by the drain, which stops before it says what it
        // has done.
        gated.disk().close(Operation::Flush, range(0, 1));
        let drain = starts(scope, || hybrid.drain());
        gated.disk().holds(1);
        ends(newer).expect("both are well");
        let winner = read(&hybrid, 1000, 16);
        gated.disk().open();
        ends(drain).expect("the disk is well");
        hybrid.drain().expect("the disk is well");
        assert_eq!(read(&hybrid, 1000, 16), winner, "another one after draining");
        assert_eq!(winner, fill(2, 16));
    });
    assert_eq!(read(&gated.disk().inner, 1000, 16), fill(2, 16));
}

#[test]
fn a_read_of_what_is_drained_and_overwritten_meanwhile_is_read_again() {
    let gated = GatedPair::new();
    let hybrid = gated.asleep_with(Algorithm::Whole, 1000, 8, 1);
    std::thread::scope(|scope| {
        // The read has looked up the log, and waits before its first sectors.
        gated.flash.close(Operation::Read, range(LOG_START.0 + 8, 8));
        let read = starts(scope, || read(&hybrid, 1000, 8));
        gated.flash.holds(1);
        gated.flash.gate.lock().closed = None;
        // It does not notice the open gate and waits on, while the log is drained and goes around.
        hybrid.drain().expect("the disk is well");
        hybrid.sleep().expect("it sleeps");
        for round in 0..5 {
            hybrid.write(Lba(2000), &fill(0x40 + round, 2000), Durability::Cached).expect("to the log");
            hybrid.drain().expect("the disk is well");
            hybrid.sleep().expect("it sleeps");
        }
        gated.flash.open();
        assert_eq!(ends(read), fill(1, 8));
    });
}

#[test]
fn closing_ends_the_drain_that_the_keeper_began_and_what_is_left_stays_on_flash() {
    let gated = GatedPair::new();
    let hybrid = gated.asleep_with(Algorithm::Alg1, 1000, 8, 1);
    hybrid.write(Lba(2000), &fill(2, 8), Durability::Through).expect("to the log");
    hybrid.close().expect("it can be closed");
    gated.disk().close(Operation::Write, range(1000, 8));
    let hybrid = gated.pair.kept(Options { when: FlushTrigger::Each, ..by_hand(Algorithm::Alg1) }, never());
    std::thread::scope(|scope| {
        gated.disk().holds(1);
        let shared = Arc::clone(&hybrid.shared);
        let close = starts(scope, || hybrid.close());
        until("it is closing", || shared.state.lock().closing);
        gated.disk().open();
        ends(close).expect("it can be closed");
    });
    assert_eq!(read(&gated.disk().inner, 2000, 8), fill(0, 8), "the drain went no further");
    assert_eq!(read(&gated.hybrid(Algorithm::Alg1), 2000, 8), fill(2, 8));
}

/// A device that reports a failed flush only to one of several callers, and after a while: the others hear that all is
/// well.
struct TellsOne {
    inner: Memory,
    is_failing: AtomicBool,
    /// The flush that fails has begun.
    has_begun: AtomicBool,
    /// It ends.
    ends: AtomicBool,
}

impl BlockDevice for TellsOne {
    crate::forward!(inner: geometry, read, write, discard, write_zeroes);

    fn flush(&self) -> Result<(), BlockError> {
        if self.is_failing.swap(false, Ordering::SeqCst) {
            self.has_begun.store(true, Ordering::SeqCst);
            until("it ends", || self.ends.load(Ordering::SeqCst));
            return Err(BlockError::io(&"it".into(), Operation::Flush, None, rustix::io::Errno::IO.into()));
        }
        Ok(())
    }
}

/// Returns when a thread has ended, or waits: it sleeps, and nothing wakes it through many looks.
fn until_it_waits<T>(thread: rustix::thread::Pid, work: &ScopedJoinHandle<'_, T>) {
    let path = format!("/proc/self/task/{}/status", thread.as_raw_nonzero());
    let (begun, mut same, mut last) = (Instant::now(), 0, None);
    while !work.is_finished() && same < 20 {
        assert!(begun.elapsed() < TIMEOUT, "it neither waits nor ends");
        std::thread::sleep(Duration::from_millis(2));
        let now = std::fs::read_to_string(&path).ok().filter(|status| status.contains("State:\tS"));
        same = if now.is_some() && now == last { same + 1 } else { 0 };
        last = now;
    }
}

#[test]
fn of_two_flushes_at_once_none_returns_well_when_one_fails() {
    for fails_on_disk in [true, false] {
        let no = AtomicBool::default;
        let tells_one = |memory| Arc::new(TellsOne { inner: memory, is_failing: no(), has_begun: no(), ends: no() });
        let (disk, flash) = (tells_one(Memory::new(sectors(8000 + TAG_SECTORS))), tells_one(flash_of(LEAST_LOG)));
        let (own, other) = (half("disk", disk.clone()), half("flash", flash.clone()));
        create(&own, &other).expect("an empty pair can be made");
        let spindle = Arc::new(crate::spindle::NoSpindle::default());
        let hybrid = Hybrid::open(own, other, spindle, by_hand(Algorithm::Whole), None).expect("it can be opened");
        if !fails_on_disk {
            hybrid.sleep().expect("it sleeps");
        }
        hybrid.write(Lba(100), &fill(1, 8), Durability::Cached).expect("there is room");
        let failing = if fails_on_disk { &disk } else { &flash };
        failing.is_failing.store(true, Ordering::SeqCst);
        let flushed = std::thread::scope(|scope| {
            let first = starts(scope, || hybrid.flush());
            until("it begins", || failing.has_begun.load(Ordering::SeqCst));
            let (tell, thread) = std::sync::mpsc::channel();
            let hybrid = &hybrid;
            let second = starts(scope, move || {
                tell.send(rustix::thread::gettid()).expect("somebody listens");
                hybrid.flush()
            });
            until_it_waits(thread.recv().expect("it begins"), &second);
            failing.ends.store(true, Ordering::SeqCst);
            [first, second].map(ends)
        });
        assert!(flushed.iter().all(Result::is_err), "on disk: {fails_on_disk}: {flushed:?}");
    }
}
