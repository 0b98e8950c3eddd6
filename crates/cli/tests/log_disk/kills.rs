//! The daemon of a log store is killed again and again while clients write, flush and verify, and while the cleaner moves what they wrote.
//! What was flushed is there afterwards; of what was not, each block holds something that was written to it since.
//!
//! `UMBRELLA_CRASH_ROUNDS` says how often (default 12), `UMBRELLA_CRASH_SEED` repeats a run.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use rustix::process::{Pid, Signal, kill_process};

use crate::house::text;
use crate::support::house::{House, Killed};
use crate::support::nbd::{BLOCK, Client};
use crate::support::{MIB, PATIENCE, bytes, eventually, number_from_env, poll, run};

const CLIENTS: u64 = 4;
/// Blocks of 4 KiB that each client has for itself: together most of what the store promises.
const BLOCKS: u64 = 1500;
/// Blocks that are verified with one read.
const AT_ONCE: u64 = 250;
/// Blocks that are written before a daemon is killed, however slow it is: enough for something to be cleaned.
const LEAST: u64 = 1500;
const SIZE: &str = "40MiB";
const NAME: &str = "k.img";

/// What a client knows of its blocks.
#[derive(Clone)]
struct Known {
    /// The last stamp that is read back now.
    last: Vec<u64>,
    /// The stamps that a block may have after a kill: the last one that was flushed, and all that were written since.
    possible: Vec<Vec<u64>>,
}

fn stamped(stamp: u64) -> Vec<u8> {
    stamp.to_le_bytes().repeat(BLOCK / 8)
}

impl Known {
    /// Writes have been acknowledged as durable.
    fn flushed(&mut self, blocks: std::ops::Range<usize>) {
        for block in blocks {
            self.possible[block] = vec![self.last[block]];
        }
    }
}

/// Writes, flushes and verifies until the server is gone.
fn work(socket: &Path, client: u64, known: &mut Known, random: &mut StdRng, next: &mut u64, written: &AtomicU64) {
    let Ok(mut server) = Client::connect(socket, NAME) else { return };
    loop {
        let block = random.random_range(0..BLOCKS);
        let blocks = random.random_range(1..=16).min(BLOCKS - block);
        let own = block as usize..(block + blocks) as usize;
        let done = match random.random_range(0..20) {
            0 => server.flush().map(|()| known.flushed(0..BLOCKS as usize)),
            1..4 => server.read(client * BLOCKS + block, blocks).map(|found| {
                for (number, found) in own.clone().zip(found.chunks(BLOCK)) {
                    assert!(found == stamped(known.last[number]), "client {client} reads block {number} wrong");
                }
            }),
            kind => {
                let stamps: Vec<u64> = (0..blocks).map(|number| *next + number).collect();
                *next += blocks;
                for (number, stamp) in own.clone().zip(&stamps) {
                    known.possible[number].push(*stamp);
                }
                let data: Vec<u8> = stamps.iter().flat_map(|stamp| stamped(*stamp)).collect();
                let done = if kind == 4 {
                    server.write_through(client * BLOCKS + block, &data)
                } else {
                    server.write(client * BLOCKS + block, &data)
                };
                done.map(|()| {
                    written.fetch_add(blocks, Ordering::Relaxed);
                    for (number, stamp) in own.clone().zip(&stamps) {
                        known.last[number] = *stamp;
                    }
                    if kind == 4 {
                        known.flushed(own.clone());
                    }
                })
            }
        };
        if done.is_err() {
            return;
        }
    }
}

/// Each block holds what was flushed, or something later. That is what it has from now on.
fn verify(server: &mut Client, client: u64, known: &mut Known) {
    let all = (0..BLOCKS / AT_ONCE)
        .flat_map(|part| server.read(client * BLOCKS + part * AT_ONCE, AT_ONCE).expect("it is served"));
    let all: Vec<u8> = all.collect();
    for (block, found) in all.chunks(BLOCK).enumerate() {
        let stamp = u64::from_le_bytes(found[..8].try_into().expect("eight bytes"));
        assert!(found == stamped(stamp), "client {client}, block {block}: a torn block");
        assert!(
            known.possible[block].contains(&stamp),
            "client {client}, block {block} holds {stamp}; possible were {:?}",
            known.possible[block]
        );
        (known.last[block], known.possible[block]) = (stamp, vec![stamp]);
    }
}

fn serve(house: &House, disk: &str) -> Killed {
    Killed::serving(house.umbrella(&["serve", disk]).env("RUST_LOG", "error"), &socket(house), NAME)
}

fn socket(house: &House) -> std::path::PathBuf {
    house.path(&format!("run/disks/{NAME}.nbd"))
}

#[test]
fn a_daemon_killed_while_it_cleans_loses_nothing_that_was_flushed() {
    let (rounds, seed) = (number_from_env("UMBRELLA_CRASH_ROUNDS", 12), number_from_env("UMBRELLA_CRASH_SEED", 1));
    println!("{rounds} rounds, seed {seed}");
    let house = House::new();
    let image = text(&house.path(NAME));
    let size = house.json(&["create", "--kind", "log", &image, "--size", SIZE, "--segment", "256KiB", "--spare", "5%"])
        ["size"]
        .clone();
    assert!(size.as_u64() >= Some(CLIENTS * BLOCKS * BLOCK as u64), "{size}");
    let zero = Known { last: vec![0; BLOCKS as usize], possible: vec![vec![0]; BLOCKS as usize] };
    let mut known = vec![zero; CLIENTS as usize];
    let mut random = StdRng::seed_from_u64(seed);
    let mut next: Vec<u64> = (0..CLIENTS).map(|client| 1 + (client << 48)).collect();
    let (mut cleaned, mut cleaning) = (0, 0);
    for round in 0..rounds {
        let mut server = serve(&house, &image);
        let socket = socket(&house);
        let after = Duration::from_millis(random.random_range(20..400));
        let written = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for (client, (known, next)) in known.iter_mut().zip(&mut next).enumerate() {
                let mut random = StdRng::seed_from_u64(seed ^ round << 8 ^ client as u64);
                let (socket, written) = (&socket, &written);
                scope.spawn(move || work(socket, client as u64, known, &mut random, next, written));
            }
            std::thread::sleep(after);
            poll(PATIENCE, || (written.load(Ordering::Relaxed) > LEAST).then_some(()));
            server.0.kill().expect("it lives");
        });
        drop(server);
        house.given(&["check", &image, "--data"]);
        let _server = serve(&house, &image);
        let stats = house.json(&["stats", NAME]);
        let before =
            std::mem::replace(&mut cleaned, stats["umbrella_log_cleaned_segments_count"].as_u64().expect("a number"));
        cleaning += u64::from(cleaned > before);
        let mut client = Client::connect(&socket, NAME).expect("it is served");
        for (number, known) in known.iter_mut().enumerate() {
            verify(&mut client, number as u64, known);
        }
    }
    let written: u64 = next.iter().map(|next| next & ((1 << 48) - 1)).sum();
    println!("{written} blocks written, {cleaned} segments cleaned, in {cleaning} of {rounds} rounds");
    assert!(written > LEAST * rounds, "the clients hardly came to write: {written} blocks");
    // What is counted since the last checkpoint goes with the daemon.
    assert!(cleaning > rounds / 4, "there was hardly anything to clean: {cleaned} segments in {cleaning} rounds");
}

#[test]
fn files_that_were_synced_are_there_after_the_daemon_below_a_mounted_file_system_was_killed() {
    let house = House::new();
    house.given(&["create", "--kind", "log", NAME, "--size", "128MiB"]);
    kill_below_a_file_system(&house, NAME, NAME);
}

#[test]
fn files_that_were_synced_are_there_after_a_kill_on_a_hybrid_disk_as_well() {
    let house = House::new();
    let [disk, flash] = ["disk", "flash"].map(|half| text(&house.path(half)));
    let config = house.config(
        "both",
        &format!(
            "[disk]\npath = \"{disk}\"\nsize = \"128MiB\"\n[flash]\npath = \"{flash}\"\nsize = \"24MiB\"\n[cache]\nspin_down = \"fixed:timeout=0\"\n[log]\n"
        ),
    );
    house.given(&["create", &config]);
    kill_below_a_file_system(&house, "both", &config);
}

/// The daemon is killed while a file is written; what was synced before is read after the next start.
fn kill_below_a_file_system(house: &House, name: &str, disk: &str) {
    let mut device = house.attach(disk);
    run("mkfs.ext4", ["-q", "-F", &device]);
    for round in 0..3 {
        {
            let mount = house.mount(&device);
            for before in 0..round {
                let found = std::fs::read(mount.path().join(format!("synced {before}"))).expect("it was synced");
                assert!(found == bytes(before, 5 * MIB), "round {round}: what was synced in round {before}");
            }
            let mut synced = File::create(mount.path().join(format!("synced {round}"))).expect("there is room");
            synced.write_all(&bytes(round, 5 * MIB)).and_then(|()| synced.sync_all()).expect("there is room");
            File::open(mount.path()).and_then(|folder| folder.sync_all()).expect("the folder is synced");
            std::fs::write(mount.path().join("under way"), bytes(100 + round, 8 * MIB)).expect("there is room");
            let pid = house.status(name)["pid"].as_i64().and_then(|pid| Pid::from_raw(pid as i32)).expect("a process");
            kill_process(pid, Signal::KILL).expect("it runs");
            eventually("it is gone", || rustix::process::test_kill_process(pid).is_err());
        }
        let told = house.said(&["check", disk, "--data"]);
        assert!(!told.contains("error") && !told.contains("warning"), "{told}");
        device = house.attach(disk);
        // The first takes over what its journal has, the second finds nothing more.
        let _ = Command::new("e2fsck").args(["-f", "-p", &device]).output().expect("e2fsck(8) runs");
        run("e2fsck", ["-f", "-n", &device]);
    }
    house.given(&["detach", name, "--keep-cache"]);
    house.given(&["check", disk, "--data"]);
}
