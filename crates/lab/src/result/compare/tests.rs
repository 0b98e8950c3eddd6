use super::super::{WrittenBecause, metric};
use super::*;

fn run(policy: &str, input: &str, time_s: f64) -> Outcome {
    let setting = Setting { policy: policy.to_owned(), input: input.to_owned(), ..Setting::default() };
    Outcome { setting, time_s, drained_s: time_s, operations: 100, ..Outcome::default() }
}

fn swept(policy: &str, name: &str, value: &str) -> Outcome {
    let mut outcome = run(policy, "postmark", 1.0);
    outcome.setting.swept.insert(name.to_owned(), value.to_owned());
    outcome
}

#[expect(clippy::unnecessary_wraps, reason = "compared with what a value may have")]
fn by(change: &str) -> Option<Difference> {
    Some(Difference::By(change.to_owned()))
}

fn row_labels(outcomes: &[Outcome]) -> Vec<String> {
    groups(outcomes).into_iter().flat_map(|group| group.rows).map(|row| row.label).collect()
}

#[test]
fn outcomes_of_one_input_stand_together_in_the_order_given() {
    let outcomes = [run("file", "b", 1.0), run("file", "a", 1.0), run("zone", "b", 1.0)];
    let inputs: Vec<(&str, usize)> = groups(&outcomes).iter().map(|group| (group.input, group.rows.len())).collect();
    assert_eq!(inputs, [("b", 2), ("a", 1)]);
}

#[test]
fn a_label_says_what_differs_and_nothing_twice() {
    let mut small = run("file", "a", 1.0);
    small.setting.memory = ByteSize(64 << 20);
    assert_eq!(
        row_labels(&[run("file", "a", 1.0), small, run("zone", "a", 1.0)]),
        ["file, memory=0 B", "file, memory=64 MiB", "zone, memory=0 B"]
    );
    assert_eq!(
        row_labels(&[swept("zone:size=2MiB", "size", "2MiB"), swept("zone", "size", "4MiB")]),
        ["zone:size=2MiB", "zone, size=4MiB"]
    );
    assert_eq!(row_labels(&[run("file", "a", 1.0), run("file", "a", 2.0)]), ["file", "file (2)"]);
}

#[test]
fn the_best_is_the_least_or_the_most_and_never_a_run_cut_short() {
    let outcomes = [
        run("file", "a", 3.0),
        run("zone", "a", 2.0),
        Outcome { interrupted: true, ..run("sorted", "a", 1.0) },
        run("cscan", "a", 2.000_001),
    ];
    let group = &groups(&outcomes)[0];
    let best = |name| {
        let metric = metric(name).unwrap();
        group.rows.iter().filter(|row| group.is_best(metric, row)).map(|row| row.label.as_str()).collect::<Vec<_>>()
    };
    assert_eq!(best("time_s"), ["zone", "cscan"]);
    assert_eq!(best("operations_per_s"), ["zone", "cscan"]);
    assert_eq!(best("erases"), [""; 0], "all are the same");
    let time = metric("time_s").unwrap();
    let changes: Vec<Option<Difference>> = group.rows.iter().map(|row| group.difference(time, row)).collect();
    assert_eq!(changes, [None, by("-33 %"), None, by("-33 %")]);
}

#[test]
fn the_verdict_names_the_fastest_and_its_lead_over_the_first_or_over_the_next() {
    let verdict = |times: &[(&str, f64)]| {
        let outcomes: Vec<Outcome> = times.iter().map(|(policy, time)| run(policy, "a", *time)).collect();
        groups(&outcomes)[0].verdict()
    };
    assert_eq!(
        verdict(&[("file", 20.0), ("zone", 18.0), ("sorted", 15.0)]),
        "\u{201c}sorted\u{201d} was fastest with 15 s, 25 % less than \u{201c}file\u{201d} (20 s)."
    );
    assert_eq!(
        verdict(&[("file", 12.0), ("zone", 18.0), ("sorted", 15.0)]),
        "\u{201c}file\u{201d} was fastest with 12 s, 20 % less than \u{201c}sorted\u{201d} (15 s)."
    );
    assert_eq!(verdict(&[("file", 12.0)]), "\u{201c}file\u{201d} took 12 s.");
    assert_eq!(verdict(&[("file", 12.0), ("zone", 12.001)]), "All 2 runs did equally well on time.");
}

fn seeded(policy: &str, seed: u64, time_s: f64) -> Outcome {
    let mut outcome = run(policy, "a", time_s);
    outcome.setting.seed = seed;
    outcome.setting.swept.insert("seed".to_owned(), seed.to_string());
    outcome
}

#[test]
fn runs_that_differ_by_the_seed_only_are_one_row_of_means() {
    let outcomes =
        [seeded("file", 1, 19.0), seeded("file", 2, 21.0), seeded("zone", 1, 14.99), seeded("zone", 2, 15.01)];
    let group = &groups(&outcomes)[0];
    let time = metric("time_s").unwrap();
    let shown: Vec<(&str, String)> = group.rows.iter().map(|row| (row.label.as_str(), row.show(time))).collect();
    assert_eq!(shown, [("file", "20 s \u{b1}5 %".to_owned()), ("zone", "15 s".to_owned())]);
    assert_eq!(group.means().as_deref(), Some("mean of 2 seeds"));
    assert!(group.is_best(time, &group.rows[1]) && !group.is_best(time, &group.rows[0]));
    assert_eq!(group.difference(time, &group.rows[1]), by("-25 %"));
    assert!(group.sweeps().is_empty(), "a seed is no axis");
    assert_eq!(
        group.verdict(),
        "\u{201c}zone\u{201d} was fastest with 15 s, 25 % less than \u{201c}file\u{201d} (20 s \u{b1}5 %)."
    );
}

#[test]
fn where_the_seeds_of_two_policies_overlap_there_is_no_difference() {
    let outcomes = [
        [seeded("file", 1, 19.0), seeded("file", 2, 21.0)],
        [seeded("zone", 1, 18.0), seeded("zone", 2, 20.0)],
        [seeded("sweep", 1, 30.0), seeded("sweep", 2, 31.0)],
    ]
    .concat();
    let group = &groups(&outcomes)[0];
    let time = metric("time_s").unwrap();
    assert_eq!(group.difference(time, &group.rows[1]), Some(Difference::None));
    assert_eq!(group.difference(time, &group.rows[2]), by("+52 %"));
    let best: Vec<bool> = group.rows.iter().map(|row| group.is_best(time, row)).collect();
    assert_eq!(best, [true, true, false], "both of those that are the same");
    let two = &groups(&outcomes[..4])[0];
    assert!(two.rows.iter().all(|row| !two.is_best(time, row)), "none is best where there is no difference");
    assert_eq!(two.verdict(), "All 2 runs did equally well on time.");
}

#[test]
fn a_sweep_compares_policies_at_equal_values() {
    let mut outcomes = Vec::new();
    for (policy, times) in [("file", [20.0, 10.0]), ("sweep", [15.0, 12.0])] {
        for (memory, time) in ["128MiB", "256MiB"].into_iter().zip(times) {
            let mut outcome = run(policy, "postmark", time);
            outcome.setting.swept.insert("memory".to_owned(), memory.to_owned());
            outcomes.push(outcome);
        }
    }
    let group = &groups(&outcomes)[0];
    let time = metric("time_s").unwrap();
    let differences: Vec<Option<Difference>> = group.rows.iter().map(|row| group.difference(time, row)).collect();
    assert_eq!(differences, [None, None, by("-25 %"), by("+20 %")]);
    let best: Vec<bool> = group.rows.iter().map(|row| group.is_best(time, row)).collect();
    assert_eq!(best, [false, true, true, false]);
    assert_eq!(
        group.verdict(),
        "Compared at equal values of what was swept: \u{201c}sweep\u{201d} was best at 1 of 2 points, \u{201c}file\u{201d} was best at 1."
    );
    // The values of one policy are compared with each other.
    let group = &groups(&outcomes[..2])[0];
    assert_eq!(group.difference(time, &group.rows[1]), by("-50 %"));
}

#[test]
fn a_run_that_was_cut_short_is_in_no_mean_and_one_seed_among_means_is_named() {
    let cut = Outcome { interrupted: true, ..seeded("file", 3, 1.0) };
    let outcomes = [seeded("file", 1, 19.0), seeded("file", 2, 21.0), cut, seeded("zone", 1, 15.0)];
    let group = &groups(&outcomes)[0];
    let labels: Vec<&str> = group.rows.iter().map(|row| row.label.as_str()).collect();
    assert_eq!(labels, ["file", "file, seed=3", "zone, seed=1"]);
    assert_eq!(group.rows[0].show(metric("time_s").unwrap()), "20 s \u{b1}5 %");
    assert_eq!(group.means().as_deref(), Some("mean of 1 to 2 seeds"));
    assert!(group.verdict().ends_with("1 of 4 runs cut short: the figures are those of the part that ran."));
}

#[test]
fn a_swept_parameter_beside_the_seed_has_a_row_a_value() {
    let mut outcomes = Vec::new();
    for (size, time) in [("2MiB", 10.0), ("4MiB", 20.0)] {
        for seed in [1, 2] {
            let mut outcome = seeded("zone", seed, time + seed as f64);
            outcome.setting.swept.insert("size".to_owned(), size.to_owned());
            outcomes.push(outcome);
        }
    }
    let group = &groups(&outcomes)[0];
    let sweeps = group.sweeps();
    let time = metric("time_s").unwrap();
    let points: Vec<f64> = sweeps[0].series[0].points.iter().map(|(_, row)| row.value(time)).collect();
    assert_eq!((sweeps.len(), sweeps[0].name, points), (1, "size", vec![11.5, 21.5]));
}

#[test]
fn where_runs_did_different_work_the_verdict_goes_by_throughput() {
    let did = |policy: &str, operations: u64, time_s: f64| Outcome {
        operations,
        bytes_requested_write: operations << 20,
        ..run(policy, "a", time_s)
    };
    assert_eq!(
        groups(&[did("file", 600, 6.0), did("cscan", 1000, 8.0), did("zone", 300, 5.0)])[0].verdict(),
        "\u{201c}cscan\u{201d} was best on throughput with 125 MiB/s, 25 % more than \u{201c}file\u{201d} (100 MiB/s)."
    );
    assert_eq!(
        groups(&[did("file", 600, 6.0), did("cscan", 800, 8.0)])[0].verdict(),
        "All 2 runs did equally well on throughput."
    );
    let same = groups(&[did("file", 1000, 6.0), did("cscan", 1009, 5.0)])[0].verdict();
    assert!(same.starts_with("\u{201c}cscan\u{201d} was fastest with 5 s"), "{same}");
}

#[test]
fn operations_count_until_the_last_page_is_on_disk() {
    let outcome = Outcome { drained_s: 4.0, ..run("file", "a", 2.0) };
    let metric = metric("operations_per_s").unwrap();
    assert_eq!(((metric.of)(&outcome), metric.heading), (25.0, "operations/s"));
}

#[test]
fn that_policies_were_asked_little_is_said_with_the_share() {
    let said = |threshold: u64, expired: u64| {
        let because = WrittenBecause { threshold, expired, ..WrittenBecause::default() };
        let outcomes = [Outcome { written_because: because, ..run("file", "a", 1.0) }];
        groups(&outcomes)[0].low_influence_note().unwrap_or_default()
    };
    assert_eq!(
        said(5, 95),
        "At least 95 % of the pages were written because of their age, for a sync, or at the end, so the policies \
         chose hardly any pages. Give less --memory or a longer input."
    );
    assert!(said(40, 60).contains("At least 60 % of the pages") && said(40, 60).contains("chose at most 40 % of them"));
    assert_eq!(said(51, 49), "");
    assert_eq!(said(0, 0), "Nothing was written, so the policies chose nothing.");
}

#[test]
fn the_verdict_counts_runs_that_share_the_best() {
    let verdict = |times: &[f64]| {
        let outcomes: Vec<Outcome> =
            times.iter().enumerate().map(|(n, time)| run(&format!("p{n}"), "a", *time)).collect();
        groups(&outcomes)[0].verdict()
    };
    let all = "3 of 4 runs did equally well and were fastest with 15 s, 25 % less than";
    assert_eq!(verdict(&[20.0, 15.0, 15.001, 15.0]), format!("{all} \u{201c}p0\u{201d} (20 s)."));
    assert_eq!(verdict(&[15.0, 15.001, 20.0, 15.0]), format!("{all} \u{201c}p2\u{201d} (20 s)."));
    assert!(verdict(&[20.0, 15.0, 15.0, 18.0]).starts_with("\u{201c}p1\u{201d} was fastest with 15 s, 25 % less"));

    let mut outcomes = [15.0; 4].map(|time| run("file", "a", time));
    for (outcome, mean) in outcomes.iter_mut().zip([400.0, 100.0, 100.0, 100.0]) {
        outcome.write.mean = mean;
    }
    assert_eq!(
        groups(&outcomes)[0].verdict(),
        "All runs took the same time, 15 s; 3 of 4 runs did equally well and were best on write mean with 100 \u{b5}s, \
         75 % less than \u{201c}file\u{201d} (400 \u{b5}s)."
    );
}

#[test]
fn where_the_input_sets_the_pace_the_verdict_goes_by_response_times() {
    let mut outcomes = [run("file", "a", 600.0), run("zone", "a", 600.1)];
    outcomes[0].write.mean = 400.0;
    outcomes[1].write.mean = 100.0;
    assert_eq!(
        groups(&outcomes)[0].verdict(),
        "All runs took the same time, 10 min; \u{201c}zone\u{201d} was best on write mean with 100 \u{b5}s, \
         75 % less than \u{201c}file\u{201d} (400 \u{b5}s)."
    );
}

#[test]
fn the_verdict_says_that_runs_were_cut_short() {
    let cut = |time| Outcome { interrupted: true, ..run("file", "a", time) };
    assert_eq!(
        groups(&[cut(1.0), cut(2.0)])[0].verdict(),
        "No run was completed. 2 of 2 runs cut short: the figures are those of the part that ran."
    );
    let verdict = groups(&[cut(1.0), run("zone", "a", 2.0)])[0].verdict();
    assert!(verdict.starts_with("\u{201c}zone\u{201d} took 2 s."), "{verdict}");
}

#[test]
fn a_sweep_is_a_line_a_policy_over_ascending_values() {
    let outcomes = [
        swept("zone:size=16MiB,alpha=5", "size", "16MiB"),
        swept("zone:alpha=5", "size", "2MiB"),
        swept("zone:alpha=5,size=4MiB", "size", "4MiB"),
        run("file", "postmark", 1.0),
    ];
    let groups = groups(&outcomes);
    let sweeps = groups[0].sweeps();
    assert_eq!(sweeps.len(), 1);
    assert_eq!((sweeps[0].name, sweeps[0].values.as_slice()), ("size", &["2MiB", "4MiB", "16MiB"][..]));
    let series: Vec<(&str, Vec<usize>)> = sweeps[0]
        .series
        .iter()
        .map(|series| (series.label.as_str(), series.points.iter().map(|(place, _)| *place).collect()))
        .collect();
    assert_eq!(series, [("zone:alpha=5", vec![0, 1, 2]), ("file", vec![0, 1, 2])]);
}

#[test]
fn values_that_are_no_numbers_keep_their_order() {
    let outcomes = [swept("zone", "kind", "slow"), swept("zone", "kind", "fast")];
    assert_eq!(groups(&outcomes)[0].sweeps()[0].values, ["slow", "fast"]);
}

#[test]
fn two_swept_parameters_give_two_sweeps_that_name_each_other() {
    let mut outcomes = Vec::new();
    for size in ["2MiB", "4MiB"] {
        for alpha in ["5", "10"] {
            let mut outcome = swept("zone", "size", size);
            outcome.setting.swept.insert("alpha".to_owned(), alpha.to_owned());
            outcomes.push(outcome);
        }
    }
    let groups = groups(&outcomes);
    let labels: Vec<Vec<String>> = groups[0]
        .sweeps()
        .iter()
        .map(|sweep| sweep.series.iter().map(|series| series.label.clone()).collect())
        .collect();
    assert_eq!(labels, [["zone, size=2MiB", "zone, size=4MiB"], ["zone, alpha=5", "zone, alpha=10"]]);
}

#[test]
fn figures_that_are_no_numbers_win_nothing_and_break_nothing() {
    let outcomes = [run("file", "a", f64::NAN), run("zone", "a", 2.0), run("sorted", "a", 3.0)];
    let group = &groups(&outcomes)[0];
    let best: Vec<bool> = group.rows.iter().map(|row| group.is_best(metric("time_s").unwrap(), row)).collect();
    assert_eq!(best, [false, true, false]);
    assert!(group.verdict().contains("zone"), "{}", group.verdict());
    let time = metric("time_s").unwrap();
    assert!(
        group.rows.iter().all(|row| group.difference(time, row).is_none()),
        "the first has no time to compare with"
    );
}
