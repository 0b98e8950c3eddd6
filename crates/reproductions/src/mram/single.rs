//! Figures 4.2 and 4.3: one large file (Bonnie++), and a tree that is unpacked once.

use umbrella_lab::experiment::LabError;
use umbrella_lab::result::Outcome;
use umbrella_lab::write_back::WriteBackCell;

use super::setting::{LARGE, SAME, SMALL, all_methods, gain, gain_in_time, mean};
use crate::{Claim, Effort, Expect, VISIBLE};

/// The tests that figure 4.2 names, by their phases here.
const TESTS: [(&str, &str); 3] =
    [("char-write", "character write"), ("block-write", "block write"), ("rewrite", "rewrite")];

/// Figure 4.2.
pub(super) fn bonnie(effort: Effort) -> Result<Vec<WriteBackCell>, LabError> {
    Ok(all_methods("bonnie", effort))
}

/// Throughput of each test, which is the inverse of its time.
pub(super) fn judge_bonnie(outcomes: &[Outcome]) -> Vec<Claim> {
    let [original, staging, wasl, hybrid] = outcomes else { return Vec::new() };
    let time = |outcome: &Outcome, phase| outcome.phase(phase).map_or(0.0, |phase| phase.time_s);
    let of = |phase, other| gain_in_time(time(original, phase), time(other, phase));
    let claim = |claim: String, published, measured, expect| Claim::new("4.2", claim, "%", published, measured, expect);
    let mut claims = Vec::new();
    for (phase, name) in TESTS {
        claims.push(claim(format!("{name}: staging changes nothing"), 0.0, of(phase, staging), SAME));
    }
    for (phase, name) in TESTS {
        claims.push(claim(format!("{name}: WASL gains 2 to 5 %"), 3.5, of(phase, wasl), SMALL));
    }
    let apart = mean(TESTS.map(|(phase, _)| of(phase, hybrid) - of(phase, wasl)));
    claims.push(claim("both together as WASL alone, mean of the three tests".to_owned(), 0.0, apart, SAME));
    claims
}

/// Figure 4.3.
pub(super) fn untar(effort: Effort) -> Result<Vec<WriteBackCell>, LabError> {
    Ok(all_methods("untar", effort))
}

/// Performance against the original's.
pub(super) fn judge_untar(outcomes: &[Outcome]) -> Vec<Claim> {
    let [original, staging, wasl, hybrid] = outcomes else { return Vec::new() };
    let [staging, wasl, hybrid] = [staging, wasl, hybrid].map(|other| gain(original, other));
    let claim = |claim, unit, published, measured, expect| Claim::new("4.3", claim, unit, published, measured, expect);
    vec![
        claim("staging costs 6 to 7 %", "%", -6.5, staging, SMALL),
        claim("WASL gains about 10 %", "%", 10.0, wasl, LARGE),
        claim("both together: about the sum of both", "points", 0.0, hybrid - wasl - staging, SAME),
        claim("both together: less than the sum", "points", -VISIBLE, hybrid - wasl - staging, Expect::AtMost),
    ]
}
