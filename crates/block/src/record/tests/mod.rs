mod random;

use std::collections::BTreeSet;
use std::sync::Arc;

use umbrella_units::{ByteSize, Lba, SECTOR_BYTES};

use super::*;
use crate::device::Geometry;
use crate::device::{Durability, Zeroes};
use crate::memory::Memory;
use crate::testing::range;

const DISK: DeviceNo = DeviceNo(0);
const FLASH: DeviceNo = DeviceNo(1);
const SECTORS: u64 = 16;

/// One letter for each sector, `.` for zeroes.
type Letters = String;

/// A recording made by hand.
#[derive(Default)]
struct RecordedWrites(Recording);

impl RecordedWrites {
    fn begin(&mut self, device: DeviceNo, at: u64, letters: &str, durability: Durability) -> ChangeNo {
        let data = letters.bytes().flat_map(|letter| [letter; SECTOR_BYTES as usize]).collect();
        self.0.begin(device, Action::Write { at: Lba(at), data, durability })
    }

    fn end(&mut self, change: ChangeNo) {
        self.0.end(change, Outcome::Done);
    }

    fn write(&mut self, at: u64, letters: &str) {
        let change = self.begin(DISK, at, letters, Durability::Cached);
        self.end(change);
    }

    fn write_through(&mut self, at: u64, letters: &str) {
        let change = self.begin(DISK, at, letters, Durability::Through);
        self.end(change);
    }

    fn begin_flush(&mut self, device: DeviceNo) -> ChangeNo {
        self.0.begin(device, Action::Flush)
    }

    fn flush(&mut self) {
        let flush = self.begin_flush(DISK);
        self.end(flush);
    }

    fn discard(&mut self, at: u64, sectors: u64) {
        let discard = self.0.begin(DISK, Action::Discard { range: range(at, sectors) });
        self.end(discard);
    }

    /// The states of both devices at the end, in the order in which they were made.
    fn states(&self, bounds: Bounds) -> Vec<(Letters, Letters)> {
        states_of(&self.0, bounds)
    }

    /// The states of the disk's first sectors at the end, when no change is cut.
    fn whole(&self, sectors: usize) -> BTreeSet<Letters> {
        self.of_disk(sectors, Bounds { torn: 0, sampled: 0, ..Bounds::default() })
    }

    fn of_disk(&self, sectors: usize, bounds: Bounds) -> BTreeSet<Letters> {
        let states = self.states(bounds);
        let all = states.len();
        let set: BTreeSet<Letters> = states.into_iter().map(|(disk, _)| disk[..sectors].to_owned()).collect();
        assert_eq!(set.len(), all, "a state was made twice");
        set
    }
}

fn states_of(recording: &Recording, bounds: Bounds) -> Vec<(Letters, Letters)> {
    let mut walk = CrashStates::new(recording.clone(), [(DISK, empty()), (FLASH, empty())], bounds);
    while walk.advance().expect("memory does not fail") != Step::End {}
    let states = walk.states().map(|state| {
        let state = state.expect("memory does not fail");
        let [disk, flash] = &state.devices[..] else { panic!("two devices") };
        (letters(disk), letters(flash))
    });
    states.collect()
}

fn empty() -> Arc<dyn BlockDevice> {
    Arc::new(Memory::new(ByteSize(SECTORS * SECTOR_BYTES)))
}

fn letters(device: &dyn BlockDevice) -> Letters {
    let mut bytes = vec![1; device.geometry().size().0 as usize];
    device.read(Lba(0), &mut bytes).expect("memory does not fail");
    let letter = |sector: &[u8]| {
        assert!(sector.iter().all(|byte| *byte == sector[0]), "a sector is torn");
        if sector[0] == 0 { '.' } else { char::from(sector[0]) }
    };
    bytes.chunks(SECTOR_BYTES as usize).map(letter).collect()
}

fn set(letters: &[&str]) -> BTreeSet<Letters> {
    letters.iter().map(|&letters| letters.to_owned()).collect()
}

#[test]
fn every_subset_of_writes_that_were_not_flushed_may_be_there() {
    let mut recorded = RecordedWrites::default();
    for (at, letter) in [(0, "a"), (2, "b"), (4, "c")] {
        recorded.write(at, letter);
    }
    let expected = set(&["......", "a.....", "..b...", "....c.", "a.b...", "a...c.", "..b.c.", "a.b.c."]);
    assert_eq!(recorded.whole(6), expected);
}

#[test]
fn what_was_flushed_is_in_all_states() {
    let mut recorded = RecordedWrites::default();
    recorded.write(0, "ab");
    recorded.flush();
    recorded.write(1, "c");
    assert_eq!(recorded.whole(3), set(&["ab.", "ac."]));
}

#[test]
fn a_flush_covers_what_had_ended_when_it_began_and_no_more() {
    let mut recorded = RecordedWrites::default();
    let slow = recorded.begin(DISK, 0, "a", Durability::Cached);
    recorded.write(1, "b");
    let flush = recorded.begin_flush(DISK);
    recorded.end(slow);
    recorded.write(2, "c");
    recorded.end(flush);
    assert_eq!(recorded.whole(3), set(&[".b.", "ab.", ".bc", "abc"]));
}

#[test]
fn a_flush_that_has_not_ended_or_failed_covers_nothing() {
    let mut recorded = RecordedWrites::default();
    recorded.write(0, "a");
    let flush = recorded.begin_flush(DISK);
    assert_eq!(recorded.whole(1), set(&[".", "a"]));
    recorded.0.end(flush, Outcome::Failed);
    assert_eq!(recorded.whole(1), set(&[".", "a"]));
    recorded.flush();
    assert_eq!(recorded.whole(1), set(&["a"]));
}

#[test]
fn a_flush_of_one_device_says_nothing_of_the_other() {
    let mut recorded = RecordedWrites::default();
    recorded.write(0, "a");
    let write = recorded.begin(FLASH, 0, "b", Durability::Cached);
    recorded.end(write);
    let flush = recorded.begin_flush(FLASH);
    recorded.end(flush);
    let rest = ".".repeat(15);
    let states: BTreeSet<_> = recorded.states(Bounds::default()).into_iter().collect();
    let flash = format!("b{rest}");
    assert_eq!(states, BTreeSet::from([(format!(".{rest}"), flash.clone()), (format!("a{rest}"), flash)]));
}

#[test]
fn devices_lose_their_writes_independently() {
    let mut recorded = RecordedWrites::default();
    recorded.write(0, "a");
    let write = recorded.begin(FLASH, 0, "b", Durability::Cached);
    recorded.end(write);
    assert_eq!(recorded.states(Bounds::default()).len(), 4);
}

#[test]
fn a_write_through_is_durable_alone() {
    let mut recorded = RecordedWrites::default();
    recorded.write(0, "a");
    recorded.write_through(2, "b");
    assert_eq!(recorded.whole(3), set(&["..b", "a.b"]));
}

#[test]
fn a_write_through_that_has_not_returned_may_be_missing() {
    let mut recorded = RecordedWrites::default();
    recorded.begin(DISK, 0, "a", Durability::Through);
    assert_eq!(recorded.whole(1), set(&[".", "a"]));
}

#[test]
fn an_older_write_does_not_come_back_over_a_durable_one() {
    let mut recorded = RecordedWrites::default();
    recorded.write(0, "aaa");
    recorded.write_through(1, "b");
    assert_eq!(recorded.whole(3), set(&[".b.", "aba"]));
}

#[test]
fn overlapping_writes_land_in_either_order() {
    let mut recorded = RecordedWrites::default();
    recorded.write(0, "aa");
    recorded.write(1, "bb");
    assert_eq!(recorded.whole(3), set(&["...", "aa.", ".bb", "abb", "aab"]));
}

#[test]
fn three_overlapping_writes_land_in_every_order_that_can_be_told() {
    let mut recorded = RecordedWrites::default();
    recorded.write(0, "aaa");
    recorded.write(1, "bbb");
    recorded.write(2, "ccc");
    let mut expected = set(&["......", "aaa...", ".bbb..", "..ccc."]);
    expected.extend(set(&["abbb..", "aaab..", ".bccc.", ".bbbc.", "aaccc.", "aaacc."]));
    expected.extend(set(&["abccc.", "abbbc.", "aaabc."]));
    assert_eq!(recorded.whole(6), expected);
}

#[test]
fn writes_under_way_at_the_same_time_stay_in_question_when_both_are_durable() {
    let mut recorded = RecordedWrites::default();
    let one = recorded.begin(DISK, 0, "aa", Durability::Through);
    let other = recorded.begin(DISK, 1, "bb", Durability::Through);
    recorded.end(one);
    recorded.end(other);
    assert_eq!(recorded.whole(3), set(&["aab", "abb"]));
    recorded.write_through(1, "c");
    assert_eq!(recorded.whole(3), set(&["acb"]));
}

#[test]
fn a_write_is_torn_at_each_border_and_never_inside_a_sector() {
    let mut recorded = RecordedWrites::default();
    recorded.write(0, "abcd");
    let bounds = Bounds { sampled: 0, ..Bounds::default() };
    let expected = set(&["....", "abcd", "a...", "ab..", "abc.", ".bcd", "..cd", "...d"]);
    assert_eq!(recorded.of_disk(4, bounds), expected);
}

#[test]
fn one_write_is_torn_with_any_of_the_others() {
    let mut recorded = RecordedWrites::default();
    recorded.write(0, "ab");
    recorded.write(2, "cd");
    let bounds = Bounds { sampled: 0, ..Bounds::default() };
    let expected =
        set(&["....", "ab..", "..cd", "abcd", "a...", ".b..", "a.cd", ".bcd", "..c.", "...d", "abc.", "ab.d"]);
    assert_eq!(recorded.of_disk(4, bounds), expected);
}

#[test]
fn draws_find_every_sector_new_or_old() {
    let mut recorded = RecordedWrites::default();
    recorded.write(0, "abcd");
    let bounds = Bounds { sampled: 1000, ..Bounds::default() };
    assert_eq!(recorded.of_disk(4, bounds).len(), 16);
}

#[test]
fn a_disk_of_large_blocks_does_not_tear_them() {
    struct Blocks(Memory);
    impl BlockDevice for Blocks {
        crate::forward!(0: read, write, flush, discard, write_zeroes);

        fn geometry(&self) -> Geometry {
            Geometry { logical_block: 1024, ..self.0.geometry() }
        }
    }
    let mut recorded = RecordedWrites::default();
    recorded.write(0, "aabbcc");
    let device: Arc<dyn BlockDevice> = Arc::new(Blocks(Memory::new(ByteSize(SECTORS * SECTOR_BYTES))));
    let bounds = Bounds { sampled: 1000, ..Bounds::default() };
    let mut walk = CrashStates::new(recorded.0, [(DISK, device)], bounds);
    while walk.advance().expect("memory does not fail") != Step::End {}
    let states: BTreeSet<Letters> =
        walk.states().map(|state| letters(&state.expect("memory does not fail").devices[0])[..6].to_owned()).collect();
    let expected = ["......", "aa....", "..bb..", "....cc", "aabb..", "..bbcc", "aa..cc", "aabbcc"];
    assert_eq!(states, set(&expected));
}

#[test]
fn a_write_that_failed_may_have_landed_and_no_flush_makes_it_certain() {
    let mut recorded = RecordedWrites::default();
    let write = recorded.begin(DISK, 0, "a", Durability::Through);
    recorded.0.end(write, Outcome::Failed);
    recorded.flush();
    assert_eq!(recorded.whole(1), set(&[".", "a"]));
    recorded.write_through(0, "b");
    assert_eq!(recorded.whole(1), set(&["b"]));
}

#[test]
fn discarded_sectors_hold_what_the_bounds_say() {
    let mut recorded = RecordedWrites::default();
    recorded.write_through(0, "aa");
    recorded.discard(0, 1);
    let bounds = |discarded| Bounds { discarded, torn: 0, sampled: 0, ..Bounds::default() };
    let at_most = set(&["aa", ".a"]);
    assert_eq!(recorded.of_disk(2, bounds(Discarded::Zeroed)), at_most);
    assert_eq!(recorded.of_disk(2, bounds(Discarded::Either)), at_most);
    assert_eq!(recorded.of_disk(2, bounds(Discarded::Kept)), set(&["aa"]));
    recorded.flush();
    assert_eq!(recorded.of_disk(2, bounds(Discarded::Zeroed)), set(&[".a"]));
    assert_eq!(recorded.of_disk(2, bounds(Discarded::Either)), at_most);
    assert_eq!(recorded.of_disk(2, bounds(Discarded::Kept)), set(&["aa"]));
}

#[test]
fn zeroes_are_a_write() {
    let mut recorded = RecordedWrites::default();
    recorded.write_through(0, "aaa");
    let range = range(1, 2);
    let zeroes = recorded.0.begin(DISK, Action::Zeroes { range, durability: Durability::Cached });
    recorded.end(zeroes);
    assert_eq!(recorded.whole(3), set(&["aaa", "a.."]));
    recorded.flush();
    assert_eq!(recorded.whole(3), set(&["a.."]));
}

#[test]
fn beyond_the_bounds_states_are_drawn_and_the_seed_decides_which() {
    let mut recorded = RecordedWrites::default();
    for at in 0..12 {
        recorded.write(at, "xyz");
    }
    let bounds = |seed| Bounds { whole: 3, torn: 40, sampled: 60, seed, ..Bounds::default() };
    let (one, again, other) = (recorded.states(bounds(1)), recorded.states(bounds(1)), recorded.states(bounds(2)));
    assert_eq!(one, again);
    assert_ne!(one, other);
    let structured = recorded.of_disk(16, Bounds { whole: 3, torn: 0, sampled: 0, ..Bounds::default() }).len();
    assert_eq!(one.len(), structured + 100);
}

#[test]
fn a_moment_says_whether_its_states_are_others() {
    let mut recorded = RecordedWrites::default();
    recorded.write(0, "a");
    recorded.flush();
    let mut walk = CrashStates::new(recorded.0, [(DISK, empty())], Bounds::default());
    let mut steps = Vec::new();
    loop {
        let step = walk.advance().expect("memory does not fail");
        steps.push((step, walk.states().len()));
        if step == Step::End {
            break;
        }
    }
    let expected = [(Step::Changed, 2), (Step::Same, 2), (Step::Same, 2), (Step::Changed, 1), (Step::End, 1)];
    assert_eq!(steps, expected);
}

#[test]
fn states_of_an_earlier_moment_keep_their_contents_while_the_walk_continues() {
    let mut recorded = RecordedWrites::default();
    recorded.write(0, "a");
    recorded.write_through(0, "b");
    let mut walk = CrashStates::new(recorded.0, [(DISK, empty())], Bounds::default());
    walk.advance().expect("memory does not fail");
    let early: Vec<CrashState> = walk.states().collect::<Result<_, _>>().expect("memory does not fail");
    while walk.advance().expect("memory does not fail") != Step::End {}
    let seen: BTreeSet<char> = early.iter().filter_map(|state| letters(&state.devices[0]).chars().next()).collect();
    assert_eq!(seen, BTreeSet::from(['.', 'a']));
    assert!(early.iter().any(|state| state.to_string() == "power cut after event 1; device 0, sector 0: change 0"));
}

#[test]
fn a_device_is_checked_against_what_it_may_hold() {
    let mut recorded = RecordedWrites::default();
    recorded.write(0, "ab");
    recorded.flush();
    recorded.write(1, "c");
    let mut medium = Medium::new(DISK, empty(), Discarded::Either);
    medium.advance(&recorded.0, recorded.0.now()).expect("memory does not fail");
    let all = range(0, SECTORS);
    let check = |letters: &str| {
        let bytes: Vec<u8> = letters
            .bytes()
            .flat_map(|letter| [if letter == b'.' { 0 } else { letter }; SECTOR_BYTES as usize])
            .collect();
        let device = Memory::from_bytes(bytes);
        medium.check(&recorded.0, &device, all)
    };
    check("ab..............").expect("the last write may be missing");
    check("ac..............").expect("or be there");
    for (wrong, place) in [("a...............", 1), (".b..............", 0), ("ab...........x..", 13)] {
        match check(wrong) {
            Err(CheckError::Unexpected { sector, .. }) => assert_eq!(sector, Lba(place)),
            other => panic!("{wrong}: {other:?}"),
        }
    }
    let message = check("a...............").expect_err("what was flushed is missing").to_string();
    assert_eq!(
        message,
        "power cut after event 6: sector 1 holds none of the versions that it may: what was there before, change 2"
    );
}

#[test]
fn recorders_share_one_order_and_pass_everything_on() {
    let journal = Journal::new();
    let size = ByteSize(SECTORS * SECTOR_BYTES);
    let disk = Recorder::new(Memory::new(size), DISK, Arc::clone(&journal));
    let flash = Recorder::new(Memory::new(size), FLASH, Arc::clone(&journal));
    disk.write(Lba(0), &[7; 512], Durability::Cached).expect("it exists");
    let between = journal.now();
    flash.write_zeroes(range(3, 2), Zeroes::Keep, Durability::Through).expect("it exists");
    disk.discard(range(5, 1)).expect("it exists");
    disk.flush().expect("memory does not fail");
    disk.write(Lba(SECTORS), &[0; 512], Durability::Cached).expect_err("it is beyond the end");
    assert_eq!(disk.inner().to_bytes()[..512], [7; 512]);
    let recording = journal.recording();
    assert_eq!((between, recording.now()), (CrashPoint(2), CrashPoint(8)));
    let order: Vec<_> = recording
        .changes()
        .iter()
        .map(|change| (change.device, change.action.range(), change.ended.is_some()))
        .collect();
    let expected =
        [(DISK, range(0, 1), true), (FLASH, range(3, 2), true), (DISK, range(5, 1), true), (DISK, range(0, 0), true)];
    assert_eq!(order, expected);
}
