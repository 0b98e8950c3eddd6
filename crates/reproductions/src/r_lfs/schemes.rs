//! Not in the paper: every placement scheme beside R-LFS, and a log that knows the future.

use std::sync::Arc;

use umbrella_lab::log_store::{LogInput, LogOutcome};
use umbrella_lab::result::Table;
use umbrella_policy::log_layout::{Victim, schemes};

use super::runs::{by_utilisation, cells as all_of, has_reads, packed, setup, short, utilisations};
use super::{LogCells, LogRuns};
use crate::Effort;

pub(super) const ASSUMED: &str = "Write amplification is the number of blocks that user and cleaner write for each block of the user. \
     Distance is the number of blocks between two requests: of the trace's requests / of all. \"log\" is r_lfs \
     with one region, which separates nothing. \"oracle\" knows when each block dies. With \"inside 100\", a \
     region that is short of segments cleans any of its segments with a dead block, as the paper's text reads.";

pub(super) const SWEEP_ASSUMED: &str =
    "The victim policy is cost-benefit. \"-\" means that the log is too small for so many streams.";

const SHARE: u32 = 80;

const VICTIMS: [Victim; 2] = [Victim::Greedy, Victim::CostBenefit];

/// Names of the rows, and the schemes.
fn all_schemes() -> Vec<(String, String)> {
    let row = |name: &str, scheme: &str| (name.to_owned(), scheme.to_owned());
    let mut all = vec![row("log", "r_lfs:regions=1")];
    all.extend(schemes().iter().map(|info| row(info.name, info.name)));
    all.push(row("r_lfs, inside 100", "r_lfs:inside=100"));
    all.push(row("organ, centre 40", "organ:centre=40"));
    all
}

pub(super) fn cells(inputs: &[Arc<LogInput>], _: Effort) -> LogCells {
    let of = |(_, scheme): &(String, String)| VICTIMS.map(|victim| setup(scheme, victim, SHARE));
    all_of(packed(inputs), &all_schemes().iter().flat_map(of).collect::<Vec<_>>())
}

fn mean(outcome: &LogOutcome) -> [f64; 2] {
    [outcome.foreground, outcome.all].map(|travel| travel.distance.0 as f64 / travel.requests.max(1) as f64)
}

pub(super) fn show(runs: &LogRuns<'_>) -> Vec<Table> {
    let head = ["scheme", "greedy", "cost-benefit", "distance, greedy", "distance, cost-benefit"];
    let table = |input: &LogInput| {
        let row = |(name, scheme): &(String, String)| {
            let outcomes = VICTIMS.map(|victim| runs.of(input, &setup(scheme, victim, SHARE)));
            let cell =
                |text: fn(&LogOutcome) -> String| outcomes.map(|outcome| outcome.map_or_else(|| "-".to_owned(), text));
            let mut row = vec![name.clone()];
            row.extend(cell(|outcome| format!("{:.3}", outcome.write_amplification)));
            row.extend(cell(|outcome| mean(outcome).map(short).join(" / ")));
            row
        };
        let rows = all_schemes().iter().map(row).collect();
        Table { title: input.name.clone(), head: head.map(str::to_owned).to_vec(), rows }
    };
    runs.inputs().map(table).collect()
}

/// One of the two inputs that differ in locality only, and those that only write.
fn swept(inputs: &[Arc<LogInput>]) -> impl Iterator<Item = &Arc<LogInput>> {
    inputs.iter().take(4).enumerate().filter(|(number, _)| *number != 1).map(|(_, input)| input)
}

pub(super) fn sweep_cells(inputs: &[Arc<LogInput>], effort: Effort) -> LogCells {
    let of = |(_, scheme): &(String, String)| {
        let shares = utilisations(effort).iter();
        shares.map(|share| setup(scheme, Victim::CostBenefit, *share)).collect::<Vec<_>>()
    };
    all_of(swept(inputs), &all_schemes().iter().flat_map(of).collect::<Vec<_>>())
}

fn sweep(runs: &LogRuns<'_>, input: &LogInput, what: &str, text: fn(&LogOutcome) -> String) -> Table {
    let schemes = all_schemes();
    let logs =
        schemes.iter().map(|(name, scheme)| (name.clone(), move |share| setup(scheme, Victim::CostBenefit, share)));
    by_utilisation(runs, input, what, "scheme", logs, text)
}

pub(super) fn show_sweep(runs: &LogRuns<'_>) -> Vec<Table> {
    let mut tables = Vec::new();
    for input in runs.inputs() {
        if has_reads(runs, input) {
            let distance = |outcome: &LogOutcome| short(mean(outcome)[0]);
            tables.push(sweep(runs, input, "blocks between two requests of the trace", distance));
        } else {
            let amplification = |outcome: &LogOutcome| format!("{:.3}", outcome.write_amplification);
            tables.push(sweep(runs, input, "write amplification", amplification));
        }
    }
    tables
}
