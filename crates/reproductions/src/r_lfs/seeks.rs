//! Figures 5 and 6: how far the heads travel.

use std::sync::Arc;

use umbrella_lab::log_store::{LogInput, LogOutcome};
use umbrella_lab::result::Table;
use umbrella_policy::log_layout::Victim;

use super::runs::{
    POLICIES, cells as all_of, has_reads, least, most, papers, reductions, regions, short, utilisations_of,
};
use super::{Cells, Runs};
use crate::{Claim, Effort, Expect};

pub(super) const ASSUMED: &str = "As in figure 3. Claims are judged by the trace's own requests (\"serving all the requests in the \
     trace\"); the table has the cleaner's as well. Inputs with fewer than one read for a hundred blocks \
     written are left out, because a log that only writes does not seek.";

/// The least and the most of trace hplajw, the most of trace snake. An input stands for one as well as for the other, so it is asked once.
struct Published {
    name: &'static str,
    victim: Victim,
    least: f64,
    most: f64,
    most_of_snake: f64,
}

const EACH: [Published; 2] = [
    Published { name: "Cost", victim: Victim::CostBenefit, least: 14.07, most: 45.45, most_of_snake: 24.8 },
    Published { name: "Greedy", victim: Victim::Greedy, least: 13.22, most: 35.92, most_of_snake: 21.74 },
];

/// What may be missed by.
const POINTS: f64 = 10.0;

pub(super) fn cells(inputs: &[Arc<LogInput>], effort: Effort) -> Cells {
    all_of(inputs.iter(), &papers(effort))
}

fn distance(outcome: &LogOutcome) -> u64 {
    outcome.foreground.distance.0
}

pub(super) fn judge(runs: &Runs<'_>) -> Vec<Claim> {
    let mut claims = Vec::new();
    for input in runs.inputs().filter(|input| has_reads(runs, input)) {
        for Published { name, victim, least: low, most: high, most_of_snake } in EACH {
            let all = [2, 3].map(|count| reductions(runs, input, (count, victim), distance)).concat();
            let text = |how| format!("{}: {name}-2 and -3 travel less than {name}-1, {how}", input.name);
            let at_least = Expect::Between { to: high, points: POINTS };
            claims.push(Claim::new("5", text("at least by"), "%", low, least(&all), at_least));
            let up_to = Expect::Between { to: high, points: POINTS };
            claims.push(Claim::new("5, 6", text("by up to"), "%", most_of_snake, most(&all), up_to));
        }
    }
    claims
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
