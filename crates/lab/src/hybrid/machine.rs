//! A hybrid disk as a machine of an experiment.

use umbrella_policy::spin_down::{Costs, SpinDown};
use umbrella_units::Nanos;

use super::engine::Engine;
use super::input::HybridInput;
use super::outcome::HybridOutcome;
use super::setup::HybridSetup;
use crate::experiment::{Cell, LabError, Machine, Watch, modelled_time};

impl Machine for HybridSetup {
    type Input = HybridInput;
    type Outcome = HybridOutcome;

    /// Inputs are identified by their names.
    fn identity(cell: &Cell<HybridSetup>) -> String {
        format!("{} {:?}", cell.input.name, cell.machine)
    }

    fn label(cell: &Cell<HybridSetup>) -> String {
        format!("{} {} {}", cell.input.name, cell.machine.when, cell.machine.algorithm)
    }

    fn simulated(outcome: &HybridOutcome) -> String {
        modelled_time(outcome.time_s)
    }

    fn check(cell: &Cell<HybridSetup>) -> Result<(), LabError> {
        cell.machine.profiles()?;
        SpinDown::parse(&cell.machine.spin_down, Costs { break_even: Nanos::NEVER })?;
        Ok(())
    }

    fn run(cell: &Cell<HybridSetup>, watch: &mut Watch<'_>) -> Result<Option<HybridOutcome>, LabError> {
        Ok(Engine::new(&cell.machine, &cell.input, &mut ())?.run(watch))
    }
}
