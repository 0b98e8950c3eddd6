//! Section 2.1: what wakes the disk, and what the flash serves meanwhile.

use std::sync::Arc;

use umbrella_lab::experiment::Cell;
use umbrella_lab::hybrid::{FlushFigures, HybridInput, HybridOutcome};
use umbrella_lab::result::Table;
use umbrella_policy::flash_cache::Algorithm;

use super::runs::{EACH_AND_FULL, alone, less, setup, share};
use super::{FlashCells, FlashRuns};
use crate::{Effort, Measured};

pub(super) const ASSUMED: &str = "Flushes use algorithm 1. Traces without reads are left out. A spin-up for the flush at the end of the \
     trace does not count.";

pub(super) fn cells(inputs: &[Arc<HybridInput>], _: Effort) -> FlashCells {
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

/// By how many percent a flush takes longer with the second.
fn longer(each: FlushFigures, full: FlushFigures) -> f64 {
    -less(mean_s(&each), mean_s(&full))
}

pub(super) fn measure(runs: &FlashRuns<'_>) -> Vec<Measured> {
    let mut measured = Vec::new();
    for input in runs.inputs().filter(|input| input.reads()) {
        let [each, full] = EACH_AND_FULL.map(|when| runs.of(input, &setup(when, Algorithm::Alg1)));
        let (Some(each), Some(full)) = (each, full) else { continue };
        let values = [
            ("each.reads", by_reads(each)),
            ("full.reads", by_reads(full)),
            ("writes", by_writes(full) - by_writes(each)),
            ("served", served(full) - served(each)),
            ("fewer", less(each.flushes.count as f64, full.flushes.count as f64)),
            ("longer", longer(each.flushes, full.flushes)),
        ];
        measured.extend(values.map(|(name, value)| Measured::new(name, value).on(&input.name)));
        let alone = longer(alone(each.flushes), alone(full.flushes));
        measured.push(Measured::new("longer", alone).in_reading("alone").on(&input.name));
    }
    measured
}

pub(super) fn show(runs: &FlashRuns<'_>) -> Vec<Table> {
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
