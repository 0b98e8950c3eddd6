//! How fast small files move to another branch, beside a copy by hand: `make bench-moves`, or
//! `cargo bench -p umbrella --bench moves -- --help`.
//!
//! Two fresh ext4 images for each run. By hand: `cp -a`, a sync of the new disk, `rm`, a sync of the old one. By the
//! pool: `umbrella enforce` from one branch to another. Both take turns; the ratio is that of the medians. All mounts
//! live in a private mount namespace.
#![expect(dead_code, reason = "the other benchmarks use the rest of what they share")]

#[path = "common/daemon.rs"]
mod daemon;
#[path = "fs/disk.rs"]
mod disk;
#[path = "common/host.rs"]
mod host;
#[path = "common/spread.rs"]
mod spread;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use clap::Parser;

use crate::daemon::MountDaemon;
use crate::disk::Disk;
use crate::spread::Spread;

/// How fast small files move to another branch, beside a copy by hand.
#[derive(Debug, Parser)]
struct Args {
    /// Runs of each.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Files.
    #[arg(long, default_value_t = 2_000)]
    files: usize,
    /// Bytes of each file.
    #[arg(long, default_value_t = 1_024)]
    size: usize,
    /// Directories that the files lie in.
    #[arg(long, default_value_t = 20)]
    dirs: usize,
    /// The program that is measured, if it is another one.
    #[arg(long, default_value = env!("CARGO_BIN_EXE_umbrella"))]
    umbrella: PathBuf,
    /// `cargo bench` says so.
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> ExitCode {
    host::end("bench-moves", run(&Args::parse()).map(|()| true))
}

fn run(args: &Args) -> Result<()> {
    host::require_tools(&[("mkfs.ext4", "e2fsprogs"), ("losetup", "mount"), ("setpriv", "util-linux")])?;
    host::enter_private_mounts()?;
    host::start_guard().context("cannot watch for signals")?;
    let (mut by_hand, mut by_pool) = (Vec::new(), Vec::new());
    for round in 1..=args.rounds {
        by_hand.push(measure(args, copy_by_hand)?);
        by_pool.push(measure(args, enforce)?);
        let [hand, pool] = [&by_hand, &by_pool].map(|times| times[times.len() - 1]);
        eprintln!("round {round}: by hand {hand:.2} s, enforce {pool:.2} s (load {:.1})", host::load_average());
    }
    let [hand, pool] = [by_hand, by_pool].map(Spread::of).map(|spread| spread.map_or(f64::NAN, |spread| spread.median));
    println!(
        "{} files of {} bytes: by hand {hand:.2} s, enforce {pool:.2} s: {:.2} times as long",
        args.files,
        args.size,
        pool / hand
    );
    Ok(())
}

/// The disks of one run.
struct Place {
    old: PathBuf,
    new: PathBuf,
    dir: PathBuf,
}

fn measure(args: &Args, work: fn(&Args, &Place) -> Result<f64>) -> Result<f64> {
    let dir = tempfile::tempdir().context("cannot make a temporary directory")?;
    let [old, new] =
        ["old", "new"].map(|name| Disk::new(&dir.path().join(format!("{name}.img")), &dir.path().join(name)));
    let (old, new) = (old?, new?);
    let place = Place { old: old.root().join("branch"), new: new.root().join("branch"), dir: dir.path().to_owned() };
    for at in 0..args.files {
        let dir = place.old.join(format!("data/{}", at % args.dirs.max(1)));
        fs::create_dir_all(&dir)?;
        fs::write(dir.join(at.to_string()), vec![at as u8; args.size])?;
    }
    fs::create_dir_all(&place.new)?;
    sync(&place.old)?;
    let took = work(args, &place)?;
    let moved = host::run(Command::new("find").arg(place.new.join("data")).args(["-type", "f"]))?;
    let moved = String::from_utf8_lossy(&moved.stdout).lines().count();
    ensure!(moved == args.files, "{moved} of {} files are on the new disk", args.files);
    Ok(took)
}

fn sync(path: &Path) -> Result<()> {
    host::run(Command::new("sync").arg("--file-system").arg(path)).map(drop)
}

fn copy_by_hand(_: &Args, place: &Place) -> Result<f64> {
    let begin = Instant::now();
    host::run(Command::new("cp").arg("-a").arg(place.old.join("data")).arg(&place.new))?;
    sync(&place.new)?;
    host::run(Command::new("rm").arg("-r").arg(place.old.join("data")))?;
    sync(&place.old)?;
    Ok(begin.elapsed().as_secs_f64())
}

fn enforce(args: &Args, place: &Place) -> Result<f64> {
    let (mount, config, state) = (place.dir.join("mnt"), place.dir.join("pool.toml"), place.dir.join("state"));
    let text = format!(
        "mount = \"{}\"\ndefault = [\"old\"]\n[[branch]]\nname = \"old\"\npath = \"{}\"\n[[branch]]\nname = \"new\"\npath = \"{}\"\n\
         [[rule]]\nname = \"all\"\nmatch = [{{ glob = \"/data/**\", to = [\"new\"] }}]\n",
        mount.display(),
        place.old.display(),
        place.new.display()
    );
    fs::write(&config, text)?;
    let command = || {
        let mut command = Command::new(&args.umbrella);
        command.env("UMBRELLA_STATE_DIR", &state).env("UMBRELLA_RUN_DIR", &state);
        command
    };
    let mut daemon = command();
    daemon.args(["mount", "--foreground"]).arg(&config);
    let mut daemon = MountDaemon::start(&daemon, &mount, &place.dir.join("log"))?;
    let begin = Instant::now();
    host::run(command().arg("enforce").arg(&mount))?;
    let took = begin.elapsed().as_secs_f64();
    daemon.stop()?;
    Ok(took)
}
