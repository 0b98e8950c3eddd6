//! Moves and those who use the same disks: moves take turns, and give way to everybody else.

use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::thread::JoinHandle;

use crate::append;
use crate::support::disk::Disk;
use crate::support::pool::Pool;
use crate::support::tree::names;
use crate::support::{MIB, bytes, eventually};

const RESTS: &str = "umbrella_relocations_rests_count";
const TO_TARGET: &str = "[[rule]]\nname = \"all\"\nwhen = { path = \"/**\" }\nto = [\"target\"]\n";

/// Threads that read from a disk all the time, until this is dropped.
struct Readers {
    over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

#[repr(align(4096))]
struct Aligned([u8; 64 << 10]);

impl Readers {
    fn of(disk: &Disk) -> Readers {
        let over = Arc::new(AtomicBool::new(false));
        let begun = Arc::new(Barrier::new(3));
        let read = |over: Arc<AtomicBool>, begun: Arc<Barrier>, device: File| {
            let mut buffer = Box::new(Aligned([0; 64 << 10]));
            let mut read = |at: u64| device.read_at(&mut buffer.0, at % 64 * (64 << 10)).unwrap();
            read(0);
            begun.wait();
            for at in (1..).take_while(|_| !over.load(Ordering::Relaxed)) {
                read(at);
            }
        };
        let threads = (0..2).map(|_| {
            let device = OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(disk.device()).unwrap();
            let (over, begun) = (Arc::clone(&over), Arc::clone(&begun));
            std::thread::spawn(move || read(over, begun, device))
        });
        let threads = threads.collect();
        begun.wait();
        Readers { over, threads }
    }

    /// Ends them. None may have failed.
    fn end(mut self) {
        self.over.store(true, Ordering::Relaxed);
        self.threads.drain(..).for_each(|thread| thread.join().unwrap());
    }
}

impl Drop for Readers {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

/// A pool with a file of 48 MiB on `source` that belongs on `target`.
fn pool() -> (Pool, [Disk; 2]) {
    let disks = [Disk::ext4(128 * MIB), Disk::ext4(128 * MIB)];
    fs::write(disks[0].join("film"), bytes(1, 48 * MIB)).unwrap();
    let pool =
        Pool::builder().branch("source", disks[0].path()).branch("target", disks[1].path()).rules(TO_TARGET).mount();
    (pool, disks)
}

#[test]
fn a_move_rests_while_others_read_from_its_disks_and_comes_to_its_end_all_the_same() {
    for busy in [0, 1] {
        let (pool, disks) = pool();
        let readers = Readers::of(&disks[busy]);
        assert_eq!(pool.enforce().files_moved, 1, "they read on all the time");
        readers.end();
        assert!(pool.metric(RESTS) > 0, "disk {busy}");
        pool.expect_on("target", "film");
        assert!(fs::read(pool.join("film")).unwrap() == bytes(1, 48 * MIB));
    }
}

#[test]
fn what_is_written_while_a_move_rests_is_not_lost() {
    let (pool, disks) = pool();
    let readers = Readers::of(&disks[0]);
    let mut walk = pool.command().args(["enforce", "--json"]).stdout(std::process::Stdio::null()).spawn().unwrap();
    eventually("it is being copied", || !names(&disks[1].join(".umbrella/tmp")).is_empty());
    append(&pool.join("film"), b"written meanwhile").unwrap();
    drop(readers);
    walk.wait().unwrap();
    pool.settle_closed();
    let mut expected = bytes(1, 48 * MIB);
    expected.extend(b"written meanwhile");
    assert!(fs::read(pool.join("film")).unwrap() == expected);
    assert_eq!(pool.found_on("film").len(), 1);
}

#[test]
fn an_unmount_ends_a_move_at_its_next_piece_and_the_next_mount_goes_on() {
    let disks = [Disk::ext4(256 * MIB), Disk::ext4(256 * MIB)];
    let mut pool = Pool::builder().branch("source", disks[0].path()).branch("target", disks[1].path()).mount();
    fs::write(pool.join("film"), bytes(1, 160 * MIB)).unwrap();
    pool.settle_closed();
    pool.load_rules(TO_TARGET);
    // Twenty pieces, and a rest of more than a second after each.
    let readers = Readers::of(&disks[0]);
    append(&pool.join("film"), b"more").unwrap();
    eventually("it is being copied", || !names(&disks[1].join(".umbrella/tmp")).is_empty());
    pool.stop();
    assert_eq!(fs::metadata(disks[0].join("film")).unwrap().len(), 160 * MIB + 4);
    assert!(!disks[1].join("film").exists());
    assert_eq!(names(&disks[1].join(".umbrella/tmp")), Vec::<String>::new());
    drop(readers);
    pool.start();
    pool.expect_on("target", "film");
    assert!(fs::read(pool.join("film")).unwrap() == [bytes(1, 160 * MIB), b"more".to_vec()].concat());
}

#[test]
fn moves_of_all_kinds_between_branches_of_one_disk_come_to_their_end() {
    let disks = [Disk::ext4(256 * MIB), Disk::ext4(256 * MIB)];
    let branches = ["a", "b", "c", "d"];
    let at = |branch: usize| disks[branch / 2].join(branches[branch]);
    let mut builder = Pool::builder().default(&["a"]);
    let mut rules = String::new();
    for (number, name) in branches.iter().enumerate() {
        fs::create_dir(at(number)).unwrap();
        builder = builder.branch(name, at(number));
        writeln!(rules, "[[rule]]\nname = \"{name}\"\nwhen = {{ path = \"/{name}/**\" }}\nto = [\"{name}\"]").unwrap();
    }
    // Everything is on the wrong branch, each way in both directions.
    for (number, name) in branches.iter().enumerate() {
        for wrong in (0..4).filter(|wrong| *wrong != number) {
            fs::create_dir_all(at(wrong).join(name)).unwrap();
            for file in 0..6 {
                fs::write(at(wrong).join(name).join(format!("{wrong}-{file}")), bytes(file, 2 * MIB)).unwrap();
            }
        }
    }
    let pool = builder.rules(&rules).mount();
    let file = |name: &str, wrong: usize, file: u64| format!("{name}/{wrong}-{file}");
    std::thread::scope(|scope| {
        scope.spawn(|| pool.enforce());
        scope.spawn(|| pool.enforce());
        scope.spawn(|| {
            for number in 0..6 {
                for (right, name) in branches.iter().enumerate() {
                    for wrong in (0..4).filter(|wrong| *wrong != right) {
                        append(&pool.join(file(name, wrong, number)), b"more").unwrap();
                    }
                }
            }
        });
    });
    pool.settle_closed();
    // What was open when the walks came by.
    pool.enforce();
    for (right, name) in branches.iter().enumerate() {
        for wrong in (0..4).filter(|wrong| *wrong != right) {
            for number in 0..6 {
                let path = file(name, wrong, number);
                assert_eq!(pool.found_on(&path), [*name], "{path}");
                assert!(fs::read(pool.join(&path)).unwrap() == [bytes(number, 2 * MIB), b"more".to_vec()].concat());
            }
        }
    }
    let left = |dir: &Path| names(&dir.join(".umbrella/tmp"));
    assert!((0..4).all(|branch| left(&at(branch)).is_empty()));
}
