//! `umbrella lab run`, `compare`, `list` and `paper` as a new user and a careless one call them. Figures repeat, errors
//! say what to do next, and no Ctrl-C and no full disk takes results away.

#[path = "support/program.rs"]
mod program;

use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use program::{given, output, refused, said, trace};
use serde_json::Value;
use tempfile::TempDir;

/// A run of a few milliseconds.
const SMALL: [&str; 6] = ["--workload", "rnd-write", "--scale", "0.002", "--disk", "cheetah_10k7"];

/// A comparison has several without it.
const ONE_SEED: [&str; 2] = ["--seed", "1"];

/// As small, at a scale that tells something.
const TENTH: [&str; 6] = ["--workload", "rnd-write:duration=1s", "--scale", "0.1", "--disk", "cheetah_10k7"];

/// A run of a tenth of a second.
const MODERATE: [&str; 6] = ["--workload", "rnd-write:duration=2h", "--scale", "0.002", "--disk", "cheetah_10k7"];

fn lab(command: &str) -> Command {
    let mut lab = Command::new(env!("CARGO_BIN_EXE_umbrella"));
    lab.args(["lab", command]).env_remove("RUST_LOG").stdin(Stdio::null());
    lab
}

fn json(command: &mut Command) -> Vec<Value> {
    serde_json::from_str(&given(command.arg("--json"))).expect("one JSON document")
}

fn without_setting(mut outcomes: Vec<Value>) -> Vec<Value> {
    for outcome in &mut outcomes {
        outcome.as_object_mut().expect("an object").remove("setting").expect("a setting");
    }
    outcomes
}

fn policies(outcomes: &[Value]) -> Vec<&str> {
    outcomes.iter().map(|outcome| outcome["setting"]["policy"].as_str().expect("a policy")).collect()
}

fn usual_trace() -> (TempDir, PathBuf) {
    let line = |i: u64| {
        let op = if i.is_multiple_of(5) { "R" } else { "W" };
        format!("{},d{},{op},{},4096,", i * 500, i % 2, i * 7919 % 50_000 * 4096)
    };
    trace("a day.csv", (1..=2000).map(line))
}

#[test]
fn the_error_of_a_wrong_name_lists_the_known_ones() {
    let wrong: [(&[&str], &str, &str); 15] = [
        (&["--policy", "nope"], "there is no policy \"nope\"", "known: file, recency"),
        (&["--policy", "zone_segmnt"], "did you mean \"zone_segment\"?", "known: file"),
        (&["--policy", "zone:zon=1MiB"], "has no parameter \"zon\" (did you mean \"zone\"?)", "it has: zone"),
        (&["--policy", "zone:zone=6KiB"], "zone=6KiB is not possible", "a size in whole pages of 4 KiB from 4KiB"),
        (&["--metric", "write_mean"], "did you mean \"write_mean_us\"?", "known: time_s"),
        (&["--sweep", "memry=1GiB"], "did you mean \"memory\"?", "known: memory"),
        (&["--policy", "zone:zone=1TiB"], "zone=1TiB is not possible", "give a size"),
        (&["--scheduler", "nope"], "no request scheduler is called \"nope\"", "known: noop"),
        (&["--sweep", "nope=1"], "cannot sweep \"nope\"", "known: memory"),
        (&["--policy", "file", "--sweep", "zone=1MiB"], "cannot sweep \"zone\"", "chunk (of file)"),
        (&["--sweep", "memory=much"], "memory \"much\"", "write for example"),
        (&["--sweep", "seed=1", "--sweep", "seed=2"], "seed is swept twice", "seed=A,B,C"),
        (&["--metric", "nope"], "no figure is called \"nope\"", "known: time_s"),
        (&["--policy", ""], "names no policy", "umbrella lab list policies"),
        (&["--policy", ",,"], "names no policy", "umbrella lab list policies"),
    ];
    for (args, message, next) in wrong {
        refused(lab("compare").args(SMALL).args(args), 1, &[message, next]);
    }
    for (spec, message) in [
        ("nope", "there is no workload \"nope\" (known: seq-write"),
        ("rnd-write:fil=1", "rnd-write has no parameter \"fil\" (did you mean \"file\"?) (known: io, file, duration)"),
        ("rdn-write", "there is no workload \"rdn-write\" (did you mean \"rnd-write\"?)"),
        ("rnd-write:io=0", "\"0\" is not valid for io (give a size from 1 B"),
    ] {
        refused(lab("run").args(["--workload", spec]), 1, &[message]);
    }
    let disk = ["--workload", "rnd-write", "--disk", "nope"];
    refused(lab("run").args(disk), 1, &["no device is called \"nope\" (known: maxtor_80gb"]);
    refused(lab("run").args(SMALL).args(["--policy", "file,zone"]), 1, &["lab compare --policy file,zone"]);
    refused(lab("paper").arg("nope"), 1, &["no paper is called \"nope\" (known: tesa"]);
    refused(lab("paper").args(["tesa", "--figure", "99"]), 1, &["no figure \"99\" here (known:"]);
}

#[test]
fn wrong_usage_ends_with_2() {
    let wrong: [(&[&str], &str); 15] = [
        (&[], "--trace <FILE>|--workload <SPEC>"),
        (&["--workload", "rnd-write", "--trace", "x"], "cannot be used with"),
        (&["--workload", "rnd-write", "--json", "--csv"], "cannot be used with"),
        (&["--workload", "rnd-write", "--memory", "much"], "write for example"),
        (&["--workload", "rnd-write", "--seed", "18446744073709551616"], "a whole number from 0 to"),
        (&["--workload", "rnd-write", "--threads", "0"], "a whole number from 1 to 1024"),
        (&["--workload", "rnd-write", "--background", "10%"], "percent (without %) from 1 to 100"),
        (&["--workload", "rnd-write", "--read-ahead", "128KiB"], "pages of 4 KiB from 0 to 65536"),
        (&["--workload", "rnd-write", "--seed", "abc"], "give a whole number from 0 to 18446744073709551615"),
        (&["--workload", "rnd-write", "--depth", "many"], "a whole number from 1 to 65536"),
        (&["--workload", "rnd-write", "--sweep", "zone"], "for example zone=2MiB,4MiB,8MiB"),
        (&["--workload", "rnd-write", "--depth", "4"], "cannot be used with"),
        (&["--trace", "x", "--staging"], "cannot be used with"),
        (&["--trace", "x", "--aged", "50"], "cannot be used with"),
        (&["--trace", "x", "--speed", "0"], "a number from 0.001 to 1000000, or `max`"),
    ];
    for (args, message) in wrong {
        refused(lab("run").args(args), 2, &[message]);
    }
}

#[test]
fn more_runs_than_a_table_shows_are_refused_with_what_to_do() {
    let values = |most: u32| (1..=most).map(|value| value.to_string()).collect::<Vec<_>>().join(",");
    let (seeds, pages) = (format!("seed={}", values(101)), format!("read-ahead={}", values(100)));
    let mut compare = lab("compare");
    compare.args(["--workload", "rnd-write", "--policy", "file", "--sweep", &seeds, "--sweep", &pages]);
    refused(&mut compare, 1, &["more than 10000 runs", "or umbrella lab sweep (up to 1000000)"]);
}

#[test]
fn a_scale_that_is_none_is_refused() {
    for scale in ["0", "2", "-1", "NaN", "inf"] {
        refused(lab("run").args(["--workload", "rnd-write", "--scale", scale]), 1, &["a number from 0.000001 to 1"]);
    }
}

#[test]
fn too_little_memory_is_reported_before_anything_runs() {
    for memory in ["0", "1", "4KiB", "1MiB"] {
        let message = ["memory \"", "too little at scale 0.002", "at least 256 KiB"];
        refused(lab("run").args(SMALL).args(["--memory", memory]), 1, &message);
    }
    refused(lab("run").args(["--workload", "rnd-write", "--scale", "1e-300"]), 1, &["is not a scale"]);
    refused(lab("compare").args(SMALL).args(["--sweep", "memory=512MiB,0"]), 1, &["too little"]);
    let least = ["--workload", "seq-write:duration=10ms", "--disk", "cheetah_10k7", "--memory", "256KiB"];
    given(lab("compare").args(least));
}

#[test]
fn a_sweep_takes_no_value_that_its_option_would_not() {
    for sweep in ["background=0", "foreground=101", "queue-length=0", "queue-depth=4000000000", "read-ahead=70000"] {
        refused(lab("compare").args(SMALL).args(["--sweep", sweep]), 1, &["a whole number from"]);
    }
    for sweep in ["scale=0", "scale=NaN", "disk=nope"] {
        refused(lab("compare").args(SMALL).args(["--sweep", sweep]), 1, &[]);
    }
    for read_ahead in ["0", "1", "3"] {
        given(lab("compare").args([
            "--workload",
            "videoserver",
            "--scale",
            "0.002",
            "--sweep",
            &format!("read-ahead={read_ahead}"),
        ]));
    }
    let many = (0..200).map(|n| n.to_string()).collect::<Vec<_>>().join(",");
    let sweeps = ["--sweep", &format!("seed={many}"), "--sweep", &format!("read-ahead={many}")];
    refused(lab("compare").args(SMALL).args(sweeps), 1, &["sweep fewer values"]);
}

#[test]
fn a_replay_can_be_swept() {
    let (_folder, path) = usual_trace();
    let replay = |sweep: &str| {
        let mut compare = lab("compare");
        compare.arg("--trace").arg(&path).args(["--policy", "file", "--sweep", sweep]);
        compare
    };
    let said = given(replay("speed=1,100,max").args(["--csv", "--sweep", "depth=1,8"]));
    let times: Vec<f64> = column(&said, "time_s").iter().map(|time| time.parse().expect("a number")).collect();
    assert_eq!(times.len(), 6, "{said}");
    assert!(times[1] > times[3] && times[3] >= times[5], "faster and faster: {times:?}");
    for (sweep, message) in [
        ("speed=0", "a number from 0.001"),
        ("speed=fast", "or `max`"),
        ("depth=0", "a whole number from 1 to 65536"),
        ("width=1", "speed, depth"),
    ] {
        refused(&mut replay(sweep), 1, &[message]);
    }
    refused(lab("compare").args(SMALL).args(["--sweep", "depth=1,2"]), 1, &["depth"]);
}

#[test]
fn a_file_system_ages_before_the_run() {
    let run = |aged: &str| {
        let untar = ["--workload", "untar", "--scale", "0.01", "--disk", "cheetah_10k7", "--aged", aged, "--json"];
        let said = given(lab("run").args(untar));
        let results: serde_json::Value = serde_json::from_str(&said).expect("JSON");
        results[0]["write_requests"].as_u64().expect("a number")
    };
    let (new, aged) = (run("0"), run("20"));
    assert!(aged > new, "what is free lies scattered: {new} requests on a new file system, {aged} on an aged one");
    let workload = ["--workload", "untar", "--aged"];
    refused(
        lab("run").args(workload).arg("80"),
        1,
        &["aged \"80\"", "too large to be aged", "at most 512 GiB", "maxtor_80gb"],
    );
    refused(lab("run").args(workload).arg("96"), 2, &["a whole number of percent (without %) from 0 to 95"]);
    let sweep = ["--sweep", "aged=0,96"];
    refused(lab("compare").args(SMALL).args(sweep), 1, &["a whole number from 0 to 95"]);
}

#[test]
fn a_file_larger_than_the_disk_is_refused_at_once() {
    let begun = Instant::now();
    let file = ["--workload", "rnd-write:file=100TiB", "--disk", "cheetah_10k7"];
    refused(lab("run").args(file), 1, &["a file of 100 TiB does not fit", "a larger --disk"]);
    // To lay it out would take hours.
    assert!(begun.elapsed() < Duration::from_secs(60));
}

#[test]
fn what_is_no_trace_is_reported_once_and_by_name() {
    let folder = TempDir::new().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    fs::write(path("empty"), "").expect("a file");
    fs::write(path("garbage"), "lorem ipsum\n").expect("a file");
    assert!(Command::new("mkfifo").arg(path("pipe")).status().expect("mkfifo").success());
    for (path, message) in [
        (path("missing"), "missing: No such file"),
        (path("empty"), "empty: the trace is empty"),
        (path("garbage"), "garbage: not a trace in a known format"),
        (path("pipe"), "pipe can be read only once, and each run reads the trace again: save it to a file first"),
        (folder.path().to_owned(), "is a directory, not a trace"),
        (PathBuf::from("-"), "standard input can be read only once"),
    ] {
        let mut command = lab("run");
        command.arg("--trace").arg(&path);
        refused(&mut command, 1, &[message]);
        let reported = said(&output(&mut command));
        assert_eq!(reported.matches(message).count(), 1, "{reported}");
        assert_eq!(reported.lines().count(), 1, "{reported}");
    }
}

#[test]
fn a_paper_names_a_trace_that_cannot_be_used_once_and_as_it_was_given() {
    let (folder, reads) = trace("a day.csv", ["0,d,R,0,4096,".to_owned()]);
    let missing = folder.path().join("none.csv");
    for (paper, path, message) in [
        ("r-lfs", &missing, "none.csv: No such file"),
        ("nvcache", &missing, "none.csv: No such file"),
        ("r-lfs", &reads, "a day.csv: nothing is written"),
    ] {
        let mut command = lab("paper");
        command.args([paper, "--quick", "--trace"]).arg(path);
        refused(&mut command, 1, &[message]);
        let reported = said(&output(&mut command));
        assert_eq!(reported.matches(".csv").count(), 1, "{reported}");
    }
}

#[test]
fn a_trace_without_requests_is_refused() {
    for lines in [vec![], vec!["0,d,D,0,4096,".to_owned(), "5,d,D,4096,4096,".to_owned()]] {
        let (_folder, path) = trace("no.csv", lines);
        refused(lab("run").arg("--trace").arg(path), 1, &["no.csv: no reads or writes to replay"]);
    }
    let (_folder, path) = usual_trace();
    refused(
        lab("run").arg("--trace").arg(path).args(["--device", "2"]),
        1,
        &["no device 2: it has 2 (numbered from 0)"],
    );
}

#[test]
fn the_error_of_an_unsorted_trace_says_how_to_sort_it() {
    let (folder, path) = trace("jumbled.csv", (1..=3000).rev().map(|i| format!("{i}000,d,W,{},4096,", i * 8192)));
    refused(lab("run").arg("--trace").arg(&path), 1, &["umbrella lab trace convert --sort"]);
    let sorted = folder.path().join("sorted.csv");
    given(lab("trace").args(["convert", "--sort"]).arg(&path).arg(&sorted));
    assert_eq!(json(lab("run").arg("--trace").arg(sorted))[0]["operations"], 3000);
}

#[test]
fn a_damaged_trace_runs_as_far_as_asked_and_says_what_was_left_out() {
    let begun = ["0,d,W,0,4096,", "5,d,rubbish", "6,d,W,4096,4096,", "7,d,W,8192,4096,"].map(str::to_owned);
    let later = (0..4).map(|n| format!("900000000000000{n},d,W,{},4096,", n * 8192));
    let (folder, path) = trace("bad.csv", begun.into_iter().chain(later));
    let run = |args: &[&str]| {
        let mut run = lab("run");
        run.arg("--trace").arg(&path).args(args);
        run
    };
    refused(&mut run(&[]), 1, &["bad.csv: line 3"]);
    refused(&mut run(&["--lenient"]), 1, &["--max-gap"]);
    let done = output(&mut run(&["--lenient", "--max-gap", "200000d", "--speed", "max", "--json"]));
    assert!(said(&done).contains("left out 1 line that cannot be read; the first is line 3"), "{}", said(&done));
    let outcomes: Value = serde_json::from_slice(&done.stdout).expect("JSON");
    assert_eq!(outcomes[0]["operations"], 7);
    let options = &outcomes[0]["setting"]["options"];
    assert_eq!((&options["lenient"], &options["max-gap"]), (&"".into(), &"200000d".into()));
    let page = folder.path().join("page.html");
    given(run(&["--lenient", "--max-gap", "200000d", "--speed", "max", "--html"]).arg(&page));
    assert!(fs::read_to_string(page).expect("a page").contains("--lenient --max-gap 200000d"));
    refused(lab("run").args(SMALL).arg("--lenient"), 2, &["cannot be used with"]);
}

#[test]
fn a_hostile_file_name_does_not_steer_the_terminal() {
    let (folder, path) = trace("day\u{1b}[2J.csv", ["0,d,W,0,4096,".to_owned()]);
    assert!(!given(lab("run").arg("--trace").arg(&path)).contains('\u{1b}'));
    let missing = folder.path().join("no\u{1b}[2J");
    let events = folder.path().join("events\u{1b}[2J");
    fs::write(&events, "umbrella-events 1\npolicy no\u{1b}[2J\n").expect("a record");
    for args in [["--trace".as_ref(), missing.as_os_str()], ["--events".as_ref(), events.as_os_str()]] {
        let done = output(lab("run").args(args));
        assert!(!done.status.success() && !said(&done).contains('\u{1b}'), "{:?}", said(&done));
    }
}

#[test]
fn addresses_beyond_the_disk_are_refused_or_wrapped() {
    let beyond = ["0,d,W,2000000000000,4096,", "10,d,R,4096,4096,", "20,d,W,18000000000000000000,1048576,"];
    let (_folder, path) = trace("beyond.csv", beyond.map(str::to_owned));
    let run = || {
        let mut run = lab("run");
        run.arg("--trace").arg(&path).args(["--disk", "cheetah_10k7"]);
        run
    };
    refused(
        &mut run(),
        1,
        &["reaches to 15987.2 PiB, beyond the end of cheetah_10k7", "no --disk is large enough: use --fit wrap"],
    );
    let wrapped = json(run().args(["--fit", "wrap"]));
    assert_eq!(wrapped[0]["bytes_requested_write"], 4096 + (1 << 20));
    assert_eq!(wrapped[0]["bytes_written"], 4096 + (1 << 20));
}

#[test]
fn the_error_of_a_trace_beyond_the_disk_names_disks_that_are_large_enough() {
    let (_folder, path) = trace("beyond.csv", ["0,d,W,2000000000000,4096,".to_owned()]);
    let message =
        ["beyond.csv reaches to 1.8 TiB, beyond the end of cheetah_10k7 at ", " GiB (a larger --disk: modern; or"];
    refused(lab("run").arg("--trace").arg(path).args(["--disk", "cheetah_10k7"]), 1, &message);
}

#[test]
fn disks_are_listed_with_kind_and_capacity() {
    let disks: Vec<Value> = serde_json::from_str(&given(lab("list").args(["disks", "--json"]))).expect("JSON");
    let of = |name: &str| disks.iter().find(|disk| disk["name"] == name).expect("a disk");
    assert_eq!(of("modern")["kind"], "rotating disk");
    assert_eq!(of("sata_ssd")["kind"], "flash drive");
    assert!(disks.iter().all(|disk| disk["capacity_bytes"].as_u64().is_some_and(|bytes| bytes > 100 << 20)));
    let text = given(lab("list").arg("disks"));
    assert!(text.contains("rotating disk, 14.") && text.contains("flash drive, "), "{text}");
}

#[test]
fn a_trace_is_not_shrunk_and_a_workload_not_replayed() {
    let (_folder, path) = usual_trace();
    for scale in ["0.5", "NaN"] {
        refused(lab("run").arg("--trace").arg(&path).args(["--scale", scale]), 1, &["only workloads shrink"]);
    }
    refused(lab("run").args(SMALL).args(["--fit", "wrap"]), 2, &["cannot be used with"]);
}

#[test]
fn what_is_dirty_after_the_pages_of_deleted_files_had_waited_reaches_the_disk() {
    for policy in ["sweep", "two_queue"] {
        let bonnie = ["--workload", "bonnie:size=1MiB,seeks=10", "--disk", "cheetah_10k7", "--memory", "10MiB"];
        json(lab("run").args(bonnie).args(["--policy", policy]));
    }
}

#[test]
fn the_most_requests_at_once_and_the_largest_seed_run() {
    let (_folder, path) = usual_trace();
    let deep = json(lab("run").arg("--trace").arg(&path).args(["--depth", "65536", "--speed", "max"]));
    assert_eq!(deep[0]["operations"], 2000);
    let seed = json(lab("run").args(SMALL).args(["--seed", "18446744073709551615"]));
    assert_eq!(seed[0]["setting"]["seed"], u64::MAX);
}

#[test]
fn the_same_seed_gives_the_same_figures_with_any_number_of_threads() {
    let compare = |seed: &str, threads: &str| {
        given(lab("compare").args(SMALL).args([
            "--policy",
            "file,zone,sweep,clairvoyant",
            "--json",
            "--seed",
            seed,
            "--threads",
            threads,
        ]))
    };
    let first = compare("7", "1");
    assert_eq!(first, compare("7", "1"));
    assert_eq!(first, compare("7", "2"));
    assert_ne!(first, compare("8", "2"));
}

#[test]
fn json_has_every_figure_and_enough_to_run_it_again() {
    let outcomes =
        json(lab("compare").args(SMALL).args(ONE_SEED).args(["--policy", "file,zone_segment:alpha=5,zone=4MiB"]));
    assert_eq!(policies(&outcomes), ["file", "zone_segment:alpha=5,zone=4MiB"]);
    for outcome in &outcomes {
        let setting = &outcome["setting"];
        assert_eq!((&setting["input"], &setting["disk"]), (&"rnd-write".into(), &"cheetah_10k7".into()));
        assert_eq!((&setting["seed"], &setting["scale"]), (&1.into(), &0.002.into()));
        assert_eq!(outcome["interrupted"], false);
        for figure in ["time_s", "drained_s", "operations", "bytes_written", "write_requests", "peak_dirty"] {
            assert!(outcome[figure].as_f64().is_some_and(|value| value > 0.0), "{figure}: {outcome}");
        }
        for figure in ["read", "write", "fsync", "windows", "written_because"] {
            assert!(outcome[figure].is_object(), "{figure}: {outcome}");
        }
        assert!(outcome["write"]["p50"].as_f64() <= outcome["write"]["p99"].as_f64());
    }
}

#[test]
fn csv_has_a_line_a_run_and_a_column_a_figure() {
    let text = given(lab("compare").args(SMALL).args(ONE_SEED).args([
        "--csv",
        "--policy",
        "file,zone_segment:alpha=5,zone=4MiB",
        "--sweep",
        "memory=256MiB,512MiB",
    ]));
    let lines: Vec<Vec<String>> = text.lines().map(fields).collect();
    assert_eq!(lines.len(), 5, "{text}");
    assert!(lines.iter().all(|line| line.len() == lines[0].len()), "{text}");
    let metrics: Vec<Value> = serde_json::from_str(&given(lab("list").args(["metrics", "--json"]))).expect("JSON");
    for metric in metrics {
        let name = metric["name"].as_str().expect("a name");
        let place = lines[0].iter().position(|heading| heading == name).expect(name);
        assert!(lines[1..].iter().all(|line| line[place].parse::<f64>().is_ok()), "{name}");
    }
    assert_eq!(lines[3][0], "zone_segment:alpha=5,zone=4MiB");
}

/// The cells of a CSV column, from the top.
fn column(text: &str, name: &str) -> Vec<String> {
    let lines: Vec<Vec<String>> = text.lines().map(fields).collect();
    let places: Vec<usize> = (0..lines[0].len()).filter(|place| lines[0][*place] == name).collect();
    assert_eq!(places.len(), 1, "{name} in {}", lines[0].join(","));
    lines[1..].iter().map(|line| line[places[0]].clone()).collect()
}

#[test]
fn csv_tells_runs_with_other_options_apart() {
    let run = |more: &[&str]| given(lab("run").args(SMALL).args(more).arg("--csv"));
    assert_eq!(column(&run(&[]), "options"), [""]);
    let text = run(&["--background", "5", "--delayed-allocation", "--read-ahead", "8"]);
    assert_eq!(column(&text, "options"), ["background=5 delayed-allocation read-ahead=8"]);
    let (_folder, path) = usual_trace();
    let text = given(lab("run").arg("--trace").arg(path).args(["--speed", "max", "--csv"]));
    assert_eq!(column(&text, "options"), ["speed=max"]);
}

#[test]
fn csv_gives_no_swept_parameter_twice() {
    let sweeps = ["--sweep", "seed=1,2", "--sweep", "disk=cheetah_10k7,modern", "--sweep", "background=5,10"];
    let text = given(lab("compare").args(SMALL).args(["--policy", "file", "--csv"]).args(sweeps));
    assert_eq!(column(&text, "seed"), ["1", "1", "1", "1", "2", "2", "2", "2"]);
    assert_eq!(column(&text, "disk")[1..3], ["cheetah_10k7", "modern"]);
    assert_eq!(column(&text, "background")[..2], ["5", "10"]);
}

#[test]
fn run_shows_the_figures_that_were_chosen() {
    let all = given(lab("run").args(SMALL));
    assert!(all.contains("\n  time_s ") && all.contains("\n  peak_dirty "), "{all}");
    let text = given(lab("run").args(SMALL).args(["--metric", "seeks,time_s"]));
    let names: Vec<&str> = text.lines().skip(1).filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(names, ["seeks", "time_s"], "{text}");
}

#[test]
fn the_table_has_the_time_until_everything_is_on_disk() {
    let text = given(lab("compare").args(SMALL).args(["--policy", "file,zone"]));
    let heading = text.lines().find(|line| line.starts_with("POLICY")).expect("a heading");
    assert_eq!(heading.split_whitespace().take(3).collect::<Vec<_>>(), ["POLICY", "TIME", "DRAINED"], "{text}");
}

#[test]
fn a_comparison_runs_a_workload_with_three_seeds_and_a_trace_once() {
    let seeds = |outcomes: &[Value]| outcomes.iter().map(|of| of["setting"]["seed"].to_string()).collect::<Vec<_>>();
    assert_eq!(seeds(&json(lab("compare").args(SMALL).args(["--policy", "file"]))), ["1", "2", "3"]);
    assert_eq!(seeds(&json(lab("compare").args(SMALL).args(["--policy", "file", "--seed", "5"]))), ["5"]);
    assert_eq!(seeds(&json(lab("compare").args(SMALL).args(["--policy", "file", "--sweep", "seed=7,8"]))), ["7", "8"]);
    assert_eq!(seeds(&json(lab("run").args(SMALL))), ["1"]);
    let folder = TempDir::new().expect("a folder");
    let trace = folder.path().join("trace.csv");
    fs::write(&trace, "0,0,W,0,4096,\n5,0,W,8192,4096,\n").expect("a trace");
    assert_eq!(seeds(&json(lab("compare").arg("--trace").arg(&trace).args(["--policy", "file"]))), ["1"]);
}

#[test]
fn a_table_has_a_hundred_columns_unless_all_of_it_is_asked_for() {
    let table = |more: &[&str]| given(lab("compare").args(SMALL).args(["--policy", "file,zone"]).args(more));
    let longest = |text: &str| text.lines().skip(1).map(|line| line.chars().count()).max().expect("lines");
    let usual = table(&[]);
    assert!(longest(&usual) <= 100 && usual.contains("(--wide shows all"), "{usual}");
    let wide = table(&["--wide"]);
    assert!(longest(&wide) > 100 && !wide.contains("--wide"), "{wide}");
}

#[test]
fn a_line_above_the_table_says_what_the_runs_share() {
    let above =
        |command: &mut Command| given(command.args(["--policy", "file,zone"])).lines().next().map(str::to_owned);
    let small = || {
        let mut small = lab("compare");
        small.args(SMALL);
        small
    };
    let several = "rnd-write on cheetah_10k7, 1 MiB of memory, scale 0.002, mean of 3 seeds";
    assert_eq!(above(&mut small()).as_deref(), Some(several));
    let line = "rnd-write on cheetah_10k7, 1 MiB of memory, scale 0.002, seed 1";
    assert_eq!(above(small().args(ONE_SEED)).as_deref(), Some(line));
    let more = ["--scheduler", "deadline", "--staging", "--background", "5", "--delayed-allocation"];
    let all = format!("{line}, --scheduler deadline, --staging, --background 5, --delayed-allocation");
    assert_eq!(above(small().args(ONE_SEED).args(more)), Some(all));
    let sweeps = ["--sweep", "seed=1,2", "--sweep", "background=5,6", "--sweep", "disk=cheetah_10k7,modern"];
    assert_eq!(
        above(small().args(sweeps)).as_deref(),
        Some("rnd-write, 1 MiB of memory, scale 0.002, mean of 2 seeds")
    );
    let (_folder, path) = usual_trace();
    let trace = above(lab("compare").arg("--trace").arg(path).args(["--speed", "max"]));
    assert_eq!(trace.as_deref(), Some("a day.csv on modern, 512 MiB of memory, seed 1, --speed max"));
}

#[test]
fn seeds_are_one_row_in_the_table_and_a_run_each_in_json_and_csv() {
    let compare = |more: &[&str]| {
        let mut compare = lab("compare");
        compare.args(SMALL).args(["--policy", "file,cscan", "--sweep", "seed=1,2,3"]).args(more);
        compare
    };
    let text = given(&mut compare(&["--metric", "throughput,write_distance"]));
    let names: Vec<&str> = text.lines().skip(1).filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(names[..3], ["POLICY", "file", "cscan"], "{text}");
    assert!(text.starts_with("rnd-write on cheetah_10k7, 1 MiB of memory, scale 0.002, mean of 3 seeds\n"), "{text}");
    assert_eq!(text.matches("seed").count(), 1, "{text}");
    assert!(text.contains("\u{b1}"), "{text}");
    assert_eq!(json(&mut compare(&[])).len(), 6);
    assert_eq!(column(&given(&mut compare(&["--csv"])), "seed"), ["1", "2", "3", "1", "2", "3"]);
}

#[test]
fn a_figure_that_was_asked_for_is_shown_though_it_is_zero() {
    let small = ["--policy", "file,zone"];
    let text = given(lab("compare").args(SMALL).args(small).args(["--metric", "time_s,erases,"]));
    assert!(text.contains("ERASES"), "{text}");
    assert!(!given(lab("compare").args(SMALL).args(small)).contains("ERASES"));
    refused(lab("compare").args(SMALL).args(["--metric", ","]), 1, &["--metric names no figure"]);
}

#[test]
fn the_line_above_one_run_says_what_differs_from_the_defaults() {
    let head = |command: &mut Command| given(command).lines().next().map(str::to_owned);
    let more = ["--expire", "never", "--queue-depth", "4", "--write-cache", "false"];
    let line = "zone: rnd-write on cheetah_10k7, 1 MiB of memory, scale 0.002, seed 1, \
                --expire never, --queue-depth 4, --write-cache false";
    assert_eq!(head(lab("run").args(SMALL).args(["--policy", "zone"]).args(more)).as_deref(), Some(line));
    let (_folder, path) = usual_trace();
    let trace = head(lab("run").arg("--trace").arg(path).args(["--speed", "max"]));
    assert_eq!(trace.as_deref(), Some("file: a day.csv on modern, 512 MiB of memory, seed 1, --speed max"));
}

#[test]
fn a_run_that_depends_little_on_its_policy_says_so() {
    let (_folder, path) = usual_trace();
    let run = given(lab("run").arg("--trace").arg(path));
    assert!(run.contains("the policies chose hardly any pages. Give less --memory"), "{run}");
    let (_folder, path) = trace("reads.csv", ["0,d,R,0,4096,".to_owned()]);
    let reads = given(lab("run").arg("--trace").arg(path));
    assert!(reads.ends_with("Nothing was written, so the policies chose nothing.\n"), "{reads}");
}

#[test]
fn a_comparison_that_depends_little_on_the_policies_says_so() {
    let (_folder, path) = usual_trace();
    let compare = |memory: &str| {
        given(lab("compare").arg("--trace").arg(&path).args(["--policy", "file,zone", "--memory", memory]))
    };
    let much = compare("512MiB");
    let page = path.with_file_name("page.html");
    let same = ["--policy", "file,zone", "--memory", "512MiB", "--html"];
    given(lab("compare").arg("--trace").arg(&path).args(same).arg(&page));
    assert!(fs::read_to_string(page).expect("a page").contains("the policies chose hardly any pages"));
    let last = much.lines().last().expect("a line");
    assert!(last.contains("the policies chose hardly any pages") && last.contains("Give less --memory"), "{much}");
    let little = compare("4MiB");
    assert!(!little.contains("hardly any pages"), "{little}");
}

/// The fields of a line of CSV without line ends in its fields.
fn fields(line: &str) -> Vec<String> {
    let (mut fields, mut quoted) = (vec![String::new()], false);
    for c in line.chars() {
        match c {
            '"' => quoted = !quoted,
            ',' if !quoted => fields.push(String::new()),
            c => fields.last_mut().expect("a field").push(c),
        }
    }
    fields
}

#[test]
fn a_policy_without_the_swept_parameter_runs_once() {
    let outcomes =
        json(lab("compare").args(SMALL).args(ONE_SEED).args(["--policy", "zone,file", "--sweep", "zone=2MiB,4MiB"]));
    assert_eq!(policies(&outcomes), ["zone:zone=2MiB", "zone:zone=4MiB", "file"]);
}

#[test]
fn two_sweeps_run_each_value_with_each() {
    let sweeps = ["--sweep", "zone=2MiB,4MiB", "--sweep", "memory=256MiB,512MiB"];
    let outcomes = json(lab("compare").args(SMALL).args(ONE_SEED).args(["--policy", "zone,file"]).args(sweeps));
    let swept: Vec<String> = outcomes.iter().map(|outcome| outcome["setting"]["swept"].to_string()).collect();
    assert_eq!(
        swept,
        [
            r#"{"memory":"256MiB","zone":"2MiB"}"#,
            r#"{"memory":"512MiB","zone":"2MiB"}"#,
            r#"{"memory":"256MiB","zone":"4MiB"}"#,
            r#"{"memory":"512MiB","zone":"4MiB"}"#,
            r#"{"memory":"256MiB"}"#,
            r#"{"memory":"512MiB"}"#,
        ]
    );
    let table = given(lab("compare").args(SMALL).args(["--policy", "zone,file"]).args(sweeps));
    assert!(table.contains("\nzone:zone=4MiB, memory=256MiB "), "{table}");
}

/// Runs the commands that the page shows; they must give the same figures.
fn page_repeats(compare: &mut Command) {
    let folder = TempDir::new().expect("a folder");
    let page = folder.path().join("page.html");
    let outcomes = json(compare.arg("--html").arg(&page));
    let page = fs::read_to_string(page).expect("a page");
    let shown = page.split("<pre class=\"commands\">").nth(1).and_then(|rest| rest.split("</pre>").next());
    let shown = shown.expect("commands").replace("&#39;", "'").replace("&quot;", "\"").replace("&amp;", "&");
    let commands: Vec<&str> = shown.lines().filter(|line| line.starts_with("umbrella lab run ")).collect();
    assert_eq!(commands.len(), outcomes.len(), "{shown}");
    let mut repeated = Vec::new();
    for command in commands {
        let command = format!("{} --json", command.replacen("umbrella", env!("CARGO_BIN_EXE_umbrella"), 1));
        let text = given(Command::new("sh").args(["-c", &command]));
        repeated.extend(serde_json::from_str::<Vec<Value>>(&text).expect("JSON"));
    }
    let sorted = |outcomes: Vec<Value>| {
        let mut texts: Vec<String> = without_setting(outcomes).iter().map(Value::to_string).collect();
        texts.sort();
        texts
    };
    assert_eq!(sorted(repeated), sorted(outcomes));
}

#[test]
fn the_commands_on_the_page_repeat_the_runs() {
    page_repeats(lab("compare").args(SMALL).args([
        "--policy",
        "file,zone_segment:alpha=5,zone=4MiB,clairvoyant",
        "--sweep",
        "expire=5s,never",
        "--seed",
        "3",
        "--staging",
        "--background",
        "5",
    ]));
    let (_folder, path) = usual_trace();
    page_repeats(lab("compare").arg("--trace").arg(path).args([
        "--policy",
        "file,sweep",
        "--sweep",
        "memory=4MiB,8MiB",
        "--speed",
        "2.5",
        "--depth",
        "3",
        "--device",
        "1",
        "--disk",
        "slc_memoright",
    ]));
}

#[test]
fn a_page_that_cannot_be_written_is_reported_before_anything_runs() {
    let (folder, path) = usual_trace();
    let run = |page: &Path| {
        let mut run = lab("run");
        run.arg("--trace").arg(&path).arg("--html").arg(page);
        run
    };
    refused(
        &mut run(Path::new("/nonexistent/x.html")),
        1,
        &["the directory /nonexistent does not exist (create it first)"],
    );
    refused(&mut run(folder.path()), 1, &["not a regular file (give the name of the page"]);
    refused(&mut run(Path::new("/dev/null")), 1, &["not a regular file"]);
    let before = fs::read(&path).expect("a trace");
    refused(&mut run(&path), 1, &["this is the trace"]);
    assert_eq!(fs::read(&path).expect("a trace"), before);
}

/// Runs the lab where a folder is an empty file system that nobody can write.
fn with_empty(folder: &str, args: &[&str]) -> Output {
    let mount = "mount -t tmpfs -o ro none \"$0\" && exec \"$@\"";
    let mut run = Command::new("unshare");
    run.args(["--mount", "sh", "-c", mount, folder, env!("CARGO_BIN_EXE_umbrella"), "lab"]).args(args);
    run.env_remove("RUST_LOG").output().expect("unshare can be started")
}

#[test]
fn a_page_on_a_read_only_file_system_is_reported_before_anything_runs() {
    let folder = TempDir::new().expect("a folder");
    let page = folder.path().join("x.html");
    let args = ["run", "--workload", "rnd-write:duration=1000h", "--html", page.to_str().expect("text")];
    let done = with_empty(folder.path().to_str().expect("text"), &args);
    assert!(!done.status.success() && said(&done).contains("cannot write there"), "{}", said(&done));
}

#[test]
fn the_output_says_that_a_load_is_synthetic() {
    let args = ["compare", "--workload", "dbench:duration=10ms", "--policy", "file,cscan", "--scale", "0.1"];
    let done = with_empty("/usr/share/dbench", &args);
    assert!(done.status.success(), "{}", said(&done));
    assert_eq!(said(&done).matches("client.txt is missing, so a synthetic load").count(), 1, "{}", said(&done));
}

#[test]
fn json_has_every_figure_by_the_name_that_tables_have() {
    let run = |format: &str| given(lab("run").args(SMALL).arg(format));
    let results: Value = serde_json::from_str(&run("--json")).expect("JSON");
    let figures = results[0]["figures"].as_object().expect("an object");
    let csv = run("--csv");
    let mut lines = csv.lines();
    let (names, values) = (lines.next().expect("a heading").split(','), lines.next().expect("a line").split(','));
    let numbers: Vec<_> = names.zip(values).filter(|(name, _)| figures.contains_key(*name)).collect();
    assert!(numbers.len() == figures.len() && numbers.len() > 20, "{figures:?}");
    for (name, value) in numbers {
        let (json, csv) = (figures[name].as_f64(), value.parse::<f64>().ok());
        // The JSON is read to the last digit but one.
        let is_same = |(json, csv): (f64, f64)| (json - csv).abs() <= csv.abs() * 1e-14;
        assert!(json.is_some() == csv.is_some() && json.zip(csv).is_none_or(is_same), "{name}: {json:?}, {csv:?}");
    }
}

#[test]
fn a_page_replaces_the_one_before_and_leaves_nothing_else() {
    let folder = TempDir::new().expect("a folder");
    let page = folder.path().join("page.html");
    fs::write(&page, "old").expect("a page");
    let text = given(lab("run").args(SMALL).arg("--html").arg(&page));
    assert!(text.ends_with(&format!("page: {}\n", page.display())), "{text}");
    let page = fs::read_to_string(page).expect("a page");
    assert!(page.starts_with("<!DOCTYPE html>") && page.trim_end().ends_with("</html>"));
    assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 1);
}

#[test]
fn a_scale_at_which_little_can_be_ordered_is_warned_of() {
    let warned = said(&output(lab("compare").args(SMALL)));
    assert!(warned.contains("at scale 0.002 policies choose 3 pages at a time instead of 1024"), "{warned}");
    assert_eq!(warned.lines().count(), 1, "once for all runs: {warned}");
}

#[test]
fn without_a_terminal_there_is_only_the_table() {
    let done = output(lab("compare").args(TENTH).args(["--policy", "file,zone"]));
    let text = String::from_utf8(done.stdout.clone()).expect("text");
    assert!(text.starts_with("rnd-write:duration=1s on cheetah_10k7, "), "{text}");
    assert!(text.contains("\nPOLICY ") && text.contains("\nzone "), "{text}");
    assert!(!text.contains('\u{1b}'), "{text}");
    assert_eq!(said(&done), "");
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let (_folder, path) = usual_trace();
    let trace = path.to_str().expect("text");
    let small: Vec<&str> = TENTH.to_vec();
    let convert = vec!["convert", trace, "-"];
    for args in [["compare", "--json"].as_slice(), &["compare", "--csv"], &["trace"]] {
        let rest = if args[0] == "trace" { &convert } else { &small };
        let mut child = lab(args[0])
            .args(rest)
            .args(&args[1..])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program can be started");
        drop(child.stdout.take());
        let done = child.wait_with_output().expect("an end");
        assert!(done.status.success() && done.stderr.is_empty(), "{args:?}: {}", said(&done));
    }
}

#[test]
fn a_full_disk_for_the_output_is_reported_once() {
    let full = fs::OpenOptions::new().write(true).open("/dev/full").expect("/dev/full");
    let done = output(lab("run").args(TENTH).stdout(full));
    assert_eq!(done.status.code(), Some(1));
    assert_eq!(said(&done), "umbrella: writing the output: No space left on device (os error 28)\n");
}

#[test]
fn lists_name_what_the_options_take() {
    for (what, option) in [("policies", "--policy"), ("disks", "--disk"), ("schedulers", "--scheduler")] {
        let items: Vec<Value> = serde_json::from_str(&given(lab("list").args([what, "--json"]))).expect("JSON");
        let text = given(lab("list").arg(what));
        assert!(!items.is_empty());
        for item in &items {
            let name = item["name"].as_str().expect("a name");
            assert!(text.lines().any(|line| line.starts_with(name)), "{name} in\n{text}");
        }
        let last = items.last().and_then(|item| item["name"].as_str()).expect("a name");
        let tiny = ["--workload", "seq-write:duration=10ms"];
        let disk: &[&str] = if option == "--disk" { &[] } else { &["--disk", "cheetah_10k7"] };
        given(lab("run").args(tiny).args(disk).args([option, last]));
    }
    refused(lab("list").arg("policis"), 2, &["a similar value exists: 'policies'"]);
}

fn takes_ctrl_c(child: &Child) {
    takes(child, 2);
}

/// Waits until the program has taken a signal upon itself; how long that takes depends on the machine's load.
fn takes(child: &Child, signal: i32) {
    let until = Instant::now() + Duration::from_secs(60);
    while Instant::now() < until {
        let status = fs::read_to_string(format!("/proc/{}/status", child.id())).expect("the program runs");
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).expect("its signals");
        if u64::from_str_radix(caught.trim(), 16).expect("a mask") & (1 << (signal - 1)) != 0 {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("the program never caught signal {signal}");
}

/// Waits until the program has used this much processor time. What it has done by then does not depend on what else the
/// machine does.
fn works_for(child: &Child, time: Duration) {
    let ticks_a_second = rustix::param::clock_ticks_per_second();
    let until = Instant::now() + Duration::from_secs(300);
    while Instant::now() < until {
        let stat = fs::read_to_string(format!("/proc/{}/stat", child.id())).expect("the program runs");
        // What follows the name begins with the third field; the times as a user and in the kernel are the fields 14
        // and 15.
        let fields: Vec<&str> = stat.rsplit_once(") ").expect("a name").1.split(' ').collect();
        let ticks: u64 = fields[11..13].iter().map(|field| field.parse::<u64>().expect("a time")).sum();
        if Duration::from_millis(ticks * 1000 / ticks_a_second) >= time {
            return;
        }
        assert!(!fields[0].starts_with('Z'), "the program ended before");
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("the program never worked for {time:?}");
}

fn interrupt(child: &Child) {
    send(child, "INT");
}

fn send(child: &Child, signal: &str) {
    let sent = Command::new("kill").args([&format!("-{signal}"), &child.id().to_string()]).status().expect("kill");
    assert!(sent.success());
}

fn ends_within(child: &mut Child, limit: Duration) -> Option<ExitStatus> {
    let until = Instant::now() + limit;
    while Instant::now() < until {
        if let Some(status) = child.try_wait().expect("a child") {
            return Some(status);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    None
}

#[test]
fn a_signal_keeps_what_has_finished() {
    for (signal, number) in [("INT", 2), ("TERM", 15), ("HUP", 1)] {
        keeps_what_has_finished(signal, number);
    }
}

fn keeps_what_has_finished(signal: &str, number: i32) {
    let folder = TempDir::new().expect("a folder");
    let results = folder.path().join("results");
    let seeds = (1..=5000).map(|seed| seed.to_string()).collect::<Vec<_>>().join(",");
    // As a terminal starts it, whatever nohup the tests were started with.
    let mut child = Command::new("env")
        .args(["-u", "RUST_LOG", "--default-signal=HUP", env!("CARGO_BIN_EXE_umbrella"), "lab", "compare"])
        .args(MODERATE)
        .args(["--policy", "file", "--threads", "1", "--json", "--sweep", &format!("seed={seeds}")])
        .stdout(fs::File::create(&results).expect("a file"))
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program can be started");
    takes(&child, number);
    works_for(&child, Duration::from_secs(2));
    send(&child, signal);
    let status = ends_within(&mut child, Duration::from_secs(60)).expect("an end");
    assert_eq!(status.code(), Some(128 + number));
    let outcomes: Vec<Value> =
        serde_json::from_str(&fs::read_to_string(results).expect("results")).expect("whole JSON");
    assert!(outcomes.len() > 1 && outcomes.len() < 5000, "{} runs", outcomes.len());
    let (last, others) = outcomes.split_last().expect("an outcome");
    assert!(others.iter().all(|outcome| outcome["interrupted"] == false));
    assert!(last["interrupted"].is_boolean());
}

/// A comparison of two long runs, one after the other; Ctrl-C cuts the first.
fn interrupted(options: &[&str]) -> Output {
    let mut child = lab("compare")
        .args(["--workload", "rnd-write:duration=1000h", "--disk", "cheetah_10k7", "--policy", "file,zone"])
        .args(ONE_SEED)
        .args(["--threads", "1"])
        .args(options)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program can be started");
    takes_ctrl_c(&child);
    works_for(&child, Duration::from_secs(1));
    interrupt(&child);
    ends_within(&mut child, Duration::from_secs(60)).expect("an end");
    child.wait_with_output().expect("output")
}

#[test]
fn ctrl_c_says_what_is_missing_and_the_cut_run_says_so() {
    let done = interrupted(&[]);
    assert_eq!(done.status.code(), Some(130));
    assert!(said(&done).contains("interrupted: 1 of 2 runs are shown"), "{}", said(&done));
    assert!(String::from_utf8_lossy(&done.stdout).contains("file (cut short)"));
}

#[test]
fn ctrl_c_says_what_is_missing_beside_json_and_on_the_page() {
    let folder = TempDir::new().expect("a folder");
    let page = folder.path().join("page.html");
    let done = interrupted(&["--json", "--html", page.to_str().expect("text")]);
    assert!(said(&done).contains("interrupted: 1 of 2 runs are shown"), "{}", said(&done));
    assert_eq!(serde_json::from_slice::<Vec<Value>>(&done.stdout).expect("JSON").len(), 1);
    assert!(fs::read_to_string(page).expect("a page").contains("1 of 2 runs are shown."));
}

#[test]
fn ctrl_c_ends_a_run_that_still_lays_out_its_files() {
    let mut child = lab("run")
        .args(["--workload", "rnd-write:file=1TiB", "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program can be started");
    takes_ctrl_c(&child);
    works_for(&child, Duration::from_millis(200));
    interrupt(&child);
    let status = ends_within(&mut child, Duration::from_secs(60));
    let _ = child.kill();
    let done = child.wait_with_output().expect("output");
    assert_eq!(status.and_then(|status| status.code()), Some(130));
    assert!(said(&done).contains("interrupted: 0 of 1 runs are shown"), "{}", said(&done));
    assert_eq!(String::from_utf8_lossy(&done.stdout).trim(), "[]", "a run that did nothing has no figures");
}

#[test]
fn ctrl_c_ends_a_run_whose_file_system_is_aged() {
    let mut child = lab("run")
        .args(["--workload", "untar", "--disk", "deskstar_500gb", "--aged", "80"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program can be started");
    takes_ctrl_c(&child);
    works_for(&child, Duration::from_millis(500));
    interrupt(&child);
    let status = ends_within(&mut child, Duration::from_secs(60));
    let _ = child.kill();
    let done = child.wait_with_output().expect("output");
    assert_eq!(status.and_then(|status| status.code()), Some(130), "still under way");
    assert!(said(&done).contains("interrupted: 0 of 1 runs are shown"), "{}", said(&done));
}

#[test]
fn a_second_ctrl_c_ends_it_even_while_nobody_reads_the_output() {
    let seeds = (1..=5000).map(|seed| seed.to_string()).collect::<Vec<_>>().join(",");
    let mut child = lab("compare")
        .args(MODERATE)
        .args(["--policy", "file", "--json", "--sweep", &format!("seed={seeds}")])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the program can be started");
    let pipe = child.stdout.take().expect("a pipe");
    // A few results fill it.
    rustix::pipe::fcntl_setpipe_size(&pipe, 4096).expect("a pipe can be as small as a page");
    takes_ctrl_c(&child);
    works_for(&child, Duration::from_secs(2));
    interrupt(&child);
    let until = Instant::now() + Duration::from_secs(60);
    while rustix::io::ioctl_fionread(&pipe).expect("a pipe") < 4096 && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(child.try_wait().expect("a child").is_none(), "the results do not fit into the pipe");
    interrupt(&child);
    let status = ends_within(&mut child, Duration::from_secs(60));
    let _ = child.kill();
    let _ = child.wait();
    assert_eq!(status.and_then(|status| status.code()), Some(130));
}

#[test]
fn a_paper_says_of_each_claim_whether_it_holds() {
    let text = given(lab("paper").args(["tesa", "--quick", "--figure", "Table I", "--json"]));
    let claims: Vec<Value> = serde_json::from_str(&text).expect("JSON");
    assert_eq!(claims.len(), 6);
    for claim in claims {
        assert_eq!((&claim["paper"], &claim["figure"]), (&"tesa".into(), &"Table I".into()));
        assert!(claim["published"].is_number() && claim["holds"].is_boolean() && claim["id"].is_string());
        assert_eq!(claim["reading"]["key"], "added");
        let other = &claim["other_readings"][0];
        assert!(other["reading"]["key"] == "index" && other["measured"].is_number(), "{claim}");
    }
}

#[test]
fn a_paper_says_what_its_claims_have_to_meet() {
    let text = given(lab("paper").args(["tesa", "--quick", "--figure", "4"]));
    assert!(text.contains(", within "), "{text}");
}

#[test]
fn the_hybrid_disk_of_a_paper_takes_traces_of_ones_own() {
    let (folder, path) = usual_trace();
    let figure = |id: &str| {
        let mut command = lab("paper");
        command.args(["nvcache", "--quick", "--figure", id]).env_remove("UMBRELLA_TRACES");
        command
    };
    let paper = || figure("5");
    let text = given(figure("4").arg("--trace").arg(&path).arg("--json"));
    let claims: Vec<Value> = serde_json::from_str(&text).expect("JSON");
    let name = path.file_name().and_then(|name| name.to_str()).and_then(|name| name.split('.').next()).expect("a name");
    // Five inputs are in the list of claims; a trace of your own is shown beside them.
    assert_eq!(claims.len(), 5, "{text}");
    assert!(claims[0]["measured"].is_number(), "{text}");
    assert_eq!(claims[0]["new_inputs"][0]["input"], *name, "{text}");
    for claim in &claims {
        assert_eq!((&claim["paper"], &claim["figure"]), (&"nvcache".into(), &"4".into()));
        assert!(claim["published"].is_number() && claim["holds"].is_boolean());
        assert_eq!(claim["measured"].is_null(), claim["verdict"] == "not_measured");
        let says = |key: &str| claim[key].as_str().is_some_and(|watts| watts.contains("assumed"));
        assert!(says("disk_watts") && says("flash_watts"), "{claim}");
    }
    let csv = given(paper().arg("--csv"));
    let columns = |line: &str| line.split(',').count();
    assert!(
        ["disk_watts", "flash_watts"].iter().all(|column| csv.lines().next().is_some_and(|head| head.contains(column))),
        "{csv}"
    );
    // Five algorithms at two times, and a head.
    assert_eq!(csv.lines().count(), 11, "{csv}");
    assert!(csv.lines().all(|line| columns(line) == columns(csv.lines().next().expect("a head"))), "{csv}");
    let shown = given(&mut paper());
    assert!(shown.contains("desktop_week: ") && shown.contains("docs/reproductions/nvcache.md"), "{shown}");
    refused(paper().arg("--trace").arg(folder.path().join("missing.csv")), 1, &["missing.csv"]);
    assert!(
        shown.contains("at least 75 %") && !shown.contains("at most 90"),
        "bounds are distinguished from values: {shown}"
    );
    for (named, reported) in
        [(folder.path().join("no"), "not a directory"), (folder.path().to_owned(), "none of the week-long")]
    {
        refused(figure("4").env("UMBRELLA_TRACES", named), 1, &["UMBRELLA_TRACES is /", reported]);
    }
    refused(lab("paper").args(["tesa", "--trace"]).arg(&path), 1, &["--trace is for nvcache"]);
    refused(lab("paper").args(["nvcache", "--figure", "99"]), 1, &["nvcache has no figure \"99\" here (known: 2.1,"]);
}

#[test]
fn the_log_of_a_paper_takes_traces_of_ones_own() {
    let line = |at: u64| {
        let op = if at.is_multiple_of(3) { "R" } else { "W" };
        format!("{at},d0,{op},{},4096,\n", at * 2_654_435_761 % 5000 * 8192)
    };
    let lines: Vec<String> = (0..6000).map(line).collect();
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("scattered.csv");
    fs::write(&path, format!("time_us,dev,op,offset_bytes,size_bytes,flags\n{}", lines.concat())).expect("a trace");
    let paper = || {
        let mut command = lab("paper");
        command.args(["r-lfs", "--quick", "--figure", "4"]).env_remove("UMBRELLA_TRACES");
        command
    };
    let text = given(paper().arg("--trace").arg(&path).arg("--json"));
    let claims: Vec<Value> = serde_json::from_str(&text).expect("JSON");
    let new = claims.iter().filter_map(|claim| claim["new_inputs"].as_array()).flatten();
    assert_eq!(new.filter(|new| new["input"] == "scattered").count(), 5, "{text}");
    for claim in &claims {
        assert_eq!((&claim["paper"], &claim["figure"]), (&"r-lfs".into(), &"3, 4".into()));
        assert!(claim["published"].is_number() && claim["holds"].is_boolean());
    }
    let csv = given(paper().arg("--csv"));
    let head = csv.lines().next().expect("a head");
    assert!(head.split(',').any(|column| column == "write_amplification"), "{head}");
    let shown = given(lab("paper").args(["r-lfs", "--quick", "--figure", "schemes"]).env_remove("UMBRELLA_TRACES"));
    assert!(
        ["organ", "sepbit", "oracle", "docs/reproductions/r-lfs.md"].iter().all(|text| shown.contains(text)),
        "{shown}"
    );
    // However little it writes, the rest of its disk is cold data.
    let (_folder, small) = usual_trace();
    let text = given(paper().arg("--trace").arg(small));
    assert!(text.contains("a day"), "{text}");
    refused(
        lab("paper").args(["r-lfs", "--figure", "99"]),
        1,
        &["r-lfs has no figure \"99\" here (known: 3, 5, Schemes,"],
    );
}

/// `lab log` on a small input.
fn log(args: &[&str]) -> Command {
    let mut command = lab("log");
    command.args(["--data", "32MiB"]).args(args);
    command
}

#[test]
fn a_log_of_ones_own_choice_runs_every_scheme_victim_and_utilisation_on_every_input() {
    let args = ["--locality", "90/10", "--zipf", "0.99", "--scheme", "r_lfs:regions=1,organ:levels=4,centre=40"];
    let runs = json(log(&args).args(["--victim", "greedy,cost-benefit", "--used", "70,85"]));
    let of = |name: &str| runs.iter().map(|run| run[name].to_string()).collect::<BTreeSet<_>>();
    assert_eq!(runs.len(), 16);
    assert_eq!(of("input"), ["\"90/10\"", "\"zipf 0.99\""].map(str::to_owned).into());
    assert_eq!(of("scheme"), ["\"organ:levels=4,centre=40\"", "\"r_lfs:regions=1\""].map(str::to_owned).into());
    assert_eq!(of("victim"), ["\"cost-benefit\"", "\"greedy\""].map(str::to_owned).into());
    assert_eq!(of("utilisation"), ["70", "85"].map(str::to_owned).into());
    let amplified = |run: &Value| run["write_amplification"].as_f64().expect("a number");
    for pair in runs.chunks(2) {
        assert!(amplified(&pair[0]) < amplified(&pair[1]), "the fuller, the more is copied: {pair:?}");
    }
    assert_eq!(runs, json(log(&args).args(["--victim", "greedy,cost-benefit", "--used", "70,85", "--threads", "1"])));
    assert_ne!(runs, json(log(&args).args(["--victim", "greedy,cost-benefit", "--used", "70,85", "--seed", "2"])));
}

#[test]
fn the_segments_of_a_log_are_as_large_as_was_asked_for() {
    let of = |segment: &[&str]| json(log(&["--zipf", "0.99", "--scheme", "r_lfs"]).args(segment));
    assert_eq!(of(&[])[0]["segment_blocks"], 8);
    assert_eq!(of(&["--segment", "64KiB"])[0]["segment_blocks"], 16);
    for wrong in ["48KiB", "16KiB", "1GiB"] {
        refused(log(&["--zipf", "1", "--segment"]).arg(wrong), 2, &["a power of two from 32 KiB to 64 MiB"]);
    }
    let small = ["--zipf", "0.99", "--segment", "1MiB", "--scheme", "organ"];
    refused(&mut log(&small), 1, &["left out: zipf 0.99 in organ", "try a smaller --segment"]);
}

#[test]
fn each_disk_of_a_trace_is_a_log_of_its_own_where_that_is_asked_for() {
    let writes = |place: fn(u64) -> u64| {
        let disk = |i: u64| if i.is_multiple_of(3) { "d" } else { "e" };
        (0..24_000u64).map(move |i| format!("{i},{},W,{},4096,", disk(i), place(i) * 4096))
    };
    let of_disks = |path: &Path| {
        let mut command = lab("log");
        command.args(["--disks", "--scheme", "r_lfs", "--used", "50,90", "--trace"]).arg(path);
        command
    };
    let (_folder, sparse) = trace("mine.csv", writes(|i| i * 7919 % 4096 * 4));
    let runs = json(&mut of_disks(&sparse));
    let inputs: Vec<&Value> = runs.iter().map(|run| &run["input"]).collect();
    assert_eq!(inputs, ["mine disk 0", "mine disk 0", "mine disk 1", "mine disk 1"]);
    let (_folder, dense) = trace("full.csv", writes(|i| i * 7919 % 8192));
    refused(
        &mut of_disks(&dense),
        1,
        &["left out: full disk 0", "the blocks that the trace touches already fill more of it"],
    );
    refused(lab("log").args(["--disks", "--zipf", "1"]), 2, &["--trace"]);
}

#[test]
fn reads_go_beside_as_many_writes() {
    let of = |reads: &str| json(log(&["--locality", "90/10", "--scheme", "r_lfs", "--reads"]).arg(reads));
    let count = |run: &Value, what: &str| run[what].as_f64().expect("a number");
    let (none, half) = (of("0"), of("50"));
    assert_eq!(none[0]["read"], 0);
    let share = count(&half[0], "read") / count(&half[0], "written");
    assert!((0.9..1.1).contains(&share), "{half:?}");
}

#[test]
fn a_log_without_an_input_or_with_a_wrong_one_says_what_it_wants() {
    refused(&mut log(&[]), 1, &["--trace FILE, --locality 90/10 or --zipf 0.99"]);
    refused(&mut log(&["--locality", "90"]), 2, &["two shares in percent", "90/10"]);
    refused(&mut log(&["--locality", "0/10"]), 2, &["each from 1 to 99"]);
    refused(&mut log(&["--zipf", "-1"]), 2, &[]);
    refused(&mut log(&["--zipf", "1", "--scheme", "nope"]), 1, &["--scheme nope", "known: r_lfs"]);
    refused(&mut log(&["--zipf", "1", "--scheme", ""]), 1, &["names no scheme"]);
    refused(&mut log(&["--zipf", "1", "--victim", "nope"]), 2, &["greedy, cost-benefit"]);
    refused(lab("log").args(["--zipf", "1", "--data", "4KiB"]), 1, &["too few for a log"]);
    refused(lab("log").args(["--zipf", "1", "--data", "1TiB"]), 2, &["at most 64 GiB"]);
    refused(
        lab("log").args(["--locality", "90/10", "--data", "16GiB", "--reads", "99"]),
        1,
        &["too many to hold in memory"],
    );
    refused(lab("log").args(["--trace", "/nowhere/missing.csv"]), 1, &["missing.csv"]);
    let (_folder, path) =
        trace("mine.csv", (0..24_000u64).map(|i| format!("{i},d,W,{},4096,", i * 7919 % 8192 * 4096)));
    let csv = given(lab("log").args(["--scheme", "r_lfs,organ", "--csv", "--trace"]).arg(&path));
    assert_eq!(column(&csv, "input"), ["mine", "mine"]);
    let shown = given(lab("log").args(["--scheme", "r_lfs", "--trace"]).arg(&path));
    assert!(shown.contains("write amplification") && shown.contains("32 KiB"), "{shown}");
    fs::OpenOptions::new()
        .append(true)
        .open(&path)
        .and_then(|mut file| file.write_all(b"garbage\n"))
        .expect("appended");
    refused(lab("log").args(["--scheme", "r_lfs", "--trace"]).arg(&path), 1, &["mine.csv"]);
    let lenient = output(lab("log").args(["--scheme", "r_lfs", "--lenient", "--trace"]).arg(&path));
    assert!(lenient.status.success() && said(&lenient).contains("left out 1 line that cannot be read"), "{lenient:?}");
}

#[test]
fn a_paper_that_runs_a_trace_of_the_users_does_not_say_that_it_ran_without_traces() {
    let writes = (0..24_000u64).map(|i| format!("{i}000,d,W,{},4096,", i * 7919 % 8192 * 4096));
    let (_folder, path) = trace("mine.csv", writes);
    let mut command = lab("paper");
    command.args(["r-lfs", "--quick", "--figure", "schemes", "--trace"]).arg(&path);
    let shown = given(&mut command);
    let last = shown.lines().last().expect("a line");
    assert!(shown.contains("mine") && last.contains("quick: with less data"), "{last}");
    assert!(!last.contains("open traces"), "{last}");
}

#[test]
fn quick_sizes_say_so_below_the_claims() {
    let last = |more: &[&str]| {
        let text = given(lab("paper").args(["tesa", "--figure", "section IV-B"]).args(more));
        text.lines().last().expect("a line").to_owned()
    };
    let quick = last(&["--quick"]);
    assert!(quick.contains("claims hold") && quick.contains("quick sizes; docs/reproductions/tesa.md"), "{quick}");
}

#[test]
fn examples_can_be_pasted_and_point_to_help_that_there_is() {
    let commands: [&[&str]; 6] =
        [&["run"], &["compare"], &["paper"], &["list"], &["trace", "info"], &["trace", "convert"]];
    for command in commands {
        let help = given(lab(command[0]).args(&command[1..]).arg("--help"));
        let (_, examples) = help.split_once("EXAMPLES:\n").expect("examples");
        for line in examples.lines() {
            let pasted = line.split('#').next().unwrap_or_default().trim();
            assert!(pasted.contains("umbrella lab ") && !pasted.contains("  "), "{line}");
        }
        if command.len() == 1 && help.contains("--trace <FILE>") {
            assert!(help.contains("formats: umbrella lab trace info --help"), "{help}");
        }
    }
    assert!(given(lab("trace").args(["info", "--help"])).contains("blkparse, fio2, fio3"));
}

#[test]
fn a_trace_from_a_writer_that_still_writes_is_an_error_not_a_hang() {
    let (_folder, path) = usual_trace();
    let mut file = fs::OpenOptions::new().append(true).open(&path).expect("a trace");
    file.write_all(b"1000500,d0,W,40").expect("half a line");
    refused(
        lab("run").arg("--trace").arg(&path),
        1,
        &["line 2002", "(format csv; leave out what cannot be read: --lenient)"],
    );
}

#[test]
fn what_cannot_be_said_ends_nothing() {
    let full = || fs::OpenOptions::new().write(true).open("/dev/full").expect("/dev/full");
    let code = |command: &mut Command| command.stderr(full()).stdout(Stdio::null()).status().expect("it runs").code();
    assert_eq!(code(lab("run").args(["--workload", "nothing-of-the-kind"])), Some(1));
    assert_eq!(code(lab("run").args(SMALL)), Some(0));
    assert_eq!(code(lab("nothing-of-the-kind").env("RUST_LOG", "trace")), Some(2));
}

#[test]
fn the_error_of_several_names_where_one_is_wanted_says_how_to_sweep_them() {
    refused(lab("compare").args(SMALL).args(["--scheduler", "noop,deadline"]), 2, &["one at a time", "--sweep"]);
    let disks = ["--workload", "rnd-write", "--disk", "modern,sata_ssd"];
    refused(lab("run").args(disks), 2, &["one at a time", "--sweep disk=modern,sata_ssd"]);
    refused(lab("run").args(["--workload", "postmark,untar"]), 1, &["one at a time"]);
    refused(lab("run").args(["--workload", "data-backup:files=100000000"]), 1, &["from 1 to 20000000"]);
    refused(lab("run").args(SMALL).args(["--expire", "forever"]), 2, &["or never"]);
    refused(lab("run").args(["--workload", "untar", "--scale", "10%"]), 2, &["0.1"]);
    refused(lab("run").args(SMALL).args(["--html", "-"]), 1, &["give its name"]);
}

#[test]
fn the_prototype_of_r_lfs_is_run_live_and_judged() {
    let claims = json(Command::new(env!("CARGO_BIN_EXE_umbrella")).args(["bench", "r-lfs", "--quick"]));
    let asked: Vec<_> = claims.iter().map(|claim| (&claim["figure"], claim["claim"].as_str().expect("text"))).collect();
    assert_eq!(claims.len(), 2, "{asked:?}");
    for claim in &claims {
        assert!(claim["measured"].as_f64().is_some_and(f64::is_finite), "{claim}");
    }
    // The cleaner's work hangs on the blocks alone, not on this machine's speed.
    let copies = claims.iter().find(|claim| {
        claim["claim"].as_str().is_some_and(|claim| claim.starts_with("90/10") && claim.contains("cleaner"))
    });
    assert!(copies.is_some_and(|claim| claim["measured"].as_f64() > Some(10.0)), "{asked:?}");
}

/// A Python of our own making: whether it has the package is its first answer; then it says what it was handed.
fn python(folder: &Path, has_package: bool) -> PathBuf {
    use std::os::unix::fs::OpenOptionsExt as _;
    let path = folder.join("python");
    let mut file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o755).open(&path).unwrap();
    let check = if has_package { "0" } else { "1" };
    write!(file, "#!/bin/sh\n[ \"$1\" = -c ] && exit {check}\necho \"$@\"\nexit 7\n").unwrap();
    path
}

#[test]
fn a_sweep_on_a_cluster_is_handed_to_the_python_package() {
    let folder = TempDir::new().unwrap();
    let mut sweep = lab("sweep");
    sweep.args(["--cluster", "tcp://localhost:8786", "--results", "out", "--policy", "file,zone:zone=2MiB"]);
    sweep.args(["--workload", "rnd-write", "--sweep", "seed=1, 2", "--set", "scale=0.1", "--python"]);
    let done = output(sweep.arg(python(folder.path(), true)));
    assert_eq!(done.status.code(), Some(7), "its exit code is ours: {}", said(&done));
    assert_eq!(
        String::from_utf8_lossy(&done.stdout).trim(),
        "-m umbrella_lab --cluster tcp://localhost:8786 --results out --policy file --policy zone:zone=2MiB \
         --workload rnd-write --sweep seed=1,2 --set scale=0.1"
    );
}

#[test]
fn a_sweep_on_a_cluster_without_the_package_says_what_to_install() {
    let folder = TempDir::new().unwrap();
    let mut sweep = lab("sweep");
    sweep.args(["--cluster", "tcp://localhost:8786", "--results", "out", "--policy", "file"]);
    sweep.args(["--workload", "rnd-write", "--sweep", "seed=1", "--python"]);
    sweep.arg(python(folder.path(), false));
    refused(&mut sweep, 1, &["pip install './python[pandas,cluster]'", "--python PROGRAM"]);
}
