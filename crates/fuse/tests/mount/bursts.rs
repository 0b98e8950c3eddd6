//! Many requests at once: more handlers that wait than threads, on one processor.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};
use rustix::mount::{MountFlags, UnmountFlags};

use crate::harness::{Confined, MEMORY, Mount, RING, Setup, blocked_readers, pin, wait_for};
use crate::on_both_transports;

on_both_transports! {
    a_thousand_held_writes_are_answered
    waiting_requests_keep_nobody_else_waiting
    a_burst_of_requests_that_wait_all_get_a_handler
    a_burst_gets_its_handlers_below_another_mount
    a_server_confined_to_one_processor_serves_all
}

fn a_thousand_held_writes_are_answered(setup: Setup) {
    let mount = Mount::new(Setup { max_entries: 1024, ..setup });
    let file = OpenOptions::new().write(true).create(true).truncate(true).open(mount.path("held")).unwrap();
    // The kernel sends writes one after the other while they make a file longer.
    file.set_len(4_096_000).unwrap();
    std::thread::scope(|scope| {
        for number in 0..1000_u64 {
            let file = &file;
            scope.spawn(move || assert_eq!(file.write_at(&[number as u8; 4096], number * 4096).unwrap(), 4096));
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
    let (mut round, mut after) = (0, 0);
    let until = Instant::now() + Duration::from_secs(60);
    while after < 100 {
        let _ = pin(round % 2);
        assert!(!mount.path(&format!("absent-{round}")).exists());
        round += 1;
        let waiting = fs::read_to_string(mount.file("waiting")).unwrap_or_default();
        if waiting == "80" {
            after += 1;
        }
        assert!(Instant::now() < until, "{waiting} came");
    }
    File::create(mount.path("open-gates")).unwrap();
    for reader in &mut readers {
        wait_for("a reader", || reader.try_wait().unwrap().is_some());
    }
}

/// All at once, before the first of them can make a spare, and all on one processor. Every one must get a handler while
/// the others wait.
fn burst(mount: &Mount, many: u64, processor: usize, before: impl FnOnce(&Path)) {
    let writable = File::create(mount.path("gate")).unwrap();
    let file = File::open(mount.path("gate")).unwrap();
    let directory = File::open(mount.root()).unwrap();
    before(&mount.root());
    let start = std::sync::Barrier::new(many as usize);
    std::thread::scope(|scope| {
        for number in 0..many {
            let (file, start) = (&file, &start);
            scope.spawn(move || {
                pin(processor).unwrap();
                start.wait();
                file.read_at(&mut [0; 10], number * 4096).unwrap();
            });
        }
        let waiting = || fs::read_to_string(mount.file("waiting")).unwrap_or_default();
        let until = Instant::now() + Duration::from_secs(60);
        while waiting() != many.to_string() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(5));
        }
        let arrived = waiting();
        pin(1 - processor).unwrap();
        rustix::fs::openat(&directory, "open-gates", OFlags::CREATE | OFlags::WRONLY, Mode::RUSR).unwrap();
        assert_eq!(arrived, many.to_string(), "so many requests had a handler");
    });
    drop(writable);
}

fn a_burst_of_requests_that_wait_all_get_a_handler(setup: Setup) {
    for processor in [0, 1] {
        burst(&Mount::new(setup), 60, processor, |_| {});
    }
}

/// The queue is found without the path of the mount.
fn a_burst_gets_its_handlers_below_another_mount(setup: Setup) {
    let mount = Mount::new(setup);
    let over = |root: &Path| rustix::mount::mount("none", root, "tmpfs", MountFlags::empty(), None).unwrap();
    burst(&mount, 60, 1, over);
    rustix::mount::unmount(mount.root(), UnmountFlags::DETACH).unwrap();
}

#[test]
fn a_burst_of_large_reads_keeps_the_memory_of_four_threads() {
    let mount = Mount::new(RING);
    fs::write(mount.path("gate"), vec![7; 1 << 20]).unwrap();
    let before = mount.anonymous_memory();
    let file = File::open(mount.path("gate")).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..60 {
            scope.spawn(|| {
                pin(0).unwrap();
                let mut data = vec![0; 1 << 20];
                file.read_exact_at(&mut data, 0).unwrap();
                assert!(data.iter().all(|byte| *byte == 7));
            });
        }
        wait_for("60 readers", || fs::read_to_string(mount.file("waiting")).is_ok_and(|text| text == "60"));
        pin(1).unwrap();
        File::create(mount.path("open-gates")).unwrap();
    });
    // Stacks and what the file system itself keeps are two more.
    wait_for("the memory", || mount.anonymous_memory() < before + (6 << 20));
}

#[test]
fn a_queue_whose_second_thread_fails_serves_and_gets_another() {
    let mount = Mount::new(Setup { no_spare: true, ..RING });
    assert_eq!(mount.transport, "IoUring");
    burst(&mount, 20, 1, |_| {});
    assert!(
        fs::read_to_string(mount.file("shortage")).unwrap().contains("cannot start its second thread for requests")
    );
}

#[test]
fn buffers_lie_in_the_memory_that_was_given() {
    let mount = Mount::new(Setup { ring_memory: true, ..RING });
    assert_eq!(mount.transport, "IoUring");
    let maps = fs::read_to_string(format!("/proc/{}/maps", mount.child.id())).unwrap();
    let first = maps.lines().find(|line| line.contains("memfd:fuse-rings")).unwrap();
    assert!(first.starts_with(&format!("{MEMORY:x}-")), "{first}");
    burst(&mount, 40, 0, |_| {});
    let data: Vec<u8> = (0..1_u32 << 18).flat_map(u32::to_le_bytes).collect();
    fs::write(mount.path("file"), &data).unwrap();
    assert!(fs::read(mount.path("file")).unwrap() == data);
}

/// As many requests as there are entries but one keep nobody waiting. Beyond that, further callers on their processor
/// wait, and nobody is stuck.
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

fn a_server_confined_to_one_processor_serves_all(setup: Setup) {
    for confined in [Confined::Cpuset, Confined::Affinity] {
        let mount = Mount::new(Setup { confined, ..setup });
        for processor in [0, 1] {
            pin(processor).unwrap();
            fs::write(mount.path("file"), "text").unwrap();
            assert_eq!(fs::read_to_string(mount.path("file")).unwrap(), "text");
        }
        burst(&mount, 60, 1, |_| {});
    }
}

/// No thread of it can make that processor's queue look for what waits.
#[test]
fn a_server_that_an_online_processor_is_forbidden_to_reads_the_device() {
    let mount = Mount::new(Setup { confined: Confined::Cpuset, ..RING });
    assert!(mount.transport.contains("may not run on processor 1"), "{}", mount.transport);
    let mount = Mount::new(Setup { confined: Confined::Affinity, ..RING });
    assert_eq!(mount.transport, "IoUring");
}
