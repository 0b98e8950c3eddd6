//! What is counted during a run.

use umbrella_model::power::{PowerState, PowerStats};
use umbrella_policy::flash_cache::{LogMap, LogSector, Source};
use umbrella_units::{Nanos, SECTOR_BYTES, SectorRange};

use super::flush::Flush;
use super::outcome::{AloneFigures, FlushFigures, HybridOutcome, Joules, Redirected, Responses, Spread, Wakes};
use super::setup::{Cache, HybridSetup};
use super::station::Station;
use crate::result::Histogram;

const DAY: Nanos = Nanos::from_secs(86_400);

/// An answer that takes longer is one that people notice.
const LONG: Nanos = Nanos::from_secs(1);

/// What is counted during a run.
#[derive(Debug, Default)]
pub(super) struct HybridCounters {
    pub(super) reads: u64,
    pub(super) writes: u64,
    pub(super) sectors_read: u64,
    pub(super) sectors_written: u64,
    pub(super) reads_asleep: u64,
    pub(super) reads_from_flash: u64,
    pub(super) waited_for_spin_up: u64,
    pub(super) wakes: Wakes,
    flushes: u64,
    pub(super) flush_sectors_read: u64,
    pub(super) flush_sectors_written: u64,
    pub(super) flush_writes: u64,
    delayed: u64,
    response: Histogram,
    redirected: u64,
    sectors_redirected: u64,
    by_day: Vec<u64>,
    distinct: LogMap,
    /// Sectors redirected since the disk was put to sleep; nothing while it is awake.
    pub(super) this_sleep: Option<u64>,
    sleeps: Vec<u64>,
    flush: FlushTimes,
    /// The same flushes, had they the devices to themselves.
    alone: FlushTimes,
    flush_at_end: Nanos,
}

/// What flushes take.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct FlushTimes {
    all: Nanos,
    flash: Nanos,
    disk: Nanos,
}

impl FlushTimes {
    /// Time passes while the flush does what it does.
    pub(super) fn add(&mut self, flush: &Flush, time: Nanos) {
        self.all = self.all + time;
        if flush.read_under_way {
            self.flash = self.flash + time;
        }
        if flush.write_under_way || flush.sync_under_way {
            self.disk = self.disk + time;
        }
    }
}

impl HybridCounters {
    /// Time passes while the flush does what it does.
    pub(super) fn flushing(&mut self, flush: &Flush, time: Nanos, at_end: bool) {
        self.flush.add(flush, time);
        if at_end {
            self.flush_at_end = self.flush_at_end + time;
        }
    }

    /// A flush begins that would take so long alone.
    pub(super) fn flush_begins(&mut self, alone: FlushTimes) {
        let of = &mut self.alone;
        *of = FlushTimes { all: of.all + alone.all, flash: of.flash + alone.flash, disk: of.disk + alone.disk };
        self.flushes += 1;
    }

    pub(super) fn redirected(&mut self, now: Nanos, range: SectorRange) {
        self.redirected += 1;
        self.sectors_redirected += range.sectors;
        let day = (now.0 / DAY.0) as usize;
        if self.by_day.len() <= day {
            self.by_day.resize(day + 1, 0);
        }
        self.by_day[day] += range.bytes().0;
        self.distinct.insert(range, Source::Zeroes(LogSector(0)));
        if let Some(sectors) = &mut self.this_sleep {
            *sectors += range.sectors;
        }
    }

    pub(super) fn is_awake(&mut self) {
        self.sleeps.extend(self.this_sleep.take().map(|sectors| sectors * SECTOR_BYTES));
    }

    pub(super) fn answered(&mut self, time: Nanos) {
        self.response.record(time);
        self.delayed += u64::from(time > LONG);
    }

    /// All that came of the run.
    pub(super) fn outcome(
        mut self,
        input: &str,
        setup: &HybridSetup,
        disk: &Station,
        flash: &Station,
        time: Nanos,
    ) -> HybridOutcome {
        self.is_awake();
        let bytes = |sectors: u64| sectors * SECTOR_BYTES;
        let stats = disk.stats();
        // A profile that is not known was refused before the run.
        let (disk_watts, flash_watts) = setup.profiles().map_or(("", ""), |(disk, flash)| (disk.watts, flash.watts));
        HybridOutcome {
            input: input.to_owned(),
            disk: setup.disk.clone(),
            write_cache: setup.write_cache,
            flash: setup.flash.clone(),
            cache_bytes: match setup.cache {
                Cache::Finite(size) => Some(size.0),
                Cache::Infinite => None,
            },
            when: setup.when.name().to_owned(),
            algorithm: setup.algorithm.name().to_owned(),
            memory_bytes: setup.memory.0,
            spin_down: setup.spin_down.clone(),
            reads: self.reads,
            writes: self.writes,
            read_bytes: bytes(self.sectors_read),
            written_bytes: bytes(self.sectors_written),
            reads_asleep: self.reads_asleep,
            reads_from_flash: self.reads_from_flash,
            redirected: Redirected {
                writes: self.redirected,
                bytes: bytes(self.sectors_redirected),
                distinct_bytes: bytes(self.distinct.sectors()),
                by_day: self.by_day,
                per_sleep: Spread::of(&self.sleeps),
                sleeps: self.sleeps,
            },
            flushes: FlushFigures {
                count: self.flushes,
                time_s: self.flush.all.as_secs_f64(),
                flash_s: self.flush.flash.as_secs_f64(),
                disk_s: self.flush.disk.as_secs_f64(),
                at_end_s: self.flush_at_end.as_secs_f64(),
                read_bytes: bytes(self.flush_sectors_read),
                written_bytes: bytes(self.flush_sectors_written),
                writes: self.flush_writes,
                alone: AloneFigures {
                    time_s: self.alone.all.as_secs_f64(),
                    flash_s: self.alone.flash.as_secs_f64(),
                    disk_s: self.alone.disk.as_secs_f64(),
                },
            },
            contention: contention(self.flush.all, self.alone.all),
            disk_watts: disk_watts.to_owned(),
            flash_watts: flash_watts.to_owned(),
            energy: joules(&stats, disk, flash),
            spin_ups: stats.spin_ups,
            wakes: self.wakes,
            asleep_s: stats.time_in(PowerState::Standby).as_secs_f64(),
            time_s: time.as_secs_f64(),
            delayed: self.delayed,
            waited_for_spin_up: self.waited_for_spin_up,
            response: Responses::of(&self.response),
        }
    }
}

/// The share of the flushes' time that others' requests cost, in percent.
fn contention(all: Nanos, alone: Nanos) -> f64 {
    if all > Nanos(0) { 100.0 * (1.0 - alone.as_secs_f64() / all.as_secs_f64()) } else { 0.0 }
}

fn joules(stats: &PowerStats, disk: &Station, flash: &Station) -> Joules {
    let of = |state| stats.energy_in(state, disk.spec()).joules();
    let flash = flash.stats().energy(flash.spec()).joules();
    Joules {
        active: of(PowerState::Active),
        idle: of(PowerState::Idle),
        spinning_down: of(PowerState::SpinningDown),
        standby: of(PowerState::Standby),
        spinning_up: of(PowerState::SpinningUp),
        flash,
        total: stats.energy(disk.spec()).joules() + flash,
    }
}
