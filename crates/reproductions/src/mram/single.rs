//! Figures 4.2 and 4.3: one large file (Bonnie++), and a tree that is unpacked once.

use umbrella_lab::result::Outcome;

use super::setting::{gain, gain_in_time};
use crate::Measured;
use crate::statistics::mean;

/// The tests that figure 4.2 names, by their phases here.
const TESTS: [&str; 3] = ["char-write", "block-write", "rewrite"];

/// Figure 4.2: throughput of each test, which is the inverse of its time.
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

/// Figure 4.3: performance against the original's.
pub(super) fn measure_untar(outcomes: &[Outcome]) -> Vec<Measured> {
    let [original, staging, wasl, hybrid] = outcomes else { return Vec::new() };
    let [staging, wasl, hybrid] = [staging, wasl, hybrid].map(|other| gain(original, other));
    let beside_sum = hybrid - wasl - staging;
    let measured = [("staging", staging), ("wasl", wasl), ("sum", beside_sum), ("less", beside_sum)];
    measured.map(|(name, value)| Measured::new(name, value)).into()
}
