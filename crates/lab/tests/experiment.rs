//! Experiments: what finished is kept when a run fails, and runs of one table have one input.

use std::fs::OpenOptions as FileOptions;
use std::io::Write;
use std::path::Path;

use umbrella_lab::experiment::{self, LabError, Observe};
use umbrella_lab::result::Outcome;
use umbrella_lab::trace::OpenOptions;
use umbrella_lab::write_back::{MachineSpec, ReplayOptions, ReplaySpeed, WriteBackCell, WriteBackInput};
use umbrella_units::ByteSize;

fn cell(input: WriteBackInput, policy: &str) -> WriteBackCell {
    let memory = ByteSize(256 << 20);
    WriteBackCell::new(input, MachineSpec { policy: policy.to_owned(), memory, ..MachineSpec::default() })
}

fn append(path: &Path, line: &str) {
    let mut file = FileOptions::new().append(true).open(path).unwrap();
    writeln!(file, "{line}").unwrap();
}

const HEADER: &str = "time_us,dev,op,offset_bytes,size_bytes,flags";

fn trace(records: &[&str]) -> tempfile::NamedTempFile {
    let mut file = tempfile::Builder::new().suffix(".csv").tempfile().unwrap();
    writeln!(file, "{HEADER}").unwrap();
    for record in records {
        writeln!(file, "{record}").unwrap();
    }
    file
}

fn input(path: &Path, device: Option<u32>) -> Result<WriteBackInput, LabError> {
    let replay = ReplayOptions { speed: ReplaySpeed::Max, device, ..ReplayOptions::default() };
    WriteBackInput::trace(path.to_owned(), OpenOptions::default(), replay)
}

/// Appends a line to the trace when the first run has finished.
struct Spoiler<'a> {
    path: &'a Path,
    line: &'static str,
}

impl Observe<MachineSpec> for Spoiler<'_> {
    fn finished(&self, cell: usize, _outcome: &Outcome) {
        if cell == 0 {
            append(self.path, self.line);
        }
    }
}

#[test]
fn what_finished_is_kept_when_a_later_run_fails() {
    for line in ["garbage", "3000,0,W,0,4096,"] {
        let file = trace(&["0,0,W,0,4096,", "1000,0,W,8192,4096,"]);
        let input = input(file.path(), None).unwrap();
        let cells = ["file", "cscan", "lrw"].map(|policy| cell(input.clone(), policy));
        let results = experiment::run(&cells, 1, &Spoiler { path: file.path(), line }).unwrap();
        let finished: Vec<bool> = results.outcomes.iter().map(Option::is_some).collect();
        assert_eq!(finished, [true, false, false], "{line}");
        let error = results.error.unwrap();
        assert_eq!(matches!(error, LabError::TraceChanged { .. }), line != "garbage", "{error}");
    }
}

/// Writes the trace anew when the first run has finished.
struct Swapper<'a> {
    path: &'a Path,
    records: &'a [&'static str],
}

impl Observe<MachineSpec> for Swapper<'_> {
    fn finished(&self, cell: usize, _outcome: &Outcome) {
        if cell == 0 {
            std::fs::write(self.path, format!("{HEADER}\n{}\n", self.records.join("\n"))).unwrap();
        }
    }
}

#[test]
fn a_trace_with_as_many_other_requests_is_another() {
    for records in [["0,0,W,0,4096,", "1000,0,W,4096,4096,"], ["0,0,W,8192,4096,", "1000,0,W,0,4096,"]] {
        let file = trace(&["0,0,W,0,4096,", "1000,0,W,8192,4096,"]);
        let input = input(file.path(), None).unwrap();
        let cells = ["file", "cscan"].map(|policy| cell(input.clone(), policy));
        let results = experiment::run(&cells, 1, &Swapper { path: file.path(), records: &records }).unwrap();
        assert!(matches!(results.error, Some(LabError::TraceChanged { .. })), "{records:?}");
    }
}

#[test]
fn a_replay_that_would_last_for_centuries_is_refused() {
    let file = trace(&["0,0,W,0,4096,", "100000000000000,0,W,8192,4096,"]);
    let open = OpenOptions { max_gap: umbrella_units::Nanos(u64::MAX), ..OpenOptions::default() };
    let with = |speed: f64| {
        let replay = ReplayOptions { speed: ReplaySpeed::Times(speed), ..ReplayOptions::default() };
        let input = WriteBackInput::trace(file.path().to_owned(), open.clone(), replay).unwrap();
        experiment::run(&[cell(input, "file")], 1, &())
    };
    let error = with(0.001).unwrap_err().to_string();
    assert!(error.contains("give 0.032 or more"), "{error}");
    let results = with(0.033).unwrap();
    assert_eq!(results.outcomes[0].as_ref().unwrap().bytes_written, 8192);
}

#[test]
fn a_device_that_fits_is_replayed_though_another_would_not() {
    let file = trace(&["0,0,W,0,4096,", "5,1,W,30000000000000,4096,"]);
    let one = experiment::run(&[cell(input(file.path(), Some(0)).unwrap(), "file")], 1, &()).unwrap();
    assert_eq!(one.outcomes[0].as_ref().unwrap().bytes_written, 4096);
    let all = experiment::run(&[cell(input(file.path(), None).unwrap(), "file")], 1, &()).unwrap_err();
    assert!(all.to_string().contains("beyond the end of modern"), "{all}");
}

#[test]
fn a_request_that_waits_for_another_counts_from_when_it_was_due() {
    let records: Vec<String> = (0..10).map(|n| format!("{n},0,R,{},4096,", n * 7_000_000_000u64)).collect();
    let file = trace(&records.iter().map(String::as_str).collect::<Vec<_>>());
    let replay = ReplayOptions { depth: 1, ..ReplayOptions::default() };
    let input = WriteBackInput::trace(file.path().to_owned(), OpenOptions::default(), replay).unwrap();
    let results = experiment::run(&[cell(input, "file")], 1, &()).unwrap();
    let outcome = results.outcomes[0].as_ref().unwrap();
    // All were due within 10 us, and each takes milliseconds: the last one waited for nine.
    assert!(outcome.read.max > 0.99e6 * outcome.time_s, "{} us of {} s", outcome.read.max, outcome.time_s);
    assert!(outcome.read.mean > 4.0 * outcome.read.max / 10.0, "{} us", outcome.read.mean);
}

#[test]
fn the_work_of_a_workload_does_not_depend_on_the_policy() {
    for spec in ["kernel-compile", "bonnie", "postmark", "untar", "data-backup"] {
        let cells = ["file", "wow", "sweep", "zone"].map(|policy| {
            let input = WriteBackInput::Workload { spec: spec.to_owned() };
            let mut cell = cell(input, policy);
            cell.machine.scale = 0.02;
            cell
        });
        let results = experiment::run(&cells, 2, &()).unwrap();
        assert!(results.error.is_none(), "{spec}: {:?}", results.error);
        let work: Vec<(u64, u64, u64)> = (results.outcomes.iter().flatten())
            .map(|of| (of.operations, of.bytes_requested_write, of.bytes_requested_read))
            .collect();
        assert!(work.iter().all(|other| *other == work[0]), "{spec}: {work:?}");
    }
}

#[test]
fn a_measured_drive_in_a_file_is_a_disk_of_its_own() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/drive.toml");
    let file = file.to_str().unwrap();
    let trace = trace(&["0,a,W,8192,4096,", "10,a,R,16384,4096,"]);
    let run = |disk: &str| {
        let mut cell = cell(input(trace.path(), None).unwrap(), "file");
        cell.machine.set_disk(disk).unwrap();
        let outcome = experiment::run(&[cell], 1, &()).unwrap().unless_failed().unwrap();
        outcome.into_iter().next().flatten().unwrap()
    };
    let (measured, modern) = (run(file), run("modern"));
    assert_eq!((measured.setting.disk.as_str(), modern.setting.disk.as_str()), (file, "modern"));
    assert!((measured.drained_s - modern.drained_s).abs() > 1e-6, "another drive takes another time: {measured:?}");
    let mut machine = MachineSpec::default();
    assert!(matches!(machine.set_disk("/nowhere/drive.toml"), Err(LabError::Drive { .. })));
    machine.set_disk("modern").unwrap();
    assert_eq!(machine, MachineSpec::default());
}
