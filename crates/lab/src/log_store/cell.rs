//! One run, and many at a time.

use std::sync::Arc;

use umbrella_policy::log_layout::Settings;
use umbrella_units::Pages;

use super::error::LogError;
use super::foresight::Deaths;
use super::input::Input;
use super::outcome::LogOutcome;
use super::setup::{LOW, Setup};
use super::store::{Store, Stuck};
use crate::experiment::{LabError, in_parallel};

/// The user writes so many times what the log holds.
const REWRITES: u64 = 4;

/// One run.
#[derive(Debug, Clone)]
pub struct Cell {
    /// What is asked of the store.
    pub input: Arc<Input>,
    /// The log.
    pub setup: Setup,
}

/// Requests between two looks at whether to go on.
const LOOK: u64 = 4096;

impl Cell {
    /// A text that two cells share only when they are the same run; inputs are told apart by their names.
    pub fn identity(&self) -> String {
        format!("{} {:?}", self.input.name, self.setup)
    }

    fn no_room(&self) -> LogError {
        let Setup { scheme, utilisation, .. } = self.setup.clone();
        LogError::NoRoom { input: self.input.name.clone(), scheme, utilisation }
    }

    /// Runs it, until `go_on`, which is told how much is done, says no; then there is no outcome.
    pub fn run(&self, mut go_on: impl FnMut(f64) -> bool) -> Result<Option<LogOutcome>, LogError> {
        let Setup { scheme: name, victim, utilisation, .. } = &self.setup;
        let shape = self.setup.shape(&self.input)?.ok_or_else(|| self.no_room())?;
        let scheme = self.setup.make_scheme()?;
        let until = Pages(REWRITES * shape.blocks());
        let deaths = scheme.knows_the_future().then(|| Deaths::of(&self.input, until));
        let settings = Settings { shape, scheme, victim: *victim, chunk: None, map: false, low: LOW, high: LOW };
        let mut store = Store::new(settings, self.input.blocks(), deaths.as_ref());
        let stuck = |Stuck| self.no_room();
        store.fill(self.input.filled()).map_err(stuck)?;
        for (number, request) in (0_u64..).zip(self.input.endless()) {
            let written = store.written();
            if written >= until {
                break;
            }
            if number % LOOK == 0 && !go_on(written.0 as f64 / until.0 as f64) {
                return Ok(None);
            }
            store.serve(&request).map_err(stuck)?;
        }
        Ok(Some(LogOutcome {
            input: self.input.name.clone(),
            scheme: name.clone(),
            victim: victim.name().to_owned(),
            utilisation: utilisation.0,
            ..store.outcome()
        }))
    }
}

/// Who watches runs; called from several threads.
pub trait ObserveLog: Sync {
    /// Run `cell` is done by `share`, 0 to 1.
    fn progress(&self, _cell: usize, _share: f64) {}

    /// Run `cell` has finished.
    fn finished(&self, _cell: usize, _outcome: &LogOutcome) {}

    /// Whether to stop.
    fn stop(&self) -> bool {
        false
    }
}

/// Nobody watches.
impl ObserveLog for () {}

/// Runs all cells, `threads` at a time. A run that was not finished when the observer stopped it has no outcome.
pub fn run(cells: &[Cell], threads: usize, observer: &dyn ObserveLog) -> Result<Vec<Option<LogOutcome>>, LabError> {
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
