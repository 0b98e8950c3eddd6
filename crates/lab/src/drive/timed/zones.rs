//! Zones: runs of tracks of the same length, with their skews.
//!
//! Tracks all over the disk are measured. Between neighbours of different lengths lies a border; the widest such gap is
//! halved, again and again, until both tracks touch. So what is known is of use whenever the time is over.

use serde::Serialize;

use super::meter::{Meter, median, turned};
use super::tracks::{self, Track};
use super::{MeasureError, none_if_local};

/// Tracks that are measured first.
const FIRST: u64 = 32;
/// How many places of a gap are tried until a track in it can be measured.
const PLACES: u64 = 8;
/// Tracks of a gap that are looked at for its border.
const MOST_TRACKS: u64 = 1 << 16;

/// Tracks with the same number of sectors.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Zone {
    /// Its first sector.
    pub start: u64,
    /// Its sectors.
    pub sectors: u64,
    /// Sectors on each track.
    pub sectors_per_track: u32,
    /// Its first cylinder.
    pub first_cylinder: u32,
    /// Its cylinders.
    pub cylinders: u32,
    /// How much later than the disk's first sector its own first sector begins, in sectors.
    pub offset: f64,
    /// How much later the next track of a cylinder begins, in sectors.
    pub track_skew: f64,
    /// How much later the next cylinder begins, in sectors.
    pub cylinder_skew: f64,
}

/// A run of tracks of the same length, in blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TrackRun {
    pub(super) start: u64,
    pub(super) end: u64,
    /// Blocks of each track.
    pub(super) track: u64,
}

/// Measures tracks until the borders of all zones are known. `tracks` holds the first one, and then all of them in
/// order.
pub(super) fn survey(meter: &mut Meter<'_>, tracks: &mut Vec<Track>) -> Result<(), MeasureError> {
    for number in 1..=FIRST {
        let near = meter.blocks() / FIRST * number;
        // The last one is not a whole track, as a rule.
        let last = meter.blocks().saturating_sub(tracks.last().map_or(0, Track::len) * 2);
        if let Some(track) = confirmed(meter, near.min(last), &[])? {
            add(meter, tracks, track);
        }
    }
    drop_exceptions(tracks);
    let mut given_up = Vec::new();
    while let Some((left, right)) = widest_gap(tracks, &given_up) {
        let found = between(meter, left, right)?;
        match found {
            Some(track) => add(meter, tracks, track),
            None => given_up.push((left.end, right.start)),
        }
    }
    Ok(())
}

/// A track near a block. A length that none of `known` has is believed when the next track has it too: defects, and
/// answers that came late, look like other lengths.
fn confirmed(meter: &mut Meter<'_>, near: u64, known: &[Track]) -> Result<Option<Track>, MeasureError> {
    let lengths: Vec<u64> = known.iter().map(Track::len).collect();
    let Some(track) = none_if_local(tracks::at_like(meter, near, &lengths))? else { return Ok(None) };
    if known.iter().any(|known| known.resembles(&track)) {
        return Ok(Some(track));
    }
    let beside =
        if track.end + track.len() * 2 < meter.blocks() { track.end } else { track.start.saturating_sub(track.len()) };
    let other = none_if_local(tracks::at_like(meter, beside + track.len() / 2, &[track.len()]))?;
    Ok(other.filter(|other| other.resembles(&track)).map(|_| track))
}

/// A track is added in order, unless it is known, or is one at the end of the disk that may be cut short.
fn add(meter: &Meter<'_>, tracks: &mut Vec<Track>, track: Track) {
    let place = tracks.partition_point(|known| known.start < track.start);
    let overlaps =
        |known: Option<&Track>| known.is_some_and(|known| known.start < track.end && track.start < known.end);
    let before = place.checked_sub(1).and_then(|before| tracks.get(before));
    if !overlaps(before) && !overlaps(tracks.get(place)) && track.end < meter.blocks() {
        tracks.insert(place, track);
    }
}

/// A single track that differs from two that resemble each other has defects, or was measured badly.
fn drop_exceptions(tracks: &mut Vec<Track>) {
    let all = tracks.clone();
    let mut place = 0_usize;
    tracks.retain(|track| {
        place += 1;
        match (place.checked_sub(2).and_then(|before| all.get(before)), all.get(place)) {
            (Some(before), Some(after)) => !before.resembles(after) || track.resembles(before),
            _ => true,
        }
    });
}

/// The widest gap between two tracks of different lengths.
fn widest_gap(tracks: &[Track], given_up: &[(u64, u64)]) -> Option<(Track, Track)> {
    let pairs = tracks.iter().zip(tracks.iter().skip(1));
    let gaps = pairs.filter(|(left, right)| {
        left.end < right.start && !left.resembles(right) && !given_up.contains(&(left.end, right.start))
    });
    gaps.max_by_key(|(left, right)| right.start - left.end).map(|(left, right)| (*left, *right))
}

/// A track in a gap; its length lies between those of both ends.
fn between(meter: &mut Meter<'_>, left: Track, right: Track) -> Result<Option<Track>, MeasureError> {
    let gap = right.start - left.end;
    let (least, most) = (left.len().min(right.len()), left.len().max(right.len()));
    for place in 0..PLACES {
        let near = left.end + if place == 0 { gap / 2 } else { meter.random.below(gap) };
        let Some(track) = confirmed(meter, near, &[left, right])? else { continue };
        let inside = track.start >= left.end && track.end <= right.start;
        if inside && track.len() + least / 400 + 1 >= least && track.len() <= most + most / 400 + 1 {
            return Ok(Some(track));
        }
    }
    Ok(None)
}

/// Runs of tracks of the same length. Where a border is not known to the track, it is in the middle of its gap.
pub(super) fn spans(tracks: &[Track], blocks: u64) -> Vec<TrackRun> {
    let mut groups: Vec<Vec<Track>> = Vec::new();
    for track in tracks {
        match groups.last_mut() {
            Some(group) if group.last().is_some_and(|last| last.resembles(track)) => group.push(*track),
            _ => groups.push(vec![*track]),
        }
    }
    let mut spans: Vec<TrackRun> = Vec::new();
    for group in &groups {
        let (Some(first), Some(last)) = (group.first(), group.last()) else { continue };
        let mut lengths: Vec<u64> = group.iter().map(Track::len).collect();
        lengths.sort_unstable();
        let track = lengths.get(lengths.len() / 2).copied().unwrap_or(1);
        let start = match spans.last_mut() {
            None => 0,
            Some(before) => {
                let border = border(before, first.start, track);
                before.end = border;
                border
            }
        };
        spans.push(TrackRun { start, end: last.end, track });
    }
    if let Some(last) = spans.last_mut() {
        last.end = blocks;
    }
    spans
}

/// Where tracks of another length begin behind `before`: whole tracks fill the gap on both sides, nearest to its
/// middle.
///
/// So also a border is found whose tracks happen not to be shifted against each other, and look like one.
fn border(before: &TrackRun, start: u64, track: u64) -> u64 {
    let middle = u64::midpoint(before.end, start);
    let (length, track) = (before.track.max(1), track.max(1));
    let tracks = ((start - before.end) / length).min(MOST_TRACKS);
    let borders = (0..=tracks).map(|number| before.end + number * length);
    let fitting = borders.filter(|border| (start - border).is_multiple_of(track));
    fitting.min_by_key(|border| border.abs_diff(middle)).unwrap_or(middle)
}

/// Where cylinders lie.
#[derive(Debug, Clone)]
pub(super) struct Map {
    pub(super) zones: Vec<Zone>,
    heads: u32,
    block: u32,
}

impl Map {
    /// Of `spans`, with what one track and one cylinder begin later than the one before, in turns.
    pub(super) fn new(meter: &Meter<'_>, spans: &[TrackRun], heads: u32, [track_skew, cylinder_skew]: [f64; 2]) -> Map {
        let (block, mut first_cylinder) = (u64::from(meter.block()), 0);
        let zones = spans.iter().map(|span| {
            let track = (span.track * block).max(1);
            let sectors = (span.end - span.start) * block;
            // The missing part of the last cylinder counts as spares.
            let cylinders = sectors.div_ceil(track * u64::from(heads)).max(1) as u32;
            let zone = Zone {
                start: span.start * block,
                sectors,
                sectors_per_track: track as u32,
                first_cylinder,
                cylinders,
                offset: 0.0,
                track_skew: track_skew * track as f64,
                cylinder_skew: cylinder_skew * track as f64,
            };
            first_cylinder += cylinders;
            zone
        });
        Map { zones: zones.collect(), heads, block: meter.block() }
    }

    pub(super) fn heads(&self) -> u32 {
        self.heads
    }

    pub(super) fn cylinders(&self) -> u32 {
        self.zones.last().map_or(1, |zone| zone.first_cylinder + zone.cylinders)
    }

    /// A track of a cylinder, in blocks. Beyond the end of its zone, one before it.
    pub(super) fn track(&self, cylinder: u32, head: u32) -> Track {
        let place = self.zones.partition_point(|zone| zone.first_cylinder <= cylinder).saturating_sub(1);
        let Some(zone) = self.zones.get(place) else { return Track { start: 0, end: 1 } };
        let (block, track) = (u64::from(self.block), u64::from(zone.sectors_per_track));
        let within = u64::from(cylinder.saturating_sub(zone.first_cylinder));
        let number = within * u64::from(self.heads) + u64::from(head);
        let start = zone.start + (number * track).min(zone.sectors.saturating_sub(track));
        Track { start: start.div_ceil(block), end: (start + track) / block }
    }

    /// How tracks are shifted in each zone, and the zones against each other.
    pub(super) fn measure_skews(&mut self, meter: &mut Meter<'_>) -> Result<(), MeasureError> {
        for place in 0..self.zones.len() {
            let Some(zone) = self.zones.get(place) else { break };
            let (first, heads) = (zone.first_cylinder, self.heads);
            let whole = f64::from(zone.sectors_per_track);
            let offset =
                if place > 0 { begins_later(meter, self.track(0, 0), self.track(first, 0))? } else { Some(0.0) };
            let last = heads - 1;
            let track = if heads > 1 { skew(meter, self.track(first, 0), self.track(first, 1))? } else { None };
            let cylinder = skew(meter, self.track(first, last), self.track(first + 1, 0))?;
            let Some(zone) = self.zones.get_mut(place) else { break };
            zone.offset = offset.map_or(zone.offset, |later| later * whole);
            zone.cylinder_skew = cylinder.map_or(zone.cylinder_skew, |skew| skew * whole);
            zone.track_skew = match (heads, track) {
                (1, _) => zone.cylinder_skew,
                (_, Some(skew)) => skew * whole,
                (_, None) => zone.track_skew,
            };
        }
        Ok(())
    }
}

/// How much later one track begins than another of any length, in turns.
fn begins_later(meter: &mut Meter<'_>, from: Track, to: Track) -> Result<Option<f64>, MeasureError> {
    let mut begins = |track: Track| -> Result<Option<f64>, MeasureError> {
        // Not the first block, which may be in the buffer from the last time. The angle is that of a block's end.
        let along = meter.random.below(track.len());
        let angle = none_if_local(meter.angle(track.start + along))?;
        Ok(angle.map(|angle| angle - (along + 1) as f64 / track.len() as f64))
    };
    let (from, to) = (begins(from)?, begins(to)?);
    Ok(from.zip(to).map(|(from, to)| (to - from).rem_euclid(1.0)))
}

/// How much later one track begins than another of the same length, in turns.
fn skew(meter: &mut Meter<'_>, from: Track, to: Track) -> Result<Option<f64>, MeasureError> {
    let mut skews = Vec::new();
    for quarter in 1..=3 {
        let along = from.len().min(to.len()) * quarter / 4;
        let (one, other) =
            (none_if_local(meter.angle(from.start + along))?, none_if_local(meter.angle(to.start + along))?);
        if let (Some(one), Some(other)) = (one, other) {
            skews.push(turned(other - one));
        }
    }
    // Around the first one, so that a skew of half a turn stays together.
    let Some(&first) = skews.first() else { return Ok(None) };
    let mut beside: Vec<f64> = skews.iter().map(|skew| turned(skew - first)).collect();
    Ok(Some((first + median(&mut beside)).rem_euclid(1.0)))
}
