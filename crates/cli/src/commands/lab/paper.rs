//! `umbrella lab paper`: the figures of a paper, run again.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::bail;
use clap::Args;
use serde::Serialize;
use umbrella_lab::experiment::{Machine, Observe};
use umbrella_lab::result::Outcome;
use umbrella_lab::write_back::MachineSpec;
use umbrella_reproductions::{self as reproductions, Effort, Judged, nvcache, r_lfs};

use super::rows::{csv, plain};
use super::values;
use super::watch::Bars;
use crate::commands::claims::{FigureClaims, WattSources, heading, print_claims, print_count, rows};
use crate::output;

/// Reproduce the figures of a paper, and compare its claims with the results.
///
/// For each claim of the frozen list, shows the published and the measured value, and whether the claim holds in sign
/// and within a stated tolerance. Where the text is ambiguous, the primary reading is judged and the others are shown.
/// The disks are modelled, with parameters from datasheets and the paper's text; nothing is tuned to a figure.
#[derive(Debug, Args)]
#[command(after_help = "\
EXAMPLES:
  umbrella lab paper tesa --quick               # in under a minute, with shrunk sizes
  umbrella lab paper mram --figure 4.4          # one figure, at the paper's sizes
  umbrella lab paper umbrellafs --json          # figure, claim, published, measured, holds
  umbrella lab paper nvcache --trace week.csv   # a week of yours on a hybrid disk
  umbrella lab paper r-lfs --trace day.csv      # a trace of yours in a log-structured store")]
pub(crate) struct PaperArgs {
    /// Which paper: tesa, umbrellafs, mram, nvcache or r-lfs.
    name: String,
    /// Only this figure or table.
    #[arg(long, value_name = "N")]
    pub(super) figure: Option<String>,
    /// A trace for nvcache or r-lfs (formats: umbrella lab trace info --help).
    ///
    /// Repeatable; run beside the synthetic inputs. Without it, those in the folder that UMBRELLA_TRACES names (for
    /// r-lfs not with --quick).
    #[arg(long = "trace", value_name = "FILE")]
    pub(super) traces: Vec<PathBuf>,
    /// Shrink sizes so that the whole run takes less than a minute.
    #[arg(long)]
    pub(super) quick: bool,
    /// Runs at a time [default: one a processor].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: Option<u32>,
    /// Print JSON: one object for each claim of the frozen list.
    #[arg(long, conflicts_with = "csv")]
    pub(super) json: bool,
    /// Print the runs behind the claims as CSV, one line a run.
    #[arg(long)]
    pub(super) csv: bool,
}

impl PaperArgs {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        if self.name == nvcache::NAME {
            return self.run_nvcache();
        }
        if self.name == r_lfs::NAME {
            return self.run_r_lfs();
        }
        let paper = reproductions::paper(&self.name)?;
        if !self.traces.is_empty() {
            bail!("{} cannot replay your traces: --trace is for nvcache and r-lfs", paper.name);
        }
        let figures = paper.choose(self.figure.as_deref())?;
        let bars = Bars::catch_interrupts()?;
        let observe = |cells: &[_]| -> Box<dyn Observe<_>> { Box::new(bars.begin(cells)) };
        let judged = reproductions::run(paper.name, &figures, self.effort(), self.threads(), observe)?;
        let stopped = bars.stopped();
        self.print_figures(paper.name, &judged)?;
        Ok(PaperArgs::ended(stopped, judged.len(), figures.len()))
    }

    pub(super) fn effort(&self) -> Effort {
        if self.quick { Effort::Quick } else { Effort::Full }
    }

    pub(super) fn threads(&self) -> usize {
        values::threads(self.threads)
    }

    fn print_figures(&self, paper: &str, judged: &[Judged<MachineSpec>]) -> anyhow::Result<()> {
        if self.csv {
            let outcomes: Vec<Outcome> = judged.iter().flat_map(|figure| figure.outcomes.clone()).collect();
            let mut csv = Vec::new();
            umbrella_lab::result::write_csv(&mut csv, &outcomes)?;
            return Ok(output::print(&String::from_utf8_lossy(&csv))?);
        }
        let shown = claims_of_figures(judged, None);
        if self.json {
            return Ok(output::json_list(&rows(paper, &shown))?);
        }
        for shown in &shown {
            output::line(&format!("{} {}: {}", paper, heading(shown.figure), shown.title))?;
            print_claims(shown)?;
            output::line("")?;
        }
        let sizes = format!(" (quick sizes; docs/reproductions/{paper}.md has both these and the paper's)");
        print_count(&shown, if self.quick { &sizes } else { "" })
    }

    /// The figures of a paper whose claims are asked of every input: its inputs, a line each, tables and claims.
    pub(super) fn print_figures_on_inputs<M: Machine<Outcome: Serialize>>(
        &self,
        paper: &str,
        judged: &[Judged<M>],
        watts: Option<WattsOf<M>>,
        inputs: impl IntoIterator<Item = String>,
        less: &str,
    ) -> anyhow::Result<()> {
        if self.csv {
            return Ok(output::print(&csv(judged.iter().flat_map(|figure| &figure.outcomes))?)?);
        }
        let shown = claims_of_figures(judged, watts);
        if self.json {
            return Ok(output::json_list(&rows(paper, &shown))?);
        }
        inputs.into_iter().try_for_each(|line| output::line(&line))?;
        for (shown, judged) in shown.iter().zip(judged) {
            output::line(&format!("\n{paper} {}: {}", heading(shown.figure), shown.title))?;
            for table in &judged.tables {
                if !table.title.is_empty() {
                    output::line(&format!("  {}", table.title))?;
                }
                output::line(&plain(table))?;
            }
            print_claims(shown)?;
        }
        print_count(&shown, less)
    }

    /// How the program ends, and what a signal left out.
    pub(super) fn ended(stopped: Option<ExitCode>, shown: usize, figures: usize) -> ExitCode {
        if stopped.is_some() {
            report!("interrupted: {shown} of {figures} figures are shown");
        }
        stopped.unwrap_or(ExitCode::SUCCESS)
    }
}

/// Where the watts behind some outcomes come from.
type WattsOf<M> = fn(&[<M as Machine>::Outcome]) -> WattSources;

/// The claims of the figures, and where the watts behind them come from.
fn claims_of_figures<M: Machine>(judged: &[Judged<M>], watts: Option<WattsOf<M>>) -> Vec<FigureClaims<'_>> {
    let shown = judged.iter().map(|judged| {
        let Judged { figure, title, assumed, claims, outcomes, .. } = judged;
        FigureClaims { figure, title, assumed, watts: watts.map(|of| of(outcomes)), claims }
    });
    shown.collect()
}
