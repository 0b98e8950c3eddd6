//! Section 2.1: what wakes the disk, and what the flash serves meanwhile.

use std::sync::Arc;

use umbrella_lab::experiment::Cell;
use umbrella_lab::hybrid::{FlushFigures, HybridInput, HybridOutcome};
use umbrella_lab::result::Table;
use umbrella_policy::flash_cache::Algorithm;

use super::runs::{EACH_AND_FULL, less, setup, share};
use super::{Cells, Runs};
use crate::{Claim, Effort, Expect};

pub(super) const ASSUMED: &str = "Flushes use algorithm 1. Traces without reads are left out. A spin-up for the flush at the end of the \
     trace does not count.";

/// What "more" takes, in points, and "longer" or "less often", in percent.
const SOME: f64 = 1.0;

pub(super) fn cells(inputs: &[Arc<HybridInput>], _: Effort) -> Cells {
    Ok(Cell::grid(inputs, &EACH_AND_FULL.map(|when| setup(when, Algorithm::Alg1))))
}

/// The share of the spin-ups that a read causes.
fn by_reads(outcome: &HybridOutcome) -> f64 {
    share(outcome.wakes.read as f64, outcome.wakes.asked() as f64)
}

/// The share of the spin-ups that a write causes.
fn by_writes(outcome: &HybridOutcome) -> f64 {
    share((outcome.wakes.full + outcome.wakes.mark) as f64, outcome.wakes.asked() as f64)
}

/// The share of the reads while the disk does not spin that need nothing of it.
fn served(outcome: &HybridOutcome) -> f64 {
    share(outcome.reads_from_flash as f64, outcome.reads_asleep as f64)
}

/// How long a flush takes, in the mean.
fn mean_s(flushes: &FlushFigures) -> f64 {
    if flushes.count > 0 { flushes.time_s / flushes.count as f64 } else { 0.0 }
}

pub(super) fn judge(runs: &Runs<'_>) -> Vec<Claim> {
    let mut claims = Vec::new();
    for input in runs.inputs().filter(|input| input.reads()) {
        let [each, full] = EACH_AND_FULL.map(|when| runs.of(input, &setup(when, Algorithm::Alg1)));
        let (Some(each), Some(full)) = (each, full) else { continue };
        let mut claim = |text: &str, unit, published, measured, expect| {
            claims.push(Claim::new("2.1", format!("{}: {text}", input.name), unit, published, measured, expect));
        };
        claim("each: reads cause most spin-ups", "%", 50.0, by_reads(each), Expect::AtLeast);
        claim("full: reads still cause most spin-ups", "%", 50.0, by_reads(full), Expect::AtLeast);
        let writes = by_writes(full) - by_writes(each);
        claim("writes cause a larger share with full than with each", "points", SOME, writes, Expect::AtLeast);
        let reads = served(full) - served(each);
        claim("flash serves a larger share of the reads with full", "points", SOME, reads, Expect::AtLeast);
        let [each, full] = [each, full].map(|outcome| &outcome.flushes);
        let fewer = less(each.count as f64, full.count as f64);
        claim("full flushes less often than each, by", "%", SOME, fewer, Expect::AtLeast);
        claim("a flush takes longer with full, by", "%", SOME, -less(mean_s(each), mean_s(full)), Expect::AtLeast);
    }
    claims
}

pub(super) fn show(runs: &Runs<'_>) -> Vec<Table> {
    let head = ["trace", "when", "woken", "by a read", "by a full log", "reads asleep", "served by flash"];
    let row = |outcome: &HybridOutcome| {
        let wakes = outcome.wakes;
        let counts = [wakes.asked(), wakes.read, wakes.full, outcome.reads_asleep, outcome.reads_from_flash];
        let mut row = vec![outcome.input.clone(), outcome.when.clone()];
        row.extend(counts.map(|count| count.to_string()));
        row
    };
    vec![Table {
        title: String::new(),
        head: head.map(str::to_owned).to_vec(),
        rows: runs.outcomes().map(row).collect(),
    }]
}
