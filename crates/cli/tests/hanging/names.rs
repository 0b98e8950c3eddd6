//! Changes of names over several branches, one of which hangs or dies in the middle. The caller gets an answer, other
//! callers continue, and when the branch is back it has the same names.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::thread::{self, JoinHandle};

use nix::fcntl::RenameFlags;
use nix::sys::signal::Signal;

use crate::support::disk::Disk;
use crate::support::foreign::{HELD, Mirror};
use crate::support::pool::Pool;
use crate::support::process::signal;
use crate::support::tree::names;
use crate::support::{MIB, TIMEOUT, eventually, poll};
use crate::{B_BY_NAME, alone, stop, wait_until};

const KEYS: &str =
    "probe_interval = \"200ms\"\nprobe_timeout = \"1s\"\non_branch_error = \"skip\"\ncache_timeout = \"0s\"";
const RENAMES: &str = "rename,renameat,renameat2";

/// Branch `a` is local, `b` a mirror.
fn pool() -> (Disk, Mirror, Pool) {
    let (local, mirror) = (Disk::ext4(32 * MIB), Mirror::new());
    let builder = Pool::builder().branch("a", local.path()).branch("b", mirror.path());
    let pool = builder.default(&["a"]).rules(B_BY_NAME).keys(KEYS).mount();
    (local, mirror, pool)
}

/// A directory that both have, with a file on each.
fn make_dir(pool: &Pool, dir: &str) {
    fs::create_dir(pool.join(dir)).unwrap();
    fs::write(pool.join(format!("{dir}/on-a")), dir).unwrap();
    fs::write(pool.join(format!("{dir}/on.b")), dir).unwrap();
    pool.expect_on("b", format!("{dir}/on.b"));
}

fn wait_for(what: &str, done: impl Fn() -> bool) {
    assert!(poll(TIMEOUT, || done().then_some(())).is_some(), "{what}");
}

/// What was answered, while the branch still hangs.
fn answer<T>(call: JoinHandle<T>) -> T {
    wait_for("there is an answer", || call.is_finished());
    call.join().unwrap()
}

fn nothing_is_left_to_settle(local: &Disk, mirror: &Mirror) {
    for root in [local.path(), mirror.below()] {
        let intents = root.join(".umbrella/intents");
        eventually("nothing is left to settle", || names(&intents).is_empty());
    }
}

fn exchange(one: &Path, other: &Path) -> nix::Result<()> {
    nix::fcntl::renameat2(nix::fcntl::AT_FDCWD, one, nix::fcntl::AT_FDCWD, other, RenameFlags::RENAME_EXCHANGE)
}

#[test]
fn a_directory_has_its_new_name_although_one_of_its_branches_hangs_in_the_middle() {
    let _alone = alone();
    let (local, mirror, pool) = pool();
    make_dir(&pool, "old");
    let slow = mirror.delay(RENAMES, "delay_enter", HELD);
    let (from, to) = (pool.join("old"), pool.join("new"));
    let renames = thread::spawn(move || fs::rename(from, to));
    wait_for("it has its name on the other branch", || local.join("new").exists());
    stop(&mirror, slow);
    answer(renames).unwrap();
    assert_eq!(names(&pool.join("new")), ["on-a"]);
    assert!(!pool.join("old").exists());
    fs::write(pool.join("new/later"), "x").unwrap();
    wait_until(&pool, "b", false);

    signal(mirror.pid(), Signal::SIGCONT);
    wait_until(&pool, "b", true);
    eventually("its file is there", || fs::read(pool.join("new/on.b")).is_ok_and(|data| data == b"old"));
    assert_eq!(names(&pool.join("new")), ["later", "on-a", "on.b"]);
    assert!(!pool.join("old").exists() && !mirror.below().join("old").exists());
    nothing_is_left_to_settle(&local, &mirror);
}

/// Whatever the old name is used for before the branch is back.
#[test]
fn a_directory_has_its_new_name_although_one_of_its_branches_dies_before_it_has_renamed_it() {
    let _alone = alone();
    let (local, mut mirror, pool) = pool();
    make_dir(&pool, "old");
    let slow = mirror.delay(RENAMES, "delay_enter", HELD);
    let (from, to) = (pool.join("old"), pool.join("new"));
    let renames = thread::spawn(move || fs::rename(from, to));
    wait_for("it has its name on the other branch", || local.join("new").exists());
    signal(mirror.pid(), Signal::SIGKILL);
    drop(slow);
    mirror.kill();
    answer(renames).unwrap();
    fs::create_dir(pool.join("old")).unwrap();
    fs::write(pool.join("old/another"), "x").unwrap();

    mirror.start();
    wait_until(&pool, "b", true);
    eventually("its file is there", || fs::read(pool.join("new/on.b")).is_ok_and(|data| data == b"old"));
    assert_eq!(names(&pool.join("new")), ["on-a", "on.b"]);
    assert_eq!(names(&pool.join("old")), ["another"]);
    nothing_is_left_to_settle(&local, &mirror);
}

#[test]
fn directories_have_changed_names_although_a_branch_died_with_its_answer() {
    let _alone = alone();
    let (local, mut mirror, pool) = pool();
    make_dir(&pool, "one");
    // On the local branch only: the mirror can give a new name, and cannot exchange two.
    fs::create_dir(pool.join("other")).unwrap();
    fs::write(pool.join("other/on-a"), "other").unwrap();
    let slow = mirror.delay(RENAMES, "delay_exit", HELD);
    let (one, other) = (pool.join("one"), pool.join("other"));
    let exchanges = thread::spawn(move || exchange(&one, &other));
    let below = mirror.below().join("other/on.b");
    wait_for("it is done on the branch", || below.exists());
    signal(mirror.pid(), Signal::SIGKILL);
    drop(slow);
    mirror.kill();
    answer(exchanges).unwrap();
    assert_eq!(fs::read(pool.join("one/on-a")).unwrap(), b"other");
    wait_until(&pool, "b", false);

    mirror.start();
    wait_until(&pool, "b", true);
    for (file, content) in [("one/on-a", "other"), ("other/on-a", "one"), ("other/on.b", "one")] {
        eventually("it is there", || fs::read_to_string(pool.join(file)).is_ok_and(|data| data == content));
    }
    assert!(!pool.join("one/on.b").exists());
    nothing_is_left_to_settle(&local, &mirror);
}

#[test]
fn a_file_replaces_one_whose_branch_hangs() {
    let _alone = alone();
    let (local, mirror, pool) = pool();
    fs::write(pool.join("file"), "new").unwrap();
    fs::write(pool.join("file.b"), "old").unwrap();
    pool.expect_on("b", "file.b");
    let slow = mirror.delay("unlink,unlinkat", "delay_enter", HELD);
    let (from, to) = (pool.join("file"), pool.join("file.b"));
    let renames = thread::spawn(move || fs::rename(from, to));
    wait_for("it has its name", || local.join("file.b").exists());
    stop(&mirror, slow);
    answer(renames).unwrap();
    assert_eq!(fs::read(pool.join("file.b")).unwrap(), b"new");
    assert!(!pool.join("file").exists());

    signal(mirror.pid(), Signal::SIGCONT);
    wait_until(&pool, "b", true);
    nothing_is_left_to_settle(&local, &mirror);
    pool.settle();
    assert_eq!(fs::read(pool.join("file.b")).unwrap(), b"new");
    assert!(!local.join("file.b").exists() || !mirror.below().join("file.b").exists(), "one is left");
}

/// The call fails, and what users have is what stays, whatever the branch does when it wakes up.
#[test]
fn a_file_whose_branch_hangs_while_it_replaces_another_is_not_lost() {
    let _alone = alone();
    let (local, mirror, pool) = pool();
    fs::write(pool.join("file.b"), "new").unwrap();
    fs::write(pool.join("file"), "old").unwrap();
    pool.expect_on("b", "file.b");
    let slow = mirror.delay(RENAMES, "delay_enter", HELD);
    let (from, to) = (pool.join("file.b"), pool.join("file"));
    let renames = thread::spawn(move || fs::rename(from, to));
    wait_for("it is recorded", || !names(&local.join(".umbrella/intents")).is_empty());
    stop(&mirror, slow);
    answer(renames).unwrap_err();
    let mut open = fs::File::options().append(true).open(pool.join("file")).unwrap();

    signal(mirror.pid(), Signal::SIGCONT);
    wait_until(&pool, "b", true);
    nothing_is_left_to_settle(&local, &mirror);
    open.write_all(b" and more").unwrap();
    drop(open);
    pool.settle();
    let read = |name| fs::read_to_string(pool.join(name)).unwrap();
    assert_eq!((read("file"), read("file.b")), ("old and more".into(), "new".into()));
}
