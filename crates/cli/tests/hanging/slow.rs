//! A branch that is slow, and answers: who needs it waits, and nobody else.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};

use nix::sys::signal::Signal;

use crate::support::disk::Disk;
use crate::support::foreign::{HELD, Mirror, Tampered, delay_of};
use crate::support::pool::Pool;
use crate::support::process::{signal, thread_id, wait_for_call};
use crate::support::{MIB, TIMEOUT, bytes, eventually, poll};
use crate::{alone, wait_until};

/// Patient with the mirror, and with so few threads that each that waits is missed.
const KEYS: &str = "threads = 2\nprobe_interval = \"200ms\"\nprobe_timeout = \"600s\"\ncache_timeout = \"0s\"";

/// A pool whose files go to a small branch first, and to a mirror when that is full; those with "new" in their names go
/// elsewhere.
fn overflowing() -> (Disk, Disk, Mirror, Pool) {
    let (small, spare, mirror) = (Disk::tmpfs(16 * MIB), Disk::tmpfs(16 * MIB), Mirror::new());
    let pool = Pool::builder()
        .branch_with("small", small.path(), "passthrough = false")
        .branches([("mirror", mirror.path()), ("spare", spare.path())])
        .default(&["small", "mirror"])
        .rules(
            "[[rule]]\nname = \"by name\"\nmatch = [{ glob = \"/**/new*\", to = [\"spare\", \"default\", \"any\"] }]\n",
        )
        .keys(KEYS)
        .mount();
    fs::create_dir(pool.join("dir")).unwrap();
    (small, spare, mirror, pool)
}

/// Whether a copy to the mirror is under way.
fn is_copied(mirror: &Mirror) -> bool {
    fs::read_dir(mirror.below().join(".umbrella/tmp")).unwrap().next().is_some()
}

fn wait_for_copy(mirror: &Mirror) {
    assert!(poll(TIMEOUT, || is_copied(mirror).then_some(())).is_some(), "no copy begins");
}

/// The tree can be changed, names above all.
fn others_go_on(pool: &Pool, round: u32) {
    fs::rename(pool.join("dir"), pool.join("other")).unwrap();
    fs::write(pool.join(format!("other/new-{round}")), "new").unwrap();
    assert_eq!(fs::read(pool.join(format!("other/new-{round}"))).unwrap(), b"new");
    fs::rename(pool.join("other"), pool.join("dir")).unwrap();
}

#[test]
fn others_continue_while_many_wait_for_a_file_that_overflows() {
    let _alone = alone();
    let (_small, _spare, mirror, pool) = overflowing();
    let mut file = File::create(pool.join("dir/file")).unwrap();
    let content = bytes(1, 12 * MIB);
    file.write_all(&content).unwrap();
    let delayed = mirror.hold_copies(pool.pid());
    let more = bytes(2, 8 * MIB);
    let rest = more.clone();
    let writer = thread::spawn(move || file.write_all(&rest));
    wait_for_copy(&mirror);
    let other = pool.join("dir/other");
    fs::write(&other, bytes(3, 100_000)).unwrap();
    // Past the page cache: the daemon is asked for each. More than the kernel has in the background by itself.
    let direct = OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(pool.join("dir/file")).unwrap();
    let readers: Vec<_> = (0..100)
        .map(|i| {
            let file = direct.try_clone().unwrap();
            thread::spawn(move || {
                let mut got = vec![0; 4096];
                file.read_exact_at(&mut got, i * 4096).map(|()| got)
            })
        })
        .collect();
    // Opened before the directory has another name for a moment.
    let cut = OpenOptions::new().write(true).open(pool.join("dir/file")).unwrap();
    let cut = thread::spawn(move || cut.set_len(20 * MIB));
    for round in 0..5 {
        others_go_on(&pool, round);
    }
    let mut got = vec![0; 4096];
    let direct = OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(&other).unwrap();
    direct.read_exact_at(&mut got, 0).unwrap();
    assert!(is_copied(&mirror), "it is still on its way");
    drop(delayed);
    writer.join().unwrap().unwrap();
    cut.join().unwrap().unwrap();
    for (i, reader) in readers.into_iter().enumerate() {
        assert!(reader.join().unwrap().unwrap() == content[i * 4096..][..4096], "reader {i}");
    }
    assert!(fs::read(pool.join("dir/file")).unwrap() == [content, more].concat());
    pool.expect_on("mirror", "dir/file");
    // Those of rings stay: an entry is never given back.
    let stays = |task: &fs::DirEntry| {
        fs::read_to_string(task.path().join("comm")).is_ok_and(|comm| comm.starts_with("fuse-ring"))
    };
    let tasks = format!("/proc/{}/task", pool.pid());
    eventually("threads that are not needed any more end", || {
        fs::metadata(&other).unwrap();
        fs::read_dir(&tasks).unwrap().filter(|task| !task.as_ref().is_ok_and(stays)).count() < 60
    });
}

/// A process that opens it to write waits for the copy, and does not spoil it.
#[test]
fn a_file_overflows_however_often_others_open_it_meanwhile() {
    let _alone = alone();
    let (_small, _spare, mirror, pool) = overflowing();
    let path = pool.join("dir/file");
    let mut file = File::create(&path).unwrap();
    let content = bytes(1, 20 * MIB);
    file.write_all(&content[..12 << 20]).unwrap();
    let delayed = mirror.hold_copies(pool.pid());
    let rest = content[12 << 20..].to_vec();
    let writer = thread::spawn(move || file.write_all(&rest));
    wait_for_copy(&mirror);
    for _ in 0..30 {
        drop(OpenOptions::new().append(true).open(&path).unwrap());
    }
    assert!(is_copied(&mirror), "it is still on its way");
    drop(delayed);
    writer.join().unwrap().unwrap();
    assert_eq!(pool.metric("umbrella_copies_cancelled_count"), 0);
    assert!(fs::read(&path).unwrap() == content);
}

/// A file without a name that is on its way to the mirror: its contents at the end, and the thread that writes their
/// rest.
fn unlinked_that_overflows(mirror: &Mirror, pool: &Pool) -> (File, Vec<u8>, JoinHandle<io::Result<()>>, Tampered) {
    let path = pool.join("dir/file");
    let mut file = OpenOptions::new().read(true).write(true).create_new(true).open(&path).unwrap();
    let content = bytes(1, 20 * MIB);
    file.write_all(&content[..12 << 20]).unwrap();
    fs::remove_file(&path).unwrap();
    let delayed = mirror.hold_copies(pool.pid());
    let (mut writes, rest) = (file.try_clone().unwrap(), content[12 << 20..].to_vec());
    let writer = thread::spawn(move || writes.write_all(&rest));
    wait_for_copy(mirror);
    (file, content, writer, delayed)
}

#[test]
fn others_continue_while_an_unlinked_file_overflows() {
    let _alone = alone();
    let (_small, _spare, mirror, pool) = overflowing();
    let (file, content, writer, delayed) = unlinked_that_overflows(&mirror, &pool);
    for round in 0..5 {
        assert!(file.metadata().unwrap().len() >= 12 * MIB, "it can be looked at");
        others_go_on(&pool, round);
    }
    assert!(is_copied(&mirror), "it is still on its way");
    drop(delayed);
    writer.join().unwrap().unwrap();
    let mut seen = vec![0; content.len()];
    file.read_exact_at(&mut seen, 0).unwrap();
    assert!(seen == content);
    assert!(!is_copied(&mirror), "nothing is left of the copy's name");
}

#[test]
fn who_opens_an_unlinked_file_while_it_overflows_goes_along() {
    let _alone = alone();
    let (_small, _spare, mirror, pool) = overflowing();
    let (file, content, writer, delayed) = unlinked_that_overflows(&mirror, &pool);
    let again = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
    let reads = File::open(&again).unwrap();
    let writes = OpenOptions::new().write(true).open(&again).unwrap();
    assert!(is_copied(&mirror), "it is still on its way");
    drop(delayed);
    writer.join().unwrap().unwrap();
    writes.write_all_at(b"changed", 1).unwrap();
    let mut expected = content;
    expected[1..8].copy_from_slice(b"changed");
    for file in [&reads, &file] {
        let mut seen = vec![0; expected.len()];
        file.read_exact_at(&mut seen, 0).unwrap();
        assert!(seen == expected);
    }
}

#[test]
fn a_move_between_local_branches_does_not_wait_for_a_slow_one() {
    let _alone = alone();
    let (a, c, mirror) = (Disk::tmpfs(64 * MIB), Disk::tmpfs(32 * MIB), Mirror::new());
    let rules = "[[rule]]\nname = \"by name\"\nmatch = [{ glob = \"/**.b\", to = [\"b\", \"default\", \"any\"] }, { glob = \"/**.c\", to = [\"c\", \"default\", \"any\"] }]\n";
    let pool = Pool::builder()
        .branches([("a", a.path()), ("b", mirror.path()), ("c", c.path())])
        .default(&["a"])
        .rules(rules)
        .keys(KEYS)
        .mount();
    wait_until(&pool, "b", true);
    fs::write(pool.join("big"), bytes(8, 20 * MIB)).unwrap();
    fs::write(pool.join("small"), "small").unwrap();
    pool.settle();
    let delayed = mirror.hold_copies(pool.pid());
    fs::rename(pool.join("big"), pool.join("big.b")).unwrap();
    wait_for_copy(&mirror);
    fs::rename(pool.join("small"), pool.join("small.c")).unwrap();
    eventually("the next file moves", || c.join("small.c").exists() && !a.join("small.c").exists());
    assert!(a.join("big.b").exists(), "the other is still on its way");
    drop(delayed);
    pool.settle();
    pool.expect_on("b", "big.b");
    assert!(fs::read(pool.join("big.b")).unwrap() == bytes(8, 20 * MIB));
}

#[test]
fn names_can_change_while_a_directory_waits_for_a_slow_commit() {
    let _alone = alone();
    let (local, mirror) = (Disk::tmpfs(32 * MIB), Mirror::new());
    let rule = "[[rule]]\nname = \"large\"\nwhen = { size = \">= 64KiB\" }\nto = [\"mirror\", \"default\", \"any\"]\n";
    let builder = Pool::builder().branch("local", local.path()).branch("mirror", mirror.path());
    let pool = builder.default(&["local"]).rules(rule).keys(KEYS).mount();
    for dir in ["of file", "renamed", "elsewhere"] {
        fs::create_dir(pool.join(dir)).unwrap();
    }
    let delayed = mirror.hold_commits(pool.pid());
    fs::write(pool.join("of file/file"), bytes(1, 200_000)).unwrap();
    let intents = mirror.below().join(".umbrella/intents");
    let is_committed = || {
        fs::read_dir(&intents).unwrap().any(|entry| !entry.unwrap().file_name().to_string_lossy().starts_with("new-"))
    };
    assert!(poll(TIMEOUT, || is_committed().then_some(())).is_some(), "the commit has begun");
    // Far more than the daemon has threads.
    let (tell, callers) = mpsc::channel();
    let waiting: Vec<_> = (0..40)
        .map(|i| {
            let (path, tell) = (pool.join("of file/file"), tell.clone());
            thread::spawn(move || {
                tell.send(thread_id()).unwrap();
                if i % 2 == 0 { fs::metadata(path).map(drop) } else { File::open(path).map(drop) }
            })
        })
        .collect();
    for caller in callers.iter().take(waiting.len()) {
        wait_for_call(caller, &[libc::SYS_statx, libc::SYS_openat]);
    }
    let (from, to) = (pool.join("renamed"), pool.join("to"));
    let rename = thread::spawn(move || fs::rename(from, to));
    for i in 0..20 {
        fs::write(pool.join(format!("elsewhere/{i}")), "x").unwrap();
    }
    assert!(is_committed(), "it is not over yet");
    drop(delayed);
    rename.join().unwrap().unwrap();
    for waiting in waiting {
        waiting.join().unwrap().unwrap();
    }
    assert!(pool.join("to").exists());
    pool.settle();
    pool.expect_on("mirror", "of file/file");
}

/// Nobody is kept from names by the syncs of a directory that a move needs on its new branch.
#[test]
fn names_can_change_while_the_directories_of_a_move_are_synced() {
    let _alone = alone();
    let (a, b) = (Disk::tmpfs(32 * MIB), Disk::tmpfs(32 * MIB));
    let rule = "[[rule]]\nname = \"large\"\nwhen = { size = \">= 64KiB\" }\nto = [\"b\", \"default\", \"any\"]\n";
    let pool =
        Pool::builder().branch("a", a.path()).branch("b", b.path()).default(&["a"]).rules(rule).keys(KEYS).mount();
    for dir in ["of file/inner", "renamed"] {
        fs::create_dir_all(pool.join(dir)).unwrap();
    }
    let delayed = delay_of(pool.pid(), &b.join("of file"), "fsync", HELD);
    fs::write(pool.join("of file/inner/file"), bytes(1, 200_000)).unwrap();
    assert!(poll(TIMEOUT, || b.join("of file/inner").exists().then_some(())).is_some(), "its directory is made");
    fs::rename(pool.join("renamed"), pool.join("to")).unwrap();
    fs::write(pool.join("to/file"), "x").unwrap();
    assert!(!b.join("of file/inner/file").exists(), "its directories are being synced");
    drop(delayed);
    pool.settle();
    pool.expect_on("b", "of file/inner/file");
}

/// What it left half done is put right where no caller waits for it.
#[test]
fn a_branch_that_comes_back_and_is_slow_does_not_stop_the_others() {
    let _alone = alone();
    let (local, mut mirror) = (Disk::tmpfs(32 * MIB), Mirror::new());
    let keys = "probe_interval = \"200ms\"\nprobe_timeout = \"3s\"\non_branch_error = \"skip\"\ncache_timeout = \"0s\"";
    let builder = Pool::builder().branch("local", local.path()).branch("mirror", mirror.path());
    let pool = builder.default(&["local"]).keys(keys).mount();
    fs::write(pool.join("file"), "x").unwrap();
    mirror.kill();
    wait_until(&pool, "mirror", false);
    // The pool must not look at the branch before it is slow.
    signal(pool.pid(), Signal::SIGSTOP);
    mirror.start();
    // Nothing else lists directories there.
    let delayed = mirror.delay("getdents64", "delay_enter", HELD);
    signal(pool.pid(), Signal::SIGCONT);
    eventually("the branch is given up", || {
        fs::write(pool.join("file"), "y").unwrap();
        pool.log().contains("does not answer")
    });
    for _ in 0..60 {
        fs::write(pool.join("file"), "z").unwrap();
    }
    assert!(!pool.is_online("mirror"), "it is still slow");
    drop(delayed);
    wait_until(&pool, "mirror", true);
}
