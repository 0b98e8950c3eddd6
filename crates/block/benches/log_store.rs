//! What a log store gains, and what it costs: on an emulated disk, in its own time. `cargo bench -p umbrella-block --bench log_store`.
//!
//! Every figure is of virtual time, and of two devices in turn in one run. The host's own work is part of it: `--factor` says how much slower than
//! true the emulation runs, and so how little it weighs.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use umbrella_block::emulated::{EmulatedDisk, Meter, TimeScale};
use umbrella_block::log_store::{CreateOptions, LogStore, OpenMode, Options, create};
use umbrella_block::memory::Memory;
use umbrella_block::{BlockDevice, Durability};
use umbrella_model::device::{Options as DeviceOptions, profile};
use umbrella_units::{ByteSize, Lba, SECTOR_BYTES};

const HELP: &str = "\
What a log store gains, and what it costs.

usage: cargo bench -p umbrella-block --bench log_store -- [OPTIONS] [PART]...

PARTS (default: all)
  random      random 4 KiB writes at several utilisations, against the disk alone
  sequential  sequential writes, and reads of what was written sequentially or at random
  full        ten random rewrites of all that is promised, by utilisation: write amplification (in memory, no time; 95 % need 2 GiB)

OPTIONS
  --disk P       the disk's profile [default: deskstar_500gb]
  --size MIB     the disk's size [default: 1024]
  --used LIST    utilisations in percent [default: `random` 50,70,85, `full` 50,60,70,80,85,90,95]
  --factor F     real seconds for one of the model's [default: 0.5]
  --depth N      how many write or read at once [default: 8]
  --scheme S     placement [default: r_lfs:regions=3]
  --rounds N     [default: 3]
  --quick        a tenth of the work, one round
";

const PAGE: u64 = 4096 / SECTOR_BYTES;

struct Args {
    disk: String,
    size: u64,
    used: Option<Vec<u64>>,
    factor: f64,
    depth: u64,
    scheme: String,
    rounds: u32,
    quick: bool,
    parts: Vec<String>,
}

fn args() -> Args {
    let mut args = Args {
        disk: "deskstar_500gb".to_owned(),
        size: 1024,
        used: None,
        factor: 0.5,
        depth: 8,
        scheme: "r_lfs:regions=3".to_owned(),
        rounds: 3,
        quick: false,
        parts: Vec::new(),
    };
    let mut given = std::env::args().skip(1);
    while let Some(arg) = given.next() {
        let mut value = || given.next().unwrap_or_else(|| panic!("{arg} needs a value"));
        match arg.as_str() {
            "--disk" => args.disk = value(),
            "--size" => args.size = value().parse().expect("a number"),
            "--used" => {
                args.used = Some(value().split(',').map(|used| used.parse().expect("a number")).collect());
            }
            "--factor" => args.factor = value().parse().expect("a number"),
            "--depth" => args.depth = value().parse().expect("a number"),
            "--scheme" => args.scheme = value(),
            "--rounds" => args.rounds = value().parse().expect("a number"),
            "--quick" => (args.quick, args.rounds) = (true, 1),
            "--bench" => {}
            "--help" | "-h" => {
                print!("{HELP}");
                std::process::exit(0);
            }
            part if ["random", "sequential", "full"].contains(&part) => args.parts.push(arg),
            _ => panic!("{arg}: see --help"),
        }
    }
    args
}

impl Args {
    fn wants(&self, part: &str) -> bool {
        self.parts.is_empty() || self.parts.iter().any(|wanted| wanted == part)
    }

    fn used(&self, default: &[u64]) -> Vec<u64> {
        self.used.clone().unwrap_or_else(|| default.to_vec())
    }

    fn work(&self, count: u64) -> u64 {
        if self.quick { count / 10 } else { count }
    }

    fn bare(&self) -> Arc<EmulatedDisk> {
        let profile = profile(&self.disk).unwrap_or_else(|error| panic!("{error}"));
        let scale = TimeScale::new(self.factor).unwrap_or_else(|error| panic!("{error}"));
        let backing = Arc::new(Memory::new(ByteSize(self.size << 20)));
        Arc::new(EmulatedDisk::new(&profile, &DeviceOptions::default(), scale, backing).expect("it can be made"))
    }

    fn store(&self, device: Arc<dyn BlockDevice>, spare: u32) -> LogStore {
        let options = CreateOptions { scheme: self.scheme.clone(), spare, ..CreateOptions::default() };
        create(Arc::clone(&device), "disk", &options).unwrap_or_else(|error| panic!("{error}"));
        LogStore::open(device, "disk", Options::default(), OpenMode::ReadWrite)
            .unwrap_or_else(|error| panic!("{error}"))
    }

    /// Virtual seconds that something takes.
    fn seconds(&self, work: impl FnOnce()) -> f64 {
        let begun = Instant::now();
        work();
        begun.elapsed().as_secs_f64() / self.factor
    }

    /// Does a thing so many times, by several threads at once; each is told its number.
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

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
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
        let took = begun.elapsed().as_secs_f64() * 1e3 / args.factor;
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

fn random(args: &Args) {
    println!("\nrandom 4 KiB writes, {} at once (writes a second)", args.depth);
    println!("  utilisation   disk alone   log store     ratio   write amplification   slowest 1 %, and slowest (ms)");
    for utilisation in args.used(&[50, 70, 85]) {
        let (mut ratios, mut alone, mut through, mut amplified) = (Vec::new(), Vec::new(), Vec::new(), 0.0);
        let (mut slow, mut slowest, mut work) = (Vec::new(), 0.0_f64, String::new());
        for _ in 0..args.rounds {
            let disk = args.bare();
            let store = args.store(Arc::clone(&disk) as Arc<dyn BlockDevice>, 20);
            let used = (args.size << 8) * utilisation / 100;
            assert!(used < pages(&store), "{used} pages do not fit");
            fill(&store, used);
            // Once around the log, so that what is measured is the steady state.
            write_random(args, &store, used, args.work(args.size << 8));
            let before = store.stats();
            let count = args.work(60_000);
            let metered = disk.meter().expect("the disk is there");
            let mut times = Vec::new();
            let logged = count as f64 / args.seconds(|| times = write_random(args, &store, used, count));
            let after = store.stats();
            work = disk_work(&metered, &disk.meter().expect("the disk is there"), count as f64 / 1e3);
            slow.push(times[times.len() * 99 / 100]);
            slowest = slowest.max(times[times.len() - 1]);
            let written = |stats: &umbrella_block::log_store::LogStoreStats| {
                (stats.written.0 + stats.copied.0 + stats.map_written.0 + stats.headers_written.0) as f64
            };
            amplified = (written(&after) - written(&before)) / (after.written.0 - before.written.0) as f64;
            let bare = args.bare();
            let count = args.work(2_000);
            let plain = count as f64 / args.seconds(|| _ = write_random(args, &*bare, used, count));
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
    let amount = args.work(args.size * 6 / 10).max(64) << 8;
    let rate = |seconds: f64, pages: u64| pages as f64 * 4096.0 / 1e6 / seconds;
    let read_all = |device: &dyn BlockDevice, pages: u64| {
        let mut buffer = vec![0; 1 << 20];
        for at in (0..pages / 256 * 256).step_by(256) {
            device.read(Lba(at * PAGE), &mut buffer).expect("it is read");
        }
    };
    let mut rows: [(&str, Vec<f64>, Vec<f64>); 3] =
        [("write", vec![], vec![]), ("read, written so", vec![], vec![]), ("read, then random", vec![], vec![])];
    for _ in 0..args.rounds {
        let (bare, store) = (args.bare(), args.store(args.bare() as Arc<dyn BlockDevice>, 100));
        let both: [&dyn BlockDevice; 2] = [&*bare, &store];
        let written = both.map(|device| rate(args.seconds(|| fill(device, amount)), amount));
        let read = both.map(|device| rate(args.seconds(|| read_all(device, amount)), amount));
        write_random(args, &store, amount, args.work(amount / 4));
        let some = amount / 8;
        let after = both.map(|device| rate(args.seconds(|| read_all(device, some)), some));
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
        let device: Arc<dyn BlockDevice> = Arc::new(Memory::new(ByteSize(args.work(args.size.max(640)) << 20)));
        let whole = args.store(Arc::clone(&device), 0);
        let log = whole.stats().segment.0 * u64::from(whole.stats().segments);
        let spare = 1000_u64.saturating_sub(utilisation * log * 10 / (pages(&whole) * 4096));
        if spare < 20 {
            println!("  {utilisation:>6} %   not with what cleaning needs kept back");
            continue;
        }
        drop(whole);
        let options =
            CreateOptions { scheme: args.scheme.clone(), spare: spare as u32, force: true, ..CreateOptions::default() };
        create(Arc::clone(&device), "disk", &options).unwrap_or_else(|error| panic!("{error}"));
        let store = LogStore::open(device, "disk", Options::default(), OpenMode::ReadWrite).expect("it can be opened");
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
        let written = |stats: &umbrella_block::log_store::LogStoreStats| {
            (stats.written.0 + stats.copied.0 + stats.map_written.0 + stats.headers_written.0) as f64
        };
        let amplified = (written(&after) - written(&before)) / (after.written.0 - before.written.0) as f64;
        println!("  {utilisation:>6} %   {amplified:>19.2}   {:>16}   {}", after.segments_cleaned, rates.join(" "));
    }
}

fn main() {
    let args = args();
    println!("{} of {} MiB, factor {}, {}", args.disk, args.size, args.factor, args.scheme);
    for (part, run) in [("random", random as fn(&Args)), ("sequential", sequential), ("full", full)] {
        if args.wants(part) {
            run(&args);
        }
    }
}
