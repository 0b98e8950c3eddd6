mod smooth;

use proptest::prelude::*;
use umbrella_units::{ByteSize, Lba, SECTOR_BYTES, SectorRange};

use super::*;

const KIB: u64 = 1024 / SECTOR_BYTES;

fn range(start: u64, sectors: u64) -> SectorRange {
    SectorRange { start: Lba(start), sectors }
}

/// A log in which each write is a record with one sector of metadata, as in the paper.
fn log_of(size: u64, writes: &[(u64, u64)]) -> Log {
    let mut log = Log::new(ByteSize(size * SECTOR_BYTES), LogSector(0));
    for &(start, sectors) in writes {
        add(&mut log, range(start, sectors));
    }
    log
}

fn add(log: &mut Log, range: SectorRange) -> bool {
    let Some(at) = log.reserve(1 + range.sectors) else { return false };
    let source = Source::Log(LogSector(at.0 + 1));
    log.commit(LogSector(at.0 + 1 + range.sectors), [Logged { range, source, metadata: 1 }]);
    true
}

fn chunks(log: &Log, algorithm: Algorithm, memory: u64) -> Vec<FlushChunk> {
    let mut planner = FlushPlanner::new(algorithm, ByteSize(memory * SECTOR_BYTES), log);
    std::iter::from_fn(|| planner.next_chunk(log)).collect()
}

fn written(chunks: &[FlushChunk]) -> Vec<(u64, u64)> {
    let writes = chunks.iter().flat_map(|chunk| &chunk.writes);
    writes.map(|write| (write.range.start.0, write.range.sectors)).collect()
}

fn read(chunks: &[FlushChunk]) -> Vec<(u64, u64)> {
    chunks.iter().flat_map(|chunk| &chunk.reads).map(|read| (read.at.0, read.sectors)).collect()
}

const WRITES: &[(u64, u64)] = &[(800, 8), (100, 8), (808, 8), (104, 8), (0, 8)];

#[test]
fn algorithm_1_takes_one_request_at_a_time_however_much_memory_there_is() {
    let log = log_of(1000, WRITES);
    let chunks = chunks(&log, Algorithm::Alg1, 1000);
    assert_eq!(read(&chunks), [(0, 9), (9, 9), (18, 9), (27, 9), (36, 9)]);
    assert_eq!(written(&chunks), WRITES);
    let done: Vec<_> = chunks.iter().map(|chunk| chunk.done.expect("each is done at once").0).collect();
    assert_eq!(done, [9, 18, 27, 36, 45]);
}

#[test]
fn algorithm_2_fills_the_memory_with_one_read_and_writes_in_log_order() {
    let log = log_of(1000, WRITES);
    let chunks = chunks(&log, Algorithm::Alg2, 27);
    assert_eq!(read(&chunks), [(0, 27), (27, 18)]);
    assert_eq!(written(&chunks), WRITES);
    assert_eq!(chunks[0].writes[1].parts, [WriteSource::Buffer { from: 10, sectors: 8 }]);
}

#[test]
fn algorithm_3_has_buffers_of_half_the_size() {
    let log = log_of(1000, WRITES);
    let chunks = chunks(&log, Algorithm::Alg3, 40);
    assert_eq!(read(&chunks), [(0, 20), (18, 20), (36, 9)]);
    assert_eq!(written(&chunks), WRITES);
}

#[test]
fn algorithm_4_sorts_and_merges_inside_a_chunk_and_the_newest_data_wins() {
    let log = log_of(1000, WRITES);
    let chunks = chunks(&log, Algorithm::Alg4, 90);
    assert_eq!(read(&chunks), [(0, 45)]);
    assert_eq!(written(&chunks), [(0, 8), (100, 12), (800, 16)]);
    let merged = &chunks[0].writes[1];
    assert_eq!(
        merged.parts,
        [WriteSource::Buffer { from: 10, sectors: 4 }, WriteSource::Buffer { from: 28, sectors: 8 }]
    );
    let two_chunks = self::chunks(&log, Algorithm::Alg4, 56);
    assert_eq!(written(&two_chunks), [(100, 8), (800, 16), (0, 8), (104, 8)], "nothing is merged over chunks");
}

#[test]
fn whole_writes_every_sector_once_in_order_of_address() {
    let log = log_of(1000, WRITES);
    let chunks = chunks(&log, Algorithm::Whole, 24);
    assert_eq!(written(&chunks), [(0, 8), (100, 4), (104, 8), (800, 4), (804, 12)]);
    assert_eq!(chunks.iter().map(|chunk| chunk.reads.iter().map(|read| read.sectors).sum()).max(), Some(12_u64));
}

#[test]
fn a_request_cut_by_the_end_of_the_chunk_is_read_again_with_the_next() {
    // Section 2.3: a chunk of 1 MB, two requests of 0.75 MB.
    let three_quarters = 768 * KIB;
    let log = log_of(8192, &[(0, three_quarters), (5000, three_quarters)]);
    let chunks = chunks(&log, Algorithm::Alg2, 1024 * KIB);
    assert_eq!(read(&chunks), [(0, 1024 * KIB), (three_quarters + 1, three_quarters + 1)]);
    assert_eq!(written(&chunks), [(0, three_quarters), (5000, three_quarters)]);
}

#[test]
fn a_request_larger_than_the_chunk_is_written_in_parts() {
    let log = log_of(1000, &[(50, 100), (10, 5)]);
    let chunks = chunks(&log, Algorithm::Alg2, 32);
    assert_eq!(read(&chunks), [(0, 32), (32, 32), (64, 32), (96, 5), (101, 6)]);
    assert_eq!(written(&chunks), [(50, 31), (81, 32), (113, 32), (145, 5), (10, 5)]);
    let done: Vec<_> = chunks.iter().map(|chunk| chunk.done.map(|done| done.0)).collect();
    assert_eq!(done, [None, None, None, Some(101), Some(107)]);
}

#[test]
fn a_plan_for_the_oldest_part_leaves_the_rest_and_what_replaced_it() {
    let mut log = log_of(1000, &[(0, 10), (20, 10), (5, 10), (40, 10)]);
    let mut planner = FlushPlanner::new(Algorithm::Whole, ByteSize(1 << 20), &log).up_to(LogSector(15), &log);
    assert_eq!(planner.until(), LogSector(22), "the second record is in it, the third begins there");
    let chunk = planner.next_chunk(&log).expect("there is something to do");
    assert_eq!(written(&[chunk]), [(0, 5), (20, 10)]);
    assert_eq!(planner.next_chunk(&log), None);
    log.release(planner.until());
    assert_eq!(written(&chunks(&log, Algorithm::Whole, 1000)), [(5, 10), (40, 10)]);
    assert_eq!(
        FlushPlanner::new(Algorithm::Alg1, ByteSize(512), &log).up_to(LogSector(900), &log).until(),
        LogSector(44)
    );
}

#[test]
fn a_record_does_not_run_over_the_end_of_the_log() {
    let mut log = log_of(30, &[(0, 9), (20, 9)]);
    assert_eq!(log.used(), 20);
    assert!(!add(&mut log, range(40, 10)), "it would need the 10 at the end and one more");
    log.release(LogSector(10));
    assert!(!add(&mut log, range(40, 10)), "the 10 at the start do not hold it either");
    log.release(LogSector(20));
    assert!(add(&mut log, range(40, 10)));
    assert_eq!(
        (log.tail().0, log.committed().0, log.used()),
        (30, 41, 11),
        "an empty log begins where its first record is"
    );
    assert!(add(&mut log, range(60, 18)));
    assert!(!add(&mut log, range(90, 1)));
    assert_eq!(read(&chunks(&log, Algorithm::Alg2, 100)), [(30, 30)]);
}

#[test]
fn a_write_goes_past_the_log_only_where_the_log_has_nothing_older() {
    let log = log_of(1000, &[(100, 10)]);
    assert_eq!(log.route(range(0, 10), false), WriteRoute::Log);
    assert_eq!(log.route(range(90, 10), true), WriteRoute::Disk);
    assert_eq!(log.route(range(90, 11), true), WriteRoute::Log);
    assert_eq!(log.route(range(109, 11), true), WriteRoute::Log);
    assert_eq!(log.route(range(110, 11), true), WriteRoute::Disk);
}

#[test]
fn what_was_replaced_is_not_released_with_what_replaced_it() {
    let mut log = log_of(1000, &[(0, 10), (5, 10)]);
    log.release(LogSector(11));
    let left: Vec<_> = log.map().pieces_from(Lba(0)).collect();
    assert_eq!(left, [CachedExtent { range: range(5, 10), source: Source::Log(LogSector(12)) }]);
    assert_eq!((log.map().sectors(), log.used()), (10, 11));
}

#[test]
fn zeroes_are_written_and_need_no_reading() {
    let mut log = log_of(1000, &[(0, 10)]);
    let at = log.reserve(1).expect("there is room");
    let zeroes = |start, sectors| Logged { range: range(start, sectors), source: Source::Zeroes(at), metadata: 0 };
    log.commit(LogSector(at.0 + 1), [zeroes(2, 3), zeroes(500, 40)]);
    for algorithm in Algorithm::ALL {
        let chunks = chunks(&log, algorithm, 100);
        assert_eq!(chunks.iter().flat_map(|chunk| &chunk.reads).filter(|read| read.at >= at).count(), 0, "{algorithm}");
        let zeroed = chunks.iter().flat_map(|chunk| &chunk.writes).flat_map(|write| &write.parts);
        let zeroed: u64 = zeroed.map(|part| if let WriteSource::Zeroes(sectors) = part { *sectors } else { 0 }).sum();
        assert_eq!(zeroed, 43, "{algorithm}");
    }
}

#[test]
fn each_trigger_flushes_at_its_own_moments() {
    let (half, most) = (Fill { used: 50, size: 100 }, Fill { used: 75, size: 100 });
    let empty = Fill { used: 0, size: 100 };
    let flushes = |when: FlushTrigger, moment, fill| when.flushes(moment, fill, FlushTrigger::HIGH);
    for when in FlushTrigger::ALL {
        assert!(flushes(when, Moment::Full, most));
        assert!(!flushes(when, Moment::SpunUp, empty) && !flushes(when, Moment::Quiet, empty));
        assert!(!when.flushes(Moment::Logged, empty, Percent(0)), "there is nothing to flush");
        assert_eq!(when.name().parse(), Ok(when));
    }
    assert!(flushes(FlushTrigger::Each, Moment::SpunUp, half) && !flushes(FlushTrigger::Full, Moment::SpunUp, half));
    assert!(
        flushes(FlushTrigger::Watermark, Moment::Logged, most)
            && !flushes(FlushTrigger::Watermark, Moment::Logged, half)
    );
    assert!(!flushes(FlushTrigger::Full, Moment::Logged, most) && !flushes(FlushTrigger::Each, Moment::Logged, most));
    assert!(
        flushes(FlushTrigger::Piggyback, Moment::Quiet, half) && !flushes(FlushTrigger::Watermark, Moment::Quiet, half)
    );
    assert!("always".parse::<FlushTrigger>().is_err());
}

/// The bytes of a disk and of a log, a number a sector, zero for zeroes.
struct World {
    disk: Vec<u32>,
    flash: Vec<u32>,
    /// What readers have to see.
    truth: Vec<u32>,
}

impl World {
    fn new(disk: usize, log: &Log) -> World {
        World { disk: vec![0; disk], flash: vec![0; log.size() as usize], truth: vec![0; disk] }
    }

    fn write(&mut self, log: &mut Log, range: SectorRange, stamp: u32) -> bool {
        let span = range.start.0 as usize..range.end().0 as usize;
        let zero = stamp.is_multiple_of(5);
        let Some(at) = log.reserve(if zero { 1 } else { 1 + range.sectors }) else { return false };
        let mut end = at.0 + 1;
        let source = if zero { Source::Zeroes(at) } else { Source::Log(LogSector(end)) };
        for sector in span.clone() {
            self.truth[sector] = if zero { 0 } else { stamp };
            if !zero {
                self.flash[(end % log.size()) as usize] = stamp;
                end += 1;
            }
        }
        log.commit(LogSector(end), [Logged { range, source, metadata: u32::from(!zero) }]);
        true
    }

    fn flush_chunk(&mut self, log: &Log, chunk: &FlushChunk, buffer_sectors: u64) {
        let mut buffer = vec![u32::MAX; buffer_sectors as usize];
        for read in &chunk.reads {
            let first = (read.at.0 % log.size()) as usize;
            let from = &self.flash[first..first + read.sectors as usize];
            buffer[read.buffer as usize..(read.buffer + read.sectors) as usize].copy_from_slice(from);
        }
        for write in &chunk.writes {
            let mut sector = write.range.start.0 as usize;
            for part in &write.parts {
                let (from, sectors) = match *part {
                    WriteSource::Buffer { from, sectors } => (Some(from as usize), sectors as usize),
                    WriteSource::Zeroes(sectors) => (None, sectors as usize),
                };
                for number in 0..sectors {
                    self.disk[sector + number] = from.map_or(0, |from| buffer[from + number]);
                }
                sector += sectors;
            }
            assert_eq!(sector as u64, write.range.end().0, "the parts are as long as the write");
        }
    }

    fn seen(&self, log: &Log) -> Vec<u32> {
        let mut seen = self.disk.clone();
        for piece in log.map().pieces_from(Lba(0)) {
            for number in 0..piece.range.sectors {
                let sector = (piece.range.start.0 + number) as usize;
                seen[sector] = match piece.source {
                    Source::Log(at) => self.flash[((at.0 + number) % log.size()) as usize],
                    Source::Zeroes(_) => 0,
                };
            }
        }
        seen
    }
}

const DISK: u64 = 64;

fn writes() -> impl Strategy<Value = Vec<(u64, u64)>> {
    let write = (0..DISK, 1..12_u64).prop_map(|(start, sectors)| (start, sectors.min(DISK - start)));
    prop::collection::vec(write, 0..60)
}

proptest! {
    #[test]
    fn every_algorithm_leaves_the_newest_data_on_the_disk(
        first in writes(),
        meanwhile in writes(),
        memory in 2..80_u64,
        size in 20..200_u64,
        algorithm in prop::sample::select(Algorithm::ALL.to_vec()),
    ) {
        let mut log = Log::new(ByteSize(size * SECTOR_BYTES), LogSector(0));
        let mut world = World::new(DISK as usize, &log);
        let mut stamp = 0;
        for &(start, sectors) in &first {
            stamp += 1;
            if !world.write(&mut log, range(start, sectors), stamp) {
                break;
            }
        }
        let mut planner = FlushPlanner::new(algorithm, ByteSize(memory * SECTOR_BYTES), &log);
        let buffer = memory / algorithm.buffers();
        let mut later = meanwhile.iter();
        while let Some(chunk) = planner.next_chunk(&log) {
            prop_assert!(chunk.reads.iter().all(|read| read.buffer + read.sectors <= buffer.max(1)));
            // What comes between planning and writing is newer, and stays in the log.
            if let Some(&(start, sectors)) = later.next() {
                stamp += 1;
                world.write(&mut log, range(start, sectors), stamp);
            }
            world.flush_chunk(&log, &chunk, buffer.max(1));
            prop_assert_eq!(&world.seen(&log), &world.truth);
            if let Some(done) = chunk.done {
                log.release(done);
                prop_assert_eq!(&world.seen(&log), &world.truth, "released too much");
            }
        }
        log.release(planner.until());
        prop_assert_eq!(&world.seen(&log), &world.truth);
        prop_assert_eq!(log.tail(), planner.until().max(log.tail()));
        if meanwhile.is_empty() {
            prop_assert!(log.map().is_empty());
            prop_assert_eq!(log.used(), 0);
        }
    }

    #[test]
    fn the_map_is_what_an_array_says(
        ops in prop::collection::vec((0..DISK, 1..20_u64, any::<bool>(), 0..80_u64), 1..80),
    ) {
        let mut map = LogMap::default();
        let mut naive = vec![None; 100];
        for (number, &(start, sectors, release, tail)) in ops.iter().enumerate() {
            let here = range(start, sectors);
            let at = number as u64 * 20;
            if release {
                let tail = tail * 20;
                map.release(here, LogSector(tail));
                for sector in &mut naive[start as usize..(start + sectors) as usize] {
                    *sector = sector.filter(|&(at, _)| at >= tail);
                }
            } else {
                map.insert(here, Source::Log(LogSector(at)));
                for (offset, sector) in naive[start as usize..(start + sectors) as usize].iter_mut().enumerate() {
                    *sector = Some((at, at + offset as u64));
                }
            }
            let mut seen = vec![None; 100];
            for piece in map.pieces_from(Lba(0)) {
                for offset in 0..piece.range.sectors {
                    seen[(piece.range.start.0 + offset) as usize] = Some(piece.source.at().0 + offset);
                }
            }
            let expected: Vec<_> = naive.iter().map(|sector| sector.map(|(_, at)| at)).collect();
            prop_assert_eq!(&seen, &expected);
            let count = seen.iter().flatten().count() as u64;
            prop_assert_eq!(map.sectors(), count);
            prop_assert_eq!(map.overlaps(here), seen[start as usize..(start + sectors) as usize].iter().any(Option::is_some));
        }
    }
}

#[test]
fn zeroes_of_the_map_are_counted_as_they_come_and_go() {
    let mut map = LogMap::default();
    map.insert(range(0, 20), Source::Zeroes(LogSector(5)));
    map.insert(range(30, 10), Source::Log(LogSector(6)));
    assert_eq!((map.sectors(), map.zeroes()), (30, 20));
    // Data over the middle of them, zeroes over the end of data.
    map.insert(range(5, 10), Source::Log(LogSector(20)));
    map.insert(range(35, 10), Source::Zeroes(LogSector(40)));
    assert_eq!((map.sectors(), map.zeroes()), (35, 20));
    map.release(range(0, 100), LogSector(40));
    assert_eq!((map.sectors(), map.zeroes()), (10, 10));
    map.release(range(0, 100), LogSector(41));
    assert_eq!((map.sectors(), map.zeroes()), (0, 0));
}
