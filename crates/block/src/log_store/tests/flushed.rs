//! What is damaged at the end of the log after a kill: flushed data is never lost in silence, and what nobody had
//! flushed is no damage.

use super::*;
use crate::log_store::chunks_behind::{ChunksBehind, MOST_CHUNKS};
use crate::log_store::format::{
    CheckpointNo, ChunkHeader, Clock, Entry, Incompat, LogBlock, Sequence, Stream, Superblock,
};
use crate::log_store::loss::{BlockRuns, MOST_KEPT_RUNS};

fn write(store: &LogStore, blocks: std::ops::Range<u64>, durability: Durability) {
    for block in blocks {
        store.write(Lba(block * 8), &numbered(block + 1), durability).expect("there is room");
    }
}

/// The device of a store that was killed after `work`, and where `block` lay.
fn killed(work: impl Fn(&LogStore), block: u64) -> (Arc<dyn BlockDevice>, usize) {
    let (device, store) = opened(80);
    work(&store);
    let at = byte_of(&store, block);
    drop(store);
    (device, at)
}

fn losses(device: &Arc<dyn BlockDevice>) -> Vec<Loss> {
    losses_of(checked(device, Depth::Structure))
}

#[test]
fn a_damaged_record_before_the_last_flush_is_reported_and_the_store_is_not_written() {
    let (whole, at) = killed(|store| write(store, 0..45, Durability::Through), 24);
    assert_eq!(losses(&whole), []);
    // Its data, and its header: the next one says what it held.
    for at in [at, at - 4096] {
        let device = damaged(&whole, &[at]);
        let found = losses(&device);
        assert!(found.len() == 1 && found[0].is_certain && found[0].unknown == 0, "{found:?}");
        assert!(found[0].has(BlockNo(24)), "{found:?}");
        assert!((25..44).all(|block| found[0].has(BlockNo(block))), "{found:?}");
        let refused = try_open(&device, OpenMode::ReadWrite).err();
        assert!(matches!(refused, Some(LogStoreError::FlushedLost { .. })), "{refused:?}");
        let store = try_open(&device, OpenMode::ReadOnly).expect("it can be looked at");
        assert_eq!((read(&store, 0, 8), read(&store, 23 * 8, 8)), (numbered(1), numbered(24)));
        let reported = store.stats().repaired;
        assert!(reported.iter().any(|reported| reported.contains("flushed data is lost")), "{reported:?}");
    }
}

#[test]
fn a_damaged_record_of_the_last_flush_is_perhaps_lost_and_the_store_continues_and_says_so() {
    let work = |store: &LogStore| {
        write(store, 0..450, Durability::Cached);
        store.flush().expect("memory does not fail");
    };
    let (whole, at) = killed(work, 440);
    let device = damaged(&whole, &[at]);
    let found = losses(&device);
    assert!(found.len() == 1 && !found[0].is_certain && found[0].has(BlockNo(440)), "{found:?}");
    let store = open(&device, by_hand());
    let reported = store.stats().repaired;
    assert!(reported.iter().any(|reported| reported.contains("perhaps lost")), "{reported:?}");
    assert_eq!(read(&store, 0, 8), numbered(1));
}

#[test]
fn the_last_record_is_perhaps_lost_and_for_certain_once_a_mark_says_that_the_flush_had_ended() {
    for marks in [false, true] {
        let work = |store: &LogStore| {
            write(store, 0..3, Durability::Through);
            if marks {
                let mut state = store.shared.state.lock();
                state.core.mark().expect("there is room");
                store.shared.wake_writers(&mut state);
            }
        };
        let (whole, at) = killed(work, 2);
        let found = losses(&damaged(&whole, &[at]));
        assert!(found.len() == 1 && found[0].is_certain == marks, "{found:?}");
    }
}

/// Kills a store right after something was written through. Returns where the header of its last chunk lies.
fn ended_with_a_flush(device: &Arc<dyn BlockDevice>) -> usize {
    let store = open(device, by_hand());
    write(&store, 0..3, Durability::Through);
    byte_of(&store, 2) - 4096
}

#[test]
fn a_damaged_header_of_the_last_flush_is_perhaps_lost_whichever_byte_it_is_and_reported_once() {
    // The first chunk after an opening has another version.
    let later = made(80, "r_lfs");
    let header = ended_with_a_flush(&later);
    let (first, data) = killed(|store| write(store, 0..1, Durability::Through), 0);
    for (whole, header) in [(later, header), (first, data - 4096)] {
        for at in (0..128).chain((128..4096).step_by(61)).chain(4088..4096) {
            let device = copy_of(&whole);
            flip_bit(&*device, header + at, at % 8);
            let found = losses(&device);
            assert!(found.len() == 1 && !found[0].is_certain && found[0].unknown == 1, "byte {at}: {found:?}");
            let store = open(&device, by_hand());
            let reported = store.stats().repaired;
            assert!(reported.iter().any(|reported| reported.contains("perhaps lost")), "byte {at}: {reported:?}");
            drop(store);
            assert_eq!(losses(&device), [], "byte {at}: the opening reported it");
        }
    }
}

#[test]
fn what_a_power_cut_leaves_of_a_header_that_no_flush_had_promised_is_no_loss() {
    const CHUNK: u64 = 14;
    let device = made(80, "r_lfs:regions=1");
    let store = open(&device, by_hand());
    write(&store, 0..3, Durability::Through);
    let before = from_bytes(bytes_of(&*device));
    // Full chunks alone.
    let mut blocks = 3;
    while blocks == 3 || store.shared.state.lock().core.has_unsealed_of_user() {
        write(&store, blocks..blocks + 1, Durability::Cached);
        blocks += 1;
        assert!(blocks < 3 + 2 * CHUNK, "no chunk is full");
    }
    let header = byte_of(&store, 3) - 4096;
    drop(store);
    let at = header as u64 / 512;
    assert_eq!(&read(&*device, at, 1)[..4], b"ULCK");
    for sectors in 1..8 {
        let torn = copy_of(&before);
        torn.write(Lba(at), &read(&*device, at, sectors), Durability::Through).expect("memory takes it");
        assert_eq!(losses(&torn), [], "{sectors} sectors");
    }
}

#[test]
fn a_damaged_header_that_was_there_before_the_store_was_opened_again_is_no_loss() {
    let device = made(80, "r_lfs:regions=1");
    let at = ended_with_a_flush(&device);
    flip(&*device, at + 4000);
    drop(open(&device, by_hand()));
    assert_eq!(losses(&device), []);
    drop(open(&device, by_hand()).close());
    assert_eq!(losses(&device), []);
}

#[test]
fn a_discard_of_much_that_is_lost_takes_a_line() {
    let work = |store: &LogStore| {
        write(store, 0..200, Durability::Through);
        write(store, 300..301, Durability::Through);
        store.discard(range(0, 1600)).expect("it is discarded");
        store.flush().expect("memory does not fail");
        write(store, 400..401, Durability::Through);
    };
    let (whole, at) = killed(work, 300);
    let found = losses(&damaged(&whole, &[at]));
    assert_eq!(found[0].blocks, [0..200, 300..301], "{found:?}");
    assert!(found[0].to_string().contains("; blocks 0-199, 300"), "{}", found[0]);
}

#[test]
fn what_nobody_had_flushed_is_no_loss() {
    let work = |store: &LogStore| {
        write(store, 0..20, Durability::Through);
        write(store, 20..300, Durability::Cached);
    };
    let (whole, at) = killed(work, 100);
    let device = damaged(&whole, &[at]);
    assert_eq!(losses(&device), []);
    let store = open(&device, by_hand());
    assert_eq!(read(&store, 19 * 8, 8), numbered(20));
}

#[test]
fn a_flush_without_anything_left_to_write_leaves_its_mark() {
    let (device, store) = opened(80);
    // Full chunks alone: they are completed before anybody flushes.
    let mut blocks = 0;
    while blocks == 0 || store.shared.state.lock().core.has_unsealed_of_user() {
        write(&store, blocks..blocks + 1, Durability::Cached);
        blocks += 1;
    }
    store.flush().expect("memory does not fail");
    let at = byte_of(&store, blocks - 1);
    drop(store);
    let found = losses(&damaged(&device, &[at]));
    assert!(found.len() == 1 && found[0].has(BlockNo(blocks - 1)), "{found:?}");
}

#[test]
fn what_was_flushed_after_an_opening_whose_checkpoint_is_damaged_is_not_lost() {
    let (device, store) = opened(80);
    write(&store, 0..20, Durability::Through);
    store.close().expect("it can be closed");
    let store = open(&device, by_hand());
    store.write(Lba(3 * 8), &numbered(99), Durability::Through).expect("there is room");
    drop(store);
    let bytes = bytes_of(&*device);
    let superblock = superblock(&bytes);
    let number = |area: &usize| checkpoint_number(&bytes, &superblock, *area);
    let newest = areas(&superblock).into_iter().max_by_key(number).expect("there are two");
    for at in [newest, newest + 4096] {
        let device = damaged(&device, &[at]);
        let report = checked(&device, Depth::Structure);
        assert!(matches!(report.problems.as_slice(), [Problem::Checkpoint(_)]), "byte {at}: {:?}", report.problems);
        let store = open(&device, by_hand());
        assert_eq!(read(&store, 3 * 8, 8), numbered(99), "byte {at}");
    }
}

/// A store that was filled until it had no room, with nothing left to complete, and what was written last not covered
/// by a checkpoint; that block.
fn full(segments: u64) -> Option<(Arc<dyn BlockDevice>, LogStore, u64)> {
    let (device, store) = opened(segments);
    let blocks = sectors_of(&store) / 8;
    write(&store, 0..blocks, Durability::Through);
    let mut written = (0..blocks * 20).map(|number| number * 7919 % blocks);
    let last = written.find(|block| {
        write(&store, *block..block + 1, Durability::Cached);
        let state = store.shared.state.lock();
        let core = &state.core;
        !core.layout.admits() && !core.has_unsealed_of_user() && core.of_users > core.covered
    })?;
    Some((device, store, last))
}

#[test]
fn a_flush_of_a_store_without_room_leaves_its_mark_too() {
    let (device, store, last) = (40..80).find_map(full).expect("one of them is full at some time");
    store.flush().expect("memory does not fail");
    let at = byte_of(&store, last);
    drop(store);
    let found = losses(&damaged(&device, &[at]));
    assert!(found.len() == 1 && found[0].has(BlockNo(last)), "{found:?}");
}

#[test]
fn an_idle_store_says_within_a_bounded_time_that_its_last_flush_had_ended() {
    let device = made(80, "r_lfs");
    let store = open(&device, Options { threads: true, ..by_hand() });
    write(&store, 0..3, Durability::Through);
    let state = || {
        let state = store.shared.state.lock();
        (state.core.marked >= state.answered, state.core.next_sequence)
    };
    crate::testing::until("it says so", || state().0);
    // And not again and again.
    let (_, next) = state();
    std::thread::sleep(std::time::Duration::from_millis(2500));
    assert_eq!(state(), (true, next));
}

#[test]
fn a_store_without_marks_gets_them_when_it_is_written_and_not_when_it_is_looked_at() {
    let device = made(80, "r_lfs");
    let copy = |at: u64| Superblock::parse(&read(&*device, at * 8, 8), Lba(sectors_of(&*device))).expect("it is whole");
    for incompat in [Incompat::MARKS, Incompat::default()] {
        let old = Superblock { incompat, ..copy(0) };
        for at in [0, 256] {
            device.write(Lba(at * 8), &old.encode().expect("it fits"), Durability::Through).expect("memory takes it");
        }
        looked_at_and_written(&device, &old);
    }
}

fn looked_at_and_written(device: &Arc<dyn BlockDevice>, old: &Superblock) {
    let copy =
        |at: u64| Superblock::parse(&read(&**device, at * 8, 8), Lba(sectors_of(&**device))).expect("it is whole");
    drop(LogStore::open(Arc::clone(device), "disk", by_hand(), OpenMode::ReadOnly).expect("it can be looked at"));
    assert!(copy(0) == *old && copy(256) == *old);
    let store = open(device, by_hand());
    write(&store, 0..10, Durability::Through);
    drop(store);
    assert!(copy(0).incompat.has(Incompat::ALL) && copy(0) == copy(256));
    assert_eq!(read(&open(device, by_hand()), 0, 8), numbered(1));
}

/// A store with segments of 1024 blocks, killed after long sequential writes and a certain flush. Also returns the
/// positions of the headers of full chunks, in the order in which they were written.
fn of_full_chunks() -> (Arc<dyn BlockDevice>, Vec<usize>) {
    const FULL: u32 = super::super::buffer::CHUNK_BLOCKS;
    let device: Arc<dyn BlockDevice> = Arc::new(Memory::new(ByteSize(130 << 20)));
    let options = CreateOptions { segment: Some(ByteSize(4 << 20)), ..small("r_lfs:regions=1") };
    create(Arc::clone(&device), "disk", &options).expect("it can be made");
    let store = open(&device, Options { checkpoint_every: ByteSize(1 << 30), ..by_hand() });
    write(&store, 0..3000, Durability::Cached);
    store.flush().expect("memory does not fail");
    write(&store, 3000..3001, Durability::Through);
    drop(store);
    let bytes = bytes_of(&*device);
    let superblock = superblock(&bytes);
    let found = chunk_headers(&bytes).filter_map(|at| {
        let place = LogBlock(at as u64 / 4096 - superblock.first.0);
        let header = ChunkHeader::parse(&bytes[at..at + 4096], &superblock, place).ok()?;
        (header.blocks() == FULL).then_some((header.sequence, at))
    });
    let mut found: Vec<_> = found.collect();
    found.sort_unstable();
    (device, found.into_iter().map(|(_, at)| at).collect())
}

#[test]
fn adjacent_damaged_headers_of_full_chunks_hide_nothing_that_was_flushed() {
    let (whole, headers) = of_full_chunks();
    assert!(headers.len() > 9, "{} full chunks", headers.len());
    for count in [2, 3] {
        for (nth, run) in headers.windows(count).enumerate() {
            let device = damaged(&whole, run);
            let (found, label) = (losses(&device), format!("{count} from chunk {nth} on"));
            // The header after them says what the last of them held.
            assert!(found.len() == 1 && found[0].is_certain && found[0].unknown < count as u64, "{label}: {found:?}");
            let refused = try_open(&device, OpenMode::ReadWrite).err();
            assert!(matches!(refused, Some(LogStoreError::FlushedLost { .. })), "{label}: {refused:?}");
        }
    }
}

#[test]
fn a_garbled_end_of_a_segment_and_all_of_the_next_hide_nothing_that_was_flushed() {
    let (whole, headers) = of_full_chunks();
    for end in 5..headers.len() - 1 {
        let device = copy_of(&whole);
        let garbage = vec![0xa5; headers[end] - headers[2]];
        device.write(Lba(headers[2] as u64 / 512), &garbage, Durability::Through).expect("memory takes it");
        let found = losses(&device);
        assert!(found.len() == 1 && found[0].is_certain, "up to chunk {end}: {found:?}");
    }
}

#[test]
fn of_a_log_that_continues_for_long_the_first_chunks_are_kept_and_the_marks_of_all() {
    let last = 3 * MOST_CHUNKS as u64;
    let mut behind = ChunksBehind::default();
    for number in (1..=last).rev() {
        let header = ChunkHeader {
            store: uuid::Uuid::nil(),
            stream: Stream(0),
            epoch: CheckpointNo(1),
            sequence: Sequence(number),
            clock: Clock(1),
            next: None,
            entries: vec![Entry::Mark { flushed: Sequence(number - 1), promised: 5 }],
            before: None,
        };
        behind.note(LogBlock(number * 2), &header);
        assert!(behind.len() <= MOST_CHUNKS);
    }
    assert_eq!(behind.mark(), (Sequence(last - 1), Sequence(last + 4)));
    assert_eq!(behind.furthest(), Some(Sequence(last)));
    assert_eq!(behind.place(Sequence(1)), Some(LogBlock(2)));
    assert_eq!(behind.range(Sequence(1), Sequence(last)).count(), MOST_CHUNKS);
}

#[test]
fn runs_of_lost_blocks_are_bounded_and_those_that_touch_are_one() {
    let mut runs = BlockRuns::default();
    for start in (0..10 * MOST_KEPT_RUNS as u64).rev() {
        assert!(runs.add(Some(start * 4..start * 4 + 4)), "they touch");
    }
    assert_eq!(runs.joined(), vec![0..40 * MOST_KEPT_RUNS as u64; 1]);
    let mut runs = BlockRuns::default();
    let added = (0..10 * MOST_KEPT_RUNS as u64).filter(|start| runs.add(Some(start * 4..start * 4 + 1))).count();
    assert_eq!((runs.joined().len(), added < 2 * MOST_KEPT_RUNS), (added, true), "what is not added is reported");
}
