//! When a segment is free again, and when a stream may continue: what a crash could bring back is not written over.

use umbrella_units::BlockNo;

use super::super::*;
use super::driver::{Driver, settings};

const SHAPE: Shape = Shape { segments: 36, segment_blocks: 16 };
/// The data of a segment: two chunks, each with a header.
const DATA: u64 = 14;

fn driver() -> Driver {
    Driver::new(settings(SHAPE, "sepgc", Victim::Greedy, true), 200)
}

fn fill_a_segment(driver: &mut Driver) {
    (0..DATA).for_each(|block| driver.write(BlockNo(block)));
}

#[test]
fn a_segment_that_a_checkpoint_covers_is_free_after_a_flush() {
    let mut driver = driver();
    fill_a_segment(&mut driver);
    driver.checkpoint();
    fill_a_segment(&mut driver);
    assert_eq!(driver.layout.waiting(), (1, 0));
    driver.sync();
    assert_eq!(driver.layout.waiting(), (0, 0));
}

#[test]
fn a_segment_that_held_a_page_of_the_map_is_free_only_after_a_checkpoint() {
    let table = (0..36).map(|number: u32| match number {
        0 => Segment { state: State::Full, stream: Stream(2), live: 1, ..Segment::FREE },
        _ => Segment::FREE,
    });
    let settings = settings(SHAPE, "sepgc", Victim::Greedy, true);
    let mut layout = Layout::restore(settings, table.collect(), &[], Clock(100));
    layout.forget_page(SHAPE.place(SegmentNo(0), 1));
    layout.synced(layout.mark());
    assert_eq!((layout.waiting(), layout.table()[0].state), ((0, 1), State::Cleaned), "the last checkpoint names it");
    let mark = layout.checkpoint();
    layout.checkpointed(mark);
    assert_eq!((layout.waiting(), layout.table()[0].state), ((0, 0), State::Free));
}

#[test]
fn what_is_filled_or_cleaned_after_a_checkpoint_began_is_not_free_when_it_is_durable() {
    let mut driver = driver();
    fill_a_segment(&mut driver);
    let mark = driver.layout.checkpoint();
    // The first is cleaned, then the second is filled and cleaned.
    fill_a_segment(&mut driver);
    fill_a_segment(&mut driver);
    driver.layout.checkpointed(mark);
    assert_eq!(driver.layout.waiting(), (1, 1), "what replaced the first may not be durable, the second is in the log");
    driver.sync();
    assert_eq!(driver.layout.waiting(), (0, 1));
}

#[test]
fn a_stream_that_a_checkpoint_gives_a_segment_continues_when_it_is_durable() {
    let settings = settings(SHAPE, "sepgc", Victim::Greedy, true);
    let mut layout = Layout::restore(settings, vec![Segment::FREE; 36], &[], Clock(100));
    assert!(layout.stopped() && layout.admits());
    let mark = layout.checkpoint();
    assert_eq!(
        (layout.write(None, None), layout.ready()),
        (Err(Full), None),
        "recovery would not find what is written"
    );
    assert_eq!(layout.open_chunk(Stream(0)), Err(Full));
    layout.checkpointed(mark);
    assert!(layout.write(None, None).is_ok());
    assert_eq!(layout.ready(), Some(Stream(0)));
}
