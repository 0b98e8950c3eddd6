//! What `umbrella lab run` and `compare` have in common: the input, the machine, sweeps, and how results are given.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail};
use clap::{Args, ValueEnum};
use umbrella_lab::experiment::LabError;
use umbrella_lab::machine::{Allocation, Bookkeeping};
use umbrella_lab::result::{METRICS, Metric, Outcome, html, metric, shell_words, write_csv};
use umbrella_lab::write_back::{
    Fit, MOST_RUNS, MOST_SHOWN, MachineSpec, Partition, ReplayOptions, ReplaySpeed, Sweep, WriteBackCell,
    WriteBackInput, cells,
};
use umbrella_units::{ByteSize, Nanos, did_you_mean};

use super::trace_input::{ReadArgs, warn_of_skipped};
use super::values::{self, Expire, expire, one_name, pages, percent, seed, share, whole};
use crate::commands::whole_file::{WholeFile, write_whole};
use crate::output;
use crate::text::{visible, visible_path};

/// The input.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(super) struct InputArgs {
    /// A recorded trace (formats: umbrella lab trace info --help).
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// A workload, with parameters if you like: postmark:files=20000 (umbrella lab list workloads).
    #[arg(long, value_name = "SPEC", conflicts_with_all = ["format", "event", "strict", "lenient", "window", "max_gap"])]
    workload: Option<String>,
}

/// How to replay a trace.
#[derive(Debug, Args)]
#[command(next_help_heading = "Trace")]
pub(super) struct ReplayArgs {
    /// Only this device of the trace, by its number in `umbrella lab trace info`.
    #[arg(long, value_name = "N", conflicts_with = "workload")]
    device: Option<u32>,
    /// How many times faster than recorded; `max` issues each request as soon as an earlier one is done.
    #[arg(long, value_name = "TIMES", default_value = "1", conflicts_with = "workload")]
    speed: ReplaySpeed,
    /// The most requests under way at once.
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = whole(1..=65536), conflicts_with = "workload")]
    depth: u32,
    /// What to do with addresses beyond the disk's end.
    #[arg(long, value_enum, default_value_t = FitArg::Refuse, conflicts_with = "workload")]
    fit: FitArg,
    #[command(flatten)]
    read: ReadArgs,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum FitArg {
    /// Report an error and run nothing.
    Refuse,
    /// Continue at the disk's first block.
    Wrap,
}

/// The machine.
#[derive(Debug, Args)]
#[command(next_help_heading = "Machine")]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
pub(super) struct MachineArgs {
    /// The disk (umbrella lab list disks), or the file of a drive's profile: its name has a / or ends in .toml
    /// (umbrella lab disk import).
    #[arg(long, value_name = "PROFILE", default_value = "modern", value_parser = one_name)]
    disk: String,
    /// Memory for file pages; shrinks with --scale.
    #[arg(long, value_name = "SIZE", default_value = "512MiB")]
    memory: ByteSize,
    /// The request scheduler (umbrella lab list schedulers).
    #[arg(long, value_name = "NAME", default_value = super::table::DEFAULT_SCHEDULER, value_parser = one_name)]
    scheduler: String,
    /// Requests that the scheduler holds.
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = whole(1..=65536))]
    queue_length: u32,
    /// Commands that the disk takes at once, 1 to 32 [default: the profile's].
    #[arg(long, value_name = "N", value_parser = whole(1..=32))]
    queue_depth: Option<u32>,
    /// Whether the disk's own write cache is on [default: the profile's].
    #[arg(long, value_name = "BOOL")]
    write_cache: Option<bool>,
    /// Dirty pages above this share of memory are written in the background; above half of --foreground's if that is
    /// not larger, as in Linux.
    #[arg(long, value_name = "PERCENT", default_value_t = 10, value_parser = percent(1..=100))]
    background: u32,
    /// Dirty pages above this share of memory hold up the writers.
    #[arg(long, value_name = "PERCENT", default_value_t = 40, value_parser = percent(1..=100))]
    foreground: u32,
    /// How long a file may be dirty before the periodic write-back takes it; `never` for non-volatile memory.
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = expire)]
    expire: Expire,
    /// The largest read-ahead, in pages.
    #[arg(long, value_name = "PAGES", default_value_t = 32, value_parser = pages(0..=65536))]
    read_ahead: u32,
    /// Stage new files in memory (Temporary-ramfs). Workloads only, as the next three.
    #[arg(long, conflicts_with = "trace")]
    staging: bool,
    /// Allocate blocks when pages are written back, not when they become dirty.
    #[arg(long, conflicts_with = "trace")]
    delayed_allocation: bool,
    /// Write everything to the head of a log, as NILFS does (the log is not cleaned).
    #[arg(long, conflicts_with_all = ["trace", "delayed_allocation"])]
    log_structured: bool,
    /// Age the file system before the run: old files come and go until they fill this share of it and the free space is
    /// scattered.
    #[arg(long, value_name = "PERCENT", default_value_t = 0, value_parser = percent(0..=95), conflicts_with = "trace")]
    aged: u32,
    /// Let writers that are throttled write by this policy, as Linux 2.6 does beside a changed background thread.
    /// Without it they ask the policy as well.
    #[arg(long, value_name = "SPEC")]
    throttled_policy: Option<String>,
    /// Processor time for each directory entry that is scanned when a name is made or removed, in ns (ext2's linear
    /// directories).
    #[arg(long, value_name = "NS", default_value_t = 0, value_parser = whole(0..=1_000_000))]
    entry_cost: u32,
    /// Processor time for each page that enters a policy's zones, in ns.
    #[arg(long, value_name = "NS", default_value_t = 0, value_parser = whole(0..=1_000_000))]
    zone_page_cost: u32,
    /// Processor time for each zone that is looked at before one is chosen, in ns.
    #[arg(long, value_name = "NS", default_value_t = 0, value_parser = whole(0..=1_000_000))]
    zone_cost: u32,
    /// Write all dirty data every 5 s, as ext3's journal does in ordered mode. Workloads only, as the next two.
    #[arg(long, conflicts_with = "trace")]
    ordered_commits: bool,
    /// Set blocks aside for a file in windows that grow, as ext3 does.
    #[arg(long, conflicts_with = "trace")]
    growing_windows: bool,
    /// The part of the disk that the file system has: 60GB@start, 60GB@middle, 60GB@end [default: all].
    #[arg(long, value_name = "SIZE@PLACE", conflicts_with = "trace")]
    partition: Option<Partition>,
}

/// The scale, the seeds, and the values to sweep.
#[derive(Debug, Args)]
#[command(next_help_heading = "Run")]
pub(super) struct SampleArgs {
    /// Shrink the workload's sizes and the memory together: 0.1 is a tenth.
    #[arg(long, value_name = "SHARE", default_value_t = 1.0, allow_negative_numbers = true, value_parser = share)]
    scale: f64,
    /// The seed of everything random; the same seed gives the same figures [default: 1; compare with a workload: 1, 2
    /// and 3].
    #[arg(long, value_name = "N", value_parser = seed)]
    seed: Option<u64>,
    /// Run every value of a parameter: zone=2MiB,4MiB,8MiB. May be given several times; each is run with each.
    #[arg(long, value_name = "NAME=VALUES")]
    sweep: Vec<Sweep>,
    /// Runs at a time [default: one a processor].
    #[arg(long, value_name = "N", value_parser = whole(1..=1024))]
    threads: Option<u32>,
}

/// With how many seeds a workload is run by default.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Seeds {
    /// One.
    One,
    /// As many as tell chance from difference.
    Several,
}

/// How many runs there may be, and with which seeds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Extent {
    /// The seeds.
    pub(super) seeds: Seeds,
    /// Most runs.
    pub(super) most: usize,
}

/// How to show results.
#[derive(Debug, Args)]
#[command(next_help_heading = "Output")]
pub(super) struct OutputArgs {
    /// Print JSON.
    #[arg(long, conflicts_with = "csv")]
    pub(super) json: bool,
    /// Print CSV, one line a run.
    #[arg(long)]
    csv: bool,
    /// Write one self-contained page with plots.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Show all columns of the table, however wide it becomes.
    #[arg(long, conflicts_with_all = ["json", "csv"])]
    wide: bool,
    /// Only these figures (umbrella lab list metrics) [default: compare: the most telling ones, run: all].
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    metric: Vec<String>,
}

/// The figures of a table.
#[derive(Debug)]
pub(super) struct Figures {
    /// In this order.
    pub(super) metrics: Vec<&'static Metric>,
    /// Whether they were asked for by name: then each has its column, also one that is zero everywhere.
    pub(super) chosen: bool,
}

/// What a comparison of workloads runs by default.
const SEVERAL_SEEDS: &str = "seed=1,2,3";

/// What the table shows unless asked for something else, the most telling first.
const DEFAULT_METRICS: &[&str] = &[
    "time_s",
    "drained_s",
    "throughput",
    "write_mean_us",
    "bytes_written",
    "write_distance",
    "write_p99_us",
    "read_mean_us",
    "write_requests",
    "write_request_bytes",
    "throttled_s",
    "erases",
    "policy_bytes",
];

impl InputArgs {
    fn input(&self, replay: &ReplayArgs) -> anyhow::Result<WriteBackInput> {
        if let Some(spec) = &self.workload {
            if spec.split(':').next().is_some_and(|name| name.contains(',')) {
                bail!("--workload {}: one at a time (run the command again for another)", visible(spec));
            }
            return Ok(WriteBackInput::Workload { spec: spec.clone() });
        }
        let Some(path) = &self.trace else { bail!("give --trace FILE or --workload SPEC") };
        can_be_read_again(path)?;
        let fit = match replay.fit {
            FitArg::Refuse => Fit::Refuse,
            FitArg::Wrap => Fit::Wrap,
        };
        let options = ReplayOptions { speed: replay.speed, depth: replay.depth, fit, device: replay.device };
        let input = WriteBackInput::trace(path.clone(), replay.read.options(), options)?;
        if let WriteBackInput::Trace { summary, .. } = &input {
            warn_of_skipped(path, &summary.skipped);
        }
        if is_without_requests(&input) {
            bail!(
                "{}: no reads or writes to replay{}{}",
                visible_path(path),
                match replay.device {
                    Some(device) => format!(" of device {device}"),
                    None => String::new(),
                },
                if replay.read.names_event() { " (of the events that --event names)" } else { "" }
            );
        }
        Ok(input)
    }
}

/// A trace is read once before the runs, and once in each of them.
fn can_be_read_again(path: &Path) -> anyhow::Result<()> {
    const HOW: &str = "each run reads the trace again: save it to a file first (umbrella lab trace convert)";
    let kind = match fs::metadata(path) {
        Ok(data) => data.file_type(),
        Err(_) if path == Path::new("-") => bail!("standard input can be read only once, and {HOW}"),
        Err(error) => return Err(error).with_context(|| format!("cannot open {}", visible_path(path))),
    };
    if kind.is_dir() {
        bail!("{} is a directory, not a trace", visible_path(path));
    }
    if kind.is_fifo() || kind.is_socket() || kind.is_char_device() {
        bail!("{} can be read only once, and {HOW}", visible_path(path));
    }
    Ok(())
}

fn is_without_requests(input: &WriteBackInput) -> bool {
    match input {
        WriteBackInput::Workload { .. } => false,
        WriteBackInput::Trace { summary, replay, .. } => {
            let none_of = |device: u32| summary.devices.get(device as usize).is_none_or(|device| device.records == 0);
            summary.reads + summary.writes == 0 || replay.device.is_some_and(none_of)
        }
    }
}

impl MachineArgs {
    fn allocation(&self) -> Allocation {
        match (self.delayed_allocation, self.log_structured) {
            (true, _) => Allocation::Delayed,
            (_, true) => Allocation::Log,
            _ => Allocation::AtOnce,
        }
    }

    fn machine(&self) -> anyhow::Result<MachineSpec> {
        let nanos = |cost: u32| Nanos(cost.into());
        let mut machine = MachineSpec {
            scheduler: self.scheduler.clone(),
            queue_length: self.queue_length as usize,
            queue_depth: self.queue_depth,
            write_cache: self.write_cache,
            memory: self.memory,
            background_percent: self.background,
            foreground_percent: self.foreground,
            expire_after: self.expire.0,
            staging: self.staging,
            allocation: self.allocation(),
            aged_percent: self.aged,
            read_ahead: self.read_ahead,
            throttled_policy: self.throttled_policy.clone(),
            bookkeeping: Bookkeeping {
                entry: nanos(self.entry_cost),
                zone_page: nanos(self.zone_page_cost),
                zone: nanos(self.zone_cost),
            },
            ordered_commits: self.ordered_commits,
            growing_windows: self.growing_windows,
            partition: self.partition,
            ..MachineSpec::default()
        };
        machine.set_disk(&self.disk)?;
        Ok(machine)
    }
}

impl SampleArgs {
    /// All runs.
    pub(super) fn cells(
        &self,
        policies: &[String],
        input: &InputArgs,
        replay: &ReplayArgs,
        machine: &MachineArgs,
        Extent { seeds, most }: Extent,
    ) -> anyhow::Result<Vec<WriteBackCell>> {
        let machine = MachineSpec { seed: self.seed.unwrap_or(1), scale: self.scale, ..machine.machine()? };
        let base = WriteBackCell::new(input.input(replay)?, machine);
        let mut sweeps = self.sweep.clone();
        let is_open = self.seed.is_none() && sweeps.iter().all(|sweep| sweep.name != "seed");
        if seeds == Seeds::Several && is_open && input.workload.is_some() {
            sweeps.push(SEVERAL_SEEDS.parse()?);
        }
        let cells = cells(&base, policies, &sweeps, most).map_err(too_many)?;
        let warnings: BTreeSet<String> = cells.iter().flat_map(WriteBackCell::warnings).collect();
        for warning in &warnings {
            report!("umbrella: warning: {warning}");
        }
        Ok(cells)
    }

    /// Runs at a time.
    pub(super) fn threads(&self) -> usize {
        values::threads(self.threads)
    }
}

/// Says what to do about more runs than a table shows.
fn too_many(error: LabError) -> anyhow::Error {
    match error {
        LabError::TooManyRuns { most: MOST_SHOWN } => anyhow!(
            "more than {MOST_SHOWN} runs are too many for a table: sweep fewer values, or use --csv, --json or umbrella \
            lab sweep (up to {MOST_RUNS})"
        ),
        error => error.into(),
    }
}

impl OutputArgs {
    /// The largest number of runs that the output can show.
    pub(super) fn max_runs(&self) -> usize {
        if (self.json || self.csv) && self.html.is_none() { MOST_RUNS } else { MOST_SHOWN }
    }

    /// The table's figures, and what else can be found wrong before anything is run.
    pub(super) fn figures(&self, input: &InputArgs) -> anyhow::Result<Figures> {
        if let Some(page) = &self.html {
            // A page that cannot be written is refused before the runs.
            let file = WholeFile { option: "--html", is: "page", example: "day.html" };
            file.can_be_written(page, input.trace.as_deref().map(|it| ("trace", it)))?;
        }
        let asked: Vec<&str> = self.metric.iter().map(|name| name.trim()).filter(|name| !name.is_empty()).collect();
        if asked.is_empty() && !self.metric.is_empty() {
            bail!("--metric names no figure (umbrella lab list metrics)");
        }
        let chosen = !asked.is_empty();
        let names = if chosen { asked } else { DEFAULT_METRICS.to_vec() };
        Ok(Figures { metrics: names.into_iter().map(known_metric).collect::<anyhow::Result<_>>()?, chosen })
    }

    /// Whether a table shows all of its columns.
    pub(super) fn is_wide(&self) -> bool {
        self.wide || !self.metric.is_empty()
    }

    /// Prints the outcomes in the format of the options. `table` renders the text for people.
    pub(super) fn print_outcomes(
        &self,
        outcomes: &[Outcome],
        runs: &[WriteBackCell],
        table: impl FnOnce() -> String,
    ) -> anyhow::Result<()> {
        let title = runs.first().map_or_else(String::new, |cell| cell.input.name());
        let page = || html::page(&title, outcomes, runs.len(), &origin());
        // A page that cannot be written takes no results along.
        let written = self.html.as_ref().map_or(Ok(()), |path| write_whole(path, &page()));
        if self.json {
            output::json_list(&outcomes.iter().map(with_figures).collect::<Result<Vec<_>, _>>()?)?;
        } else if self.csv {
            let mut csv = Vec::new();
            write_csv(&mut csv, outcomes)?;
            output::print(&String::from_utf8_lossy(&csv))?;
        } else {
            output::print(&table())?;
            if let (Some(path), Ok(())) = (&self.html, &written) {
                output::line(&format!("page: {}", visible_path(path)))?;
            }
        }
        written
    }
}

/// Where a page comes from.
pub(in crate::commands) fn origin() -> html::Provenance {
    let words: Vec<String> = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
    let command = shell_words(["umbrella"].into_iter().chain(words.iter().map(String::as_str)));
    let now = humantime::format_rfc3339_seconds(std::time::SystemTime::now()).to_string();
    html::Provenance { program: concat!("Umbrella ", env!("CARGO_PKG_VERSION")).to_owned(), date: now, command }
}

fn known_metric(name: &str) -> anyhow::Result<&'static Metric> {
    metric(name).with_context(|| {
        format!(
            "no figure is called {name:?}{} (known: {})",
            did_you_mean(name, METRICS.iter().map(|metric| metric.name)),
            METRICS.iter().map(|metric| metric.name).collect::<Vec<_>>().join(", ")
        )
    })
}

/// An outcome, and beside it every figure by the name that tables and CSV have for it.
fn with_figures(outcome: &Outcome) -> serde_json::Result<serde_json::Value> {
    let mut value = serde_json::to_value(outcome)?;
    let figures = METRICS.iter().map(|metric| (metric.name.to_owned(), (metric.of)(outcome).into())).collect();
    value["figures"] = serde_json::Value::Object(figures);
    Ok(value)
}
