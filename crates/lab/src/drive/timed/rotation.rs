//! Whether a device turns, and how fast.
//!
//! The same blocks are read again and again in rounds, with other blocks between them so that none stays in the buffer.
//! If the device turns, the time between two reads of a block is a whole number of turns. The longest turn for which
//! that holds is searched for (a periodogram), and then made exact over ever longer times.

use std::f64::consts::TAU;

use super::MeasureError;
use super::meter::{Hit, Meter, median, quantile, response};

/// Reads that show how unevenly a device answers.
const SAMPLES: usize = 64;
/// Responses of a disk lie at least so far apart, in nanoseconds: a turn of 20,000 a minute takes 3 ms.
const LEAST_SPREAD: f64 = 1e6;
/// Blocks of a round, at first and at most.
const BLOCKS: usize = 64;
const MOST_BLOCKS: usize = 2048;
const ROUNDS: usize = 6;
/// Turns a second that are searched.
const SLOWEST: f64 = 25.0;
const FASTEST: f64 = 400.0;
/// How well the times must agree, of 1. Times that have nothing to do with a turn never agree as well, at any
/// frequency.
const AGREEMENT: f64 = 0.3;

/// Finds the turn and the time of an answer from the buffer; false if nothing turns.
pub(super) fn find(meter: &mut Meter<'_>) -> Result<bool, MeasureError> {
    let mut first = Vec::with_capacity(SAMPLES);
    let mut again = Vec::with_capacity(SAMPLES);
    for _ in 0..SAMPLES {
        let at = meter.anywhere();
        if let Some(timed) = super::none_if_local(meter.read(at))? {
            first.push(response(timed));
            if let Some(timed) = super::none_if_local(meter.read(at))? {
                again.push(response(timed));
            }
        }
    }
    let spread = quantile(&mut first, 0.9) - quantile(&mut first, 0.1);
    let hit = Hit { median: median(&mut again), most: quantile(&mut again, 0.9) };
    // Without a buffer the second read waits for a turn.
    meter.set_hit((hit.median < 0.4 * median(&mut first)).then_some(hit));
    if spread < LEAST_SPREAD {
        return Ok(false);
    }
    let mut count = BLOCKS;
    let visits = loop {
        let (visits, hits) = rounds(meter, count)?;
        if hits * 4 < count * (ROUNDS - 1) {
            break visits;
        }
        count *= 4;
        if count > MOST_BLOCKS {
            // A cache answers, and hides whatever turns behind it.
            return Ok(false);
        }
    };
    let Some(turn) = turn(&visits) else { return Ok(false) };
    meter.turn = turn;
    Ok(true)
}

/// When each of `count` blocks was read from the media, round for round, and how many reads the buffer answered.
fn rounds(meter: &mut Meter<'_>, count: usize) -> Result<(Vec<Vec<f64>>, usize), MeasureError> {
    let blocks: Vec<u64> = (0..count).map(|_| meter.anywhere()).collect();
    let mut visits = vec![Vec::with_capacity(ROUNDS); count];
    let mut order: Vec<usize> = (0..count).collect();
    let mut hits = 0;
    for round in 0..ROUNDS {
        // In another order each time: times that are all alike would be multiples of many turns.
        meter.random.shuffle(&mut order);
        for &place in &order {
            let (Some(block), Some(visits)) = (blocks.get(place), visits.get_mut(place)) else { continue };
            let Some(timed) = super::none_if_local(meter.read(*block))? else { continue };
            if meter.is_hit_after_seek(response(timed)) {
                hits += usize::from(round > 0);
            } else {
                visits.push(timed.done.0 as f64);
            }
        }
        if hits > count {
            break;
        }
    }
    Ok((visits, hits))
}

/// The longest time that has all times between visits as multiples.
fn turn(visits: &[Vec<f64>]) -> Option<f64> {
    let between = |lag: usize| -> Vec<f64> {
        visits.iter().flat_map(|of| of.iter().zip(of.iter().skip(lag)).map(|(from, to)| to - from)).collect()
    };
    let near = between(1);
    let longest = near.iter().copied().fold(0.0, f64::max) / 1e9;
    if near.len() < 100 || longest <= 0.0 {
        return None;
    }
    let step = 0.15 / longest;
    // Times that differ by less than a turn agree with anything.
    let slowest = SLOWEST.max(1e9 / deviation(&near));
    let steps = ((FASTEST - slowest) / step).max(0.0) as u32;
    let agreements: Vec<(f64, f64)> = (0..steps)
        .map(|number| slowest + f64::from(number) * step)
        .map(|frequency| (frequency, agreement(&near, frequency)))
        .collect();
    let best = agreements.iter().map(|&(_, agreement)| agreement).fold(0.0, f64::max);
    if best < AGREEMENT {
        return None;
    }
    // All times are multiples of half a turn, too: the slowest that agrees is the turn. It is the top of its peak.
    let first = agreements.iter().position(|&(_, agreement)| agreement > 0.85 * best)?;
    let peak = agreements.get(first..)?.iter().take_while(|&&(_, agreement)| agreement > 0.8 * best);
    let (frequency, _) = peak.max_by(|one, other| one.1.total_cmp(&other.1))?;
    let mut turn = 1e9 / frequency;
    for lag in 1..ROUNDS {
        // Twice: the first time many lie half a turn beside.
        for _ in 0..2 {
            turn = refined(&between(lag), turn);
        }
    }
    Some(turn)
}

/// By how much they differ (the standard deviation).
fn deviation(times: &[f64]) -> f64 {
    let count = times.len().max(1) as f64;
    let mean = times.iter().sum::<f64>() / count;
    (times.iter().map(|time| (time - mean).powi(2)).sum::<f64>() / count).sqrt()
}

/// How well the times are multiples of a turn of that frequency, at most 1.
fn agreement(times: &[f64], frequency: f64) -> f64 {
    let forwards: f64 = times.iter().map(|time| (TAU * (time / 1e9 * frequency).fract()).cos()).sum();
    forwards / times.len().max(1) as f64
}

/// The turn that fits best near `turn` (least squares); what lies far from it is left out.
fn refined(times: &[f64], turn: f64) -> f64 {
    let (mut products, mut squares) = (0.0, 0.0);
    for &time in times {
        let turns = (time / turn).round();
        if (time / turn - turns).abs() < 0.15 {
            products += time * turns;
            squares += turns * turns;
        }
    }
    if squares > 0.0 { products / squares } else { turn }
}
