//! What a device sees of a flusher: the order in which pages reach it; and what a flusher makes of a device that fails.

use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;

use rand::seq::SliceRandom;
use rand::{SeedableRng, rngs::StdRng};
use umbrella_block::fault::{Answer, Faulty, Plan, Rule, TornWrite, WriteFault};
use umbrella_units::{ByteSize, FileId, Lba, SectorRange};
use umbrella_writeback::{FileRef, Flusher, Limits, PageRange, Settings};

use super::devices::Remembering;
use super::dirty_in_cache as dirty;
use super::support::{KIB, MIB, eventually};

/// Overwrites every other block of 16 KiB of a file in random order, lets a flusher write back what it wants, and
/// returns the writes that the device saw. Where the kernel wrote much of it by itself, as it does when this machine
/// stands still for seconds, the run is repeated.
fn order_of(policy: &str, seed: u64) -> Vec<u64> {
    let orders = std::iter::repeat_with(|| order_once(policy, seed)).take(20);
    orders.filter(|(_, left)| left.0 >= 12 * MIB).map(|(writes, _)| writes).next().expect("the kernel leaves it alone")
}

/// As [`order_of`]; and how much was still dirty when the flusher began.
fn order_once(policy: &str, seed: u64) -> (Vec<u64>, ByteSize) {
    const BLOCKS: u64 = 1024;
    let disk = Remembering::new();
    let path = disk.at.join("file");
    let file = File::create(&path).expect("a file");
    file.write_all_at(&vec![1; (32 * MIB) as usize], 0).expect("there is room");
    file.sync_all().expect("it is written");
    // What is cached in large pieces is written back in large pieces.
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).expect("it is forgotten");
    drop(file);
    let file = File::options().write(true).open(&path).expect("opens");
    let root = File::open(&disk.at).expect("opens");
    let limits = Limits { limit: Some(ByteSize(64 * MIB)), background: Some(ByteSize(48 * MIB)) };
    let settings = Settings { limits, ..Settings::parse(policy).expect("a policy") };
    let flusher = Flusher::start(root.into(), settings).expect("starts");
    let id = FileId(rustix::fs::fstat(&file).expect("stat").st_ino);

    let mut blocks: Vec<u64> = (0..BLOCKS).collect();
    blocks.shuffle(&mut StdRng::seed_from_u64(seed));
    for block in blocks {
        let offset = block * 32 * KIB;
        file.write_all_at(&vec![2; 16 * KIB as usize], offset).expect("there is room");
        flusher.wrote(id, FileRef::Open(file.as_fd()), PageRange::of_bytes(offset, 16 * KIB));
    }
    // The kernel may have written some of it: it gives a disk that wrote little lately a small share of what may be
    // dirty.
    assert_eq!(flusher.status().runs, 0, "nothing is written back below the threshold");
    let (before, left) = (disk.now(), dirty(&file, 32 * MIB));
    flusher.set_limits(Limits { limit: Some(ByteSize(2 * MIB)), background: Some(ByteSize(MIB)) }).expect("possible");
    eventually("what is above the threshold is written back", || {
        let status = flusher.status();
        status.dirty.0 <= MIB && status.in_flight.0 == 0
    });
    flusher.stop();
    let writes = disk.writes(before);
    drop((flusher, file));
    (writes, left)
}

/// Number of runs that may be on their way at once, which this machine may end in any order.
const AT_ONCE: usize = 64;

/// The share of writes that lie before the one that came [`AT_ONCE`] before them.
fn descents(writes: &[u64]) -> f64 {
    let pairs = writes.windows(AT_ONCE + 1).map(|window| (window[0], window[AT_ONCE]));
    let (all, down) =
        pairs.fold((0_u32, 0_u32), |(all, down), (first, last)| (all + 1, down + u32::from(last < first)));
    f64::from(down) / f64::from(all.max(1))
}

#[test]
fn pages_reach_the_device_in_the_order_of_the_policy() {
    let seed = 11;
    let (swept, as_written) = (order_of("cscan", seed), order_of("lrw", seed));
    println!("seed {seed}: descents {:.3} with cscan, {:.3} with lrw", descents(&swept), descents(&as_written));
    assert!(swept.len() > 300 && as_written.len() > 300, "{} and {} writes", swept.len(), as_written.len());
    // The journal of ext4 writes elsewhere.
    assert!(descents(&swept) < 0.1, "cscan goes one way");
    assert!(descents(&as_written) > 0.3, "lrw writes in the order of the writers, which is random");
}

#[test]
fn a_write_back_that_fails_is_counted_and_reported_once() {
    // No metadata lies so far behind.
    let bad = SectorRange::between(Lba(160 * MIB / 512), Lba(250 * MIB / 512));
    let refused = WriteFault::Partial { landed: TornWrite::Nothing, answer: Answer::Error(rustix::io::Errno::IO) };
    let plan = Plan::new(1).rule(Rule::on_write(refused).within(bad));
    let disk = Remembering::over(|memory| Faulty::new(memory, plan));
    let allocate = |name: &str, length: u64| {
        let file = File::create(disk.at.join(name)).expect("a file");
        rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, length).expect("there is room");
        file
    };
    let (_good, file) = (allocate("good", 160 * MIB), allocate("bad", 32 * MIB));
    let limits = Limits { limit: Some(ByteSize(2 * MIB)), background: Some(ByteSize(MIB)) };
    let settings = Settings { limits, ..Settings::parse("cscan").expect("a policy") };
    let flusher = Flusher::start(File::open(&disk.at).expect("opens").into(), settings).expect("starts");
    let id = FileId(rustix::fs::fstat(&file).expect("stat").st_ino);
    assert!(!flusher.take_error(id));
    for at in 0..24 {
        file.write_all_at(&vec![1; MIB as usize], at * MIB).expect("into the page cache");
        flusher.wrote(id, FileRef::Open(file.as_fd()), PageRange::of_bytes(at * MIB, MIB));
    }
    eventually("the failure is seen", || flusher.status().errors > 0);
    assert!(flusher.take_error(id), "the next sync returns the error");
    eventually("it continues", || flusher.status().dirty.0 <= MIB);
    flusher.stop();
    // Later failures are reported to the user that continues without this flusher, once.
    assert!(flusher.take_errors().iter().all(|failed| *failed == id));
    assert_eq!(flusher.take_errors(), []);
    assert!(!flusher.take_error(id));
    drop((flusher, file));
}
