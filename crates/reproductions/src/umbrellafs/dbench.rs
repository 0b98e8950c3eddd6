//! dbench with 100 clients for 300 s (figures 27 and 28).

use umbrella_lab::experiment::LabError;
use umbrella_lab::result::Outcome;
use umbrella_lab::write_back::WriteBackCell;

use super::runs::{self, DRIVES, MAGNETIC, MLC, Runs, SCHEMES, SLC};
use super::{Claim, Effort, Expect, SIZE, VISIBLE};

pub(super) const ASSUMED: &str = "This is dbench 4, whose flushes wait for the disk. A quick run uses a synthetic load of the same mix, \
     because the load file is not on every machine.";

/// Share of the clients and of the time in a quick run.
const QUICK: f64 = 0.1;

fn workload(effort: Effort) -> &'static str {
    match effort {
        Effort::Full => "dbench",
        Effort::Quick => "dbench:load=stand-in",
    }
}

pub(super) fn cells(effort: Effort) -> Result<Vec<WriteBackCell>, LabError> {
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
            claim(format!("{policy} on the {on}: more than file"), "%", VISIBLE, more(policy), Expect::AtLeast);
        }
        let order = [("sorted", "two_queue_sorted"), ("two_queue_sorted", "two_queue")];
        for (better, worse) in order {
            let text = format!("{better} on the {on}: more than {worse}");
            claim(text, "points", VISIBLE, more(better) - more(worse), Expect::AtLeast);
        }
    }
    claims
}

pub(super) fn written_cells(effort: Effort) -> Result<Vec<WriteBackCell>, LabError> {
    Ok(runs::compared(effort, QUICK, &[SLC], workload(effort)))
}

/// About as much is written and read; as more is done, less is written for each operation.
pub(super) fn judge_written(outcomes: &[Outcome]) -> Vec<Claim> {
    let runs = Runs::new(outcomes, SLC, "dbench");
    let as_much = Expect::AboutZero { points: 10.0 };
    let of = |policy: &str| {
        let written = runs.change(policy, |outcome| outcome.at_finish.bytes_written as f64);
        let read = runs.change(policy, |outcome| outcome.at_finish.bytes_read as f64);
        let each = runs.change(policy, |outcome| outcome.at_finish.bytes_written as f64 / outcome.operations as f64);
        let claim = |text: &str, published, measured, expect| {
            Claim::new("28", format!("{policy}: {text}"), "%", published, measured, expect)
        };
        [
            claim("about as much written as under file", 0.0, written, as_much),
            claim("about as much read as under file", 0.0, read, as_much),
            claim("less written for each operation than under file", -VISIBLE, each, Expect::AtMost),
        ]
    };
    SCHEMES.iter().flat_map(|policy| of(policy)).collect()
}

/// Sorting "clusters the writes more effectively", "leading to more locality".
pub(super) fn judge_locality(outcomes: &[Outcome]) -> Vec<Claim> {
    let nearer = Runs::new(outcomes, SLC, "dbench").change("sorted", |outcome| outcome.at_finish.write_distance);
    let claim = "sorted: writes lie nearer to each other than under file";
    vec![Claim::new("30", claim, "%", -VISIBLE, nearer, Expect::AtMost)]
}
