//! Single races, each brought about on purpose: a copy is slowed down, and something happens meanwhile.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use umbrella_fs::control::protocol::EnforceSummary;
use umbrella_fs::pool::{Pool, Replace, WalkOptions};
use umbrella_fs::{Caller, NodeId, OpError};
use umbrella_units::ByteSize;

use crate::bench::{BRANCHES, Bench, CREATE, Ground, READ, WRITE};
use crate::world::pattern;

/// Big enough that copying it at [`SLOWLY`] takes seconds.
const LEN: u32 = 1 << 20;
const SLOWLY: ByteSize = ByteSize(256 << 10);

/// A big file `dir/file` on `fast` that belongs on `slow`.
struct Scene {
    bench: Bench,
    pool: Arc<Pool>,
    dir: NodeId,
    file: NodeId,
    data: Vec<u8>,
}

impl Scene {
    fn new() -> Scene {
        let bench = Bench::new(Ground::Memory);
        let pool = bench.assemble(0);
        let dir = pool.mkdir(NodeId::ROOT, OsStr::new("dir"), 0o755, Caller::ROOT).unwrap().node;
        let data = pattern(1, LEN);
        let file = put(&pool, dir, "file", &data);
        Scene { bench, pool, dir, file, data }
    }

    /// Starts the move; returns when the copy is under way.
    fn copying(&self) -> JoinHandle<EnforceSummary> {
        let pool = Arc::clone(&self.pool);
        let walk = WalkOptions { bandwidth: Some(SLOWLY), ..WalkOptions::default() };
        let moving = std::thread::spawn(move || pool.enforce(walk, &mut |_| true));
        let until = Instant::now() + Duration::from_secs(60);
        while std::fs::read_dir(self.bench.branch(1).join(".umbrella/tmp")).unwrap().next().is_none() {
            assert!(Instant::now() < until && !moving.is_finished(), "no copy began");
            std::thread::sleep(Duration::from_millis(1));
        }
        moving
    }

    /// Walks, and ends that while the copy is under way, as the end of its hours does.
    fn walk_that_ends_during_the_copy(&self) -> EnforceSummary {
        let walk = WalkOptions { bandwidth: Some(ByteSize(32 << 10)), ..WalkOptions::default() };
        let copying = || std::fs::read_dir(self.at(1, ".umbrella/tmp")).unwrap().next().is_some();
        self.pool.enforce(walk, &mut |_| !copying())
    }

    /// The branches that have a path.
    fn holders(&self, path: &str) -> Vec<&'static str> {
        (0..BRANCHES.len()).filter(|branch| self.at(*branch, path).exists()).map(|branch| BRANCHES[branch]).collect()
    }

    fn at(&self, branch: usize, path: &str) -> PathBuf {
        self.bench.branch(branch).join(path)
    }

    fn nothing_stays_behind(&self) {
        for branch in 0..BRANCHES.len() {
            for folder in [".umbrella/tmp", ".umbrella/intents"] {
                assert_eq!(std::fs::read_dir(self.at(branch, folder)).unwrap().count(), 0, "{folder} is not empty");
            }
        }
    }
}

#[test]
fn a_walk_that_ends_during_a_copy_drops_it_and_says_so() {
    let scene = Scene::new();
    let summary = scene.walk_that_ends_during_the_copy();
    assert!(summary.stopped, "{summary:?}");
    assert_eq!((summary.files_moved, summary.files_left, summary.files_failed), (0, 1, 0), "{summary:?}");
    assert_eq!(scene.holders("dir/file"), ["fast"]);
    scene.nothing_stays_behind();
    assert!(contents(&scene.pool, scene.file) == scene.data);
}

#[test]
fn how_long_a_walk_will_be_is_not_guessed_where_a_branch_shares_its_file_system() {
    let scene = Scene::new();
    let mut last = None;
    scene.pool.enforce(WalkOptions { dry_run: true, ..WalkOptions::default() }, &mut |now| {
        last = Some((now.inodes_total, now.inodes_seen));
        true
    });
    // The root is on three branches, `dir` and the file are on one.
    assert_eq!(last, Some((None, 5)));
}

/// Creates a file; one reference stays.
pub(crate) fn put(pool: &Pool, dir: NodeId, name: &str, data: &[u8]) -> NodeId {
    let (attr, opened) = pool.create(dir, OsStr::new(name), 0o644, Caller::ROOT, CREATE).unwrap();
    assert_eq!(pool.write(opened.handle, data, 0, false), Ok(data.len()));
    pool.release(opened.handle).unwrap();
    attr.node
}

pub(crate) fn contents(pool: &Pool, file: NodeId) -> Vec<u8> {
    let opened = pool.open(file, READ).unwrap();
    let mut buffer = vec![0; 2 * LEN as usize];
    let got = pool.read(opened.handle, &mut buffer, 0).unwrap();
    pool.release(opened.handle).unwrap();
    buffer.truncate(got);
    buffer
}

#[test]
fn a_writer_that_opens_during_a_copy_ends_it_and_the_file_moves_when_it_closes() {
    let scene = Scene::new();
    let moving = scene.copying();
    let opened = scene.pool.open(scene.file, WRITE).unwrap();
    assert_eq!(scene.pool.write(opened.handle, b"changed", 0, false), Ok(7));
    let summary = moving.join().unwrap();
    assert_eq!((summary.files_moved, summary.files_busy), (0, 1));
    assert_eq!(scene.holders("dir/file"), ["fast"]);
    scene.nothing_stays_behind();
    scene.pool.release(opened.handle).unwrap();
    scene.pool.move_all_queued();
    assert_eq!(scene.holders("dir/file"), ["slow"]);
    let mut expected = scene.data.clone();
    expected[..7].copy_from_slice(b"changed");
    assert_eq!(contents(&scene.pool, scene.file), expected);
    scene.nothing_stays_behind();
}

#[test]
fn a_file_unlinked_during_its_copy_is_gone_everywhere() {
    let scene = Scene::new();
    let moving = scene.copying();
    scene.pool.unlink(scene.dir, OsStr::new("file")).unwrap();
    assert_eq!(moving.join().unwrap().files_moved, 0);
    assert!(scene.holders("dir/file").is_empty());
    let found = scene.pool.lookup(scene.dir, OsStr::new("file"));
    assert_eq!(found.unwrap_err(), OpError::Sys(Errno::NOENT));
    scene.nothing_stays_behind();
}

#[test]
fn a_file_unlinked_during_its_copy_is_read_by_who_has_it_open() {
    let scene = Scene::new();
    let opened = scene.pool.open(scene.file, READ).unwrap();
    let moving = scene.copying();
    scene.pool.unlink(scene.dir, OsStr::new("file")).unwrap();
    moving.join().unwrap();
    let mut buffer = vec![0; LEN as usize];
    assert_eq!(scene.pool.read(opened.handle, &mut buffer, 0), Ok(LEN as usize));
    assert_eq!(buffer, scene.data);
    scene.pool.release(opened.handle).unwrap();
}

#[test]
fn a_directory_renamed_during_a_copy_takes_the_file_along() {
    let scene = Scene::new();
    let moving = scene.copying();
    scene.pool.rename(NodeId::ROOT, OsStr::new("dir"), NodeId::ROOT, OsStr::new("new"), Replace::Yes).unwrap();
    moving.join().unwrap();
    assert!(scene.holders("dir").is_empty(), "the old directory came back");
    assert_eq!(scene.holders("new/file").len(), 1);
    assert_eq!(contents(&scene.pool, scene.file), scene.data);
    scene.nothing_stays_behind();
}

#[test]
fn a_directory_removed_while_a_file_was_on_its_way_into_it_does_not_come_back() {
    let scene = Scene::new();
    let moving = scene.copying();
    assert_eq!(scene.pool.rmdir(NodeId::ROOT, OsStr::new("dir")), Err(OpError::Sys(Errno::NOTEMPTY)));
    scene.pool.rename(scene.dir, OsStr::new("file"), NodeId::ROOT, OsStr::new("file"), Replace::Yes).unwrap();
    scene.pool.rmdir(NodeId::ROOT, OsStr::new("dir")).unwrap();
    moving.join().unwrap();
    assert!(scene.holders("dir").is_empty(), "the directory came back");
    assert_eq!(scene.holders("file").len(), 1);
    assert_eq!(contents(&scene.pool, scene.file), scene.data);
    scene.nothing_stays_behind();
}

#[test]
fn a_file_that_two_writers_fill_its_branch_with_moves_once_and_keeps_what_both_wrote() {
    // New files go to the branch that is soon full.
    let bench = Bench::new(Ground::Memory);
    let pool = bench.assemble(3);
    let file = put(&pool, NodeId::ROOT, "file", b"");
    let half = 2 * LEN as usize;
    let writers: Vec<_> = (0..2)
        .map(|number| {
            let pool = Arc::clone(&pool);
            std::thread::spawn(move || {
                let opened = pool.open(file, WRITE).unwrap();
                let data = pattern(number, half as u32);
                for (at, chunk) in data.chunks(16 << 10).enumerate() {
                    let offset = number as usize * half + at * (16 << 10);
                    assert_eq!(pool.write(opened.handle, chunk, offset as u64, false), Ok(chunk.len()));
                }
                pool.release(opened.handle).unwrap();
            })
        })
        .collect();
    for writer in writers {
        writer.join().unwrap();
    }
    assert!(!bench.branch(2).join("file").exists(), "it is still on the full branch");
    let there = std::fs::read(bench.branch(0).join("file")).unwrap();
    assert!(there == [pattern(0, half as u32), pattern(1, half as u32)].concat(), "contents differ");
    assert_eq!(pool.status().metrics.get("umbrella_overflows_done_count"), Some(&1), "{:?}", pool.status().metrics);
}

#[test]
fn a_write_gets_the_room_of_a_removed_file_whose_release_is_late() {
    let bench = Bench::new(Ground::Memory);
    let pool = bench.assemble(0);
    for name in ["fast", "slow"] {
        pool.drain(name, &mut |_| true).unwrap();
    }
    let make = |name: &str| pool.create(NodeId::ROOT, OsStr::new(name), 0o640, Caller::ROOT, WRITE).unwrap().1.handle;
    let chunk = pattern(1, 16 << 10);
    for round in 0..20 {
        let (removed, next) = (make("removed"), make("next"));
        let mut chunks = 0;
        while pool.write(removed, &chunk, chunks * chunk.len() as u64, false).is_ok() {
            chunks += 1;
        }
        pool.unlink(NodeId::ROOT, OsStr::new("removed")).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| pool.release(removed).unwrap());
            assert_eq!(pool.write(next, &chunk, 0, false), Ok(chunk.len()), "round {round}");
        });
        pool.release(next).unwrap();
        pool.unlink(NodeId::ROOT, OsStr::new("next")).unwrap();
    }
}

#[test]
fn a_file_that_moves_to_and_fro_is_found_at_any_time() {
    let bench = Bench::new(Ground::Memory);
    let pool = bench.assemble(2);
    let dir = pool.mkdir(NodeId::ROOT, OsStr::new("dir"), 0o755, Caller::ROOT).unwrap().node;
    let data = pattern(1, 3000);
    let file = put(&pool, dir, "file", &data);
    let (stop, looks) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let lookers: Vec<_> = (0..2)
        .map(|number| {
            let (pool, stop, looks, data) = (Arc::clone(&pool), Arc::clone(&stop), Arc::clone(&looks), data.clone());
            std::thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let attr = pool.lookup(dir, OsStr::new("file")).expect("it is there");
                    assert_eq!((attr.node, attr.meta.size), (file, 3000));
                    if number == 0 {
                        let listing = pool.list(dir, 0, u64::MAX).expect("it can be listed");
                        assert_eq!(listing.after(0).iter().filter(|entry| entry.name == "file").count(), 1);
                    } else {
                        assert_eq!(contents(&pool, file), data);
                    }
                    pool.forget(attr.node, 1);
                    looks.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    let until = Instant::now() + Duration::from_secs(60);
    let (mut moves, moved) = (0, || pool.status().metrics["umbrella_relocations_done_count"]);
    let is_enough = || moved() >= 500 && looks.load(Ordering::Relaxed) >= 5000;
    while Instant::now() < until && !is_enough() && !lookers.iter().any(JoinHandle::is_finished) {
        // To the second branch as a user's, to the first as root's.
        let uid = [1000, 0][moves % 2];
        let change = umbrella_fs::pool::AttributeChange { uid: Some(uid), ..Default::default() };
        pool.setattr(file, &change).unwrap();
        pool.move_all_queued();
        moves += 1;
    }
    stop.store(true, Ordering::Relaxed);
    for looker in lookers {
        looker.join().unwrap();
    }
    let (moved, looks) = (moved(), looks.load(Ordering::Relaxed));
    assert!(moved > 20 && looks > 100, "{moved} moves of {moves}, {looks} looks");
}

#[test]
fn a_file_on_its_first_way_out_of_a_directory_is_listed_at_any_time() {
    let bench = Bench::new(Ground::Memory);
    let pool = bench.assemble(2);
    for number in 0..400 {
        let dir = pool.mkdir(NodeId::ROOT, OsStr::new(&format!("{number}")), 0o755, Caller::ROOT).unwrap().node;
        let file = put(&pool, dir, "file", b"there");
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let looker = scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let listing = pool.list(dir, 0, u64::MAX).expect("it can be listed");
                    assert_eq!(listing.after(0).len(), 1, "directory {number}");
                }
            });
            // The second branch has no copy of the directory before.
            let change = umbrella_fs::pool::AttributeChange { uid: Some(1000), ..Default::default() };
            pool.setattr(file, &change).unwrap();
            pool.move_all_queued();
            stop.store(true, Ordering::Relaxed);
            looker.join().unwrap();
        });
        assert!(bench.branch(1).join(format!("{number}/file")).exists(), "it has moved");
    }
}

#[test]
fn explain_says_what_a_file_in_the_wrong_place_waits_for() {
    let scene = Scene::new();
    let outcome = || scene.pool.explain(b"/dir/file").unwrap().outcome;
    assert!(outcome().starts_with("it is queued to move from fast to slow ("), "{}", outcome());
    let opened = scene.pool.open(scene.file, WRITE).unwrap();
    assert!(outcome().contains("when its last writer closes it"), "{}", outcome());
    scene.pool.release(opened.handle).unwrap();
    let moving = scene.copying();
    assert!(outcome().starts_with("it is moving from fast to slow now ("), "{}", outcome());
    moving.join().unwrap();
    assert!(outcome().starts_with("nothing: it is where it belongs"), "{}", outcome());
}
