//! Real programs on ext4 on a hybrid disk, which falls asleep and is drained under them. Needs root, FUSE, the loop
//! driver, postmark and fio.

mod support;

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use support::{Disk, Mount, noise, run};
use umbrella_block::BlockDevice;
use umbrella_block::emulated::{EmulatedDisk, TimeScale};
use umbrella_block::hybrid::{Half, Hybrid, HybridStats, Options, check, create};
use umbrella_block::memory::Memory;
use umbrella_block::serve::loop_device::AttachOptions;
use umbrella_model::device::{Options as DeviceOptions, profile};
use umbrella_policy::flash_cache::{Algorithm, FlushTrigger, Percent};
use umbrella_policy::spin_down::{Costs, SpinDown};
use umbrella_units::{ByteSize, Nanos};

const SIZE: ByteSize = ByteSize(256 << 20);

/// An emulated 7200 rpm disk and emulated flash, a hundred times faster than real ones.
struct Pair {
    disk: Arc<EmulatedDisk>,
    halves: [Half; 2],
}

impl Pair {
    fn new(flash: ByteSize) -> Pair {
        let emulated = |name: &str, size: ByteSize| {
            let profile = profile(name).expect("it is known");
            let scale = TimeScale::new(0.01).expect("it is possible");
            let backing = Arc::new(Memory::new(size));
            Arc::new(EmulatedDisk::new(&profile, &DeviceOptions::default(), scale, backing).expect("it starts"))
        };
        let (disk, flash) = (emulated("deskstar_500gb", SIZE), emulated("sata_ssd", flash));
        let half = |name: &str, device: Arc<EmulatedDisk>| Half { name: name.to_owned(), device };
        let halves = [half("disk", disk.clone()), half("flash", flash)];
        create(&halves[0], &halves[1]).expect("they can be joined");
        Pair { disk, halves }
    }

    fn open(&self, options: Options) -> Hybrid {
        let [disk, flash] = self.halves.clone();
        let costs = Costs { break_even: Nanos::from_millis(100) };
        let spin_down = SpinDown::parse("fixed:timeout=100ms", costs).expect("a policy");
        Hybrid::open(disk, flash, self.disk.clone(), options, Some(spin_down)).expect("it can be opened")
    }
}

fn postmark(folder: &Path) {
    let script = format!(
        "set location {}\nset number 300\nset size 500 60000\nset transactions 600\nset subdirectories 10\nrun\nquit\n",
        folder.display()
    );
    let mut postmark = Command::new("timeout")
        .args(["-k", "5", "600", "postmark"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("timeout(1) runs");
    postmark.stdin.take().expect("a pipe").write_all(script.as_bytes()).expect("it reads");
    assert!(postmark.wait().expect("it ends").success(), "postmark failed (scripts/setup.sh installs it)");
}

fn fio_with_verify(folder: &Path) {
    let file = folder.join("fio");
    let file = format!("--filename={}", file.display());
    let job =
        ["--name=verify", &file, "--size=24m", "--rw=randwrite", "--bs=4k,64k", "--bsrange=4k-64k", "--verify=crc32c"];
    let rest = [
        "--direct=1",
        "--ioengine=psync",
        "--numjobs=1",
        "--fsync=64",
        "--do_verify=1",
        "--verify_fatal=1",
        "--verify_state_save=0",
    ];
    run("fio", &[&job[..], &rest[..]].concat());
}

/// A tree like that of a kernel: many small files in many folders, packed, and unpacked on the disk.
fn untar(folder: &Path) {
    let source = tempfile::tempdir().expect("a folder");
    for number in 0..600_usize {
        let path = source.path().join(format!("tree/{}/{}/{number}.c", number % 12, number % 5));
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(path, noise(number as u64, 100 + number * 37 % 30_000)).expect("a file");
    }
    let (source, packed) = (source.path().to_str().expect("UTF-8"), folder.join("tree.tar"));
    let (packed, folder) = (packed.to_str().expect("UTF-8"), folder.to_str().expect("UTF-8"));
    run("tar", &["-C", source, "-cf", packed, "tree"]);
    run("tar", &["-C", folder, "-xf", packed]);
    run("diff", &["-r", &format!("{source}/tree"), &format!("{folder}/tree")]);
}

fn programs_run_clean(options: Options, flash: ByteSize) {
    let pair = Pair::new(flash);
    let folder = tempfile::tempdir().expect("a folder");
    let hybrid = Arc::new(pair.open(options));
    let disk = Disk::new(Arc::clone(&hybrid) as Arc<dyn BlockDevice>, &AttachOptions::default());
    run("mkfs.ext4", &["-q", "-F", disk.path()]);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // Puts it to sleep more often than it would go by itself.
        scope.spawn(|| {
            while !stop.load(Ordering::SeqCst) {
                hybrid.sleep().expect("it sleeps");
                std::thread::sleep(Duration::from_millis(40));
            }
        });
        let worked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let mount = Mount::new(disk.device.path(), folder.path(), &[]);
            postmark(mount.path());
            fio_with_verify(mount.path());
            untar(mount.path());
            // How often it slept and was drained until now depends on how fast this machine is.
            for _ in 0..20 {
                let stats = hybrid.stats();
                if stats.spin_ups > 0 && stats.writes_to_log > 100 && was_drained(&stats) {
                    break;
                }
                fio_with_verify(mount.path());
            }
        }));
        stop.store(true, Ordering::SeqCst);
        worked.expect("every program ran clean");
    });
    run("e2fsck", &["-f", "-n", disk.path()]);
    disk.take_apart();
    let hybrid = Arc::into_inner(hybrid).expect("nobody else has it");
    let stats = hybrid.stats();
    assert!(stats.spin_ups > 0 && stats.writes_to_log > 100 && was_drained(&stats), "{stats:?}");
    assert_eq!((stats.refuses_writes, stats.drain_failure), (None, None));
    hybrid.close().expect("it can be closed");

    // What the log still has is found again; then the disk alone has everything.
    let [disk_half, flash_half] = &pair.halves;
    assert_eq!(check(disk_half, flash_half).expect("it is a pair").damage, None);
    let hybrid = pair.open(options);
    hybrid.dissolve().expect("it can be detached");
    let plain = Disk::new(disk_half.device.clone(), &AttachOptions::default());
    run("e2fsck", &["-f", "-n", plain.path()]);
    let mount = Mount::new(plain.device.path(), folder.path(), &["-o", "ro"]);
    let unpacked = tempfile::tempdir().expect("a folder");
    let (packed, unpacked) = (mount.path().join("tree.tar"), unpacked.path().to_str().expect("UTF-8"));
    run("tar", &["-C", unpacked, "-xf", packed.to_str().expect("UTF-8")]);
    run("diff", &["-r", &format!("{unpacked}/tree"), &format!("{}/tree", mount.path().display())]);
    drop(mount);
    plain.take_apart();
}

fn was_drained(stats: &HybridStats) -> bool {
    stats.drained > ByteSize(0) || stats.draining
}

fn options(when: FlushTrigger, algorithm: Algorithm) -> Options {
    Options { when, algorithm, high: Percent(50), quiet: Nanos::from_millis(30), ..Options::default() }
}

#[test]
fn programs_run_clean_while_the_disk_sleeps_and_wakes() {
    programs_run_clean(options(FlushTrigger::Piggyback, Algorithm::Whole), ByteSize(64 << 20));
}

#[test]
fn programs_run_clean_while_the_flash_is_full_again_and_again() {
    programs_run_clean(options(FlushTrigger::Full, Algorithm::Alg4), ByteSize(8 << 20));
}

#[test]
fn programs_run_clean_when_every_spin_up_drains() {
    programs_run_clean(options(FlushTrigger::Each, Algorithm::Alg1), ByteSize(16 << 20));
}
