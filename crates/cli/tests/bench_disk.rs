//! `umbrella bench disk` on loop devices and files: it reads only, says what it found, and refuses what is no disk.

mod support;

use std::fs;
use std::io;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;

use rustix::io::Errno;
use serde_json::Value;
use umbrella_block::memory::Memory;
use umbrella_block::serve::loop_device::{AttachOptions, LoopDevice};
use umbrella_block::serve::loop_file::LoopFile;
use umbrella_block::{BlockDevice, BlockError, Operation};
use umbrella_units::{ByteSize, Lba, SECTOR_BYTES, SectorRange};

use support::looped::Looped;
use support::process::as_nobody;
use support::{MIB, require_root_and_fuse, run, said, temp_dir};

fn bench(device: &Path, options: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_umbrella"));
    command.args(["bench", "disk"]).arg(device).args(options).env_remove("RUST_LOG").stdin(Stdio::null());
    command.output().expect("the program can be started")
}

/// What a measurement says that must succeed.
fn measured(device: &Path, options: &[&str]) -> Value {
    let output = bench(device, &[options, &["--json"]].concat());
    assert!(output.status.success(), "{}", said(&output));
    serde_json::from_slice(&output.stdout).expect("one JSON document")
}

fn refused(device: &Path, options: &[&str]) -> String {
    let output = bench(device, options);
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    said(&output)
}

/// A file of random bytes, as a disk that holds data.
fn image(folder: &Path, size: u64) -> std::path::PathBuf {
    let image = folder.join("image");
    let bytes: Vec<u8> =
        (0..size).map(|at| (umbrella_units::SplitMix64::new(at / 4096).next_u64() >> (at % 8)) as u8).collect();
    fs::write(&image, bytes).unwrap();
    image
}

#[test]
fn a_device_without_platters_is_measured_by_latency_and_keeps_its_data() {
    require_root_and_fuse();
    let folder = temp_dir("bench");
    let image = image(folder.path(), 32 * MIB);
    let before = fs::read(&image).unwrap();
    let device = Looped::on(&image);
    let found = measured(device.path(), &["--time", "20s"]);
    assert_eq!(found["size"], 32 * MIB);
    assert_eq!(found["schema"], 1);
    assert!(found["rotating"].is_null(), "{found}");
    assert_eq!(found["flash"]["latencies"][0]["bytes"], 4096, "{found}");
    assert!(found["flash"]["queue"]["depths"].as_array().is_some_and(|depths| depths.len() > 1), "{found}");
    assert_eq!(found["unreadable"], 0);
    assert_eq!(found["in_use"].as_array().map(Vec::len), Some(0), "{found}");
    assert!(fs::read(&image).unwrap() == before, "it was only read");

    let profile = folder.path().join("disk.toml");
    let output = bench(device.path(), &["--time", "20s", "--output", profile.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stdout).contains("no rotation found"), "what it found is shown");
    assert!(said(&output).contains("only a disk that turns has a profile"), "{}", said(&output));
    assert!(!profile.exists());
}

#[test]
fn a_mounted_disk_is_measured_only_if_that_is_asked_for() {
    require_root_and_fuse();
    let folder = temp_dir("bench");
    let image = image(folder.path(), 32 * MIB);
    run("mkfs.ext4", ["-q".as_ref(), "-F".as_ref(), image.as_os_str()]);
    let device = Looped::on(&image);
    let at = folder.path().join("mnt");
    fs::create_dir(&at).unwrap();
    run("mount", [device.path(), &at]);
    let refusal = bench(device.path(), &["--time", "5s"]);
    let output = bench(device.path(), &["--time", "5s", "--in-use"]);
    run("umount", [&at]);
    assert_eq!((refusal.status.code(), refusal.stdout.len()), (Some(1), 0));
    assert!(
        said(&refusal).contains("is in use (mounted at ") && said(&refusal).contains("--in-use"),
        "{}",
        said(&refusal)
    );
    assert!(output.status.success(), "{}", said(&output));
    assert!(said(&output).contains("is in use (mounted at "), "{}", said(&output));
}

#[test]
fn what_is_no_disk_is_refused_before_anything_is_measured() {
    require_root_and_fuse();
    let folder = temp_dir("bench");
    let small = folder.path().join("small");
    fs::write(&small, vec![0; 65_536]).unwrap();
    assert!(refused(&small, &[]).contains("16 MiB or more are needed"), "{}", refused(&small, &[]));
    fs::write(&small, b"").unwrap();
    assert!(refused(&small, &[]).contains("16 MiB or more are needed"));
    assert!(refused(folder.path(), &[]).contains("neither a block device nor a file"));
    assert!(refused(Path::new("/dev/null"), &[]).contains("neither a block device nor a file"));
    assert!(refused(&folder.path().join("nothing"), &[]).contains("No such file"));
    let image = image(folder.path(), 16 * MIB);
    let same = image.to_str().unwrap();
    assert!(refused(&image, &["--output", same]).contains("this is the disk"));
    assert!(refused(&image, &["--output", "/dev/null"]).contains("not a regular file"));
    assert!(refused(&image, &["--output", "/no/such/disk.toml"]).contains("does not exist (create it first)"));
    let device = Looped::on(&image);
    let command = || bench(device.path(), &[]);
    let output = as_nobody(command);
    assert!(said(&output).contains("needs root"), "{}", said(&output));
}

/// Memory of which a part cannot be read.
struct Damaged {
    memory: Memory,
    bad: SectorRange,
}

impl BlockDevice for Damaged {
    umbrella_block::forward!(memory: geometry, write, flush, discard, write_zeroes);

    fn read(&self, at: Lba, buffer: &mut [u8]) -> Result<(), BlockError> {
        let range = SectorRange { start: at, sectors: buffer.len() as u64 / SECTOR_BYTES };
        if self.bad.overlaps(range) {
            return Err(BlockError::io(&"bad".into(), Operation::Read, Some(range), io::Error::from(Errno::IO)));
        }
        self.memory.read(at, buffer)
    }
}

/// Measures a device of 64 MiB with `sectors` sectors that cannot be read. This process holds it open.
fn with_damage<T>(sectors: u64, measure: impl FnOnce(&Path) -> T) -> T {
    require_root_and_fuse();
    let folder = temp_dir("bench");
    let at = folder.path().join("below");
    fs::create_dir(&at).unwrap();
    let bad = SectorRange { start: Lba(8192), sectors };
    let device = Arc::new(Damaged { memory: Memory::new(ByteSize(64 * MIB)), bad });
    let attach = AttachOptions::default();
    let mut file = LoopFile::mount(device, &at, attach.access).unwrap();
    let mut looped = LoopDevice::attach(&file.path(), &attach).unwrap();
    let result = measure(looped.path());
    looped.detach().unwrap();
    file.unmount().unwrap();
    result
}

#[test]
fn sectors_that_cannot_be_read_are_passed_over_and_counted() {
    let found = with_damage(1024, |device| measured(device, &["--in-use", "--time", "20s"]));
    let unreadable = found["unreadable"].as_u64().unwrap();
    assert!((1..=200).contains(&unreadable), "{found}");
}

#[test]
fn a_disk_that_fails_everywhere_is_left_alone() {
    let reported = with_damage(120_000, |device| refused(device, &["--in-use", "--time", "20s"]));
    assert!(reported.contains("rescue the data"), "{reported}");
}
