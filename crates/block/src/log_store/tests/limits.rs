//! What must stay within bounds: memory, the reserve, what an idle store does.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use umbrella_policy::log_layout::MapPage;

use super::*;
use crate::device::Geometry;
use crate::log_store::core::Blocked;
use crate::log_store::create::size;
use crate::log_store::engine::WriteThrottle;
use crate::log_store::footprint::refuse_without_memory;
use crate::log_store::rebuild::rebuild;

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
    let (device, store) = opened(200);
    let blocks = fill_up(&store);
    store.close().expect("it can be closed");
    let store = open(&device, Options { map_memory: ByteSize(1), ..Options::default() });
    {
        let state = store.shared.state.lock();
        let page = umbrella_policy::log_layout::MapPage(1);
        let place = state.core.page_place(page).expect("there is such a page").expect("it was written");
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
    let (device, store) = opened(120);
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

#[test]
fn a_disk_with_sectors_of_4_kib_is_never_asked_for_less() {
    let device: Arc<dyn BlockDevice> = Arc::new(Coarse(Memory::new(ByteSize((2 << 20) + 60 * SEGMENT))));
    create(Arc::clone(&device), "disk", &small("r_lfs")).expect("it can be made");
    let store = open(&device, by_hand());
    assert_eq!(store.geometry().logical_block, 4096);
    let blocks = fill_up(&store);
    (0..4 * blocks).map(|nth| nth * 7 % blocks).for_each(|block| put(&store, block, block));
    store.write_zeroes(range(80, 16), Zeroes::Unmap, Durability::Through).expect("it is zeroed");
    store.discard(range(160, 16)).expect("it is discarded");
    store.write(Lba(1), &fill(1, 8), Durability::Cached).expect_err("it begins within a sector");
    store.write(Lba(8), &fill(1, 1), Durability::Cached).expect_err("it ends within a sector");
    store.checkpoint().expect("there is room");
    store.flush().expect("memory does not fail");
    drop(store);
    assert_whole(&device);
    let store = open(&device, by_hand());
    for block in 0..blocks {
        let is_gone = (10..12).contains(&block) || (20..22).contains(&block);
        assert!(read(&store, block * 8, 8) == if is_gone { fill(0, 8) } else { numbered(block) }, "block {block}");
    }
    store.close().expect("it can be closed");
}

/// A disk that grows later.
struct Growing {
    inner: Memory,
    sectors: AtomicU64,
}

impl BlockDevice for Growing {
    crate::forward!(inner: read, write, flush, discard, write_zeroes);

    fn geometry(&self) -> Geometry {
        Geometry { capacity: Lba(self.sectors.load(Ordering::Relaxed)), ..self.inner.geometry() }
    }
}

#[test]
fn a_store_whose_checkpoints_move_when_it_grows_has_two_of_them_at_once() {
    let sectors = |segments: u64| 4096 + segments * SEGMENT / SECTOR_BYTES;
    let inner = Memory::new(ByteSize(sectors(2600) * SECTOR_BYTES));
    let disk = Arc::new(Growing { inner, sectors: AtomicU64::new(sectors(1500)) });
    let device: Arc<dyn BlockDevice> = disk.clone();
    create(Arc::clone(&device), "disk", &small("r_lfs")).expect("it can be made");
    let store = open(&device, by_hand());
    let before = store.shared.state.lock().core.superblock.areas;
    store.write(Lba(0), &fill(1, 80), Durability::Through).expect("there is room");
    disk.sectors.store(sectors(2600), Ordering::Relaxed);
    store.grow().expect("it grows");
    let superblock = store.shared.state.lock().core.superblock.clone();
    assert_ne!(superblock.areas, before, "they did not move");
    drop(store);
    for area in superblock.areas {
        let start = superblock.device_block(superblock.first_place(area.first)).0 * 8;
        let header = read(&*device, start, 8);
        device.write(Lba(start), &fill(0xaa, 8), Durability::Through).expect("memory takes it");
        let store = try_open(&device, OpenMode::ReadOnly).expect("the other serves");
        assert_eq!(read(&store, 0, 80), fill(1, 80));
        device.write(Lba(start), &header, Durability::Through).expect("memory takes it");
    }
}

#[test]
fn writes_that_are_held_back_continue_one_after_the_other() {
    let begun = std::time::Instant::now();
    let after = |millis| begun + Duration::from_millis(millis);
    let mut held = WriteThrottle::new(begun);
    let turn = |held: &mut WriteThrottle, now, delay| held.turn(after(now), Duration::from_millis(delay));
    assert_eq!(turn(&mut held, 0, 10), after(10));
    assert_eq!(turn(&mut held, 0, 10), after(20), "two at once are not twice as fast as one");
    assert_eq!(turn(&mut held, 5, 3), after(23));
    assert_eq!(turn(&mut held, 100, 3), after(103), "nobody saves up time");
}

#[test]
fn a_discard_of_what_is_not_there_changes_nothing() {
    let (device, store) = opened(800);
    let blocks = fill_up(&store);
    let rest = range(blocks / 2 / 512 * 4096 + 8, sectors_of(&store) - blocks / 2 / 512 * 4096 - 8);
    store.discard(rest).expect("it is discarded");
    store.close().expect("it can be closed");
    let store = open(&device, by_hand());
    let written = |store: &LogStore| {
        let stats = store.stats();
        (stats.headers_written, stats.map_written)
    };
    let before = written(&store);
    // The page in which the rest begins has a block that is there.
    store.discard(rest).expect("there is nothing");
    assert_eq!(store.shared.state.lock().core.map.dirty(), 0, "pages of the map would be written as they are");
    store.flush().expect("memory does not fail");
    assert_eq!(written(&store), before);
    assert_eq!(store.stats().map_reads, 1, "what holds nothing is not read");
    store.discard(range(0, 16)).expect("it is discarded");
    assert_eq!(store.shared.state.lock().core.map.dirty(), 1);
    store.flush().expect("memory does not fail");
    drop(store);
    let store = open(&device, by_hand());
    assert_eq!([read(&store, 8, 8), read(&store, 16, 8)], [fill(0, 8), numbered(2)]);
}

#[test]
fn the_error_of_a_device_that_is_a_little_too_small_says_how_many_bytes_are_missing() {
    let create_on = |bytes: u64| {
        let device: Arc<dyn BlockDevice> = Arc::new(Memory::new(ByteSize(bytes)));
        create(device, "disk", &small("r_lfs"))
    };
    let Err(LogStoreError::TooSmall { needed, .. }) = create_on(2 << 20) else { panic!("it is no room for a store") };
    create_on(needed.0).expect("so much is enough");
    let reported = create_on(needed.0 - 4096).expect_err("and less is not").to_string();
    assert!(reported.contains(&format!("{} bytes", needed.0 - 4096)), "{reported}");
    assert!(reported.contains(&format!("{} bytes", needed.0)), "{reported}");
}

#[test]
fn making_a_store_says_how_far_it_is() {
    let mut reported = Vec::new();
    let device: Arc<dyn BlockDevice> = memory(2000);
    let made = create_with(device, "disk", &small("r_lfs"), &mut |done, total| reported.push((done, total)));
    made.expect("it can be made");
    assert!(reported.is_sorted(), "{reported:?}");
    assert!(reported.last().is_some_and(|(done, total)| done == total), "{reported:?}");
}

#[test]
fn a_store_has_at_most_4_pib_and_segments_of_256_mib() {
    let fits = |size| CreateOptions::default().fits("disk", ByteSize(size));
    fits(100 << 40).expect("with the largest segments");
    fits(MOST_BYTES.0).expect("all of its blocks can be named");
    let reported = fits(5 << 50).expect_err("they cannot").to_string();
    assert_eq!(reported, "disk: 5 PiB is too large; a log store has at most 4 PiB");
}

#[test]
fn a_page_of_the_map_that_cannot_be_is_an_error_and_not_one_that_was_never_written() {
    let (_device, store) = opened(80);
    store.write(Lba(0), &fill(7, 8), Durability::Through).expect("there is room");
    store.checkpoint().expect("there is room");
    let mut state = store.shared.state.lock();
    let pages = state.core.map.pages();
    assert!(matches!(state.core.page_place(MapPage(0)), Ok(Some(_))));
    assert!(matches!(state.core.page_place(MapPage(pages - 1)), Ok(None)));
    for page in [pages, u32::MAX] {
        assert!(matches!(state.core.page_place(MapPage(page)), Err(Blocked::Impossible(_))), "page {page}");
    }
    // An index that lacks a page does not make its blocks empty.
    state.core.index.clear();
    let rebuilt = rebuild(&store.shared.named, &state.core, &|| true).expect("it continues");
    assert_eq!(rebuilt.pages.len(), pages as usize);
}

#[test]
fn a_store_that_takes_more_memory_than_there_is_is_refused_with_the_largest_that_can_be() {
    // 4 PiB in segments of 256 MiB.
    let (shape, _) = size(1 << 16, (1 << 24) - 1, 3, 100).expect("there is room").expect("it fits");
    let refused = refuse_without_memory("disk", &shape, Some(ByteSize(8 << 30))).expect_err("it takes 70 GiB");
    let LogStoreError::NoMemory { needed, most, .. } = &refused else { panic!("{refused}") };
    assert!((60..100).contains(&(needed.0 >> 30)), "{needed}");
    assert!((350..450).contains(&(most.0 >> 40)), "{most}");
    assert!(refused.to_string().contains("use a store of about"), "{refused}");
    for memory in [None, Some(ByteSize(needed.0))] {
        refuse_without_memory("disk", &shape, memory).expect("it is enough, or not known");
    }
}
