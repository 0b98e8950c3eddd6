//! Devices that fail, and damage that came later.

use rustix::io::Errno;

use super::*;
use crate::error::{BlockError, Operation};
use crate::fault::CallFault;

/// A store with some contents, whose device follows this rule from then on.
fn faulty(rule: Rule) -> LogStore {
    let (device, store) = opened(60);
    store.write(Lba(0), &fill(1, 800), Durability::Through).expect("the device is whole");
    store.close().expect("it can be closed");
    open(&faulty_copy_of(&device, rule), by_hand())
}

#[test]
fn after_a_failed_flush_nothing_is_written_and_what_is_there_is_read() {
    // The opening flushes six times: once for what it read, and five times for its checkpoint.
    for nth in 5..9 {
        let store = faulty(Rule::on(Operation::Flush, CallFault::Error(Errno::IO)).nth(nth));
        store.write(Lba(8), &fill(2, 8), Durability::Cached).expect("it is only cached");
        let failed = (0..5).find_map(|_| {
            store.write(Lba(16), &fill(3, 8), Durability::Cached).ok()?;
            store.flush().err()
        });
        let Some(failed) = failed else { continue };
        assert!(matches!(failed, BlockError::Io { .. } | BlockError::Poisoned { .. }), "{failed}");
        let refused = store.write(Lba(24), &fill(4, 8), Durability::Cached).expect_err("it refuses writes");
        assert!(matches!(refused, BlockError::Poisoned { operation: Operation::Flush, .. }), "{refused}");
        store.flush().expect_err("nobody may believe that all is durable");
        assert_eq!(read(&store, 8, 8), fill(2, 8), "what was written is still read");
        assert_eq!(read(&store, 100, 8), fill(1, 8));
        assert!(store.stats().refuses_writes.is_some());
        store.close().expect_err("it cannot be closed in order");
        return;
    }
    panic!("no flush failed");
}

#[test]
fn a_chunk_that_cannot_be_written_is_still_read_and_writes_are_refused() {
    let store = faulty(Rule::on(Operation::Write, CallFault::Error(Errno::NOSPC)).from_nth(6));
    let mut failed = None;
    for round in 0..40_u64 {
        failed = store.write(Lba(round * 64), &fill(7, 64), Durability::Through).err();
        if failed.is_some() {
            assert_eq!(read(&store, round * 64, 64), fill(7, 64), "it is in memory");
            break;
        }
    }
    failed.expect("a write fails sooner or later");
    store.write(Lba(0), &fill(1, 8), Durability::Cached).expect_err("it refuses writes");
    store.discard(range(0, 8)).expect_err("that is one too");
}

#[test]
fn what_cannot_be_read_is_an_error_and_the_rest_is_not() {
    let (device, store) = opened(60);
    store.write(Lba(0), &fill(1, 800), Durability::Through).expect("the device is whole");
    let place = device_block(&store, 50).0;
    store.close().expect("it can be closed");
    let rule = Rule::on(Operation::Read, CallFault::Error(Errno::IO)).within(range(place * 8, 8));
    let store = open(&faulty_copy_of(&device, rule), by_hand());
    store.read(Lba(400), &mut fill(0, 8)).expect_err("it cannot be read");
    assert_eq!(read(&store, 0, 400), fill(1, 400));
    assert_eq!(read(&store, 408, 392), fill(1, 392));
    store.write(Lba(400), &fill(2, 8), Durability::Through).expect("it is written elsewhere");
    assert_eq!(read(&store, 400, 8), fill(2, 8));
}

#[test]
fn a_segment_with_a_damaged_block_is_not_cleaned_and_the_rest_continues() {
    let (device, store) = opened(60);
    let blocks = sectors_of(&store) / 8;
    for block in 0..blocks {
        store.write(Lba(block * 8), &fill(block as u8, 8), Durability::Cached).expect("there is room");
    }
    store.flush().expect("it is flushed");
    let place = device_block(&store, 5).0;
    device.write(Lba(place * 8), &fill(0xaa, 1), Durability::Through).expect("memory takes it");
    // All of its segment except the damaged block is replaced, so that it is the best victim.
    for block in
        (0..blocks).filter(|block| *block != 5).chain((0..blocks).filter(|block| *block != 5 && block % 3 == 0))
    {
        store.write(Lba(block * 8), &fill(!(block as u8), 8), Durability::Cached).expect("there is room all the same");
    }
    assert_eq!(store.stats().damaged_segments, 1);
    for block in (0..blocks).filter(|block| *block != 5) {
        assert!(read(&store, block * 8, 8) == fill(!(block as u8), 8), "block {block}");
    }
    store.close().expect("it can be closed");
    let report = checked(&device, Depth::Data);
    assert!(
        matches!(report.problems.as_slice(), [Problem::Damaged(block, _)] if block.0 == 5),
        "{:?}",
        report.problems
    );
}

#[test]
fn a_check_names_what_is_damaged() {
    let (device, store) = opened(60);
    store.write(Lba(0), &fill(1, 800), Durability::Through).expect("there is room");
    let place = device_block(&store, 50).0;
    store.close().expect("it can be closed");
    let whole = bytes_of(&*device);
    let problems = |at: u64, depth: Depth| {
        try_check(&damaged(&device, &[at as usize * 4096]), depth).map(|report| report.problems)
    };
    assert!(matches!(problems(place, Depth::Data).unwrap().as_slice(), [Problem::Damaged(block, _)] if block.0 == 50));
    assert!(problems(place, Depth::Structure).unwrap().is_empty(), "the data is not looked at");
    assert!(matches!(problems(256, Depth::Structure).unwrap().as_slice(), [Problem::SuperblockCopy(_)]));
    let header =
        (0..60).map(|back| place - back).find(|at| whole[(at * 4096) as usize..].starts_with(b"ULCK")).unwrap();
    for depth in [Depth::Structure, Depth::Data] {
        let found = problems(header, depth).unwrap();
        let [Problem::Header(segment, ..), Problem::Unnamed(same, count, runs)] = found.as_slice() else {
            panic!("{found:?}");
        };
        assert_eq!((same, *count), (segment, runs.iter().map(|(_, blocks)| blocks).sum()), "{runs:?}");
        assert!(runs.iter().any(|(first, blocks)| (first.0..first.0 + u64::from(*blocks)).contains(&50)), "{runs:?}");
        let reported = found[1].to_string();
        let range = format!("{}-{}", runs[0].0.0, runs[0].0.0 + u64::from(runs[0].1) - 1);
        assert!(
            reported.contains(&format!("{count} blocks in it may be wrong")) && reported.contains(&range),
            "{reported}"
        );
    }
}

#[test]
fn a_device_with_something_on_it_is_not_made_a_store_unasked() {
    let device: Arc<dyn BlockDevice> = memory(60);
    device.write(Lba(2), &fill(0x53, 1), Durability::Through).expect("memory takes it");
    let refused = create(Arc::clone(&device), "disk", &small("r_lfs")).expect_err("something is there");
    assert!(matches!(refused, LogStoreError::Occupied { .. }), "{refused}");
    create(device, "disk", &CreateOptions { force: true, ..small("r_lfs") }).expect("it was asked for");
}

#[test]
fn what_is_no_store_or_too_small_for_one_is_said_so() {
    let device: Arc<dyn BlockDevice> = memory(60);
    let error = try_open(&device, OpenMode::ReadWrite).err().expect("there is none");
    assert!(error.to_string().contains("no log store is on this device"), "{error}");
    let error = create(memory(3), "disk", &small("r_lfs")).expect_err("there is not room");
    let LogStoreError::TooSmall { needed, .. } = error else { panic!("{error}") };
    let enough: Arc<dyn BlockDevice> = Arc::new(Memory::new(needed));
    create(enough, "disk", &small("r_lfs")).expect("what it says is enough is enough");
    let error = create(Arc::clone(&device), "disk", &small("oracle")).expect_err("nobody knows the future");
    assert!(matches!(error, LogStoreError::Scheme { .. }), "{error}");
    let error = create(device, "disk", &small("rlfs")).expect_err("no such scheme");
    assert!(error.to_string().contains("r_lfs"), "{error}");
}

#[test]
fn a_store_that_is_only_looked_at_is_not_changed() {
    let (device, store) = opened(60);
    store.write(Lba(0), &fill(1, 800), Durability::Through).expect("there is room");
    drop(store);
    let before = bytes_of(&*device);
    let store =
        LogStore::open(Arc::clone(&device), "disk", Options::default(), OpenMode::ReadOnly).expect("it can be read");
    assert_eq!(read(&store, 0, 800), fill(1, 800));
    store.write(Lba(0), &fill(2, 8), Durability::Cached).expect_err("it may not be written");
    store.close().expect("there is nothing to do");
    assert!(bytes_of(&*device) == before);
}

#[test]
fn what_nobody_asked_for_may_be_unreadable() {
    let (device, store) = opened(60);
    store.write(Lba(0), &fill(1, 96), Durability::Through).expect("the device is whole");
    // Blocks 4 and 5 move away; what lies before and behind them is read at once.
    let gone = device_block(&store, 4).0;
    store.write(Lba(32), &fill(2, 16), Durability::Through).expect("the device is whole");
    store.close().expect("it can be closed");
    let rule = Rule::on(Operation::Read, CallFault::Error(Errno::IO)).within(range(gone * 8, 8));
    let store = open(&faulty_copy_of(&device, rule), by_hand());
    assert_eq!(read(&store, 0, 96), [fill(1, 32), fill(2, 16), fill(1, 48)].concat());
}

#[test]
fn a_log_that_is_damaged_before_its_end_is_reported() {
    let (device, store) = opened(60);
    // The first blocks of a stream, then more than a segment of it.
    store.write(Lba(0), &fill(1, 8), Durability::Through).expect("there is room");
    let place = device_block(&store, 0).0;
    for round in 0..3 {
        // What is written anew goes to another stream.
        store.write(Lba(8), &fill(round, 8), Durability::Through).expect("there is room");
    }
    drop(store);
    let abandoned = |at: &[u64]| {
        let at: Vec<_> = at.iter().map(|at| *at as usize * 4096).collect();
        let report = checked(&damaged(&device, &at), Depth::Structure);
        (report.abandoned, report.replayed)
    };
    assert_eq!(abandoned(&[]), (0, 4));
    let (damaged_data, damaged_header) = (abandoned(&[place]), abandoned(&[place - 1]));
    assert!(damaged_data.0 > 0 && damaged_data.1 == 0, "{damaged_data:?}");
    assert!(damaged_header.0 > 0 && damaged_header.1 == 0, "{damaged_header:?}");
}
