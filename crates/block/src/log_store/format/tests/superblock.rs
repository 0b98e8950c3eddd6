//! What a superblock may say.

use super::*;

fn parse(block: &[u8]) -> Result<Superblock, FormatError> {
    Superblock::parse(block, LARGE)
}

fn changed(at: usize, bytes: &[u8]) -> Result<Superblock, FormatError> {
    parse(&with(&encoded_store(), CHECKSUM_AT, at, bytes))
}

const THIS: Structure = Structure::Superblock;

#[test]
fn what_was_never_written_is_foreign() {
    assert_eq!(parse(&[0; BLOCK_BYTES]), Err(FormatError::Foreign { structure: THIS }));
    assert_eq!(parse(&encoded_checkpoint()), Err(FormatError::Foreign { structure: THIS }));
}

#[test]
fn a_block_that_is_cut_off_is_told_from_a_foreign_one() {
    let block = encoded_store();
    for len in 0..BLOCK_BYTES {
        let (needed, present) = (ByteSize(4096), ByteSize(len as u64));
        assert_eq!(parse(&block[..len]), Err(FormatError::Truncated { structure: THIS, needed, present }));
    }
}

#[test]
fn a_newer_version_is_named_and_version_0_does_not_exist() {
    assert_eq!(changed(8, &[2]), Err(FormatError::NewerVersion { structure: THIS, found: 2, known: 1 }));
    assert_eq!(field(changed(8, &[0])), Field::Version);
    let mut damaged = encoded_store();
    damaged[8] = 2;
    assert!(matches!(parse(&damaged), Err(FormatError::Checksum { .. })), "damage is no newer version");
}

#[test]
fn unknown_features_are_refused_unless_they_are_compatible() {
    assert_eq!(changed(16, &[0, 0, 0, 0x80]), Err(FormatError::UnknownFeatures { structure: THIS, flags: 1 << 31 }));
    let compatible = changed(12, &[0, 0, 1, 0]).expect("it may be used");
    assert_eq!(compatible, Superblock { compat: Compat(1 << 16), ..store() });
    assert_eq!(compatible.encode(), Ok(with(&encoded_store(), CHECKSUM_AT, 12, &[0, 0, 1, 0])), "it is kept");
}

#[test]
fn a_size_beyond_its_limits_is_refused() {
    assert_eq!(field(changed(20, &[0, 2])), Field::BlockBytes);
    for blocks in [0_u32, 1, 8, 15, 17, 24, 131_072, u32::MAX] {
        assert_eq!(field(changed(56, &blocks.to_le_bytes())), Field::SegmentBlocks, "{blocks}");
    }
    assert_eq!(field(changed(60, &[0])), Field::Segments);
    let (most, segments) = (65_536_u32.to_le_bytes(), (1_u32 << 24).to_le_bytes());
    assert_eq!(field(changed(56, &[most, segments].concat())), Field::Places, "2^40 blocks are one too many");
    assert_eq!(field(changed(72, &[0; 8])), Field::Advertised);
    assert_eq!(field(changed(72, &u64::MAX.to_le_bytes())), Field::Advertised);
    for streams in [0, 16, 255] {
        assert_eq!(field(changed(96, &[streams])), Field::Streams, "{streams}");
    }
}

#[test]
fn segments_begin_behind_both_copies_and_end_on_the_device() {
    assert_eq!(field(changed(64, &256_u64.to_le_bytes())), Field::FirstBlock);
    assert!(changed(64, &257_u64.to_le_bytes()).is_ok());
    assert_eq!(field(changed(64, &u64::MAX.to_le_bytes())), Field::FirstBlock);
    let needed = BlockNo(512 + 64 * 16);
    assert!(Superblock::parse(&encoded_store(), needed.lba()).is_ok());
    let short = Superblock::parse(&encoded_store(), Lba(needed.lba().0 - 1));
    assert_eq!(short, Err(FormatError::DeviceTooSmall { needed, present: BlockNo(needed.0 - 1) }));
}

#[test]
fn the_logical_blocks_fit_beside_headers_and_checkpoints() {
    let room = 62 * 15;
    let full = Superblock { shape: Shape::new(16, 64, Blocks(room), Stream(3)).expect("possible"), ..store() };
    assert!(full.check().is_ok());
    let over = Superblock { shape: Shape::new(16, 64, Blocks(room + 1), Stream(3)).expect("possible"), ..store() };
    assert_eq!(field(over.check()), Field::Advertised);
    assert_eq!(field(over.encode()), Field::Advertised, "nor would it be written");
}

#[test]
fn checkpoint_areas_are_apart_large_enough_and_inside() {
    let check = |areas: [(u32, u32); 2]| {
        let areas = areas.map(|(first, segments)| Area { first: SegmentNo(first), segments });
        Superblock { areas, ..store() }.check()
    };
    assert!(check([(0, 1), (63, 1)]).is_ok());
    assert!(check([(32, 2), (30, 2)]).is_ok());
    let overlap = |segment| Err(FormatError::AreasOverlap { segment: SegmentNo(segment) });
    assert_eq!(check([(30, 3), (32, 1)]), overlap(32));
    assert_eq!(check([(32, 1), (30, 3)]), overlap(32));
    assert_eq!(check([(4, 1), (4, 1)]), overlap(4));
    assert_eq!(field(check([(0, 0), (63, 1)])), Field::AreaSegments(0));
    assert_eq!(field(check([(0, 1), (63, 2)])), Field::Area(1));
    assert_eq!(field(check([(u32::MAX, u32::MAX), (63, 1)])), Field::Area(0));
    // 4000 segments: 96 000 bytes and a map of 8 more, in 24 blocks, and a header: two segments of 16 blocks.
    let shape = Shape::new(16, 4000, Blocks(512), Stream(1)).expect("possible");
    assert_eq!((area_bytes(&shape), area_segments(&shape)), (ByteSize(25 * 4096), 2));
    assert_eq!(field(Superblock { shape, ..store() }.check()), Field::AreaSegments(0));
}

#[test]
fn a_checkpoint_of_4_tb_is_written_to_a_few_segments() {
    // 2048 blocks, 8 MiB, a segment: 16 MiB of map index, 12 MiB of segments.
    let shape = Shape::new(2048, 1 << 19, Blocks(9 << 26), Stream(3)).expect("possible");
    assert_eq!(area_bytes(&shape), ByteSize(4096 + (9 << 20) + (12 << 20)));
    assert_eq!(area_segments(&shape), 3);
}

#[test]
fn the_placement_scheme_is_short_text() {
    let text = "ä".repeat(128);
    let scheme = Scheme::new(&text).expect("256 bytes");
    let superblock = Superblock { scheme, ..store() };
    assert_eq!(parse(&superblock.encode().expect("it can be read")), Ok(superblock));
    assert_eq!(field(Scheme::new(&format!("{text}."))), Field::SchemeLength);
    assert_eq!(field(changed(98, &257_u16.to_le_bytes())), Field::SchemeLength);
    assert_eq!(changed(105, &[0xff]), Err(FormatError::NotText { structure: THIS, offset: 105 }));
    let leftover = Err(FormatError::Reserved { structure: THIS, offset: 114 });
    assert_eq!(changed(98, &14_u16.to_le_bytes()), leftover, "nothing lies behind the text");
}

#[test]
fn places_are_segments_and_slots() {
    let superblock = store();
    let shape = superblock.shape;
    assert_eq!(shape.place(SegmentNo(3), Slot(5)), LogBlock(53));
    assert_eq!((shape.segment_of(LogBlock(53)), shape.slot_of(LogBlock(53))), (SegmentNo(3), Slot(5)));
    assert_eq!((superblock.device_block(LogBlock(53)), superblock.end()), (BlockNo(565), BlockNo(1536)));
    assert_eq!((shape.places(), shape.map_pages(), shape.map_stream()), (Blocks(1024), Blocks(2), Stream(3)));
    assert_eq!(shape.map_page_of(BlockNo(511)), MapPageNo(0));
    assert_eq!(shape.map_page_of(BlockNo(512)), MapPageNo(1));
    assert_eq!([30, 31, 32, 33].map(|segment| superblock.is_system(SegmentNo(segment))), [false, true, true, false]);
}

/// A store whose opening has something to tell.
pub(super) fn with_pending_loss() -> Superblock {
    let pending = PendingLoss {
        checkpoint: CheckpointNo(7),
        flushed: Sequence(40),
        end: Sequence(44),
        first: Sequence(44),
        last: Sequence(47),
        unknown: 1,
        blocks: vec![3..4, 10..20],
        among: std::iter::once(100..700).collect(),
    };
    Superblock { pending_loss: Some(pending), ..store() }
}

#[test]
fn a_loss_that_was_not_reported_is_kept_under_a_feature_of_its_own() {
    let superblock = with_pending_loss();
    let block = superblock.encode().expect("it can be read");
    assert_eq!(block[16], 4);
    assert_eq!(parse(&block), Ok(superblock));
    let without = with(&block, CHECKSUM_AT, 16, &[0]);
    assert_eq!(
        parse(&without),
        Err(FormatError::Reserved { structure: THIS, offset: 512 }),
        "it says that there is none"
    );
    let behind = Err(FormatError::Reserved { structure: THIS, offset: 4090 });
    assert_eq!(parse(&with(&block, CHECKSUM_AT, 4090, &[1])), behind);
}

#[test]
fn a_loss_that_was_not_reported_is_one_of_this_store_and_has_room() {
    let block = with_pending_loss().encode().expect("it can be read");
    let changed = |at: usize, bytes: &[u8]| field(parse(&with(&block, CHECKSUM_AT, at, bytes)));
    assert_eq!(changed(568, &4_u64.to_le_bytes()), Field::PendingLoss, "a run ends where it begins");
    assert_eq!(changed(576, &[0; 8]), Field::PendingLoss, "it ends before it begins");
    assert_eq!(changed(608, &701_u64.to_le_bytes()), Field::PendingLoss, "the store has 700 blocks");
    assert_eq!(changed(536, &[0; 8]), Field::PendingLoss, "no chunk has number 0");
    assert_eq!(changed(544, &42_u64.to_le_bytes()), Field::PendingLoss, "the last comes before the first");
    for count in [221_u16, u16::MAX] {
        let refused = parse(&with(&block, CHECKSUM_AT, 560, &count.to_le_bytes()));
        assert!(refused.is_err(), "{count} runs: {refused:?}");
    }
}

#[test]
fn more_runs_than_there_is_room_for_become_ranges_of_which_only_some_blocks_are_lost() {
    let Some(pending) = with_pending_loss().pending_loss else { panic!("it has one") };
    let alone = |count: u64| (0..count).map(|run| run * 3..run * 3 + 1).collect::<Vec<_>>();
    let kept = PendingLoss { blocks: alone(219), ..pending.clone() }.fitting();
    assert_eq!((kept.blocks.len(), kept.among.len()), (219, 1));
    let fitting = PendingLoss { blocks: alone(230), ..pending }.fitting();
    assert!(fitting.blocks.is_empty() && fitting.among.len() <= 220, "{fitting:?}");
    assert!(alone(230).iter().all(|run| fitting.among.iter().any(|range| range.contains(&run.start))), "{fitting:?}");
    let superblock = Superblock { pending_loss: Some(fitting), ..store() };
    assert_eq!(parse(&superblock.encode().expect("it has room")), Ok(superblock));
}
