use std::fmt::Write as _;

use super::*;
use crate::Verdict;

/// Of everything that the list says of every claim. It changes with any claim: see the head of claims.toml.
const DIGEST: u64 = 11_532_408_737_634_088_185;

fn fnv(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[test]
fn the_list_changes_only_together_with_its_digest() {
    let mut text = String::new();
    for claim in LIST.iter() {
        writeln!(text, "{}", serde_json::to_string(claim).unwrap()).unwrap();
    }
    assert_eq!(fnv(&text), DIGEST, "a claim changes only because its paper's text says so, in a commit of its own");
}

#[test]
fn each_paper_has_as_many_claims_as_were_frozen() {
    let counts = ["tesa", "umbrellafs", "mram", "nvcache", "r-lfs"].map(|paper| frozen(paper).count());
    assert_eq!(counts, [32, 165, 74, 33, 61]);
    assert_eq!(LIST.len(), counts.iter().sum::<usize>());
}

#[test]
fn every_claim_has_an_id_of_its_own() {
    let mut ids: Vec<&str> = LIST.iter().map(|claim| claim.id.as_str()).collect();
    ids.sort_unstable();
    let all = ids.len();
    ids.dedup();
    assert_eq!(ids.len(), all);
}

/// Figure 4 of NVCache has a claim for each of five inputs.
fn of_figure_4(measured: &[Measured]) -> Vec<Claim> {
    evaluate("nvcache", "4", measured)
}

#[test]
fn a_claim_without_a_value_is_in_the_output_and_does_not_hold() {
    let claims = of_figure_4(&[
        Measured::new("most", 14.0).on("desktop_week"),
        Measured::new("most", f64::NAN).on("msr_wdev_1_week"),
    ]);
    assert_eq!(claims.len(), 5);
    assert_eq!((claims[0].measured, claims[0].verdict), (Some(14.0), Verdict::Holds));
    for claim in &claims[1..] {
        assert_eq!((claim.measured, claim.holds, claim.verdict), (None, false, Verdict::NotMeasured));
    }
}

#[test]
fn a_new_input_is_shown_beside_the_claim_and_makes_none() {
    let claims =
        of_figure_4(&[Measured::new("most", 14.0).on("desktop_week"), Measured::new("most", 200.0).on("mine")]);
    assert_eq!(claims.len(), 5);
    let beside: Vec<_> = claims.iter().flat_map(|claim| &claim.new_inputs).collect();
    assert_eq!(beside.len(), 1);
    assert_eq!((beside[0].input.as_str(), beside[0].measured, beside[0].holds), ("mine", 200.0, false));
    assert!(claims[0].holds);
}

#[test]
fn the_primary_reading_is_judged_and_the_others_stand_beside_it() {
    let other = Measured::new("file", 40.0).in_reading("throttled");
    let only_other = evaluate("tesa", "8", std::slice::from_ref(&other));
    assert_eq!((only_other[0].measured, only_other[0].verdict), (None, Verdict::NotMeasured));
    assert_eq!((only_other[0].other_readings[0].measured, only_other[0].other_readings[0].holds), (40.0, true));
    let both = evaluate("tesa", "8", &[other, Measured::new("file", 5.0)]);
    assert_eq!((both[0].measured, both[0].verdict), (Some(5.0), Verdict::SignOnly));
    assert_eq!(both[0].reading.as_ref().unwrap().key, "background");
    assert_eq!(both[0].other_readings.len(), 1);
}

#[test]
#[should_panic(expected = "claims.toml has no")]
fn a_value_for_no_claim_is_a_fault() {
    evaluate("tesa", "8", &[Measured::new("nothing", 1.0)]);
}
