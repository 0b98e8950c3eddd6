//! What the tests of several papers share, and those of all.

use umbrella_lab::write_back::WriteBackCell;

use super::*;

#[track_caller]
pub(crate) fn assert_claim(claims: &[Claim], begins: &str, measured: f64, verdict: Verdict) {
    let claim = claims.iter().find(|claim| claim.claim.starts_with(begins)).unwrap_or_else(|| panic!("{begins}"));
    assert!((claim.measured.unwrap() - measured).abs() < 1e-9, "{claim:?}");
    assert_eq!(claim.verdict, verdict, "{claim:?}");
}

/// The figure's claims, each run's outcome made from its cell.
pub(crate) fn claims(paper: &'static Paper, id: &str, outcome: impl Fn(&WriteBackCell) -> Outcome) -> Vec<Claim> {
    let figure = paper.choose(Some(id)).unwrap()[0];
    let cells = (figure.cells)(Effort::Quick).unwrap();
    figure.evaluate(paper.name, &cells.iter().map(outcome).collect::<Vec<_>>())
}

#[test]
fn every_run_can_be_built() {
    for figure in PAPERS.iter().flat_map(|paper| paper.figures) {
        for effort in [Effort::Quick, Effort::Full] {
            (figure.cells)(effort).unwrap().iter().for_each(|cell| cell.check().unwrap());
        }
    }
}
