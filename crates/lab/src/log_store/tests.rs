//! Tests of the simulated store: counts that can be checked by hand, and what must hold of any run.

use std::sync::Arc;

use umbrella_policy::log_layout::{Clock, Settings, Shape, Victim, schemes};
use umbrella_units::{BlockNo, Extent, Pages};

use super::foresight::Deaths;
use super::input::{LogInput, Request};
use super::percent::Percent;
use super::setup::LogSetup;
use super::store::Store;
use super::{LogError, LogOutcome};
use crate::experiment::{self, Cell};
use crate::trace::TraceOp;
use crate::workload::Seed;

const DATA: Pages = Pages(4096);

fn ask(op: TraceOp, start: u64, blocks: u64) -> Request {
    Request { op, extent: Extent { start: BlockNo(start), blocks } }
}

fn setup(scheme: &str, utilisation: u32) -> LogSetup {
    LogSetup {
        scheme: scheme.to_owned(),
        victim: Victim::Greedy,
        utilisation: Percent(utilisation),
        segment_blocks: None,
    }
}

fn outcome(input: &LogInput, setup: LogSetup) -> LogOutcome {
    Cell::new(input.clone(), setup).run(&mut |_| true).unwrap().unwrap()
}

/// Eight blocks of data in a log of 20 segments of four blocks.
fn small_store() -> Store<'static> {
    let scheme = setup("r_lfs:regions=1", 50).make_scheme().unwrap();
    let shape = Shape { segments: 20, segment_blocks: 4 };
    let settings = Settings { shape, scheme, victim: Victim::Greedy, chunk: None, map: false, low: 2, high: 2 };
    let mut store = Store::new(settings, Pages(8), None);
    store.fill((0..8).map(BlockNo)).unwrap();
    store
}

#[test]
fn distances_are_from_the_end_of_a_request_to_the_start_of_the_next() {
    let mut store = small_store();
    // The data lie at 0 to 7, so the heads are at 8.
    store.serve(&ask(TraceOp::Read, 2, 3)).unwrap();
    assert_eq!((store.outcome().foreground.distance, store.outcome().foreground.requests), (Pages(6), 1));
    store.serve(&ask(TraceOp::Read, 5, 1)).unwrap();
    assert_eq!(store.outcome().foreground.distance, Pages(6));
    store.serve(&ask(TraceOp::Write, 0, 4)).unwrap();
    // From 6 to the third segment at 8.
    assert_eq!((store.outcome().all.distance, store.outcome().all.requests), (Pages(8), 3));
}

#[test]
fn what_is_in_a_write_buffer_is_read_without_the_disk() {
    let mut store = small_store();
    store.serve(&ask(TraceOp::Write, 1, 2)).unwrap();
    store.serve(&ask(TraceOp::Read, 1, 2)).unwrap();
    assert_eq!(store.outcome().foreground.requests, 0);
    store.serve(&ask(TraceOp::Read, 0, 4)).unwrap();
    assert_eq!(store.outcome().foreground.requests, 2, "block 0 and block 3 lie on the disk");
    assert_eq!(store.outcome().read, Pages(6));
}

#[test]
fn a_discarded_block_is_not_read_and_not_live() {
    let mut store = small_store();
    store.serve(&ask(TraceOp::Discard, 0, 8)).unwrap();
    store.serve(&ask(TraceOp::Discard, 0, 8)).unwrap();
    store.serve(&ask(TraceOp::Read, 0, 8)).unwrap();
    let outcome = store.outcome();
    assert_eq!((outcome.discarded, outcome.foreground.requests, outcome.live_share), (Pages(8), 0, 0.0));
}

#[test]
fn data_that_are_rewritten_in_order_are_never_copied() {
    let input = LogInput::new("in order", vec![ask(TraceOp::Write, 0, DATA.0)], DATA).unwrap();
    let outcome = outcome(&input, setup("r_lfs:regions=1", 80));
    assert_eq!((outcome.copied, outcome.cleaned), (Pages(0), 0));
    assert!(outcome.written.0 >= 4 * DATA.0 * 100 / 80, "{outcome:?}");
}

#[test]
fn the_fuller_the_log_the_more_is_copied() {
    let input = LogInput::zipf(0.0, DATA, 10_000, Seed(1)).unwrap();
    let copied = [50, 70, 85].map(|share| {
        let outcome = outcome(&input, setup("sepgc", share));
        assert!((outcome.live_share - f64::from(share) / 100.0).abs() < 0.01, "{outcome:?}");
        outcome.write_amplification
    });
    assert!(copied.is_sorted() && copied[2] > 2.0 * copied[0], "{copied:?}");
}

#[test]
fn discards_spare_copies() {
    let data = Pages(4 * DATA.0);
    let writes = LogInput::zipf(0.0, data, 40_000, Seed(1)).unwrap();
    let requests: Vec<Request> = writes.endless().take(40_000).collect();
    let and_discards = requests.iter().flat_map(|write| {
        let other = (write.extent.start.0 * 7) % data.0;
        [*write, ask(TraceOp::Discard, other, 1)]
    });
    let discards = LogInput::new("discards", and_discards.collect(), data).unwrap();
    // In a log as large.
    let shares = [(&discards, discards.most_live().0 * 85 / data.0), (&writes, 85)];
    let [with, without] = shares.map(|(input, share)| outcome(input, setup("sepgc", share as u32)).copied);
    assert!(with.0 * 2 < without.0, "{with:?} {without:?}");
}

#[test]
fn data_are_what_is_not_discarded_and_the_log_is_as_large_as_the_most_at_a_time() {
    let requests = vec![
        ask(TraceOp::Write, 0, 4000),
        ask(TraceOp::Discard, 4000, 12_000),
        ask(TraceOp::Write, 16_000, 384),
        ask(TraceOp::Write, 4000, 2000),
        ask(TraceOp::Discard, 0, 3600),
    ];
    let blocks = Pages(16_384);
    let input = LogInput::new("files", requests, blocks).unwrap();
    let filled: Vec<u64> = input.filled(Percent(80)).map(|block| block.0).collect();
    assert_eq!(filled, (3600..6000).chain(16_000..16_384).collect::<Vec<_>>());
    // To these 2784 come 3600 before they are discarded again.
    assert_eq!((input.blocks(), input.most_live()), (blocks, Pages(6384)));
}

#[test]
fn a_version_ends_when_its_block_is_written_again_or_discarded() {
    let requests = vec![
        ask(TraceOp::Write, 7, 1),
        ask(TraceOp::Read, 7, 1),
        ask(TraceOp::Write, 7, 2),
        ask(TraceOp::Discard, 8, 1),
    ];
    let input = LogInput::new("deaths", requests, DATA).unwrap();
    let deaths = Deaths::of(&input, Percent(80), Pages(4));
    let overwritten_at = |birth: u64| deaths.overwritten_at(Clock(birth)).map(|clock| clock.0);
    // The data, all but 8, which ends discarded, are born at 0 to 4094; then 7 at 4095 and 4096, 8 at 4097, and 7 once
    // more at 4098.
    assert_eq!([overwritten_at(6), overwritten_at(7), overwritten_at(8)], [None, Some(4095), None]);
    assert_eq!(
        [overwritten_at(4095), overwritten_at(4096), overwritten_at(4097)],
        [Some(4096), Some(4098), Some(4098)]
    );
}

#[test]
fn hot_blocks_take_their_share_and_half_of_the_rest_is_never_written() {
    let input = LogInput::hot_cold((Percent(90), Percent(10)), DATA, 200_000, Percent(50), Seed(3)).unwrap();
    let mut writes = vec![0_u32; DATA.0 as usize];
    let mut reads = writes.clone();
    for request in input.endless().take(input.len()) {
        let counts = if request.op == TraceOp::Write { &mut writes } else { &mut reads };
        counts[request.extent.start.0 as usize] += 1;
    }
    let never = writes.iter().filter(|count| **count == 0).count();
    assert!((1800..1900).contains(&never), "{never} of 4096");
    let mut order: Vec<usize> = (0..writes.len()).collect();
    order.sort_unstable_by_key(|block| std::cmp::Reverse(writes[*block]));
    let hot: u32 = order.iter().take(409).map(|block| writes[*block]).sum();
    let share = f64::from(hot) / f64::from(writes.iter().sum::<u32>());
    assert!((0.88..0.93).contains(&share), "{share}");
    assert!(reads.iter().filter(|count| **count == 0).count() < 400, "read-only blocks are read");
}

#[test]
fn runs_are_the_same_however_many_run_at_a_time() {
    let input = Arc::new(LogInput::zipf(0.9, DATA, 5_000, Seed(2)).unwrap());
    let stores: Vec<LogSetup> = schemes().iter().map(|info| setup(info.name, 70)).collect();
    let cells = Cell::grid(&[input], &stores);
    let [one, two] = [1, 2].map(|threads| experiment::run(&cells, threads, &()).unwrap().unless_failed().unwrap());
    assert_eq!(one, two);
    assert!(one.iter().flatten().all(|outcome| outcome.write_amplification >= 1.0));
}

#[test]
fn what_cannot_be_simulated_says_why() {
    let write = || vec![ask(TraceOp::Write, 0, 1)];
    let error = |input: Result<LogInput, LogError>| input.unwrap_err().to_string();
    assert_eq!(
        error(LogInput::new("few", write(), Pages(300))),
        "few: 300 pages of data are too few for a log (at least 4096)"
    );
    let only_reads = LogInput::new("reads", vec![ask(TraceOp::Read, 0, 9)], DATA);
    assert_eq!(error(only_reads), "reads: nothing is written, so there is nothing to clean");
    assert_eq!(error(LogInput::new("far", vec![ask(TraceOp::Write, 4096, 1)], DATA)).split(':').next(), Some("far"));
    let cell = Cell::new(LogInput::new("full", write(), DATA).unwrap(), setup("sepgc", 100));
    let error = cell.run(&mut |_| true).unwrap_err().to_string();
    assert!(error.starts_with("full: sepgc cannot keep so small a log going at 100% full"), "{error}");
}
