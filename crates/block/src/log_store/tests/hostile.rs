//! Stores with structures that no program wrote, their checksums right; and checkpoints that were damaged later.

use rand::seq::IndexedRandom;

use super::*;
use crate::log_store::format::{
    CheckpointHeader, CheckpointNo, Checksum, ChunkHeader, Clock, IndexEntry, LogBlock, Payload, PayloadEncoder,
    SegmentEntry, SegmentNo, SegmentState, Sequence, Slot, Stream, Superblock,
};

/// A store that was used, and was not closed.
fn used(seed: u64) -> Vec<u8> {
    let (device, store) = opened(60);
    let blocks = sectors_of(&store) / 8;
    let mut random = StdRng::seed_from_u64(seed);
    for _ in 0..blocks {
        let block = random.random_range(0..blocks);
        put(&store, block, block);
    }
    store.checkpoint().expect("there is room");
    (0..90).for_each(|block| put(&store, block, block));
    store.discard(range(800, 160)).expect("it is discarded");
    store.flush().expect("memory does not fail");
    drop(store);
    bytes_of(&*device)
}

/// Where the areas of checkpoints lie, in bytes, the newer first.
fn newer_first(bytes: &[u8], superblock: &Superblock) -> [usize; 2] {
    let mut areas = areas(superblock);
    areas.sort_by_key(|area| std::cmp::Reverse(checkpoint_number(bytes, superblock, *area)));
    areas
}

fn a_number(random: &mut StdRng, old: u64) -> u64 {
    let edges = [0, 1, 2, old.wrapping_sub(1), old + 1, old * 2, 1 << 32, 1 << 51, 1 << 52, u64::MAX - 1, u64::MAX];
    *edges.choose(random).expect("there are some")
}

fn change_header(random: &mut StdRng, header: &mut CheckpointHeader, segments: u32) {
    let some_segment = |random: &mut StdRng| SegmentNo(random.random_range(0..segments));
    match random.random_range(0..8) {
        0 => header.number = CheckpointNo(a_number(random, header.number.0)),
        1 => header.next_sequence = Sequence(a_number(random, header.next_sequence.0)),
        2 => header.clock = Clock(a_number(random, header.clock.0)),
        3 => header.counters.user_blocks = a_number(random, 77),
        4 => header.counters.header_blocks = a_number(random, 77),
        _ => {
            let stream = random.random_range(0..header.heads.len());
            let head = &mut header.heads[stream];
            let other = some_segment(random);
            match (random.random_range(0..4), &mut head.open) {
                (0, Some(open)) => open.slot = Slot(random.random_range(0..=16)),
                (1, Some(open)) => open.segment = other,
                (2, open) => *open = None,
                _ => head.next = random.random_bool(0.5).then_some(other),
            }
        }
    }
}

fn change_row(random: &mut StdRng, row: &mut SegmentEntry) {
    use SegmentState::{Cleaned, Free, Full, Next, Open, System};
    match random.random_range(0..5) {
        0 => row.live = random.random_range(0..=16),
        1 => row.stream = Stream(random.random_range(0..=3)),
        2 => row.youngest = Clock(a_number(random, 1000)),
        3 => row.opened = Clock(a_number(random, 1000)),
        _ => row.state = *[Free, Open, Full, Cleaned, System, Next].choose(random).expect("there are some"),
    }
}

/// Changes the newest checkpoint; its checksums are right.
fn change_checkpoint(random: &mut StdRng, bytes: &mut [u8]) {
    let superblock = superblock(bytes);
    let [at, _] = newer_first(bytes, &superblock);
    let mut header = CheckpointHeader::parse(&bytes[at..at + 4096], &superblock).expect("it is whole");
    let payload = Payload::parse(&bytes[at + 4096..], &header, &superblock).expect("it is whole");
    let (mut map, mut table): (Vec<_>, Vec<_>) = (payload.map().collect(), payload.segments().collect());
    for _ in 0..random.random_range(1..4) {
        match random.random_range(0..3) {
            0 => change_header(random, &mut header, superblock.shape.segments()),
            1 => {
                let row = random.random_range(0..table.len());
                change_row(random, &mut table[row]);
            }
            _ => {
                let page = random.random_range(0..map.len());
                let place = LogBlock(random.random_range(0..superblock.shape.places().0));
                let block = superblock.device_block(place).0 as usize * 4096;
                let checksum = Checksum::of(&bytes[block..block + 4096]);
                let entry = IndexEntry::new(place, checksum).expect("it fits");
                map[page] = random.random_bool(0.8).then_some(entry);
            }
        }
    }
    let mut encoder = PayloadEncoder::new(map.into_iter(), table.into_iter());
    let mut encoded = vec![0; 1 << 20];
    let filled = encoder.fill(&mut encoded);
    header.payload = encoder.sum();
    let Ok(block) = header.encode(&superblock) else { return };
    bytes[at + 4096..at + 4096 + filled].copy_from_slice(&encoded[..filled]);
    bytes[at..at + 4096].copy_from_slice(&block);
}

/// Changes the header of some chunk; its checksum is right.
fn change_chunk(random: &mut StdRng, bytes: &mut [u8]) {
    let superblock = superblock(bytes);
    let headers: Vec<usize> = chunk_headers(bytes).collect();
    let place = |at: usize| LogBlock(at as u64 / 4096 - superblock.first.0);
    let at = *headers.choose(random).expect("there are some");
    let Ok(mut header) = ChunkHeader::parse(&bytes[at..], &superblock, place(at)) else { return };
    match random.random_range(0..6) {
        0 => header.clock = Clock(a_number(random, header.clock.0)),
        1 => header.sequence = Sequence(a_number(random, header.sequence.0)),
        2 => header.next = Some(SegmentNo(random.random_range(0..superblock.shape.segments()))),
        3 => header.next = None,
        4 => header.stream = Stream(random.random_range(0..=3)),
        _ => {
            let (from, to) = (random.random_range(0..headers.len()), header.entries.len());
            let from = headers[from];
            let Ok(other) = ChunkHeader::parse(&bytes[from..], &superblock, place(from)) else { return };
            header.entries = other.entries;
            header.entries.truncate(to);
        }
    }
    let Ok(block) = header.encode(&superblock, place(at)) else { return };
    bytes[at..at + 4096].copy_from_slice(&block);
}

/// Uses a store; nothing is expected but that it ends.
fn use_up(bytes: Vec<u8>, random: &mut StdRng) -> bool {
    let device = from_bytes(bytes);
    _ = try_check(&device, Depth::Data);
    let Ok(store) = try_open(&device, OpenMode::ReadWrite) else { return false };
    let blocks = sectors_of(&store) / 8;
    for _ in 0..1500 {
        let block = random.random_range(0..blocks);
        _ = store.write(Lba(block * 8), &numbered(block), Durability::Cached);
        _ = store.read(Lba(block * 8), &mut fill(0, 8));
    }
    _ = store.discard(range(0, 4000));
    _ = store.stats();
    _ = store.close();
    _ = try_check(&device, Depth::Data);
    true
}

fn held_out(change: fn(&mut StdRng, &mut [u8]), rounds: u64) {
    let whole = used(1);
    let mut opened = 0;
    for seed in 0..rounds {
        let mut bytes = whole.clone();
        let mut random = StdRng::seed_from_u64(seed);
        change(&mut random, &mut bytes);
        println!("seed {seed}");
        opened += u64::from(within_bounds(move || use_up(bytes, &mut random)));
    }
    println!("{opened} of {rounds} opened");
    assert!(opened > rounds / 20, "{opened} of {rounds} were opened");
}

#[test]
fn a_checkpoint_that_no_program_wrote_is_refused_or_used_but_nothing_panics_or_hangs() {
    held_out(change_checkpoint, 150);
}

#[test]
fn a_chunk_that_no_program_wrote_is_refused_or_used_but_nothing_panics_or_hangs() {
    held_out(change_chunk, 100);
}

/// A store whose last checkpoint was made after much was written, and after which it was or was not written on; and
/// what it holds.
fn with_newest_damaged(more: u64, at: usize) -> (Vec<u8>, Vec<u8>) {
    let (device, store) = opened(60);
    let blocks = sectors_of(&store) / 8;
    let mut random = StdRng::seed_from_u64(3);
    let mut write = |count| write_at_random(&store, &mut random, count);
    write(blocks * 2);
    store.checkpoint().expect("there is room");
    write(100);
    store.checkpoint().expect("there is room");
    write(more);
    let held = read(&store, 0, blocks * 8);
    drop(store);
    let mut bytes = bytes_of(&*device);
    let [newest, _] = newer_first(&bytes, &superblock(&bytes));
    bytes[newest + at] ^= 4;
    (bytes, held)
}

fn serves_or_is_refused(at: usize) {
    let (mut served, mut refused) = (0, 0);
    for more in (0..400).step_by(20) {
        let (bytes, held) = with_newest_damaged(more, at);
        let device = from_bytes(bytes);
        match try_open(&device, OpenMode::ReadWrite) {
            Ok(store) => {
                assert!(read(&store, 0, sectors_of(&store)) == held, "{more} more blocks: something was lost");
                served += 1;
            }
            Err(error) => {
                println!("{more} more blocks: {error}");
                refused += 1;
            }
        }
    }
    println!("{served} served, {refused} refused");
    assert!(served > 0 && refused > 0, "{served} served, {refused} refused");
}

#[test]
fn when_the_newest_checkpoint_is_damaged_the_one_before_it_serves_or_the_store_is_refused() {
    serves_or_is_refused(4096 + 3);
}

#[test]
fn when_the_header_of_the_newest_checkpoint_is_damaged_the_one_before_it_serves_or_the_store_is_refused() {
    serves_or_is_refused(100);
}

#[test]
fn a_newest_checkpoint_that_is_damaged_is_reported_and_mended_by_the_opening() {
    for at in [100, 4096 + 3] {
        let (bytes, held) = with_newest_damaged(0, at);
        let device = from_bytes(bytes);
        let problems = || checked(&device, Depth::Data).problems;
        assert!(matches!(problems().as_slice(), [Problem::Checkpoint(_)]), "{:?}", problems());
        let store = open(&device, by_hand());
        let repaired = store.stats().repaired;
        assert!(repaired.iter().any(|reported| reported.contains("the newest checkpoint is damaged")), "{repaired:?}");
        assert!(read(&store, 0, sectors_of(&store)) == held);
        store.checkpoint().expect("there is room");
        store.close().expect("it can be closed");
        assert!(problems().is_empty(), "{:?}", problems());
        assert_eq!(open(&device, by_hand()).stats().repaired, Vec::<String>::new());
    }
}

#[test]
fn a_device_full_of_headers_of_checkpoints_is_looked_through_all_the_same() {
    let mut bytes = used(3);
    let superblock = superblock(&bytes);
    let [newest, _] = newer_first(&bytes, &superblock);
    let header = bytes[newest..newest + 4096].to_vec();
    // Both superblocks are lost, so that the checkpoints have to tell how the store was laid out.
    for at in [0, 256 * 4096] {
        bytes[at + 40] ^= 1;
    }
    (0..16 << 10).for_each(|_| bytes.extend_from_slice(&header));
    let blocks =
        within_bounds(move || Salvage::open(Arc::new(Memory::from_bytes(bytes)), "disk").map(|salvage| salvage.size()));
    assert_eq!(blocks.expect("it is found"), ByteSize(superblock.shape.advertised().0 * 4096));
}
