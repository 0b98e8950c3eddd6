//! The daemon has no descriptor left: calls fail, and nothing is taken for absent, no branch for dead.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use rustix::io::Errno;

use crate::names;
use crate::support::disk::Disk;
use crate::support::foreign::fail;
use crate::support::pool::Pool;
use crate::support::{MIB, bytes, errno, eventually, run};

/// While it lives, a daemon may open only a few more files.
struct Few<'a> {
    pool: &'a Pool,
    before: usize,
}

impl Few<'_> {
    fn new(pool: &Pool, more: usize) -> Few<'_> {
        let limits = fs::read_to_string(format!("/proc/{}/limits", pool.pid())).unwrap();
        let line = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
        let before = line.split_whitespace().nth(3).unwrap().parse().unwrap();
        let open = fs::read_dir(format!("/proc/{}/fd", pool.pid())).unwrap().count();
        limit(pool, open + more);
        Few { pool, before }
    }
}

impl Drop for Few<'_> {
    fn drop(&mut self) {
        limit(self.pool, self.before);
    }
}

fn limit(pool: &Pool, soft: usize) {
    run("prlimit", ["--pid", &pool.pid().to_string(), &format!("--nofile={soft}:")]);
}

#[test]
fn directories_that_nobody_knows_any_more_are_closed() {
    let (a, b) = (Disk::tmpfs(8 * MIB), Disk::tmpfs(8 * MIB));
    for disk in [&a, &b] {
        (0..40).for_each(|number| fs::create_dir_all(disk.join(format!("{number}/below"))).unwrap());
    }
    let pool = Pool::builder().branch("a", a.path()).branch("b", b.path()).mount();
    let open = || {
        let fds = fs::read_dir(format!("/proc/{}/fd", pool.pid())).unwrap().map(|fd| fs::read_link(fd.unwrap().path()));
        fds.filter_map(Result::ok).filter(|path| path.starts_with(a.path()) || path.starts_with(b.path())).count()
    };
    // What a walk does: the kernel forgets every name, and those that come next are new.
    let look = || {
        run("ls", ["-lR".as_ref(), pool.mount_point().as_os_str()]);
        pool.enforce();
    };
    look();
    (0..5).for_each(|_| look());
    // Not counted after the first walk: another program may have the kernel drop its caches meanwhile.
    let directories = 2 * (1 + 40 + 40);
    eventually("no more are open than there are directories", || open() <= directories + 10);
    run("sh", ["-c", &format!("rm -r {}/*", pool.mount_point().display())]);
    eventually("what is deleted is closed", || open() < 40);
}

/// A directory `d` on both branches, of which `y` is on the first and `x` on the second; and a file `z` on the first.
fn tree(a: &Disk, b: &Disk) {
    for disk in [a, b] {
        fs::create_dir(disk.join("d")).unwrap();
    }
    fs::write(b.join("d/x"), "old").unwrap();
    fs::write(a.join("d/y"), "y").unwrap();
    fs::write(a.join("z"), "new").unwrap();
}

/// Does something with a pool whose daemon may open only `more` more files, and reports what it saw. Then looks with as
/// many as it needs.
fn with_few(more: usize, work: impl Fn(&Pool) -> Result<(), String>, look: impl Fn(&Pool, bool, &[&Disk; 2])) {
    let (a, b) = (Disk::tmpfs(8 * MIB), Disk::tmpfs(8 * MIB));
    tree(&a, &b);
    let pool = Pool::builder()
        .branches([("a", a.path()), ("b", b.path())])
        .default(&["a", "b"])
        .keys("cache_timeout = \"0s\"\non_branch_error = \"skip\"")
        .mount();
    let few = Few::new(&pool, more);
    let done = work(&pool);
    drop(few);
    let done = match done {
        Ok(()) => true,
        Err(error) => {
            assert!(!error.contains("os error 2)"), "with {more}: {error}");
            false
        }
    };
    look(&pool, done, &[&a, &b]);
}

fn told(result: std::io::Result<()>) -> Result<(), String> {
    result.map_err(|error| error.to_string())
}

#[test]
fn without_descriptors_nothing_is_taken_for_absent() {
    for more in 0..5 {
        let listing = |pool: &Pool| {
            let found = fs::read_dir(pool.join("d")).and_then(Iterator::collect::<std::io::Result<Vec<_>>>);
            found.map_err(|error| error.to_string()).map(|found| assert_eq!(found.len(), 2, "with {more}"))
        };
        with_few(more, listing, |pool, _, _| assert_eq!(names(&pool.join("d")), ["x", "y"]));

        let unlink = |pool: &Pool| told(fs::remove_file(pool.join("d/x")));
        with_few(more, unlink, |pool, done, [_, b]| {
            assert_eq!((pool.join("d/x").exists(), b.join("d/x").exists()), (!done, !done), "with {more}");
        });

        let rename_dir = |pool: &Pool| told(fs::rename(pool.join("d"), pool.join("e")));
        with_few(more, rename_dir, |pool, done, disks| {
            let (there, gone) = if done { ("e", "d") } else { ("d", "e") };
            assert_eq!(names(&pool.join(there)), ["x", "y"], "with {more}");
            assert!(disks.iter().all(|disk| !disk.join(gone).exists()), "with {more}: it is not split");
        });

        let replace = |pool: &Pool| told(fs::rename(pool.join("z"), pool.join("d/x")));
        with_few(more, replace, |pool, done, [a, b]| {
            assert_eq!(fs::read(pool.join("d/x")).unwrap(), if done { b"new" } else { b"old" }, "with {more}");
            assert_eq!(pool.join("z").exists(), !done, "with {more}");
            assert!(!(a.join("d/x").exists() && b.join("d/x").exists()), "with {more}: it is there once");
        });
    }
}

#[test]
fn without_descriptors_a_write_is_not_told_that_there_is_no_room() {
    let (tiny, large) = (Disk::tmpfs(MIB), Disk::tmpfs(32 * MIB));
    let pool = Pool::builder().branch("tiny", tiny.path()).branch("large", large.path()).mount();
    let mut refused = 0;
    for more in 0..12 {
        let (name, data) = (format!("file{more}"), bytes(more as u64, 2 * MIB));
        let mut file = File::create(pool.join(&name)).unwrap();
        file.write_all(&data[..100_000]).unwrap();
        let few = Few::new(&pool, more);
        let written = file.write_all_at(&data[100_000..], 100_000);
        drop(few);
        if let Err(error) = written {
            refused += 1;
            assert_eq!(error.raw_os_error(), Some(Errno::MFILE.raw_os_error()), "with {more}: {error}");
            file.write_all_at(&data[100_000..], 100_000).unwrap();
        }
        assert!(fs::read(pool.join(&name)).unwrap() == data, "with {more}");
        assert_eq!(pool.found_on(&name), ["large"], "with {more}");
    }
    assert!((1..12).contains(&refused), "{refused}");
}

/// A pool whose branches are probed every 50 ms, with a file `bad` on the first.
fn probed_often(a: &Disk, b: &Disk) -> Pool {
    let pool = Pool::builder()
        .branches([("a", a.path()), ("b", b.path())])
        .keys("cache_timeout = \"0s\"\nprobe_interval = \"50ms\"\nprobe_timeout = \"60s\"")
        .mount();
    fs::write(pool.join("bad"), "x").unwrap();
    pool.say(["sync"]);
    pool
}

#[test]
fn without_descriptors_no_branch_is_taken_for_dead() {
    let (a, b) = (Disk::ext4(32 * MIB), Disk::tmpfs(8 * MIB));
    let pool = probed_often(&a, &b);
    let failing = fail(pool.pid(), "statx", "EIO", "bad");
    let few = Few::new(&pool, 0);
    // From now on each probe asks the disk, too.
    assert_eq!(errno(&fs::symlink_metadata(pool.join("bad"))), libc::EIO);
    // Some twenty probes.
    std::thread::sleep(Duration::from_secs(1));
    drop((few, failing));
    assert!(pool.is_online("a") && pool.is_online("b"));
    assert!(!pool.log().contains("is offline"), "{}", pool.log());
}

#[test]
fn without_descriptors_a_dead_disk_is_noticed() {
    let (a, b) = (Disk::ext4(32 * MIB), Disk::tmpfs(8 * MIB));
    let pool = probed_often(&a, &b);
    let failing = fail(pool.pid(), "statx", "EIO", "bad");
    a.break_from(0);
    let few = Few::new(&pool, 0);
    assert_eq!(errno(&fs::symlink_metadata(pool.join("bad"))), libc::EIO);
    eventually("it is offline", || pool.log().contains("is offline"));
    drop((few, failing));
    assert!(pool.is_online("b"));
}

#[test]
fn more_directories_than_the_daemon_may_have_open_are_all_listed() {
    const DIRS: usize = 600;
    let a = Disk::tmpfs(32 * MIB);
    for i in 0..DIRS {
        fs::create_dir(a.join(format!("d{i}"))).unwrap();
        fs::write(a.join(format!("d{i}/file")), "x").unwrap();
    }
    let pool = Pool::builder().branch("a", a.path()).mount();
    let _few = Few::new(&pool, 200);
    for _ in 0..2 {
        let seen = (0..DIRS).filter(|i| names(&pool.join(format!("d{i}"))) == ["file"]).count();
        assert_eq!(seen, DIRS);
    }
}
