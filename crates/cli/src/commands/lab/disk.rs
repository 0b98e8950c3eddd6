//! `umbrella lab disk`: drives as they were measured.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::{Args, Subcommand};
use serde::Serialize;
use umbrella_lab::drive::{Demerit, DriveProfile, Measurements, Validation, disksim, validate};
use umbrella_lab::result::html;

use super::setup::origin;
use crate::commands::whole_file::write_whole;
use crate::output;
use crate::text::{visible, visible_path};

/// Import a drive's measured parameters, and compare the disk model with the drive.
#[derive(Debug, Args)]
pub(super) struct DriveArgs {
    #[command(subcommand)]
    command: DriveCommand,
}

#[derive(Debug, Subcommand)]
enum DriveCommand {
    Import(DriveImportArgs),
    Validate(ValidateArgs),
}

/// Read a drive's parameters in DiskSim's format, and print its profile.
///
/// The files that FILE names are read from its directory: the drive's parameters, its layout and its seek curve.
#[derive(Debug, Args)]
#[command(after_help = "\
EXAMPLES:
  umbrella lab disk import drive.parv > drive.toml")]
struct DriveImportArgs {
    /// A parameter file of DiskSim 4 (.parv).
    file: PathBuf,
}

/// Replay requests with measured response times on a drive's model, and show how close the model comes.
///
/// A line of TRACE: R or W, a word, the first sector, how many sectors of 512 bytes, microseconds to respond,
/// microseconds until the next request. The demerit figure is the root mean square of the horizontal distance between
/// the two distributions of response times.
#[derive(Debug, Args)]
#[command(after_help = "\
EXAMPLES:
  umbrella lab disk validate drive.toml drive.trace.gz
  umbrella lab disk validate drive.toml drive.trace --json | jq .demerit_ms
  umbrella lab disk validate drive.toml drive.trace --html curves.html")]
struct ValidateArgs {
    /// The drive's profile (TOML), as `umbrella lab disk import` prints it.
    profile: PathBuf,
    /// The requests, plain or compressed with gzip.
    trace: PathBuf,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Write a page with both distributions.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

/// The printed report of a validation.
#[derive(Debug, Serialize)]
struct ValidationReport {
    drive: String,
    requests: usize,
    demerit_ms: f64,
    demerit_share_of_mean: f64,
    measured_mean_ms: f64,
    modelled_mean_ms: f64,
    reads: DirectionReport,
    writes: DirectionReport,
}

/// The same for reads or writes alone.
#[derive(Debug, Serialize)]
struct DirectionReport {
    requests: usize,
    demerit_ms: f64,
    measured_mean_ms: f64,
    modelled_mean_ms: f64,
}

impl DriveArgs {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        match self.command {
            DriveCommand::Import(args) => args.run(),
            DriveCommand::Validate(args) => args.run(),
        }
    }
}

impl DriveImportArgs {
    fn run(self) -> anyhow::Result<ExitCode> {
        let drive = disksim::import(&self.file).with_context(|| visible_path(&self.file))?;
        output::print(&drive.to_toml())?;
        Ok(ExitCode::SUCCESS)
    }
}

impl ValidateArgs {
    fn run(self) -> anyhow::Result<ExitCode> {
        let drive = DriveProfile::open(&self.profile).with_context(|| visible_path(&self.profile))?;
        let named = || visible_path(&self.trace);
        let trace = Measurements::open(&self.trace).with_context(named)?;
        let validation = validate(&drive, &trace).with_context(named)?;
        if let Some(path) = &self.html {
            let title = format!("{}: the drive and its model", drive.name);
            write_whole(path, &html::demerit_page(&title, &validation, &origin()))
                .with_context(|| format!("--html {}", visible_path(path)))?;
        }
        let report = ValidationReport::new(&drive, &validation);
        if self.json {
            output::json(&report)?;
        } else {
            output::print(&report.text())?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl ValidationReport {
    fn new(drive: &DriveProfile, validation: &Validation) -> ValidationReport {
        let all = &validation.all;
        ValidationReport {
            drive: drive.name.clone(),
            requests: all.measured.len(),
            demerit_ms: all.millis(),
            demerit_share_of_mean: all.share(),
            measured_mean_ms: all.measured_mean(),
            modelled_mean_ms: all.modelled_mean(),
            reads: DirectionReport::new(&validation.reads),
            writes: DirectionReport::new(&validation.writes),
        }
    }

    fn text(&self) -> String {
        let row = |name: &str, part: &DirectionReport| {
            format!(
                "{name:8}{:>9}{:>12.3}{:>12.3}{:>12.3}\n",
                part.requests, part.measured_mean_ms, part.modelled_mean_ms, part.demerit_ms
            )
        };
        let all = DirectionReport {
            requests: self.requests,
            demerit_ms: self.demerit_ms,
            measured_mean_ms: self.measured_mean_ms,
            modelled_mean_ms: self.modelled_mean_ms,
        };
        format!(
            "{}\n{:8}{:>9}{:>12}{:>12}{:>12}\n{}{}{}demerit figure: {:.3} ms, {:.1} % of the drive's mean response time\n",
            visible(&self.drive),
            "",
            "requests",
            "drive, ms",
            "model, ms",
            "demerit, ms",
            row("all", &all),
            row("reads", &self.reads),
            row("writes", &self.writes),
            self.demerit_ms,
            self.demerit_share_of_mean * 100.0,
        )
    }
}

impl DirectionReport {
    fn new(demerit: &Demerit) -> DirectionReport {
        DirectionReport {
            requests: demerit.measured.len(),
            demerit_ms: demerit.millis(),
            measured_mean_ms: demerit.measured_mean(),
            modelled_mean_ms: demerit.modelled_mean(),
        }
    }
}
