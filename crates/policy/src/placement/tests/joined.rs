//! Conditions joined by `any`, `all` and `not`; paths, names, attributes and inodes.

use super::*;
use Comparison::{Equal, Greater, GreaterOrEqual, Less};

fn holds(condition: Condition, facts: &FileFacts<'_>) -> bool {
    super::holds(condition, facts, &[ROOMY; 4])
}

fn used_inodes(is: Comparison, percent: u32) -> Condition {
    space("spare", SpaceField::Inodes, is, Amount::MilliPercent(percent * 1000))
}

#[test]
fn a_path_matches_any_of_its_patterns() {
    let films = || path(PathPart::Path, &["/films/**", "*.mkv"]);
    for (name, expected) in [("/films/a", true), ("/x/a.mkv", true), ("/x/films/a", false), ("/filmsa", false)] {
        assert_eq!(holds(films(), &file(name)), expected, "{name}");
        assert_eq!(holds(not(vec![films()]), &file(name)), !expected, "not {name}");
    }
}

#[test]
fn a_name_is_what_follows_the_last_slash() {
    let cases = [("/s1/x", false), ("/x/s1", true), ("/x/s12.mkv", true), ("/x/as1", false), ("/s1", true)];
    for (name, expected) in cases {
        assert_eq!(holds(path(PathPart::Name, &["s1*"]), &file(name)), expected, "{name}");
    }
    assert!(holds(path(PathPart::Name, &["*"]), &file("/a/b")));
    assert!(holds(path(PathPart::Name, &["*.a"]), &file("/b/.a")));
}

#[test]
fn a_pattern_for_names_that_could_match_a_slash_is_an_error() {
    for glob in ["a/b", "/a", "a**", r"a\/b", "{a,b/c}", "**/a"] {
        let rules = vec![when("rule", vec![path(PathPart::Name, &[glob])], to(&["disk"]))];
        let bad = try_compile(rules, &["disk"]).unwrap_err();
        assert!(matches!(bad, RuleError::BadGlob { reason: GlobError::SlashInName, .. }), "{glob}: {bad}");
    }
}

#[test]
fn conditions_that_are_nested_too_deep_are_an_error() {
    let nested = |depth| (0..depth).fold(size(Greater, 1), |inner, _| Condition::Not(Box::new(inner)));
    let compiled = |depth| try_compile(vec![when("rule", vec![nested(depth)], to(&["disk"]))], &["disk"]);
    assert!(compiled(Condition::MAX_DEPTH).is_ok());
    assert_eq!(compiled(Condition::MAX_DEPTH + 1).unwrap_err(), RuleError::TooDeep { rule: "rule".to_owned() });
}

#[test]
fn not_any_and_all_join_conditions() {
    let big = || size(Greater, 10);
    let avi = || extension(&["avi"]);
    let case = |bytes, name| FileFacts { size: ByteSize(bytes), ..file(name) };
    for (bytes, name, both, either) in
        [(11, "/x.avi", true, true), (11, "/x", false, true), (1, "/x.avi", false, true), (1, "/x", false, false)]
    {
        let facts = case(bytes, name);
        assert_eq!(holds(Condition::All(vec![big(), avi()]), &facts), both);
        assert_eq!(holds(Condition::Any(vec![big(), avi()]), &facts), either);
        assert_eq!(holds(not(vec![big(), avi()]), &facts), !both);
        assert_eq!(holds(Condition::Not(Box::new(Condition::Any(vec![big(), avi()]))), &facts), !either);
    }
}

#[test]
fn what_is_not_known_stays_unknown_under_not() {
    let unborn = FileFacts { btime: None, ..file("/x") };
    let born = |is| aged(TimeField::Btime, is, 0);
    assert!(!holds(born(Less), &unborn) && !holds(not(vec![born(Less)]), &unborn));
    assert!(!holds(not(vec![size(Greater, 5)]), &new_file("/x")), "a new file has no size");
    assert!(!holds(not(vec![access(Access::ReadOnly)]), &new_file("/x")), "nor an access type");
    let away = [ROOMY, ROOMY, ROOMY, OFFLINE];
    assert!(!super::holds(not(vec![used_inodes(Greater, 5)]), &file("/x"), &away), "nobody sees its inodes");
    let unread = FileFacts { xattrs: None, ..file("/x") };
    assert!(!holds(xattr(None, false), &unread) && !holds(xattr(None, true), &unread));
}

#[test]
fn an_unknown_part_does_not_matter_where_another_decides() {
    let known = || extension(&["avi"]);
    assert!(holds(Condition::Any(vec![size(Greater, 5), known()]), &new_file("/x.avi")));
    assert!(holds(not(vec![size(Greater, 5), known()]), &new_file("/x")));
    assert!(!holds(not(vec![size(Greater, 5), known()]), &new_file("/x.avi")));
}

#[test]
fn a_hysteresis_under_not_holds_a_file_as_the_opposite_condition_does() {
    let conditions =
        [not(vec![size_with_hysteresis(Less, 1000, 100)]), size_with_hysteresis(GreaterOrEqual, 1000, 100)];
    for condition in conditions {
        let rules = compile(vec![when("big", vec![condition], to(&["flash"]))], &["disk"]);
        let decide = |bytes, home| choice(&rules, &sized(bytes), &[ROOMY; 4], Some(home));
        assert_eq!(decide(999, DISK), Choice::Stay);
        assert_eq!(decide(1000, DISK), Choice::Place(FLASH));
        assert_eq!(decide(900, FLASH), Choice::Stay);
        assert_eq!(decide(899, FLASH), Choice::Place(DISK));
    }
}

#[test]
fn an_attribute_has_a_value_or_is_there() {
    let kept = [Xattr { name: "user.keep".into(), value: b"ssd".as_slice().into() }];
    let with = FileFacts { xattrs: Some(&kept), ..file("/x") };
    let without = file("/x");
    for (condition, on, off) in [
        (xattr(None, false), true, false),
        (xattr(None, true), false, true),
        (xattr(Some(&["disk", "ssd"]), false), true, false),
        (xattr(Some(&["disk"]), false), false, false),
        (xattr(Some(&["disk"]), true), true, true),
        (xattr(Some(&["ssd"]), true), false, true),
    ] {
        assert_eq!((holds(condition.clone(), &with), holds(condition.clone(), &without)), (on, off), "{condition:?}");
    }
}

#[test]
fn used_inodes_are_compared_and_unknown_where_nobody_counts_them() {
    let counted = BranchView { inodes: Some(Inodes { total: 1000, free: 50 }), ..ROOMY };
    let branches = [ROOMY, ROOMY, ROOMY, counted];
    assert!(super::holds(used_inodes(Greater, 94), &file("/x"), &branches));
    assert!(!super::holds(used_inodes(Greater, 95), &file("/x"), &branches));
    for condition in [used_inodes(Greater, 0), used_inodes(Less, 100), not(vec![used_inodes(Less, 100)])] {
        assert!(!holds(condition, &file("/x")));
    }
}

#[test]
fn a_branch_without_a_free_inode_is_full() {
    let rules = compile(vec![], &["disk", "flash"]);
    let out = BranchView { inodes: Some(Inodes { total: 10, free: 0 }), ..ROOMY };
    assert_eq!(choice(&rules, &new_file("/x"), &[out, ROOMY, ROOMY, ROOMY], None), Choice::Place(FLASH));
    assert_eq!(rules.next_choice(&new_file("/x"), &[out; 4], &[], ByteSize(0), &Empty), None);
    let why = rules.explain(&new_file("/x"), &[out, ROOMY, ROOMY, ROOMY], None, &Empty).why;
    assert_eq!(why, "\"disk\" has no free inode (of 10); \"flash\" has room (488.2 KiB free)");
}

#[test]
fn rules_say_which_names_paths_and_attributes_they_look_at() {
    let asked = |condition| {
        let rules = compile(vec![when("r", vec![not(vec![condition])], to(&["flash"]))], &["disk"]);
        (rules.asked(), rules.xattrs().to_vec())
    };
    let named = Asked { names: true, ..Asked::default() };
    assert_eq!(asked(path(PathPart::Name, &["a"])), (named, vec![]));
    assert_eq!(asked(path(PathPart::Path, &["/a"])), (Asked { paths: true, ..named }, vec![]));
    assert_eq!(asked(xattr(None, false)), (Asked::default(), vec!["user.keep".to_owned()]));
}

#[test]
fn a_read_matters_where_an_alternative_looks_at_the_access_time() {
    let read = aged(TimeField::Atime, Less, 1);
    let hot = Condition::Any(vec![Condition::All(vec![read, extension(&["avi"])]), size(Equal, 7)]);
    let rules = compile(vec![when("hot", vec![hot], to(&["flash"]))], &["disk"]);
    assert!(rules.depends_on_access_time(&file("/x.avi"), &[ROOMY; 4], None));
    assert!(!rules.depends_on_access_time(&file("/x"), &[ROOMY; 4], None));
}

#[test]
fn explain_shows_the_tree_and_which_part_holds() {
    let keep = Condition::Any(vec![
        Condition::All(vec![path(PathPart::Path, &["/downloads/**"]), aged(TimeField::Mtime, Less, 60)]),
        size(Greater, 500),
    ]);
    let rules = compile(vec![when("keep", vec![extension(&["iso"]), keep], to(&["flash"]))], &["disk"]);
    let explained = |facts: &FileFacts<'_>| rules.explain(facts, &[ROOMY; 4], None, &Empty).steps.remove(0);
    let step = explained(&file("/downloads/x.iso"));
    assert_eq!(
        (step.matched, step.reason.as_str()),
        (true, "extension is iso; path is /downloads/x.iso and size is 1000 B")
    );
    let shown: Vec<_> = step.parts.iter().map(|part| (part.depth, part.holds, part.text.as_str())).collect();
    assert_eq!(
        shown,
        [
            (0, Some(true), "extension is iso"),
            (0, Some(true), "any of"),
            (1, Some(false), "all of"),
            (2, Some(true), "path is /downloads/x.iso"),
            (2, Some(false), "age of mtime is 1d, the rule wants < 1m"),
            (1, Some(true), "size is 1000 B"),
        ]
    );
    let step = explained(&FileFacts { size: ByteSize(1), ..file("/x.iso") });
    assert_eq!((step.matched, step.reason.as_str()), (false, "none of its 2 alternatives holds"));
    let step = explained(&new_file("/downloads/x.iso"));
    assert_eq!(step.parts.last().map(|part| part.holds), Some(None), "the size is not known yet");
    let flat = compile(vec![when("flat", vec![extension(&["iso"])], to(&["flash"]))], &["disk"]);
    assert!(flat.explain(&file("/x"), &[ROOMY; 4], None, &Empty).steps[0].parts.is_empty());
}
