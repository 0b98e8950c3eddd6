//! The event loop.
//!
//! The next event is the earliest of these:
//! - the next request
//! - an event of the disk or the flash
//! - the moment at which the disk may sleep
//! - the moment at which it has been quiet for long enough
//! - the end
//!
//! At one moment, completions of the devices come first, then arrivals, then what follows from both
//! ([`Engine::apply_consequences`]).

use std::collections::VecDeque;

use umbrella_model::device::profiles::Options;
use umbrella_model::device::{Completion, Op};
use umbrella_model::power::Powered;
use umbrella_policy::flash_cache::{CachedExtent, Log, LogSector, Logged, Moment, Source, WriteRoute};
use umbrella_policy::spin_down::{Costs, SpinDown};
use umbrella_units::{Lba, Nanos, SectorRange};

use super::alone::StandaloneDisk;
use super::counters::HybridCounters;
use super::flush::Flush;
use super::foresight::next_need;
use super::input::{Arrival, Direction, HybridInput};
use super::outcome::HybridOutcome;
use super::probe::Probe;
use super::requests::{FLUSH_READ, FLUSH_SYNC, FLUSH_WRITE, Requests};
use super::setup::{Cache, HybridSetup};
use super::station::{Station, on_flash};
use crate::experiment::{LabError, Watch};

/// Sectors of metadata before the data of each write.
const METADATA: u32 = 1;

/// What the disk does, as far as decisions go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Motion {
    Spinning,
    /// It sleeps, or is about to.
    Asleep,
    Starting,
}

/// Why the disk is woken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WakeReason {
    Read,
    Full,
    Mark,
    End,
}

/// A hybrid disk and its input.
pub(super) struct Engine<'a, P> {
    setup: &'a HybridSetup,
    input: &'a HybridInput,
    /// Arrivals so far.
    arrived: usize,
    now: Nanos,
    disk: Station,
    flash: Station,
    log: Log,
    motion: Motion,
    /// Times the motor had been switched on when it was last put to sleep.
    spin_ups: u64,
    spin_down: SpinDown,
    break_even: Nanos,
    /// Whether the disk is needed by what was asked of it.
    needed: bool,
    sleep_at: Option<Nanos>,
    last_access: Nanos,
    flush: Option<Flush>,
    alone: StandaloneDisk,
    flush_wanted: bool,
    /// All has come, and the time is over.
    closing: bool,
    requests: Requests,
    /// Writes that do not fit into the log and may not go to the disk yet.
    blocked: VecDeque<Arrival>,
    counters: HybridCounters,
    done: Vec<Completion>,
    probe: &'a mut P,
}

impl<'a, P: Probe> Engine<'a, P> {
    pub(super) fn new(setup: &'a HybridSetup, input: &'a HybridInput, probe: &'a mut P) -> Result<Self, LabError> {
        let (disk, flash) = setup.profiles()?;
        let options = Options { write_cache: setup.write_cache, ..Options::default() };
        Engine::with(setup, input, probe, || (disk.powered(&options), flash.powered(&Options::default())))
    }

    /// The same with such devices: a pair for all that is asked, and one on which flushes are timed alone.
    pub(super) fn with(
        setup: &'a HybridSetup,
        input: &'a HybridInput,
        probe: &'a mut P,
        devices: impl Fn() -> (Powered, Powered),
    ) -> Result<Self, LabError> {
        let ((disk, flash), others) = (devices(), devices());
        // A disk that does not save by sleeping never pays for it.
        let break_even = disk.spec().break_even().unwrap_or(Nanos::NEVER);
        Ok(Engine {
            setup,
            input,
            arrived: 0,
            now: Nanos(0),
            spin_down: SpinDown::parse(&setup.spin_down, Costs { break_even })?,
            break_even,
            disk: Station::new(disk),
            flash: Station::new(flash),
            log: Log::new(setup.cache.log_size(), LogSector(0)),
            motion: Motion::Spinning,
            spin_ups: 0,
            needed: true,
            sleep_at: None,
            last_access: Nanos(0),
            flush: None,
            alone: StandaloneDisk::new(Station::new(others.0), Station::new(others.1)),
            flush_wanted: false,
            closing: false,
            requests: Requests::default(),
            blocked: VecDeque::new(),
            counters: HybridCounters::default(),
            done: Vec::new(),
            probe,
        })
    }

    /// Runs to the end; without an outcome when it is ended early.
    pub(super) fn run(mut self, watch: &mut Watch<'_>) -> Option<HybridOutcome> {
        self.apply_consequences();
        let mut steps = 0_u32;
        while let Some(at) = self.next_moment() {
            self.advance(at);
            while let Some(&arrival) = self.input.arrivals.get(self.arrived).filter(|next| next.at <= self.now) {
                self.arrived += 1;
                self.arrive(arrival);
            }
            self.apply_consequences();
            steps = steps.wrapping_add(1);
            if steps.is_multiple_of(1024) && !watch(Some(self.now.0 as f64 / self.input.length.0.max(1) as f64)) {
                return None;
            }
        }
        Some(self.counters.outcome(&self.input.name, self.setup, &self.disk, &self.flash, self.now))
    }

    /// When something will happen; nothing when all is done.
    fn next_moment(&self) -> Option<Nanos> {
        let devices = self.disk.next_event().into_iter().chain(self.flash.next_event());
        if self.closing {
            let busy = self.flush_wanted || self.flush.is_some() || !self.requests.is_empty();
            return devices.min().filter(|_| busy || !self.blocked.is_empty());
        }
        let timers = [self.sleep_at, self.quiet_at(), Some(self.input.length)];
        let to_come = timers.into_iter().flatten().filter(|&at| at > self.now);
        let next = self.input.arrivals.get(self.arrived).map(|next| next.at);
        devices.chain(to_come).chain(next).min()
    }

    fn advance(&mut self, to: Nanos) {
        if let Some(flush) = &self.flush {
            self.counters.flushing(flush, to.since(self.now), self.closing);
        }
        self.now = self.now.max(to);
        let mut done = std::mem::take(&mut self.done);
        self.disk.advance(self.now, &mut done);
        self.flash.advance(self.now, &mut done);
        for completion in done.drain(..) {
            self.complete(completion);
        }
        self.done = done;
    }

    fn complete(&mut self, completion: Completion) {
        match (completion.id, &mut self.flush) {
            (FLUSH_READ, Some(flush)) => flush.read_under_way = false,
            (FLUSH_WRITE, Some(flush)) => flush.write_under_way = false,
            (FLUSH_SYNC, Some(_)) => self.end_flush(),
            (id, _) => {
                if let Some(arrived) = self.requests.done(id) {
                    self.counters.answered(completion.at.since(arrived));
                }
            }
        }
    }

    fn arrive(&mut self, arrival: Arrival) {
        self.last_access = self.now;
        match arrival.direction {
            Direction::Read => {
                self.counters.reads += 1;
                self.counters.sectors_read += arrival.range.sectors;
                self.read(arrival);
            }
            Direction::Write => {
                self.counters.writes += 1;
                self.counters.sectors_written += arrival.range.sectors;
                // Writes that wait may be to the same sectors.
                if !self.blocked.is_empty() || !self.write(arrival) {
                    self.counters.waited_for_spin_up += u64::from(self.motion != Motion::Spinning);
                    self.blocked.push_back(arrival);
                }
            }
        }
    }

    fn read(&mut self, arrival: Arrival) {
        let range = arrival.range;
        let pieces: Vec<CachedExtent> = self.log.map().pieces(range).collect();
        let mut gaps = Vec::new();
        let mut at = range.start;
        for piece in &pieces {
            gaps.push(SectorRange::between(at, piece.range.start));
            at = piece.range.end();
        }
        gaps.push(SectorRange::between(at, range.end()));
        gaps.retain(|gap| gap.sectors > 0);
        let asleep = self.motion != Motion::Spinning;
        self.counters.reads_asleep += u64::from(asleep);
        self.counters.reads_from_flash += u64::from(asleep && gaps.is_empty());
        self.counters.waited_for_spin_up += u64::from(asleep && !gaps.is_empty());
        let id = self.requests.begin(arrival.at, (pieces.len() + gaps.len()) as u32);
        for piece in pieces {
            let place = self.on_flash(piece.source.at(), piece.range.sectors);
            self.flash.submit(self.now, id, Op::Read, place);
        }
        if !gaps.is_empty() {
            self.need_disk();
            self.wake(WakeReason::Read);
        }
        for gap in gaps {
            self.disk.submit(self.now, id, Op::Read, gap);
        }
    }

    /// Sends a write where it goes; false if it has to wait.
    fn write(&mut self, arrival: Arrival) -> bool {
        let range = arrival.range;
        if self.log.route(range, self.motion == Motion::Spinning) == WriteRoute::Disk {
            self.need_disk();
            let id = self.requests.begin(arrival.at, 1);
            self.disk.submit(self.now, id, Op::Write, range);
            self.probe.direct(range);
            return true;
        }
        let Some(record) = self.log.reserve(range.sectors + u64::from(METADATA)) else {
            self.moment(Moment::Full, WakeReason::Full);
            // Even if there is nothing to flush, as for a write that is larger than the log.
            self.wake(WakeReason::Full);
            return false;
        };
        // It is on flash only when the flash has written it, but whatever reads it from there comes after it in the
        // flash's queue.
        let at = LogSector(record.0 + u64::from(METADATA));
        let end = LogSector(at.0 + range.sectors);
        self.log.commit(end, [Logged { range, source: Source::Log(at), metadata: METADATA }]);
        let id = self.requests.begin(arrival.at, 1);
        let place = self.on_flash(record, range.sectors + u64::from(METADATA));
        self.flash.submit(self.now, id, Op::Write, place);
        self.counters.redirected(self.now, range);
        self.probe.logged(range, at);
        self.moment(Moment::Logged, WakeReason::Mark);
        true
    }

    /// Where a place of the log is on flash.
    fn on_flash(&self, at: LogSector, sectors: u64) -> SectorRange {
        on_flash(&self.flash, &self.log, at, sectors)
    }

    fn flushes(&self, moment: Moment) -> bool {
        self.setup.cache != Cache::Infinite && self.setup.options().flushes(moment, self.log.fill())
    }

    fn moment(&mut self, moment: Moment, reason: WakeReason) {
        if self.flush.is_none() && self.flushes(moment) {
            self.request_flush(reason);
        }
    }

    fn request_flush(&mut self, reason: WakeReason) {
        if self.log.used() > 0 {
            self.flush_wanted = true;
            self.wake(reason);
        }
    }

    fn wake(&mut self, reason: WakeReason) {
        if self.motion != Motion::Asleep {
            return;
        }
        self.motion = Motion::Starting;
        self.disk.wake(self.now);
        let wakes = &mut self.counters.wakes;
        let count = match reason {
            WakeReason::Read => &mut wakes.read,
            WakeReason::Full => &mut wakes.full,
            WakeReason::Mark => &mut wakes.mark,
            WakeReason::End => &mut wakes.end,
        };
        *count += 1;
    }

    /// A request needs the disk itself.
    fn need_disk(&mut self) {
        if !self.needed {
            self.needed = true;
            self.sleep_at = None;
            self.spin_down.accessed(self.now);
        }
    }

    /// Applies the consequences of the last events.
    fn apply_consequences(&mut self) {
        if self.motion == Motion::Starting && self.disk.spins() {
            self.motion = Motion::Spinning;
            self.counters.is_awake();
            // It may have been kept from sleeping before its motor was off.
            if self.disk.stats().spin_ups > self.spin_ups {
                self.moment(Moment::SpunUp, WakeReason::Read);
            }
        }
        while let Some(&arrival) = self.blocked.front() {
            if !self.write(arrival) {
                break;
            }
            self.blocked.pop_front();
        }
        self.close();
        self.continue_flush();
        self.watch_idleness();
        self.spin_down();
    }

    /// Flushes the log at the end.
    fn close(&mut self) {
        let all_came = self.arrived == self.input.arrivals.len() && self.now >= self.input.length;
        self.closing |= all_came;
        if self.closing && self.setup.cache != Cache::Infinite && self.flush.is_none() {
            self.request_flush(WakeReason::End);
        }
    }

    fn continue_flush(&mut self) {
        if self.flush_wanted && self.flush.is_none() && self.motion == Motion::Spinning {
            self.flush_wanted = false;
            if self.log.used() > 0 {
                self.counters.flush_begins(self.alone.flush(self.now, self.setup, &self.log));
                self.flush = Some(Flush::new(self.setup.algorithm, self.setup.memory, &self.log));
            }
        }
        let Some(flush) = &mut self.flush else { return };
        if let Some(part) = flush.next_write() {
            self.counters.flush_sectors_written += part.range.sectors;
            self.counters.flush_writes += 1;
            if let Some((chunk, write)) = part.begins {
                self.probe.drains(chunk, write);
            }
            self.disk.submit(self.now, FLUSH_WRITE, Op::Write, part.range);
        }
        if let Some(read) = flush.next_read(&self.log) {
            self.counters.flush_sectors_read += read.sectors;
            let place = self.on_flash(read.at, read.sectors);
            self.flash.submit(self.now, FLUSH_READ, Op::Read, place);
        }
        if let Some(flush) = &mut self.flush
            && flush.is_written()
        {
            flush.sync_under_way = true;
            self.disk.submit(self.now, FLUSH_SYNC, Op::Flush, SectorRange { start: Lba(0), sectors: 0 });
        }
    }

    fn end_flush(&mut self) {
        if let Some(flush) = self.flush.take() {
            self.log.release(flush.until());
            self.probe.released(&self.log);
        }
    }

    /// Tells the spin-down policy when no request needs the disk any more.
    fn watch_idleness(&mut self) {
        let of_flush = self.flush.as_ref().is_some_and(|flush| flush.write_under_way || flush.sync_under_way);
        let idle = self.disk.is_idle_but(usize::from(of_flush)) && self.blocked.is_empty();
        if !self.needed || !idle || self.motion == Motion::Starting {
            return;
        }
        self.needed = false;
        if self.spin_down.info().offline {
            let until = self.now + self.break_even;
            let coming = self.input.arrivals.get(self.arrived..).unwrap_or_default();
            let endless = self.setup.cache == Cache::Infinite;
            self.spin_down.set_next_access(next_need(self.setup, &self.log, coming, until, endless));
        }
        self.sleep_at = self.spin_down.idle(self.now);
    }

    /// Whether the disk is awake with a log that waits to be flushed.
    fn waits_for_rest(&self) -> bool {
        let waits = self.motion == Motion::Spinning && self.flush.is_none() && !self.flush_wanted;
        waits && self.setup.cache != Cache::Infinite
    }

    fn quiet_at(&self) -> Option<Nanos> {
        self.setup.options().quiet_at(self.last_access, self.log.fill()).filter(|_| self.waits_for_rest())
    }

    fn spin_down(&mut self) {
        let may_sleep = self.motion == Motion::Spinning && !self.needed && !self.closing && !self.flush_wanted;
        let sleep_at = self.sleep_at.filter(|_| may_sleep);
        let (options, fill) = (self.setup.options(), self.log.fill());
        if self.waits_for_rest() && options.flushes_at_rest(self.now, self.last_access, sleep_at, fill) {
            self.request_flush(WakeReason::Mark);
            return self.continue_flush();
        }
        if sleep_at.is_some_and(|at| at <= self.now) && self.flush.is_none() {
            self.spin_ups = self.disk.stats().spin_ups;
            self.disk.standby(self.now);
            self.motion = Motion::Asleep;
            self.counters.this_sleep = Some(0);
        }
    }
}
