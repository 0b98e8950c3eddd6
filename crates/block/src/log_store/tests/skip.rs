//! Going on without what is damaged: what is lost is an error until it is written again, over restarts too; all else is
//! as it was.

use super::*;

/// A store that was killed after 45 blocks were written, each through, 5 of them written before; where each lies.
fn killed() -> (Arc<dyn BlockDevice>, Vec<usize>) {
    let (device, store) = opened(80);
    for block in (20..25).chain(0..45) {
        store.write(Lba(block * 8), &numbered(block + 1), Durability::Through).expect("there is room");
    }
    let places = (0..45).map(|block| byte_of(&store, block)).collect();
    drop(store);
    (device, places)
}

fn is_lost(store: &LogStore, block: u64) -> bool {
    match store.read(Lba(block * 8), &mut fill(0, 8)) {
        Ok(()) => false,
        Err(error) => {
            assert!(error.to_string().contains(&format!("block {block} of the store is lost")), "{error}");
            true
        }
    }
}

/// All blocks but one hold what was written last, and that one is lost.
fn assert_all_but(store: &LogStore, lost: u64) {
    for block in 0..45 {
        assert_eq!(is_lost(store, block), block == lost, "block {block}");
        assert!(block == lost || read(store, block * 8, 8) == numbered(block + 1), "block {block}");
    }
    assert_eq!(store.stats().lost, ByteSize(4096));
}

#[test]
fn a_damaged_record_is_skipped_and_its_blocks_are_lost_until_they_are_written() {
    let (whole, places) = killed();
    // Its data, and its header.
    for at in [places[24], places[24] - 4096] {
        let device = damaged(&whole, &[at]);
        let refused = try_open(&device, OpenMode::ReadWrite).err().expect("flushed data is lost").to_string();
        assert!(refused.contains("lost"), "{refused}");
        let store = try_open(&device, OpenMode::Salvage).expect("it is known what is lost");
        assert!(!store.is_read_only());
        let reported = store.stats().repaired.join("; ");
        assert!(reported.contains("blocks 24 are lost"), "{reported}");
        assert_all_but(&store, 24);
        let part = store.write(Lba(24 * 8 + 2), &fill(1, 2), Durability::Through).expect_err("the rest is lost");
        assert!(part.to_string().contains("block 24 of the store is lost"), "{part}");
        drop(store);
        let store = try_open(&device, OpenMode::ReadWrite).expect("it was skipped once and for all");
        assert_all_but(&store, 24);
        store.close().expect("it can be closed");
        let report = checked(&device, Depth::Data);
        let [Problem::Lost(1, runs)] = report.problems.as_slice() else { panic!("{:?}", report.problems) };
        assert!(matches!(runs.as_slice(), [run] if *run == (24..25)), "{runs:?}");
        let store = try_open(&device, OpenMode::ReadWrite).expect("it can be opened");
        assert_all_but(&store, 24);
        store.write(Lba(24 * 8), &numbered(99), Durability::Through).expect("there is room");
        drop(store);
        let store = try_open(&device, OpenMode::ReadWrite).expect("it can be opened");
        assert_eq!((read(&store, 24 * 8, 8), store.stats().lost), (numbered(99), ByteSize(0)));
        drop(store);
        assert_whole(&device);
    }
}

#[test]
fn a_block_that_is_lost_and_discarded_reads_as_zeroes() {
    let (whole, places) = killed();
    let device = damaged(&whole, &[places[24]]);
    let store = try_open(&device, OpenMode::Salvage).expect("it is known what is lost");
    store.discard(range(24 * 8, 8)).expect("it is discarded");
    store.flush().expect("memory does not fail");
    drop(store);
    let store = try_open(&device, OpenMode::ReadWrite).expect("it can be opened");
    assert_eq!((read(&store, 24 * 8, 8), store.stats().lost), (fill(0, 8), ByteSize(0)));
}

#[test]
fn a_lost_block_that_was_written_later_is_not_lost() {
    let (device, store) = opened(80);
    let write = |block: u64, number| {
        store.write(Lba(block * 8), &numbered(number), Durability::Through).expect("there is room");
    };
    write(3, 1);
    let at = byte_of(&store, 3);
    (0..10).for_each(|block| write(block, block + 10));
    drop(store);
    for at in [at, at - 4096] {
        let device = damaged(&device, &[at]);
        let store = try_open(&device, OpenMode::Salvage).expect("it is known what is lost");
        (0..10).for_each(|block| assert_eq!(read(&store, block * 8, 8), numbered(block + 10)));
        assert_eq!(store.stats().lost, ByteSize(0));
    }
}

#[test]
fn where_nobody_knows_what_is_lost_the_store_is_looked_at_as_it_was_before() {
    let (whole, places) = killed();
    // Two headers in a row: the second would say what the first held.
    let device = damaged(&whole, &[places[24] - 4096, places[25] - 4096]);
    let before = bytes_of(&*device);
    let store = try_open(&device, OpenMode::Salvage).expect("it can be looked at");
    assert!(store.is_read_only());
    (0..20).for_each(|block| assert_eq!(read(&store, block * 8, 8), numbered(block + 1)));
    assert_eq!(read(&store, 30 * 8, 8), fill(0, 8));
    store.write(Lba(0), &fill(1, 8), Durability::Cached).expect_err("it is only looked at");
    drop(store);
    assert!(bytes_of(&*device) == before);
}

#[test]
fn a_store_that_lost_nothing_is_salvaged_as_it_is_used() {
    let (whole, _) = killed();
    let store = try_open(&whole, OpenMode::Salvage).expect("it is whole");
    (0..45).for_each(|block| assert_eq!(read(&store, block * 8, 8), numbered(block + 1)));
    assert_eq!((store.is_read_only(), store.stats().lost), (false, ByteSize(0)));
}

/// Where the page of the map lies that the newest checkpoint means.
fn page_at(device: &Arc<dyn BlockDevice>, page: u32) -> usize {
    let store = try_open(device, OpenMode::ReadOnly).expect("it can be looked at");
    let state = store.shared.state.lock();
    let place = state
        .core
        .page_place(umbrella_policy::log_layout::MapPage(page))
        .expect("there is such a page")
        .expect("it was written");
    state.core.superblock.device_block(place).0 as usize * 4096
}

/// What is read is right; how many blocks are lost.
fn assert_right_or_lost(store: &LogStore, truth: &[u64], label: &str) -> u64 {
    let mut data = fill(0, 8);
    let lost = (0..).zip(truth).filter(|(block, truth)| match store.read(Lba(block * 8), &mut data) {
        Ok(()) => {
            assert!(data == numbered(**truth), "{label}: block {block}");
            false
        }
        Err(error) => error.to_string().contains("of the store is lost"),
    });
    lost.count() as u64
}

/// Where the oldest headers of chunks lie: long before the last checkpoint.
fn oldest_headers(bytes: &[u8]) -> Vec<usize> {
    let sequence = |at: usize| u64::from_le_bytes(bytes[at + 40..][..8].try_into().expect("8 bytes"));
    let mut headers: Vec<_> = chunk_headers(bytes).map(|at| (sequence(at), at)).collect();
    headers.sort_unstable();
    headers.into_iter().take(4).map(|(_, at)| at).collect()
}

#[test]
fn a_page_of_the_map_with_doubtful_blocks_is_rebuilt_without_them_and_damage_after_that_tells_no_lies() {
    let mut lost_at_all = 0;
    for seed in 0..4 {
        let (bytes, mut truth) = after_random_work(seed, 130);
        let whole = from_bytes(bytes.clone());
        for page in 0..2 {
            let label = format!("seed {seed}, page {page}");
            let mut at = oldest_headers(&bytes);
            at.push(page_at(&whole, page));
            let device = damaged(&whole, &at);
            let store = try_open(&device, OpenMode::Salvage).unwrap_or_else(|error| panic!("{label}: {error}"));
            assert!(!store.is_read_only(), "{label}");
            let lost = assert_right_or_lost(&store, &truth, &label);
            assert_eq!(store.stats().lost.0, lost * 4096, "{label}");
            lost_at_all += lost;
            // All of it is cleaned over and over, so that what the lost blocks were goes.
            let blocks = truth.len() as u64;
            for number in 0..blocks * 4 {
                let block = number * 7 % blocks;
                if matches!(store.read(Lba(block * 8), &mut fill(0, 8)), Err(error) if error.to_string().contains("is lost"))
                {
                    continue;
                }
                put(&store, block, number);
                truth[block as usize] = number;
            }
            store.close().expect("it can be closed");
            assert_eq!(assert_right_or_lost(&open(&device, by_hand()), &truth, &label), lost, "{label}");
            // A second damage to the same page.
            let again = damaged(&device, &[page_at(&device, page)]);
            let store = try_open(&again, OpenMode::Salvage).unwrap_or_else(|error| panic!("{label}: {error}"));
            let lost_again = assert_right_or_lost(&store, &truth, &format!("{label}, again"));
            assert!(lost_again >= lost, "{label}: {lost_again} of {lost} are still known to be lost");
            truth = after_random_work(seed, 130).1;
        }
    }
    assert!(lost_at_all > 0, "nothing was in doubt");
}
