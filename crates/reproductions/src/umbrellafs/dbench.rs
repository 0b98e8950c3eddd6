//! dbench with 100 clients for 300 s (figures 27 and 28).

use umbrella_lab::result::Outcome;

use super::runs::{self, DRIVES, PlacementRuns, SCHEMES, SLC};
use super::{Effort, Measured, WriteBackCells};

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

pub(super) fn cells(effort: Effort, drives: &[&str]) -> WriteBackCells {
    runs::compared(effort, QUICK, drives, workload(effort))
}

pub(super) fn measure(outcomes: &[Outcome]) -> Vec<Measured> {
    let mut measured = Vec::new();
    for disk in DRIVES {
        let runs = PlacementRuns::new(outcomes, disk, "dbench");
        let more = |policy| runs.change(policy, Outcome::throughput);
        let mut add = |name: &str, value| measured.push(Measured::new(format!("{name}.{}", runs::short(disk)), value));
        let [two_queue, sorted, both] = SCHEMES.map(more);
        add("two_queue-over-file", two_queue);
        add("two_queue_sorted-over-file", both);
        add("sorted-over-two_queue_sorted", sorted - both);
        add("two_queue_sorted-over-two_queue", both - two_queue);
        measured.push(Measured::new(format!("sorted.{}.size", runs::short(disk)), sorted));
    }
    measured
}

/// About as much is written and read; as more is done, less is written for each operation.
pub(super) fn measure_written(outcomes: &[Outcome]) -> Vec<Measured> {
    let runs = PlacementRuns::new(outcomes, SLC, "dbench");
    let of = |policy: &str| {
        let written = runs.change(policy, |outcome| outcome.at_finish.bytes_written as f64);
        let read = runs.change(policy, |outcome| outcome.at_finish.bytes_read as f64);
        let each = runs.change(policy, |outcome| outcome.at_finish.bytes_written as f64 / outcome.operations as f64);
        [("written", written), ("read", read), ("each", each)]
            .map(|(name, value)| Measured::new(format!("{policy}.{name}"), value))
    };
    SCHEMES.iter().flat_map(|policy| of(policy)).collect()
}

/// Sorting "clusters the writes more effectively", "leading to more locality".
pub(super) fn measure_locality(outcomes: &[Outcome]) -> Vec<Measured> {
    let nearer =
        PlacementRuns::new(outcomes, SLC, "dbench").change("sorted", |outcome| outcome.at_finish.write_distance);
    vec![Measured::new("sorted.nearer", nearer)]
}
