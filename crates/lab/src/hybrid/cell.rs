//! One run, and many at a time.

use std::sync::Arc;

use super::engine::Engine;
use super::input::Input;
use super::outcome::HybridOutcome;
use super::setup::Setup;
use crate::experiment::{LabError, in_parallel};

/// One run.
#[derive(Debug, Clone)]
pub struct Cell {
    /// What is asked of the disk.
    pub input: Arc<Input>,
    /// The disk.
    pub setup: Setup,
}

impl Cell {
    /// A text that two cells share only when they are the same run; inputs are told apart by their names.
    pub fn identity(&self) -> String {
        format!("{} {:?}", self.input.name, self.setup)
    }

    /// Runs it, until `go_on`, which is told how much is done, says no; then there is no outcome.
    pub fn run(&self, go_on: impl FnMut(f64) -> bool) -> Result<Option<HybridOutcome>, LabError> {
        Ok(Engine::new(&self.setup, &self.input, &mut ())?.run(go_on))
    }
}

/// Who watches runs; called from several threads.
pub trait ObserveHybrid: Sync {
    /// Run `cell` is done by `share`, 0 to 1.
    fn progress(&self, _cell: usize, _share: f64) {}

    /// Run `cell` has finished.
    fn finished(&self, _cell: usize, _outcome: &HybridOutcome) {}

    /// Whether to stop.
    fn stop(&self) -> bool {
        false
    }
}

/// Nobody watches.
impl ObserveHybrid for () {}

/// What came of the cells; none of those that were not finished when the observer stopped them.
pub type Results = Vec<Option<HybridOutcome>>;

/// Runs all cells, `threads` at a time. Fails without running any where one can not be built.
pub fn run(cells: &[Cell], threads: usize, observer: &dyn ObserveHybrid) -> Result<Results, LabError> {
    cells.iter().try_for_each(|cell| cell.setup.check())?;
    let run = |place: usize| {
        let outcome = cells[place].run(|share| {
            observer.progress(place, share);
            !observer.stop()
        })?;
        if let Some(outcome) = &outcome {
            observer.finished(place, outcome);
        }
        Ok(outcome)
    };
    let (outcomes, error) = in_parallel(cells.len(), threads, || observer.stop(), run);
    error.map_or(Ok(outcomes), Err)
}
