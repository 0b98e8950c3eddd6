//! Figures 5 and 6: how far the heads travel.

use std::sync::Arc;

use umbrella_policy::log_layout::Victim;

use super::runs::{Cells, POLICIES, Runs, cells as all_of, has_reads, least, most, papers, reductions, regions, short};
use crate::log_store::{Input, LogOutcome};
use crate::paper::{Claim, Effort, Expect, Table};

pub(super) const ASSUMED: &str = "as figure 3; claims are judged by the requests of the trace alone (\"serving all the requests in the trace\"), the table has the cleaner's \
     as well; inputs with fewer than one read in a hundred blocks written are not asked: a log's writes alone need no seeks";

/// The sign counts, and "as much as" is met within so many points.
const AS_MUCH: Expect = Expect::Within { points: 10.0 };

pub(super) fn cells(inputs: &[Arc<Input>], effort: Effort) -> Cells {
    all_of(inputs.iter(), &papers(effort))
}

fn distance(outcome: &LogOutcome) -> u64 {
    outcome.foreground.distance.0
}

fn claims(
    runs: &Runs<'_>,
    figure: &str,
    published: [(f64, &str, Victim); 2],
    text: &str,
    pick: fn(&[f64]) -> f64,
) -> Vec<Claim> {
    let mut claims = Vec::new();
    for input in runs.inputs().filter(|input| has_reads(runs, input)) {
        for (published, name, victim) in published {
            let all = [2, 3].map(|count| reductions(runs, input, (count, victim), distance)).concat();
            let text = format!("{}: {name}-2 and -3 travel less than {name}-1, {text}", input.name);
            claims.push(Claim::new(figure, text, "%", published, pick(&all), AS_MUCH));
        }
    }
    claims
}

fn each(cost: f64, greedy: f64) -> [(f64, &'static str, Victim); 2] {
    [(cost, "Cost", Victim::CostBenefit), (greedy, "Greedy", Victim::Greedy)]
}

pub(super) fn judge_hplajw(runs: &Runs<'_>) -> Vec<Claim> {
    let mut all = claims(runs, "5", each(14.07, 13.22), "at least by", least);
    all.extend(claims(runs, "5", each(45.45, 35.92), "by up to", most));
    all
}

pub(super) fn judge_snake(runs: &Runs<'_>) -> Vec<Claim> {
    claims(runs, "6", each(24.8, 21.74), "by up to", most)
}

pub(super) fn show(runs: &Runs<'_>) -> Vec<Table> {
    let table = |input: &Input| {
        let shares = runs.utilisations(input);
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
