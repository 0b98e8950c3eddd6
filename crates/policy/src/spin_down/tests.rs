use proptest::prelude::*;

use super::adaptive::Adaptive;
use super::{Costs, SpinDown, Timeout, spin_downs};
use crate::param_info::ParamKind;
use crate::params::Params;
use umbrella_units::{Nanos, SplitMix64};

const COSTS: Costs = Costs { break_even: Nanos::from_secs(10) };

fn make(text: &str) -> SpinDown {
    SpinDown::parse(text, COSTS).unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// Numbers from a seed.
struct Numbers(SplitMix64);

impl Numbers {
    /// In (0, 1].
    fn unit(&mut self) -> f64 {
        1.0 - self.0.unit()
    }
}

fn secs(seconds: f64) -> Nanos {
    Nanos((seconds * 1e9) as u64)
}

/// Lives through periods of idleness with a tenth of a second of work between them; returns the timeouts.
fn timeouts(spin_down: &mut SpinDown, periods: &[Nanos]) -> Vec<Option<Nanos>> {
    let mut now = Nanos(0);
    let live = |&idle: &Nanos| {
        now = now + Nanos::from_millis(100);
        spin_down.set_next_access(now + idle);
        let timeout = spin_down.idle(now).map(|at| at - now);
        now = now + idle;
        spin_down.accessed(now);
        timeout
    };
    periods.iter().map(live).collect()
}

fn cost(text: &str, periods: &[Nanos]) -> f64 {
    let timeouts = timeouts(&mut make(text), periods);
    timeouts.iter().zip(periods).map(|(&timeout, &idle)| COSTS.of(timeout, idle).as_secs_f64()).sum()
}

fn least_cost(periods: &[Nanos]) -> f64 {
    periods.iter().map(|&idle| COSTS.least(idle).as_secs_f64()).sum()
}

/// The cheapest fixed timeout in hindsight, among forty.
fn best_fixed(periods: &[Nanos]) -> f64 {
    let all = (0..40).map(|step| Some(secs(f64::from(step) * 0.5))).chain([None]);
    let cost = |timeout| periods.iter().map(|&idle| COSTS.of(timeout, idle).as_secs_f64()).sum::<f64>();
    all.map(cost).fold(f64::INFINITY, f64::min)
}

/// Two thousand periods of each kind of load.
fn loads() -> Vec<(&'static str, Vec<Nanos>)> {
    let mut numbers = Numbers(SplitMix64::new(1996));
    let mut draw = |of: &mut dyn FnMut(&mut Numbers, usize) -> f64| -> Vec<Nanos> {
        (0..2000).map(|index| secs(of(&mut numbers, index))).collect()
    };
    vec![
        ("exponential, 3 s", draw(&mut |n, _| -n.unit().ln() * 3.0)),
        ("exponential, 60 s", draw(&mut |n, _| -n.unit().ln() * 60.0)),
        ("heavy tail", draw(&mut |n, _| 0.5 * n.unit().powf(-1.0))),
        ("a second or an hour", draw(&mut |n, _| if n.unit() < 0.7 { n.unit() } else { 3600.0 * n.unit() })),
        ("always 9 s", draw(&mut |_, _| 9.0)),
        ("always 15 s", draw(&mut |_, _| 15.0)),
        (
            "habits that change",
            draw(&mut |n, index| if index / 250 % 2 == 0 { n.unit() * 8.0 } else { 600.0 * n.unit() }),
        ),
    ]
}

#[test]
fn the_first_timeouts_of_three_experts_are_those_computed_by_hand() {
    // Timeouts 0, 5 and 10 s. After 2 s of idleness the losses are 0.8, 0, 0; after 30 s 0, 0.5, 1. Without sharing:
    // weights 1, 1, 1; then exp(-0.8), 1, 1; then exp(-0.8), exp(-0.5), exp(-1).
    let periods = [2.0, 30.0, 30.0].map(secs);
    let near = |text: &str, expected: [f64; 3]| {
        for (timeout, expected) in timeouts(&mut make(text), &periods).into_iter().zip(expected) {
            let timeout = timeout.expect("it sleeps").as_secs_f64();
            assert!((timeout - expected).abs() < 1e-6, "{text}: {timeout} for {expected}");
        }
    };
    near("adaptive:experts=3,eta=1,alpha=0", [5.0, 6.124_126, 4.713_959]);
    near("adaptive:experts=3", [5.0, 7.356_639, 4.425_723]);
}

#[test]
fn a_policy_that_rents_or_buys_takes_what_was_cheapest_once_it_knows_enough() {
    let mut spin_down = make("rent_to_buy:window=10");
    let short_and_long: Vec<Nanos> = [2.0, 60.0].repeat(5).into_iter().map(secs).collect();
    assert_eq!(timeouts(&mut spin_down, &short_and_long), vec![Some(COSTS.break_even); 10], "it knows too little");
    // At once (0.1 s): 10 * 10.1 = 101 s. After 2 s: 5 * 2 + 5 * 12 = 70 s.
    assert_eq!(spin_down.idle(Nanos::from_secs(1000)), Some(Nanos::from_secs(1002)));
    // At once: 101 s. After 2 s: 2 + 9 * 12 = 110 s.
    let mut spin_down = make("rent_to_buy:window=10");
    timeouts(&mut spin_down, &[[2.0].as_slice(), &[60.0; 9]].concat().into_iter().map(secs).collect::<Vec<_>>());
    assert_eq!(spin_down.idle(Nanos::from_secs(1000)), Some(secs(1000.1)));
}

#[test]
fn only_the_last_periods_count() {
    let mut spin_down = make("rent_to_buy:window=10");
    timeouts(&mut spin_down, &[secs(60.0); 50]);
    assert_eq!(spin_down.idle(Nanos(0)), Some(secs(0.1)), "always long: at once");
    spin_down.accessed(Nanos(0));
    timeouts(&mut spin_down, &[secs(7.0); 10]);
    assert_eq!(spin_down.idle(Nanos(0)), Some(secs(7.0)), "always 7 s: not in vain");
}

#[test]
fn a_burst_of_work_does_not_make_a_policy_sleep_in_its_pauses() {
    let mut spin_down = make("rent_to_buy");
    timeouts(&mut spin_down, &[Nanos::from_millis(1); 1000]);
    assert_eq!(spin_down.idle(Nanos(0)), Some(COSTS.break_even));
}

#[test]
fn never_and_fixed_do_what_they_are_called() {
    let periods = [0.0, 1.0, 900.0].map(secs);
    assert_eq!(timeouts(&mut make("never"), &periods), [None; 3]);
    assert_eq!(timeouts(&mut make("fixed"), &periods), [Some(Nanos::from_secs(600)); 3]);
    assert_eq!(timeouts(&mut make("fixed:timeout=0"), &periods), [Some(Nanos(0)); 3]);
}

#[test]
fn the_optimum_sleeps_at_once_exactly_if_that_pays() {
    let periods = [3.0, 10.0, 10.000_000_001, 3600.0].map(secs);
    assert_eq!(timeouts(&mut make("optimum"), &periods), [None, None, Some(Nanos(0)), Some(Nanos(0))]);
    assert_eq!(make("optimum").idle(Nanos(5)), None, "it does not know the future");
}

#[test]
fn policies_that_learn_lose_little_against_the_best_fixed_timeout() {
    for (load, periods) in loads() {
        let (best, least) = (best_fixed(&periods), least_cost(&periods));
        for policy in ["adaptive", "rent_to_buy"] {
            let spent = cost(policy, &periods);
            println!(
                "{policy}, {load}: {:.3} of the best fixed timeout, {:.3} of the optimum",
                spent / best,
                spent / least
            );
            assert!(spent <= 1.15 * best, "{policy}, {load}: {spent} s for {best} s");
        }
    }
}

#[test]
fn policies_that_learn_gain_where_habits_change() {
    let (_, periods) = loads().pop().expect("there are loads");
    assert!(cost("adaptive", &periods) < 0.95 * best_fixed(&periods));
    assert!(cost("rent_to_buy", &periods) < 0.95 * best_fixed(&periods));
}

#[test]
fn an_adversary_makes_renting_or_buying_cost_no_more_than_twice_the_optimum_and_its_credit() {
    // It lets the disk sleep, and needs it at once.
    let (mut spin_down, mut now) = (make("rent_to_buy"), Nanos(0));
    let (mut spent, mut least) = (0.0, 0.0);
    for period in 0..20_000 {
        let timeout = spin_down.idle(now).expect("it sleeps some day") - now;
        // Some long periods first make it hasty.
        let idle = if period % 200 < 50 { secs(100.0) } else { timeout + Nanos(1) };
        spent += COSTS.of(Some(timeout), idle).as_secs_f64();
        least += COSTS.least(idle).as_secs_f64();
        now = now + idle;
        spin_down.accessed(now);
        assert!(spent <= 2.0 * least + 80.0 + 1e-3, "period {period}: {spent} s for {least} s");
    }
}

#[test]
fn a_million_periods_leave_every_weight_normal_and_alive() {
    let mut adaptive = Adaptive::new(25, 4.0, 0.08, COSTS);
    let mut numbers = Numbers(SplitMix64::new(7));
    for round in 0..1_000_000_u64 {
        // Long stretches in which one end is always wrong, then anything.
        let idle = match round / 100_000 {
            0..=3 => Nanos(1),
            4..=7 => Nanos(u64::MAX),
            _ => Nanos(numbers.0.next_u64() >> (numbers.0.next_u64() % 64)),
        };
        adaptive.learn(None, idle);
        if round % 1000 == 0 || round > 999_000 {
            let weights = adaptive.weights();
            assert!(weights.iter().all(|weight| weight.is_normal() && *weight > 0.0), "{round}: {weights:?}");
            assert!((weights.iter().sum::<f64>() - 1.0).abs() < 1e-6, "{round}: {weights:?}");
        }
    }
}

#[test]
fn a_timeout_that_was_wrong_for_long_is_back_within_a_few_periods() {
    let mut spin_down = make("adaptive");
    timeouts(&mut spin_down, &vec![secs(5.0); 10_000]);
    let then = timeouts(&mut spin_down, &[secs(600.0); 12]);
    assert!(then[0] > Some(secs(5.0)), "{then:?}");
    assert!(then[11] < Some(secs(1.0)), "{then:?}");
}

#[test]
fn nothing_is_learned_from_a_period_in_which_the_clock_went_back() {
    for name in ["adaptive", "rent_to_buy"] {
        let mut spin_down = make(name);
        timeouts(&mut spin_down, &[secs(8.0); 40]);
        let before = spin_down.idle(secs(1000.0)).map(|at| at - secs(1000.0));
        // Back during the period: it begins anew, and so does its timeout.
        assert_eq!(spin_down.idle(secs(50.0)).map(|at| at - secs(50.0)), before, "{name}");
        spin_down.accessed(secs(900.0));
        assert_eq!(spin_down.idle(secs(2000.0)).map(|at| at - secs(2000.0)), before, "{name}");
        // Back at its end.
        spin_down.accessed(secs(1.0));
        assert_eq!(spin_down.idle(secs(2.0)).map(|at| at - secs(2.0)), before, "{name}");
    }
}

#[test]
fn a_leap_of_the_clock_is_one_long_period_and_no_more() {
    for name in ["adaptive", "rent_to_buy"] {
        let (mut leapt, mut lived) = (make(name), make(name));
        timeouts(&mut leapt, &[[secs(8.0); 40].as_slice(), &[Nanos(u64::MAX / 4)]].concat());
        timeouts(&mut lived, &[[secs(8.0); 40].as_slice(), &[secs(20.0)]].concat());
        assert_eq!(leapt.idle(Nanos(0)), lived.idle(Nanos(0)), "{name}");
    }
}

#[test]
fn asking_again_changes_nothing() {
    let mut spin_down = make("adaptive");
    let at = spin_down.idle(secs(1.0));
    assert_eq!((spin_down.idle(secs(2.0)), spin_down.idle(secs(500.0))), (at, at));
}

proptest! {
    #[test]
    fn whatever_the_clock_says_a_disk_sleeps_only_after_its_work(
        break_even in any::<u64>(),
        events in prop::collection::vec((any::<bool>(), prop_oneof![0_u64..100_000_000_000, any::<u64>()]), 1..200),
    ) {
        for info in spin_downs() {
            let costs = Costs { break_even: Nanos(break_even) };
            let mut spin_down = SpinDown::new(info.name, &Params::new(), costs).unwrap();
            for &(idle, now) in &events {
                if idle {
                    let first = spin_down.idle(Nanos(now));
                    prop_assert_eq!(spin_down.idle(Nanos(now)), first);
                } else {
                    spin_down.accessed(Nanos(now));
                    let at = spin_down.idle(Nanos(now));
                    prop_assert!(at.is_none_or(|at| at >= Nanos(now)), "{}: {:?} for {}", info.name, at, now);
                }
            }
        }
    }

    #[test]
    fn no_policy_costs_less_than_the_optimum_and_rent_to_buy_at_most_twice_and_its_credit(
        periods in prop::collection::vec(prop_oneof![0_u64..30_000, 9_000_u64..11_000, 0_u64..10_000_000], 1..400),
    ) {
        let periods: Vec<Nanos> = periods.into_iter().map(Nanos::from_millis).collect();
        let least = least_cost(&periods);
        for info in spin_downs() {
            let spent = cost(info.name, &periods);
            prop_assert!(spent >= least - 1e-6, "{}: {} for {}", info.name, spent, least);
            prop_assert_eq!(spent.to_bits(), cost(info.name, &periods).to_bits(), "{} is not deterministic", info.name);
        }
        prop_assert!((cost("optimum", &periods) - least).abs() < 1e-6);
        prop_assert!(cost("rent_to_buy", &periods) <= 2.0 * least + 80.0 + 1e-6);
    }
}

#[test]
fn every_policy_is_made_with_its_defaults_and_with_its_limits() {
    for info in spin_downs() {
        assert_eq!(make(info.name).name(), info.name);
        assert_eq!(info.offline, info.name == "optimum");
        for param in info.params {
            for value in [param.default, param.min, param.max] {
                assert_ne!(param.kind, ParamKind::Flag);
                let made = SpinDown::new(info.name, &Params::new().with(param.name, value), COSTS);
                assert!(made.is_ok(), "{}:{}={value}", info.name, param.name);
            }
        }
    }
}

#[test]
fn what_is_no_policy_is_refused_with_what_there_is() {
    let error = |text: &str| SpinDown::parse(text, COSTS).expect_err("it is wrong").to_string();
    assert_eq!(
        error("adaptve"),
        "there is no policy \"adaptve\" (did you mean \"adaptive\"?); known: never, fixed, adaptive, rent_to_buy, optimum"
    );
    assert_eq!(error("fixed:time=1s"), "\"fixed\" has no parameter \"time\"; it has: timeout");
    for value in ["1", "1.0", "-0.1", "0.0001", ".5", "0.", "a half", ""] {
        let text = error(&format!("adaptive:alpha={value}"));
        assert!(text.contains("give a number from 0 to 0.999, for example 0.08"), "{text}");
    }
}

#[test]
fn every_policy_and_parameter_is_in_the_documentation() {
    let page = include_str!("../../../../docs/spin-down.md");
    for info in spin_downs() {
        let row = page.lines().find(|line| line.starts_with(&format!("| `{}` |", info.name)));
        let row = row.unwrap_or_else(|| panic!("docs/spin-down.md has no row for {}", info.name));
        for param in info.params {
            assert!(row.contains(&format!("`{}={}`", param.name, param.default)), "{}: {}", info.name, param.name);
        }
        assert_eq!(row.contains("(offline)"), info.offline, "{}", info.name);
    }
}

#[test]
fn costs_that_are_found_out_meanwhile_count_from_the_next_period_and_what_was_learned_stays() {
    let longer = Costs { break_even: COSTS.break_even + COSTS.break_even };
    let long = vec![Nanos::from_secs(1000); 50];
    for text in ["adaptive", "rent_to_buy", "optimum"] {
        let (mut reported, mut known) = (make(text), SpinDown::parse(text, longer).expect("it is known"));
        reported.set_costs(longer);
        assert_eq!(timeouts(&mut reported, &long), timeouts(&mut known, &long), "{text}");
    }
    // Long periods have taught it to sleep early: it still does, by the same share of the costs.
    let mut adaptive = make("adaptive");
    timeouts(&mut adaptive, &long);
    let before = timeouts(&mut adaptive, &long[..1])[0].expect("it sleeps");
    adaptive.set_costs(longer);
    let after = timeouts(&mut adaptive, &long[..1])[0].expect("it sleeps");
    assert!(after > before && after < COSTS.break_even, "{before:?}, then {after:?}");
}
