//! Whatever is written is read again as it was: any store, any checkpoint of it, any chunk, any map page.
//!
//! A case that fails is printed, made small, with the seed that makes it again.

use proptest::prelude::*;
use proptest::sample::Index;

use super::*;

fn superblock() -> impl Strategy<Value = Superblock> {
    let sizes = (4_u32..=16, 0_u32..4000, any::<Index>(), 1_u8..=15);
    let areas = (any::<[Index; 2]>(), any::<bool>());
    let rest = (any::<u32>(), any::<u64>(), any::<u128>(), any::<u64>(), 257_u64..1 << 50, "\\PC{0,64}");
    let rest = (rest, proptest::option::of(any::<[u32; 6]>()));
    (sizes, areas, rest).prop_map(|((bits, more, advertised, streams), (at, swap), rest)| {
        // The advertised size at its largest says how large areas must be; then it is drawn below that.
        let blocks = 1 << bits;
        let largest = |segments| Shape::new(blocks, segments, Blocks(u64::from(segments)), Stream(streams));
        let segments = 4 + more;
        let need = area_segments(&largest(segments).expect("possible")) as u32;
        let segments = segments + 2 * need;
        let shape =
            Shape::new(blocks, segments, Blocks(1 + advertised.index(segments as usize / 2) as u64), Stream(streams));
        let shape = shape.expect("possible");
        let need = area_segments(&shape) as u32;
        let first = at[0].index((segments - 2 * need) as usize) as u32;
        let second = first + need + at[1].index((segments - first - 2 * need + 1) as usize) as u32;
        let mut areas = [first, second].map(|first| Area { first: SegmentNo(first), segments: need });
        if swap {
            areas.reverse();
        }
        let ((compat, generation, store, created, first, text), pending) = rest;
        let pending_loss = pending.map(|numbers| {
            let [checkpoint, flushed, end, first, lost, unknown] = numbers.map(u64::from);
            let block = unknown % shape.advertised().0;
            PendingLoss {
                checkpoint: CheckpointNo(checkpoint),
                flushed: Sequence(flushed),
                end: Sequence(end),
                first: Sequence(first + 1),
                last: Sequence(first + lost),
                unknown,
                blocks: vec![block..block + 1; (lost % 150) as usize],
                among: vec![0..block + 1; (unknown % 70) as usize],
            }
        });
        Superblock {
            incompat: Incompat::default(),
            compat: Compat(compat),
            generation: Generation(generation),
            store: Uuid::from_u128(store),
            created: UnixSeconds(created),
            shape,
            first: BlockNo(first),
            areas,
            scheme: Scheme::new(&text).expect("64 characters have at most 256 bytes"),
            pending_loss,
        }
    })
}

/// A checkpoint of a store: segments drawn by turns for heads, and for what else there is.
fn checkpoint_of(
    superblock: &Superblock,
    draws: &[u32],
    numbers: [u64; 12],
    clean: bool,
) -> (CheckpointHeader, Vec<u8>) {
    let shape = superblock.shape;
    let mut draw = draws.iter().copied().cycle();
    let mut below = |bound: u32| draw.next().expect("there are draws") % bound;
    let row =
        SegmentEntry { state: SegmentState::Free, stream: Stream(0), live: 0, youngest: Clock(0), opened: Clock(0) };
    let mut table = vec![row; shape.segments() as usize];
    let mut heads = vec![Head::default(); usize::from(shape.map_stream().0) + 1];
    for (segment, row) in (0..).map(SegmentNo).zip(&mut table) {
        row.stream = Stream(below(u32::from(shape.map_stream().0) + 1) as u8);
        row.youngest = Clock(u64::from(below(u32::MAX)) << 31);
        let head = &mut heads[usize::from(row.stream.0)];
        row.state = match below(6) {
            _ if superblock.is_system(segment) => SegmentState::System,
            1 if head.open.is_none() => {
                head.open = Some(OpenSegment { segment, slot: Slot(below(shape.segment_blocks() + 1)) });
                SegmentState::Open
            }
            2 if head.next.is_none() => {
                head.next = Some(segment);
                SegmentState::Next
            }
            3 => SegmentState::Cleaned,
            4 | 5 => SegmentState::Full,
            _ => SegmentState::Free,
        };
        if matches!(row.state, SegmentState::Open | SegmentState::Full | SegmentState::Cleaned) {
            row.live = below(shape.segment_blocks() + 1);
        }
    }
    let full: Vec<u32> = (0..shape.segments()).filter(|at| table[*at as usize].state == SegmentState::Full).collect();
    let map: Vec<Option<IndexEntry>> = (0..shape.map_pages().0)
        .map(|_| {
            let segment = full.get(below(full.len() as u32 + 1) as usize)?;
            let place = shape.place(SegmentNo(*segment), Slot(below(shape.segment_blocks())));
            Some(IndexEntry::new(place, Checksum(below(u32::MAX))).expect("it fits"))
        })
        .collect();
    let mut encoder = PayloadEncoder::new(map.into_iter(), table.into_iter());
    let mut payload = vec![0; area_bytes(&shape).0 as usize - BLOCK_BYTES];
    assert_eq!(encoder.fill(&mut payload), payload.len());
    let [number, sequence, clock, ..] = numbers;
    let header = CheckpointHeader {
        store: superblock.store,
        number: CheckpointNo(number),
        next_sequence: Sequence(sequence),
        clock: Clock(clock),
        shape,
        heads,
        counters: Counters {
            user_blocks: numbers[3],
            copied_blocks: numbers[4],
            map_blocks: numbers[5],
            header_blocks: numbers[6],
            cleaner_reads: numbers[7],
            cleaned_segments: numbers[8],
            flushes: numbers[9],
            discarded_blocks: numbers[10],
        },
        payload: encoder.sum(),
        lost: numbers[6].min(shape.advertised().0),
        clean,
    };
    (header, payload)
}

fn an_entry(shape: Shape) -> impl Strategy<Value = Entry> {
    let Blocks(blocks) = shape.advertised();
    let block = || (0..blocks).prop_map(BlockNo);
    let (checksum, stamp) = (any::<u32>().prop_map(Checksum), (0..1_u32 << 24).prop_map(Stamp));
    prop_oneof![
        Just(Entry::Dead),
        (0..1_u64 << 50, any::<u32>())
            .prop_map(|(flushed, promised)| Entry::Mark { flushed: Sequence(flushed), promised }),
        (block(), checksum.clone(), stamp.clone()).prop_map(|(block, checksum, stamp)| Entry::Data {
            block,
            checksum,
            stamp
        }),
        (block(), checksum.clone(), stamp).prop_map(|(block, checksum, stamp)| Entry::Copy { block, checksum, stamp }),
        (0..shape.map_pages().0, checksum)
            .prop_map(|(page, checksum)| Entry::MapPage { page: MapPageNo(page), checksum }),
        (block(), any::<Index>()).prop_map(move |(start, count)| {
            let blocks = 1 + count.index((blocks - start.0) as usize) as u32;
            Entry::Unmapped { start, blocks }
        }),
    ]
}

/// A store, where a chunk lies in it, and the chunk.
fn a_chunk() -> impl Strategy<Value = (Superblock, LogBlock, ChunkHeader)> {
    let entries = |superblock: Superblock| {
        let entries = prop::collection::vec(an_entry(superblock.shape), 0..=MAX_ENTRIES);
        (Just(superblock), entries, any::<[Index; 3]>(), any::<[u64; 3]>(), any::<bool>())
    };
    superblock().prop_flat_map(entries).prop_map(|(superblock, entries, at, numbers, last)| {
        let shape = superblock.shape;
        let segment = at[0].index(shape.segments() as usize) as u32;
        let slot = at[1].index(shape.segment_blocks() as usize) as u32;
        let mut builder = ChunkBuilder::new(Blocks(u64::from(shape.segment_blocks() - slot)));
        for entry in entries {
            builder.push(entry);
        }
        let next = (segment + 1 + at[2].index(shape.segments() as usize - 1) as u32) % shape.segments();
        let mut header = ChunkHeader {
            store: superblock.store,
            stream: Stream(at[2].index(usize::from(shape.map_stream().0) + 1) as u8),
            epoch: CheckpointNo(numbers[0]),
            sequence: Sequence(numbers[1]),
            clock: Clock(numbers[2]),
            next: (!last).then_some(SegmentNo(next)),
            entries: builder.into_entries(),
            before: None,
        };
        let place = shape.place(SegmentNo(segment), Slot(slot));
        header.before = numbers[0].is_multiple_of(2).then(|| Repeat::of(&header, place));
        (superblock, place, header)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn any_superblock_is_read_as_it_was_written(superblock in superblock()) {
        let block = superblock.encode().expect("it is possible");
        prop_assert_eq!(Superblock::parse(&block, superblock.end().lba()), Ok(superblock));
    }

    #[test]
    fn any_chunk_is_read_as_it_was_written((superblock, at, header) in a_chunk()) {
        let block = header.encode(&superblock, at).expect("it is possible");
        prop_assert_eq!(ChunkHeader::parse(&block, &superblock, at), Ok(header));
    }

    #[test]
    fn any_map_page_is_read_as_it_was_written(
        superblock in superblock(),
        page in any::<Index>(),
        entries in prop::collection::vec((any::<Index>(), any::<Index>(), 0..1_u32 << 24), 0..600),
    ) {
        let shape = superblock.shape;
        let page = MapPageNo(page.index(shape.map_pages().0 as usize) as u64);
        let first = page.0 * PAGE_ENTRIES;
        let used = (shape.advertised().0 - first).min(PAGE_ENTRIES);
        let mut map = MapPage::default();
        for (at, place, stamp) in entries {
            let block = BlockNo(first + at.index(used as usize) as u64);
            let own = entry(place.index(shape.places().0 as usize) as u64, stamp);
            map.set(block, Some(own));
            prop_assert_eq!(map.get(block), Some(own));
        }
        let block = map.encode(&shape, page).expect("it is possible");
        prop_assert_eq!(MapPage::parse(&block, &shape, page), Ok(map));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_checkpoint_is_read_as_it_was_written(
        superblock in superblock(),
        draws in prop::collection::vec(any::<u32>(), 1..500),
        numbers: [u64; 12],
        clean: bool,
    ) {
        let (header, payload) = checkpoint_of(&superblock, &draws, numbers, clean);
        let block = header.encode(&superblock).expect("it is possible");
        prop_assert_eq!(CheckpointHeader::parse(&block, &superblock), Ok(header.clone()));
        let read = Payload::parse(&payload, &header, &superblock).expect("it fits together");
        let mut again = PayloadEncoder::new(read.map(), read.segments());
        let mut bytes = vec![0; payload.len()];
        prop_assert_eq!(again.fill(&mut bytes), payload.len());
        prop_assert!(bytes == payload);
        prop_assert_eq!(again.sum(), header.payload);
    }
}
