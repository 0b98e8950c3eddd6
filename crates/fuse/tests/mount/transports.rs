//! What a transport has to bear.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::harness::{DEV, Mount, RING, SLACK, Setup, blocked_readers, pin, wait_for, wait_for_call};
use crate::on_both_transports;

on_both_transports! {
    a_panic_answers_eio_and_the_next_request_is_served
    a_read_that_waits_can_be_interrupted
    every_thread_that_serves_begins_with_what_was_asked
    a_loop_device_keeps_its_data_in_a_file_of_the_mount
    an_unmount_that_fails_can_be_tried_again
    an_aborted_connection_ends_the_session_and_takes_the_mount_away
    a_server_that_is_killed_leaves_no_one_waiting
    many_clients_at_once_get_their_own_answers
}

fn end(children: Vec<Child>) {
    for mut child in children {
        let _ = child.kill();
        let _ = child.wait();
    }
}

#[test]
fn the_transport_is_the_one_asked_for() {
    assert!(Mount::new(DEV).transport.starts_with("Dev"));
    assert_eq!(Mount::new(RING).transport, "IoUring");
}

fn a_panic_answers_eio_and_the_next_request_is_served(setup: Setup) {
    let mount = Mount::new(setup);
    for _ in 0..20 {
        assert_eq!(fs::metadata(mount.path("panic")).unwrap_err().raw_os_error(), Some(libc::EIO));
    }
    fs::write(mount.path("file"), "text").unwrap();
    assert_eq!(fs::read_to_string(mount.path("file")).unwrap(), "text");
}

fn a_read_that_waits_can_be_interrupted(setup: Setup) {
    let mount = Mount::new(setup);
    File::create(mount.path("slow")).unwrap();
    let mut reader = blocked_readers(&mount, "slow", 1, 0);
    wait_for("the reader", || mount.file("waiting").exists());
    // SAFETY: a signal to a child of ours.
    unsafe { libc::kill(reader[0].id() as i32, libc::SIGTERM) };
    wait_for("the end of the reader", || reader[0].try_wait().unwrap().is_some());
}

fn an_aborted_connection_ends_the_session_and_takes_the_mount_away(setup: Setup) {
    let mut mount = Mount::new(setup);
    let device = fs::metadata(mount.root()).unwrap().dev();
    let control = tempfile::tempdir().unwrap();
    let flags = rustix::mount::MountFlags::empty();
    rustix::mount::mount("none", control.path(), "fusectl", flags, None).unwrap();
    let aborted = fs::write(control.path().join(format!("{}/abort", rustix::fs::minor(device))), "1");
    rustix::mount::unmount(control.path(), rustix::mount::UnmountFlags::empty()).unwrap();
    aborted.unwrap();
    wait_for("the server's end", || mount.child.try_wait().unwrap().is_some());
    assert!(mount.file("ended").exists(), "the session ended without an error");
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    assert!(!mounts.contains(mount.root().to_str().unwrap()));
}

/// The kernel's own threads ask too.
fn a_loop_device_keeps_its_data_in_a_file_of_the_mount(setup: Setup) {
    let mount = Mount::new(setup);
    File::create(mount.path("disk")).unwrap().set_len(8 << 20).unwrap();
    let run = |program: &str, arguments: &[&str]| {
        let output = Command::new("timeout").args(["60", program]).args(arguments).output().unwrap();
        assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    };
    let disk = mount.path("disk");
    let device = run("losetup", &["--find", "--show", "--direct-io=on", disk.to_str().unwrap()]);
    let data: Vec<u8> = (0..1_u32 << 20).flat_map(u32::to_le_bytes).collect();
    let written = OpenOptions::new().write(true).open(&device).and_then(|open| {
        open.write_all_at(&data, 4096)?;
        open.sync_all()
    });
    run("losetup", &["--detach", &device]);
    written.unwrap();
    let mut found = vec![0; data.len()];
    File::open(&disk).unwrap().read_exact_at(&mut found, 4096).unwrap();
    assert!(found == data);
}

fn every_thread_that_serves_begins_with_what_was_asked(setup: Setup) {
    let mount = Mount::new(setup);
    // A thread names itself, and does what was asked, when it runs for the first time.
    let slacks = || -> Vec<String> {
        let tasks = fs::read_dir(format!("/proc/{}/task", mount.child.id())).unwrap().map(Result::unwrap);
        let serves = |task: &fs::DirEntry| fs::read_to_string(task.path().join("comm")).unwrap().starts_with("fuse-");
        let slack = |task: fs::DirEntry| {
            fs::read_to_string(format!("/proc/{}/timerslack_ns", task.file_name().display())).unwrap().trim().to_owned()
        };
        tasks.filter(serves).map(slack).collect()
    };
    let asked = SLACK.to_string();
    let deadline = Instant::now() + Duration::from_secs(60);
    while Instant::now() < deadline {
        let found = slacks();
        if found.len() >= 4 && found.iter().all(|slack| *slack == asked) {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("{:?}", slacks());
}

#[test]
fn requests_that_are_not_answered_come_again_when_that_is_asked() {
    let mount = Mount::new(DEV);
    File::create(mount.path("gate")).unwrap();
    let mut readers = blocked_readers(&mount, "gate", 1, 0);
    wait_for("the reader", || mount.file("waiting").exists());
    assert_eq!(mount.notify("resend"), "done");
    wait_for("the same request", || mount.file("resent").exists());
    File::create(mount.path("open-gates")).unwrap();
    wait_for("the reader's end", || readers[0].try_wait().unwrap().is_some());
    assert!(readers[0].wait().unwrap().success());
}

#[test]
fn a_mount_that_cannot_be_put_into_place_leaves_no_thread() {
    struct Nothing;
    impl umbrella_fuse::Filesystem for Nothing {}
    let options = umbrella_fuse::MountOptions::empty();
    let spec = umbrella_fuse::MountSpec { source: "nothing".into(), subtype: String::new(), options };
    let failed =
        umbrella_fuse::Session::mount(Nothing, "/no/such/place".as_ref(), &spec, umbrella_fuse::Config::default());
    assert_eq!(failed.err().and_then(|error| error.raw_os_error()), Some(libc::ENOENT));
    let mut tasks = fs::read_dir("/proc/self/task").unwrap();
    let name = |task: fs::DirEntry| fs::read_to_string(task.path().join("comm")).unwrap_or_default();
    assert!(!tasks.any(|task| name(task.unwrap()).starts_with("fuse-")));
}

#[test]
fn without_rings_requests_come_from_the_device_and_the_reason_is_said() {
    // Two queues with two rings each are too many for it.
    let mount = Mount::new(Setup { descriptors: Some(8), ..RING });
    assert!(mount.transport.contains("its rings cannot be made"), "{}", mount.transport);
    fs::write(mount.path("file"), "text").unwrap();
    assert_eq!(fs::read_to_string(mount.path("file")).unwrap(), "text");
}

#[test]
fn a_server_that_may_not_use_io_uring_reads_the_device() {
    for call in [libc::SYS_io_uring_setup, libc::SYS_io_uring_enter] {
        let mount = Mount::new(Setup { forbidden: Some(call), ..RING });
        assert!(mount.transport.contains("or kernel.io_uring_disabled forbids io_uring"), "{}", mount.transport);
        fs::write(mount.path("file"), "text").unwrap();
        assert_eq!(fs::read_to_string(mount.path("file")).unwrap(), "text");
    }
}

#[test]
fn a_server_without_the_mount_interface_of_linux_5_2_mounts_the_old_way_and_reads_the_device() {
    let mut mount = Mount::new(Setup { forbidden: Some(libc::SYS_fsopen), ..RING });
    assert!(mount.transport.contains("it needs the mount interface of Linux 5.2"), "{}", mount.transport);
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let line = mounts.lines().find(|line| line.contains(mount.root().to_str().unwrap())).unwrap();
    assert!(line.starts_with("memory ") && line.contains(" fuse.memory ") && line.contains("allow_other"), "{line}");
    fs::write(mount.path("file"), "text").unwrap();
    assert_eq!(fs::read_to_string(mount.path("file")).unwrap(), "text");
    let open = File::open(mount.path("file")).unwrap();
    assert!(mount.ask_to_unmount().contains("busy"));
    drop(open);
    // A program that another test starts has a copy of the descriptor for a moment.
    wait_for("the unmount", || mount.ask_to_unmount() == "gone");
    wait_for("the server's end", || mount.child.try_wait().unwrap().is_some());
}

/// As after each start of the machine.
#[test]
#[ignore = "switches io_uring off for the whole machine for a moment; scripts/test.py runs it alone"]
fn the_first_mount_switches_io_uring_on_and_uses_it() {
    let switch = "/sys/module/fuse/parameters/enable_uring";
    fs::write(switch, "N").unwrap();
    let mount = Mount::new(RING);
    assert_eq!(fs::read_to_string(switch).unwrap(), "Y\n");
    assert_eq!(mount.transport, "IoUring");
}

#[test]
#[ignore = "takes a processor away from the whole machine for a moment; make test-fuse runs it"]
fn a_processor_may_go_and_come_back() {
    let switch = "/sys/devices/system/cpu/cpu1/online";
    fs::write(switch, "0").unwrap();
    let mount = Mount::new(RING);
    let without = fs::write(mount.path("file"), "text");
    fs::write(switch, "1").unwrap();
    without.unwrap();
    assert_eq!(mount.transport, "IoUring");
    let busy = || {
        for processor in [1, 0, 1] {
            pin(processor).unwrap();
            assert_eq!(fs::read_to_string(mount.path("file")).unwrap(), "text");
            let _ = fs::metadata(mount.path(&format!("absent-{processor}")));
        }
    };
    busy();
    let ring_threads = || {
        let tasks = fs::read_dir(format!("/proc/{}/task", mount.child.id())).unwrap();
        let status =
            |task: std::io::Result<fs::DirEntry>| fs::read_to_string(task.unwrap().path().join("status")).unwrap();
        let on_second = |status: &String| status.contains("fuse-ring-1") && status.contains("Cpus_allowed_list:\t1\n");
        tasks.map(status).filter(on_second).count()
    };
    assert!(ring_threads() >= 1, "who serves the processor is on it");
    fs::write(switch, "0").unwrap();
    pin(0).unwrap();
    let without = fs::write(mount.path("file"), "text");
    fs::write(switch, "1").unwrap();
    without.unwrap();
    busy();
    assert!(ring_threads() >= 1, "again");
}

fn an_unmount_that_fails_can_be_tried_again(setup: Setup) {
    let mut mount = Mount::new(setup);
    let file = File::create(mount.path("open")).unwrap();
    assert!(mount.ask_to_unmount().contains("busy"));
    assert!(mount.ask_to_unmount().contains("busy"));
    drop(file);
    wait_for("the unmount", || mount.ask_to_unmount() == "gone");
    wait_for("the end", || mount.child.try_wait().unwrap().is_some());
    assert!(mount.file("ended").exists(), "the session ended without an error");
}

fn a_server_that_is_killed_leaves_no_one_waiting(setup: Setup) {
    let mut mount = Mount::new(setup);
    File::create(mount.path("gate")).unwrap();
    let mut readers = blocked_readers(&mount, "gate", 10, 0);
    wait_for("the readers", || fs::read_to_string(mount.file("waiting")).is_ok_and(|text| text == "10"));
    mount.child.kill().unwrap();
    wait_for("the server's end", || mount.child.try_wait().unwrap().is_some());
    for reader in &mut readers {
        wait_for("a reader", || reader.try_wait().unwrap().is_some());
    }
    assert_eq!(fs::metadata(mount.path("gate")).unwrap_err().raw_os_error(), Some(libc::ENOTCONN));
}

/// Neither the rings nor their threads may keep a killed server from ending.
#[test]
fn a_file_system_that_is_killed_while_its_queues_grow_ends() {
    let runs = std::env::var("KILLS").map_or(3, |runs| runs.parse().unwrap());
    for run in 0..runs {
        let mut mount = Mount::new(RING);
        File::create(mount.path("gate")).unwrap();
        let mut readers = blocked_readers(&mount, "gate", 40, 0);
        let enough = run % 7 * 6;
        wait_for("some readers", || {
            let waiting = fs::read_to_string(mount.file("waiting")).unwrap_or_default();
            waiting.parse::<u64>().unwrap_or(0) >= enough
        });
        mount.child.kill().unwrap();
        let since = Instant::now();
        wait_for("the server's end", || mount.child.try_wait().unwrap().is_some());
        for reader in &mut readers {
            wait_for("a reader", || reader.try_wait().unwrap().is_some());
        }
        eprintln!("run {run}: ended after {} ms", since.elapsed().as_millis());
        end(readers);
    }
}

fn many_clients_at_once_get_their_own_answers(setup: Setup) {
    let mount = Mount::new(setup);
    let rounds = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for client in 0..8_u8 {
            let (mount, rounds) = (&mount, &rounds);
            scope.spawn(move || {
                for round in 0..100_usize {
                    let path = mount.path(&format!("{client}-{round}"));
                    let data = vec![client ^ round as u8; 3000 + round * 50];
                    fs::write(&path, &data).unwrap();
                    assert!(fs::read(&path).unwrap() == data, "client {client}, round {round}");
                    fs::remove_file(&path).unwrap();
                    rounds.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!(rounds.into_inner(), 800);
}

#[test]
fn a_session_that_is_dropped_leaves_no_caller_waiting() {
    struct Nothing;
    impl umbrella_fuse::Filesystem for Nothing {}
    for transport in [umbrella_fuse::Transport::Auto, umbrella_fuse::Transport::Dev] {
        let at = tempfile::tempdir().unwrap();
        let options = umbrella_fuse::MountOptions::empty();
        let spec = umbrella_fuse::MountSpec { source: "nothing".into(), subtype: String::new(), options };
        let config = umbrella_fuse::Config { transport, ..umbrella_fuse::Config::default() };
        let session = umbrella_fuse::Session::mount(Nothing, at.path(), &spec, config).unwrap();
        let notifier = session.notifier();
        let mut caller = Command::new("stat").arg("-f").arg(at.path()).stderr(Stdio::null()).spawn().unwrap();
        wait_for_call(caller.id(), libc::SYS_statfs);
        assert!(caller.try_wait().unwrap().is_none(), "nobody answers");
        drop(session);
        let until = Instant::now() + Duration::from_secs(60);
        while caller.try_wait().unwrap().is_none() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(5));
        }
        let ended = caller.try_wait().unwrap();
        let _ = caller.kill();
        let _ = caller.wait();
        assert!(ended.is_some_and(|status| !status.success()), "the caller gets an error");
        assert!(!notifier.is_mounted());
    }
}

/// As the README says: the mount can be seen when it answers, and the program ends with it.
#[test]
fn the_example_shows_its_file_and_ends_with_the_unmount() {
    let tests = std::env::current_exe().unwrap();
    let program = tests.ancestors().nth(2).unwrap().join("examples/one_file");
    assert!(program.exists(), "{} is missing: cargo build --example one_file", program.display());
    let folder = tempfile::tempdir().unwrap();
    let mut child = Command::new(program).arg(folder.path()).spawn().unwrap();
    let script = r#"until mountpoint -q "$0"; do sleep 0.01; done; ls "$0"; cat "$0/hello"; umount "$0""#;
    let output = Command::new("timeout").args(["60", "sh", "-c", script]).arg(folder.path()).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "hello\nHello from user space.\n");
    assert!(child.wait().unwrap().success());
}
