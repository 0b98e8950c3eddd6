//! Figures 5 and 6: how far the heads travel.

use std::sync::Arc;

use umbrella_lab::log_store::{LogInput, LogOutcome};
use umbrella_lab::result::Table;
use umbrella_policy::log_layout::Victim;

use super::runs::{
    POLICIES, cells as all_of, has_reads, in_reading, least, most, papers, reductions, regions, short, utilisations_of,
};
use super::{Cells, Runs};
use crate::{Effort, Measured};

pub(super) const ASSUMED: &str = "As in figure 3. Claims are judged by the trace's own requests (\"serving all the requests in the \
     trace\"); the table has the cleaner's as well. Inputs with fewer than one read for a hundred blocks \
     written are left out, because a log that only writes does not seek.";

const EACH: [(&str, Victim); 2] = [("cost", Victim::CostBenefit), ("greedy", Victim::Greedy)];

pub(super) fn cells(inputs: &[Arc<LogInput>], effort: Effort) -> Cells {
    all_of(inputs.iter(), &papers(effort))
}

fn distance(outcome: &LogOutcome) -> u64 {
    outcome.foreground.distance.0
}

pub(super) fn measure(runs: &Runs<'_>) -> Vec<Measured> {
    let mut measured = Vec::new();
    for input in runs.inputs().filter(|input| has_reads(runs, input)) {
        for (name, victim) in EACH {
            let all = [2, 3].map(|count| reductions(runs, input, (count, victim), distance)).concat();
            for (what, value) in [("least", least(&all)), ("up-to", most(&all))] {
                measured.push(in_reading(Measured::new(format!("{name}.{what}"), value).on(&input.name), input));
            }
        }
    }
    measured
}

pub(super) fn show(runs: &Runs<'_>) -> Vec<Table> {
    let table = |input: &LogInput| {
        let shares = utilisations_of(runs, input);
        let mut head = vec!["policy".to_owned()];
        head.extend(shares.iter().map(|share| format!("{share} %")));
        let row = |(name, count, victim): (&str, u32, Victim)| {
            let cell = |share: &u32| {
                let outcome = runs.of(input, &regions(count, victim, *share));
                let both = |outcome: &LogOutcome| {
                    [outcome.foreground, outcome.all].map(|travel| short(travel.distance.0 as f64)).join(" / ")
                };
                outcome.map_or_else(|| "-".to_owned(), both)
            };
            std::iter::once(name.to_owned()).chain(shares.iter().map(cell)).collect()
        };
        let title = format!("{}: seek distance in blocks, of the trace's requests / of all", input.name);
        Table { title, head, rows: POLICIES.map(row).to_vec() }
    };
    runs.inputs().map(table).collect()
}
