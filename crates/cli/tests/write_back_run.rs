//! `umbrella flusher` on real file systems in loop files: it starts, writes back, refuses, ends, and is killed.
//!
//! On a kernel that does not tell which pages become dirty, every test checks that the command says so.

mod support;

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use support::disk::Disk;
use support::process::NOBODY;
use support::{MIB, eventually, run, said, temp_dir};

const SOON: Duration = Duration::from_secs(60);
const PROGRAM: &str = env!("CARGO_BIN_EXE_umbrella");

fn flusher(disk: &Disk, run_dir: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(PROGRAM);
    command.args(["write-back", "run", "--fs"]).arg(disk.path()).args(args).env("UMBRELLA_RUN_DIR", run_dir);
    command
}

/// What it says when it cannot start.
fn refusal(mut command: Command) -> String {
    let output = command.stdin(Stdio::null()).output().expect("the program starts");
    assert_eq!(output.status.code(), Some(1), "it should have failed: {}", said(&output));
    said(&output)
}

/// Whether this kernel can do it. If it cannot, the program must have said so clearly.
fn possible() -> bool {
    let (disk, run_dir) = (Disk::ext4(64 * MIB), temp_dir("run"));
    let output = flusher(&disk, run_dir.path(), &["--for", "1ms"]).output().expect("the program starts");
    if output.status.success() {
        return true;
    }
    let lacks = !Path::new("/sys/kernel/btf/vmlinux").exists()
        || !Path::new("/sys/kernel/tracing/events/writeback/writeback_dirty_folio").exists();
    let text = said(&output);
    assert!(lacks, "this kernel has what is needed: {text}");
    assert!(text.contains("tracepoint") || text.contains("CONFIG_"), "does not say what is missing: {text}");
    println!("{text}");
    false
}

/// A flusher that runs; killed when it is dropped.
struct Running {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Running {
    fn start(mut command: Command) -> Running {
        let mut child = command
            .args(["--json", "--every", "100ms"])
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .expect("the program starts");
        let lines = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut running = Running { child, lines };
        running.status();
        running
    }

    /// The next line that it writes.
    fn status(&mut self) -> Value {
        let mut line = String::new();
        self.lines.read_line(&mut line).expect("reads");
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"))
    }

    fn eventually(&mut self, what: &str, is_so: impl Fn(&Value) -> bool) {
        let begun = Instant::now();
        loop {
            let status = self.status();
            if is_so(&status) {
                return;
            }
            assert!(begun.elapsed() < SOON, "{what}: {status}");
        }
    }

    /// Sends a signal, and what it ends with.
    fn end(mut self, signal: &str) -> Option<i32> {
        run("kill", [format!("-{signal}"), self.child.id().to_string()]);
        self.child.wait().expect("ends").code()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

fn figure(status: &Value, name: &str) -> u64 {
    status.get(name).and_then(Value::as_u64).unwrap_or_else(|| panic!("no {name} in {status}"))
}

/// Writes every third page of a new file.
fn scattered(path: &Path, pages: u64) -> File {
    let file = File::create(path).expect("creates");
    for page in (0..pages).step_by(3) {
        file.write_all_at(&page.to_le_bytes().repeat(512), page * 4096).expect("writes");
    }
    file
}

#[test]
fn what_is_dirty_above_the_background_threshold_is_written_back() {
    if !possible() {
        return;
    }
    for disk in [Disk::ext4(256 * MIB), Disk::xfs(320 * MIB)] {
        let run_dir = temp_dir("run");
        let mut flusher = Running::start(flusher(&disk, run_dir.path(), &["--background", "1MiB", "--limit", "8MiB"]));
        // On a busy machine the kernel writes some of it first.
        let begun = Instant::now();
        while figure(&flusher.status(), "flushed") < 4 * MIB {
            assert!(begun.elapsed() < SOON, "nothing was written back: {}", flusher.status());
            scattered(&disk.join("file"), 6000);
        }
        flusher.eventually("it stops before the threshold", |status| {
            figure(status, "dirty") <= MIB && figure(status, "in_flight") == 0
        });
        let status = flusher.status();
        assert!(figure(&status, "dirtied") >= figure(&status, "flushed"), "{status}");
        assert_eq!((figure(&status, "errors"), figure(&status, "lost")), (0, 0), "{status}");
    }
}

#[test]
fn killed_it_leaves_nothing_behind_and_can_start_again() {
    if !possible() {
        return;
    }
    let (disk, run_dir) = (Disk::ext4(256 * MIB), temp_dir("run"));
    let args = ["--background", "1MiB", "--limit", "8MiB"];
    for round in 0..3 {
        let mut flusher = Running::start(flusher(&disk, run_dir.path(), &args));
        let name = disk.join(format!("file{round}"));
        scattered(&name, 3000);
        flusher.eventually("it sees nothing", |status| figure(status, "dirtied") >= 1000 * 4096);
        assert_eq!(flusher.end("KILL"), None, "ends by the signal");
    }
    run("umount", [disk.path()]);
    disk.mount();
    for round in 0..3 {
        let data = fs::read(disk.join(format!("file{round}"))).expect("is there");
        for page in (0..3000_u64).step_by(3) {
            let at = page as usize * 4096;
            assert_eq!(data[at..at + 8], page.to_le_bytes(), "page {page}");
        }
    }
}

#[test]
fn a_second_flusher_of_the_same_file_system_is_refused_and_the_first_continues() {
    if !possible() {
        return;
    }
    let (disk, run_dir) = (Disk::ext4(64 * MIB), temp_dir("run"));
    let mut first = Running::start(flusher(&disk, run_dir.path(), &[]));
    let text = refusal(flusher(&disk, run_dir.path(), &[]));
    assert!(text.contains("already orders its write-back") && text.contains(&first.child.id().to_string()), "{text}");
    first.status();
}

#[test]
fn signals_and_the_end_of_its_time_end_it_cleanly() {
    if !possible() {
        return;
    }
    let (disk, run_dir) = (Disk::ext4(64 * MIB), temp_dir("run"));
    for signal in ["TERM", "INT"] {
        let flusher = Running::start(flusher(&disk, run_dir.path(), &[]));
        assert_eq!(flusher.end(signal), Some(0), "SIG{signal}");
    }
    let output = flusher(&disk, run_dir.path(), &["--for", "100ms"]).output().expect("the program starts");
    assert!(output.status.success(), "{}", said(&output));
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("dirty in") && text.contains("written back"), "{text}");
    let unmounts = || Command::new("umount").arg(disk.path()).output().is_ok_and(|it| it.status.success());
    eventually("it holds the file system", unmounts);
    disk.mount();
}

#[test]
fn what_it_sees_and_chooses_is_recorded_and_decided_again_bit_for_bit() {
    if !possible() {
        return;
    }
    let (disk, run_dir) = (Disk::ext4(64 * MIB), temp_dir("run"));
    let record = run_dir.path().join("record");
    let args = ["--background", "1MiB", "--record", record.to_str().expect("a plain name")];
    let mut flusher = Running::start(flusher(&disk, run_dir.path(), &args));
    let begun = Instant::now();
    // Where the kernel was quicker there is something to do again.
    while figure(&flusher.status(), "flushed") == 0 {
        assert!(begun.elapsed() < SOON, "nothing was written back: {}", flusher.status());
        scattered(&disk.join("file"), 3000);
    }
    assert_eq!(flusher.end("TERM"), Some(0));
    let text = fs::read_to_string(&record).expect("a record");
    assert!(text.lines().next().is_some_and(|first| !first.is_empty()) && text.lines().count() > 1000, "{text:.200}");
    let replayed =
        Command::new(PROGRAM).args(["lab", "run", "--json", "--events"]).arg(&record).output().expect("runs");
    let replayed: Value = serde_json::from_slice(&replayed.stdout).unwrap_or_else(|_| panic!("{}", said(&replayed)));
    assert_eq!((&replayed["complete"], &replayed["recorded"]), (&Value::Bool(true), &replayed["chosen"]), "{replayed}");
    let again = ["--record", record.to_str().expect("a plain name"), "--for", "1ms"];
    refusal(self::flusher(&disk, run_dir.path(), &again));
}

#[test]
fn what_cannot_be_written_back_in_order_is_refused_with_the_reason() {
    let (disk, run_dir) = (Disk::ext4(64 * MIB), temp_dir("run"));
    fs::create_dir(disk.join("dir")).expect("makes a directory");
    let at = |path: &Path| {
        let mut command = Command::new(PROGRAM);
        command.args(["write-back", "run", "--fs"]).arg(path).env("UMBRELLA_RUN_DIR", run_dir.path());
        refusal(command)
    };
    let memory = Disk::tmpfs(MIB);
    for (path, reason) in [
        (disk.join("dir"), "not a mount point"),
        (disk.join("nothing"), "No such file"),
        (disk.device(), "a device (give the directory where its file system is mounted: findmnt /dev/loop"),
        (memory.path(), "tmpfs has no ordered write-back (ext4, xfs and btrfs have)"),
    ] {
        let text = at(&path);
        assert!(text.contains(reason), "{text}");
    }
    for (args, reason) in [
        (&["--policy", "nonsense"][..], "stow, sweep\n"),
        (&["--policy", "clairvoyant"], "future"),
        (&["--limit", "1KiB"], "too low"),
        (&["--limit", "2MiB", "--background", "3MiB"], "begin at 3 MiB, but must begin below the limit of 2 MiB"),
    ] {
        let text = refusal(flusher(&disk, run_dir.path(), args));
        assert!(text.contains(reason), "{args:?}: {text}");
    }
}

#[test]
fn users_other_than_root_get_an_error_that_says_why() {
    let (disk, run_dir) = (Disk::ext4(64 * MIB), temp_dir("run"));
    // The folder that programs are built in may be closed to others.
    let program = run_dir.path().join("umbrella");
    // By another process: a test beside this one that forks while the copy is open for writing would keep it from being
    // run.
    let copied = Command::new("install").args(["-m", "755", PROGRAM]).arg(&program).status().expect("install starts");
    assert!(copied.success());
    let mut command = Command::new(&program);
    command.args(["write-back", "run", "--fs"]).arg(disk.path()).uid(NOBODY).gid(NOBODY);
    let text = refusal(command);
    assert!(text.contains("write-back run needs root"), "{text}");
}

#[test]
fn root_without_the_capabilities_gets_an_error_that_names_those_missing() {
    if !possible() {
        return;
    }
    let (disk, run_dir) = (Disk::ext4(64 * MIB), temp_dir("run"));
    for (missing, reason) in [
        ("-sys_admin,-bpf,-perfmon", "CAP_BPF"),
        ("-sys_admin,-perfmon", "CAP_PERFMON"),
        ("-dac_read_search", "CAP_DAC_READ_SEARCH"),
    ] {
        let mut command = Command::new("setpriv");
        command.arg(format!("--bounding-set={missing}")).args([PROGRAM, "write-back", "run", "--for", "1s", "--fs"]);
        command.arg(disk.path()).env("UMBRELLA_RUN_DIR", run_dir.path());
        let text = refusal(command);
        assert!(text.contains(reason), "without {missing}: {text}");
    }
}

#[test]
fn what_the_kernel_lacks_is_named() {
    if !possible() {
        return;
    }
    let (disk, run_dir) = (Disk::ext4(64 * MIB), temp_dir("run"));
    let types = fs::read("/sys/kernel/btf/vmlinux").expect("this kernel has types");
    let changed = run_dir.path().join("types");
    // Another kernel's types, seen by this command only.
    let on_a_kernel = |mount: &str| {
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-ec", &format!("mount {mount}; exec \"$@\""), "sh", PROGRAM]);
        command
            .args(["write-back", "run", "--for", "1s", "--fs"])
            .arg(disk.path())
            .env("UMBRELLA_RUN_DIR", run_dir.path());
        refusal(command)
    };
    let text = on_a_kernel("-t tmpfs none /sys/kernel/btf");
    assert!(text.contains("CONFIG_DEBUG_INFO_BTF"), "{text}");
    for (name, reason) in [
        ("btf_trace_writeback_dirty_folio", "no tracepoint writeback_dirty_folio"),
        ("btf_trace_sb_clear_inode_writeback", "no tracepoint sb_clear_inode_writeback"),
        ("i_generation", "no struct inode.i_generation"),
        ("PG_head", "no enum pageflags::PG_head"),
    ] {
        let mut bytes = types.clone();
        let name = format!("\0{name}\0");
        let at = bytes.windows(name.len()).position(|found| found == name.as_bytes()).expect("is there");
        bytes[at + 1] = b'X';
        fs::write(&changed, bytes).expect("writes");
        let text = on_a_kernel(&format!("--bind {} /sys/kernel/btf/vmlinux", changed.display()));
        assert!(text.contains(reason), "{text}");
    }
}
