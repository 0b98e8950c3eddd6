//! Disks that die with changes that are not on them yet, and come back without them.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use crate::support::disk::{Disk, Journal};
use crate::support::foreign::delay_of;
use crate::support::pool::Pool;
use crate::support::{MIB, errno, eventually};

const RULES: &str = "[[rule]]\nname = \"by name\"\nmatch = [{ glob = \"/**.b\", to = [\"b\", \"default\", \"any\"], offline = \"pass\" }]\n";

/// A pool of two disks; a directory on both, with a file on each, all of it durable.
fn two_disks(make: fn(u64) -> Disk, probe_interval: &str, keys: &str) -> (Disk, Disk, Pool) {
    let (a, b) = (make(32 * MIB), make(32 * MIB));
    let builder = Pool::builder().branch_with("a", a.path(), &format!("optional = true\n{keys}"));
    let builder = builder.branch_with("b", b.path(), "optional = true").default(&["a"]).rules(RULES);
    let pool = builder.keys(&format!("probe_interval = {probe_interval:?}")).mount();
    fs::create_dir(pool.join("dir")).unwrap();
    fs::write(pool.join("dir/one"), "one").unwrap();
    fs::write(pool.join("dir/two.b"), "two").unwrap();
    pool.settle_closed();
    pool.say(["sync"]);
    sync(&pool.join("dir")).unwrap();
    (a, b, pool)
}

fn sync(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// A file gets a name of the other disk. That one dies when the copy has the name, before the directory is synced.
fn stopped_halfway() -> (Disk, Disk, Pool) {
    let (a, b, pool) = two_disks(Disk::ext4, "200ms", "");
    let delayed = delay_of(pool.pid(), &b.join("dir"), "fsync", "2s");
    fs::rename(pool.join("dir/one"), pool.join("dir/one.b")).unwrap();
    eventually("the copy has its name", || b.join("dir/one.b").exists());
    b.die(Journal::Written);
    eventually("the move is given up", || pool.log().contains("stopped halfway"));
    drop(delayed);
    assert!(!pool.is_online("b"));
    (a, b, pool)
}

#[test]
fn a_file_that_is_removed_after_its_move_stopped_halfway_does_not_return_with_the_disk() {
    let (_a, b, pool) = stopped_halfway();
    fs::remove_file(pool.join("dir/one.b")).unwrap();
    sync(&pool.join("dir")).unwrap();
    b.revive();
    eventually("it is back", || pool.is_online("b"));
    assert!(!pool.join("dir/one.b").exists() && pool.found_on("dir/one.b").is_empty());
}

#[test]
fn a_file_that_is_renamed_after_its_move_stopped_halfway_is_there_once_after_a_restart() {
    let (_a, b, mut pool) = stopped_halfway();
    fs::rename(pool.join("dir/one.b"), pool.join("dir/other")).unwrap();
    sync(&pool.join("dir")).unwrap();
    pool.kill_9();
    b.revive();
    pool.start();
    assert!(pool.is_online("b"));
    assert_eq!(fs::read(pool.join("dir/other")).unwrap(), b"one");
    assert!(!pool.join("dir/one.b").exists());
}

#[test]
fn a_file_whose_move_stopped_halfway_is_whole_after_a_restart() {
    let (_a, b, mut pool) = stopped_halfway();
    fs::write(pool.join("dir/one.b"), "changed").unwrap();
    pool.kill_9();
    b.revive();
    pool.start();
    assert!(pool.is_online("b"));
    pool.settle();
    assert_eq!(fs::read(pool.join("dir/one.b")).unwrap(), b"changed");
    assert_eq!(pool.found_on("dir/one.b"), ["b"]);
}

/// xfs has nothing left to sync in a directory that was opened before.
#[test]
fn an_fsync_of_a_directory_fails_where_its_xfs_dies_meanwhile() {
    let (a, _b, pool) = two_disks(Disk::xfs, "1h", "");
    fs::remove_file(pool.join("dir/one")).unwrap();
    let dir = File::open(pool.join("dir")).unwrap();
    let _delayed = delay_of(pool.pid(), &a.join("dir"), "fsync", "2s");
    let synced = std::thread::spawn(move || dir.sync_all());
    std::thread::sleep(Duration::from_millis(700));
    a.die(Journal::Lost);
    assert_eq!(errno(&synced.join().unwrap()), libc::EIO);
}

#[test]
fn every_fsync_of_a_directory_fails_while_a_disk_is_away_that_may_have_lost_a_removal() {
    let (a, _b, pool) = two_disks(Disk::ext4, "200ms", "");
    fs::remove_file(pool.join("dir/one")).unwrap();
    a.die(Journal::Lost);
    let fails = || assert_eq!(errno(&sync(&pool.join("dir"))), libc::EIO);
    fails();
    eventually("it is away", || !pool.is_online("a"));
    for _ in 0..3 {
        // The kernel keeps no name of it.
        fs::write("/proc/sys/vm/drop_caches", "2").unwrap();
        fails();
    }
    a.revive();
    eventually("it is back", || pool.is_online("a"));
    // The removal is lost, unless another program's sync came before the disk died.
    assert_eq!(pool.join("dir/one").exists(), a.join("dir/one").exists());
    fails();
    sync(&pool.join("dir")).unwrap();
}

#[test]
fn a_file_shows_what_its_disk_has_after_its_return_although_somebody_has_it_open_from_before() {
    let (a, _b, pool) = two_disks(Disk::ext4, "200ms", "passthrough = false");
    let file = pool.join("dir/one");
    let held = File::open(&file).unwrap();
    File::options().write(true).open(&file).unwrap().write_all_at(b"new", 0).unwrap();
    assert_eq!(fs::read(&file).unwrap(), b"new");
    a.die(Journal::Lost);
    sync(&pool.join("dir")).unwrap_err();
    eventually("it is away", || !pool.is_online("a"));
    a.revive();
    eventually("it is back", || pool.is_online("a"));
    // The old contents, unless another program's sync came before the disk died.
    assert_eq!(fs::read(&file).unwrap(), fs::read(a.join("dir/one")).unwrap());
    drop(held);
}
