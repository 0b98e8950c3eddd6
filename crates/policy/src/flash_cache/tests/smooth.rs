//! A log that fills up while it is flushed: writers become slower, and continue. All in virtual time.

use umbrella_units::Nanos;

use super::*;

const MIB: u64 = 1 << 20;

/// One writer that writes as fast as it may, and the flush that makes room for it.
struct Race {
    options: Options,
    log: Log,
    rate: DrainRate,
    /// Whether it is flushed now, and what of that is yet to be written before anything is free.
    flushing: bool,
    to_flush: u64,
    now: Nanos,
    writes_at: Nanos,
    written: u64,
    refused: u64,
    longest: Nanos,
    /// Writes since something was freed; one number for each time.
    admitted: Vec<u64>,
    freed_at: Nanos,
}

impl Race {
    fn new(algorithm: Algorithm, size: ByteSize) -> Race {
        Race {
            options: Options { algorithm, when: FlushTrigger::Watermark, memory: ByteSize(MIB), ..Options::default() },
            log: Log::new(size, LogSector(0)),
            rate: DrainRate::default(),
            flushing: false,
            to_flush: 0,
            now: Nanos(0),
            writes_at: Nanos(0),
            written: 0,
            refused: 0,
            longest: Nanos(0),
            admitted: vec![0],
            freed_at: Nanos(0),
        }
    }

    /// Time passes. The writer writes 16 KiB at a time, for each of which the flash takes 40 us, and waits as long as
    /// the options say.
    fn until(&mut self, then: Nanos) {
        while self.writes_at < then {
            let start = self.written.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
            let mut delay = Nanos::from_micros(40);
            if add(&mut self.log, range(start * 32, 32)) {
                self.written += 1;
                *self.admitted.last_mut().unwrap() += 1;
                if self.flushing {
                    let held = self.options.write_delay(self.log.fill(), self.to_flush, ByteSize(16 << 10), self.rate);
                    self.longest = self.longest.max(held);
                    delay = delay + held;
                }
            } else {
                self.refused += 1;
                delay = Nanos::from_millis(1);
            }
            self.writes_at = self.writes_at + delay;
        }
        self.now = then;
    }

    fn free(&mut self, done: LogSector, until: LogSector) {
        self.log.release(done);
        self.to_flush = self.options.until_freed(&self.log, until);
        // A pass may end with what was freed just before.
        if self.freed_at < self.now {
            self.freed_at = self.now;
            self.admitted.push(0);
        }
    }

    /// The disk takes 1 ms for each write, and 10 ms for a MiB.
    fn flush(&mut self) {
        self.flushing = true;
        let end = self.log.committed();
        while self.log.tail() < end {
            let upto = end.min(pass_end(&self.log));
            let mut planner =
                FlushPlanner::new(self.options.algorithm, self.options.memory, &self.log).up_to(upto, &self.log);
            let until = planner.until();
            self.to_flush = self.options.until_freed(&self.log, until);
            while let Some(chunk) = planner.next_chunk(&self.log) {
                for write in &chunk.writes {
                    let took = Nanos(1_000_000 + write.range.sectors * 5_000);
                    self.until(self.now + took);
                    let rest = self.options.rest(took, Nanos(0), self.log.fill());
                    self.rate.observe(write.range.bytes(), took + rest);
                    self.to_flush = self.to_flush.saturating_sub(write.range.sectors);
                    self.until(self.now + rest);
                }
                if let Some(done) = chunk.done.filter(|done| frees(&self.log, *done)) {
                    self.free(done, until);
                }
            }
            self.free(until, end.min(pass_end(&self.log)));
        }
        self.flushing = false;
    }
}

#[test]
fn a_log_that_fills_up_while_it_is_flushed_slows_its_writers_and_stops_none() {
    for algorithm in Algorithm::ALL {
        for size in [16 * MIB, 64 * MIB, 600 * MIB] {
            let mut race = Race::new(algorithm, ByteSize(size));
            for _ in 0..3 {
                while !race.options.flushes(Moment::Logged, race.log.fill()) {
                    race.until(race.now + Nanos::from_millis(1));
                }
                race.flush();
            }
            let reported =
                format!("{algorithm}, {}: {} written, longest {}", ByteSize(size), race.written, race.longest.0);
            println!("{reported}, {:?}", race.admitted);
            assert_eq!(race.refused, 0, "{reported}");
            let (last, before) = race.admitted.split_last().unwrap();
            assert!(before.iter().all(|admitted| *admitted > 0), "{reported}: {:?}, {last}", race.admitted);
            assert!(race.longest < Nanos::from_millis(250), "{reported}");
        }
    }
}

#[test]
fn a_writer_waits_the_longer_the_fuller_the_log_is_and_not_at_all_below_the_mark() {
    let options = Options::default();
    let delay = |used: u64, to_flush: u64| {
        let fill = Fill { used, size: 10_000 };
        options.write_delay(fill, to_flush, ByteSize(4096), DrainRate::default())
    };
    assert_eq!((delay(0, 5000), delay(7500, 5000)), (Nanos(0), Nanos(0)));
    let delays: Vec<Nanos> = (7501..=10_000).map(|used| delay(used, 5000)).collect();
    assert!(delays.is_sorted() && delays[0] > Nanos(0), "{delays:?}");
    // 2500 sectors are left at the mark; of them 1000 when the disk has to write four times as many.
    assert_eq!(delay(9000, 4000), Nanos(4 * 4096 * 1_000_000_000 / 20_000_000));
    assert_eq!(delay(10_000, 1 << 40), Nanos::from_millis(250), "it is bounded");
    assert_eq!(delay(9000, 0), delay(9000, MOST_WRITE), "the last write takes its time");
}

#[test]
fn flushing_rests_for_its_share_while_others_want_the_disk() {
    let rest = |share: u8, since: u64, used: u64| {
        let options = Options { drain_share: Percent(share), ..Options::default() };
        options.rest(Nanos::from_millis(30), Nanos::from_millis(since), Fill { used, size: 1600 })
    };
    assert_eq!((rest(50, 0, 0), rest(25, 100, 1499)), (Nanos::from_millis(30), Nanos::from_millis(90)));
    assert_eq!((rest(100, 0, 0), rest(25, 101, 0), rest(25, 0, 1500)), (Nanos(0), Nanos(0), Nanos(0)));
    assert_eq!((rest(1, 0, 0), rest(0, 0, 0)), (Nanos::from_millis(500), Nanos::from_millis(500)));
}

#[test]
fn a_disk_is_flushed_when_it_is_quiet_and_before_it_sleeps() {
    let fill = |used| Fill { used, size: 100 };
    let second = Nanos::from_secs;
    let options = Options::default();
    let now = second(10);
    let due = |last, sleep_at, used| options.flushes_at_rest(now, last, sleep_at, fill(used));
    assert_eq!(options.quiet_at(second(9), fill(1)), Some(second(11)));
    assert!(due(second(8), None, 1) && due(second(9), Some(second(10)), 1));
    assert!(!due(second(9), None, 1) && !due(second(9), Some(second(11)), 1) && !due(second(1), Some(second(1)), 0));
    let full = Options { when: FlushTrigger::Full, ..options };
    assert!(!full.flushes_at_rest(now, second(1), Some(second(1)), fill(50)));
}

#[test]
fn the_rate_follows_what_the_disk_does() {
    let mut rate = DrainRate::default();
    let size = 100 * MOST_WRITE;
    let fill = Fill { used: size - MOST_WRITE, size };
    let hold = |rate| Options::default().write_delay(fill, MOST_WRITE, ByteSize(1 << 20), rate);
    let before = hold(rate);
    for _ in 0..200 {
        rate.observe(ByteSize(1 << 20), Nanos::from_millis(10));
    }
    assert!(hold(rate) < before && hold(rate).0.abs_diff(10_000_000) < 100_000, "{:?}", hold(rate));
    rate.observe(ByteSize(1 << 20), Nanos(0));
    assert!(hold(rate) > Nanos(0));
}

#[test]
fn a_pass_is_part_of_a_large_log_and_all_of_a_small_one() {
    let gib = 2 * MIB;
    let log = |size| Log::new(ByteSize(size * SECTOR_BYTES), LogSector(40));
    assert_eq!(pass_end(&log(16 * gib)), LogSector(40 + 2 * gib));
    assert_eq!(pass_end(&log(gib / 8)), LogSector(40 + gib / 4));
    assert!(frees(&log(8000), LogSector(1040)) && !frees(&log(8000), LogSector(1039)));
    let mut log = log_of(8000, &[(0, 99), (500, 99), (0, 99)]);
    let freed = |algorithm, log: &Log, until| {
        let memory = ByteSize(50 * SECTOR_BYTES);
        Options { algorithm, memory, ..Options::default() }.until_freed(log, LogSector(until))
    };
    assert_eq!((freed(Algorithm::Whole, &log, 300), freed(Algorithm::Whole, &log, 150)), (198, 99));
    assert_eq!(freed(Algorithm::Alg4, &log, 300), 300);
    assert_eq!(freed(Algorithm::Alg1, &log_of(800, &[(0, 299)]), 300), 150);
    log.release(LogSector(300));
    assert_eq!(freed(Algorithm::Whole, &log, 300), 0);
}
