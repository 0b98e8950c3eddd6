//! A whole store of a released version, as it was written then. It is never written anew.
//!
//! 80 segments of 64 KiB, filled and rewritten until some were cleaned, and ended without being closed; made by
//! [`the_work`]. `log_v1_store.img.zst` has no incompatible feature, `log_v2_store.img.zst` has marks of flushes, and
//! no repeats.

use super::*;

const STORES: [&[u8]; 2] = [
    include_bytes!("../../../tests/fixtures/log_v1_store.img.zst"),
    include_bytes!("../../../tests/fixtures/log_v2_store.img.zst"),
];
const SEGMENTS: u64 = 80;
/// Number of blocks that the store promises.
const BLOCKS: u64 = 826;

/// What the store went through, and what its blocks hold afterwards; 0 where one was discarded.
fn the_work(store: &LogStore) -> Vec<u64> {
    let mut truth: Vec<u64> = (1..=BLOCKS).collect();
    let write = |block: u64, number| put(store, block, number);
    (0..BLOCKS).for_each(|block| write(block, block + 1));
    for step in 0..4 * BLOCKS {
        let (block, number) = (step * step * 31 % BLOCKS, BLOCKS + 1 + step);
        write(block, number);
        truth[block as usize] = number;
        if step % 40 == 0 {
            let block = step * 7 % BLOCKS;
            store.discard(range(block * 8, 8)).expect("it is discarded");
            truth[block as usize] = 0;
        }
        // What follows is found only by following the log.
        if step == 4 * BLOCKS - 100 {
            store.checkpoint().expect("memory does not fail");
        }
    }
    store.flush().expect("memory does not fail");
    truth
}

fn held(truth: &[u64]) -> Vec<u8> {
    truth.iter().flat_map(|number| numbered(*number)).collect()
}

/// What the work leaves today, and what is held then.
fn made_today() -> (Vec<u8>, Vec<u64>) {
    let device = memory(SEGMENTS);
    create(device.clone(), "disk", &small("r_lfs")).expect("it can be made");
    let as_device: Arc<dyn BlockDevice> = device.clone();
    let store = open(&as_device, by_hand());
    assert_eq!(sectors_of(&store), BLOCKS * 8);
    let truth = the_work(&store);
    assert!(store.stats().segments_cleaned > 0);
    drop(store);
    (device.to_bytes(), truth)
}

#[test]
fn stores_that_were_made_before_are_read_and_continue() {
    STORES.into_iter().for_each(assert_goes_on);
}

fn assert_goes_on(store: &[u8]) {
    let image = zstd::decode_all(store).expect("the fixture is whole");
    let device = from_bytes(image);
    let (_, mut truth) = made_today();
    let report = checked(&device, Depth::Data);
    assert_eq!((report.problem_count, report.clean, report.replayed > 0), (0, false, true), "{report:?}");
    let store = open(&device, by_hand());
    assert!(read(&store, 0, BLOCKS * 8) == held(&truth));
    for block in (0..BLOCKS).step_by(3) {
        store.write(Lba(block * 8), &numbered(9999 + block), Durability::Cached).expect("there is room");
        truth[block as usize] = 9999 + block;
    }
    store.close().expect("it can be closed");
    assert!(read(&open(&device, by_hand()), 0, BLOCKS * 8) == held(&truth));
}

#[test]
fn the_work_leaves_the_same_contents_today() {
    let (image, truth) = made_today();
    let device = from_bytes(image);
    assert!(read(&open(&device, by_hand()), 0, BLOCKS * 8) == held(&truth));
}
