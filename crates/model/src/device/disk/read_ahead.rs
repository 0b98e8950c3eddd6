//! Reading ahead: after a read the heads continue behind it until something else is to be done or the segment is full.
//!
//! It takes no events. Its progress is computed on demand.

use umbrella_units::{Lba, Nanos};

use super::{Command, Disk, ReadAheadTo};

/// The heads reading on behind a read.
#[derive(Debug, Clone, Copy)]
pub(super) struct ReadAhead {
    pub(super) from: u64,
    pub(super) since: Nanos,
    pub(super) limit: u64,
}

impl Disk {
    /// Where reading ahead has come to by `now`.
    fn ahead_at(&self, ahead: ReadAhead, now: Nanos) -> u64 {
        let passed = self.geometry.passed(Lba(ahead.from), now - ahead.since);
        (ahead.from + passed).min(ahead.limit)
    }

    /// Notes how far reading ahead has come; the heads are there.
    pub(super) fn note_ahead(&mut self, now: Nanos) {
        let Some(ahead) = self.ahead else { return };
        let reached = self.ahead_at(ahead, now);
        if reached > self.at {
            self.segments.add(self.at, reached);
            let place = self.geometry.place(Lba(reached - 1));
            (self.cylinder, self.head, self.at) = (place.cylinder, place.head, reached);
        }
        if reached >= ahead.limit {
            self.ahead = None;
            self.paused = true;
        }
    }

    /// The reading ahead that is about to pass over the command's sectors, if it is.
    #[inline]
    pub(super) fn read_ahead_reaching(&self, command: &Command) -> Option<ReadAhead> {
        let ahead = self.ahead?;
        let near = command.start >= ahead.from && command.start <= self.at && command.end > self.at;
        (near && !command.write).then_some(ahead)
    }

    /// How far to read ahead behind a read that ends at `end`.
    pub(super) fn ahead_limit(&self, end: u64) -> u64 {
        let capacity = self.geometry.capacity().0;
        let Some(rules) = self.rules else {
            return (end + self.segments.segment_sectors() * 3 / 4).min(capacity);
        };
        let last = end.saturating_sub(1);
        let segment = u64::from(rules.segment_sectors);
        let most = end.saturating_add(u64::from(rules.read_ahead_sectors).min(segment)).min(capacity);
        let kept = if rules.keeps_requested { self.asked.0 + segment } else { most };
        let to = match rules.read_ahead {
            ReadAheadTo::Nowhere => end,
            ReadAheadTo::TrackEnd => self.geometry.track_end(last),
            ReadAheadTo::CylinderEnd => self.geometry.cylinder_end(last),
            ReadAheadTo::SegmentEnd => most,
            ReadAheadTo::NextTrackEnd => {
                let track = self.geometry.track_start(last);
                let sequential = track > 0 && self.geometry.same_track(track - 1, self.asked_before);
                let track_end = self.geometry.track_end(last);
                match (sequential, rules.keeps_passing) {
                    (true, _) => self.geometry.track_end(track_end),
                    (false, true) => track_end,
                    (false, false) => end,
                }
            }
        };
        to.min(most).min(kept).max(end)
    }

    /// A stream that is read on is still read ahead.
    pub(super) fn extend_ahead(&mut self, now: Nanos, end: u64) {
        let limit = self.ahead_limit(end);
        if let Some(rules) = self.rules {
            let from = self.segments.end_behind(end);
            if self.ahead.is_none() && self.work.is_none() && rules.read_ahead_after_hits && limit > from {
                let place = self.geometry.place(Lba(from));
                let since = now + self.positioning(place, false, now);
                self.arrive(from, self.cylinder.abs_diff(place.cylinder));
                self.ahead = Some(ReadAhead { from, since, limit });
                return;
            }
        }
        // A stopped read-ahead continues when half of what it read is gone and the heads have nothing else to do.
        let wanted = end <= self.at && limit.saturating_sub(self.at) * 2 >= limit - end && limit > self.at;
        if self.rules.is_none() && self.paused && wanted && self.work.is_none() {
            let from = self.at;
            let since = now + self.positioning(self.geometry.place(Lba(from)), false, now);
            self.ahead = Some(ReadAhead { from, since, limit });
            self.paused = false;
            return;
        }
        if let Some(ahead) = &mut self.ahead
            && end > ahead.from.saturating_sub(1)
            && end <= ahead.limit
        {
            ahead.limit = ahead.limit.max(limit);
        }
    }
}
