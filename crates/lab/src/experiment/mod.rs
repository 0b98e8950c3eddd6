//! Experiments: the same input under several policies, and under several values of any parameter, each run by itself and
//! as many at a time as there are processors.
//!
//! A run depends on its [`Cell`] only, so the outcomes are the same however many run at a time.

mod cell;
mod disk;
mod error;
mod replay;
mod sweep;

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

pub use cell::{Cell, Input, MachineSpec};
pub use disk::capacity;
pub use error::LabError;
pub(crate) use replay::areas;
pub use replay::{BadPace, Fit, Pace, ReplayOptions};
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

/// What came of an experiment.
#[derive(Debug)]
pub struct Results {
    /// An outcome, or none, for each cell: those that had not begun when the observer stopped the experiment, or when a run
    /// failed, have none, and those cut short say so.
    pub outcomes: Vec<Option<Outcome>>,
    /// Why a run failed, and with it the experiment.
    pub error: Option<LabError>,
}

/// Runs all cells, `threads` at a time. Fails without running any where one can not be built.
pub fn run(cells: &[Cell], threads: usize, observer: &dyn Observe) -> Result<Results, LabError> {
    cells.iter().try_for_each(Cell::check)?;
    let run = |place: usize| {
        let outcome = cells[place].run(&mut Watcher { place, observer })?;
        observer.finished(place, &outcome);
        Ok(Some(outcome))
    };
    let (outcomes, error) = in_parallel(cells.len(), threads, || observer.stop(), run);
    Ok(Results { outcomes, error })
}

/// What came of a run; nothing when it was not begun.
type Slot<T> = Option<Result<Option<T>, LabError>>;

/// Runs `run` for 0 to `count`, `threads` at a time, until `stop` says so or one fails. What was not run has no outcome.
pub(crate) fn in_parallel<T: Send>(
    count: usize,
    threads: usize,
    stop: impl Fn() -> bool + Sync,
    run: impl Fn(usize) -> Result<Option<T>, LabError> + Sync,
) -> (Vec<Option<T>>, Option<LabError>) {
    let next = AtomicUsize::new(0);
    let outcomes: Mutex<Vec<Slot<T>>> = Mutex::new((0..count).map(|_| None).collect());
    let work = || {
        loop {
            let place = next.fetch_add(1, Ordering::Relaxed);
            if place >= count || stop() {
                return;
            }
            let outcome = run(place);
            let failed = outcome.is_err();
            if let Ok(mut outcomes) = outcomes.lock() {
                outcomes[place] = Some(outcome);
            }
            if failed {
                // The others would most likely fail in the same way.
                next.store(count, Ordering::Relaxed);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads.clamp(1, count.max(1)) {
            scope.spawn(work);
        }
        work();
    });
    let outcomes = outcomes.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    let mut error = None;
    let keep = |result: Slot<T>| match result? {
        Ok(outcome) => outcome,
        Err(failure) => {
            error.get_or_insert(failure);
            None
        }
    };
    let outcomes = outcomes.into_iter().map(keep).collect();
    (outcomes, error)
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
