//! The daemon of a hybrid disk is killed again and again while clients write and verify: our own over NBD, and fio on the loop device (its
//! NBD engine spins for ever when its server dies). What was acknowledged is there afterwards: a kill loses nothing, flushed or not.
//!
//! `UMBRELLA_CRASH_ROUNDS` says how often (default 12), `UMBRELLA_CRASH_SEED` repeats a run.

mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use support::house::Killed;
use support::nbd::{BLOCK, Client};
use support::{PATIENCE, number_from_env, poll, require_root_and_fuse, run, temp_dir};

const CLIENTS: u64 = 4;
/// Blocks of 4 KiB that each client has for itself.
const BLOCKS: u64 = 1500;
/// Blocks that are written before a daemon is killed, however slow it is.
const LEAST: u64 = 100;
const SIZE: &str = "32MiB";

/// What a client knows of its blocks: the stamp that was acknowledged, and that of a write without an answer.
#[derive(Clone)]
struct Known {
    acknowledged: Vec<u64>,
    open: Vec<Option<u64>>,
}

fn stamped(stamp: u64) -> Vec<u8> {
    stamp.to_le_bytes().repeat(BLOCK / 8)
}

/// Writes and verifies until the server is gone.
fn work(socket: &Path, client: u64, known: &mut Known, random: &mut StdRng, next: &mut u64, written: &AtomicU64) {
    let Ok(mut server) = Client::connect(socket, "k") else { return };
    loop {
        let block = random.random_range(0..BLOCKS);
        let blocks = random.random_range(1..=16).min(BLOCKS - block);
        let own = block as usize..(block + blocks) as usize;
        let done = match random.random_range(0..10) {
            0 => server.flush(),
            1..3 => server.read(client * BLOCKS + block, blocks).map(|found| {
                for (number, found) in own.clone().zip(found.chunks(BLOCK)) {
                    assert!(found == stamped(known.acknowledged[number]), "client {client} reads block {number} wrong");
                }
            }),
            _ => {
                let stamps: Vec<u64> = (0..blocks).map(|number| *next + number).collect();
                *next += blocks;
                for (number, stamp) in own.clone().zip(&stamps) {
                    known.open[number] = Some(*stamp);
                }
                let data: Vec<u8> = stamps.iter().flat_map(|stamp| stamped(*stamp)).collect();
                server.write(client * BLOCKS + block, &data).map(|()| {
                    written.fetch_add(blocks, Ordering::Relaxed);
                    for (number, stamp) in own.clone().zip(&stamps) {
                        (known.acknowledged[number], known.open[number]) = (*stamp, None);
                    }
                })
            }
        };
        if done.is_err() {
            return;
        }
    }
}

/// Each sector of a block holds what was acknowledged, or what the open write would have brought.
fn verify(server: &mut Client, client: u64, known: &mut Known) {
    for block in 0..BLOCKS as usize {
        let found = server.read(client * BLOCKS + block as u64, 1).expect("it is served");
        let (acknowledged, open) = (known.acknowledged[block], known.open[block].take());
        for sector in found.chunks(512) {
            let stamp = u64::from_le_bytes(sector[..8].try_into().expect("eight bytes"));
            assert!(sector == stamp.to_le_bytes().repeat(64), "client {client}, block {block}: a torn sector");
            assert!(
                stamp == acknowledged || Some(stamp) == open,
                "client {client}, block {block} holds {stamp}: {acknowledged} was acknowledged, {open:?} under way"
            );
        }
        // A block that came half way is written whole, so that it is known again.
        if open.is_some() {
            server.write(client * BLOCKS + block as u64, &stamped(acknowledged)).expect("it is served");
        }
    }
}

struct House {
    dir: tempfile::TempDir,
    config: PathBuf,
}

impl House {
    fn new(name: &str) -> House {
        let dir = temp_dir(name);
        let house = House { config: dir.path().join("k.toml"), dir };
        house.write_config(0);
        assert!(house.umbrella(&["create"]).stdout(Stdio::null()).status().expect("it runs").success());
        house
    }

    /// Each round empties the flash at other times and in another way.
    fn write_config(&self, round: u64) {
        let path = |name: &str| self.dir.path().join(name).display().to_string();
        let when = ["each", "full", "watermark", "piggyback"];
        let algorithms = ["alg1", "alg4", "whole", "alg3", "alg2"];
        let text = format!(
            "name = \"k\"\n[disk]\npath = \"{}\"\nsize = \"{SIZE}\"\ndirect = false\n[flash]\npath = \"{}\"\nsize = \"12MiB\"\ndirect = false\n\
             [cache]\nspin_down = \"fixed:timeout=15ms\"\nwhen = \"{}\"\nalgorithm = \"{}\"\n",
            path("disk"),
            path("flash"),
            when[round as usize % 4],
            algorithms[round as usize % 5],
        );
        fs::write(&self.config, text).expect("the folder can be written");
    }

    fn umbrella(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_umbrella"));
        command.arg("disk").args(args).arg(&self.config).stdin(Stdio::null()).env("RUST_LOG", "error");
        command.env("UMBRELLA_RUN_DIR", self.dir.path().join("run"));
        command.env("UMBRELLA_STATE_DIR", self.dir.path().join("state"));
        command
    }

    fn socket(&self) -> PathBuf {
        self.dir.path().join("run/disks/k.nbd")
    }

    fn serve(&self) -> Killed {
        Killed::serving(&mut self.umbrella(&["serve"]), &self.socket(), "k")
    }
}

/// A daemon with a loop device.
struct Attached {
    server: Killed,
    device: PathBuf,
}

impl Attached {
    fn new(house: &House) -> Attached {
        let server = Killed(house.umbrella(&["serve", "--attach"]).stdout(Stdio::null()).spawn().expect("it starts"));
        let device = poll(PATIENCE, || {
            let status = house.umbrella(&["status", "--json"]).stderr(Stdio::null()).output().expect("it runs");
            let status: serde_json::Value = serde_json::from_slice(&status.stdout).ok()?;
            status.pointer("/0/device").or(status.get("device"))?.as_str().map(PathBuf::from)
        });
        Attached { server, device: device.expect("it is attached") }
    }

    /// Writes that the device has completed.
    fn writes(&self) -> u64 {
        let name = self.device.file_name().expect("a name").to_string_lossy();
        let stat = fs::read_to_string(format!("/sys/block/{name}/stat")).unwrap_or_default();
        stat.split_whitespace().nth(4).and_then(|number| number.parse().ok()).unwrap_or(0)
    }

    /// fio that writes with its checksums, or verifies what it knows that it wrote.
    fn fio(&self, house: &House, seed: u64, more: &[&str]) -> Command {
        let mut fio = Command::new("timeout");
        fio.args([
            "120",
            "fio",
            "--name=v",
            "--direct=1",
            "--ioengine=psync",
            "--rw=randwrite",
            "--size=24M",
            "--verify=crc32c",
        ]);
        fio.args(["--bs=4k"]).args(more);
        fio.arg(format!("--randseed={seed}")).arg(format!("--filename={}", self.device.display()));
        fio.current_dir(house.dir.path()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        fio
    }
}

const VERIFY: [&str; 3] = ["--verify_only=1", "--verify_state_load=1", "--verify_fatal=1"];

#[test]
fn fio_finds_all_that_a_killed_daemon_had_acknowledged_to_it() {
    let rounds = number_from_env("UMBRELLA_CRASH_ROUNDS", 4);
    let seed = number_from_env("UMBRELLA_CRASH_SEED", 1);
    println!("{rounds} rounds, seed {seed}");
    require_root_and_fuse();
    let house = House::new("fio-kills");
    let mut random = StdRng::seed_from_u64(seed);
    let mut verified = 0;
    for round in 0..rounds {
        house.write_config(round);
        let mut attached = Attached::new(&house);
        let fio_seed = random.random_range(1..1 << 30);
        // Every second time each write is flushed, as a database does.
        let sync = if round % 2 == 0 { "--sync=dsync" } else { "--sync=none" };
        let before = attached.writes();
        let fio = attached.fio(&house, fio_seed, &["--do_verify=0", "--verify_state_save=1", "--loops=1000", sync]);
        let fio = { fio }.spawn().expect("fio");
        let least = random.random_range(20..600);
        poll(PATIENCE, || (attached.writes() > before + least).then_some(()));
        attached.server.0.kill().expect("it lives");
        let written = fio.wait_with_output().expect("fio ends");
        assert!(!written.status.success(), "fio did not notice: {}", String::from_utf8_lossy(&written.stdout));
        drop(attached);
        let attached = Attached::new(&house);
        let done = attached.fio(&house, fio_seed, &VERIFY).output().expect("fio");
        let said = String::from_utf8_lossy(&done.stdout).into_owned() + &String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "round {round}: {said}");
        let blocks =
            said.split("issued rwts: total=").nth(1).and_then(|rest| rest.split(',').next()?.parse::<u64>().ok());
        verified += blocks.unwrap_or_else(|| panic!("how many? {said}"));
        if round + 1 == rounds {
            // That fio would have noticed: half of what it wrote is zeroed.
            run("blkdiscard", ["--zeroout", "--length", "12M", attached.device.to_str().expect("UTF-8")]);
            let done = attached.fio(&house, fio_seed, &VERIFY).output().expect("fio");
            assert!(!done.status.success(), "{}", String::from_utf8_lossy(&done.stdout));
        }
    }
    println!("{verified} writes verified");
    assert!(verified > 10 * rounds, "fio hardly came to write: {verified}");
}

impl Drop for House {
    /// Takes away the mount below the loop device that the last killed daemon left.
    fn drop(&mut self) {
        let mount = self.dir.path().join("run/disks/k");
        let _ = Command::new("umount").arg("-l").arg(mount).stderr(Stdio::null()).status();
    }
}

#[test]
fn a_killed_daemon_loses_nothing_that_it_acknowledged() {
    let (rounds, seed) = (number_from_env("UMBRELLA_CRASH_ROUNDS", 12), number_from_env("UMBRELLA_CRASH_SEED", 1));
    println!("{rounds} rounds, seed {seed}");
    let house = House::new("disk-kills");
    let zero = Known { acknowledged: vec![0; BLOCKS as usize], open: vec![None; BLOCKS as usize] };
    let mut known = vec![zero; CLIENTS as usize];
    let mut random = StdRng::seed_from_u64(seed);
    let mut next: Vec<u64> = (0..CLIENTS).map(|client| 1 + (client << 48)).collect();
    for round in 0..rounds {
        house.write_config(round);
        let mut server = house.serve();
        let socket = house.socket();
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
        let _server = house.serve();
        let mut client = Client::connect(&house.socket(), "k").expect("it is served");
        for (number, known) in known.iter_mut().enumerate() {
            verify(&mut client, number as u64, known);
        }
    }
    let written: u64 = next.iter().map(|next| next & ((1 << 48) - 1)).sum();
    println!("{written} blocks written");
    assert!(written > LEAST * rounds, "the clients hardly came to write: {written} blocks");
}
