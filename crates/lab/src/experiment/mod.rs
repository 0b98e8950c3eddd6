//! Experiments: inputs on machines of one kind, each run by itself and as many at a time as there are processors.
//!
//! A run depends on its [`Cell`] only, so the outcomes are the same however many run at a time. The machines:
//! [`crate::write_back`], [`crate::hybrid`], [`crate::log_store`].

mod error;

use std::fmt::Debug;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

pub use error::LabError;

/// Watches a run: gets the share of it (0 to 1) that is done, if its input can tell. False ends the run.
pub type Watch<'a> = dyn FnMut(Option<f64>) -> bool + 'a;

/// A kind of modelled machine.
pub trait Machine: Clone + Debug + Sync + Sized {
    /// The input of a run.
    type Input: Debug + Send + Sync;
    /// The outcome of a run.
    type Outcome: Clone + Debug + Send;

    /// A text that two cells share only when they are the same run.
    fn identity(cell: &Cell<Self>) -> String;

    /// The name of a run while it is under way.
    fn label(cell: &Cell<Self>) -> String;

    /// How much was simulated in a run, such as `3.5 s of modelled time`.
    fn simulated(outcome: &Self::Outcome) -> String;

    /// Whether a cell can be run, found out without running it.
    fn check(cell: &Cell<Self>) -> Result<(), LabError>;

    /// Runs a cell. One that was ended early has no outcome, or one that says so.
    fn run(cell: &Cell<Self>, watch: &mut Watch<'_>) -> Result<Option<Self::Outcome>, LabError>;
}

/// How long a run took in its own time.
pub(crate) fn modelled_time(seconds: f64) -> String {
    format!("{seconds:.3} s of modelled time")
}

/// One run: everything that it depends on.
#[derive(Debug, Clone)]
pub struct Cell<M: Machine> {
    /// The input.
    pub input: Arc<M::Input>,
    /// The machine.
    pub machine: M,
}

impl<M: Machine> Cell<M> {
    /// An input on a machine.
    pub fn new(input: M::Input, machine: M) -> Cell<M> {
        Cell { input: Arc::new(input), machine }
    }

    /// Every input on every one of these machines.
    pub fn grid(inputs: &[Arc<M::Input>], machines: &[M]) -> Vec<Cell<M>> {
        let cell = |input: &Arc<M::Input>, machine: &M| Cell { input: Arc::clone(input), machine: machine.clone() };
        inputs.iter().flat_map(|input| machines.iter().map(move |machine| cell(input, machine))).collect()
    }

    /// See [`Machine::identity`].
    pub fn identity(&self) -> String {
        M::identity(self)
    }

    /// See [`Machine::label`].
    pub fn label(&self) -> String {
        M::label(self)
    }

    /// See [`Machine::check`].
    pub fn check(&self) -> Result<(), LabError> {
        M::check(self)
    }

    /// See [`Machine::run`].
    pub fn run(&self, watch: &mut Watch<'_>) -> Result<Option<M::Outcome>, LabError> {
        M::run(self, watch)
    }
}

/// An observer of an experiment. Called from several threads.
pub trait Observe<M: Machine>: Sync {
    /// Cell `cell` is done by `share`, 0 to 1, where its input can tell.
    fn progress(&self, _cell: usize, _share: Option<f64>) {}

    /// Cell `cell` has finished.
    fn finished(&self, _cell: usize, _outcome: &M::Outcome) {}

    /// Whether to stop: runs under way end as soon as they can, and no other begins.
    fn stop(&self) -> bool {
        false
    }
}

/// Nobody watches.
impl<M: Machine> Observe<M> for () {}

/// What came of an experiment.
#[derive(Debug)]
pub struct Results<M: Machine> {
    /// An outcome, or none, for each cell: those that were not finished when the observer stopped the experiment, or
    /// that had not begun when a run failed, have none.
    pub outcomes: Vec<Option<M::Outcome>>,
    /// Why a run failed, and with it the experiment.
    pub error: Option<LabError>,
}

impl<M: Machine> Results<M> {
    /// The outcomes, unless a run failed.
    pub fn unless_failed(self) -> Result<Vec<Option<M::Outcome>>, LabError> {
        self.error.map_or(Ok(self.outcomes), Err)
    }
}

/// Runs all cells, `threads` at a time. Fails without running any where one can not be built.
pub fn run<M: Machine>(cells: &[Cell<M>], threads: usize, observer: &dyn Observe<M>) -> Result<Results<M>, LabError> {
    cells.iter().try_for_each(Cell::check)?;
    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<_>> = Mutex::new(cells.iter().map(|_| None).collect());
    let work = || {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(cell) = cells.get(number).filter(|_| !observer.stop()) else { return };
            let outcome = cell.run(&mut |share| {
                observer.progress(number, share);
                !observer.stop()
            });
            match &outcome {
                Ok(Some(outcome)) => observer.finished(number, outcome),
                Ok(None) => {}
                // The others would most likely fail in the same way.
                Err(_) => next.store(cells.len(), Ordering::Relaxed),
            }
            if let Ok(mut done) = done.lock() {
                done[number] = Some(outcome);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads.clamp(1, cells.len().max(1)) {
            scope.spawn(work);
        }
        work();
    });
    let mut error = None;
    let done = done.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    let keep = |outcome: Option<Result<Option<M::Outcome>, LabError>>| match outcome? {
        Ok(outcome) => outcome,
        Err(failure) => {
            error.get_or_insert(failure);
            None
        }
    };
    let outcomes = done.into_iter().map(keep).collect();
    Ok(Results { outcomes, error })
}
