//! What the paper has not: every choice of when to flush, how, and when to sleep; more and less flash and memory.

use std::sync::Arc;

use umbrella_lab::experiment::Cell;
use umbrella_lab::hybrid::{Cache, HybridInput, HybridOutcome, HybridSetup};
use umbrella_lab::result::Table;
use umbrella_policy::flash_cache::{Algorithm, FlushTrigger};
use umbrella_units::ByteSize;

use super::runs::{EACH_AND_FULL, setup};
use super::{FlashCells, FlashRuns};
use crate::Effort;

pub(super) const CHOICES_ASSUMED: &str = "\"never\" is a disk that never sleeps. Without flash, every write wakes the disk. \"optimum\" sees the \
     future. \"delayed\" requests take more than a second. \"waited\" requests wait for the motor.";

/// Policies that let the disk sleep.
fn sleepers(effort: Effort) -> &'static [&'static str] {
    match effort {
        Effort::Full => &["fixed:timeout=10m", "fixed:timeout=1m", "adaptive", "rent_to_buy", "optimum"],
        Effort::Quick => &["fixed:timeout=10m", "adaptive"],
    }
}

fn algorithms(effort: Effort) -> &'static [Algorithm] {
    match effort {
        Effort::Full => &Algorithm::ALL,
        Effort::Quick => &[Algorithm::Alg1, Algorithm::Alg4, Algorithm::Whole],
    }
}

pub(super) fn choices(inputs: &[Arc<HybridInput>], effort: Effort) -> FlashCells {
    let none = Cache::Finite(ByteSize(0));
    let mut setups = vec![HybridSetup { spin_down: "never".to_owned(), cache: none, ..HybridSetup::default() }];
    for spin_down in sleepers(effort) {
        let spin_down = || (*spin_down).to_owned();
        setups.push(HybridSetup { spin_down: spin_down(), cache: none, ..HybridSetup::default() });
        for when in FlushTrigger::ALL {
            let of = |&algorithm: &Algorithm| HybridSetup { spin_down: spin_down(), ..setup(when, algorithm) };
            setups.extend(algorithms(effort).iter().map(of));
        }
    }
    Ok(Cell::grid(inputs, &setups))
}

fn energy_and_time(outcome: &HybridOutcome) -> Vec<String> {
    vec![
        format!("{:.1}", outcome.energy.total / 3600.0),
        outcome.spin_ups.to_string(),
        format!("{:.1} %", outcome.asleep_s / outcome.time_s.max(1.0) * 100.0),
        outcome.delayed.to_string(),
        outcome.waited_for_spin_up.to_string(),
        outcome.flushes.count.to_string(),
        format!("{:.1}", outcome.flushes.time_s),
    ]
}

const ENERGY_AND_TIME: [&str; 7] = ["Wh", "spin-ups", "asleep", "delayed", "waited", "flushes", "flush s"];

fn head(first: &[&str]) -> Vec<String> {
    first.iter().chain(&ENERGY_AND_TIME).map(|&name| name.to_owned()).collect()
}

/// A table an input, a row a run.
fn tables(runs: &FlashRuns<'_>, first: &[&str], row: impl Fn(&HybridSetup) -> Vec<String>) -> Vec<Table> {
    let table = |input: &HybridInput| {
        let rows = runs.on(input).map(|(setup, outcome)| [row(setup), energy_and_time(outcome)].concat()).collect();
        Table { title: input.name.clone(), head: head(first), rows }
    };
    runs.inputs().map(table).collect()
}

pub(super) fn show_choices(runs: &FlashRuns<'_>) -> Vec<Table> {
    tables(runs, &["sleeps", "when", "how"], |setup| {
        let (when, how) = match setup.cache {
            Cache::Finite(ByteSize(0)) => ("no flash", ""),
            _ => (setup.when.name(), setup.algorithm.name()),
        };
        vec![setup.spin_down.clone(), when.to_owned(), how.to_owned()]
    })
}

pub(super) fn flash_sizes(inputs: &[Arc<HybridInput>], effort: Effort) -> FlashCells {
    let sizes: &[u64] = match effort {
        Effort::Full => &[4, 8, 16, 32, 64, 128, 256, 512, 1024],
        Effort::Quick => &[4, 64, 1024],
    };
    let mut setups = Vec::new();
    for when in [FlushTrigger::Each, FlushTrigger::Full, FlushTrigger::Piggyback] {
        for size in sizes {
            let cache = Cache::Finite(ByteSize(size << 20));
            setups.push(HybridSetup { cache, ..setup(when, Algorithm::Alg4) });
        }
    }
    Ok(Cell::grid(inputs, &setups))
}

pub(super) fn show_flash_sizes(runs: &FlashRuns<'_>) -> Vec<Table> {
    tables(runs, &["when", "flash"], |setup| {
        let size = match setup.cache {
            Cache::Finite(size) => size.to_string(),
            Cache::Infinite => "infinite".to_owned(),
        };
        vec![setup.when.name().to_owned(), size]
    })
}

pub(super) fn memory_sizes(inputs: &[Arc<HybridInput>], effort: Effort) -> FlashCells {
    let sizes: &[u64] = match effort {
        Effort::Full => &[1, 2, 4, 8, 16, 32, 64],
        Effort::Quick => &[1, 16, 64],
    };
    let mut setups = Vec::new();
    for when in EACH_AND_FULL {
        for algorithm in [Algorithm::Alg2, Algorithm::Alg3, Algorithm::Alg4, Algorithm::Whole] {
            setups.extend(
                sizes.iter().map(|size| HybridSetup { memory: ByteSize(size << 20), ..setup(when, algorithm) }),
            );
        }
    }
    Ok(Cell::grid(inputs, &setups))
}

/// A row a size, a column an algorithm: seconds of flushing.
pub(super) fn show_memory_sizes(runs: &FlashRuns<'_>) -> Vec<Table> {
    let table = |input: &HybridInput| {
        let mut columns: Vec<(FlushTrigger, Algorithm)> = Vec::new();
        let mut sizes: Vec<ByteSize> = Vec::new();
        for (&HybridSetup { when, algorithm, memory, .. }, _) in runs.on(input) {
            if !columns.contains(&(when, algorithm)) {
                columns.push((when, algorithm));
            }
            if !sizes.contains(&memory) {
                sizes.push(memory);
            }
        }
        let mut head = vec!["memory".to_owned()];
        head.extend(columns.iter().map(|(when, algorithm)| format!("{when} {algorithm} s")));
        let row = |&memory: &ByteSize| {
            let time = |&(when, algorithm): &(FlushTrigger, Algorithm)| {
                let outcome = runs.of(input, &HybridSetup { memory, ..setup(when, algorithm) });
                outcome.map_or_else(String::new, |outcome| format!("{:.1}", outcome.flushes.time_s))
            };
            std::iter::once(memory.to_string()).chain(columns.iter().map(time)).collect()
        };
        Table { title: input.name.clone(), head, rows: sizes.iter().map(row).collect() }
    };
    runs.inputs().map(table).collect()
}
