//! The track that holds a block: where it begins and ends.
//!
//! Along a track the angle grows evenly from block to block. A line is put through the angles of a few neighbouring
//! blocks, and extended until a block does not lie on it. That block is on another track, whose beginning is shifted
//! (skew). Bisection then finds the border.

use super::MeasureError;
use super::meter::{Meter, turned};

/// Blocks further from the line than this, in turns, lie on another track. Skews are larger: no head changes tracks in
/// so short a time.
const ON_LINE: f64 = 0.025;
/// How many places near a block are tried.
const PLACES: u64 = 6;

/// A track.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Track {
    /// Its first block.
    pub(super) start: u64,
    /// The block behind its last one.
    pub(super) end: u64,
}

impl Track {
    /// Its blocks.
    pub(super) fn len(&self) -> u64 {
        self.end - self.start
    }

    /// Whether both have about as many blocks; a few may be missing where a drive passes over defects.
    pub(super) fn resembles(&self, other: &Track) -> bool {
        let (one, other) = (self.len(), other.len());
        one.abs_diff(other) <= (one.max(other) / 400).max(1)
    }
}

/// Angles along a track.
#[derive(Debug, Clone, Copy)]
struct TrackFit {
    origin: u64,
    angle: f64,
    /// Turns for each block.
    slope: f64,
    /// So far on both sides of the origin it is the same track.
    step: u64,
    /// The longest distance from the origin at which the slope was measured.
    reach: u64,
}

/// Towards which end of the disk a track is followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SearchDirection {
    Start,
    End,
}

impl TrackFit {
    /// A line through three blocks at or behind `near`, if they lie on one track.
    fn at(meter: &mut Meter<'_>, near: u64, step: u64) -> Result<TrackFit, MeasureError> {
        for place in 0..PLACES {
            let origin = (near + place * 4 * step).clamp(step, meter.blocks() - 1 - step);
            // Backwards, because what lies behind a read may be read ahead.
            let after = meter.angle(origin + step)?;
            let angle = meter.angle(origin)?;
            let before = meter.angle(origin - step)?;
            let (left, right) = (turned(angle - before), turned(after - angle));
            if (left - right).abs() < ON_LINE {
                return Ok(TrackFit {
                    origin,
                    angle,
                    slope: f64::midpoint(left, right) / step as f64,
                    step,
                    reach: step,
                });
            }
        }
        Err(MeasureError::Uneven)
    }

    /// Whether a turn may have `blocks` blocks, by the slope.
    fn fits_slope(&self, blocks: u64) -> bool {
        (self.slope * blocks as f64 - 1.0).abs() < 0.05
    }

    fn block(&self, towards: SearchDirection, distance: u64) -> u64 {
        match towards {
            SearchDirection::Start => self.origin - distance,
            SearchDirection::End => self.origin + distance,
        }
    }

    /// Whether the block so far from the origin is on the track; if so, the slope is made more exact by it.
    fn holds(&mut self, meter: &mut Meter<'_>, towards: SearchDirection, distance: u64) -> Result<bool, MeasureError> {
        let signed = if towards == SearchDirection::End { distance as f64 } else { -(distance as f64) };
        let angle = meter.angle(self.block(towards, distance))?;
        let expected = self.slope * signed;
        let beside = turned(angle - self.angle - expected);
        if beside.abs() > ON_LINE {
            return Ok(false);
        }
        if distance > self.reach {
            self.slope = (expected + beside) / signed;
            self.reach = distance;
        }
        Ok(true)
    }

    /// How many blocks from the origin on belong to the track, where it is expected to have `expected` of them.
    fn length(
        &mut self,
        meter: &mut Meter<'_>,
        towards: SearchDirection,
        expected: Option<u64>,
    ) -> Result<u64, MeasureError> {
        let most = if towards == SearchDirection::End { meter.blocks() - 1 - self.origin } else { self.origin };
        let (mut on, mut off) = (self.step.min(most), None);
        if let Some(expected) = expected {
            let margin = (expected / 32).max(4);
            let (near, far) = (expected.saturating_sub(margin), expected + margin);
            if near > on && near <= most && self.holds(meter, towards, near)? {
                on = near;
            }
            if on == near && far <= most && !self.holds(meter, towards, far)? {
                off = Some(far);
            }
        }
        let mut off = match off {
            Some(off) => off,
            None => loop {
                if on == most {
                    return Ok(on + 1);
                }
                if self.slope * on as f64 > 3.0 {
                    // Tracks that are not shifted against each other look like one.
                    return Err(MeasureError::Uneven);
                }
                let part = if self.slope > 0.0 { (0.4 / self.slope) as u64 } else { on };
                let next = (on + part.min(on).max(1)).min(most);
                if !self.holds(meter, towards, next)? {
                    break next;
                }
                on = next;
            },
        };
        while off - on > 1 {
            let middle = u64::midpoint(on, off);
            if self.holds(meter, towards, middle)? {
                on = middle;
            } else {
                off = middle;
            }
        }
        Ok(on + 1)
    }
}

/// The track that holds a block at `near`, or close behind it.
pub(super) fn at(meter: &mut Meter<'_>, near: u64) -> Result<Track, MeasureError> {
    at_like(meter, near, &[])
}

/// The same where it probably has one of these lengths.
pub(super) fn at_like(meter: &mut Meter<'_>, near: u64, lengths: &[u64]) -> Result<Track, MeasureError> {
    let least = (16 / u64::from(meter.block())).max(2);
    let step = lengths.iter().min().map_or(least, |length| (length / 32).max(least));
    let mut line = TrackFit::at(meter, near, step)?;
    let end = line.origin + line.length(meter, SearchDirection::End, None)?;
    // Behind the track's first block, and before it.
    for start in lengths.iter().filter_map(|length| end.checked_sub(*length)) {
        let Some(distance) = line.origin.checked_sub(start).filter(|&distance| distance > step) else { continue };
        if line.fits_slope(end - start)
            && line.holds(meter, SearchDirection::Start, distance)?
            && (start == 0 || !line.holds(meter, SearchDirection::Start, distance + 1)?)
        {
            return Ok(Track { start, end });
        }
    }
    let turn = if line.slope > 0.0 { (1.0 / line.slope).round() as u64 } else { 0 };
    let expected = (turn + line.origin).checked_sub(end);
    let start = line.origin + 1 - line.length(meter, SearchDirection::Start, expected)?;
    Ok(Track { start, end })
}

/// A whole track near the beginning of the disk.
pub(super) fn first(meter: &mut Meter<'_>) -> Result<Track, MeasureError> {
    for place in 0..PLACES {
        // Each further away than the one before, because the first ones may not be readable.
        if let Some(track) = super::none_if_local(at(meter, 64 << (place * 2)))? {
            return Ok(track);
        }
    }
    Err(MeasureError::Uneven)
}
