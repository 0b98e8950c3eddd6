//! What a transport has to bear.

use std::fs::{self, File, OpenOptions};
use std::io::Read;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::harness::{Confined, DEV, Mount, RING, SLACK, Setup, wait_for};
use crate::on_both_transports;

on_both_transports! {
    a_panic_answers_eio_and_the_next_request_is_served
    a_read_that_waits_can_be_interrupted
    a_thousand_held_writes_are_answered
    waiting_requests_keep_nobody_else_waiting
    a_burst_of_requests_that_wait_all_get_a_handler
    every_thread_that_serves_begins_with_what_was_asked
    a_loop_device_keeps_its_data_in_a_file_of_the_mount
    an_unmount_that_fails_can_be_tried_again
    an_aborted_connection_ends_the_session_and_takes_the_mount_away
    a_server_that_is_killed_leaves_no_one_waiting
    many_clients_at_once_get_their_own_answers
}

/// Clients that read what is never there, in processes of their own, all on one processor.
fn blocked_readers(mount: &Mount, name: &str, many: usize, processor: usize) -> Vec<Child> {
    let path = mount.path(name);
    let start = |_| {
        let mut command = Command::new("cat");
        command.arg(&path).stdout(Stdio::null()).stderr(Stdio::null());
        // SAFETY: one system call between fork and exec.
        unsafe { command.pre_exec(move || pin(processor)) };
        command.spawn().unwrap()
    };
    (0..many).map(start).collect()
}

fn pin(processor: usize) -> std::io::Result<()> {
    // SAFETY: a set of processors is plain bits, and the call reads one.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(processor, &mut set);
        match libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set) {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        }
    }
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
    std::thread::sleep(Duration::from_millis(100));
    // SAFETY: a signal to a child of ours.
    unsafe { libc::kill(reader[0].id() as i32, libc::SIGTERM) };
    wait_for("the end of the reader", || reader[0].try_wait().unwrap().is_some());
}

fn a_thousand_held_writes_are_answered(setup: Setup) {
    let mount = Mount::new(setup);
    let file = OpenOptions::new().write(true).create(true).truncate(true).open(mount.path("held")).unwrap();
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..100 {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= 1000 {
                        break;
                    }
                    assert_eq!(file.write_at(&[number as u8; 4096], number as u64 * 4096).unwrap(), 4096);
                }
            });
        }
    });
    let data = fs::read(mount.path("held")).unwrap();
    assert!(data.len() == 4_096_000 && (0..1000).all(|number| data[number * 4096 + 7] == number as u8));
}

fn waiting_requests_keep_nobody_else_waiting(setup: Setup) {
    let mount = Mount::new(setup);
    File::create(mount.path("gate")).unwrap();
    fs::write(mount.path("file"), "text").unwrap();
    let mut readers = blocked_readers(&mount, "gate", 60, 0);
    readers.extend(blocked_readers(&mount, "gate", 20, 1));
    // While they come and after: a request that got stuck beside a free entry would stop this.
    for round in 0..200 {
        let _ = pin(round % 2);
        assert!(!mount.path(&format!("absent-{round}")).exists());
        std::thread::sleep(Duration::from_millis(1));
    }
    File::create(mount.path("open-gates")).unwrap();
    for reader in &mut readers {
        wait_for("a reader", || reader.try_wait().unwrap().is_some());
    }
}

/// All at once, before the first of them can make a spare: those that wait beside a free entry stay there without a poke.
fn burst(mount: &Mount, many: u64) {
    let file = File::create(mount.path("gate")).unwrap();
    let file = File::open(mount.path("gate")).map(|open| (open, file)).unwrap().0;
    let start = std::sync::Barrier::new(many as usize);
    std::thread::scope(|scope| {
        for number in 0..many {
            let (file, start) = (&file, &start);
            scope.spawn(move || {
                pin(0).unwrap();
                start.wait();
                file.read_at(&mut [0; 10], number * 4096).unwrap();
            });
        }
        let waiting = || fs::read_to_string(mount.file("waiting")).unwrap_or_default();
        let until = Instant::now() + Duration::from_secs(10);
        while waiting() != many.to_string() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(5));
        }
        let arrived = waiting();
        pin(1).unwrap();
        File::create(mount.path("open-gates")).unwrap();
        assert_eq!(arrived, many.to_string(), "so many requests had a handler");
    });
}

fn a_burst_of_requests_that_wait_all_get_a_handler(setup: Setup) {
    burst(&Mount::new(setup), 60);
}

#[test]
fn queues_are_poked_by_a_program_too() {
    burst(&Mount::new(Setup { poker: "program", ..RING }), 40);
}

/// As many as there are entries but one keep nobody waiting; beyond that who asks on their processor waits, and nobody is stuck.
#[test]
fn requests_beyond_the_last_entry_wait_in_the_kernel() {
    let mount = Mount::new(Setup { max_entries: 8, ..RING });
    File::create(mount.path("gate")).unwrap();
    let at_gates = |many: usize| {
        wait_for("callers at the gates", || {
            fs::read_to_string(mount.file("waiting")).is_ok_and(|text| text == many.to_string())
        });
    };
    let mut readers = blocked_readers(&mount, "gate", 7, 0);
    at_gates(7);
    pin(0).unwrap();
    for round in 0..100 {
        assert!(!mount.path(&format!("absent-{round}")).exists());
    }
    readers.extend(blocked_readers(&mount, "gate", 23, 0));
    at_gates(8);
    pin(1).unwrap();
    assert!(!mount.path("absent").exists(), "the other processor's queue is free");
    std::thread::sleep(Duration::from_millis(200));
    at_gates(8);
    assert!(readers.iter_mut().all(|reader| reader.try_wait().unwrap().is_none()));
    File::create(mount.path("open-gates")).unwrap();
    for reader in &mut readers {
        wait_for("a reader", || reader.try_wait().unwrap().is_some());
    }
    pin(0).unwrap();
    assert!(!mount.path("absent-on-0").exists());
}

#[test]
fn a_server_confined_to_one_processor_serves_all() {
    for confined in [Confined::Cpuset, Confined::Affinity] {
        let mount = Mount::new(Setup { confined, ..RING });
        assert_eq!(mount.transport, "IoUring");
        for processor in [0, 1] {
            pin(processor).unwrap();
            fs::write(mount.path("file"), "text").unwrap();
            assert_eq!(fs::read_to_string(mount.path("file")).unwrap(), "text");
        }
    }
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
        let output = Command::new("timeout").args(["20", program]).args(arguments).output().unwrap();
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
    let mut threads = 0;
    for task in fs::read_dir(format!("/proc/{}/task", mount.child.id())).unwrap() {
        let task = task.unwrap();
        if fs::read_to_string(task.path().join("comm")).unwrap().starts_with("fuse-") {
            let slack = fs::read_to_string(format!("/proc/{}/timerslack_ns", task.file_name().display())).unwrap();
            assert_eq!(slack.trim(), SLACK.to_string());
            threads += 1;
        }
    }
    assert!(threads >= 4, "{threads} threads");
}

#[test]
fn requests_that_are_not_answered_come_again_when_that_is_asked() {
    let mount = Mount::new(DEV);
    File::create(mount.path("gate")).unwrap();
    let mut readers = blocked_readers(&mount, "gate", 1, 0);
    wait_for("the reader", || mount.file("waiting").exists());
    assert_eq!(mount.tell("resend"), "done");
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
        assert!(mount.transport.contains("its rings cannot be made: "), "{}", mount.transport);
        fs::write(mount.path("file"), "text").unwrap();
        assert_eq!(fs::read_to_string(mount.path("file")).unwrap(), "text");
    }
}

#[test]
#[ignore = "takes a processor away from the whole machine for a moment"]
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
    std::thread::sleep(Duration::from_millis(50));
    mount.child.kill().unwrap();
    wait_for("the server's end", || mount.child.try_wait().unwrap().is_some());
    for reader in &mut readers {
        wait_for("a reader", || reader.try_wait().unwrap().is_some());
    }
    assert_eq!(fs::metadata(mount.path("gate")).unwrap_err().raw_os_error(), Some(libc::ENOTCONN));
}

/// The rings, their threads and the process that pokes them: none of these may keep a killed server from ending.
#[test]
fn a_file_system_that_is_killed_while_its_queues_grow_ends() {
    let runs = std::env::var("KILLS").map_or(3, |runs| runs.parse().unwrap());
    for run in 0..runs {
        let mut mount = Mount::new(RING);
        File::create(mount.path("gate")).unwrap();
        let mut readers = blocked_readers(&mount, "gate", 40, 0);
        std::thread::sleep(Duration::from_millis(run % 7 * 15));
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
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for client in 0..8_u8 {
            let (mount, stop) = (&mount, &stop);
            scope.spawn(move || {
                for round in 0..100_usize {
                    let path = mount.path(&format!("{client}-{round}"));
                    let data = vec![client ^ round as u8; 3000 + round * 50];
                    fs::write(&path, &data).unwrap();
                    let mut found = Vec::new();
                    let mut file = File::open(&path).unwrap();
                    assert!(file.as_raw_fd() > 0);
                    file.read_to_end(&mut found).unwrap();
                    assert!(found == data, "client {client}, round {round}");
                    fs::remove_file(&path).unwrap();
                }
                stop.store(true, Ordering::Relaxed);
            });
        }
    });
    assert!(stop.into_inner());
}
