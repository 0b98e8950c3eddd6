//! `umbrella lab trace` as a user calls it: figures, conversions that are whole or not there, and a recording of a real
//! (loop) disk.

mod support;

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use support::disk::Disk;
use support::looped::Looped;
use support::program::{output as run, said};
use support::{KIB, eventually};
use tempfile::TempDir;

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../lab/tests/fixtures").join(name)
}

fn trace() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_umbrella"));
    command.args(["lab", "trace"]);
    command
}

fn bench_record() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_umbrella"));
    command.args(["bench", "record"]);
    command
}

fn convert(input: &Path, output: &Path, options: &[&str]) -> Output {
    run(trace().arg("convert").arg(input).arg(output).args(options))
}

fn converted(input: &Path, output: &Path, options: &[&str]) {
    let done = convert(input, output, options);
    assert!(done.status.success(), "{}", said(&done));
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn info_says_what_a_trace_holds() {
    let output = run(trace().arg("info").arg(fixture("sample.blkparse.txt")));
    assert!(output.status.success(), "{}", said(&output));
    let text = String::from_utf8(output.stdout).unwrap();
    for line in ["6 (4 writes, 2 reads, 0 discards)", "76 KiB distinct, each 1.05 times", "1 time, longest 69.998500 s"]
    {
        assert!(text.contains(line), "no {line:?} in\n{text}");
    }
}

#[test]
fn info_says_which_event_of_blkparse_was_counted() {
    let info = |more: &[&str]| {
        let output = run(trace().arg("info").arg(fixture("sample.blkparse.txt")).args(more));
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(info(&[]).contains("(blkparse, event queue, "), "{}", info(&[]));
    assert!(info(&["--event", "issue"]).contains("(blkparse, event issue, "));
    let json: serde_json::Value = serde_json::from_str(&info(&["--json"])).unwrap();
    assert_eq!(json["event"], "queue");
    let other = run(trace().arg("info").arg(fixture("sample.csv")));
    assert!(String::from_utf8(other.stdout).unwrap().contains("(csv, plain)"), "other formats have no events");
}

#[test]
fn info_tells_long_times_in_minutes_hours_and_days() {
    let folder = TempDir::new().unwrap();
    let week = folder.path().join("week.csv");
    fs::write(&week, "time_us,dev,op,offset_bytes,size_bytes,flags\n0,d,W,0,4096,\n577000000000,d,W,0,4096,\n")
        .unwrap();
    let text = String::from_utf8(run(trace().arg("info").arg(week)).stdout).unwrap();
    assert_eq!(text.matches("6 d 16 h").count(), 2, "length and idle time: {text}");
}

#[test]
fn info_in_json_is_one_object_a_line_and_continues_after_a_bad_file() {
    let files = [fixture("sample.csv"), PathBuf::from("/nonexistent"), fixture("sample.vscsi")];
    let output = run(trace().args(["info", "--json"]).args(&files));
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output).contains("/nonexistent"), "{}", said(&output));
    let lines: Vec<serde_json::Value> =
        String::from_utf8(output.stdout).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 2);
    assert_eq!((&lines[0]["format"], &lines[1]["format"]), (&"csv".into(), &"vscsi".into()));
    for line in &lines {
        assert_eq!(line["summary"]["distinct_pages_written"], 19);
        assert_eq!(line["summary"]["written"], 78_848);
    }
}

#[test]
fn info_reads_pipes_and_standard_input() {
    let folder = TempDir::new().unwrap();
    let pipe = folder.path().join("pipe");
    assert!(run(Command::new("mkfifo").arg(&pipe)).status.success());
    let text = fs::read(fixture("sample.spc")).unwrap();
    let feeder = std::thread::spawn({
        let (pipe, text) = (pipe.clone(), text.clone());
        move || fs::write(pipe, text).unwrap()
    });
    let from_pipe = run(trace().arg("info").arg(&pipe));
    feeder.join().unwrap();
    assert!(String::from_utf8_lossy(&from_pipe.stdout).contains("6 (4 writes"), "{}", said(&from_pipe));
    let mut child = trace().args(["info", "-"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(&text).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(String::from_utf8_lossy(&output.stdout).contains("6 (4 writes"));
}

#[test]
fn what_is_no_trace_is_reported_by_name() {
    let folder = TempDir::new().unwrap();
    let empty = folder.path().join("empty");
    File::create(&empty).unwrap();
    let garbage = folder.path().join("garbage");
    fs::write(&garbage, b"lorem ipsum\n").unwrap();
    for (path, message) in [
        (folder.path(), "is a directory, not a trace"),
        (Path::new("/nonexistent"), "cannot open /nonexistent: No such file or directory"),
        (&empty, "empty: the trace is empty"),
        (&garbage, "garbage: not a trace in a known format (name the format with --format"),
    ] {
        let output = run(trace().arg("info").arg(path));
        assert_eq!(output.status.code(), Some(1));
        assert!(said(&output).contains(message), "{message:?} is not in {:?}", said(&output));
    }
}

/// One event of blktrace, a write of 4 KiB that is queued, in the byte order of this machine.
fn blktrace_event((cpu, sequence): (u32, u32), time: u64, sector: u64) -> Vec<u8> {
    let words = |words: &[u32]| words.iter().flat_map(|word| word.to_ne_bytes()).collect::<Vec<u8>>();
    let longs = |longs: &[u64]| longs.iter().flat_map(|long| long.to_ne_bytes()).collect::<Vec<u8>>();
    let queued_write = 1 | (1 << 1 | 1 << 4 | 1 << 8) << 16;
    [words(&[0x6561_7407, sequence]), longs(&[time, sector]), words(&[4096, queued_write, 77, 8 << 20, cpu, 0])]
        .concat()
}

#[test]
fn a_recording_of_blktrace_is_read_as_blkparse_reads_it() {
    let folder = TempDir::new().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::write(at("sda.blktrace.0"), blktrace_event((0, 1), 2_000, 2048)).unwrap();
    fs::write(at("sda.blktrace.1"), [blktrace_event((1, 1), 1_000, 4096), blktrace_event((1, 2), 3_000, 0)].concat())
        .unwrap();
    let parsed = run(Command::new("blkparse").args(["-q", "-i"]).arg(at("sda")).arg("-o").arg(at("sda.txt")));
    assert!(parsed.status.success(), "{}", said(&parsed));
    for (from, to) in [("sda.txt", "text.csv"), ("sda.blktrace.1", "binary.csv")] {
        let output = run(trace().arg("convert").arg(at(from)).arg(at(to)));
        assert!(output.status.success(), "{}", said(&output));
    }
    assert_eq!(fs::read_to_string(at("text.csv")).unwrap(), fs::read_to_string(at("binary.csv")).unwrap());
    let output = run(trace().arg("info").arg(at("sda.blktrace.0")));
    assert!(String::from_utf8_lossy(&output.stdout).contains("3 (3 writes, 0 reads"), "{}", said(&output));
}

#[test]
fn a_trace_whose_format_is_not_certain_is_refused_until_somebody_says_which_it_is() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("lun.csv");
    fs::write(&file, "0,0,W,0,512,4096\n").unwrap();
    let output = run(trace().arg("info").arg(&file));
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output).contains("may be csv or systor (name the format with --format)"), "{}", said(&output));
    for (format, written) in [("csv", "512 B"), ("systor", "4 KiB")] {
        let output = run(trace().arg("info").arg(&file).args(["--format", format]));
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.contains(&format!("written         {written}")), "{text}{}", said(&output));
    }
    fs::write(&file, "1455592522.029174,0.000272,R,0,1113260032,4096\n").unwrap();
    let output = run(trace().arg("info").arg(&file));
    assert!(String::from_utf8_lossy(&output.stdout).contains("(systor, plain)"), "{}", said(&output));
}

#[test]
fn a_trace_goes_through_every_format_and_comes_back() {
    let folder = TempDir::new().unwrap();
    let first = folder.path().join("first.csv");
    converted(&fixture("sample.iotrace.csv"), &first, &[]);
    let expected = fs::read_to_string(&first).unwrap();
    assert_eq!(expected.lines().nth(2), Some("250,0,W,1052672,8192,"));
    for (format, ending) in [
        ("msr", ""),
        ("spc", ".gz"),
        ("fio2", ".zst"),
        ("fio3", ".gz"),
        ("vscsi", ".zst"),
        ("parquet", ""),
        ("csv", ""),
    ] {
        let there = folder.path().join(format!("there.{format}{ending}"));
        converted(&first, &there, &["--to", format]);
        let magic = fs::read(&there).unwrap();
        assert_eq!(magic.starts_with(b"\x1f\x8b"), ending == ".gz", "{format}");
        assert_eq!(magic.starts_with(b"\x28\xb5\x2f\xfd"), ending == ".zst", "{format}");
        let back = folder.path().join(format!("back-{format}.csv"));
        converted(&there, &back, &[]);
        let device = if format == "msr" { "disk0" } else { "0" };
        // Version 2 has milliseconds.
        let expected = if format == "fio2" {
            expected.replace("\n250,", "\n0,").replace("\n1500,", "\n1000,").replace("\n70000100,", "\n70000000,")
        } else {
            expected.clone()
        };
        assert_eq!(fs::read_to_string(&back).unwrap().replace(&format!(",{device},"), ",0,"), expected, "{format}");
    }
}

#[test]
fn a_conversion_that_fails_leaves_nothing_behind() {
    let folder = TempDir::new().unwrap();
    let (input, output) = (folder.path().join("in.csv"), folder.path().join("out.csv"));
    fs::write(&input, "0,0,W,0,512,\n1,0,W,zero,512,\n").unwrap();
    let done = convert(&input, &output, &[]);
    assert_eq!(done.status.code(), Some(1));
    assert!(said(&done).contains("in.csv: line 2 (byte 13): offset_bytes is \"zero\""), "{}", said(&done));
    assert_eq!(names(folder.path()), ["in.csv"]);
}

#[test]
fn a_file_that_exists_is_only_replaced_by_force() {
    let folder = TempDir::new().unwrap();
    let output = folder.path().join("out.csv");
    fs::write(&output, "mine").unwrap();
    let done = convert(&fixture("sample.csv"), &output, &[]);
    assert_eq!(done.status.code(), Some(1));
    assert!(said(&done).contains("out.csv exists (replace it: --force)"), "{}", said(&done));
    assert_eq!(fs::read_to_string(&output).unwrap(), "mine");
    converted(&fixture("sample.csv"), &output, &["--force"]);
    assert!(fs::read_to_string(&output).unwrap().starts_with("time_us,"));
    assert_eq!(names(folder.path()), ["out.csv"]);
}

#[test]
fn a_file_that_is_replaced_gives_its_mode_and_owner_to_the_new_one() {
    let folder = TempDir::new().unwrap();
    let output = folder.path().join("out.csv");
    for mode in [0o600, 0o666] {
        fs::write(&output, "mine").unwrap();
        fs::set_permissions(&output, fs::Permissions::from_mode(mode)).unwrap();
        std::os::unix::fs::chown(&output, Some(1234), Some(2345)).unwrap();
        converted(&fixture("sample.csv"), &output, &["--force"]);
        let found = fs::metadata(&output).unwrap();
        assert_eq!((found.mode() & 0o7777, found.uid(), found.gid()), (mode, 1234, 2345));
        fs::remove_file(&output).unwrap();
    }
}

/// A conversion from standard input that has created its temporary, and waits for more.
fn waiting_conversion(program: &mut Command, output: &Path, options: &[&str]) -> Child {
    let folder = output.parent().unwrap();
    let before = names(folder).len();
    let mut child = program
        .args(["convert", "-"])
        .arg(output)
        .args(options)
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // More than it looks at to find out the format.
    let lines = (0..100_000).fold(String::new(), |text, number| text + &format!("{number},0,W,0,512,\n"));
    child.stdin.as_mut().unwrap().write_all(lines.as_bytes()).unwrap();
    eventually("the conversion begins", || names(folder).len() > before);
    child
}

#[test]
fn a_conversion_that_is_interrupted_ends_at_once_and_leaves_nothing_behind() {
    let folder = TempDir::new().unwrap();
    for (signals, code) in [(&["-INT"][..], 130), (&["-INT", "-INT"], 130), (&["-TERM"], 143), (&["-HUP"], 129)] {
        for options in [&[][..], &["--sort"]] {
            // Also where the tests themselves run under nohup, or in the background.
            let mut heeding = Command::new("env");
            heeding.args(["--default-signal=HUP,INT", env!("CARGO_BIN_EXE_umbrella"), "lab", "trace"]);
            let child = waiting_conversion(&mut heeding, &folder.path().join("out.csv"), options);
            for signal in signals {
                // The second one may come too late.
                run(Command::new("kill").arg(signal).arg(child.id().to_string()));
            }
            // Its standard input stays open: only the signal can end it.
            let mut child = child;
            let stdin = child.stdin.take();
            let output = child.wait_with_output().unwrap();
            drop(stdin);
            assert_eq!(output.status.code(), Some(code), "{signals:?} {options:?}: {}", said(&output));
            assert!(said(&output).contains("interrupted; nothing was written"), "{}", said(&output));
            assert_eq!(names(folder.path()), [""; 0], "{signals:?} {options:?}");
        }
    }
}

#[test]
fn a_hangup_that_is_ignored_does_not_end_a_conversion() {
    let folder = TempDir::new().unwrap();
    let output = folder.path().join("out.csv");
    let mut under_nohup = Command::new("sh");
    under_nohup.args(["-c", "trap '' HUP; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_umbrella"), "lab", "trace"]);
    let child = waiting_conversion(&mut under_nohup, &output, &[]);
    assert!(run(Command::new("kill").arg("-HUP").arg(child.id().to_string())).status.success());
    let done = child.wait_with_output().unwrap();
    assert!(done.status.success() && output.exists(), "{}", said(&done));
}

#[test]
fn success_is_reported_only_after_the_output_has_its_name() {
    let folder = TempDir::new().unwrap();
    let output = folder.path().join("out.csv");
    let child = waiting_conversion(&mut trace(), &output, &[]);
    fs::write(&output, "of somebody else").unwrap();
    let done = child.wait_with_output().unwrap();
    assert_eq!(done.status.code(), Some(1));
    assert!(said(&done).contains("out.csv exists") && !said(&done).contains("records as"), "{}", said(&done));
    assert_eq!(names(folder.path()), ["out.csv"]);
    let missing = folder.path().join("missing/");
    let done = convert(&fixture("sample.csv"), &missing, &[]);
    assert!(said(&done).contains("missing/ is not the name of a file"), "{}", said(&done));
    assert!(!said(&done).contains("records as"), "{}", said(&done));
}

#[test]
fn a_part_of_a_trace_can_be_cut_out_and_a_jumbled_one_sorted() {
    let folder = TempDir::new().unwrap();
    let input = folder.path().join("in.csv");
    let lines = (0..6_000u64).rev().fold(String::new(), |text, number| {
        text + &format!("{},dev{},W,{},512,\n", number * 1_000_000, number % 2, number * 512)
    });
    fs::write(&input, lines).unwrap();
    let output = folder.path().join("out.csv");
    let done = convert(&input, &output, &[]);
    assert!(said(&done).contains("sort it: umbrella lab trace convert --sort"), "{}", said(&done));
    converted(&input, &output, &["--sort", "--device", "0", "--from", "10s", "--until", "20s"]);
    let text = fs::read_to_string(&output).unwrap();
    let times: Vec<&str> = text.lines().skip(1).map(|line| line.split(',').next().unwrap()).collect();
    // The first line of the file is of an odd second, so that device 0 is dev1.
    assert_eq!(times, ["11000000", "13000000", "15000000", "17000000", "19000000"]);
}

#[test]
fn a_part_that_cannot_be_is_refused_and_nothing_is_written() {
    let folder = TempDir::new().unwrap();
    let (input, output) = (folder.path().join("in.csv"), folder.path().join("out.csv"));
    fs::write(&input, "0,sda,W,0,512,\n1,sdb,W,0,4096,\n").unwrap();
    let refused: [(&[&str], &str); 3] = [
        (&["--from", "3h", "--until", "2h"], "--until must be later than --from"),
        (&["--device", "7"], "no device 7: it has 2"),
        (&["--to", "blkparse"], "can be written: csv, msr, spc, fio2, fio3, vscsi"),
    ];
    for (args, message) in refused {
        let done = convert(&input, &output, args);
        assert!(!done.status.success() && said(&done).contains(message), "{args:?}: {}", said(&done));
        assert!(!output.exists(), "{args:?}");
    }
}

#[test]
fn of_a_damaged_recording_what_is_whole_can_be_converted() {
    let folder = TempDir::new().unwrap();
    let (input, output) = (folder.path().join("in.csv.gz"), folder.path().join("out.csv"));
    let lines =
        (0..50_000u64).fold(String::new(), |text, n| text + &format!("{n},0,W,{},512,\n", n * 7919 % 65_536 * 512));
    let plain = folder.path().join("in.csv");
    fs::write(&plain, lines).unwrap();
    assert!(run(Command::new("gzip").arg("-k").arg(&plain)).status.success());
    let whole = fs::metadata(&input).unwrap().len();
    File::options().write(true).open(&input).unwrap().set_len(whole / 2).unwrap();
    assert!(said(&convert(&input, &output, &[])).contains("cut short") && !output.exists());
    let done = convert(&input, &output, &["--lenient"]);
    assert!(done.status.success() && said(&done).contains("the rest is left out"), "{}", said(&done));
    let kept = fs::read_to_string(&output).unwrap().lines().count();
    assert!((1_000..50_000).contains(&kept), "{kept}");
}

#[test]
fn what_a_format_cannot_hold_is_an_error_or_left_out_and_counted() {
    let folder = TempDir::new().unwrap();
    let (input, output) = (folder.path().join("in.csv"), folder.path().join("out.spc"));
    fs::write(&input, "0,0,W,0,512,\n1,0,D,0,4096,\n2,0,R,512,512,\n").unwrap();
    let done = convert(&input, &output, &[]);
    assert!(said(&done).contains("record 2 cannot be written as spc: it is a discard"), "{}", said(&done));
    assert!(!output.exists());
    let done = convert(&input, &output, &["--skip-unwritable"]);
    assert!(said(&done).contains("2 records as spc, left out 1 record"), "{}", said(&done));
    assert_eq!(fs::read_to_string(&output).unwrap(), "0,0,512,W,0.000000000\n0,1,512,R,0.000002000\n");
}

/// ext4 on a loop device, for as long as it is in use.
struct LoopDisk {
    device: Looped,
    folder: TempDir,
}

impl LoopDisk {
    fn new() -> LoopDisk {
        let folder = TempDir::new().unwrap();
        let image = folder.path().join("image");
        File::create(&image).unwrap().set_len(64 << 20).unwrap();
        let disk = LoopDisk { device: Looped::on(&image), folder };
        support::run("mkfs.ext4", ["-q", "-b", "4096", disk.device.as_str()]);
        fs::create_dir(disk.mount_point()).unwrap();
        support::run("mount", [disk.device.path(), &disk.mount_point()]);
        disk
    }

    fn mount_point(&self) -> PathBuf {
        self.folder.path().join("mnt")
    }
}

impl Drop for LoopDisk {
    fn drop(&mut self) {
        run(Command::new("umount").arg(self.mount_point()));
    }
}

/// A recorder that has begun.
struct Recorder(Child);

impl Recorder {
    /// A recorder that may end by itself before the test looks at it.
    fn spawn(disk: &LoopDisk, options: &[&str], output: &Path) -> Recorder {
        let child = bench_record()
            .arg(disk.device.path())
            .arg("-o")
            .arg(output)
            .args(options)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        Recorder(child)
    }

    fn start(disk: &LoopDisk, options: &[&str], output: &Path) -> Recorder {
        let mut recorder = Recorder::spawn(disk, options, output);
        let event = if options.contains(&"issue") { "block_rq_issue" } else { "block_bio_queue" };
        let enabled = recorder.instance().join("events/block").join(event).join("enable");
        eventually("the recorder begins", || {
            assert!(recorder.0.try_wait().unwrap().is_none(), "the recorder ended: {}", recorder.end());
            fs::read_to_string(&enabled).is_ok_and(|text| text.starts_with('1'))
        });
        recorder
    }

    fn instance(&self) -> PathBuf {
        PathBuf::from(format!("/sys/kernel/tracing/instances/umbrella-{}", self.0.id()))
    }

    fn signal(&self, signal: &str) {
        assert!(run(Command::new("kill").arg(signal).arg(self.0.id().to_string())).status.success());
    }

    /// What it said until it ended.
    fn end(&mut self) -> String {
        let mut text = String::new();
        std::io::Read::read_to_string(&mut self.0.stderr.take().unwrap(), &mut text).unwrap();
        let status = self.0.wait().unwrap();
        format!("{text}({status})")
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Where the file's first page lies on its device, in pages.
fn first_page(file: &Path) -> u64 {
    let output = run(Command::new("filefrag").args(["-v", "-b4096"]).arg(file));
    let text = String::from_utf8(output.stdout).unwrap();
    let line = text.lines().find(|line| line.trim_start().starts_with("0:")).unwrap_or_else(|| panic!("{text}"));
    line.split(':').nth(2).unwrap().trim().split('.').next().unwrap().parse().unwrap_or_else(|_| panic!("{text}"))
}

fn write_around_the_cache(file: &Path, pages: std::ops::Range<u64>) {
    let file = File::options().write(true).custom_flags(libc::O_DIRECT).open(file).unwrap();
    let length = ((pages.end - pages.start) * 4096) as usize;
    let buffer = vec![7u8; length + 4096];
    let aligned = buffer.as_ptr().align_offset(4096);
    file.write_all_at(&buffer[aligned..aligned + length], pages.start * 4096).unwrap();
}

#[test]
fn a_recording_has_the_pages_that_were_written_at_their_places() {
    let disk = LoopDisk::new();
    let file = disk.mount_point().join("file");
    fs::write(&file, vec![1u8; 64 << 10]).unwrap();
    File::open(&file).unwrap().sync_all().unwrap();
    let start = first_page(&file);
    for event in ["queue", "issue"] {
        let output = disk.folder.path().join(format!("{event}.csv.gz"));
        let mut recorder = Recorder::start(&disk, &["--event", event], &output);
        write_around_the_cache(&file, 3..5);
        write_around_the_cache(&file, 9..10);
        recorder.signal("-INT");
        let said = recorder.end();
        assert!(said.ends_with("(exit status: 0)"), "{said}");
        assert!(!recorder.instance().exists(), "the tracing instance is still there");
        let text = disk.folder.path().join(format!("{event}.csv"));
        converted(&output, &text, &[]);
        let text = fs::read_to_string(&text).unwrap();
        for (page, pages) in [(start + 3, 2), (start + 9, 1)] {
            let wanted = format!(",W,{},{},", page * 4096, pages * 4096);
            assert!(text.contains(&wanted), "{event}: no {wanted:?} in\n{text}");
        }
    }
}

#[test]
fn a_recording_ends_by_itself_or_by_a_signal_and_always_tidies_up() {
    let disk = LoopDisk::new();
    let output = disk.folder.path().join("out.csv");
    let mut recorder = Recorder::spawn(&disk, &["--seconds", "1000ms"], &output);
    let said = recorder.end();
    assert!(said.contains(&format!("recording {}; Ctrl-C ends\n", disk.device.as_str())), "{said}");
    assert!(said.ends_with("(exit status: 0)") && output.exists(), "{said}");
    assert!(!recorder.instance().exists());
    let mut recorder = Recorder::start(&disk, &["--force"], &output);
    recorder.signal("-TERM");
    let said = recorder.end();
    assert!(said.ends_with("(exit status: 0)"), "{said}");
    assert!(!recorder.instance().exists());
}

#[test]
fn a_recording_of_a_disk_that_goes_away_ends_and_says_so() {
    let disk = LoopDisk::new();
    let output = disk.folder.path().join("out.csv");
    let mut recorder = Recorder::start(&disk, &[], &output);
    assert!(run(Command::new("umount").arg(disk.mount_point())).status.success());
    assert!(run(Command::new("losetup").arg("-d").arg(disk.device.path())).status.success());
    let said = recorder.end();
    assert!(said.contains("is gone: the recording ends") && said.ends_with("(exit status: 0)"), "{said}");
    assert!(output.exists() && !recorder.instance().exists());
    let done = run(bench_record().arg(disk.device.path()).arg("-o").arg(disk.folder.path().join("other.csv")));
    assert!(self::said(&done).contains("has no medium"), "{}", self::said(&done));
}

#[test]
fn a_recording_whose_name_is_taken_meanwhile_is_kept_under_another() {
    let disk = LoopDisk::new();
    let file = disk.mount_point().join("file");
    fs::write(&file, vec![1u8; 64 << 10]).unwrap();
    File::open(&file).unwrap().sync_all().unwrap();
    let wanted = format!(",W,{},8192,", (first_page(&file) + 3) * 4096);
    let folder = TempDir::new().unwrap();
    let output = folder.path().join("out.csv");
    let mut recorder = Recorder::start(&disk, &[], &output);
    write_around_the_cache(&file, 3..5);
    fs::write(&output, "of somebody else").unwrap();
    fs::write(folder.path().join("out.csv.1"), "of somebody else").unwrap();
    recorder.signal("-INT");
    let said = recorder.end();
    assert!(said.ends_with("(exit status: 1)") && said.contains("out.csv exists"), "{said}");
    assert!(said.contains(&format!("the requests so far are in {}/out.csv.2: ", folder.path().display())), "{said}");
    assert_eq!(names(folder.path()), ["out.csv", "out.csv.1", "out.csv.2"]);
    assert_eq!(fs::read_to_string(&output).unwrap(), "of somebody else");
    let text = fs::read_to_string(folder.path().join("out.csv.2")).unwrap();
    assert!(text.contains(&wanted), "no {wanted:?} in\n{text}");
}

#[test]
fn a_recording_that_fills_its_disk_keeps_what_fits() {
    let disk = LoopDisk::new();
    let file = disk.mount_point().join("file");
    fs::write(&file, vec![1u8; 4 << 20]).unwrap();
    File::open(&file).unwrap().sync_all().unwrap();
    for (name, least) in [("out.csv", 400), ("out.csv.gz", 1200), ("out.csv.zst", 1200)] {
        let small = Disk::tmpfs(16 * KIB);
        let output = small.join(name);
        let mut recorder = Recorder::start(&disk, &["--seconds", "300"], &output);
        for page in (0..100_000u64).map(|number| number * 7919 % 1024) {
            if recorder.0.try_wait().unwrap().is_some() {
                break;
            }
            write_around_the_cache(&file, page..page + 1);
        }
        let reported = recorder.end();
        assert!(reported.ends_with("(exit status: 1)") && reported.contains("No space left on device"), "{reported}");
        assert!(reported.contains("more did not fit"), "{reported}");
        assert_eq!(names(&small.path()), [name], "{reported}");
        let text = disk.folder.path().join(format!("{name}.csv"));
        converted(&output, &text, &[]);
        let kept = fs::read_to_string(&text).unwrap().lines().count() - 1;
        assert!(kept >= least, "only {kept} in {name}");
        assert!(reported.contains(&format!("{}: {kept} records", output.display())), "{kept}: {reported}");
    }
}

#[test]
fn what_a_killed_recorder_left_behind_the_next_one_clears_away() {
    let disk = LoopDisk::new();
    let output = disk.folder.path().join("out.csv");
    let mut killed = Recorder::start(&disk, &[], &output);
    killed.signal("-KILL");
    killed.end();
    assert!(killed.instance().exists() && !output.exists());
    Recorder::spawn(&disk, &["--seconds", "1"], &output).end();
    assert!(!killed.instance().exists());
}

#[test]
fn the_kernels_tracing_is_mounted_where_it_is_not() {
    let disk = LoopDisk::new();
    // In a mount namespace of its own, so that nobody else's tracing goes away.
    let script = "umount -l /sys/kernel/tracing 2>/dev/null; umount -l /sys/kernel/debug 2>/dev/null; exec \"$@\"";
    let output = run(Command::new("unshare")
        .args(["--mount", "--propagation", "private", "sh", "-c", script, "sh"])
        .args([env!("CARGO_BIN_EXE_umbrella"), "bench", "record"])
        .arg(disk.device.path())
        .arg("-o")
        .arg(disk.folder.path().join("out.csv"))
        .args(["--seconds", "1"]));
    assert!(output.status.success(), "{}", said(&output));
}

#[test]
fn the_lab_touches_no_device_and_says_which_command_does() {
    let output = run(trace().args(["record", "/dev/sda", "--seconds", "1"]));
    assert!(!output.status.success() && said(&output).contains("umbrella bench record"), "{}", said(&output));
}

#[test]
fn only_a_whole_disk_can_be_recorded_and_only_by_root() {
    let output = run(bench_record().arg("/dev/null"));
    assert!(said(&output).contains("/dev/null is not a block device"), "{}", said(&output));
    let disk = LoopDisk::new();
    // Where nobody may run it, whoever may reach the folder of the build.
    let place = TempDir::new().unwrap();
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let program = place.path().join("umbrella");
    // By a program: what this one has open for writing, another test's child may keep, and then it cannot be started.
    assert!(run(Command::new("cp").arg(env!("CARGO_BIN_EXE_umbrella")).arg(&program)).status.success());
    let output = run(Command::new("setpriv")
        .args(["--reuid=65534", "--clear-groups"])
        .arg(&program)
        .args(["bench", "record"])
        .arg(disk.device.path()));
    assert!(said(&output).contains("recording needs root"), "{}", said(&output));
}
