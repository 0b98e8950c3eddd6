//! Commands that name a path on a file system that hangs: they end in time, and nothing that was given up happens
//! later.
//!
//! A FUSE request that the daemon has not read yet can be given up. A process that waits for one that it has read
//! cannot even be killed. Both are tested.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Child, Output, Stdio};
use std::time::Duration;

use crate::alone;
use crate::stopped::Stopped;
use crate::support::disk::Disk;
use crate::support::foreign::{HELD, Mirror};
use crate::support::pool::{Pool, text};
use crate::support::{MIB, poll};

/// Longer than any limit of a command, shorter than the timeout of a test.
const LIMIT: Duration = Duration::from_secs(90);

/// Starts a command whose end is waited for later.
fn start<'a>(pool: &Pool, args: impl IntoIterator<Item = &'a OsStr>) -> Child {
    let mut command = pool.command();
    command.args(args).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().expect("it can be started")
}

/// What it said. One that hangs fails the test; it cannot be waited for.
#[track_caller]
fn end(mut child: Child, what: &str) -> Output {
    let ended = poll(LIMIT, || child.try_wait().expect("it is our child"));
    if ended.is_none() {
        let _ = child.kill();
        panic!("{what} hangs");
    }
    child.wait_with_output().expect("it has ended")
}

/// Commands that are refused, with names for the reader of the test. All of them wait at the same time.
fn are_refused_in_time(pool: &Pool, far: &Path, link: &Path) {
    let paths = [far.join("pool.toml"), far.join("dir"), link.join("dir")];
    let [config, dir, link] = paths.each_ref().map(|path| path.as_os_str());
    let word = OsStr::new;
    let commands: [&[&OsStr]; 9] = [
        &[word("branch"), word("add"), word("new"), dir],
        &[word("branch"), word("add"), word("linked"), link],
        &[word("branch"), word("replace"), word("b"), dir, word("--force")],
        &[word("branch"), word("replace"), word("b"), word("--pool"), config],
        &[word("status"), config],
        &[word("status"), dir],
        &[word("rules"), word("reload"), config],
        &[word("check"), config],
        &[word("mount"), config, word("--daemon")],
    ];
    let started: Vec<_> = commands.iter().map(|args| (args, start(pool, args.iter().copied()))).collect();
    for (args, child) in started {
        let output = end(child, &format!("{args:?}"));
        let said = text(&output);
        assert_eq!(output.status.code(), Some(1), "{args:?}: {said}");
        assert!(said.contains("did not answer within"), "{args:?}: {said}");
    }
    // What needs nothing of it does what it always does.
    let output = end(start(pool, [word("status")]), "status");
    assert!(output.status.success(), "{}", text(&output));
}

#[test]
fn commands_that_name_a_path_on_a_file_system_that_hangs_are_refused_in_time_and_do_nothing_later() {
    let _alone = alone();
    let (a, b, mirror) = (Disk::tmpfs(8 * MIB), Disk::tmpfs(8 * MIB), Mirror::new());
    let pool = Pool::builder().branch("a", a.path()).branch("b", b.path()).mount();
    fs::create_dir(mirror.path().join("dir")).unwrap();
    fs::copy(pool.config_path(), mirror.path().join("pool.toml")).unwrap();
    let link = pool.dir().join("link");
    symlink(mirror.path(), &link).unwrap();

    let stopped = Stopped::process(mirror.pid());
    are_refused_in_time(&pool, &mirror.path(), &link);
    drop(stopped);

    let slow = mirror.delay("%%stat,%%statfs", "delay_enter", HELD);
    are_refused_in_time(&pool, &mirror.path(), &link);
    drop(slow);

    let paths: Vec<_> = pool.status().branches.into_iter().map(|branch| branch.path).collect();
    assert_eq!(paths, [a.path(), b.path()]);
    assert!(fs::read_dir(mirror.path().join("dir")).unwrap().next().is_none(), "nothing was made there");
}

#[test]
fn a_branch_that_answers_a_probe_and_hangs_at_the_next_call_holds_up_no_command() {
    let _alone = alone();
    let (a, mirror) = (Disk::tmpfs(8 * MIB), Mirror::new());
    let far = mirror.path().join("dir");
    fs::create_dir(&far).unwrap();
    let pool = Pool::builder().branch("a", a.path()).branch("far", &far).prepare();
    // It says how much is free, and nothing else.
    let slow = mirror.delay("%%stat", "delay_enter", HELD);
    let check = start(&pool, ["check".as_ref(), pool.config_path().as_os_str()]);
    let mount = start(&pool, ["mount".as_ref(), pool.config_path().as_os_str(), "--daemon".as_ref()]);
    for (child, what) in [(check, "check"), (mount, "mount")] {
        let output = end(child, what);
        let said = text(&output);
        assert!(said.contains("far") && said.contains("does not answer"), "{what}: {said}");
    }
    drop(slow);
}

#[test]
fn of_several_pools_the_one_whose_daemon_is_stopped_holds_up_no_other() {
    let _alone = alone();
    let (a, b) = (Disk::tmpfs(8 * MIB), Disk::tmpfs(8 * MIB));
    let one = Pool::builder().branch("a", a.path()).mount();
    let other = Pool::builder().branch("b", b.path()).in_run_dir_of(&one).mount();
    let stopped = Stopped::process(one.pid());
    let both = end(start(&other, ["status".as_ref()]), "status");
    let config = one.config_path();
    let by_config = end(start(&one, ["status".as_ref(), config.as_os_str()]), "status CONFIG");
    drop(stopped);
    let said = text(&both);
    assert!(!both.status.success() && said.contains("is stopped"), "{said}");
    assert!(said.contains(other.mount_point().to_str().unwrap()) && said.contains("FREE"), "{said}");
    let said = text(&by_config);
    assert!(!by_config.status.success() && said.contains("is stopped"), "{said}");
}
