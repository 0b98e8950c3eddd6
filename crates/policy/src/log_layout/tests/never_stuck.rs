//! Whatever the user writes, as long as it is not more than was promised, the store keeps working and loses no space.

use proptest::prelude::*;
use umbrella_units::{BlockNo, SplitMix64};

use super::super::*;
use super::driver::{Driver, room, settings};

#[derive(Debug, Clone, Copy)]
enum Step {
    /// Writes a number of blocks from a place on.
    Write(u16, u8),
    /// Writes blocks all over the store.
    Scatter(u16, u8),
    /// Writes the same few blocks again and again.
    Hot(u16, u8),
    Discard(u16, u8),
    Sync,
    Checkpoint,
    Ahead,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (any::<u16>(), any::<u8>()).prop_map(|(at, count)| Step::Write(at, count)),
        4 => (any::<u16>(), any::<u8>()).prop_map(|(at, count)| Step::Scatter(at, count)),
        2 => (any::<u16>(), any::<u8>()).prop_map(|(at, count)| Step::Hot(at, count)),
        1 => (any::<u16>(), any::<u8>()).prop_map(|(at, count)| Step::Discard(at, count)),
        1 => Just(Step::Sync),
        1 => Just(Step::Checkpoint),
        1 => Just(Step::Ahead),
    ]
}

fn perform(driver: &mut Driver, step: Step) {
    let blocks = driver.map.blocks();
    let at = |at: u16, n: u64| BlockNo((u64::from(at) + n) % blocks);
    match step {
        Step::Write(from, count) => (0..count).for_each(|n| driver.write(at(from, n.into()))),
        Step::Scatter(from, count) => (0..count).for_each(|n| driver.write(at(from, u64::from(n) * 7919))),
        Step::Hot(from, count) => (0..count).for_each(|n| driver.write(at(from, u64::from(n % 5)))),
        Step::Discard(from, count) => (0..count).for_each(|n| driver.discard(at(from, n.into()))),
        Step::Sync => driver.sync(),
        Step::Checkpoint => driver.checkpoint(),
        Step::Ahead => _ = driver.reclaim_once(CleaningGoal::Ahead),
    }
}

fn a_scheme() -> impl Strategy<Value = String> {
    let names: Vec<String> = schemes().iter().map(|info| info.name.to_owned()).collect();
    prop_oneof![
        proptest::sample::select(names),
        (1_u8..=8, 0_u8..=100).prop_map(|(regions, inside)| format!("r_lfs:regions={regions},inside={inside}")),
        (2_u8..=8, 0_u8..=50).prop_map(|(levels, centre)| format!("organ:levels={levels},centre={centre}")),
    ]
}

fn a_victim() -> impl Strategy<Value = Victim> {
    prop_oneof![Just(Victim::Greedy), Just(Victim::CostBenefit)]
}

/// Fills all that is promised, takes the steps, and writes it all again.
fn check_keeps_working(settings: Settings, steps: impl IntoIterator<Item = Step>) {
    let blocks = room(&settings).advertised(0).unwrap();
    let mut driver = Driver::new(settings, blocks);
    (0..blocks).for_each(|block| driver.write(BlockNo(block)));
    for step in steps {
        perform(&mut driver, step);
        driver.check();
    }
    driver.checkpoint();
    (0..blocks).rev().for_each(|block| driver.write(BlockNo(block)));
    driver.check();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    #[test]
    fn a_store_that_is_full_to_the_promised_size_continues(
        scheme in a_scheme(),
        victim in a_victim(),
        live in any::<bool>(),
        more in 0_u32..40,
        steps in proptest::collection::vec(step(), 1..60),
    ) {
        let streams = SchemeInfo::make(&scheme.parse().unwrap()).unwrap().streams();
        let shape = Shape { segments: (5 * u32::from(streams) + 15).max(50) + more, segment_blocks: 16 };
        let settings = settings(shape, &scheme, victim, live);
        check_keeps_working(settings, steps);
    }
}

#[test]
fn ten_random_rewrites_of_all_that_was_promised_go_through_whatever_the_scheme() {
    for scheme in schemes().iter().map(|info| info.name).chain(["r_lfs:inside=100"]) {
        for victim in [Victim::Greedy, Victim::CostBenefit] {
            let shape = Shape { segments: 80, segment_blocks: 32 };
            let settings = settings(shape, scheme, victim, true);
            let blocks = room(&settings).advertised(50).unwrap();
            let mut driver = Driver::new(settings, blocks);
            let mut random = SplitMix64::new(1);
            for _ in 0..10 * blocks {
                driver.write(BlockNo(random.below(blocks)));
            }
            driver.check();
        }
    }
}

#[test]
fn a_flush_never_costs_more_than_what_was_cleaned_before_it_gains() {
    let shape = Shape { segments: 79, segment_blocks: 16 };
    let settings = settings(shape, "sepbit", Victim::CostBenefit, true);
    let found = [
        Step::Write(31896, 137),
        Step::Write(10286, 148),
        Step::Sync,
        Step::Discard(23426, 48),
        Step::Write(18418, 17),
        Step::Write(19347, 163),
        Step::Scatter(38274, 60),
        Step::Sync,
        Step::Write(30032, 8),
    ];
    check_keeps_working(settings, found);
}
