//! `umbrella bench`: what needs a real device or a real file system.

mod disk;
mod r_lfs;
mod record;

use std::process::ExitCode;

use clap::{Args, Subcommand};

/// Measure real devices and real file systems (root).
#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    #[command(subcommand)]
    command: BenchCommand,
}

#[derive(Debug, Subcommand)]
enum BenchCommand {
    Disk(disk::DiskBenchArgs),
    Record(record::BenchRecordArgs),
    RLfs(r_lfs::RLfsArgs),
}

impl BenchArgs {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        match self.command {
            BenchCommand::Disk(args) => args.run(),
            BenchCommand::Record(args) => args.run(),
            BenchCommand::RLfs(args) => args.run(),
        }
    }
}
