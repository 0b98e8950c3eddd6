//! What the buffer keeps: seen by what is answered without a turn.
//!
//! Every trial takes a new place, so that none is answered from what another one left behind.

use serde::Serialize;
use umbrella_model::device::disk::ReadAheadTo;

use super::meter::{Meter, median, response};
use super::tracks::Track;
use super::zones::Map;
use super::{MeasureError, Timed, none_if_local};

/// Trials of each question; the majority decides.
const TRIALS: usize = 3;
/// How far reading ahead and segments are followed, in sectors: 64 MiB.
const MOST_SECTORS: u64 = 1 << 17;
/// The most streams that are tried at once.
const MOST_STREAMS: u64 = 256;
/// How large the reads of a stream are, in sectors.
const STREAM_READ: u64 = 256;
/// A read whose time shows what a sector takes on the bus, in sectors.
const LARGE: u64 = 64;
/// Places where whole tracks are read.
const PLACES: usize = 12;

/// What a disk's buffer does.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct BufferTimings {
    /// The time of a read that the buffer answers, in milliseconds; `None` if it answers none.
    pub hit_ms: Option<f64>,
    /// A sector on the bus, in milliseconds.
    pub sector_ms: Option<f64>,
    /// How far the heads read on behind a read.
    pub read_ahead: Option<ReadAheadTo>,
    /// How many sectors they read ahead at most.
    pub read_ahead_sectors: Option<u32>,
    /// Streams that it follows at once.
    pub segments: Option<u32>,
    /// How much it keeps of a stream, in sectors.
    pub segment_sectors: Option<u32>,
    /// Whether it takes the sectors of a read in the order in which they pass.
    pub any_order: Option<bool>,
    /// Whether it keeps sectors that pass before those that were asked for.
    pub keeps_passing: Option<bool>,
}

impl BufferTimings {
    /// Measures what it can until the time is over.
    pub(super) fn measure(&mut self, meter: &mut Meter<'_>, map: &Map) -> Result<(), MeasureError> {
        let Some(hit) = meter.hit() else {
            self.read_ahead = Some(ReadAheadTo::Nowhere);
            return Ok(());
        };
        self.hit_ms = Some(hit.median / 1e6);
        self.sector_ms = on_bus(meter, hit.median)?.map(|sector| sector / 1e6);
        self.any_order = any_order(meter, map)?;
        self.keeps_passing = Some(keeps_passing(meter, map)?);
        let (to, sectors) = read_ahead(meter, map)?;
        (self.read_ahead, self.read_ahead_sectors) = (Some(to), Some(sectors as u32));
        let segment = furthest(1, MOST_SECTORS / u64::from(meter.block()), |length| keeps_stream(meter, map, length))?;
        self.segment_sectors = Some((segment * u64::from(meter.block())) as u32);
        self.segments = Some(furthest(1, MOST_STREAMS, |streams| follows_streams(meter, streams))? as u32);
        Ok(())
    }
}

/// A track at the beginning of the disk, where tracks are longest.
fn some_track(meter: &mut Meter<'_>, map: &Map) -> Track {
    let cylinders = map.zones.first().map_or(1, |zone| zone.cylinders);
    let cylinder = meter.random.below(u64::from(cylinders));
    map.track(cylinder as u32, 0)
}

/// The time of a sector on the bus, in nanoseconds.
fn on_bus(meter: &mut Meter<'_>, hit: f64) -> Result<Option<f64>, MeasureError> {
    let blocks = LARGE / u64::from(meter.block());
    let mut times = Vec::new();
    for _ in 0..9 {
        let at = meter.anywhere();
        let first = none_if_local(meter.read_blocks(at, blocks))?;
        if let (Some(_), Some(again)) = (first, none_if_local(meter.read_blocks(at, blocks))?) {
            times.push(response(again));
        }
    }
    let more = LARGE.saturating_sub(u64::from(meter.block())) as f64;
    Ok((!times.is_empty() && more > 0.0).then(|| ((median(&mut times) - hit) / more).max(0.0)))
}

/// Reads of whole tracks take a turn behind the seek if sectors are taken as they pass, else up to two.
fn any_order(meter: &mut Meter<'_>, map: &Map) -> Result<Option<bool>, MeasureError> {
    let mut times = Vec::new();
    for _ in 0..PLACES {
        let track = some_track(meter, map);
        meter.seek_away(track.start)?;
        if let Some(timed) = none_if_local(meter.read_blocks(track.start, track.len()))? {
            times.push(response(timed));
        }
    }
    let (least, most) =
        times.iter().fold((f64::INFINITY, 0.0_f64), |(least, most), &time| (least.min(time), most.max(time)));
    Ok((times.len() > PLACES / 2).then_some(most - least < meter.turn * 0.45))
}

/// Whether a block that passed just before one that was read comes from the buffer.
fn keeps_passing(meter: &mut Meter<'_>, map: &Map) -> Result<bool, MeasureError> {
    let mut hits = 0;
    for _ in 0..PLACES {
        let track = some_track(meter, map);
        let at = track.start + track.len() / 2;
        meter.seek_away(at)?;
        let first = none_if_local(meter.read(at))?;
        let before = none_if_local(meter.read(at - track.len() / 8))?;
        if let (Some(_), Some(before)) = (first, before) {
            hits += usize::from(meter.is_hit(response(before)));
        }
    }
    Ok(hits * 2 > PLACES)
}

/// How far the heads read on, from the beginning of a track and from its middle.
fn read_ahead(meter: &mut Meter<'_>, map: &Map) -> Result<(ReadAheadTo, u64), MeasureError> {
    let block = u64::from(meter.block());
    let from = |meter: &mut Meter<'_>, share: u64| {
        furthest(0, MOST_SECTORS / block, |distance| reads_ahead(meter, map, share, distance))
    };
    let (start, middle) = (from(meter, 0)?, from(meter, 2)?);
    let track = map.track(0, 0).len();
    let (near, half) = (track / 16, track / 2);
    let ends_with = |whole: u64| start.abs_diff(whole) <= near && middle.abs_diff(whole - half) <= near;
    let to = if start.max(middle) == 0 {
        ReadAheadTo::Nowhere
    } else if ends_with(track) {
        ReadAheadTo::TrackEnd
    } else if ends_with(track * u64::from(map.heads())) {
        ReadAheadTo::CylinderEnd
    } else {
        ReadAheadTo::SegmentEnd
    };
    Ok((to, start.max(middle) * block))
}

/// Whether most trials end with an answer from the buffer. A trial that met a block that cannot be read says nothing.
fn mostly(
    meter: &mut Meter<'_>,
    mut trial: impl FnMut(&mut Meter<'_>) -> Result<Option<Timed>, MeasureError>,
) -> Result<bool, MeasureError> {
    let (mut hits, mut misses) = (0, 0);
    for _ in 0..TRIALS {
        if let Some(timed) = trial(meter)? {
            let hit = meter.is_hit(response(timed));
            hits += usize::from(hit);
            misses += usize::from(!hit);
        }
        if hits.max(misses) * 2 > TRIALS {
            break;
        }
    }
    Ok(hits > misses)
}

/// Whether the block `distance` blocks behind a block that was read a while ago has been read ahead. The read is
/// `quarters` quarters into its track.
fn reads_ahead(meter: &mut Meter<'_>, map: &Map, quarters: u64, distance: u64) -> Result<bool, MeasureError> {
    mostly(meter, |meter| {
        let track = some_track(meter, map);
        let at = track.start + track.len() * quarters / 4;
        let Some(_) = none_if_local(meter.read(at))? else { return Ok(None) };
        meter.pause(meter.turn / 1e6 * (3.0 + distance as f64 / track.len() as f64 * 1.5));
        none_if_local(meter.read(at + distance))
    })
}

/// Whether the first block of a stream of `length` blocks is still in the buffer when the last one was read.
fn keeps_stream(meter: &mut Meter<'_>, map: &Map, length: u64) -> Result<bool, MeasureError> {
    let read = (STREAM_READ / u64::from(meter.block())).min(length);
    mostly(meter, |meter| {
        let start = some_track(meter, map).start;
        for number in 0..length.div_ceil(read) {
            if none_if_local(meter.read_blocks(start + number * read, read))?.is_none() {
                return Ok(None);
            }
        }
        none_if_local(meter.read(start))
    })
}

/// Whether the first of `streams` streams is still in the buffer when the last one was begun.
fn follows_streams(meter: &mut Meter<'_>, streams: u64) -> Result<bool, MeasureError> {
    mostly(meter, |meter| {
        let first = meter.anywhere();
        let Some(_) = none_if_local(meter.read(first))? else { return Ok(None) };
        for _ in 1..streams {
            let other = meter.anywhere();
            none_if_local(meter.read(other))?;
        }
        none_if_local(meter.read(first))
    })
}

/// The largest number for which something holds that holds for small ones, to a fiftieth; `least` if for none.
fn furthest(
    least: u64,
    most: u64,
    mut holds: impl FnMut(u64) -> Result<bool, MeasureError>,
) -> Result<u64, MeasureError> {
    let mut on = least;
    let mut off = (least * 2).max(1);
    while holds(off)? {
        on = off;
        if off >= most {
            return Ok(most);
        }
        off = (off * 2).min(most);
    }
    while off - on > (on / 50).max(1) {
        let middle = u64::midpoint(on, off);
        if holds(middle)? {
            on = middle;
        } else {
            off = middle;
        }
    }
    Ok(on)
}
