//! How files are treated: by the first rule that says so, up to the one that decides their place.

use super::*;

const DAY: Duration = Duration::from_secs(86_400);

fn treat(name: &str, conditions: Vec<Condition>, treatment: Treatment) -> RuleSpec {
    RuleSpec { name: name.to_owned(), kind: RuleKindSpec::Treat { conditions }, treatment }
}

fn mediated() -> Treatment {
    Treatment { passthrough: Some(false), ..Treatment::default() }
}

fn secret() -> Treatment {
    Treatment { staging: Some(StagingMode::Never), ..Treatment::default() }
}

fn treatment(rules: &Rules, path: &str) -> Treatment {
    rules.treatment(&file(path), &[ROOMY; 4], None)
}

#[test]
fn a_rule_without_branches_treats_a_file_and_lets_the_next_rule_decide_its_place() {
    let rules = compile(
        vec![treat("films", vec![extension(&["avi"])], mediated()), when("all", vec![], to(&["flash"]))],
        &["disk"],
    );
    assert_eq!((entry(&rules, &file("/x.avi"), &[ROOMY; 4]), treatment(&rules, "/x.avi")), ("all", mediated()));
    assert_eq!((entry(&rules, &file("/x"), &[ROOMY; 4]), treatment(&rules, "/x")), ("all", Treatment::default()));
    assert_eq!(rules.treats(), mediated());
    assert_eq!(rules.entries().len(), 2, "it is no entry");
}

#[test]
fn the_first_rule_that_sets_a_treatment_wins() {
    let all = Treatment { staging: Some(StagingMode::Always), ..mediated() };
    let rules = compile(
        vec![
            treat("secret", vec![path(PathPart::Path, &["/secret/**"])], secret()),
            RuleSpec { treatment: all, ..when("all", vec![], to(&["flash"])) },
            treat("too late", vec![], Treatment { min_stay: Some(DAY), ..Treatment::default() }),
        ],
        &["disk"],
    );
    assert_eq!(treatment(&rules, "/secret/x"), Treatment { passthrough: Some(false), ..secret() });
    assert_eq!(treatment(&rules, "/x"), all, "no rule is looked at after the one that decides");
}

#[test]
fn the_name_table_ends_the_search_and_a_rule_that_is_passed_over_does_not() {
    let treated = |first: &str| RuleSpec { treatment: mediated(), ..when("away", vec![], passing(&[first])) };
    let rules = compile(
        vec![table("names", vec![("/x", to(&["disk"]))]), treated("crypt"), treat("late", vec![], secret())],
        &["disk"],
    );
    assert_eq!(treatment(&rules, "/x"), Treatment::default());
    let away = [ROOMY, ROOMY, OFFLINE, ROOMY];
    assert_eq!(rules.treatment(&file("/y"), &away, None), secret());
}

#[test]
fn a_stay_that_a_rule_wants_goes_before_the_branchs() {
    let stay = Treatment { min_stay: Some(DAY * 2), ..Treatment::default() };
    let rules = |treatment| {
        compile(
            vec![treat("stay", vec![extension(&["avi"])], treatment), when("all", vec![], to(&["flash", "default"]))],
            &["disk"],
        )
    };
    let came = Resident {
        branch: DISK,
        since: Some(at(1_000_000)),
        min_stay: Duration::ZERO,
        is_evicted: false,
        is_opened: false,
    };
    let decide = |rules: &Rules, path, resident: &Resident| {
        rules.decide(&file(path), &[ROOMY; 4], Some(resident), &Empty).choice
    };
    assert_eq!(decide(&rules(stay), "/x.avi", &came), Choice::Stay);
    assert_eq!(decide(&rules(stay), "/x", &came), Choice::Place(FLASH));
    let none = Treatment { min_stay: Some(Duration::ZERO), ..Treatment::default() };
    assert_eq!(decide(&rules(none), "/x.avi", &Resident { min_stay: DAY * 2, ..came }), Choice::Place(FLASH));
    let why = rules(stay).explain(&file("/x.avi"), &[ROOMY; 4], Some(&came), &Empty).why;
    assert_eq!(why, "it came to \"disk\" less than 2d ago and stays that long (min_stay)");
}

#[test]
fn explain_says_what_a_rule_that_only_treats_does() {
    let rules = compile(vec![treat("films", vec![extension(&["avi"])], mediated())], &["disk"]);
    let step = rules.explain(&file("/x.avi"), &[ROOMY; 4], None, &Empty).steps.remove(0);
    let reason = "decides no place, only passthrough = false: extension is avi";
    assert_eq!((step.rule.as_str(), step.matched, step.reason.as_str()), ("films", false, reason));
}

#[test]
fn a_rule_that_only_treats_and_can_never_match_is_found() {
    let rules = compile(vec![treat("none", vec![size(Comparison::Less, 0)], mediated())], &["disk"]);
    assert_eq!(rules.unreachable()[0].reason, "no file has size < 0 B");
}
