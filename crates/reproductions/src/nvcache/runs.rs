//! What is run, and how its outcomes are found again.

use std::sync::Arc;

use umbrella_lab::hybrid::{Cell, HybridOutcome, Input, Setup};
use umbrella_policy::flash_cache::{Algorithm, When};

/// The paper's algorithms.
pub(super) const PAPERS: [Algorithm; 4] = [Algorithm::Alg1, Algorithm::Alg2, Algorithm::Alg3, Algorithm::Alg4];

/// The paper's times of flushing.
pub(super) const EACH_AND_FULL: [When; 2] = [When::Each, When::Full];

/// A cell with what came of it.
#[derive(Debug, Clone, Copy)]
pub struct Run<'a> {
    /// The cell.
    pub cell: &'a Cell,
    /// What came of it.
    pub outcome: &'a HybridOutcome,
}

/// The runs of a figure.
#[derive(Debug)]
pub struct Runs<'a> {
    inputs: &'a [Arc<Input>],
    runs: Vec<Run<'a>>,
}

impl<'a> Runs<'a> {
    pub(super) fn new(inputs: &'a [Arc<Input>], runs: Vec<Run<'a>>) -> Runs<'a> {
        Runs { inputs, runs }
    }

    pub(super) fn outcomes(&self) -> impl Iterator<Item = &'a HybridOutcome> + '_ {
        self.runs.iter().map(|run| run.outcome)
    }

    /// The inputs.
    pub(super) fn inputs(&self) -> impl Iterator<Item = &'a Input> + '_ {
        self.inputs.iter().map(|input| &**input)
    }

    /// The runs of an input.
    pub(super) fn on(&self, input: &Input) -> impl Iterator<Item = Run<'a>> + '_ {
        let name = input.name.clone();
        self.runs.iter().copied().filter(move |run| run.cell.input.name == name)
    }

    /// What this disk came to with that input.
    pub(super) fn of(&self, input: &Input, setup: &Setup) -> Option<&'a HybridOutcome> {
        self.on(input).find(|run| run.cell.setup == *setup).map(|run| run.outcome)
    }
}

/// The paper's disk, flushed then and so.
pub(super) fn setup(when: When, algorithm: Algorithm) -> Setup {
    Setup { when, algorithm, ..Setup::default() }
}

/// Each input on each of these disks.
pub(super) fn cells(inputs: &[Arc<Input>], setups: &[Setup]) -> Vec<Cell> {
    let cell = |input: &Arc<Input>, setup: &Setup| Cell { input: Arc::clone(input), setup: setup.clone() };
    inputs.iter().flat_map(|input| setups.iter().map(move |setup| cell(input, setup))).collect()
}

/// Megabytes, with a decimal.
pub(super) fn megabytes(bytes: u64) -> String {
    format!("{:.1}", bytes as f64 / 1e6)
}

/// By how many percent `new` is below `old`; 0 where there was nothing.
pub(super) fn less(old: f64, new: f64) -> f64 {
    if old > 0.0 { (1.0 - new / old) * 100.0 } else { 0.0 }
}

/// A share in percent; 0 of nothing.
pub(super) fn share(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole * 100.0 } else { 0.0 }
}
