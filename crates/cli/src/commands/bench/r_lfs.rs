//! `umbrella bench r-lfs`: the paper's benchmark of its prototype (section 5), on a real ext4 on a log store on an
//! emulated disk.
//!
//! 1. An emulated disk of 7200 rpm in memory, a log store on it, offered as a loop device, ext4 on that.
//! 2. Files of 100 KB in 100 directories, until 85 % of the file system are full.
//! 3. Files are written anew, as often as in the paper. They are chosen by locality x/y: x % of the updates go to y %
//!    of the files, the others to half of the rest.
//! 4. What the cleaner read and wrote during step 3, and how long that took in the disk's own time, with one region and
//!    with three.

use std::fs::{self, File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use clap::Args;
use serde::Serialize;
use signal_hook::consts::{SIGINT, SIGTERM};
use umbrella_block::BlockDevice;
use umbrella_block::emulated::{EmulatedDisk, TimeScale};
use umbrella_block::log_store::{self, CreateOptions, LogStore, LogStoreStats, Options};
use umbrella_block::memory::Memory;
use umbrella_block::serve::loop_device::{AttachOptions, LoopDevice};
use umbrella_block::serve::loop_file::LoopFile;
use umbrella_model::device::{Options as DeviceOptions, profile};
use umbrella_reproductions::{Claim, Expect, r_lfs};
use umbrella_units::{ByteSize, SplitMix64};

use crate::commands::claims::{FigureClaims, print_claims, print_count, rows};
use crate::output;

const ASSUMED: &str = "ext4 replaces the paper's own file system. The disk is emulated and smaller; the number of \
    updates is the paper's. Dirty data is written when it would fill the paper's memory, in proportion. Times are the \
    disk's own and include the host's work";
/// The share of the file system that is filled first.
const FULL: f64 = 0.85;
const FILE: usize = 100_000;
const DIRECTORIES: usize = 100;
/// Size of the disk of the paper's machine, as a multiple of its memory. Dirty data is written after as many updates as
/// would fill that memory.
const MEMORY: usize = 80;

/// How large everything is.
struct Scale {
    disk: ByteSize,
    updates: usize,
    /// Real seconds for one of the disk's.
    factor: f64,
    localities: &'static [(u32, u32)],
}

const FULL_SCALE: Scale =
    Scale { disk: ByteSize(512 << 20), updates: 50_000, factor: 0.1, localities: &[(70, 30), (90, 10)] };
const QUICK: Scale = Scale { disk: ByteSize(128 << 20), updates: 4000, factor: 0.05, localities: &[(90, 10)] };

/// One run.
#[derive(Debug, Clone, Serialize)]
struct BenchRun {
    locality: String,
    scheme: &'static str,
    seconds: f64,
    cleaner_read_blocks: u64,
    cleaner_written_blocks: u64,
    segments_cleaned: u64,
    seek_distance_blocks: u64,
    written_blocks: u64,
}

/// Repeat the benchmark of R-LFS's prototype (figure 7 of the paper), and judge its claims.
///
/// Creates ext4 on a log store on an emulated disk, mounts it, fills it and rewrites its files. Uses none of your
/// disks. Needs root; takes some minutes.
#[derive(Debug, Args)]
#[command(after_help = "\
EXAMPLES:
  umbrella bench r-lfs            # a disk of 512 MiB, 50,000 updates
  umbrella bench r-lfs --quick    # a smaller disk, fewer updates
  umbrella bench r-lfs --json     # one object a claim")]
pub(super) struct RLfsArgs {
    /// Use a smaller disk and fewer updates.
    #[arg(long)]
    quick: bool,
    /// Print JSON: one object a claim.
    #[arg(long)]
    json: bool,
    #[arg(long, hide = true, num_args = 2..)]
    step: Vec<String>,
}

impl RLfsArgs {
    pub(super) fn run(&self) -> anyhow::Result<ExitCode> {
        if !self.step.is_empty() {
            return run_step(&self.step);
        }
        ensure!(rustix::process::geteuid().is_root(), "this creates and mounts a file system: run it as root");
        let scale = if self.quick { QUICK } else { FULL_SCALE };
        let stop = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            signal_hook::flag::register(signal, Arc::clone(&stop))?;
        }
        let mut runs = Vec::new();
        for locality in scale.localities {
            for scheme in ["r_lfs:regions=1", "r_lfs:regions=3", "organ"] {
                report!("{}/{} with {scheme} ...", locality.0, locality.1);
                runs.push(
                    prototype(&scale, *locality, scheme, &stop).with_context(|| format!("{scheme}: the run failed"))?,
                );
            }
        }
        let claims: Vec<Claim> = runs.chunks(3).flat_map(evaluate_claims).collect();
        let title = "the prototype: cleaner blocks and elapsed time";
        let shown = [FigureClaims { figure: "7", title, assumed: ASSUMED, watts: None, claims: &claims }];
        if self.json {
            output::json_list(&rows(r_lfs::NAME, &shown))?;
            return Ok(ExitCode::SUCCESS);
        }
        for run in &runs {
            output::line(&format!(
                "{:>6} {:<16} {:8.1} s   cleaner read {:>8} and wrote {:>8} blocks, {:>6} segments   seek distance {:>12}   user {:>8}",
                run.locality,
                run.scheme,
                run.seconds,
                run.cleaner_read_blocks,
                run.cleaner_written_blocks,
                run.segments_cleaned,
                run.seek_distance_blocks,
                run.written_blocks
            ))?;
        }
        for shown in &shown {
            print_claims(shown)?;
        }
        print_count(&shown, if self.quick { " (quick: a smaller disk, fewer updates)" } else { "" })?;
        Ok(ExitCode::SUCCESS)
    }
}

/// What the paper says of three regions against one, figure 7.
fn evaluate_claims(runs: &[BenchRun]) -> Vec<Claim> {
    let [plain, regions, _] = runs else { return Vec::new() };
    let less = |of: &dyn Fn(&BenchRun) -> f64| (1.0 - of(regions) / of(plain).max(f64::MIN_POSITIVE)) * 100.0;
    let cleaner = less(&|run| (run.cleaner_read_blocks + run.cleaner_written_blocks) as f64);
    let name = &plain.locality;
    vec![
        Claim::new(
            "7",
            format!("{name}: three regions: the cleaner reads and writes less, by"),
            "%",
            41.04,
            cleaner,
            Expect::Between { to: 63.6, points: 10.0 },
        ),
        Claim::new(
            "7",
            format!("{name}: three regions: the run takes less time, by"),
            "%",
            5.77,
            less(&|run| run.seconds),
            Expect::Between { to: 7.27, points: 10.0 },
        ),
    ]
}

/// Unmounts when dropped, so that nothing is left behind when a step fails.
struct MountGuard(PathBuf);

impl MountGuard {
    fn unmount(&self) -> anyhow::Result<()> {
        run("umount", &[path(&self.0)?])
    }
}

impl Drop for MountGuard {
    fn drop(&mut self) {
        let quiet = |command: &mut Command| command.stdout(Stdio::null()).stderr(Stdio::null()).status();
        if quiet(Command::new("mountpoint").arg("-q").arg(&self.0)).is_ok_and(|status| status.success()) {
            // The code that noticed a failure has reported it.
            let _ = quiet(Command::new("umount").arg("--lazy").arg(&self.0));
        }
    }
}

/// A folder that is removed when dropped.
struct Folder(PathBuf);

impl Folder {
    fn new() -> anyhow::Result<Folder> {
        let made = Command::new("mktemp").args(["-d", "-t", "umbrella-r-lfs.XXXXXX"]).output().context("mktemp")?;
        ensure!(made.status.success(), "mktemp: {}", String::from_utf8_lossy(&made.stderr).trim());
        Ok(Folder(PathBuf::from(String::from_utf8_lossy(&made.stdout).trim())))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        for name in ["mounted", "disk"] {
            // What is still mounted there is not removed; then the folder stays too.
            let _ = fs::remove_dir(self.0.join(name));
        }
        let _ = fs::remove_dir(&self.0);
    }
}

fn path(path: &Path) -> anyhow::Result<&str> {
    path.to_str().context("the name of the temporary directory is not UTF-8: set TMPDIR to another one")
}

fn run(program: &str, arguments: &[&str]) -> anyhow::Result<()> {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output();
    let output = output.with_context(|| format!("cannot run {program}"))?;
    if !output.status.success() {
        bail!("{program} failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}

fn prototype(scale: &Scale, locality: (u32, u32), scheme: &'static str, stop: &AtomicBool) -> anyhow::Result<BenchRun> {
    let model = profile("deskstar_500gb")?;
    let backing = Arc::new(Memory::new(scale.disk));
    let disk: Arc<dyn BlockDevice> =
        Arc::new(EmulatedDisk::new(&model, &DeviceOptions::default(), TimeScale::new(scale.factor)?, backing)?);
    let options = CreateOptions { scheme: scheme.to_owned(), spare: 40, ..CreateOptions::default() };
    log_store::create(Arc::clone(&disk), "the emulated disk", &options)?;
    let store =
        Arc::new(LogStore::open(disk, "the emulated disk", Options::default(), log_store::OpenMode::ReadWrite)?);
    let folder = Folder::new()?;
    let (file_at, mounted_at) = (folder.0.join("disk"), folder.0.join("mounted"));
    fs::create_dir(&file_at)?;
    fs::create_dir(&mounted_at)?;
    let attach = AttachOptions::default();
    let mut file = LoopFile::mount(Arc::clone(&store) as Arc<dyn BlockDevice>, &file_at, attach.access)?;
    let mut device = LoopDevice::attach(&file.path(), &attach)?;
    let name = path(device.path())?.to_owned();
    run("mkfs.ext4", &["-q", "-F", "-m", "0", "-E", "nodiscard,lazy_itable_init=0,lazy_journal_init=0", &name])?;
    let mounted = MountGuard(mounted_at);
    run("mount", &[&name, path(&mounted.0)?])?;
    let measured = benchmark(scale, locality, &mounted.0, &store, stop);
    mounted.unmount()?;
    run("e2fsck", &["-f", "-n", &name])?;
    device.detach()?;
    file.unmount()?;
    let (before, after, seconds) = measured?;
    Arc::into_inner(store).context("the store is still in use")?.close()?;
    let blocks = |of: fn(&LogStoreStats) -> ByteSize| (of(&after).0 - of(&before).0) / 4096;
    Ok(BenchRun {
        locality: format!("{}/{}", locality.0, locality.1),
        scheme,
        seconds,
        cleaner_read_blocks: blocks(|stats| stats.cleaner_read),
        cleaner_written_blocks: blocks(|stats| stats.copied),
        segments_cleaned: after.segments_cleaned - before.segments_cleaned,
        seek_distance_blocks: blocks(|stats| stats.seek_distance),
        written_blocks: blocks(|stats| stats.written),
    })
}

/// Steps 2 to 4; the statistics before and after the updates, and the disk's seconds between.
fn benchmark(
    scale: &Scale,
    locality: (u32, u32),
    root: &Path,
    store: &LogStore,
    stop: &AtomicBool,
) -> anyhow::Result<(LogStoreStats, LogStoreStats, f64)> {
    let at = path(root)?;
    let files = step(&["fill", at], stop)?;
    let (before, begun) = (store.stats(), Instant::now());
    let together = (scale.disk.0 as usize / MEMORY / FILE).max(1);
    let numbers = [locality.0 as usize, locality.1 as usize, scale.updates, together].map(|number| number.to_string());
    let [often, share, updates, together] = &numbers;
    step(&["update", at, files.trim(), often, share, updates, together], stop)?;
    Ok((before, store.stats(), begun.elapsed().as_secs_f64() / scale.factor))
}

/// Runs a step in a process of its own; what it prints. This process answers for the disk below: if it waited for the
/// file system on it, and were killed then, neither could end.
fn step(arguments: &[&str], stop: &AtomicBool) -> anyhow::Result<String> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["bench", "r-lfs", "--step"]).args(arguments);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().context("cannot start a step")?;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if stop.load(Ordering::Relaxed) {
            child.kill()?;
            child.wait()?;
            bail!("interrupted");
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let mut reported = String::new();
    child.stdout.take().context("a step has no output")?.read_to_string(&mut reported)?;
    ensure!(status.success(), "the step {} failed", arguments.join(" "));
    Ok(reported)
}

/// A step of the benchmark, in a process of its own.
fn run_step(arguments: &[String]) -> anyhow::Result<ExitCode> {
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        ["fill", root] => output::line(&fill(Path::new(root))?.to_string())?,
        ["update", root, numbers @ ..] => {
            let numbers: Vec<usize> = numbers.iter().map(|number| number.parse()).collect::<Result<_, _>>()?;
            let [files, often, share, updates, together] = numbers.try_into().ok().context("five numbers")?;
            update(Path::new(root), files, (often, share), updates, together)?;
        }
        _ => bail!("no such step"),
    }
    Ok(ExitCode::SUCCESS)
}

fn name(root: &Path, number: usize) -> PathBuf {
    root.join((number % DIRECTORIES).to_string()).join(number.to_string())
}

/// Step 2; how many files there are.
fn fill(root: &Path) -> anyhow::Result<usize> {
    let space = rustix::fs::statvfs(root)?;
    let files = (space.f_bavail as f64 * space.f_frsize as f64 * FULL) as usize / FILE;
    for directory in 0..DIRECTORIES {
        fs::create_dir(root.join(directory.to_string()))?;
    }
    let content = vec![0x55; FILE];
    for number in 0..files {
        fs::write(name(root, number), &content).with_context(|| format!("file {number} of {files}"))?;
    }
    sync(root)?;
    Ok(files)
}

/// Step 3: `often` hundredths of the updates go to `share` hundredths of the files; what is dirty is written after
/// every `together`.
fn update(
    root: &Path,
    files: usize,
    (often, share): (usize, usize),
    updates: usize,
    together: usize,
) -> anyhow::Result<()> {
    let mut random = SplitMix64::new(1);
    let mut content = vec![0; FILE];
    let hot = files * share / 100;
    let cold = (files - hot) / 2;
    for number in 0..updates {
        let chosen = if random.index(100) < often { random.index(hot) } else { hot + random.index(cold) };
        content.fill(number as u8);
        OpenOptions::new().write(true).open(name(root, chosen))?.write_all_at(&content, 0)?;
        if number % together == together - 1 {
            sync(root)?;
        }
    }
    sync(root)
}

fn sync(root: &Path) -> anyhow::Result<()> {
    Ok(rustix::fs::syncfs(File::open(root)?)?)
}
