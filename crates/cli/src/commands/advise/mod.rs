//! `umbrella advise`: what to set for a disk or a pool, from recorded requests.
//!
//! Steps: record or read the requests, make the runs that [`umbrella_lab::advice`] plans on all processors, and print
//! what it judges. With `--apply`, write it to the configuration. All or nothing: a run that is missing could have been
//! the best.

mod apply;
mod configuration;
mod page;
mod placement;
mod pool;
mod record;
mod report;
mod simulate;
mod text;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use serde::Serialize;
use umbrella_lab::advice::Recording;
use umbrella_lab::advice::sleep::SleepAdvice;
use umbrella_lab::advice::write_back::{Confirmation, KERNEL, WriteBackAdvice};
use umbrella_units::{ByteSize, parse_duration};

use super::block_trace::{self, Device};
use super::lab::hint::with_hint;
use super::lab::trace_input::{ReadArgs, open, warn_of_skipped};
use super::lab::values::{one_name, whole};
use super::whole_file::WholeFile;
use crate::output;
use crate::text::visible_path;
use configuration::Fragment;
use simulate::{Interrupted, Simulator};

/// Recommend settings for a disk or a pool: write-back policy, memory, flash and sleep.
///
/// Simulates recorded requests on a modelled disk with each setting and three seeds. Prints the best setting, its gain
/// and cost compared with your present one, and the lines for the configuration. Where seeds differ as much as settings
/// do, it says "no difference". Changes nothing without --apply.
#[derive(Debug, Args)]
#[command(after_help = "\
EXAMPLES:
  umbrella advise --device /dev/sdb --for 1h                  # as root
  umbrella advise --device /dev/sdb --for 1d --save day.csv.gz
  umbrella advise day.csv.gz --html day.html
  umbrella advise --quick monday.csv.gz tuesday.csv.gz --memory 4GiB
  umbrella advise --pool /srv/pool --for 1d
  umbrella advise --pool /srv/pool --for 1h --apply
  umbrella advise day.csv.gz --json | jq .write_back.best")]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
pub(crate) struct AdviseArgs {
    /// Traces of one disk, plain or compressed (gzip, Zstandard); `-` is standard input. Several traces count as one.
    #[arg(required_unless_present_any = ["device", "pool"], value_name = "TRACE")]
    traces: Vec<PathBuf>,
    /// Record this disk first: a whole block device. Needs root.
    #[arg(long, value_name = "DEVICE", conflicts_with_all = ["traces", "pool"])]
    device: Option<PathBuf>,
    /// Record the disks of this pool first: its mount point, any path inside it, or its configuration. Needs root.
    #[arg(long, value_name = "POOL", conflicts_with = "traces")]
    pool: Option<PathBuf>,
    /// Record for this time; Ctrl-C ends the recording early, and the advice uses what was recorded.
    #[arg(long = "for", value_name = "TIME", default_value = "1h", value_parser = parse_duration)]
    #[arg(conflicts_with = "traces")]
    time: Duration,
    /// Keep the recording, compressed if its name ends with .gz or .zst; of several disks, each gets its own file.
    #[arg(long, value_name = "FILE", conflicts_with = "traces")]
    save: Option<PathBuf>,
    /// Write the lines for the branches to the pool's configuration and put them in force, after showing them and
    /// asking.
    #[arg(long, requires = "pool", conflicts_with_all = ["traces", "device"])]
    apply: bool,
    /// With --apply, do not ask.
    #[arg(long, requires = "apply")]
    yes: bool,
    /// The disk to model (umbrella lab list disks), or the file of a drive's profile (umbrella bench disk). The name of
    /// a file has a / or ends in .toml [default: modern; for a recorded disk without a motor, sata_ssd].
    #[arg(long, value_name = "PROFILE", value_parser = one_name)]
    disk: Option<String>,
    /// Memory for file pages that the machine has today; a quarter and four times as much are simulated too.
    #[arg(long, value_name = "SIZE", default_value = "512MiB", value_parser = memory)]
    memory: ByteSize,
    /// Number of requests to simulate, in all traces together, from the start of each; more take longer.
    #[arg(long, value_name = "N", default_value_t = 500_000, value_parser = whole(1..=50_000_000))]
    requests: u32,
    /// The same as --requests 20000.
    #[arg(long, conflicts_with = "requests")]
    quick: bool,
    /// Runs at a time [default: one a processor].
    #[arg(long, value_name = "N", value_parser = whole(1..=1024))]
    threads: Option<u32>,
    /// Write a page with the trade-offs as plots.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    read: ReadArgs,
}

/// What `--quick` simulates.
const QUICK: u32 = 20_000;
/// With a quarter of less, the lines for the configuration would be below what the write-back accepts.
const MEMORY: std::ops::RangeInclusive<ByteSize> = ByteSize(64 << 20)..=ByteSize(1 << 44);

fn memory(text: &str) -> Result<ByteSize, String> {
    let size: ByteSize = text.parse().map_err(|error: umbrella_units::ParseSizeError| error.to_string())?;
    if MEMORY.contains(&size) {
        Ok(size)
    } else {
        Err(format!("give a size from {} to {}", MEMORY.start(), MEMORY.end()))
    }
}

/// The report about a disk, as `--json` prints it.
#[derive(Debug, Serialize)]
struct DiskAdviceReport {
    traces: Vec<Simulated>,
    disk: String,
    memory: ByteSize,
    seeds: [u64; 3],
    write_back: WriteBackAdvice,
    /// The best once more; none where nothing is better than today.
    confirmed: Option<Confirmation>,
    sleep: SleepAdvice,
    configuration: Vec<Fragment>,
}

/// What of a trace was simulated.
#[derive(Debug, Serialize)]
struct Simulated {
    trace: String,
    requests: u64,
    length_s: f64,
    /// Whether the trace continues behind these requests.
    is_cut: bool,
}

impl AdviseArgs {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let done = if self.pool.is_some() { pool::advise(&self) } else { self.advise() };
        done.or_else(|error| match error.downcast::<Interrupted>() {
            Ok(Interrupted(code)) => {
                report!("interrupted: no advice, because the simulation was not complete (--quick takes less time)");
                Ok(code)
            }
            Err(error) => Err(with_hint(error)),
        })
    }

    fn advise(&self) -> anyhow::Result<ExitCode> {
        self.check_page()?;
        let (recordings, is_flash) = match &self.device {
            Some(device) => self.recorded(device)?,
            None => (self.recordings()?, false),
        };
        let report = self.simulator()?.report(&recordings, self.profile(is_flash), KERNEL)?;
        let text = text::report(&report);
        self.print_report(&report, &text, || page::of(&[("", &report)], &text))?;
        Ok(ExitCode::SUCCESS)
    }

    /// Prints the report, and writes the page.
    fn print_report(&self, report: &impl Serialize, text: &str, page: impl FnOnce() -> String) -> anyhow::Result<()> {
        // A page that cannot be written takes no advice along.
        let written = self.html.as_ref().map_or(Ok(()), |path| super::whole_file::write_whole(path, &page()));
        if self.json {
            output::json(report)?;
        } else {
            output::print(text)?;
            if let (Some(path), Ok(())) = (&self.html, &written) {
                output::line(&format!("\npage: {}", visible_path(path)))?;
            }
        }
        written
    }

    /// Refuses a page that could not be written at the end.
    fn check_page(&self) -> anyhow::Result<()> {
        let Some(page) = &self.html else { return Ok(()) };
        let source = self.traces.first().map(|trace| ("trace", trace.as_path()));
        WholeFile { option: "--html", is: "page", example: "advice.html" }.can_be_written(page, source)
    }

    fn simulator(&self) -> anyhow::Result<Simulator> {
        Simulator::new(self.memory, self.threads)
    }

    /// What stands for a disk.
    fn profile(&self, is_flash: bool) -> &str {
        self.disk.as_deref().unwrap_or(if is_flash { "sata_ssd" } else { "modern" })
    }

    /// The largest number of requests to simulate.
    fn max_requests(&self) -> u32 {
        if self.quick { QUICK } else { self.requests }
    }

    /// Records the requests of a disk. Returns them, and whether the disk has no motor.
    fn recorded(&self, path: &Path) -> anyhow::Result<(Vec<Recording>, bool)> {
        let device = Device::find(path)?;
        block_trace::require_root()?;
        let order = record::Order {
            devices: &[device],
            time: self.time,
            most: u64::from(self.max_requests()),
            save: self.save.as_deref(),
            name: &visible_path(path),
        };
        let recordings = record::record(&order)?;
        recordings.iter().try_for_each(record::refuse_empty)?;
        Ok((recordings, device.is_flash()))
    }

    fn recordings(&self) -> anyhow::Result<Vec<Recording>> {
        let most = (self.max_requests() as usize / self.traces.len()).max(1);
        self.traces.iter().map(|path| self.recording(path, most)).collect()
    }

    fn recording(&self, path: &Path, most: usize) -> anyhow::Result<Recording> {
        let name = path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        let mut reader = open(path, &self.read.options())?;
        let recording = Recording::read(&name, &mut reader, most).with_context(|| visible_path(path))?;
        warn_of_skipped(path, &recording.skipped);
        if !recording.has_requests() {
            bail!(
                "{}: nothing to simulate: it has no reads or writes (record while the disk is in use)",
                visible_path(path)
            );
        }
        Ok(recording)
    }
}

impl Simulated {
    fn of(recording: &Recording) -> Simulated {
        Simulated {
            trace: recording.name.clone(),
            requests: recording.columns.len() as u64,
            length_s: recording.length().as_secs_f64(),
            is_cut: recording.is_cut,
        }
    }
}
