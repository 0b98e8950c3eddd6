//! The command line.

use std::path::PathBuf;

use clap::Parser;

use crate::system::System;

/// Measures what the mount costs: one table of ratios to the native file system.
#[derive(Debug, Parser)]
#[command(name = "bench-fs")]
pub(crate) struct Args {
    /// Only these rows or groups of rows (see --list)
    #[arg(long, value_name = "ROW", value_delimiter = ',')]
    pub(crate) only: Vec<String>,
    /// Only these systems; native is always among them
    #[arg(long, value_name = "SYSTEM", value_delimiter = ',', value_enum)]
    systems: Vec<System>,
    /// How often each system is measured [default: 3, with --quick 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    rounds: Option<u32>,
    /// A tenth of the work: says whether everything runs, and roughly how fast
    #[arg(long)]
    pub(crate) quick: bool,
    /// Write every sample and ratio to this file
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Where the disk image lies [default: memory, when there is enough of it, else the temporary folder]
    #[arg(long, value_name = "DIR")]
    pub(crate) image_dir: Option<PathBuf>,
    /// Number of seconds after which a measurement is given up
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    pub(crate) limit: u64,
    /// Mount options of mergerfs that are added to (and override) the tuned ones
    #[arg(long, value_name = "OPTIONS")]
    pub(crate) mergerfs: Option<String>,
    /// A FUSE file system that shows a directory as it is, to compare with (libfuse's passthrough_hp is one). The
    /// directory and the mount point are added to this program and its options
    #[arg(long, value_name = "COMMAND")]
    pub(crate) mirror: Option<String>,
    /// List groups and rows
    #[arg(long)]
    pub(crate) list: bool,
    /// Given by cargo
    #[arg(long, hide = true)]
    bench: bool,
}

impl Args {
    pub(crate) fn rounds(&self) -> u32 {
        self.rounds.unwrap_or(if self.quick { 1 } else { 3 })
    }

    /// In the order of the table; native first, since every ratio needs it.
    pub(crate) fn systems(&self) -> Vec<System> {
        let wanted =
            |system: &System| *system == System::Native || self.systems.is_empty() || self.systems.contains(system);
        let known = |system: &System| *system != System::Mirror || self.mirror.is_some();
        System::ALL.into_iter().filter(wanted).filter(known).collect()
    }
}
