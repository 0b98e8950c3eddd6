//! Walks over many small files: they move together, and what cannot move holds nobody.

use std::ffi::OsStr;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::inotify;
use umbrella_fs::control::protocol::EnforceSummary;
use umbrella_fs::pool::{Pool, Replace, WalkOptions};
use umbrella_fs::relocate::{BatchFile, BranchUuid, Fingerprint, Intent, MOST_FILES, MOST_PATH_BYTES};
use umbrella_fs::{Caller, NodeId, calls_on_branches};
use umbrella_units::ByteSize;

use crate::bench::{Bench, Ground, READ, WRITE};

/// Rules that send logs from `fast` to `slow`, and leave the rest where it is.
const LOGS_TO_SLOW: usize = 3;
const FILES: usize = 600;

/// A pool whose branch `fast` has `count` logs, in ten directories.
fn with_logs(count: usize) -> (Bench, Arc<Pool>) {
    // Whatever file system the temporary folder is on: there are batches in memory.
    let bench = Bench::new(Ground::Memory);
    for at in 0..count {
        let path = bench.branch(0).join(log(at));
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, at.to_string()).unwrap();
    }
    let pool = bench.assemble(LOGS_TO_SLOW);
    (bench, pool)
}

fn log(at: usize) -> PathBuf {
    format!("d{}/{at}.log", at % 10).into()
}

fn enforce(pool: &Pool) -> EnforceSummary {
    pool.enforce(WalkOptions::default(), &mut |_| true)
}

fn assert_only_on(bench: &Bench, branch: usize, path: &Path) {
    let on: Vec<_> = (0..2).filter(|branch| bench.branch(*branch).join(path).exists()).collect();
    assert_eq!(on, [branch], "{}", path.display());
}

fn hidden(bench: &Bench) -> Vec<PathBuf> {
    let dirs = (0..2).flat_map(|branch| ["tmp", "intents"].map(|dir| bench.branch(branch).join(".umbrella").join(dir)));
    dirs.flat_map(|dir| std::fs::read_dir(dir).unwrap()).map(|entry| entry.unwrap().path()).collect()
}

/// Files that were made in a directory since it is watched.
fn made(watch: &OwnedFd) -> usize {
    let mut buffer = [MaybeUninit::<u8>::uninit(); 1 << 13];
    let mut reader = inotify::Reader::new(watch, &mut buffer);
    std::iter::from_fn(|| reader.next().ok().map(|_| ())).count()
}

#[test]
fn many_small_files_move_with_few_intents() {
    let (bench, pool) = with_logs(FILES);
    let watch = inotify::init(inotify::CreateFlags::NONBLOCK | inotify::CreateFlags::CLOEXEC).unwrap();
    inotify::add_watch(&watch, bench.branch(1).join(".umbrella/intents"), inotify::WatchFlags::CREATE).unwrap();
    let summary = enforce(&pool);
    assert_eq!((summary.files_moved, summary.files_failed + summary.files_busy), (FILES as u64, 0));
    let intents = made(&watch);
    assert!((1..FILES / 10).contains(&intents), "{intents} intents");
    for at in 0..FILES {
        assert_only_on(&bench, 1, &log(at));
        assert_eq!(std::fs::read_to_string(bench.branch(1).join(log(at))).unwrap(), at.to_string());
    }
    assert_eq!(hidden(&bench), Vec::<PathBuf>::new());
}

#[test]
fn a_file_that_is_open_for_writing_and_one_whose_name_is_taken_hold_no_other_of_their_batch() {
    let (bench, pool) = with_logs(30);
    std::fs::write(bench.branch(0).join("open.log"), "open").unwrap();
    let node = pool.lookup(NodeId::ROOT, OsStr::new("open.log")).unwrap().node;
    let opened = pool.open(node, WRITE).unwrap();
    // Made past the pool, on the branch that is looked at last.
    std::fs::create_dir_all(bench.branch(1).join("d7")).unwrap();
    std::fs::write(bench.branch(1).join(log(7)), "other").unwrap();
    let summary = enforce(&pool);
    assert_eq!((summary.files_moved, summary.files_busy), (29, 1));
    assert_only_on(&bench, 0, Path::new("open.log"));
    assert_eq!(std::fs::read_to_string(bench.branch(1).join(log(7))).unwrap(), "other");
    assert_eq!(std::fs::read_to_string(bench.branch(0).join(log(7))).unwrap(), "7");
    pool.release(opened.handle).unwrap();
    pool.move_all_queued();
    assert_only_on(&bench, 1, Path::new("open.log"));
}

#[test]
fn a_file_of_several_names_a_large_one_and_a_link_move_beside_a_batch() {
    let (bench, pool) = with_logs(30);
    let fast = bench.branch(0);
    std::fs::write(fast.join("one.log"), "two names").unwrap();
    std::fs::hard_link(fast.join("one.log"), fast.join("d1/two.log")).unwrap();
    std::fs::write(fast.join("large.log"), vec![1; 9 << 20]).unwrap();
    std::os::unix::fs::symlink("somewhere", fast.join("link.log")).unwrap();
    let summary = enforce(&pool);
    assert_eq!((summary.files_moved, summary.files_failed + summary.files_busy), (33, 0));
    let slow = bench.branch(1);
    let inode = |name: &str| std::fs::metadata(slow.join(name)).unwrap().ino();
    assert_eq!(inode("one.log"), inode("d1/two.log"));
    assert_eq!(std::fs::metadata(slow.join("large.log")).unwrap().len(), 9 << 20);
    assert_eq!(std::fs::read_link(slow.join("link.log")).unwrap(), Path::new("somewhere"));
    assert_eq!(hidden(&bench), Vec::<PathBuf>::new());
}

#[test]
fn a_node_keeps_its_number_and_its_handle_reads_on_when_its_file_moves_in_a_batch() {
    let (bench, pool) = with_logs(30);
    let dir = pool.lookup(NodeId::ROOT, OsStr::new("d3")).unwrap().node;
    let before = pool.lookup(dir, OsStr::new("3.log")).unwrap();
    let opened = pool.open(before.node, READ).unwrap();
    assert_eq!(enforce(&pool).files_moved, 30);
    let after = pool.lookup(dir, OsStr::new("3.log")).unwrap();
    assert_eq!((before.node, before.ino), (after.node, after.ino));
    let mut buffer = [0; 16];
    assert_eq!(pool.read(opened.handle, &mut buffer, 0), Ok(1));
    assert_eq!(buffer[0], b'3');
    pool.release(opened.handle).unwrap();
    assert_only_on(&bench, 1, &log(3));
}

#[test]
fn a_walk_that_is_stopped_leaves_each_file_once_and_nothing_half_made() {
    let (bench, pool) = with_logs(FILES);
    let walk = WalkOptions { bandwidth: Some(ByteSize(600)), ..WalkOptions::default() };
    let mut told = 0;
    let summary = pool.enforce(walk, &mut |progress| {
        told += 1;
        progress.files_seen < 300 && told < 100
    });
    assert!(summary.stopped);
    for at in 0..FILES {
        let on = (0..2).filter(|branch| bench.branch(*branch).join(log(at)).exists()).count();
        assert_eq!(on, 1, "{at}");
    }
    assert_eq!(hidden(&bench), Vec::<PathBuf>::new());
    assert_eq!(enforce(&pool).files_moved + summary.files_moved, FILES as u64);
}

#[test]
fn names_that_users_change_while_files_move_in_batches_are_as_users_left_them() {
    let (bench, pool) = with_logs(FILES);
    let dirs: Vec<_> =
        (0..10).map(|at| pool.lookup(NodeId::ROOT, OsStr::new(&format!("d{at}"))).unwrap().node).collect();
    std::thread::scope(|scope| {
        let walk = scope.spawn(|| while enforce(&pool).files_moved > 0 {});
        for at in 0..FILES {
            let (dir, name) = (dirs[at % 10], format!("{at}.log"));
            match at % 3 {
                0 => pool.unlink(dir, OsStr::new(&name)).unwrap(),
                1 => {
                    let new = format!("new-{at}.log");
                    let replace = umbrella_fs::pool::Replace::No;
                    pool.rename(dir, OsStr::new(&name), dirs[(at + 1) % 10], OsStr::new(&new), replace).unwrap();
                }
                _ => {
                    let (attr, opened) =
                        pool.create(dir, OsStr::new(&format!("made-{at}")), 0o600, Caller::ROOT, WRITE).unwrap();
                    pool.release(opened.handle).unwrap();
                    pool.forget(attr.node, 1);
                }
            }
        }
        walk.join().unwrap();
    });
    for at in 0..FILES {
        let places = [log(at), format!("d{}/new-{at}.log", (at + 1) % 10).into()];
        let on = |path: &PathBuf| (0..2).filter(|branch| bench.branch(*branch).join(path).exists()).count();
        let expected = [[0, 0], [0, 1], [1, 0]][at % 3];
        assert_eq!(places.each_ref().map(on), expected, "{at}");
    }
    assert_eq!(hidden(&bench), Vec::<PathBuf>::new());
}

/// While it lives, nobody gets a directory opened for reading or for a sync.
struct HeldOpens(OwnedFd);

impl HeldOpens {
    fn of(dir: &Path) -> HeldOpens {
        let path = std::ffi::CString::new(dir.as_os_str().as_bytes()).unwrap();
        // SAFETY: no memory is handed over, and nobody else has the new descriptor.
        let group = unsafe {
            let group = libc::fanotify_init(libc::FAN_CLASS_CONTENT | libc::FAN_CLOEXEC, libc::O_RDONLY as u32);
            assert!(group >= 0, "{}", std::io::Error::last_os_error());
            OwnedFd::from_raw_fd(group)
        };
        let events = libc::FAN_OPEN_PERM | libc::FAN_ONDIR;
        // SAFETY: the path lives as long as the call.
        let marked = unsafe {
            libc::fanotify_mark(group.as_raw_fd(), libc::FAN_MARK_ADD, events, libc::AT_FDCWD, path.as_ptr())
        };
        assert_eq!(marked, 0, "{}", std::io::Error::last_os_error());
        HeldOpens(group)
    }

    /// Until somebody wants to open it.
    fn wait(&self) {
        let mut group = [rustix::event::PollFd::new(&self.0, rustix::event::PollFlags::IN)];
        let minute = rustix::event::Timespec { tv_sec: 60, tv_nsec: 0 };
        assert_eq!(rustix::event::poll(&mut group, Some(&minute)), Ok(1), "nobody opens it");
    }
}

#[test]
fn a_file_of_a_batch_is_renamed_once_it_is_durable_that_it_left_its_old_branch() {
    let (bench, pool) = with_logs(60);
    let dir = pool.lookup(NodeId::ROOT, OsStr::new("d3")).unwrap().node;
    // The batch opens it at its end.
    let held = HeldOpens::of(&bench.branch(0).join(".umbrella/tmp"));
    std::thread::scope(|scope| {
        let walk = scope.spawn(|| enforce(&pool).files_moved);
        held.wait();
        let calls_of_rename = |at: u32| {
            let (from, to) = (format!("{at}.log"), format!("new-{at}.log"));
            pool.lookup(dir, OsStr::new(&from)).unwrap();
            let before = calls_on_branches();
            pool.rename(dir, OsStr::new(&from), dir, OsStr::new(&to), Replace::Yes).unwrap();
            calls_on_branches() - before
        };
        let [first, second, third] = [3, 13, 23].map(calls_of_rename);
        assert_eq!((first, second), (third + 1, third), "the first syncs the directory on the old branch");
        let renamed_dir = scope.spawn(|| {
            pool.rename(NodeId::ROOT, OsStr::new("d4"), NodeId::ROOT, OsStr::new("new"), Replace::No).unwrap();
        });
        std::thread::sleep(std::time::Duration::from_millis(100));
        assert!(!renamed_dir.is_finished(), "a directory waits for the end of the batch");
        drop(held);
        renamed_dir.join().unwrap();
        assert_eq!(walk.join().unwrap(), 60);
    });
    assert_only_on(&bench, 1, Path::new("d3/new-3.log"));
    assert_only_on(&bench, 1, Path::new("new/4.log"));
    assert_eq!(hidden(&bench), Vec::<PathBuf>::new());
}

#[test]
fn a_pool_that_ends_begins_no_move() {
    for count in [1, 3] {
        let (bench, pool) = with_logs(0);
        for at in 0..count {
            crate::races::put(&pool, NodeId::ROOT, &format!("{at}.txt"), b"data");
            let (from, to) = (format!("{at}.txt"), format!("{at}.log"));
            pool.rename(NodeId::ROOT, OsStr::new(&from), NodeId::ROOT, OsStr::new(&to), Replace::Yes).unwrap();
        }
        pool.shut_down();
        pool.move_all_queued();
        for at in 0..count {
            // The first branch of the default list.
            assert!(bench.branch(2).join(format!("{at}.log")).exists(), "{at}.log has moved");
        }
        assert_eq!(hidden(&bench), Vec::<PathBuf>::new());
    }
}

#[test]
fn the_largest_batch_fits_in_an_intent() {
    let file = |path: Vec<u8>| {
        let temp = format!("move-{}-{}", 1 << 22, u64::MAX).into_bytes();
        BatchFile { path, temp, source: Fingerprint::default(), target: Fingerprint::default() }
    };
    let mut files = vec![file(vec![b'x'; MOST_PATH_BYTES / MOST_FILES]); MOST_FILES - 1];
    // The path that ends it may be as long as any.
    files.push(file([b"x/".repeat(2_046), b"x".to_vec()].concat()));
    let [from, to] = [1, 2].map(|id| BranchUuid(uuid::Uuid::from_u128(id)));
    let intent = Intent::Moves { from, to, files };
    assert_eq!(Intent::decode(&intent.encode().unwrap()).unwrap(), intent);
}
