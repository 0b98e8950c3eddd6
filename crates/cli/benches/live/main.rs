//! Staging and ordered write-back on emulated disks: `make bench-write-back`, `make bench-staging`, or
//! `cargo bench -p umbrella --bench live -- --help`.
//!
//! Each run gets a fresh copy of one ext4 image, on a disk that takes the time of a real one (or is a few times as
//! fast). It ends when everything is on that disk. Systems take turns inside a round; a ratio compares two runs of one
//! round. All mounts live in a private mount namespace. Disks and mounts end with the benchmark, and the kernel's
//! settings are put back, however it ends.

mod args;
#[path = "../common/daemon.rs"]
mod daemon;
mod disk;
#[path = "../common/host.rs"]
mod host;
mod kernel;
mod layout;
mod measure;
mod place;
mod prediction;
mod programs;
mod report;
mod scenarios;
mod sizes;
#[path = "../common/spread.rs"]
mod spread;
mod stack;
mod staging;
mod steps;
mod workloads;
mod write_back;

use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Parser;

use crate::args::{Args, Bench};
use crate::kernel::Keeper;
use crate::report::Report;

fn main() -> ExitCode {
    host::end("bench live", run(&Args::parse()).map(|report| !report.has_failures()))
}

fn run(args: &Args) -> Result<Report> {
    host::require_tools(&[
        ("mkfs.ext4", "e2fsprogs"),
        ("filefrag", "e2fsprogs"),
        ("mount", "mount"),
        ("setpriv", "util-linux"),
        ("postmark", "postmark"),
        ("dbench", "dbench"),
        ("fio", "fio"),
        ("tar", "tar"),
    ])?;
    // Before any thread exists: a mount namespace belongs to a thread.
    host::enter_private_mounts()?;
    kernel::show_devices();
    host::start_guard().context("cannot watch for signals")?;
    steps::allow_open_files()?;
    let keeper = Keeper::new()?;
    let place = args.place()?;
    match &args.bench {
        Bench::WriteBack(options) => write_back::run(args, options, &place, &keeper),
        Bench::Staging(options) => staging::run(args, options, &place, &keeper),
        Bench::Scenarios => scenarios::run(args, &place, &keeper),
    }
}
