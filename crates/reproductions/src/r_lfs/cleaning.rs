//! Figures 3 and 4: blocks that the cleaner copies.

use std::sync::Arc;

use umbrella_lab::log_store::{LogInput, LogOutcome};
use umbrella_lab::result::Table;
use umbrella_policy::log_layout::Victim;

use super::runs::{
    POLICIES, VICTIMS, cells as all_of, judged, least, most, of_policies, papers, reductions, regions, short,
    utilisations_of,
};
use super::{LogCells, LogRuns};
use crate::{Effort, Measured};

pub(super) const ASSUMED: &str = "Of the paper's traces one week is public, of hplajw. Its claims are tested on our traces and on locality x/y \
     (section 5.1). Each disk of a trace is a log as large as the disk, its highest address; the disk is filled \
     with blocks that are never touched. Where what is touched is more than the utilisation allows, the disk is \
     too full and is not run. Disks of more than 1 GiB are made smaller. \
     First the data are written once, in the order of their addresses; this does not count. Then the run \
     writes four times what the log holds. A segment has at least 8 blocks and at most 1 MiB. New data start \
     in the outermost region. A region without free segments borrows one. Where a plain log copies nothing, no \
     claim is judged.";

/// Of the inputs with one locality, the one that reads as well: reads make no copies.
pub(super) fn cells(inputs: &[Arc<LogInput>], effort: Effort) -> LogCells {
    let asked = inputs.iter().enumerate().filter(|(number, _)| *number != 2).map(|(_, input)| input);
    all_of(asked, &papers(effort))
}

fn copied(outcome: &LogOutcome) -> u64 {
    outcome.copied.0
}

/// By how many percent copies grow from one utilisation to the next, with any of the policies; nothing where nothing is
/// copied yet.
fn growth(runs: &LogRuns<'_>, input: &LogInput) -> Vec<f64> {
    let of = |(_, count, victim): (&str, u32, Victim)| {
        let at = |share: &u32| runs.of(input, &regions(count, victim, *share)).map(copied);
        let all: Vec<u64> = utilisations_of(runs, input).iter().filter_map(at).collect();
        let grown = |pair: &[u64]| match *pair {
            [less, more] if less > 0 => Some((more as f64 / less as f64 - 1.0) * 100.0),
            _ => None,
        };
        all.windows(2).filter_map(grown).collect::<Vec<_>>()
    };
    POLICIES.into_iter().flat_map(of).collect()
}

/// Nothing is measured where a plain log copies nothing.
pub(super) fn measure(runs: &LogRuns<'_>) -> Vec<Measured> {
    let mut measured = Vec::new();
    for together in judged(runs) {
        let mut add = |name: String, value| measured.push(together.measured(name, value));
        for (name, victim) in VICTIMS {
            let [two, three] =
                [2, 3].map(|count| together.all(|input| reductions(runs, input, (count, victim), copied)));
            add(format!("{name}.up-to"), most(&three));
            add(format!("{name}.least"), least(&[two, three].concat()));
        }
        add("growth".to_owned(), least(&together.all(|input| growth(runs, input))));
    }
    measured
}

pub(super) fn show(runs: &LogRuns<'_>) -> Vec<Table> {
    of_policies(runs, "blocks copied", |outcome| short(copied(outcome) as f64))
}
