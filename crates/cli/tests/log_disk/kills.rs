//! The daemon of a log store is killed again and again while clients write, flush and verify, and while the cleaner
//! moves what they wrote. What was flushed is there afterwards; of what was not, each block holds something that was
//! written to it since.
//!
//! `UMBRELLA_CRASH_ROUNDS` says how often (default 12), `UMBRELLA_CRASH_SEED` repeats a run.

use std::fs::File;
use std::io::Write;
use std::process::Command;

use rustix::process::{Pid, Signal, kill_process};

use crate::support::pool::text as output_text;
use crate::support::test_disks::{Killed, TestDisks};
use crate::support::writers::{BYTES, Guarantee, Writers};
use crate::support::{MIB, bytes, eventually, number_from_env, run};
use crate::test_disks::text;

/// Blocks that are written before a daemon is killed: enough for something to be cleaned.
const LEAST: u64 = 1500;
/// Most of what the store promises is written.
const SIZE: &str = "40MiB";
const NAME: &str = "k.img";

#[test]
fn a_daemon_killed_while_it_cleans_loses_nothing_that_was_flushed() {
    let (rounds, seed) = (number_from_env("UMBRELLA_CRASH_ROUNDS", 12), number_from_env("UMBRELLA_CRASH_SEED", 1));
    println!("{rounds} rounds, seed {seed}");
    let disks = TestDisks::new();
    let image = text(&disks.path(NAME));
    let size = disks.json(&["create", "--kind", "log", &image, "--size", SIZE, "--segment", "256KiB", "--spare", "5%"])
        ["size"]
        .clone();
    assert!(size.as_u64() >= Some(BYTES), "{size}");
    let socket = disks.path(&format!("run/disks/{NAME}.nbd"));
    let serve = || Killed::serving(disks.umbrella(&["serve", &image]).env("RUST_LOG", "error"), &socket, NAME);
    let mut writers = Writers::new(socket.clone(), NAME, Guarantee::Flushed, seed);
    let (mut cleaned, mut cleaning) = (0, 0);
    for _ in 0..rounds {
        writers.work_until_killed(serve(), LEAST);
        check_after_kill(&disks, &image);
        let _server = serve();
        let stats = disks.json(&["stats", NAME]);
        let before =
            std::mem::replace(&mut cleaned, stats["umbrella_log_cleaned_segments_count"].as_u64().expect("a number"));
        cleaning += u64::from(cleaned > before);
        writers.verify();
    }
    let written = writers.written();
    println!("{written} blocks written, {cleaned} segments cleaned, in {cleaning} of {rounds} rounds");
    assert!(written > LEAST * rounds, "the clients hardly came to write: {written} blocks");
    // What is counted since the last checkpoint goes with the daemon.
    assert!(cleaning > rounds / 4, "there was hardly anything to clean: {cleaned} segments in {cleaning} rounds");
}

#[test]
fn files_that_were_synced_are_there_after_the_daemon_below_a_mounted_file_system_was_killed() {
    let disks = TestDisks::new();
    disks.given(&["create", "--kind", "log", NAME, "--size", "128MiB"]);
    kill_below_a_file_system(&disks, NAME, NAME);
}

#[test]
fn files_that_were_synced_are_there_after_a_kill_on_a_hybrid_disk_as_well() {
    let disks = TestDisks::new();
    let [disk, flash] = ["disk", "flash"].map(|half| text(&disks.path(half)));
    let config = disks.config(
        "both",
        &format!(
            "[disk]\npath = \"{disk}\"\nsize = \"128MiB\"\n[flash]\npath = \"{flash}\"\nsize = \"24MiB\"\n[cache]\nspin_down = \"fixed:timeout=0\"\n[log]\n"
        ),
    );
    disks.given(&["create", &config]);
    kill_below_a_file_system(&disks, "both", &config);
}

/// Finds at most that a flush was under way when the daemon was killed: two threads write the log, and what had to come
/// before may be what is missing. That flush was never answered; the readers of what was flushed show it.
fn check_after_kill(disks: &TestDisks, disk: &str) {
    let reported = output_text(&disks.run(&["check", disk, "--data"]));
    let found = reported.lines().filter(|line| line.starts_with("error: ") || line.starts_with("warning: "));
    for found in found {
        assert!(found.contains("perhaps lost") && found.contains("was being flushed"), "{reported}");
        println!("{found}");
    }
    assert!(reported.contains("data compared: "), "{reported}");
}

/// The daemon is killed while a file is written; what was synced before is read after the next start.
fn kill_below_a_file_system(disks: &TestDisks, name: &str, disk: &str) {
    let mut device = disks.attach(disk);
    run("mkfs.ext4", ["-q", "-F", &device]);
    for round in 0..3 {
        {
            let mount = disks.mount(&device);
            for before in 0..round {
                let found = std::fs::read(mount.path().join(format!("synced {before}"))).expect("it was synced");
                assert!(found == bytes(before, 5 * MIB), "round {round}: what was synced in round {before}");
            }
            let mut synced = File::create(mount.path().join(format!("synced {round}"))).expect("there is room");
            synced.write_all(&bytes(round, 5 * MIB)).and_then(|()| synced.sync_all()).expect("there is room");
            File::open(mount.path()).and_then(|folder| folder.sync_all()).expect("the folder is synced");
            std::fs::write(mount.path().join("under way"), bytes(100 + round, 8 * MIB)).expect("there is room");
            let pid = disks.status(name)["pid"].as_i64().and_then(|pid| Pid::from_raw(pid as i32)).expect("a process");
            kill_process(pid, Signal::KILL).expect("it runs");
            eventually("it is gone", || rustix::process::test_kill_process(pid).is_err());
        }
        check_after_kill(disks, disk);
        device = disks.attach(disk);
        // The first takes over what its journal has, the second finds nothing more.
        let _ = Command::new("e2fsck").args(["-f", "-p", &device]).output().expect("e2fsck(8) runs");
        run("e2fsck", ["-f", "-n", &device]);
    }
    disks.given(&["detach", name, "--keep-cache"]);
    disks.given(&["check", disk, "--data"]);
}
