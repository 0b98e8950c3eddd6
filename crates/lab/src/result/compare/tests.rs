use super::*;

fn run(policy: &str, input: &str, time_s: f64) -> Outcome {
    let setting = Setting { policy: policy.to_owned(), input: input.to_owned(), ..Setting::default() };
    Outcome { setting, time_s, operations: 100, ..Outcome::default() }
}

fn swept(policy: &str, name: &str, value: &str) -> Outcome {
    let mut outcome = run(policy, "postmark", 1.0);
    outcome.setting.swept.insert(name.to_owned(), value.to_owned());
    outcome
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
    let changes: Vec<Option<String>> = group.rows.iter().map(|row| group.change(time, row)).collect();
    assert_eq!(changes, [None, Some("-33 %".to_owned()), None, Some("-33 %".to_owned())]);
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
        "All runs took the same time, 600 s; \u{201c}zone\u{201d} was best on write mean with 100 \u{b5}s, \
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
    assert_eq!(group.best(metric("time_s").unwrap()), Some(2.0));
    assert!(group.verdict().contains("zone"), "{}", group.verdict());
    let time = metric("time_s").unwrap();
    assert!(group.rows.iter().all(|row| group.change(time, row).is_none()), "the first has no time to compare with");
}
