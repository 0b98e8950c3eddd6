//! `umbrella lab run`, `compare`, `list` and `paper` as a new user and a careless one call them: figures that repeat, errors that
//! say what to do next, and results that no Ctrl-C and no full disk takes away.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

/// A run of a few milliseconds.
const SMALL: [&str; 6] = ["--workload", "rnd-write", "--scale", "0.002", "--disk", "cheetah_10k7"];

fn lab(command: &str) -> Command {
    let mut lab = Command::new(env!("CARGO_BIN_EXE_umbrella"));
    lab.args(["lab", command]).env_remove("RUST_LOG").stdin(Stdio::null());
    lab
}

fn output(command: &mut Command) -> Output {
    let output = command.output().expect("the program can be started");
    assert!(!said(&output).contains("panicked"), "{command:?}: {}", said(&output));
    output
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Standard output of what must succeed.
fn given(command: &mut Command) -> String {
    let done = output(command);
    assert!(done.status.success(), "{command:?}: {}", said(&done));
    String::from_utf8(done.stdout).expect("text")
}

fn json(command: &mut Command) -> Vec<Value> {
    serde_json::from_str(&given(command.arg("--json"))).expect("one JSON document")
}

/// Must end with that code, nothing on standard output, and every part of `message` said.
fn refused(command: &mut Command, code: i32, message: &[&str]) {
    let done = output(command);
    assert_eq!(done.status.code(), Some(code), "{command:?}: {}", said(&done));
    assert!(done.stdout.is_empty(), "{command:?}: {}", String::from_utf8_lossy(&done.stdout));
    for part in message {
        assert!(said(&done).contains(part), "{command:?}: {part:?} is not in {:?}", said(&done));
    }
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

/// A trace of `lines`, in a folder of its own.
fn trace(name: &str, lines: impl IntoIterator<Item = String>) -> (TempDir, PathBuf) {
    let folder = TempDir::new().expect("a folder");
    let path = folder.path().join(name);
    let line = |at: u64| {
        let op = if at % 3 == 0 { "R" } else { "W" };
        format!("{at},d0,{op},{},4096,\n", at * 2_654_435_761 % 5000 * 8192)
    };
    let lines: Vec<String> = (0..6000).map(line).collect();
    let text = format!("time_us,dev,op,offset_bytes,size_bytes,flags\n{}", lines.concat());
    fs::write(&path, text).expect("a trace");
    let paper = || {
        let mut command = lab("paper");
        command.args(["r-lfs", "--quick", "--figure", "4"]).env_remove("UMBRELLA_TRACES");
        command
    };
    let text = given(paper().arg("--trace").arg(&path).arg("--json"));
    let claims: Vec<Value> = serde_json::from_str(&text).expect("JSON");
    let own = claims.iter().filter(|claim| claim["claim"].as_str().is_some_and(|text| text.starts_with("scattered:")));
    assert_eq!(own.count(), 2, "{text}");
    for claim in &claims {
        assert_eq!((&claim["paper"], &claim["figure"]), (&"r-lfs".into(), &"4".into()));
        assert!(claim["published"].is_number() && claim["measured"].is_number() && claim["holds"].is_boolean());
    }
    let csv = given(paper().arg("--csv"));
    assert!(csv.starts_with("input,scheme,victim,utilisation,"), "{csv}");
    let shown = given(lab("paper").args(["r-lfs", "--quick", "--figure", "schemes"]).env_remove("UMBRELLA_TRACES"));
    assert!(["organ", "sepbit", "oracle", "docs/papers-r-lfs.md"].iter().all(|text| shown.contains(text)), "{shown}");
    let (_folder, small) = usual_trace();
    refused(paper().arg("--trace").arg(small), 1, &["pages of data are too few for a log"]);
    refused(
        lab("paper").args(["r-lfs", "--figure", "99"]),
        1,
        &["r-lfs has no figure \"99\" here (known: 3, 4, 5, 6,"],
    );
}

#[test]
fn quick_sizes_say_so_below_the_claims() {
    let last = |more: &[&str]| {
        let text = given(lab("paper").args(["tesa", "--figure", "Table I"]).args(more));
        text.lines().last().expect("a line").to_owned()
    };
    let quick = last(&["--quick"]);
    assert!(quick.contains("claims hold") && quick.contains("quick sizes; docs/papers-tesa.md"), "{quick}");
}

#[test]
fn examples_can_be_pasted_and_point_to_help_that_there_is() {
    let commands: [&[&str]; 7] = [
        &["run"],
        &["compare"],
        &["paper"],
        &["list"],
        &["trace", "info"],
        &["trace", "convert"],
        &["trace", "record"],
    ];
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
    refused(lab("run").arg("--trace").arg(&path), 1, &["line 2002", "(format csv)"]);
}
