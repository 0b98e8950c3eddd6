//! `umbrella advise`: what to set for recorded requests, simulated.
//!
//! Steps: read the traces, run what [`umbrella_lab::advice`] plans on all processors, print what it judges. All or nothing: a run that is missing could have been the best.

mod configuration;
mod text;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Args;
use serde::Serialize;
use umbrella_lab::advice::sleep::{self, SleepAdvice};
use umbrella_lab::advice::write_back::{self, WriteBackAdvice};
use umbrella_lab::advice::{Recording, SEEDS};
use umbrella_lab::experiment::{self, Cell, Machine};
use umbrella_units::ByteSize;

use super::lab::hint::with_hint;
use super::lab::trace_input::{ReadArgs, open, warn_of_skipped};
use super::lab::values::{one_name, threads, whole};
use super::lab::watch::{Bars, Later};
use crate::output;
use crate::text::{count, visible_path};
use configuration::Fragment;

/// Say what to set for a disk: write-back policy, memory, flash and sleep.
///
/// Simulates the recorded requests on a modelled disk with each setting and three seeds. Prints the best setting, what it gains and costs against what you have today, and the lines
/// for the configuration; where the seeds differ as much, it says "no difference". Changes nothing.
#[derive(Debug, Args)]
#[command(after_help = "\
EXAMPLES:
  umbrella bench record /dev/sdb --seconds 1d -o day.csv.gz   # as root
  umbrella advise day.csv.gz
  umbrella advise --quick monday.csv.gz tuesday.csv.gz --memory 4GiB
  umbrella advise day.csv.gz --json | jq .write_back.best")]
pub(crate) struct AdviseArgs {
    /// Traces of one disk, plain or compressed (gzip, Zstandard); `-` is standard input. What they show together counts.
    #[arg(required = true, value_name = "TRACE")]
    traces: Vec<PathBuf>,
    /// The disk that is modelled (umbrella lab list disks).
    #[arg(long, value_name = "PROFILE", default_value = "modern", value_parser = one_name)]
    disk: String,
    /// Memory for file pages that the machine has today; a quarter and four times as much are tried too.
    #[arg(long, value_name = "SIZE", default_value = "512MiB", value_parser = memory)]
    memory: ByteSize,
    /// Simulate so many requests of all traces together, the first of each; more take longer.
    #[arg(long, value_name = "N", default_value_t = 500_000, value_parser = whole(1..=50_000_000))]
    requests: u32,
    /// The same as --requests 20000.
    #[arg(long, conflicts_with = "requests")]
    quick: bool,
    /// Runs at a time [default: one a processor].
    #[arg(long, value_name = "N", value_parser = whole(1..=1024))]
    threads: Option<u32>,
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
        Err(format!("a size from {} to {} is wanted", MEMORY.start(), MEMORY.end()))
    }
}

/// All that is said, as `--json` prints it.
#[derive(Debug, Serialize)]
struct Report {
    traces: Vec<Simulated>,
    disk: String,
    memory: ByteSize,
    seeds: [u64; 3],
    write_back: WriteBackAdvice,
    sleep: SleepAdvice,
    configuration: Vec<Fragment>,
}

/// What of a trace was simulated.
#[derive(Debug, Serialize)]
struct Simulated {
    trace: String,
    requests: u64,
    length_s: f64,
    /// Whether the trace goes on behind these requests.
    is_cut: bool,
}

impl AdviseArgs {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        self.advise().map_err(with_hint)
    }

    fn advise(&self) -> anyhow::Result<ExitCode> {
        let later = Bars::later()?;
        let recordings = self.recordings()?;
        let cells = write_back::plan(&recordings, &self.disk, self.memory)?;
        tell!("write-back: {}", count(cells.len() as u64, "run"));
        let outcomes = self.outcomes(&later, &cells)?;
        let write_back = write_back::judge(&outcomes, self.memory);
        let sleep = self.sleep(&later, &recordings)?;
        if let Some(code) = later.stopped() {
            tell!("interrupted: no advice, since not all was simulated (--quick takes less time)");
            return Ok(code);
        }
        let (Some(write_back), Some(sleep)) = (write_back, sleep) else { bail!("nothing was simulated") };
        let report = Report {
            traces: recordings.iter().map(Simulated::of).collect(),
            disk: self.disk.clone(),
            memory: self.memory,
            seeds: SEEDS,
            configuration: configuration::fragments(&write_back, &sleep),
            write_back,
            sleep,
        };
        if self.json {
            output::json(&report)?;
        } else {
            output::print(&text::report(&report))?;
        }
        Ok(ExitCode::SUCCESS)
    }

    fn recordings(&self) -> anyhow::Result<Vec<Recording>> {
        let most = if self.quick { QUICK } else { self.requests };
        let most = (most as usize / self.traces.len()).max(1);
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

    /// What the runs come to; of an interrupted experiment what there is.
    fn outcomes<M: Machine>(&self, later: &Later, cells: &[Cell<M>]) -> anyhow::Result<Vec<M::Outcome>> {
        let bars = later.begin(cells);
        let outcomes = experiment::run(cells, threads(self.threads), &bars)?.unless_failed()?;
        bars.finish();
        Ok(outcomes.into_iter().flatten().collect())
    }

    fn sleep(&self, later: &Later, recordings: &[Recording]) -> anyhow::Result<Option<SleepAdvice>> {
        if let Some(refusal) = sleep::refusal(recordings, &self.disk)? {
            return Ok(Some(refusal));
        }
        let (runs, cells): (Vec<_>, Vec<_>) = sleep::plan(recordings, &self.disk)?.into_iter().unzip();
        tell!("flash and sleep: {}", count(cells.len() as u64, "run"));
        let outcomes = self.outcomes(later, &cells)?;
        let runs: Vec<_> = runs.into_iter().zip(outcomes).collect();
        Ok(sleep::judge(&runs).map(|judged| SleepAdvice::Judged(Box::new(judged))))
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
