//! Load files of dbench: what they become, and what is wrong with them.

use umbrella_lab::workload::{ClientId, FileOperation, Scale, Seed, WorkloadError, build_workload};
use umbrella_units::{Nanos, SplitMix64};

use crate::model::{DISK, build, run_for, within};

#[test]
fn the_stand_in_has_the_mix_of_debians_load_file() {
    let seen = run_for(build("dbench:load=stand-in,clients=1,duration=1y", 1, 1.0), DISK, true, 200_000);
    // Per deletion: 7.8 reads, 2.5 writes, 0.35 flushes.
    within(seen.reads as f64 / seen.deletes as f64, 7.8, 0.1);
    within(seen.writes as f64 / seen.deletes as f64, 2.5, 0.1);
    within(seen.fsyncs as f64 / seen.deletes as f64, 0.35, 0.1);
    within(seen.read as f64 / seen.reads as f64, 11_853.0, 0.15);
    within(seen.written as f64 / seen.writes as f64, 25_720.0, 0.15);
}

#[test]
fn debians_load_file_is_read_and_played_where_it_is_installed() {
    let path = "/usr/share/dbench/client.txt";
    if !std::path::Path::new(path).exists() {
        println!("skipped: {path} is not installed (package dbench)");
        return;
    }
    let seen = run_for(build(&format!("dbench:clients=1,load={path},duration=1y"), 1, 1.0), DISK, true, 200_000);
    // One round: 124,199 reads, 39,502 writes, 5,553 flushes; files that a round begins with are not there.
    within(seen.reads as f64 / seen.writes as f64, 124_199.0 / 39_502.0, 0.1);
    within(seen.written as f64 / seen.writes as f64, 25_720.0, 0.1);
    assert!(seen.deletes > 15_000 && seen.fsyncs > 5_000, "{} deletions, {} flushes", seen.deletes, seen.fsyncs);
}

fn load_file(text: &str) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), text).unwrap();
    file
}

const ROUND: &str = "# a comment\n\
    Deltree \"\\clients\\client1\" NT_STATUS_OK\n\
    NTCreateX \"\\clients\\client1\" 0x1 0x2 1 NT_STATUS_OK\n\
    NTCreateX \"\\clients\\client1\\A.doc\" 0x40 0x2 2 NT_STATUS_OK\n\
    WriteX 2 0 10 10 NT_STATUS_OK\n\
    WriteX 2 65534 1 1 NT_STATUS_OK\n\
    NTCreateX \"\\clients\\client1\\missing\" 0x40 0x1 3 NT_STATUS_OBJECT_NAME_NOT_FOUND\n\
    Flush 2 NT_STATUS_OK\n\
    Close 2 NT_STATUS_OK\n\
    NTCreateX \"\\clients\\client1\\a.DOC\" 0x40 0x1 4 NT_STATUS_OK\n\
    ReadX 4 65530 4096 4096 NT_STATUS_OK\n\
    Close 4 NT_STATUS_OK\n\
    NTCreateX \"\\clients\\client1\\b\" 0x40 0x2 5 NT_STATUS_OK\n\
    Close 5 NT_STATUS_OK\n\
    Rename \"\\clients\\client1\\a.doc\" \"\\clients\\client1\\b\" NT_STATUS_OK\n\
    Unlink \"\\clients\\client1\\b\" 0x6 NT_STATUS_OK\n\
    Deltree \"\\clients\\client1\" NT_STATUS_OK\n";

#[test]
fn a_load_file_becomes_the_steps_of_its_calls() {
    let file = load_file(ROUND);
    let mut workload = build(&format!("dbench:clients=1,load={}", file.path().display()), 1, 1.0);
    while workload.prepare().is_some() {}
    let mut found = Vec::new();
    while let Some(step) = workload.next(ClientId(0), Nanos(0)) {
        if matches!(step, FileOperation::Think { .. }) {
            break;
        }
        found.push(match step {
            FileOperation::Mkdir { .. } => "mkdir".to_owned(),
            FileOperation::Create { file, .. } => format!("create {}", file.0),
            FileOperation::Write { file, offset, size } => format!("write {} {}+{}", file.0, offset.0, size.0),
            FileOperation::Read { file, offset, size } => format!("read {} {}+{}", file.0, offset.0, size.0),
            FileOperation::Fsync { file } => format!("fsync {}", file.0),
            FileOperation::Delete { file } => format!("delete {}", file.0),
            other => format!("{other:?}"),
        });
    }
    assert_eq!(
        found,
        [
            "mkdir",
            "create 4",
            "write 4 0+10",
            "write 4 65534+1",
            "fsync 4",
            "read 4 65530+5",
            "create 5",
            "delete 5",
            "delete 4",
            "delete 3"
        ]
    );
}

#[test]
fn a_directory_stays_while_a_file_that_was_made_in_it_has_a_name_elsewhere() {
    let file = load_file(
        "Mkdir \"\\a\" NT_STATUS_OK\nNTCreateX \"\\a\\f\" 0x40 0x2 1 NT_STATUS_OK\nRename \"\\a\\f\" \"\\g\" NT_STATUS_OK\n\
         Deltree \"\\a\" NT_STATUS_OK\nUnlink \"\\g\" NT_STATUS_OK\n",
    );
    let workload = build(&format!("dbench:clients=2,load={}", file.path().display()), 1, 1.0);
    let seen = run_for(workload, DISK, true, 1000);
    assert!(seen.mkdirs > 10 && seen.creates > 10);
}

#[test]
fn a_mangled_load_file_is_an_error_or_a_load_but_never_a_panic() {
    let mut numbers = SplitMix64::new(1);
    let mut random = |below: usize| numbers.index(below);
    let (mut good, mut bad) = (0, 0);
    for _ in 0..300 {
        let mut text = ROUND.as_bytes().to_vec();
        for _ in 0..random(8) {
            let at = random(text.len());
            match random(3) {
                0 => text[at] = b" \"\\0x9\n"[random(7)],
                1 if text.len() > 1 => drop(text.remove(at)),
                _ => text.truncate(at.max(1)),
            }
        }
        let file = load_file(std::str::from_utf8(&text).unwrap());
        let spec = format!("dbench:clients=2,duration=1s,load={}", file.path().display());
        match build_workload(&spec, Seed(0), Scale::FULL) {
            Ok(workload) => {
                run_for(workload, DISK, true, 200);
                good += 1;
            }
            Err(error) => {
                assert!(matches!(error, WorkloadError::Load { .. }), "{error}");
                bad += 1;
            }
        }
    }
    assert!(good > 10 && bad > 10, "{good} loads, {bad} errors");
}

#[test]
fn a_bad_line_of_a_load_file_is_named() {
    for (text, wanted) in [
        ("Flush x NT_STATUS_OK\n", "line 1: a number should be here"),
        ("\n\nUnlink foo NT_STATUS_OK\n", "line 3: a path in quotes should be here"),
        ("Unlink \"foo NT_STATUS_OK\n", "line 1: the path has no closing quote"),
        (&format!("Unlink \"{}\" NT_STATUS_OK\n", "\\a".repeat(100_000)), "line 1: the path is too long"),
        ("WriteX 1 NT_STATUS_OK\n", "line 1: a number should be here"),
        ("WriteX 1 0 9999999999 9999999999 NT_STATUS_OK\n", "line 1: the size is too large"),
        ("WriteX 1 18446744073709551615 1 1 NT_STATUS_OK\n", "line 1: the offset is too large"),
        ("Close\n", "is not a load file of dbench: none of its calls"),
    ] {
        let file = load_file(text);
        let spec = format!("dbench:load={}", file.path().display());
        let error = build_workload(&spec, Seed(0), Scale::FULL).err().unwrap().to_string();
        assert!(error.contains(wanted), "{text:?}: {error}");
    }
}

#[test]
fn a_load_file_that_was_asked_for_must_be_there() {
    let error = build_workload("dbench:load=/nowhere/client.txt", Seed(0), Scale::FULL).err().unwrap();
    assert!(matches!(error, WorkloadError::LoadFile { .. }), "{error}");
}
