//! Openings that a power cut ends, at every moment and in every state that it can leave: whatever was damaged before,
//! the next opening finds the same, and tells it.

use std::collections::BTreeMap;

use rand::seq::IndexedRandom;

use super::crash::{Scene, bounds, filled, work};
use super::*;
use crate::log_store::format::{CheckpointNo, ChunkHeader, LogBlock, Superblock};
use crate::log_store::named::NamedDevice;

/// What an opening finds.
#[derive(PartialEq, Eq)]
struct Opened {
    /// By block; nothing where it cannot be read.
    contents: Vec<Option<Vec<u8>>>,
    /// What it tells to be lost, for certain or perhaps.
    reported: Vec<String>,
}

impl Opened {
    /// Opens a store for writing; `None` if it can only be looked at.
    fn open(device: &Arc<dyn BlockDevice>, access: OpenMode) -> Result<Option<Opened>, LogStoreError> {
        let store = try_open(device, access)?;
        if store.is_read_only() {
            return Ok(None);
        }
        let read = |block: u64| {
            let mut buffer = fill(0xee, 8);
            store.read(Lba(block * 8), &mut buffer).is_ok().then_some(buffer)
        };
        let contents = (0..sectors_of(&store) / 8).map(read).collect();
        let reported = store.stats().repaired.into_iter().filter(|reported| reported.contains("lost")).collect();
        Ok(Some(Opened { contents, reported }))
    }
}

/// The newest checkpoint that counts, and whether the superblock notes a loss.
fn stands(device: Arc<dyn BlockDevice>) -> (CheckpointNo, bool) {
    let named = NamedDevice::new("disk", device);
    let superblock = named.superblock().expect("one copy is whole").superblock;
    let checkpoint = named.checkpoint(&superblock).expect("one is whole").header.number;
    (checkpoint, superblock.pending_loss.is_some())
}

/// Opens the store, ends it at each moment, and opens it again; how many openings were cut off.
fn cut_off(device: &Arc<dyn BlockDevice>, access: OpenMode, expected: &Opened, (depth, label): (u32, &str)) -> usize {
    let scene = Scene::new(Arc::clone(device));
    let (begun, _) = stands(Arc::clone(device));
    drop(try_open(&scene.disk, access).expect("it could be opened"));
    let (mut unfinished, mut finished) = (0, 0);
    each_crash_state(scene.states(bounds(1)), |state| {
        let disk = &state.devices[0];
        let (checkpoint, is_noted) = stands(Arc::new(disk.fork()));
        let opened = Opened::open(&(Arc::new(disk.fork()) as Arc<dyn BlockDevice>), access);
        let opened = opened.unwrap_or_else(|error| panic!("{label}: {state}: {error}"));
        let opened = opened.unwrap_or_else(|| panic!("{label}: {state}: it is only looked at"));
        assert!(opened.contents == expected.contents, "{label}: {state}: other contents");
        if checkpoint > begun && !is_noted {
            finished += 1;
            return;
        }
        unfinished += 1;
        if checkpoint == begun {
            assert_eq!(opened.reported, expected.reported, "{label}: {state}");
        } else {
            // What is lost for certain is in the map now.
            let perhaps = |reported: &&String| reported.contains("perhaps lost");
            let perhaps = |all: &Opened| all.reported.iter().filter(perhaps).cloned().collect::<Vec<_>>();
            assert_eq!(perhaps(&opened), perhaps(expected), "{label}: {state}");
        }
        if depth > 0 && unfinished % 120 == 1 && checkpoint == begun {
            let label = format!("{label}: {state}, and once more");
            let device: Arc<dyn BlockDevice> = Arc::new(disk.fork());
            unfinished += cut_off(&device, access, expected, (depth - 1, &label));
        }
    });
    assert!(finished > 0, "{label}: the opening did finish");
    unfinished
}

/// The places of the newest chunks, the very newest first.
fn newest_chunks(bytes: &[u8], superblock: &Superblock) -> Vec<(usize, ChunkHeader)> {
    let header = |at: usize| {
        let place = LogBlock(at as u64 / 4096 - superblock.first.0);
        Some((at / 4096, ChunkHeader::parse(&bytes[at..at + 4096], superblock, place).ok()?))
    };
    let mut chunks: Vec<_> = chunk_headers(bytes).filter_map(header).collect();
    chunks.sort_by_key(|(_, header)| std::cmp::Reverse((header.epoch, header.sequence)));
    chunks
}

/// What is damaged before the store is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Damage {
    Header,
    Data,
    TwoHeaders,
    Checkpoint,
    MapPage,
}

const DAMAGES: [Damage; 5] = [Damage::Header, Damage::Data, Damage::TwoHeaders, Damage::Checkpoint, Damage::MapPage];

fn flip_in(bytes: &mut [u8], block: usize, random: &mut StdRng) {
    bytes[block * 4096 + random.random_range(0..4096)] ^= 1 << 3;
}

/// Damages the store; nothing where it has no such thing.
fn strike(bytes: &mut [u8], damage: Damage, random: &mut StdRng) -> Option<()> {
    let superblock = superblock(bytes);
    let chunks = newest_chunks(bytes, &superblock);
    let latest = &chunks[..chunks.len().min(8)];
    match damage {
        Damage::Header => flip_in(bytes, latest.choose(random)?.0, random),
        Damage::Data => {
            let with_data: Vec<_> = latest.iter().filter(|(_, header)| header.blocks() > 1).collect();
            let (at, header) = with_data.choose(random)?;
            let block = at + random.random_range(1..header.blocks() as usize);
            flip_in(bytes, block, random);
        }
        Damage::TwoHeaders => {
            let two: Vec<usize> = latest.choose_multiple(random, 2).map(|(at, _)| *at).collect();
            for at in two {
                flip_in(bytes, at, random);
            }
        }
        Damage::Checkpoint => {
            let named = NamedDevice::new("disk", Arc::new(Memory::from_bytes(bytes.to_vec())));
            let found = named.checkpoint(&superblock).ok()?;
            let at = areas(&superblock)[found.area];
            bytes[at + usize::from(random.random_bool(0.5)) * 4096 + 100] ^= 1;
        }
        Damage::MapPage => {
            let named = NamedDevice::new("disk", Arc::new(Memory::from_bytes(bytes.to_vec())));
            let index = named.checkpoint(&superblock).ok()?.index;
            let page = index.into_iter().flatten().collect::<Vec<_>>().choose(random).copied()?;
            flip_in(bytes, superblock.device_block(page.place()).0 as usize, random);
        }
    }
    Some(())
}

#[test]
fn an_opening_that_a_power_cut_ends_leaves_all_that_it_found_to_the_next_one() {
    let (mut unfinished, mut table) = (0, BTreeMap::<(Damage, bool, bool), usize>::new());
    for seed in 0..15 {
        let (disk, _) = filled([30, 40, 60][seed as usize % 3], "r_lfs", seed);
        let scene = Scene::new(disk);
        let store = scene.open();
        let mut random = StdRng::seed_from_u64(seed);
        work(&store, &mut random, 30);
        if random.random_bool(0.7) {
            store.flush().expect("memory does not fail");
        }
        drop(store);
        let mut bytes = bytes_of(&*scene.disk);
        let damage = DAMAGES[seed as usize % DAMAGES.len()];
        if strike(&mut bytes, damage, &mut random).is_none() {
            continue;
        }
        let device = from_bytes(bytes);
        let open = |access| Opened::open(&copy_of(&device), access).ok().flatten();
        let modes = [OpenMode::ReadWrite, OpenMode::Salvage];
        let Some((access, expected)) = modes.into_iter().find_map(|access| Some((access, open(access)?))) else {
            continue;
        };
        let is_salvaged = access == OpenMode::Salvage;
        *table.entry((damage, is_salvaged, !expected.reported.is_empty())).or_default() += 1;
        unfinished += cut_off(&device, access, &expected, (1, &format!("seed {seed}, {damage:?}, {access:?}")));
    }
    println!("{unfinished} openings cut off");
    for ((damage, is_salvaged, has_told), count) in &table {
        println!("{damage:?}, salvaged: {is_salvaged}, something lost: {has_told}: {count}");
    }
    let perhaps = table.iter().filter(|((_, salvaged, reported), _)| !salvaged && *reported).count();
    let certain = table.iter().filter(|((_, salvaged, _), _)| *salvaged).count();
    assert!(unfinished > 500 && perhaps > 0 && certain > 0, "{unfinished} openings: {table:?}");
}
