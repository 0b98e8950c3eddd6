use umbrella_lab::result::{AtFinish, Outcome, SequentialWrites, Setting, WindowCounts};
use umbrella_lab::write_back::WriteBackCell;

use super::runs::{MAGNETIC, MLC, SLC};
use super::*;
use crate::tests::assert_claim;
use crate::{Claim, Verdict, kernel};

/// What is run: its policy, disk and input.
fn setting(cell: &WriteBackCell) -> Setting {
    Setting {
        policy: cell.machine.policy.clone(),
        disk: cell.machine.disk.clone(),
        input: cell.input.name(),
        ..Setting::default()
    }
}

/// The figure's claims, each run's outcome made from its policy, disk and input.
fn claims(id: &str, of: impl Fn(&str, &str, &str) -> Outcome) -> Vec<Claim> {
    crate::tests::claims(&PAPER, id, |cell| {
        let setting = setting(cell);
        Outcome { setting: setting.clone(), ..of(kernel::name(&setting.policy), &setting.disk, &setting.input) }
    })
}

/// Runs that took so long, of 100 operations and 100 bytes.
fn took(time_s: f64) -> Outcome {
    Outcome { time_s, operations: 100, bytes_requested_write: 100, ..Outcome::default() }
}

fn on_disk(at_finish: AtFinish) -> Outcome {
    Outcome { at_finish, ..took(1.0) }
}

#[test]
fn every_figure_judges_what_it_asks_for() {
    for figure in PAPER.figures {
        let claims = claims(figure.id, |_, _, _| took(1.0));
        assert!(!claims.is_empty(), "{} claims nothing", figure.id);
        assert!(claims.iter().all(|claim| claim.figure == figure.id), "{} claims for another", figure.id);
        assert!(claims.iter().all(|claim| claim.measured.is_some()), "{} misses a run: {claims:?}", figure.id);
    }
}

#[test]
fn runs_that_are_all_alike_are_no_improvement_and_no_order() {
    for id in ["23", "26", "27", "31", "33", "36", "39", "40"] {
        for claim in claims(id, |_, _, _| took(1.0)) {
            let tie = ["not slower", "time against", "about as fast", "does little", "very little change"];
            let may_hold = tie.iter().any(|text| claim.claim.contains(text));
            assert!(may_hold || claim.verdict == Verdict::Fails, "{claim:?}");
        }
    }
}

#[test]
fn a_time_is_shorter_by_a_negative_share() {
    let claims = claims("25", |policy, _, input| match (policy, input) {
        ("two_queue", "iozone:writers=8") => took(66.0),
        ("sorted", "iozone:writers=8") => took(103.0),
        ("sorted", "iozone:writers=2") => took(110.0),
        ("sorted", _) => took(105.0),
        _ => took(100.0),
    });
    assert_claim(&claims, "two_queue, 8 Zipf writers", -34.0, Verdict::Holds);
    assert_claim(&claims, "sorted, 8 Zipf writers", 3.0, Verdict::Fails);
    assert_claim(&claims, "sorted, 4 Zipf writers: not slower", 5.0, Verdict::Fails);
    assert_claim(&claims, "two_queue_sorted, 8 Zipf writers", 0.0, Verdict::Holds);
    assert_claim(&claims, "sorted: better with 4 Zipf writers than with 2", -5.0, Verdict::Holds);
    assert_claim(&claims, "sorted: better with 8 Zipf writers than with 4", -2.0, Verdict::Holds);
    assert_claim(&claims, "two_queue: better with 4 Zipf writers than with 2", 0.0, Verdict::Fails);
}

#[test]
fn windows_are_those_until_the_clients_finished_and_dramatically_fewer_with_8_writers() {
    let claims = claims("26", |policy, _, _| {
        let small = if policy == "file" { 100 } else { 95 };
        let large = if policy == "two_queue" { 12 } else { 10 };
        // Windows with exactly 16 writes are neither.
        let windows = WindowCounts { windows: [small, 0, 0, large, large, 0], sixteen: large };
        let after_the_end = WindowCounts { windows: [0, 0, 0, 0, 0, 1000], sixteen: 0 };
        Outcome { windows: after_the_end, ..on_disk(AtFinish { windows, ..AtFinish::default() }) }
    });
    assert_claim(&claims, "two_queue, 8 Zipf writers: fewer windows", -5.0, Verdict::Fails);
    assert_claim(&claims, "two_queue, 2 Zipf writers: fewer windows", -5.0, Verdict::Holds);
    assert_claim(&claims, "two_queue, 4 Zipf writers: more windows", 2.0, Verdict::Holds);
    assert_claim(&claims, "sorted, 8 Zipf writers: more windows", 0.0, Verdict::Fails);
}

#[test]
fn throughput_is_higher_by_a_positive_share() {
    let claims = claims("27", |policy, disk, _| match (policy, disk) {
        ("sorted", MAGNETIC) => took(100.0 / 1.19),
        ("two_queue_sorted", MAGNETIC) => took(100.0 / 1.1),
        ("sorted", MLC) => took(200.0),
        _ => took(100.0),
    });
    assert_claim(&claims, "sorted on the magnetic disk: throughput", 19.0, Verdict::Holds);
    assert_claim(&claims, "sorted on the magnetic disk: more than two_queue_sorted", 9.0, Verdict::Holds);
    assert_claim(&claims, "two_queue_sorted on the magnetic disk: more than two_queue", 10.0, Verdict::Holds);
    assert_claim(&claims, "two_queue on the magnetic disk: more than file", 0.0, Verdict::Fails);
    assert_claim(&claims, "sorted on the Samsung drive: throughput", -50.0, Verdict::Fails);
}

#[test]
fn what_is_written_for_each_operation_is_less_where_more_is_done() {
    let claims = claims("28", |policy, _, _| Outcome {
        operations: if policy == "file" { 100 } else { 125 },
        bytes_written: if policy == "file" { 1 } else { 1000 },
        ..on_disk(AtFinish { bytes_written: 500, bytes_read: 0, ..AtFinish::default() })
    });
    assert_claim(&claims, "sorted: about as much written", 0.0, Verdict::Holds);
    assert_claim(&claims, "sorted: about as much read", 0.0, Verdict::Holds);
    assert_claim(&claims, "sorted: less written for each operation", -20.0, Verdict::Holds);
}

#[test]
fn sorted_writes_are_nearer_by_a_negative_share() {
    let of = |policy: &str, _: &str, _: &str| {
        let write_distance = if policy == "sorted" { 75.0 } else { 100.0 };
        on_disk(AtFinish { write_distance, ..AtFinish::default() })
    };
    assert_claim(&claims("30", of), "sorted: writes lie nearer", -25.0, Verdict::Holds);
}

#[test]
fn a_slight_improvement_is_one_that_the_table_shows() {
    let claims = claims("31", |policy, disk, _| match (policy, disk) {
        ("sorted", MLC) => took(99.8),
        ("two_queue", SLC) => took(83.0),
        _ => took(100.0),
    });
    assert_claim(&claims, "two_queue on the Memoright drive", -17.0, Verdict::Holds);
    // The mean of the four is 99.95.
    let apart = 100.0 * (99.8 / 99.95 - 1.0);
    assert_claim(&claims, "sorted on the Samsung drive: very little change", apart, Verdict::Holds);
    let slight = |policy| {
        claims.iter().find(|claim| claim.claim == format!("{policy} on the Samsung drive: a slight improvement"))
    };
    assert!(slight("sorted").unwrap().holds);
    assert!(!slight("two_queue").unwrap().holds);
}

#[test]
fn sequential_writes_are_judged_by_the_size_of_their_runs() {
    let claims = claims("32", |policy, _, _| {
        let bytes = if policy == "sorted" { 126_000 } else { 100_000 };
        let requests = if policy == "two_queue" { 30 } else { 20 };
        let sequential = SequentialWrites { runs: 10, requests, bytes };
        on_disk(AtFinish { write_requests: 100, sequential, ..AtFinish::default() })
    });
    assert_claim(&claims, "sorted: sequential writes are longer", 26.0, Verdict::Holds);
    assert_claim(&claims, "sorted: share of writes", 0.0, Verdict::Holds);
    assert_claim(&claims, "two_queue: share of writes", 10.0, Verdict::Fails);
}

#[test]
fn postmark_gains_less_on_one_drive_and_loses_on_another() {
    let claims = claims("33", |policy, disk, _| match (policy, disk) {
        ("sorted", MAGNETIC) => took(80.0),
        ("sorted", MLC) => took(95.0),
        ("sorted", SLC) => took(104.0),
        _ => took(100.0),
    });
    assert_claim(&claims, "sorted on the magnetic disk: faster", -20.0, Verdict::Holds);
    assert_claim(&claims, "sorted on the Samsung drive: gains less", 15.0, Verdict::Holds);
    assert_claim(&claims, "sorted on the Memoright drive: slower", 4.0, Verdict::Holds);
    assert_claim(&claims, "two_queue_sorted on the magnetic disk: faster", 0.0, Verdict::Fails);
}

#[test]
fn the_times_of_two_drives_are_added() {
    let of = |policy: &str, disk: &str, _: &str| match (policy, disk) {
        ("two_queue", MAGNETIC) => took(80.0),
        ("two_queue", MLC) => took(190.0),
        (_, MLC) => took(200.0),
        _ => took(100.0),
    };
    assert_claim(&claims("34", of), "two_queue on both disks", -20.0, Verdict::SignOnly);
    assert_claim(&claims("34", of), "two_queue on one disk", -10.0, Verdict::Holds);
    assert_claim(&claims("35", of), "two_queue on both drives", -10.0, Verdict::Holds);
    let alone = claims("35", of);
    assert_claim(&alone, "two_queue on the magnetic disk", 100.0 * (280.0 / 300.0 - 1.0), Verdict::Holds);
    assert_claim(&alone, "two_queue on the Samsung drive", 100.0 * (290.0 / 300.0 - 1.0), Verdict::SignOnly);
}

#[test]
fn most_runs_on_a_log_are_slower_when_more_than_half_are() {
    let slower_where = |inputs: &'static [&'static str]| {
        claims("36", move |policy, _, input| {
            took(if policy != "file" && inputs.contains(&input) { 102.0 } else { 100.0 })
        })
    };
    let two = slower_where(&["iozone:writers=2", "iozone:writers=8"]);
    assert_claim(&two, "of all runs on a log", 100.0 * 6.0 / 9.0, Verdict::Holds);
    assert_claim(&two, "sorted, 8 Zipf writers on a log", 2.0, Verdict::Holds);
    assert_claim(&slower_where(&["iozone:writers=4"]), "of all runs on a log", 100.0 * 3.0 / 9.0, Verdict::Fails);
}

#[test]
fn a_trace_is_slower_by_the_time_of_an_operation() {
    let claims =
        claims("39", |policy, _, _| Outcome { operations: if policy == "sorted" { 50 } else { 100 }, ..took(1.0) });
    assert_claim(&claims, "sorted on the magnetic disk", 100.0, Verdict::Holds);
    assert_claim(&claims, "two_queue on the magnetic disk", 0.0, Verdict::Fails);
}

#[test]
fn the_optimum_is_dramatically_better_from_a_tenth_on() {
    let of = |policy: &str, _: &str, _: &str| {
        let (crossings, bytes) = match policy {
            "clairvoyant" => (89, 91),
            "write_minimal" => (109, 99),
            "two_queue_sorted" => (98, 100),
            _ => (100, 100),
        };
        Outcome { boundary_crossings: crossings, bytes_written: bytes, ..took(1.0) }
    };
    let crossings = claims("40", of);
    assert_claim(&crossings, "Postmark: clairvoyant", -11.0, Verdict::Holds);
    assert_claim(&crossings, "Postmark: write_minimal", 9.0, Verdict::Fails);
    assert_claim(&crossings, "Postmark: two_queue_sorted", -2.0, Verdict::Holds);
    let written = claims("41", of);
    assert_claim(&written, "Postmark: clairvoyant", -9.0, Verdict::Fails);
    assert_claim(&written, "Postmark: write_minimal", -1.0, Verdict::Holds);
}
