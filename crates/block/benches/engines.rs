//! What the engines themselves cost, in processor and system calls: on files of this machine, without a model. `cargo bench -p umbrella-block --bench engines`.
//!
//! Two builds are compared by running this in turn in both.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use umbrella_block::file::{Access, FileDevice, OpenOptions};
use umbrella_block::hybrid::{self, Half, Hybrid};
use umbrella_block::log_store::{self, CreateOptions, LogStore};
use umbrella_block::spindle::NoSpindle;
use umbrella_block::{BlockDevice, Durability};
use umbrella_policy::flash_cache::When;
use umbrella_units::{Lba, SECTOR_BYTES};

const HELP: &str = "\
What the engines themselves cost, on files of this machine: microseconds for each 4 KiB operation.

usage: cargo bench -p umbrella-block --bench engines -- [OPTIONS]

OPTIONS
  --dir DIR      where the files are made [default: the directory for temporary files]
  --rounds N     of each row; the median is printed [default: 7]
  --operations N of each round [default: 20000]
  --json         one line for machines
";

const PAGE: u64 = 4096 / SECTOR_BYTES;
/// Pages that are read and written: 64 MiB.
const PAGES: u64 = 16 << 10;

struct Args {
    dir: PathBuf,
    rounds: u64,
    operations: u64,
    json: bool,
}

fn args() -> Args {
    let mut args = Args { dir: std::env::temp_dir(), rounds: 7, operations: 20_000, json: false };
    let mut given = std::env::args().skip(1);
    while let Some(arg) = given.next() {
        let mut value = || given.next().unwrap_or_else(|| panic!("{arg} needs a value"));
        match arg.as_str() {
            "--dir" => args.dir = PathBuf::from(value()),
            "--rounds" => args.rounds = value().parse().expect("a number"),
            "--operations" => args.operations = value().parse().expect("a number"),
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

fn file(dir: &Path, name: &str, size: u64) -> Arc<FileDevice> {
    let path = dir.join(name);
    std::fs::File::create(&path).and_then(|file| file.set_len(size)).expect("the directory can be written");
    let options = OpenOptions { access: Access::ReadWrite, ..OpenOptions::default() };
    Arc::new(FileDevice::open(&path, options).unwrap_or_else(|error| panic!("{error}")))
}

fn log_store(dir: &Path) -> LogStore {
    let device = file(dir, "store", 1 << 30);
    log_store::create(device.clone(), "store", &CreateOptions::default()).unwrap_or_else(|error| panic!("{error}"));
    let access = log_store::OpenMode::ReadWrite;
    LogStore::open(device, "store", log_store::Options::default(), access).unwrap_or_else(|error| panic!("{error}"))
}

/// A hybrid disk whose flash is emptied only when it is full, so that what is read lies on flash.
fn hybrid(dir: &Path) -> Hybrid {
    let half = |name: &str, size| Half { name: name.to_owned(), device: file(dir, name, size) };
    let (disk, flash) = (half("disk", 256 << 20), half("flash", 3 << 30));
    hybrid::create(&disk, &flash).unwrap_or_else(|error| panic!("{error}"));
    let options = hybrid::Options { when: When::Full, ..hybrid::Options::default() };
    Hybrid::open(disk, flash, Arc::new(NoSpindle::default()), options, None).unwrap_or_else(|error| panic!("{error}"))
}

fn random_page(random: &mut StdRng) -> Lba {
    Lba(random.random_range(0..PAGES) * PAGE)
}

/// Writes pages at random, with a flush after each so many; microseconds for each write.
fn write(device: &dyn BlockDevice, random: &mut StdRng, count: u64, flush_each: u64) -> f64 {
    let mut data = [7; 4096];
    let begun = Instant::now();
    for number in 1..=count {
        data[..8].copy_from_slice(&number.to_le_bytes());
        device.write(random_page(random), &data, Durability::Cached).expect("it is written");
        if number % flush_each == 0 {
            device.flush().expect("it is flushed");
        }
    }
    begun.elapsed().as_secs_f64() * 1e6 / count as f64
}

fn read(device: &dyn BlockDevice, random: &mut StdRng, count: u64) -> f64 {
    let mut buffer = [0; 4096];
    let begun = Instant::now();
    for _ in 0..count {
        device.read(random_page(random), &mut buffer).expect("it is read");
    }
    begun.elapsed().as_secs_f64() * 1e6 / count as f64
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    let args = args();
    let rows = ["read", "write", "write, flush", "write, flush each 8"];
    let mut line = Vec::new();
    for engine in ["log store", "hybrid"] {
        let dir = tempfile::tempdir_in(&args.dir).expect("the directory can be written");
        let device: Box<dyn BlockDevice> = match engine {
            "log store" => Box::new(log_store(dir.path())),
            _ => Box::new(hybrid(dir.path())),
        };
        let device = device.as_ref();
        let mut random = StdRng::seed_from_u64(1);
        write(device, &mut random, 2 * PAGES, 64);
        let mut times = vec![Vec::new(); rows.len()];
        for _ in 0..args.rounds {
            times[0].push(read(device, &mut random, args.operations));
            for (times, flush_each) in times[1..].iter_mut().zip([64, 1, 8]) {
                times.push(write(device, &mut random, args.operations / 4, flush_each));
            }
        }
        for (row, times) in rows.iter().zip(times) {
            let time = median(times);
            line.push(format!("\"{engine}: {row}\": {time:.2}"));
            if !args.json {
                println!("{engine:<10} {row:<20} {time:>8.2} us");
            }
        }
    }
    if args.json {
        println!("{{{}}}", line.join(", "));
    }
}
