//! `umbrella lab trace`: block traces.

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::bail;
use clap::{Args, Subcommand};

use super::trace_convert::ConvertArgs;
use super::trace_info::InfoArgs;

/// Show what a block trace contains, or convert it.
///
/// To record one: umbrella bench record DEVICE.
#[derive(Debug, Args)]
pub(super) struct TraceArgs {
    #[command(subcommand)]
    command: TraceCommand,
}

#[derive(Debug, Subcommand)]
enum TraceCommand {
    Info(InfoArgs),
    Convert(ConvertArgs),
    #[command(hide = true)]
    Record {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        _given: Vec<OsString>,
    },
}

impl TraceArgs {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        match self.command {
            TraceCommand::Info(args) => args.run(),
            TraceCommand::Convert(args) => args.run(),
            TraceCommand::Record { .. } => bail!("the lab touches no device: use `umbrella bench record`"),
        }
    }
}
