//! Rules that can never match are found, and only those.

use super::*;
use Comparison::{Equal, Greater, GreaterOrEqual, Less, LessOrEqual, NotEqual};

fn unreachable(rules: Vec<RuleSpec>) -> Vec<(String, String)> {
    let found = compile(rules, &["disk"]).unreachable();
    found.into_iter().map(|one| (one.rule, one.reason)).collect()
}

fn named(rules: Vec<RuleSpec>) -> Vec<String> {
    unreachable(rules).into_iter().map(|(rule, _)| rule).collect()
}

/// The reason why a rule with these conditions cannot match, or nothing.
fn alone(conditions: Vec<Condition>) -> Option<String> {
    unreachable(vec![when("rule", conditions, passing(&["disk"]))]).pop().map(|(_, reason)| reason)
}

/// Whether the second rule is hidden by the first.
fn hides(first: Vec<Condition>, second: Vec<Condition>) -> bool {
    let rules = vec![when("first", first, to(&["disk"])), when("second", second, to(&["disk"]))];
    named(rules) == ["second"]
}

fn mode(is: Comparison, value: u32, mask: u32) -> Condition {
    Condition::Mode { is, value, mask }
}

fn uid(is: Comparison, value: u32) -> Condition {
    Condition::Uid { is, value }
}

fn age(is: Comparison, secs: u64, hysteresis: u64) -> Condition {
    Condition::Age {
        of: TimeField::Atime,
        is,
        value: Duration::from_secs(secs),
        hysteresis: Duration::from_secs(hysteresis),
    }
}

fn free_space(is: Comparison, value: Amount) -> Condition {
    space("flash", SpaceField::Free, is, value)
}

fn kinds(any_of: &[FileKind], negated: bool) -> Condition {
    Condition::Kind { any_of: any_of.to_vec(), negated }
}

fn not_extension(any_of: &[&str]) -> Condition {
    match extension(any_of) {
        Condition::Extension { any_of, .. } => Condition::Extension { any_of, negated: true },
        other => other,
    }
}

#[test]
fn a_rule_on_any_birth_hides_nothing_but_its_like() {
    let born = |is, secs| aged(TimeField::Btime, is, secs);
    // A file whose birth is not known comes past it.
    assert!(!hides(vec![born(GreaterOrEqual, 0)], vec![uid(Equal, 5)]));
    assert!(hides(vec![born(GreaterOrEqual, 0)], vec![born(Greater, 5)]));
    assert!(alone(vec![born(Greater, 5), born(Less, 5)]).is_some());
}

#[test]
fn no_file_is_without_a_name_and_no_branch_has_more_free_than_all() {
    let links = |is, value| alone(vec![Condition::Links { is, value }]);
    assert_eq!(links(Less, 1).as_deref(), Some("no file has link count < 1"));
    assert_eq!((links(LessOrEqual, 1), links(Less, 2)), (None, None));
    let share = |is, of| alone(vec![free_space(is, Amount::MilliPercent(of))]);
    assert!(share(Greater, 100_000).is_some_and(|reason| reason.contains("> 100%")));
    assert_eq!((share(GreaterOrEqual, 100_000), share(Greater, 99_999)), (None, None));
}

#[test]
fn contradictions_are_named() {
    let reason = alone(vec![size(Greater, 10), uid(Equal, 5), size(Less, 5)]);
    assert_eq!(reason.as_deref(), Some("no file has size > 10 B and size < 5 B at once"));
    let reason = alone(vec![size(Less, 0)]);
    assert_eq!(reason.as_deref(), Some("no file has size < 0 B"));
    let reason = alone(vec![access(Access::ReadOnly), mode(Equal, 0o200, 0o200)]);
    assert_eq!(reason.as_deref(), Some("no file has access = read-only and mode & 0200 = 0200 at once"));
    let reason = alone(vec![kinds(&[FileKind::Directory], false)]);
    assert_eq!(reason.as_deref(), Some("nothing that rules place has type = directory"));
    let reason = alone(vec![extension(&["avi"]), not_extension(&["avi"])]);
    assert_eq!(reason.as_deref(), Some("no file has extension = avi and extension != avi at once"));
}

#[test]
fn every_kind_of_contradiction_is_found() {
    let cases = vec![
        vec![size(Equal, 5), size(Equal, 6)],
        vec![size(Equal, 5), size(NotEqual, 5)],
        vec![size(Greater, 4), size(Less, 5)],
        vec![size(Greater, u64::MAX)],
        vec![uid(Greater, u32::MAX)],
        vec![uid(GreaterOrEqual, 5), uid(LessOrEqual, 6), uid(NotEqual, 6), uid(NotEqual, 5)],
        vec![Condition::Gid { is: Less, value: 0 }],
        vec![Condition::Links { is: Equal, value: 1 }, Condition::Links { is: Greater, value: 1 }],
        vec![age(Greater, 10, 0), age(LessOrEqual, 10, 0)],
        vec![access(Access::ReadOnly), access(Access::Writable)],
        vec![access(Access::Executable), mode(Equal, 0, 0o111)],
        vec![mode(Equal, 0o644, 0o777), mode(Equal, 0o4, 0o4), mode(Less, 0o600, 0o777)],
        vec![kinds(&[], false)],
        vec![kinds(&[FileKind::File], false), kinds(&[FileKind::File], true)],
        vec![extension(&[])],
        vec![extension(&["a"]), extension(&["b"])],
        vec![free_space(Less, Amount::MilliPercent(5_000)), free_space(Greater, Amount::MilliPercent(5_000))],
        vec![free_space(Less, Amount::Bytes(ByteSize(5))), free_space(Equal, Amount::Bytes(ByteSize(5)))],
        vec![online("flash", true), online("flash", false)],
        vec![online("flash", false), free_space(Less, Amount::MilliPercent(5_000))],
        vec![online("disk", false)],
    ];
    for conditions in cases {
        assert!(alone(conditions.clone()).is_some(), "{conditions:?}");
    }
}

#[test]
fn what_can_match_is_left_alone() {
    let cases = vec![
        vec![],
        vec![size(Greater, 4), size(Less, 6)],
        vec![size(GreaterOrEqual, u64::MAX)],
        vec![size(NotEqual, 0)],
        vec![size_with_hysteresis(Greater, 10, 8), size(Less, 5)],
        vec![age(Greater, 10, 5), age(Less, 8, 0)],
        vec![access(Access::Executable), access(Access::ReadOnly)],
        vec![mode(Equal, 0o4000, 0o4000), access(Access::Writable)],
        vec![kinds(&[FileKind::Directory, FileKind::Symlink], false)],
        vec![not_extension(&[])],
        vec![extension(&["a", "b"]), not_extension(&["a"])],
        vec![free_space(Less, Amount::MilliPercent(50_000)), free_space(Greater, Amount::MilliPercent(49_999))],
        vec![free_space(Less, Amount::MilliPercent(1_000)), free_space(Greater, Amount::Bytes(ByteSize(1 << 40)))],
        vec![online("flash", false)],
    ];
    for conditions in cases {
        assert_eq!(alone(conditions.clone()), None, "{conditions:?}");
    }
}

#[test]
fn a_rule_after_one_without_conditions_is_out_of_reach() {
    let rules = vec![when("all", vec![], to(&["disk"])), when("late", vec![size(Greater, 1)], to(&["disk", "flash"]))];
    assert_eq!(unreachable(rules), [("late".to_owned(), "rule \"all\" comes first and matches every file".to_owned())]);
}

#[test]
fn one_that_matches_while_another_branch_is_away_is_marked_as_a_fallback() {
    let rules = vec![when("all", vec![], passing(&["flash"])), when("late", vec![], to(&["disk"]))];
    let found = compile(rules, &["disk"]).unreachable();
    assert_eq!(found.len(), 1);
    assert!(found[0].only_as_fallback);
    assert!(found[0].reason.ends_with("(unless \"flash\", the first of its list, is offline)"));
    let certain = vec![when("all", vec![], passing(&["flash"])), when("late", vec![], passing(&["flash"]))];
    assert!(!compile(certain, &["disk"]).unreachable()[0].only_as_fallback);
}

#[test]
fn a_rule_behind_a_wider_one_is_out_of_reach() {
    assert!(hides(vec![size(Greater, 5)], vec![size(Greater, 5)]));
    assert!(hides(vec![size(Greater, 5)], vec![size(GreaterOrEqual, 6), uid(Equal, 1)]));
    assert!(hides(vec![size(NotEqual, 3)], vec![size(Less, 3)]));
    assert!(hides(vec![uid(LessOrEqual, u32::MAX)], vec![]));
    assert!(hides(vec![access(Access::ReadOnly)], vec![access(Access::ReadOnly), mode(Equal, 0o4, 0o7)]));
    assert!(hides(vec![mode(Equal, 0, 0o222)], vec![access(Access::ReadOnly)]));
    assert!(hides(vec![extension(&["a", "b"])], vec![extension(&["B"])]));
    assert!(hides(vec![not_extension(&["a"])], vec![extension(&["b"])]));
    assert!(hides(vec![not_extension(&["a"])], vec![not_extension(&["a", "b"])]));
    assert!(hides(vec![kinds(&[FileKind::Directory], true)], vec![]));
    assert!(hides(vec![age(Greater, 5, 0)], vec![age(Greater, 9, 2)]));
    assert!(hides(
        vec![free_space(Less, Amount::MilliPercent(9_000))],
        vec![free_space(Less, Amount::MilliPercent(8_999))]
    ));
    assert!(hides(vec![online("flash", true)], vec![free_space(Less, Amount::MilliPercent(5_000))]));
}

#[test]
fn a_rule_behind_a_narrower_one_is_left_alone() {
    assert!(!hides(vec![size(Greater, 5)], vec![size(Greater, 4)]));
    assert!(!hides(vec![size(Greater, 5)], vec![]));
    assert!(!hides(vec![size(NotEqual, 3)], vec![size(Less, 5)]));
    assert!(!hides(vec![size(GreaterOrEqual, 0)], vec![]), "new files have no size yet");
    assert!(!hides(vec![size(Greater, 5)], vec![uid(Equal, 3)]));
    assert!(!hides(vec![mode(Equal, 0o4, 0o7)], vec![access(Access::ReadOnly)]));
    assert!(!hides(vec![extension(&["a"])], vec![extension(&["a", "b"])]));
    assert!(!hides(vec![extension(&["a"])], vec![not_extension(&["b"])]));
    assert!(!hides(vec![not_extension(&["a"])], vec![not_extension(&["b"])]));
    assert!(!hides(vec![size(Less, 10)], vec![size_with_hysteresis(Less, 8, 5)]), "its hysteresis reaches beyond");
    assert!(!hides(vec![free_space(Less, Amount::MilliPercent(9_000))], vec![]));
    assert!(!hides(vec![online("flash", true)], vec![]));
    assert!(!hides(vec![mode(Equal, 0, 0o222)], vec![size(Greater, 5)]));
}

#[test]
fn a_pattern_that_another_repeats_is_out_of_reach() {
    let patterns =
        vec![("/a/**", to(&["disk"])), ("*.x", to(&["disk"])), ("/a/**", to(&["disk"])), ("**/*.x", to(&["disk"]))];
    assert_eq!(
        unreachable(vec![table("t", patterns)]),
        [
            ("t: *.x".to_owned(), "pattern \"**/*.x\" matches the same paths and comes first".to_owned()),
            ("t: /a/**".to_owned(), "pattern \"/a/**\" matches the same paths and comes first".to_owned()),
        ]
    );
}

#[test]
fn a_pattern_among_the_braces_of_another_is_out_of_reach() {
    let patterns = vec![("*.mkv", to(&["disk"])), ("*.{avi,mkv}", to(&["disk"]))];
    assert_eq!(
        unreachable(vec![table("t", patterns)]),
        [("t: *.mkv".to_owned(), "pattern \"*.{avi,mkv}\" matches all its paths and comes first".to_owned())]
    );
}

#[test]
fn a_pattern_that_no_path_matches_is_out_of_reach() {
    let patterns = vec![
        ("/a/../b", to(&["disk"])),
        ("/a/./b", to(&["disk"])),
        ("/a[/]b", to(&["disk"])),
        ("/a/.b", to(&["disk"])),
    ];
    assert_eq!(named(vec![table("t", patterns)]), ["t: /a/../b", "t: /a/./b", "t: /a[/]b"]);
}

#[test]
fn longer_patterns_are_in_reach_beside_one_for_everything() {
    let patterns = vec![("/**", to(&["disk"])), ("/a", to(&["disk"])), ("*.x", to(&["disk"]))];
    assert_eq!(named(vec![table("t", patterns)]), [] as [&str; 0]);
}

#[test]
fn rules_after_a_table_with_a_pattern_for_everything_are_out_of_reach() {
    for everything in ["/**", "**", "/**/*", "*"] {
        let rules = vec![
            table("t", vec![(everything, to(&["disk"])), ("/a", to(&["disk"]))]),
            when("late", vec![size(Greater, 4)], to(&["disk"])),
        ];
        assert_eq!(named(rules), ["late"], "{everything}");
    }
    let top_only = vec![table("t", vec![("/*", to(&["disk"]))]), when("late", vec![], to(&["disk"]))];
    assert_eq!(named(top_only), [] as [&str; 0]);
}

#[test]
fn a_table_after_a_rule_without_conditions_is_out_of_reach() {
    let rules =
        vec![when("all", vec![], to(&["disk"])), table("t", vec![("/a", to(&["disk"])), ("/b", to(&["disk"]))])];
    assert_eq!(named(rules), ["t: /a", "t: /b"]);
}

#[test]
fn a_rule_is_out_of_reach_when_each_of_its_alternatives_is() {
    let first = || vec![size(Greater, 5)];
    assert!(hides(first(), vec![Condition::Any(vec![size(Greater, 6), size(Equal, 9)])]));
    assert!(!hides(first(), vec![Condition::Any(vec![size(Greater, 6), uid(Equal, 9)])]));
    assert!(hides(vec![Condition::Any(vec![uid(Equal, 1), size(Greater, 5)])], vec![size(Greater, 7)]));
    assert!(hides(vec![not(vec![size(Greater, 5), uid(Equal, 1)])], vec![uid(Equal, 2)]));
    assert!(!hides(vec![not(vec![size(Greater, 5)])], vec![]), "new files have no size yet");
    assert!(!hides(vec![not(vec![size(Less, 10)])], vec![not(vec![size_with_hysteresis(Less, 10, 5)])]));
}

#[test]
fn contradictions_under_not_and_any_are_named() {
    let reason = alone(vec![size(Greater, 10), not(vec![size(Greater, 5)])]);
    assert_eq!(reason.as_deref(), Some("no file has size > 10 B and size <= 5 B at once"));
    let reason = alone(vec![size(Greater, 10), Condition::Any(vec![size(Less, 5), size(Less, 6)])]);
    let expected = "no file has size > 10 B and size < 5 B at once, and no file has size > 10 B and size < 6 B at once";
    assert_eq!(reason.as_deref(), Some(expected));
    assert!(alone(vec![size(Greater, 10), Condition::Any(vec![size(Less, 5), uid(Less, 6)])]).is_none());
    assert_eq!(alone(vec![Condition::Any(vec![])]).as_deref(), Some("its `any` has no alternative"));
}

#[test]
fn paths_and_attributes_are_compared_as_far_as_that_is_sure() {
    let below = |glob| path(PathPart::Path, &[glob]);
    let named = |glob| path(PathPart::Name, &[glob]);
    assert!(hides(vec![below("/a/**")], vec![below("/a/**"), size(Greater, 5)]));
    assert!(hides(vec![path(PathPart::Path, &["/a/**", "*.b"])], vec![named("*.b")]));
    assert!(!hides(vec![below("/a/**")], vec![below("/b/**")]));
    assert!(hides(vec![not(vec![below("/a/**")])], vec![not(vec![path(PathPart::Path, &["/a/**", "/b/**"])])]));
    assert!(hides(vec![xattr(None, false)], vec![xattr(Some(&["ssd"]), false)]));
    assert!(hides(vec![xattr(Some(&["hdd"]), true)], vec![xattr(Some(&["ssd"]), false)]));
    assert!(!hides(vec![xattr(Some(&["ssd"]), false)], vec![xattr(None, false)]));
    let reason = alone(vec![below("/a/**"), not(vec![below("/a/**")])]);
    assert_eq!(reason.as_deref(), Some("no file has path = /a/** and path != /a/** at once"));
    let reason = alone(vec![xattr(None, true), xattr(Some(&["ssd"]), false)]);
    assert_eq!(reason.as_deref(), Some("no file has xattr user.keep is not there and xattr user.keep = ssd at once"));
    assert_eq!(alone(vec![not(vec![named("*")])]).as_deref(), Some("no file has name != *"));
}

#[test]
fn rules_on_paths_and_the_name_table_hide_each_other() {
    let rule = || when("rule", vec![path(PathPart::Path, &["/a/**"])], to(&["disk"]));
    let names = || table("t", vec![("/a/**", to(&["disk"])), ("/b/**", to(&["disk"]))]);
    assert_eq!(named(vec![rule(), names()]), ["t: /a/**"]);
    assert_eq!(named(vec![names(), rule()]), ["rule"]);
}
