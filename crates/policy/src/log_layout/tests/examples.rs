//! The rules of the paper, one at a time.

use umbrella_units::BlockNo;

use super::super::*;
use super::driver::{Driver, settings};

const SHAPE: Shape = Shape { segments: 36, segment_blocks: 16 };

fn three_regions() -> Driver {
    Driver::new(settings(SHAPE, "r_lfs:regions=3", Victim::Greedy, false), 300)
}

fn stream_of(driver: &mut Driver, block: u64) -> u8 {
    let entry = driver.map.get(BlockNo(block)).unwrap().unwrap();
    driver.layout.table()[SHAPE.segment(entry.place).0 as usize].stream.0
}

#[test]
fn the_hottest_region_is_in_the_middle_and_each_colder_one_on_both_sides_of_it() {
    let driver = three_regions();
    let regions: Vec<usize> = (0..36).map(|number| driver.layout.region(SegmentNo(number))).collect();
    let expected: Vec<usize> = [[0; 6], [1; 6], [2; 6], [2; 6], [1; 6], [0; 6]].concat();
    assert_eq!(regions, expected);
}

#[test]
fn an_update_promotes_a_block_one_region_towards_the_middle() {
    let mut driver = three_regions();
    let mut seen = Vec::new();
    for _ in 0..4 {
        driver.write(BlockNo(7));
        seen.push(stream_of(&mut driver, 7));
    }
    assert_eq!(seen, [0, 1, 2, 2]);
}

#[test]
fn a_block_lies_in_the_region_of_its_stream() {
    let mut driver = three_regions();
    driver.write(BlockNo(1));
    driver.write(BlockNo(1));
    let entry = driver.map.get(BlockNo(1)).unwrap().unwrap();
    assert_eq!(driver.layout.region(SHAPE.segment(entry.place)), 1);
}

#[test]
fn cleaning_demotes_a_live_block_one_region_outwards() {
    let mut driver = three_regions();
    for _ in 0..3 {
        (0..16).for_each(|block| driver.write(BlockNo(block)));
    }
    assert_eq!(stream_of(&mut driver, 3), 2);
    let entry = driver.map.get(BlockNo(3)).unwrap().unwrap();
    let put = driver.layout.copy(entry, None).unwrap();
    assert_eq!((put.stream, driver.layout.region(SHAPE.segment(put.place))), (Stream(1), 1));
}

#[test]
fn a_region_that_is_full_borrows_from_the_one_that_has_most() {
    let mut driver = three_regions();
    (0..220).for_each(|block| driver.write(BlockNo(block)));
    let guests = driver.layout.table().iter().enumerate().filter(|(number, segment)| {
        segment.state == State::Full
            && segment.stream == Stream(0)
            && driver.layout.region(SegmentNo(*number as u32)) != 0
    });
    assert!(guests.count() >= 1, "220 blocks are more than the 12 segments of the outer region");
    driver.check();
}

#[test]
fn what_is_written_in_a_row_lies_in_a_row_though_it_is_borrowed() {
    // 288 segments: regions of 96, half on either side; strips of 18.
    let shape = Shape { segments: 288, ..SHAPE };
    let mut driver = Driver::new(settings(shape, "r_lfs:regions=3", Victim::Greedy, false), 4000);
    (0..3600).for_each(|block| driver.write(BlockNo(block)));
    let place = |block| driver.map.get(BlockNo(block)).unwrap().unwrap().place;
    let mut order: Vec<u32> = (0..3600).map(place).map(|place| shape.segment(place).0).collect();
    order.dedup();
    let jumps = order.windows(2).filter(|pair| pair[1] != pair[0] + 1).count();
    assert!(jumps <= 12, "{jumps} jumps: {order:?}");
    let of_second = order.iter().filter(|segment| driver.layout.region(SegmentNo(**segment)) == 1).count();
    assert!(of_second > 30, "the region next to it lends first: {order:?}");
}

/// Regions of 12 segments: all of the middle two are full of live data, `guests` of them of the outer region's, whose
/// own segments are free.
fn with_guests(guests: &[u32], free_outside: u32) -> Layout {
    let table = (0..36).map(|number: u32| {
        let outside = !(6..30).contains(&number);
        let region = if outside { 0 } else { 1 + u8::from((12..24).contains(&number)) };
        let stream = Stream(if guests.contains(&number) { 0 } else { region });
        let free = outside && number < free_outside;
        let live = if free { 0 } else { 16 };
        Segment { state: if free { State::Free } else { State::Full }, stream, live, ..Segment::FREE }
    });
    let settings = settings(SHAPE, "r_lfs:regions=3", Victim::Greedy, false);
    Layout::restore(Settings { low: 9, ..settings }, table.collect(), &[], Clock(100))
}

#[test]
fn guests_go_home_when_the_lender_is_short_and_their_region_has_room_again() {
    assert_eq!(with_guests(&[8], 36).victim(CleaningGoal::Due), Some(SegmentNo(8)));
    assert_eq!(with_guests(&[14, 27], 36).victim(CleaningGoal::Due), Some(SegmentNo(27)));
}

#[test]
fn victims_that_are_read_at_once_are_those_that_would_be_cleaned_one_after_the_other() {
    let layout = with_guests(&[14, 27], 36);
    assert_eq!(layout.victims(CleaningGoal::Due, 0), []);
    assert_eq!(layout.victims(CleaningGoal::Due, 1), [layout.victim(CleaningGoal::Due).unwrap()]);
    assert_eq!(layout.victims(CleaningGoal::Due, 8), [SegmentNo(27), SegmentNo(14)], "and no segment twice");
}

#[test]
fn a_region_borrows_rather_than_clean_what_is_much_fuller_than_the_emptiest_segment_elsewhere() {
    // All segments of the outer region are full to 12 of 16, except one that is full to 5. In the middle lies one with
    // `live` live blocks.
    let with_emptiest = |live| {
        let table = (0..36).map(|number: u32| {
            let outside = !(6..30).contains(&number);
            let full = Segment { state: State::Full, live: 12, ..Segment::FREE };
            match number {
                18 => Segment { live, stream: Stream(2), ..full },
                2 => Segment { live: 5, ..full },
                _ if outside => full,
                _ => Segment::FREE,
            }
        });
        let settings = settings(SHAPE, "r_lfs:regions=3", Victim::Greedy, false);
        Layout::restore(Settings { low: 9, ..settings }, table.collect(), &[], Clock(100))
    };
    assert_eq!(with_emptiest(1).victim(CleaningGoal::Due), None);
    assert_eq!(with_emptiest(4).victim(CleaningGoal::Due), Some(SegmentNo(2)));
}

#[test]
fn guests_stay_while_their_own_region_is_short() {
    assert_eq!(with_guests(&[8], 4).victim(CleaningGoal::Due), None);
}

#[test]
fn greedy_takes_the_emptiest_and_cost_benefit_prefers_the_old() {
    let old = Segment {
        state: State::Full,
        stream: Stream(0),
        live: 12,
        youngest: Clock(10),
        opened: Clock(0),
        fresh: false,
    };
    let young = Segment { live: 8, youngest: Clock(990), ..old };
    let score = |victim: Victim, segment: &Segment| victim.score(segment, 16, Clock(1000));
    assert!(score(Victim::Greedy, &young) > score(Victim::Greedy, &old));
    assert!(score(Victim::CostBenefit, &old) > score(Victim::CostBenefit, &young));
}

#[test]
fn a_segment_that_recovery_would_read_is_not_free_before_a_checkpoint() {
    let mut driver = Driver::new(settings(SHAPE, "sepgc", Victim::Greedy, true), 200);
    (0..14).for_each(|_| (0..14).for_each(|block| driver.write(BlockNo(block))));
    driver.sync();
    assert!(driver.layout.waiting().1 > 0, "{:?}", driver.layout.waiting());
    driver.checkpoint();
    assert_eq!(driver.layout.waiting(), (0, 0));
}

#[test]
fn a_stamp_gives_its_clock_back_to_the_unit() {
    let stamps = Stamps::of(Shape { segments: 1 << 20, segment_blocks: 512 });
    for clock in [0, 1, 1 << 20, 987_654_321] {
        let at = stamps.clock(stamps.stamp(Clock(clock)), Clock(clock + 5_000_000));
        assert!(at.0 <= clock && clock - at.0 < 512, "{clock} became {}", at.0);
    }
}

#[test]
fn a_map_without_memory_asks_for_its_pages_and_gives_them_up_again() {
    let mut map = LogicalMap::absent(2000, |page| page.0 == 2);
    assert_eq!(map.get(BlockNo(1024)), Err(Absent(MapPage(2))));
    assert_eq!(map.get(BlockNo(3)), Ok(None));
    let entry = MapEntry { place: LogBlock(77), stamp: Stamp(5) };
    let mut entries = [0; PAGE_ENTRIES];
    entries[1] = MapEntry::pack(Some(entry));
    map.install(MapPage(2), &entries);
    assert_eq!(map.get(BlockNo(1025)), Ok(Some(entry)));
    map.evict(0, Some(MapPage(2)));
    assert_eq!(map.present(), 1, "it is needed");
    map.evict(0, None);
    assert_eq!(map.get(BlockNo(1025)), Err(Absent(MapPage(2))));
    map.install(MapPage(2), &entries);
    map.set(BlockNo(1025), None).unwrap();
    map.evict(0, None);
    assert_eq!(map.present(), 1, "a changed page stays");
    assert_eq!(map.take_dirty(), [MapPage(2)]);
    assert_eq!(map.entries(MapPage(2)), None);
    map.drop_empty(MapPage(2));
    assert_eq!((map.present(), map.get(BlockNo(1025))), (0, Ok(None)));
}

/// The segments in which a stream continues, in a log that is laid out as an organ pipe without borders. The cold
/// stream has filled the first six segments, the hot one the middle third.
fn centred(stream: usize) -> Vec<u32> {
    let table = (0..36).map(|number: u32| {
        let full = |stream| Segment { state: State::Full, stream: Stream(stream), live: 16, ..Segment::FREE };
        match number {
            0..6 => full(0),
            12..24 => full(1),
            _ => Segment::FREE,
        }
    });
    let settings = settings(SHAPE, "organ:levels=2", Victim::Greedy, false);
    let mut layout = Layout::restore(settings, table.collect(), &[], Clock(100));
    layout.checkpoint();
    let head = layout.heads().nth(stream).unwrap();
    head.open.map(|(segment, _)| segment.0).into_iter().chain(head.next.map(|segment| segment.0)).collect()
}

#[test]
fn without_borders_a_stream_goes_round_in_its_part_of_the_disk() {
    // Half of the disk is used, so the parts are twice as wide as what is in them: the hot one reaches from 6 to 29.
    assert_eq!(centred(1), [6, 7]);
    assert_eq!(centred(0), [30, 31]);
}

/// A log of 36 segments whose first `full` segments are cold, and where the next cold blocks go.
fn cold_goes_on(scheme: &str, full: u32) -> u32 {
    let segment = |number: u32| match number {
        number if number < full => Segment { state: State::Full, live: 16, ..Segment::FREE },
        _ => Segment::FREE,
    };
    let settings = settings(SHAPE, scheme, Victim::CostBenefit, false);
    let mut layout = Layout::restore(settings, (0..36).map(segment).collect(), &[], Clock(100));
    layout.checkpoint();
    layout.heads().next().and_then(|head| head.open).map_or(u32::MAX, |(segment, _)| segment.0)
}

#[test]
fn cold_data_keep_out_of_the_centre_as_long_as_there_is_room_elsewhere() {
    assert_eq!(cold_goes_on("organ:levels=2", 12), 12);
    // A half of 36 segments is kept: 9 to 26.
    assert_eq!(cold_goes_on("organ:levels=2,centre=50", 12), 27);
}

/// The victim of two segments that differ in where they lie and in how many blocks are live: the one at the edge has 4,
/// the other `in_the_middle`. Most others are full, so nothing is free beyond the reserve.
fn victim(choice: Victim, in_the_middle: u32) -> Option<SegmentNo> {
    let table = (0..36).map(|number: u32| match number {
        0..=6 => Segment::FREE,
        8 => Segment { state: State::Full, live: 4, ..Segment::FREE },
        18 => Segment { state: State::Full, live: in_the_middle, ..Segment::FREE },
        28..36 => Segment { state: State::Full, live: 16, ..Segment::FREE },
        _ => Segment { state: State::Full, live: 15, ..Segment::FREE },
    });
    let settings = settings(SHAPE, "organ:levels=2", choice, false);
    Layout::restore(settings, table.collect(), &[], Clock(100)).victim(CleaningGoal::Due)
}

#[test]
fn dead_blocks_are_left_lying_in_the_middle_less_long_than_at_the_edges() {
    assert_eq!(victim(Victim::CostBenefit, 5), Some(SegmentNo(18)), "it is nearer to the middle");
    assert_eq!(victim(Victim::CostBenefit, 12), Some(SegmentNo(8)), "but not for so much more");
    assert_eq!(victim(Victim::Greedy, 5), Some(SegmentNo(8)), "which asks for live blocks only");
}

#[test]
fn a_full_segment_without_anything_live_is_free_after_the_next_checkpoint() {
    let table: Vec<_> = (0..36)
        .map(|number: u32| match number {
            0..6 => Segment { state: State::Full, stream: Stream(0), live: u32::from(number > 0), ..Segment::FREE },
            _ => Segment::FREE,
        })
        .collect();
    let mut layout = Layout::restore(settings(SHAPE, "sepgc", Victim::Greedy, true), table, &[], Clock(100));
    let mark = layout.checkpoint();
    layout.checkpointed(mark);
    assert_eq!(layout.waiting(), (0, 0));
    assert_eq!(layout.table()[0].state, State::Free);
}

#[test]
fn of_the_victims_that_were_read_the_one_that_is_asked_for_is_cleaned_and_else_the_first() {
    let mut driver = three_regions();
    for round in 0..3 {
        (round..250).step_by(round as usize + 1).for_each(|block| driver.write(BlockNo(block)));
    }
    let layout = &driver.layout;
    let victims = layout.victims(CleaningGoal::Ahead, 4);
    let asked = layout.victim(CleaningGoal::Ahead).expect("there is something to clean");
    assert_eq!(victims.first(), Some(&asked));
    let others: Vec<SegmentNo> = victims.iter().rev().copied().filter(|number| *number != asked).collect();
    assert!(others.len() > 1, "{victims:?}");
    let next = |read: &[SegmentNo]| layout.next_of(CleaningGoal::Ahead, read.iter().copied());
    assert_eq!(next(&[others[0], asked]), Some(asked));
    assert_eq!(next(&others), Some(others[0]));
    assert_eq!(next(&[]), None);
}
