//! What `explain` says.

use super::*;

fn steps(
    rules: &Rules,
    facts: &FileFacts<'_>,
    branches: &[BranchView],
    resident: Option<&Resident>,
) -> Vec<(String, bool, String)> {
    let explained = rules.explain(facts, branches, resident, &Empty);
    assert_eq!(explained.decision, rules.decide(facts, branches, resident, &Empty));
    explained.steps.into_iter().map(|step| (step.rule, step.matched, step.reason)).collect()
}

fn why(rules: &Rules, branches: &[BranchView], resident: Option<&Resident>) -> String {
    rules.explain(&file("/x"), branches, resident, &Empty).why
}

fn step(rule: &str, matched: bool, reason: &str) -> (String, bool, String) {
    (rule.to_owned(), matched, reason.to_owned())
}

#[test]
fn every_rule_up_to_the_deciding_one_says_why_or_why_not() {
    let rules = compile(
        vec![
            when("big", vec![size(Comparison::GreaterOrEqual, 1 << 20)], to(&["disk"])),
            when("films", vec![extension(&["avi", "mkv"])], to(&["flash"])),
            table("names", vec![("/srv/**", to(&["disk"]))]),
            when("daves", vec![Condition::Uid { is: Comparison::Equal, value: 1000 }], to(&["crypt"])),
            when("never seen", vec![], to(&["disk"])),
        ],
        &["disk"],
    );
    let facts = FileFacts { size: ByteSize(12 << 10), ..file("/home/x.txt") };
    assert_eq!(
        steps(&rules, &facts, &[ROOMY; 4], None),
        [
            step("big", false, "size is 12 KiB, the rule wants >= 1 MiB"),
            step("films", false, "extension is txt, the rule wants avi or mkv"),
            step("names", false, "no pattern matches"),
            step("daves", true, "uid is 1000"),
        ]
    );
}

#[test]
fn the_default_decides_when_no_rule_matches() {
    let rules = compile(vec![], &["disk"]);
    assert_eq!(steps(&rules, &file("/x"), &[ROOMY; 4], None), [step("default", true, "no rule matches")]);
}

#[test]
fn explain_says_that_a_file_stays_by_the_default_list() {
    let rules = compile(vec![], &["disk", "flash"]);
    assert_eq!(why(&rules, &[ROOMY; 4], Some(&on(FLASH))), "no rule names it, and the default list names \"flash\"");
}

#[test]
fn a_new_file_lacks_facts() {
    let rules = compile(vec![when("big", vec![size(Comparison::Greater, 5)], to(&["flash"]))], &["disk"]);
    assert_eq!(
        steps(&rules, &new_file("/x"), &[ROOMY; 4], None)[0],
        step("big", false, "needs the size, which a new file does not have yet")
    );
}

#[test]
fn a_guess_is_called_one_and_says_what_it_is_from() {
    let rules = compile(vec![when("big", vec![size(Comparison::Greater, 5)], to(&["flash"]))], &["disk"]);
    let said = |alike, path| {
        let facts = FileFacts { size: ByteSize(4 << 30), stage: Stage::Guessed(alike), ..new_file(path) };
        steps(&rules, &facts, &[ROOMY; 4], None).swap_remove(0)
    };
    let (near, far) = ("the last .mkv files of its directory", "the last .mkv files");
    for (alike, path, from) in [
        (SizePeers::ExtensionAndDirectory, "/tv/2.mkv", near),
        (SizePeers::Extension, "/tv/2.mkv", far),
        (SizePeers::Directory, "/tv/2.mkv", "the last files of its directory"),
    ] {
        assert_eq!(said(alike, path), step("big", true, &format!("size is about 4 GiB (a guess, as {from})")));
    }
}

#[test]
fn a_rule_that_is_passed_over_names_the_branch() {
    let rules = compile(
        vec![
            when("all", vec![], passing(&["flash"])),
            table("t", vec![("/x", passing(&["crypt"])), ("/**", to(&["disk"]))]),
        ],
        &["disk"],
    );
    assert_eq!(
        steps(&rules, &file("/x"), &[ROOMY, OFFLINE, OFFLINE, ROOMY], None),
        [
            step("all", false, "passed over: \"flash\", the first of its list, is offline"),
            step("t: /x", false, "passed over: \"crypt\", the first of its list, is offline"),
            step("t: /**", true, "1 literal characters match"),
        ]
    );
}

#[test]
fn of_several_patterns_the_next_best_is_named_too() {
    let rules = compile(vec![table("t", vec![("/home/**", to(&["disk"])), ("/home/x*", to(&["flash"]))])], &["disk"]);
    assert_eq!(
        steps(&rules, &file("/home/xy"), &[ROOMY; 4], None),
        [step("t: /home/x*", true, "7 literal characters match, \"/home/**\" has 6")]
    );
}

#[test]
fn a_band_that_holds_a_file_is_named() {
    let rules = compile(
        vec![when("small", vec![size_with_hysteresis(Comparison::Less, 1024, 512)], to(&["flash"]))],
        &["disk"],
    );
    assert_eq!(
        steps(&rules, &sized(1280), &[ROOMY; 4], Some(&on(FLASH))),
        [step("small", true, "size is 1.2 KiB (1280 bytes), within the hysteresis of 512 B around < 1 KiB")]
    );
    let explained = rules.explain(&sized(1280), &[ROOMY; 4], Some(&on(FLASH)), &Empty);
    assert_eq!(explained.why, "it is on \"flash\" and stays there while it is within the hysteresis");
}

#[test]
fn every_choice_says_why() {
    let rules = compile(vec![when("all", vec![], to(&["flash", "crypt"]))], &["disk"]);
    let flash_full = [ROOMY, FULL, ROOMY, ROOMY];
    let full = "\"flash\" has no room (0 B free, 0 B kept free, 1000 B needed)";
    assert_eq!(why(&rules, &[ROOMY; 4], None), "\"flash\" has room (488.2 KiB free)");
    assert_eq!(why(&rules, &flash_full, None), format!("{full}; \"crypt\" has room (488.2 KiB free)"));
    assert_eq!(why(&rules, &flash_full, Some(&on(CRYPT))), format!("{full}; it is on \"crypt\""));
    let away = [ROOMY, ROOMY, ROOMY, OFFLINE];
    assert_eq!(
        why(&rules, &away, Some(&on(SPARE))),
        "it is on \"spare\", which is offline: nothing can be moved from there"
    );
    let held = Resident {
        branch: DISK,
        since: Some(at(1_086_399)),
        min_stay: Duration::from_secs(3600),
        is_evicted: false,
        is_opened: false,
    };
    let lenient = compile(vec![when("all", vec![], to(&["flash", "default"]))], &["disk"]);
    assert_eq!(
        why(&lenient, &[ROOMY; 4], Some(&held)),
        "it came to \"disk\" less than 1h ago and stays that long (min_stay)"
    );
}

#[test]
fn a_list_that_is_full_is_named_with_the_reason_of_each_branch() {
    let rules = compile(vec![when("all", vec![], to(&["flash", "any"]))], &["disk"]);
    let full = "has no room (0 B free, 0 B kept free, 1000 B needed)";
    assert_eq!(
        why(&rules, &[FULL, FULL, OFFLINE, DRAINING], None),
        format!(
            "\"flash\" {full}; no branch of \"any\" can take it: \"disk\" {full}, \"crypt\" is offline, \"spare\" takes nothing new; \
             the list of rule \"all\" is full, and names no other branch"
        )
    );
    let default = compile(vec![], &["disk"]);
    let views = [FULL, ROOMY, ROOMY, ROOMY];
    assert_eq!(
        why(&default, &views, None),
        format!("\"disk\" {full}; the list of `default` is full, and names no other branch")
    );
}

#[test]
fn a_choice_among_equals_says_what_made_it() {
    let rules = compile(vec![when("all", vec![], to(&["any"]))], &["disk"]);
    let most = [free(1_001), free(1_002), free(1_002), FULL];
    assert_eq!(why(&rules, &most, None), "\"flash\" of \"any\" has most free space");
    assert_eq!(why(&rules, &most, Some(&on(SPARE))), "it is on \"spare\" of \"any\"");
}

#[test]
fn a_file_has_its_first_choice_on_any_branch_of_the_first_entry_and_on_no_later_one() {
    let is_first_choice = |list: &[&str], views: &[BranchView], at| {
        let rules = compile(vec![when("all", vec![], to(list))], &["disk"]);
        rules.explain(&file("/x"), views, Some(&on(at)), &Empty).is_first_choice
    };
    let flash_full = [ROOMY, FULL, ROOMY, ROOMY];
    assert!(is_first_choice(&["flash", "crypt"], &flash_full, FLASH));
    assert!(is_first_choice(&["any"], &flash_full, SPARE), "a group has no better member");
    assert!(!is_first_choice(&["flash", "crypt"], &flash_full, CRYPT), "it waits for room on the first");
    assert!(!is_first_choice(&["flash"], &flash_full, CRYPT), "it is on no branch of its list");
    assert!(!is_first_choice(&["flash"], &[ROOMY, OFFLINE, ROOMY, ROOMY], FLASH), "nothing moves from there");
    assert!(!compile(vec![], &["disk"]).explain(&file("/x"), &[ROOMY; 4], None, &Empty).is_first_choice, "it is new");
}
