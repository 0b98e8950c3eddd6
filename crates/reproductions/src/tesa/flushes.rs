//! Section IV-B: what makes dirty pages go to disk. Table I: what TESA's structures take.

use umbrella_lab::result::{Outcome, WrittenBecause};

use super::setting::{WORKLOADS, Work, in_halves, rows};
use crate::Measured;

pub(super) fn measure_reasons(outcomes: &[Outcome]) -> Vec<Measured> {
    let [outcomes, _] = in_halves(outcomes);
    let shares = outcomes.iter().filter_map(|outcome| threshold_share(&outcome.written_because));
    vec![Measured::new("least", shares.reduce(f64::min).unwrap_or_default())]
}

/// In percent; nothing when no page was written while the workload ran.
fn threshold_share(because: &WrittenBecause) -> Option<f64> {
    let all = because.threshold + because.expired + because.reclaim + because.sync;
    (all > 0).then(|| 100.0 * because.threshold as f64 / all as f64)
}

pub(super) fn measure_memory(outcomes: &[Outcome]) -> Vec<Measured> {
    let [outcomes, _] = in_halves(outcomes);
    let both = |(work, of): (Work, &[Outcome])| {
        let kilobytes = |bytes: fn(&Outcome) -> u64| of.first().map_or(0.0, |outcome| bytes(outcome) as f64 / 1024.0);
        [
            Measured::new(work.name, kilobytes(|outcome| outcome.tesa_bytes)),
            Measured::new(work.name, kilobytes(|outcome| outcome.policy_bytes)).in_reading("index"),
        ]
    };
    rows(WORKLOADS.iter().copied(), outcomes, 1).flat_map(both).collect()
}
