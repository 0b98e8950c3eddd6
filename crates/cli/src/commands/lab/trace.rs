//! `umbrella lab trace`: block traces.

use std::process::ExitCode;

use clap::{Args, Subcommand};

use super::record::RecordArgs;
use super::trace_convert::ConvertArgs;
use super::trace_info::InfoArgs;

/// Say what a block trace holds, convert it, or record one.
#[derive(Debug, Args)]
pub(super) struct TraceArgs {
    #[command(subcommand)]
    command: TraceCommand,
}

#[derive(Debug, Subcommand)]
enum TraceCommand {
    Info(InfoArgs),
    Convert(ConvertArgs),
    Record(RecordArgs),
}

impl TraceArgs {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        match self.command {
            TraceCommand::Info(args) => args.run(),
            TraceCommand::Convert(args) => args.run(),
            TraceCommand::Record(args) => args.run(),
        }
    }
}
