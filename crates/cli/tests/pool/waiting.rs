//! New files that wait in memory for their size, without any configuration.

use std::fs::{self, File, OpenOptions};
use std::io::Write;

use crate::support::disk::Disk;
use crate::support::pool::Pool;
use crate::support::{MIB, eventually};
use crate::{On, disks};

/// The rule of the README: small files go to the flash.
const SMALL: &str = "[[rule]]\nwhen = { size = \"< 64KiB\" }\nto = [\"flash\", \"any\"]\n";

fn pool(rules: &str) -> On<2> {
    let (disks, builder) = disks(["disk", "flash"]);
    On { pool: builder.rules(rules).stages_by_default().mount(), disks }
}

fn waiting(pool: &Pool) -> u64 {
    pool.status().staging.map_or(0, |staging| staging.files)
}

/// Regular files below a directory of a branch.
fn count(pool: &Pool, branch: &str, dir: &str) -> usize {
    fs::read_dir(pool.on(branch, dir)).map_or(0, Iterator::count)
}

#[test]
fn thousands_of_small_files_and_some_large_ones_lie_in_the_right_place_at_unmount() {
    let mut pool = pool(SMALL);
    fs::create_dir(pool.join("dir")).unwrap();
    for number in 0..3000 {
        let size = if number % 100 == 7 { 100 << 10 } else { 1 << 10 };
        fs::write(pool.join(format!("dir/{number}")), vec![b'x'; size]).unwrap();
    }
    pool.settle_closed();
    let moves = pool.moves();
    pool.pool.stop();
    assert_eq!((count(&pool, "flash", "dir"), count(&pool, "disk", "dir")), (2970, 30));
    assert_eq!(moves, 0, "none lay in the wrong place before");
}

#[test]
fn a_file_leaves_under_its_writer_when_no_rule_asks_for_more_of_its_size() {
    let pool = pool(SMALL);
    let mut file = File::create(pool.join("film")).unwrap();
    file.write_all(&[1; 60 << 10]).unwrap();
    assert_eq!((pool.found_on("film").len(), waiting(&pool)), (0, 1), "its size is not known");
    file.write_all(&[2; 60 << 10]).unwrap();
    assert_eq!((pool.found_on("film"), waiting(&pool)), (vec!["disk".to_owned()], 0));
    drop(file);
    pool.expect_stays_on("disk", "film");
    assert_eq!(fs::read(pool.join("film")).unwrap(), [[1; 60 << 10], [2; 60 << 10]].concat());
}

#[test]
fn a_file_leaves_for_the_place_of_the_size_that_a_program_announces() {
    let pool = pool(SMALL);
    let cut = File::create(pool.join("cut")).unwrap();
    cut.set_len(MIB).unwrap();
    assert_eq!(pool.found_on("cut"), ["disk"]);
    let reserved = File::create(pool.join("reserved")).unwrap();
    rustix::fs::fallocate(&reserved, rustix::fs::FallocateFlags::KEEP_SIZE, 0, MIB).unwrap();
    assert_eq!(pool.found_on("reserved"), ["disk"]);
}

#[test]
fn where_nothing_waits_a_file_is_placed_by_the_room_that_is_reserved_for_it() {
    let disks = [Disk::tmpfs(32 * MIB), Disk::tmpfs(32 * MIB)];
    let mut builder = Pool::builder().default(&["flash"]);
    for (name, disk) in ["flash", "disk"].iter().zip(&disks) {
        builder = builder.branch_with(name, disk.path(), "passthrough = false");
    }
    let large = "[[rule]]\nwhen = { size = \">= 64KiB\" }\nto = [\"disk\", \"any\"]\n";
    let pool = builder.rules(large).keys("[staging]\nmode = \"never\"").mount();
    let file = File::create(pool.join("film")).unwrap();
    assert_eq!(pool.found_on("film"), ["flash"], "nothing is known of its size");
    rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::KEEP_SIZE, 0, MIB).unwrap();
    assert_eq!(pool.found_on("film"), ["disk"]);
}

#[test]
fn a_file_that_is_synced_is_in_its_place_when_the_sync_returns() {
    let mut pool = pool(SMALL);
    let mut file = File::create(pool.join("mail")).unwrap();
    file.write_all(b"mail").unwrap();
    file.sync_all().unwrap();
    assert_eq!(pool.found_on("mail"), ["flash"]);
    pool.pool.kill_9();
    assert_eq!(fs::read(pool.on("flash", "mail")).unwrap(), b"mail");
}

#[test]
fn a_file_that_waited_when_the_daemon_was_killed_is_in_its_place_after_the_next_mount() {
    let mut pool = pool(SMALL);
    let mut file = File::create(pool.join("letter")).unwrap();
    file.write_all(b"letter").unwrap();
    assert_eq!(waiting(&pool), 1);
    pool.pool.kill_9();
    drop(file);
    pool.pool.start();
    assert_eq!(fs::read(pool.join("letter")).unwrap(), b"letter");
    eventually("it leaves", || pool.found_on("letter") == ["flash"]);
}

#[test]
fn a_pool_whose_rules_ask_for_neither_size_nor_access_has_no_staging_area() {
    let pool = pool("[[rule]]\nwhen = { name = \"*.avi\" }\nto = [\"flash\", \"any\"]\n");
    fs::write(pool.join("letter"), "x").unwrap();
    assert_eq!(pool.found_on("letter"), ["disk"]);
    assert!(pool.status().staging.is_none());
    let key = pool.dir().to_string_lossy().into_owned();
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!mounts.lines().any(|line| line.contains(&key) && line.contains("umbrella-staging")), "{mounts}");
}

#[test]
fn what_an_earlier_rule_decides_does_not_wait_for_its_size() {
    let secret = "[[rule]]\nwhen = { path = \"/secret/**\" }\nto = [\"disk\"]\n";
    let pool = pool(&(secret.to_owned() + SMALL));
    fs::create_dir(pool.join("secret")).unwrap();
    let _key = File::create(pool.join("secret/key")).unwrap();
    assert_eq!((pool.found_on("secret/key"), waiting(&pool)), (vec!["disk".to_owned()], 0));
}

#[test]
fn a_secret_that_a_rule_keeps_out_of_memory_never_waits() {
    let never = "[[rule]]\nwhen = { path = \"/secret/**\" }\nstaging = \"never\"\n";
    let pool = pool(&(never.to_owned() + SMALL));
    fs::create_dir(pool.join("secret")).unwrap();
    let key = File::create(pool.join("secret/key")).unwrap();
    assert_eq!((pool.found_on("secret/key"), waiting(&pool)), (vec!["disk".to_owned()], 0));
    drop(key);
    pool.expect_on("flash", "secret/key");
    assert_eq!(pool.metric("umbrella_staging_created_count"), 0);
}

#[test]
fn a_complete_list_has_its_files_wait_and_keeps_room_for_them() {
    let (large, small) = (Disk::tmpfs(64 * MIB), Disk::tmpfs(8 * MIB));
    let rules = "[[rule]]\nwhen = { path = \"/db/**\", size = \"< 64KiB\" }\nto = [\"small\"]\n\
                 [[rule]]\nwhen = { path = \"/db/**\" }\nto = [\"small\"]\n";
    let builder = Pool::builder().branch("small", small.path()).branch("large", large.path()).default(&["large"]);
    let pool = builder.rules(rules).stages_by_default().mount();
    fs::create_dir(pool.join("db")).unwrap();
    let file = File::create(pool.join("db/row")).unwrap();
    (&file).write_all(&[7; 40 << 10]).unwrap();
    assert_eq!(waiting(&pool), 1);
    // Somebody fills the only branch that it may be on: it takes its room first.
    let mut filler = OpenOptions::new().create(true).append(true).open(pool.join("db/filler")).unwrap();
    while filler.write_all(&[0; 64 << 10]).is_ok() {}
    assert_eq!(pool.found_on("db/row"), ["small"]);
    assert_eq!(fs::read(pool.join("db/row")).unwrap(), [7; 40 << 10]);
    drop(file);
}
