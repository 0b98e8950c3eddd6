//! Tests of the store. Segments of 64 KiB, so that all that happens happens soon.

mod cleaning;
mod concurrent;
mod contradictions;
mod corruptions;
mod crash;
mod cut_short;
mod every_call;
mod faults;
mod fixtures;
mod flushed;
mod hostile;
mod limits;
mod lost_checkpoint;
mod map_damage;
mod model;
mod only_read;
mod order;
mod salvage;
mod skip;
mod torn_opening;
mod under_way;
mod unreadable;
mod verify;

use std::sync::Arc;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use umbrella_units::{BlockNo, ByteSize, Lba, SECTOR_BYTES, SectorRange};

use super::*;
use crate::device::{BlockDevice, Durability, Zeroes};
use crate::memory::Memory;
use crate::testing::{Coarse, check_crash_states, fill, range, read};

const SEGMENT: u64 = 64 << 10;

fn memory(segments: u64) -> Arc<Memory> {
    Arc::new(Memory::new(ByteSize((2 << 20) + segments * SEGMENT)))
}

fn small(scheme: &str) -> CreateOptions {
    CreateOptions { scheme: scheme.to_owned(), segment: Some(ByteSize(SEGMENT)), spare: 50, force: false }
}

/// Nothing happens by itself.
fn by_hand() -> Options {
    Options { threads: false, checkpoint_every: ByteSize(4 << 20), ..Options::default() }
}

fn open(device: &Arc<dyn BlockDevice>, options: Options) -> LogStore {
    LogStore::open(Arc::clone(device), "disk", options, OpenMode::ReadWrite).expect("it can be opened")
}

fn made(segments: u64, scheme: &str) -> Arc<dyn BlockDevice> {
    let device: Arc<dyn BlockDevice> = memory(segments);
    create(Arc::clone(&device), "disk", &small(scheme)).expect("it can be made");
    device
}

/// What something comes to that must not take for ever.
fn within_bounds<T: Send + 'static>(run: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, is_done) = std::sync::mpsc::channel();
    std::thread::spawn(move || done.send(run()));
    is_done.recv_timeout(std::time::Duration::from_secs(60)).expect("it fails, or takes for ever")
}

/// A block that holds its number all over.
fn numbered(number: u64) -> Vec<u8> {
    number.to_le_bytes().repeat(512)
}

/// Fills a store, each block with its number.
fn fill_up(store: &LogStore) -> u64 {
    let blocks = sectors_of(store) / 8;
    for block in 0..blocks {
        store.write(Lba(block * 8), &numbered(block), Durability::Cached).expect("there is room");
    }
    blocks
}

/// Writes `count` blocks at random places, and flushes them.
fn write_at_random(store: &LogStore, random: &mut StdRng, count: u64) {
    for _ in 0..count {
        let block = random.random_range(0..sectors_of(store) / 8);
        store.write(Lba(block * 8), &fill(random.random(), 8), Durability::Cached).expect("there is room");
    }
    store.flush().expect("memory does not fail");
}

fn sectors_of(device: &dyn BlockDevice) -> u64 {
    device.geometry().capacity.0
}

/// Where a block of the store lies on the device.
fn device_block(store: &LogStore, block: u64) -> BlockNo {
    let mut state = store.shared.state.lock();
    let entry = state.core.map.get(BlockNo(block)).expect("it is in memory").expect("it is mapped");
    state.core.superblock.device_block(entry.place)
}

/// The same in bytes.
fn byte_of(store: &LogStore, block: u64) -> usize {
    device_block(store, block).0 as usize * 4096
}

/// All of a device.
fn bytes_of(device: &dyn BlockDevice) -> Vec<u8> {
    read(device, 0, sectors_of(device))
}

/// A store after random writes and discards with some cleaning, ended by a kill: its device, and what each block holds,
/// 0 where nothing is.
fn after_random_work(seed: u64, segments: u64) -> (Vec<u8>, Vec<u64>) {
    let device = made(segments, "r_lfs");
    let store = open(&device, Options { checkpoint_every: ByteSize(1 << 20), ..by_hand() });
    let blocks = sectors_of(&store) / 8;
    let mut random = StdRng::seed_from_u64(seed);
    let mut truth = vec![0; blocks as usize];
    for number in 1..blocks * 3 {
        let block = random.random_range(0..blocks);
        if random.random_bool(0.1) {
            store.discard(range(block * 8, 8)).expect("it is discarded");
            truth[block as usize] = 0;
        } else {
            store.write(Lba(block * 8), &numbered(number), Durability::Cached).expect("there is room");
            truth[block as usize] = number;
        }
    }
    store.flush().expect("memory does not fail");
    drop(store);
    (bytes_of(&*device), truth)
}

/// A device with these bytes and some damaged blocks.
fn damaged(mut bytes: Vec<u8>, at: &[usize]) -> Arc<dyn BlockDevice> {
    for at in at {
        bytes[at + 77] ^= 0x10;
    }
    Arc::new(Memory::from_bytes(bytes))
}

/// Turns a bit over.
fn flip(device: &dyn BlockDevice, byte: usize) {
    let mut sector = read(device, byte as u64 / 512, 1);
    sector[byte % 512] ^= 0x10;
    device.write(Lba(byte as u64 / 512), &sector, Durability::Through).expect("memory takes it");
}

/// The first superblock of a device that is whole.
fn superblock(bytes: &[u8]) -> format::Superblock {
    format::Superblock::parse(&bytes[..4096], Lba(bytes.len() as u64 / 512)).expect("it is whole")
}

/// Whether a power cut may leave this: a copy of the superblock that was being written, or a flush that perhaps was not
/// answered.
fn is_expected(problem: &Problem) -> bool {
    matches!(problem, Problem::SuperblockCopy(_)) || matches!(problem, Problem::Loss(loss) if !loss.is_certain)
}
