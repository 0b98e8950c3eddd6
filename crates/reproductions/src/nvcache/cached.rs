//! Figures 3 and 4: what an infinite flash caches.

use std::sync::Arc;

use umbrella_lab::experiment::Cell;
use umbrella_lab::hybrid::{Cache, HybridInput, HybridOutcome, HybridSetup};
use umbrella_lab::result::Table;

use super::runs::megabytes;
use super::{FlashCells, FlashRuns};
use crate::{Effort, Measured};

pub(super) const ASSUMED: &str =
    "Data are counted without their metadata. The adaptive spin-down decides when the disk sleeps.";

pub(super) const DAYS_ASSUMED: &str = "The paper has 5 GB for its trace Mac and 0.5 GB for HPLAJW. Neither trace is public, so nothing is \
     compared. Data are counted without their metadata. \"written\" is all that the trace writes, whether the \
     disk sleeps or not.";

fn setup() -> HybridSetup {
    HybridSetup { cache: Cache::Infinite, ..HybridSetup::default() }
}

pub(super) fn cells(inputs: &[Arc<HybridInput>], _: Effort) -> FlashCells {
    Ok(Cell::grid(inputs, &[setup()]))
}

pub(super) fn show_days(runs: &FlashRuns<'_>) -> Vec<Table> {
    let outcomes: Vec<_> = runs.outcomes().collect();
    let days_of = |outcome: &HybridOutcome| (outcome.time_s / 86_400.0).ceil() as usize;
    let days = outcomes.iter().map(|outcome| days_of(outcome)).max().unwrap_or(0);
    let mut head = vec!["trace".to_owned()];
    head.extend((1..=days).map(|day| format!("day {day}")));
    head.extend(["distinct", "written"].map(str::to_owned));
    let row = |outcome: &&HybridOutcome| {
        let cached = &outcome.redirected;
        let mut sum = 0;
        let mut row = vec![outcome.input.clone()];
        row.extend((0..days).map(|day| {
            sum += cached.by_day.get(day).copied().unwrap_or(0);
            if day < days_of(outcome) { megabytes(sum) } else { String::new() }
        }));
        row.extend([megabytes(cached.distinct_bytes), megabytes(outcome.written_bytes)]);
        row
    };
    vec![Table {
        title: "MB in the flash at the end of each day".to_owned(),
        head,
        rows: outcomes.iter().map(row).collect(),
    }]
}

pub(super) fn show_sleeps(runs: &FlashRuns<'_>) -> Vec<Table> {
    let head = ["trace", "sleeps", "mean", "median", "90 %", "99 %", "most"].map(str::to_owned).to_vec();
    let row = |outcome: &HybridOutcome| {
        let per = outcome.redirected.per_sleep;
        let mut row = vec![outcome.input.clone(), per.count.to_string(), megabytes(per.mean as u64)];
        row.extend([per.p50, per.p90, per.p99, per.max].map(megabytes));
        row
    };
    vec![Table {
        title: "MB cached each time that the disk slept".to_owned(),
        head,
        rows: runs.outcomes().map(row).collect(),
    }]
}

pub(super) fn measure_sleeps(runs: &FlashRuns<'_>) -> Vec<Measured> {
    let most = |input: &HybridInput| {
        let most = runs.of(input, &setup())?.redirected.per_sleep.max;
        Some(Measured::new("most", most as f64 / 1e6).on(&input.name))
    };
    runs.inputs().filter_map(most).collect()
}
