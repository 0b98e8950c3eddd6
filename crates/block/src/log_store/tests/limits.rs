//! What must stay within bounds: memory, the reserve, what an idle store does.

use std::time::Duration;

use umbrella_units::BlockNo;

use super::*;

/// Fills a store, each block with its number.
fn fill_up(store: &LogStore) -> u64 {
    let blocks = sectors_of(store) / 8;
    for block in 0..blocks {
        store.write(Lba(block * 8), &numbered(block), Durability::Cached).expect("there is room");
    }
    blocks
}

#[test]
fn discards_that_are_flushed_one_by_one_leave_the_cleaner_its_room() {
    within_bounds(discard_one_by_one);
}

fn discard_one_by_one() {
    let device = made(800, "r_lfs");
    let store = open(&device, Options { checkpoint_every: ByteSize(1 << 30), ..by_hand() });
    let blocks = fill_up(&store);
    store.flush().expect("memory does not fail");
    // Each time another page of the map is changed, and a header is written that has no data.
    let spread = |nth: u64| nth * 512 % blocks / 512 * 512 + nth * 512 / blocks;
    for nth in 0..6000 {
        store.discard(range(spread(nth) * 8, 8)).expect("it is discarded");
        store.flush().unwrap_or_else(|error| panic!("flush {nth}: {error}"));
    }
    drop(store);
    let store = open(&device, by_hand());
    let gone: std::collections::BTreeSet<_> = (0..6000).map(spread).collect();
    for block in 0..blocks {
        let expected = if gone.contains(&block) { fill(0, 8) } else { numbered(block) };
        assert!(read(&store, block * 8, 8) == expected, "block {block}");
    }
}

#[test]
fn a_store_that_is_filled_in_order_keeps_no_more_of_the_map_in_memory_than_it_may() {
    let device = made(2400, "r_lfs");
    let options = Options { map_memory: ByteSize(32 * 4096), checkpoint_every: ByteSize(1 << 20), ..by_hand() };
    let store = open(&device, options);
    let blocks = fill_up(&store);
    let pages = blocks / 512;
    assert!(pages > 60, "{pages} pages");
    let held = store.stats().map_memory.0 / 4096;
    assert!(held <= 32 + 8, "{held} of {pages} pages are in memory");
    store.discard(range(0, sectors_of(&store))).expect("it is discarded");
    let held = store.stats().map_memory.0 / 4096;
    assert!(held <= 32 + 8, "{held} of {pages} pages are in memory after all was discarded");
}

#[test]
fn a_page_of_the_map_that_cannot_be_read_keeps_nobody_waiting_for_ever() {
    let device = made(200, "r_lfs");
    let store = open(&device, by_hand());
    let blocks = fill_up(&store);
    store.close().expect("it can be closed");
    let store = open(&device, Options { map_memory: ByteSize(1), ..Options::default() });
    {
        let state = store.shared.state.lock();
        let page = umbrella_policy::log_layout::MapPage(1);
        let place = state.core.page_place(page).expect("it was written");
        assert!(state.core.map.is_absent(page));
        let at = state.core.superblock.device_block(place);
        device.write(Lba(at.0 * 8), &fill(0xff, 8), Durability::Through).expect("memory takes it");
    }
    let is_whole = within_bounds(move || {
        // Every third block of the others, so that all segments are worth cleaning.
        _ = (0..40 * blocks)
            .map(|nth| nth * 3 % blocks)
            .filter(|block| block / 512 != 1)
            .try_for_each(|block| store.write(Lba(block * 8), &numbered(block), Durability::Cached));
        read(&store, 0, 8) == numbered(0)
    });
    assert!(is_whole, "what has nothing to do with it is read");
}

#[test]
fn a_store_that_is_left_alone_comes_to_rest() {
    let device = made(120, "r_lfs");
    let store = open(&device, by_hand());
    let blocks = fill_up(&store);
    // Over and over the same few, and discarded at once, so that chunks hold nothing live when they are closed.
    for nth in 0..200 {
        store.write(Lba(nth % 7 * 8), &numbered(nth), Durability::Cached).expect("there is room");
        store.discard(range(0, 56)).expect("it is discarded");
    }
    store.checkpoint().expect("there is room");
    drop(store);
    let options = Options { quiet: Duration::ZERO, threads: false, ..Options::default() };
    let store = open(&device, options);
    for _ in 0..2000 {
        let mut state = store.shared.state.lock();
        if !store.shared.work(&mut state).expect("memory does not fail") {
            assert_eq!(state.core.layout.waiting(), (0, 0));
            drop(state);
            assert!(read(&store, (blocks - 1) * 8, 8) == numbered(blocks - 1));
            return;
        }
    }
    panic!("it is never done: {:?}", store.stats());
}

#[test]
fn nothing_is_read_or_written_beyond_the_end() {
    for extra in [512, 1024, 3584] {
        let device: Arc<dyn BlockDevice> = Arc::new(Memory::new(ByteSize((2 << 20) + 60 * SEGMENT + extra)));
        create(Arc::clone(&device), "disk", &small("r_lfs")).expect("it can be made");
        let store = open(&device, by_hand());
        let end = sectors_of(&store);
        store.write(Lba(end - 3), &fill(7, 3), Durability::Through).expect("it is the last of it");
        store.write_zeroes(range(end - 1, 1), Zeroes::Unmap, Durability::Through).expect("it is the last one");
        store.write_zeroes(range(end, 0), Zeroes::Unmap, Durability::Through).expect("it is nothing");
        store.discard(range(end - 1, 1)).expect("a part of a block stays");
        assert_eq!(read(&store, end - 3, 3), [fill(7, 2), fill(0, 1)].concat());
        store.write_zeroes(range(end - 1, 2), Zeroes::Unmap, Durability::Cached).expect_err("it is beyond the end");
        store.discard(range(u64::MAX, 2)).expect_err("it is beyond the end");
        store.read(Lba(end), &mut fill(0, 1)).expect_err("it is beyond the end");
        assert!(store.shared.state.lock().core.map.next_used(BlockNo(end / 8)).0 >= end / 8);
    }
}
