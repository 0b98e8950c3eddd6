//! `umbrella balance`: members of a group are evened out, and what belongs together stays so.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use serde_json::Value;

use crate::On;
use crate::support::disk::Disk;
use crate::support::pool::{Pool, text};
use crate::support::{MIB, bytes};

/// Branches of 64 MiB each, of which the first has these files of 2 MiB, in a group with these keys.
fn filled<const N: usize>(names: [&str; N], files: &[&str], keys: &str) -> On<N> {
    let disks = names.map(|_| Disk::tmpfs(64 * MIB));
    for (seed, file) in files.iter().enumerate() {
        let path = disks[0].join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes(seed as u64, 2 * MIB)).unwrap();
    }
    let mut builder = Pool::builder().default(&["all"]);
    for (name, disk) in names.iter().zip(&disks) {
        builder = builder.branch(name, disk.path());
    }
    let group = format!("[[group]]\nname = \"all\"\nbranches = {names:?}\n{keys}\n");
    On { pool: builder.rules(&group).mount(), disks }
}

fn films(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("film{number:02}")).collect()
}

/// The lines of a balance: what moves, and the totals.
fn balance(pool: &Pool, args: &[&str]) -> (Vec<Value>, Value) {
    let mut lines = pool.json([&["balance", "all"], args].concat());
    let totals = lines.pop().unwrap();
    (lines, totals)
}

fn files_on(disk: &Disk) -> usize {
    disk.files().iter().filter(|file| !file.starts_with(Path::new(".umbrella"))).count()
}

#[test]
fn a_new_member_gets_its_share_and_every_file_keeps_its_data() {
    let names = films(24);
    let pool = filled(["a", "b"], &names.iter().map(String::as_str).collect::<Vec<_>>(), "");
    let (planned, _) = balance(&pool, &["--dry-run"]);
    assert_eq!((planned.len(), files_on(&pool.disks[1])), (planned.len(), 0), "a dry run moves nothing");
    let (moved, totals) = balance(&pool, &[]);
    assert_eq!(moved.len(), planned.len());
    // 48 of 128 MiB are used: 24 MiB each would be even, and 5 % of a branch are 3 MiB.
    assert!((11..=12).contains(&moved.len()), "{moved:?}");
    assert_eq!(totals["bytes_moved"], totals["bytes_planned"]);
    let shares: Vec<f64> = totals["members"].as_array().unwrap().iter().map(share).collect();
    assert!((shares[0] - shares[1]).abs() <= 0.05, "{shares:?}");
    for (seed, name) in names.iter().enumerate() {
        assert!(fs::read(pool.join(name)).unwrap() == bytes(seed as u64, 2 * MIB), "{name}");
    }
    let (again, _) = balance(&pool, &[]);
    assert_eq!((again.len(), pool.enforce().files_moved), (0, 0), "even, and no rule moves anything back");
}

fn share(member: &Value) -> f64 {
    member["used_after"].as_f64().unwrap() / member["size"].as_f64().unwrap()
}

#[test]
fn a_season_moves_as_a_whole_or_not_at_all() {
    let episodes: Vec<String> = (0..12).map(|e| format!("TV/Show/S{}/e{e}", e / 4)).collect();
    let names: Vec<&str> = episodes.iter().map(String::as_str).collect();
    let pool = filled(["a", "b"], &names, "together = \"/TV/*/*\"");
    // One is being written: its season stays.
    let open = File::options().append(true).open(pool.join("TV/Show/S0/e0")).unwrap();
    let (moved, _) = balance(&pool, &[]);
    assert_eq!(moved.len(), 4, "{moved:?}");
    drop(open);
    let on = |season: usize| -> Vec<String> {
        let mut on: Vec<String> =
            (0..4).flat_map(|e| pool.found_on(format!("TV/Show/S{season}/e{}", season * 4 + e))).collect();
        on.dedup();
        on
    };
    assert_eq!(on(0), ["a"], "in use");
    assert_eq!((on(1).len(), on(2).len()), (1, 1));
}

#[test]
fn a_file_with_several_names_counts_once_and_moves_with_all_of_them() {
    let names = films(10);
    let disks = ["a", "b"].map(|_| Disk::tmpfs(64 * MIB));
    for (seed, name) in names.iter().enumerate() {
        fs::write(disks[0].join(name), bytes(seed as u64, 2 * MIB)).unwrap();
        for copy in ["daily", "weekly"] {
            fs::create_dir_all(disks[0].join(copy)).unwrap();
            fs::hard_link(disks[0].join(name), disks[0].join(copy).join(name)).unwrap();
        }
    }
    let pool = Pool::builder()
        .default(&["all"])
        .branches([("a", disks[0].path()), ("b", disks[1].path())])
        .rules("[[group]]\nname = \"all\"\nbranches = \"*\"\n")
        .mount();
    let (moved, totals) = balance(&pool, &[]);
    assert!((4..=5).contains(&moved.len()), "{moved:?}");
    assert_eq!(totals["bytes_moved"].as_u64().unwrap(), moved.len() as u64 * 2 * MIB);
    for name in &names {
        let on = pool.found_on(name);
        assert_eq!((on.len(), fs::metadata(pool.join(name)).unwrap().nlink()), (1, 3), "{name}");
        assert_eq!((pool.found_on(format!("daily/{name}")), pool.found_on(format!("weekly/{name}"))), (on.clone(), on));
    }
}

#[test]
fn nothing_moves_to_a_branch_that_its_rule_does_not_name() {
    let mut names = films(12);
    names.extend((0..8).map(|number| format!("secret{number}.key")));
    let disks = ["a", "b", "c"].map(|_| Disk::tmpfs(64 * MIB));
    for (seed, name) in names.iter().enumerate() {
        fs::write(disks[0].join(name), bytes(seed as u64, 2 * MIB)).unwrap();
    }
    let rules = "[[rule]]\nname = \"keys\"\nwhen = { name = \"*.key\" }\nto = [\"safe\"]\n\
                 [[group]]\nname = \"safe\"\nbranches = [\"a\", \"c\"]\n\
                 [[group]]\nname = \"all\"\nbranches = \"*\"\n";
    let pool = Pool::builder()
        .default(&["all"])
        .branches([("a", disks[0].path()), ("b", disks[1].path())])
        .branch_with("c", disks[2].path(), "create = false")
        .rules(rules)
        .mount();
    let (moved, _) = balance(&pool, &[]);
    assert!(
        moved.iter().all(|event| event["to"] == "b" && !event["path"].as_str().unwrap().contains("secret")),
        "{moved:?}"
    );
    assert!(!moved.is_empty() && pool.enforce().files_moved == 0);
}

#[test]
fn a_group_that_cannot_be_balanced_is_told_why() {
    let pool = filled(["a", "b"], &[], "");
    let told = |args: &[&str]| text(&pool.umbrella(args));
    assert!(told(&["balance", "hdds"]).contains("no group is called \"hdds\"; there are: all"));
    assert!(told(&["balance", "a"]).contains("\"a\" is a branch; groups: all"));
    assert!(told(&["balance", "all", "--to", "5MiB"]).contains("give a share of the branch, for example 5%"));
    pool.say(["balance", "all", "--to", "5"]);
    pool.say(["branch", "drain", "b"]);
    assert!(told(&["balance", "all"]).contains("fewer than two of its members are online"));
}

#[test]
fn without_groups_there_is_nothing_to_balance() {
    let (_disks, builder) = crate::disks(["a", "b"]);
    let said = text(&builder.mount().umbrella(["balance", "a"]));
    assert!(said.contains("\"a\" is a branch; the pool has no groups"), "{said}");
}

#[test]
fn a_balance_that_stays_uneven_says_why_and_counts_as_status_does() {
    let episodes: Vec<String> = (0..6).map(|e| format!("TV/Show/e{e}")).collect();
    let names: Vec<&str> = episodes.iter().map(String::as_str).collect();
    let disks = ["a", "b"].map(|_| Disk::ext4(64 * MIB));
    for name in &names {
        let path = disks[0].join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes(1, 2 * MIB)).unwrap();
    }
    let group = "[[group]]\nname = \"all\"\nbranches = [\"a\", \"b\"]\ntogether = \"/TV/*\"\n";
    let builder = Pool::builder().default(&["all"]).branch("a", disks[0].path()).branch("b", disks[1].path());
    let pool = builder.rules(group).mount();
    let said = pool.say(["balance", "all"]);
    assert!(said.contains("% apart, not 5%: no move that is left would bring them closer"), "{said}");
    let size = pool.branch_status("a").total.to_string();
    assert!(said.lines().any(|line| line.starts_with("a ") && line.contains(&size)), "{size}: {said}");
}

#[test]
fn a_move_says_whether_a_rule_the_default_list_or_a_balance_made_it() {
    let names = films(12);
    let pool = filled(["a", "b"], &names.iter().map(String::as_str).collect::<Vec<_>>(), "");
    let balanced = pool.say(["balance", "all"]);
    assert!(balanced.contains("  (balance)\n") && !balanced.contains("(rule"), "{balanced}");
    let drained = pool.say(["branch", "drain", "b"]);
    assert!(drained.contains("  (default list)\n") && !drained.contains("(rule"), "{drained}");
}

#[test]
fn a_branch_that_is_added_with_balance_gets_its_share_at_once() {
    let names = films(12);
    let pool = filled(["a"], &names.iter().map(String::as_str).collect::<Vec<_>>(), "");
    let new = Disk::tmpfs(64 * MIB);
    let said = pool.say(["branch", "add", "b", new.path().to_str().unwrap(), "--group", "all", "--balance"]);
    assert!(said.contains("USED BEFORE") && files_on(&new) >= 5, "{said}");
}

#[test]
fn what_came_recently_is_not_balanced() {
    let disks = ["a", "b", "c"].map(|_| Disk::tmpfs(64 * MIB));
    let mut builder = Pool::builder().default(&["all"]);
    for (name, disk) in ["a", "b", "c"].iter().zip(&disks) {
        builder = builder.branch_with(name, disk.path(), "min_stay = \"1h\"");
    }
    let group = |rule: &str| {
        format!("[[group]]\nname = \"all\"\nbranches = [\"a\", \"b\"]\n[[rule]]\nwhen = {{}}\nto = {rule}\n")
    };
    let mut pool = builder.rules(&group("[\"c\", \"any\"]")).mount();
    for name in films(8) {
        fs::write(pool.join(name), bytes(1, 4 * MIB)).unwrap();
    }
    pool.settle_closed();
    pool.load_rules(&group("[\"a\", \"any\"]"));
    assert_eq!(pool.enforce().files_moved, 8);
    pool.load_rules(&group("[\"all\", \"any\"]"));
    let (moved, _) = balance(&pool, &[]);
    assert_eq!((moved.len(), files_on(&disks[0])), (0, 8), "they came a moment ago");
    for name in ["a", "b", "c"] {
        pool.write_branch(name, "");
    }
    pool.say(["rules", "reload"]);
    let (moved, _) = balance(&pool, &[]);
    assert!(moved.len() >= 3, "{moved:?}");
}
