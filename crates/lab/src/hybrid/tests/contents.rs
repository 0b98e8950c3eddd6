//! Where the newest data of every sector is, kept track of by numbering the writes.

use proptest::prelude::*;
use rustc_hash::FxHashMap;
use umbrella_policy::flash_cache::{Algorithm, DiskWrite, FlushChunk, FlushTrigger, Log, LogSector, WriteSource};

use super::super::probe::Probe;
use super::*;

/// Sectors that are written at all.
const SECTORS: u64 = 200;

/// The numbers of the writes that the sectors of the disk, and the places of the flash, have.
#[derive(Default)]
struct Shadow {
    log_size: u64,
    writes: u64,
    newest: FxHashMap<u64, u64>,
    disk: FxHashMap<u64, u64>,
    flash: FxHashMap<u64, u64>,
    drained: u64,
}

impl Shadow {
    fn next(&mut self, range: SectorRange) -> u64 {
        self.writes += 1;
        self.newest.extend((range.start.0..range.end().0).map(|sector| (sector, self.writes)));
        self.writes
    }
}

impl Probe for Shadow {
    fn logged(&mut self, range: SectorRange, at: LogSector) {
        let number = self.next(range);
        self.flash.extend((at.0..at.0 + range.sectors).map(|place| (place % self.log_size, number)));
    }

    fn direct(&mut self, range: SectorRange) {
        let number = self.next(range);
        self.disk.extend((range.start.0..range.end().0).map(|sector| (sector, number)));
    }

    fn drains(&mut self, chunk: &FlushChunk, write: &DiskWrite) {
        let mut sector = write.range.start.0;
        for part in &write.parts {
            let WriteSource::Buffer { from, sectors } = *part else { panic!("nobody zeroes") };
            for place in from..from + sectors {
                let read = chunk.reads.iter().find(|read| (read.buffer..read.buffer + read.sectors).contains(&place));
                let read = read.expect("what is written was read");
                let number = self.flash[&((read.at.0 + place - read.buffer) % self.log_size)];
                self.disk.insert(sector, number);
                sector += 1;
            }
        }
        assert_eq!(sector, write.range.end().0);
        self.drained += write.range.sectors;
    }

    fn released(&mut self, log: &Log) {
        let mut in_log = FxHashMap::default();
        for piece in log.map().pieces_from(Lba(0)) {
            let places = (0..piece.range.sectors).map(|skip| {
                let number = self.flash[&((piece.source.at().0 + skip) % self.log_size)];
                (piece.range.start.0 + skip, number)
            });
            in_log.extend(places);
        }
        for (sector, newest) in &self.newest {
            let found = in_log.get(sector).or_else(|| self.disk.get(sector));
            assert_eq!(found, Some(newest), "sector {sector} after a flush");
        }
    }
}

fn arrivals() -> impl Strategy<Value = Vec<Arrival>> {
    let pause = prop_oneof![4 => 0..5_u64, 2 => 0..3_000_u64, 2 => 0..120_000_u64];
    let request = (pause, prop::bool::weighted(0.8), 0..SECTORS, 1..24_u64);
    prop::collection::vec(request, 1..80).prop_map(|requests| {
        let mut now = 0;
        let arrival = |(pause, writes, start, sectors): (u64, bool, u64, u64)| {
            now += pause;
            let direction = if writes { Direction::Write } else { Direction::Read };
            at(now, direction, start, sectors.min(SECTORS - start))
        };
        requests.into_iter().map(arrival).collect()
    })
}

fn expected(arrivals: &[Arrival]) -> FxHashMap<u64, u64> {
    let mut newest = FxHashMap::default();
    let writes = arrivals.iter().filter(|arrival| arrival.direction == Direction::Write);
    for (number, write) in writes.enumerate() {
        newest.extend((write.range.start.0..write.range.end().0).map(|sector| (sector, number as u64 + 1)));
    }
    newest
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn every_algorithm_leaves_the_newest_version_of_every_sector_on_the_disk(
        arrivals in arrivals(),
        log in 0..120_u64,
        memory in 1..60_u64,
        spin_down in prop::sample::select(vec!["fixed:timeout=0", "fixed:timeout=10s", "adaptive", "rent_to_buy", "optimum"]),
        sata in any::<bool>(),
    ) {
        let expected = expected(&arrivals);
        let bytes = arrivals.iter().filter(|arrival| arrival.direction == Direction::Write).map(|write| write.range.bytes().0);
        let bytes: u64 = bytes.sum();
        let input = HybridInput::new("drawn", arrivals, Nanos(0));
        for algorithm in Algorithm::ALL {
            for when in FlushTrigger::ALL {
                let mut setup = HybridSetup { when, algorithm, memory: ByteSize(memory * SECTOR_BYTES), ..small(log) };
                spin_down.clone_into(&mut setup.spin_down);
                if sata {
                    (setup.disk, setup.flash) = ("modern".to_owned(), "sata_ssd".to_owned());
                }
                let mut shadow = Shadow { log_size: log.max(1), ..Shadow::default() };
                let outcome = Engine::new(&setup, &input, &mut shadow).unwrap().run(&mut |_| true).unwrap();
                prop_assert_eq!(&shadow.disk, &expected, "{} {}", when, algorithm);
                prop_assert_eq!(outcome.response.count, input.arrivals.len() as u64);
                prop_assert_eq!(outcome.written_bytes, bytes);
                prop_assert_eq!(outcome.flushes.written_bytes, shadow.drained * SECTOR_BYTES);
                let FlushFigures { time_s, flash_s, disk_s, .. } = outcome.flushes;
                prop_assert!(flash_s.max(disk_s) <= time_s + 1e-9 && time_s <= flash_s + disk_s + 1e-9, "{:?}", outcome.flushes);
                prop_assert_eq!(&Engine::new(&setup, &input, &mut ()).unwrap().run(&mut |_| true).unwrap(), &outcome, "it repeats");
            }
        }
    }
}
