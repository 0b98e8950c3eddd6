//! Rules that cannot be compiled say what is wrong and where.

use super::*;

fn error(rules: Vec<RuleSpec>, default: &[&str]) -> RuleError {
    try_compile(rules, default).unwrap_err()
}

#[test]
fn an_unknown_branch_is_named_with_those_that_exist() {
    let rules = || vec![when("fast", vec![], to(&["flash", "falsh"]))];
    let expected =
        RuleError::UnknownBranch { rule: "fast".to_owned(), branch: "falsh".to_owned(), known: owned(&NAMES) };
    assert_eq!(error(rules(), &["disk"]), expected);
    assert_eq!(
        expected.to_string(),
        "rule \"fast\": there is no branch or group \"falsh\" (known here: \"disk\", \"flash\", \"crypt\", \"spare\")"
    );
    assert!(matches!(error(vec![], &["nowhere"]), RuleError::UnknownBranch { rule, .. } if rule == "default"));
}

#[test]
fn a_condition_on_an_unknown_branch_is_an_error() {
    let space = space("x", SpaceField::Free, Comparison::Less, Amount::MilliPercent(1));
    for condition in [online("x", true), space] {
        let rules = vec![when("rule", vec![condition], to(&["disk"]))];
        assert!(matches!(error(rules, &["disk"]), RuleError::UnknownBranch { branch, .. } if branch == "x"));
    }
}

#[test]
fn lists_must_name_a_branch_and_each_once() {
    assert_eq!(error(vec![], &["disk", "default"]), RuleError::DefaultInDefault);
    let empty = error(vec![when("rule", vec![], to(&[]))], &["disk"]);
    assert_eq!(empty, RuleError::EmptyDestination { rule: "rule".to_owned() });
    let empty = error(vec![table("t", vec![("/x", to(&[]))])], &["disk"]);
    assert_eq!(empty, RuleError::EmptyDestination { rule: "t: /x".to_owned() });
    let twice = error(vec![when("rule", vec![], to(&["disk", "flash", "disk"]))], &["disk"]);
    assert_eq!(twice, RuleError::DuplicateBranch { rule: "rule".to_owned(), branch: "disk".to_owned() });
    assert!(matches!(error(vec![], &["disk", "disk"]), RuleError::DuplicateBranch { .. }));
}

#[test]
fn there_is_one_name_table() {
    let twice = error(vec![table("one", vec![]), table("two", vec![])], &["disk"]);
    assert_eq!(twice, RuleError::SecondNameTable { rule: "two".to_owned(), first: "one".to_owned() });
}

#[test]
fn a_bad_pattern_is_quoted_with_its_reason() {
    let bad = error(vec![table("t", vec![("/a[", to(&["disk"]))])], &["disk"]);
    assert_eq!(
        bad.to_string(),
        "rule \"t\": pattern \"/a[\": \"[\" has no closing \"]\" (write \"\\[\" for the character)"
    );
    assert!(matches!(bad, RuleError::BadGlob { reason: GlobError::UnclosedClass, .. }));
}

#[test]
fn access_types_have_no_order() {
    let less = Condition::Access { is: Comparison::Less, value: Access::ReadOnly };
    let bad = error(vec![when("rule", vec![less], to(&["disk"]))], &["disk"]);
    assert_eq!(bad, RuleError::BadComparison { rule: "rule".to_owned(), condition: "access" });
}
