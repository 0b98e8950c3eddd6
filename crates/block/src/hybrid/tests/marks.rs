//! Damage near the end of the log: promised records are distinguished from those that were not promised.

use std::collections::BTreeMap;

use umbrella_policy::spin_down::{Costs, SpinDown};
use umbrella_units::Nanos;

use super::super::format::{BLOCK, Header, MOST_DATA};
use super::*;
use crate::testing::{fuzz_rounds, fuzz_seed};

const DISK: u64 = 4000;
/// Sectors of a record with one block of data.
const RECORD: u64 = 2 * BLOCK;

/// Block `number` of the disk has `number + 1` from now on.
fn write_block(hybrid: &Hybrid, number: u64) {
    let byte = (number % 250) as u8 + 1;
    hybrid.write(Lba(number * BLOCK), &fill(byte, BLOCK), Durability::Cached).expect("to the log");
}

#[test]
fn damage_far_from_the_end_of_what_was_flushed_is_never_silent() {
    for byte in [20, 300] {
        let (pair, hybrid) = sleeping_pair(DISK);
        (0..450).for_each(|number| write_block(&hybrid, number));
        hybrid.flush().expect("it is flushed");
        drop(hybrid);
        pair.flip(429 * RECORD, byte);
        let report = pair.checked();
        assert_eq!((report.damage, &report.losses), (None, &Losses::default()), "nobody knows whether it was answered");
        assert_eq!(report.perhaps_lost.at_risk, [range(429 * BLOCK, BLOCK)]);
        assert_eq!(report.only_in_log, [range(0, 429 * BLOCK), range(430 * BLOCK, 20 * BLOCK)]);

        let hybrid = pair.open(by_hand(Algorithm::Whole));
        assert_eq!(hybrid.perhaps_lost().at_risk, [range(429 * BLOCK, BLOCK)]);
        assert_eq!(
            read(&hybrid, 428 * BLOCK, 3 * BLOCK),
            [fill(179, BLOCK), fill(0, BLOCK), fill(181, BLOCK)].concat()
        );
        drop(hybrid);
        assert!(pair.checked().perhaps_lost.is_empty(), "it was reported, and is repaired");
        let hybrid = pair.open(by_hand(Algorithm::Whole));
        assert!(hybrid.perhaps_lost().is_empty());
        hybrid.dissolve().expect("the log continues behind it");
        assert_eq!(read(&pair.sleeping_disk.inner, 449 * BLOCK, BLOCK), fill(200, BLOCK));
    }
}

#[test]
fn what_a_later_record_holds_as_well_is_not_reported_as_lost() {
    let (pair, hybrid) = sleeping_pair(DISK);
    (0..10).for_each(|number| write_block(&hybrid, number));
    write_block(&hybrid, 4);
    hybrid.flush().expect("it is flushed");
    drop(hybrid);
    pair.flip(4 * RECORD, 20);
    assert_eq!(pair.checked().perhaps_lost, Losses::default());
    let hybrid = pair.open(by_hand(Algorithm::Whole));
    assert_eq!((hybrid.perhaps_lost(), read(&hybrid, 4 * BLOCK, BLOCK)), (&Losses::default(), fill(5, BLOCK)));
}

#[test]
fn an_opening_that_is_refused_leaves_what_is_perhaps_lost_to_be_found_again() {
    let (pair, hybrid) = sleeping_pair(DISK);
    (0..30).for_each(|number| write_block(&hybrid, number));
    hybrid.flush().expect("it is flushed");
    hybrid.sleep().expect("it sleeps");
    drop(hybrid);
    // Its disk was written to without it.
    let before = read(&pair.sleeping_disk.inner, 0, 8);
    pair.sleeping_disk.inner.write(Lba(0), &fill(9, 1), Durability::Cached).expect("memory");
    pair.flip(20 * RECORD, 20);
    let refused = pair.try_open(Options::default()).map(|_| ());
    assert!(matches!(refused, Err(HybridError::Changed { .. })), "{refused:?}");
    pair.sleeping_disk.inner.write(Lba(0), &before, Durability::Cached).expect("memory");
    assert_eq!(pair.checked().perhaps_lost.at_risk, [range(20 * BLOCK, BLOCK)]);
    assert_eq!(pair.open(Options::default()).perhaps_lost().at_risk, [range(20 * BLOCK, BLOCK)]);
}

#[test]
fn damage_of_what_the_log_says_was_flushed_is_refused() {
    let (pair, hybrid) = sleeping_pair(DISK);
    (0..30).for_each(|number| write_block(&hybrid, number));
    hybrid.flush().expect("it is flushed");
    write_block(&hybrid, 31);
    drop(hybrid);
    pair.flip(9 * RECORD, 20);
    let refused = pair.try_open(Options::default()).map(|_| ());
    assert!(matches!(refused, Err(HybridError::Corrupt { range: Some(held), .. }) if held == range(9 * BLOCK, BLOCK)));
    let report = pair.checked();
    assert_eq!((report.losses.at_risk, report.losses.unknown_records), (vec![range(9 * BLOCK, BLOCK)], 0));
    let salvage = DamagedPair::open(pair.disk.clone(), pair.flash.clone()).expect("it is a pair");
    assert_eq!(read(&salvage, 10 * BLOCK, BLOCK), fill(11, BLOCK), "what is behind it is kept");
}

#[test]
fn what_nobody_was_promised_is_cut_off_in_silence() {
    let (pair, hybrid) = sleeping_pair(DISK);
    (0..10).for_each(|number| write_block(&hybrid, number));
    hybrid.flush().expect("it is flushed");
    (10..30).for_each(|number| write_block(&hybrid, number));
    drop(hybrid);
    // Ten records, and a mark.
    pair.flip(15 * RECORD + BLOCK, 20);
    let report = pair.checked();
    assert!(report.damage.is_none() && report.perhaps_lost.is_empty(), "{report:?}");
    let hybrid = pair.open(by_hand(Algorithm::Whole));
    assert!(hybrid.perhaps_lost().is_empty());
    assert_eq!(read(&hybrid, 0, 10 * BLOCK).last(), Some(&10), "what was flushed is there");
}

#[test]
fn of_several_damaged_records_in_a_row_only_the_last_is_known() {
    let (pair, hybrid) = sleeping_pair(DISK);
    (0..10).for_each(|number| write_block(&hybrid, number));
    hybrid.flush().expect("it is flushed");
    drop(hybrid);
    for number in 4..7 {
        pair.flip(number * RECORD, 20);
    }
    let report = pair.checked();
    assert_eq!((report.perhaps_lost.at_risk, report.perhaps_lost.unknown_records), (vec![range(6 * BLOCK, BLOCK)], 2));
    let hybrid = pair.open(by_hand(Algorithm::Whole));
    assert_eq!(hybrid.perhaps_lost().unknown_records, 2);
    assert_eq!(read(&hybrid, 7 * BLOCK, BLOCK), fill(8, BLOCK));
    drop(hybrid);
    let report = pair.checked();
    assert!(report.perhaps_lost.is_empty() && report.damage.is_none(), "{report:?}");
}

#[test]
fn records_on_both_sides_of_the_logs_end_are_mended() {
    // Records of 1 MiB and a header: three fill the smallest log except for its end, and the fourth begins at its start
    // again.
    for damaged in 0..4 {
        let (pair, hybrid) = sleeping_pair(16_000);
        hybrid.write(Lba(0), &fill(1, MOST_DATA), Durability::Cached).expect("to the log");
        hybrid.drain().expect("it is drained");
        hybrid.sleep().expect("it sleeps");
        for number in 1..4 {
            let at = Lba(number * MOST_DATA);
            hybrid.write(at, &fill(number as u8 + 1, MOST_DATA), Durability::Cached).expect("to the log");
        }
        hybrid.flush().expect("it is flushed");
        drop(hybrid);
        let sector = (MOST_DATA + BLOCK) * damaged % (3 * (MOST_DATA + BLOCK));
        pair.flip(sector, 20);
        let report = pair.checked();
        let hybrid = pair.open(by_hand(Algorithm::Whole));
        assert_eq!(hybrid.perhaps_lost().unknown_records, report.perhaps_lost.unknown_records);
        assert_eq!(hybrid.perhaps_lost().at_risk, report.perhaps_lost.at_risk, "record {damaged}");
        for number in 1..4 {
            let lost = report.perhaps_lost.at_risk.contains(&range(number * MOST_DATA, MOST_DATA));
            let byte = if lost { 0 } else { number as u8 + 1 };
            assert_eq!(read(&hybrid, number * MOST_DATA, 1), fill(byte, 1), "record {damaged}, {number}");
        }
        drop(hybrid);
        pair.open(by_hand(Algorithm::Whole)).dissolve().expect("it is whole");
    }
}

#[test]
fn a_flush_costs_one_flush_of_the_flash_and_a_write_with_fua_no_mark() {
    let pair = Pair::new(DISK);
    let flash = Arc::new(Faulty::new(copy_of(&pair.flash), Plan::new(1)));
    let hybrid = pair.with_flash(flash.clone()).asleep();
    let calls = || [flash.counts().writes, flash.counts().flushes];
    let mut before = calls();
    let mut since = || {
        let now = calls();
        let difference = [now[0] - before[0], now[1] - before[1]];
        before = now;
        difference
    };
    write_block(&hybrid, 1);
    write_block(&hybrid, 2);
    hybrid.flush().expect("it is flushed");
    assert_eq!(since(), [3, 1], "two records, a mark, a flush");
    write_block(&hybrid, 3);
    hybrid.flush().expect("it is flushed");
    assert_eq!(since(), [1, 1], "a record that came after a flush promises itself");
    hybrid.flush().expect("it is flushed");
    assert_eq!(since(), [0, 0], "there is nothing to flush");
    hybrid.write(Lba(80), &fill(9, BLOCK), Durability::Through).expect("to the log");
    assert_eq!(since(), [1, 1], "a record that promises itself, a flush");
}

#[test]
fn who_flushes_in_a_rhythm_pays_for_no_mark_and_what_comes_early_or_late_does() {
    for every in [1, 2, 16] {
        let (_pair, hybrid) = sleeping_pair(DISK);
        let mut number = 0;
        let mut marks_of = |blocks: u64| {
            let used = hybrid.stats().log_used;
            for _ in 0..blocks {
                write_block(&hybrid, number % 20);
                number += 1;
            }
            hybrid.flush().expect("it is flushed");
            (hybrid.stats().log_used.0 - used.0) / SECTOR_BYTES / BLOCK - 2 * blocks
        };
        (0..2).for_each(|_| _ = marks_of(every));
        assert_eq!([marks_of(every), marks_of(every)], [0, 0], "each {every}: as expected");
        assert_eq!(marks_of(every + 1), 1, "each {every}: later than expected");
        assert_eq!(marks_of(every + 2), 1, "each {every}: there is no rhythm");
    }
}

#[test]
fn what_a_rhythm_promised_is_perhaps_lost_like_all_that_a_flush_promised() {
    let (pair, hybrid) = sleeping_pair(DISK);
    for round in 0..3 {
        (0..4).for_each(|number| write_block(&hybrid, 4 * round + number));
        hybrid.flush().expect("it is flushed");
    }
    drop(hybrid);
    // Twelve records, and a mark behind the first four and the second four.
    pair.flip(10 * RECORD + 2 * BLOCK, 20);
    let report = pair.checked();
    assert_eq!((report.damage, report.perhaps_lost.at_risk), (None, vec![range(10 * BLOCK, BLOCK)]));
}

#[test]
fn an_idle_disk_says_by_itself_that_what_was_flushed_is_durable() {
    let pair = Pair::new(DISK);
    let never = SpinDown::parse("never", Costs { break_even: Nanos::from_secs(10) }).expect("it is known");
    let hybrid = pair.kept(by_hand(Algorithm::Whole), never);
    hybrid.sleep().expect("it sleeps");
    (0..3).for_each(|number| write_block(&hybrid, number));
    hybrid.flush().expect("it is flushed");
    // Three records, the mark of the flush, and the one that says that it was answered.
    let noted = || {
        let at = LOG_START.0 + 3 * RECORD + BLOCK;
        let header = Header::decode(&read(&*pair.flash.device, at, BLOCK));
        header.is_ok_and(|header| header.is_mark() && header.marks.certain == RecordNo(4))
    };
    until("it says so", noted);
    drop(hybrid);
    pair.flip(RECORD, 20);
    assert!(matches!(pair.try_open(Options::default()).map(|_| ()), Err(HybridError::Corrupt { .. })));
    assert_eq!(pair.sleeping_disk.disturbed(), 0, "the disk slept");
}

/// Random writes and flushes, a kill, and one flipped bit anywhere in the log. Then each sector reads as it was flushed
/// last or written since; or the opening is refused, or reports that the sector is perhaps lost.
#[test]
fn one_damaged_bit_anywhere_never_loses_what_was_flushed_in_silence() {
    let (seed, rounds) = (fuzz_seed(), fuzz_rounds(300));
    let (mut refused, mut report_text, mut whole) = (0, 0, 0);
    for round in 0..rounds {
        let mut random = StdRng::seed_from_u64(seed ^ round);
        let (pair, hybrid) = sleeping_pair(200 * BLOCK);
        // What each block may read as: what was flushed last, and what was written since.
        let mut allowed: BTreeMap<u64, Vec<u8>> = (0..200).map(|block| (block, vec![0])).collect();
        let keep_last = |allowed: &mut BTreeMap<u64, Vec<u8>>| {
            for values in allowed.values_mut() {
                values.drain(..values.len() - 1);
            }
        };
        for number in 0..random.random_range(1..60_u32) {
            let (block, byte) = (random.random_range(0..200), (number + 1) as u8);
            match random.random_range(0..8) {
                0 => {
                    hybrid.flush().expect("it is flushed");
                    keep_last(&mut allowed);
                }
                1 => {
                    let data = fill(byte, BLOCK);
                    hybrid.write(Lba(block * BLOCK), &data, Durability::Through).expect("to the log");
                    allowed.entry(block).or_default().push(byte);
                    // All before it is durable, too.
                    keep_last(&mut allowed);
                }
                _ => {
                    hybrid.write(Lba(block * BLOCK), &fill(byte, BLOCK), Durability::Cached).expect("to the log");
                    allowed.entry(block).or_default().push(byte);
                }
            }
        }
        let used = hybrid.stats().log_used.0 / SECTOR_BYTES;
        drop(hybrid);
        // The header of the last record is the one that nothing follows.
        let last = last_header(&pair, used);
        if last == 0 {
            continue;
        }
        let sector = random.random_range(0..last);
        pair.flip(sector, random.random_range(0..512));
        let report = pair.checked();
        let Ok(hybrid) = pair.try_open(by_hand(Algorithm::Whole)) else {
            refused += 1;
            assert!(report.damage.is_some(), "seed {seed}, round {round}");
            continue;
        };
        let lost = hybrid.perhaps_lost().clone();
        for (block, values) in &allowed {
            let found = read(&hybrid, block * BLOCK, BLOCK);
            let is_allowed = values.iter().any(|value| found == fill(*value, BLOCK));
            let is_reported =
                lost.unknown_records > 0 || lost.at_risk.iter().any(|lost| lost.overlaps(range(block * BLOCK, BLOCK)));
            assert!(is_allowed || is_reported, "seed {seed}, round {round}: block {block}, bit in sector {sector}");
        }
        *(if lost.is_empty() { &mut whole } else { &mut report_text }) += 1;
        drop(hybrid);
        let again = pair.open(by_hand(Algorithm::Whole));
        assert!(again.perhaps_lost().is_empty(), "seed {seed}, round {round}: it is reported once");
        again.dissolve().expect("the log can be drained");
    }
    println!("seed {seed}: {refused} refused, {report_text} reported, {whole} whole");
    assert!(rounds < 100 || refused > 0 && report_text > 0 && whole > 0);
}

/// Where the last header of a log is that begins at its start.
fn last_header(pair: &Pair, used: u64) -> u64 {
    let headers = (0..used).step_by(BLOCK as usize).filter(|sector| {
        Header::decode(&read(&*pair.flash.device, LOG_START.0 + sector, BLOCK))
            .is_ok_and(|header| header.at.0 == *sector)
    });
    headers.last().unwrap_or(0)
}

/// Zeroes and marks are records of one block. One of them may be the last record before the log's end, and one the
/// first behind it.
#[test]
fn damaged_records_of_one_block_on_both_sides_of_the_logs_end_are_mended() {
    const LOG: u64 = LEAST_LOG / BLOCK;
    for before_end in 1..5 {
        let pair = Pair::new(DISK);
        let hybrid = pair.open(by_hand(Algorithm::Whole));
        hybrid.write(Lba(0), &fill(1, DISK), Durability::Cached).expect("to the disk");
        hybrid.sleep().expect("it sleeps");
        // All but a few blocks are written, and free again.
        let mut left = LOG - before_end;
        while left > 0 {
            let blocks = left.min(200);
            let blocks = if left - blocks == 1 { blocks - 1 } else { blocks };
            hybrid.write(Lba(0), &fill(1, (blocks - 1) * BLOCK), Durability::Cached).expect("to the log");
            hybrid.drain().expect("it is drained");
            hybrid.sleep().expect("it sleeps");
            left -= blocks;
        }
        let zeroed = |number: u64| range(number * 2 * BLOCK, BLOCK);
        for number in 0..8 {
            hybrid.write_zeroes(zeroed(number), Zeroes::Keep, Durability::Cached).expect("to the log");
        }
        hybrid.flush().expect("it is flushed");
        let headers = headers(&pair);
        assert_eq!((headers.len(), headers[before_end as usize]), (9, 0), "{headers:?}");
        drop(hybrid);
        // Any run of damaged headers in front of the mark that promised them.
        for (first, last) in (0..8).flat_map(|first| (first..8).map(move |last| (first, last))) {
            let pair = pair.copy();
            headers[first..=last].iter().for_each(|at| pair.flip(*at, 20));
            let label = format!("{before_end} before the end, headers {first} to {last}");
            let hybrid = pair.try_open(by_hand(Algorithm::Whole)).unwrap_or_else(|error| panic!("{label}: {error}"));
            let lost = hybrid.perhaps_lost().clone();
            assert_eq!(
                (lost.unknown_records, lost.at_risk),
                ((last - first) as u64, vec![zeroed(last as u64)]),
                "{label}"
            );
            for number in 0..8 {
                let value = u8::from((first..=last).contains(&(number as usize)));
                assert!(read(&hybrid, zeroed(number).start.0, BLOCK) == fill(value, BLOCK), "{label}: {number}");
            }
            drop(hybrid);
            let hybrid = pair.open(by_hand(Algorithm::Whole));
            assert!(hybrid.perhaps_lost().is_empty(), "{label}: it is reported once");
            hybrid.dissolve().expect("the log continues behind it");
        }
    }
}

/// Where the headers of the log are, in the order of their numbers, from the tail on.
fn headers(pair: &Pair) -> Vec<u64> {
    let tail = read_superblock(&pair.flash).expect("it is one").tail;
    let mut found: Vec<_> = (0..LEAST_LOG)
        .step_by(BLOCK as usize)
        .filter_map(|at| Some((Header::decode(&read(&*pair.flash.device, LOG_START.0 + at, BLOCK)).ok()?, at)))
        .filter(|(header, at)| header.at >= tail && header.at.0 % LEAST_LOG == *at)
        .map(|(header, at)| (header.sequence, at))
        .collect();
    found.sort_unstable();
    found.into_iter().map(|(_, at)| at).collect()
}

/// Every other record is damaged, and no header says more than that it was promised.
#[test]
fn a_log_full_of_damage_is_read_a_few_times_and_not_once_for_each_record() {
    let flash = 40_000 * RECORD;
    let pair = Pair::created(Memory::new(sectors(DISK + TAG_SECTORS)), Arc::new(flash_of(flash)));
    let hybrid = pair.asleep();
    (0..39_000).for_each(|number| write_block(&hybrid, number % 400));
    hybrid.flush().expect("it is flushed");
    drop(hybrid);
    (1..39_000).step_by(2).for_each(|number| pair.flip(number * RECORD, 20));
    let counted = Arc::new(Faulty::new(copy_of(&pair.flash), Plan::new(1)));
    let report = check(&pair.disk, &half("flash", counted.clone())).expect("it is a pair");
    assert_eq!((report.damage, report.perhaps_lost.unknown_records), (None, 0));
    assert_eq!(report.perhaps_lost.at_risk.len(), 200, "what is newest in every other block");
    // Once for each record it would be tens of thousands.
    assert!(counted.counts().reads < 1000, "{} reads", counted.counts().reads);
}
