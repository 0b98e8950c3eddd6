//! Experiments: the same input under several policies, and under several values of any parameter, each run by itself and
//! as many at a time as there are processors.
//!
//! A run depends on its [`Cell`] only, so the outcomes are the same however many run at a time.

mod cell;
mod error;
mod replay;
mod sweep;

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

pub use cell::{Cell, Input, MachineSpec};
pub use error::LabError;
pub use replay::{Fit, Pace, ReplayOptions};
pub use sweep::{Sweep, cells, split_policies};

use crate::result::Outcome;

/// Who watches an experiment; called from several threads.
pub trait Observe: Sync {
    /// Cell `cell` is done by `share`, 0 to 1, where its input can tell.
    fn progress(&self, _cell: usize, _share: Option<f64>) {}

    /// Cell `cell` has finished.
    fn finished(&self, _cell: usize, _outcome: &Outcome) {}

    /// Whether to stop: runs under way end as soon as they can, and no other begins.
    fn stop(&self) -> bool {
        false
    }
}

/// Nobody watches.
impl Observe for () {}

/// Runs all cells, `threads` at a time. Outcomes come in the order of the cells; when the observer stops the experiment,
/// those that had not begun are missing, and those cut short say so.
pub fn run(cells: &[Cell], threads: usize, observer: &dyn Observe) -> Result<Vec<Outcome>, LabError> {
    Ok(run_some(cells, threads, observer)?.into_iter().flatten().collect())
}

/// The same with an outcome, or none, for each cell.
pub fn run_some(cells: &[Cell], threads: usize, observer: &dyn Observe) -> Result<Vec<Option<Outcome>>, LabError> {
    cells.iter().try_for_each(Cell::check)?;
    let next = AtomicUsize::new(0);
    let outcomes: Mutex<Vec<Option<Result<Outcome, LabError>>>> = Mutex::new(cells.iter().map(|_| None).collect());
    let work = || {
        loop {
            let place = next.fetch_add(1, Ordering::Relaxed);
            let Some(cell) = cells.get(place) else { return };
            if observer.stop() {
                return;
            }
            let outcome = cell.run(&mut Watcher { place, observer });
            if let Ok(outcome) = &outcome {
                observer.finished(place, outcome);
            }
            let failed = outcome.is_err();
            if let Ok(mut outcomes) = outcomes.lock() {
                outcomes[place] = Some(outcome);
            }
            if failed {
                // The others would most likely fail in the same way.
                next.store(cells.len(), Ordering::Relaxed);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads.clamp(1, cells.len().max(1)) {
            scope.spawn(work);
        }
        work();
    });
    let outcomes = outcomes.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    outcomes.into_iter().map(Option::transpose).collect()
}

struct Watcher<'a> {
    place: usize,
    observer: &'a dyn Observe,
}

impl crate::machine::Watch for Watcher<'_> {
    fn at(&mut self, _now: umbrella_units::Nanos, share: Option<f64>) -> bool {
        self.observer.progress(self.place, share);
        !self.observer.stop()
    }
}
