//! `umbrella advise` on small traces: one recommendation, lines that the other commands accept, and words about what it could not simulate.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

const UMBRELLA: &str = env!("CARGO_BIN_EXE_umbrella");

fn output(command: &mut Command) -> Output {
    let output = command.env_remove("RUST_LOG").stdin(Stdio::null()).output().expect("the program can be started");
    assert!(!said(&output).contains("panicked"), "{command:?}: {}", said(&output));
    output
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn given(command: &mut Command) -> String {
    let done = output(command);
    assert!(done.status.success(), "{command:?}: {}", said(&done));
    String::from_utf8(done.stdout).expect("text")
}

fn advise(trace: &Path) -> Command {
    let mut command = Command::new(UMBRELLA);
    command.arg("advise").arg(trace);
    command
}

fn trace(lines: impl IntoIterator<Item = String>) -> (TempDir, PathBuf) {
    let folder = TempDir::new().expect("a folder");
    let path = folder.path().join("day.csv");
    let lines: String = lines.into_iter().map(|line| line + "\n").collect();
    fs::write(&path, "time_us,dev,op,offset_bytes,size_bytes,flags\n".to_owned() + &lines).expect("a trace");
    (folder, path)
}

/// A day in which something is written every 20 minutes, and little is read.
fn quiet_day() -> (TempDir, PathBuf) {
    trace((0..72_u64).flat_map(|burst| {
        (0..10_u64).map(move |write| {
            let op = if burst % 24 == 0 && write == 9 { "R" } else { "W" };
            format!(
                "{},sda,{op},{},4096,",
                burst * 1_200_000_000 + write * 1000,
                (burst * 7919 + write * 104_729) % 1_000_000 * 4096
            )
        })
    }))
}

fn json(command: &mut Command) -> Value {
    serde_json::from_str(&given(command.arg("--json"))).expect("one JSON document")
}

fn lines(advice: &Value, place: &str) -> Option<String> {
    let fragments = advice["configuration"].as_array().expect("a list");
    let fragment = fragments.iter().find(|of| of["place"].as_str().is_some_and(|of| of.contains(place)))?;
    fragment["lines"].as_str().map(str::to_owned)
}

#[test]
fn a_disk_that_is_idle_most_of_the_day_gets_flash_and_lines_that_disk_check_accepts() {
    let (folder, day) = quiet_day();
    let advice = json(&mut advise(&day));
    let best = &advice["sleep"]["best"];
    assert!(best["flash"].as_u64().is_some_and(|flash| flash > 0), "{advice:#}");
    let watts = |of: &Value| of["watts"]["mean"].as_f64().expect("watts");
    assert!(watts(best) < watts(&advice["sleep"]["today"]) / 2.0, "{advice:#}");

    let [disk, flash] = ["disk", "flash"].map(|name| folder.path().join(name));
    let lines = lines(&advice, "disk.toml").expect("lines for a disk");
    let lines = lines.replace("/dev/disk/by-id/FLASH", flash.to_str().expect("a name"));
    let config = folder.path().join("media.disk.toml");
    fs::write(&config, format!("[disk]\npath = \"{}\"\n{lines}", disk.display())).expect("a configuration");
    for (path, size) in [(&disk, 64), (&flash, 512)] {
        fs::File::create(path).and_then(|file| file.set_len(size << 20)).expect("a file");
    }
    given(Command::new(UMBRELLA).args(["disk", "create"]).arg(&config));
    given(Command::new(UMBRELLA).args(["disk", "check"]).arg(&config));
}

#[test]
fn the_text_fits_a_page_says_where_watts_come_from_and_what_the_flash_wears() {
    let (_folder, day) = quiet_day();
    let text = given(&mut advise(&day));
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    for part in
        ["720 requests", "mean of 3 seeds", "policy", "spin-down", "a day go to the flash", "the disk's watts: assumed"]
    {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
    assert_eq!(text, given(&mut advise(&day)), "the same trace, the same advice");
}

#[test]
fn a_trace_in_which_nobody_waits_changes_nothing() {
    let (_folder, path) = trace((0..100_u64).map(|write| format!("{},sda,W,{},4096,", write * 10_000, write * 4096)));
    let advice = json(&mut advise(&path));
    assert_eq!(advice["write_back"]["best"], Value::Null, "{advice:#}");
    assert_eq!(advice["sleep"]["kind"], "too_short");
    assert_eq!(advice["configuration"], Value::Array(Vec::new()));
    let text = given(&mut advise(&path));
    assert!(text.contains("no difference: leave it to the kernel") && text.contains("is too short"), "{text}");
}

#[test]
fn what_is_cut_and_what_cannot_be_simulated_is_said() {
    let (folder, day) = quiet_day();
    let cut = given(advise(&day).args(["--requests", "100"]));
    assert!(cut.contains("100 requests") && cut.contains("only the beginning was simulated"), "{cut}");
    let no_motor = given(advise(&day).args(["--disk", "sata_ssd"]));
    assert!(no_motor.contains("sata_ssd has no motor"), "{no_motor}");

    let empty = folder.path().join("empty.csv");
    fs::write(&empty, "time_us,dev,op,offset_bytes,size_bytes,flags\n0,sda,D,0,4096,\n").expect("a trace");
    for (command, code, message) in [
        (&mut advise(&empty), 1, "it has no reads or writes"),
        (&mut advise(&folder.path().join("none.csv")), 1, "none.csv"),
        (advise(&day).args(["--disk", "moden"]), 1, "did you mean \"modern\"?"),
        (advise(&day).args(["--memory", "1MiB"]), 2, "a size from 64 MiB"),
    ] {
        let done = output(command);
        assert_eq!(done.status.code(), Some(code), "{command:?}: {}", said(&done));
        assert!(done.stdout.is_empty() && said(&done).contains(message), "{command:?}: {}", said(&done));
    }
}

#[test]
fn random_writes_get_a_policy_and_lines_that_check_accepts() {
    let mut random = 1_u64;
    let (folder, path) = trace((0..4000_u64).map(|number| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        format!("{},sda,W,{},16384,", number * 5000, (random >> 33) % 2000 * 262_144)
    }));
    let advice = json(advise(&path).args(["--memory", "64MiB"]));
    let Some(lines) = lines(&advice, "[[branch]]") else { panic!("{advice:#}") };
    let branch = folder.path().join("disk1");
    fs::create_dir(&branch).expect("a branch");
    let config = folder.path().join("pool.toml");
    let pool = format!("mount = \"/srv/pool\"\n[[branch]]\nname = \"disk1\"\npath = \"{}\"\n{lines}", branch.display());
    fs::write(&config, pool).expect("a configuration");
    let checked = given(Command::new(UMBRELLA).arg("check").arg(&config));
    assert!(checked.contains("ok"), "{checked}");
}
