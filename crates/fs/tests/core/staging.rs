//! New files that wait in memory: when they leave, and that nobody sees it.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use umbrella_fs::pool::{AttributeChange, OpenRequest, Pool, Replace};
use umbrella_fs::spec::StagingSpec;
use umbrella_fs::{Caller, DataPath, NodeId, OpError, PassthroughToken, calls_on_branches};
use umbrella_policy::placement::spec::{DestinationSpec, Offline, RuleKindSpec, RuleSpec, RulesSpec, Treatment};
use umbrella_units::{Amount, ByteSize};

use crate::bench::{BRANCHES, Bench, FakeKernel, Ground, READ, WRITE, small_area};
use crate::races::{contents, put};
use crate::world::pattern;

struct Scene {
    bench: Bench,
    pool: Arc<Pool>,
}

impl Scene {
    fn new(staging: StagingSpec) -> Scene {
        let bench = Bench::staged(Ground::Memory, staging);
        let pool = bench.assemble(0);
        Scene { bench, pool }
    }

    /// Where a path is.
    fn holders(&self, path: &str) -> Vec<&'static str> {
        let places = self.bench.places();
        let held = places.iter().enumerate().filter(|(_, place)| place.join(path).symlink_metadata().is_ok());
        held.map(|(place, _)| crate::bench::place_name(place)).collect()
    }

    fn put(&self, name: &str, data: &[u8]) -> NodeId {
        put(&self.pool, NodeId::ROOT, name, data)
    }

    fn metric(&self, name: &str) -> u64 {
        self.pool.status().metrics[name]
    }

    /// As if the daemon were killed and mounted again.
    fn killed(self, staging: Option<StagingSpec>) -> Scene {
        let Scene { mut bench, pool } = self;
        assert_eq!(Arc::strong_count(&pool), 1);
        drop(pool);
        bench.staging = staging;
        let pool = bench.assemble(0);
        Scene { bench, pool }
    }

    fn area(&self) -> PathBuf {
        self.bench.places()[BRANCHES.len()].clone()
    }
}

const STAGED: [&str; 1] = ["(staging)"];

#[test]
fn a_file_made_before_the_first_look_at_the_area_waits_as_any_other() {
    let scene = Scene::new(StagingSpec { volatile: true, ..small_area() });
    let (_, opened) = scene.pool.create(NodeId::ROOT, OsStr::new("file"), 0o640, Caller::ROOT, WRITE).unwrap();
    assert_eq!(scene.pool.write(opened.handle, b"data", 0, false), Ok(4));
    scene.pool.destage_due();
    assert_eq!(scene.holders("file"), STAGED);
    scene.pool.release(opened.handle).unwrap();
}

#[test]
fn the_name_of_the_hidden_folder_cannot_be_made_in_the_area_either() {
    let scene = Scene::new(small_area());
    let made = scene.pool.create(NodeId::ROOT, OsStr::new(".umbrella"), 0o640, Caller::ROOT, WRITE);
    assert_eq!(made.map(|_| ()), Err(OpError::Reserved));
}

#[test]
fn a_file_stays_in_memory_until_it_outgrows_it_and_is_judged_by_the_size_it_has_then() {
    let scene = Scene::new(small_area());
    let data = pattern(1, 100_000);
    let (attr, opened) = scene.pool.create(NodeId::ROOT, OsStr::new("file"), 0o640, Caller::ROOT, WRITE).unwrap();
    assert_eq!(scene.pool.write(opened.handle, &data[..40_000], 0, false), Ok(40_000));
    assert_eq!(scene.holders("file"), STAGED);
    assert_eq!(scene.pool.write(opened.handle, &data[40_000..], 40_000, false), Ok(60_000));
    assert_eq!(scene.holders("file"), ["slow"], "larger than 4 KiB");
    scene.pool.release(opened.handle).unwrap();
    assert_eq!(contents(&scene.pool, attr.node), data);
    let now = scene.pool.getattr(attr.node).unwrap();
    assert_eq!((now.ino, now.meta.perm, now.meta.btime), (attr.ino, 0o640, attr.meta.btime));
    assert_eq!(scene.pool.status().staging.unwrap().files, 0);
}

#[test]
fn a_truncation_and_an_allocation_beyond_what_may_be_staged_take_the_file_out() {
    let scene = Scene::new(small_area());
    let file = scene.put("cut", b"x");
    let change = AttributeChange { size: Some(49 << 10), ..AttributeChange::default() };
    assert_eq!(scene.pool.setattr(file, &change).unwrap().meta.size, 49 << 10);
    assert_eq!(scene.holders("cut"), ["slow"], "it leaves for the place of the size that it gets");
    let (_, opened) = scene.pool.create(NodeId::ROOT, OsStr::new("room"), 0o640, Caller::ROOT, WRITE).unwrap();
    scene.pool.fallocate(opened.handle, rustix::fs::FallocateFlags::empty(), 0, 49 << 10, false).unwrap();
    assert_eq!(scene.holders("room"), ["slow"]);
    scene.pool.release(opened.handle).unwrap();
}

#[test]
fn a_file_that_somebody_has_open_past_the_mount_for_a_moment_leaves_all_the_same() {
    let scene = Scene::new(small_area());
    // It is waited for for a second: where it was closed later than that, nothing is known, and it is done again.
    let left = (0..5).any(|round| {
        let name = format!("scanned-{round}");
        let file = scene.put(&name, b"x");
        let held = std::fs::File::open(scene.area().join(&name)).unwrap();
        let scanner = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(100));
            drop(held);
        });
        let change = AttributeChange { size: Some(49 << 10), ..AttributeChange::default() };
        let changed = scene.pool.setattr(file, &change);
        scanner.join().unwrap();
        let Ok(attr) = changed else { return false };
        assert_eq!((attr.meta.size, scene.holders(&name)), (49 << 10, vec!["slow"]));
        true
    });
    assert!(left, "it is not waited for");
}

#[test]
fn a_file_that_is_emptied_as_it_is_opened_takes_no_room_in_memory_any_more() {
    let scene = Scene::new(small_area());
    let file = scene.put("file", &pattern(1, 10_000));
    assert_eq!(scene.pool.status().staging.unwrap().used, ByteSize(12 << 10));
    let opened = scene.pool.open(file, OpenRequest { truncate: true, ..WRITE }).unwrap();
    assert_eq!(scene.pool.status().staging.unwrap().used, ByteSize(0));
    scene.pool.release(opened.handle).unwrap();
    assert_eq!(scene.holders("file"), STAGED);
}

#[test]
fn old_files_leave_and_their_directories_look_as_before() {
    let scene = Scene::new(StagingSpec { max_age: Some(Duration::from_millis(1)), ..small_area() });
    let dir = scene.pool.mkdir(NodeId::ROOT, OsStr::new("dir"), 0o750, Caller::ROOT).unwrap().node;
    std::thread::sleep(Duration::from_millis(20));
    let file = put(&scene.pool, dir, "file", b"small");
    let before = scene.pool.getattr(dir).unwrap().meta;
    std::thread::sleep(Duration::from_millis(20));
    scene.pool.destage_due();
    assert_eq!(scene.holders("dir/file"), ["fast"]);
    assert_eq!(contents(&scene.pool, file), b"small");
    let after = scene.pool.getattr(dir).unwrap().meta;
    assert_eq!((after.mtime, after.perm), (before.mtime, before.perm));
    let on_disk = std::fs::metadata(scene.bench.branch(0).join("dir")).unwrap();
    assert_eq!((on_disk.mtime(), on_disk.mtime_nsec()), (before.mtime.secs, i64::from(before.mtime.nanos)));
}

#[test]
fn files_that_leave_together_do_so_in_the_order_of_their_paths() {
    let scene = Scene::new(StagingSpec { max_age: Some(Duration::from_millis(1)), ..small_area() });
    let mut dirs: Vec<_> = ["one", "two"]
        .map(|name| (name, scene.pool.mkdir(NodeId::ROOT, OsStr::new(name), 0o755, Caller::ROOT).unwrap().node))
        .into();
    let mut paths = Vec::new();
    // Made in another order, and the directories in turn.
    for number in (0..40).map(|number| number * 17 % 40) {
        dirs.reverse();
        let (name, dir) = dirs[0];
        put(&scene.pool, dir, &format!("{number:02}"), b"small");
        paths.push(format!("{name}/{number:02}"));
    }
    std::thread::sleep(Duration::from_millis(20));
    scene.pool.destage_due();
    // A tmpfs numbers its files as they come.
    let number = |path: &String| std::fs::metadata(scene.bench.branch(0).join(path)).unwrap().ino();
    let mut as_they_came = paths.clone();
    as_they_came.sort_by_key(number);
    paths.sort();
    assert_eq!(as_they_came, paths);
}

#[test]
fn when_more_waits_than_may_those_used_longest_ago_leave() {
    let size = Some(Amount::Bytes(ByteSize(288 << 10)));
    let scene = Scene::new(StagingSpec { size, max_age: None, ..small_area() });
    scene.pool.destage_due();
    let data = pattern(1, 40_960);
    let files: Vec<_> = (0..5).map(|number| scene.put(&format!("file-{number}"), &data)).collect();
    assert_eq!(contents(&scene.pool, files[0]), data, "and so it is used last");
    scene.put("file-5", &data);
    scene.pool.destage_due();
    let staged: Vec<_> = (0..6).filter(|number| scene.holders(&format!("file-{number}")) == STAGED).collect();
    assert_eq!(staged, [0, 3, 4, 5], "of six times 44 KiB no more than three quarters of 288 stay");
}

#[test]
fn where_nothing_more_may_wait_files_go_to_their_branch_at_once() {
    let size = Some(Amount::Bytes(ByteSize(96 << 10)));
    let scene = Scene::new(StagingSpec { size, ..small_area() });
    scene.pool.destage_due();
    for number in 0..4 {
        scene.put(&format!("file-{number}"), &pattern(number, 40_960));
    }
    assert_eq!(scene.holders("file-0"), STAGED);
    assert_eq!(scene.holders("file-3"), ["slow"], "the files before it were that large");
    scene.put("small", b"x");
    assert_eq!(scene.holders("small"), ["slow"], "made there, and moved by its rule when it is its turn");
    scene.pool.move_all_queued();
    assert_eq!((scene.holders("file-3"), scene.holders("small")), (vec!["slow"], vec!["fast"]));
}

#[test]
fn what_is_synced_is_on_its_branch() {
    let scene = Scene::new(small_area());
    let dir = scene.pool.mkdir(NodeId::ROOT, OsStr::new("dir"), 0o755, Caller::ROOT).unwrap().node;
    let by_file = put(&scene.pool, dir, "by file", b"1");
    let opened = scene.pool.open(by_file, READ).unwrap();
    scene.pool.fsync(opened.handle, true).unwrap();
    assert_eq!(scene.holders("dir/by file"), ["fast"]);
    scene.pool.release(opened.handle).unwrap();
    put(&scene.pool, dir, "by directory", b"2");
    scene.put("elsewhere", b"3");
    scene.pool.fsync_dir(dir, false).unwrap();
    assert_eq!((scene.holders("dir/by directory"), scene.holders("elsewhere")), (vec!["fast"], STAGED.to_vec()));
    scene.pool.sync_all().unwrap();
    assert_eq!(scene.holders("elsewhere"), ["fast"]);
}

#[test]
fn the_first_sync_of_a_file_that_left_memory_by_itself_makes_its_name_durable_too() {
    let scene = Scene::new(StagingSpec { max_age: Some(Duration::from_millis(1)), ..small_area() });
    let dir = scene.pool.mkdir(NodeId::ROOT, OsStr::new("dir"), 0o755, Caller::ROOT).unwrap().node;
    let file = put(&scene.pool, dir, "file", b"1");
    std::thread::sleep(Duration::from_millis(20));
    scene.pool.destage_due();
    assert_eq!(scene.holders("dir/file"), ["fast"]);
    let opened = scene.pool.open(file, WRITE).unwrap();
    let synced = || {
        let before = calls_on_branches();
        scene.pool.fsync(opened.handle, true).unwrap();
        calls_on_branches() - before
    };
    assert_eq!((synced(), synced()), (2, 1), "the file and its directory, then the file");
    scene.pool.release(opened.handle).unwrap();
}

#[test]
fn at_the_end_files_are_tried_again_as_long_as_some_leave() {
    let scene = Scene::new(small_area());
    let names: Vec<_> = (0..4).map(|number| format!("file-{number}")).collect();
    for name in &names {
        scene.put(name, b"x");
    }
    // Somebody has them open past the mount, and closes one after the other.
    let mut held: Vec<_> = names.iter().map(|name| std::fs::File::open(scene.area().join(name)).unwrap()).collect();
    let scanner = std::thread::spawn(move || {
        while held.pop().is_some() {
            std::thread::sleep(Duration::from_secs(2));
        }
    });
    scene.pool.close_staging();
    scanner.join().unwrap();
    for name in &names {
        assert_eq!(scene.holders(name), ["fast"], "{name}");
    }
}

#[test]
fn a_file_that_left_memory_has_a_durable_name_before_writes_past_the_daemon_are_durable() {
    let scene = Scene::new(StagingSpec { max_age: Some(Duration::from_millis(1)), ..small_area() });
    let register = || Ok(Arc::new(()) as PassthroughToken);
    scene.pool.set_kernel(Box::new(FakeKernel { forgets: Box::new(|_| ()), register: Some(Box::new(register)) }));
    let file = scene.put("file", b"1");
    std::thread::sleep(Duration::from_millis(20));
    scene.pool.destage_due();
    assert_eq!(scene.holders("file"), ["fast"]);
    let calls_of_open = |durable| {
        let before = calls_on_branches();
        let opened = scene.pool.open(file, OpenRequest { durable, ..WRITE }).unwrap();
        let calls = calls_on_branches() - before;
        assert_eq!(opened.data, DataPath::Passthrough);
        scene.pool.release(opened.handle).unwrap();
        calls
    };
    let [plain, first, second] = [false, true, true].map(calls_of_open);
    assert_eq!((first, second), (plain + 1, plain), "its directory is synced once");
}

#[test]
fn memory_that_keeps_its_contents_need_not_be_emptied_to_be_synced() {
    let folder = tempfile::tempdir().unwrap();
    let staging = StagingSpec { path: Some(folder.path().to_owned()), volatile: false, max_age: None, ..small_area() };
    let scene = Scene::new(staging.clone());
    scene.put("file", b"kept");
    scene.pool.sync_all().unwrap();
    let tree = folder.path().join("umbrella-staging/tree");
    assert!(tree.join("file").exists() && scene.holders("file").is_empty());
    let outcome = scene.pool.explain(b"/file").unwrap().outcome;
    assert!(outcome.contains("it goes to fast when it outgrows staging, too much waits, or the pool"), "{outcome}");
    let scene = scene.killed(Some(staging));
    assert_eq!(contents(&scene.pool, scene.pool.lookup(NodeId::ROOT, OsStr::new("file")).unwrap().node), b"kept");
    scene.pool.close_staging();
    assert_eq!(scene.holders("file"), ["fast"]);
    assert!(!tree.join("file").exists());
}

#[test]
fn a_file_that_is_deleted_in_memory_touches_no_branch() {
    let scene = Scene::new(small_area());
    let (_, opened) = scene.pool.create(NodeId::ROOT, OsStr::new("open"), 0o640, Caller::ROOT, WRITE).unwrap();
    scene.put("closed", b"1");
    scene.put("replaced", b"2");
    scene.put("winner", b"3");
    scene.pool.unlink(NodeId::ROOT, OsStr::new("open")).unwrap();
    scene.pool.unlink(NodeId::ROOT, OsStr::new("closed")).unwrap();
    let (from, to) = (OsStr::new("winner"), OsStr::new("replaced"));
    scene.pool.rename(NodeId::ROOT, from, NodeId::ROOT, to, Replace::Yes).unwrap();
    assert_eq!(scene.pool.write(opened.handle, b"still there", 0, false), Ok(11));
    assert_eq!(scene.metric("umbrella_staging_deleted_count"), 3);
    assert_eq!(scene.pool.status().staging.unwrap().files, 1);
    scene.pool.sync_all().unwrap();
    assert_eq!(scene.metric("umbrella_staging_left_count"), 1);
    scene.pool.release(opened.handle).unwrap();
    scene.pool.destage_due();
    assert_eq!(std::fs::read_dir(scene.area()).unwrap().count(), 1, "only .umbrella");
}

#[test]
fn a_file_that_replaces_one_on_a_branch_leaves_memory_first() {
    let scene = Scene::new(small_area());
    scene.put("file", b"old");
    scene.pool.sync_all().unwrap();
    scene.put("file.new", b"new");
    let (from, to) = (OsStr::new("file.new"), OsStr::new("file"));
    scene.pool.rename(NodeId::ROOT, from, NodeId::ROOT, to, Replace::Yes).unwrap();
    assert_eq!((scene.holders("file"), scene.holders("file.new")), (vec!["fast"], vec![]));
    assert_eq!(std::fs::read(scene.bench.branch(0).join("file")).unwrap(), b"new");
}

#[test]
fn an_exchange_brings_nothing_into_memory() {
    let scene = Scene::new(small_area());
    scene.put("a", b"on a branch");
    scene.pool.sync_all().unwrap();
    scene.put("b", b"in memory");
    let (a, b) = (OsStr::new("a"), OsStr::new("b"));
    scene.pool.rename(NodeId::ROOT, a, NodeId::ROOT, b, Replace::Exchange).unwrap();
    assert_eq!((scene.holders("a"), scene.holders("b")), (vec!["fast"], vec!["fast"]));
    assert_eq!(std::fs::read(scene.bench.branch(0).join("a")).unwrap(), b"in memory");
}

#[test]
fn all_names_of_a_file_leave_together_also_after_a_kill() {
    let scene = Scene::new(small_area());
    let dir = scene.pool.mkdir(NodeId::ROOT, OsStr::new("dir"), 0o755, Caller::ROOT).unwrap().node;
    let file = scene.put("one", b"linked");
    scene.pool.link(file, dir, OsStr::new("two")).unwrap();
    let scene = scene.killed(Some(small_area()));
    assert_eq!(scene.holders("one"), STAGED);
    scene.pool.destage_due();
    assert_eq!((scene.holders("one"), scene.holders("dir/two")), (vec!["fast"], vec!["fast"]));
    let inode = |path: &str| std::fs::metadata(scene.bench.branch(0).join(path)).unwrap().ino();
    assert_eq!(inode("one"), inode("dir/two"));
}

#[test]
fn what_was_staged_is_in_the_tree_after_staging_was_taken_out_of_the_configuration() {
    let scene = Scene::new(small_area());
    scene.put("file", b"left");
    let area = scene.area();
    let scene = scene.killed(None);
    let node = scene.pool.lookup(NodeId::ROOT, OsStr::new("file")).unwrap().node;
    assert_eq!(contents(&scene.pool, node), b"left");
    scene.put("new", b"not staged");
    assert_eq!(scene.holders("new"), ["fast"]);
    scene.pool.close_staging();
    assert_eq!(scene.holders("file"), ["fast"]);
    assert!(!area.exists(), "the area is gone");
    let scene = scene.killed(None);
    assert_eq!(scene.pool.status().staging, None);
}

#[test]
fn another_area_is_used_when_the_earlier_one_is_empty() {
    let folder = tempfile::tempdir().unwrap();
    let other = StagingSpec { path: Some(folder.path().to_owned()), ..small_area() };
    let scene = Scene::new(small_area());
    scene.put("file", b"left");
    let scene = scene.killed(Some(other.clone()));
    scene.put("new", b"not staged");
    assert_eq!(scene.holders("new"), ["fast"]);
    scene.pool.close_staging();
    assert_eq!(scene.holders("file"), ["fast"]);
    let scene = scene.killed(Some(other));
    scene.put("newer", b"staged");
    assert!(folder.path().join("tree/newer").exists());
    scene.pool.close_staging();
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "unmounted, and the directory stays");
}

/// What a pool says that cannot be assembled with an area here.
fn refusal(path: &std::path::Path) -> String {
    let bench = Bench::staged(Ground::Memory, StagingSpec { path: Some(path.to_owned()), ..small_area() });
    let refused = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| bench.assemble(0))).err();
    refused.and_then(|panic| panic.downcast_ref::<String>().cloned()).unwrap_or_default()
}

#[test]
fn a_directory_with_files_in_it_is_not_covered_by_an_area_nor_changed() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("precious"), b"").unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let said = refusal(folder.path());
    assert!(said.contains("not empty"), "{said}");
    assert!(folder.path().join("precious").exists());
    assert_eq!(std::fs::metadata(folder.path()).unwrap().mode() & 0o7777, 0o755);
}

#[test]
fn an_area_of_another_pool_is_not_taken_over() {
    let folder = tempfile::tempdir().unwrap();
    let staging = StagingSpec { path: Some(folder.path().to_owned()), ..small_area() };
    let scene = Scene::new(staging.clone());
    scene.put("file", b"theirs");
    let scene = {
        let Scene { bench, pool } = scene;
        drop(pool); // As if it were killed.
        bench
    };
    let said = refusal(folder.path());
    assert!(said.contains("another pool"), "{said}");
    assert!(folder.path().join("tree/file").exists());
    let pool = scene.assemble(0);
    pool.close_staging();
    assert!(scene.branch(0).join("file").exists());
    assert_eq!(refusal(folder.path()), "", "it is free");
    rustix::mount::unmount(folder.path(), rustix::mount::UnmountFlags::DETACH).unwrap();
}

#[test]
fn an_area_may_be_named_by_a_link() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("real")).unwrap();
    std::os::unix::fs::symlink("real", folder.path().join("link")).unwrap();
    let staging = StagingSpec { path: Some(folder.path().join("link")), ..small_area() };
    let mut scene = Scene::new(staging.clone());
    for _ in 0..2 {
        scene.put("file", b"x");
        assert!(folder.path().join("real/tree/file").exists());
        scene.pool.close_staging();
        assert_eq!(std::fs::read_dir(folder.path().join("real")).unwrap().count(), 0);
        scene.pool.unlink(NodeId::ROOT, OsStr::new("file")).unwrap();
        scene = scene.killed(Some(staging.clone()));
    }
    scene.pool.close_staging();
}

#[test]
fn memory_that_loses_its_contents_is_not_taken_for_memory_that_keeps_them() {
    let folder = tempfile::tempdir().unwrap();
    rustix::mount::mount("none", folder.path(), "tmpfs", rustix::mount::MountFlags::empty(), None).unwrap();
    let staging = StagingSpec { path: Some(folder.path().to_owned()), volatile: false, max_age: None, ..small_area() };
    let bench = Bench::staged(Ground::Memory, staging);
    let refused = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| bench.assemble(0))).err();
    rustix::mount::unmount(folder.path(), rustix::mount::UnmountFlags::DETACH).unwrap();
    let said = refused.and_then(|panic| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
    assert!(said.contains("loses its contents"), "{said}");
}

#[test]
fn empty_files_count_too() {
    let size = Some(Amount::Bytes(ByteSize(256 << 10)));
    let scene = Scene::new(StagingSpec { size, max_age: None, ..small_area() });
    scene.pool.destage_due();
    for number in 0..200 {
        scene.put(&format!("empty-{number}"), b"");
    }
    let staged = (0..200).filter(|number| scene.holders(&format!("empty-{number}")) == STAGED).count();
    assert!(staged <= 64, "{staged} empty files in an area of 256 KiB");
}

#[test]
fn a_tmpfs_that_others_use_is_not_taken_for_an_area() {
    let folder = tempfile::tempdir().unwrap();
    rustix::mount::mount("none", folder.path(), "tmpfs", rustix::mount::MountFlags::empty(), c"mode=1777").unwrap();
    std::fs::write(folder.path().join("precious"), b"").unwrap();
    let said = refusal(folder.path());
    let meta = std::fs::metadata(folder.path()).unwrap();
    let there = folder.path().join("precious").exists();
    rustix::mount::unmount(folder.path(), rustix::mount::UnmountFlags::DETACH).unwrap();
    assert!(said.contains("not empty"), "{said}");
    assert!(there);
    assert_eq!(meta.mode() & 0o7777, 0o1777);
}

#[test]
fn what_leaves_memory_that_keeps_its_contents_is_synced_first_also_under_its_writer() {
    // No tmpfs: there nothing can be seen of a sync.
    let folder = tempfile::tempdir().unwrap();
    let staging = StagingSpec { path: Some(folder.path().to_owned()), volatile: false, max_age: None, ..small_area() };
    let bench = Bench::staged(Ground::Disk, staging);
    let pool = bench.assemble(0);
    let (_, opened) = pool.create(NodeId::ROOT, OsStr::new("file"), 0o640, Caller::ROOT, WRITE).unwrap();
    assert_eq!(pool.write(opened.handle, &pattern(1, 40_000), 0, false), Ok(40_000));
    pool.fsync(opened.handle, false).unwrap();
    assert_eq!(pool.write(opened.handle, &pattern(2, 20_000), 40_000, false), Ok(20_000));
    let path = bench.branch(1).join("file");
    let said = String::from_utf8(read_blocks(&path)).unwrap();
    // The 40,000 bytes that were synced in the area have blocks; only what was written since may wait for some.
    assert!(said.lines().any(|line| line.contains("0:        0..") && !line.contains("delalloc")), "{said}");
    pool.release(opened.handle).unwrap();
}

/// Where a file lies, as an ioctl of Linux says it: one line an extent.
fn read_blocks(path: &std::path::Path) -> Vec<u8> {
    let file = std::fs::File::open(path).unwrap();
    let mut map = [0_u64; 4 + 7 * 8];
    map[1] = u64::MAX;
    map[3] = 8;
    // SAFETY: struct fiemap with room for eight extents, 32 and 56 bytes each; the kernel writes no more than it says.
    let done = unsafe { libc::ioctl(std::os::fd::AsRawFd::as_raw_fd(&file), 0xC020_660B, map.as_mut_ptr()) };
    assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
    let extents = (map[2] >> 32) as usize;
    let mut said = String::new();
    for extent in map[4..].chunks(7).take(extents) {
        let late = if extent[5] as u32 & 4 != 0 { "delalloc" } else { "" };
        writeln!(said, "0: {:8}..{} {late}", extent[0], extent[0] + extent[2]).unwrap();
    }
    said.into_bytes()
}

#[test]
fn a_sync_after_a_kill_waits_until_what_was_left_is_found() {
    let scene = Scene::new(small_area());
    for number in 0..300 {
        scene.put(&format!("file-{number}"), b"left");
    }
    let scene = scene.killed(Some(small_area()));
    std::thread::scope(|scope| {
        scope.spawn(|| scene.pool.destage_due());
        scope.spawn(|| scene.pool.sync_all().unwrap()).join().unwrap();
        let left = (0..300).filter(|number| scene.holders(&format!("file-{number}")) == STAGED).count();
        assert_eq!(left, 0, "everything is said to be on a branch");
    });
}

#[test]
fn the_area_is_no_branch_that_a_command_could_name() {
    let scene = Scene::new(small_area());
    scene.put("file", b"precious");
    assert!(scene.pool.remove_branch("(staging)", true).is_err());
    assert!(scene.pool.drain("(staging)", &mut |_| true).is_err());
    scene.pool.close_staging();
    assert_eq!(scene.holders("file"), ["fast"]);
}

#[test]
fn empty_directories_do_not_stay_in_memory() {
    let scene = Scene::new(small_area());
    let mut dir = NodeId::ROOT;
    for name in ["a", "b", "c"] {
        dir = scene.pool.mkdir(dir, OsStr::new(name), 0o751, Caller::ROOT).unwrap().node;
    }
    let file = put(&scene.pool, dir, "file", b"x");
    assert_eq!(scene.holders("a/b/c"), ["fast", "(staging)"]);
    let before = scene.pool.getattr(dir).unwrap();
    scene.pool.sync_all().unwrap();
    scene.pool.destage_due();
    assert_eq!((scene.holders("a/b/c"), scene.holders("a")), (vec!["fast"], vec!["fast"]));
    let after = scene.pool.getattr(dir).unwrap();
    assert_eq!((after.ino, after.meta.mtime, after.meta.perm), (before.ino, before.meta.mtime, 0o751));
    assert_eq!(contents(&scene.pool, file), b"x");
    put(&scene.pool, dir, "next", b"y");
    assert_eq!(scene.holders("a/b/c/next"), STAGED, "and the directory is made again");
}

#[test]
fn a_directory_that_only_the_staging_area_has_left_is_on_a_branch_in_the_end() {
    let scene = Scene::new(small_area());
    // New directories go where new files go: with these rules to the small branch.
    scene.pool.reload_rules(&crate::bench::rule_set(3)).unwrap();
    let dir = scene.pool.mkdir(NodeId::ROOT, OsStr::new("dir"), 0o750, Caller::ROOT).unwrap().node;
    put(&scene.pool, dir, "file", b"x");
    assert_eq!(scene.holders("dir"), ["tiny", "(staging)"]);
    scene.pool.unlink(dir, OsStr::new("file")).unwrap();
    scene.pool.drain("tiny", &mut |_| true).unwrap();
    assert_eq!(scene.holders("dir"), ["fast", "tiny", "(staging)"], "a copy in the area is none that stays");

    let other = scene.pool.mkdir(NodeId::ROOT, OsStr::new("other"), 0o750, Caller::ROOT).unwrap().node;
    put(&scene.pool, other, "file", b"x");
    scene.pool.remove_branch("fast", true).unwrap();
    assert_eq!(scene.pool.lookup(NodeId::ROOT, OsStr::new("other")).unwrap().meta.perm, 0o750);
    scene.pool.unlink(other, OsStr::new("file")).unwrap();
    scene.pool.close_staging();
    assert!(scene.bench.branch(1).join("other").is_dir());
}

#[test]
fn files_that_grow_together_do_not_fill_the_area() {
    let scene = Scene::new(small_area());
    let create = |number: u32| {
        let name = format!("file-{number}");
        scene.pool.create(NodeId::ROOT, OsStr::new(&name), 0o640, Caller::ROOT, WRITE).unwrap()
    };
    let made: Vec<_> = (0..120).map(create).collect();
    let data: Vec<_> = (0..120).map(|number| pattern(number, 48 << 10)).collect();
    for at in (0..48 << 10).step_by(4096) {
        for ((_, opened), data) in made.iter().zip(&data) {
            let written = scene.pool.write(opened.handle, &data[at..at + 4096], at as u64, false);
            assert_eq!(written, Ok(4096), "at {at}, of more than the area holds together");
        }
    }
    let staging = scene.pool.status().staging.unwrap();
    assert!(staging.files > 0 && staging.files_left > 0, "{staging:?}");
    for ((attr, opened), data) in made.iter().zip(&data) {
        scene.pool.release(opened.handle).unwrap();
        assert_eq!(&contents(&scene.pool, attr.node), data);
    }
}

#[test]
fn files_leave_an_area_in_which_nothing_has_room_any_more() {
    let scene = Scene::new(small_area());
    let synced = scene.put("synced", b"synced");
    let (written, opened) = scene.pool.create(NodeId::ROOT, OsStr::new("written"), 0o640, Caller::ROOT, WRITE).unwrap();
    assert_eq!((scene.holders("synced"), scene.holders("written")), (STAGED.to_vec(), STAGED.to_vec()));
    let junk = scene.area().parent().unwrap().join("junk");
    std::fs::write(&junk, vec![0; 16 << 20]).expect_err("the area is smaller");
    assert_eq!(scene.pool.write(opened.handle, b"written", 0, false), Ok(7));
    scene.pool.release(opened.handle).unwrap();
    scene.pool.sync_all().unwrap();
    assert_eq!((scene.holders("synced"), scene.holders("written")), (vec!["fast"], vec!["fast"]));
    assert_eq!(contents(&scene.pool, synced), b"synced");
    assert_eq!(contents(&scene.pool, written.node), b"written");
    std::fs::remove_file(junk).unwrap();
}

/// Everything goes to the branch of half a megabyte: the others take nothing new.
fn on_a_tiny_branch() -> Scene {
    let scene = Scene::new(small_area());
    for name in ["fast", "slow"] {
        scene.pool.drain(name, &mut |_| true).unwrap();
    }
    let to = DestinationSpec { branches: vec!["tiny".to_owned(), "any".to_owned()], offline: Offline::Next };
    let kind = RuleKindSpec::When { conditions: Vec::new(), to };
    let rules = vec![RuleSpec { name: "all".to_owned(), kind, treatment: Treatment::default() }];
    scene
        .pool
        .reload_rules(&RulesSpec { rules, default: vec!["fast".to_owned()], groups: Vec::new(), evicts: Vec::new() })
        .unwrap();
    scene
}

#[test]
fn who_writes_to_a_branch_does_not_take_the_room_that_was_promised() {
    let scene = on_a_tiny_branch();
    let data = pattern(3, 40_000);
    let waiting: Vec<_> = (0..4).map(|number| scene.put(&format!("waits-{number}"), &data)).collect();
    assert!((0..4).all(|number| scene.holders(&format!("waits-{number}")) == STAGED));
    let (attr, opened) = scene.pool.create(NodeId::ROOT, OsStr::new("big"), 0o640, Caller::ROOT, WRITE).unwrap();
    let mut written = Vec::new();
    let refused = (0..100).find_map(|number| {
        let chunk = pattern(number, 16 << 10);
        match scene.pool.write(opened.handle, &chunk, written.len() as u64, false) {
            Ok(length) => {
                written.extend_from_slice(&chunk[..length]);
                None
            }
            Err(error) => Some(error),
        }
    });
    assert_eq!(refused, Some(OpError::NoRoom), "after {} bytes", written.len());
    scene.pool.release(opened.handle).unwrap();
    scene.pool.sync_all().expect("what waited has had its room");
    for (number, file) in waiting.iter().enumerate() {
        assert_eq!(scene.holders(&format!("waits-{number}")), ["tiny"]);
        assert_eq!(contents(&scene.pool, *file), data, "file {number}");
    }
    assert_eq!(contents(&scene.pool, attr.node), written);
}

#[test]
fn what_no_branch_could_take_is_not_staged() {
    let scene = on_a_tiny_branch();
    let data = pattern(7, 40_000);
    let count = 12;
    let mut made = Vec::new();
    for number in 0..count {
        made.push(scene.put(&format!("file-{number}"), &data));
    }
    let staged = scene.metric("umbrella_staging_created_count");
    assert!((4..count).contains(&staged), "{staged} of {count} files of 40 kB waited for a branch with 512 KiB");
    scene.pool.sync_all().unwrap();
    for (number, file) in made.iter().enumerate() {
        assert_eq!(contents(&scene.pool, *file), data, "file {number}");
    }
}

#[test]
fn room_in_the_tree_is_what_is_left_when_all_that_waits_has_left() {
    let scene = Scene::new(small_area());
    let before = scene.pool.space();
    scene.put("file", &pattern(1, 40_960));
    let staged = scene.pool.space();
    assert_eq!(staged.total, before.total);
    assert_eq!(before.free - staged.free, 40_960);
    assert_eq!(before.files_free - staged.files_free, 1);
}

#[test]
fn writes_at_the_end_while_the_file_leaves_lose_nothing() {
    let scene = Scene::new(StagingSpec {
        size: Some(Amount::Bytes(ByteSize(64 << 20))),
        max_age: Some(Duration::from_micros(50)),
        max_file: ByteSize(8 << 20),
        ..small_area()
    });
    let (pool, stop) = (&scene.pool, &AtomicBool::new(false));
    let until = Instant::now() + Duration::from_secs(3);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                pool.destage_due();
            }
        });
        let mut rounds = 0_u32;
        let left = || scene.metric("umbrella_staging_left_count");
        // For a while, and on a machine that does much else until it has happened.
        let at_most = until + Duration::from_secs(120);
        while Instant::now() < until || (left() <= 10 && Instant::now() < at_most) {
            let name = format!("log-{rounds}");
            let (attr, opened) = pool.create(NodeId::ROOT, OsStr::new(&name), 0o640, Caller::ROOT, WRITE).unwrap();
            let mut expected = Vec::new();
            for line in 0..200 {
                let data = pattern(rounds ^ line << 8, 100);
                assert_eq!(pool.write(opened.handle, &data, expected.len() as u64, false), Ok(100));
                expected.extend_from_slice(&data);
            }
            assert_eq!(pool.getattr(attr.node).unwrap().meta.size, expected.len() as u64);
            pool.release(opened.handle).unwrap();
            assert_eq!(contents(pool, attr.node), expected, "round {rounds}");
            pool.unlink(NodeId::ROOT, OsStr::new(&name)).unwrap();
            rounds += 1;
        }
        stop.store(true, Ordering::Relaxed);
        println!("{rounds} rounds");
    });
    let left = scene.metric("umbrella_staging_left_count");
    assert!(left > 10, "{left} files left while they were written");
}

#[test]
fn a_sync_says_so_when_a_staged_file_finds_no_branch() {
    let mut scene = Scene::new(small_area());
    scene.put("file", b"homeless");
    scene.put("other", b"homeless as well");
    for branch in [0, 1, 2] {
        // All but one can be away at a time; here they vanish together.
        std::fs::rename(scene.bench.root().join(BRANCHES[branch]), scene.bench.root().join(format!("away-{branch}")))
            .ok();
    }
    rustix::mount::unmount(scene.bench.branch(2), rustix::mount::UnmountFlags::DETACH).ok();
    scene.bench.mounts.pop();
    scene.pool.probe_now();
    assert!(matches!(scene.pool.sync_all(), Err(OpError::Offline)), "nothing is there to go to");
    let stuck = || -> Vec<String> {
        scene.pool.status().warnings.into_iter().filter(|warning| warning.contains("cannot leave")).collect()
    };
    assert!(matches!(&stuck()[..], [warning] if warning.contains("and another file")), "{:?}", stuck());
    scene.pool.unlink(NodeId::ROOT, OsStr::new("other")).unwrap();
    assert!(matches!(&stuck()[..], [warning] if warning.contains("file cannot leave")), "{:?}", stuck());
    assert_eq!(scene.holders("file"), STAGED);
    for branch in [0, 1] {
        std::fs::rename(scene.bench.root().join(format!("away-{branch}")), scene.bench.root().join(BRANCHES[branch]))
            .unwrap();
    }
    scene.pool.probe_now();
    assert_eq!(scene.pool.sync_all(), Ok(()));
    assert_eq!(scene.holders("file"), ["fast"]);
    assert!(stuck().is_empty(), "{:?}", stuck());
}
