use umbrella_lab::result::{AtFinish, Outcome, WrittenBecause};

use super::setting::{WORKLOADS, Work};
use super::*;
use crate::statistics::change;
use crate::{Effort, OtherReading, Verdict};

fn timed() -> Work {
    WORKLOADS[0]
}

fn untimed() -> Work {
    *WORKLOADS.iter().find(|work| work.name == "postmark").unwrap()
}

#[test]
fn performance_is_operations_where_the_time_is_fixed_whenever_the_last_of_them_ended() {
    let slow = Outcome { operations: 100, time_s: 10.0, ..Outcome::default() };
    let fast = Outcome { operations: 150, time_s: 12.0, ..Outcome::default() };
    assert!((timed().gain(&fast, &slow) - 50.0).abs() < 1e-9);
}

#[test]
fn performance_is_the_inverse_of_time_where_the_work_is_fixed() {
    let slow = Outcome { operations: 100, time_s: 12.0, ..Outcome::default() };
    let fast = Outcome { operations: 500, time_s: 8.0, ..Outcome::default() };
    assert!((untimed().gain(&fast, &slow) - 50.0).abs() < 1e-9);
}

#[test]
fn nothing_against_nothing_is_no_change() {
    assert!(change(0.0, 0.0).abs() < f64::EPSILON);
}

#[test]
fn every_figure_judges_as_many_outcomes_as_it_asks_for() {
    for figure in PAPER.figures {
        let cells = (figure.cells)(Effort::Quick).unwrap();
        let outcomes = vec![Outcome { operations: 1, time_s: 1.0, ..Outcome::default() }; cells.len()];
        let claims = figure.evaluate(PAPER.name, &outcomes);
        assert!(!claims.is_empty(), "{} claims nothing", figure.id);
        assert!(claims.iter().all(|claim| claim.figure == figure.id), "{} claims for another", figure.id);
    }
}

/// Outcomes of a figure, each made from its workload's name and policy.
fn outcomes(figure: &Figure, of: impl Fn(&str, &str) -> Outcome) -> Vec<Outcome> {
    let cells = (figure.cells)(Effort::Quick).unwrap();
    cells.iter().map(|cell| of(&cell.input.name(), &cell.machine.policy)).collect()
}

fn figure(id: &str) -> &'static Figure {
    PAPER.figures.iter().find(|figure| figure.id == id).unwrap()
}

/// What was measured for the figure's claims where throttled writers ask the policy as well.
fn judged(id: &str, outcomes: &[Outcome]) -> Vec<(String, OtherReading)> {
    let claims = figure(id).evaluate(PAPER.name, outcomes);
    claims.into_iter().map(|claim| (claim.claim, claim.other_readings[0].clone())).collect()
}

#[test]
fn the_primary_reading_is_that_of_the_background_thread_alone() {
    let claims = crate::tests::claims(&PAPER, "8", |cell| {
        let operations = match (cell.machine.policy.as_str(), &cell.machine.throttled_policy) {
            (policy, Some(_)) if policy.starts_with("zone_segment") => 130,
            (policy, None) if policy.starts_with("zone_segment") => 110,
            (policy, writers) => {
                assert!(writers.as_deref() != Some(policy), "the kernel as it is");
                100
            }
        };
        Outcome { operations, time_s: 1.0, ..Outcome::default() }
    });
    assert!((claims[0].measured.unwrap() - 30.0).abs() < 1e-9);
    assert!((claims[0].other_readings[0].measured - 10.0).abs() < 1e-9);
}

#[test]
fn figure_8_takes_the_workload_with_the_largest_gain() {
    let outcomes = outcomes(figure("8"), |workload, policy| {
        let operations = if workload == "rnd-write" && policy.starts_with("zone_segment") { 133 } else { 100 };
        Outcome { operations, time_s: 1.0, ..Outcome::default() }
    });
    let claims = judged("8", &outcomes);
    assert!((claims[0].1.measured - 33.0).abs() < 1e-9);
    assert_eq!(claims[0].1.verdict, Verdict::Holds);
    assert_eq!(claims[2].1.verdict, Verdict::SignOnly, "33 % over segment is more than 10.9 % and 10 points");
}

#[test]
fn figure_4_is_about_the_workload_where_8_mb_loses_most() {
    let outcomes = outcomes(figure("4"), |workload, policy| {
        let operations = if workload == "fileserver" && policy.ends_with("=32MiB") { 125 } else { 100 };
        Outcome { operations, time_s: 1.0, ..Outcome::default() }
    });
    let claims = judged("4", &outcomes);
    assert!((claims[0].1.measured + 20.0).abs() < 1e-9);
    assert_eq!(claims[0].1.verdict, Verdict::Fails);
}

#[test]
fn pages_written_after_the_end_do_not_count_in_section_iv_b() {
    let because = WrittenBecause { threshold: 99, expired: 1, drained: 900, ..WrittenBecause::default() };
    let outcomes = outcomes(figure("section IV-B"), |_, _| Outcome { written_because: because, ..Outcome::default() });
    let claims = figure("section IV-B").evaluate(PAPER.name, &outcomes);
    assert!((claims[0].measured.unwrap() - 99.0).abs() < 1e-9);
    assert!(claims[0].holds);
}

#[test]
fn a_policy_that_writes_more_than_file_fails_in_sign() {
    let outcomes = outcomes(figure("9"), |_, policy| Outcome {
        // What is written after the end does not count.
        bytes_written: if policy == "recency" { 200 } else { 1000 },
        at_finish: AtFinish { bytes_written: if policy == "recency" { 110 } else { 100 }, ..AtFinish::default() },
        ..Outcome::default()
    });
    let claims = judged("9", &outcomes);
    let (_, recency) = claims.iter().find(|(claim, _)| claim.starts_with("blocks written, recency")).unwrap();
    assert!((recency.measured + 10.0).abs() < 1e-9);
    assert_eq!(recency.verdict, Verdict::Fails);
}
