//! A small store, and what its structures look like.

mod checkpoint;
mod choose;
mod chunk;
mod damage;
mod fixtures;
mod fuzz;
mod map_page;
mod payload;
mod round_trip;
mod superblock;

use umbrella_units::{BlockNo, ByteSize, Lba};
use uuid::Uuid;

use super::*;

/// Where the checksum of superblock and checkpoint header is, and that of a chunk header.
const CHECKSUM_AT: usize = 508;
const CHUNK_CHECKSUM_AT: usize = 4092;

/// More than any store of these tests needs.
const LARGE: Lba = Lba(1 << 40);

/// 64 segments of 16 blocks behind block 512, 700 logical blocks, streams 0 to 2 and that of the map; checkpoints in
/// segments 31 and 32.
fn store() -> Superblock {
    Superblock {
        compat: Compat(0),
        incompat: Incompat::default(),
        generation: Generation(5),
        store: Uuid::from_u128(0x0011_2233_4455_6677_8899_aabb_ccdd_eeff),
        created: UnixSeconds(1_700_000_000),
        shape: Shape::new(16, 64, Blocks(700), Stream(3)).expect("it is possible"),
        first: BlockNo(512),
        areas: [31, 32].map(|first| Area { first: SegmentNo(first), segments: 1 }),
        scheme: Scheme::new("organ:regions=3").expect("it is short"),
        pending_loss: None,
    }
}

/// The segments of [`checkpoint`].
fn table() -> Vec<SegmentEntry> {
    let row = |state, stream, live, youngest, opened| {
        let (stream, youngest, opened) = (Stream(stream), Clock(youngest), Clock(opened));
        SegmentEntry { state, stream, live, youngest, opened }
    };
    let mut table = vec![row(SegmentState::Free, 0, 0, 0, 0); 64];
    table[0] = row(SegmentState::Full, 0, 15, 400, 100);
    table[1] = row(SegmentState::Open, 0, 7, 900, 850);
    table[2] = row(SegmentState::Next, 0, 0, 0, 0);
    table[5] = row(SegmentState::Cleaned, 2, 0, 300, 200);
    table[7] = row(SegmentState::Open, 3, 2, 890, 600);
    table[31].state = SegmentState::System;
    table[32].state = SegmentState::System;
    table
}

/// A header and its payload in whole blocks, of these map pages and segments.
fn sealed(map: &[Option<IndexEntry>], table: &[SegmentEntry]) -> (CheckpointHeader, Vec<u8>) {
    let mut encoder = PayloadEncoder::new(map.iter().copied(), table.iter().copied());
    let mut payload = vec![0xee; BLOCK_BYTES];
    assert_eq!(encoder.fill(&mut payload), BLOCK_BYTES, "it fits into a block");
    assert_eq!(encoder.fill(&mut [0xee; BLOCK_BYTES]), 0);
    let open = |segment, slot| Some(OpenSegment { segment: SegmentNo(segment), slot: Slot(slot) });
    let header = CheckpointHeader {
        store: store().store,
        number: CheckpointNo(77),
        next_sequence: Sequence(1234),
        clock: Clock(900),
        shape: store().shape,
        heads: vec![
            Head { open: open(1, 9), next: Some(SegmentNo(2)) },
            Head::default(),
            Head::default(),
            Head { open: open(7, 3), next: None },
        ],
        counters: Counters {
            user_blocks: 900,
            copied_blocks: 80,
            map_blocks: 70,
            header_blocks: 60,
            cleaner_reads: 50,
            cleaned_segments: 4,
            flushes: 30,
            discarded_blocks: 20,
        },
        payload: encoder.sum(),
        lost: 0,
        clean: true,
    };
    (header, payload)
}

fn checkpoint() -> (CheckpointHeader, Vec<u8>) {
    sealed(&[Some(page_at(7 * 16 + 1)), None], &table())
}

/// Where [`chunk`] lies: at slot 9 of segment 1.
const CHUNK_AT: LogBlock = LogBlock(16 + 9);

/// A chunk with an entry of each kind, and its data.
fn chunk() -> (ChunkHeader, Vec<u8>) {
    let data: Vec<u8> = (1..=4).flat_map(|byte| [byte; BLOCK_BYTES]).collect();
    let checksum = |number: usize| Checksum::of(&data[number * BLOCK_BYTES..][..BLOCK_BYTES]);
    let entries = vec![
        Entry::Data { block: BlockNo(3), checksum: checksum(0), stamp: Stamp(0xab_cdef) },
        Entry::Dead,
        Entry::Unmapped { start: BlockNo(690), blocks: 10 },
        Entry::Copy { block: BlockNo(699), checksum: checksum(2), stamp: Stamp(7) },
        Entry::MapPage { page: MapPageNo(1), checksum: checksum(3) },
    ];
    let header = ChunkHeader {
        store: store().store,
        stream: Stream(2),
        epoch: CheckpointNo(77),
        sequence: Sequence(1234),
        clock: Clock(905),
        next: Some(SegmentNo(2)),
        entries,
        before: None,
    };
    (header, data)
}

/// Page 1 of the map: logical blocks 512 to 699.
fn map_page() -> MapPage {
    let mut page = MapPage::default();
    for (block, place, stamp) in [(512, 0, 0), (513, 1023, 0xff_ffff), (699, 17, 0xab_cdef)] {
        page.set(BlockNo(block), Some(entry(place, stamp)));
    }
    page
}

fn entry(place: u64, stamp: u32) -> MapEntry {
    MapEntry::new(LogBlock(place), Stamp(stamp)).expect("it fits")
}

/// The index entry of [`map_page`], if it lies at `place`.
fn page_at(place: u64) -> IndexEntry {
    IndexEntry::new(LogBlock(place), Checksum::of(&encoded_map_page())).expect("it fits")
}

fn encoded_store() -> Block {
    store().encode().expect("it can be read")
}

fn encoded_checkpoint() -> Block {
    checkpoint().0.encode(&store()).expect("it can be read")
}

fn encoded_chunk() -> Block {
    chunk().0.encode(&store(), CHUNK_AT).expect("it can be read")
}

fn encoded_map_page() -> Block {
    map_page().encode(&store().shape, MapPageNo(1)).expect("it can be read")
}

/// Corrects the checksum of a block, so that a test gets past it.
fn reseal(block: &mut [u8], checksum_at: usize) {
    let checksum = Checksum::of(&block[..checksum_at]).append(&block[checksum_at + 4..]);
    block[checksum_at..checksum_at + 4].copy_from_slice(&checksum.0.to_le_bytes());
}

/// The block with other bytes at `at`, and the right checksum.
fn with(block: &Block, checksum_at: usize, at: usize, bytes: &[u8]) -> Block {
    let mut changed = *block;
    changed[at..at + bytes.len()].copy_from_slice(bytes);
    reseal(&mut changed, checksum_at);
    changed
}

/// The field that an error complains of.
fn field<T: std::fmt::Debug>(result: Result<T, FormatError>) -> Field {
    match result {
        Err(FormatError::OutOfRange { field, .. }) => field,
        other => panic!("no field out of range: {other:?}"),
    }
}

#[test]
fn checksums_are_crc32c_whatever_the_length_and_where_the_bytes_begin() {
    assert_eq!(Checksum::of(b"123456789"), Checksum(0xe306_9283));
    let bytes: Vec<u8> = (0..5000_u32).map(|nth| ((nth * nth) >> 3) as u8).collect();
    for length in (0..300).chain([511, 512, 1023, 4092, 4096, 4999]) {
        for start in [0, 1] {
            let part = &bytes[start..start + length];
            assert_eq!(Checksum::of(part).0, crc32c::crc32c(part), "{length} bytes from {start} on");
        }
    }
}
