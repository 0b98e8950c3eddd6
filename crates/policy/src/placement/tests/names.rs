//! The name table: the longest overall match, at its place in the order.

use super::*;

fn winner(patterns: &[&str], path: &str) -> String {
    let rules = compile(vec![table("t", patterns.iter().map(|&glob| (glob, to(&["flash"]))).collect())], &["disk"]);
    entry(&rules, &file(path), &[ROOMY; 4]).trim_start_matches("t: ").to_owned()
}

#[test]
fn the_longest_match_wins_wherever_it_is() {
    for patterns in
        [["/home/**", "/home/dave/**", "/home/dave/**.avi"], ["/home/dave/**.avi", "/home/dave/**", "/home/**"]]
    {
        assert_eq!(winner(&patterns, "/home/dave/x.avi"), "/home/dave/**.avi");
        assert_eq!(winner(&patterns, "/home/dave/x"), "/home/dave/**");
        assert_eq!(winner(&patterns, "/home/eve/x.avi"), "/home/**");
        assert_eq!(winner(&patterns, "/srv/x.avi"), "default");
    }
}

#[test]
fn the_whole_match_counts_and_not_only_the_prefix() {
    assert_eq!(winner(&["/home/**", "/**.database"], "/home/x.database"), "/**.database");
    assert_eq!(winner(&["/home/**", "*.avi"], "/home/x.avi"), "/home/**");
}

#[test]
fn on_a_tie_no_wildcards_win_then_the_longer_pattern_then_the_earlier() {
    assert_eq!(winner(&["/a*b*", "/ab"], "/ab"), "/ab");
    assert_eq!(winner(&["/a*", "/a[a-z]"], "/ab"), "/a[a-z]");
    assert_eq!(winner(&["/a*", "/?b"], "/ab"), "/a*");
    assert_eq!(winner(&["/?b", "/a*"], "/ab"), "/?b");
}

#[test]
fn the_table_is_evaluated_at_its_place_and_later_rules_follow_without_a_match() {
    let rules = compile(
        vec![
            when("first", vec![extension(&["one"])], to(&["flash"])),
            table("names", vec![("/t/**", to(&["crypt"]))]),
            when("last", vec![extension(&["one", "two"])], to(&["spare"])),
        ],
        &["disk"],
    );
    assert_eq!(entry(&rules, &file("/t/x.one"), &[ROOMY; 4]), "first");
    assert_eq!(entry(&rules, &file("/t/x.two"), &[ROOMY; 4]), "names: /t/**");
    assert_eq!(entry(&rules, &file("/u/x.two"), &[ROOMY; 4]), "last");
    assert_eq!(entry(&rules, &file("/u/x"), &[ROOMY; 4]), "default");
}

#[test]
fn a_pattern_that_passes_while_its_first_branch_is_offline_gives_way_to_the_next_longest() {
    let rules = compile(
        vec![table(
            "t",
            vec![
                ("/**", passing(&["disk"])),
                ("/home/**", passing(&["crypt"])),
                ("/home/dave/**", passing(&["flash"])),
            ],
        )],
        &["spare"],
    );
    assert_eq!(entry(&rules, &file("/home/dave/x"), &[ROOMY, OFFLINE, ROOMY, ROOMY]), "t: /home/**");
    assert_eq!(entry(&rules, &file("/home/dave/x"), &[ROOMY, OFFLINE, OFFLINE, ROOMY]), "t: /**");
    assert_eq!(entry(&rules, &file("/home/dave/x"), &[OFFLINE; 4]), "default");
}

#[test]
fn of_several_names_one_whose_list_ends_with_named_branches_decides_else_the_first() {
    let rules = compile(
        vec![table("names", vec![("/b/**", to(&["flash", "any"])), ("/secret/**", to(&["crypt"]))])],
        &["disk"],
    );
    let decides = |names: &[&'static str]| {
        rules.deciding_name(names.iter().map(|name| name.as_bytes()), &file("/x"), &[ROOMY; 4], None)
    };
    assert_eq!(decides(&["/b/1", "/a/2"]), Some("/a/2".as_bytes()));
    assert_eq!(decides(&["/b/1", "/secret/y", "/secret/x", "/a/2"]), Some("/secret/x".as_bytes()));
    assert_eq!(decides(&[]), None);
}

#[test]
fn entries_are_listed_in_order_with_the_default_last() {
    let rules = compile(
        vec![
            when("a", vec![], to(&["flash"])),
            table("t", vec![("/x", to(&["crypt", "disk"])), ("/longer", to(&["disk"]))]),
            when("b", vec![], to(&["spare"])),
        ],
        &["disk", "spare"],
    );
    let names = |info: &EntryInfo| info.to.iter().map(|slot| slot.name.clone()).collect::<Vec<_>>().join(", ");
    let listed: Vec<(&str, String)> = rules.entries().iter().map(|info| (info.name.as_str(), names(info))).collect();
    assert_eq!(
        listed,
        [
            ("a", "flash".to_owned()),
            ("t: /x", "crypt, disk".to_owned()),
            ("t: /longer", "disk".to_owned()),
            ("b", "spare".to_owned()),
            ("default", "disk, spare".to_owned()),
        ]
    );
}

#[test]
fn a_thousand_patterns_with_shared_ends_are_told_apart() {
    let patterns: Vec<String> = (0..1000)
        .map(|n| match n % 4 {
            0 => format!("/d/{n}/**"),
            1 => format!("/d/{n}**.t{n}"),
            2 => format!("*.x{n}"),
            _ => format!("/d/*/{n}?{{a,b}}"),
        })
        .collect();
    let patterns: Vec<&str> = patterns.iter().map(String::as_str).collect();
    assert_eq!(winner(&patterns, "/d/400/y"), "/d/400/**");
    assert_eq!(winner(&patterns, "/d/401y/z.t401"), "/d/401**.t401");
    assert_eq!(winner(&patterns, "/q/file.x402"), "*.x402");
    assert_eq!(winner(&patterns, "/d/9/403_b"), "/d/*/403?{a,b}");
    assert_eq!(winner(&patterns, "/d/9/403_c"), "default");
}
