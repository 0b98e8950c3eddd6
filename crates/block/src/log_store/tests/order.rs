//! The order in which things become durable, count and are free, one rule at a time.

use std::sync::Weak;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::io::Errno;
use umbrella_policy::log_layout::{CleaningGoal, State as SegmentState, Stream};

use super::every_call::{FailingDisk, Failure};
use super::under_way::{Hooked, When};
use super::*;
use crate::error::Operation;
use crate::fault::CallFault;
use crate::log_store::format::{CheckpointNo, Checksum};

/// Writes blocks, each with its number and that of the round.
fn write(store: &LogStore, blocks: std::ops::Range<u64>, round: u64) {
    blocks.for_each(|block| put(store, block, round << 32 | block));
}

/// A store whose first four segments of data are full, and covered by a checkpoint.
fn covered() -> (Arc<Hooked>, Arc<LogStore>) {
    let hooked = Hooked::new(made(90, "sepgc"));
    let store = hooked.store(by_hand());
    write(&store, 0..60, 1);
    store.checkpoint().expect("there is room");
    (hooked, store)
}

/// Makes free what waits for a flush.
fn sync(store: &LogStore) {
    let mut state = store.shared.state.lock();
    assert!(state.core.layout.waiting().0 > 0, "nothing waits for a flush");
    assert!(store.shared.reclaim_once(&mut state, CleaningGoal::Ahead).expect("memory does not fail"));
}

#[test]
fn what_is_cleaned_while_the_disk_flushes_is_not_free_after_that_flush() {
    let (hooked, store) = covered();
    write(&store, 0..15, 2);
    let other = Arc::downgrade(&store);
    hooked.once(When::Flushed, move || write(&other.upgrade().expect("it is flushed"), 15..30, 2));
    sync(&store);
    assert!(!hooked.is_due(), "nothing was flushed");
    let waiting = store.shared.state.lock().core.layout.waiting();
    assert_eq!(waiting, (1, 0), "the first is free, and what replaced the second is not durable");
    sync(&store);
    assert_eq!(store.shared.state.lock().core.layout.waiting(), (0, 0));
}

#[test]
fn what_a_flush_frees_while_it_is_read_is_not_read_from_where_it_was() {
    let (hooked, store) = covered();
    let place = device_block(&store, 3);
    let (other, disk) = (Arc::downgrade(&store), Arc::downgrade(&hooked));
    hooked.once(When::Read(place), move || {
        let store = other.upgrade().expect("it is being read");
        write(&store, 0..15, 2);
        sync(&store);
        // Now anything may lie there.
        let disk = disk.upgrade().expect("it is being read");
        disk.write(Lba(place.0 * 8), &fill(0xaa, 8), Durability::Cached).expect("memory takes it");
    });
    let held = read(&*store, 24, 8);
    assert!(!hooked.is_due(), "it was not read");
    assert!(held == numbered(2 << 32 | 3), "something else was read");
}

#[test]
fn what_no_chunk_says_to_be_discarded_keeps_its_segment() {
    let (_, store) = covered();
    let mut state = store.shared.state.lock();
    // All but the first are moved until no stream has room for another chunk.
    for block in (1..60).cycle() {
        let block = BlockNo(block);
        let at = state.core.map.get(block).expect("it is in memory").expect("it is mapped").place;
        let data = numbered(1 << 32 | block.0);
        if state.core.copy(block, at, &data, Checksum::of(&data)).is_err() {
            break;
        }
    }
    assert_eq!(state.core.layout.ready(), None);
    let at = state.core.map.get(BlockNo(0)).expect("it is in memory").expect("it is mapped").place;
    state.core.unmap(BlockNo(0)).expect("its page is in memory");
    state.core.note_unmapped(BlockNo(0), 1);
    let segment = |state: &super::super::engine::StoreState| {
        state.core.layout.table()[state.core.layout.shape().segment(at).0 as usize].state
    };
    assert_eq!(segment(&state), SegmentState::Cleaned);
    store.shared.sync(&mut state).expect("memory does not fail");
    assert_eq!(segment(&state), SegmentState::Cleaned, "after a crash the block would be looked for there");
}

#[test]
fn what_is_discarded_or_zeroed_and_flushed_stays_so_after_a_power_cut() {
    let disk = FailingDisk::new(&made(60, "r_lfs"), (u64::MAX, Failure::Once));
    let device: Arc<dyn BlockDevice> = disk.clone();
    let store = open(&device, by_hand());
    write(&store, 0..8, 1);
    store.checkpoint().expect("there is room");
    store.discard(range(0, 8)).expect("it is discarded");
    store.flush().expect("memory does not fail");
    let after_flush = open(&disk.medium(), by_hand());
    assert_eq!(read(&after_flush, 0, 8), fill(0, 8));
    store.write_zeroes(range(8, 8), Zeroes::Unmap, Durability::Through).expect("it is zeroed");
    store.write_zeroes(range(17, 2), Zeroes::Keep, Durability::Through).expect("a part is zeroed");
    let after_fua = open(&disk.medium(), by_hand());
    assert_eq!(read(&after_fua, 8, 8), fill(0, 8));
    assert_eq!(read(&after_fua, 17, 2), fill(0, 2));
}

#[test]
fn what_was_read_at_opening_is_flushed_before_anything_is_written() {
    let whole = made(60, "r_lfs");
    let rule = Rule::on(Operation::Flush, CallFault::Error(Errno::IO)).nth(1);
    let device = faulty_copy_of(&whole, rule);
    let opened = try_open(&device, OpenMode::ReadWrite);
    opened.err().expect("the disk does not flush");
    assert!(
        bytes_of(&*device) == bytes_of(&*whole),
        "the older checkpoint is written over, and the newer may be in a cache only"
    );
}

#[test]
fn a_store_grows_only_when_chunks_that_are_being_written_are_there() {
    let hooked = Hooked::new(enlarged(&*made(60, "sepgc"), 20));
    let store = hooked.store(Options::default());
    store.write(Lba(0), &numbered(0), Durability::Cached).expect("there is room");
    let (other, disk) = (Arc::downgrade(&store), Arc::downgrade(&hooked));
    let is_written = Arc::new(AtomicBool::new(false));
    let written = Arc::clone(&is_written);
    // While the checkpoint that comes first is made, a chunk becomes full, and takes its time to be written.
    hooked.once(When::Flushed, move || {
        let (begun, has_begun) = std::sync::mpsc::channel();
        disk.upgrade().expect("it grows").once(When::Chunk, move || {
            begun.send(()).expect("it is waited for");
            std::thread::sleep(Duration::from_millis(300));
            written.store(true, Ordering::SeqCst);
        });
        write(&other.upgrade().expect("it grows"), 0..30, 2);
        has_begun.recv().expect("a chunk is full");
    });
    store.grow().expect("it grows");
    assert!(is_written.load(Ordering::SeqCst), "the larger store's checkpoint names what is not there");
}

#[test]
fn a_segment_is_full_when_all_of_its_chunks_are_written_in_whichever_order() {
    let store = open(&made(60, "sepgc"), by_hand());
    let mut state = store.shared.state.lock();
    let core = &mut state.core;
    let put = |core: &mut crate::log_store::core::Core, blocks: std::ops::Range<u64>| {
        for block in blocks {
            let data = numbered(block);
            core.write(BlockNo(block), &data, Checksum::of(&data)).expect("there is room");
        }
    };
    put(core, 0..5);
    core.seal(Stream(1)).expect("there is room");
    put(core, 5..14);
    let chunks: Vec<_> = core.chunks.waiting.drain(..).collect();
    let [first, second] = chunks.as_slice() else { panic!("{} chunks", chunks.len()) };
    core.chunks.writing.extend([Arc::clone(first), Arc::clone(second)]);
    let segment = second.closes.expect("it is full").0 as usize;
    core.written(second);
    assert_eq!(core.layout.table()[segment].state, SegmentState::Closing, "the first is not there yet");
    core.written(first);
    assert_eq!(core.layout.table()[segment].state, SegmentState::Full);
}

/// A store after a power cut. Block 2 was flushed after the last checkpoint. Of the chunks behind it the first is lost,
/// and the next one, with block 1, is there.
fn with_a_gap() -> Vec<u8> {
    let (device, store) = opened(60);
    write(&store, 0..2, 1);
    store.checkpoint().expect("there is room");
    write(&store, 2..3, 1);
    store.flush().expect("memory does not fail");
    write(&store, 3..4, 1);
    // Written anew, so that it goes to another stream.
    write(&store, 1..2, 2);
    store.flush().expect("memory does not fail");
    let lost = device_block(&store, 3).0 - 1;
    drop(store);
    device.write(Lba(lost * 8), &fill(0, 16), Durability::Through).expect("memory takes it");
    bytes_of(&*device)
}

/// The store holds what came before the gap, and nothing else.
fn assert_ends_at_the_gap(store: &LogStore) {
    for block in 0..3 {
        assert!(read(store, block * 8, 8) == numbered(1 << 32 | block), "block {block}");
    }
    assert!(read(store, 24, 8) == fill(0, 8), "block 3 is lost");
}

#[test]
fn what_comes_after_a_gap_is_not_found_by_a_later_opening_either() {
    let device = from_bytes(with_a_gap());
    for _ in 0..3 {
        // Dropped without being closed: the next opening follows the log.
        assert_ends_at_the_gap(&open(&device, by_hand()));
    }
}

#[test]
fn what_comes_after_a_gap_is_not_found_when_an_opening_was_cut_short() {
    let before = with_a_gap();
    let device = from_bytes(before.clone());
    let store = open(&device, by_hand());
    let superblock = store.shared.state.lock().core.superblock.clone();
    drop(store);
    // The header of its checkpoint, which is written last, is lost.
    let mut left = bytes_of(&*device);
    for at in areas(&superblock) {
        left[at..at + 4096].copy_from_slice(&before[at..at + 4096]);
    }
    assert_ends_at_the_gap(&open(&from_bytes(left), by_hand()));
}

#[test]
fn what_is_flushed_while_a_checkpoint_is_written_is_found_if_it_never_counts() {
    let (hooked, store) = covered();
    write(&store, 0..1, 2);
    let left = Arc::new(parking_lot::Mutex::new(None));
    let (other, disk, found) = (Arc::downgrade(&store), Arc::downgrade(&hooked), Arc::clone(&left));
    let before_it_counts = move || {
        let store = other.upgrade().expect("it makes a checkpoint");
        write(&store, 1..2, 2);
        store.flush().expect("memory does not fail");
        *found.lock() = Some(from_bytes(bytes_of(&*disk.upgrade().expect("it makes a checkpoint"))));
    };
    let disk = Arc::downgrade(&hooked);
    hooked.once(When::Flushed, move || {
        let again = Weak::clone(&disk);
        disk.upgrade().expect("it makes a checkpoint").once(When::Flushed, move || {
            again.upgrade().expect("it makes a checkpoint").once(When::Write, before_it_counts);
        });
    });
    store.checkpoint().expect("there is room");
    assert!(!hooked.is_due(), "nothing happened while it was written");
    let store = open(&left.lock().take().expect("it was copied"), by_hand());
    for block in 0..2 {
        assert!(read(&store, block * 8, 8) == numbered(2 << 32 | block), "block {block} was flushed, and is lost");
    }
}

#[test]
fn the_clock_continues_after_a_crash_where_it_stood() {
    let (device, store) = opened(60);
    write(&store, 0..40, 1);
    store.flush().expect("memory does not fail");
    let clock = store.shared.state.lock().core.layout.clock();
    drop(store);
    assert_eq!(open(&device, by_hand()).shared.state.lock().core.layout.clock(), clock);
}

#[test]
fn the_checkpoint_of_an_opening_is_two_numbers_beyond_what_a_chunk_of_the_last_one_can_have() {
    let device = made(60, "r_lfs");
    let number = |store: &LogStore| store.shared.state.lock().core.epoch;
    let store = open(&device, by_hand());
    let first = number(&store);
    drop(store);
    let second = number(&open(&device, by_hand()));
    // While a checkpoint is being made chunks already have its number: one more than the last that counts.
    assert_eq!((first, second), (CheckpointNo(4), CheckpointNo(7)));
}

#[test]
fn what_was_written_backwards_is_read_at_once() {
    let disk = super::cleaning::large(48, false);
    let device: Arc<dyn BlockDevice> = disk.clone();
    let store = open(&device, by_hand());
    (0..64).rev().for_each(|block| put(&store, block, block));
    store.flush().expect("memory does not fail");
    disk.reads.lock().expect("nobody panics").clear();
    let expected: Vec<u8> = (0..64).flat_map(numbered).collect();
    assert!(read(&store, 0, 64 * 8) == expected);
    assert_eq!(disk.reads.lock().expect("nobody panics").len(), 1);
}
