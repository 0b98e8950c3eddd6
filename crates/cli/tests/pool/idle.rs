//! A pool that nobody uses lets the processor sleep.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags, SeekFrom};
use tempfile::TempDir;

use crate::support::disk::Disk;
use crate::support::foreign::Mirror;
use crate::support::pool::{Builder, Pool};
use crate::support::{MIB, ordered_write_back, temp_dir};

/// How long threads are watched at a time.
const WINDOW: Duration = Duration::from_secs(5);

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
    let more =
        after.iter().map(|(thread, now)| (thread.clone(), now.saturating_sub(*before.get(thread).unwrap_or(&0))));
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

/// An idle pool, with a trace that shows whether anybody asks it for something.
struct Idle {
    what: &'static str,
    pool: Pool,
    trace: PathBuf,
    _dir: TempDir,
    /// Windows in which no thread ran, one after the other; none that was disturbed is among them.
    quiet: u32,
    /// How often the thread that probes ran in those windows.
    probes: u64,
    /// Windows without a disturbance in which it did not come to rest.
    restless: u32,
}

impl Idle {
    fn new(what: &'static str, builder: Builder) -> Idle {
        let dir = temp_dir("idle");
        let trace = dir.path().join("trace");
        let builder = builder.mount_args(["--trace-requests".into(), trace.clone()]);
        let pool = builder.limit(2 * MOST).mount();
        fs::write(pool.join("file"), b"something").unwrap();
        pool.say(["sync"]);
        Idle { what, pool, trace, _dir: dir, quiet: 0, probes: 0, restless: 0 }
    }

    fn requests(&self) -> u64 {
        fs::metadata(&self.trace).unwrap().len()
    }
}

/// How often somebody had the kernel forget what it knows, which asks every mount.
fn caches_dropped() -> Vec<String> {
    let counts = fs::read_to_string("/proc/vmstat").unwrap();
    counts.lines().filter(|line| line.starts_with("drop_")).map(str::to_owned).collect()
}

const EVICT: &str = "evict = { above = \"90%\", until = \"80%\" }";
/// A pool that has levels looks at them for a minute after it was used.
const SETTLES: u32 = 24;
/// Number of consecutive quiet windows that is enough.
const ENOUGH: u32 = 4;
/// How often the thread that probes runs for one look at the two branches: twice, or as often again if another program
/// interrupts it. Probes are due every two seconds, but an idle pool has one look a minute.
const PROBES_OF_A_MINUTE: u64 = 4;
/// The time in which that many undisturbed windows must come.
const MOST: Duration = Duration::from_secs(900);

#[test]
#[ignore = "waits until no other program calls sync; scripts/test.py runs it alone"]
fn no_thread_of_an_idle_pool_runs_but_for_its_probes() {
    let disks = [(); 12].map(|()| Disk::ext4(32 * MIB));
    let mirror = Mirror::new();
    let over = |at: usize, keys: &str| {
        Pool::builder().branch_with("a", disks[at].path(), keys).branch("b", disks[at + 1].path()).default(&["a"])
    };
    let seldom = "probe_interval = \"1h\"\n";
    // Nothing to do for an hour, with all that may tick switched on.
    let staged = "[staging]\nmode = \"always\"\nmax_age = \"1s\"\n[enforce]\nwindow = \"02:00-02:01\"";
    let heat = "[heat]\n[[rule]]\nname = \"warm\"\nwhen = { heat = \"> 2\" }\nto = [\"b\", \"any\"]\n";
    let mut pools = [
        Idle::new("staging, write-back and enforcement", over(0, &ordered_write_back()).keys(seldom).keys(staged)),
        Idle::new("probes", over(2, "").keys("probe_interval = \"2s\"")),
        Idle::new("evict", over(4, EVICT).keys(seldom)),
        Idle::new("heat", over(6, "").keys(seldom).rules(heat)),
        Idle::new("a guarded branch", over(8, "").branch("c", mirror.path()).keys(seldom)),
        Idle::new("an open file", over(10, "").keys(seldom)),
    ];
    let open = fs::File::options().read(true).write(true).open(pools[5].pool.join("file")).unwrap();
    let begun = Instant::now();
    while pools.iter().any(|idle| idle.quiet < ENOUGH) {
        assert!(begun.elapsed() < MOST, "this machine has no {ENOUGH} quiet windows one after the other");
        let (lines, dropped) = (Lines::new(), caches_dropped());
        let before: Vec<_> = pools.iter().map(|idle| (idle.requests(), switches(&idle.pool))).collect();
        std::thread::sleep(WINDOW);
        let after: Vec<_> = pools.iter().map(|idle| switches(&idle.pool)).collect();
        let lines = lines.count();
        // A request's line comes to the trace a moment later.
        std::thread::sleep(Duration::from_millis(500));
        let forgot = caches_dropped() != dropped;
        for ((idle, (requests, before)), after) in pools.iter_mut().zip(&before).zip(&after) {
            // Another's `sync` asks every mount, too.
            if forgot || idle.requests() != *requests {
                (idle.quiet, idle.probes, idle.restless) = (0, 0, 0);
                continue;
            }
            let mut ran = ran(before, after);
            // A line wakes the listener once or, with another processor on it, twice.
            let listens = take(&mut ran, "disk-errors") > 2 * lines;
            if idle.what == "probes" {
                idle.probes += take(&mut ran, "monitor");
            }
            let probes = idle.probes > PROBES_OF_A_MINUTE;
            if ran.is_empty() && !listens && !probes {
                idle.quiet += 1;
                continue;
            }
            if probes {
                // They come every two seconds until a minute without a request has passed.
                (idle.quiet, idle.probes) = (0, 0);
            }
            let seen = format!("{ran:?}, {lines} lines in the log");
            assert_eq!(idle.quiet, 0, "something runs in an idle pool with {}: {seen}", idle.what);
            idle.restless += 1;
            assert!(idle.restless < SETTLES, "a pool with {} does not come to rest: {seen}", idle.what);
        }
    }
    drop(open);
}

/// Takes the threads of that name out; how often they ran.
fn take(ran: &mut BTreeMap<String, u64>, name: &str) -> u64 {
    let taken = ran.iter().filter(|(thread, _)| thread.starts_with(name)).map(|(_, times)| times).sum();
    ran.retain(|thread, _| !thread.starts_with(name));
    taken
}
