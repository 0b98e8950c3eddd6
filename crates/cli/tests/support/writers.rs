//! Clients of a disk whose daemon is killed again and again: each writes, flushes and verifies blocks of its own, and
//! verifies them all after the next start.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::nbd::{BLOCK, Client};
use super::test_disks::Killed;
use super::{TIMEOUT, poll};

const CLIENTS: u64 = 4;
/// Blocks of 4 KiB that each client has for itself.
const BLOCKS: u64 = 1500;
/// Blocks that are verified with one read.
const AT_ONCE: u64 = 250;
/// What a disk must have room for.
pub const BYTES: u64 = CLIENTS * BLOCKS * BLOCK as u64;

/// What a kill may not take from a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Guarantee {
    /// All that was acknowledged. A write under way may be there by the sector.
    Acknowledged,
    /// All that was flushed. Of a write after that, each block is there whole or not at all.
    Flushed,
}

/// A client, and what it knows of its blocks.
#[derive(Debug)]
struct Writer {
    number: u64,
    /// The stamp of the next block that it writes.
    next: u64,
    /// The last stamp of each block that is read back now.
    last: Vec<u64>,
    /// The stamps that a block may have after a kill: the last durable one, and all that were written since.
    possible: Vec<Vec<u64>>,
}

fn stamped(stamp: u64) -> Vec<u8> {
    stamp.to_le_bytes().repeat(BLOCK / 8)
}

impl Writer {
    fn new(number: u64) -> Writer {
        let blocks = BLOCKS as usize;
        Writer { number, next: 1 + (number << 48), last: vec![0; blocks], possible: vec![vec![0]; blocks] }
    }

    /// Writes have become durable.
    fn flushed(&mut self, blocks: Range<usize>) {
        for block in blocks {
            self.possible[block] = vec![self.last[block]];
        }
    }

    /// Writes, flushes and verifies until the server is gone.
    fn work(&mut self, mut server: Client, guarantee: Guarantee, mut random: StdRng, written: &AtomicU64) {
        let number = self.number;
        loop {
            let block = random.random_range(0..BLOCKS);
            let blocks = random.random_range(1..=16).min(BLOCKS - block);
            let (at, own) = (number * BLOCKS + block, block as usize..(block + blocks) as usize);
            let done = match random.random_range(0..20) {
                0 => server.flush().map(|()| self.flushed(0..BLOCKS as usize)),
                1..4 => server.read(at, blocks).map(|found| {
                    for (block, found) in own.zip(found.chunks(BLOCK)) {
                        assert!(found == stamped(self.last[block]), "client {number} reads block {block} wrong");
                    }
                }),
                kind => {
                    let stamps = self.next..self.next + blocks;
                    self.next = stamps.end;
                    for (block, stamp) in own.clone().zip(stamps.clone()) {
                        self.possible[block].push(stamp);
                    }
                    let data: Vec<u8> = stamps.clone().flat_map(stamped).collect();
                    let done = if kind == 4 { server.write_through(at, &data) } else { server.write(at, &data) };
                    done.map(|()| {
                        written.fetch_add(blocks, Ordering::Relaxed);
                        for (block, stamp) in own.clone().zip(stamps) {
                            self.last[block] = stamp;
                        }
                        if kind == 4 || guarantee == Guarantee::Acknowledged {
                            self.flushed(own);
                        }
                    })
                }
            };
            if done.is_err() {
                return;
            }
        }
    }

    /// Each block holds what was durable, or something later. That is what it has from now on.
    fn verify(&mut self, server: &mut Client, guarantee: Guarantee) {
        let (number, unit) = (self.number, if guarantee == Guarantee::Acknowledged { 512 } else { BLOCK });
        let at = |block| number * BLOCKS + block;
        let parts = (0..BLOCKS).step_by(AT_ONCE as usize);
        let all: Vec<u8> = parts.flat_map(|part| server.read(at(part), AT_ONCE).expect("it is served")).collect();
        for (block, found) in all.chunks(BLOCK).enumerate() {
            let possible = &self.possible[block];
            for found in found.chunks(unit) {
                let stamp = u64::from_le_bytes(found[..8].try_into().expect("eight bytes"));
                assert!(found == &stamped(stamp)[..unit], "client {number}, block {block}: {unit} torn bytes");
                assert!(
                    possible.contains(&stamp),
                    "client {number}, block {block} holds {stamp}; possible were {possible:?}"
                );
                self.last[block] = stamp;
            }
            // A block that came half way is written whole, so that it is known again.
            if found != stamped(self.last[block]) {
                server.write(at(block as u64), &stamped(self.last[block])).expect("it is served");
            }
        }
        self.flushed(0..BLOCKS as usize);
    }
}

/// All clients of a disk.
#[derive(Debug)]
pub struct Writers {
    socket: PathBuf,
    disk: String,
    guarantee: Guarantee,
    random: StdRng,
    clients: Vec<Writer>,
}

impl Writers {
    /// Writers to a disk that is all zeros.
    pub fn new(socket: PathBuf, disk: &str, guarantee: Guarantee, seed: u64) -> Writers {
        let random = StdRng::seed_from_u64(seed);
        let clients = (0..CLIENTS).map(Writer::new).collect();
        Writers { socket, disk: disk.to_owned(), guarantee, random, clients }
    }

    fn connect(&self) -> Client {
        Client::connect(&self.socket, &self.disk).expect("it is served")
    }

    /// All of them work until the daemon is killed, after `least` blocks at the earliest, however slow it is.
    pub fn work_until_killed(&mut self, mut server: Killed, least: u64) {
        let after = Duration::from_millis(self.random.random_range(20..400));
        let written = AtomicU64::new(0);
        let connections: Vec<Client> = self.clients.iter().map(|_| self.connect()).collect();
        std::thread::scope(|scope| {
            for (writer, server) in self.clients.iter_mut().zip(connections) {
                let (random, guarantee) = (StdRng::seed_from_u64(self.random.random()), self.guarantee);
                let written = &written;
                scope.spawn(move || writer.work(server, guarantee, random, written));
            }
            std::thread::sleep(after);
            poll(TIMEOUT, || (written.load(Ordering::Relaxed) > least).then_some(()));
            server.0.kill().expect("it lives");
        });
    }

    /// All of them find what a kill may not take.
    pub fn verify(&mut self) {
        let mut client = self.connect();
        for writer in &mut self.clients {
            writer.verify(&mut client, self.guarantee);
        }
    }

    /// Blocks that they wrote, acknowledged or not.
    pub fn written(&self) -> u64 {
        self.clients.iter().map(|writer| writer.next & ((1 << 48) - 1)).sum()
    }
}
