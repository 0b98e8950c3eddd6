//! Moves to and from a branch that hangs or dies in the middle: no byte that was synced is lost, and nobody else is in
//! the way.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;

use nix::sys::signal::Signal;

use crate::support::disk::Disk;
use crate::support::foreign::{HELD, Mirror};
use crate::support::pool::Pool;
use crate::support::process::signal;
use crate::support::{MIB, TIMEOUT, bytes, eventually, poll};
use crate::{alone, stop};

const PROBES: &str =
    "probe_interval = \"200ms\"\nprobe_timeout = \"1s\"\non_branch_error = \"skip\"\ncache_timeout = \"0s\"";

/// Files of 64 KiB and more move from `from` to `to`; one of the two is a mirror.
fn pool(local: &Disk, mirror: &Mirror, to_mirror: bool) -> Pool {
    let builder = Pool::builder().branch("local", local.path()).branch("mirror", mirror.path()).keys(PROBES);
    let (from, to) = if to_mirror { ("local", "mirror") } else { ("mirror", "local") };
    let rule = format!(
        "[[rule]]\nname = \"large\"\nwhen = {{ size = \">= 64KiB\" }}\nto = [\"{to}\", \"default\", \"any\"]\n"
    );
    builder.default(&[from]).rules(&rule).mount()
}

fn is_empty(dir: &Path) -> bool {
    fs::read_dir(dir).unwrap().next().is_none()
}

/// Stops the mirror's daemon while a file's move to it has its intent and not yet its name, and opens the file
/// meanwhile.
fn open_while_its_move_hangs(local: &Disk, mirror: &Mirror, pool: &Pool) -> File {
    let slow = mirror.hold_commits(pool.pid());
    fs::write(pool.join("file"), bytes(1, 200_000)).unwrap();
    let intents = mirror.below().join(".umbrella/intents");
    let whole = || {
        fs::read_dir(&intents).unwrap().any(|entry| !entry.unwrap().file_name().to_string_lossy().starts_with("new-"))
    };
    assert!(poll(TIMEOUT, || whole().then_some(())).is_some(), "the move has begun");
    stop(mirror, slow);
    let open = || File::options().read(true).write(true).open(pool.join("file")).ok();
    let file = poll(TIMEOUT, open).expect("it can be opened where it was");
    assert!(local.join("file").exists(), "it is where it was");
    file
}

/// What is written to the open file now is in the file.
fn write_and_compare(mut file: File, pool: &Pool) {
    file.seek(SeekFrom::End(0)).unwrap();
    file.write_all(b"written meanwhile").unwrap();
    file.sync_all().unwrap();
    drop(file);
    let expected = [bytes(1, 200_000), b"written meanwhile".to_vec()].concat();
    let same = |pool: &Pool| fs::read(pool.join("file")).is_ok_and(|found| found == expected);
    assert!(same(pool), "what was synced is there");
    pool.settle();
    assert!(same(pool), "and stays, wherever the file goes");
}

#[test]
fn what_is_written_while_a_move_hangs_is_not_lost_when_the_branch_wakes_up() {
    let _alone = alone();
    let (local, mirror) = (Disk::ext4(32 * MIB), Mirror::new());
    let pool = pool(&local, &mirror, true);
    let file = open_while_its_move_hangs(&local, &mirror, &pool);
    signal(mirror.pid(), Signal::SIGCONT);
    eventually("the branch is back", || pool.is_online("mirror"));
    write_and_compare(file, &pool);
    eventually("nothing is left of the attempt", || is_empty(&mirror.below().join(".umbrella/tmp")));
}

#[test]
fn what_is_deleted_while_a_move_hangs_does_not_return_with_the_branch() {
    let _alone = alone();
    let (local, mirror) = (Disk::ext4(32 * MIB), Mirror::new());
    let pool = pool(&local, &mirror, true);
    drop(open_while_its_move_hangs(&local, &mirror, &pool));
    fs::remove_file(pool.join("file")).unwrap();
    signal(mirror.pid(), Signal::SIGCONT);
    eventually("the branch is back", || pool.is_online("mirror"));
    let hidden = mirror.below().join(".umbrella");
    eventually("nothing is left of the move", || is_empty(&hidden.join("tmp")) && is_empty(&hidden.join("intents")));
    assert!(!pool.join("file").exists() && !mirror.below().join("file").exists());
}

#[test]
fn what_is_written_while_a_move_hangs_is_not_lost_when_the_branch_comes_back() {
    let _alone = alone();
    let (local, mut mirror) = (Disk::ext4(32 * MIB), Mirror::new());
    let pool = pool(&local, &mirror, true);
    let file = open_while_its_move_hangs(&local, &mirror, &pool);
    mirror.kill();
    eventually("the branch is away", || !pool.is_online("mirror"));
    mirror.start();
    eventually("the branch is back", || pool.is_online("mirror"));
    write_and_compare(file, &pool);
}

#[test]
fn a_file_whose_branch_dies_with_the_answer_to_its_unlink_is_where_it_moved_to() {
    let _alone = alone();
    let (local, mut mirror) = (Disk::ext4(32 * MIB), Mirror::new());
    let pool = pool(&local, &mirror, false);
    let slow = mirror.delay("unlink,unlinkat", "delay_exit", HELD);
    let mut file = File::create(pool.join("file")).unwrap();
    file.write_all(&bytes(1, 200_000)).unwrap();
    file.sync_all().unwrap();
    drop(file);
    assert!(mirror.below().join("file").exists());
    let gone = || (!mirror.below().join("file").exists()).then_some(());
    assert!(poll(TIMEOUT, gone).is_some(), "its old name goes");
    signal(mirror.pid(), Signal::SIGKILL);
    drop(slow);
    mirror.kill();
    let mut found = Vec::new();
    eventually("it can be read", || {
        File::open(pool.join("file")).and_then(|mut file| file.read_to_end(&mut found)).is_ok()
    });
    assert!(found == bytes(1, 200_000));
    assert!(pool.is_online("local"), "the other branch is not to blame");
    mirror.start();
    eventually("the branch is back", || pool.is_online("mirror"));
    eventually("nothing is left to settle", || is_empty(&local.join(".umbrella/intents")));
    assert!(fs::read(pool.join("file")).unwrap() == bytes(1, 200_000));
}

#[test]
fn a_branch_that_hangs_when_it_loses_a_file_takes_no_other_along() {
    let _alone = alone();
    let (from, to) = (Mirror::new(), Mirror::new());
    let pool = Pool::builder()
        .branches([("from", from.path()), ("to", to.path())])
        .keys(PROBES)
        .default(&["from"])
        .rules("[[rule]]\nname = \"large\"\nwhen = { size = \">= 64KiB\" }\nto = [\"to\", \"default\", \"any\"]\n")
        .mount();
    let slow = from.delay("unlink,unlinkat", "delay_exit", HELD);
    fs::write(pool.join("file"), bytes(1, 200_000)).unwrap();
    let gone = || (!from.below().join("file").exists()).then_some(());
    assert!(poll(TIMEOUT, gone).is_some(), "its old name goes");
    stop(&from, slow);
    eventually("it can be read", || fs::read(pool.join("file")).is_ok_and(|found| found == bytes(1, 200_000)));
    eventually("the branch that hangs is offline", || !pool.is_online("from"));
    let log = pool.log();
    assert!(log.contains("branch=from reason") && !log.contains("branch=to reason"), "{log}");
    signal(from.pid(), Signal::SIGCONT);
    eventually("the branch is back", || pool.is_online("from"));
    pool.expect_on("to", "file");
    eventually("nothing is left of the move", || is_empty(&to.below().join(".umbrella/intents")));
}
