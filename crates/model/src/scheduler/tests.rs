use proptest::prelude::*;

use super::deadline::{Deadline, DeadlineSettings};
use super::elevator::Elevator;
use super::noop::Noop;
use super::*;
use crate::device::profiles::{Options, profile};
use crate::device::testing::{random, run};

fn waiting(slot: u32, write: bool, start: u64) -> Waiting {
    Waiting { slot: Slot(slot), write, start: Lba(start), end: Lba(start + 8) }
}

/// Takes all requests out, `step` apart.
fn drain(order: &mut dyn Order, now: Nanos, step: Nanos) -> Vec<u32> {
    let mut now = now;
    std::iter::from_fn(|| {
        now = now + step;
        order.next(now).map(|slot| slot.0)
    })
    .collect()
}

fn fill(order: &mut dyn Order, requests: &[(bool, u64)]) {
    for (slot, &(write, start)) in requests.iter().enumerate() {
        order.add(Nanos(0), waiting(slot as u32, write, start));
    }
}

#[test]
fn noop_keeps_the_order() {
    let mut order = Noop::default();
    fill(&mut order, &[(true, 500), (false, 100), (true, 300)]);
    assert_eq!(drain(&mut order, Nanos(0), Nanos(0)), [0, 1, 2]);
}

#[test]
fn the_elevator_goes_up_and_begins_again_below() {
    let mut order = Elevator::default();
    fill(&mut order, &[(true, 500), (false, 100), (true, 300)]);
    assert_eq!(order.next(Nanos(0)), Some(Slot(1)));
    assert_eq!(order.next(Nanos(0)), Some(Slot(2)));
    order.add(Nanos(0), waiting(3, true, 200));
    order.add(Nanos(0), waiting(4, true, 400));
    assert_eq!(drain(&mut order, Nanos(0), Nanos(0)), [4, 0, 3]);
}

#[test]
fn deadline_reads_first_and_lets_writes_through_after_two_batches() {
    let settings = DeadlineSettings { fifo_batch: 2, ..DeadlineSettings::default() };
    let mut order = Deadline::new(settings);
    let requests: Vec<(bool, u64)> = (0..8).map(|n| (n >= 6, 100 * n)).collect();
    fill(&mut order, &requests);
    // Two batches of two reads, a batch of writes, the last reads.
    assert_eq!(drain(&mut order, Nanos(0), Nanos(0)), [0, 1, 2, 3, 6, 7, 4, 5]);
}

#[test]
fn deadline_goes_by_address_inside_a_batch() {
    let mut order = Deadline::new(DeadlineSettings::default());
    fill(&mut order, &[(false, 300), (false, 100), (false, 500), (false, 400)]);
    // It begins with the oldest, goes up, and begins again with the oldest that is left.
    assert_eq!(drain(&mut order, Nanos(0), Nanos(0)), [0, 3, 2, 1]);
}

#[test]
fn deadline_goes_back_for_a_request_whose_time_is_over() {
    let settings = DeadlineSettings { fifo_batch: 1, ..DeadlineSettings::default() };
    let later = Nanos::from_millis(501);
    let mut order = Deadline::new(settings);
    order.add(Nanos(0), waiting(0, false, 500));
    order.add(Nanos(0), waiting(1, false, 100));
    assert_eq!(order.next(Nanos(0)), Some(Slot(0)));
    order.add(Nanos(1), waiting(2, false, 600));
    order.add(Nanos(1), waiting(3, false, 700));
    assert_eq!(order.next(Nanos(2)), Some(Slot(2)));
    assert_eq!(order.next(later), Some(Slot(1)));
}

proptest! {
    #[test]
    fn every_order_gives_back_each_request_once(
        requests in prop::collection::vec((any::<bool>(), 0_u64..1000, 0_u64..2_000_000_000), 1..200),
        takes in prop::collection::vec(0_usize..4, 200),
    ) {
        for info in schedulers() {
            let mut order = (info.order)();
            let (mut now, mut got) = (Nanos(0), Vec::new());
            for (slot, &(write, start, pause)) in requests.iter().enumerate() {
                now = now + Nanos(pause);
                order.add(now, waiting(slot as u32, write, start));
                if slot % 5 == 0 {
                    order.moved(Lba(start), waiting(slot as u32, write, start / 2));
                }
                for _ in 0..takes[slot] {
                    got.extend(order.next(now));
                }
            }
            got.extend(std::iter::from_fn(|| order.next(now)));
            got.sort_unstable();
            prop_assert_eq!(got, (0..requests.len() as u32).map(Slot).collect::<Vec<_>>());
        }
    }
}

#[test]
fn adjacent_requests_become_one_up_to_half_a_megabyte() {
    let device = profile("maxtor_80gb").unwrap().build(&Options { write_cache: Some(false), ..Options::default() });
    let mut scheduler = Scheduler::new(device, Box::new(Noop::default()), 1000);
    let mut requests = vec![(Op::Write, Lba(1 << 20), 8)];
    // While the first is served, 200 pages wait: from the back, from the front, never more than 128 in one.
    requests.extend((100..200).map(|page| (Op::Write, Lba(page * 8), 8)));
    requests.extend((0..100).rev().map(|page| (Op::Write, Lba(page * 8), 8)));
    let (done, _) = run(&mut scheduler, requests, 1000);
    assert_eq!(done.len(), 201);
    assert_eq!(scheduler.stats().writes, 3);
    assert_eq!(scheduler.stats().sectors_written, 201 * 8);
}

#[test]
fn reads_and_writes_are_not_merged() {
    let device = profile("maxtor_80gb").unwrap().build(&Options { write_cache: Some(false), ..Options::default() });
    let mut scheduler = Scheduler::new(device, Box::new(Noop::default()), 128);
    run(&mut scheduler, [(Op::Write, Lba(1 << 20), 8), (Op::Write, Lba(0), 8), (Op::Read, Lba(8), 8)], 8);
    assert_eq!((scheduler.stats().reads, scheduler.stats().writes), (1, 2));
}

#[test]
fn the_queue_has_the_length_that_it_was_given() {
    let device = profile("maxtor_80gb").unwrap().build(&Options::default());
    let mut scheduler = scheduler("deadline").unwrap().build(device, 4);
    let mut submitted = 0;
    while scheduler.room() > 0 {
        let lba = Lba(1_000_000 * submitted);
        scheduler.submit(Nanos(0), Request { id: RequestId(submitted), op: Op::Read, lba, sectors: 8 });
        submitted += 1;
    }
    // One on the disk, four waiting.
    assert_eq!(submitted, 5);
}

#[test]
fn ordering_shortens_random_writes_on_a_disk_without_a_queue() {
    let profile = profile("maxtor_80gb").unwrap();
    let time = |name: &str| {
        let device = profile.build(&Options { write_cache: Some(false), ..Options::default() });
        let mut scheduler = scheduler(name).unwrap().build(device, 128);
        let requests = random(Op::Write, 1500, scheduler.capacity(), 1);
        run(&mut *scheduler, requests, 128).1.as_secs_f64()
    };
    let (noop, deadline, elevator) = (time("noop"), time("deadline"), time("elevator"));
    assert!(deadline < noop * 0.8 && elevator < noop * 0.7, "{noop} {deadline} {elevator}");
}

proptest! {
    #[test]
    fn the_elevator_agrees_with_a_sorted_list(
        steps in prop::collection::vec((0_u8..4, 0_u64..40, any::<prop::sample::Index>()), 1..200),
    ) {
        let mut order = Elevator::default();
        let (mut list, mut at) = (std::collections::BTreeSet::new(), 0);
        for (slot, (step, start, which)) in steps.into_iter().enumerate() {
            match step {
                0 | 1 => {
                    order.add(Nanos(0), waiting(slot as u32, true, start));
                    list.insert((start, slot as u32));
                }
                2 if !list.is_empty() => {
                    let (from, slot) = *list.iter().nth(which.index(list.len())).expect("one of the list");
                    list.remove(&(from, slot));
                    list.insert((from / 2, slot));
                    order.moved(Lba(from), waiting(slot, true, from / 2));
                }
                _ => {
                    let next = list.range((at, 0)..).next().or_else(|| list.first()).copied();
                    next.inspect(|next| {
                        list.remove(next);
                        at = next.0;
                    });
                    prop_assert_eq!(order.next(Nanos(0)), next.map(|(_, slot)| Slot(slot)));
                }
            }
        }
    }
}
