//! When writers are released. Times are handed in, or only bound how long a test may last.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use super::*;

const THRESHOLDS: Thresholds = Thresholds { background: Pages(100), set_point: Pages(150), limit: Pages(200) };
const LONG: Duration = Duration::from_secs(30);

fn gate(level: u64, stall_timeout: Duration) -> Gate {
    let gate = Gate::new(THRESHOLDS, stall_timeout);
    gate.set_level(Pages(level));
    gate
}

fn say(number: u32, to: &Sender<u32>) -> Continuation {
    let to = to.clone();
    Box::new(move || to.send(number).expect("somebody listens"))
}

fn start(gate: Gate) -> (Arc<Gate>, std::thread::JoinHandle<()>) {
    let gate = Arc::new(gate);
    let its = Arc::clone(&gate);
    (gate, std::thread::spawn(move || its.run(|| ())))
}

fn next(said: &Receiver<u32>) -> u32 {
    said.recv_timeout(LONG).expect("nobody waits for ever")
}

#[test]
fn below_the_set_point_nobody_waits() {
    let (to, said) = channel();
    gate(149, LONG).pass(Pages(1), say(1, &to));
    assert_eq!(said.try_recv(), Ok(1));
}

#[test]
fn the_pace_falls_from_twice_the_disks_to_none() {
    let paces = [150, 175, 199, 200, 300].map(|level| pace(Pages(level), THRESHOLDS, 1000.0));
    assert_eq!(paces, [Some(2000.0), Some(1000.0), Some(40.0), None, None]);
    assert_eq!(pace(Pages(175), THRESHOLDS, 0.0), Some(LEAST_RATE), "a rate of nothing lets nobody starve");
}

#[test]
fn at_the_limit_a_writer_waits_until_there_is_room_and_those_behind_keep_their_order() {
    let (to, said) = channel();
    let (gate, thread) = start(gate(200, LONG));
    (1..=3).for_each(|number| gate.pass(Pages(1), say(number, &to)));
    assert!(said.recv_timeout(Duration::from_millis(100)).is_err());
    gate.set_level(Pages(100));
    gate.progress(Pages(100));
    assert_eq!([next(&said), next(&said), next(&said)], [1, 2, 3]);
    assert_eq!(gate.waits().held, 3);
    gate.stop();
    thread.join().expect("ends");
}

#[test]
fn between_set_point_and_limit_one_goes_after_the_other() {
    let now = Instant::now();
    let gate = gate(175, LONG);
    let (to, _said) = channel();
    (1..=3).for_each(|number| gate.pass(Pages(500), say(number, &to)));
    let mut state = gate.state.lock();
    state.rate = Some(1000.0);
    let mut due = |after: u64| state.due(Pages(175), now + Duration::from_millis(after), LONG).0.len();
    assert_eq!([due(1000), due(1400), due(1501), due(2001)], [1, 0, 1, 1]);
}

#[test]
fn a_dead_disk_lets_writers_go() {
    let (to, said) = channel();
    let (gate, thread) = start(gate(500, Duration::from_millis(50)));
    gate.pass(Pages(1), say(1, &to));
    assert_eq!(next(&said), 1);
    assert!(gate.waits().stalled);
    gate.pass(Pages(1), say(2, &to));
    assert_eq!(next(&said), 2);
    gate.progress(Pages(1));
    assert!(!gate.waits().stalled, "it lives again");
    gate.stop();
    thread.join().expect("ends");
}

#[test]
fn a_dead_disk_lets_writers_go_also_below_the_limit() {
    let gate = gate(199, LONG);
    let (to, _said) = channel();
    (1..=50).for_each(|number| gate.pass(Pages(500), say(number, &to)));
    let mut state = gate.state.lock();
    state.rate = Some(1000.0);
    let (now, long) = (Instant::now(), Duration::from_secs(5));
    assert_eq!(
        state.due(Pages(199), now + Duration::from_secs(4), long).0.len(),
        1,
        "at their pace as long as there is hope"
    );
    assert_eq!(
        state.due(Pages(199), now + Duration::from_secs(6), long).0.len(),
        49,
        "not each a second after the one before"
    );
}

#[test]
fn a_policy_that_offers_nothing_lets_writers_go() {
    let (to, said) = channel();
    let (gate, thread) = start(gate(500, LONG));
    gate.pass(Pages(1), say(1, &to));
    gate.nothing_to_write();
    assert_eq!(next(&said), 1);
    gate.stop();
    thread.join().expect("ends");
}

#[test]
fn a_stop_lets_writers_go_also_those_that_come_later() {
    let (to, said) = channel();
    let (gate, thread) = start(gate(500, LONG));
    (1..=5).for_each(|number| gate.pass(Pages(1), say(number, &to)));
    gate.stop();
    thread.join().expect("ends");
    gate.pass(Pages(1), say(6, &to));
    assert_eq!(said.try_iter().collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6]);
}
