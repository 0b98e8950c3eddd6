//! dbench with 100 clients for 300 s (figures 27 and 28).

use super::runs::{self, DRIVES, MAGNETIC, MLC, Runs, SCHEMES, SLC};
use super::{Claim, Effort, Expect, SIZE};
use crate::experiment::{Cell, LabError};
use crate::result::Outcome;

pub(super) const ASSUMED: &str = "dbench 4, whose flushes wait for the disk; a quick run uses a made-up load of the same mix, because the \
                                  load file is not everywhere";

/// Share of the clients and of the time in a quick run.
const QUICK: f64 = 0.1;

fn workload(effort: Effort) -> &'static str {
    match effort {
        Effort::Full => "dbench",
        Effort::Quick => "dbench:load=stand-in",
    }
}

pub(super) fn cells(effort: Effort) -> Result<Vec<Cell>, LabError> {
    Ok(runs::compared(effort, QUICK, &DRIVES, workload(effort)))
}

pub(super) fn judge(outcomes: &[Outcome]) -> Vec<Claim> {
    let mut claims = Vec::new();
    for (disk, published) in [(MAGNETIC, 19.0), (MLC, 13.0), (SLC, 33.0)] {
        let runs = Runs::new(outcomes, disk, "dbench");
        let more = |policy| runs.change(policy, Outcome::throughput);
        let on = runs::name(disk);
        let mut claim = |text: String, unit, published, measured, expect| {
            claims.push(Claim::new("27", text, unit, published, measured, expect));
        };
        claim(format!("sorted on the {on}: throughput against file"), "%", published, more("sorted"), SIZE);
        for policy in ["two_queue", "two_queue_sorted"] {
            claim(format!("{policy} on the {on}: not less than file"), "%", 0.0, more(policy), Expect::AtLeast);
        }
        let order = [("sorted", "two_queue_sorted"), ("two_queue_sorted", "two_queue")];
        for (better, worse) in order {
            let text = format!("{better} on the {on}: not less than {worse}");
            claim(text, "points", 0.0, more(better) - more(worse), Expect::AtLeast);
        }
    }
    claims
}

pub(super) fn written_cells(effort: Effort) -> Result<Vec<Cell>, LabError> {
    Ok(runs::compared(effort, QUICK, &[SLC], workload(effort)))
}

pub(super) fn judge_written(outcomes: &[Outcome]) -> Vec<Claim> {
    let runs = Runs::new(outcomes, SLC, "dbench");
    let same = |policy: &str| {
        let measured = runs.change(policy, |outcome| outcome.bytes_written as f64);
        let claim = format!("{policy}: about as much written as under file");
        Claim::new("28", claim, "%", 0.0, measured, Expect::AboutZero { points: 10.0 })
    };
    SCHEMES.iter().map(|policy| same(policy)).collect()
}
