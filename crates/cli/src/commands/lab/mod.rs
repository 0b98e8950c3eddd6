//! `umbrella lab`: the laboratory. Nothing of it touches a pool or a device.

mod compare;
mod disk;
mod events;
pub(super) mod hint;
mod list;
mod log;
mod paper;
mod paper_nvcache;
mod paper_r_lfs;
mod rows;
pub(super) mod setup;
mod sweep;
mod table;
mod trace;
mod trace_convert;
mod trace_info;
pub(super) mod trace_input;
pub(super) mod values;
pub(super) mod watch;

use std::process::ExitCode;

use clap::{Args, Subcommand};

/// Inspect traces, and try write-back policies and log-structured stores on modelled disks.
#[derive(Debug, Args)]
pub(crate) struct LabArgs {
    #[command(subcommand)]
    command: LabCommand,
}

#[derive(Debug, Subcommand)]
enum LabCommand {
    Run(Box<compare::SingleArgs>),
    Compare(Box<compare::CompareArgs>),
    Sweep(sweep::SweepArgs),
    Log(Box<log::LogArgs>),
    Disk(disk::DriveArgs),
    Paper(paper::PaperArgs),
    List(list::ListArgs),
    Trace(trace::TraceArgs),
}

impl LabArgs {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let done = match self.command {
            LabCommand::Run(args) => args.run(),
            LabCommand::Compare(args) => args.run(),
            LabCommand::Sweep(args) => args.run(),
            LabCommand::Log(args) => args.run(),
            LabCommand::Disk(args) => args.run(),
            LabCommand::Paper(args) => args.run(),
            LabCommand::List(args) => args.run(),
            LabCommand::Trace(args) => args.run(),
        };
        done.map_err(hint::with_hint)
    }
}
