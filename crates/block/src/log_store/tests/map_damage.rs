//! Damaged pages of the map. Each is rebuilt, or everything that needs it fails with an error that names it; the rest
//! works as usual.

use rustix::io::Errno;
use umbrella_policy::log_layout::MapPage;

use super::*;
use crate::error::{BlockError, Operation};
use crate::fault::{CallFault, ReadFault};

const PAGE: u64 = 512;

/// The device of a store of three pages of the map, full and closed; at which byte of it page 1 of the map lies; the
/// store's blocks.
fn used() -> (Arc<dyn BlockDevice>, usize, u64) {
    let (device, store) = opened(130);
    let blocks = fill_up(&store);
    assert!(blocks > 2 * PAGE, "{blocks} blocks");
    store.close().expect("it can be closed");
    let at = block_of(&looked_at(&device), 1);
    (device, at.0 as usize * 4096, blocks)
}

fn block_of(store: &LogStore, page: u32) -> BlockNo {
    let state = store.shared.state.lock();
    let place = state.core.page_place(MapPage(page)).expect("there is such a page").expect("it was written");
    state.core.superblock.device_block(place)
}

fn looked_at(device: &Arc<dyn BlockDevice>) -> LogStore {
    try_open(device, OpenMode::ReadOnly).expect("it can be opened")
}

/// Whether the error is of page 1, and says so.
fn names_page_1(error: &BlockError) -> bool {
    let reported = error.to_string();
    reported.contains("page 1 of the map") && reported.contains("blocks 512 to 1023 of the store are lost with it")
}

fn assert_rest_is_read(store: &LogStore, blocks: u64) {
    for block in (0..blocks).filter(|block| block / PAGE != 1) {
        assert!(read(store, block * 8, 8) == numbered(block), "block {block}");
    }
}

#[test]
fn whichever_byte_of_a_page_changes_the_page_is_rebuilt_when_it_is_needed() {
    let (device, page, blocks) = used();
    assert_eq!(read(&looked_at(&device), 600 * 8, 8), numbered(600), "it is whole");
    for nth in 0..4096 {
        flip_bit(&*device, page + nth, nth % 8);
        let store = looked_at(&device);
        assert_eq!(read(&store, 600 * 8, 8), numbered(600), "byte {nth}");
        let reported = store.stats().repaired;
        assert!(
            reported.iter().any(|reported| reported.contains("page 1 of the map was damaged")),
            "byte {nth}: {reported:?}"
        );
        if nth % 512 == 77 {
            assert_all_is_read(&store, blocks);
            for depth in [Depth::Structure, Depth::Data] {
                let report = checked(&device, depth);
                assert!(
                    matches!(report.problems.as_slice(), [Problem::RebuiltPage(MapPage(1))]),
                    "{:?}",
                    report.problems
                );
            }
        }
        flip_bit(&*device, page + nth, nth % 8);
    }
}

#[test]
fn a_page_that_turns_out_to_be_damaged_is_rebuilt_and_written_anew() {
    for threads in [false, true] {
        let (device, page, blocks) = used();
        flip(&*device, page + 1234);
        let store = open(&device, Options { threads, ..by_hand() });
        put(&store, 0, 0);
        put(&store, 700, 5);
        let held = |block: u64| numbered(if block == 700 { 5 } else { block });
        (0..blocks).for_each(|block| assert!(read(&store, block * 8, 8) == held(block), "block {block}"));
        assert_eq!(store.stats().repaired.len(), 1, "{:?}", store.stats().repaired);
        store.close().expect("it can be closed");
        assert_whole(&device);
        let store = open(&device, by_hand());
        (0..blocks).for_each(|block| assert!(read(&store, block * 8, 8) == held(block), "block {block}"));
    }
}

/// The store of [`used`] on a disk with a fault in page 1 of the map.
fn unreliable(rule: impl Fn(Rule) -> Rule, kind: Rule) -> (LogStore, u64) {
    let (device, page, blocks) = used();
    let rule = rule(kind.within(range(page as u64 / 512, 8)));
    (open(&faulty_copy_of(&device, rule), by_hand()), blocks)
}

fn misreads() -> [Rule; 2] {
    [Rule::on(Operation::Read, CallFault::Error(Errno::IO)), Rule::on_read(ReadFault::BitFlip)]
}

fn assert_all_is_read(store: &LogStore, blocks: u64) {
    (0..blocks).for_each(|block| assert!(read(store, block * 8, 8) == numbered(block), "block {block}"));
}

#[test]
fn a_page_that_is_misread_once_is_read_again_and_nothing_is_reported() {
    for misread in misreads() {
        let (store, blocks) = unreliable(|rule| rule.first(1), misread);
        assert_all_is_read(&store, blocks);
        assert_eq!(store.stats().repaired, Vec::<String>::new());
        store.write(Lba(700 * 8), &numbered(1), Durability::Through).expect("there is room");
    }
}

#[test]
fn a_page_that_is_misread_for_a_while_can_be_used_later() {
    for misread in misreads() {
        let (store, blocks) = unreliable(|rule| rule.first(2), misread);
        store.read(Lba(600 * 8), &mut fill(0, 8)).expect_err("it is misread twice, and whole when it is to be rebuilt");
        assert_all_is_read(&store, blocks);
    }
}

#[test]
fn a_page_that_can_never_be_read_is_rebuilt() {
    for misread in misreads() {
        let (store, blocks) = unreliable(|rule| rule, misread);
        assert_all_is_read(&store, blocks);
        store.write(Lba(700 * 8), &numbered(1), Durability::Through).expect("there is room");
        assert_eq!(store.stats().repaired.len(), 1, "{:?}", store.stats().repaired);
    }
}

/// A store with a damaged page, and a damaged header in the log, so that nobody can tell where the page's blocks lie.
fn doubtful() -> (Arc<dyn BlockDevice>, u64) {
    let (device, page, blocks) = used();
    let (bytes, number) = (bytes_of(&*device), numbered(600));
    let at = (512..bytes.len() / 4096).rfind(|at| bytes[at * 4096..][..4096] == number).expect("it is there");
    let header = (0..at).rfind(|at| bytes[at * 4096..].starts_with(b"ULCK")).expect("it has one");
    flip(&*device, page + 1234);
    flip(&*device, header * 4096 + 99);
    (device, blocks)
}

#[test]
fn a_store_with_a_page_in_doubt_is_used_on_but_for_what_the_page_names() {
    let (device, blocks) = doubtful();
    let store = open(&device, by_hand());
    for refused in [
        store.write(Lba(700 * 8), &numbered(1), Durability::Cached),
        store.write(Lba(700 * 8 + 3), &fill(1, 2), Durability::Cached),
        store.discard(range(700 * 8, 8)),
    ] {
        let error = refused.expect_err("nobody knows where it lay");
        assert!(names_page_1(&error), "{error}");
    }
    (0..400).for_each(|block| put(&store, block, block));
    store.flush().expect("memory does not fail");
    assert_rest_is_read(&store, blocks);
    store.close().expect("it can be closed");
    assert_rest_is_read(&open(&device, by_hand()), blocks);
}

#[test]
fn asked_to_a_store_gives_up_the_blocks_in_doubt_when_it_needs_the_page() {
    let (device, blocks) = doubtful();
    let store = try_open(&device, OpenMode::Salvage).expect("the log does not need the page");
    assert_rest_is_read(&store, blocks);
    let is_read = |store: &LogStore, block: u64| {
        let (mut data, number) = (fill(0, 8), numbered(block));
        store.read(Lba(block * 8), &mut data).is_ok_and(|()| {
            assert!(data == number, "block {block} is wrong");
            true
        })
    };
    let lost: Vec<u64> = (PAGE..2 * PAGE).filter(|block| !is_read(&store, *block)).collect();
    assert!(!lost.is_empty() && lost.len() < PAGE as usize, "{} are lost", lost.len());
    assert_eq!(store.stats().lost, ByteSize(lost.len() as u64 * 4096));
    store.write(Lba(lost[0] * 8), &numbered(lost[0]), Durability::Cached).expect("it is written anew");
    assert!(is_read(&store, lost[0]));
    store.close().expect("it can be closed");
    let store = open(&device, by_hand());
    let still: Vec<u64> = (PAGE..2 * PAGE).filter(|block| !is_read(&store, *block)).collect();
    assert_eq!(still, lost[1..]);
}

/// A device that counts how often a block is read.
struct Counted {
    inner: Arc<dyn BlockDevice>,
    at: u64,
    reads: std::sync::atomic::AtomicU64,
}

impl BlockDevice for Counted {
    crate::forward!(inner: geometry, write, flush, discard, write_zeroes);

    fn read(&self, at: Lba, buffer: &mut [u8]) -> Result<(), BlockError> {
        let end = at.0 + buffer.len() as u64 / SECTOR_BYTES;
        if (at.0..end).contains(&(self.at * 8)) {
            self.reads.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            return Err(BlockError::io(&"disk".into(), Operation::Read, None, Errno::IO.into()));
        }
        self.inner.read(at, buffer)
    }
}

#[test]
fn whoever_asks_what_is_allocated_rebuilds_a_page_that_cannot_be_read_once() {
    let (device, page, blocks) = used();
    let reads = std::sync::atomic::AtomicU64::new(0);
    let device = Arc::new(Counted { inner: device, at: page as u64 / 4096, reads });
    let as_device: Arc<dyn BlockDevice> = device.clone();
    let store = looked_at(&as_device);
    let (extent, _) = store.first_extent(range(PAGE * 8, (blocks - PAGE) * 8)).expect("it is answered");
    assert!(extent.sectors >= PAGE * 8, "{extent}");
    let reads = device.reads.load(std::sync::atomic::Ordering::Relaxed);
    // Twice when it is needed, and twice by the rebuild.
    assert!(reads <= 4, "{reads} reads");
}

#[test]
fn another_page_or_an_older_one_is_not_taken_for_a_page() {
    let (device, store) = opened(90);
    let copy = |store: &LogStore, page: u32| read(&*device, block_of(store, page).0 * 8, 8);
    store.write(Lba(0), &numbered(0), Durability::Cached).expect("there is room");
    store.write(Lba(600 * 8), &numbered(1), Durability::Cached).expect("there is room");
    store.checkpoint().expect("there is room");
    let (old, other) = (copy(&store, 1), copy(&store, 0));
    store.write(Lba(600 * 8), &numbered(2), Durability::Cached).expect("there is room");
    store.close().expect("it can be closed");
    let (at, new) = {
        let store = looked_at(&device);
        (block_of(&store, 1), copy(&store, 1))
    };
    for wrong in [old, other] {
        device.write(Lba(at.0 * 8), &wrong, Durability::Through).expect("memory takes it");
        assert_eq!(read(&looked_at(&device), 600 * 8, 8), numbered(2), "it is rebuilt");
    }
    device.write(Lba(at.0 * 8), &new, Durability::Through).expect("memory takes it");
    assert_eq!(read(&looked_at(&device), 600 * 8, 8), numbered(2));
}

/// As a crash leaves it: a closed store that was opened and written since, in page 1 of the map too. And where that
/// page lies.
fn crashed() -> (Arc<dyn BlockDevice>, BlockNo, u64) {
    let (device, _, blocks) = used();
    let store = open(&device, by_hand());
    store.write(Lba(600 * 8), &numbered(7), Durability::Through).expect("there is room");
    store.write(Lba(0), &numbered(0), Durability::Through).expect("there is room");
    let page = block_of(&store, 1);
    drop(store);
    (device, page, blocks)
}

#[test]
fn when_the_log_continues_in_a_damaged_page_the_page_is_rebuilt_and_reported() {
    let (device, page, blocks) = crashed();
    flip(&*device, page.0 as usize * 4096 + 99);
    let report = checked(&device, Depth::Structure);
    assert!(matches!(report.problems.as_slice(), [Problem::RebuiltPage(MapPage(1))]), "{:?}", report.problems);
    let held = |block: u64| numbered(if block == 600 { 7 } else { block });
    for access in [OpenMode::ReadOnly, OpenMode::ReadWrite] {
        let store = try_open(&device, access).expect("it can be rebuilt");
        (0..blocks).for_each(|block| assert!(read(&store, block * 8, 8) == held(block), "block {block}"));
        store.close().expect("it can be closed");
    }
    let report = checked(&device, Depth::Data);
    assert_eq!(report.problem_count, 0, "it is repaired: {:?}", report.problems);
}

#[test]
fn a_page_that_cannot_be_read_while_the_log_is_followed_loses_nothing() {
    let (whole, page, blocks) = crashed();
    let failing = || Rule::on(Operation::Read, CallFault::Error(Errno::IO)).within(range(page.0 * 8, 8));
    for rule in [failing().nth(1), failing()] {
        let store = looked_at(&faulty_copy_of(&whole, rule));
        assert_rest_is_read(&store, blocks);
        assert_eq!(read(&store, 600 * 8, 8), numbered(7), "it is what came later");
    }
}

/// The blocks of page 1 that cannot be read; the others hold what was written.
fn lost_of_page_1(store: &LogStore) -> Vec<u64> {
    let is_lost = |block: &u64| {
        let (mut data, number) = (fill(0, 8), numbered(*block));
        let is_read = store.read(Lba(block * 8), &mut data).is_ok();
        assert!(!is_read || data == number, "block {block} is wrong");
        !is_read
    };
    (PAGE..2 * PAGE).filter(is_lost).collect()
}

/// A byte in the middle of a block of the device.
fn within(block: BlockNo) -> usize {
    block.0 as usize * 4096 + 1234
}

#[test]
fn what_is_lost_is_counted_also_while_another_damaged_page_is_in_memory() {
    for access in [OpenMode::ReadOnly, OpenMode::Salvage] {
        let (device, blocks) = doubtful();
        let store = try_open(&device, access).expect("it can be opened");
        // Page 2 is read, and damaged on the disk after that.
        assert_eq!(read(&store, 2 * PAGE * 8, 8), numbered(2 * PAGE));
        flip(&*device, within(block_of(&store, 2)));
        let lost = lost_of_page_1(&store);
        assert!(!lost.is_empty() && lost.len() < PAGE as usize, "{access:?}: {} are lost", lost.len());
        assert_eq!(store.stats().lost, ByteSize(lost.len() as u64 * 4096), "{access:?}");
        assert_rest_is_read(&store, blocks);
        store.close().expect("it can be closed");
        if access == OpenMode::ReadOnly {
            continue;
        }
        let report = checked(&device, Depth::Structure);
        assert!(
            report
                .problems
                .iter()
                .any(|problem| matches!(problem, Problem::Lost(count, _) if *count == lost.len() as u64))
        );
        let is_miscounted =
            |problem: &Problem| matches!(problem, Problem::Live(..) | Problem::Page(..) | Problem::RebuiltPage(_));
        assert!(!report.problems.iter().any(is_miscounted), "{:?}", report.problems);
        // Damaged again, it hides nothing of what was lost.
        flip(&*device, within(block_of(&looked_at(&device), 1)));
        let again = lost_of_page_1(&looked_at(&device));
        assert!(lost.iter().all(|block| again.contains(block)), "{again:?} of {lost:?}");
    }
}

#[test]
fn a_page_is_not_rebuilt_from_an_older_checkpoint_than_the_store_has_made() {
    let (device, page, _) = used();
    flip(&*device, page + 1234);
    let store = looked_at(&device);
    let newest = {
        let state = store.shared.state.lock();
        let superblock = &state.core.superblock;
        let first = superblock.areas[state.area].first;
        superblock.device_block(superblock.first_place(first))
    };
    flip(&*device, within(newest));
    let error = store.read(Lba(600 * 8), &mut fill(0, 8)).expect_err("the checkpoint before it has another map");
    assert!(names_page_1(&error), "{error}");
}

/// A device on which reading asks for the end of a store that rebuilds its map, and counts what is read after that.
struct Ends {
    inner: Arc<dyn BlockDevice>,
    store: std::sync::OnceLock<std::sync::Weak<engine::StoreShared>>,
    reads: std::sync::atomic::AtomicU64,
}

impl BlockDevice for Ends {
    crate::forward!(inner: geometry, write, flush, discard, write_zeroes);

    fn read(&self, at: Lba, buffer: &mut [u8]) -> Result<(), BlockError> {
        let shared = self.store.get().and_then(std::sync::Weak::upgrade);
        if let Some(mut state) = shared.as_ref().and_then(|shared| shared.state.try_lock())
            && state.repairing_map
        {
            state.closing = true;
            self.reads.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        }
        self.inner.read(at, buffer)
    }
}

#[test]
fn a_store_that_is_closed_does_not_wait_until_its_map_is_rebuilt() {
    let (inner, page, _) = used();
    flip(&*inner, page + 1234);
    let device = Arc::new(Ends { inner, store: std::sync::OnceLock::new(), reads: 0.into() });
    let as_device: Arc<dyn BlockDevice> = device.clone();
    let store = open(&as_device, by_hand());
    device.store.set(Arc::downgrade(&store.shared)).expect("it is set once");
    store.read(Lba(600 * 8), &mut fill(0, 8)).expect_err("it was given up");
    let reads = device.reads.load(std::sync::atomic::Ordering::Relaxed);
    // The superblock and the checkpoint: nothing of the map and the log.
    assert!((1..20).contains(&reads), "{reads} reads");
    // What is needed after that is rebuilt.
    assert_eq!(read(&store, 600 * 8, 8), numbered(600));
}
