//! Figures 5 and 6: how far the heads travel.

use std::sync::Arc;

use umbrella_lab::log_store::{LogInput, LogOutcome};
use umbrella_lab::result::Table;

use super::runs::{VICTIMS, cells as all_of, has_reads, judged, least, most, of_policies, papers, reductions, short};
use super::{LogCells, LogRuns};
use crate::{Effort, Measured};

pub(super) const ASSUMED: &str = "As in figure 3. Claims are judged by the trace's own requests (\"serving all the requests in the \
     trace\"); the table has the cleaner's as well. Inputs with fewer than one read for a hundred blocks \
     written are left out, because a log that only writes does not seek.";

pub(super) fn cells(inputs: &[Arc<LogInput>], effort: Effort) -> LogCells {
    all_of(inputs.iter(), &papers(effort))
}

fn distance(outcome: &LogOutcome) -> u64 {
    outcome.foreground.distance.0
}

pub(super) fn measure(runs: &LogRuns<'_>) -> Vec<Measured> {
    let mut measured = Vec::new();
    for mut together in judged(runs) {
        together.inputs.retain(|input| has_reads(runs, input));
        if together.inputs.is_empty() {
            continue;
        }
        for (name, victim) in VICTIMS {
            let of = |count| together.all(|input| reductions(runs, input, (count, victim), distance));
            let all = [2, 3].map(of).concat();
            for (what, value) in [("least", least(&all)), ("up-to", most(&all))] {
                measured.push(together.measured(format!("{name}.{what}"), value));
            }
        }
    }
    measured
}

pub(super) fn show(runs: &LogRuns<'_>) -> Vec<Table> {
    of_policies(runs, "seek distance in blocks, of the trace's requests / of all", |outcome| {
        [outcome.foreground, outcome.all].map(|travel| short(travel.distance.0 as f64)).join(" / ")
    })
}
