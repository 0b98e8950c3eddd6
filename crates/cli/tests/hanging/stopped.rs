//! A branch that hangs: a file system whose daemon is stopped. Nothing else may wait for it.

use std::fs;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, ScopedJoinHandle};

use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::signal::Signal;
use nix::unistd::Pid;

use crate::support::disk::Disk;
use crate::support::foreign::Encrypted;
use crate::support::pool::{Builder, Pool};
use crate::support::process;
use crate::support::tree::names;
use crate::support::{MIB, TIMEOUT, assert_errno, bytes, eventually, poll};
use crate::{B_BY_NAME, IMPATIENT, alone, wait_until};

/// A process that is stopped, until this is dropped: also where a test fails, or its end would wait for it.
pub(crate) struct Stopped(u32);

impl Stopped {
    fn new(branch: &Encrypted) -> Self {
        Stopped::process(branch.pid())
    }

    pub(crate) fn process(pid: u32) -> Self {
        process::signal(pid, Signal::SIGSTOP);
        Stopped(pid)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        process::signal(self.0, Signal::SIGCONT);
    }
}

/// A pool over branches `a`, and `b` below a daemon that can be stopped.
fn over(a: &Disk, hung: &Encrypted) -> Builder {
    Pool::builder()
        .branches([("a", a.path()), ("b", hung.path())])
        .default(&["a"])
        .rules(B_BY_NAME)
        .keys(IMPATIENT)
        .keys("on_branch_error = \"skip\"\ncache_timeout = \"0s\"")
}

/// Such a pool, with a directory that has a file on each.
fn with_one_that_may_hang(dir: &str) -> (Disk, Encrypted, Pool) {
    let (a, hung) = (Disk::tmpfs(32 * MIB), Encrypted::new());
    let pool = over(&a, &hung).mount();
    fs::create_dir(pool.join(dir)).unwrap();
    fs::write(pool.join(format!("{dir}/on-a")), "a").unwrap();
    fs::write(pool.join(format!("{dir}/on.b")), "b").unwrap();
    pool.expect_on("b", format!("{dir}/on.b"));
    (a, hung, pool)
}

/// A process that does nothing but have a file open.
fn holder(file: fs::File) -> Child {
    Command::new("sleep").arg("1000").stdin(file).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

/// Files below a directory that the daemon of the pool has open.
fn open_below(pool: &Pool, dir: &Path) -> usize {
    let open = fs::read_dir(format!("/proc/{}/fd", pool.pid())).unwrap();
    open.filter_map(|fd| fs::read_link(fd.ok()?.path()).ok()).filter(|path| path.starts_with(dir)).count()
}

/// Bytes of all files below a directory.
fn size_of(dir: &Path) -> u64 {
    let below = fs::read_dir(dir).into_iter().flatten().filter_map(Result::ok);
    below
        .map(|entry| match entry.metadata() {
            Ok(meta) if meta.is_dir() => size_of(&entry.path()),
            Ok(meta) => meta.len(),
            Err(_) => 0,
        })
        .sum()
}

#[test]
fn a_hung_branch_does_not_hang_the_others() {
    let _alone = alone();
    let (_a, hung, pool) = with_one_that_may_hang("dir");
    // More than the daemon has threads (sixteen, where there are no more processors).
    let mut holders: Vec<_> = (0..40)
        .map(|i| {
            let path = pool.join(format!("dir/held-{i}.b"));
            fs::write(&path, "x").unwrap();
            holder(fs::File::options().read(true).write(i % 2 == 0).open(path).unwrap())
        })
        .collect();
    pool.settle();
    assert!(open_below(&pool, &hung.path().join("dir")) >= 40);

    let stopped = Stopped::new(&hung);
    // As many callers run into the hung branch.
    let stuck: Vec<_> = (0..40)
        .map(|_| {
            Command::new("cat").arg(pool.join("dir/on.b")).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
        })
        .collect();
    wait_until(&pool, "b", false);
    for holder in &mut holders {
        holder.kill().unwrap();
    }
    for mut holder in holders {
        assert!(poll(TIMEOUT, || holder.try_wait().unwrap()).is_some(), "who had a file open can end");
    }
    for i in 0..20 {
        fs::write(pool.join(format!("dir/new-{i}")), "x").unwrap();
        assert_eq!(fs::read(pool.join("dir/on-a")).unwrap(), b"a");
    }
    assert_eq!(names(&pool.join("dir")).len(), 21);
    fs::write(pool.join("dir/new.b"), "x").unwrap();
    // All that while nothing came from the hung branch.
    let reason = format!("{:?}", pool.branch_status("b").state);
    assert!(reason.contains("reason"), "{reason}");

    drop(stopped);
    wait_until(&pool, "b", true);
    eventually("its file is back", || fs::read(pool.join("dir/on.b")).is_ok_and(|data| data == b"b"));
    for mut child in stuck {
        assert!(poll(TIMEOUT, || child.try_wait().unwrap()).is_some(), "who was stuck is free");
    }
    eventually("what nobody has open is closed", || {
        fs::read_dir(format!("/proc/{}/fd", pool.pid()))
            .unwrap()
            .filter_map(|fd| fs::read_link(fd.ok()?.path()).ok())
            .all(|path| !path.to_string_lossy().contains("held-"))
    });
}

/// Keeps this thread on a processor.
fn pin(processor: usize) {
    let mut set = CpuSet::new();
    set.set(processor).unwrap();
    sched_setaffinity(Pid::from_raw(0), &set).unwrap();
}

/// More callers of one processor than a queue of io_uring has entries (512).
#[test]
fn callers_beyond_the_last_entry_wait_for_a_hung_branch_and_continue_when_it_answers() {
    const CALLERS: usize = 600;
    let _alone = alone();
    let (a, hung) = (Disk::tmpfs(32 * MIB), Encrypted::new());
    let patient = "probe_interval = \"200ms\"\nprobe_timeout = \"50s\"\ncache_timeout = \"0s\"";
    let pool = Pool::builder().branch("a", a.path()).branch("b", hung.path()).default(&["a"]).rules(B_BY_NAME);
    let pool = pool.keys(patient).mount();
    for dir in ["hung", "other"] {
        fs::create_dir(pool.join(dir)).unwrap();
    }
    fs::write(pool.join("hung/on.b"), "b").unwrap();
    pool.expect_on("b", "hung/on.b");
    // Names below it concern one branch only.
    let other = fs::File::open(pool.join("other")).unwrap();
    let other = format!("/proc/self/fd/{}", other.as_raw_fd());
    let (hung_dir, next) = (fs::File::open(pool.join("hung")).unwrap(), AtomicUsize::new(0));

    let stopped = Stopped::new(&hung);
    thread::scope(|scope| {
        let call = || {
            pin(0);
            let number = next.fetch_add(1, Ordering::SeqCst);
            fs::metadata(format!("/proc/self/fd/{}/absent-{number}.b", hung_dir.as_raw_fd()))
        };
        let callers: Vec<_> = (0..CALLERS).map(|_| scope.spawn(call)).collect();
        eventually("all ask", || next.load(Ordering::SeqCst) == CALLERS);
        // As long as there is another processor its callers have entries of their own.
        if thread::available_parallelism().unwrap().get() > 1 {
            pin(1);
            for number in 0..20 {
                let path = format!("{other}/{number}");
                fs::write(&path, "x").unwrap();
                assert_eq!(fs::read(&path).unwrap(), b"x");
            }
            assert!(!callers.iter().any(ScopedJoinHandle::is_finished), "they wait all the while");
        }
        drop(stopped);
        for caller in callers {
            assert_errno(caller.join().unwrap(), libc::ENOENT);
        }
    });
    assert!(pool.is_online("b"));
    assert_eq!(fs::read(pool.join("hung/on.b")).unwrap(), b"b");
}

#[test]
fn a_new_file_elsewhere_does_not_wait_for_the_room_on_a_hung_branch() {
    let _alone = alone();
    let (a, hung) = (Disk::tmpfs(32 * MIB), Encrypted::new());
    // Only a process that makes a file asks how much room there is.
    let patient = "probe_interval = \"60s\"\nprobe_timeout = \"60s\"\ncache_timeout = \"0s\"";
    let pool = Pool::builder().branch("a", a.path()).branch("b", hung.path()).default(&["a"]).rules(B_BY_NAME);
    let pool = pool.keys(patient).mount();
    fs::create_dir(pool.join("other")).unwrap();
    fs::write(pool.join("other/before"), "x").unwrap();
    let other = fs::File::open(pool.join("other")).unwrap();
    let stopped = Stopped::new(&hung);
    for number in 0..5 {
        // A figure is not asked again for 100 ms.
        thread::sleep(std::time::Duration::from_millis(150));
        fs::write(format!("/proc/self/fd/{}/{number}", other.as_raw_fd()), "x").unwrap();
    }
    assert!(pool.is_online("b"), "they did not wait until it was taken for dead");
    drop(stopped);
}

#[test]
fn branches_come_and_go_while_another_hangs() {
    let _alone = alone();
    let (_a, hung, pool) = with_one_that_may_hang("dir");
    let other = Disk::tmpfs(32 * MIB);
    fs::write(other.join("brought"), "c").unwrap();

    let stopped = Stopped::new(&hung);
    pool.say(["branch".as_ref(), "add".as_ref(), "c".as_ref(), other.path().as_os_str()]);
    assert_eq!(fs::read(pool.join("brought")).unwrap(), b"c");
    fs::remove_file(pool.join("brought")).unwrap();
    pool.say(["branch", "remove", "c"]);
    wait_until(&pool, "b", false);
    other.vanish();
    other.mount();
    pool.say(["branch".as_ref(), "add".as_ref(), "d".as_ref(), other.path().as_os_str()]);
    other.vanish();
    wait_until(&pool, "d", false);
    pool.say(["branch", "remove", "b", "--force"]);
    assert_eq!(names(&pool.join("dir")), ["on-a"]);
    drop(stopped);
}

#[test]
fn a_pool_ends_while_a_branch_hangs() {
    let _alone = alone();
    let (_a, hung, mut pool) = with_one_that_may_hang("dir");
    let stopped = Stopped::new(&hung);
    pool.stop();
    drop(stopped);
    pool.start();
    wait_until(&pool, "b", true);
    assert_eq!(names(&pool.join("dir")), ["on-a", "on.b"]);
}

/// A daemon cannot be gone before its descriptors are closed; its mount can, and who asked for that waits no longer
/// than for that.
#[test]
fn a_pool_whose_files_were_open_on_a_branch_that_hangs_is_unmounted() {
    let _alone = alone();
    let (_a, hung, mut pool) = with_one_that_may_hang("dir");
    let mut holder = holder(fs::File::open(pool.join("dir/on.b")).unwrap());
    let stopped = Stopped::new(&hung);
    wait_until(&pool, "b", false);
    holder.kill().unwrap();
    assert!(poll(TIMEOUT, || holder.try_wait().unwrap()).is_some(), "who had a file open can end");
    let said = pool.say(["unmount"]);
    assert!(said.contains("unmounted"), "{said}");
    drop(stopped);
    assert_eq!(pool.wait_for_end(), Some(true), "the daemon ends with the hang\n{}", pool.log());
}

#[test]
fn a_move_behind_a_copy_to_a_hung_branch_continues() {
    let _alone = alone();
    let (a, c, hung) = (Disk::tmpfs(256 * MIB), Disk::tmpfs(32 * MIB), Encrypted::new());
    let rules = "[[rule]]\nname = \"by name\"\nmatch = [{ glob = \"/**.b\", to = [\"b\", \"default\", \"any\"] }, { glob = \"/**.c\", to = [\"c\", \"default\", \"any\"] }]\n";
    let pool = over(&a, &hung).branch("c", c.path()).rules(rules).mount();
    let content = bytes(8, 160 * MIB);
    fs::write(pool.join("big"), &content).unwrap();
    fs::write(pool.join("small"), "small").unwrap();
    pool.settle();

    let cipher = hung.cipher();
    let before = size_of(&cipher);
    fs::rename(pool.join("big"), pool.join("big.b")).unwrap();
    let begun = poll(TIMEOUT, || (size_of(&cipher) > before + 2 * MIB).then_some(()));
    let stopped = Stopped::new(&hung);
    begun.expect("the copy begins");
    assert!(a.join("big.b").exists(), "the copy is under way");
    fs::rename(pool.join("small"), pool.join("small.c")).unwrap();
    // Asked of this branch alone: a look at the hung one would hang.
    eventually("the next file moves", || c.join("small.c").exists() && !a.join("small.c").exists());
    assert_eq!(fs::read(pool.join("small.c")).unwrap(), b"small");
    assert!(fs::read(pool.join("big.b")).unwrap() == content, "it is where it was");

    drop(stopped);
    wait_until(&pool, "b", true);
    eventually("what was copied is away", || names(&hung.path().join(".umbrella/tmp")).is_empty());
    pool.enforce();
    pool.expect_on("b", "big.b");
    assert!(fs::read(pool.join("big.b")).unwrap() == content);
}

/// A directory that is renamed while a branch hangs comes back from it under the old name: as a directory of its own.
#[test]
fn a_directory_renamed_while_a_branch_hangs_does_not_lose_what_the_old_name_is_removed_with() {
    let _alone = alone();
    let (_a, hung, pool) = with_one_that_may_hang("before");

    let stopped = Stopped::new(&hung);
    let renamed = fs::rename(pool.join("before"), pool.join("after"));
    drop(stopped);
    renamed.expect("it is renamed where it can be");
    wait_until(&pool, "b", true);
    eventually("the old name is back", || pool.join("before").exists());
    assert_eq!(names(&pool.join("before")), ["on.b"]);
    assert_eq!(names(&pool.join("after")), ["on-a"]);
    fs::remove_dir_all(pool.join("before")).unwrap();
    assert_eq!(fs::read(pool.join("after/on-a")).unwrap(), b"a");
    assert_eq!(names(&pool.mount_point()), ["after"]);
}

#[test]
fn an_unmount_of_a_daemon_that_hangs_reports_it_and_waits() {
    let _alone = alone();
    let a = Disk::tmpfs(8 * MIB);
    let mut pool = Pool::builder().branch("a", a.path()).mount();
    let stopped = Stopped::process(pool.pid());
    let heard = pool.dir().join("heard");
    let mut unmount = pool.command().args(["unmount"]).stderr(fs::File::create(&heard).unwrap()).spawn().unwrap();
    let reported = || fs::read_to_string(&heard).unwrap().contains("has not answered").then_some(());
    let reported = poll(TIMEOUT, reported);
    drop(stopped);
    assert!(unmount.wait().unwrap().success() && reported.is_some(), "{:?}", fs::read_to_string(&heard));
    assert_eq!(pool.wait_for_end(), Some(true));
}
