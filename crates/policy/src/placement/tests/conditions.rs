//! Every condition with every comparison, on both sides of its threshold.

use super::*;

const ALL: [Comparison; 6] = [
    Comparison::Less,
    Comparison::LessOrEqual,
    Comparison::Equal,
    Comparison::NotEqual,
    Comparison::GreaterOrEqual,
    Comparison::Greater,
];

/// What each comparison says of values below, at and above the threshold.
const TRUTH: [[bool; 3]; 6] = [
    [true, false, false],
    [true, true, false],
    [false, true, false],
    [true, false, true],
    [false, true, true],
    [false, false, true],
];

/// Checks a condition against a file or branches below, at and above its threshold.
fn check(condition: impl Fn(Comparison) -> Condition, cases: &[(FileFacts<'_>, [BranchView; 4]); 3]) {
    for (is, truth) in ALL.into_iter().zip(TRUTH) {
        for ((facts, branches), expected) in cases.iter().zip(truth) {
            assert_eq!(holds(condition(is), facts, branches), expected, "{is:?} {facts:?} {branches:?}");
        }
    }
}

fn files(of: impl Fn(u32) -> FileFacts<'static>) -> [(FileFacts<'static>, [BranchView; 4]); 3] {
    [9, 10, 11].map(|value| (of(value), [ROOMY; 4]))
}

#[test]
fn size_is_compared() {
    let condition = |is| size(is, 10);
    check(condition, &files(|value| sized(value.into())));
}

#[test]
fn uid_gid_and_links_are_compared() {
    check(|is| Condition::Uid { is, value: 10 }, &files(|uid| FileFacts { uid, ..file("/x") }));
    check(|is| Condition::Gid { is, value: 10 }, &files(|gid| FileFacts { gid, ..file("/x") }));
    check(|is| Condition::Links { is, value: 10 }, &files(|links| FileFacts { links, ..file("/x") }));
}

#[test]
fn mode_is_compared_under_its_mask() {
    let condition = |is| Condition::Mode { is, value: 0o12, mask: 0o777 };
    check(condition, &[0o11, 0o12, 0o13].map(|mode| (FileFacts { mode, ..file("/x") }, [ROOMY; 4])));
    let setuid = Condition::Mode { is: Comparison::Equal, value: 0o4000, mask: 0o4000 };
    assert!(holds(setuid.clone(), &FileFacts { mode: 0o4755, ..file("/x") }, &[ROOMY; 4]));
    assert!(!holds(setuid, &FileFacts { mode: 0o755, ..file("/x") }, &[ROOMY; 4]));
}

#[test]
fn each_age_is_compared() {
    let changed_before = |field: TimeField| {
        move |age: u32| {
            let then = at(1_086_400 - i64::from(age));
            match field {
                TimeField::Atime => FileFacts { atime: then, ..file("/x") },
                TimeField::Mtime => FileFacts { mtime: then, ..file("/x") },
                TimeField::Ctime => FileFacts { ctime: then, ..file("/x") },
                TimeField::Btime => FileFacts { btime: Some(then), ..file("/x") },
            }
        }
    };
    for of in [TimeField::Atime, TimeField::Mtime, TimeField::Ctime, TimeField::Btime] {
        check(|is| aged(of, is, 10), &files(changed_before(of)));
    }
}

#[test]
fn no_condition_on_an_unknown_birth_time_holds() {
    let unknown = FileFacts { btime: None, ..file("/x") };
    for is in [Comparison::Less, Comparison::GreaterOrEqual, Comparison::Equal, Comparison::NotEqual] {
        let value = Duration::from_secs(10);
        let condition = Condition::Age { of: TimeField::Btime, is, value, hysteresis: Duration::MAX };
        assert!(!holds(condition, &unknown, &[ROOMY; 4]), "{is:?}");
    }
}

#[test]
fn a_time_in_the_future_is_zero_old() {
    let condition = aged(TimeField::Mtime, Comparison::Equal, 0);
    assert!(holds(condition, &FileFacts { mtime: at(9_999_999), ..file("/x") }, &[ROOMY; 4]));
}

#[test]
fn free_and_used_space_are_compared_in_bytes_and_percent() {
    // 90,000, 100,000 and 110,000 of 1,000,000 bytes: below, at and above 10 %.
    let free_space = [90_000, 100_000, 110_000].map(|bytes| (file("/x"), [ROOMY, ROOMY, ROOMY, free(bytes)]));
    let used_space = [910_000, 900_000, 890_000].map(|bytes| (file("/x"), [ROOMY, ROOMY, ROOMY, free(bytes)]));
    for value in [Amount::Bytes(ByteSize(100_000)), Amount::MilliPercent(10_000)] {
        let condition = |of: SpaceField| move |is| space("spare", of, is, value);
        check(condition(SpaceField::Free), &free_space);
        check(condition(SpaceField::Used), &used_space);
    }
}

#[test]
fn the_space_of_a_branch_that_is_offline_is_not_known() {
    for is in ALL {
        let condition = space("spare", SpaceField::Free, is, Amount::MilliPercent(10_000));
        assert!(!holds(condition, &file("/x"), &[ROOMY, ROOMY, ROOMY, OFFLINE]));
    }
}

#[test]
fn whether_a_branch_is_online_is_seen() {
    let away = [ROOMY, ROOMY, ROOMY, OFFLINE];
    assert!(holds(online("spare", true), &file("/x"), &[ROOMY; 4]));
    assert!(!holds(online("spare", true), &file("/x"), &away));
    assert!(holds(online("spare", false), &file("/x"), &away));
    assert!(holds(online("spare", false), &file("/x"), &[ROOMY; 2]), "a branch that is not listed is offline");
}

#[test]
fn access_follows_from_the_mode() {
    let cases = [
        (0o444, [true, false, false]),
        (0o644, [false, true, false]),
        (0o020, [false, true, false]),
        (0o555, [true, false, true]),
        (0o001, [true, false, true]),
        (0o7000, [true, false, false]),
        (0o755, [false, true, true]),
    ];
    for (mode, expected) in cases {
        let facts = FileFacts { mode, ..file("/x") };
        for (value, expected) in [Access::ReadOnly, Access::Writable, Access::Executable].into_iter().zip(expected) {
            assert_eq!(holds(access(value), &facts, &[ROOMY; 4]), expected, "{value:?} {mode:o}");
            let not = Condition::Access { is: Comparison::NotEqual, value };
            assert_eq!(holds(not, &facts, &[ROOMY; 4]), !expected, "not {value:?} {mode:o}");
        }
    }
}

#[test]
fn type_is_one_of_a_list_or_none() {
    use FileKind::{BlockDevice, CharDevice, Directory, Fifo, File, Socket, Symlink};
    for kind in [File, Directory, Symlink, Fifo, Socket, CharDevice, BlockDevice] {
        let facts = FileFacts { kind, ..file("/x") };
        for other in [File, Directory, Symlink, Fifo, Socket, CharDevice, BlockDevice] {
            let any_of = vec![other];
            assert_eq!(
                holds(Condition::Kind { any_of: any_of.clone(), negated: false }, &facts, &[ROOMY; 4]),
                kind == other
            );
            assert_eq!(holds(Condition::Kind { any_of, negated: true }, &facts, &[ROOMY; 4]), kind != other);
        }
    }
}

#[test]
fn extension_is_what_follows_the_last_dot_in_any_case() {
    let cases = [
        ("/a/x.avi", true),
        ("/x.AVI", true),
        ("/x.tar.Avi", true),
        ("/x.avi.gz", false),
        ("/avi", false),
        ("/x.avi/y", false),
        ("/.avi", false),
        ("/a/..avi", true),
        ("/x.", false),
        ("/x.avix", false),
    ];
    for (path, expected) in cases {
        assert_eq!(holds(extension(&["mkv", "avi"]), &file(path), &[ROOMY; 4]), expected, "{path}");
        let not = Condition::Extension { any_of: vec!["MKV".to_owned(), "Avi".to_owned()], negated: true };
        assert_eq!(holds(not, &file(path), &[ROOMY; 4]), !expected, "not {path}");
    }
}

#[test]
fn all_conditions_of_a_rule_must_hold() {
    let both = vec![size(Comparison::Greater, 10), extension(&["avi"])];
    let rules = compile(vec![when("rule", both, to(&["flash"]))], &["disk"]);
    let big = |path| FileFacts { size: ByteSize(11), ..file(path) };
    assert_eq!(entry(&rules, &big("/x.avi"), &[ROOMY; 4]), "rule");
    assert_eq!(entry(&rules, &big("/x"), &[ROOMY; 4]), "default");
    assert_eq!(entry(&rules, &FileFacts { size: ByteSize(10), ..file("/x.avi") }, &[ROOMY; 4]), "default");
}

#[test]
fn a_rule_without_conditions_matches_every_file() {
    let rules = compile(vec![when("all", vec![], to(&["flash"]))], &["disk"]);
    assert_eq!(entry(&rules, &file("/x"), &[ROOMY; 4]), "all");
    assert_eq!(entry(&rules, &new_file("/x"), &[ROOMY; 4]), "all");
}

#[test]
fn a_new_file_waits_for_close_where_size_or_access_is_asked() {
    for condition in [size(Comparison::GreaterOrEqual, 0), access(Access::Writable)] {
        assert!(!holds(condition.clone(), &new_file("/x"), &[ROOMY; 4]));
        assert!(holds(condition, &file("/x"), &[ROOMY; 4]));
    }
    let mode = Condition::Mode { is: Comparison::Equal, value: 0o644, mask: 0o777 };
    assert!(holds(mode, &new_file("/x"), &[ROOMY; 4]), "the mode is known from the start");
}

#[test]
fn a_guessed_size_decides_between_rules_and_fills_no_branch() {
    let guessed =
        |size| FileFacts { size: ByteSize(size), stage: Stage::Guessed(SizePeers::Extension), ..new_file("/x.mkv") };
    let rules = compile(
        vec![
            when("read-only", vec![access(Access::Writable), size(Comparison::Greater, 5)], to(&["crypt"])),
            when("large", vec![size(Comparison::Greater, 1000)], to(&["flash", "disk"])),
        ],
        &["disk"],
    );
    assert_eq!(entry(&rules, &guessed(1001), &[ROOMY; 4]), "large", "its access is not known yet");
    assert_eq!(entry(&rules, &guessed(1000), &[ROOMY; 4]), "default");
    assert_eq!(entry(&rules, &new_file("/x.mkv"), &[ROOMY; 4]), "default");
    let large = guessed(2_000_000);
    assert_eq!(choice(&rules, &large, &[ROOMY, free(1), ROOMY, ROOMY], None), Choice::Place(FLASH));
}

#[test]
fn rules_say_what_of_a_file_they_look_at() {
    let asked = |rules: Vec<RuleSpec>| compile(rules, &["disk"]).asked();
    let of = |of| aged(of, Comparison::Less, 1);
    assert_eq!(asked(vec![when("r", vec![of(TimeField::Mtime)], to(&["flash"]))]), Asked::default());
    let read = asked(vec![when("r", vec![of(TimeField::Mtime), of(TimeField::Atime)], to(&["flash"]))]);
    assert_eq!(read, Asked { access_times: true, ..Asked::default() });
    let named = Asked { names: true, ..Asked::default() };
    assert_eq!(asked(vec![when("r", vec![extension(&["avi"])], to(&["flash"]))]), named);
    let sized = || vec![not(vec![size(Comparison::Less, 5)])];
    assert_eq!(asked(vec![when("r", sized(), to(&["flash"]))]), Asked { sizes: true, ..Asked::default() });
    let treats = RuleKindSpec::Treat { conditions: sized() };
    let treatment = Treatment { passthrough: Some(false), ..Treatment::default() };
    assert_eq!(asked(vec![RuleSpec { name: "t".to_owned(), kind: treats, treatment }]), Asked::default());
    let links = Condition::Links { is: Comparison::Greater, value: 1 };
    assert_eq!(asked(vec![when("r", vec![links], to(&["flash"]))]), named);
    assert_eq!(asked(vec![table("t", vec![("/a/**", to(&["flash"]))])]), Asked { paths: true, ..named });
}

#[test]
fn only_files_that_a_rule_on_access_times_may_match_depend_on_them() {
    let read = aged(TimeField::Atime, Comparison::Less, 1);
    let rules = compile(
        vec![
            table("fixed", vec![("/fixed/**", to(&["disk"]))]),
            when("hot films", vec![read, extension(&["avi"])], passing(&["flash"])),
        ],
        &["disk"],
    );
    let depends = |path| rules.depends_on_access_time(&file(path), &[ROOMY; 4], None);
    assert!(depends("/x.avi"));
    assert!(!depends("/x"), "another condition of the rule fails");
    assert!(!depends("/fixed/x.avi"), "an earlier rule decides");
    let away = [BranchView { online: false, ..ROOMY }; 4];
    assert!(!rules.depends_on_access_time(&file("/x.avi"), &away, None), "a rule whose branch is away is passed over");
}
