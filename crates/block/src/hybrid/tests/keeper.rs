//! The thread that puts the disk to sleep and drains the log.

use std::time::{Duration, Instant};

use umbrella_policy::spin_down::{Costs, SpinDown};
use umbrella_units::Nanos;

use super::*;
use crate::error::Operation;
use crate::fault::CallFault;

/// Sleeps and is quiet after a moment.
fn kept<D: BlockDevice + 'static>(pair: &Pair<D>, when: FlushTrigger) -> Hybrid {
    let costs = Costs { break_even: Nanos::from_secs(10) };
    let spin_down = SpinDown::parse("fixed:timeout=20ms", costs).expect("there is such a policy");
    pair.kept(Options { when, quiet: Nanos::from_millis(10), ..Options::default() }, spin_down)
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
    let hybrid = kept(&pair, FlushTrigger::Full);
    until_asleep(&hybrid, 1);
    read(&hybrid, 0, 8);
    until_asleep(&hybrid, 2);
    read(&hybrid, 0, 8);
    until_asleep(&hybrid, 3);
    assert_eq!(pair.sleeping_disk.disturbed(), 0);
}

#[test]
fn a_disk_that_was_woken_for_something_else_is_drained_before_it_sleeps_again() {
    let pair = Pair::new(1024);
    let hybrid = kept(&pair, FlushTrigger::Piggyback);
    until_asleep(&hybrid, 1);
    hybrid.write(Lba(0), &[7; 4096], Durability::Cached).expect("the log has room");
    assert_eq!(hybrid.stats().cached, sectors(8));
    read(&hybrid, 512, 8);
    until_asleep(&hybrid, 2);
    assert_eq!(hybrid.stats().cached, sectors(0));
    assert_eq!(pair.sleeping_disk.disturbed(), 0);
}

#[test]
fn a_disk_whose_last_call_was_a_flush_sleeps() {
    let pair = Pair::new(1024);
    let slow = |calls, time| Rule::on(calls, CallFault::Delay(Duration::from_millis(time))).within(range(0, 1024));
    let plan = Plan::new(1).rule(slow(Operation::Read, 100));
    let flushes = Rule::on(Operation::Flush, CallFault::Delay(Duration::from_millis(300))).from_nth(3);
    let disk = Faulty::new(copy_of(&pair.disk), plan.rule(flushes));
    let hybrid = kept(&Pair::of(disk, pair.flash.device), FlushTrigger::Full);
    hybrid.write(Lba(0), &[7; 4096], Durability::Cached).expect("to the disk or to the log");
    read(&hybrid, 512, 8);
    hybrid.write(Lba(0), &[7; 4096], Durability::Cached).expect("to the disk");
    std::thread::scope(|scope| {
        scope.spawn(|| read(&hybrid, 512, 8));
        std::thread::sleep(Duration::from_millis(30));
        scope.spawn(|| hybrid.flush().expect("it is flushed"));
    });
    until(&hybrid, "asleep", |stats| stats.disk == Motion::Asleep);
}

#[test]
fn a_drain_that_failed_long_ago_is_tried_again_before_a_write_is_refused() {
    let pair = Pair::new(4096);
    let hybrid = kept(&pair, FlushTrigger::Full);
    until_asleep(&hybrid, 1);
    let long_ago = Instant::now().checked_sub(super::super::keeper::RETRY).expect("the machine runs for longer");
    hybrid.shared.state.lock().drain_failure = Some((long_ago, HybridError::Closed));
    for _ in 0..6 {
        hybrid.write(Lba(0), &fill(7, 2000), Durability::Cached).expect("the disk is well again");
    }
    assert!(hybrid.stats().drains > 0);
}

/// A motor that knows what sleeping costs once it was woken from sleep.
struct Timed {
    sleeping_disk: Arc<SleepingDisk<Memory>>,
    was_asleep: AtomicBool,
}

impl Spindle for Timed {
    fn standby(&self) -> Result<(), BlockError> {
        self.was_asleep.store(true, Ordering::SeqCst);
        self.sleeping_disk.standby()
    }

    fn wake(&self) -> Result<(), BlockError> {
        self.sleeping_disk.wake()
    }

    fn power(&self) -> Result<Power, BlockError> {
        self.sleeping_disk.power()
    }

    fn costs(&self) -> Option<Costs> {
        self.was_asleep.load(Ordering::SeqCst).then_some(Costs { break_even: Nanos::from_secs(3600) })
    }
}

#[test]
fn what_waking_the_disk_shows_of_its_costs_counts_from_then_on() {
    let pair = Pair::new(1024);
    let assumed = Costs { break_even: Nanos::from_millis(20) };
    let spin_down = SpinDown::parse("rent_to_buy", assumed).expect("there is such a policy");
    let motor = Arc::new(Timed { sleeping_disk: pair.sleeping_disk.clone(), was_asleep: AtomicBool::new(false) });
    let opened = Hybrid::open(pair.disk.clone(), pair.flash.clone(), motor, by_hand(Algorithm::Whole), Some(spin_down));
    let hybrid = opened.expect("it can be opened");
    until_asleep(&hybrid, 1);
    read(&hybrid, 0, 8);
    let sleeps_at = hybrid.shared.state.lock().sleep_at.expect("it has nothing to do");
    assert!(sleeps_at > Instant::now() + Duration::from_secs(1800));
}
