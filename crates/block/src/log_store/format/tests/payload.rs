//! What the payload of a checkpoint may say, and how it is written in pieces.

use super::*;

/// The error of the checkpoint of these map pages and segments.
fn refused(map: [Option<IndexEntry>; 2], table: &[SegmentEntry]) -> FormatError {
    let (header, payload) = sealed(&map, table);
    Payload::parse(&payload, &header, &store()).expect_err("it does not fit together")
}

/// The error of the checkpoint when a row of its table is another one.
fn with_row(segment: usize, change: impl Fn(&mut SegmentEntry)) -> FormatError {
    let mut table = table();
    change(&mut table[segment]);
    refused([None; 2], &table)
}

fn mismatch(segment: u32, found: SegmentState, expected: SegmentState) -> FormatError {
    FormatError::SegmentMismatch { segment: SegmentNo(segment), found, expected }
}

#[test]
fn what_is_written_is_read() {
    let (header, payload) = checkpoint();
    let read = Payload::parse(&payload, &header, &store()).expect("it fits together");
    assert_eq!(read.map().collect::<Vec<_>>(), [Some(page_at(113)), None]);
    assert_eq!(read.segments().collect::<Vec<_>>(), table());
    let len = header.payload.bytes.0 as usize;
    assert!(payload[len..].iter().all(|byte| *byte == 0), "the block is filled with zeroes");
    assert!(Payload::parse(&payload[..len], &header, &store()).is_ok(), "they are no part of it");
}

#[test]
fn a_payload_that_is_cut_off_or_of_another_checkpoint_is_refused() {
    let (header, payload) = checkpoint();
    let (needed, structure) = (header.payload.bytes, Structure::Payload);
    for len in 0..needed.0 {
        let cut = Payload::parse(&payload[..len as usize], &header, &store());
        assert_eq!(cut.err(), Some(FormatError::Truncated { structure, needed, present: ByteSize(len) }));
    }
    let (_, other) = sealed(&[None; 2], &table());
    let stored = header.payload.checksum;
    let computed = Checksum::of(&other[..needed.0 as usize]);
    let refused = Payload::parse(&other, &header, &store()).err();
    assert_eq!(refused, Some(FormatError::Checksum { structure, stored, computed }));
}

#[test]
fn open_and_next_segments_are_those_of_the_heads() {
    let lost = |segment, state| FormatError::NoHead { segment: SegmentNo(segment), state };
    assert_eq!(with_row(3, |row| row.state = SegmentState::Open), lost(3, SegmentState::Open));
    assert_eq!(with_row(3, |row| row.state = SegmentState::Next), lost(3, SegmentState::Next));
    for state in [SegmentState::Full, SegmentState::Cleaned] {
        assert_eq!(with_row(1, |row| row.state = state), mismatch(1, state, SegmentState::Open));
        assert_eq!(with_row(2, |row| row.state = state), mismatch(2, state, SegmentState::Next));
    }
    assert_eq!(with_row(2, |row| row.state = SegmentState::Open), lost(2, SegmentState::Open));
    assert_eq!(with_row(1, |row| *row = table()[2]), lost(1, SegmentState::Next));
}

#[test]
fn the_open_segment_of_a_stream_is_of_that_stream() {
    let other = with_row(1, |row| row.stream = Stream(2));
    assert_eq!(field::<()>(Err(other)), Field::SegmentStream(SegmentNo(1)));
    let none = with_row(5, |row| row.stream = Stream(4));
    assert_eq!(field::<()>(Err(none)), Field::SegmentStream(SegmentNo(5)));
}

#[test]
fn no_segment_has_more_live_blocks_than_it_holds() {
    let live = |segment, live| match with_row(segment, |row| row.live = live) {
        FormatError::OutOfRange { field: Field::Live(_), limit, .. } => limit,
        other => panic!("{other:?}"),
    };
    assert_eq!((live(0, 17), live(5, u32::MAX)), (Limit::AtMost(16), Limit::AtMost(16)));
    assert_eq!([3, 2, 31].map(|empty| live(empty, 1)), [Limit::AtMost(0); 3]);
}

#[test]
fn checkpoint_areas_are_system_segments() {
    let free = with_row(32, |row| row.state = SegmentState::Free);
    assert_eq!(free, mismatch(32, SegmentState::Free, SegmentState::System));
}

#[test]
fn a_row_that_makes_no_sense_is_named() {
    let row = |offset: usize, byte| {
        let (mut header, mut payload) = checkpoint();
        payload[2 * 8 + 9 * 24 + offset] = byte;
        header.payload.checksum = Checksum::of(&payload[..header.payload.bytes.0 as usize]);
        field(Payload::parse(&payload, &header, &store()))
    };
    assert_eq!((row(0, 6), row(0, 255)), (Field::State(SegmentNo(9)), Field::State(SegmentNo(9))));
    assert_eq!((row(2, 1), row(3, 1)), (Field::SegmentReserved(SegmentNo(9)), Field::SegmentReserved(SegmentNo(9))));
}

#[test]
fn map_pages_lie_where_something_was_written() {
    let table = table();
    let at = |place| refused([None, Some(page_at(place))], &table);
    let nothing = |place, state| FormatError::NothingThere { page: MapPageNo(1), place: LogBlock(place), state };
    assert_eq!(at(3 * 16), nothing(48, SegmentState::Free));
    assert_eq!(at(2 * 16), nothing(32, SegmentState::Next));
    assert_eq!(at(31 * 16), nothing(31 * 16, SegmentState::System));
    assert_eq!(at(7 * 16 + 3), nothing(115, SegmentState::Open), "from the head on");
    assert_eq!(field::<()>(Err(at(1024))), Field::MapIndex(MapPageNo(1)));
    assert_eq!(field::<()>(Err(at((1 << 40) - 2))), Field::MapIndex(MapPageNo(1)));
    for place in [15, 5 * 16, 7 * 16 + 2] {
        let (header, payload) = sealed(&[None, Some(page_at(place))], &table);
        assert!(Payload::parse(&payload, &header, &store()).is_ok(), "{place}");
    }
}

#[test]
fn an_index_entry_with_a_checksum_and_no_place_is_refused() {
    let (mut header, mut payload) = checkpoint();
    payload[8..16].copy_from_slice(&(5_u64 << 40).to_le_bytes());
    header.payload.checksum = Checksum::of(&payload[..header.payload.bytes.0 as usize]);
    assert_eq!(field(Payload::parse(&payload, &header, &store())), Field::MapIndex(MapPageNo(1)));
}

#[test]
fn a_payload_is_the_same_in_pieces_of_any_size() {
    let map = || (0..3000).map(|page| (page % 3 > 0).then_some(page_at(page * 7)));
    let rows = || {
        (0..1000_u32).map(|segment| SegmentEntry {
            state: SegmentState::Full,
            stream: Stream(segment as u8),
            live: segment,
            youngest: Clock(u64::from(segment) << 33),
            opened: Clock(1),
        })
    };
    let encode = |blocks: usize| {
        let (mut encoder, mut buffer, mut whole) =
            (PayloadEncoder::new(map(), rows()), vec![0xee; blocks * 4096], vec![]);
        loop {
            let filled = encoder.fill(&mut buffer);
            assert!(filled.is_multiple_of(BLOCK_BYTES));
            whole.extend_from_slice(&buffer[..filled]);
            if filled < buffer.len() {
                break;
            }
        }
        assert_eq!(encoder.fill(&mut buffer), 0);
        (whole, encoder.sum())
    };
    let (whole, sum) = encode(100);
    assert_eq!((whole.len(), sum.bytes), (12 * 4096, ByteSize(48_000)));
    assert_eq!(sum.checksum, Checksum::of(&whole[..48_000]));
    for blocks in [1, 2, 3, 5, 11, 12] {
        assert!(encode(blocks) == (whole.clone(), sum), "{blocks} blocks");
    }
}

#[test]
fn a_payload_of_whole_blocks_ends_at_their_end() {
    let mut encoder = PayloadEncoder::new((0..512).map(|page| Some(page_at(page))), std::iter::empty());
    let mut buffer = [0; BLOCK_BYTES];
    assert_eq!((encoder.fill(&mut buffer), encoder.fill(&mut buffer)), (BLOCK_BYTES, 0));
    assert_eq!(encoder.sum().bytes, ByteSize(4096));
}
