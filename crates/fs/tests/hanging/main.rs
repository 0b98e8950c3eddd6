//! Staged files and a branch that hangs: a file system that is frozen. Nothing but what goes there may wait for it.
//!
//! A test binary of its own, for it starts processes: see `kills`. Needs root.
#![expect(dead_code, reason = "`core` uses the rest")]

#[path = "../core/bench.rs"]
mod bench;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use umbrella_fs::pool::{Pool, Replace};
use umbrella_fs::spec::StagingSpec;
use umbrella_fs::{Caller, NodeId};
use umbrella_units::{Amount, ByteSize};

use bench::{Bench, Ground, WRITE, place_name, small_area};
use parking_lot::{Mutex, MutexGuard};

/// One test at a time: a process that another starts has its files open until it runs a program.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock()
}

fn pattern(seed: u8, length: usize) -> Vec<u8> {
    (0..length).map(|at| (at as u8).wrapping_mul(31).wrapping_add(seed)).collect()
}

fn put(pool: &Pool, dir: NodeId, name: &str, data: &[u8]) -> NodeId {
    let (attr, opened) = pool.create(dir, OsStr::new(name), 0o644, Caller::ROOT, WRITE).unwrap();
    assert_eq!(pool.write(opened.handle, data, 0, false), Ok(data.len()));
    pool.release(opened.handle).unwrap();
    attr.node
}

/// How long is waited for what does not depend on the branch that hangs.
const TIMEOUT: Duration = Duration::from_secs(150);

fn run(program: &str, args: &[&OsStr]) {
    let done = Command::new(program).args(args).output().unwrap();
    assert!(done.status.success(), "{program}: {}", String::from_utf8_lossy(&done.stderr));
}

/// A file system on which every change waits, until this is dropped.
struct Frozen(PathBuf);

impl Frozen {
    fn new(path: &Path) -> Frozen {
        run("fsfreeze", &["-f".as_ref(), path.as_os_str()]);
        Frozen(path.to_owned())
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        run("fsfreeze", &["-u".as_ref(), self.0.as_os_str()]);
    }
}

/// Waits until a thread of this process waits for something: it sleeps whenever it is looked at.
fn wait_until_it_waits(thread: rustix::thread::Pid) {
    let path = format!("/proc/self/task/{}/status", thread.as_raw_nonzero());
    let (begun, mut sleeps) = (Instant::now(), 0);
    while sleeps < 20 {
        assert!(begun.elapsed() < TIMEOUT, "it does not wait for anything");
        std::thread::sleep(Duration::from_millis(5));
        let status = std::fs::read_to_string(&path).expect("it does not end");
        let asleep = ["State:\tS", "State:\tD"].iter().any(|state| status.contains(state));
        sleeps = if asleep { sleeps + 1 } else { 0 };
    }
}

/// A pool whose branch `slow` is a file system of its own.
struct Scene {
    pool: Arc<Pool>,
    bench: Bench,
    _alone: MutexGuard<'static, ()>,
}

impl Scene {
    fn new(rules: usize, staging: StagingSpec) -> Scene {
        let alone = alone();
        let mut bench = Bench::staged(Ground::Memory, staging);
        let (image, slow) = (bench.root().join("image"), bench.branch(1));
        std::fs::File::create(&image).unwrap().set_len(32 << 20).unwrap();
        run("mkfs.ext4", &["-q".as_ref(), "-F".as_ref(), image.as_os_str()]);
        run("mount", &["-o".as_ref(), "loop".as_ref(), image.as_os_str(), slow.as_os_str()]);
        bench.mounts.push(slow);
        let pool = bench.assemble(rules);
        Scene { pool, bench, _alone: alone }
    }

    /// Files that leave as soon as they are looked at.
    fn of_impatient(rules: usize) -> Scene {
        Scene::new(rules, StagingSpec { max_age: Some(Duration::from_millis(1)), ..small_area() })
    }

    fn frozen(&self) -> Frozen {
        Frozen::new(&self.bench.branch(1))
    }

    fn holders(&self, path: &str) -> Vec<&'static str> {
        let places = self.bench.places();
        let held = places.iter().enumerate().filter(|(_, place)| place.join(path).symlink_metadata().is_ok());
        held.map(|(place, _)| place_name(place)).collect()
    }

    fn is_on(&self, path: &str, place: &str) -> bool {
        self.holders(path) == [place]
    }

    /// Waits for something; whether it came.
    fn eventually(&self, what: impl Fn(&Scene) -> bool) -> bool {
        let begun = Instant::now();
        while begun.elapsed() < TIMEOUT {
            if what(self) {
                return true;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        false
    }

    /// Runs `busy` on a thread of its own while `slow` is frozen, and `look` here. The branch answers again before
    /// anything is waited for.
    fn while_it_hangs<T>(&self, busy: impl FnOnce() + Send, look: impl FnOnce() -> T) -> T {
        std::thread::scope(|scope| {
            let frozen = self.frozen();
            scope.spawn(busy);
            let seen = look();
            drop(frozen);
            seen
        })
    }
}

const STAGED: &str = "(staging)";

#[test]
fn a_branch_that_hangs_holds_up_only_what_goes_to_it() {
    let scene = Scene::of_impatient(0);
    let dir = scene.pool.mkdir(NodeId::ROOT, OsStr::new("dir"), 0o755, Caller::ROOT).unwrap().node;
    for above in [NodeId::ROOT, dir] {
        put(&scene.pool, above, "a-big", &pattern(1, 8192));
        put(&scene.pool, above, "b-small", b"small");
    }
    std::thread::sleep(Duration::from_millis(20));
    let seen = scene.while_it_hangs(
        || scene.pool.destage_due(),
        || {
            let left = scene.eventually(|scene| scene.is_on("b-small", "fast") && scene.is_on("dir/b-small", "fast"));
            (left, scene.holders("a-big"), scene.holders("dir/a-big"))
        },
    );
    assert_eq!(seen, (true, vec![STAGED], vec![STAGED]));
    assert!(scene.eventually(|scene| scene.is_on("a-big", "slow") && scene.is_on("dir/a-big", "slow")), "it answers");
    assert_eq!(scene.pool.status().staging.unwrap().files, 0);
}

#[test]
fn files_that_come_while_a_branch_hangs_leave_for_the_others() {
    let scene = Scene::of_impatient(0);
    put(&scene.pool, NodeId::ROOT, "a-big", &pattern(1, 8192));
    std::thread::sleep(Duration::from_millis(20));
    let left = scene.while_it_hangs(
        || {
            scene.pool.destage_due();
            for number in 0..10 {
                put(&scene.pool, NodeId::ROOT, &format!("later-{number}"), b"small");
            }
            std::thread::sleep(Duration::from_millis(20));
            scene.pool.destage_due();
        },
        || scene.eventually(|scene| (0..10).all(|number| scene.is_on(&format!("later-{number}"), "fast"))),
    );
    assert!(left);
}

#[test]
fn a_directory_that_a_branch_that_hangs_has_too_leaves_memory_and_the_tree_can_be_used() {
    let scene = Scene::of_impatient(0);
    let dir = scene.pool.mkdir(NodeId::ROOT, OsStr::new("dir"), 0o755, Caller::ROOT).unwrap().node;
    put(&scene.pool, dir, "a-big", &pattern(1, 8192));
    put(&scene.pool, dir, "b-small", b"small");
    std::thread::sleep(Duration::from_millis(20));
    scene.pool.destage_due();
    scene.pool.destage_due();
    assert_eq!(scene.holders("dir"), ["fast", "slow"]);
    put(&scene.pool, dir, "c-small", b"small");
    std::thread::sleep(Duration::from_millis(20));
    let seen = scene.while_it_hangs(
        || {
            scene.pool.destage_due();
            scene.pool.destage_due();
            scene.pool.mkdir(NodeId::ROOT, OsStr::new("made"), 0o755, Caller::ROOT).unwrap();
        },
        || scene.eventually(|scene| scene.holders("dir") == ["fast", "slow"] && !scene.holders("made").is_empty()),
    );
    assert!(seen);
}

#[test]
fn memory_is_made_free_by_files_of_branches_that_answer() {
    let size = Some(Amount::Bytes(ByteSize(288 << 10)));
    let scene = Scene::new(0, StagingSpec { size, max_age: None, ..small_area() });
    scene.pool.destage_due();
    // They come in small and grow, the big ones first: those are used longest ago.
    let names = (0..4).map(|number| format!("big-{number}")).chain((0..12).map(|number| format!("small-{number:02}")));
    let files: Vec<_> =
        names.map(|name| (put(&scene.pool, NodeId::ROOT, &name, b"x"), name.starts_with("big"))).collect();
    for (file, is_big) in files {
        let opened = scene.pool.open(file, WRITE).unwrap();
        let data = pattern(1, if is_big { 40_960 } else { 4096 });
        assert_eq!(scene.pool.write(opened.handle, &data, 0, false), Ok(data.len()));
        scene.pool.release(opened.handle).unwrap();
    }
    let waiting = scene.pool.status().staging.unwrap();
    assert_eq!((waiting.files, waiting.used), (16, ByteSize(208 << 10)));
    let left = |scene: &Scene| (0..12).filter(|number| scene.is_on(&format!("small-{number:02}"), "fast")).count();
    let freed = scene.while_it_hangs(
        || {
            let begun = Instant::now();
            while begun.elapsed() < TIMEOUT && left(&scene) < 7 {
                scene.pool.destage_due();
            }
        },
        || scene.eventually(|scene| left(scene) >= 7),
    );
    assert!(freed, "56 KiB more wait than may when it is to be freed");
}

#[test]
fn a_writer_that_waits_for_room_does_not_wait_for_a_branch_that_hangs() {
    // Logs go to `slow`, other files to `tiny`, which is nearly full, and then to `fast`.
    let scene = Scene::new(3, small_area());
    put(&scene.pool, NodeId::ROOT, "a.log", b"log");
    put(&scene.pool, NodeId::ROOT, "b", b"small");
    for branch in [0, 1] {
        let room = rustix::fs::statvfs(scene.bench.branch(branch)).unwrap();
        let filler = scene.bench.branch(branch).join("filler");
        let filler = std::fs::File::create(filler).unwrap();
        let most = room.f_bavail * room.f_frsize - (4 << 20);
        rustix::fs::fallocate(filler, rustix::fs::FallocateFlags::empty(), 0, most).unwrap();
    }
    let written = scene.while_it_hangs(
        || {
            let new = scene.pool.create(NodeId::ROOT, OsStr::new("c"), 0o640, Caller::ROOT, WRITE).unwrap().1;
            assert_eq!(scene.pool.write(new.handle, &pattern(2, 100 << 10), 0, false), Ok(100 << 10));
            scene.pool.release(new.handle).unwrap();
        },
        || {
            scene.eventually(|scene| {
                let size = |path: &str| std::fs::metadata(scene.bench.branch(2).join(path)).map_or(0, |it| it.len());
                size("b") == 5 && size("c") == 100 << 10
            })
        },
    );
    assert!(written);
}

#[test]
fn a_branch_that_holds_up_files_is_named() {
    let scene = Scene::of_impatient(0);
    put(&scene.pool, NodeId::ROOT, "a-big", &pattern(1, 8192));
    std::thread::sleep(Duration::from_millis(20));
    let warned = |scene: &Scene| scene.pool.status().warnings.iter().any(|warning| warning.contains("branch \"slow\""));
    assert!(!warned(&scene));
    assert!(scene.while_it_hangs(|| scene.pool.destage_due(), || scene.eventually(warned)));
    assert!(scene.eventually(|scene| !warned(scene)), "it answers again");
}

#[test]
fn the_end_goes_on_with_the_others_and_keeps_what_it_cannot_bring() {
    let scene = Scene::new(0, small_area());
    put(&scene.pool, NodeId::ROOT, "a-big", &pattern(1, 8192));
    put(&scene.pool, NodeId::ROOT, "b-small", b"small");
    let ended = std::sync::atomic::AtomicBool::new(false);
    let seen = scene.while_it_hangs(
        || {
            scene.pool.close_staging();
            ended.store(true, std::sync::atomic::Ordering::Relaxed);
        },
        || {
            let ended = scene.eventually(|_| ended.load(std::sync::atomic::Ordering::Relaxed));
            (ended, scene.is_on("b-small", "fast"), scene.is_on("a-big", STAGED))
        },
    );
    assert_eq!(seen, (true, true, true));
}

#[test]
fn a_sync_of_one_file_does_not_wait_for_a_branch_that_hangs() {
    let scene = Scene::of_impatient(0);
    put(&scene.pool, NodeId::ROOT, "a-big", &pattern(1, 8192));
    let (_, small) = scene.pool.create(NodeId::ROOT, OsStr::new("b-small"), 0o640, Caller::ROOT, WRITE).unwrap();
    scene.pool.write(small.handle, b"small", 0, false).unwrap();
    std::thread::sleep(Duration::from_millis(20));
    let left = scene.while_it_hangs(
        || scene.pool.destage_due(),
        || {
            scene.pool.fsync(small.handle, false).unwrap();
            scene.is_on("b-small", "fast")
        },
    );
    assert!(left);
    scene.pool.release(small.handle).unwrap();
}

#[test]
fn a_sync_of_everything_brings_the_files_of_the_others_to_their_branches() {
    let scene = Scene::new(0, small_area());
    put(&scene.pool, NodeId::ROOT, "a-big", &pattern(1, 8192));
    put(&scene.pool, NodeId::ROOT, "b-small", b"small");
    let left = scene
        .while_it_hangs(|| scene.pool.sync_all().unwrap(), || scene.eventually(|scene| scene.is_on("b-small", "fast")));
    assert!(left);
    assert!(scene.is_on("a-big", "slow"), "it was waited for");
}

/// Makes enough small files to keep a leaver busy for a while; the first is `a-0000`.
fn many(scene: &Scene) {
    for number in 0..3000 {
        put(&scene.pool, NodeId::ROOT, &format!("a-{number:04}"), b"small");
    }
}

fn roomy() -> StagingSpec {
    StagingSpec { size: Some(Amount::Bytes(ByteSize(64 << 20))), max_age: None, ..small_area() }
}

#[test]
fn a_file_that_somebody_takes_to_a_branch_that_hangs_holds_up_no_others() {
    let scene = Scene::new(0, StagingSpec { max_age: Some(Duration::from_millis(1)), ..roomy() });
    many(&scene);
    let (_, grows) = scene.pool.create(NodeId::ROOT, OsStr::new("y"), 0o640, Caller::ROOT, WRITE).unwrap();
    put(&scene.pool, NodeId::ROOT, "z", b"small");
    // Else the files before it were too few for this machine, and it goes to `slow` when it is closed.
    let in_time = AtomicBool::new(false);
    let left = scene.while_it_hangs(
        || {
            std::thread::scope(|scope| {
                scope.spawn(|| scene.pool.destage_due());
                assert!(scene.eventually(|scene| scene.is_on("a-0000", "fast")));
                // It belongs on `slow` now, and is still with who brings files to `fast`.
                scene.pool.write(grows.handle, &pattern(1, 8192), 0, false).unwrap();
                in_time.store(scene.is_on("y", STAGED), Ordering::Relaxed);
                scene.pool.fsync(grows.handle, false).unwrap();
            });
        },
        || scene.eventually(|scene| scene.is_on("z", "fast")),
    );
    assert!(left);
    assert!(scene.is_on("y", "slow") || !in_time.into_inner());
    scene.pool.release(grows.handle).unwrap();
}

#[test]
fn the_end_waits_for_a_file_that_is_handed_on_to_a_branch_that_takes_its_time() {
    let scene = Scene::new(0, roomy());
    many(&scene);
    let (_, grows) = scene.pool.create(NodeId::ROOT, OsStr::new("z"), 0o640, Caller::ROOT, WRITE).unwrap();
    let in_time = AtomicBool::new(false);
    scene.while_it_hangs(
        || scene.pool.close_staging(),
        || {
            assert!(scene.eventually(|scene| scene.is_on("a-0000", "fast")));
            scene.pool.write(grows.handle, &pattern(1, 8192), 0, false).unwrap();
            in_time.store(scene.is_on("z", STAGED), Ordering::Relaxed);
            assert!(scene.eventually(|scene| scene.is_on("a-2999", "fast")));
            std::thread::sleep(Duration::from_millis(500));
        },
    );
    assert!(scene.is_on("z", "slow") || !in_time.into_inner());
    assert_eq!(scene.bench.places().len(), 3, "the area is left, as if a file had found no branch");
    scene.pool.release(grows.handle).unwrap();
}

#[test]
fn a_directory_that_gets_another_name_waits_for_a_branch_that_hangs_and_nobody_else_does() {
    let scene = Scene::of_impatient(0);
    put(&scene.pool, NodeId::ROOT, "a-big", &pattern(1, 8192));
    let dir = scene.pool.mkdir(NodeId::ROOT, OsStr::new("dir"), 0o755, Caller::ROOT).unwrap().node;
    put(&scene.pool, dir, "b-small", b"small");
    scene.pool.mkdir(NodeId::ROOT, OsStr::new("old"), 0o755, Caller::ROOT).unwrap();
    std::thread::sleep(Duration::from_millis(20));
    scene.pool.destage_due();
    assert!(scene.is_on("a-big", "slow"));
    let renamed = AtomicBool::new(false);
    let looked_up = std::sync::atomic::AtomicUsize::new(0);
    let (pool, has_new_name) = (&scene.pool, &renamed);
    let (went_on, waited) = scene.while_it_hangs(
        || {
            std::thread::scope(|scope| {
                let (tell, threads) = std::sync::mpsc::channel();
                let removes = tell.clone();
                scope.spawn(move || {
                    removes.send(rustix::thread::gettid()).unwrap();
                    pool.unlink(NodeId::ROOT, OsStr::new("a-big")).unwrap();
                });
                wait_until_it_waits(threads.recv().unwrap());
                scope.spawn(move || {
                    let (root, replace) = (NodeId::ROOT, Replace::Yes);
                    tell.send(rustix::thread::gettid()).unwrap();
                    pool.rename(root, OsStr::new("old"), root, OsStr::new("new"), replace).unwrap();
                    has_new_name.store(true, Ordering::Relaxed);
                });
                wait_until_it_waits(threads.recv().unwrap());
                for _ in 0..100 {
                    scene.pool.lookup(dir, OsStr::new("b-small")).unwrap();
                    looked_up.fetch_add(1, Ordering::Relaxed);
                }
            });
        },
        || {
            let went_on = scene.eventually(|_| looked_up.load(Ordering::Relaxed) == 100);
            (went_on, !renamed.load(Ordering::Relaxed))
        },
    );
    assert!(went_on, "names cannot be looked up while a directory waits for its new name");
    assert!(waited, "the rename did not wait: this says nothing");
    assert_eq!(scene.holders("new").len(), 1);
}
