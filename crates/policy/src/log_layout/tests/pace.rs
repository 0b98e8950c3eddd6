//! When a store cleans and makes checkpoints, and which writes wait.

use proptest::prelude::*;
use umbrella_units::{Nanos, Pages};

use super::super::*;
use super::driver::settings;
use crate::flash_cache::Percent;

const SHAPE: Shape = Shape { segments: 160, segment_blocks: 16 };

const PACE: CleanerPolicy = CleanerPolicy {
    clean_share: Percent(25),
    quiet: Nanos::from_secs(1),
    checkpoint_every: Pages(300),
    map_memory: Pages(80),
    segment: Pages(16),
};

const BUSY: LogUsage = LogUsage { since_checkpoint: Pages(0), changed: Pages(0), since_access: Nanos(0), waiting: 0 };
const QUIET: LogUsage = LogUsage { since_access: Nanos::from_secs(1), ..BUSY };

/// A log with `free` segments that are free or on their way to be filled. The first eight above the reserve are below
/// the low mark.
fn with_free(free: u32) -> Layout {
    let table = (0..SHAPE.segments).map(|number| match number {
        number if number < free => Segment::FREE,
        _ => Segment { state: State::Full, stream: Stream(0), live: 10, ..Segment::FREE },
    });
    let settings = settings(SHAPE, "sepgc", Victim::Greedy, false);
    let mut layout = Layout::restore(Settings { low: 8, high: 16, ..settings }, table.collect(), &[], Clock(100));
    // Now the streams have theirs.
    let mark = layout.checkpoint();
    layout.checkpointed(mark);
    layout
}

/// A log with `free` free segments above the reserve.
fn above_reserve(free: u32) -> Layout {
    let reserve = with_free(0).free().1;
    let layout = with_free(reserve + 4 + free);
    assert_eq!(layout.free(), (reserve + free, reserve), "two streams have two each");
    layout
}

#[test]
fn cleaning_begins_at_the_low_mark_or_when_nobody_asks_for_anything() {
    assert_eq!(PACE.cleans(&above_reserve(9), &BUSY), None);
    assert_eq!(PACE.cleans(&above_reserve(8), &BUSY), Some(CleaningGoal::Due));
    assert_eq!(PACE.cleans(&above_reserve(9), &QUIET), Some(CleaningGoal::Ahead));
    assert_eq!(PACE.cleans(&above_reserve(9), &LogUsage { waiting: 1, ..BUSY }), Some(CleaningGoal::Due));
}

#[test]
fn the_cleaner_has_its_share_at_the_low_mark_and_all_of_the_disk_at_the_reserve() {
    let rest = |free| PACE.rest(&above_reserve(free), &BUSY, Nanos::from_millis(10));
    assert_eq!([8, 0].map(rest), [Nanos::from_millis(30), Nanos(0)]);
    assert_eq!(rest(4), Nanos::from_millis(6), "a share of 5/8");
}

#[test]
fn the_cleaner_does_not_rest_while_nobody_wants_the_disk_or_somebody_waits_for_it() {
    let worked = Nanos::from_millis(10);
    assert_eq!(PACE.rest(&above_reserve(8), &QUIET, worked), Nanos(0));
    assert_eq!(PACE.rest(&above_reserve(8), &LogUsage { waiting: 1, ..BUSY }, worked), Nanos(0));
}

#[test]
fn as_many_victims_are_read_at_once_as_make_four_mebibytes_but_no_more_than_eight() {
    let of = |segment| CleanerPolicy { segment: Pages(segment), ..PACE };
    assert_eq!([16, 128, 512, 1 << 16].map(|segment| of(segment).victims_at_once()), [8, 8, 2, 1]);
    assert_eq!([16, 1 << 16].map(|segment| of(segment).read_at_once()), [Pages(16), Pages(1024)]);
}

#[test]
fn a_write_pays_from_the_low_mark_on_up_to_what_cleaning_for_it_costs() {
    let delay = |free, blocks| PACE.write_delay(&above_reserve(free), BlockCost(1e-3), Pages(blocks));
    assert_eq!([8, 4, 0].map(|free| delay(free, 2)), [Nanos(0), Nanos::from_millis(1), Nanos::from_millis(2)]);
    assert_eq!(delay(0, 1_000_000), Nanos::from_millis(100), "however much it writes");
}

#[test]
fn a_checkpoint_is_due_by_the_log_since_the_last_one_and_by_what_of_the_map_is_changed() {
    let layout = above_reserve(9);
    let due = |since, changed| {
        let standing = LogUsage { since_checkpoint: Pages(since), changed: Pages(changed), ..BUSY };
        PACE.checkpoint_is_due(&layout, &standing)
    };
    assert_eq!([(299, 39), (300, 0), (0, 40)].map(|(since, changed)| due(since, changed)), [false, true, true]);
    let seldom = CleanerPolicy { checkpoint_every: Pages(1 << 30), ..PACE };
    let eighth = LogUsage { since_checkpoint: Pages(SHAPE.blocks() / 8), ..BUSY };
    assert!(seldom.checkpoint_is_due(&layout, &eighth), "an eighth of the log is the most");
    let often = CleanerPolicy { checkpoint_every: Pages(1), ..PACE };
    assert!(
        !often.checkpoint_is_due(&layout, &LogUsage { since_checkpoint: Pages(255), ..BUSY }),
        "1 MiB is the least"
    );
}

#[test]
fn a_quiet_store_makes_a_checkpoint_only_if_that_frees_segments() {
    let mut layout = above_reserve(9);
    assert!(!PACE.makes_checkpoint(&layout, &QUIET));
    let full = SegmentNo(SHAPE.segments - 1);
    (0..10).for_each(|_| layout.forget_page(SHAPE.place(full, 0)));
    assert_eq!(layout.waiting(), (0, 1));
    assert!(PACE.makes_checkpoint(&layout, &QUIET) && !PACE.makes_checkpoint(&layout, &BUSY));
}

#[test]
fn the_map_is_cut_down_when_it_is_too_large_and_enough_of_it_can_go() {
    let layout = above_reserve(9);
    let cut_down = |present, changed| PACE.cut_down(&layout, Pages(present), Pages(changed));
    assert_eq!([cut_down(80, 0), cut_down(81, 71), cut_down(81, 70)], [None, None, Some(Pages(70))]);
    let little = CleanerPolicy { map_memory: Pages(1), ..PACE };
    assert_eq!(little.map_pages(&layout), Pages(32), "what cleaning one segment may change fits");
}

#[test]
fn the_map_takes_no_more_than_eight_bytes_for_each_live_block() {
    let shape = Shape { segments: 4096, segment_blocks: 4096 };
    let with_full = |full| {
        let table = (0..shape.segments).map(|number| match number {
            number if number < full => Segment { state: State::Full, live: 4000, ..Segment::FREE },
            _ => Segment::FREE,
        });
        Layout::restore(settings(shape, "sepgc", Victim::Greedy, false), table.collect(), &[], Clock(100))
    };
    let pace = CleanerPolicy { map_memory: Pages(1 << 16), ..PACE };
    let bytes_a_block = |layout: &Layout| (pace.map_pages(layout).0 * 4096) as f64 / layout.live().0 as f64;
    let mut layout = with_full(2048);
    assert!((8.0..8.001).contains(&bytes_a_block(&layout)), "{}", bytes_a_block(&layout));
    for slot in 0..3000 {
        layout.forget(shape.place(SegmentNo(5), slot));
    }
    assert_eq!(layout.live(), Pages(2048 * 4000 - 3000));
    assert!((8.0..8.001).contains(&bytes_a_block(&layout)), "{}", bytes_a_block(&layout));
    assert_eq!(pace.map_pages(&with_full(10)), Pages(4096), "16 MiB are not asked about");
    let little = CleanerPolicy { map_memory: Pages(5000), ..PACE };
    assert_eq!(little.map_pages(&layout), Pages(5000), "what the user allows is the most");
}

#[test]
fn the_cost_of_cleaning_follows_what_was_seen_lately() {
    let cost = (0..50).fold(BlockCost(1.0), |cost, _| cost.after(Nanos::from_millis(20), Pages(10)));
    assert!((cost.0 - 2e-3).abs() < 1e-4, "{cost:?}");
    assert!(cost.after(Nanos::from_secs(1), Pages(0)).0.is_finite());
}

proptest! {
    #[test]
    fn the_fuller_the_log_the_less_the_cleaner_rests_and_the_longer_a_write_waits(
        free in 0_u32..30, worked in 0_u64..1 << 40, cost in 0.0..10.0, blocks in 0_u64..1 << 20, share in 0_u8..=255,
    ) {
        let pace = CleanerPolicy { clean_share: Percent(share), ..PACE };
        let (less, more) = (above_reserve(free), above_reserve(free + 1));
        let rest = |layout| pace.rest(layout, &BUSY, Nanos(worked));
        prop_assert!(rest(&less) <= rest(&more));
        prop_assert!(rest(&more).0 <= worked * 20);
        let delay = |layout| pace.write_delay(layout, BlockCost(cost), Pages(blocks));
        prop_assert!(delay(&less) >= delay(&more));
        prop_assert!(delay(&less) <= Nanos::from_millis(100));
    }

    #[test]
    fn memory_is_cut_down_to_less_than_is_there_and_to_no_more_than_may_be(
        present in 0_u64..1 << 40, changed in 0_u64..1 << 40, memory in 0_u64..1 << 40,
    ) {
        let pace = CleanerPolicy { map_memory: Pages(memory), ..PACE };
        let layout = above_reserve(9);
        if let Some(keep) = pace.cut_down(&layout, Pages(present), Pages(changed)) {
            prop_assert!(keep < Pages(present) && keep <= pace.map_pages(&layout) && keep.0 > 0);
        }
    }
}

#[test]
fn the_marks_are_a_fiftieth_and_a_twelfth_of_the_segments_within_limits() {
    let of = |segments| {
        let Marks { low, high } = Marks::of(segments);
        (low, high)
    };
    assert_eq!([96, 1200, 12_288, 1 << 20].map(of), [(2, 8), (24, 100), (245, 1024), (256, 1024)]);
    assert_eq!(of(10), (2, 4));
}

#[test]
fn only_what_is_live_is_read_of_a_victim_that_has_little_unless_it_is_read_in_pieces() {
    let of = |segment, live| CleanerPolicy { segment: Pages(segment), ..PACE }.reads_only_live(Pages(live), false);
    assert_eq!(
        [(512, 85), (512, 86), (1024, 10), (2048, 10)].map(|(segment, live)| of(segment, live)),
        [true, false, true, false]
    );
    assert!(!PACE.reads_only_live(Pages(1), true), "it passes under the head all the same");
}
