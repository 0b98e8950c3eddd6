//! `umbrella lab paper`: the figures of a paper, run again.

use std::process::ExitCode;

use clap::Args;
use comfy_table::{ContentArrangement, Table, presets};
use serde::Serialize;
use umbrella_lab::paper::{self, Claim, Effort, Figure, Judged, Verdict};
use umbrella_lab::result::Outcome;

use super::watch::Bars;
use crate::output;

/// Run the figures of a paper again, and hold its claims against what comes out.
///
/// For each claim: what was published, what is measured here, and whether it holds in sign and within a stated tolerance. Figures
/// are of modelled disks with parameters from datasheets and the paper's text; nothing is tuned to a figure.
#[derive(Debug, Args)]
#[command(after_help = "\
EXAMPLES:
  umbrella lab paper tesa --quick         # in under a minute, with shrunk sizes
  umbrella lab paper mram --figure 4.4    # one figure, at the paper's sizes
  umbrella lab paper umbrellafs --json    # figure, claim, published, measured, holds")]
pub(crate) struct PaperArgs {
    /// Which paper: tesa, umbrellafs or mram.
    name: String,
    /// Only this figure or table.
    #[arg(long, value_name = "N")]
    figure: Option<String>,
    /// Shrink sizes so that all of it takes less than a minute.
    #[arg(long)]
    quick: bool,
    /// Runs at a time [default: one a processor].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: Option<u32>,
    /// Print JSON: one object a claim.
    #[arg(long, conflicts_with = "csv")]
    json: bool,
    /// Print the runs behind the claims as CSV, one line a run.
    #[arg(long)]
    csv: bool,
}

/// A claim and the paper that makes it.
#[derive(Serialize)]
struct Row<'a> {
    paper: &'a str,
    #[serde(flatten)]
    claim: &'a Claim,
    #[serde(skip_serializing_if = "str::is_empty")]
    assumed: &'a str,
}

impl PaperArgs {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let paper = paper::paper(&self.name)?;
        let figures = paper.choose(self.figure.as_deref())?;
        let effort = if self.quick { Effort::Quick } else { Effort::Full };
        let processors = || std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let threads = self.threads.map_or_else(processors, |threads| threads as usize);
        let bars = Bars::later()?;
        let judged = paper::run(&figures, effort, threads, |cells| Box::new(bars.begin(cells)))?;
        let stopped = bars.stopped();
        self.give(paper.name, &figures, &judged)?;
        if stopped {
            eprintln!("interrupted: {} of {} figures are shown", judged.len(), figures.len());
            return Ok(ExitCode::from(130));
        }
        Ok(ExitCode::SUCCESS)
    }

    fn give(&self, paper: &str, figures: &[&Figure], judged: &[Judged]) -> anyhow::Result<()> {
        let assumed = |id: &str| figures.iter().find(|figure| figure.id == id).map_or("", |figure| figure.assumed);
        if self.csv {
            let outcomes: Vec<Outcome> = judged.iter().flat_map(|figure| figure.outcomes.clone()).collect();
            let mut csv = Vec::new();
            umbrella_lab::result::write_csv(&mut csv, &outcomes)?;
            return Ok(output::print(&String::from_utf8_lossy(&csv))?);
        }
        let claims = || judged.iter().flat_map(|figure| figure.claims.iter().map(move |claim| (figure.figure, claim)));
        if self.json {
            let rows: Vec<Row> =
                claims().map(|(figure, claim)| Row { paper, claim, assumed: assumed(figure) }).collect();
            return Ok(output::json(&rows)?);
        }
        for figure in judged {
            let title = figures.iter().find(|known| known.id == figure.figure).map_or("", |known| known.title);
            output::line(&format!("{} {}: {title}", paper, heading(figure.figure)))?;
            output::line(&table(&figure.claims))?;
            if !assumed(figure.figure).is_empty() {
                output::line(&format!("  assumed: {}", assumed(figure.figure)))?;
            }
            output::line("")?;
        }
        let (hold, all) = (claims().filter(|(_, claim)| claim.holds).count(), claims().count());
        let sign = claims().filter(|(_, claim)| claim.verdict == Verdict::SignOnly).count();
        let sizes = if self.quick {
            format!(" (quick sizes; docs/papers-{paper}.md has both these and the paper's)")
        } else {
            String::new()
        };
        output::line(&format!("{hold} of {all} claims hold, {sign} more in sign only{sizes}"))?;
        Ok(())
    }
}

/// `8` is a figure; `Table I` says itself what it is.
fn heading(id: &str) -> String {
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
        let value = |value: f64| format!("{value:.1} {}", claim.unit);
        table.add_row([
            " ".to_owned(),
            claim.claim.clone(),
            value(claim.published),
            value(claim.measured),
            mark.to_owned(),
        ]);
    }
    table.trim_fmt()
}
