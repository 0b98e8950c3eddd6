//! What new files wait for: the facts that decide and that they do not have yet.

use super::*;

const MOST: ByteSize = ByteSize(1 << 20);
const KIB64: u64 = 64 << 10;

fn small_to_flash() -> RuleSpec {
    when("small", vec![size(Comparison::Less, KIB64)], to(&["flash"]))
}

fn outlook(rules: &Rules, path: &str) -> Option<Outlook> {
    rules.outlook(&new_file(path), &[ROOMY; 4], MOST)
}

fn up_to(bytes: u64) -> Outlook {
    Outlook { last_threshold: Some(ByteSize(bytes)) }
}

#[test]
fn a_file_waits_for_its_size_up_to_the_threshold_of_the_rule() {
    assert_eq!(outlook(&compile(vec![small_to_flash()], &["disk"]), "/x"), Some(up_to(KIB64)));
}

#[test]
fn of_several_thresholds_the_last_one_ends_the_wait() {
    let middle = when("middle", vec![size(Comparison::LessOrEqual, 2 * KIB64)], to(&["spare"]));
    assert_eq!(outlook(&compile(vec![middle, small_to_flash()], &["disk"]), "/x"), Some(up_to(2 * KIB64)));
}

#[test]
fn a_file_does_not_wait_for_a_size_that_it_cannot_wait_for() {
    let large = when("large", vec![size(Comparison::Greater, 1 << 30)], to(&["spare"]));
    assert_eq!(outlook(&compile(vec![large], &["disk"]), "/x"), None);
    let none = when("none", vec![size(Comparison::Less, 0)], to(&["spare"]));
    assert_eq!(outlook(&compile(vec![none], &["disk"]), "/x"), None);
}

#[test]
fn a_file_waits_for_its_access_however_large_it_is() {
    let kept = when("kept", vec![access(Access::ReadOnly)], to(&["spare"]));
    assert_eq!(
        outlook(&compile(vec![small_to_flash(), kept], &["disk"]), "/x"),
        Some(Outlook { last_threshold: None })
    );
}

#[test]
fn what_an_earlier_rule_decides_for_sure_waits_for_nothing() {
    let films = when("films", vec![extension(&["mkv"])], to(&["disk"]));
    let rules = compile(vec![films, small_to_flash()], &["disk"]);
    assert_eq!([outlook(&rules, "/x.mkv"), outlook(&rules, "/x")], [None, Some(up_to(KIB64))]);
    let named = compile(vec![table("names", vec![("/x", to(&["disk"]))]), small_to_flash()], &["disk"]);
    assert_eq!(outlook(&named, "/x"), None);
}

#[test]
fn a_rule_that_cannot_hold_for_other_reasons_is_not_waited_for() {
    let films = vec![extension(&["mkv"]), size(Comparison::Less, KIB64)];
    assert_eq!(outlook(&compile(vec![when("films", films, to(&["flash"]))], &["disk"]), "/x"), None);
    let away = [ROOMY, OFFLINE, ROOMY, ROOMY];
    let passed = compile(vec![when("small", vec![size(Comparison::Less, 5)], passing(&["flash"]))], &["disk"]);
    assert_eq!(passed.outlook(&new_file("/x"), &away, MOST), None);
}

#[test]
fn rules_without_size_and_access_make_nothing_wait() {
    let rules = |late| compile(if late { vec![small_to_flash()] } else { Vec::new() }, &["disk"]);
    let stages = |late, mode| rules(late).may_stage(mode);
    assert_eq!([stages(true, StagingMode::Auto), stages(false, StagingMode::Auto)], [true, false]);
    assert_eq!([stages(true, StagingMode::Never), stages(false, StagingMode::Always)], [false, true]);
}

#[test]
fn one_rule_may_stage_what_the_rest_does_not() {
    let treated = |staging| {
        let treatment = Treatment { staging: Some(staging), ..Treatment::default() };
        let kind = RuleKindSpec::Treat { conditions: vec![] };
        compile(vec![RuleSpec { name: "t".to_owned(), kind, treatment }, small_to_flash()], &["disk"])
    };
    let stages = |staging, mode| treated(staging).may_stage(mode);
    assert!(stages(StagingMode::Always, StagingMode::Never));
    assert!(stages(StagingMode::Auto, StagingMode::Never));
    assert!(!stages(StagingMode::Never, StagingMode::Never));
}
