//! Daemons that hang: one that is stopped holds up nothing but its own disk, and what was asked of it meanwhile does
//! not happen later.
//!
//! A FUSE request that the daemon has not read yet can be given up; for one that it has read, the asker cannot even be
//! killed. Both are tested.

use std::time::{Duration, Instant};

use super::support::foreign::{Mirror, delay};
use super::support::looped::Looped;
use super::support::process::waits;
use super::*;

/// Longer than any limit of a command, shorter than the timeout of a test.
const LIMIT: Duration = Duration::from_secs(60);

/// A process that is stopped until this is dropped, also when a test fails.
struct Stopped(Pid);

impl Stopped {
    fn new(pid: Pid) -> Stopped {
        kill_process(pid, Signal::STOP).expect("it runs");
        Stopped(pid)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        let _ = kill_process(self.0, Signal::CONT);
    }
}

impl TestDisks {
    /// As `run`, of what must not hang: one that does is killed, and its test fails.
    #[track_caller]
    fn in_time(&self, args: &[&str]) -> Output {
        let mut command = self.umbrella(args);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it can be started");
        if poll(LIMIT, || child.try_wait().expect("it is our child")).is_none() {
            let _ = child.kill();
            panic!("{args:?} hangs");
        }
        child.wait_with_output().expect("it has ended")
    }

    /// Must end with 1 in time, and say all of it.
    #[track_caller]
    fn fails_in_time(&self, args: &[&str], parts: &[&str]) {
        let output = self.in_time(args);
        let reported = said(&output);
        assert_eq!(output.status.code(), Some(1), "{args:?}: {reported}");
        for part in parts {
            assert!(reported.contains(part), "{args:?}: {part:?} is not in {reported:?}");
        }
    }

    /// All that is done with another disk.
    fn uses_another_disk(&self) {
        let image = self.path("other.img");
        let image = image.to_str().expect("text");
        File::create(image).and_then(|file| file.set_len(32 << 20)).expect("the folder can be written");
        for args in [
            &["check", "--disk", image][..],
            &["serve", "--daemon", "--disk", image, "--name", "other"],
            &["check", "--disk", image, "--name", "other"],
            &["attach", "--disk", image, "--name", "other"],
            &["status", "other"],
            &["detach", "other"],
        ] {
            let output = self.in_time(args);
            assert!(output.status.success(), "{args:?}: {}", said(&output));
        }
    }
}

/// Attaches a disk and writes to its device, so that the kernel has to ask for the file's attributes again.
fn attached(disks: &TestDisks, name: &str) -> String {
    let device = disks.given(&["attach", "--disk", "memory:size=32MiB", "--name", name]).trim().to_owned();
    write_to(&device);
    device
}

fn write_to(device: &str) {
    run("dd", ["if=/dev/urandom", &format!("of={device}"), "bs=1M", "count=1", "oflag=direct", "status=none"]);
}

#[test]
fn a_stopped_daemon_holds_up_no_other_disk() {
    let disks = TestDisks::new();
    attached(&disks, "stopped");
    let stopped = Stopped::new(disks.pid("stopped"));
    disks.uses_another_disk();
    drop(stopped);
    disks.given(&["detach", "stopped"]);
}

#[test]
fn a_daemon_that_has_read_a_request_and_does_not_answer_holds_up_no_other_disk() {
    let disks = TestDisks::new();
    attached(&disks, "slow");
    let pid = disks.pid("slow").as_raw_pid().cast_unsigned();
    // Its answers to the kernel; longer than all limits together.
    let slow = delay(pid, "writev", "delay_enter", "300s");
    disks.uses_another_disk();
    drop(slow);
    disks.given(&["detach", "slow"]);
}

#[test]
fn what_lies_on_a_file_system_that_does_not_answer_is_refused_in_time() {
    let disks = TestDisks::new();
    let mirror = Mirror::new();
    let image = mirror.path().join("disk.img");
    fs::write(&image, vec![7; 8 << 20]).expect("it can be written");
    let looped = Looped::on(&image);
    let link = disks.path("link.img");
    std::os::unix::fs::symlink(&image, &link).expect("the folder can be written");
    let pid = Pid::from_raw(mirror.pid().cast_signed()).expect("a process");
    let stopped = Stopped::new(pid);
    for path in [&image, &link, looped.path()] {
        let path = path.to_str().expect("text");
        let at = mirror.path();
        let parts = ["did not answer within 10 s", at.to_str().expect("text")];
        disks.fails_in_time(&["check", "--disk", path], &parts);
        disks.fails_in_time(&["serve", "--disk", path], &parts);
    }
    disks.fails_in_time(&["detach", image.to_str().expect("text")], &["did not answer within 10 s"]);
    disks.uses_another_disk();
    drop(stopped);
    drop(looped);
}

#[test]
fn of_a_stopped_daemon_each_command_says_what_to_do_and_does_nothing_later() {
    let disks = TestDisks::new();
    let device = attached(&disks, "stopped");
    let pid = disks.pid("stopped");
    let stopped = Stopped::new(pid);
    let go_on = format!("`kill -CONT {}`", pid.as_raw_pid());
    for name in ["stopped", &device] {
        disks.fails_in_time(&["status", name], &["is stopped", &go_on]);
        disks.fails_in_time(&["stats", name], &["is stopped", &go_on]);
        let as_it_is = "the disk stays served when its daemon continues";
        disks.fails_in_time(&["detach", name], &["is stopped", &go_on, as_it_is]);
    }
    let all = disks.in_time(&["status"]);
    assert!(said(&all).contains("stopped: the daemon"), "{}", said(&all));
    // One that somebody ends who does not want to wait.
    let mut cancelled =
        disks.umbrella(&["detach", "stopped"]).stderr(Stdio::null()).spawn().expect("it can be started");
    assert!(waits(&mut cancelled), "it has given up");
    cancelled.kill().expect("it waits");
    cancelled.wait().expect("it is our child");
    drop(stopped);
    let since = Instant::now();
    while since.elapsed() < Duration::from_secs(2) {
        assert_eq!(disks.status("stopped")["device"], Value::from(device.as_str()));
    }
    write_to(&device);
    // It was in memory.
    assert_eq!(disks.json(&["detach", "stopped"])["outcome"], "gone");
    ends(pid);
}

#[test]
fn a_detachment_that_takes_long_is_waited_for_as_long_as_its_daemon_says_so() {
    let disks = TestDisks::new();
    let image = disks.path("slow.img");
    File::create(&image).and_then(|file| file.set_len(32 << 20)).expect("the folder can be written");
    disks.given(&["serve", "--daemon", "--disk", image.to_str().expect("text"), "--name", "slow"]);
    disks.write("slow", &bytes(1, MIB));
    let pid = disks.pid("slow");
    let slow = delay(pid.as_raw_pid().cast_unsigned(), "fsync,fdatasync", "delay_enter", "20s");
    assert_eq!(disks.json(&["detach", "slow"])["outcome"], "detached");
    drop(slow);
    ends(pid);
}

#[test]
fn a_check_of_a_pool_whose_branch_has_read_a_request_and_does_not_answer_ends() {
    let disks = TestDisks::new();
    let mirror = Mirror::new();
    let (mount, local, config) = (disks.path("mnt"), disks.path("local"), disks.path("pool.toml"));
    fs::create_dir(&mount).and_then(|()| fs::create_dir(&local)).expect("the folder can be written");
    let text = format!(
        "mount = {mount:?}\ndefault = [\"near\", \"far\"]\n[[branch]]\nname = \"near\"\npath = {local:?}\n[[branch]]\nname = \"far\"\npath = {:?}\n",
        mirror.path()
    );
    fs::write(&config, text).expect("the folder can be written");
    let slow = mirror.delay("%%stat,%%statfs", "delay_enter", "300s");
    let mut command = Command::new(env!("CARGO_BIN_EXE_umbrella"));
    let mut child =
        command.arg("check").arg(&config).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let ended = poll(LIMIT, || child.try_wait().expect("it is our child"));
    drop(slow);
    assert!(ended.is_some(), "it hangs");
    let output = child.wait_with_output().expect("it has ended");
    let reported = format!("{}{}", String::from_utf8_lossy(&output.stdout), said(&output));
    assert!(reported.contains("far") && reported.contains("answer"), "{reported}");
}
