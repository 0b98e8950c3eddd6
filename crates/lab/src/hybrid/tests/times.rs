//! Hand-made traces whose every time can be worked out.

use umbrella_policy::flash_cache::{Algorithm, FlushTrigger};

use super::*;

/// What the flushes took, as milliseconds: in total, of the flash, of the disk.
fn flush_times(outcome: &HybridOutcome) -> [u64; 3] {
    [outcome.flushes.time_s, outcome.flushes.flash_s, outcome.flushes.disk_s].map(millis)
}

#[test]
fn a_write_to_a_sleeping_disk_goes_to_the_log_and_wakes_nobody() {
    // Read by 0.01 s, asleep at 10.01 s, at rest at 12.01 s. At 30 s it is over: up at 35 s, read in 1 ms, written
    // in 10.
    let setup = HybridSetup { when: FlushTrigger::Full, ..small(100) };
    let outcome = run_for(30, &setup, &[read(0, 0, 8), write(20_000, 8, 8)]);
    assert_eq!((outcome.redirected.writes, outcome.redirected.bytes), (1, 4096));
    assert_eq!(outcome.redirected.sleeps, [4096]);
    assert_eq!(outcome.wakes, Wakes { end: 1, ..Wakes::default() });
    assert_eq!(flush_times(&outcome), [11, 1, 10]);
    assert_eq!(millis(outcome.flushes.at_end_s), 11);
    assert_eq!((millis(outcome.asleep_s), millis(outcome.time_s)), (17_990, 35_011));
    assert_eq!((millis(outcome.response.max), outcome.delayed, outcome.waited_for_spin_up), (10, 0, 0));
    let joules = outcome.energy;
    // 10 s from the read to the timeout, and 1 ms while the flash is read.
    let of = [joules.active, joules.idle, joules.spinning_down, joules.standby, joules.spinning_up, joules.flash];
    let expected = [0.02 * 4.0, 10.001 * 2.0, 2.0 * 3.0, 17.99, 5.0 * 6.0, 0.002];
    for (got, wanted) in of.iter().zip(expected) {
        assert!((got - wanted).abs() < 1e-9, "{of:?} instead of {expected:?}");
    }
    assert!((joules.total - expected.iter().sum::<f64>()).abs() < 1e-9);
}

#[test]
fn a_read_that_the_log_has_not_wakes_the_disk_and_each_flushes_then() {
    // Asleep since 10 s. The read waits from 20 s to 25 s for the motor, and takes 10 ms. The flush reads 1 ms beside
    // it, then writes after it.
    let trace = [write(15_000, 8, 8), read(20_000, 800, 8)];
    let outcome = run_for(26, &small(100), &trace);
    assert_eq!((millis(outcome.response.max), outcome.delayed, outcome.waited_for_spin_up), (5010, 1, 1));
    assert_eq!(outcome.wakes, Wakes { read: 1, ..Wakes::default() });
    assert_eq!(flush_times(&outcome), [20, 1, 19]);
    assert_eq!((outcome.flushes.count, millis(outcome.flushes.at_end_s)), (1, 0));
    assert_eq!((outcome.flushes.read_bytes, outcome.flushes.written_bytes), (9 * 512, 4096));
}

#[test]
fn a_flush_is_timed_beside_the_requests_of_others_and_alone() {
    let contended = run_for(26, &small(100), &[write(15_000, 8, 8), read(20_000, 800, 8)]);
    let AloneFigures { time_s, flash_s, disk_s } = contended.flushes.alone;
    assert_eq!((flush_times(&contended), [time_s, flash_s, disk_s].map(millis)), ([20, 1, 19], [11, 1, 10]));
    assert!((contended.contention - 45.0).abs() < 1e-6, "{}", contended.contention);
    let undisturbed =
        run_for(30, &HybridSetup { when: FlushTrigger::Full, ..small(100) }, &[read(0, 0, 8), write(20_000, 8, 8)]);
    assert_eq!((undisturbed.flushes.count, undisturbed.contention), (1, 0.0));
}

#[test]
fn full_does_not_flush_when_a_read_wakes_the_disk() {
    let trace = [write(15_000, 8, 8), read(20_000, 800, 8)];
    let outcome = run_for(26, &HybridSetup { when: FlushTrigger::Full, ..small(100) }, &trace);
    // The one at the end needs no spin-up.
    assert_eq!((outcome.flushes.count, outcome.wakes.end, outcome.spin_ups), (1, 0, 1));
    assert_eq!((flush_times(&outcome), millis(outcome.flushes.at_end_s)), ([11, 1, 10], 11));
}

#[test]
fn flash_serves_a_read_that_it_has_entirely_and_the_disk_wakes_for_one_that_it_has_in_part() {
    let setup = HybridSetup { when: FlushTrigger::Full, ..small(100) };
    let outcome = run_for(60, &setup, &[write(15_000, 8, 8), read(20_000, 10, 4), read(30_000, 12, 8)]);
    assert_eq!((outcome.reads_asleep, outcome.reads_from_flash), (2, 1));
    assert_eq!((outcome.wakes.read, outcome.delayed), (1, 1));
    // The write and the first read took 1 ms each.
    assert_eq!((millis(outcome.response.p50), millis(outcome.response.max)), (1, 5010));
}

#[test]
fn a_write_that_does_not_fit_wakes_the_disk_and_goes_there_while_the_log_is_flushed() {
    // 9 of 10 sectors are used at 20 s. At 21 s the motor starts, at 26 s the write is served, and behind it the
    // flush's.
    let setup = HybridSetup { when: FlushTrigger::Full, ..small(10) };
    let outcome = run_for(30, &setup, &[write(20_000, 8, 8), write(21_000, 800, 8)]);
    assert_eq!(outcome.wakes, Wakes { full: 1, ..Wakes::default() });
    assert_eq!((millis(outcome.response.max), outcome.waited_for_spin_up), (5010, 1));
    assert_eq!((outcome.redirected.writes, outcome.flushes.count), (1, 1));
    assert_eq!(flush_times(&outcome), [20, 1, 19]);
}

#[test]
fn a_write_to_sectors_that_the_full_log_has_waits_for_the_end_of_the_flush() {
    let setup = HybridSetup { when: FlushTrigger::Full, ..small(10) };
    let outcome = run_for(30, &setup, &[write(20_000, 8, 8), write(21_000, 12, 8)]);
    assert_eq!(flush_times(&outcome), [11, 1, 10]);
    assert_eq!(millis(outcome.response.max), 5021, "5 s of the motor, 11 ms of the flush, 10 ms of its own");
    assert_eq!(outcome.redirected.writes, 1);
}

#[test]
fn a_write_that_is_larger_than_the_log_goes_to_the_disk() {
    let outcome = run_for(30, &small(10), &[write(20_000, 8, 64)]);
    assert_eq!((outcome.wakes.full, outcome.redirected.writes, outcome.flushes.count), (1, 0, 0));
    assert_eq!(millis(outcome.response.max), 5010);
}

#[test]
fn awake_only_writes_that_overlap_the_log_go_there() {
    let setup = HybridSetup { when: FlushTrigger::Full, ..small(100) };
    let trace =
        [write(15_000, 8, 8), read(20_000, 800, 8), write(26_000, 15, 8), write(26_000, 16, 8), write(26_000, 24, 8)];
    let outcome = run_for(27, &setup, &trace);
    // The third write is adjacent to what the log has after the first two.
    assert_eq!((outcome.writes, outcome.redirected.writes), (4, 3));
    assert_eq!((outcome.redirected.bytes, outcome.redirected.distinct_bytes), (3 * 4096, 16 * 512));
    assert_eq!(outcome.redirected.sleeps, [4096], "only the first came while it slept");
}

#[test]
fn one_buffer_alternates_and_two_overlap() {
    let writes = [0, 1, 2, 3].map(|number| write(20_000 + number, number * 1000, 8));
    let times = |algorithm, memory: u64| {
        let memory = ByteSize(memory * SECTOR_BYTES);
        flush_times(&run_for(21, &HybridSetup { when: FlushTrigger::Full, algorithm, memory, ..small(100) }, &writes))
    };
    assert_eq!(times(Algorithm::Alg1, 9), [44, 4, 40]);
    assert_eq!(times(Algorithm::Alg2, 9), [44, 4, 40]);
    assert_eq!(times(Algorithm::Alg2, 36), [41, 1, 40], "one read for all");
    assert_eq!(times(Algorithm::Alg3, 18), [41, 4, 40], "the other three are read meanwhile");
    assert_eq!(times(Algorithm::Alg4, 72), [41, 1, 40]);
}

#[test]
fn alg4_and_whole_write_what_is_adjacent_in_one_piece_and_what_was_overwritten_not_at_all() {
    let trace = [write(20_000, 16, 8), write(20_001, 8, 8), write(20_002, 16, 8), write(20_003, 24, 8)];
    let flushed = |algorithm| {
        let outcome = run_for(21, &HybridSetup { when: FlushTrigger::Full, algorithm, ..small(100) }, &trace);
        (outcome.flushes.writes, outcome.flushes.written_bytes, outcome.flushes.read_bytes)
    };
    assert_eq!(flushed(Algorithm::Alg3), (4, 4 * 4096, 4 * 9 * 512));
    assert_eq!(flushed(Algorithm::Alg4), (1, 3 * 4096, 4 * 9 * 512));
    assert_eq!(flushed(Algorithm::Whole), (1, 3 * 4096, 3 * 4096));
}

#[test]
fn piggyback_flushes_when_the_disk_spins_anyway_and_two_seconds_have_passed() {
    let setup = HybridSetup { when: FlushTrigger::Piggyback, ..small(100) };
    // Up at 25 s; last asked at 24.5 s, so quiet at 26.5 s. The read at 26.502 s waits for the write of the flush, and
    // the end of that for the read.
    let trace = [write(15_000, 8, 8), read(20_000, 800, 8), read(24_500, 900, 8), read(26_502, 900, 8)];
    let outcome = run_for(40, &setup, &trace);
    assert_eq!((outcome.flushes.count, outcome.wakes, outcome.spin_ups), (1, Wakes { read: 1, ..Wakes::default() }, 1));
    assert_eq!(flush_times(&outcome), [21, 1, 20]);
    assert_eq!(outcome.response.count, 4);
}

#[test]
fn piggyback_flushes_before_the_disk_sleeps() {
    let setup = HybridSetup { when: FlushTrigger::Piggyback, spin_down: "fixed:timeout=1s".to_owned(), ..small(100) };
    let outcome = run_for(40, &setup, &[write(10_000, 8, 8), read(20_000, 800, 8), write(25_500, 8, 8)]);
    // Up at 25 s, quiet since 20 s: flushed at once; the last write comes after that, and goes to the disk.
    assert_eq!((outcome.flushes.count, outcome.redirected.writes, outcome.wakes.end), (1, 1, 0));
}

#[test]
fn the_high_mark_wakes_the_disk() {
    let trace = [write(20_000, 8, 8), write(20_100, 80, 8)];
    for (when, marked) in
        [(FlushTrigger::Watermark, 1), (FlushTrigger::Piggyback, 1), (FlushTrigger::Each, 0), (FlushTrigger::Full, 0)]
    {
        let outcome = run_for(30, &HybridSetup { when, ..small(24) }, &trace);
        assert_eq!(outcome.wakes, Wakes { mark: marked, end: 1 - marked, ..Wakes::default() }, "{when}");
        assert_eq!(outcome.delayed, 0, "{when}");
    }
}

#[test]
fn an_infinite_flash_is_never_flushed() {
    for when in FlushTrigger::ALL {
        let setup = HybridSetup { cache: Cache::Infinite, when, ..small(0) };
        let day = 86_400_000;
        let trace = [write(20_000, 8, 8), read(day, 800, 8), write(day + 60_000, 8, 64), write(3 * day, 0, 800)];
        let outcome = run_for(4 * 86_400, &setup, &trace);
        assert_eq!((outcome.flushes, outcome.wakes), (FlushFigures::default(), Wakes { read: 1, ..Wakes::default() }));
        assert_eq!(outcome.redirected.by_day, [4096, 64 * 512, 0, 800 * 512]);
        assert_eq!(outcome.redirected.sleeps, [4096, 864 * 512]);
        assert_eq!(outcome.redirected.distinct_bytes, 800 * 512);
    }
}

#[test]
fn what_comes_while_the_motor_stops_is_as_if_it_slept() {
    // It stops at 10 s; at rest at 12 s, up at 17 s.
    let outcome = run_for(30, &small(100), &[write(11_000, 8, 8), read(11_500, 800, 8)]);
    assert_eq!((outcome.redirected.writes, outcome.waited_for_spin_up), (1, 1));
    assert_eq!(millis(outcome.response.max), 5510);
}

#[test]
fn flushing_is_no_access_for_the_spin_down_policy() {
    // The disk is idle from 0 s on, and wakes for the high mark at 20 s only: when that is flushed, it sleeps at once.
    let setup = HybridSetup { when: FlushTrigger::Watermark, ..small(10) };
    let outcome = run_for(40, &setup, &[write(20_000, 8, 8)]);
    assert_eq!((outcome.wakes.mark, millis(outcome.flushes.time_s)), (1, 11));
    // At rest from 12 to 20 s; up at 25 s, flushed by 25.011 s, at rest from 27.011 s on.
    assert_eq!(millis(outcome.asleep_s), 8_000 + 12_989);
    assert_eq!(outcome.redirected.sleeps.len(), 2);
}

#[test]
fn the_optimum_sleeps_at_once_where_nothing_needs_the_disk_for_longer_than_pays() {
    let setup = HybridSetup { when: FlushTrigger::Full, spin_down: "optimum".to_owned(), ..small(100) };
    // 20 s do not pay, 80 s do; the write at 50 s goes to the log and the read at 60 s is served from it.
    let trace = [read(0, 0, 8), read(20_000, 0, 8), write(50_000, 8, 8), read(60_000, 8, 8), read(100_000, 0, 8)];
    let outcome = run_for(101, &setup, &trace);
    assert_eq!((outcome.spin_ups, outcome.wakes.read, outcome.redirected.writes), (1, 1, 1));
    assert_eq!(millis(outcome.asleep_s), 100_000 - 22_010);
    let full = HybridSetup { spin_down: "optimum".to_owned(), ..small(8) };
    let outcome = run_for(101, &full, &trace);
    assert_eq!(outcome.wakes.full, 0, "a write that would not fit is a need");
}

#[test]
fn without_flash_every_write_wakes_the_disk() {
    let outcome = run_for(200, &small(0), &[write(20_000, 8, 8), write(60_000, 8, 8), write(100_000, 8, 8)]);
    assert_eq!((outcome.wakes.full, outcome.spin_ups, outcome.redirected.writes, outcome.flushes.count), (3, 3, 0, 0));
    assert_eq!((outcome.delayed, millis(outcome.response.p50)), (3, 5010));
}

#[test]
fn a_run_that_is_stopped_has_no_outcome() {
    let arrivals = (0..5000).map(|number| read(number, number * 8, 8)).collect();
    let (input, setup) = (HybridInput::new("by hand", arrivals, SECOND), small(10));
    let mut nobody = ();
    assert_eq!(Engine::new(&setup, &input, &mut nobody).unwrap().run(&mut |_| false), None);
}
