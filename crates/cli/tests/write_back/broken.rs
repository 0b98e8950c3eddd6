//! What a program on a mount with ordered write-back sees of a disk that fails.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, OnceLock};

use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use umbrella_block::fault::{Answer, Faulty, Plan, Rule, TornWrite, WriteFault};
use umbrella_block::memory::Memory;
use umbrella_block::{BlockDevice, BlockError, Durability, Geometry, Zeroes};
use umbrella_units::{Lba, SectorRange};

use super::devices::Remembering;
use super::flusher;
use super::support::pool::Pool;
use super::support::{MIB, bytes, eventually};

const KEYS: &str = "write_back = \"cscan\"\nwrite_back_limit = \"4MiB\"\nwrite_back_background = \"1MiB\"";

/// A device that follows its plan for writes to the places that a test names; all other writes are well.
struct PartlyFaulty {
    faulty: Faulty<Memory>,
    bad: OnceLock<Vec<SectorRange>>,
}

impl PartlyFaulty {
    fn device_for(&self, range: SectorRange) -> &dyn BlockDevice {
        let struck = self.bad.get().is_some_and(|bad| bad.iter().any(|bad| bad.overlaps(range)));
        if struck { &self.faulty } else { self.faulty.inner() }
    }

    /// From now on the plan is for the blocks of this file.
    fn set_bad_file(&self, file: &Path) {
        let listed = Command::new("filefrag").args(["-v", "-b512"]).arg(file).output().expect("e2fsprogs");
        let text = String::from_utf8_lossy(&listed.stdout).into_owned();
        // "   0:        0..   65535:     270336..    335871:  65536: ..."
        let extents = text.lines().filter_map(|line| {
            let mut parts = line.split(':').skip(2);
            let (first, last) = parts.next()?.split_once("..")?;
            Some(SectorRange::between(Lba(first.trim().parse().ok()?), Lba(last.trim().parse::<u64>().ok()? + 1)))
        });
        let extents: Vec<SectorRange> = extents.collect();
        assert_eq!(extents.iter().map(|extent| extent.sectors).sum::<u64>(), 32 * MIB / 512, "{text}");
        self.bad.set(extents).expect("once");
    }
}

/// The device that the file system uses; the test keeps a reference to it.
struct Shared(Arc<PartlyFaulty>);

impl BlockDevice for Shared {
    fn geometry(&self) -> Geometry {
        self.0.faulty.geometry()
    }

    fn read(&self, at: Lba, buffer: &mut [u8]) -> Result<(), BlockError> {
        self.0.faulty.inner().read(at, buffer)
    }

    fn write(&self, at: Lba, data: &[u8], durability: Durability) -> Result<(), BlockError> {
        let range = self.geometry().check(at, data.len())?;
        self.0.device_for(range).write(at, data, durability)
    }

    fn flush(&self) -> Result<(), BlockError> {
        self.0.faulty.inner().flush()
    }

    fn discard(&self, range: SectorRange) -> Result<(), BlockError> {
        self.0.faulty.inner().discard(range)
    }

    fn write_zeroes(&self, range: SectorRange, zeroes: Zeroes, durability: Durability) -> Result<(), BlockError> {
        self.0.device_for(range).write_zeroes(range, zeroes, durability)
    }
}

/// ext4 with the files "good" and "bad", which have their blocks.
fn ext4_on_partly_faulty(plan: Plan) -> (Arc<PartlyFaulty>, Remembering) {
    let mut kept = None;
    let disk = Remembering::over(|memory| {
        let device = Arc::new(PartlyFaulty { faulty: Faulty::new(memory, plan), bad: OnceLock::new() });
        kept = Some(Arc::clone(&device));
        Shared(device)
    });
    for name in ["good", "bad"] {
        let file = File::create(disk.at.join(name)).expect("a file");
        rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, 32 * MIB).expect("there is room");
        file.sync_all().expect("it is written");
    }
    (kept.expect("it was made"), disk)
}

fn open(pool: &Pool, name: &str) -> File {
    OpenOptions::new().read(true).write(true).open(pool.join(name)).expect("it can be opened")
}

fn write(file: &File, mebibytes: u64) {
    for at in 0..mebibytes {
        file.write_all_at(&bytes(at, MIB), at * MIB).expect("into the page cache");
    }
}

#[test]
fn a_write_that_the_disk_refuses_fails_the_next_fsync_of_its_file_and_no_other() {
    let refused = WriteFault::Partial { landed: TornWrite::Nothing, answer: Answer::Error(Errno::IO) };
    // Once: what is written there later lands.
    let plan = Plan::new(1).rule(Rule::on_write(refused).first(1));
    let (device, disk) = ext4_on_partly_faulty(plan);
    let pool = Pool::builder().branch_with("disk", &disk.at, KEYS).mount();
    device.set_bad_file(&disk.at.join("bad"));
    let (good, bad) = (open(&pool, "good"), open(&pool, "bad"));
    write(&bad, 16);
    write(&good, 16);
    eventually("the policy has written what fails", || flusher(&pool).errors > 0);
    let reported = bad.sync_all().map_err(|error| error.raw_os_error());
    assert_eq!(reported, Err(Some(libc::EIO)), "the writer gets the error");
    bad.sync_all().expect("once");
    good.sync_all().expect("this one is well");
    open(&pool, "good").sync_all().expect("for everybody");
    write(&bad, 16);
    bad.sync_all().expect("it can be written again");
    let status = flusher(&pool);
    assert!(status.errors > 0 && status.dirty.0 == 0, "{status:?}");
    assert_eq!(pool.metric("umbrella_write_back_errors_count"), status.errors);
    for (file, name) in [(&good, "good"), (&bad, "bad")] {
        for at in 0..16 {
            let mut found = vec![0; MIB as usize];
            file.read_exact_at(&mut found, at * MIB).expect("it can be read");
            assert!(found == bytes(at, MIB), "MiB {at} of {name} differs");
        }
    }
}
