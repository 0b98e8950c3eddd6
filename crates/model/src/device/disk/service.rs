//! Serving a command from the media: which one, when the heads are there, and when the host has its data.

use umbrella_units::{Lba, Nanos};

use super::timing::{Follows, Timing};
use super::{Command, Disk, DiskWork, ReadAhead, RequestId, SectorAddress};

/// What a command wants of the media.
#[derive(Debug, Clone, Copy)]
pub(super) enum Wants {
    /// A read: the first `buffered` sectors are in the buffer, the rest comes from the media.
    Read { buffered: u64 },
    /// A write.
    Write,
}

/// A read's way from the media.
#[derive(Debug, Clone, Copy)]
struct MediaTransfer {
    /// When its first sector begins to pass.
    first: Nanos,
    /// When the last of its sectors to pass has passed.
    done: Nanos,
    /// Sectors at its front that pass last: all of them, or those that were missed when the heads arrived among them.
    front: u64,
}

impl Disk {
    pub(super) fn queue_command(&mut self, now: Nanos, id: RequestId, range: (u64, u64), wants: Wants) {
        let (start, end) = range;
        let place = self.geometry.place(Lba(start));
        let (write, buffered) = match wants {
            Wants::Read { buffered } => (false, buffered),
            Wants::Write => (true, 0),
        };
        let (ready, data, report_delay) = if write {
            let follows = self.before_write(start);
            let (times, sector) = (self.timing.write(follows), self.geometry.transfer(Lba(start), 1));
            let ready = now + times.overhead;
            let data = self.timing.data_present(ready, end - start, sector, follows);
            (ready + times.seek_delay, data, times.done)
        } else {
            let of = if buffered > 0 { Timing::hit } else { Timing::miss };
            (now + of(&self.timing, false, self.after_write), Nanos(0), Nanos(0))
        };
        self.queue.push(Command { id, start, end, place, write, since: now, ready, data, report_delay, buffered });
    }

    /// What was before a write at `start`.
    fn before_write(&self, start: u64) -> Follows {
        match (self.after_write, start == self.at) {
            (false, _) => Follows::Read,
            (true, true) => Follows::ItsWrite,
            (true, false) => Follows::OtherWrite,
        }
    }

    /// How long the heads take to the track of `place`.
    #[inline]
    pub(super) fn moving(&self, place: SectorAddress, write: bool) -> Nanos {
        let distance = self.cylinder.abs_diff(place.cylinder);
        match (distance, self.settles_again) {
            (0, true) if write => self.head_switch[1],
            (0, true) if self.wrote => self.read_seek.time(1),
            (0, _) if place.head == self.head => Nanos(0),
            (0, _) => self.head_switch[usize::from(write)],
            _ if write => self.write_seek.time(distance),
            _ => self.read_seek.time(distance),
        }
    }

    /// How long until the sector at `place` is under its head, starting at `now`.
    #[inline]
    pub(super) fn positioning(&self, place: SectorAddress, write: bool, now: Nanos) -> Nanos {
        let moved = self.moving(place, write);
        moved + self.geometry.wait(place.angle, now + moved)
    }

    /// The same counted from `now` for a start at `begin`, if it is less than `best`.
    #[inline]
    fn positioning_below(&self, best: Nanos, command: &Command, now: Nanos) -> Option<Nanos> {
        let Command { place, write, ready, data, .. } = *command;
        let moved = (now.max(ready) - now + self.moving(place, write)).max(data.since(now));
        if moved >= best {
            return None;
        }
        let cost = moved + self.geometry.wait(place.angle, now + moved);
        (cost < best).then_some(cost)
    }

    /// The next command: one that waited too long, else the one with the shortest positioning time.
    pub(super) fn pick(&self, now: Nanos) -> Option<(usize, Nanos)> {
        if self.queue.is_empty() {
            return None;
        }
        let mut oldest = (Nanos::NEVER, 0);
        let mut best: Option<(usize, Nanos)> = None;
        for (index, command) in self.queue.iter().enumerate() {
            if command.since < oldest.0 {
                oldest = (command.since, index);
            }
            let least = best.map_or(Nanos::NEVER, |(_, least)| least);
            let cost = match self.read_ahead_reaching(command) {
                Some(_) => Some(Nanos(0)),
                None => self.positioning_below(least, command, now),
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

    pub(super) fn begin(&mut self, now: Nanos, index: usize, cost: Nanos) {
        let command = self.queue.swap_remove(index);
        self.paused = false;
        let Command { id, write, start, end, .. } = command;
        let arrived = command.ready.max(now) + self.moving(command.place, write);
        self.wrote = write;
        if let Some(ahead) = self.read_ahead_reaching(&command) {
            let passed = ahead.since + self.geometry.transfer(Lba(ahead.from), end - ahead.from);
            let done = passed.max(command.ready).max(now);
            self.ahead = Some(ReadAhead { limit: self.ahead_limit(end), ..ahead });
            self.arrive(end, 0);
            let report_delay = self.read_report_delay(&command, MediaTransfer { first: now, done, front: end - start });
            self.work = Some((done, DiskWork::Command { id, report_delay, write, sectors: (start, end) }));
            return;
        }
        let passing = self.geometry.transfer(Lba(start), end - start);
        let distance = self.cylinder.abs_diff(command.place.cylinder);
        if write {
            let done = now + cost + passing;
            self.ahead = None;
            self.arrive(end, distance);
            let report_delay = command.report_delay;
            self.work = Some((done, DiskWork::Command { id, report_delay, write, sectors: (start, end) }));
            return;
        }
        let media_transfer = self.media_transfer(&command, arrived, now + cost);
        let from = start - self.kept_before(&command, arrived, media_transfer.first);
        let report_delay = self.read_report_delay(&command, media_transfer);
        self.arrive(end, distance);
        let limit = self.ahead_limit(end);
        self.ahead = (limit > end).then_some(ReadAhead { from: end, since: media_transfer.done, limit });
        self.work = Some((media_transfer.done, DiskWork::Command { id, report_delay, write, sectors: (from, end) }));
    }

    /// How a read's sectors pass when the heads are on its track at `arrived` and its first sector begins at `first`.
    fn media_transfer(&self, command: &Command, arrived: Nanos, first: Nanos) -> MediaTransfer {
        let sectors = command.end - command.start;
        let done = first + self.geometry.transfer(Lba(command.start), sectors);
        let whole = MediaTransfer { first, done, front: sectors };
        let (sector, turn) = (self.geometry.transfer(Lba(command.start), 1), self.geometry.turn());
        let in_one_turn = self.geometry.same_track(command.start, command.end - 1) && first.since(arrived) < turn;
        if !self.rules.is_some_and(|rules| rules.any_order) || !in_one_turn {
            return whole;
        }
        // So long ago the first sector began to pass; what began after the heads arrived need not come again.
        let missed = turn.0 - first.since(arrived).0;
        let front = missed.div_ceil(sector.0.max(1));
        if front >= sectors {
            whole
        } else {
            MediaTransfer { first, done: first + self.geometry.transfer(Lba(command.start), front), front }
        }
    }

    /// Sectors before a read's first one that pass while the heads wait for it, as far as they are kept.
    fn kept_before(&self, command: &Command, arrived: Nanos, first: Nanos) -> u64 {
        let Some(rules) = self.rules.filter(|rules| rules.keeps_passing) else { return 0 };
        let sector = self.geometry.transfer(Lba(command.start), 1).0.max(1);
        let room = u64::from(rules.segment_sectors).saturating_sub(command.end - command.start);
        (first.since(arrived).0 / sector).min(command.start - self.geometry.track_start(command.start)).min(room)
    }

    /// Time from the end of the media transfer of a read until the host has all of it.
    fn read_report_delay(&self, command: &Command, media_transfer: MediaTransfer) -> Nanos {
        let timing = &self.timing;
        if !timing.bus {
            return Nanos(0);
        }
        let sectors = command.end - command.start;
        let bus = |sectors: u64| timing.on_bus(false, sectors);
        // In order: the rest of the request follows the sector of its front that passes last.
        let after_last = media_transfer.done + bus(sectors - media_transfer.front + 1);
        let enough =
            timing.enough(sectors + command.buffered).saturating_sub(command.buffered).clamp(1, media_transfer.front);
        let enough = media_transfer.first + self.geometry.transfer(Lba(command.start), enough);
        let buffered = match command.buffered {
            0 => Nanos(0),
            some => command.ready + timing.prepare(false) + bus(some),
        };
        let sent = timing.resume(enough.min(media_transfer.done)).max(buffered) + bus(sectors);
        sent.max(after_last).since(media_transfer.done) + timing.done(false)
    }
}
