//! A block device as a loop device with a real file system on it. Needs root, FUSE and the loop driver.

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use rustix::fs::OFlags;
use support::{Disk, Mount, noise, run};
use umbrella_block::file::{Access, AlignedBuffer, Cache, FileDevice, OpenOptions};
use umbrella_block::memory::Memory;
use umbrella_block::serve::loop_device::{AttachOptions, LoopDevice, LoopError};
use umbrella_block::{BlockDevice, BlockError, Durability, Geometry};
use umbrella_units::{ByteSize, Lba};

const SIZE: ByteSize = ByteSize(64 << 20);

fn write_files(folder: &Path, seed: u64) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    for number in 0..60_u64 {
        let path = folder.join(format!("{}/{number}", number % 7));
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        let content = noise(seed + number, (number * number * 97) as usize);
        fs::write(&path, &content).expect("a file");
        files.insert(path, content);
    }
    // Room that is given back, to be trimmed and used again.
    for number in (0..60).step_by(3) {
        let path = folder.join(format!("{}/{number}", number % 7));
        fs::remove_file(&path).expect("it is there");
        files.remove(&path);
    }
    files
}

fn assert_files(files: &BTreeMap<PathBuf, Vec<u8>>) {
    for (path, content) in files {
        assert!(&fs::read(path).expect("it is there") == content, "{} differs", path.display());
    }
}

fn ext4_keeps_files(device: &Arc<dyn BlockDevice>, options: &AttachOptions) {
    let folder = tempfile::tempdir().expect("a folder");
    let disk = Disk::new(Arc::clone(device), options);
    run("mkfs.ext4", &["-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0", disk.path()]);
    let mount = Mount::new(disk.device.path(), folder.path(), &[]);
    let files = write_files(mount.path(), 1);
    run("fstrim", &[mount.path().to_str().expect("UTF-8")]);
    assert_files(&files);
    drop(mount);
    disk.take_apart();

    let disk = Disk::new(Arc::clone(device), options);
    run("e2fsck", &["-f", "-n", disk.path()]);
    let mount = Mount::new(disk.device.path(), folder.path(), &[]);
    assert_files(&files);
    drop(mount);
    disk.take_apart();
}

#[test]
fn ext4_on_memory_keeps_files() {
    ext4_keeps_files(&(Arc::new(Memory::new(SIZE)) as _), &AttachOptions::default());
}

#[test]
fn ext4_on_a_file_with_direct_io_and_large_sectors_keeps_files() {
    let image = tempfile::NamedTempFile::new().expect("a file");
    image.as_file().set_len(SIZE.0).expect("it grows");
    let options = OpenOptions { cache: Cache::Direct, ..OpenOptions::default() };
    let device = FileDevice::open(image.path(), options).expect("a device");
    ext4_keeps_files(&(Arc::new(device) as _), &AttachOptions { sector_size: 4096, ..AttachOptions::default() });
}

#[test]
fn what_is_written_through_the_loop_device_is_on_the_device() {
    let memory = Arc::new(Memory::new(ByteSize(4 << 20)));
    let disk = Disk::new(Arc::clone(&memory) as _, &AttachOptions::default());
    let (first, second) = (noise(1, 3 << 20), noise(2, 4096));
    let raw = fs::File::options().write(true).open(disk.device.path()).expect("root may");
    raw.write_all_at(&first, 4096).expect("there is room");
    raw.write_all_at(&second, (4 << 20) - 4096).expect("there is room");
    raw.sync_all().expect("it is written");
    drop(raw);
    let bytes = memory.to_bytes();
    assert!(bytes[4096..4096 + (3 << 20)] == first && bytes[(4 << 20) - 4096..] == second);
    disk.take_apart();
}

#[test]
fn trimmed_space_reads_as_zeroes() {
    let memory = Arc::new(Memory::from_bytes(noise(3, 4 << 20)));
    let disk = Disk::new(Arc::clone(&memory) as _, &AttachOptions::default());
    run("blkdiscard", &["--offset", "65536", "--length", "131072", disk.path()]);
    run("blkdiscard", &["--zeroout", "--offset", "1048576", "--length", "65536", disk.path()]);
    let bytes = memory.to_bytes();
    assert!(bytes[65536..65536 + 131_072].iter().all(|byte| *byte == 0), "discarded");
    assert!(bytes[1_048_576..1_048_576 + 65536].iter().all(|byte| *byte == 0), "zeroed");
    assert!(bytes[..65536].iter().any(|byte| *byte != 0), "what is before it stays");
    disk.take_apart();
}

#[test]
fn a_mounted_disk_cannot_be_detached_and_keeps_working() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut disk = Disk::new(Arc::new(Memory::new(SIZE)), &AttachOptions::default());
    run("mkfs.ext4", &["-q", "-F", disk.path()]);
    let mount = Mount::new(disk.device.path(), folder.path(), &[]);
    assert!(matches!(disk.device.detach(), Err(LoopError::InUse { .. })));
    assert!(disk.file.unmount().is_err(), "the loop device uses it");
    fs::write(mount.path().join("after"), "still here").expect("it continues");
    drop(mount);
    disk.take_apart();
}

#[test]
fn a_dropped_disk_leaves_nothing_behind() {
    let disk = Disk::new(Arc::new(Memory::new(SIZE)), &AttachOptions::default());
    let (device, folder) = (disk.path().to_owned(), disk.file.path().parent().expect("a folder").to_owned());
    drop(disk);
    let listed = run("losetup", &["--list", "--noheadings", "--output", "BACK-FILE"]);
    assert!(!listed.contains(folder.to_str().expect("UTF-8")), "{device} is still attached: {listed}");
    let mounts = fs::read_to_string("/proc/self/mounts").expect("proc");
    assert!(!mounts.contains(folder.to_str().expect("UTF-8")));
}

#[test]
fn only_its_owner_sees_the_file() {
    let disk = Disk::new(Arc::new(Memory::new(SIZE)), &AttachOptions::default());
    let path = disk.file.path();
    assert_eq!(fs::metadata(&path).expect("root may").permissions().mode() & 0o777, 0o600);
    let path = path.to_str().expect("UTF-8");
    let other = support::start("setpriv", &["--reuid=nobody", "--clear-groups", "cat", path]);
    assert!(!other.status.success(), "nobody may not read it");
    disk.take_apart();
}

#[test]
fn a_read_only_disk_refuses_writes() {
    let options = AttachOptions { access: Access::ReadOnly, ..AttachOptions::default() };
    let disk = Disk::new(Arc::new(Memory::from_bytes(noise(4, 1 << 20))), &options);
    assert_eq!(run("blockdev", &["--getro", disk.path()]).trim(), "1");
    assert!(fs::File::options().write(true).open(disk.file.path()).is_err(), "nor the file below it");
    assert!(fs::read(disk.device.path()).expect("it can be read") == noise(4, 1 << 20));
    disk.take_apart();
}

#[test]
fn the_kernel_gets_sector_size_scheduler_and_rotation() {
    let options = AttachOptions {
        sector_size: 4096,
        scheduler: Some("mq-deadline".to_owned()),
        rotational: Some(true),
        ..AttachOptions::default()
    };
    let disk = Disk::new(Arc::new(Memory::new(SIZE)), &options);
    assert_eq!(disk.queue("logical_block_size"), "4096");
    assert_eq!(disk.queue("rotational"), "1");
    assert!(disk.queue("scheduler").contains("[mq-deadline]"), "{}", disk.queue("scheduler"));
    let wrong = AttachOptions { scheduler: Some("no-such".to_owned()), ..AttachOptions::default() };
    let refused = LoopDevice::attach(&disk.file.path(), &wrong);
    assert!(matches!(refused, Err(LoopError::Setting { setting: "queue/scheduler", .. })));
    disk.take_apart();
}

/// Neighbours that are written by many while the disk is busy reach it as few requests: with few places in the queue
/// they wait where they can be joined.
#[test]
fn what_a_short_queue_does_not_take_is_joined_meanwhile() {
    const PAGES: u64 = 128;
    let options =
        AttachOptions { scheduler: Some("mq-deadline".to_owned()), queue_depth: Some(4), ..AttachOptions::default() };
    let busy = Arc::new(Busy::new(SIZE));
    let disk = Disk::new(Arc::<Busy>::clone(&busy), &options);
    let direct = fs::File::options().write(true).custom_flags(OFlags::DIRECT.bits().cast_signed()).open(disk.path());
    let device = direct.expect("root may");
    std::thread::scope(|scope| {
        for index in 0..PAGES {
            let device = &device;
            let write = move || {
                let page = AlignedBuffer::new(4096);
                device.write_all_at(page.as_slice(), index * 4096).expect("it is written");
            };
            std::thread::Builder::new().name(WRITER.to_owned()).spawn_scoped(scope, write).expect("a thread");
        }
        let begun = Instant::now();
        while writers_that_wait() < PAGES && begun.elapsed() < Duration::from_secs(60) {
            std::thread::sleep(Duration::from_millis(10));
        }
        *busy.closed.lock() = false;
        busy.changed.notify_all();
        assert!(begun.elapsed() < Duration::from_secs(60), "some never came to wait for the disk");
    });
    let (writes, most) = (busy.writes.load(Ordering::Relaxed), busy.most.load(Ordering::Relaxed));
    assert!(most <= 4, "{most} at once");
    assert!(writes < PAGES / 2, "{writes} requests for {PAGES} pages");
    drop(device);
    disk.take_apart();
}

const WRITER: &str = "page-writer";

/// Threads of that name that wait for the kernel.
fn writers_that_wait() -> u64 {
    let tasks = fs::read_dir("/proc/self/task").expect("proc").flatten();
    let waits = |task: &fs::DirEntry| {
        let stat = fs::read_to_string(task.path().join("stat")).unwrap_or_default();
        stat.contains(&format!("({WRITER}) D"))
    };
    tasks.filter(waits).count() as u64
}

/// Counts writes, and holds them until the test releases them.
struct Busy {
    memory: Memory,
    /// No write ends.
    closed: Mutex<bool>,
    changed: Condvar,
    writes: AtomicU64,
    inside: AtomicU64,
    most: AtomicU64,
}

impl Busy {
    fn new(size: ByteSize) -> Busy {
        let zero = || AtomicU64::new(0);
        let (closed, changed) = (Mutex::new(true), Condvar::new());
        Busy { memory: Memory::new(size), closed, changed, writes: zero(), inside: zero(), most: zero() }
    }
}

impl BlockDevice for Busy {
    umbrella_block::forward!(memory: read, flush, discard, write_zeroes);

    fn geometry(&self) -> Geometry {
        Geometry { queue_depth: 32, ..self.memory.geometry() }
    }

    fn write(&self, at: Lba, data: &[u8], durability: Durability) -> Result<(), BlockError> {
        self.writes.fetch_add(1, Ordering::Relaxed);
        self.most.fetch_max(self.inside.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
        self.changed.wait_while(&mut self.closed.lock(), |closed| *closed);
        self.inside.fetch_sub(1, Ordering::Relaxed);
        self.memory.write(at, data, durability)
    }
}

/// Lets writes pass once `needed` of them are under way at the same time.
struct Gate {
    memory: Memory,
    needed: AtomicU64,
    inside: Mutex<u64>,
    open: Condvar,
    most: AtomicU64,
}

impl BlockDevice for Gate {
    umbrella_block::forward!(memory: read, flush, discard, write_zeroes);

    fn geometry(&self) -> Geometry {
        Geometry { queue_depth: 32, ..self.memory.geometry() }
    }

    fn write(&self, at: Lba, data: &[u8], durability: Durability) -> Result<(), BlockError> {
        let mut inside = self.inside.lock();
        *inside += 1;
        self.most.fetch_max(*inside, Ordering::Relaxed);
        self.open.notify_all();
        let closed = |_: &mut u64| self.most.load(Ordering::Relaxed) < self.needed.load(Ordering::Relaxed);
        if self.open.wait_while_for(&mut inside, closed, Duration::from_secs(60)).timed_out() {
            // Too little company: all continue alone, and the test sees how many there were.
            self.needed.store(0, Ordering::Relaxed);
        }
        *inside -= 1;
        drop(inside);
        self.memory.write(at, data, durability)
    }
}

#[test]
fn thirty_writes_reach_the_device_at_once() {
    let gate = Arc::new(Gate {
        memory: Memory::new(SIZE),
        needed: AtomicU64::new(30),
        inside: Mutex::new(0),
        open: Condvar::new(),
        most: AtomicU64::new(0),
    });
    // Also where the device had a short queue before: the next is likely to be the same.
    let short =
        AttachOptions { scheduler: Some("mq-deadline".to_owned()), queue_depth: Some(4), ..AttachOptions::default() };
    Disk::new(Arc::new(Memory::new(SIZE)), &short).take_apart();
    let disk = Disk::new(Arc::clone(&gate) as _, &AttachOptions::default());
    let filename = format!("--filename={}", disk.path());
    let job =
        ["--name=many", "--ioengine=libaio", "--direct=1", "--rw=randwrite", "--bs=4k", "--iodepth=32", "--size=1m"];
    run("fio", &[&job[..], &[filename.as_str(), "--output-format=terse"]].concat());
    assert!(gate.most.load(Ordering::Relaxed) >= 30, "only {} were", gate.most.load(Ordering::Relaxed));
    disk.take_apart();
}

/// Fails every flush.
struct NoFlush(Memory);

impl BlockDevice for NoFlush {
    umbrella_block::forward!(0: geometry, read, write, discard, write_zeroes);

    fn flush(&self) -> Result<(), BlockError> {
        Err(BlockError::Poisoned {
            device: Arc::from("test"),
            operation: umbrella_block::Operation::Flush,
            reason: Arc::from("as the test wants it"),
        })
    }
}

#[test]
fn fsync_returns_the_error_of_a_failed_flush() {
    let disk = Disk::new(Arc::new(NoFlush(Memory::new(SIZE))), &AttachOptions::default());
    let raw = fs::File::options().write(true).open(disk.device.path()).expect("root may");
    raw.write_all_at(&[1; 4096], 0).expect("into the page cache");
    assert!(raw.sync_all().is_err());
    drop(raw);
    disk.take_apart();
}

/// Memory with a growing usable part.
struct Growing {
    inner: Memory,
    capacity: AtomicU64,
}

impl BlockDevice for Growing {
    umbrella_block::forward!(inner: read, write, flush, discard, write_zeroes);

    fn geometry(&self) -> Geometry {
        Geometry { capacity: Lba(self.capacity.load(Ordering::Relaxed)), queue_depth: 4, ..self.inner.geometry() }
    }
}

#[test]
fn a_disk_that_grows_while_it_is_written_can_be_read_to_its_new_end() {
    const STEP: u64 = 256 << 10;
    let growing = Arc::new(Growing { inner: Memory::new(SIZE), capacity: AtomicU64::new(STEP / 512) });
    let disk = Disk::new(Arc::clone(&growing) as _, &AttachOptions::default());
    let stop = std::sync::atomic::AtomicBool::new(false);
    let open = || {
        let direct = OFlags::DIRECT.bits().cast_signed();
        fs::File::options().read(true).write(true).custom_flags(direct).open(disk.path()).expect("root may")
    };
    std::thread::scope(|scope| {
        for writer in 0..3 {
            let (file, stop) = (open(), &stop);
            scope.spawn(move || {
                let block = AlignedBuffer::new(4096);
                while !stop.load(Ordering::Relaxed) {
                    file.write_all_at(block.as_slice(), writer * 8192).expect("there is room");
                }
            });
        }
        let unread = (2..=SIZE.0 / STEP).filter(|step| {
            growing.capacity.store(step * STEP / 512, Ordering::Relaxed);
            disk.file.refresh().expect("the kernel takes it");
            disk.device.resize().expect("the kernel takes it");
            open().read_exact_at(AlignedBuffer::new(4096).as_mut_slice(), step * STEP - 4096).is_err()
        });
        let unread: Vec<_> = unread.collect();
        stop.store(true, Ordering::Relaxed);
        assert!(unread.is_empty(), "no read at the new end after these steps: {unread:?}");
    });
    disk.take_apart();
}
