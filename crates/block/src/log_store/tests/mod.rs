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
use umbrella_policy::log_layout::CleaningGoal;
use umbrella_units::{BlockNo, ByteSize, Lba, SECTOR_BYTES, SectorRange};

use super::*;
use crate::device::{BlockDevice, Durability, Zeroes};
use crate::fault::{Faulty, Plan, Rule};
use crate::memory::Memory;
use crate::record::Overlay;
use crate::testing::{Coarse, check_crash_states, each_crash_state, fill, flip, flip_bit, range, read};

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

fn from_bytes(bytes: Vec<u8>) -> Arc<dyn BlockDevice> {
    Arc::new(Memory::from_bytes(bytes))
}

/// A copy that may change. The device itself must not.
fn copy_of(device: &Arc<dyn BlockDevice>) -> Arc<dyn BlockDevice> {
    Arc::new(Overlay::new(Arc::clone(device)))
}

/// The same contents, with zeroes behind them.
fn enlarged(device: &dyn BlockDevice, segments: u64) -> Arc<dyn BlockDevice> {
    let mut bytes = bytes_of(device);
    bytes.resize(bytes.len() + (segments * SEGMENT) as usize, 0);
    from_bytes(bytes)
}

/// A copy whose calls follow a rule.
fn faulty_copy_of(device: &Arc<dyn BlockDevice>, rule: Rule) -> Arc<dyn BlockDevice> {
    Arc::new(Faulty::new(Overlay::new(Arc::clone(device)), Plan::new(1).rule(rule)))
}

fn try_open(device: &Arc<dyn BlockDevice>, access: OpenMode) -> Result<LogStore, LogStoreError> {
    LogStore::open(Arc::clone(device), "disk", by_hand(), access)
}

fn try_check(device: &Arc<dyn BlockDevice>, depth: Depth) -> Result<CheckReport, LogStoreError> {
    check(Arc::clone(device), "disk", depth, &mut |_, _| {})
}

fn checked(device: &Arc<dyn BlockDevice>, depth: Depth) -> CheckReport {
    try_check(device, depth).expect("it can be checked")
}

fn assert_whole(device: &Arc<dyn BlockDevice>) {
    let report = checked(device, Depth::Data);
    assert_eq!(report.problem_count, 0, "{:?}", report.problems);
}

/// What a check found to be lost.
fn losses_of(report: CheckReport) -> Vec<Loss> {
    report.problems.into_iter().filter_map(|it| if let Problem::Loss(loss) = it { Some(loss) } else { None }).collect()
}

fn open(device: &Arc<dyn BlockDevice>, options: Options) -> LogStore {
    LogStore::open(Arc::clone(device), "disk", options, OpenMode::ReadWrite).expect("it can be opened")
}

fn made(segments: u64, scheme: &str) -> Arc<dyn BlockDevice> {
    let device: Arc<dyn BlockDevice> = memory(segments);
    create(Arc::clone(&device), "disk", &small(scheme)).expect("it can be made");
    device
}

/// A new store that is open.
fn opened(segments: u64) -> (Arc<dyn BlockDevice>, LogStore) {
    let device = made(segments, "r_lfs");
    let store = open(&device, by_hand());
    (device, store)
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

/// The same with a smaller number.
fn content(number: u32) -> Vec<u8> {
    number.to_le_bytes().repeat(1024)
}

fn put(store: &LogStore, block: u64, number: u64) {
    store.write(Lba(block * 8), &numbered(number), Durability::Cached).expect("there is room");
}

/// Fills a store, each block with its number.
fn fill_up(store: &LogStore) -> u64 {
    let blocks = sectors_of(store) / 8;
    (0..blocks).for_each(|block| put(store, block, block));
    blocks
}

/// Whether the cleaner found something to do.
fn reclaim_once(store: &LogStore) -> bool {
    let mut state = store.shared.state.lock();
    store.shared.reclaim_once(&mut state, CleaningGoal::Ahead).expect("memory does not fail")
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
            put(&store, block, number);
            truth[block as usize] = number;
        }
    }
    store.flush().expect("memory does not fail");
    drop(store);
    (bytes_of(&*device), truth)
}

/// A copy of a device with some damaged blocks.
fn damaged(device: &Arc<dyn BlockDevice>, at: &[usize]) -> Arc<dyn BlockDevice> {
    let copy = copy_of(device);
    for at in at {
        flip(&*copy, at + 77);
    }
    copy
}

/// The first superblock of a device that is whole.
fn superblock(bytes: &[u8]) -> format::Superblock {
    format::Superblock::parse(&bytes[..4096], Lba(bytes.len() as u64 / 512)).expect("it is whole")
}

/// Where the areas of checkpoints lie, in bytes.
fn areas(superblock: &format::Superblock) -> [usize; 2] {
    superblock.areas.map(|area| superblock.device_block(superblock.first_place(area.first)).0 as usize * 4096)
}

/// The number of the checkpoint in an area; 0 if there is none.
fn checkpoint_number(bytes: &[u8], superblock: &format::Superblock, area: usize) -> u64 {
    format::CheckpointHeader::parse(&bytes[area..area + 4096], superblock).map_or(0, |header| header.number.0)
}

/// Where the headers of chunks lie, in bytes.
fn chunk_headers(bytes: &[u8]) -> impl Iterator<Item = usize> {
    let first = superblock(bytes).first.0 as usize;
    (first..bytes.len() / 4096).map(|at| at * 4096).filter(move |at| bytes[*at..].starts_with(b"ULCK"))
}

/// Whether a power cut may leave this: a copy of the superblock that was being written, or a flush that perhaps was not
/// answered.
fn is_expected(problem: &Problem) -> bool {
    matches!(problem, Problem::SuperblockCopy(_)) || matches!(problem, Problem::Loss(loss) if !loss.is_certain)
}
