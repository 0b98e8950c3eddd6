//! `umbrella lab compare` and `umbrella lab run`: policies on the same input, on a modelled machine.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{anyhow, bail};
use clap::Args;
use umbrella_lab::experiment::{self, LabError, Results};
use umbrella_lab::result::{Group, METRICS, Metric, Outcome, PhaseTime, groups};
use umbrella_lab::write_back::{MachineSpec, split_policies};
use umbrella_policy::writeback;

use super::setup::{Extent, Figures, InputArgs, MachineArgs, OutputArgs, ReplayArgs, SampleArgs, Seeds};
use super::{table, watch::Bars};
use crate::text::visible;

/// Run write-back policies on the same input, and compare them.
///
/// Each policy gets a modelled machine of its own with the same memory and disk; runs go in parallel. A workload runs
/// with three seeds; policies that differ by less than their seeds count as equal. No real disk is touched. Ctrl-C ends
/// the comparison and keeps the finished runs.
#[derive(Debug, Args)]
#[command(after_help = "\
EXAMPLES:
  umbrella lab compare --policy file,zone_segment,cscan --workload rnd-write --scale 0.1
  umbrella lab compare --trace day.csv.gz --disk modern --memory 1GiB --html day.html
  umbrella lab compare --policy zone_segment --sweep zone=2MiB,4MiB,8MiB --workload postmark --csv")]
pub(crate) struct CompareArgs {
    /// Policies, with parameters if you like: file,zone_segment:alpha=20 [default: all that do not need to know the
    /// future].
    #[arg(long, value_name = "POLICIES")]
    policy: Vec<String>,
    #[command(flatten)]
    experiment: ExperimentArgs,
}

/// Run one write-back policy, and show every figure of the run.
#[derive(Debug, Args)]
#[command(after_help = "\
EXAMPLES:
  umbrella lab run --policy zone_segment --workload fileserver --scale 0.1
  umbrella lab run --policy sweep --trace day.csv.gz --speed max --json
  umbrella lab run --events disk1.events --policy cscan")]
pub(crate) struct SingleArgs {
    /// The policy, with parameters if you like: zone_segment:alpha=20 [default: file; of a record: the one that
    /// decided].
    #[arg(long, value_name = "POLICY")]
    policy: Option<String>,
    /// A record of a live run (umbrella write-back record): decided again, without a machine.
    ///
    /// With the policy that decided then, every decision must be the same, and the first different one is an error.
    /// With another policy, both are shown.
    #[arg(long, value_name = "FILE", group = "InputArgs", conflicts_with_all = ["disk", "memory", "scheduler", "scale", "seed", "sweep", "speed", "html", "csv", "metric", "format", "lenient", "strict"])]
    events: Option<PathBuf>,
    #[command(flatten)]
    experiment: ExperimentArgs,
}

/// The input, the machine, and how results are shown.
#[derive(Debug, Args)]
struct ExperimentArgs {
    #[command(flatten)]
    input: InputArgs,
    #[command(flatten)]
    machine: MachineArgs,
    #[command(flatten)]
    replay: ReplayArgs,
    #[command(flatten)]
    run: SampleArgs,
    #[command(flatten)]
    output: OutputArgs,
}

impl CompareArgs {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let mut policies: Vec<String> = self.policy.iter().flat_map(|list| split_policies(list)).collect();
        if policies.is_empty() && !self.policy.is_empty() {
            bail!("--policy names no policy (umbrella lab list policies; without --policy all are compared)");
        }
        if policies.is_empty() {
            policies.extend(writeback::policies().iter().filter(|info| !info.offline).map(|info| info.name.to_owned()));
        }
        self.experiment.run(&policies, Seeds::Several)
    }
}

impl SingleArgs {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        if let Some(events) = &self.events {
            return super::events::run(events, self.policy.as_deref(), self.experiment.output.json);
        }
        let policy = self.policy.as_deref().unwrap_or("file");
        let [policy] = split_policies(policy).try_into().map_err(|policies: Vec<String>| match policies.len() {
            0 => anyhow!("--policy names no policy (umbrella lab list policies)"),
            _ => anyhow!("lab run takes one policy (for several: umbrella lab compare --policy {policy})"),
        })?;
        self.experiment.run(&[policy], Seeds::One)
    }
}

impl ExperimentArgs {
    /// Shows what came of the runs, also when one failed.
    fn run(&self, policies: &[String], seeds: Seeds) -> anyhow::Result<ExitCode> {
        let figures = self.output.figures(&self.input)?;
        let extent = Extent { seeds, most: self.output.max_runs() };
        let cells = self.run.cells(policies, &self.input, &self.replay, &self.machine, extent)?;
        let bars = Bars::new(&cells)?;
        let (outcomes, failed) = finished(experiment::run(&cells, self.run.threads(), &bars)?)?;
        let stopped = bars.finish();
        self.output.print_outcomes(&outcomes, &cells, || match (outcomes.as_slice(), seeds) {
            ([one], Seeds::One) => one_run(one, &figures),
            (all, _) => table::comparison(all, &figures, table::TableStyle::of_output(self.output.is_wide())),
        })?;
        failed.map_or(Ok(()), Err)?;
        Ok(ended(stopped, outcomes.len(), cells.len()))
    }
}

/// The runs that did something, to be shown, and why one failed; only the error where there is nothing to show.
fn finished(results: Results<MachineSpec>) -> Result<(Vec<Outcome>, Option<LabError>), LabError> {
    let did_something = |outcome: &Outcome| !outcome.interrupted || outcome.operations > 0;
    let outcomes: Vec<Outcome> = results.outcomes.into_iter().flatten().filter(did_something).collect();
    match results.error {
        Some(error) if outcomes.is_empty() => Err(error),
        error => Ok((outcomes, error)),
    }
}

/// Says what a signal left out.
fn ended(stopped: Option<ExitCode>, shown: usize, of: usize) -> ExitCode {
    if stopped.is_some() {
        report!("interrupted: {shown} of {of} runs are shown; a run that was cut short says so");
    }
    stopped.unwrap_or(ExitCode::SUCCESS)
}

/// What each phase of a run took.
fn phases(outcome: &Outcome) -> String {
    let phase = |phase: &PhaseTime| {
        format!("  phase {:<14} {:>10.3} s  {} operations\n", visible(&phase.name), phase.time_s, phase.operations)
    };
    outcome.phases.iter().map(phase).collect()
}

/// One run, a line a figure: those that were asked for, or all, and what each phase took.
fn one_run(outcome: &Outcome, figures: &Figures) -> String {
    let mut text = String::new();
    let groups = groups(std::slice::from_ref(outcome));
    for group in &groups {
        let cut = if outcome.interrupted { ", cut short" } else { "" };
        let _ = writeln!(text, "{}: {}{cut}", outcome.setting.policy, visible(&table::common_settings(group)));
    }
    let all: Vec<&Metric> = METRICS.iter().collect();
    for metric in if figures.chosen { &figures.metrics } else { &all } {
        let _ = writeln!(text, "  {:<20} {:>12}  {}", metric.name, metric.show((metric.of)(outcome)), metric.help);
    }
    if !figures.chosen {
        text += &phases(outcome);
    }
    text.extend(groups.iter().filter_map(Group::low_influence_note).map(|sentence| sentence + "\n"));
    text
}
