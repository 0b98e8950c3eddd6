//! What the header of a checkpoint may say.

use super::*;

fn parse(block: &[u8]) -> Result<CheckpointHeader, FormatError> {
    CheckpointHeader::parse(block, &store())
}

fn changed(at: usize, bytes: &[u8]) -> Result<CheckpointHeader, FormatError> {
    parse(&with(&encoded_checkpoint(), CHECKSUM_AT, at, bytes))
}

/// The offset of a stream's head.
fn head(stream: usize) -> usize {
    80 + 12 * stream
}

const NONE: [u8; 4] = [0xff; 4];

#[test]
fn foreign_newer_and_strange_checkpoints_are_told_apart() {
    let structure = Structure::Checkpoint;
    assert_eq!(parse(&[0; BLOCK_BYTES]), Err(FormatError::Foreign { structure }));
    assert_eq!(parse(&encoded_store()), Err(FormatError::Foreign { structure }));
    assert_eq!(changed(8, &[9]), Err(FormatError::NewerVersion { structure, found: 9, known: 1 }));
    let other = Superblock { store: Uuid::from_u128(1), ..store() };
    let strange = CheckpointHeader::parse(&encoded_checkpoint(), &other);
    assert_eq!(strange, Err(FormatError::OtherStore { structure, found: store().store, expected: other.store }));
}

#[test]
fn a_store_that_was_grown_reads_its_last_checkpoint() {
    let grown = Superblock { shape: Shape::new(16, 90, Blocks(1000), Stream(3)).expect("possible"), ..store() };
    let (header, payload) = checkpoint();
    let read = CheckpointHeader::parse(&encoded_checkpoint(), &grown).expect("it is smaller");
    assert_eq!((read.shape, &read), (store().shape, &header));
    assert_eq!(Payload::parse(&payload, &read, &grown).map(|payload| payload.segments().count()), Ok(64));
}

#[test]
fn a_checkpoint_is_not_larger_than_its_store() {
    let of = |segments, advertised, streams| {
        let shape = Shape::new(16, segments, Blocks(advertised), Stream(streams)).expect("possible");
        CheckpointHeader::parse(&encoded_checkpoint(), &Superblock { shape, ..store() })
    };
    assert_eq!(field(of(63, 700, 3)), Field::Segments);
    assert_eq!(field(of(64, 699, 3)), Field::Advertised);
    assert_eq!(field(of(64, 700, 2)), Field::Streams);
    assert_eq!(field(of(64, 700, 4)), Field::Streams);
    assert_eq!(field(changed(12, &[0])), Field::Segments);
    assert_eq!(field(changed(56, &[0; 8])), Field::Advertised);
}

#[test]
fn the_payload_has_a_place_for_each_page_and_a_row_for_each_segment() {
    let bytes = 2 * 8 + 64 * 24_u64;
    assert_eq!(checkpoint().0.payload.bytes, ByteSize(bytes));
    for other in [0, bytes - 1, bytes + 1, u64::MAX] {
        assert_eq!(field(changed(64, &other.to_le_bytes())), Field::PayloadBytes);
    }
    assert_eq!(field(changed(12, &[63])), Field::PayloadBytes, "a segment less");
}

#[test]
fn a_store_was_closed_in_order_or_was_not() {
    assert_eq!(changed(77, &[0]).map(|header| header.clean), Ok(false));
    assert_eq!(field(changed(77, &[2])), Field::Clean);
}

#[test]
fn heads_lie_in_segments_that_exist() {
    assert_eq!(field(changed(head(0), &[64])), Field::HeadSegment(Stream(0)));
    assert_eq!(field(changed(head(3) + 8, &[64, 0, 0, 0])), Field::HeadNext(Stream(3)));
    assert!(changed(head(0) + 4, &[16]).is_ok(), "a full one");
    assert_eq!(field(changed(head(0) + 4, &[17])), Field::HeadSlot(Stream(0)));
}

#[test]
fn a_head_without_a_segment_has_no_slot() {
    let none = changed(head(0), &[NONE, [0; 4]].concat()).expect("it may have none");
    assert_eq!(none.heads[0], Head { open: None, next: Some(SegmentNo(2)) });
    assert_eq!(field(changed(head(0), &NONE)), Field::HeadSlot(Stream(0)));
}

#[test]
fn no_two_heads_share_a_segment() {
    let shared = |segment, first, second| {
        Err(FormatError::SharedSegment { segment: SegmentNo(segment), first: Stream(first), second: Stream(second) })
    };
    assert_eq!(changed(head(3), &[1]), shared(1, 0, 3));
    assert_eq!(changed(head(3), &[2]), shared(2, 0, 3));
    assert_eq!(changed(head(0) + 8, &[1]), shared(1, 0, 0));
}

#[test]
fn streams_that_do_not_exist_have_no_heads() {
    let used = Err(FormatError::Reserved { structure: Structure::Checkpoint, offset: head(4) as u64 });
    assert_eq!(changed(head(4), &NONE), used);
    let few = CheckpointHeader { heads: vec![Head::default(); 3], ..checkpoint().0 };
    assert_eq!(field(few.encode(&store())), Field::Heads);
    let many = CheckpointHeader { heads: vec![Head::default(); 17], ..checkpoint().0 };
    assert_eq!(field(many.encode(&store())), Field::Heads);
}
