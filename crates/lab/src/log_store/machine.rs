//! A log-structured store as a machine of an experiment.

use umbrella_policy::log_layout::Settings;
use umbrella_units::Pages;

use super::error::LogError;
use super::foresight::Deaths;
use super::input::LogInput;
use super::outcome::LogOutcome;
use super::setup::LogSetup;
use super::store::{Store, Stuck};
use crate::experiment::{Cell, LabError, Machine, Watch};

/// How many times the user writes the contents of the log.
const REWRITES: u64 = 4;

/// Requests between two looks at whether to continue.
const WATCH_EVERY: u64 = 4096;

/// Segments above the reserve below which cleaning is due.
const LOW: u32 = 4;

impl Machine for LogSetup {
    type Input = LogInput;
    type Outcome = LogOutcome;

    /// Inputs are identified by their names.
    fn identity(cell: &Cell<LogSetup>) -> String {
        format!("{} {:?}", cell.input.name, cell.machine)
    }

    fn label(cell: &Cell<LogSetup>) -> String {
        format!("{} {}", cell.input.name, cell.machine)
    }

    fn simulated(outcome: &LogOutcome) -> String {
        format!("{} blocks", outcome.written.0)
    }

    fn check(cell: &Cell<LogSetup>) -> Result<(), LabError> {
        let Cell { input, machine } = cell;
        machine.shape(input)?.ok_or_else(|| no_room(machine, input))?;
        Ok(())
    }

    fn run(cell: &Cell<LogSetup>, watch: &mut Watch<'_>) -> Result<Option<LogOutcome>, LabError> {
        Ok(simulate(&cell.machine, &cell.input, watch)?)
    }
}

fn no_room(setup: &LogSetup, input: &LogInput) -> LogError {
    let LogSetup { scheme, utilisation, .. } = setup.clone();
    LogError::NoRoom { input: input.name.clone(), scheme, utilisation }
}

fn simulate(setup: &LogSetup, input: &LogInput, watch: &mut Watch<'_>) -> Result<Option<LogOutcome>, LogError> {
    let no_room = || no_room(setup, input);
    let shape = setup.shape(input)?.ok_or_else(no_room)?;
    let scheme = setup.make_scheme()?;
    let until = Pages(REWRITES * shape.blocks());
    let deaths = scheme.knows_the_future().then(|| Deaths::of(input, setup.utilisation, until));
    let settings = Settings { shape, scheme, victim: setup.victim, chunk: None, map: false, low: LOW, high: LOW };
    let blocks = Pages(input.blocks().0 + input.cold(setup.utilisation));
    let mut store = Store::new(settings, blocks, deaths.as_ref());
    store.fill(input.filled(setup.utilisation)).map_err(|Stuck| no_room())?;
    for (number, request) in (0_u64..).zip(input.endless()) {
        let written = store.written();
        if written >= until {
            break;
        }
        if number % WATCH_EVERY == 0 && !watch(Some(written.0 as f64 / until.0 as f64)) {
            return Ok(None);
        }
        store.serve(&request).map_err(|Stuck| no_room())?;
    }
    Ok(Some(LogOutcome {
        input: input.name.clone(),
        scheme: setup.scheme.clone(),
        victim: setup.victim.name().to_owned(),
        utilisation: setup.utilisation.0,
        ..store.outcome()
    }))
}
