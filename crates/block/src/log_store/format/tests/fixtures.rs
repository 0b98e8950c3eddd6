//! Structures of released versions, as they were written then. They are never written anew.
//!
//! Version 1, `log_v1_*.bin`: a superblock, a checkpoint (header and payload, two blocks), the header of a chunk, a map
//! page. Version 2, `log_v2_chunk.bin`: the header of a chunk that repeats the one before it; `log_v2_superblock.bin`:
//! a superblock with a loss that was not reported.

use super::*;

const SUPERBLOCK: &[u8] = include_bytes!("../../../../tests/fixtures/log_v1_superblock.bin");
const CHECKPOINT: &[u8] = include_bytes!("../../../../tests/fixtures/log_v1_checkpoint.bin");
const CHUNK: &[u8] = include_bytes!("../../../../tests/fixtures/log_v1_chunk.bin");
const PENDING_LOSS: &[u8] = include_bytes!("../../../../tests/fixtures/log_v2_superblock.bin");
const REPEATING_CHUNK: &[u8] = include_bytes!("../../../../tests/fixtures/log_v2_chunk.bin");
const MAP_PAGE: &[u8] = include_bytes!("../../../../tests/fixtures/log_v1_map_page.bin");

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from(u16_at(bytes, at)) | u32::from(u16_at(bytes, at + 2)) << 16
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

#[test]
fn version_1_is_read() {
    assert_eq!(Superblock::parse(SUPERBLOCK, LARGE), Ok(store()));
    let (header, _) = checkpoint();
    assert_eq!(CheckpointHeader::parse(CHECKPOINT, &store()), Ok(header.clone()));
    let payload = Payload::parse(&CHECKPOINT[BLOCK_BYTES..], &header, &store()).expect("it fits together");
    assert_eq!(payload.map().collect::<Vec<_>>(), [Some(page_at(113)), None]);
    assert_eq!(payload.segments().collect::<Vec<_>>(), table());
    let (header, data) = chunk();
    let read = ChunkHeader::parse(CHUNK, &store(), CHUNK_AT).expect("it is whole");
    assert_eq!((read.verify_data(&data), read), (Ok(()), header));
    assert_eq!(MapPage::parse(MAP_PAGE, &store().shape, MapPageNo(1)), Ok(map_page()));
}

#[test]
fn version_2_of_a_chunk_is_read_and_written() {
    let header = super::chunk::repeating();
    assert_eq!(ChunkHeader::parse(REPEATING_CHUNK, &store(), CHUNK_AT), Ok(header.clone()));
    assert!(header.encode(&store(), CHUNK_AT).expect("it can be read") == REPEATING_CHUNK);
}

#[test]
fn a_superblock_with_a_loss_that_was_not_reported_is_read_and_written() {
    let superblock = super::superblock::with_pending_loss();
    assert_eq!(Superblock::parse(PENDING_LOSS, LARGE), Ok(superblock.clone()));
    assert!(superblock.encode().expect("it can be read") == PENDING_LOSS);
}

#[test]
fn version_1_is_still_what_is_written() {
    assert!(encoded_store() == SUPERBLOCK);
    assert!([&encoded_checkpoint()[..], &checkpoint().1].concat() == CHECKPOINT);
    assert!(encoded_chunk() == CHUNK);
    assert!(encoded_map_page() == MAP_PAGE);
}

#[test]
fn the_fields_of_a_superblock_lie_where_the_table_says() {
    let bytes = SUPERBLOCK;
    assert_eq!((&bytes[..8], u32_at(bytes, 8), u32_at(bytes, 12), u32_at(bytes, 16)), (&b"UMBLGSUP"[..], 1, 0, 0));
    assert_eq!((u32_at(bytes, 20), u64_at(bytes, 24)), (4096, 5));
    assert_eq!((&bytes[32..48], u64_at(bytes, 48)), (&store().store.as_bytes()[..], 1_700_000_000));
    assert_eq!((u32_at(bytes, 56), u32_at(bytes, 60), u64_at(bytes, 64), u64_at(bytes, 72)), (16, 64, 512, 700));
    assert_eq!([80, 84, 88, 92].map(|at| u32_at(bytes, at)), [31, 1, 32, 1]);
    assert_eq!((bytes[96], u16_at(bytes, 98), &bytes[100..115]), (3, 15, &b"organ:regions=3"[..]));
}

#[test]
fn the_fields_of_a_checkpoint_lie_where_the_table_says() {
    let bytes = CHECKPOINT;
    assert_eq!((&bytes[..8], u32_at(bytes, 8), u32_at(bytes, 12)), (&b"UMBLGCKP"[..], 1, 64));
    assert_eq!(&bytes[16..32], &store().store.as_bytes()[..]);
    assert_eq!([32, 40, 48, 56, 64].map(|at| u64_at(bytes, at)), [77, 1234, 900, 700, 1552]);
    assert_eq!((u32_at(bytes, 72), bytes[76], bytes[77]), (checkpoint().0.payload.checksum.0, 3, 1));
    assert_eq!([80, 84, 88, 92, 96, 100].map(|at| u32_at(bytes, at)), [1, 9, 2, u32::MAX, 0, u32::MAX]);
    assert_eq!([116, 120, 124].map(|at| u32_at(bytes, at)), [7, 3, u32::MAX]);
    let counters = [272, 280, 288, 296, 304, 312, 320, 328].map(|at| u64_at(bytes, at));
    assert_eq!(counters, [900, 80, 70, 60, 50, 4, 30, 20]);
    let payload = &bytes[4096..];
    let checksum = u64::from(Checksum::of(MAP_PAGE).0 & 0xff_ffff);
    assert_eq!((u64_at(payload, 0), u64_at(payload, 8)), ((checksum << 40) + 114, 0));
    let states = [0, 1, 2, 3, 5, 31].map(|segment| payload[16 + 24 * segment]);
    assert_eq!(states, [2, 1, 5, 0, 3, 4]);
    let row = &payload[16 + 24 * 7..];
    assert_eq!((row[1], u32_at(row, 4), u64_at(row, 8), u64_at(row, 16)), (3, 2, 890, 600));
}

#[test]
fn the_fields_of_a_chunk_and_a_map_page_lie_where_the_table_says() {
    let bytes = CHUNK;
    assert_eq!((&bytes[..4], [4, 6, 8].map(|at| u16_at(bytes, at))), (&b"ULCK"[..], [1, 5, 4]));
    assert_eq!((bytes[10], u32_at(bytes, 12), &bytes[16..32]), (2, 2, &store().store.as_bytes()[..]));
    assert_eq!([32, 40, 48].map(|at| u64_at(bytes, at)), [77, 1234, 905]);
    let words = [56, 72, 88, 104, 120].map(|at| u64_at(bytes, at));
    assert_eq!(words, [(1 << 56) + 3, 0, (4 << 56) + 690, (2 << 56) + 699, (3 << 56) + 1]);
    assert_eq!([68, 84, 100, 116, 132].map(|at| u32_at(bytes, at)), [0xab_cdef, 0, 10, 7, 0]);
    assert_eq!(u32_at(bytes, 64), Checksum::of(&[1; BLOCK_BYTES]).0);
    let words = [0, 8, 16, 187 * 8].map(|at| u64_at(MAP_PAGE, at));
    assert_eq!(words, [1, (0xff_ffff << 40) + 1024, 0, (0xab_cdef << 40) + 18]);
}
