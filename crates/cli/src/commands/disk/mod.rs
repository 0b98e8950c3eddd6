//! `umbrella disk`: block devices, one file a subcommand.

mod attach;
mod check;
mod create;
mod detach;
mod serve;
mod source;
mod stats;
mod status;

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
    Create(create::CreateArgs),
    Serve(serve::ServeArgs),
    Attach(attach::AttachArgs),
    Detach(detach::DetachArgs),
    Status(status::StatusArgs),
    Stats(stats::StatsArgs),
    Check(check::CheckArgs),
}

impl DiskArgs {
    /// Does it. `verbose` is passed on to a daemon.
    pub(crate) fn run(self, verbose: u8) -> anyhow::Result<ExitCode> {
        match self.command {
            DiskCommand::Create(args) => args.run(),
            DiskCommand::Serve(args) => args.run(verbose),
            DiskCommand::Attach(args) => args.run(verbose),
            DiskCommand::Detach(args) => args.run(),
            DiskCommand::Status(args) => args.run(),
            DiskCommand::Stats(args) => args.run(),
            DiskCommand::Check(args) => args.run(),
        }
    }
}

/// `[DISK]`
#[derive(Debug, Args)]
struct DiskArg {
    /// Name, device (/dev/loop0) or configuration of a disk; may be left out when one is served.
    #[arg(value_name = "DISK")]
    disk: Option<String>,
}
