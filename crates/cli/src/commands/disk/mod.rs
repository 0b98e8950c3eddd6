//! `umbrella disk`: block devices, one file a subcommand.

mod check;
mod source;

use std::process::ExitCode;

use clap::{Args, Subcommand};

/// Offer a block device: a hybrid disk, a file, or an emulated disk.
#[derive(Debug, Args)]
pub(crate) struct DiskArgs {
    #[command(subcommand)]
    command: DiskCommand,
}

#[derive(Debug, Subcommand)]
enum DiskCommand {
    Check(check::CheckArgs),
}

impl DiskArgs {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        match self.command {
            DiskCommand::Check(args) => args.run(),
        }
    }
}
