//! The command line.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, ensure};
use clap::{Parser, Subcommand};
use umbrella_units::ByteSize;

use crate::host;
use crate::place::Place;
use crate::sizes::Sizes;
use crate::{staging, write_back};

const SCALE: f64 = 1.0 / 8.0;
const ROUNDS: u32 = 3;

/// Measures staging and ordered write-back on emulated disks.
#[derive(Debug, Parser)]
#[command(name = "bench-live")]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) bench: Bench,
    /// Share of the papers' sizes, memory included
    #[arg(long, global = true, value_name = "SHARE", value_parser = share, default_value_t = SCALE)]
    scale: f64,
    /// How often each system is measured [default: 3, with --quick 1]
    #[arg(long, global = true, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    rounds: Option<u32>,
    /// A few minutes: says whether everything runs, and roughly how fast
    #[arg(long, global = true)]
    quick: bool,
    /// Speed in multiples of a real disk's [default: 1, of scenarios 5; with --quick 4, of scenarios 10]. The faster,
    /// the more the machine's own time weighs
    #[arg(long, global = true, value_name = "TIMES", value_parser = speed)]
    speed: Option<f64>,
    /// What the file systems are made for; the images are sparse
    #[arg(long, global = true, value_name = "SIZE", default_value = "16GiB")]
    disk_size: ByteSize,
    /// How requests reach the pools: auto, io_uring or dev
    #[arg(long, global = true, value_name = "KIND", value_parser = ["auto", "io_uring", "dev"], default_value = "auto")]
    transport: String,
    /// Only these workloads (see the table's own names)
    #[arg(long, global = true, value_name = "NAME", value_delimiter = ',')]
    pub(crate) only: Vec<String>,
    /// Write every run to this file
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Where the disk images lie [default: memory, when there is enough of it, else the temporary folder]
    #[arg(long, global = true, value_name = "DIR")]
    image_dir: Option<PathBuf>,
    /// Number of seconds after which a run is given up
    #[arg(long, global = true, value_name = "SECONDS", default_value_t = 600)]
    limit: u64,
    /// Given by cargo
    #[arg(long = "bench", global = true, hide = true)]
    _given: bool,
}

/// What is measured.
#[derive(Debug, Subcommand)]
pub(crate) enum Bench {
    /// Write-back policies against the kernel's own write-back on the same mount
    WriteBack(write_back::Options),
    /// Staging of new files against the file system without it
    Staging(staging::Options),
    /// Files on the disk that suits them, and a policy for each disk
    Scenarios,
}

impl Args {
    /// For a paper whose machine has this memory.
    pub(crate) fn sizes(&self, full_memory: ByteSize) -> Sizes {
        Sizes { scale: self.scale, full_memory }
    }

    pub(crate) fn rounds(&self) -> u32 {
        self.rounds.unwrap_or(if self.quick { 1 } else { ROUNDS })
    }

    /// What the report says of a run.
    pub(crate) fn setting(&self, sizes: &Sizes) -> BTreeMap<&'static str, String> {
        BTreeMap::from([
            ("scale", self.scale.to_string()),
            ("speed", self.speed().to_string()),
            ("transport", self.transport.clone()),
            ("rounds", self.rounds().to_string()),
            ("dirty at most", sizes.foreground().to_string()),
            ("load at the start", format!("{:.1}", host::load_average())),
        ])
    }

    /// Fails when `--only` names an unknown workload.
    pub(crate) fn check_only(&self, known: &[&str]) -> Result<()> {
        let unknown = self.only.iter().find(|only| !known.contains(&only.as_str()));
        ensure!(
            unknown.is_none(),
            "no such workload: {}; known are {}",
            unknown.map_or("", String::as_str),
            known.join(", ")
        );
        Ok(())
    }

    fn speed(&self) -> f64 {
        let (speed, quick) = match self.bench {
            // A daemon's own time should weigh what it weighs on a real disk, or nearly so.
            Bench::WriteBack(_) | Bench::Staging(_) => (1.0, 4.0),
            Bench::Scenarios => (5.0, 10.0),
        };
        self.speed.unwrap_or(if self.quick { quick } else { speed })
    }

    /// Whether the workload was asked for.
    pub(crate) fn wants(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only == name)
    }

    pub(crate) fn place(&self) -> Result<Place> {
        let limit = Duration::from_secs(self.limit);
        Place::new(self.image_dir.as_deref(), self.speed(), self.disk_size, limit, &self.transport)
    }
}

fn share(text: &str) -> Result<f64, String> {
    let share = text.parse::<f64>().map_err(|error| error.to_string())?;
    if share > 0.0 && share <= 1.0 { Ok(share) } else { Err("above 0, at most 1".to_owned()) }
}

fn speed(text: &str) -> Result<f64, String> {
    let speed = text.parse::<f64>().map_err(|error| error.to_string())?;
    if (0.1..=100.0).contains(&speed) { Ok(speed) } else { Err("from 0.1 to 100".to_owned()) }
}
