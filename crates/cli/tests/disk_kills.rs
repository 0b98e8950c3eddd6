//! The daemon of a hybrid disk is killed again and again while clients write and verify. The clients are our own over
//! NBD, and fio on the loop device (fio's NBD engine spins for ever when its server dies). Acknowledged data is there
//! afterwards: a kill loses nothing, flushed or not.
//!
//! `UMBRELLA_CRASH_ROUNDS` says how often (default 12), `UMBRELLA_CRASH_SEED` repeats a run.

mod support;

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use support::test_disks::{Killed, TestDisks};
use support::writers::{Guarantee, Writers};
use support::{TIMEOUT, number_from_env, poll, run};

/// Blocks that are written before a daemon is killed.
const LEAST: u64 = 100;
const CONFIG: &str = "k.toml";

impl TestDisks {
    /// With a hybrid disk.
    fn hybrid() -> TestDisks {
        let disks = TestDisks::new();
        disks.write_config(0);
        disks.given(&["create", CONFIG]);
        disks
    }

    /// Each round empties the flash at other times and in another way.
    fn write_config(&self, round: u64) {
        let [disk, flash] = ["disk", "flash"].map(|name| self.path(name).display().to_string());
        let when = ["each", "full", "watermark", "piggyback"][round as usize % 4];
        let algorithm = ["alg1", "alg4", "whole", "alg3", "alg2"][round as usize % 5];
        let text = format!(
            "name = \"k\"\n[disk]\npath = \"{disk}\"\nsize = \"32MiB\"\ndirect = false\n\
             [flash]\npath = \"{flash}\"\nsize = \"12MiB\"\ndirect = false\n\
             [cache]\nspin_down = \"fixed:timeout=15ms\"\nwhen = \"{when}\"\nalgorithm = \"{algorithm}\"\n"
        );
        fs::write(self.path(CONFIG), text).expect("the folder can be written");
    }

    fn serve(&self, args: &[&str]) -> Command {
        let mut command = self.umbrella(&[&["serve", CONFIG], args].concat());
        command.env("RUST_LOG", "error").stdout(Stdio::null());
        command
    }
}

/// A daemon with a loop device.
struct Attached {
    server: Killed,
    device: PathBuf,
}

impl Attached {
    fn new(disks: &TestDisks) -> Attached {
        let server = Killed(disks.serve(&["--attach"]).spawn().expect("it starts"));
        let device = poll(TIMEOUT, || {
            let status = disks.run(&["status", "k", "--json"]);
            let status: serde_json::Value = serde_json::from_slice(&status.stdout).ok()?;
            status["device"].as_str().map(PathBuf::from)
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
    fn fio(&self, disks: &TestDisks, seed: u64, more: &[&str]) -> Command {
        let mut fio = Command::new("timeout");
        fio.args(["120", "fio", "--name=v", "--direct=1", "--ioengine=psync", "--rw=randwrite", "--size=24M"]);
        fio.args(["--verify=crc32c", "--bs=4k"]).args(more);
        fio.arg(format!("--randseed={seed}")).arg(format!("--filename={}", self.device.display()));
        fio.current_dir(disks.path("")).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        fio
    }
}

const VERIFY: [&str; 3] = ["--verify_only=1", "--verify_state_load=1", "--verify_fatal=1"];

#[test]
fn fio_finds_all_that_a_killed_daemon_had_acknowledged_to_it() {
    let rounds = number_from_env("UMBRELLA_CRASH_ROUNDS", 4);
    let seed = number_from_env("UMBRELLA_CRASH_SEED", 1);
    println!("{rounds} rounds, seed {seed}");
    let disks = TestDisks::hybrid();
    let mut random = StdRng::seed_from_u64(seed);
    let mut verified = 0;
    for round in 0..rounds {
        disks.write_config(round);
        let mut attached = Attached::new(&disks);
        let fio_seed = random.random_range(1..1 << 30);
        // Every second time each write is flushed, as a database does.
        let sync = if round % 2 == 0 { "--sync=dsync" } else { "--sync=none" };
        let before = attached.writes();
        let fio = attached.fio(&disks, fio_seed, &["--do_verify=0", "--verify_state_save=1", "--loops=1000", sync]);
        let fio = { fio }.spawn().expect("fio");
        let least = random.random_range(20..600);
        poll(TIMEOUT, || (attached.writes() > before + least).then_some(()));
        attached.server.0.kill().expect("it lives");
        let written = fio.wait_with_output().expect("fio ends");
        assert!(!written.status.success(), "fio did not notice: {}", String::from_utf8_lossy(&written.stdout));
        drop(attached);
        let attached = Attached::new(&disks);
        let done = attached.fio(&disks, fio_seed, &VERIFY).output().expect("fio");
        let said = String::from_utf8_lossy(&done.stdout).into_owned() + &String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "round {round}: {said}");
        let blocks =
            said.split("issued rwts: total=").nth(1).and_then(|rest| rest.split(',').next()?.parse::<u64>().ok());
        verified += blocks.unwrap_or_else(|| panic!("how many? {said}"));
        if round + 1 == rounds {
            // That fio would have noticed: half of what it wrote is zeroed.
            run("blkdiscard", ["--zeroout", "--length", "12M", attached.device.to_str().expect("UTF-8")]);
            let done = attached.fio(&disks, fio_seed, &VERIFY).output().expect("fio");
            assert!(!done.status.success(), "{}", String::from_utf8_lossy(&done.stdout));
        }
    }
    println!("{verified} writes verified");
    assert!(verified > 10 * rounds, "fio hardly came to write: {verified}");
}

#[test]
fn a_killed_daemon_loses_nothing_that_it_acknowledged() {
    let (rounds, seed) = (number_from_env("UMBRELLA_CRASH_ROUNDS", 12), number_from_env("UMBRELLA_CRASH_SEED", 1));
    println!("{rounds} rounds, seed {seed}");
    let disks = TestDisks::hybrid();
    let socket = disks.path("run/disks/k.nbd");
    let serve = || Killed::serving(&mut disks.serve(&[]), &socket, "k");
    let mut writers = Writers::new(socket.clone(), "k", Guarantee::Acknowledged, seed);
    for round in 0..rounds {
        disks.write_config(round);
        writers.work_until_killed(serve(), LEAST);
        let _server = serve();
        writers.verify();
    }
    let written = writers.written();
    println!("{written} blocks written");
    assert!(written > LEAST * rounds, "the clients hardly came to write: {written} blocks");
}
