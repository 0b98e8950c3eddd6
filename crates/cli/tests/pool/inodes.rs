//! Files that move where inodes run out: each goes to the next branch of its list that has one.

use std::fs;
use std::path::Path;

use crate::modes::inodes_used;
use crate::support::disk::Disk;
use crate::support::pool::{Pool, text};
use crate::support::{MIB, eventually};

/// Makes `count` files in a directory of a disk.
fn fill(disk: &Disk, count: usize) {
    fs::create_dir(disk.join("d")).unwrap();
    (0..count).for_each(|at| fs::write(disk.join(format!("d/f{at}")), "x").unwrap());
}

fn count(disk: &Disk) -> usize {
    fs::read_dir(disk.join("d")).map_or(0, Iterator::count)
}

fn roomy() -> Disk {
    Disk::tmpfs(32 * MIB)
}

#[test]
fn a_drain_goes_on_to_the_next_branch_when_max_files_is_reached() {
    let [few, old, next] = [roomy(), roomy(), roomy()];
    fill(&old, 12);
    let most = inodes_used(&few) + 16;
    let pool = Pool::builder()
        .default(&["few", "next"])
        .branch_with("few", few.path(), &format!("max_files = {most}"))
        .branches([("old", old.path()), ("next", next.path())])
        .mount();
    (0..most).take_while(|_| inodes_used(&few) + 6 < most).for_each(|at| {
        fs::write(pool.join(format!("before{at}")), "x").unwrap();
    });
    pool.say(["branch", "drain", "old"]);
    assert_eq!((count(&old), count(&few) + count(&next)), (0, 12));
    assert!(count(&few) > 0 && inodes_used(&few) <= most, "{} of {most}", inodes_used(&few));
}

#[test]
fn a_drain_goes_on_to_the_next_branch_when_a_disk_has_no_inode_left() {
    let [few, old, next] = [Disk::tmpfs_with_inodes(32 * MIB, 200), roomy(), roomy()];
    fill(&old, 600);
    let pool = Pool::builder()
        .default(&["few", "next"])
        .branches([("few", few.path()), ("old", old.path()), ("next", next.path())])
        .mount();
    pool.say(["branch", "drain", "old"]);
    assert_eq!((count(&old), count(&few) + count(&next)), (0, 600));
    assert!(count(&few) > 100, "{} on the first", count(&few));
}

#[test]
fn a_rule_on_inodes_moves_no_more_files_than_it_takes() {
    let [full, next, more] = [Disk::tmpfs_with_inodes(32 * MIB, 1000), Disk::tmpfs_with_inodes(32 * MIB, 120), roomy()];
    fill(&full, 700);
    let rule = "[[rule]]\nname = \"inodes\"\nwhen = { inodes = { full = \"> 50%\" }, hysteresis = \"20%\" }\nto = [\"next\", \"more\"]\n";
    let pool = Pool::builder()
        .default(&["full"])
        .branches([("full", full.path()), ("next", next.path()), ("more", more.path())])
        .rules(rule)
        .mount();
    let first = pool.enforce();
    assert_eq!((first.files_busy, first.files_failed), (0, 0), "{first:?}");
    let left = inodes_used(&full);
    assert!((480..=500).contains(&left), "{left} of 1000 are in use");
    assert!(count(&next) > 60 && count(&more) > 60, "{} and {}", count(&next), count(&more));
    let second = pool.enforce();
    assert_eq!((second.files_moved, second.files_busy, second.files_failed), (0, 0, 0), "{second:?}");
}

#[test]
fn a_fill_level_goes_on_to_the_next_branch_when_a_disk_has_no_inode_left() {
    let [old, few, next] = [roomy(), Disk::tmpfs_with_inodes(32 * MIB, 200), roomy()];
    fill(&old, 600);
    let _pool = Pool::builder()
        .default(&["old", "few", "next"])
        .branch_with("old", old.path(), "evict = { above = \"0%\", until = \"0%\" }")
        .branches([("few", few.path()), ("next", next.path())])
        .mount();
    eventually("all have left", || count(&old) == 0);
    assert_eq!(count(&few) + count(&next), 600);
    assert!(count(&few) > 100, "{} on the first", count(&few));
}

#[test]
fn a_balance_minds_max_files() {
    let [full, few] = [roomy(), roomy()];
    fill(&full, 400);
    let most = inodes_used(&few) + 50;
    let group = "[[group]]\nname = \"all\"\nbranches = [\"full\", \"few\"]\n";
    let pool = Pool::builder()
        .default(&["all"])
        .branch("full", full.path())
        .branch_with("few", few.path(), &format!("max_files = {most}"))
        .rules(group)
        .mount();
    let balanced = pool.umbrella(["balance", "all", "--to", "1%"]);
    assert!(count(&few) > 30, "{}", text(&balanced));
    assert!(inodes_used(&few) <= most, "{} of {most}: {}", inodes_used(&few), text(&balanced));
}

#[test]
fn files_that_are_made_fast_do_not_overrun_max_files() {
    let [few, many] = [roomy(), roomy()];
    let most = inodes_used(&few) + 40;
    let pool = Pool::builder()
        .default(&["few", "many"])
        .branch_with("few", few.path(), &format!("max_files = {most}"))
        .branch("many", many.path())
        .mount();
    fs::create_dir(pool.join("d")).unwrap();
    (0..100).for_each(|at| fs::write(pool.join(Path::new("d").join(at.to_string())), "x").unwrap());
    assert!(count(&few) > 10 && inodes_used(&few) <= most, "{} of {most}", inodes_used(&few));
    assert_eq!(count(&few) + count(&many), 100);
}
