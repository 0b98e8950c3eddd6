//! `umbrella disk`: block devices, one file a subcommand.

mod attach;
mod check;
mod check_store;
mod create;
mod detach;
mod grow;
mod log;
mod progress;
mod salvage;
mod schemes;
mod scrub;
mod serve;
mod source;
mod stats;
mod status;

use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::json;

use crate::output;

/// Serve a block device: a hybrid disk, a log store, a file, or an emulated disk.
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
    Status(status::DiskStatusArgs),
    Stats(stats::StatsArgs),
    Check(check::DiskCheckArgs),
    Grow(grow::GrowArgs),
    Salvage(salvage::SalvageArgs),
    Schemes(schemes::SchemesArgs),
    Scrub(scrub::ScrubArgs),
}

impl DiskArgs {
    /// Whether the user waits for its end.
    pub(crate) fn is_short(&self) -> bool {
        !matches!(self.command, DiskCommand::Serve(_))
    }

    /// Does it. `verbose` is passed on to a daemon.
    pub(crate) fn run(self, verbose: u8) -> anyhow::Result<ExitCode> {
        let json = self.command.wants_json();
        let done = match self.command {
            DiskCommand::Create(args) => args.run(),
            DiskCommand::Serve(args) => args.run(verbose),
            DiskCommand::Attach(args) => args.run(verbose),
            DiskCommand::Detach(args) => args.run(),
            DiskCommand::Status(args) => args.run(),
            DiskCommand::Stats(args) => args.run(),
            DiskCommand::Check(args) => args.run(),
            DiskCommand::Grow(args) => args.run(),
            DiskCommand::Salvage(args) => args.run(),
            DiskCommand::Schemes(args) => args.run(),
            DiskCommand::Scrub(args) => args.run(),
        };
        if let Err(error) = &done
            && json
            && !output::is_broken_pipe(error)
        {
            output::json(&json!({ "error": output::reasons(error) }))?;
        }
        done
    }
}

impl DiskCommand {
    /// Whether what it prints, failures as well, is to be JSON.
    fn wants_json(&self) -> bool {
        match self {
            DiskCommand::Create(args) => args.json,
            DiskCommand::Serve(args) => args.json,
            DiskCommand::Attach(args) => args.json,
            DiskCommand::Detach(args) => args.json,
            DiskCommand::Status(args) => args.json,
            DiskCommand::Stats(args) => args.json,
            DiskCommand::Check(args) => args.json,
            DiskCommand::Grow(args) => args.json,
            DiskCommand::Salvage(args) => args.json,
            DiskCommand::Schemes(args) => args.json,
            DiskCommand::Scrub(args) => args.json,
        }
    }
}

/// `[DISK]`
#[derive(Debug, Args)]
struct DiskArg {
    /// Name, device (/dev/loop0) or configuration of a disk, or the disk or image of a log store; may be left out when
    /// one is served.
    #[arg(value_name = "DISK")]
    disk: Option<String>,
}
