//! The NBD server beside `nbdkit file` and `qemu-nbd`, on the same file:
//! `cargo bench -p umbrella-block --bench nbd -- --help`.
//!
//! Servers take turns inside a round (A B C A B C), and each starts fresh for each measurement. Every ratio compares
//! neighbours in time. The table shows medians with the smallest and largest ratio. The file is in a tmpfs of a private
//! mount namespace: so only the servers are measured, and no memory stays in use however the run ends. Needs root.

use std::fmt;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::Parser;
use rand::{RngCore, SeedableRng};
use umbrella_block::file::{FileDevice, OpenOptions};
use umbrella_block::serve::nbd::{Address, Export, Exports, Limits, Server};

/// How long a server may take to listen.
const START: Duration = Duration::from_secs(10);

/// Compares the NBD server with nbdkit's file plugin and qemu-nbd.
#[derive(Debug, Parser)]
#[command(version)]
struct Args {
    /// How often each measurement is repeated.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// How long one run of fio takes, in seconds.
    #[arg(long, default_value_t = 2)]
    seconds: u32,
    /// Size of the file, in MiB.
    #[arg(long, default_value_t = 512)]
    size: u64,
    /// Only rows whose names contain this.
    #[arg(long, default_value = "")]
    only: String,
    /// What `cargo bench` adds.
    #[arg(long, hide = true)]
    bench: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum System {
    Umbrella,
    Nbdkit,
    QemuNbd,
}

const SYSTEMS: [System; 3] = [System::Umbrella, System::Nbdkit, System::QemuNbd];

impl fmt::Display for System {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            System::Umbrella => "umbrella",
            System::Nbdkit => "nbdkit file",
            System::QemuNbd => "qemu-nbd",
        })
    }
}

#[derive(Debug, Clone, Copy)]
enum Work {
    CopyOut,
    CopyIn,
    Fio { rw: &'static str, block: &'static str, depth: u32 },
}

const ROWS: [(&str, Work); 10] = [
    ("nbdcopy out", Work::CopyOut),
    ("nbdcopy in", Work::CopyIn),
    ("4 KiB random read, depth 1", Work::Fio { rw: "randread", block: "4k", depth: 1 }),
    ("4 KiB random write, depth 1", Work::Fio { rw: "randwrite", block: "4k", depth: 1 }),
    ("4 KiB random read, depth 16", Work::Fio { rw: "randread", block: "4k", depth: 16 }),
    ("4 KiB random write, depth 16", Work::Fio { rw: "randwrite", block: "4k", depth: 16 }),
    ("128 KiB read, depth 1", Work::Fio { rw: "read", block: "128k", depth: 1 }),
    ("128 KiB write, depth 1", Work::Fio { rw: "write", block: "128k", depth: 1 }),
    ("128 KiB read, depth 4", Work::Fio { rw: "read", block: "128k", depth: 4 }),
    ("128 KiB write, depth 4", Work::Fio { rw: "write", block: "128k", depth: 4 }),
];

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench nbd: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<()> {
    let lab = Lab::new(args)?;
    println!("MiB/s, or thousands of requests/s; ratios to umbrella's rate: below 1 is slower than umbrella");
    for (name, work) in ROWS.iter().filter(|(name, _)| name.contains(&args.only)) {
        let mut rates: [Vec<f64>; 3] = Default::default();
        for round in 0..args.rounds {
            for turn in 0..SYSTEMS.len() {
                // Who begins changes, so that nobody always follows the same neighbour.
                let system = (turn + round) % SYSTEMS.len();
                let rate = lab
                    .measure(SYSTEMS[system], *work, args)
                    .with_context(|| format!("{name}, {}", SYSTEMS[system]))?;
                rates[system].push(rate);
            }
        }
        print!("{name:<30}");
        for (system, rates_of) in SYSTEMS.iter().zip(&rates) {
            print!("  {system}{:>9.1}", median(rates_of.clone()));
            if *system != System::Umbrella {
                let ratios: Vec<_> = rates_of.iter().zip(&rates[0]).map(|(theirs, ours)| theirs / ours).collect();
                let (least, most) = ratios.iter().fold((f64::MAX, 0.0_f64), |(l, m), r| (l.min(*r), m.max(*r)));
                print!(" ({:.2}, {least:.2} to {most:.2})", median(ratios));
            }
        }
        println!();
    }
    Ok(())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// The files of a run, in memory.
struct Lab {
    folder: tempfile::TempDir,
    bytes: u64,
}

impl Lab {
    fn new(args: &Args) -> Result<Lab> {
        use nix::mount::{MsFlags, mount};
        let folder = tempfile::tempdir()?;
        nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNS).context("no private mount namespace (not root?)")?;
        mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&str>)?;
        mount(Some("none"), folder.path(), Some("tmpfs"), MsFlags::empty(), Some("size=80%"))?;
        let lab = Lab { folder, bytes: args.size << 20 };
        for (seed, path) in [(1, lab.image()), (2, lab.source())] {
            let mut file = File::create_new(path)?;
            let mut block = vec![0; 1 << 20];
            rand_chacha::ChaCha8Rng::seed_from_u64(seed).fill_bytes(&mut block);
            for _ in 0..args.size {
                file.write_all(&block)?;
            }
        }
        Ok(lab)
    }

    fn image(&self) -> PathBuf {
        self.folder.path().join("image")
    }

    fn source(&self) -> PathBuf {
        self.folder.path().join("source")
    }

    fn measure(&self, system: System, work: Work, args: &Args) -> Result<f64> {
        let socket = self.folder.path().join("nbd");
        let _server = Running::start(system, &self.image(), &socket)?;
        let uri = format!("nbd+unix:///?socket={}", socket.display());
        match work {
            Work::CopyOut => self.copy(&uri, "null:"),
            Work::CopyIn => self.copy(&self.source().display().to_string(), &uri),
            Work::Fio { rw, block, depth } => {
                let rate = fio(&uri, rw, block, depth, args)?;
                Ok(if block == "4k" { rate / 1000.0 } else { rate / 8.0 })
            }
        }
    }

    fn copy(&self, from: &str, to: &str) -> Result<f64> {
        let begun = Instant::now();
        ensure!(Command::new("nbdcopy").args([from, to]).status().context("nbdcopy")?.success(), "nbdcopy failed");
        Ok(self.bytes as f64 / f64::from(1 << 20) / begun.elapsed().as_secs_f64())
    }
}

/// Requests a second.
fn fio(uri: &str, rw: &str, block: &str, depth: u32, args: &Args) -> Result<f64> {
    let output = Command::new("fio")
        .args(["--name=nbd", "--ioengine=nbd", "--time_based", "--randrepeat=1", "--output-format=json"])
        .args([format!("--uri={uri}"), format!("--rw={rw}"), format!("--bs={block}"), format!("--iodepth={depth}")])
        .args([format!("--size={}m", args.size), format!("--runtime={}", args.seconds)])
        .stderr(Stdio::inherit())
        .output()
        .context("fio")?;
    ensure!(output.status.success(), "fio failed");
    let text = String::from_utf8_lossy(&output.stdout);
    // The engine says that it is connected before the JSON begins.
    let json: serde_json::Value = serde_json::from_str(text.get(text.find('{').unwrap_or(0)..).unwrap_or_default())?;
    let iops = |kind: &str| json.pointer(&format!("/jobs/0/{kind}/iops")).and_then(serde_json::Value::as_f64);
    Ok(iops("read").unwrap_or(0.0) + iops("write").unwrap_or(0.0))
}

/// A server; ended when dropped.
enum Running {
    Ours(#[expect(dead_code, reason = "it serves until it is dropped")] Server),
    Program(Child),
}

impl Running {
    fn start(system: System, image: &Path, socket: &Path) -> Result<Running> {
        let _ = std::fs::remove_file(socket);
        let mut command = match system {
            System::Umbrella => {
                let device = Arc::new(FileDevice::open(image, OpenOptions::default())?);
                let exports = Exports::new(vec![Export::of_file("", device)])?;
                let address = Address::Unix(socket.to_owned());
                return Ok(Running::Ours(Server::start(exports, &[address], Limits::default())?));
            }
            System::Nbdkit => {
                let mut command = Command::new("nbdkit");
                command.args(["--foreground", "--exit-with-parent", "--unix"]).arg(socket).arg("file").arg(image);
                command
            }
            System::QemuNbd => {
                let mut command = Command::new("qemu-nbd");
                command.args(["--format=raw", "--cache=writeback", "--aio=threads", "--discard=unmap", "--shared=16"]);
                command.args(["--persistent", "--socket"]).arg(socket).arg(image);
                command
            }
        };
        let child = command.stdin(Stdio::null()).spawn().with_context(|| format!("{system} does not start"))?;
        let mut running = Running::Program(child);
        running.wait_for(socket)?;
        Ok(running)
    }

    fn wait_for(&mut self, socket: &Path) -> Result<()> {
        let begun = Instant::now();
        let uri = format!("nbd+unix:///?socket={}", socket.display());
        // A client that says good-bye, so that no server complains.
        let asks =
            || Command::new("nbdinfo").args(["--size", &uri]).stdout(Stdio::null()).stderr(Stdio::null()).status();
        while !asks().context("nbdinfo")?.success() {
            if let Running::Program(child) = self
                && let Some(status) = child.try_wait()?
            {
                bail!("the server ended: {status}");
            }
            ensure!(begun.elapsed() < START, "the server does not listen");
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }
}

/// The mount goes before its folder.
impl Drop for Lab {
    fn drop(&mut self) {
        let _ = nix::mount::umount2(self.folder.path(), nix::mount::MntFlags::MNT_DETACH);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Running::Program(child) = self {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
