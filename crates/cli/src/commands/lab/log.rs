//! `umbrella lab log`: log-structured stores of one's own choice, on traces and synthetic inputs.

use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::str::FromStr;
use std::sync::Arc;

use anyhow::{Context, bail};
use clap::Args;
use umbrella_lab::experiment::{self, Cell};
use umbrella_lab::log_store::{LogInput, LogOutcome, LogSetup, Percent, SeekTotals};
use umbrella_lab::result::Table;
use umbrella_lab::workload::Seed;
use umbrella_lab::write_back::split_policies;
use umbrella_policy::log_layout::{Victim, schemes_for_disks};
use umbrella_units::{ByteSize, PAGE_BYTES, Pages};

use super::rows::{csv, plain};
use super::trace_input::{ReadArgs, warn_of_skipped};
use super::values;
use super::watch::Bars;
use crate::output;

/// Data of a synthetic input at most.
const MOST_DATA: ByteSize = ByteSize(64 << 30);
/// Requests of a synthetic input at most; they are held in memory, 3 GiB then.
const MOST_REQUESTS: u64 = 1 << 27;
const SMALLEST_SEGMENT: ByteSize = ByteSize(32 << 10);
const LARGEST_SEGMENT: ByteSize = ByteSize(64 << 20);
/// Mean number of times that a synthetic input writes each of its blocks before it begins again.
const WRITES_A_BLOCK: u64 = 8;

/// Simulate log-structured stores: how much their cleaners copy, and how far the heads travel.
///
/// Runs every input in every store: each --scheme with each --victim and --used. The log's size is such that the
/// input's data fill the --used share of it (with --disks it is as large as the disk). First the data are written once,
/// which does not count. Then the input repeats until four times the size of the log is written.
#[derive(Debug, Args)]
#[command(after_help = "\
EXAMPLES:
  umbrella lab log --trace day.csv.gz                          # every scheme, the log 80 % full
  umbrella lab log --trace day.csv.gz --disks --used 50,90     # each disk of it, filled with cold data
  umbrella lab log --locality 90/10 --scheme r_lfs:regions=1,r_lfs,organ --used 50,70,85,95
  umbrella lab log --zipf 0.99 --data 2GiB --segment 4MiB --victim greedy,cost-benefit --csv

Schemes and their parameters: umbrella disk schemes; oracle, which knows when each block dies, runs here only.")]
pub(super) struct LogArgs {
    /// A block trace (formats: umbrella lab trace info --help). Repeatable
    #[arg(long = "trace", value_name = "FILE")]
    traces: Vec<PathBuf>,
    /// Make each disk of a trace a log of its own, as large as the disk. Blocks that the trace never touches fill it to
    /// --used
    #[arg(long, requires = "traces")]
    disks: bool,
    /// Accesses with locality: X % of them go to Y % of the data. Repeatable
    #[arg(long, value_name = "X/Y")]
    locality: Vec<Locality>,
    /// Writes of single blocks by Zipf's law with this exponent. Repeatable
    #[arg(long, value_name = "THETA", value_parser = theta)]
    zipf: Vec<f64>,
    /// Percent of the accesses with locality that read
    #[arg(long, value_name = "PERCENT", default_value = "0", value_parser = values::percent(0..=99))]
    reads: u32,
    /// Data of the inputs that are not traces
    #[arg(long, value_name = "SIZE", default_value = "512MiB", value_parser = data)]
    data: Pages,
    /// Placement schemes, with parameters if you like [default: all that a disk can have]
    #[arg(long, value_name = "SCHEMES")]
    scheme: Vec<String>,
    /// How the segment to clean is chosen: greedy, cost-benefit
    #[arg(long, value_name = "HOW", default_value = "cost-benefit", value_delimiter = ',')]
    victim: Vec<Victim>,
    /// Share of the log that the data fill, in percent
    #[arg(long, value_name = "PERCENT", default_value = "80", value_delimiter = ',', value_parser = values::percent(1..=99))]
    used: Vec<u32>,
    /// Size of a segment, a power of two [default: 1MiB, or less, so that the data fill 2048]
    #[arg(long, value_name = "SIZE", value_parser = segment)]
    segment: Option<NonZeroU32>,
    /// The seed of everything random
    #[arg(long, value_name = "N", default_value = "1", value_parser = values::seed)]
    seed: u64,
    /// Runs at a time [default: one a processor]. Figures do not depend on it
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: Option<u32>,
    #[command(flatten)]
    read: ReadArgs,
    /// Print JSON: one object a run
    #[arg(long, conflicts_with = "csv")]
    json: bool,
    /// Print CSV: one line a run
    #[arg(long)]
    csv: bool,
}

/// X % of the accesses go to Y % of the data.
#[derive(Debug, Clone, Copy)]
struct Locality {
    accesses: Percent,
    data: Percent,
}

impl FromStr for Locality {
    type Err = String;

    fn from_str(text: &str) -> Result<Locality, String> {
        let percent = |text: &str| text.parse().ok().filter(|share| (1..=99).contains(share)).map(Percent);
        text.split_once('/')
            .and_then(|(accesses, data)| Some(Locality { accesses: percent(accesses)?, data: percent(data)? }))
            .ok_or_else(|| "give two shares in percent, such as 90/10, each from 1 to 99".to_owned())
    }
}

fn theta(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|theta| (0.0..=4.0).contains(theta));
    number.ok_or_else(|| "give a number from 0 (all alike) to 4, such as 0.99".to_owned())
}

fn data(text: &str) -> Result<Pages, String> {
    let size: ByteSize = text.parse().map_err(|error: umbrella_units::ParseSizeError| error.to_string())?;
    if size > MOST_DATA {
        return Err(format!("at most {MOST_DATA}"));
    }
    Ok(Pages(size.0.div_ceil(PAGE_BYTES)))
}

fn segment(text: &str) -> Result<NonZeroU32, String> {
    let size: ByteSize = text.parse().map_err(|error: umbrella_units::ParseSizeError| error.to_string())?;
    if !size.0.is_power_of_two() || !(SMALLEST_SEGMENT..=LARGEST_SEGMENT).contains(&size) {
        return Err(format!("give a power of two from {SMALLEST_SEGMENT} to {LARGEST_SEGMENT}"));
    }
    NonZeroU32::new((size.0 / PAGE_BYTES) as u32).ok_or_else(|| "no size".to_owned())
}

impl LogArgs {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let setups = self.setups()?;
        let later = Bars::catch_interrupts()?;
        let cells = fitting(&self.inputs()?, &setups)?;
        let bars = later.begin(&cells);
        let outcomes = experiment::run(&cells, values::threads(self.threads), &bars)?.unless_failed()?;
        let outcomes: Vec<LogOutcome> = outcomes.into_iter().flatten().collect();
        let stopped = bars.finish();
        if self.json {
            output::json_list(&outcomes)?;
        } else if self.csv {
            output::print(&csv(outcomes.iter())?)?;
        } else if !outcomes.is_empty() {
            output::line(&plain(&table(&outcomes)))?;
        }
        if let Some(code) = stopped {
            report!("interrupted: {} of {} runs are shown", outcomes.len(), cells.len());
            return Ok(code);
        }
        Ok(ExitCode::SUCCESS)
    }

    fn setups(&self) -> anyhow::Result<Vec<LogSetup>> {
        let mut schemes: Vec<String> = self.scheme.iter().flat_map(|list| split_policies(list)).collect();
        if schemes.is_empty() && !self.scheme.is_empty() {
            bail!("--scheme names no scheme (umbrella disk schemes; without --scheme all are run)");
        }
        if schemes.is_empty() {
            schemes.extend(schemes_for_disks().map(|info| info.name.to_owned()));
        }
        let mut setups = Vec::new();
        for scheme in &schemes {
            for victim in &self.victim {
                let of = |used: &u32| LogSetup {
                    scheme: scheme.clone(),
                    victim: *victim,
                    utilisation: Percent(*used),
                    segment_blocks: self.segment,
                };
                setups.extend(self.used.iter().map(of));
            }
        }
        Ok(setups)
    }

    fn inputs(&self) -> anyhow::Result<Vec<Arc<LogInput>>> {
        let (seed, requests) = (Seed(self.seed), self.data.0 * WRITES_A_BLOCK);
        let mut inputs = Vec::new();
        for Locality { accesses, data } in &self.locality {
            // As many writes, however much is read.
            let requests = requests * 100 / (100 - u64::from(self.reads));
            if requests > MOST_REQUESTS {
                bail!(
                    "{requests} requests are too many to hold in memory (at most {MOST_REQUESTS}): give less --data \
                    or fewer --reads"
                );
            }
            inputs.push(LogInput::hot_cold((*accesses, *data), self.data, requests, Percent(self.reads), seed)?);
        }
        for theta in &self.zipf {
            inputs.push(LogInput::zipf(*theta, self.data, requests, seed)?);
        }
        for path in &self.traces {
            let of_trace = self.of_trace(path)?;
            if let Some(input) = of_trace.first() {
                warn_of_skipped(path, &input.skipped);
            }
            inputs.extend(of_trace);
        }
        if inputs.is_empty() {
            bail!("no input: give --trace FILE, --locality 90/10 or --zipf 0.99 (umbrella lab log --help)");
        }
        Ok(inputs.into_iter().map(Arc::new).collect())
    }

    fn of_trace(&self, path: &Path) -> anyhow::Result<Vec<LogInput>> {
        let open = self.read.options();
        if !self.disks {
            return Ok(vec![LogInput::trace(path, &open)?]);
        }
        let disks = LogInput::disks(path, &open)?;
        if disks.is_empty() {
            bail!("{}: none of its disks has writes and at least 16 MiB, which a log needs", path.display());
        }
        Ok(disks)
    }
}

/// Each input in each store that can keep it going; the others are reported. Fails when there is none.
fn fitting(inputs: &[Arc<LogInput>], setups: &[LogSetup]) -> anyhow::Result<Vec<Cell<LogSetup>>> {
    let mut cells = Vec::new();
    for input in inputs {
        for setup in setups {
            if setup.fits(input).with_context(|| format!("--scheme {}", setup.scheme))? {
                cells.push(Cell { input: Arc::clone(input), machine: setup.clone() });
                continue;
            }
            let reason = if input.is_too_full(setup.utilisation) {
                "the blocks that the trace touches already fill more of it"
            } else {
                "it is too small for its streams"
            };
            report!("umbrella: left out: {} in {setup}: {reason}", input.name);
        }
    }
    if cells.is_empty() {
        bail!("no log is left: try a smaller --segment, another --used, or more --data");
    }
    Ok(cells)
}

fn table(outcomes: &[LogOutcome]) -> Table {
    let head = [
        "input",
        "scheme",
        "victim",
        "used",
        "segment",
        "blocks written",
        "copied",
        "write amplification",
        "distance",
        "with the cleaner",
    ];
    let mean = |travel: SeekTotals| format!("{:.1}", travel.distance.0 as f64 / travel.requests.max(1) as f64);
    let row = |outcome: &LogOutcome| {
        vec![
            outcome.input.clone(),
            outcome.scheme.clone(),
            outcome.victim.clone(),
            format!("{} %", outcome.utilisation),
            ByteSize(u64::from(outcome.segment_blocks) * PAGE_BYTES).to_string(),
            outcome.written.0.to_string(),
            outcome.copied.0.to_string(),
            format!("{:.3}", outcome.write_amplification),
            mean(outcome.foreground),
            mean(outcome.all),
        ]
    };
    Table { title: String::new(), head: head.map(str::to_owned).to_vec(), rows: outcomes.iter().map(row).collect() }
}
