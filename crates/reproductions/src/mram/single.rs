//! Figures 4.2 and 4.3: one large file (Bonnie++), and a tree that is unpacked once.

use umbrella_lab::experiment::LabError;
use umbrella_lab::result::Outcome;
use umbrella_lab::write_back::WriteBackCell;

use super::setting::{all_methods, gain, gain_in_time, mean};
use crate::{Effort, Measured};

/// The tests that figure 4.2 names, by their phases here.
const TESTS: [&str; 3] = ["char-write", "block-write", "rewrite"];

/// Figure 4.2.
pub(super) fn bonnie(effort: Effort) -> Result<Vec<WriteBackCell>, LabError> {
    Ok(all_methods("bonnie", effort))
}

/// Throughput of each test, which is the inverse of its time.
pub(super) fn measure_bonnie(outcomes: &[Outcome]) -> Vec<Measured> {
    let [original, staging, wasl, hybrid] = outcomes else { return Vec::new() };
    let time = |outcome: &Outcome, phase| outcome.phase(phase).map_or(0.0, |phase| phase.time_s);
    let of = |phase, other| gain_in_time(time(original, phase), time(other, phase));
    let each = |phase| {
        [("staging", staging), ("wasl", wasl)].map(|(name, other)| (format!("{phase}.{name}"), of(phase, other)))
    };
    let mut measured: Vec<Measured> =
        TESTS.into_iter().flat_map(each).map(|(name, gain)| Measured::new(name, gain)).collect();
    measured.push(Measured::new("both", mean(TESTS.map(|phase| of(phase, hybrid) - of(phase, wasl)))));
    measured
}

/// Figure 4.3.
pub(super) fn untar(effort: Effort) -> Result<Vec<WriteBackCell>, LabError> {
    Ok(all_methods("untar", effort))
}

/// Performance against the original's.
pub(super) fn measure_untar(outcomes: &[Outcome]) -> Vec<Measured> {
    let [original, staging, wasl, hybrid] = outcomes else { return Vec::new() };
    let [staging, wasl, hybrid] = [staging, wasl, hybrid].map(|other| gain(original, other));
    let beside_sum = hybrid - wasl - staging;
    let measured = [("staging", staging), ("wasl", wasl), ("sum", beside_sum), ("less", beside_sum)];
    measured.map(|(name, value)| Measured::new(name, value)).into()
}
