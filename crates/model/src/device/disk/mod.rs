//! A rotating disk: heads that seek, a platter that turns, a buffer and a command queue.
//!
//! - The mechanism serves one thing at a time: it positions (seek or head switch, then wait for the sector), then
//!   passes over the sectors.
//! - Of the commands in its queue it serves the one with the shortest positioning time, unless one has waited past the
//!   age limit.
//! - With the write cache, a write completes once it is in the buffer. The buffer is written out when nothing is to be
//!   read, when it is half full, or when a command waits for it. Among the runs nearest to the heads, the
//!   one with the shortest positioning time is written first.
//! - After a read the heads keep reading ahead until there is other work or the segment is full.
//!
//! Nothing is random: the position of the platter depends only on the time.

mod buffer;
mod destage;
mod geometry;
mod layout;
mod measured;
#[cfg(test)]
mod measured_tests;
mod pieces;
mod read_ahead;
mod seek;
mod service;
mod spec;
#[cfg(test)]
mod tests;
mod timing;

use std::collections::VecDeque;

use umbrella_units::{Lba, Nanos, SECTOR_BYTES};

pub use geometry::{Angle, Geometry, SectorAddress};
pub use layout::{Band, SectorLayout, Spares, TrackOrder};
pub use measured::{BufferRules, CommandGaps, CommandTimes, ExtraDisconnect, Measured, ReadAheadTo, WriteBack};
pub use seek::SeekCurve;
pub use spec::{DiskSpec, Rate, SeekTimes};

use super::{Completion, Device, DeviceStats, Op, Request, RequestId};
use buffer::{DirtyRuns, ReadSegments};
use read_ahead::ReadAhead;
use service::Wants;
use timing::Timing;

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
    place: SectorAddress,
    write: bool,
    since: Nanos,
    /// When the heads may move for it.
    ready: Nanos,
    /// When the media may take its first sector.
    data: Nanos,
    /// Time from the end of the media transfer of a write to its report to the host.
    report_delay: Nanos,
    /// Sectors at its front that are in the buffer.
    buffered: u64,
}

/// A command that waits for the buffer.
#[derive(Debug, Clone, Copy)]
enum BlockedCommand {
    Write { id: RequestId, start: u64, end: u64, since: Nanos },
    Flush { id: RequestId, since: Nanos },
}

impl BlockedCommand {
    fn since(self) -> Nanos {
        match self {
            BlockedCommand::Write { since, .. } | BlockedCommand::Flush { since, .. } => since,
        }
    }
}

/// What the mechanism is doing.
#[derive(Debug, Clone, Copy)]
enum DiskWork {
    /// A command that is reported to the host `report_delay` after the mechanism is done, with the sectors that the
    /// buffer then has.
    Command {
        id: RequestId,
        report_delay: Nanos,
        write: bool,
        sectors: (u64, u64),
    },
    Destage {
        sectors: u64,
    },
}

/// A rotating disk.
#[derive(Debug, Clone)]
#[expect(clippy::struct_excessive_bools, reason = "options, and what happened last: none depends on another")]
pub struct Disk {
    geometry: Geometry,
    read_seek: SeekCurve,
    write_seek: SeekCurve,
    /// Before a read and before a write.
    head_switch: [Nanos; 2],
    settles_again: bool,
    timing: Timing,
    rules: Option<BufferRules>,
    capacity: u64,
    depth: usize,
    age_limit: Nanos,
    write_cache: bool,
    write_room: u64,
    write_runs: usize,

    now: Nanos,
    queue: Vec<Command>,
    held: VecDeque<BlockedCommand>,
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
    /// Whether the heads wrote last.
    wrote: bool,
    ahead: Option<ReadAhead>,
    /// Whether reading ahead stopped because its segment was full, and nothing else was done since.
    paused: bool,
    segments: ReadSegments,
    dirty: DirtyRuns,
    destaging: u64,
    /// Whether the command before was a write.
    after_write: bool,
    /// The last read, and where the one before it ended.
    asked: (u64, u64),
    asked_before: u64,
    busy_since: Option<Nanos>,
    stats: DeviceStats,
}

impl Disk {
    /// A disk that stands still at address 0, everything empty.
    pub fn new(spec: &DiskSpec) -> Disk {
        let geometry = Geometry::new(spec);
        let (half, rules) = (spec.cache.0 / SECTOR_BYTES / 2, spec.measured.buffer);
        let buffer = rules.map_or(half, |rules| u64::from(rules.segment_sectors));
        let depth = spec.queue_depth.clamp(1, 256) as usize;
        Disk {
            read_seek: SeekCurve::before_read(spec, geometry.cylinders()),
            write_seek: SeekCurve::before_write(spec, geometry.cylinders()),
            head_switch: [0, spec.measured.write_settle]
                .map(|settle| Nanos(spec.head_switch.0.saturating_add_signed(settle))),
            settles_again: spec.measured.settles_again,
            timing: Timing::new(spec),
            rules,
            capacity: geometry.capacity().0,
            depth,
            age_limit: spec.age_limit,
            write_cache: rules.map_or(spec.write_cache, |rules| rules.write_back != WriteBack::Never) && buffer > 0,
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
            wrote: false,
            ahead: None,
            paused: false,
            segments: match rules {
                Some(rules) => ReadSegments::with_written(rules.segments, buffer),
                None => ReadSegments::new(spec.read_segments, buffer),
            },
            dirty: DirtyRuns::default(),
            destaging: 0,
            after_write: false,
            asked: (0, 0),
            asked_before: 0,
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

    /// The buffer takes or gives the data of a command that came at `now`; returns when it begins to.
    #[inline]
    fn transfer_done(&mut self, now: Nanos, id: RequestId, sectors: u64, write: bool) -> Nanos {
        let begin =
            (now + self.timing.hit(write, self.after_write) + self.timing.prepare(write)).max(self.interface_free);
        self.complete_at(id, begin + self.timing.on_bus(write, sectors) + self.timing.done(write));
        begin
    }

    /// Reports to the host at `at`, in the order of the calls.
    fn complete_at(&mut self, id: RequestId, at: Nanos) {
        let at = at.max(self.interface_free);
        self.interface_free = at;
        self.transfers.push_back(Completion { id, at });
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
        let flushes_first = self.rules.is_some() && !self.dirty.is_empty();
        let command = if starving || flushes_first { None } else { self.pick(now) };
        let destage = if command.is_none() || must_destage { self.pick_run(now) } else { None };
        match (command, destage) {
            (Some((index, cost)), run) if run.is_none_or(|(_, other)| cost <= other) => self.begin(now, index, cost),
            (_, Some((first, cost))) => self.destage(now, first, cost),
            (Some((index, cost)), None) => self.begin(now, index, cost),
            (None, None) => {}
        }
    }

    /// The heads have passed up to `end`, having sought so far for it.
    fn arrive(&mut self, end: u64, distance: u32) {
        let last = self.geometry.place(Lba(end.saturating_sub(1)));
        (self.cylinder, self.head, self.at) = (last.cylinder, last.head, end);
        self.stats.seeks += u64::from(distance > 0);
        self.stats.seek_cylinders += u64::from(distance);
    }

    /// What was written is no longer what was read; it may be read itself.
    fn keep_written(&mut self, start: u64, end: u64) {
        self.segments.forget(start, end);
        if self.rules.is_some_and(|rules| rules.reads_written) {
            self.segments.keep_written(start, end);
        }
    }

    /// Whether a write at `start` continues what waits to be written, or is being written.
    fn continues_written(&self, start: u64) -> bool {
        self.dirty.ends_at(start) || (self.dirty.is_empty() && self.destaging > 0 && self.at == start)
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
                self.asked_before = self.asked.1.saturating_sub(1);
                self.asked = (start, end);
                if sectors == 0 || self.segments.hit(start, end) || self.dirty.covers(start, end) {
                    self.transfer_done(now, request.id, sectors, false);
                    self.extend_ahead(now, end);
                } else {
                    let buffered = if self.rules.is_some() { self.segments.front(start) } else { 0 };
                    self.queue_command(now, request.id, (start + buffered, end), Wants::Read { buffered });
                }
            }
            Op::Write => {
                self.stats.writes += 1;
                self.stats.sectors_written += sectors;
                if sectors == 0 {
                    self.transfer_done(now, request.id, 0, true);
                } else if !self.write_cache {
                    self.segments.forget(start, end);
                    self.queue_command(now, request.id, (start, end), Wants::Write);
                } else if !self.held.is_empty() || !self.buffer_write(now, request.id, start, end) {
                    self.held.push_back(BlockedCommand::Write { id: request.id, start, end, since: now });
                }
            }
            Op::Flush => {
                if self.held.is_empty() && self.dirty.is_empty() && self.destaging == 0 {
                    self.transfer_done(now, request.id, 0, true);
                } else {
                    self.held.push_back(BlockedCommand::Flush { id: request.id, since: now });
                }
            }
            Op::Discard => {
                self.dirty.discard(start, end, |at| self.geometry.place(Lba(at)));
                self.transfer_done(now, request.id, 0, true);
            }
        }
        match request.op {
            Op::Read => self.after_write = false,
            Op::Write => self.after_write = true,
            Op::Flush | Op::Discard => {}
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
                    DiskWork::Command { id, report_delay, write, sectors: (start, end) } => {
                        if !write {
                            self.segments.add(start, end);
                        } else if self.rules.is_some() {
                            self.keep_written(start, end);
                        }
                        if self.timing.bus {
                            self.complete_at(id, at + report_delay);
                        } else {
                            self.in_flight -= 1;
                            done.push(Completion { id, at });
                        }
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
