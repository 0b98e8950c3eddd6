//! What a hybrid disk gains and what it costs, on emulated disks in their own time:
//! `cargo bench -p umbrella-block --bench hybrid`.
//!
//! All figures are virtual time, and compare two devices that take turns in one run. They include the host's wake-ups:
//! some 0.2 ms of real time for each call of a single caller. `--factor` says how much the emulation is slowed down:
//! the larger it is, the less the wake-ups weigh.

mod emulated;

use std::sync::Arc;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use emulated::{Amount, Factor, PAGE, median, wants};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use umbrella_block::emulated::EmulatedDisk;
use umbrella_block::hybrid::{Half, Hybrid, Options, create};
use umbrella_block::memory::Memory;
use umbrella_block::spindle::{NoSpindle, Spindle};
use umbrella_block::{BlockDevice, Durability};
use umbrella_policy::flash_cache::{Algorithm, FlushTrigger, Percent};
use umbrella_units::{ByteSize, Lba, SECTOR_BYTES};

/// Sectors of the disk: 8 GiB.
const DISK: u64 = (8 << 30) / SECTOR_BYTES;

/// What a hybrid disk gains, and what it costs.
#[derive(Debug, Clone, Parser)]
struct Args {
    /// The disk's profile.
    #[arg(long, default_value = "travelstar_e7k100")]
    disk: String,
    /// The flash's.
    #[arg(long, default_value = "sandisk_ultra2")]
    flash: String,
    /// Real seconds for one of the model's.
    #[arg(long, default_value = "0.2")]
    factor: Factor,
    #[command(flatten)]
    amount: Amount,
    /// All of them by default.
    parts: Vec<Part>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Random 4 KiB writes: the disk alone, and behind flash.
    Writes,
    /// Bursts of writes with idle time between them: response, energy, spin-ups.
    Bursts,
    /// What a read through a hybrid disk costs when the flash is empty.
    Reads,
    /// Time to empty the flash, by algorithm, at each spin-up and when full.
    Flush,
}

impl Args {
    fn bare(&self) -> Arc<EmulatedDisk> {
        self.factor.disk(&self.disk, ByteSize(DISK * SECTOR_BYTES))
    }

    /// A disk, and a hybrid disk of another one like it and so much flash.
    fn hybrid(&self, flash: ByteSize, options: Options) -> (Arc<EmulatedDisk>, Hybrid) {
        let disk = self.bare();
        let flash = self.factor.disk(&self.flash, ByteSize(flash.0 + (1 << 20)));
        let half = |name: &str, device: Arc<EmulatedDisk>| Half { name: name.to_owned(), device };
        let (disk_half, flash) = (half("disk", disk.clone()), half("flash", flash));
        create(&disk_half, &flash).expect("they can be joined");
        (disk.clone(), Hybrid::open(disk_half, flash, disk, options, None).expect("it can be opened"))
    }
}

fn by_hand(when: FlushTrigger, algorithm: Algorithm) -> Options {
    Options { when, algorithm, drain_share: Percent(100), ..Options::default() }
}

fn write_random(device: &dyn BlockDevice, count: u64, random: &mut StdRng, each: u64) {
    let data = [7; 4096];
    for number in 1..=count {
        let at = random.random_range(0..(DISK - 64) / PAGE) * PAGE;
        device.write(Lba(at), &data, Durability::Cached).expect("it is written");
        if number % each == 0 {
            device.flush().expect("it is flushed");
        }
    }
}

fn writes(args: &Args) {
    let count = args.amount.of(1000);
    println!("\nrandom 4 KiB writes, {count}, a flush after every 16 (writes a second)");
    for round in 1..=args.amount.rounds() {
        let bare = args.bare();
        let alone =
            count as f64 / args.factor.seconds(|| write_random(&*bare, count, &mut StdRng::seed_from_u64(1), 16));
        let (_disk, hybrid) = args.hybrid(ByteSize(64 << 20), by_hand(FlushTrigger::Full, Algorithm::Whole));
        hybrid.sleep().expect("it sleeps");
        let cached =
            count as f64 / args.factor.seconds(|| write_random(&hybrid, count, &mut StdRng::seed_from_u64(1), 16));
        let drained = args.factor.seconds(|| hybrid.drain().expect("it is drained"));
        let both = count as f64 / (count as f64 / cached + drained);
        println!(
            "  round {round}  alone {alone:8.1}   behind flash {cached:8.1} (x{:.2})   with emptying it {both:8.1} (x{:.2})",
            cached / alone,
            both / alone
        );
    }
}

fn bursts(args: &Args) {
    let (bursts, each, idle) = (args.amount.of(20).max(3), 60, 120.0);
    println!(
        "\n{bursts} bursts of {each} random writes, {idle} s idle after each, the disk put to sleep after 20 s of that"
    );
    let fast = Args { factor: Factor(args.factor.0.min(0.01)), ..args.clone() };
    let pause = |seconds: f64| std::thread::sleep(Duration::from_secs_f64(seconds * fast.factor.0));
    let report = |name: &str, disk: &EmulatedDisk, worst: f64| {
        let meter = disk.meter().expect("it is there");
        println!(
            "  {name:<22} {:7.0} J in {:5.0} s   {:3} spin-ups   longest write {worst:6.2} s",
            meter.energy().joules(),
            meter.now.as_secs_f64(),
            meter.power.spin_ups
        );
    };
    let burst = |device: &dyn BlockDevice, random: &mut StdRng| {
        let mut worst: f64 = 0.0;
        for _ in 0..each {
            worst = worst.max(fast.factor.seconds(|| write_random(device, 1, random, 16)));
        }
        worst
    };
    for sleeps in [false, true] {
        let bare = fast.bare();
        let (mut random, mut worst) = (StdRng::seed_from_u64(1), 0.0_f64);
        for _ in 0..bursts {
            worst = worst.max(burst(&*bare, &mut random));
            pause(20.0);
            if sleeps {
                bare.standby().expect("it sleeps");
            }
            pause(idle - 20.0);
        }
        report(if sleeps { "alone, sleeping" } else { "alone, always on" }, &bare, worst);
    }
    let (disk, hybrid) = fast.hybrid(ByteSize(64 << 20), by_hand(FlushTrigger::Full, Algorithm::Whole));
    hybrid.sleep().expect("it sleeps");
    let (mut random, mut worst) = (StdRng::seed_from_u64(1), 0.0_f64);
    for _ in 0..bursts {
        worst = worst.max(burst(&hybrid, &mut random));
        pause(idle);
    }
    hybrid.drain().expect("it is drained");
    report("behind flash, sleeping", &disk, worst);
}

fn reads(args: &Args) {
    println!("\nrandom 4 KiB reads with an empty flash (time of the hybrid disk / of the disk alone)");
    let read = |device: &dyn BlockDevice, count: u64| {
        let (mut random, mut buffer) = (StdRng::seed_from_u64(2), [0; 4096]);
        for _ in 0..count {
            let at = random.random_range(0..(DISK - 64) / PAGE) * PAGE;
            device.read(Lba(at), &mut buffer).expect("it is read");
        }
    };
    let count = args.amount.of(400);
    let bare = args.bare();
    let (_disk, hybrid) = args.hybrid(ByteSize(64 << 20), by_hand(FlushTrigger::Full, Algorithm::Whole));
    let ratios = (0..args.amount.rounds().max(3))
        .map(|_| args.factor.seconds(|| read(&hybrid, count)) / args.factor.seconds(|| read(&*bare, count)));
    println!("  emulated disk          {:.3}", median(ratios.collect()));
    let memory: Arc<dyn BlockDevice> = Arc::new(Memory::new(ByteSize(DISK * SECTOR_BYTES)));
    let half = |name: &str, device| Half { name: name.to_owned(), device };
    let (disk, flash) = (half("disk", memory.clone()), half("flash", Arc::new(Memory::new(ByteSize(64 << 20)))));
    create(&disk, &flash).expect("they can be joined");
    let hybrid =
        Hybrid::open(disk, flash, Arc::new(NoSpindle::default()), Options::default(), None).expect("it can be opened");
    let count = args.amount.of(1_000_000);
    let (mut alone, mut through) = (Vec::new(), Vec::new());
    for _ in 0..5 {
        through.push(args.factor.seconds(|| read(&hybrid, count)));
        alone.push(args.factor.seconds(|| read(&*memory, count)));
    }
    let (through, alone) = (median(through), median(alone));
    let nanos = |seconds: f64| seconds * args.factor.0 / count as f64 * 1e9;
    println!(
        "  memory                 {:.3}   ({:.0} and {:.0} ns a read)",
        through / alone,
        nanos(through),
        nanos(alone)
    );
}

/// What a desktop writes while its disk sleeps: mostly small rewrites of a few files, some runs.
fn period(device: &dyn BlockDevice, random: &mut StdRng, requests: u64) {
    let hot = 64 << 11;
    for _ in 0..requests {
        let (at, pages) = match random.random_range(0..10) {
            0..6 => (random.random_range(0..hot), random.random_range(1..4)),
            6..9 => (random.random_range(0..DISK - 4096), random.random_range(1..8)),
            _ => (random.random_range(0..DISK - 4096), 32),
        };
        let data = vec![7; (pages * 4096) as usize];
        device.write(Lba(at / PAGE * PAGE), &data, Durability::Cached).expect("it is written");
    }
}

fn flush(args: &Args) {
    let (periods, requests) = (args.amount.of(20).max(2), 40);
    println!("\nemptying the flash: {periods} periods of {requests} writes (virtual seconds)");
    println!("  algorithm      each      full   full/each");
    let mut totals = Vec::new();
    for algorithm in Algorithm::ALL {
        let drain_time = |each: bool| {
            let (_disk, hybrid) = args.hybrid(ByteSize(64 << 20), by_hand(FlushTrigger::Full, algorithm));
            let mut random = StdRng::seed_from_u64(3);
            for _ in 0..periods {
                hybrid.sleep().expect("it sleeps");
                period(&hybrid, &mut random, requests);
                if each {
                    // The spin-up is not part of emptying it.
                    hybrid.wake().expect("it wakes");
                    hybrid.drain().expect("it is drained");
                }
            }
            hybrid.wake().expect("it wakes");
            hybrid.drain().expect("it is drained");
            hybrid.stats().drain_time.as_secs_f64() / args.factor.0
        };
        let rounds: Vec<(f64, f64)> =
            (0..args.amount.rounds()).map(|_| (drain_time(true), drain_time(false))).collect();
        let each = median(rounds.iter().map(|round| round.0).collect());
        let full = median(rounds.iter().map(|round| round.1).collect());
        println!("  {algorithm:<9} {each:9.2} {full:9.2}   {:+.0} %", (full / each - 1.0) * 100.0);
        totals.push(full);
    }
    println!(
        "  full, algorithm 4 against 1: {:+.0} %   (published: as much as -90 %; full against each: more than -75 %)",
        (totals[3] / totals[0] - 1.0) * 100.0
    );
}

fn main() {
    let args = Args::parse();
    println!("{} behind {}, factor {}", args.disk, args.flash, args.factor.0);
    for (part, run) in
        [(Part::Writes, writes as fn(&Args)), (Part::Bursts, bursts), (Part::Reads, reads), (Part::Flush, flush)]
    {
        if wants(&args.parts, part) {
            run(&args);
        }
    }
}
