//! What the header of a chunk may say.

use super::*;

fn parse_at(block: &[u8], at: u64) -> Result<ChunkHeader, FormatError> {
    ChunkHeader::parse(block, &store(), LogBlock(at))
}

fn changed(at: usize, bytes: &[u8]) -> Result<ChunkHeader, FormatError> {
    parse_at(&with(&encoded_chunk(), CHUNK_CHECKSUM_AT, at, bytes), CHUNK_AT.0)
}

/// A header with one entry: kind, block, checksum and value as stored there.
fn one_entry(kind: u64, block: u64, checksum: u32, value: u32) -> Result<ChunkHeader, FormatError> {
    let header = ChunkHeader { entries: vec![], ..chunk().0 };
    let block_of = header.encode(&store(), CHUNK_AT).expect("it can be read");
    let word = (kind << 56 | block).to_le_bytes();
    let data = u16::from(!matches!(kind, 4 | 5)).to_le_bytes();
    let front = with(&block_of, CHUNK_CHECKSUM_AT, 6, &[1_u16.to_le_bytes(), data].concat());
    let entry = [&word[..], &checksum.to_le_bytes(), &value.to_le_bytes()].concat();
    parse_at(&with(&front, CHUNK_CHECKSUM_AT, 56, &entry), CHUNK_AT.0)
}

fn data(block: u64) -> Entry {
    Entry::Data { block: BlockNo(block), checksum: Checksum(1), stamp: Stamp(0) }
}

#[test]
fn foreign_newer_and_strange_chunks_are_told_apart() {
    let structure = Structure::Chunk;
    assert_eq!(parse_at(&[0; BLOCK_BYTES], 0), Err(FormatError::Foreign { structure }));
    assert_eq!(changed(4, &[3]), Err(FormatError::NewerVersion { structure, found: 3, known: 2 }));
    let other = Superblock { store: Uuid::from_u128(1), ..store() };
    let strange = ChunkHeader::parse(&encoded_chunk(), &other, CHUNK_AT);
    assert_eq!(strange, Err(FormatError::OtherStore { structure, found: store().store, expected: other.store }));
}

#[test]
fn the_counts_agree_with_the_entries() {
    assert_eq!(field(changed(6, &253_u16.to_le_bytes())), Field::Entries);
    assert_eq!(field(changed(6, &u16::MAX.to_le_bytes())), Field::Entries);
    let behind = Err(FormatError::Reserved { structure: Structure::Chunk, offset: 56 + 4 * 16 });
    assert_eq!(changed(6, &[4]), behind, "an entry that is not counted");
    assert_eq!(field(changed(6, &[6])), Field::DataBlocks, "a dead one more");
    assert_eq!(field(changed(8, &[3])), Field::DataBlocks);
}

#[test]
fn a_chunk_ends_in_its_segment() {
    let block = encoded_chunk();
    assert!(parse_at(&block, 16 + 11).is_ok(), "slots 11 to 15");
    assert_eq!(field(parse_at(&block, 16 + 12)), Field::DataBlocks);
    assert_eq!(field(parse_at(&block, 1024)), Field::ChunkPlace);
    assert_eq!(field(parse_at(&block, u64::MAX)), Field::ChunkPlace);
}

#[test]
fn a_stream_continues_in_another_segment_that_exists() {
    assert_eq!(changed(12, &[0xff; 4]).map(|header| header.next), Ok(None));
    assert_eq!(field(changed(12, &[64, 0, 0, 0])), Field::NextSegment);
    assert_eq!(field(changed(12, &[1, 0, 0, 0])), Field::NextSegment, "its own");
    assert_eq!(field(changed(10, &[4])), Field::Stream);
}

#[test]
fn entries_speak_of_blocks_that_exist() {
    for kind in [1, 2] {
        assert!(one_entry(kind, 699, 5, 0xff_ffff).is_ok());
        assert_eq!(field(one_entry(kind, 700, 5, 0)), Field::EntryBlock(0));
        assert_eq!(field(one_entry(kind, 1 << 40, 5, 0)), Field::EntryBlock(0), "bits that are zero");
        assert_eq!(field(one_entry(kind, 1 << 55, 5, 0)), Field::EntryBlock(0), "bits that are zero");
        assert_eq!(field(one_entry(kind, 0, 5, 1 << 24)), Field::EntryValue(0));
    }
    assert!(one_entry(3, 1, 5, 0).is_ok());
    assert_eq!(field(one_entry(3, 2, 5, 0)), Field::EntryBlock(0));
    assert_eq!(field(one_entry(3, 1, 5, 1)), Field::EntryValue(0));
    assert!(one_entry(4, 0, 0, 700).is_ok());
    assert_eq!(field(one_entry(4, 0, 0, 701)), Field::EntryBlock(0));
    assert_eq!(field(one_entry(4, 699, 0, 2)), Field::EntryBlock(0));
    assert_eq!(field(one_entry(4, 699, 0, u32::MAX)), Field::EntryBlock(0));
    assert_eq!(field(one_entry(4, 699, 0, 0)), Field::EntryValue(0));
    assert_eq!(field(one_entry(4, 699, 1, 1)), Field::EntryChecksum(0));
    assert!(one_entry(5, 1 << 55, 0, u32::MAX).is_ok());
    assert_eq!(field(one_entry(5, 0, 1, 0)), Field::EntryChecksum(0));
    for kind in [6, 255] {
        assert_eq!(field(one_entry(kind, 0, 0, 0)), Field::Kind(0));
    }
}

#[test]
fn a_dead_entry_holds_no_block_checksum_or_value() {
    assert_eq!(one_entry(0, 0, 0, 0).map(|header| header.entries), Ok(vec![Entry::Dead]));
    assert_eq!(field(one_entry(0, 1, 0, 0)), Field::EntryBlock(0));
    assert_eq!(field(one_entry(0, 0, 1, 0)), Field::EntryChecksum(0));
    assert_eq!(field(one_entry(0, 0, 0, 1)), Field::EntryValue(0));
}

#[test]
fn data_blocks_lie_in_the_order_of_the_entries_that_have_one() {
    let (header, _) = chunk();
    let slots: Vec<Option<Slot>> = header.slots().map(|(_, slot)| slot).collect();
    assert_eq!(slots, [Some(Slot(1)), Some(Slot(2)), None, Some(Slot(3)), Some(Slot(4))]);
    assert_eq!((header.data_blocks(), header.blocks()), (4, 5));
}

#[test]
fn the_first_block_that_is_not_what_was_written_is_named() {
    let (header, mut data) = chunk();
    assert_eq!(header.verify_data(&data), Ok(()));
    data[BLOCK_BYTES] ^= 1;
    assert_eq!(header.verify_data(&data), Ok(()), "the block of a dead entry");
    data[4 * BLOCK_BYTES - 1] ^= 1;
    let bad = |result| match result {
        Err(FormatError::DataChecksum { entry, slot, .. }) => (entry, slot),
        other => panic!("{other:?}"),
    };
    assert_eq!(bad(header.verify_data(&data)), (4, Slot(4)));
    data[2 * BLOCK_BYTES] ^= 1;
    assert_eq!(bad(header.verify_data(&data)), (3, Slot(3)));
}

#[test]
fn data_that_is_cut_off_is_told_from_damage() {
    let (header, data) = chunk();
    let present = ByteSize(4 * 4096 - 1);
    let cut = FormatError::Truncated { structure: Structure::ChunkData, needed: ByteSize(4 * 4096), present };
    assert_eq!(header.verify_data(&data[..present.0 as usize]), Err(cut));
    let more = [&data[..], &[1; 100]].concat();
    assert_eq!(header.verify_data(&more), Ok(()), "what lies behind is not of the chunk");
}

#[test]
fn a_chunk_takes_what_its_header_has_room_for() {
    let mut builder = ChunkBuilder::new(Blocks(1000));
    for number in 0..MAX_ENTRIES as u32 {
        assert_eq!(builder.room(), Blocks(252 - u64::from(number)));
        assert_eq!(builder.push(data(5)), Some(Slot(number + 1)));
    }
    assert_eq!((builder.push(data(5)), builder.room()), (None, Blocks(0)));
    assert_eq!(builder.push(Entry::Unmapped { start: BlockNo(0), blocks: 1 }), None);
    let shape = Shape::new(256, 64, Blocks(700), Stream(3)).expect("possible");
    let (store, header) =
        (Superblock { shape, ..store() }, ChunkHeader { entries: builder.into_entries(), ..chunk().0 });
    let block = header.encode(&store, LogBlock(0)).expect("it can be read");
    assert_eq!(ChunkHeader::parse(&block, &store, LogBlock(0)), Ok(header));
}

#[test]
fn a_chunk_takes_what_its_segment_has_room_for() {
    let mut builder = ChunkBuilder::new(Blocks(3));
    assert_eq!(builder.push(data(1)), Some(Slot(1)));
    assert_eq!(builder.push(Entry::Unmapped { start: BlockNo(0), blocks: 1 }), Some(Slot(0)));
    assert_eq!(builder.push(data(2)), Some(Slot(2)));
    assert_eq!((builder.push(data(3)), builder.room()), (None, Blocks(0)));
    assert!(builder.push(Entry::Unmapped { start: BlockNo(1), blocks: 1 }).is_some(), "it takes no block");
    let header = ChunkHeader { entries: builder.into_entries(), ..chunk().0 };
    assert!(header.encode(&store(), LogBlock(16 + 13)).is_ok());
    assert_eq!(ChunkBuilder::new(Blocks(0)).push(data(1)), None);
    assert_eq!(ChunkBuilder::new(Blocks(1)).push(data(1)), None);
}

#[test]
fn a_block_that_is_overwritten_before_it_is_written_leaves_a_dead_one() {
    let mut builder = ChunkBuilder::new(Blocks(10));
    builder.push(Entry::Unmapped { start: BlockNo(0), blocks: 1 });
    builder.push(data(1));
    builder.push(data(2));
    assert_eq!(builder.kill(Slot(2)), Some(data(2)));
    assert_eq!((builder.kill(Slot(0)), builder.kill(Slot(3))), (None, None));
    assert_eq!(builder.entries(), [Entry::Unmapped { start: BlockNo(0), blocks: 1 }, data(1), Entry::Dead]);
    assert_eq!(builder.push(data(3)), Some(Slot(3)), "its data block is still there");
}

#[test]
fn a_header_that_would_not_be_read_is_not_written() {
    let encode = |entries| ChunkHeader { entries, ..chunk().0 }.encode(&store(), LogBlock(0));
    assert_eq!(field(encode(vec![data(700)])), Field::EntryBlock(0));
    assert_eq!(field(encode(vec![data(1); 16])), Field::DataBlocks);
    let unmapped = Entry::Unmapped { start: BlockNo(0), blocks: 1 };
    assert_eq!(field(encode(vec![unmapped; 253])), Field::Entries);
    assert!(encode(vec![unmapped; 252]).is_ok());
}

/// The same chunk in a header that repeats what was before it.
pub(super) fn repeating() -> ChunkHeader {
    let runs = vec![3..4, 10..30, 500..501, 690..700];
    let (stream, place, next) = (Stream(1), LogBlock(5 * 16 + 2), Some(SegmentNo(9)));
    ChunkHeader { before: Some(Repeat { stream, place, blocks: 7, next, runs, is_exact: true }), ..chunk().0 }
}

#[test]
fn a_header_repeats_what_the_chunk_before_it_held() {
    let header = repeating();
    let block = header.encode(&store(), CHUNK_AT).expect("it can be read");
    assert_eq!(ChunkHeader::parse(&block, &store(), CHUNK_AT), Ok(header));
}

#[test]
fn what_is_repeated_must_be_possible() {
    let with = |change: fn(&mut Repeat)| {
        let mut header = repeating();
        change(header.before.as_mut().expect("it repeats"));
        field(header.encode(&store(), CHUNK_AT))
    };
    let changes: [fn(&mut Repeat); 7] = [
        |repeat| repeat.stream = Stream(4),
        |repeat| repeat.place = LogBlock(64 * 16),
        |repeat| repeat.blocks = 15,
        |repeat| repeat.blocks = 0,
        |repeat| repeat.next = Some(SegmentNo(5)),
        |repeat| repeat.runs = vec![5..6, 6..7],
        |repeat| repeat.runs = vec![0..1, 5..701],
    ];
    assert!(changes.into_iter().all(|change| with(change) == Field::Repeat));
}

#[test]
fn where_all_runs_find_no_room_near_ones_are_joined() {
    let shape = Shape::new(256, 1 << 30, Blocks(1 << 37), Stream(3)).expect("possible");
    let superblock = Superblock {
        shape,
        areas: [31, 1 << 20].map(|first| Area { first: SegmentNo(first), segments: 1 << 19 }),
        ..store()
    };
    for (step, is_exact) in [(1 << 20, true), (1 << 29, false)] {
        let entries: Vec<Entry> = (0..240).map(|nth| data(nth * step + nth % 7)).collect();
        let written = ChunkHeader { entries, ..chunk().0 };
        let repeat = Repeat::of(&written, LogBlock(0));
        assert_eq!((repeat.is_exact, repeat.runs.len() == 240), (is_exact, is_exact));
        let all_are_in = written.entries.iter().all(|entry| {
            repeat.runs.iter().any(|run| run.start <= entry.blocks().start && entry.blocks().end <= run.end)
        });
        assert!(all_are_in);
        let header = ChunkHeader { before: Some(repeat), next: None, ..chunk().0 };
        let block = header.encode(&superblock, LogBlock(0)).expect("it can be read");
        assert_eq!(ChunkHeader::parse(&block, &superblock, LogBlock(0)), Ok(header));
    }
}
