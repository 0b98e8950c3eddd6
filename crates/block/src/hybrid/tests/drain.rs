//! How a drain works, and which writers wait for it: read ahead, begun at spin-up, rests, writers that are held back.

use std::time::{Duration, Instant};

use umbrella_units::Nanos;

use super::under_way::{GatedPair, ends, never, starts};
use super::*;
use crate::error::Operation;
use crate::fault::CallFault;
use crate::testing::TIMEOUT;

/// A log of two writes with 200 sectors of data. Each buffer holds one of them and a part of the other.
fn two_chunks(gated: &GatedPair, algorithm: Algorithm) -> Hybrid {
    let memory = sectors(256 * algorithm.buffers());
    let hybrid = gated.pair.open(Options { memory, ..by_hand(algorithm) });
    hybrid.sleep().expect("it sleeps");
    for (start, byte) in [(1000, 1), (3000, 2)] {
        hybrid.write(Lba(start), &fill(byte, 200), Durability::Through).expect("to the log");
    }
    hybrid
}

/// The end of the second write: it is in the second chunk only.
const SECOND_CHUNK: SectorRange = SectorRange { start: Lba(LOG_START.0 + 320), sectors: 80 };

/// Drains both writes, while writing the first and reading the second waits.
fn drained(algorithm: Algorithm, meanwhile: impl FnOnce(&GatedPair)) {
    let gated = GatedPair::new();
    let hybrid = two_chunks(&gated, algorithm);
    gated.disk().close(Operation::Write, range(1000, 200));
    gated.flash.close(Operation::Read, SECOND_CHUNK);
    std::thread::scope(|scope| {
        let drain = starts(scope, || hybrid.drain());
        gated.disk().holds(1);
        meanwhile(&gated);
        ends(drain).expect("both are well");
    });
    assert_eq!(read(&gated.disk().inner, 3000, 200), fill(2, 200), "{algorithm}");
}

#[test]
fn with_two_buffers_flash_is_read_while_the_disk_is_written() {
    for algorithm in [Algorithm::Alg3, Algorithm::Alg4, Algorithm::Whole] {
        drained(algorithm, |gated| {
            gated.flash.holds(1);
            assert_eq!(gated.disk().gate.lock().waiting, 1, "{algorithm}: the first write has not ended");
            gated.flash.open();
            gated.disk().open();
        });
    }
}

#[test]
fn with_one_buffer_flash_is_not_read_while_the_disk_is_written() {
    for algorithm in [Algorithm::Alg1, Algorithm::Alg2] {
        drained(algorithm, |gated| {
            std::thread::sleep(Duration::from_millis(20));
            assert_eq!(gated.flash.gate.lock().waiting, 0, "{algorithm}");
            gated.disk().open();
            gated.flash.holds(1);
            gated.flash.open();
        });
    }
}

/// Asleep, with a little in the log; then a read of something else wakes the disk.
fn woken_by_a_read(gated: &GatedPair, when: FlushTrigger) -> Hybrid {
    let hybrid = gated.pair.kept(Options { when, ..by_hand(Algorithm::Whole) }, never());
    hybrid.sleep().expect("it sleeps");
    hybrid.write(Lba(1000), &fill(1, 8), Durability::Through).expect("to the log");
    assert_eq!(read(&hybrid, 2000, 8), fill(0, 8));
    assert_eq!(hybrid.stats().reads_that_woke, 1);
    hybrid
}

#[test]
fn under_each_a_disk_that_is_woken_to_read_is_drained() {
    let gated = GatedPair::new();
    let hybrid = woken_by_a_read(&gated, FlushTrigger::Each);
    until("the log is empty", || hybrid.stats().log_used == ByteSize(0));
    assert_eq!(read(&gated.disk().inner, 1000, 8), fill(1, 8));
}

#[test]
fn under_full_a_disk_that_is_woken_to_read_is_not_drained() {
    let gated = GatedPair::new();
    let hybrid = woken_by_a_read(&gated, FlushTrigger::Full);
    for _ in 0..10 {
        // A drain that was asked for would hold this up, or have begun.
        hybrid.sleep().expect("it sleeps");
        read(&hybrid, 2000, 8);
    }
    assert!(!hybrid.shared.state.lock().drain_wanted);
    assert_eq!((hybrid.stats().spin_ups, hybrid.at_risk()), (11, vec![range(1000, 8)]));
    assert_eq!(read(&gated.disk().inner, 1000, 8), fill(0, 8));
}

/// The number of reads that find time between the writes of a drain, each of which takes a moment.
fn reads_between_writes(share: u8) -> u64 {
    let gated = GatedPair::new();
    let hybrid = gated.pair.open(Options { drain_share: Percent(share), ..by_hand(Algorithm::Alg1) });
    hybrid.sleep().expect("it sleeps");
    let places = [1000, 2000, 3000, 4000];
    for start in places {
        hybrid.write(Lba(start), &fill(1, 8), Durability::Through).expect("to the log");
    }
    let mut reads = 0;
    std::thread::scope(|scope| {
        gated.disk().close(Operation::Write, range(1000, 8));
        let drain = starts(scope, || hybrid.drain());
        gated.disk().holds(1);
        for (done, next) in (1..).zip(&places[1..]) {
            std::thread::sleep(Duration::from_millis(5));
            read(&hybrid, 7000, 8);
            gated.disk().moves_on_to(Operation::Write, range(*next, 8));
            let begun = Instant::now();
            while gated.disk().gate.lock().stood == done {
                assert!(begun.elapsed() < TIMEOUT, "the drain does not continue");
                read(&hybrid, 7000, 8);
                reads += 1;
                // The drain has its turn where there are more threads than processors.
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        gated.disk().open();
        ends(drain).expect("the disk is well");
    });
    assert_eq!(hybrid.at_risk(), []);
    reads
}

#[test]
fn a_drain_rests_while_somebody_reads() {
    let (resting, hurrying) = (reads_between_writes(1), reads_between_writes(100));
    println!("{resting} reads while it rests, {hurrying} while it does not");
    assert!(resting > 3 * (hurrying + 5), "{resting} reads while it rests, {hurrying} while it does not");
}

/// A log that is almost filled up to its high mark. Each of the writes that follow takes 72 of its 8192 sectors, with
/// its header.
fn almost_at_the_mark(gated: &GatedPair) -> (Hybrid, impl Fn(&Hybrid) -> u64) {
    let hybrid = gated.asleep_with(Algorithm::Whole, 0, 2000, 1);
    for start in [2000, 4000] {
        hybrid.write(Lba(start), &fill(1, 2000), Durability::Cached).expect("to the log");
    }
    let slowed_after_a_write = |hybrid: &Hybrid| {
        hybrid.write(Lba(100), &fill(2, 64), Durability::Cached).expect("to the log");
        hybrid.stats().slowed
    };
    (hybrid, slowed_after_a_write)
}

fn is_above_the_mark(hybrid: &Hybrid) -> bool {
    hybrid.stats().log_used.0 > hybrid.stats().log_size.0 / 4 * 3
}

#[test]
fn a_writer_is_held_back_above_the_high_mark_of_a_log_that_is_drained() {
    let gated = GatedPair::new();
    let (hybrid, slowed_after_a_write) = almost_at_the_mark(&gated);
    let seen = std::thread::scope(|scope| {
        gated.disk().close(Operation::Write, range(0, 8000));
        let drain = starts(scope, || hybrid.drain());
        gated.disk().holds(1);
        let seen = [(); 3].map(|()| (slowed_after_a_write(&hybrid), is_above_the_mark(&hybrid)));
        gated.disk().open();
        ends(drain).expect("the disk is well");
        seen
    });
    assert_eq!(seen, [(0, false), (1, true), (2, true)]);
    assert!(hybrid.stats().slowed_time > Nanos(0));
}

#[test]
fn a_writer_is_not_held_back_while_nobody_drains_the_log() {
    let gated = GatedPair::new();
    let (hybrid, slowed_after_a_write) = almost_at_the_mark(&gated);
    for _ in 0..3 {
        assert_eq!(slowed_after_a_write(&hybrid), 0);
    }
    assert!(is_above_the_mark(&hybrid));
}

/// The log is before a disk that is much slower than it. A writer that is not held back fills it long before any of it
/// is free.
#[test]
fn no_writer_finds_a_log_full_that_fills_while_it_is_drained() {
    const LOG: u64 = (32 << 20) / SECTOR_BYTES;
    const RECORD: u64 = 264;
    for algorithm in [Algorithm::Alg1, Algorithm::Whole] {
        let slow = Rule::on(Operation::Write, CallFault::Delay(Duration::from_millis(2)));
        let disk = Faulty::new(Memory::new(sectors(LOG + TAG_SECTORS)), Plan::new(1).rule(slow));
        let pair = Pair::created(disk, Arc::new(flash_of(LOG)));
        let hybrid = pair.kept(Options { when: FlushTrigger::Watermark, ..by_hand(algorithm) }, never());
        hybrid.sleep().expect("it sleeps");
        let (mut full, mut at) = (0, 0);
        // Up to the mark, and twice what is above it.
        for number in 0..LOG / RECORD * 5 / 4 {
            full += u32::from(!hybrid.shared.state.lock().log.has_room(RECORD));
            hybrid.write(Lba(at), &fill(number as u8, RECORD - 8), Durability::Cached).expect("it is written");
            at = (at + RECORD - 8) % (LOG / 2);
        }
        let stats = hybrid.stats();
        assert!(stats.slowed > 0 && stats.drained.0 > 8 << 20, "{algorithm}: {stats:?}");
        assert_eq!(full, 0, "{algorithm}: {stats:?}");
    }
}
