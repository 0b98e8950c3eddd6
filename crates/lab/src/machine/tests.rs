use proptest::prelude::*;
use umbrella_model::device::profiles::{Options, profile};
use umbrella_model::scheduler::scheduler;
use umbrella_policy::writeback::{WriteBack, policies};
use umbrella_units::{FileId, PageIndex};

use super::*;
use crate::result::Outcome;
use crate::workload::FileOperation;

/// Steps written down, a list a client.
struct FixedWorkload {
    prepare: std::vec::IntoIter<FileOperation>,
    clients: Vec<std::vec::IntoIter<FileOperation>>,
}

impl Workload for FixedWorkload {
    fn prepare(&mut self) -> Option<FileOperation> {
        self.prepare.next()
    }

    fn clients(&self) -> u32 {
        self.clients.len() as u32
    }

    fn next(&mut self, client: ClientId, _now: Nanos) -> Option<FileOperation> {
        self.clients[client.0 as usize].next()
    }
}

#[derive(Clone)]
struct Scenario {
    policy: &'static str,
    memory_pages: u64,
    staging: bool,
    allocation: Allocation,
    device: bool,
    expire_after: Option<Nanos>,
    read_ahead: u32,
    prepare: Vec<FileOperation>,
    bookkeeping: Bookkeeping,
    ordered_commits: Option<Nanos>,
}

impl Default for Scenario {
    fn default() -> Self {
        Scenario {
            policy: "file",
            memory_pages: 10_000,
            staging: false,
            allocation: Allocation::AtOnce,
            device: false,
            expire_after: PageCacheConfig::default().expire_after,
            read_ahead: Config::default().read_ahead,
            prepare: Vec::new(),
            bookkeeping: Bookkeeping::default(),
            ordered_commits: None,
        }
    }
}

fn setting(policy: &str) -> Setting {
    Setting { policy: policy.to_owned(), ..Setting::default() }
}

fn machine(setup: &Scenario) -> Computer {
    let config = Config {
        cache: PageCacheConfig { pages: setup.memory_pages, expire_after: setup.expire_after, ..Default::default() },
        staging: setup.staging,
        read_ahead: setup.read_ahead,
        allocation: setup.allocation,
        bookkeeping: setup.bookkeeping,
        ordered_commits: setup.ordered_commits,
        ..Config::default()
    };
    let layout = if setup.device { Layout::Device } else { Layout::FileSystem { seed: 1, aged_percent: 0 } };
    let disk = profile("cheetah_10k7").expect("a profile").build(&Options::default());
    let schedule = scheduler("elevator").expect("a scheduler");
    let policy = WriteBack::parse(setup.policy).expect("a policy");
    Computer::new(config, layout, policy, disk, |disk| schedule.build(disk, 128)).expect("a machine")
}

fn run(setup: &Scenario, clients: Vec<Vec<FileOperation>>) -> Outcome {
    let mut script = FixedWorkload {
        prepare: setup.prepare.clone().into_iter(),
        clients: clients.into_iter().map(Vec::into_iter).collect(),
    };
    machine(setup).run(setting(setup.policy), &mut script, &mut |_| true).expect("the run ends")
}

const ROOT: FileId = FileId(1);

fn file(n: u64) -> FileId {
    FileId(n + 10)
}

fn create(n: u64) -> FileOperation {
    FileOperation::Create { file: file(n), dir: ROOT }
}

fn write(n: u64, page: u64, pages: u64) -> FileOperation {
    FileOperation::Write { file: file(n), offset: ByteSize(page * PAGE_BYTES), size: ByteSize(pages * PAGE_BYTES) }
}

fn read(n: u64, page: u64, pages: u64) -> FileOperation {
    FileOperation::Read { file: file(n), offset: ByteSize(page * PAGE_BYTES), size: ByteSize(pages * PAGE_BYTES) }
}

fn think(seconds: u64) -> FileOperation {
    FileOperation::Think { time: Nanos::from_secs(seconds) }
}

fn on_device(page: u64, pages: u64) -> FileOperation {
    FileOperation::Write {
        file: FileId::DEVICE,
        offset: ByteSize(page * PAGE_BYTES),
        size: ByteSize(pages * PAGE_BYTES),
    }
}

#[test]
fn what_stays_below_the_threshold_reaches_the_disk_when_the_run_is_over_and_not_before() {
    let setup = Scenario { device: true, ..Scenario::default() };
    let outcome = run(&setup, vec![vec![on_device(0, 500)]]);
    assert_eq!(outcome.bytes_written, 500 * PAGE_BYTES);
    assert_eq!(outcome.written_because.drained, 500);
    assert!(outcome.time_s < 0.01, "nobody waits for the disk: {}", outcome.time_s);
    assert!(outcome.drained_s > outcome.time_s);
    assert_eq!(
        (outcome.at_finish.bytes_written, outcome.at_finish.windows.over_16()),
        (0, 0),
        "the clients had finished"
    );
}

#[test]
fn the_peak_counts_each_dirty_page_once_and_misses_none() {
    let below = Scenario { device: true, ..Scenario::default() };
    assert_eq!(run(&below, vec![vec![on_device(0, 100), on_device(0, 50)]]).peak_dirty, 100);
    let on_its_way = vec![on_device(0, 100), FileOperation::Fsync { file: FileId::DEVICE }];
    let again = vec![FileOperation::Think { time: Nanos::from_millis(1) }, on_device(0, 100)];
    assert_eq!(run(&below, vec![on_its_way, again]).peak_dirty, 100, "written again while on their way");
}

#[test]
fn above_the_background_threshold_pages_go_and_the_writer_continues() {
    let setup = Scenario { device: true, ..Scenario::default() };
    let outcome = run(&setup, vec![vec![on_device(0, 2000), think(2)]]);
    let threshold = outcome.written_because.threshold;
    assert!(threshold >= 1000, "{:?}", outcome.written_because);
    assert_eq!(
        outcome.at_finish.bytes_written,
        threshold * PAGE_BYTES,
        "what had been written when the client finished"
    );
    assert_eq!(outcome.bytes_written, 2000 * PAGE_BYTES);
    assert!(outcome.throttled_s.abs() < 1e-9);
}

#[test]
fn above_the_foreground_threshold_the_writer_waits() {
    let setup = Scenario { device: true, ..Scenario::default() };
    let steps = (0..20).map(|at| on_device(at * 100_000, 1000)).collect();
    let outcome = run(&setup, vec![steps]);
    assert!(outcome.throttled_s > 0.0);
    assert!(outcome.peak_dirty <= 4100, "{}", outcome.peak_dirty);
    assert_eq!(outcome.bytes_written, 20_000 * PAGE_BYTES);
}

#[test]
fn a_page_that_is_rewritten_goes_to_disk_once() {
    let setup = Scenario { device: true, ..Scenario::default() };
    let outcome = run(&setup, vec![vec![on_device(0, 100); 50]]);
    assert_eq!(outcome.bytes_written, 100 * PAGE_BYTES);
}

#[test]
fn what_is_dirty_for_thirty_seconds_is_written() {
    let setup = Scenario { device: true, ..Scenario::default() };
    let outcome = run(&setup, vec![vec![on_device(0, 100), think(40)]]);
    assert_eq!(outcome.written_because.expired, 100);
    assert_eq!(outcome.written_because.drained, 0);
}

#[test]
fn an_fsync_waits_for_the_file_and_its_inode() {
    let outcome =
        run(&Scenario::default(), vec![vec![create(0), write(0, 0, 64), FileOperation::Fsync { file: file(0) }]]);
    assert!(outcome.written_because.sync >= 65, "{:?}", outcome.written_because);
    assert!(outcome.fsync.max > 1000.0, "a disk takes a while: {} us", outcome.fsync.max);
}

#[test]
fn an_fsync_of_a_page_that_is_on_its_way_and_dirty_again_waits_for_both() {
    let setup = Scenario { device: true, ..Scenario::default() };
    let sync = FileOperation::Fsync { file: FileId::DEVICE };
    let writer = vec![on_device(0, 100), sync, on_device(0, 100), sync];
    let outcome = run(&setup, vec![writer.clone(), writer]);
    assert_eq!(outcome.fsync.count, 4);
    assert_eq!(outcome.written_because.drained, 0, "nothing is left over");
}

#[test]
fn an_fsync_waits_for_pages_that_are_on_their_way_too() {
    let setup = Scenario { device: true, ..Scenario::default() };
    // The first write passes the threshold, so that its pages are under way, far from those of the second.
    let steps = vec![on_device(10_000_000, 1200), on_device(0, 1), FileOperation::Fsync { file: FileId::DEVICE }];
    let outcome = run(&setup, vec![steps]);
    assert!(outcome.written_because.threshold > 0, "{:?}", outcome.written_because);
    assert!(outcome.drained_s - outcome.time_s < 1e-3, "{} then {}", outcome.time_s, outcome.drained_s);
}

#[test]
fn an_fsync_waits_for_what_another_fsync_has_sent_on_its_way() {
    let setup = Scenario { device: true, ..Scenario::default() };
    let sync = FileOperation::Fsync { file: FileId::DEVICE };
    let scattered = (0..50).map(|at| on_device(at * 300_000, 1)).chain([sync]).collect();
    let second = vec![FileOperation::Think { time: Nanos::from_millis(1) }, sync];
    let outcome = run(&setup, vec![scattered, second]);
    assert_eq!(outcome.fsync.count, 2);
    assert!(outcome.fsync.p50 > 0.9 * outcome.fsync.max, "{} and {} us", outcome.fsync.p50, outcome.fsync.max);
}

#[test]
fn an_fsync_waits_for_every_indirect_block() {
    let setup = Scenario { memory_pages: 100_000, ..Scenario::default() };
    let outcome = run(&setup, vec![vec![create(0), write(0, 0, 2000), FileOperation::Fsync { file: file(0) }]]);
    // Pages 12 to 1,035 and the rest: two indirect blocks, and the one above the second. Then inode and directory.
    assert_eq!(outcome.written_because.sync, 2000 + 3 + 2);
}

#[test]
fn a_sync_leaves_nothing_dirty() {
    for allocation in [Allocation::AtOnce, Allocation::Delayed, Allocation::Log] {
        let setup = Scenario { allocation, ..Scenario::default() };
        let outcome =
            run(&setup, vec![vec![create(0), create(1), write(0, 0, 64), write(1, 0, 64), FileOperation::Sync]]);
        assert_eq!(outcome.written_because.drained, 0, "{allocation:?}");
        assert!(outcome.written_because.sync >= 128);
    }
}

#[test]
fn an_fsync_waits_for_blocks_that_are_allocated_only_now() {
    let setup = Scenario { allocation: Allocation::Delayed, ..Scenario::default() };
    let outcome = run(&setup, vec![vec![create(0), write(0, 0, 100), FileOperation::Fsync { file: file(0) }]]);
    assert_eq!(outcome.written_because.sync, 100 + 2, "pages, inode and directory");
}

#[test]
fn policies_lose_track_of_nothing_where_expiry_fsync_and_rewriting_meet() {
    // The policy's view is compared with the page cache's at each choice, and at the end, where debug assertions are
    // on. Scattered pages that are written over and over keep the disk's queue full, so that pages wait behind it while
    // another client writes them.
    let hot = |client: u64| -> Vec<FileOperation> {
        let round = move |round: u64| {
            let scattered = (0..200).map(move |n| on_device((round * 200 + n) * (7919 + client) % 4001 * 1000, 1));
            let sync = if round % 15 == client && round < 60 {
                FileOperation::Fsync { file: FileId::DEVICE }
            } else {
                think(1)
            };
            scattered.chain([sync])
        };
        (0..100).flat_map(round).collect()
    };
    let mut expired = 0;
    for info in policies().iter().filter(|info| !info.offline) {
        let setup = Scenario { policy: info.name, device: true, memory_pages: 12_000, ..Scenario::default() };
        let outcome = run(&setup, vec![hot(0), hot(1)]);
        assert!(outcome.written_because.sync > 0, "{}", info.name);
        expired += outcome.written_because.expired;
    }
    assert!(expired > 1000, "{expired} pages expired under all policies");
}

#[test]
fn a_policy_that_spares_active_pages_gets_some_however_many_clean_pages_are_active() {
    let steps: Vec<FileOperation> = [(0, 3000), (100_000, 7000)]
        .into_iter()
        .flat_map(|(at, pages)| {
            let read = FileOperation::Read {
                file: FileId::DEVICE,
                offset: ByteSize(at * PAGE_BYTES),
                size: ByteSize(pages * PAGE_BYTES),
            };
            [read, read]
        })
        .chain([on_device(100_000, 7000)])
        .collect();
    for policy in ["recency", "segment", "zone", "zone_segment"] {
        let setup = Scenario { policy, device: true, expire_after: None, memory_pages: 16_384, ..Scenario::default() };
        let outcome = run(&setup, vec![steps.clone()]);
        assert_eq!(outcome.operations, 5, "{policy}");
        assert!(outcome.throttled_s < 5.0, "{policy}: {} s", outcome.throttled_s);
    }
}

#[test]
fn pages_of_a_device_expire_under_steady_load() {
    // So much is dirty all the time that the background writes, but one page is never its turn.
    let mut steps = vec![on_device(10_000_000, 1)];
    for round in 0..60 {
        steps.extend([on_device(round * 1000, 1000), think(1)]);
    }
    let setup = Scenario { policy: "segment", device: true, ..Scenario::default() };
    let outcome = run(&setup, vec![steps]);
    assert!(outcome.written_because.expired > 0, "{:?}", outcome.written_because);
}

#[test]
fn a_page_is_read_once() {
    let setup = Scenario { prepare: vec![create(0), write(0, 0, 10)], ..Scenario::default() };
    let outcome = run(&setup, vec![vec![read(0, 3, 1), read(0, 3, 1)]]);
    assert_eq!(outcome.bytes_read, 3 * PAGE_BYTES, "the page, its directory and its inode");
    assert!(outcome.read.max > 100.0 * outcome.read.p50.min(10.0));
}

#[test]
fn two_readers_of_one_page_wait_for_the_same_request() {
    let setup = Scenario { prepare: vec![create(0), write(0, 0, 10)], ..Scenario::default() };
    let outcome = run(&setup, vec![vec![read(0, 3, 1)], vec![read(0, 3, 1)]]);
    assert_eq!(outcome.bytes_read, 3 * PAGE_BYTES, "the page, its directory and its inode, once");
    assert_eq!(outcome.read.count, 2);
}

#[test]
fn a_sequential_reader_gets_large_requests() {
    let setup = Scenario { prepare: vec![create(0), write(0, 0, 2000)], ..Scenario::default() };
    let outcome = run(&setup, vec![(0..2000).map(|page| read(0, page, 1)).collect()]);
    assert!(outcome.read_requests < 300, "{} requests", outcome.read_requests);
    assert!(outcome.bytes_read >= 2000 * PAGE_BYTES);
}

#[test]
fn a_write_of_a_part_of_a_page_reads_the_rest_first() {
    let setup = Scenario { prepare: vec![create(0), write(0, 0, 10)], ..Scenario::default() };
    let part = FileOperation::Write { file: file(0), offset: ByteSize(4096 * 3 + 100), size: ByteSize(100) };
    let outcome = run(&setup, vec![vec![part]]);
    assert!(outcome.bytes_read >= PAGE_BYTES, "{}", outcome.bytes_read);
    let whole = run(&setup, vec![vec![write(0, 3, 1)]]);
    assert_eq!(whole.bytes_read, 0);
}

#[test]
fn a_deleted_file_is_not_written() {
    let steps = vec![create(0), write(0, 0, 500), FileOperation::Delete { file: file(0) }];
    let outcome = run(&Scenario::default(), vec![steps]);
    assert!(outcome.bytes_written < 50 * PAGE_BYTES, "only metadata: {}", outcome.bytes_written);
}

#[test]
fn whoever_sees_the_future_does_not_write_what_is_removed_soon() {
    let (kept, short_lived) = (file(1), file(2));
    for end in
        [FileOperation::Delete { file: short_lived }, FileOperation::Truncate { file: short_lived, size: ByteSize(0) }]
    {
        let steps = || {
            let steps =
                vec![create(1), create(2), write(1, 0, 500), write(2, 0, 100), write(1, 500, 500), think(1), end];
            FixedWorkload { prepare: vec![].into_iter(), clients: vec![steps.into_iter()] }
        };
        let setup = Scenario { memory_pages: 2_000, policy: "clairvoyant", ..Scenario::default() };
        let (_, log) = machine(&Scenario { policy: "cscan", ..setup.clone() })
            .run_logged(setting("cscan"), &mut steps(), &mut |_| true)
            .expect("the run ends");
        let foresight = Foresight::new(std::sync::Arc::new(log));
        let outcome = machine(&setup)
            .with_foresight(foresight)
            .run(setting("clairvoyant"), &mut steps(), &mut |_| true)
            .expect("the run ends");
        let pages = outcome.bytes_written / PAGE_BYTES;
        assert!((1000..1020).contains(&pages), "{kept:?} has 1000 pages, and a few blocks say where they are: {pages}");
    }
}

#[test]
fn a_staged_file_that_is_deleted_never_touches_the_disk() {
    let setup = Scenario { staging: true, ..Scenario::default() };
    let outcome = run(&setup, vec![vec![create(0), write(0, 0, 100), FileOperation::Delete { file: file(0) }]]);
    assert_eq!((outcome.bytes_written, outcome.staged_only), (0, 1));
}

#[test]
fn staged_files_that_are_left_reach_the_disk_when_the_run_is_over() {
    let setup = Scenario { staging: true, ..Scenario::default() };
    let outcome = run(&setup, vec![vec![create(0), write(0, 0, 100)]]);
    assert!(outcome.bytes_written >= 100 * PAGE_BYTES, "{}", outcome.bytes_written);
    assert!(outcome.drained_s > outcome.time_s);
}

#[test]
fn a_staged_file_that_is_cut_gives_its_memory_back() {
    let prepare = vec![create(99), write(99, 0, 1500)];
    let setup = Scenario { staging: true, memory_pages: 2000, prepare, ..Scenario::default() };
    let fill = (0..6).flat_map(|n| [create(n), write(n, 0, 200)]);
    let cut = (0..6).map(|n| FileOperation::Truncate { file: file(n), size: ByteSize(0) });
    let outcome = run(&setup, vec![fill.chain(cut).chain([read(99, 0, 1500), read(99, 0, 1500)]).collect()]);
    assert!(outcome.bytes_read < 1600 * PAGE_BYTES, "{} pages", outcome.bytes_read / PAGE_BYTES);
}

#[test]
fn a_staged_file_beyond_the_threshold_goes_to_disk_in_one_piece() {
    let setup = Scenario { staging: true, ..Scenario::default() };
    let mixed: Vec<FileOperation> = (0..600).flat_map(|page| [write(0, page, 1), write(1, page, 1)]).collect();
    let steps: Vec<FileOperation> =
        [create(0), create(1)].into_iter().chain(mixed).chain([FileOperation::Sync]).collect();
    let delete = [FileOperation::Delete { file: file(0) }, FileOperation::Delete { file: file(1) }];
    let staged = run(&setup, vec![steps.iter().copied().chain(delete).collect()]);
    let direct = run(&Scenario::default(), vec![steps.into_iter().chain(delete).collect()]);
    assert!(staged.bytes_written >= 1200 * PAGE_BYTES);
    assert_eq!(staged.staged_only, 0);
    assert!(staged.file_distance < direct.file_distance, "{} < {}", staged.file_distance, direct.file_distance);
}

/// `files` files of 100 pages, made one after the other.
fn hundreds(files: u64) -> impl Iterator<Item = FileOperation> {
    (0..files).flat_map(|n| [create(n), write(n, 0, 100)])
}

#[test]
fn staged_files_used_longest_ago_leave_when_too_much_is_dirty() {
    // 1,000 pages may be dirty.
    let setup = Scenario { staging: true, ..Scenario::default() };
    let end = |n| [think(2), FileOperation::Delete { file: file(n) }];
    let untouched = run(&setup, vec![hundreds(20).chain(end(0)).collect()]);
    assert_eq!(untouched.staged_only, 0);
    assert!((900..1500).contains(&untouched.written_because.threshold), "{:?}", untouched.written_because);
    let last = run(&setup, vec![hundreds(20).chain(end(19)).collect()]);
    assert_eq!(last.staged_only, 1);
    let more = |read| hundreds(9).chain(read).chain((9..11).flat_map(|n| [create(n), write(n, 0, 100)])).chain(end(0));
    assert_eq!(run(&setup, vec![more(None).collect()]).staged_only, 0);
    assert_eq!(run(&setup, vec![more(Some(read(0, 0, 1))).collect()]).staged_only, 1, "a file that was read stays");
}

#[test]
fn staged_files_stay_while_little_is_dirty_however_long_that_is() {
    let setup = Scenario { staging: true, ..Scenario::default() };
    let end = (0..9).map(|n| FileOperation::Delete { file: file(n) });
    let outcome = run(&setup, vec![hundreds(9).chain([think(100)]).chain(end).collect()]);
    assert_eq!((outcome.staged_only, outcome.bytes_written), (9, 0));
}

#[test]
fn staged_pages_and_dirty_ones_count_together() {
    // 800 staged pages, and 800 dirty ones of a file that was there before.
    let setup = Scenario { staging: true, prepare: vec![create(99), write(99, 0, 800)], ..Scenario::default() };
    let steps = hundreds(8).chain([write(99, 0, 800), think(2), FileOperation::Delete { file: file(0) }]);
    let outcome = run(&setup, vec![steps.collect()]);
    assert!(outcome.written_because.threshold >= 600, "{:?}", outcome.written_because);
    assert_eq!(outcome.staged_only, 0);
}

#[test]
fn staged_pages_hold_up_their_writers_and_the_disk_works_all_the_time() {
    for policy in ["file", "recency", "wasl_segment_zone"] {
        let setup = Scenario { staging: true, policy, expire_after: None, ..Scenario::default() };
        let outcome = run(&setup, vec![hundreds(300).collect()]);
        assert!(outcome.throttled_s > 0.0, "{policy}: more than 4,000 pages are staged or dirty");
        assert!(
            outcome.disk_busy_s > 0.98 * outcome.time_s,
            "{policy}: {} of {} s",
            outcome.disk_busy_s,
            outcome.time_s
        );
        let direct = run(&Scenario { staging: false, ..setup }, vec![hundreds(300).collect()]);
        assert!(outcome.time_s < 1.2 * direct.time_s, "{policy}: {} s, without {} s", outcome.time_s, direct.time_s);
    }
}

#[test]
fn staged_files_leave_when_memory_is_short() {
    let setup = Scenario { staging: true, memory_pages: 2000, ..Scenario::default() };
    let steps = (0..40).flat_map(|n| [create(n), write(n, 0, 200)]).collect();
    let outcome = run(&setup, vec![steps]);
    assert_eq!(outcome.operations, 80);
    assert!(outcome.bytes_written >= 6000 * PAGE_BYTES, "{}", outcome.bytes_written);
}

#[test]
fn staged_files_that_leave_under_pressure_are_written_once_and_so_is_their_metadata() {
    let setup = Scenario { staging: true, memory_pages: 32_768, ..Scenario::default() };
    let steps = (0..65_536).flat_map(|n| [create(n), write(n, 0, 1)]).collect();
    let outcome = run(&setup, vec![steps]);
    let pages = outcome.bytes_written / PAGE_BYTES;
    assert!((65_536..72_000).contains(&pages), "{pages} pages in {} requests", outcome.write_requests);
}

#[test]
fn late_allocation_keeps_two_files_apart_that_grow_together() {
    let mixed: Vec<FileOperation> = (0..500).flat_map(|page| [write(0, page, 1), write(1, page, 1)]).collect();
    let delete = [FileOperation::Delete { file: file(0) }, FileOperation::Delete { file: file(1) }];
    let steps: Vec<FileOperation> =
        [create(0), create(1)].into_iter().chain(mixed).chain([FileOperation::Sync]).chain(delete).collect();
    let early = run(&Scenario::default(), vec![steps.clone()]);
    let late = run(&Scenario { allocation: Allocation::Delayed, ..Scenario::default() }, vec![steps]);
    assert!(late.file_distance < early.file_distance, "{} < {}", late.file_distance, early.file_distance);
}

#[test]
fn a_log_turns_scattered_writes_into_one_run() {
    // Every second page of a file that is larger than memory, in no order.
    let steps: Vec<FileOperation> =
        (0..2000).map(|n| write(0, n * 7919 % 2000 * 2, 1)).chain([FileOperation::Sync]).collect();
    let run_on = |allocation| {
        let prepare = vec![create(0), write(0, 0, 4000)];
        run(&Scenario { allocation, prepare, memory_pages: 1000, ..Scenario::default() }, vec![steps.clone()])
    };
    let (in_place, log) = (run_on(Allocation::AtOnce), run_on(Allocation::Log));
    assert!(log.write_distance * 10.0 < in_place.write_distance, "{} {}", log.write_distance, in_place.write_distance);
    assert!(log.write_requests * 4 < in_place.write_requests, "{} {}", log.write_requests, in_place.write_requests);
}

#[test]
fn what_was_written_to_a_log_is_found_where_it_went_until_it_is_removed() {
    let layout = Layout::FileSystem { seed: 1, aged_percent: 0 };
    let config = Config { allocation: Allocation::Log, ..Config::default() };
    let mut files = FileTable::new(layout, BlockNo(200_000), &config, &mut || true).expect("a file system");
    let mut touched = Vec::new();
    files.create(file(0), ROOT, &mut touched).expect("room");
    let page = |index| PageKey { file: file(0), index: PageIndex(index) };
    for index in 0..3 {
        files.place(page(index), &mut touched).expect("room");
    }
    files.grow(file(0), 3 * PAGE_BYTES);
    let made = files.block_of(page(1)).expect("it has a block");
    assert!(made.0 < 100_000, "the first half is where files are made");
    for (index, place) in [(1, 100_000), (0, 100_001), (1, 100_002)] {
        assert_eq!(files.write_place(page(index)), Some(BlockNo(place)));
        assert_eq!(files.block_of(page(index)), Some(BlockNo(place)));
    }
    files.truncate(file(0), ByteSize(PAGE_BYTES), &mut touched).expect("it shrinks");
    assert_eq!((files.block_of(page(0)), files.block_of(page(1))), (Some(BlockNo(100_001)), None));
    files.place(page(1), &mut touched).expect("room");
    assert!(files.block_of(page(1)).expect("it has a block").0 < 100_000, "the file that grew again is another page");
    files.delete(file(0), &mut touched).expect("it goes");
    assert_eq!(files.block_of(page(0)), None);
}

#[test]
fn an_address_beyond_the_end_is_an_error() {
    let setup = Scenario { device: true, ..Scenario::default() };
    let mut script =
        FixedWorkload { prepare: vec![].into_iter(), clients: vec![vec![on_device(1 << 40, 1)].into_iter()] };
    let error = machine(&setup).run(setting("file"), &mut script, &mut |_| true).expect_err("no such address");
    assert!(matches!(error, RunError::BeyondEnd { .. }), "{error}");
}

#[test]
fn files_that_do_not_fit_are_an_error_that_says_what_to_do() {
    let setup = Scenario::default();
    let steps: Vec<FileOperation> =
        std::iter::once(create(0)).chain((0..200).map(|at| write(0, at * 262_144, 262_144))).collect();
    let mut script = FixedWorkload { prepare: steps.into_iter(), clients: vec![] };
    let error = machine(&setup).run(setting("file"), &mut script, &mut |_| true).expect_err("200 GiB on 73 GB");
    assert!(matches!(error, RunError::NoSpace { .. }), "{error}");
}

#[test]
fn a_watcher_ends_a_run() {
    let setup = Scenario { device: true, ..Scenario::default() };
    let mut script = FixedWorkload {
        prepare: vec![].into_iter(),
        clients: (0..2).map(|_| vec![on_device(0, 1); 1_000_000].into_iter()).collect(),
    };
    let mut watched = 0;
    let mut enough = |_| {
        watched += 1;
        watched < 3
    };
    let outcome = machine(&setup).run(setting("file"), &mut script, &mut enough).expect("an outcome");
    assert!(outcome.interrupted);
    assert!(outcome.operations < 2_000_000);
}

/// Never ends a run, and counts how often it was asked.
fn counted(count: &mut u32) -> impl FnMut(Option<f64>) -> bool {
    |_| {
        *count += 1;
        true
    }
}

#[test]
fn a_lone_client_that_never_waits_is_watched_too() {
    let setup = Scenario { device: true, expire_after: None, ..Scenario::default() };
    let mut script =
        FixedWorkload { prepare: vec![].into_iter(), clients: vec![vec![on_device(0, 1); 100_000].into_iter()] };
    let watched = &mut 0;
    machine(&setup).run(setting("file"), &mut script, &mut counted(watched)).expect("an outcome");
    assert!(*watched >= 100_000 / WATCH_EVERY, "{watched}");
}

#[test]
fn the_timer_does_not_run_for_years_in_which_nothing_is_dirty() {
    let setup = Scenario { device: true, ..Scenario::default() };
    let steps = vec![on_device(0, 1), think(1_000_000_000), on_device(5, 1), think(1_000_000_003), on_device(9, 1)];
    let mut script = FixedWorkload { prepare: vec![].into_iter(), clients: vec![steps.into_iter()] };
    let watched = &mut 0;
    let outcome = machine(&setup).run(setting("file"), &mut script, &mut counted(watched)).expect("an outcome");
    assert_eq!(outcome.written_because.expired, 2, "as after a short time");
    assert_eq!(*watched, 0, "two hundred million times it has nothing to do");
}

/// A step of the generated scripts, over few files and a small disk so that they meet.
fn any_step() -> impl Strategy<Value = FileOperation> {
    let size = 1u64..200_000;
    prop_oneof![
        3 => (0u64..6, 0u64..800_000, size.clone())
            .prop_map(|(n, offset, size)| {
                FileOperation::Write { file: file(n), offset: ByteSize(offset), size: ByteSize(size) }
            }),
        2 => (0u64..6, 0u64..800_000, size)
            .prop_map(|(n, offset, size)| {
                FileOperation::Read { file: file(n), offset: ByteSize(offset), size: ByteSize(size) }
            }),
        1 => (0u64..6, 0u64..800_000)
            .prop_map(|(n, size)| FileOperation::Truncate { file: file(n), size: ByteSize(size) }),
        1 => (0u64..6).prop_map(|n| FileOperation::Fsync { file: file(n) }),
        1 => (0u64..6).prop_map(|n| FileOperation::Delete { file: file(n) }),
        1 => (0u64..20).prop_map(think),
        1 => Just(FileOperation::Sync),
    ]
}

/// Leaves out what no file system would do: a file is created before it is used, and not used after it is gone.
fn lawful(steps: Vec<FileOperation>, client: u64) -> Vec<FileOperation> {
    let mut generation = [0u64; 6];
    let mut there = [false; 6];
    let mut lawful = Vec::new();
    for step in steps {
        let slot = match step {
            FileOperation::Write { file, .. }
            | FileOperation::Read { file, .. }
            | FileOperation::Truncate { file, .. }
            | FileOperation::Fsync { file }
            | FileOperation::Delete { file } => file,
            other => {
                lawful.push(other);
                continue;
            }
        };
        let slot = (slot.0 - 10) as usize;
        let id = |generation: u64| FileId(100 + (client * 1000 + generation) * 6 + slot as u64);
        if !there[slot] {
            if matches!(step, FileOperation::Delete { .. }) {
                continue;
            }
            generation[slot] += 1;
            there[slot] = true;
            lawful.push(FileOperation::Create { file: id(generation[slot]), dir: ROOT });
        }
        let file = id(generation[slot]);
        lawful.push(match step {
            FileOperation::Write { offset, size, .. } => FileOperation::Write { file, offset, size },
            FileOperation::Read { offset, size, .. } => FileOperation::Read { file, offset, size },
            FileOperation::Truncate { size, .. } => FileOperation::Truncate { file, size },
            FileOperation::Fsync { .. } => FileOperation::Fsync { file },
            _ => {
                there[slot] = false;
                FileOperation::Delete { file }
            }
        });
    }
    lawful
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn every_script_ends_under_every_policy_with_nothing_left_dirty(
        scripts in prop::collection::vec(prop::collection::vec(any_step(), 1..60), 1..4),
        memory_pages in 200u64..2000,
        staging: bool,
        allocation in prop::sample::select(vec![Allocation::AtOnce, Allocation::Delayed, Allocation::Log]),
        read_ahead in 0u32..40,
    ) {
        let clients: Vec<Vec<FileOperation>> =
            scripts.into_iter().enumerate().map(|(client, steps)| lawful(steps, client as u64)).collect();
        let operations: usize =
            clients.iter().flatten().filter(|step| !matches!(step, FileOperation::Think { .. })).count();
        for info in policies().iter().filter(|info| !info.offline) {
            let setup = Scenario { policy: info.name, memory_pages, staging, allocation, read_ahead, ..Scenario::default() };
            let outcome = run(&setup, clients.clone());
            prop_assert_eq!(outcome.operations, operations as u64, "{}", info.name);
            let because = outcome.written_because;
            let pages = because.threshold + because.expired + because.reclaim + because.sync + because.drained;
            prop_assert!(outcome.bytes_written >= pages * PAGE_BYTES, "{}", info.name);
            prop_assert_eq!(&run(&setup, clients.clone()), &outcome, "{}: the same again", info.name);
        }
    }
}

/// The same with an entry that costs so much to scan.
fn with_entries(staging: bool, micros: u64, files: u64) -> Outcome {
    let bookkeeping = Bookkeeping { entry: Nanos::from_micros(micros), ..Bookkeeping::default() };
    let setup = Scenario { staging, bookkeeping, expire_after: None, ..Scenario::default() };
    run(&setup, vec![(0..files).map(create).collect()])
}

#[test]
fn each_file_in_a_directory_makes_the_next_one_dearer() {
    let extra = |files| with_entries(false, 100, files).time_s - with_entries(false, 0, files).time_s;
    // The n-th file scans n entries in vain; looking for room passes n more, its own among them.
    let expected = |files: u64| (files * (files - 1) / 2 + files * (files + 1) / 2) as f64 * 1e-4;
    for files in [1, 10, 100] {
        assert!(
            (extra(files) - expected(files)).abs() < 1e-9,
            "{files}: {} instead of {}",
            extra(files),
            expected(files)
        );
    }
}

#[test]
fn a_staged_file_pays_for_its_entry_when_it_moves() {
    let (free, charged) = (with_entries(true, 0, 100), with_entries(true, 100, 100));
    assert!((charged.time_s - free.time_s).abs() < 1e-9, "nothing is on disk, so nothing is scanned");
    assert!((charged.moving_s - 5050.0 * 1e-4).abs() < 1e-9, "{}", charged.moving_s);
    assert!(free.moving_s.abs() < 1e-12);
    assert!(charged.drained_s >= charged.moving_s);
}

#[test]
fn pages_of_zones_cost_time_and_zones_do_once_for_each_target() {
    let with = |policy, page, zone, pages| {
        let bookkeeping = Bookkeeping {
            zone_page: Nanos::from_micros(page),
            zone: Nanos::from_micros(zone),
            ..Bookkeeping::default()
        };
        run(&Scenario { policy, bookkeeping, device: true, ..Scenario::default() }, vec![vec![on_device(0, pages)]])
    };
    let entering = |policy| with(policy, 50, 0, 500).time_s - with(policy, 0, 0, 500).time_s;
    assert!((entering("wasl_zone") - 0.025).abs() < 1e-9, "{}", entering("wasl_zone"));
    assert!(entering("file").abs() < 1e-9, "a policy without zones enters nothing");
    // Below the threshold nobody chooses before the end.
    assert!((with("wasl_zone", 0, 50, 500).time_s - with("wasl_zone", 0, 0, 500).time_s).abs() < 1e-9);
    // Two zones of 2,048 blocks are left by the end; the first target is chosen among both, and the second alone.
    let chosen = with("wasl_zone", 0, 1_000_000, 3000);
    assert!(chosen.drained_s >= 3.0, "{}", chosen.drained_s);
    assert!(with("file", 0, 1_000_000, 3000).drained_s < 3.0);
}

#[test]
fn ordered_commits_write_all_dirty_data_every_five_seconds() {
    let setup = |commits| Scenario { ordered_commits: commits, ..Scenario::default() };
    let steps = || vec![vec![create(0), write(0, 0, 100), think(8), write(0, 0, 10), think(1)]];
    let ordered = run(&setup(Some(Nanos::from_secs(5))), steps());
    assert_eq!(ordered.written_because.sync, 100, "{:?}", ordered.written_because);
    assert_eq!(run(&setup(None), steps()).written_because.sync, 0);
}
