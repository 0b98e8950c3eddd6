//! Every workload, run to its end against a plain model of a file system. It uses only files that exist, the papers'
//! parameters come out, one seed gives one sequence of steps, and a scale keeps the proportions.

mod dbench;
mod model;
mod papers;

use std::collections::HashSet;
use std::fmt::Write as _;

use umbrella_lab::workload::{
    BoxedWorkload, ClientId, Scale, Seed, WORKLOADS, WorkloadError, build_workload, workload,
};
use umbrella_units::Nanos;

use crate::model::{build, run, within};

/// Workloads as the tests of all of them run them: without what the machine may or may not have.
fn specs() -> Vec<String> {
    WORKLOADS
        .iter()
        .map(|entry| if entry.name == "dbench" { "dbench:load=stand-in".to_owned() } else { entry.name.to_owned() })
        .collect()
}

fn hash(hash: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(hash, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

/// Hash of the preparation's beginning and of the first steps that the clients do in turn.
fn fingerprint(spec: &str, seed: u64, scale: f64) -> u64 {
    let mut workload = build(spec, seed, scale);
    let mut text = String::new();
    let mut sum = 0xcbf2_9ce4_8422_2325;
    let mut prepared = 0;
    while let Some(step) = workload.prepare() {
        prepared += 1;
        if prepared <= 20_000 {
            text.clear();
            write!(text, "{step:?}").unwrap();
            sum = hash(sum, text.as_bytes());
        }
    }
    let clients = workload.clients();
    for turn in 0..20_000_u32 {
        text.clear();
        let step = workload.next(ClientId(turn % clients), Nanos::from_micros(u64::from(turn)));
        write!(text, "{step:?}").unwrap();
        sum = hash(sum, text.as_bytes());
    }
    hash(sum, prepared.to_string().as_bytes())
}

#[test]
fn no_workload_uses_what_is_not_there() {
    for spec in specs() {
        let seen = run(&spec, 0.02);
        assert!(seen.steps > 100, "{spec}: only {} steps", seen.steps);
    }
}

#[test]
fn progress_goes_from_0_to_1_and_never_back() {
    for spec in specs() {
        let mut workload = build(&spec, 1, 0.01);
        while workload.prepare().is_some() {}
        let clients = workload.clients();
        let (mut now, mut last, mut finished) = (Nanos(0), 0.0, HashSet::new());
        while finished.len() < clients as usize {
            for client in 0..clients {
                if workload.next(ClientId(client), now).is_none() {
                    finished.insert(client);
                }
            }
            now = now + Nanos::from_millis(1);
            let progress = workload.progress(now).unwrap();
            assert!((last..=1.0).contains(&progress), "{spec}: {progress} after {last}");
            last = progress;
        }
        assert!(last > 0.99, "{spec}: {last} at the end");
    }
}

#[test]
fn options_that_are_off_by_default_use_nothing_that_is_not_there_either() {
    for spec in [
        "videoserver:passive=2,interval=1s",
        "bonnie:files=16384,seekers=5",
        "bonnie:chars=false",
        "untar:archive=false",
        "dbench:load=stand-in,flush=false,clients=3",
        "postmark:dirs=0,files=5000,transactions=100000,read-bias=10,create-bias=1",
        "postmark:files=500,low=2MiB,high=6MiB,dirs=0,transactions=2000",
        "fileserver:files=500,threads=50,existing=0.5",
        "iozone:writers=16,theta=0",
        "hot-cold:y=100",
        "hot-cold:x=100,y=0",
        "kernel-compile:jobs=1,includes=0",
    ] {
        let seen = run(spec, 0.02);
        assert!(seen.steps > 10, "{spec}: only {} steps", seen.steps);
    }
}

#[test]
fn even_the_smallest_scale_runs() {
    for spec in specs() {
        let seen = run(&spec, 1e-6);
        assert!(seen.steps < 1_000_000, "{spec}: {} steps", seen.steps);
    }
}

#[test]
fn one_seed_gives_one_sequence_of_steps() {
    for spec in specs() {
        assert_eq!(fingerprint(&spec, 7, 0.01), fingerprint(&spec, 7, 0.01), "{spec}");
    }
}

#[test]
fn another_seed_gives_other_steps_wherever_there_is_chance() {
    for spec in specs() {
        // No chance in these: sequential, or read from a file.
        let fixed = ["seq-write", "videoserver", "dbench:load=stand-in"].contains(&spec.as_str());
        assert_eq!(fingerprint(&spec, 1, 0.001) == fingerprint(&spec, 2, 0.001), fixed, "{spec}");
    }
}

#[test]
fn the_steps_of_each_workload_are_those_that_are_on_record() {
    let (large, small) = (0.05, 0.001);
    let mut found = String::new();
    for spec in specs() {
        let (large, small) = (fingerprint(&spec, 42, large), fingerprint(&spec, 42, small));
        writeln!(found, "{spec} {large:016x} {small:016x}").unwrap();
    }
    let recorded = include_str!("steps.txt");
    assert_eq!(
        found, recorded,
        "a workload's steps have changed; if that is meant, this belongs in steps.txt:\n{found}"
    );
}

#[test]
fn a_scale_keeps_the_proportions() {
    let shape = |spec: &str, scale| {
        let seen = run(spec, scale);
        let per_write = seen.written as f64 / seen.writes.max(1) as f64;
        (seen.steps as f64, seen.written as f64, per_write)
    };
    for spec in [
        "seq-write",
        "rnd-write",
        "postmark",
        "data-backup",
        "bonnie",
        "untar",
        "iozone:file=16MiB",
        "kernel-compile:sources=1000",
        "hot-cold",
    ] {
        let (whole, part) = (shape(spec, 0.4), shape(spec, 0.1));
        // Kernel objects are few and differ much.
        let tolerance = if spec.starts_with("kernel") { 0.3 } else { 0.06 };
        within(part.0, whole.0 / 4.0, tolerance);
        within(part.1, whole.1 / 4.0, tolerance);
        within(part.2, whole.2, tolerance);
    }
}

#[test]
fn wrong_specs_say_what_would_be_right() {
    for (spec, wanted) in [
        ("postmrak", "known: seq-write, rnd-write, fileserver,"),
        ("postmark:file=3", "known: files, transactions, dirs, low, high,"),
        ("postmark:files", "should be param=value"),
        ("postmark:files=", "a whole number from 1 to 20000000"),
        ("postmark:files=0", "a whole number from 1 to 20000000"),
        ("postmark:files=1,files=2", "files is given twice"),
        ("postmark:low=2MiB", "low is larger than high"),
        ("rnd-write:io=4GiB", "a size from 1 B to 1"),
        ("rnd-write:file=4KiB", "io is larger than the file"),
        ("seq-write:duration=0s", "a length of time above zero"),
        ("seq-write:duration=soon", "a length of time above zero"),
        ("iozone:writers=17", "more writers than procs"),
        ("iozone:read=1.5", "a number from 0 to 1"),
        ("iozone:read=NaN", "a number from 0 to 1"),
        ("iozone:file=4EiB", "a size from"),
        ("bonnie:chars=maybe", "true or false"),
    ] {
        let error = build_workload(spec, Seed(0), Scale::FULL).err().unwrap_or_else(|| panic!("{spec} is taken"));
        assert!(error.to_string().contains(wanted), "{spec}: {error}");
    }
    for scale in ["0", "-1", "1.1", "NaN", "much"] {
        assert!(matches!(scale.parse::<Scale>(), Err(WorkloadError::BadScale { .. })), "{scale}");
    }
}

#[test]
fn names_are_unique_and_every_default_is_a_value() {
    let names: HashSet<_> = WORKLOADS.iter().map(|entry| entry.name).collect();
    assert_eq!(names.len(), WORKLOADS.len());
    for entry in WORKLOADS {
        let names: HashSet<_> = entry.params.iter().map(|param| param.name).collect();
        assert_eq!(names.len(), entry.params.len(), "{}", entry.name);
        workload(entry.name).unwrap().params([]).unwrap_or_else(|error| panic!("{error}"));
        for param in entry.params {
            let given = entry.params([(param.name, param.default)]);
            assert!(given.is_ok_and(|params| params.is_given(param.name)), "{}: {}", entry.name, param.name);
        }
    }
}

#[test]
fn the_document_names_every_workload_and_parameter() {
    let document = include_str!("../../../../docs/workloads.md");
    for entry in WORKLOADS {
        let heading = format!("### `{}`", entry.name);
        let from = document.find(&heading).unwrap_or_else(|| panic!("{} is not in the document", entry.name));
        let section = &document[from + heading.len()..];
        let section = &section[..section.find("### `").unwrap_or(section.len())];
        assert!(section.contains(&format!("Scale: {}.", entry.scales)), "{}: what it scales", entry.name);
        assert!(section.contains(entry.source), "{}: its source", entry.name);
        for param in entry.params {
            let row = format!("| `{}` | `{}` | {} | {} |", param.name, param.default, param.help, param.source);
            assert!(section.contains(&row), "{}: the row {row}", entry.name);
        }
    }
}

#[test]
#[cfg_attr(debug_assertions, ignore = "measures optimised code only: cargo test --release")]
fn a_step_of_the_simple_workloads_takes_less_than_100_ns() {
    for spec in ["seq-write", "rnd-write"] {
        let mut workload = build(spec, 1, 1.0);
        while workload.prepare().is_some() {}
        // The quickest of many batches: other programs on the machine are not what is measured.
        let batch = |workload: &mut BoxedWorkload| {
            let start = std::time::Instant::now();
            for _ in 0..50_000 {
                std::hint::black_box(workload.next(ClientId(0), Nanos(0)));
            }
            start.elapsed().as_nanos() as u64 / 50_000
        };
        let each = (0..40).map(|_| batch(&mut workload)).min().unwrap();
        println!("{spec}: {each} ns a step");
        assert!(each < 100, "{spec}: {each} ns a step");
    }
}
