//! Messages to people: about mistakes that are easily made, and about what goes on.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Write;

use nix::sys::signal::Signal;

use crate::support::disk::{Disk, is_mount_point};
use crate::support::foreign::Mirror;
use crate::support::pool::{Pool, text};
use crate::support::process::signal;
use crate::support::{MIB, eventually, temp_dir};
use crate::{disks, names};

const B_BY_NAME: &str = "[[rule]]\nname = \"by name\"\nmatch = [{ glob = \"/**.b\", to = [\"b\", \"default\", \"any\"], offline = \"pass\" }]\n";

#[test]
fn a_pool_that_is_busy_when_it_is_to_end_ends_when_it_is_not() {
    let (_disks, builder) = disks(["a"]);
    let mut pool = builder.mount();
    let mut file = File::create(pool.join("file")).unwrap();
    signal(pool.pid(), Signal::SIGTERM);
    eventually("it says what it waits for", || pool.log().contains("trying again every second"));
    file.write_all(b"goes on").unwrap();
    drop(file);
    assert_eq!(pool.wait_for_end(), Some(true), "{}", pool.log());
    assert!(!is_mount_point(&pool.mount_point()));
    pool.start();
    assert_eq!(fs::read(pool.join("file")).unwrap(), b"goes on");
}

/// Kills the daemon; its mount stays.
fn kill(pool: &mut Pool) {
    signal(pool.pid(), Signal::SIGKILL);
    assert_eq!(pool.wait_for_end(), Some(false));
}

#[test]
fn the_mount_of_a_killed_daemon_is_taken_away_although_the_kernel_knows_its_attributes() {
    let (_disks, builder) = disks(["a"]);
    let mut pool = builder.mount();
    fs::metadata(pool.mount_point()).unwrap();
    kill(&mut pool);
    assert!(fs::metadata(pool.mount_point()).is_ok(), "the kernel answers for it");
    pool.start();
    fs::write(pool.join("file"), "x").unwrap();
    fs::metadata(pool.mount_point()).unwrap();
    kill(&mut pool);
    pool.say(["unmount".as_ref(), pool.mount_point().as_os_str()]);
    assert!(!is_mount_point(&pool.mount_point()));
}

#[test]
fn another_pool_of_the_kind_that_is_still_mounted_there_is_named() {
    let (mirror, disk) = (Mirror::new(), Disk::tmpfs(8 * MIB));
    let dir = temp_dir("told");
    let config = dir.path().join("pool.toml");
    let text_of = format!("mount = {:?}\n[[branch]]\nname = \"a\"\npath = {:?}\n", mirror.path(), disk.path());
    fs::write(&config, text_of).unwrap();
    let (_disks, builder) = disks(["z"]);
    let pool = builder.mount();
    for args in [vec![OsStr::new("check")], vec![OsStr::new("mount"), OsStr::new("--daemon")]] {
        let output = pool.umbrella(args.into_iter().chain([config.as_os_str()]));
        let said = text(&output);
        assert!(!output.status.success() && said.contains("fuse.mergerfs is mounted at"), "{said}");
        assert!(said.contains("unmount it first"), "{said}");
    }
    let said = text(&pool.umbrella(["check".as_ref(), config.as_os_str()]));
    assert!(said.ends_with("pool.toml: 1 error\n"), "{said}");
}

#[test]
fn a_disk_of_a_mounted_pool_is_refused_with_the_name_of_that_pool() {
    let (disks, builder) = disks(["a"]);
    let pool = builder.mount();
    let dir = temp_dir("told");
    let (config, mount) = (dir.path().join("pool.toml"), dir.path().join("mnt"));
    fs::create_dir(&mount).unwrap();
    let branch = disks[0].path();
    fs::write(&config, format!("mount = {mount:?}\n[[branch]]\nname = \"a\"\npath = {branch:?}\n")).unwrap();
    let status = text(&pool.umbrella(["status".as_ref(), config.as_os_str()]));
    assert!(status.contains("is not mounted: `umbrella mount "), "{status}");
    let output = pool.umbrella(["mount".as_ref(), "--daemon".as_ref(), config.as_os_str()]);
    let belongs = format!("belongs to the pool at {}: unmount that first", pool.mount_point().display());
    assert!(!output.status.success() && text(&output).contains(&belongs), "{}", text(&output));
}

#[test]
fn a_configuration_from_a_mounted_mergerfs_is_written_with_the_next_steps() {
    let (mirror, disk) = (Mirror::new(), Disk::tmpfs(8 * MIB));
    let dir = temp_dir("told");
    let config = dir.path().join("pool.toml");
    let (_disks, builder) = disks(["z"]);
    let pool = builder.prepare();
    let line = format!("{} {} fuse.mergerfs category.create=mfs 0 0", disk.path().display(), mirror.path().display());
    let args = ["from-mergerfs".as_ref(), "--output".as_ref(), config.as_os_str(), line.as_ref()];
    let said = pool.say(args);
    assert!(said.contains("next:\n  umount ") && said.contains("in place of the mergerfs line"), "{said}");
}

#[test]
fn a_directory_in_the_place_of_a_disk_is_told_or_refused() {
    let (_disks, builder) = disks(["a", "b"]);
    let pool = builder.rules(B_BY_NAME).mount();
    let bare = tempfile::Builder::new().prefix("umbrella-bare-").tempdir_in("/").unwrap();
    let (first, second) = (bare.path().join("first"), bare.path().join("second"));
    fs::create_dir(&first).unwrap();
    fs::create_dir(&second).unwrap();
    let add = ["branch".as_ref(), "add".as_ref(), "c".as_ref(), first.as_os_str()];
    let said = pool.umbrella(add);
    assert!(!said.status.success() && text(&said).contains("mount the disk first"), "{}", text(&said));
    pool.say(add.into_iter().chain(["--require-mount=false".as_ref()]));
    let replace = ["branch".as_ref(), "replace".as_ref(), "b".as_ref(), second.as_os_str()];
    let said = pool.umbrella(replace);
    assert!(!said.status.success() && text(&said).contains("mount the disk first"), "{}", text(&said));
    assert!(pool.is_online("b"));
    pool.say(replace.into_iter().chain(["--force".as_ref()]));
    fs::write(pool.join("file.b"), "x").unwrap();
    assert!(second.join("file.b").exists());
}

#[test]
fn another_disk_in_a_branch_s_place_is_told_before_the_mount() {
    let (disks, builder) = disks(["a", "b"]);
    let mut pool = builder.mount();
    pool.stop();
    let config = pool.config_path();
    let check = || pool.umbrella(["check".as_ref(), config.as_os_str()]);
    assert!(!text(&check()).contains("another file system"), "{}", text(&check()));
    fs::remove_dir_all(disks[1].join(".umbrella")).unwrap();
    let said = text(&check());
    assert!(said.contains("\"b\"") && said.contains("holds another file system than before"), "{said}");
    assert!(pool.try_start().is_err());
}

#[test]
fn a_drain_without_room_speaks_of_no_rule_that_forbids_anything() {
    let (a, b) = (Disk::tmpfs(8 * MIB), Disk::tmpfs(8 * MIB));
    let pool = Pool::builder().branch("a", a.path()).branch("b", b.path()).default(&["a", "b"]).mount();
    fs::write(pool.join("file"), "x").unwrap();
    pool.say(["branch", "drain", "b"]);
    assert!(pool.branch_status("b").draining && b.files().is_empty());
    let output = pool.umbrella(["branch", "drain", "a"]);
    assert!(!output.status.success(), "{}", text(&output));
    assert!(!text(&output).contains("a -> a"), "{}", text(&output));
    // It is judged at its close.
    fs::write(pool.join("file"), "changed").unwrap();
    let warnings = pool.status().warnings;
    assert!(!warnings.iter().any(|warning| warning.contains("does not name")), "{warnings:?}");
}

#[test]
fn a_name_that_is_in_use_on_the_right_branch_is_told_wherever_a_move_would_be() {
    let (disks, builder) = disks(["a", "b"]);
    let mut pool = builder.rules(B_BY_NAME).keys("cache_timeout = \"0s\"").mount();
    fs::write(pool.join("file.b"), "on b").unwrap();
    pool.stop();
    std::thread::sleep(std::time::Duration::from_millis(20));
    fs::write(disks[0].join("file.b"), "newer, on a").unwrap();
    pool.start();
    assert_eq!(fs::read(pool.join("file.b")).unwrap(), b"newer, on a");
    let why = "delete or rename one of the two";
    let outcome = pool.explain("file.b").outcome;
    assert!(outcome.contains(why), "{outcome}");
    for args in [&["enforce", "--dry-run"][..], &["enforce"]] {
        let output = pool.umbrella(args);
        let said = text(&output);
        assert_eq!(output.status.code(), Some(1), "{args:?}: {said}");
        assert!(said.contains(why) && said.contains("1 failed"), "{args:?}: {said}");
    }
}

#[test]
fn a_walk_under_way_is_in_the_status() {
    let (_disks, builder) = disks(["a", "b"]);
    let pool = builder.default(&["a", "any"]).keys("[enforce]\nbandwidth = \"100KB\"").mount();
    for i in 0..20 {
        fs::write(pool.join(format!("file-{i}")), vec![1; 100_000]).unwrap();
    }
    let mut drain = pool.command().args(["branch", "drain", "a"]).spawn().unwrap();
    eventually("the drain is in the status", || {
        pool.status().walks.iter().any(|walk| walk.branch.as_deref() == Some("a") && walk.progress.files_moved > 0)
    });
    let said = text(&pool.umbrella(["status"]));
    assert!(said.contains("walking: the drain of branch \"a\";"), "{said}");
    pool.say(["branch", "drain", "a", "--stop"]);
    drain.wait().unwrap();
    assert_eq!(pool.status().walks, []);
}

/// What was changed on a branch is seen at the latest after the next walk, whatever the kernel knew.
#[test]
fn what_was_changed_on_a_branch_is_seen_after_a_walk() {
    let (disks, builder) = disks(["a"]);
    let pool = builder.mount();
    fs::write(pool.join("gone"), "x").unwrap();
    assert!(!pool.join("new").exists() && pool.join("gone").exists());
    fs::write(disks[0].join("new"), "new").unwrap();
    fs::remove_file(disks[0].join("gone")).unwrap();
    pool.say(["enforce", "--dry-run"]);
    assert_eq!(fs::read(pool.join("new")).unwrap(), b"new");
    assert!(!pool.join("gone").exists());
    assert_eq!(names(&pool.mount_point()), ["new"]);
}

#[test]
fn a_hidden_folder_that_is_deleted_while_the_pool_is_mounted_is_told() {
    let (disks, builder) = disks(["a", "b"]);
    let pool = builder.keys("probe_interval = \"100ms\"").mount();
    fs::write(pool.join("file"), "x").unwrap();
    fs::remove_dir_all(disks[1].join(".umbrella")).unwrap();
    eventually("it is told", || {
        pool.status().warnings.iter().any(|it| it.contains("its folder .umbrella was deleted"))
    });
    assert_eq!(fs::read(pool.join("file")).unwrap(), b"x");
}

#[test]
fn a_drain_that_an_unmount_ends_says_so_and_is_kept() {
    let (_disks, builder) = disks(["a", "b"]);
    let mut pool = builder.default(&["a", "any"]).keys("[enforce]\nbandwidth = \"100KB\"").mount();
    for i in 0..20 {
        fs::write(pool.join(format!("file-{i}")), vec![1; 100_000]).unwrap();
    }
    let drain = pool.command().args(["branch", "drain", "a"]).stderr(std::process::Stdio::piped()).spawn().unwrap();
    eventually("the drain is under way", || pool.status().walks.iter().any(|walk| walk.progress.files_moved > 0));
    pool.stop();
    let output = drain.wait_with_output().unwrap();
    let said = crate::support::said(&output);
    assert!(!output.status.success() && said.contains("the pool is being unmounted"), "{said}");
    pool.start();
    assert!(pool.branch_status("a").draining);
}
