//! The distance from the optimum (figures 40 and 41): boundary crossings and data written under four kinds of policies:
//!
//! - a clairvoyant policy, which writes only pages that have to leave memory
//! - one that writes little within 30 s
//! - the kernel's
//! - the dissertation's
//!
//! Both bounds run on a machine without thresholds, as the dissertation's simulations do; the clairvoyant one also runs
//! without the 30 s rule. Pages that are dirty at the end are written under all policies. Both loads do a fixed amount
//! of work. A load that runs for a fixed time would do more of it under the bounds, and so be another load.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use umbrella_lab::result::Outcome;
use umbrella_lab::trace::OpenOptions;
use umbrella_lab::write_back::{Fit, MachineSpec, ReplayOptions, WriteBackCell, WriteBackInput};

use super::bench::{COMPILE, POSTMARK, QUICK};
use super::runs::{self, LINUX, MLC, PlacementRuns};
use super::{Effort, Measured, WriteBackCells};

pub(super) const ASSUMED: &str = "We do not have the NFS trace. A kernel's compilation and Postmark stand in for it: their work does not \
     depend on the policy. Full runs add the open block traces in the folder that UMBRELLA_TRACES names, at \
     their recorded times. On those, `file` and the dissertation's policies are the same, because block traces \
     have no files.";

const BOTH: &str = "two_queue_sorted";
const OPTIMUM: &str = "clairvoyant";
const LEAST: &str = "write_minimal";

/// What stands in for the trace, the share of it in a quick run, and its name in claims.
const LOADS: [(&str, f64, &str); 2] = [(COMPILE, QUICK, "kernel compilation"), (POSTMARK, QUICK, "Postmark")];

/// Open traces, in the folder that the variable names.
const TRACES: [&str; 5] = [
    "umass_financial1_head10k.csv.gz",
    "msr_cut_80w_243s.csv.gz",
    "msr_hm_1_writes90h.csv.gz",
    "msr_rsrch_1_week.csv.gz",
    "ycsb_rocksdb_1.csv.gz",
];

/// The machine of a policy's run.
fn machine(policy: &str) -> MachineSpec {
    let real = runs::machine(MLC);
    let free = MachineSpec { background_percent: 100, foreground_percent: 100, ..real.clone() };
    match policy {
        OPTIMUM => MachineSpec { expire_after: None, ..free },
        LEAST => free,
        _ => real,
    }
}

pub(super) fn cells(effort: Effort) -> WriteBackCells {
    let mut cells = Vec::new();
    for (workload, quick, _) in LOADS {
        let run = |policy| runs::cell(effort, quick, machine(policy), workload, policy);
        cells.extend([LINUX, BOTH, OPTIMUM, LEAST].map(run));
    }
    let folder = std::env::var_os("UMBRELLA_TRACES").filter(|_| effort == Effort::Full);
    for path in folder.iter().flat_map(|folder| traces(Path::new(folder))) {
        let replay = ReplayOptions { fit: Fit::Wrap, ..ReplayOptions::default() };
        let input = Arc::new(WriteBackInput::trace(path, OpenOptions::default(), replay)?);
        let run = |policy| WriteBackCell {
            input: Arc::clone(&input),
            ..runs::cell(effort, 1.0, machine(policy), "", policy)
        };
        cells.extend([LINUX, OPTIMUM, LEAST].map(run));
    }
    Ok(cells)
}

/// The traces that exist.
fn traces(folder: &Path) -> Vec<PathBuf> {
    TRACES.iter().map(|name| folder.join(name)).filter(|path| path.exists()).collect()
}

/// What was run: its name in claims, how its input begins, and what it was run under besides `file`. Block traces know
/// no files.
fn inputs(outcomes: &[Outcome]) -> Vec<(&'static str, &'static str, &'static [&'static str])> {
    let all: &[&str] = &[OPTIMUM, LEAST, BOTH];
    let loads = LOADS.iter().map(|(workload, _, name)| (*name, *workload, all));
    let was_run = |trace: &&&str| outcomes.iter().any(|outcome| outcome.setting.input.starts_with(**trace));
    let traces = TRACES.iter().filter(was_run).map(|trace| (trace.trim_end_matches(".csv.gz"), *trace, &all[..2]));
    loads.chain(traces).collect()
}

pub(super) fn measure_crossings(outcomes: &[Outcome]) -> Vec<Measured> {
    against_file(outcomes, |outcome| outcome.boundary_crossings as f64)
}

pub(super) fn measure_written(outcomes: &[Outcome]) -> Vec<Measured> {
    against_file(outcomes, |outcome| outcome.bytes_written as f64)
}

fn against_file(outcomes: &[Outcome], of: fn(&Outcome) -> f64) -> Vec<Measured> {
    let mut measured = Vec::new();
    for (name, input, policies) in inputs(outcomes) {
        let runs = PlacementRuns::new(outcomes, MLC, input);
        measured.extend(policies.iter().map(|policy| Measured::new(*policy, runs.change(policy, of)).on(name)));
    }
    measured
}
