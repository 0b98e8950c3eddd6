//! `umbrella bench disk`: what a real disk is, by the times that reads of it take. It is opened for reading only.

mod device;
mod report;
mod used;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail};
use clap::Args;
use serde::Serialize;
use umbrella_lab::drive::timed::{DiskTimings, Measurement, Plan, measure};
use umbrella_units::{Nanos, parse_duration};

use self::device::DirectReads;
use crate::commands::whole_file::{WholeFile, write_whole};
use crate::output;
use crate::text::visible_path;

/// Measure a disk by timing reads, and write its profile for the lab.
///
/// Measures rotation, zones, heads, seek times, what the buffer reads ahead and keeps, and what a queue of reads gains.
/// For a device that does not turn, it measures latency and throughput. It writes nothing to the disk. Measure a disk
/// that is not in use.
#[derive(Debug, Args)]
#[command(after_help = "\
EXAMPLES:
  umbrella bench disk /dev/sdb
  umbrella bench disk /dev/sdb --output sdb.toml
  umbrella lab run --disk ./sdb.toml --workload postmark
  umbrella bench disk /dev/sdb --time 2m --json | jq .rotating.zones")]
pub(super) struct DiskBenchArgs {
    /// The disk: a block device, or a file.
    #[arg(value_name = "DEVICE|FILE")]
    device: PathBuf,
    /// Write the disk's profile, which `umbrella lab run --disk FILE` reads.
    #[arg(short, long, value_name = "FILE.toml")]
    output: Option<PathBuf>,
    /// End after this time; the profile assumes what was not measured by then.
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "10m")]
    time: Duration,
    /// Measure also a disk that is mounted or otherwise in use. Other requests disturb the times.
    #[arg(long)]
    in_use: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// What is printed as JSON.
#[derive(Debug, Serialize)]
struct TimingReport<'a> {
    device: String,
    model: &'a str,
    /// Programs that used the disk meanwhile.
    in_use: &'a [String],
    #[serde(flatten)]
    timings: &'a DiskTimings,
}

impl DiskBenchArgs {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        if let Some(output) = &self.output {
            let profile = WholeFile { option: "--output", is: "profile", example: "disk.toml" };
            profile.can_be_written(output, Some(("disk", &self.device)))?;
        }
        let mut device = DirectReads::open(&self.device)?;
        let in_use = used::users(&self.device);
        let named = || visible_path(&self.device);
        if !in_use.is_empty() {
            let why = format!("{} is in use ({}), and other requests disturb the times", named(), in_use.join(", "));
            if !self.in_use {
                bail!("{why}: unmount it first, or add --in-use to measure it all the same");
            }
            report!("umbrella: {why}");
        }
        let plan = Plan { time: Nanos(u64::try_from(self.time.as_nanos()).unwrap_or(u64::MAX)), seed: seed() };
        let timings =
            measure(&mut device, &plan, &mut |step| report!("{}", describe_step(step))).with_context(named)?;
        let model = device.model();
        if self.json {
            let report = TimingReport { device: named(), model, in_use: &in_use, timings: &timings };
            output::json(&report)?;
        } else {
            output::print(&report::text(&named(), &timings))?;
        }
        let Some(output) = &self.output else { return Ok(ExitCode::SUCCESS) };
        let Some(rotating) = &timings.rotating else {
            bail!("{} was not written: only a disk that turns has a profile", visible_path(output));
        };
        let profile = rotating
            .profile(model)
            .context("the timings do not fit a rotating disk; try again while nothing else uses the disk")?;
        write_whole(output, &profile.to_toml())?;
        report!("{} describes it for `umbrella lab run --disk`", visible_path(output));
        Ok(ExitCode::SUCCESS)
    }
}

/// Other places each time: those of the last time may be in the disk's buffer.
fn seed() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |since| since.as_nanos() as u64)
}

fn describe_step(step: Measurement) -> &'static str {
    match step {
        Measurement::Rotation => "looking for rotation ...",
        Measurement::Zones => "it turns; looking for zones ...",
        Measurement::Heads => "looking for heads and skews ...",
        Measurement::Seeks => "timing seeks ...",
        Measurement::Buffer => "looking at the buffer ...",
        Measurement::Queue => "timing reads in a queue ...",
        Measurement::Flash => "no rotation found; timing reads by size and queue depth ...",
    }
}
