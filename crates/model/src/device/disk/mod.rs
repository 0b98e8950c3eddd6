//! A rotating disk: heads that seek, a platter that turns, a buffer and a command queue.
//!
//! - The mechanism serves one thing at a time: position (seek or head switch, then wait for the sector), then pass over the sectors.
//! - Of the commands in its queue it serves the one with the shortest positioning time, unless one has waited past the age limit.
//! - With the write cache, a write completes once it is in the buffer; the buffer is written out by shortest positioning time among the
//!   runs nearest to the heads, when nothing is to be read, when the buffer is half full, or when somebody waits for it.
//! - After a read the heads go on reading ahead until something else is to be done or the segment is full.
//!
//! Nothing is random: where the platter stands follows from the time alone.

mod buffer;
mod geometry;
mod read_ahead;
mod seek;
mod spec;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use umbrella_units::{Lba, Nanos, SECTOR_BYTES};

pub use geometry::{Angle, Geometry, Place};
pub use seek::SeekCurve;
pub use spec::{DiskSpec, Rate, SeekTimes};

use super::{Completion, Device, DeviceStats, Op, Request, RequestId};
use buffer::{DirtyRuns, ReadSegments};
use read_ahead::ReadAhead;

/// Runs looked at on either side of the heads when the buffer is written out.
const DESTAGE_REACH: usize = 16;
/// The longest run written out in one piece, in sectors: 1 MiB, or an eighth of the buffer if that is less.
const DESTAGE_SECTORS: u64 = 2048;

/// A command that waits for the media.
#[derive(Debug, Clone, Copy)]
struct Command {
    id: RequestId,
    start: u64,
    end: u64,
    place: Place,
    write: bool,
    since: Nanos,
}

/// A command that waits for the buffer.
#[derive(Debug, Clone, Copy)]
enum Held {
    Write { id: RequestId, start: u64, end: u64, since: Nanos },
    Flush { id: RequestId, since: Nanos },
}

impl Held {
    fn since(self) -> Nanos {
        match self {
            Held::Write { since, .. } | Held::Flush { since, .. } => since,
        }
    }
}

/// What the mechanism is doing.
#[derive(Debug, Clone, Copy)]
enum DiskWork {
    Command { id: RequestId, read: Option<(u64, u64)> },
    Destage { sectors: u64 },
}

/// A rotating disk.
#[derive(Debug, Clone)]
pub struct Disk {
    geometry: Geometry,
    read_seek: SeekCurve,
    write_seek: SeekCurve,
    head_switch: Nanos,
    overhead: Nanos,
    /// A sector's time on the interface, in nanoseconds times 2^16.
    interface: u64,
    capacity: u64,
    depth: usize,
    age_limit: Nanos,
    write_cache: bool,
    write_room: u64,
    write_runs: usize,

    now: Nanos,
    queue: Vec<Command>,
    held: VecDeque<Held>,
    work: Option<(Nanos, DiskWork)>,
    transfers: VecDeque<Completion>,
    interface_free: Nanos,
    /// Where the last write into the buffer begins, and when its first data came.
    arriving: (u64, Nanos),
    in_flight: usize,
    cylinder: u32,
    head: u32,
    /// The sector behind the last one that passed.
    at: u64,
    ahead: Option<ReadAhead>,
    /// Whether reading ahead stopped because its segment was full, and nothing else was done since.
    paused: bool,
    segments: ReadSegments,
    dirty: DirtyRuns,
    destaging: u64,
    busy_since: Option<Nanos>,
    stats: DeviceStats,
}

impl Disk {
    /// A disk that stands still at address 0, everything empty.
    pub fn new(spec: &DiskSpec) -> Disk {
        let geometry = Geometry::new(spec);
        let buffer = spec.cache.0 / SECTOR_BYTES / 2;
        let depth = spec.queue_depth.clamp(1, 256) as usize;
        Disk {
            read_seek: SeekCurve::new(spec.read_seek, geometry.cylinders()),
            write_seek: SeekCurve::new(spec.write_seek, geometry.cylinders()),
            head_switch: spec.head_switch,
            overhead: spec.overhead,
            interface: ((SECTOR_BYTES * 1_000_000_000) << 16) / spec.interface.0.max(1 << 16),
            capacity: geometry.capacity().0,
            depth,
            age_limit: spec.age_limit,
            write_cache: spec.write_cache && buffer > 0,
            write_room: buffer,
            write_runs: spec.write_runs.max(1) as usize,
            now: Nanos(0),
            queue: Vec::with_capacity(depth),
            held: VecDeque::new(),
            work: None,
            transfers: VecDeque::new(),
            interface_free: Nanos(0),
            arriving: (0, Nanos(0)),
            in_flight: 0,
            cylinder: 0,
            head: 0,
            at: 0,
            ahead: None,
            paused: false,
            segments: ReadSegments::new(spec.read_segments, buffer),
            dirty: DirtyRuns::default(),
            destaging: 0,
            busy_since: None,
            stats: DeviceStats::default(),
            geometry,
        }
    }

    /// Makes the first `capacity` sectors all there is; the mechanics stay the same.
    #[must_use]
    pub fn with_capacity(mut self, capacity: Lba) -> Disk {
        self.capacity = self.capacity.min(capacity.0.max(1));
        self
    }

    /// Its layout.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// Seek times before a read.
    pub fn read_seek(&self) -> &SeekCurve {
        &self.read_seek
    }

    #[inline]
    fn transfer_done(&mut self, now: Nanos, id: RequestId, sectors: u64) -> Nanos {
        let begin = (now + self.overhead).max(self.interface_free);
        let at = begin + Nanos(sectors.saturating_mul(self.interface) >> 16);
        self.interface_free = at;
        self.transfers.push_back(Completion { id, at });
        begin
    }

    /// How long the heads take to the track of `place`.
    #[inline]
    fn moving(&self, place: Place, write: bool) -> Nanos {
        let distance = self.cylinder.abs_diff(place.cylinder);
        if distance == 0 {
            if place.head == self.head { Nanos(0) } else { self.head_switch }
        } else if write {
            self.write_seek.time(distance)
        } else {
            self.read_seek.time(distance)
        }
    }

    /// How long until the sector at `place` is under its head, starting at `now`.
    #[inline]
    fn positioning(&self, place: Place, write: bool, now: Nanos) -> Nanos {
        let moved = self.moving(place, write);
        moved + self.geometry.wait(place.angle, now + moved)
    }

    /// The same counted from `now` for a start at `begin`, if it is less than `best`.
    #[inline]
    fn positioning_below(&self, best: Nanos, place: Place, write: bool, now: Nanos, begin: Nanos) -> Option<Nanos> {
        let moved = (begin - now) + self.moving(place, write);
        if moved >= best {
            return None;
        }
        let cost = moved + self.geometry.wait(place.angle, now + moved);
        (cost < best).then_some(cost)
    }

    /// The next command: one that waited too long, else the one with the shortest positioning time.
    fn pick(&self, now: Nanos) -> Option<(usize, Nanos)> {
        if self.queue.is_empty() {
            return None;
        }
        let mut oldest = (Nanos::NEVER, 0);
        let mut best: Option<(usize, Nanos)> = None;
        for (index, command) in self.queue.iter().enumerate() {
            if command.since < oldest.0 {
                oldest = (command.since, index);
            }
            let begin = now.max(command.since + self.overhead);
            let least = best.map_or(Nanos::NEVER, |(_, least)| least);
            let cost = match self.on_the_way(command) {
                Some(_) => Some(Nanos(0)),
                None => self.positioning_below(least, command.place, command.write, now, begin),
            };
            if let Some(cost) = cost.filter(|&cost| cost < least) {
                best = Some((index, cost));
            }
        }
        // At the end of time everything takes equally long.
        let (index, cost) = best.unwrap_or((oldest.1, Nanos::NEVER));
        if index != oldest.1 && now.since(oldest.0) > self.age_limit {
            let command = &self.queue[oldest.1];
            return Some((oldest.1, self.positioning(command.place, command.write, now)));
        }
        Some((index, cost))
    }

    /// Starts the next piece of work if the mechanism has none.
    fn start(&mut self, now: Nanos) {
        if self.work.is_some() {
            return;
        }
        let must_destage = !self.held.is_empty() || self.dirty.sectors() * 2 > self.write_room;
        if self.queue.is_empty() && self.dirty.is_empty() {
            return;
        }
        self.note_ahead(now);
        let starving = self.held.front().is_some_and(|held| now.since(held.since()) > self.age_limit);
        let command = if starving { None } else { self.pick(now) };
        let destage = if command.is_none() || must_destage { self.pick_run(now) } else { None };
        match (command, destage) {
            (Some((index, cost)), run) if run.is_none_or(|(_, other)| cost <= other) => self.begin(now, index, cost),
            (_, Some((first, cost))) => self.destage(now, first, cost),
            (Some((index, cost)), None) => self.begin(now, index, cost),
            (None, None) => {}
        }
    }

    fn begin(&mut self, now: Nanos, index: usize, cost: Nanos) {
        let command = self.queue.swap_remove(index);
        self.paused = false;
        let sectors = command.end - command.start;
        let work = DiskWork::Command { id: command.id, read: (!command.write).then_some((command.start, command.end)) };
        if let Some(ahead) = self.on_the_way(&command) {
            let passed = ahead.since + self.geometry.transfer(Lba(ahead.from), command.end - ahead.from);
            let earliest = command.since + self.overhead;
            self.ahead = Some(ReadAhead { limit: self.ahead_limit(command.end), ..ahead });
            self.arrive(command.end, 0);
            self.work = Some((passed.max(earliest).max(now), work));
            return;
        }
        let done = now + cost + self.geometry.transfer(Lba(command.start), sectors);
        let distance = self.cylinder.abs_diff(command.place.cylinder);
        self.arrive(command.end, distance);
        if command.write {
            self.ahead = None;
        } else {
            let limit = self.ahead_limit(command.end);
            self.ahead = (limit > command.end).then_some(ReadAhead { from: command.end, since: done, limit });
        }
        self.work = Some((done, work));
    }

    /// The heads have passed up to `end`, having sought so far for it.
    fn arrive(&mut self, end: u64, distance: u32) {
        let last = self.geometry.place(Lba(end.saturating_sub(1)));
        (self.cylinder, self.head, self.at) = (last.cylinder, last.head, end);
        self.stats.seeks += u64::from(distance > 0);
        self.stats.seek_cylinders += u64::from(distance);
    }

    /// From when on, at `now` or later, a run's first data is in the buffer; the rest comes faster than the media takes it.
    fn present(&self, now: Nanos, first: u64) -> Nanos {
        if first == self.arriving.0 { now.max(self.arriving.1) } else { now }
    }

    /// The run of the buffer that is reached soonest.
    fn pick_run(&self, now: Nanos) -> Option<(u64, Nanos)> {
        let best = self.nearest_of(self.dirty.after(self.at), None, now);
        let best = self.nearest_of(self.dirty.before(self.at), best, now);
        best.or_else(|| self.dirty.after(0).next().map(|(first, _)| (first, Nanos::NEVER)))
    }

    /// The run that is reached soonest, of `best` and the `runs` on one side of the heads, the nearest of them first.
    #[inline]
    fn nearest_of(
        &self,
        runs: impl Iterator<Item = (u64, Place)>,
        mut best: Option<(u64, Nanos)>,
        now: Nanos,
    ) -> Option<(u64, Nanos)> {
        let mut least = best.map_or(Nanos::NEVER, |(_, least)| least);
        for (start, place) in runs.take(DESTAGE_REACH) {
            let moving = self.moving(place, true);
            // What is farther on this side takes the heads even longer.
            if moving >= least && place.cylinder != self.cylinder {
                break;
            }
            let moved = (self.present(now, start) - now) + moving;
            if moved >= least {
                continue;
            }
            let cost = moved + self.geometry.wait(place.angle, now + moved);
            if cost < least {
                least = cost;
                best = Some((start, cost));
            }
        }
        best
    }

    fn destage(&mut self, now: Nanos, first: u64, cost: Nanos) {
        let end =
            self.dirty.take(first, DESTAGE_SECTORS.min(self.write_room / 8).max(1), |at| self.geometry.place(Lba(at)));
        let distance = self.cylinder.abs_diff(self.geometry.place(Lba(first)).cylinder);
        let done = now + cost + self.geometry.transfer(Lba(first), end - first);
        self.ahead = None;
        self.paused = false;
        self.arrive(end, distance);
        self.destaging = end - first;
        self.work = Some((done, DiskWork::Destage { sectors: end - first }));
    }

    /// Lets held commands in, in their order, as far as the buffer has room.
    fn admit(&mut self, now: Nanos, done: &mut Vec<Completion>) {
        while let Some(&held) = self.held.front() {
            match held {
                Held::Write { id, start, end, .. } => {
                    if !self.buffer_write(now, id, start, end) {
                        return;
                    }
                }
                Held::Flush { id, .. } => {
                    if !self.dirty.is_empty() || self.destaging > 0 {
                        return;
                    }
                    self.in_flight -= 1;
                    done.push(Completion { id, at: now });
                }
            }
            self.held.pop_front();
        }
    }

    /// Takes a write into the buffer if it has room; one larger than the whole buffer goes in when it is empty.
    fn buffer_write(&mut self, now: Nanos, id: RequestId, start: u64, end: u64) -> bool {
        let used = self.dirty.sectors() + self.destaging;
        if used > 0 && (used + (end - start) > self.write_room || self.dirty.len() >= self.write_runs) {
            return false;
        }
        self.segments.forget(start, end);
        self.dirty.add(start, end, |at| self.geometry.place(Lba(at)));
        self.arriving = (start, self.transfer_done(now, id, end - start));
        true
    }

    fn queue_command(&mut self, now: Nanos, id: RequestId, range: (u64, u64), write: bool) {
        let (start, end) = range;
        let place = self.geometry.place(Lba(start));
        self.queue.push(Command { id, start, end, place, write, since: now });
    }

    fn note_idle(&mut self, now: Nanos) {
        if self.in_flight > 0 || self.work.is_some() {
            return;
        }
        if let Some(since) = self.busy_since.take() {
            self.stats.busy = self.stats.busy + now.since(since);
        }
    }
}

impl Device for Disk {
    fn room(&self) -> usize {
        self.depth.saturating_sub(self.in_flight)
    }

    fn submit(&mut self, now: Nanos, request: Request) {
        let now = now.max(self.now);
        self.now = now;
        let (start, end) = request.clamped(Lba(self.capacity));
        let sectors = end - start;
        self.in_flight += 1;
        self.busy_since.get_or_insert(now);
        match request.op {
            Op::Read => {
                self.stats.reads += 1;
                self.stats.sectors_read += sectors;
                self.note_ahead(now);
                if sectors == 0 || self.segments.hit(start, end) || self.dirty.covers(start, end) {
                    self.transfer_done(now, request.id, sectors);
                    self.extend_ahead(now, end);
                } else {
                    self.queue_command(now, request.id, (start, end), false);
                }
            }
            Op::Write => {
                self.stats.writes += 1;
                self.stats.sectors_written += sectors;
                if sectors == 0 {
                    self.transfer_done(now, request.id, 0);
                } else if !self.write_cache {
                    self.segments.forget(start, end);
                    self.queue_command(now, request.id, (start, end), true);
                } else if !self.held.is_empty() || !self.buffer_write(now, request.id, start, end) {
                    self.held.push_back(Held::Write { id: request.id, start, end, since: now });
                }
            }
            Op::Flush => {
                if self.held.is_empty() && self.dirty.is_empty() && self.destaging == 0 {
                    self.transfer_done(now, request.id, 0);
                } else {
                    self.held.push_back(Held::Flush { id: request.id, since: now });
                }
            }
            Op::Discard => {
                self.dirty.discard(start, end, |at| self.geometry.place(Lba(at)));
                self.transfer_done(now, request.id, 0);
            }
        }
        self.start(now);
    }

    fn next_event(&self) -> Option<Nanos> {
        let work = self.work.map(|(at, _)| at);
        let transfer = self.transfers.front().map(|completion| completion.at);
        match (work, transfer) {
            (Some(work), Some(transfer)) => Some(work.min(transfer)),
            (work, transfer) => work.or(transfer),
        }
    }

    fn advance(&mut self, now: Nanos, done: &mut Vec<Completion>) {
        while let Some(at) = self.next_event() {
            if at > now {
                break;
            }
            self.now = self.now.max(at);
            if self.transfers.front().is_some_and(|completion| completion.at == at) {
                done.extend(self.transfers.pop_front());
                self.in_flight -= 1;
            } else if let Some((_, work)) = self.work.take() {
                match work {
                    DiskWork::Command { id, read } => {
                        if let Some((start, end)) = read {
                            self.segments.add(start, end);
                        }
                        self.in_flight -= 1;
                        done.push(Completion { id, at });
                    }
                    DiskWork::Destage { sectors } => self.destaging -= sectors,
                }
                self.admit(at, done);
                self.start(at);
            }
            self.note_idle(at);
        }
        self.now = self.now.max(now);
    }

    fn capacity(&self) -> Lba {
        Lba(self.capacity)
    }

    fn stats(&self) -> DeviceStats {
        let mut stats = self.stats;
        if let Some(since) = self.busy_since {
            stats.busy = stats.busy + self.now.since(since);
        }
        stats
    }
}
