use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use umbrella_units::ByteSize;

use super::*;
use crate::memory::Memory;
use crate::testing::{range, until};

const SECTORS: u64 = 16;

fn disk(plan: Plan) -> Faulty<Memory> {
    Faulty::new(Memory::new(ByteSize(SECTORS * SECTOR_BYTES)), plan)
}

/// Writes a letter to each sector.
fn write(disk: &impl BlockDevice, at: u64, letters: &str) -> Result<(), BlockError> {
    write_as(disk, at, letters, Durability::Cached)
}

fn write_as(disk: &impl BlockDevice, at: u64, letters: &str, durability: Durability) -> Result<(), BlockError> {
    let data: Vec<u8> = letters.bytes().flat_map(|letter| [letter; SECTOR_BYTES as usize]).collect();
    disk.write(Lba(at), &data, durability)
}

/// The letters of some sectors; `.` for zeroes, `?` for a sector that is not of one letter.
fn read(disk: &impl BlockDevice, at: u64, sectors: u64) -> Result<String, BlockError> {
    let mut bytes = vec![1; (sectors * SECTOR_BYTES) as usize];
    disk.read(Lba(at), &mut bytes)?;
    let letter = |sector: &[u8]| match sector {
        [first, rest @ ..] if rest.iter().all(|byte| byte == first) => {
            if *first == 0 {
                '.'
            } else {
                char::from(*first)
            }
        }
        _ => '?',
    };
    Ok(bytes.chunks(SECTOR_BYTES as usize).map(letter).collect())
}

fn first(disk: &impl BlockDevice, sectors: u64) -> String {
    read(disk, 0, sectors).expect("it can be read")
}

fn errno(result: Result<impl Sized, BlockError>) -> Option<Errno> {
    match result {
        Err(BlockError::Io { source, .. }) => source.raw_os_error().map(Errno::from_raw_os_error),
        _ => None,
    }
}

#[test]
fn only_the_calls_that_a_rule_names_fail_and_they_are_counted() {
    let plan = Plan::new(1)
        .rule(Rule::on(Operation::Write, CallFault::Error(Errno::NOSPC)).nth(2))
        .rule(Rule::on(Operation::Read, CallFault::Error(Errno::IO)).within(range(4, 2)))
        .rule(Rule::on(Operation::Discard, CallFault::Error(Errno::OPNOTSUPP)).from_nth(2))
        .rule(Rule::on_any(CallFault::Error(Errno::BUSY)).nth(100));
    let disk = disk(plan);
    write(&disk, 0, "a").expect("the first write");
    assert_eq!(errno(write(&disk, 1, "b")), Some(Errno::NOSPC));
    disk.write_zeroes(range(2, 1), Zeroes::Unmap, Durability::Cached).expect("the third write");
    assert_eq!(first(&disk, 4), "a...");
    assert_eq!(errno(read(&disk, 0, 5)), Some(Errno::IO));
    assert_eq!(errno(read(&disk, 5, 1)), Some(Errno::IO));
    read(&disk, 6, 1).expect("behind the bad sectors");
    disk.discard(range(0, 1)).expect("the first discard");
    assert_eq!(errno(disk.discard(range(0, 1))), Some(Errno::OPNOTSUPP));
    assert_eq!(errno(disk.discard(range(0, 1))), Some(Errno::OPNOTSUPP));
    disk.flush().expect("no rule is for it");
    let counts = Counts { reads: 4, writes: 3, flushes: 1, discards: 3, hanging: 0, fired: vec![1, 2, 2, 0] };
    assert_eq!(disk.counts(), counts);
}

#[test]
fn an_error_says_what_was_asked_and_where() {
    let disk = disk(Plan::new(1).rule(Rule::on(Operation::Write, CallFault::Error(Errno::IO)).first(1)));
    let message = write(&disk, 3, "ab").expect_err("the first write fails").to_string();
    assert!(message.starts_with("faulty disk: write failed at sectors 3 to 4: "), "{message}");
    write(&disk, 3, "ab").expect("the second does not");
}

#[test]
fn one_call_in_so_many_fails_as_the_seed_says() {
    let fails = |seed| -> Vec<bool> {
        let disk = disk(Plan::new(seed).rule(Rule::on(Operation::Read, CallFault::Error(Errno::IO)).one_in(4)));
        (0..400).map(|_| read(&disk, 0, 1).is_err()).collect()
    };
    let failed = fails(1).iter().filter(|failed| **failed).count();
    assert!((50..150).contains(&failed), "{failed} of 400");
    assert_eq!(fails(1), fails(1));
    assert_ne!(fails(1), fails(2));
}

#[test]
fn a_latent_error_lasts_until_the_sectors_are_written_again() {
    let disk = disk(Plan::new(1).rule(Rule::on_read(ReadFault::Latent).within(range(2, 2))));
    assert_eq!(errno(read(&disk, 0, 3)), Some(Errno::IO));
    write(&disk, 2, "a").expect("writing heals");
    assert_eq!(first(&disk, 3), "..a");
    assert_eq!(errno(read(&disk, 0, 4)), Some(Errno::IO));
    disk.write_zeroes(range(3, 1), Zeroes::Keep, Durability::Cached).expect("so do zeroes");
    assert_eq!(first(&disk, 4), "..a.");
    assert_eq!(disk.counts().fired, [2]);
}

#[test]
fn a_write_cut_short_leaves_whole_sectors() {
    let partial = WriteFault::Partial { landed: TornWrite::First(2), answer: Answer::Error(Errno::NOSPC) };
    let disk = disk(Plan::new(1).rule(Rule::on_write(partial).nth(1)));
    assert_eq!(errno(write(&disk, 0, "abcd")), Some(Errno::NOSPC));
    assert_eq!(first(&disk, 4), "ab..");
}

#[test]
fn a_torn_write_leaves_any_of_its_sectors_as_the_seed_says() {
    let torn = |seed, answer| {
        let partial = WriteFault::Partial { landed: TornWrite::Some, answer };
        let disk = disk(Plan::new(seed).rule(Rule::on_write(partial)));
        (write(&disk, 0, "abc").is_ok(), first(&disk, 3))
    };
    assert_eq!(torn(1, Answer::Done), torn(1, Answer::Done));
    assert!(torn(1, Answer::Done).0 && !torn(1, Answer::Error(Errno::IO)).0);
    let seen: BTreeSet<String> = (0..100).map(|seed| torn(seed, Answer::Done).1).collect();
    assert_eq!(seen.len(), 8, "{seen:?}");
}

#[test]
fn a_lost_write_returns_well_and_changes_nothing() {
    let lost = WriteFault::Partial { landed: TornWrite::Nothing, answer: Answer::Done };
    let disk = disk(Plan::new(1).rule(Rule::on_write(lost).within(range(1, 1))));
    write(&disk, 0, "a").expect("outside");
    write(&disk, 1, "b").expect("it says so");
    assert_eq!(first(&disk, 2), "a.");
}

#[test]
fn a_misdirected_write_lands_elsewhere() {
    let disk = disk(Plan::new(1).rule(Rule::on_write(WriteFault::Misdirected { to: Lba(3) }).nth(1)));
    write(&disk, 0, "a").expect("it says so");
    assert_eq!(first(&disk, 4), "...a");
}

#[test]
fn a_misdirected_write_cannot_leave_the_disk() {
    let disk = disk(Plan::new(1).rule(Rule::on_write(WriteFault::Misdirected { to: Lba(u64::MAX) })));
    assert!(matches!(write(&disk, 0, "a"), Err(BlockError::BeyondEnd { .. })));
}

#[test]
fn a_flipped_bit_is_the_same_at_every_read_and_nothing_else_changes() {
    let disk = disk(Plan::new(7).rule(Rule::on_read(ReadFault::BitFlip).within(range(1, 1))));
    let mut one = vec![0; 3 * SECTOR_BYTES as usize];
    let mut other = vec![0; SECTOR_BYTES as usize];
    disk.read(Lba(0), &mut one).expect("it says that all is well");
    disk.read(Lba(1), &mut other).expect("it says that all is well");
    assert_eq!(one.iter().map(|byte| byte.count_ones()).sum::<u32>(), 1);
    assert_eq!(one[SECTOR_BYTES as usize..2 * SECTOR_BYTES as usize], other);
    assert_eq!(disk.inner().to_bytes(), vec![0; (SECTORS * SECTOR_BYTES) as usize], "the medium is as it was");
}

#[test]
fn a_volatile_cache_shows_what_it_holds_and_brings_it_to_the_medium_on_a_flush() {
    let disk = disk(Plan::new(1).volatile());
    write(&disk, 0, "abc").expect("there is power");
    write(&disk, 1, "x").expect("there is power");
    disk.write_zeroes(range(2, 1), Zeroes::Keep, Durability::Cached).expect("there is power");
    assert_eq!(first(&disk, 4), "ax..");
    assert_eq!(first(disk.inner(), 4), "....");
    disk.flush().expect("there is power");
    assert_eq!(first(disk.inner(), 4), "ax..");
    assert_eq!(first(&disk, 4), "ax..");
}

#[test]
fn a_write_through_is_on_the_medium_and_stays_above_what_the_cache_held() {
    let disk = disk(Plan::new(1).volatile());
    write(&disk, 0, "aa").expect("there is power");
    write_as(&disk, 1, "b", Durability::Through).expect("there is power");
    assert_eq!((first(&disk, 2), first(disk.inner(), 2)), ("ab".to_owned(), ".b".to_owned()));
    disk.flush().expect("there is power");
    assert_eq!(first(disk.inner(), 2), "ab");
}

#[test]
fn a_power_cut_loses_what_was_not_flushed_as_planned() {
    let left = |unflushed, seed| {
        let disk = disk(Plan::new(seed).volatile());
        write(&disk, 0, "aaa").expect("there is power");
        disk.flush().expect("there is power");
        write(&disk, 1, "bb").expect("there is power");
        write(&disk, 2, "cc").expect("there is power");
        disk.cut_power(unflushed).expect("memory does not fail");
        assert_eq!(errno(read(&disk, 0, 1)), Some(Errno::NODEV));
        assert_eq!(errno(write(&disk, 0, "x")), Some(Errno::NODEV));
        assert_eq!(errno(disk.flush()), Some(Errno::NODEV));
        assert_eq!(errno(disk.discard(range(0, 1))), Some(Errno::NODEV));
        first(&disk.into_inner(), 5)
    };
    assert_eq!(left(Unflushed::Kept, 1), "abcc.");
    assert_eq!(left(Unflushed::Dropped, 1), "aaa..");
    assert_eq!(left(Unflushed::Torn, 1), left(Unflushed::Torn, 1));
    let seen: BTreeSet<String> = (0..3000).map(|seed| left(Unflushed::Torn, seed)).collect();
    let possible: BTreeSet<String> = ["a", "b"]
        .iter()
        .flat_map(|second| ["a", "b", "c"].map(|third| format!("a{second}{third}")))
        .flat_map(|start| [".", "c"].map(|fourth| format!("{start}{fourth}.")))
        .collect();
    assert_eq!(seen, possible);
}

#[test]
fn a_torn_cut_does_not_bring_back_what_a_write_through_replaced() {
    for seed in 0..100 {
        let disk = disk(Plan::new(seed).volatile());
        write(&disk, 0, "aaa").expect("there is power");
        write_as(&disk, 1, "b", Durability::Through).expect("there is power");
        disk.cut_power(Unflushed::Torn).expect("memory does not fail");
        assert_eq!(read(disk.inner(), 1, 1).expect("it can be read"), "b", "seed {seed}");
    }
}

#[test]
fn a_lost_flush_returns_well_and_its_writes_are_lost_at_the_cut() {
    let disk = disk(Plan::new(1).volatile().rule(Rule::lost_flush().nth(2)));
    write(&disk, 0, "a").expect("there is power");
    disk.flush().expect("a real one");
    write(&disk, 1, "b").expect("there is power");
    disk.flush().expect("it says so");
    assert_eq!(first(&disk, 2), "ab");
    disk.cut_power(Unflushed::Dropped).expect("memory does not fail");
    assert_eq!(first(disk.inner(), 2), "a.");
    assert_eq!(disk.counts().fired, [1]);
}

#[test]
fn a_real_flush_brings_to_the_medium_what_a_lost_one_left() {
    let disk = disk(Plan::new(1).volatile().rule(Rule::lost_flush().nth(1)));
    write(&disk, 0, "a").expect("there is power");
    disk.flush().expect("it says so");
    disk.flush().expect("a real one");
    assert_eq!(first(disk.inner(), 1), "a");
}

#[test]
fn after_a_flush_failed_writes_are_refused_and_reads_continue() {
    let disk = disk(Plan::new(1).volatile().rule(Rule::on(Operation::Flush, CallFault::Error(Errno::IO)).nth(1)));
    write(&disk, 0, "a").expect("there is power");
    assert_eq!(errno(disk.flush()), Some(Errno::IO));
    for refused in [write(&disk, 1, "b"), disk.flush(), disk.discard(range(0, 1))] {
        assert!(matches!(refused, Err(BlockError::Poisoned { operation: Operation::Flush, .. })), "{refused:?}");
    }
    assert_eq!(first(&disk, 2), "a.");
    assert_eq!(first(disk.inner(), 1), ".");
}

#[test]
fn power_is_cut_after_the_call_that_the_plan_names() {
    let cut = CallFault::PowerCut { moment: Moment::After, unflushed: Unflushed::Kept };
    let disk = disk(Plan::new(1).rule(Rule::on_any(cut).nth(3)));
    write(&disk, 0, "a").expect("the first call");
    disk.flush().expect("the second");
    write(&disk, 1, "b").expect("the third still ends well");
    assert_eq!(errno(write(&disk, 2, "c")), Some(Errno::NODEV));
    assert_eq!(first(disk.inner(), 3), "ab.");
}

#[test]
fn power_cut_during_a_write_leaves_some_of_it() {
    let left = |seed, unflushed, plan: Plan| {
        let cut = CallFault::PowerCut { moment: Moment::During, unflushed };
        let disk = disk(plan.rule(Rule::on(Operation::Write, cut).nth(2)));
        write(&disk, 0, "aa").expect("the first write");
        assert_eq!(errno(write(&disk, 1, "bb")), Some(Errno::NODEV), "seed {seed}");
        first(disk.inner(), 3)
    };
    assert_eq!(left(1, Unflushed::Dropped, Plan::new(1)), "aa.");
    assert_eq!(left(1, Unflushed::Kept, Plan::new(1)), "abb");
    assert_eq!(left(1, Unflushed::Dropped, Plan::new(1).volatile()), "...");
    let seen: BTreeSet<String> = (0..100).map(|seed| left(seed, Unflushed::Torn, Plan::new(seed))).collect();
    assert_eq!(seen, BTreeSet::from(["aa.", "ab.", "aab", "abb"].map(str::to_owned)));
}

#[test]
fn power_cut_during_a_flush_leaves_it_undone() {
    let cut = CallFault::PowerCut { moment: Moment::During, unflushed: Unflushed::Dropped };
    let disk = disk(Plan::new(1).volatile().rule(Rule::on(Operation::Flush, cut)));
    write(&disk, 0, "a").expect("there is power");
    assert_eq!(errno(disk.flush()), Some(Errno::NODEV));
    assert_eq!(first(disk.inner(), 1), ".");
}

#[test]
fn a_call_hangs_until_it_is_released_and_others_continue() {
    let disk = disk(Plan::new(1).rule(Rule::on(Operation::Read, CallFault::Hang)));
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| read(&disk, 0, 1));
        until("a call hangs", || disk.counts().hanging == 1);
        write(&disk, 0, "a").expect("writes continue");
        disk.release();
        assert_eq!(reader.join().expect("no panic").expect("it continues"), "a");
    });
    read(&disk, 0, 1).expect("nothing hangs any more");
}

#[test]
fn a_power_cut_ends_calls_that_hang() {
    let disk = disk(Plan::new(1).rule(Rule::on(Operation::Write, CallFault::Hang)));
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| write(&disk, 0, "a"));
        until("a call hangs", || disk.counts().hanging == 1);
        disk.cut_power(Unflushed::Kept).expect("memory does not fail");
        assert_eq!(errno(writer.join().expect("no panic")), Some(Errno::NODEV));
    });
    assert_eq!(first(disk.inner(), 1), ".");
}

#[test]
fn a_delayed_call_takes_at_least_as_long_and_then_meets_the_other_rules() {
    let plan = Plan::new(1)
        .rule(Rule::on_any(CallFault::Delay(Duration::from_millis(20))))
        .rule(Rule::on(Operation::Read, CallFault::Error(Errno::IO)))
        .rule(Rule::on(Operation::Read, CallFault::Error(Errno::BUSY)))
        .rule(Rule::on_any(CallFault::Delay(Duration::from_millis(20))));
    let disk = disk(plan);
    let begin = Instant::now();
    assert_eq!(errno(read(&disk, 0, 1)), Some(Errno::IO));
    assert!(begin.elapsed() >= Duration::from_millis(40));
    assert_eq!(disk.counts().fired, [1, 1, 0, 1]);
}
