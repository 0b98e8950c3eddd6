//! What a log store gains and what it costs, on an emulated disk in its own time:
//! `cargo bench -p umbrella-block --bench log_store`.
//!
//! All figures are virtual time, and compare two devices that take turns in one run. They include the host's own work.
//! `--factor` says how much the emulation is slowed down: the larger it is, the less that work weighs.

mod emulated;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use clap::{Parser, ValueEnum};
use emulated::{Amount, Factor, PAGE, median, wants};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use umbrella_block::emulated::{EmulatedDisk, Meter};
use umbrella_block::log_store::{CreateOptions, LogStore, LogStoreStats, OpenMode, Options, create};
use umbrella_block::memory::Memory;
use umbrella_block::{BlockDevice, Durability};
use umbrella_units::{ByteSize, Lba, SECTOR_BYTES};

/// What a log store gains, and what it costs.
#[derive(Debug, Parser)]
struct Args {
    /// The disk's profile.
    #[arg(long, default_value = "deskstar_500gb")]
    disk: String,
    /// The disk's size, in MiB.
    #[arg(long, default_value_t = 1024)]
    size: u64,
    /// Utilisations in percent [default: `random` 50,70,85, `full` 50,60,70,80,85,90,95].
    #[arg(long, value_delimiter = ',')]
    used: Vec<u64>,
    /// Real seconds for one of the model's.
    #[arg(long, default_value = "0.5")]
    factor: Factor,
    /// How many write or read at once.
    #[arg(long, default_value_t = 8)]
    depth: u64,
    /// Placement.
    #[arg(long, default_value = "r_lfs:regions=3")]
    scheme: String,
    #[command(flatten)]
    amount: Amount,
    /// All of them by default.
    parts: Vec<Part>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Random 4 KiB writes at several utilisations, against the disk alone.
    Random,
    /// Sequential writes, and reads of what was written sequentially or at random.
    Sequential,
    /// Ten random rewrites of all that is promised, by utilisation: write amplification (in memory, no time; 95 % need
    /// 2 GiB).
    Full,
}

impl Args {
    fn used(&self, default: &[u64]) -> Vec<u64> {
        if self.used.is_empty() { default.to_vec() } else { self.used.clone() }
    }

    fn bare(&self) -> Arc<EmulatedDisk> {
        self.factor.disk(&self.disk, ByteSize(self.size << 20))
    }

    /// A new store, whatever was there before.
    fn store(&self, device: Arc<dyn BlockDevice>, spare: u32) -> LogStore {
        let options = CreateOptions { scheme: self.scheme.clone(), spare, force: true, ..CreateOptions::default() };
        create(Arc::clone(&device), "disk", &options).unwrap_or_else(|error| panic!("{error}"));
        LogStore::open(device, "disk", Options::default(), OpenMode::ReadWrite)
            .unwrap_or_else(|error| panic!("{error}"))
    }

    /// Calls `each` `count` times from several threads at once, with the number of the call.
    fn at_once(&self, count: u64, each: impl Fn(u64, &mut StdRng) + Sync) {
        let next = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for thread in 0..self.depth {
                let (next, each) = (&next, &each);
                scope.spawn(move || {
                    let mut random = StdRng::seed_from_u64(thread);
                    loop {
                        let number = next.fetch_add(1, Ordering::Relaxed);
                        if number >= count {
                            return;
                        }
                        each(number, &mut random);
                    }
                });
            }
        });
    }
}

fn pages(device: &dyn BlockDevice) -> u64 {
    device.geometry().capacity.0 / PAGE
}

/// Writes pages in order, 1 MiB at a time.
fn fill(device: &dyn BlockDevice, pages: u64) {
    let data = vec![7; 1 << 20];
    for at in (0..pages / 256 * 256).step_by(256) {
        device.write(Lba(at * PAGE), &data, Durability::Cached).expect("it is written");
    }
    device.flush().expect("it is flushed");
}

/// Writes pages at random. How long each took, in virtual milliseconds, in order.
fn write_random(args: &Args, device: &dyn BlockDevice, pages: u64, count: u64) -> Vec<f64> {
    let times = Mutex::new(Vec::with_capacity(count as usize));
    args.at_once(count, |_, random| {
        let begun = Instant::now();
        device.write(Lba(random.random_range(0..pages) * PAGE), &[9; 4096], Durability::Cached).expect("it is written");
        let took = args.factor.virtual_seconds(begun.elapsed()) * 1e3;
        times.lock().expect("nobody panics").push(took);
    });
    device.flush().expect("it is flushed");
    let mut times = times.into_inner().expect("nobody panics");
    times.sort_by(f64::total_cmp);
    times
}

/// What the disk did between two moments, for each thousand writes of the user.
fn disk_work(before: &Meter, after: &Meter, thousands: f64) -> String {
    let (from, to) = (&before.device, &after.device);
    let megabytes = |sectors: u64| (sectors * SECTOR_BYTES) as f64 / 1e6 / thousands;
    format!(
        "busy {:.0} %; for each 1000 writes: {:.0} reads of {:.1} MB, {:.0} writes of {:.1} MB, {:.0} seeks, {:.0} ms",
        (to.busy.0 - from.busy.0) as f64 * 100.0 / (after.now.0 - before.now.0).max(1) as f64,
        (to.reads - from.reads) as f64 / thousands,
        megabytes(to.sectors_read - from.sectors_read),
        (to.writes - from.writes) as f64 / thousands,
        megabytes(to.sectors_written - from.sectors_written),
        (to.seeks - from.seeks) as f64 / thousands,
        (to.busy.0 - from.busy.0) as f64 / 1e6 / thousands,
    )
}

/// Between two moments.
fn write_amplification(before: &LogStoreStats, after: &LogStoreStats) -> f64 {
    let all = |stats: &LogStoreStats| stats.written.0 + stats.copied.0 + stats.map_written.0 + stats.headers_written.0;
    (all(after) - all(before)) as f64 / (after.written.0 - before.written.0) as f64
}

fn random(args: &Args) {
    println!("\nrandom 4 KiB writes, {} at once (writes a second)", args.depth);
    println!("  utilisation   disk alone   log store     ratio   write amplification   slowest 1 %, and slowest (ms)");
    for utilisation in args.used(&[50, 70, 85]) {
        let (mut ratios, mut alone, mut through, mut amplified) = (Vec::new(), Vec::new(), Vec::new(), 0.0);
        let (mut slow, mut slowest, mut work) = (Vec::new(), 0.0_f64, String::new());
        for _ in 0..args.amount.rounds() {
            let disk = args.bare();
            let store = args.store(Arc::clone(&disk) as Arc<dyn BlockDevice>, 20);
            let used = (args.size << 8) * utilisation / 100;
            assert!(used < pages(&store), "{used} pages do not fit");
            fill(&store, used);
            // Once around the log, so that what is measured is the steady state.
            write_random(args, &store, used, args.amount.of(args.size << 8));
            let before = store.stats();
            let count = args.amount.of(60_000);
            let metered = disk.meter().expect("the disk is there");
            let mut times = Vec::new();
            let logged = count as f64 / args.factor.seconds(|| times = write_random(args, &store, used, count));
            let after = store.stats();
            work = disk_work(&metered, &disk.meter().expect("the disk is there"), count as f64 / 1e3);
            slow.push(times[times.len() * 99 / 100]);
            slowest = slowest.max(times[times.len() - 1]);
            amplified = write_amplification(&before, &after);
            let bare = args.bare();
            let count = args.amount.of(2_000);
            let plain = count as f64 / args.factor.seconds(|| _ = write_random(args, &*bare, used, count));
            alone.push(plain);
            through.push(logged);
            ratios.push(logged / plain);
        }
        println!(
            "  {utilisation:>9} %   {:10.0}   {:9.0}   {:7.1}   {amplified:>19.2}   {:.1}, {slowest:.0}",
            median(alone),
            median(through),
            median(ratios),
            median(slow)
        );
        println!("                {work}");
    }
}

fn sequential(args: &Args) {
    println!("\nsequential transfers of 1 MiB, one at a time (MB/s; ratio to the disk alone)");
    let amount = args.amount.of(args.size * 6 / 10).max(64) << 8;
    let rate = |seconds: f64, pages: u64| pages as f64 * 4096.0 / 1e6 / seconds;
    let read_all = |device: &dyn BlockDevice, pages: u64| {
        let mut buffer = vec![0; 1 << 20];
        for at in (0..pages / 256 * 256).step_by(256) {
            device.read(Lba(at * PAGE), &mut buffer).expect("it is read");
        }
    };
    let mut rows: [(&str, Vec<f64>, Vec<f64>); 3] =
        [("write", vec![], vec![]), ("read, written so", vec![], vec![]), ("read, then random", vec![], vec![])];
    for _ in 0..args.amount.rounds() {
        let (bare, store) = (args.bare(), args.store(args.bare() as Arc<dyn BlockDevice>, 100));
        let both: [&dyn BlockDevice; 2] = [&*bare, &store];
        let written = both.map(|device| rate(args.factor.seconds(|| fill(device, amount)), amount));
        let read = both.map(|device| rate(args.factor.seconds(|| read_all(device, amount)), amount));
        write_random(args, &store, amount, args.amount.of(amount / 4));
        let some = amount / 8;
        let after = both.map(|device| rate(args.factor.seconds(|| read_all(device, some)), some));
        for ((_, alone, through), [a, b]) in rows.iter_mut().zip([written, read, after]) {
            alone.push(a);
            through.push(b);
        }
    }
    for (name, alone, through) in rows {
        let ratio = median(through.iter().zip(&alone).map(|(through, alone)| through / alone).collect());
        println!("  {name:<18} {:8.1} {:8.1}   {ratio:.3}", median(alone), median(through));
    }
}

fn full(args: &Args) {
    println!("\nten random rewrites of all that is promised (in memory)");
    println!("  promised   write amplification   segments cleaned   writes a second, by tenth of the run");
    for utilisation in args.used(&[50, 60, 70, 80, 85, 90, 95]) {
        let device: Arc<dyn BlockDevice> = Arc::new(Memory::new(ByteSize(args.amount.of(args.size.max(640)) << 20)));
        let whole = args.store(Arc::clone(&device), 0);
        let log = whole.stats().segment.0 * u64::from(whole.stats().segments);
        let spare = 1000_u64.saturating_sub(utilisation * log * 10 / (pages(&whole) * 4096));
        if spare < 20 {
            println!("  {utilisation:>6} %   not with what cleaning needs kept back");
            continue;
        }
        drop(whole);
        let store = args.store(device, spare as u32);
        let used = pages(&store);
        fill(&store, used);
        let before = store.stats();
        let mut rates = Vec::new();
        for _ in 0..10 {
            let begun = Instant::now();
            write_random(args, &store, used, used);
            rates.push(format!("{:.0}k", used as f64 / begun.elapsed().as_secs_f64() / 1e3));
        }
        let after = store.stats();
        let amplified = write_amplification(&before, &after);
        println!("  {utilisation:>6} %   {amplified:>19.2}   {:>16}   {}", after.segments_cleaned, rates.join(" "));
    }
}

fn main() {
    let args = Args::parse();
    println!("{} of {} MiB, factor {}, {}", args.disk, args.size, args.factor.0, args.scheme);
    for (part, run) in [(Part::Random, random as fn(&Args)), (Part::Sequential, sequential), (Part::Full, full)] {
        if wants(&args.parts, part) {
            run(&args);
        }
    }
}
