//! A dying flash, a dying disk, and damage that came later.

use rustix::io::Errno;

use umbrella_policy::flash_cache::{LogSector, MOST_ZEROED_AT_ONCE};

use super::super::building::{Building, PendingWrite, WriteData};
use super::super::format::{BLOCK, Header, MOST_DATA, Marks};
use super::*;
use crate::error::Operation;
use crate::fault::CallFault;

/// A pair whose halves follow these rules from the first call after they were joined.
fn faulty(disk_rule: Option<Rule>, flash_rule: Option<Rule>) -> (Hybrid, Arc<SleepingDisk<Faulty<Overlay>>>) {
    let pair = Pair::new(4000);
    let copy = |half: &PairHalf, rule: Option<Rule>| {
        Faulty::new(copy_of(half), rule.into_iter().fold(Plan::new(1), Plan::rule))
    };
    let mut pair = Pair::of(copy(&pair.disk, disk_rule), Arc::new(copy(&pair.flash, flash_rule)));
    pair.flash.name = "the flash".to_owned();
    (pair.open(by_hand(Algorithm::Whole)), pair.sleeping_disk)
}

fn log_only() -> SectorRange {
    range(LOG_START.0, LEAST_LOG)
}

#[test]
fn a_record_with_less_data_than_its_writes_is_not_put_together() {
    let mut building = Building::default();
    building.add(&PendingWrite { range: range(0, 2), payload: WriteData::Data(&fill(1, 1)) });
    let header = Header {
        flash: uuid::Uuid::nil(),
        epoch: Epoch(1),
        sequence: RecordNo(1),
        at: LogSector(0),
        marks: Marks { certain: RecordNo(0), promised: RecordNo(0) },
        entries: Vec::new(),
        before: None,
    };
    assert!(building.finish(header).is_none());
}

#[test]
fn when_the_flash_fails_writes_are_refused_and_what_is_safe_is_read() {
    let broken = Rule::on(Operation::Write, CallFault::Error(Errno::IO)).within(log_only()).from_nth(2);
    let (hybrid, sleeping_disk) = faulty(None, Some(broken));
    hybrid.write(Lba(100), &fill(1, 8), Durability::Cached).expect("to the disk");
    hybrid.sleep().expect("it sleeps");
    hybrid.write(Lba(200), &fill(2, 8), Durability::Cached).expect("to the log");
    hybrid.write(Lba(300), &fill(3, 8), Durability::Cached).expect_err("the flash fails");
    let refused = hybrid.write(Lba(400), &fill(4, 8), Durability::Cached).expect_err("it stays so");
    assert!(refused.to_string().contains("the flash refuses writes since an earlier write failed"), "{refused}");
    hybrid.flush().expect_err("nobody may believe that all is durable");
    assert_eq!(hybrid.at_risk(), [range(200, 8)]);
    assert_eq!(read(&hybrid, 100, 8), fill(1, 8));
    assert_eq!(read(&hybrid, 200, 8), fill(2, 8));
    assert_eq!(read(&hybrid, 300, 8), fill(0, 8), "it was never there");
    assert!(hybrid.stats().refuses_writes.is_some());
    assert_eq!(sleeping_disk.disturbed(), 0);
}

#[test]
fn what_the_flash_cannot_read_is_an_error_and_the_rest_is_not() {
    // Behind what the opening looks at.
    let broken = Rule::on(Operation::Read, CallFault::Error(Errno::IO)).within(range(LOG_START.0 + 7160, 4));
    let (hybrid, _bed) = faulty(None, Some(broken));
    hybrid.sleep().expect("it sleeps");
    for sectors in [2040, 2040, 2040, 1000] {
        hybrid.write(Lba(0), &fill(1, sectors), Durability::Cached).expect("to the log");
    }
    hybrid.write(Lba(200), &fill(2, 8), Durability::Cached).expect("to the log");
    hybrid.write(Lba(300), &fill(3, 8), Durability::Cached).expect("to the log");
    hybrid.read(Lba(200), &mut fill(0, 1)).expect_err("the flash cannot read it");
    hybrid.read(Lba(204), &mut fill(0, 4)).expect_err("without the rest of its block it cannot be compared");
    assert_eq!(read(&hybrid, 300, 8), fill(3, 8));
    hybrid.write(Lba(3000), &fill(5, 8), Durability::Through).expect("the disk continues");
    hybrid.drain().expect_err("not all of it can be brought to the disk");
    assert_eq!(hybrid.at_risk(), [range(0, 2040), range(3000, 8)], "and so all of it stays");
    hybrid.write(Lba(200), &fill(6, 8), Durability::Cached).expect("to another place of the log");
    assert_eq!(read(&hybrid, 200, 8), fill(6, 8));
    hybrid.drain().expect("what cannot be read is not needed any more");
    assert_eq!((hybrid.at_risk(), read(&hybrid, 200, 8)), (vec![], fill(6, 8)));
}

#[test]
fn a_failed_flush_of_either_half_poisons() {
    for on_disk in [true, false] {
        // The first flushes are those of the opening, and of falling asleep.
        let broken = Rule::on(Operation::Flush, CallFault::Error(Errno::IO)).from_nth(if on_disk { 3 } else { 8 });
        let (hybrid, _bed) = if on_disk { faulty(Some(broken), None) } else { faulty(None, Some(broken)) };
        if !on_disk {
            hybrid.sleep().expect("it sleeps");
        }
        hybrid.write(Lba(1), &fill(1, 1), Durability::Cached).expect("not flushed yet");
        hybrid.flush().expect_err("it fails");
        let refused = hybrid.write(Lba(1), &fill(1, 1), Durability::Cached).expect_err("and all after it");
        assert!(matches!(refused, BlockError::Poisoned { operation: Operation::Flush, .. }), "{refused}");
        assert_eq!(read(&hybrid, 1, 1), fill(1, 1));
    }
}

#[test]
fn when_the_disk_fails_while_draining_everything_stays_in_the_log() {
    let broken = Rule::on(Operation::Write, CallFault::Error(Errno::IO)).within(range(300, 8)).first(2);
    let (hybrid, sleeping_disk) = faulty(Some(broken), None);
    hybrid.sleep().expect("it sleeps");
    hybrid.write(Lba(200), &fill(2, 8), Durability::Cached).expect("to the log");
    hybrid.write(Lba(300), &fill(3, 8), Durability::Cached).expect("to the log");
    hybrid.drain().expect_err("the disk fails");
    assert!(hybrid.stats().drain_failure.is_some());
    assert_eq!(hybrid.at_risk(), [range(200, 8), range(300, 8)]);
    hybrid.write(Lba(204), &fill(4, 8), Durability::Cached).expect("writes continue");
    hybrid.drain().expect_err("the disk fails again");
    hybrid.drain().expect("the disk has recovered");
    assert_eq!((hybrid.at_risk(), hybrid.stats().drain_failure), (vec![], None));
    assert_eq!(read(&sleeping_disk.inner, 200, 12), [fill(2, 4), fill(4, 8)].concat());
    assert_eq!(read(&sleeping_disk.inner, 300, 8), fill(3, 8));
}

#[test]
fn a_full_log_before_a_failing_disk_is_an_error_and_not_a_hang() {
    let broken = Rule::on(Operation::Write, CallFault::Error(Errno::IO)).within(range(0, 3000));
    let (hybrid, _bed) = faulty(Some(broken), None);
    hybrid.sleep().expect("it sleeps");
    let written = (0..10).take_while(|_| hybrid.write(Lba(0), &fill(1, 2000), Durability::Cached).is_ok()).count();
    assert_eq!(written, 4, "as many as fit");
    assert_eq!(read(&hybrid, 0, 2000), fill(1, 2000));
}

#[test]
fn a_power_cut_is_an_error_for_all_calls_and_opening_again_finds_what_was_flushed() {
    let pair = Pair::new(1000);
    {
        let hybrid = pair.asleep();
        hybrid.write(Lba(0), &fill(1, 8), Durability::Through).expect("to the log");
    }
    assert_eq!(read(&pair.open(by_hand(Algorithm::Whole)), 0, 8), fill(1, 8));
}

/// Three records, each flushed; then one bit of one of them turns over.
fn damaged(sector_of_log: u64) -> (Pair, Result<(), HybridError>) {
    let (pair, hybrid) = sleeping_pair(1000);
    for number in 0..3 {
        hybrid.write(Lba(100 * number), &fill(number as u8 + 1, 8), Durability::Through).expect("to the log");
    }
    drop(hybrid);
    pair.flip(sector_of_log, 300);
    let opened = pair.try_open(Options::default()).map(|_| ());
    (pair, opened)
}

#[test]
fn damage_of_what_was_durable_is_refused_and_named() {
    // Each record has 8 sectors of header and 8 of data.
    let (pair, opened) = damaged(12);
    match opened.expect_err("its data is damaged") {
        HybridError::Corrupt { sequence: RecordNo(1), range: Some(held), .. } => assert_eq!(held, range(0, 8)),
        other => panic!("{other}"),
    }
    let report = pair.checked();
    assert!(report.damage.is_some_and(|damage| damage.contains("sectors 0 to 7")));
    assert_eq!((report.only_in_log, report.losses.at_risk), (vec![range(100, 8), range(200, 8)], vec![range(0, 8)]));
    let (pair, opened) = damaged(16);
    assert!(
        matches!(opened, Err(HybridError::Corrupt { sequence: RecordNo(2), range: Some(held), .. }) if held == range(100, 8)),
        "its header is damaged, and the next record says what it held"
    );
    let report = pair.checked();
    assert_eq!((report.records, report.only_in_log), (2, vec![range(0, 8), range(200, 8)]));
    assert_eq!((report.losses.at_risk, report.losses.unknown_records), (vec![range(100, 8)], 0));
}

#[test]
fn a_header_that_nothing_follows_may_have_been_cut_by_the_end() {
    // Nothing behind it says that it had been durable: it looks like one that was being written.
    let (pair, opened) = damaged(32);
    opened.expect("the other two count");
    assert_eq!(pair.checked().records, 2);
}

#[test]
fn after_a_clean_end_damage_of_the_last_record_is_noticed_too() {
    let (pair, hybrid) = sleeping_pair(1000);
    hybrid.write(Lba(100), &fill(1, 8), Durability::Cached).expect("to the log");
    hybrid.close().expect("it can be closed");
    pair.flash.device.write(Lba(LOG_START.0 + 9), &fill(9, 1), Durability::Cached).expect("memory");
    let opened = pair.try_open(Options::default()).map(|_| ());
    assert!(matches!(opened, Err(HybridError::Corrupt { sequence: RecordNo(1), .. })), "{opened:?}");
}

#[test]
fn a_disk_that_was_written_to_without_its_flash_is_refused() {
    for asleep in [true, false] {
        let (pair, hybrid) = sleeping_pair(1000);
        hybrid.write(Lba(100), &fill(1, 8), Durability::Cached).expect("to the log");
        if !asleep {
            hybrid.wake().expect("it wakes");
            hybrid.write(Lba(0), &fill(1, 8), Durability::Cached).expect("to the disk");
        }
        hybrid.close().expect("it can be closed");
        drop(pair.try_open(Options::default()).expect("nobody touched it"));
        pair.open(by_hand(Algorithm::Whole)).close().expect("it can be closed");
        pair.sleeping_disk.inner.write(Lba(2), &fill(7, 1), Durability::Cached).expect("memory");
        assert!(matches!(pair.try_open(Options::default()).map(|_| ()), Err(HybridError::Changed { .. })));
        assert!(matches!(check(&pair.disk, &pair.flash), Err(HybridError::Changed { .. })));
    }
    // With nothing on flash there is nothing to mix up.
    let pair = Pair::new(1000);
    pair.open(Options::default()).close().expect("it can be closed");
    pair.sleeping_disk.inner.write(Lba(2), &fill(7, 1), Durability::Cached).expect("memory");
    assert_eq!(read(&pair.open(Options::default()), 2, 1), fill(7, 1));
}

#[test]
fn one_copy_of_each_label_is_enough() {
    for copy in [Lba(0), Lba(8)] {
        let pair = Pair::new(1000);
        drop(pair.open(Options::default()));
        pair.flash.device.write(copy, &fill(0xff, 1), Durability::Cached).expect("memory");
        pair.sleeping_disk.inner.write(Lba(1000 + copy.0), &fill(0xff, 1), Durability::Cached).expect("memory");
        pair.open(Options::default());
    }
}

#[test]
fn a_copy_of_a_label_that_cannot_be_read_is_no_worse_than_a_damaged_one() {
    for copy in [0, 8] {
        let pair = Pair::new(1000);
        let broken = |at: u64| Rule::on(Operation::Read, CallFault::Error(Errno::IO)).within(range(at, 1));
        let (disk, flash) =
            (faulty_copy_of(&pair.disk, broken(1000 + copy)), faulty_copy_of(&pair.flash, broken(copy)));
        Pair::of(disk, Arc::new(flash)).open(by_hand(Algorithm::Whole));
    }
}

#[test]
fn a_drain_that_is_stopped_leaves_the_rest_in_the_log() {
    let held = Rule::on(Operation::Write, CallFault::Hang).within(range(0, 3900)).first(1);
    let (hybrid, sleeping_disk) = faulty(Some(held), None);
    hybrid.sleep().expect("it sleeps");
    for number in 0..30 {
        hybrid.write(Lba(100 * number), &fill(number as u8 + 1, 90), Durability::Cached).expect("to the log");
    }
    std::thread::scope(|scope| {
        let drain = scope.spawn(|| hybrid.drain());
        while sleeping_disk.inner.counts().hanging == 0 && !drain.is_finished() {
            std::thread::yield_now();
        }
        hybrid.stop_drain();
        sleeping_disk.inner.release();
        assert!(matches!(drain.join().expect("no panic"), Err(HybridError::Stopped)));
    });
    assert_eq!((hybrid.at_risk().len(), hybrid.stats().drain_failure), (30, None));
    hybrid.drain().expect("nothing is wrong with it");
    assert_eq!(read(&sleeping_disk.inner, 2900, 90), fill(30, 90));
}

/// Fails reads of the first record's data; its header and the rest of the log can be read.
fn unreadable_data() -> Rule {
    Rule::on(Operation::Read, CallFault::Error(Errno::IO)).within(range(LOG_START.0 + 8, 8))
}

#[test]
fn what_cannot_be_read_while_the_log_is_drained_stays_there_and_the_rest_goes_to_the_disk() {
    let (hybrid, sleeping_disk) = faulty(None, Some(unreadable_data()));
    hybrid.sleep().expect("it sleeps");
    hybrid.write(Lba(100), &fill(1, 8), Durability::Cached).expect("to the log");
    hybrid.write(Lba(200), &fill(2, 8), Durability::Cached).expect("to the log");
    let failed = hybrid.drain().expect_err("the flash fails");
    assert!(matches!(failed, HybridError::Unreadable { range: at, .. } if at == range(100, 8)), "{failed}");
    assert_eq!(hybrid.at_risk(), [range(100, 8), range(200, 8)]);
    assert_eq!((read(&sleeping_disk.inner, 200, 8), read(&sleeping_disk.inner, 100, 8)), (fill(2, 8), fill(0, 8)));
    let stats = hybrid.stats();
    assert_eq!(stats.refuses_writes, None);
    assert!(stats.drain_failure.is_some_and(|reported| reported.contains("sectors 100 to 107")));
    hybrid.write(Lba(200), &fill(3, 8), Durability::Through).expect("the disk continues");
    assert_eq!(read(&hybrid, 200, 8), fill(3, 8));
    hybrid.read(Lba(100), &mut fill(0, 8)).expect_err("never what the disk had before");
    hybrid.write(Lba(100), &fill(4, 8), Durability::Through).expect("to the log");
    hybrid.drain().expect("nobody needs it any more");
    assert_eq!((hybrid.at_risk(), hybrid.stats().drain_failure), (vec![], None));
    assert_eq!((read(&sleeping_disk.inner, 200, 8), read(&sleeping_disk.inner, 100, 8)), (fill(3, 8), fill(4, 8)));
}

#[test]
fn while_a_full_log_cannot_be_emptied_what_it_has_nothing_of_goes_to_the_disk() {
    let (hybrid, sleeping_disk) = faulty(None, Some(unreadable_data()));
    hybrid.sleep().expect("it sleeps");
    let written = (0..10).take_while(|_| hybrid.write(Lba(0), &fill(1, 2000), Durability::Cached).is_ok()).count();
    assert!(written >= 4, "{written} fit");
    hybrid.write(Lba(3000), &fill(2, 8), Durability::Through).expect("to the disk");
    assert_eq!(read(&sleeping_disk.inner, 3000, 8), fill(2, 8));
    assert_eq!(read(&hybrid, 0, 2000), fill(1, 2000));
}

#[test]
fn a_drain_from_flash_that_fails_altogether_ends_soon_and_loses_nothing() {
    let (pair, hybrid) = sleeping_pair(4000);
    hybrid.write(Lba(0), &fill(1, 2000), Durability::Through).expect("to the log");
    drop(hybrid);
    // The opening reads all of the log first.
    let dead = Rule::on(Operation::Read, CallFault::Error(Errno::IO)).within(log_only());
    let dying = Arc::new(faulty_copy_of(&pair.flash, dead.from_nth(40)));
    let hybrid = pair.with_flash(dying.clone()).open(by_hand(Algorithm::Whole));
    while hybrid.read(Lba(0), &mut fill(0, 8)).is_ok() {}
    let before = dying.counts().reads;
    hybrid.drain().expect_err("the flash fails");
    let reads = dying.counts().reads - before;
    assert!(reads < 30, "{reads} reads");
    assert_eq!((hybrid.at_risk(), hybrid.lost()), (vec![range(0, 2000)], vec![]));
}

#[test]
fn a_stretch_of_flash_that_is_lost_behind_a_crash_is_damage_and_not_the_end_of_the_log() {
    // More than the longest record, as a flash's erase block may be.
    let records = 4 * MOST_DATA / BLOCK;
    let flash = flash_of(16 * records + 16);
    let pair = Pair::created(Memory::new(sectors(4000 + TAG_SECTORS)), Arc::new(flash));
    let hybrid = pair.asleep();
    for number in 0..records {
        hybrid.write(Lba(number % 400 * 8), &fill(number as u8, 8), Durability::Through).expect("to the log");
    }
    drop(hybrid);
    let lost = vec![0; (2 * MOST_DATA * SECTOR_BYTES) as usize];
    pair.flash.device.write(Lba(LOG_START.0 + 160), &lost, Durability::Through).expect("memory");
    let opened = pair.try_open(Options::default()).map(|_| ());
    assert!(matches!(opened, Err(HybridError::Corrupt { sequence: RecordNo(11), .. })), "{opened:?}");
}

#[test]
fn flash_that_cannot_be_read_where_nothing_was_written_keeps_nobody_from_opening() {
    let pair = Pair::new(1000);
    {
        let hybrid = pair.asleep();
        hybrid.write(Lba(0), &fill(1, 8), Durability::Through).expect("to the log");
    }
    let unused = range(LOG_START.0 + 800, 1000);
    let broken = Rule::on(Operation::Read, CallFault::Error(Errno::IO)).within(unused);
    let pair = pair.with_flash(Arc::new(faulty_copy_of(&pair.flash, broken)));
    pair.checked();
    assert_eq!(read(&pair.open(by_hand(Algorithm::Whole)), 0, 8), fill(1, 8));
}

#[test]
fn zeroes_are_drained_in_calls_that_others_can_wait_for() {
    let disk = Faulty::new(Memory::new(ByteSize((64 << 20) + 8192)), Plan::new(1));
    let pair = Pair::created(disk, Arc::new(flash_of(LEAST_LOG)));
    let hybrid = pair.asleep();
    hybrid.write_zeroes(range(0, (64 << 20) / SECTOR_BYTES), Zeroes::Keep, Durability::Cached).expect("to the log");
    let before = pair.sleeping_disk.inner.counts().writes;
    hybrid.drain().expect("to the disk");
    let calls = pair.sleeping_disk.inner.counts().writes - before;
    assert!(calls >= (64 << 20) / SECTOR_BYTES / MOST_ZEROED_AT_ONCE, "{calls} calls");
}
