//! Copies that the pool makes onto a branch with ordered write-back keep to its limit, as writers do.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use super::devices::{Remembering, Slow};
use super::support::disk::Disk;
use super::support::pool::{Builder, Pool};
use super::support::{MIB, bytes, eventually};
use super::{dirty, flusher};

const LIMIT: &str = "write_back = \"cscan\"\nwrite_back_limit = \"4MiB\"";
const LARGE_MOVE: &str = "[[rule]]\nname = \"large\"\nwhen = { size = \">= 1MiB\" }\nto = [\"disk\"]\n";

/// A branch "first" whose write-back is left to the kernel, and a slow one, "disk", with a limit of 4 MiB. Mounted with
/// what `more` adds. The pool is to go out of scope before its disks: it is last.
fn two(first: u64, more: impl FnOnce(Builder) -> Builder) -> (Disk, Remembering, Pool) {
    let (first, disk) = (Disk::ext4(first), Remembering::over(Slow::new));
    let builder = Pool::builder().branch("first", first.path()).branch_with("disk", &disk.at, LIMIT);
    let pool = more(builder.default(&["first", "disk"])).mount();
    (first, disk, pool)
}

/// Does something, and gives what was dirty or on its way at most meanwhile.
fn most_dirty<T>(pool: &Pool, work: impl FnOnce() -> T) -> (u64, T) {
    let (done, most) = (AtomicBool::new(false), AtomicU64::new(0));
    let worked = thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                let status = flusher(pool);
                most.fetch_max(status.dirty.0 + status.in_flight.0, Ordering::Relaxed);
            }
        });
        let worked = work();
        done.store(true, Ordering::Relaxed);
        worked
    });
    (most.into_inner(), worked)
}

#[test]
fn a_file_that_is_moved_waits_for_room_and_is_clean_when_it_has_come() {
    let (_first, _disk, pool) = two(128 * MIB, |builder| builder.rules(LARGE_MOVE));
    let (most, ()) = most_dirty(&pool, || {
        fs::write(pool.join("file"), bytes(1, 48 * MIB)).unwrap();
        pool.expect_on("disk", "file");
        pool.settle();
    });
    assert!(most <= 6 * MIB, "{most} bytes were dirty");
    let status = flusher(&pool);
    assert!(status.waits > 0 && status.errors == 0 && status.flushed.0 >= 32 * MIB, "{status:?}");
    assert_eq!(status.dirty.0, 0, "it was synced: {status:?}");
    assert!(fs::read(pool.join("file")).unwrap() == bytes(1, 48 * MIB));
}

#[test]
fn the_enforcer_waits_for_room() {
    let (_first, _disk, mut pool) = two(128 * MIB, |builder| builder);
    for file in 0..8 {
        fs::write(pool.join(file.to_string()), bytes(file, 4 * MIB)).unwrap();
    }
    assert_eq!(flusher(&pool).waits, 0);
    pool.load_rules(LARGE_MOVE);
    let (most, summary) = most_dirty(&pool, || pool.enforce());
    assert_eq!(summary.files_moved, 8);
    assert!(most <= 6 * MIB, "{most} bytes were dirty");
    let status = flusher(&pool);
    assert!(status.waits > 0 && status.errors == 0 && status.dirty.0 == 0, "{status:?}");
}

#[test]
fn a_file_that_overflows_is_known_to_the_flusher_and_its_writer_waits() {
    let (_first, _disk, pool) = two(32 * MIB, |builder| builder);
    let file = File::options().read(true).write(true).create_new(true).open(pool.join("file")).unwrap();
    for at in 0..48 {
        file.write_all_at(&bytes(at, MIB), at * MIB).unwrap();
    }
    assert_eq!(pool.found_on("file"), ["disk"], "it outgrew its branch");
    let status = flusher(&pool);
    assert!(status.waits > 0 && status.errors == 0 && status.flushed.0 > 0, "{status:?}");
    file.sync_all().unwrap();
    assert_eq!(dirty(&pool), 0);
    for at in 0..48 {
        let mut found = vec![0; MIB as usize];
        file.read_exact_at(&mut found, at * MIB).unwrap();
        assert!(found == bytes(at, MIB), "MiB {at} differs");
    }
}

#[test]
fn staged_files_wait_for_room_one_after_another_when_all_leave() {
    let disk = Remembering::over(Slow::new);
    let staging = "[staging]\nmode = \"always\"\nmax_age = \"1h\"\nmax_file = \"4 MiB\"\nsize = \"256 MiB\"\n";
    let pool = Pool::builder().branch_with("disk", &disk.at, LIMIT).rules(staging).mount();
    for command in ["sync", "unmount"] {
        for file in 0..32 {
            fs::write(pool.join(format!("{command}{file}")), bytes(file, MIB)).unwrap();
        }
        let staged = pool.status().staging.unwrap().files;
        assert!(staged >= 24, "{staged} files wait");
        let before = flusher(&pool).waits;
        if command == "sync" {
            pool.say(["sync".as_ref(), pool.mount_point().as_os_str()]);
            eventually("nothing waits", || pool.status().staging.is_some_and(|staging| staging.files == 0));
            let status = flusher(&pool);
            assert!(status.waits > before && status.errors == 0, "{status:?}");
        } else {
            pool.say(["unmount".as_ref(), pool.mount_point().as_os_str()]);
        }
    }
    for (name, file) in ["sync", "unmount"].into_iter().flat_map(|command| (0..32).map(move |file| (command, file))) {
        let path = disk.at.join(format!("{name}{file}"));
        assert!(fs::read(&path).unwrap() == bytes(file, MIB), "{} differs", path.display());
    }
}
