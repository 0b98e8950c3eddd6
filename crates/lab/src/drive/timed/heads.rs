//! Surfaces: how many tracks make a cylinder.
//!
//! Usually the skew from cylinder to cylinder is larger than from head to head, and the skews of consecutive tracks
//! show the number. If all skews are the same, the times of moves show it: from track to track of a cylinder they are
//! head switches, then suddenly a seek. If neither shows it, each track counts as a cylinder, and seeks are measured in
//! tracks. A simulation then has the same times, except those of head switches.

use serde::Serialize;

use super::meter::{Meter, turned};
use super::seeks::Moves;
use super::tracks::Track;
use super::zones::TrackRun;
use super::{MeasureError, none_if_local};

/// Tracks looked at: twice as many as the surfaces of most drives.
const TRACKS: u64 = 48;
/// Skews that differ by less, in turns, are the same.
const DIFFERENT_SKEW: f64 = 0.01;
/// Times of moves that differ by more, in nanoseconds, are of different kinds.
const DIFFERENT_MOVE: f64 = 150_000.0;
/// Moves that differ by less are of one kind.
const SAME_MOVE: f64 = 100_000.0;

/// How the number of surfaces was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FoundBy {
    /// By the skews of consecutive tracks.
    Skews,
    /// By the times of moves from track to track.
    Moves,
    /// Not at all: each track counts as a cylinder.
    NotFound,
}

/// Surfaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Heads {
    /// How many.
    pub count: u32,
    /// How that was found.
    pub found_by: FoundBy,
}

/// Surfaces, and skews in turns.
#[derive(Debug, Clone, Copy)]
pub(super) struct HeadsFound {
    pub(super) heads: Heads,
    pub(super) track_skew: f64,
    pub(super) cylinder_skew: f64,
}

impl HeadsFound {
    /// Nothing is known: tracks begin one behind the other without a shift.
    pub(super) const NOTHING: HeadsFound =
        HeadsFound { heads: Heads { count: 1, found_by: FoundBy::NotFound }, track_skew: 0.0, cylinder_skew: 0.0 };
}

/// Finds them at the beginning of the disk.
pub(super) fn find(meter: &mut Meter<'_>, spans: &[TrackRun]) -> Result<HeadsFound, MeasureError> {
    let Some(span) = spans.first() else { return Err(MeasureError::Uneven) };
    let track = |number: u64| Track { start: number * span.track, end: (number + 1) * span.track };
    let count = TRACKS.min(span.end / span.track.max(1));
    let mut angles = Vec::new();
    for number in 0..count {
        match none_if_local(meter.angle(track(number).start + span.track / 2))? {
            Some(angle) => angles.push(angle),
            None => break,
        }
    }
    let skews: Vec<f64> =
        angles.iter().zip(angles.iter().skip(1)).map(|(one, next)| (next - one).rem_euclid(1.0)).collect();
    let first = skews.first().copied().unwrap_or_default();
    let found = |count: usize, found_by, cylinder_skew| HeadsFound {
        heads: Heads { count: count as u32, found_by },
        track_skew: first,
        cylinder_skew,
    };
    if let Some(heads) = by_skews(&skews) {
        let cylinder = skews.get(heads - 1).copied().unwrap_or(first);
        return Ok(found(heads, FoundBy::Skews, cylinder));
    }
    if let Some(heads) = by_moves(meter, count, track)? {
        return Ok(found(heads, FoundBy::Moves, first));
    }
    Ok(found(1, FoundBy::NotFound, first))
}

/// The period of the skews: the first that differs from the first one, if it comes again after as many.
fn by_skews(skews: &[f64]) -> Option<usize> {
    let first = *skews.first()?;
    let differs = |place: usize| skews.get(place).is_some_and(|skew| turned(skew - first).abs() > DIFFERENT_SKEW);
    let heads = (0..skews.len()).find(|&place| differs(place))? + 1;
    // An answer that came late shifts one of them.
    let beside = (0..skews.len()).filter(|&place| differs(place) != ((place + 1) % heads == 0)).count();
    let periodic = beside * 10 <= skews.len();
    (heads > 1 && periodic && skews.len() >= 2 * heads).then_some(heads)
}

/// The number of the first track to which the way is suddenly another, if to all before it the way is the same.
fn by_moves(meter: &mut Meter<'_>, count: u64, track: impl Fn(u64) -> Track) -> Result<Option<usize>, MeasureError> {
    let mut before: Vec<f64> = Vec::new();
    for number in 1..count {
        let moves = Moves { from: track(0), to: track(number) };
        let Some(time) = none_if_local(moves.measure(meter, SAME_MOVE / 4.0))? else { return Ok(None) };
        let differs = |other: &f64| (time - other).abs() > DIFFERENT_MOVE;
        if before.last().is_some_and(differs) {
            let same = before.iter().all(|one| before.iter().all(|other| (one - other).abs() < SAME_MOVE));
            return Ok(same.then_some(number as usize));
        }
        before.push(time);
    }
    Ok(None)
}
