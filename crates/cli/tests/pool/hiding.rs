//! Branches whose own paths show an empty directory while the pool is mounted.

use std::fs;
use std::process::Command;
use std::thread;
use std::time::Duration;

use crate::On;
use crate::support::disk::{Disk, is_mount_point};
use crate::support::pool::{Pool, text};
use crate::support::{MIB, assert_errno, eventually, run};

/// A pool over two hidden branches, of which `a` has a file and is asked often whether it lives.
fn hidden() -> On<2> {
    let disks = ["a", "b"].map(|_| Disk::tmpfs(32 * MIB));
    fs::write(disks[0].join("film"), "the only copy").unwrap();
    let pool = Pool::builder()
        .default(&["a"])
        .keys("probe_interval = \"100ms\"")
        .branch_with("a", disks[0].path(), "hide = true")
        .branch_with("b", disks[1].path(), "hide = true")
        .mount();
    On { pool, disks }
}

fn names(disk: &Disk) -> Vec<String> {
    fs::read_dir(disk.path()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn a_hidden_branch_shows_an_empty_read_only_directory_until_the_pool_is_unmounted() {
    let mut pool = hidden();
    assert_eq!(names(&pool.disks[0]), [] as [String; 0]);
    assert_errno(fs::write(pool.disks[0].join("x"), "x"), libc::EROFS);
    let moved = Command::new("mv").arg("-f").arg(pool.join("film")).arg(pool.disks[0].join("film")).output().unwrap();
    assert!(!moved.status.success(), "{}", text(&moved));
    assert_eq!(fs::read_to_string(pool.join("film")).unwrap(), "the only copy");
    fs::write(pool.join("new"), "x").unwrap();
    // Some probes later.
    thread::sleep(Duration::from_millis(500));
    assert!(pool.is_online("a") && pool.is_online("b"));
    let status = text(&pool.umbrella(["status"]));
    assert!(status.contains("online, hidden"), "{status}");
    let checked = pool.umbrella(["check".as_ref(), pool.config_path().as_os_str()]);
    assert!(checked.status.success() && !text(&checked).contains("warning:"), "{}", text(&checked));
    pool.pool.stop();
    let mut there = names(&pool.disks[0]);
    there.sort();
    assert_eq!(there, [".umbrella", "film", "new"]);
}

#[test]
fn what_a_killed_daemon_leaves_goes_with_the_next_mount_or_with_unmount() {
    let mut pool = hidden();
    pool.pool.kill_9();
    assert_eq!(names(&pool.disks[0]), [] as [String; 0], "it stays");
    pool.pool.start();
    assert_eq!(fs::read_to_string(pool.join("film")).unwrap(), "the only copy");
    assert!(pool.is_online("a") && pool.branch_status("a").covered);
    pool.pool.kill_9();
    let said = pool.umbrella(["unmount".as_ref(), pool.mount_point().as_os_str()]);
    assert!(said.status.success(), "{}", text(&said));
    assert!(names(&pool.disks[0]).contains(&"film".to_owned()), "{:?}", names(&pool.disks[0]));
    pool.pool.start();
}

#[test]
fn a_hidden_branch_that_leaves_the_pool_shows_its_files() {
    let mut pool = hidden();
    pool.say(["branch", "remove", "b"]);
    assert!(names(&pool.disks[1]).contains(&".umbrella".to_owned()));
    pool.say(["branch", "add", "b", pool.disks[1].path().to_str().unwrap(), "--hide"]);
    assert_eq!(names(&pool.disks[1]), [] as [String; 0]);
    // An administrator may look: the pool goes on.
    run("umount", [pool.disks[1].path()]);
    assert!(is_mount_point(&pool.disks[1].path()) && names(&pool.disks[1]).contains(&".umbrella".to_owned()));
    thread::sleep(Duration::from_millis(300));
    assert!(pool.is_online("b"));
    pool.pool.stop();
    eventually("both disks are free", || names(&pool.disks[0]).contains(&"film".to_owned()));
}
