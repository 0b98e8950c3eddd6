//! `umbrella lab compare` and `umbrella lab run`: policies on the same input, on a modelled machine.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{anyhow, bail};
use clap::Args;
use umbrella_lab::experiment::{self, LabError, Results, split_policies};
use umbrella_lab::result::{METRICS, Metric, Outcome, html};
use umbrella_policy::writeback;

use super::setup::{InputArgs, MachineArgs, OutputArgs, ReplayArgs, RunArgs};
use super::{table, watch::Bars};
use crate::text::visible;

/// Run write-back policies on the same input, and compare them.
///
/// Each policy gets a machine of its own with the same memory and disk; runs go in parallel. Nothing touches a real disk. Ctrl-C
/// ends it and keeps what has finished.
#[derive(Debug, Args)]
#[command(after_help = "\
EXAMPLES:
  umbrella lab compare --policy file,zone_segment,cscan --workload rnd-write --scale 0.1
  umbrella lab compare --trace day.csv.gz --disk modern --memory 1GiB --html day.html
  umbrella lab compare --policy zone_segment --sweep zone=2MiB,4MiB,8MiB --workload postmark --csv")]
pub(crate) struct CompareArgs {
    /// Policies, with parameters if you like: file,zone_segment:alpha=20 [default: all that need no look into the future].
    #[arg(long, value_name = "POLICIES")]
    policy: Vec<String>,
    #[command(flatten)]
    input: InputArgs,
    #[command(flatten)]
    machine: MachineArgs,
    #[command(flatten)]
    replay: ReplayArgs,
    #[command(flatten)]
    run: RunArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// Run one write-back policy, and show every figure of the run.
#[derive(Debug, Args)]
#[command(after_help = "\
EXAMPLES:
  umbrella lab run --policy zone_segment --workload fileserver --scale 0.1
  umbrella lab run --policy sweep --trace day.csv.gz --speed max --json
  umbrella lab run --events disk1.events --policy cscan")]
pub(crate) struct SingleArgs {
    /// The policy, with parameters if you like: zone_segment:alpha=20 [default: file; of a record: the one that decided].
    #[arg(long, value_name = "POLICY")]
    policy: Option<String>,
    /// A record of a live run (umbrella write-back record): decided again, without a machine.
    ///
    /// By the policy that decided then, every decision has to be the same, and the first that is not is an error; by another policy, both are shown.
    #[arg(long, value_name = "FILE", group = "InputArgs", conflicts_with_all = ["disk", "memory", "scheduler", "scale", "seed", "sweep", "speed", "html", "csv", "metric", "format", "lenient", "strict"])]
    events: Option<PathBuf>,
    #[command(flatten)]
    input: InputArgs,
    #[command(flatten)]
    machine: MachineArgs,
    #[command(flatten)]
    replay: ReplayArgs,
    #[command(flatten)]
    run: RunArgs,
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
        let metrics = self.output.metrics(&self.input)?;
        let cells = self.run.cells(&policies, &self.input, &self.replay, &self.machine)?;
        let bars = Bars::new(&cells)?;
        let (outcomes, failed) = finished(experiment::run(&cells, self.run.threads(), &bars)?)?;
        let stopped = bars.finish();
        let title = cells.first().map_or_else(String::new, |cell| cell.input.name());
        self.output.give(
            &outcomes,
            || html::page(&title, &outcomes),
            || table::comparison(&outcomes, &metrics, table::width()),
        )?;
        failed.map_or(Ok(()), Err)?;
        Ok(ended(stopped, outcomes.len(), cells.len(), self.output.is_for_machines()))
    }
}

impl SingleArgs {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        if let Some(events) = &self.events {
            return super::events::run(events, self.policy.as_deref(), self.output.is_for_machines());
        }
        let metrics = self.output.metrics(&self.input)?;
        let policy = self.policy.as_deref().unwrap_or("file");
        let [policy] = split_policies(policy).try_into().map_err(|policies: Vec<String>| match policies.len() {
            0 => anyhow!("--policy names no policy (umbrella lab list policies)"),
            _ => anyhow!("lab run takes one policy (for several: umbrella lab compare --policy {policy})"),
        })?;
        let cells = self.run.cells(&[policy], &self.input, &self.replay, &self.machine)?;
        let bars = Bars::new(&cells)?;
        let (outcomes, failed) = finished(experiment::run(&cells, self.run.threads(), &bars)?)?;
        let stopped = bars.finish();
        let title = cells.first().map_or_else(String::new, |cell| cell.input.name());
        let text = || match outcomes.as_slice() {
            [one] if self.output.chooses() => figures(one, metrics.iter().copied()),
            [one] => every_figure(one),
            several => table::comparison(several, &metrics, table::width()),
        };
        self.output.give(&outcomes, || html::page(&title, &outcomes), text)?;
        failed.map_or(Ok(()), Err)?;
        Ok(ended(stopped, outcomes.len(), cells.len(), self.output.is_for_machines()))
    }
}

/// The runs that finished, to be shown, and why one failed; only the error where there is nothing to show.
fn finished(results: Results) -> Result<(Vec<Outcome>, Option<LabError>), LabError> {
    let outcomes: Vec<Outcome> = results.outcomes.into_iter().flatten().collect();
    match results.error {
        Some(error) if outcomes.is_empty() => Err(error),
        error => Ok((outcomes, error)),
    }
}

/// Says what a signal left out.
fn ended(stopped: Option<ExitCode>, finished: usize, of: usize, for_machines: bool) -> ExitCode {
    if stopped.is_some() && !for_machines {
        tell!("interrupted: {finished} of {of} runs are shown; a run that was cut short says so");
    }
    stopped.unwrap_or(ExitCode::SUCCESS)
}

/// One run: every figure, and its phases.
fn every_figure(outcome: &Outcome) -> String {
    let mut text = figures(outcome, METRICS);
    for phase in &outcome.phases {
        let _ = writeln!(text, "  phase {:<14} {:>10.3} s  {} operations", phase.name, phase.time_s, phase.operations);
    }
    text
}

/// One run, a line a figure.
fn figures<'a>(outcome: &Outcome, metrics: impl IntoIterator<Item = &'a Metric>) -> String {
    let of = &outcome.setting;
    let mut text = String::new();
    let _ = writeln!(
        text,
        "{} on {} ({}, {}, {} of memory, seed {}, scale {}){}",
        of.policy,
        visible(&of.input),
        of.disk,
        of.scheduler,
        of.memory,
        of.seed,
        of.scale,
        if outcome.interrupted { ", cut short" } else { "" }
    );
    for metric in metrics {
        let _ = writeln!(text, "  {:<20} {:>12}  {}", metric.name, metric.show((metric.of)(outcome)), metric.help);
    }
    text
}
