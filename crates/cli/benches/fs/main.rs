//! What the mount costs, as ratios to the file system below it: `make bench-fs`, or
//! `cargo bench -p umbrella --bench fs -- --help`.
//!
//! One run gives one table. Each system gets the same fresh ext4 image for each measurement, and systems take turns
//! inside a row (A B C A B C). Every ratio compares two neighbours in time; the table shows the median with the
//! smallest and largest. All mounts live in a private mount namespace, so nothing is left behind however the run ends.

mod args;
mod caches;
#[path = "../common/daemon.rs"]
mod daemon;
mod disk;
#[path = "../common/host.rs"]
mod host;
mod report;
mod rows;
#[path = "../common/spread.rs"]
mod spread;
mod system;
mod work;

use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result};
use clap::Parser;

use crate::args::Args;
use crate::report::Results;
use crate::rows::Group;
use crate::system::{Stack, System};
use crate::work::{Lab, Samples};

fn main() -> ExitCode {
    host::end("bench-fs", run(&Args::parse()).map(|results| !results.has_own_failures()))
}

fn run(args: &Args) -> Result<Results> {
    let groups = rows::select(&args.only)?;
    if args.list {
        rows::print_list();
        return Ok(Results::default());
    }
    let systems = args.systems();
    host::require_tools(&needed(&systems, &groups))?;
    // Before any thread exists: a mount namespace belongs to a thread.
    host::enter_private_mounts()?;
    host::start_guard().context("cannot watch for signals")?;

    let lab = Lab::new(args)?;
    let mut results = Results::new(args, &lab, &systems);
    let mut outcome = Ok(());
    'all: for group in groups {
        eprintln!("{}: {}", group.name, group.about);
        warm_up(&lab, group);
        for round in 1..=args.rounds() {
            for &system in systems.iter().filter(|system| group.runs_on(**system)) {
                let begin = Instant::now();
                let mut samples = Samples::new();
                let ending = measure(&lab, group, system, &mut samples);
                outcome = host::check();
                if outcome.is_err() {
                    break 'all;
                }
                let failed = ending.as_ref().err().map(|error| format!("  failed: {error:#}")).unwrap_or_default();
                eprintln!("  round {round} {:<18}{:>7.1} s{failed}", system.name(), begin.elapsed().as_secs_f64());
                results.add(group, system, round, samples, ending.err());
            }
        }
    }
    results.print(&args.only);
    if let Some(path) = &args.json {
        results.save(path)?;
    }
    outcome.map(|()| results)
}

/// Programs and their packages.
fn needed(systems: &[System], groups: &[&Group]) -> Vec<(&'static str, &'static str)> {
    let mut needed = vec![
        ("fio", "fio"),
        ("postmark", "postmark"),
        ("mkfs.ext4", "e2fsprogs"),
        ("losetup", "mount"),
        ("find", "findutils"),
        ("tar", "tar"),
    ];
    if systems.contains(&System::Mergerfs) {
        needed.push(("mergerfs", "mergerfs"));
    }
    if groups.iter().any(|group| group.of_paper) {
        needed.extend([("cc", "gcc"), ("make", "make"), ("gocryptfs", "gocryptfs")]);
    }
    needed
}

/// One run below the mount that is thrown away: the image's blocks exist afterwards, and programs are in memory.
fn warm_up(lab: &Lab, group: &Group) {
    if let Err(error) = measure(lab, group, System::Native, &mut Samples::new()) {
        eprintln!("  warm-up failed: {error:#}");
    }
}

fn measure(lab: &Lab, group: &Group, system: System, samples: &mut Samples) -> Result<()> {
    host::check()?;
    let _deadline = host::Deadline::after(lab.limit);
    let stack = Stack::new(lab, system, group.rules)?;
    let outcome = (group.work)(lab, &stack, samples);
    // Whatever error the limit caused.
    host::check()?;
    let stopped = stack.stop();
    outcome.and(stopped)
}
