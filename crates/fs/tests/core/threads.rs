//! Many threads on one pool, with its mover and an enforcer at work: nobody waits for ever, and nobody loses a file.
//!
//! Each worker has files of its own, in directories that all share; what it reads must be what it wrote. Names are a
//! worker's own, as the kernel lets only one thread at a time change a name.

use std::ffi::OsStr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use umbrella_fs::pool::{AttributeChange, Pool, Replace, WalkOptions};
use umbrella_fs::{Caller, HandleId, NodeId, OpResult};

use crate::bench::{BRANCHES, Bench, CREATE, Ground, READ, WRITE, rule_set};
use crate::ops::{budget, first_seed};
use crate::world::{Done, fail, pattern};

const WORKERS: usize = 4;
const SHARED: [&str; 4] = ["one", "two", "three", "four"];
/// This time without a single operation is a deadlock.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A worker's file.
struct Own {
    dir: usize,
    name: String,
    data: Vec<u8>,
    node: NodeId,
    /// Kept open over moves.
    open: Option<HandleId>,
}

struct Worker {
    pool: Arc<Pool>,
    number: usize,
    root: std::path::PathBuf,
    rng: StdRng,
    dirs: [NodeId; 4],
    files: Vec<Own>,
    made: u32,
}

fn ok<T>(what: &str, result: OpResult<T>) -> Done<T> {
    result.map_err(|error| format!("{what}: {error:?}"))
}

fn read_all(pool: &Pool, handle: HandleId, len: usize) -> Done<Vec<u8>> {
    let mut buffer = vec![0; len + 1];
    let got = ok("read", pool.read(handle, &mut buffer, 0))?;
    buffer.truncate(got);
    Ok(buffer)
}

impl Worker {
    fn name(&mut self) -> String {
        self.made += 1;
        let log = if self.made.is_multiple_of(3) { ".log" } else { "" };
        format!("w{}-{}{log}", self.number, self.made)
    }

    fn content(&mut self) -> Vec<u8> {
        let len = [100, 3000, 9000, 60_000][self.rng.random_range(0..4)];
        pattern(self.made * 16 + self.number as u32, len)
    }

    fn create(&mut self) -> Done {
        let (name, data, dir) = (self.name(), self.content(), self.rng.random_range(0..4));
        let made = self.pool.create(self.dirs[dir], OsStr::new(&name), 0o644, Caller::ROOT, CREATE);
        let (attr, opened) = ok(&format!("create {name}"), made)?;
        let written = ok("write", self.pool.write(opened.handle, &data, 0, false))?;
        if written != data.len() {
            return fail("a write was cut short");
        }
        let mut own = Own { dir, name, data, node: attr.node, open: Some(opened.handle) };
        if self.rng.random_bool(0.7) {
            ok("release", self.pool.release(opened.handle))?;
            own.open = None;
        }
        self.files.push(own);
        Ok(())
    }

    fn any(&mut self) -> usize {
        self.rng.random_range(0..self.files.len())
    }

    fn check(&mut self, at: usize) -> Done {
        let own = &self.files[at];
        let attr = ok(&format!("lookup of {}", own.name), self.pool.lookup(self.dirs[own.dir], OsStr::new(&own.name)))?;
        self.pool.forget(attr.node, 1);
        if attr.node != own.node {
            return fail(format!("{} was {:?} and is {:?}", own.name, own.node, attr.node));
        }
        if attr.meta.size != own.data.len() as u64 {
            return fail(format!("{} has {} bytes, expected {}", own.name, attr.meta.size, own.data.len()));
        }
        let read = if let Some(handle) = own.open {
            read_all(&self.pool, handle, own.data.len())?
        } else {
            let opened = ok(&format!("open of {}", own.name), self.pool.open(own.node, READ))?;
            let read = read_all(&self.pool, opened.handle, own.data.len());
            ok("release", self.pool.release(opened.handle))?;
            read?
        };
        if read == own.data { Ok(()) } else { fail(format!("{} reads differently", own.name)) }
    }

    fn write(&mut self, at: usize) -> Done {
        let data = self.content();
        let own = &mut self.files[at];
        let handle = match own.open {
            Some(handle) => handle,
            None => ok(&format!("open of {}", own.name), self.pool.open(own.node, WRITE))?.handle,
        };
        ok("write", self.pool.write(handle, &data, 0, false))?;
        own.data.resize(own.data.len().max(data.len()), 0);
        own.data[..data.len()].copy_from_slice(&data);
        if own.open.is_none() {
            ok("release", self.pool.release(handle))?;
        }
        Ok(())
    }

    fn close_or_open(&mut self, at: usize) -> Done {
        let own = &mut self.files[at];
        if let Some(handle) = own.open.take() {
            ok("release", self.pool.release(handle))
        } else {
            own.open = Some(ok(&format!("open of {}", own.name), self.pool.open(own.node, WRITE))?.handle);
            Ok(())
        }
    }

    fn let_go(&mut self, own: &Own) -> Done {
        if let Some(handle) = own.open {
            if read_all(&self.pool, handle, own.data.len())? != own.data {
                return fail(format!("{}, which has no name any more, reads differently", own.name));
            }
            ok("release", self.pool.release(handle))?;
        }
        self.pool.forget(own.node, 1);
        Ok(())
    }

    fn rename(&mut self, at: usize) -> Done {
        let (name, dir, over) = (self.name(), self.rng.random_range(0..4), self.rng.random_bool(0.3));
        let replaced = if over && self.files.len() > 1 { Some((at + 1) % self.files.len()) } else { None };
        let (name, dir) = replaced.map_or((name, dir), |it| (self.files[it].name.clone(), self.files[it].dir));
        let own = &self.files[at];
        let renamed = self.pool.rename(
            self.dirs[own.dir],
            OsStr::new(&own.name),
            self.dirs[dir],
            OsStr::new(&name),
            Replace::Yes,
        );
        ok(&format!("rename of {} to {name}", own.name), renamed)?;
        (self.files[at].dir, self.files[at].name) = (dir, name);
        if let Some(replaced) = replaced {
            let gone = self.files.remove(replaced);
            self.let_go(&gone)?;
        }
        Ok(())
    }

    fn unlink(&mut self, at: usize) -> Done {
        let own = self.files.swap_remove(at);
        let early = own.open.is_none() && self.rng.random_bool(0.5);
        if early {
            // As when the kernel has forgotten it.
            self.pool.forget(own.node, 1);
        }
        ok(&format!("unlink of {}", own.name), self.pool.unlink(self.dirs[own.dir], OsStr::new(&own.name)))?;
        if early { Ok(()) } else { self.let_go(&own) }
    }

    fn truncate(&mut self, at: usize) -> Done {
        let size = self.rng.random_range(0..12_000);
        let own = &mut self.files[at];
        let change = AttributeChange { size: Some(size), ..AttributeChange::default() };
        ok(&format!("truncate of {}", own.name), self.pool.setattr(own.node, &change))?;
        own.data.resize(size as usize, 0);
        Ok(())
    }

    fn list(&mut self) -> Done {
        let dir = self.rng.random_range(0..4);
        let listing = ok("listing", self.pool.list(self.dirs[dir], 0, u64::MAX))?;
        for own in self.files.iter().filter(|own| own.dir == dir) {
            match listing.after(0).iter().filter(|entry| entry.name == *own.name).count() {
                1 => {}
                count => return fail(format!("{} is listed {count} times", own.name)),
            }
        }
        Ok(())
    }

    /// A directory of its own: a file goes in and out, then the directory goes, while the file may be on its way.
    fn visit_dir(&mut self, at: usize) -> Done {
        let (dir, name) = (self.rng.random_range(0..4), self.name());
        let pool = Arc::clone(&self.pool);
        let inner = ok("mkdir", pool.mkdir(self.dirs[dir], OsStr::new(&name), 0o755, Caller::ROOT))?.node;
        let (above, file) = (self.dirs[self.files[at].dir], self.files[at].name.clone());
        let file = OsStr::new(&file);
        ok("rename into a directory", pool.rename(above, file, inner, file, Replace::Yes))?;
        self.write(at)?;
        ok("rename out of a directory", pool.rename(inner, file, above, file, Replace::Yes))?;
        ok("rmdir", pool.rmdir(self.dirs[dir], OsStr::new(&name)))?;
        pool.forget(inner, 1);
        self.check(at)
    }

    fn link(&mut self, at: usize) -> Done {
        let (name, dir) = (self.name(), self.rng.random_range(0..4));
        let own = &self.files[at];
        ok(&format!("link of {}", own.name), self.pool.link(own.node, self.dirs[dir], OsStr::new(&name)))?;
        self.pool.forget(own.node, 1);
        self.check(at)?;
        ok(&format!("unlink of {name}"), self.pool.unlink(self.dirs[dir], OsStr::new(&name)))
    }

    /// Where its files are, for a failure.
    fn whereabouts(&self) -> String {
        let mut all = Vec::new();
        for own in &self.files {
            for (branch, dir) in BRANCHES.iter().flat_map(|branch| SHARED.iter().map(move |dir| (branch, dir))) {
                if self.root.join(branch).join(dir).join(&own.name).exists() {
                    all.push(format!("{}: {branch}/{dir}, expected in {}", own.name, SHARED[own.dir]));
                }
            }
        }
        all.join("; ")
    }

    fn step(&mut self) -> Done {
        if self.files.len() < 3 {
            return self.create();
        }
        let at = self.any();
        match self.rng.random_range(0..20) {
            0..=2 if self.files.len() < 12 => self.create(),
            3..=5 => self.write(at),
            6..=8 => self.close_or_open(at),
            9..=11 => self.rename(at),
            12 => self.unlink(at),
            13 => self.truncate(at),
            14 => self.list(),
            15 => self.visit_dir(at),
            16 => self.link(at),
            _ => self.check(at),
        }
    }
}

/// Everything the threads share.
struct Shared {
    pool: Arc<Pool>,
    stop: AtomicBool,
    steps: AtomicU64,
    /// By worker: its latest step, for the watchdog.
    failures: std::sync::Mutex<Vec<String>>,
}

impl Shared {
    /// A thread that repeats something until the end.
    fn spawn(
        self: &Arc<Self>,
        name: &str,
        mut step: impl FnMut(&Shared) -> Done + Send + 'static,
    ) -> std::thread::JoinHandle<()> {
        let (shared, name) = (Arc::clone(self), name.to_owned());
        std::thread::spawn(move || {
            while !shared.stop.load(Ordering::Relaxed) {
                let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| step(&shared)));
                if let Err(text) = done.unwrap_or_else(|_| fail("it panicked")) {
                    shared.failures.lock().unwrap().push(format!("{name}: {text}"));
                    shared.stop.store(true, Ordering::Relaxed);
                }
            }
        })
    }

    fn failed(&self) -> Option<String> {
        let failures = self.failures.lock().unwrap();
        (!failures.is_empty()).then(|| failures.join("\n"))
    }
}

/// Says so when nothing goes on.
fn watch(shared: &Shared, threads: &[std::thread::JoinHandle<()>], until: Instant, seed: u64) {
    let (mut seen, mut since) = (0, Instant::now());
    loop {
        std::thread::sleep(Duration::from_millis(20));
        if Instant::now() > until {
            shared.stop.store(true, Ordering::Relaxed);
        }
        if shared.stop.load(Ordering::Relaxed) && threads.iter().all(std::thread::JoinHandle::is_finished) {
            return;
        }
        let steps = shared.steps.load(Ordering::Relaxed);
        if steps != seen {
            (seen, since) = (steps, Instant::now());
        }
        let waiting = threads.iter().filter(|thread| !thread.is_finished()).count();
        assert!(
            since.elapsed() < TIMEOUT,
            "seed {seed}: deadlock: no operation ended for {TIMEOUT:?}, {waiting} threads wait; failures: {:?}",
            shared.failed()
        );
    }
}

fn together(seed: u64, until: Instant) -> u64 {
    let bench = Bench::new(if seed.is_multiple_of(2) { Ground::Disk } else { Ground::Memory });
    let pool = bench.assemble(seed as usize);
    let dirs = SHARED
        .map(|name| pool.mkdir(NodeId::ROOT, OsStr::new(name), 0o755, Caller::ROOT).expect("shared directory").node);
    let shared = Arc::new(Shared {
        pool: Arc::clone(&pool),
        stop: AtomicBool::new(false),
        steps: AtomicU64::new(0),
        failures: std::sync::Mutex::default(),
    });
    let kept = Arc::new(std::sync::Mutex::new(Vec::new()));
    let mut threads = Vec::new();
    for number in 0..WORKERS {
        let rng = StdRng::seed_from_u64(seed * 100 + number as u64);
        let worker =
            Worker { pool: Arc::clone(&pool), number, root: bench.root(), rng, dirs, files: Vec::new(), made: 0 };
        let mut worker = Returned { worker: Some(worker), to: Arc::clone(&kept) };
        threads.push(shared.spawn(&format!("worker {number}"), move |shared| {
            shared.steps.fetch_add(1, Ordering::Relaxed);
            let worker = worker.worker.as_mut().unwrap();
            worker.step().map_err(|text| format!("{text}; {}", worker.whereabouts()))
        }));
    }
    threads.push(shared.spawn("mover", |shared| {
        shared.pool.move_all_queued();
        std::thread::sleep(Duration::from_micros(200));
        Ok(())
    }));
    threads.push(shared.spawn("enforcer", |shared| {
        shared.pool.enforce(WalkOptions::default(), &mut |_| true);
        Ok(())
    }));
    let mut rng = StdRng::seed_from_u64(seed);
    threads.push(shared.spawn("rules", move |shared| {
        std::thread::sleep(Duration::from_millis(20));
        shared.pool.reload_rules(&rule_set(rng.random_range(0..4))).map_err(|error| error.to_string())
    }));
    threads.push(shared.spawn("renames", move |shared| {
        // A shared directory goes below another name and back.
        std::thread::sleep(Duration::from_millis(2));
        for (from, to) in [("four", "4"), ("4", "four")] {
            let (from, to) = (OsStr::new(from), OsStr::new(to));
            ok("rename of a directory", shared.pool.rename(NodeId::ROOT, from, NodeId::ROOT, to, Replace::Yes))?;
        }
        Ok(())
    }));
    watch(&shared, &threads, until, seed);
    if let Some(text) = shared.failed() {
        panic!("seed {seed}: {text}");
    }
    let workers = std::mem::take(&mut *kept.lock().unwrap());
    settled(&bench, &pool, workers).unwrap_or_else(|text| panic!("seed {seed}, at the end: {text}"));
    shared.steps.load(Ordering::Relaxed)
}

/// Gives a worker back when its thread ends.
struct Returned {
    worker: Option<Worker>,
    to: Arc<std::sync::Mutex<Vec<Worker>>>,
}

impl Drop for Returned {
    fn drop(&mut self) {
        self.to.lock().unwrap().extend(self.worker.take());
    }
}

/// Everybody's files are there, once, with what was written; and nothing else is.
fn settled(bench: &Bench, pool: &Pool, mut workers: Vec<Worker>) -> Done {
    let mut expected = 0;
    for worker in &mut workers {
        for at in 0..worker.files.len() {
            if let Some(handle) = worker.files[at].open.take() {
                ok("release", pool.release(handle))?;
            }
            worker.check(at)?;
        }
        expected += worker.files.len();
    }
    pool.move_all_queued();
    let (mut found, mut names) = (0, std::collections::BTreeSet::new());
    for (number, name) in BRANCHES.iter().enumerate() {
        let branch = bench.branch(number);
        for dir in SHARED {
            for entry in std::fs::read_dir(branch.join(dir)).into_iter().flatten() {
                found += 1;
                let name = entry.unwrap().file_name().into_string().unwrap();
                if !names.insert(name.clone()) {
                    return fail(format!("{name} is on several branches"));
                }
            }
        }
        for folder in ["tmp", "intents"] {
            if !is_empty(&branch.join(".umbrella").join(folder)) {
                return fail(format!("{folder} of {name} is not empty"));
            }
        }
    }
    for worker in &mut workers {
        for at in 0..worker.files.len() {
            worker.check(at)?;
        }
    }
    if found == expected {
        Ok(())
    } else {
        fail(format!("{found} files on the branches, expected {expected}: {names:?}"))
    }
}

fn is_empty(dir: &Path) -> bool {
    std::fs::read_dir(dir).unwrap().next().is_none()
}

#[test]
fn threads_lose_no_file_and_never_wait_for_ever_while_everything_moves() {
    let until = Instant::now() + budget(8);
    let (mut seed, mut steps) = (first_seed(), 0);
    while Instant::now() < until {
        steps += together(seed, until.min(Instant::now() + Duration::from_secs(3)));
        seed += 1;
    }
    println!("{} runs, {steps} operations", seed - first_seed());
}
