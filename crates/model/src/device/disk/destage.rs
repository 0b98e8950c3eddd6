//! Writing out the buffer, and letting writes into it.

use umbrella_units::{Lba, Nanos};

use super::{BlockedCommand, Completion, DESTAGE_REACH, DESTAGE_SECTORS, Disk, DiskWork, RequestId, SectorAddress};

impl Disk {
    /// From when on, at `now` or later, a run's first data is in the buffer; the rest comes faster than the media takes
    /// it.
    fn present(&self, now: Nanos, first: u64) -> Nanos {
        if first == self.arriving.0 { now.max(self.arriving.1) } else { now }
    }

    /// The run of the buffer that is reached soonest.
    pub(super) fn pick_run(&self, now: Nanos) -> Option<(u64, Nanos)> {
        let best = self.nearest_of(self.dirty.after(self.at), None, now);
        let best = self.nearest_of(self.dirty.before(self.at), best, now);
        best.or_else(|| self.dirty.after(0).next().map(|(first, _)| (first, Nanos::NEVER)))
    }

    /// The run that is reached soonest, of `best` and the `runs` on one side of the heads, the nearest of them first.
    #[inline]
    fn nearest_of(
        &self,
        runs: impl Iterator<Item = (u64, SectorAddress)>,
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

    pub(super) fn destage(&mut self, now: Nanos, first: u64, cost: Nanos) {
        let end =
            self.dirty.take(first, DESTAGE_SECTORS.min(self.write_room / 8).max(1), |at| self.geometry.place(Lba(at)));
        let distance = self.cylinder.abs_diff(self.geometry.place(Lba(first)).cylinder);
        let done = now + cost + self.geometry.transfer(Lba(first), end - first);
        self.ahead = None;
        self.wrote = true;
        self.paused = false;
        self.arrive(end, distance);
        self.destaging = end - first;
        self.work = Some((done, DiskWork::Destage { sectors: end - first }));
    }

    /// Lets held commands in, in their order, as far as the buffer has room.
    pub(super) fn admit(&mut self, now: Nanos, done: &mut Vec<Completion>) {
        while let Some(&held) = self.held.front() {
            match held {
                BlockedCommand::Write { id, start, end, .. } => {
                    if !self.buffer_write(now, id, start, end) {
                        return;
                    }
                }
                BlockedCommand::Flush { id, .. } => {
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
    pub(super) fn buffer_write(&mut self, now: Nanos, id: RequestId, start: u64, end: u64) -> bool {
        let used = self.dirty.sectors() + self.destaging;
        let runs_left = match self.rules {
            Some(_) => self.continues_written(start),
            None => self.dirty.len() < self.write_runs,
        };
        if used > 0 && (used + (end - start) > self.write_room || !runs_left) {
            return false;
        }
        self.keep_written(start, end);
        self.dirty.add(start, end, |at| self.geometry.place(Lba(at)));
        self.arriving = (start, self.transfer_done(now, id, end - start, true));
        true
    }
}
