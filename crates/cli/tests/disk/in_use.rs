//! Images that others have open, daemons whose starter is gone, and reads that fail.

use super::*;

/// An image with something in it.
fn image(disks: &TestDisks, name: &str) -> String {
    let path = disks.path(name);
    fs::write(&path, bytes(9, 4 * MIB)).expect("the folder can be written");
    path.to_str().expect("text").to_owned()
}

fn qemu(program: &str, args: &[&str]) -> Output {
    Command::new(program).args(args).stdin(Stdio::null()).output().expect("qemu-utils: run `make setup` first")
}

#[track_caller]
fn is_locked(program: &str, args: &[&str]) {
    let output = qemu(program, args);
    assert!(!output.status.success() && said(&output).contains("lock"), "{program} {args:?}: {}", said(&output));
}

#[test]
fn qemus_programs_refuse_an_image_that_is_served() {
    let disks = TestDisks::new();
    let (image, copy) = (image(&disks, "a.img"), disks.path("copy"));
    let convert = ["convert", "-f", "raw", "-O", "raw", &image, copy.to_str().expect("text")];
    let write = ["-f", "raw", "-c", "write 0 512", &image];
    let read = ["-r", "-f", "raw", "-c", "read 0 512", &image];
    disks.given(&["serve", "--daemon", "--disk", &image, "--name", "a"]);
    is_locked("qemu-img", &convert);
    is_locked("qemu-img", &["resize", "-f", "raw", &image, "8M"]);
    is_locked("qemu-io", &write);
    let socket = disks.path("q.sock");
    is_locked("qemu-nbd", &["-f", "raw", "-k", socket.to_str().expect("text"), &image]);
    disks.given(&["detach", "a"]);

    disks.given(&["serve", "--daemon", "--disk", &image, "--name", "a", "--read-only"]);
    is_locked("qemu-io", &write);
    assert!(qemu("qemu-io", &read).status.success(), "two may read");
    disks.given(&["detach", "a"]);
    assert!(qemu("qemu-io", &write).status.success());
    assert!(qemu("qemu-img", &convert).status.success());
}

/// A program of QEMU's that has an image open, until it is dropped.
struct Open(Killed);

impl Open {
    fn new(image: &str, read_only: bool) -> Open {
        let mut command = Command::new("qemu-io");
        command.args(read_only.then_some("-r")).args(["-f", "raw", image]);
        let child = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let open = Open(Killed(child.expect("qemu-utils: run `make setup` first")));
        let fds = format!("/proc/{}/fdinfo", open.0.0.id());
        eventually("it has locks", || {
            let mut files = fs::read_dir(&fds).into_iter().flatten().flatten();
            files.any(|file| fs::read_to_string(file.path()).is_ok_and(|text| text.contains("OFDLCK")))
        });
        open
    }

    fn named(&self) -> String {
        format!("in use by qemu-io (process {})", self.0.0.id())
    }
}

#[test]
fn an_image_that_qemu_has_open_is_refused_and_its_process_named() {
    let disks = TestDisks::new();
    let image = image(&disks, "a.img");
    let writer = Open::new(&image, false);
    for command in
        [&["serve", "--disk", &image][..], &["serve", "--read-only", "--disk", &image], &["attach", "--disk", &image]]
    {
        disks.refused(command, 1, &[&writer.named()]);
    }
    disks.refused(&["check", "--disk", &image], 0, &[&writer.named(), "a.img: in use, not checked"]);
    drop(writer);
    // Two may read.
    let reader = Open::new(&image, true);
    disks.given(&["serve", "--daemon", "--read-only", "--disk", &image]);
    disks.given(&["detach"]);
    drop(reader);
    disks.given(&["serve", "--daemon", "--disk", &image]);
    disks.given(&["detach"]);
}

#[test]
fn a_check_of_a_disk_that_is_served_does_not_say_that_it_is_ok() {
    let disks = TestDisks::new();
    let image = image(&disks, "plain.img");
    let check = ["check", "--disk", &image];
    assert_eq!(disks.json(&check)["ok"], true);
    disks.given(&["serve", "--daemon", "--disk", &image]);
    let report = disks.json(&check);
    assert_eq!(report["ok"], Value::Null);
    assert!(report["unread"].as_str().expect("text").contains("plain.img is served"), "{report}");
    disks.refused(&check, 0, &["its data was not checked", "plain.img: in use, not checked"]);
    // By another name, which has a daemon of its own.
    disks.refused(&["check", "--disk", &image, "--name", "b"], 0, &["in use by umbrella", "b: in use, not checked"]);
    disks.given(&["detach"]);
    disks.given(&["serve", "--daemon", "--read-only", "--disk", &image]);
    disks.refused(&check, 0, &["plain.img is served, read-only", "plain.img: ok (file, 0 errors, 1 warning)"]);
    disks.given(&["detach"]);
}

#[test]
fn a_daemon_that_is_still_opening_outlives_its_starter() {
    for end in [Signal::KILL, Signal::TERM] {
        let disks = TestDisks::new();
        // So slow that it takes seconds to be opened.
        let (disk, flash) = (disks.path("s.disk"), disks.path("s.flash"));
        let config = disks.path("slow.disk.toml");
        let text = format!(
            "[disk]\nkind = \"emulated\"\nprofile = \"modern\"\nsize = \"64MiB\"\nspeed = 0.02\npath = {disk:?}\n\
             [flash]\nkind = \"emulated\"\nprofile = \"sata_ssd\"\nsize = \"16MiB\"\nspeed = 0.02\npath = {flash:?}\n"
        );
        fs::write(&config, text).expect("the folder can be written");
        let config = config.to_str().expect("text");
        disks.given(&["create", config]);
        let mut starter =
            disks.umbrella(&["serve", "--daemon", config]).stderr(Stdio::piped()).spawn().expect("it can be started");
        eventually("its daemon opens it", || disks.path("run/disks/slow.sock").exists());
        let pid = Pid::from_raw(starter.id().cast_signed()).expect("a process");
        assert!(starter.try_wait().expect("it is our child").is_none(), "it is opened too fast for this test");
        kill_process(pid, end).expect("it waits");
        let output = starter.wait_with_output().expect("it ends");
        if end == Signal::TERM {
            let reported = said(&output);
            assert!(
                reported.contains("is still opening") && reported.contains("`umbrella disk detach slow`"),
                "{reported}"
            );
        }
        eventually("the disk is served", || disks.is_served("slow"));
        let logs = disks.logs();
        assert!(logs.contains("the process that started the daemon is gone"), "{logs}");
        disks.given(&["detach", "--keep-cache"]);
    }
}

#[test]
fn reads_that_fail_are_counted_and_reported() {
    let disks = TestDisks::new();
    let image = image(&disks, "a.img");
    disks.given(&["serve", "--daemon", "--disk", &image, "--name", "a"]);
    assert_eq!(disks.json(&["stats", "a"])["umbrella_disk_failed_reads_count"], 0);
    assert_eq!(disks.status("a")["trouble"], Value::Array(Vec::new()));
    // What is gone cannot be read.
    File::options().write(true).open(&image).and_then(|file| file.set_len(MIB)).expect("it can be cut");
    let io = |what: &str| qemu("qemu-io", &["-r", "-f", "raw", "-c", what, &disks.nbd("a")]);
    assert!(said(&io("read 2M 4k")).contains("read failed") || !io("read 2M 4k").status.success());
    let failed = disks.json(&["stats", "a"])["umbrella_disk_failed_reads_count"].as_u64().expect("a count");
    assert!(failed > 0);
    let reported = disks.given(&["status", "a"]);
    assert!(
        reported.contains("of the disk (")
            && reported.contains("failed since it was offered, the last one at sector 4096"),
        "{reported}"
    );
    assert_eq!(disks.status("a")["trouble"].as_array().map(Vec::len), Some(1));
    File::options().write(true).open(&image).and_then(|file| file.set_len(4 * MIB)).expect("it can be mended");
    disks.given(&["detach", "a"]);
}
