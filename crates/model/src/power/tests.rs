use proptest::prelude::*;
use umbrella_units::{ByteSize, Lba, Nanos};

use super::{Energy, Milliwatts, Phase, PowerSpec, PowerState, PowerStats, Powered, SpindleSpec};
use crate::device::disk::Rate;
use crate::device::profiles::{Options, Profile, profile, profiles};
use crate::device::ssd::{Ssd, SsdSpec};
use crate::device::testing::random;
use crate::device::{Completion, Device, Op, Request, RequestId};

/// A disk of round figures: 4 W, 2 W, 1 W; 3 W for 2 s down, 6 W for 5 s up.
const ROUND: PowerSpec = PowerSpec {
    active: Milliwatts(4000),
    idle: Milliwatts(2000),
    spindle: Some(SpindleSpec {
        standby: Milliwatts(1000),
        spin_down: Phase { time: Nanos::from_secs(2), power: Milliwatts(3000) },
        spin_up: Phase { time: Nanos::from_secs(5), power: Milliwatts(6000) },
    }),
};

/// Serves every page in a millisecond, and everything else at once.
fn metronome() -> Box<dyn Device + Send> {
    Box::new(Ssd::new(&SsdSpec {
        capacity: ByteSize(1 << 30),
        page: ByteSize(4096),
        erase_block: ByteSize(1 << 20),
        channels: 1,
        read: Nanos::from_millis(1),
        program: Nanos::from_millis(1),
        erase: Nanos(0),
        log_units: 8,
        overhead: Nanos(0),
        interface: Rate::from_mb(1_000_000),
        queue_depth: 4,
    }))
}

fn read(id: u64) -> Request {
    Request { id: RequestId(id), op: Op::Read, lba: Lba(8 * id), sectors: 8 }
}

fn at(id: u64, at: Nanos) -> Completion {
    Completion { id: RequestId(id), at }
}

/// Everything until nothing is left to happen.
fn drain(device: &mut dyn Device) -> Vec<Completion> {
    let mut done = Vec::new();
    while let Some(at) = device.next_event() {
        device.advance(at, &mut done);
    }
    done
}

fn times(stats: &PowerStats) -> [Nanos; 5] {
    PowerState::ALL.map(|state| stats.time_in(state))
}

const fn secs(seconds: u64) -> Nanos {
    Nanos::from_secs(seconds)
}

const MS: Nanos = Nanos::from_millis(1);

#[test]
fn an_idle_disk_takes_its_idle_power_and_a_busy_one_its_active_power() {
    let mut disk = Powered::new(metronome(), ROUND);
    disk.submit(secs(10), read(1));
    disk.submit(secs(10), read(2));
    assert_eq!(drain(&mut disk), [at(1, secs(10) + MS), at(2, secs(10) + MS + MS)]);
    disk.advance(secs(20), &mut Vec::new());
    let stats = disk.power_stats();
    assert_eq!(times(&stats), [MS + MS, secs(20) - MS - MS, Nanos(0), Nanos(0), Nanos(0)]);
    // 4 W for 2 ms, 2 W for 19.998 s.
    assert_eq!(stats.energy(&ROUND), Energy(8_000_000_000 + 39_996_000_000_000));
    assert_eq!(stats.energy(&ROUND).to_string(), "40.004 J");
}

#[test]
fn a_read_wakes_a_sleeping_disk_and_waits_for_it() {
    let mut disk = Powered::new(metronome(), ROUND);
    disk.standby(secs(1));
    assert_eq!(disk.state(), PowerState::Active, "it flushes");
    assert_eq!(drain(&mut disk), []);
    assert_eq!(disk.state(), PowerState::Standby);
    disk.submit(secs(10), read(1));
    assert_eq!(disk.state(), PowerState::SpinningUp);
    assert_eq!(drain(&mut disk), [at(1, secs(15) + MS)]);
    let stats = disk.power_stats();
    assert_eq!(times(&stats), [MS, secs(1), secs(2), secs(7), secs(5)]);
    assert_eq!((stats.spin_downs, stats.spin_ups, stats.delayed), (1, 1, 1));
    // 1 ms of 4 W, 1 s of 2 W, 2 s of 3 W, 7 s of 1 W, 5 s of 6 W.
    assert_eq!(stats.energy(&ROUND), Energy(4_000_000_000 + 45_000_000_000_000));
    assert_eq!(stats.energy_in(PowerState::SpinningUp, &ROUND), Energy(30_000_000_000_000));
}

#[test]
fn a_motor_comes_to_rest_before_it_starts_again() {
    let mut disk = Powered::new(metronome(), ROUND);
    disk.standby(Nanos(0));
    disk.submit(secs(1), read(1));
    disk.submit(secs(1), read(2));
    assert_eq!((disk.state(), disk.is_going_to_sleep()), (PowerState::SpinningDown, false));
    assert_eq!(drain(&mut disk), [at(1, secs(7) + MS), at(2, secs(7) + MS + MS)]);
    assert_eq!(disk.power_stats().delayed, 2);
}

#[test]
fn what_comes_before_the_motor_is_off_keeps_it_on() {
    let mut disk = profile("deskstar_500gb").unwrap().powered(&Options::default());
    for (id, (op, lba, sectors)) in random(Op::Write, 20, disk.capacity(), 5).into_iter().enumerate() {
        disk.submit(Nanos(0), Request { id: RequestId(id as u64), op, lba, sectors });
    }
    disk.standby(MS);
    assert!(disk.is_going_to_sleep());
    disk.submit(MS + MS, read(100));
    assert!(!disk.is_going_to_sleep());
    assert_eq!(drain(&mut disk).len(), 21);
    assert_eq!((disk.power_stats().spin_downs, disk.power_stats().delayed), (0, 0));
}

#[test]
fn what_comes_while_the_buffer_is_written_out_keeps_the_motor_on_too() {
    let mut disk = profile("deskstar_500gb").unwrap().powered(&Options::default());
    for (id, (op, lba, sectors)) in random(Op::Write, 20, disk.capacity(), 5).into_iter().enumerate() {
        disk.submit(Nanos(0), Request { id: RequestId(id as u64), op, lba, sectors });
    }
    let mut done = Vec::new();
    disk.advance(Nanos::from_millis(20), &mut done);
    assert_eq!(done.len(), 20, "all is in the buffer");
    disk.standby(Nanos::from_millis(20));
    disk.submit(Nanos::from_millis(21), read(100));
    assert_eq!(drain(&mut disk).len(), 1);
    assert_eq!((disk.power_stats().spin_downs, disk.power_stats().delayed), (0, 0));
    assert_eq!(disk.state(), PowerState::Idle);
}

#[test]
fn the_buffer_is_written_out_before_the_motor_is_off() {
    let deskstar = profile("deskstar_500gb").unwrap();
    let (mut awake, mut sleeper) = (deskstar.build(&Options::default()), deskstar.powered(&Options::default()));
    for (id, (op, lba, sectors)) in random(Op::Write, 20, awake.capacity(), 5).into_iter().enumerate() {
        let request = Request { id: RequestId(id as u64), op, lba, sectors };
        awake.submit(Nanos(0), request);
        sleeper.submit(Nanos(0), request);
    }
    let mut done = Vec::new();
    awake.advance(Nanos::from_millis(20), &mut done);
    awake.submit(Nanos::from_millis(20), Request { id: RequestId(99), op: Op::Flush, lba: Lba(0), sectors: 0 });
    let flushed = drain(&mut *awake)[0].at;
    sleeper.advance(Nanos::from_millis(20), &mut done);
    sleeper.standby(Nanos::from_millis(20));
    drain(&mut sleeper);
    let stats = sleeper.power_stats();
    assert_eq!(stats.time_in(PowerState::Active), flushed, "writing and flushing took all the time");
    assert_eq!(stats.time_in(PowerState::Idle), Nanos(0));
    assert_eq!(stats.spin_downs, 1);
}

#[test]
fn a_woken_disk_serves_as_if_the_request_had_come_when_it_was_ready() {
    let travelstar = profile("travelstar_e7k100").unwrap();
    let (mut awake, mut sleeper) = (travelstar.build(&Options::default()), travelstar.powered(&Options::default()));
    sleeper.standby(Nanos(0));
    sleeper.submit(secs(60), read(1));
    awake.submit(secs(64), read(1));
    assert_eq!(drain(&mut sleeper), drain(&mut *awake));
}

#[test]
fn nothing_but_reads_and_writes_wakes_a_disk() {
    let mut disk = Powered::new(metronome(), ROUND);
    disk.standby(Nanos(0));
    drain(&mut disk);
    disk.submit(secs(9), Request { op: Op::Flush, ..read(1) });
    disk.submit(secs(9), Request { op: Op::Discard, ..read(2) });
    assert_eq!(drain(&mut disk), [at(1, secs(9)), at(2, secs(9))]);
    assert_eq!((disk.state(), disk.power_stats().spin_ups), (PowerState::Standby, 0));
    // Behind a write they wait.
    disk.submit(secs(10), Request { op: Op::Write, ..read(3) });
    disk.submit(secs(10), Request { op: Op::Flush, ..read(4) });
    assert_eq!(drain(&mut disk).last().map(|last| last.id), Some(RequestId(4)));
}

#[test]
fn waking_and_sleeping_can_be_asked_for_at_any_time() {
    let mut disk = Powered::new(metronome(), ROUND);
    disk.standby(Nanos(0));
    disk.wake(secs(1));
    drain(&mut disk);
    assert_eq!((disk.state(), disk.now()), (PowerState::Idle, secs(7)), "down, and up again");
    disk.standby(secs(10));
    disk.wake(secs(11));
    disk.standby(secs(11));
    drain(&mut disk);
    assert_eq!((disk.state(), disk.now()), (PowerState::Standby, secs(12)), "the last wish counts");
    disk.wake(secs(20));
    disk.standby(secs(21));
    drain(&mut disk);
    assert_eq!((disk.state(), disk.now()), (PowerState::Standby, secs(27)), "up, and down again");
    disk.standby(secs(30));
    disk.wake(secs(30));
    disk.wake(secs(31));
    drain(&mut disk);
    assert_eq!((disk.power_stats().spin_ups, disk.power_stats().spin_downs), (3, 3));
}

#[test]
fn flash_does_not_sleep() {
    let mut flash = profile("sandisk_ultra2").unwrap().powered(&Options::default());
    flash.standby(Nanos(0));
    assert_eq!((flash.state(), flash.next_event(), flash.is_going_to_sleep()), (PowerState::Idle, None, false));
    assert_eq!(flash.spec().break_even(), None);
}

#[test]
fn the_break_even_time_is_what_the_costs_divided_by_the_savings_are() {
    // 3 W for 2 s and 6 W for 5 s are 36 J, 34 J more than standing still; 1 W is saved.
    assert_eq!(ROUND.break_even(), Some(secs(34)));
    assert_eq!(ROUND.times(5).break_even(), Some(secs(34)));
    let vain = PowerSpec { idle: Milliwatts(900), ..ROUND };
    assert_eq!(vain.break_even(), None, "it takes more asleep than awake");
}

#[test]
fn sleeping_takes_less_energy_beyond_the_break_even_time_and_more_below_it() {
    for profile in profiles().into_iter().filter(Profile::rotates) {
        let break_even = profile.power.break_even().expect("a disk saves power by sleeping");
        let energy = |idle: Nanos, sleeps: bool| {
            let mut disk = profile.powered(&Options::default());
            if sleeps {
                disk.standby(Nanos(0));
                disk.advance(idle, &mut Vec::new());
                disk.wake(idle);
                drain(&mut disk);
            } else {
                disk.advance(idle, &mut Vec::new());
            }
            disk.power_stats().energy(&profile.power)
        };
        let (more, less) = (Nanos(break_even.0 / 100 * 102), Nanos(break_even.0 / 100 * 98));
        assert!(energy(more, true) < energy(more, false), "{}: {break_even}", profile.name);
        assert!(energy(less, true) > energy(less, false), "{}: {break_even}", profile.name);
    }
}

#[test]
fn the_powers_of_every_profile_are_in_order() {
    for profile in profiles() {
        let power = profile.power;
        assert!(power.active > power.idle, "{}", profile.name);
        if let Some(spindle) = power.spindle {
            assert!(power.idle > spindle.standby && spindle.spin_up.power > power.active, "{}", profile.name);
            assert!(spindle.spin_up.time > secs(1) && spindle.spin_down.time > secs(1), "{}", profile.name);
        }
    }
}

#[test]
fn the_card_of_the_nvcache_paper_reads_ten_and_writes_nine_megabytes_a_second() {
    let card = profile("sandisk_ultra2").unwrap();
    let rate = |op: Op| {
        let mut card = card.powered(&Options { queue_depth: Some(64), ..Options::default() });
        for id in 0..16 {
            card.submit(Nanos(0), Request { id: RequestId(id), op, lba: Lba(id * 2048), sectors: 2048 });
        }
        let end = drain(&mut card).last().map_or(Nanos(0), |last| last.at);
        16.0 * f64::from(2048 * 512) / end.as_secs_f64() / 1e6
    };
    assert!((rate(Op::Read) - 10.0).abs() < 0.2, "{}", rate(Op::Read));
    assert!((rate(Op::Write) - 9.0).abs() < 0.2, "{}", rate(Op::Write));
}

#[test]
fn the_drive_of_today_is_as_fast_in_any_order() {
    let drive = profile("sata_ssd").unwrap();
    let time = |requests: Vec<(Op, Lba, u32)>| {
        let mut drive = drive.powered(&Options::default());
        crate::device::testing::run(&mut drive, requests, 1).1
    };
    let capacity = drive.build(&Options::default()).capacity();
    let ordered = crate::device::testing::sequential(Op::Write, 500, Lba(0), 8);
    assert_eq!(time(random(Op::Write, 500, capacity, 3)), time(ordered));
    let large = crate::device::testing::sequential(Op::Write, 50, Lba(0), 2048);
    let rate = 50.0 * f64::from(2048 * 512) / time(large).as_secs_f64() / 1e6;
    assert!((480.0..550.0).contains(&rate), "{rate} MB/s");
}

#[test]
fn every_profile_is_in_the_documentation_with_its_power() {
    let page = include_str!("../../../../docs/models.md");
    let watts = |power: Milliwatts| format!("{}", f64::from(power.0) / 1000.0);
    let seconds = |time: Nanos| format!("{}", (time.as_secs_f64() * 10.0).round() / 10.0);
    for profile in profiles() {
        let PowerSpec { active, idle, spindle } = profile.power;
        let start = format!("| `{}` | ", profile.name);
        assert!(page.lines().any(|line| line.starts_with(&start)), "docs/models.md has no row for {}", profile.name);
        let motor = spindle.map_or("| | | | |".to_owned(), |SpindleSpec { standby, spin_down, spin_up }| {
            let (down, up) = (seconds(spin_down.time), seconds(spin_up.time));
            let break_even = seconds(profile.power.break_even().unwrap_or_default());
            format!("| {} | {} W, {up} s | {down} s | {break_even} s |", watts(standby), watts(spin_up.power))
        });
        let row = format!("{start}{} | {} {motor}", watts(active), watts(idle));
        let plain = page.replace('*', "");
        assert!(plain.lines().any(|line| line == row), "docs/models.md lacks {row:?}");
    }
}

/// What is done to a device.
#[derive(Debug, Clone, Copy)]
enum Act {
    Submit(Op, u64),
    Standby,
    Wake,
    Wait,
}

fn act() -> impl Strategy<Value = Act> {
    let op = prop_oneof![4 => Just(Op::Read), 4 => Just(Op::Write), 1 => Just(Op::Flush), 1 => Just(Op::Discard)];
    prop_oneof![
        8 => (op, any::<u64>()).prop_map(|(op, place)| Act::Submit(op, place)),
        3 => Just(Act::Standby),
        1 => Just(Act::Wake),
        2 => Just(Act::Wait),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn whatever_the_motor_does_every_request_completes_once_and_every_moment_is_metered(
        acts in prop::collection::vec((act(), prop_oneof![0_u64..5_000_000, 0_u64..30_000_000_000]), 1..120),
    ) {
        for profile in profiles() {
            let mut device = profile.powered(&Options::default());
            let (mut now, mut done, mut submitted) = (Nanos(0), Vec::new(), 0);
            for &(act, pause) in &acts {
                now = now + Nanos(pause);
                device.advance(now, &mut done);
                match act {
                    Act::Submit(op, place) => {
                        while device.room() == 0 {
                            now = device.next_event().expect("a full device works");
                            device.advance(now, &mut done);
                        }
                        let lba = Lba(place % device.capacity().0);
                        device.submit(now, Request { id: RequestId(submitted), op, lba, sectors: 8 });
                        submitted += 1;
                    }
                    Act::Standby => device.standby(now),
                    Act::Wake => device.wake(now),
                    Act::Wait => {}
                }
            }
            while let Some(at) = device.next_event() {
                prop_assert!(at >= now, "{} goes back in time", profile.name);
                now = at;
                device.advance(now, &mut done);
            }
            let mut ids: Vec<u64> = done.iter().map(|completion| completion.id.0).collect();
            ids.sort_unstable();
            prop_assert_eq!(ids, (0..submitted).collect::<Vec<_>>(), "{}", profile.name);
            prop_assert!(done.is_sorted_by_key(|completion| completion.at), "{} completes out of order", profile.name);
            let stats = device.power_stats();
            prop_assert_eq!(times(&stats).iter().map(|time| time.0).sum::<u64>(), now.0, "{}", profile.name);
            prop_assert!(stats.spin_downs - stats.spin_ups <= 1, "{}", profile.name);
            prop_assert!(matches!(device.state(), PowerState::Idle | PowerState::Standby), "{}", profile.name);
        }
    }

    #[test]
    fn no_clock_makes_a_motor_panic(acts in prop::collection::vec((act(), any::<u64>()), 1..60)) {
        let mut device = profile("modern").unwrap().powered(&Options::default());
        let mut submitted = 0;
        for &(act, now) in &acts {
            match act {
                Act::Submit(op, place) => {
                    device.submit(Nanos(now), Request { id: RequestId(submitted), op, lba: Lba(place), sectors: 8 });
                    submitted += 1;
                }
                Act::Standby => device.standby(Nanos(now)),
                Act::Wake => device.wake(Nanos(now)),
                Act::Wait => device.advance(Nanos(now), &mut Vec::new()),
            }
        }
        drain(&mut device);
    }
}
