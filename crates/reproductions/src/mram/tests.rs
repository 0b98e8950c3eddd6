use umbrella_lab::result::{Outcome, PhaseTime, Setting};
use umbrella_lab::write_back::WriteBackCell;
use umbrella_units::ByteSize;

use super::setting::ZONE;
use super::*;
use crate::tests::assert_claim;
use crate::{Claim, Effort, Verdict};

/// A run: its method, input, memory in MiB, and policy.
struct Ran {
    method: &'static str,
    input: String,
    memory: u64,
    policy: String,
}

impl Ran {
    fn files(&self) -> u64 {
        let (_, rest) = self.input.split_once("files=").unwrap();
        rest.split(',').next().unwrap().parse().unwrap()
    }
}

fn ran(cell: &WriteBackCell) -> Ran {
    let method = match (cell.machine.policy.starts_with("wasl"), cell.machine.staging) {
        (false, false) => "original",
        (false, true) => "staging",
        (true, false) => "wasl",
        (true, true) => "both",
    };
    Ran { method, input: cell.input.name(), memory: cell.machine.memory.0 >> 20, policy: cell.machine.policy.clone() }
}

/// The figure's claims, each run's outcome made from what was run.
fn claims(id: &str, of: impl Fn(&Ran) -> Outcome) -> Vec<Claim> {
    crate::tests::claims(&PAPER, id, |cell| {
        let setting = Setting {
            input: cell.input.name(),
            memory: cell.machine.memory,
            scale: cell.machine.scale,
            seed: cell.machine.seed,
            ..Setting::default()
        };
        Outcome { setting, ..of(&ran(cell)) }
    })
}

fn took(time_s: f64) -> Outcome {
    Outcome { time_s, ..Outcome::default() }
}

/// The time with which performance is `percent` percent better than in 100 s.
fn gains(percent: f64) -> Outcome {
    took(100.0 / (1.0 + percent / 100.0))
}

#[test]
fn every_figure_judges_what_it_asks_for() {
    for figure in PAPER.figures {
        let claims = claims(figure.id, |_| took(1.0));
        assert!(!claims.is_empty(), "{} claims nothing", figure.id);
        assert!(claims.iter().all(|claim| claim.figure == figure.id), "{} claims for another", figure.id);
        // What moving a file costs the processor is not modelled.
        let unmeasured = claims.iter().filter(|claim| claim.measured.is_none()).count();
        assert_eq!(unmeasured, if figure.id == "4.1" { 3 } else { 0 }, "{}: {claims:?}", figure.id);
    }
}

#[test]
fn runs_that_are_all_alike_show_no_gain_loss_order_or_decline() {
    for id in ["4.1", "4.4", "4.5", "4.7", "4.9", "4.10", "4.11", "4.12"] {
        for claim in claims(id, |_| took(1.0)) {
            assert!(matches!(claim.verdict, Verdict::Fails | Verdict::NotMeasured), "{claim:?}");
        }
    }
}

#[test]
fn figure_4_1_shows_times() {
    let claims = claims("4.1", |ran| {
        took(match (ran.method, ran.input.contains("total=1B")) {
            ("staging", true) => 90.0,
            ("staging", false) => 103.5,
            _ => 100.0,
        })
    });
    assert_claim(&claims, "32,768 empty files: created in staging faster", -10.0, Verdict::Holds);
    assert_claim(&claims, "100 files of 100 MB", 3.5, Verdict::Holds);
}

#[test]
fn figure_4_2_compares_phases() {
    let claims = claims("4.2", |ran| {
        let of = |name: &str, time_s| PhaseTime { name: name.to_owned(), time_s, ..PhaseTime::default() };
        let block = if ran.method == "wasl" { 100.0 / 1.03 } else { 100.0 };
        Outcome { phases: vec![of("char-write", 50.0), of("block-write", block), of("rewrite", 70.0)], ..took(1.0) }
    });
    assert_claim(&claims, "block write: WASL", 3.0, Verdict::Holds);
    assert_claim(&claims, "character write: WASL", 0.0, Verdict::Fails);
    assert_claim(&claims, "both together as WASL alone", -1.0, Verdict::Holds);
}

#[test]
fn figure_4_3_sets_both_beside_the_sum() {
    let claims = claims("4.3", |ran| match ran.method {
        "staging" => gains(-6.0),
        "wasl" => gains(10.0),
        "both" => gains(2.0),
        _ => took(100.0),
    });
    assert_claim(&claims, "staging costs", -6.0, Verdict::Holds);
    assert_claim(&claims, "both together: about", -2.0, Verdict::Holds);
    assert_claim(&claims, "both together: less", -2.0, Verdict::Holds);
}

#[test]
fn figure_4_4_goes_from_15000_files_to_55000() {
    let claims = claims("4.4", |ran| match (ran.method, ran.files()) {
        ("original", _) => took(100.0),
        ("staging", 15_000) => gains(20.0),
        ("staging", 55_000) => gains(11.0),
        ("wasl", 15_000) => gains(26.0),
        ("wasl", 55_000) => gains(35.0),
        ("wasl", 5_000) => gains(-9.0),
        _ => gains(50.0),
    });
    assert_claim(&claims, "15000 files: staging", 20.0, Verdict::Holds);
    assert_claim(&claims, "5000 files: WASL", -9.0, Verdict::Holds);
    assert_claim(&claims, "55000 files: staging gains less", -9.0, Verdict::Holds);
    assert_claim(&claims, "55000 files: WASL gains more", 9.0, Verdict::Holds);
}

/// As in figure 4.5: a share of the files that its run deletes, by the number of files.
fn deleted(id: &str, share: impl Fn(&Ran) -> f64) -> Vec<Claim> {
    claims(id, |ran| {
        let whole = Setting { input: ran.input.clone(), scale: 0.1, seed: 1, ..Setting::default() };
        let all = postmark::deleted(&Outcome { setting: whole, ..took(1.0) });
        Outcome { staged_only: (all as f64 * share(ran)).round() as u64, ..took(1.0) }
    })
}

#[test]
fn figure_4_5_needs_a_fall_with_each_number_of_files() {
    let falls = deleted("4.5", |ran| 1.0 - (ran.files() - 5_000) as f64 / 100_000.0);
    assert!(falls.iter().all(|claim| claim.holds), "{falls:?}");
    let but_for_one = deleted("4.5", |ran| if ran.files() < 30_000 { 1.0 } else { 0.5 });
    let verdicts: Vec<Verdict> = but_for_one.iter().map(|claim| claim.verdict).collect();
    assert_eq!(verdicts, [Verdict::Holds, Verdict::Fails, Verdict::Holds]);
}

#[test]
fn figure_4_6_takes_the_original_and_the_mean_of_staging() {
    let claims = claims("4.6", |ran| Outcome {
        file_distance: match (ran.method, ran.files()) {
            ("original", 55_000) => 12_000.0,
            ("original", _) => 4_000.0,
            ("staging", 5_000) => 1_600.0,
            ("staging", _) => 1_000.0,
            _ => 99_999.0,
        },
        ..took(1.0)
    });
    assert_claim(&claims, "original, 5000", 4_000.0, Verdict::Holds);
    assert_claim(&claims, "original: more", 8_000.0, Verdict::Holds);
    assert_claim(&claims, "staging", 1_100.0, Verdict::Holds);
}

#[test]
fn figure_4_7_has_no_sum_where_both_are_staging_alone() {
    let claims = claims("4.7", |ran| match (ran.method, ran.files()) {
        ("original", _) => took(100.0),
        ("staging", _) => gains(20.0),
        ("wasl", _) => gains(30.0),
        (_, 15_000) => gains(36.0),
        _ => gains(20.0),
    });
    assert_claim(&claims, "5000 files: a gain", 20.0, Verdict::Holds);
    assert_claim(&claims, "15000 files: 30 to 40 %", 36.0, Verdict::Holds);
    assert_claim(&claims, "15000 files: more than the better", 6.0, Verdict::Holds);
    assert_claim(&claims, "15000 files: less than the sum", -14.0, Verdict::Holds);
    assert_claim(&claims, "25000 files: less than the sum", 0.0, Verdict::Fails);
    assert_claim(&claims, "25000 files: more than the better", -10.0, Verdict::Fails);
}

#[test]
fn figure_4_8_takes_gains_in_the_order_of_the_methods() {
    let claims = claims("4.8", |ran| match ran.method {
        "staging" => gains(-4.0),
        "wasl" => gains(12.0),
        "both" => gains(11.0),
        _ => took(100.0),
    });
    assert!(claims.iter().all(|claim| claim.holds), "{claims:?}");
    assert_claim(&claims, "both together as WASL", -1.0, Verdict::Holds);
}

#[test]
fn figures_4_9_and_4_10_have_a_row_for_each_memory() {
    let more = |ran: &Ran| match (ran.method, ran.memory) {
        ("original", _) => took(100.0),
        (_, 256) if ran.files() == 55_000 => gains(5.0),
        (_, 256) => gains(10.0),
        (_, 512) => gains(20.0),
        (_, 1024) => gains(30.0),
        _ => gains(30.5),
    };
    let staging = claims("4.9", more);
    assert_claim(&staging, "512 MB gains more", 20.0 - 55.0 / 6.0, Verdict::Holds);
    assert_claim(&staging, "1 GB gains more", 10.0, Verdict::Holds);
    assert_claim(&staging, "2 GB gains more", 0.5, Verdict::Fails);
    let wasl = claims("4.10", more);
    assert_claim(&wasl, "256 MB, 55000 files", 5.0, Verdict::Holds);
    assert_claim(&wasl, "256 MB gains less than 512 MB", 9.0 - 20.0, Verdict::Holds);
    assert_claim(&wasl, "1 GB, 5000 files: a loss", 30.0, Verdict::Fails);
}

#[test]
fn figure_4_11_leaves_out_5000_files_and_takes_the_least() {
    let share = |ran: &Ran| match (ran.memory, ran.files()) {
        (_, 5_000) => 1.0,
        (512, _) | (_, 55_000) => 0.5,
        _ => 0.8,
    };
    let claims = deleted("4.11", share);
    assert!(claims[0].measured.unwrap().abs() < 0.1 && !claims[0].holds, "{claims:?}");
    assert!((claims[1].measured.unwrap() - 24.0).abs() < 0.1 && claims[1].holds, "{claims:?}");
}

#[test]
fn figure_4_12_declines_from_2048_pages_on() {
    let claims = claims("4.12", |ran| {
        if ran.method == "original" {
            return took(100.0);
        }
        let (_, size) = ran.policy.split_once("zone=").unwrap();
        let pages = size.trim_end_matches("KiB").parse::<u64>().unwrap() / 4;
        gains(match pages {
            ZONE => 30.0,
            4096 => 25.0,
            8192 => 24.5,
            32 => 10.0,
            _ => 20.0,
        })
    });
    assert_claim(&claims, "zones of 32 pages", -20.0, Verdict::Holds);
    assert_claim(&claims, "zones of 8192 pages gain less than the best", -5.5, Verdict::Holds);
    assert_claim(&claims, "zones of 4096 pages", -5.0, Verdict::Holds);
    assert_claim(&claims, "zones of 8192 pages gain less than those of 4096", -0.5, Verdict::Fails);
}

#[test]
fn all_runs_but_those_on_memory_have_the_thesis_machine() {
    let cells = (PAPER.choose(Some("4.4")).unwrap()[0].cells)(Effort::Full).unwrap();
    assert!(cells.iter().all(|cell| cell.machine.memory == ByteSize(512 << 20)));
}
