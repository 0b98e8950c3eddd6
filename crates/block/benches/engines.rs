//! The processor time and system calls of the engines themselves, on files of this machine and without a model:
//! `cargo bench -p umbrella-block --bench engines`.
//!
//! `scripts/engines-beside.py` runs two builds of this benchmark in turn. Except for the name [`OpenMode`], it uses
//! only what builds from before checksums and marks also have.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use umbrella_block::emulated::{EmulatedDisk, TimeScale};
use umbrella_block::file::{Access, FileDevice, OpenOptions};
use umbrella_block::hybrid::{self, Hybrid, PairHalf};
use umbrella_block::log_store::{self, CreateOptions, LogStore, OpenMode};
use umbrella_block::spindle::NoSpindle;
use umbrella_block::{BlockDevice, BlockError, Durability, forward};
use umbrella_model::device::Options as DeviceOptions;
use umbrella_model::device::profiles::{Profile, profile};
use umbrella_policy::flash_cache::FlushTrigger;
use umbrella_units::{Lba, SECTOR_BYTES};

const HELP: &str = "\
What the engines themselves cost, on files of this machine: for each operation the processor time of all threads and the time that passes, in microseconds,
the requests to the files (reads, writes and flushes), and their bytes.

usage: cargo bench -p umbrella-block --bench engines -- [OPTIONS]

OPTIONS
  --dir DIR      where the files are made [default: the directory for temporary files]
  --rounds N     of each row; the median is printed [default: 5]
  --operations N of each row and round [default: 8000]
  --on PROFILE   as if the files were on a disk of this profile, in its own time; without, the files' own
  --json         one line for machines
";

/// Pages that are read and written: 64 MiB.
const PAGES: u64 = 16 << 10;
const PAGE_BYTES: usize = 4096;
/// Pages of a long operation: 64 KiB.
const LONG: u64 = 16;

struct Args {
    dir: PathBuf,
    rounds: u64,
    operations: u64,
    on: Option<Profile>,
    json: bool,
}

fn args() -> Args {
    let mut args = Args { dir: std::env::temp_dir(), rounds: 5, operations: 8000, on: None, json: false };
    let mut given = std::env::args().skip(1);
    while let Some(arg) = given.next() {
        let mut value = || given.next().unwrap_or_else(|| panic!("{arg} needs a value"));
        match arg.as_str() {
            "--dir" => args.dir = PathBuf::from(value()),
            "--rounds" => args.rounds = value().parse().expect("a number"),
            "--operations" => args.operations = value().parse().expect("a number"),
            "--on" => args.on = Some(profile(&value()).unwrap_or_else(|error| panic!("{error}"))),
            "--json" => args.json = true,
            "--bench" => {}
            "--help" | "-h" => {
                print!("{HELP}");
                std::process::exit(0);
            }
            _ => panic!("{arg}: see --help"),
        }
    }
    args
}

/// What was asked of files.
#[derive(Debug, Default)]
struct Counts {
    requests: AtomicU64,
    bytes_read: AtomicU64,
    bytes_written: AtomicU64,
}

impl Counts {
    fn now(&self) -> [f64; 3] {
        [&self.requests, &self.bytes_read, &self.bytes_written].map(|count| count.load(Ordering::Relaxed) as f64)
    }
}

/// A file that counts the calls it gets.
struct Counted {
    inner: FileDevice,
    counts: Arc<Counts>,
}

impl BlockDevice for Counted {
    forward!(inner: geometry, discard, write_zeroes);

    fn read(&self, at: Lba, buffer: &mut [u8]) -> Result<(), BlockError> {
        self.counts.requests.fetch_add(1, Ordering::Relaxed);
        self.counts.bytes_read.fetch_add(buffer.len() as u64, Ordering::Relaxed);
        self.inner.read(at, buffer)
    }

    fn write(&self, at: Lba, data: &[u8], durability: Durability) -> Result<(), BlockError> {
        self.counts.requests.fetch_add(1, Ordering::Relaxed);
        self.counts.bytes_written.fetch_add(data.len() as u64, Ordering::Relaxed);
        self.inner.write(at, data, durability)
    }

    fn flush(&self) -> Result<(), BlockError> {
        self.counts.requests.fetch_add(1, Ordering::Relaxed);
        self.inner.flush()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Engine {
    LogStore,
    Hybrid,
}

impl Engine {
    fn name(self) -> &'static str {
        match self {
            Engine::LogStore => "log store",
            Engine::Hybrid => "hybrid",
        }
    }
}

/// The files of one device.
struct TestDevice<'a> {
    dir: &'a Path,
    engine: Engine,
    on: Option<&'a Profile>,
    counts: Arc<Counts>,
}

impl TestDevice<'_> {
    fn file(&self, name: &str, size: u64) -> Arc<dyn BlockDevice> {
        let path = self.dir.join(name);
        if !path.exists() {
            std::fs::File::create(&path).and_then(|file| file.set_len(size)).expect("the directory can be written");
        }
        let options = OpenOptions { access: Access::ReadWrite, ..OpenOptions::default() };
        let inner = FileDevice::open(&path, options).unwrap_or_else(|error| panic!("{error}"));
        let counted = Arc::new(Counted { inner, counts: Arc::clone(&self.counts) });
        let Some(profile) = self.on else { return counted };
        let disk = EmulatedDisk::new(profile, &DeviceOptions::default(), TimeScale::REAL, counted);
        Arc::new(disk.unwrap_or_else(|error| panic!("{error}")))
    }

    /// The log of a hybrid disk is emptied only when it is full, so that what is read lies on flash.
    fn halves(&self) -> (PairHalf, PairHalf) {
        let half = |name: &str, size| PairHalf { name: name.to_owned(), device: self.file(name, size) };
        (half("disk", 256 << 20), half("flash", 4 << 30))
    }

    fn create(&self) {
        match self.engine {
            Engine::LogStore => {
                log_store::create(self.file("store", 1 << 30), "store", &CreateOptions::default())
                    .unwrap_or_else(|error| panic!("{error}"));
            }
            Engine::Hybrid => {
                let (disk, flash) = self.halves();
                hybrid::create(&disk, &flash).unwrap_or_else(|error| panic!("{error}"));
            }
        }
    }

    fn open(&self) -> Box<dyn BlockDevice> {
        match self.engine {
            Engine::LogStore => {
                let options = log_store::Options::default();
                let store = LogStore::open(self.file("store", 1 << 30), "store", options, OpenMode::ReadWrite);
                Box::new(store.unwrap_or_else(|error| panic!("{error}")))
            }
            Engine::Hybrid => {
                let (disk, flash) = self.halves();
                let options = hybrid::Options { when: FlushTrigger::Full, ..hybrid::Options::default() };
                let hybrid = Hybrid::open(disk, flash, Arc::new(NoSpindle::default()), options, None);
                Box::new(hybrid.unwrap_or_else(|error| panic!("{error}")))
            }
        }
    }

    /// Runs `count` operations.
    fn measure(&self, count: u64, run: impl FnOnce()) -> Cost {
        let before = self.counts.now();
        let (begun, cpu_begun) = (Instant::now(), cpu_time());
        run();
        let (cpu, wall) = (cpu_time() - cpu_begun, begun.elapsed().as_secs_f64());
        let [requests, read, written] = self.counts.now();
        let all = [cpu * 1e6, wall * 1e6, requests - before[0], read - before[1], written - before[2]];
        Cost(all.map(|value| value / count as f64))
    }
}

/// Seconds that all threads of this process had a processor.
fn cpu_time() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// The [`FIGURES`] of one operation.
#[derive(Debug, Clone, Copy)]
struct Cost([f64; FIGURES.len()]);

const FIGURES: [&str; 5] = ["cpu_us", "wall_us", "requests", "bytes_read", "bytes_written"];

fn random_place(random: &mut StdRng, pages: u64) -> Lba {
    Lba(random.random_range(0..PAGES / pages) * pages * PAGE_BYTES as u64 / SECTOR_BYTES)
}

/// Writes `count` times `pages` pages at random places, with a flush after every `flush_each` writes.
fn write(device: &dyn BlockDevice, random: &mut StdRng, (count, pages): (u64, u64), flush_each: u64) {
    let mut data = vec![7; pages as usize * PAGE_BYTES];
    for number in 1..=count {
        for page in data.chunks_mut(PAGE_BYTES) {
            page[..8].copy_from_slice(&number.to_le_bytes());
        }
        device.write(random_place(random, pages), &data, Durability::Cached).expect("it is written");
        if number % flush_each == 0 {
            device.flush().expect("it is flushed");
        }
    }
}

fn read(device: &dyn BlockDevice, random: &mut StdRng, (count, pages): (u64, u64)) {
    let mut buffer = vec![0; pages as usize * PAGE_BYTES];
    for _ in 0..count {
        device.read(random_place(random, pages), &mut buffer).expect("it is read");
    }
}

fn read_all(device: &dyn BlockDevice) {
    let mut buffer = vec![0; 1 << 20];
    for at in (0..PAGES * PAGE_BYTES as u64).step_by(buffer.len()) {
        device.read(Lba(at / SECTOR_BYTES), &mut buffer).expect("it is read");
    }
}

/// Reads a page that was written just before, again and again.
fn read_last(device: &dyn BlockDevice, random: &mut StdRng, count: u64) {
    let (at, mut buffer) = (random_place(random, 1), vec![7; PAGE_BYTES]);
    device.write(at, &buffer, Durability::Cached).expect("it is written");
    for _ in 0..count {
        device.read(at, &mut buffer).expect("it is read");
    }
}

/// The names of the rows, and what each costs.
type Rows = Vec<(String, Vec<Cost>)>;

fn note(rows: &mut Rows, name: &str, cost: Cost) {
    match rows.iter_mut().find(|(known, _)| known == name) {
        Some((_, costs)) => costs.push(cost),
        None => rows.push((name.to_owned(), vec![cost])),
    }
}

fn round(
    test_device: &TestDevice<'_>,
    device: Box<dyn BlockDevice>,
    random: &mut StdRng,
    operations: u64,
    rows: &mut Rows,
) {
    let on = &*device;
    for (size, pages, count) in [("4 KiB", 1, operations), ("64 KiB", LONG, operations / 8)] {
        for (flush, share) in [(1, 4), (16, 1), (256, 1)] {
            let count = (count / share).next_multiple_of(flush);
            let cost = test_device.measure(count, || write(on, random, (count, pages), flush));
            note(rows, &format!("write {size}, flush each {flush}"), cost);
        }
        let cost = test_device.measure(count, || read(on, random, (count, pages)));
        note(rows, &format!("read {size}"), cost);
    }
    read_all(on);
    let cost = test_device.measure(operations, || read(on, random, (operations, 1)));
    note(rows, "read 4 KiB when all was read before", cost);
    let cost = test_device.measure(operations, || read_last(on, random, operations));
    note(rows, "read 4 KiB written just before", cost);
    drop(device);
    let mut device = None;
    note(rows, "opening", test_device.measure(1, || device = Some(test_device.open())));
    let device = device.expect("it was opened");
    let count = operations / 8;
    let cost = test_device.measure(count, || read(&*device, random, (count, 1)));
    note(rows, "first reads after an opening", cost);
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    let args = args();
    let mut line = Vec::new();
    for engine in [Engine::LogStore, Engine::Hybrid] {
        let dir = tempfile::tempdir_in(&args.dir).expect("the directory can be written");
        let test_device = TestDevice { dir: dir.path(), engine, on: args.on.as_ref(), counts: Arc::default() };
        test_device.create();
        let mut random = StdRng::seed_from_u64(1);
        write(&*test_device.open(), &mut random, (2 * PAGES, 1), 64);
        let mut rows = Rows::new();
        for _ in 0..args.rounds {
            round(&test_device, test_device.open(), &mut random, args.operations, &mut rows);
        }
        for (row, costs) in rows {
            let figures: Vec<f64> =
                (0..FIGURES.len()).map(|at| median(costs.iter().map(|Cost(figures)| figures[at]))).collect();
            let name = engine.name();
            let words = FIGURES.iter().zip(&figures).map(|(name, figure)| format!("\"{name}\": {figure:.3}"));
            line.push(format!("\"{name}: {row}\": {{{}}}", words.collect::<Vec<_>>().join(", ")));
            if !args.json {
                let [cpu, wall, requests, read, written] = figures[..] else { unreachable!() };
                println!(
                    "{name:<10} {row:<36} {cpu:>9.2} us of a processor {wall:>9.2} us {requests:>7.2} requests {read:>9.0} bytes read {written:>9.0} written"
                );
            }
        }
    }
    if args.json {
        println!("{{{}}}", line.join(", "));
    }
}
