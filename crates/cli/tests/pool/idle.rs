//! A pool that nobody uses lets the processor sleep.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::time::Duration;

use rustix::fs::{Mode, OFlags, SeekFrom};

use crate::support::disk::Disk;
use crate::support::foreign::Mirror;
use crate::support::pool::Pool;
use crate::support::{MIB, ordered_write_back};

/// Longer than any of the times at which something that ticks would run.
const WINDOW: Duration = Duration::from_secs(45);

/// How often each thread of a daemon was put on a processor: by thread, with its name.
fn switches(pool: &Pool) -> BTreeMap<String, u64> {
    let tasks = fs::read_dir(format!("/proc/{}/task", pool.pid())).unwrap();
    let told = tasks.filter_map(|task| {
        let task = task.ok()?;
        let status = fs::read_to_string(task.path().join("status")).ok()?;
        let of = |key: &str| status.lines().find_map(|line| line.strip_prefix(key)).map(str::trim);
        let number = |key: &str| of(key)?.parse::<u64>().ok();
        let switches = number("voluntary_ctxt_switches:")? + number("nonvoluntary_ctxt_switches:")?;
        Some((format!("{} {}", of("Name:")?, task.file_name().to_string_lossy()), switches))
    });
    told.collect()
}

/// Threads that ran between two looks, and how often.
fn ran(before: &BTreeMap<String, u64>, after: &BTreeMap<String, u64>) -> BTreeMap<String, u64> {
    let more = after.iter().map(|(thread, now)| (thread.clone(), now - before.get(thread).unwrap_or(&0)));
    more.filter(|(_, more)| *more > 0).collect()
}

/// Lines that the kernel's log got; each wakes who listens to it.
struct Lines(std::os::fd::OwnedFd);

impl Lines {
    fn new() -> Lines {
        let log = rustix::fs::open("/dev/kmsg", OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty()).unwrap();
        rustix::fs::seek(&log, SeekFrom::End(0)).unwrap();
        Lines(log)
    }

    fn count(&self) -> u64 {
        let mut record = [0; 16 << 10];
        let mut lines = 0;
        while !matches!(rustix::io::read(&self.0, &mut record), Err(rustix::io::Errno::AGAIN)) {
            lines += 1;
        }
        lines
    }
}

#[test]
fn requests_wake_only_the_threads_that_serve_them() {
    const FILES: usize = 1000;
    let disks = [(); 2].map(|()| Disk::ext4(32 * MIB));
    let pool = Pool::builder().branch("a", disks[0].path()).branch("b", disks[1].path()).mount();
    let work = |run: &str| {
        fs::create_dir(pool.join(run)).unwrap();
        let path = |file: usize| pool.join(format!("{run}/{file}"));
        (0..FILES).for_each(|file| fs::write(path(file), b"something").unwrap());
        (0..FILES).for_each(|file| assert_eq!(fs::read(path(file)).unwrap(), b"something"));
        (0..FILES).for_each(|file| fs::remove_file(path(file)).unwrap());
    };
    work("first");
    let before = switches(&pool);
    work("second");
    let mut ran = ran(&before, &switches(&pool));
    ran.retain(|thread, _| !thread.starts_with("fuse"));
    let times = ran.values().sum::<u64>();
    assert!(times < FILES as u64 / 4, "{FILES} files woke others {times} times: {ran:?}");
}

#[test]
fn no_thread_of_an_idle_pool_runs_but_for_its_probes() {
    let disks = [(); 4].map(|()| Disk::ext4(32 * MIB));
    let [a, b, c, d] = &disks;
    let guarded = Mirror::new();
    // Nothing to do for an hour, with all that may tick switched on.
    let rests = Pool::builder()
        .branch_with("a", a.path(), &ordered_write_back())
        .branch_with("b", b.path(), "evict = { above = \"90%\", until = \"80%\" }")
        .branch("guarded", guarded.path())
        .default(&["a", "b", "guarded"])
        .rules("[[rule]]\nname = \"warm\"\nwhen = { heat = \"> 2\" }\nto = [\"b\", \"a\"]\n")
        .keys("probe_interval = \"1h\"\n[staging]\nmode = \"always\"\nmax_age = \"1s\"\n[enforce]\nwindow = \"02:00-02:01\"")
        .mount();
    let probes = Pool::builder().branch("c", c.path()).branch("d", d.path()).keys("probe_interval = \"2s\"").mount();
    for pool in [&rests, &probes] {
        fs::write(pool.join("file"), b"something").unwrap();
        pool.say(["sync"]);
    }
    let _read = File::open(rests.join("file")).unwrap();
    // What was begun comes to its end, the kernel may be asked to forget what it knows, and a `sync` of anybody on the
    // machine asks every mount.
    let mut seen = String::new();
    for _ in 0..4 {
        let lines = Lines::new();
        let before = [&rests, &probes].map(switches);
        std::thread::sleep(WINDOW);
        let after = [&rests, &probes].map(switches);
        let lines = lines.count();
        let [mut rested, mut probed] = [0, 1].map(|pool| ran(&before[pool], &after[pool]));
        seen = format!("{rested:?}, {probed:?}, {lines} lines in the log");
        let take = |ran: &mut BTreeMap<String, u64>, name: &str| {
            let taken = ran.iter().filter(|(thread, _)| thread.starts_with(name)).map(|(_, times)| times).sum::<u64>();
            ran.retain(|thread, _| !thread.starts_with(name));
            taken
        };
        // A line wakes the listener once or, with another processor on it, twice.
        let listened = [&mut rested, &mut probed].map(|ran| take(ran, "disk-errors"));
        // A probe begins, and each of two branches answers.
        let (monitored, probes) = (take(&mut probed, "monitor"), WINDOW.as_secs() / 2 + 1);
        let few = listened.iter().all(|times| *times <= 2 * lines) && monitored <= 6 * probes;
        if rested.is_empty() && probed.is_empty() && few {
            return;
        }
        eprintln!("{seen}");
    }
    panic!("something runs in an idle pool: {seen}");
}
