//! Pages of the map that are not what was written: whatever has to do with one is refused, by an error that names it; the rest is as ever.

use rustix::io::Errno;
use umbrella_policy::log_layout::MapPage;
use umbrella_units::BlockNo;

use super::*;
use crate::error::{BlockError, Operation};
use crate::fault::{CallFault, Faulty, Plan, Rule};

const PAGE: u64 = 512;

/// The device of a store of three pages of the map, full and closed; at which byte of it page 1 of the map lies; the store's blocks.
fn used() -> (Vec<u8>, usize, u64) {
    let device = made(130, "r_lfs");
    let store = open(&device, by_hand());
    let blocks = sectors_of(&store) / 8;
    assert!(blocks > 2 * PAGE, "{blocks} blocks");
    for block in 0..blocks {
        store.write(Lba(block * 8), &numbered(block), Durability::Cached).expect("there is room");
    }
    store.close().expect("it can be closed");
    let at = block_of(&looked_at(&device), 1);
    (read(&*device, 0, sectors_of(&*device)), at.0 as usize * 4096, blocks)
}

fn block_of(store: &LogStore, page: u32) -> BlockNo {
    let state = store.shared.state.lock();
    let place = state.core.page_place(MapPage(page)).expect("it was written");
    state.core.superblock.device_block(place)
}

fn looked_at(device: &Arc<dyn BlockDevice>) -> LogStore {
    LogStore::open(Arc::clone(device), "disk", by_hand(), Access::ReadOnly).expect("it can be opened")
}

/// Whether the error is of page 1, and says so.
fn names_page_1(error: &BlockError) -> bool {
    let told = error.to_string();
    told.contains("page 1 of the map")
        && told.contains("blocks 512 to 1023 of the store are lost with it: copy the rest")
}

fn assert_rest_is_read(store: &LogStore, blocks: u64) {
    for block in (0..blocks).filter(|block| block / PAGE != 1) {
        assert!(read(store, block * 8, 8) == numbered(block), "block {block}");
    }
}

#[test]
fn whichever_byte_of_a_page_changes_nothing_is_read_by_it_and_all_else_is() {
    let (bytes, page, blocks) = used();
    let device: Arc<dyn BlockDevice> = Arc::new(Memory::from_bytes(bytes.clone()));
    assert_eq!(read(&looked_at(&device), 600 * 8, 8), numbered(600), "it is whole");
    for nth in 0..4096 {
        let sector = Lba((page + nth) as u64 / SECTOR_BYTES);
        let from = sector.0 as usize * 512;
        let mut changed = bytes[from..from + 512].to_vec();
        changed[nth % 512] ^= 1 << (nth % 8);
        device.write(sector, &changed, Durability::Through).expect("memory takes it");
        let store = looked_at(&device);
        let error = store.read(Lba(600 * 8), &mut fill(0, 8)).expect_err("the page is damaged");
        assert!(names_page_1(&error), "byte {nth}: {error}");
        assert_eq!(read(&store, 511 * 8, 8), numbered(511));
        if nth % 512 == 77 {
            assert_rest_is_read(&store, blocks);
            let report = check(Arc::clone(&device), "disk", Depth::Structure, &mut |_, _| {}).expect("it can be read");
            assert!(matches!(report.problems.as_slice(), [Problem::Page(MapPage(1), _)]), "{:?}", report.problems);
        }
        device.write(sector, &bytes[from..from + 512], Durability::Through).expect("memory takes it");
    }
}

#[test]
fn a_store_with_a_damaged_page_is_used_on_but_for_what_the_page_names() {
    let (mut bytes, page, blocks) = used();
    bytes[page + 1234] ^= 0x20;
    let device: Arc<dyn BlockDevice> = Arc::new(Memory::from_bytes(bytes));
    let store = open(&device, by_hand());
    for refused in [
        store.write(Lba(700 * 8), &numbered(1), Durability::Cached),
        store.write(Lba(700 * 8 + 3), &fill(1, 2), Durability::Cached),
        store.discard(range(700 * 8, 8)),
    ] {
        let error = refused.expect_err("nobody knows where it lay");
        assert!(names_page_1(&error), "{error}");
    }
    for block in 0..400 {
        store.write(Lba(block * 8), &numbered(block), Durability::Cached).expect("it has nothing to do with it");
    }
    store.flush().expect("memory does not fail");
    assert_rest_is_read(&store, blocks);
    store.close().expect("it can be closed");
    assert_rest_is_read(&open(&device, by_hand()), blocks);
}

#[test]
fn another_page_or_an_older_one_is_not_taken_for_a_page() {
    let device = made(90, "r_lfs");
    let store = open(&device, by_hand());
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
        let error = looked_at(&device).read(Lba(600 * 8), &mut fill(0, 8)).expect_err("it is not the page");
        assert!(names_page_1(&error), "{error}");
    }
    device.write(Lba(at.0 * 8), &new, Durability::Through).expect("memory takes it");
    assert_eq!(read(&looked_at(&device), 600 * 8, 8), numbered(2));
}

/// As a crash leaves it: a closed store that was opened and written since, in page 1 of the map too. And where that page lies.
fn crashed() -> (Vec<u8>, BlockNo, u64) {
    let (bytes, _, blocks) = used();
    let device: Arc<dyn BlockDevice> = Arc::new(Memory::from_bytes(bytes));
    let store = open(&device, by_hand());
    store.write(Lba(600 * 8), &numbered(7), Durability::Through).expect("there is room");
    store.write(Lba(0), &numbered(0), Durability::Through).expect("there is room");
    (read(&*device, 0, sectors_of(&*device)), block_of(&store, 1), blocks)
}

#[test]
fn when_the_log_goes_on_in_a_damaged_page_the_page_is_rebuilt_and_told() {
    let (mut bytes, page, blocks) = crashed();
    bytes[page.0 as usize * 4096 + 99] ^= 4;
    let device: Arc<dyn BlockDevice> = Arc::new(Memory::from_bytes(bytes));
    let report = check(Arc::clone(&device), "disk", Depth::Structure, &mut |_, _| {}).expect("it can be read");
    assert!(matches!(report.problems.as_slice(), [Problem::Page(MapPage(1), _)]), "{:?}", report.problems);
    let held = |block: u64| numbered(if block == 600 { 7 } else { block });
    for access in [Access::ReadOnly, Access::ReadWrite] {
        let store = LogStore::open(Arc::clone(&device), "disk", by_hand(), access).expect("it can be rebuilt");
        (0..blocks).for_each(|block| assert!(read(&store, block * 8, 8) == held(block), "block {block}"));
        store.close().expect("it can be closed");
    }
    let report = check(device, "disk", Depth::Data, &mut |_, _| {}).expect("it can be read");
    assert_eq!(report.problem_count, 0, "it is mended: {:?}", report.problems);
}

#[test]
fn a_page_that_cannot_be_read_while_the_log_is_followed_loses_nothing() {
    let (bytes, page, blocks) = crashed();
    let failing = || Rule::on(Operation::Read, CallFault::Error(Errno::IO)).within(range(page.0 * 8, 8));
    for rule in [failing().nth(1), failing()] {
        let bytes = Memory::from_bytes(bytes.clone());
        let device: Arc<dyn BlockDevice> = Arc::new(Faulty::new(bytes, Plan::new(1).rule(rule)));
        let store = looked_at(&device);
        assert_rest_is_read(&store, blocks);
        assert_eq!(read(&store, 600 * 8, 8), numbered(7), "it is what came later");
    }
}
