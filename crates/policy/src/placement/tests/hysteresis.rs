//! Files that sit near a border move at most once; files that came lately stay.

use super::*;

/// Follows a file through sizes, moving it when it should be elsewhere; returns how often it moved.
fn moves(rules: &Rules, start: BranchId, facts: impl IntoIterator<Item = FileFacts<'static>>) -> usize {
    let mut home = start;
    let mut moves = 0;
    for facts in facts {
        if let Choice::Place(branch) = choice(rules, &facts, &[ROOMY; 4], Some(home)) {
            home = branch;
            moves += 1;
        }
    }
    moves
}

fn small_on_flash(hysteresis: u64) -> Rules {
    compile(
        vec![when("small", vec![size_with_hysteresis(Comparison::Less, 8192, hysteresis)], to(&["flash"]))],
        &["disk"],
    )
}

/// 1 KiB appended and cut off again, around 8 KiB.
fn oscillation() -> impl Iterator<Item = FileFacts<'static>> {
    (0..100).map(|turn| sized(if turn % 2 == 0 { 7680 } else { 8704 }))
}

#[test]
fn without_a_band_a_size_that_swings_around_the_border_moves_the_file_every_time() {
    assert_eq!(moves(&small_on_flash(0), DISK, oscillation()), 100);
}

#[test]
fn with_a_band_it_moves_at_most_once() {
    assert_eq!(moves(&small_on_flash(1024), DISK, oscillation()), 1);
    assert_eq!(moves(&small_on_flash(1024), FLASH, oscillation()), 0);
}

#[test]
fn two_rules_that_meet_at_a_border_do_not_pass_a_file_to_and_fro() {
    let rules = compile(
        vec![
            when("small", vec![size_with_hysteresis(Comparison::Less, 8192, 1024)], to(&["flash"])),
            when("large", vec![size_with_hysteresis(Comparison::GreaterOrEqual, 8192, 1024)], to(&["disk"])),
        ],
        &["spare"],
    );
    assert_eq!(moves(&rules, DISK, oscillation()), 1);
    assert_eq!(moves(&rules, FLASH, oscillation()), 0);
}

#[test]
fn a_file_enters_at_the_threshold_and_leaves_beyond_the_band() {
    let rules = compile(
        vec![when("big", vec![size_with_hysteresis(Comparison::GreaterOrEqual, 1000, 100)], to(&["flash"]))],
        &["disk"],
    );
    let decide = |bytes, home| choice(&rules, &sized(bytes), &[ROOMY; 4], Some(home));
    assert_eq!(decide(999, DISK), Choice::Stay);
    assert_eq!(decide(1000, DISK), Choice::Place(FLASH));
    assert_eq!(decide(900, FLASH), Choice::Stay);
    assert_eq!(decide(899, FLASH), Choice::Place(DISK));
}

#[test]
fn the_hysteresis_of_a_comparison_widens_it() {
    let cases = [
        (Comparison::Less, [899, 999, 1099], 1100),
        (Comparison::LessOrEqual, [900, 1000, 1100], 1101),
        (Comparison::GreaterOrEqual, [1100, 1000, 900], 899),
        (Comparison::Greater, [1101, 1001, 901], 900),
        (Comparison::Equal, [900, 1000, 1100], 899),
        (Comparison::NotEqual, [999, 1001, 1], 1000),
    ];
    for (is, stays, leaves) in cases {
        let rules = compile(vec![when("rule", vec![size_with_hysteresis(is, 1000, 100)], to(&["flash"]))], &["disk"]);
        for bytes in stays {
            assert_eq!(choice(&rules, &sized(bytes), &[ROOMY; 4], Some(FLASH)), Choice::Stay, "{is:?} {bytes}");
        }
        assert_eq!(choice(&rules, &sized(leaves), &[ROOMY; 4], Some(FLASH)), Choice::Place(DISK), "{is:?} {leaves}");
    }
}

#[test]
fn a_band_wider_than_the_threshold_and_the_largest_threshold_are_fine() {
    let rules = compile(
        vec![when("big", vec![size_with_hysteresis(Comparison::Greater, 10, u64::MAX)], to(&["flash"]))],
        &["disk"],
    );
    assert_eq!(choice(&rules, &sized(1), &[ROOMY; 4], Some(FLASH)), Choice::Stay);
    let rules = compile(
        vec![when("any", vec![size_with_hysteresis(Comparison::LessOrEqual, u64::MAX, 5)], to(&["flash"]))],
        &["disk"],
    );
    assert_eq!(choice(&rules, &sized(u64::MAX), &[ROOMY; 4], Some(FLASH)), Choice::Stay);
}

#[test]
fn the_band_helps_only_files_on_the_rules_own_branches() {
    let rules = small_on_flash(1024);
    assert_eq!(choice(&rules, &sized(8704), &[ROOMY; 4], Some(SPARE)), Choice::Place(DISK));
    assert_eq!(choice(&rules, &sized(8704), &[ROOMY; 4], None), Choice::Place(DISK));
}

#[test]
fn ages_and_branch_space_have_bands_too() {
    let age = Condition::Age {
        of: TimeField::Atime,
        is: Comparison::Less,
        value: Duration::from_secs(86_000),
        hysteresis: Duration::from_secs(1_000),
    };
    let rules = compile(vec![when("fresh", vec![age], to(&["flash"]))], &["disk"]);
    assert_eq!(choice(&rules, &file("/x"), &[ROOMY; 4], Some(FLASH)), Choice::Stay);
    assert_eq!(choice(&rules, &file("/x"), &[ROOMY; 4], Some(SPARE)), Choice::Place(DISK));

    let space = Condition::Space {
        branch: "disk".to_owned(),
        of: SpaceField::Free,
        is: Comparison::Less,
        value: Amount::MilliPercent(10_000),
        hysteresis: Amount::MilliPercent(5_000),
    };
    let rules = compile(vec![when("disk is full", vec![space], to(&["spare"]))], &["disk"]);
    let decide = |bytes, home| choice(&rules, &sized(1), &[free(bytes), ROOMY, ROOMY, ROOMY], Some(home));
    assert_eq!(decide(120_000, DISK), Choice::Stay);
    assert_eq!(decide(99_999, DISK), Choice::Place(SPARE));
    assert_eq!(decide(149_999, SPARE), Choice::Stay);
    assert_eq!(decide(150_000, SPARE), Choice::Place(DISK));
}

fn came(branch: BranchId, secs_ago: i64) -> Resident {
    Resident {
        branch,
        since: Some(at(1_086_400 - secs_ago)),
        min_stay: Duration::from_secs(60),
        is_evicted: false,
        is_opened: false,
    }
}

#[test]
fn a_file_that_came_lately_stays() {
    let small = vec![size(Comparison::Less, 100)];
    let rules = compile(vec![when("small", small, to(&["flash", "default"]))], &["disk"]);
    let decide = |resident: Resident| rules.decide(&sized(10), &[ROOMY; 4], Some(&resident), &Empty).choice;
    assert_eq!(decide(came(DISK, 59)), Choice::Stay);
    assert_eq!(decide(came(DISK, 60)), Choice::Place(FLASH));
    assert_eq!(decide(came(DISK, -100)), Choice::Stay, "a time in the future is just now");
    assert_eq!(decide(Resident { since: None, ..came(DISK, 0) }), Choice::Place(FLASH));
}

#[test]
fn a_file_that_came_lately_to_where_it_must_not_be_does_not_stay() {
    let list = || to(&["crypt", "flash"]);
    let by_name = table("names", vec![("/secret/**", list())]);
    let by_path = when("sec", vec![path(PathPart::Path, &["/secret/**"])], list());
    for rule in [by_name, by_path] {
        let rules = compile(vec![rule], &["disk"]);
        let decide = |views: &[BranchView], resident: Resident| {
            rules.decide(&file("/secret/key"), views, Some(&resident), &Empty)
        };
        assert_eq!(decide(&[ROOMY; 4], came(DISK, 1)).choice, Choice::Place(CRYPT));
        assert_eq!(decide(&[ROOMY; 4], came(FLASH, 1)).choice, Choice::Stay, "its list has this branch");
        assert_eq!(decide(&[ROOMY; 4], came(FLASH, 61)).choice, Choice::Place(CRYPT));
        let nowhere = decide(&[ROOMY, FULL, FULL, ROOMY], came(DISK, 1));
        assert!(rules.is_misplaced(nowhere, DISK), "{nowhere:?}");
    }
}

#[test]
fn a_branch_that_is_drained_is_left_at_once() {
    let rules = small_on_flash(0);
    let branches = [ROOMY, ROOMY, ROOMY, DRAINING];
    assert_eq!(rules.decide(&sized(10), &branches, Some(&came(SPARE, 0)), &Empty).choice, Choice::Place(FLASH));
}

#[test]
fn a_file_that_came_by_another_rule_is_not_moved_by_a_band() {
    let rules = compile(
        vec![
            when("small", vec![size_with_hysteresis(Comparison::Less, 1000, 500)], to(&["flash", "crypt"])),
            when("rest", vec![], to(&["crypt"])),
        ],
        &["disk"],
    );
    assert_eq!(choice(&rules, &sized(1200), &[ROOMY; 4], None), Choice::Place(CRYPT));
    assert_eq!(choice(&rules, &sized(1200), &[ROOMY; 4], Some(CRYPT)), Choice::Stay);
    assert_eq!(choice(&rules, &sized(999), &[ROOMY; 4], Some(CRYPT)), Choice::Place(FLASH));
}

#[test]
fn a_band_does_not_hold_a_file_to_a_branch_that_is_drained() {
    let rules = small_on_flash(1024);
    assert_eq!(choice(&rules, &sized(8704), &[ROOMY, DRAINING, ROOMY, ROOMY], Some(FLASH)), Choice::Place(DISK));
}
