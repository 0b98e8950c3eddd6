//! Figures 3 and 4: blocks that the cleaner copies.

use std::sync::Arc;

use umbrella_policy::log_layout::Victim;

use super::runs::{Cells, POLICIES, Runs, cells as all_of, least, most, papers, reductions, regions, short};
use crate::log_store::{Input, LogOutcome};
use crate::paper::{Claim, Effort, Expect, Table};

pub(super) const ASSUMED: &str = "the paper's traces are not public: its claims are asked of ours and of locality x/y (section 5.1); the data are written once in \
     order of address before anything is counted, then four times what the log holds; at least 8 blocks and at most 1 MiB a segment; new data start in \
     the outermost region; a region without free segments borrows; where a plain log copies nothing, there is nothing to \
     lower, and no claim is asked";

/// "As much as" is met from so many points below on.
const AS_MUCH: Expect = Expect::Within { points: 10.0 };

pub(super) fn cells(inputs: &[Arc<Input>], effort: Effort) -> Cells {
    all_of(inputs.iter(), &papers(effort))
}

fn copied(outcome: &LogOutcome) -> u64 {
    outcome.copied.0
}

fn up_to(runs: &Runs<'_>, figure: &str, cost: f64, greedy: f64) -> Vec<Claim> {
    let mut claims = Vec::new();
    for input in runs.inputs() {
        for (published, name, victim) in [(cost, "Cost", Victim::CostBenefit), (greedy, "Greedy", Victim::Greedy)] {
            let all = reductions(runs, input, (3, victim), copied);
            if all.is_empty() {
                continue;
            }
            let text = format!("{}: {name}-3 copies less than {name}-1, by up to", input.name);
            claims.push(Claim::new(figure, text, "%", published, most(&all), AS_MUCH));
        }
    }
    claims
}

pub(super) fn judge_hplajw(runs: &Runs<'_>) -> Vec<Claim> {
    let mut claims = up_to(runs, "3", 90.48, 93.22);
    for input in runs.inputs() {
        for (name, victim) in [("Cost", Victim::CostBenefit), ("Greedy", Victim::Greedy)] {
            let all = [2, 3].map(|count| reductions(runs, input, (count, victim), copied)).concat();
            if all.is_empty() {
                continue;
            }
            let text = format!("{}: {name}-2 and -3 copy less than {name}-1, at least by", input.name);
            claims.push(Claim::new("3", text, "%", 1.0, least(&all), Expect::AtLeast));
        }
    }
    claims
}

pub(super) fn judge_snake(runs: &Runs<'_>) -> Vec<Claim> {
    up_to(runs, "4", 99.89, 99.9)
}

pub(super) fn show(runs: &Runs<'_>) -> Vec<Table> {
    let table = |input: &Input| {
        let shares = runs.utilisations(input);
        let mut head = vec!["policy".to_owned()];
        head.extend(shares.iter().map(|share| format!("{share} %")));
        let row = |(name, count, victim): (&str, u32, Victim)| {
            let of = |share: &u32| runs.of(input, &regions(count, victim, *share));
            let cell = |share| of(share).map_or_else(|| "-".to_owned(), |outcome| short(outcome.copied.0 as f64));
            std::iter::once(name.to_owned()).chain(shares.iter().map(cell)).collect()
        };
        Table { title: format!("{}: blocks copied", input.name), head, rows: POLICIES.map(row).to_vec() }
    };
    runs.inputs().map(table).collect()
}
