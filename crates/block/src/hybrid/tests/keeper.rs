//! The thread that puts the disk to sleep and drains the log.

use std::time::{Duration, Instant};

use umbrella_policy::spin_down::{Costs, SpinDown};
use umbrella_units::Nanos;

use super::*;

/// Sleeps and is quiet after a moment.
fn kept(pair: &Pair, when: When) -> Hybrid {
    let costs = Costs { break_even: Nanos::from_secs(10) };
    let spin_down = SpinDown::parse("fixed:timeout=20ms", costs).expect("there is such a policy");
    let options = Options { when, quiet: Duration::from_millis(10), ..Options::default() };
    Hybrid::open(pair.disk.clone(), pair.flash.clone(), pair.bed.clone(), options, Some(spin_down))
        .expect("the pair can be opened")
}

fn until(hybrid: &Hybrid, what: &str, reached: impl Fn(&HybridStats) -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !reached(&hybrid.stats()) {
        assert!(Instant::now() < deadline, "{what}: {:?}", hybrid.stats());
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn until_asleep(hybrid: &Hybrid, times: u64) {
    until(hybrid, "asleep", |stats| stats.disk == Motion::Asleep && stats.spin_downs == times);
}

#[test]
fn a_disk_that_was_woken_sleeps_again() {
    let pair = Pair::new(1024);
    let hybrid = kept(&pair, When::Full);
    until_asleep(&hybrid, 1);
    read(&hybrid, 0, 8);
    until_asleep(&hybrid, 2);
    read(&hybrid, 0, 8);
    until_asleep(&hybrid, 3);
    assert_eq!(pair.bed.disturbed(), 0);
}

#[test]
fn a_disk_that_was_woken_for_something_else_is_drained_before_it_sleeps_again() {
    let pair = Pair::new(1024);
    let hybrid = kept(&pair, When::Piggyback);
    until_asleep(&hybrid, 1);
    hybrid.write(Lba(0), &[7; 4096], Durability::Cached).expect("the log has room");
    assert_eq!(hybrid.stats().cached, sectors(8));
    read(&hybrid, 512, 8);
    until_asleep(&hybrid, 2);
    assert_eq!(hybrid.stats().cached, sectors(0));
    assert_eq!(pair.bed.disturbed(), 0);
}
