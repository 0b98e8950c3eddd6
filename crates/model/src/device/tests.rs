use proptest::prelude::*;

use super::profiles::{Options, profile, profiles};
use super::testing::{random, run};
use super::{Completion, Device, Op, Request, RequestId, SubmitError};
use crate::scheduler::{scheduler, schedulers};
use umbrella_units::{ByteSize, Lba, Nanos, SplitMix64};

/// Every device, alone and behind every scheduler.
fn combinations(options: &Options) -> Vec<(String, Box<dyn Device>)> {
    let mut all: Vec<(String, Box<dyn Device>)> = Vec::new();
    for profile in profiles() {
        all.push((profile.name.to_owned(), profile.build(options)));
        for info in schedulers() {
            all.push((format!("{} {}", info.name, profile.name), info.build(profile.build(options), 128)));
        }
    }
    all
}

fn assert_each_once(name: &str, count: usize, done: &[Completion]) {
    let mut ids: Vec<u64> = done.iter().map(|completion| completion.id.0).collect();
    ids.sort_unstable();
    assert_eq!(ids, (0..count as u64).collect::<Vec<_>>(), "{name}");
    assert!(done.is_sorted_by_key(|completion| completion.at), "{name} completes out of order");
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![5 => Just(Op::Read), 5 => Just(Op::Write), 1 => Just(Op::Flush), 1 => Just(Op::Discard)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn every_request_completes_once_on_every_device_and_scheduler(
        requests in prop::collection::vec((op(), 0_u64..40_000, 0_u32..1200, 0_u64..3_000_000), 1..150),
        depth in prop_oneof![Just(None), Just(Some(1)), Just(Some(4)), Just(Some(32))],
        write_cache in prop_oneof![Just(None), Just(Some(true)), Just(Some(false))],
    ) {
        for (name, mut device) in combinations(&Options { queue_depth: depth, write_cache, ..Options::default() }) {
            let (mut now, mut done) = (Nanos(0), Vec::new());
            for (id, &(op, place, sectors, pause)) in requests.iter().enumerate() {
                now = now + Nanos(pause);
                device.advance(now, &mut done);
                while device.room() == 0 {
                    now = device.next_event().expect("a full device works");
                    device.advance(now, &mut done);
                }
                let lba = Lba(place * device.capacity().0 / 40_000);
                device.submit(now, Request { id: RequestId(id as u64), op, lba, sectors });
            }
            while let Some(at) = device.next_event() {
                prop_assert!(at >= now, "{} goes back in time", name);
                now = at;
                device.advance(now, &mut done);
            }
            assert_each_once(&name, requests.len(), &done);
        }
    }

    #[test]
    fn no_request_makes_a_device_panic(
        requests in prop::collection::vec((op(), any::<u64>(), any::<u32>(), any::<u64>()), 1..60),
    ) {
        for (name, mut device) in combinations(&Options::default()) {
            for (id, &(op, lba, sectors, now)) in requests.iter().enumerate() {
                device.submit(Nanos(now), Request { id: RequestId(id as u64), op, lba: Lba(lba), sectors });
            }
            let mut done = Vec::new();
            while let Some(at) = device.next_event() {
                device.advance(at, &mut done);
            }
            assert_each_once(&name, requests.len(), &done);
        }
    }
}

#[test]
fn the_same_requests_take_the_same_time() {
    let times = || -> Vec<(String, Nanos)> {
        let ran = combinations(&Options::default()).into_iter().map(|(name, mut device)| {
            let requests = random(Op::Write, 300, device.capacity(), 1);
            (name, run(&mut *device, requests, 8).1)
        });
        ran.collect()
    };
    assert_eq!(times(), times());
}

#[test]
fn requests_beyond_the_end_or_the_room_are_refused_when_asked() {
    let mut device = profile("maxtor_80gb").unwrap().build(&Options::default());
    let capacity = device.capacity();
    let request = Request { id: RequestId(0), op: Op::Read, lba: Lba(capacity.0 - 8), sectors: 9 };
    let refused = SubmitError::BeyondEnd { lba: request.lba, sectors: 9, capacity };
    assert_eq!(device.try_submit(Nanos(0), request), Err(refused));
    assert_eq!(
        device.try_submit(Nanos(0), Request { lba: Lba(u64::MAX), ..request }),
        Err(SubmitError::BeyondEnd { lba: Lba(u64::MAX), sectors: 9, capacity })
    );
    assert_eq!(device.try_submit(Nanos(0), Request { sectors: 8, ..request }), Ok(()));
    assert_eq!(device.try_submit(Nanos(0), Request { sectors: 8, ..request }), Err(SubmitError::Full));
}

#[test]
fn a_smaller_capacity_keeps_the_mechanics() {
    let whole = profile("deskstar_500gb").unwrap();
    let options = Options { capacity: Some(ByteSize(10 << 30)), ..Options::default() };
    let (mut small, mut large) = (whole.build(&options), whole.build(&Options::default()));
    assert_eq!(small.capacity(), Lba((10 << 30) / 512));
    let requests = random(Op::Read, 200, small.capacity(), 3);
    assert_eq!(run(&mut *small, requests.clone(), 1), run(&mut *large, requests, 1));
}

#[test]
fn unknown_names_list_the_known_ones() {
    let error = profile("floppy").unwrap_err();
    assert!(error.to_string().contains("no device is called \"floppy\""));
    assert!(error.known.contains(&"cheetah_10k7"));
    let error = scheduler("cfq").unwrap_err();
    assert_eq!(error.known, ["noop", "deadline", "elevator"]);
}

#[test]
fn every_profile_says_where_its_figures_come_from() {
    for profile in profiles() {
        assert!(!profile.source.is_empty() && !profile.summary.is_empty(), "{}", profile.name);
    }
}

#[test]
fn a_closed_loop_is_busy_all_the_time() {
    for (name, mut device) in combinations(&Options { write_cache: Some(false), ..Options::default() }) {
        let mut numbers = SplitMix64::new(9);
        let capacity = device.capacity().0;
        let requests = (0..200).map(|_| (Op::Read, Lba(numbers.below(capacity / 8) * 8), 8));
        let (_, end) = run(&mut *device, requests.collect::<Vec<_>>(), 1);
        let busy = device.stats().busy.as_secs_f64() / end.as_secs_f64();
        assert!((busy - 1.0).abs() < 0.01, "{name}: {busy}");
    }
}
