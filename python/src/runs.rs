//! Runs for Python: without its lock, told of Ctrl-C, and with progress.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use serde_json::{Map, Value, json};
use umbrella_lab::experiment::{self, LabError, Observe};
use umbrella_lab::result::{METRICS, Outcome};
use umbrella_lab::write_back::{MachineSpec, WriteBackCell};

use crate::asked::Asked;
use crate::trace::Trace;

/// How often Ctrl-C is looked for.
const LOOK_EVERY: Duration = Duration::from_millis(100);

fn wrong(error: LabError) -> PyErr {
    match error {
        LabError::Run { .. } => PyRuntimeError::new_err(error.to_string()),
        error => PyValueError::new_err(error.to_string()),
    }
}

/// Runs that are planned: policies with each combination of values, on one input.
#[pyclass(module = "umbrella_lab._native", frozen)]
pub(crate) struct Plan {
    cells: Vec<WriteBackCell>,
}

#[pymethods]
impl Plan {
    /// From JSON ([`Asked`]), with the trace that it is for.
    #[new]
    #[pyo3(signature = (asked, trace=None))]
    fn new(py: Python<'_>, asked: &str, trace: Option<&Trace>) -> PyResult<Plan> {
        let asked: Asked = serde_json::from_str(asked).map_err(|error| PyValueError::new_err(error.to_string()))?;
        let input = trace.map(|trace| (trace.name(), trace.columns()));
        let cells = py.detach(|| {
            let cells = asked.cells(input)?;
            cells.iter().try_for_each(WriteBackCell::check)?;
            Ok(cells)
        });
        cells.map(|cells| Plan { cells }).map_err(wrong)
    }

    /// A text for each run that no other has.
    fn identities(&self) -> Vec<String> {
        self.cells.iter().map(WriteBackCell::identity).collect()
    }

    /// Runs those with these numbers; a row of JSON for each. `progress` is told how many have finished, of how many.
    #[pyo3(signature = (numbers, threads=1, progress=None))]
    fn run(
        &self,
        py: Python<'_>,
        numbers: Vec<usize>,
        threads: usize,
        progress: Option<Bound<'_, PyAny>>,
    ) -> PyResult<Vec<String>> {
        let cells: Vec<WriteBackCell> = numbers.iter().filter_map(|number| self.cells.get(*number).cloned()).collect();
        run(py, &cells, threads, progress.as_ref())
    }
}

/// Watches runs: counts those that have finished, and passes on that all are to stop.
#[derive(Default)]
struct Watcher {
    stop: AtomicBool,
    finished: AtomicUsize,
}

impl Observe<MachineSpec> for Watcher {
    fn finished(&self, _cell: usize, _outcome: &Outcome) {
        self.finished.fetch_add(1, Ordering::Relaxed);
    }

    fn stop(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

fn run(
    py: Python<'_>,
    cells: &[WriteBackCell],
    threads: usize,
    progress: Option<&Bound<'_, PyAny>>,
) -> PyResult<Vec<String>> {
    let watcher = Watcher::default();
    let (done, mut ended) = mpsc::channel();
    let watched = &watcher;
    let results = std::thread::scope(|scope| {
        scope.spawn(move || {
            let _ = done.send(experiment::run(cells, threads, watched));
        });
        // An exception (Ctrl-C is one) ends the runs, and is raised when they have ended.
        let mut raised = None;
        loop {
            let (answer, back) = py.detach(move || (ended.recv_timeout(LOOK_EVERY), ended));
            ended = back;
            match answer {
                Ok(results) => return raised.map_or(Ok(results), Err),
                Err(mpsc::RecvTimeoutError::Disconnected) => {
                    return Err(PyRuntimeError::new_err("a run failed because of a bug in the lab; please report it"));
                }
                Err(mpsc::RecvTimeoutError::Timeout) => {}
            }
            let finished = watcher.finished.load(Ordering::Relaxed);
            let told = py.check_signals().and_then(|()| report_progress(progress, finished, cells.len()));
            if let Err(exception) = told {
                watcher.stop.store(true, Ordering::Relaxed);
                raised.get_or_insert(exception);
            }
        }
    })?;
    let outcomes = results.map_err(wrong)?.unless_failed().map_err(wrong)?;
    report_progress(progress, cells.len(), cells.len())?;
    outcomes.into_iter().flatten().map(|outcome| row(&outcome)).collect()
}

fn report_progress(progress: Option<&Bound<'_, PyAny>>, finished: usize, all: usize) -> PyResult<()> {
    progress.map_or(Ok(()), |progress| progress.call1((finished, all)).map(drop))
}

/// One flat row: the setting, what was swept, and every figure.
fn row(outcome: &Outcome) -> PyResult<String> {
    let of = &outcome.setting;
    let options: Vec<String> = of
        .options
        .iter()
        .map(|(name, value)| if value.is_empty() { name.clone() } else { format!("{name}={value}") })
        .collect();
    let mut row = Map::new();
    row.extend(of.swept.iter().map(|(name, value)| (name.replace('-', "_"), Value::from(value.as_str()))));
    let setting = json!({
        "policy": of.policy, "input": of.input, "disk": of.disk, "scheduler": of.scheduler, "memory_bytes": of.memory.0,
        "seed": of.seed, "scale": of.scale, "options": options.join(" "),
    });
    row.extend(setting.as_object().cloned().unwrap_or_default());
    row.extend(METRICS.iter().map(|metric| (metric.name.to_owned(), Value::from((metric.of)(outcome)))));
    serde_json::to_string(&row).map_err(|error| PyRuntimeError::new_err(error.to_string()))
}
