//! Branches whose own paths show an empty directory while the pool is mounted.

use std::fs;
use std::process::Command;
use std::thread;
use std::time::Duration;

use crate::On;
use crate::support::disk::{Disk, is_mount_point, unmount};
use crate::support::pool::{Pool, text};
use crate::support::{MIB, assert_errno, eventually, run};

/// A pool over two hidden branches. Branch `a` has a file, and is often checked for being alive.
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

/// Two hidden branches with a file of one name on both.
fn with_a_twin() -> On<2> {
    let disks = ["a", "b"].map(|_| Disk::tmpfs(32 * MIB));
    for disk in &disks {
        fs::write(disk.join("film"), "film").unwrap();
    }
    let pool = Pool::builder()
        .branch_with("a", disks[0].path(), "hide = true")
        .branch_with("b", disks[1].path(), "hide = true")
        .mount();
    On { pool, disks }
}

#[test]
fn a_start_that_fails_hides_nothing() {
    let mut pool = hidden();
    pool.pool.stop();
    let config = pool.config_path();
    let daemon = ["mount".as_ref(), config.as_os_str(), "--daemon".as_ref(), "--log".as_ref(), "/dev/null".as_ref()];
    for another in [false, true] {
        unmount(&pool.disks[1].path());
        let disk = another.then(|| run("mount", ["-t", "tmpfs", "other", pool.disks[1].path().to_str().unwrap()]));
        let failed = pool.umbrella(daemon);
        let why = if another { "holds another file system" } else { "is not mounted" };
        assert!(!failed.status.success() && text(&failed).contains(why), "{}", text(&failed));
        let failed = pool.pool.try_start().unwrap_err();
        assert!(failed.contains(why) && !failed.contains("killed"), "{failed}");
        assert!(names(&pool.disks[0]).contains(&"film".to_owned()), "{:?}", names(&pool.disks[0]));
        if disk.is_some() {
            run("umount", [pool.disks[1].path()]);
        }
        pool.disks[1].mount();
    }
}

#[test]
fn what_a_killed_daemon_left_hidden_is_told_with_the_command_that_helps() {
    let mut pool = hidden();
    pool.pool.kill_9();
    let (config, mount) = (pool.config_path(), pool.mount_point());
    let help = format!("umbrella unmount {}", mount.display());
    let told = |args: &[&std::ffi::OsStr]| text(&pool.umbrella(args));
    for args in [&["status".as_ref()][..], &["check".as_ref(), config.as_os_str()]] {
        let told = told(args);
        assert!(told.contains(pool.disks[0].path().to_str().unwrap()) && told.contains(&help), "{told}");
    }
    for args in [&["doctor".as_ref()][..], &["doctor".as_ref(), config.as_os_str()]] {
        let told = told(args);
        assert!(told.contains("still hidden") && told.contains(&help), "{told}");
        assert!(!told.contains("different owners"), "{told}");
    }
    // There is no daemon that could be meant by anything else.
    let unmounted = told(&["unmount".as_ref()]);
    assert!(unmounted.contains(pool.disks[0].path().to_str().unwrap()), "{unmounted}");
    assert!(names(&pool.disks[0]).contains(&"film".to_owned()), "{:?}", names(&pool.disks[0]));
}

#[test]
fn what_looks_through_the_disks_looks_below_the_covers() {
    let pool = with_a_twin();
    eventually("the first look is told", || pool.log().contains("first look at the branches: 1 file on several"));
    let config = pool.config_path();
    let found = text(&pool.umbrella(["check".as_ref(), "--import".as_ref(), config.as_os_str()]));
    assert!(found.contains("/film"), "{found}");
    let doctor = pool.umbrella(["doctor", "--json"]);
    let doctor: serde_json::Value = serde_json::from_slice(&doctor.stdout).unwrap();
    assert_eq!(doctor["survey"]["branches"][0]["files"], 1, "{doctor:#}");
    assert_eq!(names(&pool.disks[0]), [] as [String; 0], "others still see the cover");
}

#[test]
fn a_hidden_disk_is_taken_for_no_other() {
    let pool = hidden();
    let disk = pool.disks[0].path();
    let init = pool.umbrella(["init".as_ref(), disk.as_os_str()]);
    assert!(!init.status.success() && text(&init).contains("is hidden by the pool at"), "{}", text(&init));
    let mut other = Pool::builder().branch("x", &disk).prepare();
    let failed = other.try_start().unwrap_err();
    assert!(failed.contains("is hidden by the pool at"), "{failed}");
}

#[test]
fn a_drain_says_that_what_it_names_is_hidden() {
    let pool = with_a_twin();
    let said = text(&pool.umbrella(["branch", "drain", "b"]));
    let both = format!("{:?}, {:?}; the branches are hidden", pool.disks[1].join("film"), pool.disks[0].join("film"));
    assert!(said.contains(&both) && said.contains("1 name is on another branch too"), "{said}");
}
