//! `umbrella lab paper`: the figures of a paper, run again.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{bail, ensure};
use clap::Args;
use comfy_table::{ContentArrangement, Table, presets};
use serde::Serialize;
use umbrella_lab::paper::{self, Claim, Effort, Figure, Judged, Verdict, nvcache, r_lfs};
use umbrella_lab::result::Outcome;

use super::paper_r_lfs_live::live_step;
use super::values;
use super::watch::Bars;
use crate::output;

/// Run the figures of a paper again, and hold its claims against what comes out.
///
/// For each claim: what was published, what is measured here, and whether it holds in sign and within a stated tolerance. Figures
/// are of modelled disks with parameters from datasheets and the paper's text; nothing is tuned to a figure.
#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is an option of its own")]
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
    /// Repeatable; run beside the synthetic inputs. Without it, those in the folder that UMBRELLA_TRACES names (for r-lfs not with --quick).
    #[arg(long = "trace", value_name = "FILE")]
    pub(super) traces: Vec<PathBuf>,
    /// The benchmark of r-lfs's prototype (figure 7): ext4 on a log store on an emulated disk, mounted. Needs root; some minutes.
    #[arg(long, conflicts_with_all = ["figure", "traces"])]
    live: bool,
    #[arg(long, hide = true, num_args = 2..)]
    live_step: Vec<String>,
    /// Shrink sizes so that all of it takes less than a minute.
    #[arg(long)]
    pub(super) quick: bool,
    /// Runs at a time [default: one a processor].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: Option<u32>,
    /// Print JSON: one object a claim.
    #[arg(long, conflicts_with = "csv")]
    pub(super) json: bool,
    /// Print the runs behind the claims as CSV, one line a run.
    #[arg(long)]
    pub(super) csv: bool,
}

/// A claim and the paper that makes it.
#[derive(Serialize)]
pub(super) struct Row<'a> {
    paper: &'a str,
    #[serde(flatten)]
    claim: &'a Claim,
    #[serde(skip_serializing_if = "str::is_empty")]
    assumed: &'a str,
    #[serde(flatten)]
    watts: Option<&'a Watts>,
}

/// Where the watts come from that energies were reckoned with: for each profile, what its watts are.
#[derive(Serialize)]
pub(super) struct Watts {
    pub(super) disk_watts: String,
    pub(super) flash_watts: String,
}

/// A figure with its claims.
pub(super) struct Shown<'a> {
    pub(super) figure: &'a str,
    pub(super) title: &'a str,
    pub(super) assumed: &'a str,
    /// If energies are part of it.
    pub(super) watts: Option<Watts>,
    pub(super) claims: &'a [Claim],
}

/// All claims, as the JSON has them.
pub(super) fn rows<'a>(paper: &'a str, shown: &'a [Shown<'a>]) -> Vec<Row<'a>> {
    let row = |shown: &'a Shown<'a>| {
        let (assumed, watts) = (shown.assumed, shown.watts.as_ref());
        shown.claims.iter().map(move |claim| Row { paper, claim, assumed, watts })
    };
    shown.iter().flat_map(row).collect()
}

impl PaperArgs {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        if self.name == nvcache::NAME {
            return self.run_nvcache();
        }
        if !self.live_step.is_empty() {
            return live_step(&self.live_step);
        }
        if self.live {
            ensure!(self.name == r_lfs::NAME, "only r-lfs has a live part: umbrella lab paper r-lfs --live");
            ensure!(!self.csv, "--live has no CSV: give --json");
            return self.run_r_lfs_live();
        }
        if self.name == r_lfs::NAME {
            return self.run_r_lfs();
        }
        let paper = paper::paper(&self.name)?;
        if !self.traces.is_empty() {
            bail!("{} replays no trace of yours: --trace is for nvcache and r-lfs", paper.name);
        }
        let figures = paper.choose(self.figure.as_deref())?;
        let bars = Bars::later()?;
        let judged = paper::run(&figures, self.effort(), self.threads(), |cells| Box::new(bars.begin(cells)))?;
        let stopped = bars.stopped();
        self.give(paper.name, &figures, &judged)?;
        if let Some(code) = stopped {
            tell!("interrupted: {} of {} figures are shown", judged.len(), figures.len());
            return Ok(code);
        }
        Ok(ExitCode::SUCCESS)
    }

    pub(super) fn effort(&self) -> Effort {
        if self.quick { Effort::Quick } else { Effort::Full }
    }

    pub(super) fn threads(&self) -> usize {
        values::threads(self.threads)
    }

    fn give(&self, paper: &str, figures: &[&Figure], judged: &[Judged]) -> anyhow::Result<()> {
        if self.csv {
            let outcomes: Vec<Outcome> = judged.iter().flat_map(|figure| figure.outcomes.clone()).collect();
            let mut csv = Vec::new();
            umbrella_lab::result::write_csv(&mut csv, &outcomes)?;
            return Ok(output::print(&String::from_utf8_lossy(&csv))?);
        }
        let of = |id: &str| figures.iter().find(|figure| figure.id == id);
        let shown: Vec<Shown> = judged
            .iter()
            .map(|judged| Shown {
                figure: judged.figure,
                title: of(judged.figure).map_or("", |figure| figure.title),
                assumed: of(judged.figure).map_or("", |figure| figure.assumed),
                watts: None,
                claims: &judged.claims,
            })
            .collect();
        if self.json {
            return Ok(output::json(&rows(paper, &shown))?);
        }
        for shown in &shown {
            output::line(&format!("{} {}: {}", paper, heading(shown.figure), shown.title))?;
            print_claims(shown)?;
            output::line("")?;
        }
        let sizes = format!(" (quick sizes; docs/papers-{paper}.md has both these and the paper's)");
        print_count(&shown, if self.quick { &sizes } else { "" })
    }
}

/// The table of a figure's claims, and what was assumed.
pub(super) fn print_claims(shown: &Shown) -> anyhow::Result<()> {
    if !shown.claims.is_empty() {
        output::line(&table(shown.claims))?;
    }
    if !shown.assumed.is_empty() {
        output::line(&format!("  assumed: {}", shown.assumed))?;
    }
    Ok(())
}

/// How many of all claims hold, and a note.
pub(super) fn print_count(shown: &[Shown], note: &str) -> anyhow::Result<()> {
    let claims = || shown.iter().flat_map(|shown| shown.claims);
    let (hold, all) = (claims().filter(|claim| claim.holds).count(), claims().count());
    if all == 0 {
        return Ok(output::line(&format!("no claim was judged{note}"))?);
    }
    let sign = claims().filter(|claim| claim.verdict == Verdict::SignOnly).count();
    Ok(output::line(&format!("{hold} of {all} claims hold, {sign} more in sign only{note}"))?)
}

/// `8` is a figure; `Table I` says itself what it is.
pub(super) fn heading(id: &str) -> String {
    if id.starts_with(|first: char| first.is_ascii_digit()) { format!("figure {id}") } else { id.to_owned() }
}

fn table(claims: &[Claim]) -> String {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic);
    table.set_header(["", "claim", "published", "measured", ""]);
    for claim in claims {
        let mark = match claim.verdict {
            Verdict::Holds => "holds",
            Verdict::SignOnly => "sign only",
            Verdict::Fails => "FAILS",
        };
        table.add_row([" ".to_owned(), claim.claim.clone(), claim.wanted(), claim.shown(), mark.to_owned()]);
    }
    table.trim_fmt()
}
