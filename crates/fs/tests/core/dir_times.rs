//! Times of directories whose files move: what a user changes meanwhile stays.

use std::ffi::OsStr;
use std::sync::Arc;

use umbrella_fs::pool::{AttributeChange, NewTime, Pool, Replace};
use umbrella_fs::{Caller, NodeId};
use umbrella_units::Timestamp;

use crate::bench::{Bench, Ground, small_area};
use crate::races::put;

/// Long ago, and another time for each number.
fn old(number: i64) -> Timestamp {
    Timestamp { secs: 1_000_000_000 + number, nanos: 0 }
}

fn set(pool: &Pool, dir: NodeId, mtime: Timestamp) {
    let change = AttributeChange { mtime: Some(NewTime::At(mtime)), ..AttributeChange::default() };
    pool.setattr(dir, &change).unwrap();
}

fn mtime(pool: &Pool, dir: NodeId) -> Timestamp {
    pool.getattr(dir).unwrap().meta.mtime
}

/// Calls `change` with a number, again and again, while each of `files` in `dir` moves; and once at least.
fn while_files_move(pool: &Arc<Pool>, dir: NodeId, files: u32, mut change: impl FnMut(i64)) {
    for number in 0..files {
        put(pool, dir, &format!("file {number}"), &[1; 5000]);
    }
    let theirs = Arc::clone(pool);
    let moving = std::thread::spawn(move || {
        theirs.move_all_queued();
        theirs.sync_all().unwrap();
    });
    for number in 0.. {
        change(number);
        if moving.is_finished() {
            break;
        }
    }
    moving.join().unwrap();
}

/// A pool whose files move from branch to branch, and one whose files leave memory; each with a directory.
fn scenes() -> [(Bench, Arc<Pool>, NodeId); 2] {
    [Bench::new(Ground::Memory), Bench::staged(Ground::Memory, small_area())].map(|bench| {
        let pool = bench.assemble(0);
        let dir = pool.mkdir(NodeId::ROOT, OsStr::new("dir"), 0o755, Caller::ROOT).unwrap().node;
        (bench, pool, dir)
    })
}

const FILES: u32 = 300;

#[test]
fn a_time_that_is_set_while_files_move_stays() {
    for (_bench, pool, dir) in scenes() {
        let mut last = 0;
        while_files_move(&pool, dir, FILES, |number| {
            set(&pool, dir, old(number));
            last = number;
            for _ in 0..3 {
                let now = mtime(&pool, dir);
                // For a moment a file that moves is a change.
                assert!(now == old(number) || now > old(1 << 24), "{number}: an earlier time is back: {now:?}");
            }
        });
        assert_eq!(mtime(&pool, dir), old(last));
    }
}

#[test]
fn what_is_made_removed_and_renamed_while_files_move_is_seen_by_the_time() {
    for (_bench, pool, dir) in scenes() {
        let other = pool.mkdir(NodeId::ROOT, OsStr::new("other"), 0o755, Caller::ROOT).unwrap().node;
        let (name, new_name) = (OsStr::new("mine"), OsStr::new("renamed"));
        let expect_changed = |what: &str| {
            let now = mtime(&pool, dir);
            assert!(now > old(1 << 24), "hidden: {what} ({now:?})");
            set(&pool, dir, old(0));
        };
        while_files_move(&pool, dir, FILES, |_| {
            set(&pool, dir, old(0));
            put(&pool, dir, "mine", b"x");
            expect_changed("a file is created");
            pool.rename(dir, name, dir, new_name, Replace::No).unwrap();
            expect_changed("it is renamed");
            pool.rename(dir, new_name, other, name, Replace::Yes).unwrap();
            expect_changed("it goes to another directory");
            pool.rename(other, name, dir, name, Replace::No).unwrap();
            expect_changed("it comes back");
            pool.unlink(dir, name).unwrap();
            expect_changed("it is removed");
            pool.mkdir(dir, name, 0o755, Caller::ROOT).unwrap();
            expect_changed("a directory is made");
            pool.rmdir(dir, name).unwrap();
            expect_changed("it is removed as well");
        });
    }
}

#[test]
fn a_directory_is_as_old_as_before_when_its_files_have_moved() {
    for (_bench, pool, dir) in scenes() {
        for number in 0..10 {
            put(&pool, dir, &format!("file {number}"), &[1; 5000]);
        }
        let before = pool.getattr(dir).unwrap().meta;
        set(&pool, dir, old(1));
        pool.move_all_queued();
        pool.sync_all().unwrap();
        let now = pool.getattr(dir).unwrap().meta;
        assert_eq!((now.mtime, now.atime), (old(1), before.atime));
    }
}
