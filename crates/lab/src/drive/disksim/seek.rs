//! Seek times: six ways to say them, all read into points of one curve.

use std::sync::Arc;

use super::error::{ImportError, SourceLine};
use super::text::Block;

/// More points than any drive was measured at.
const MOST_POINTS: usize = 65_536;

/// Longer than any seek.
const MOST_MILLIS: f64 = 60_000.0;

/// A distance in cylinders, and the time for it in milliseconds.
pub(super) type SeekPoint = (u32, f64);

/// The curve of a mechanical block; `file` reads a file that is named on a line.
pub(super) fn curve(
    mechanics: &Block,
    cylinders: u32,
    file: impl FnOnce(&str, &SourceLine) -> Result<String, ImportError>,
) -> Result<Vec<SeekPoint>, ImportError> {
    let kind = mechanics.text("Seek type").ok_or_else(|| mechanics.missing("Seek type"))?;
    let far = cylinders.max(2) - 1;
    let points = match kind {
        "constant" => vec![(1, mechanics.need("Constant seek time")?)],
        "linear" => {
            let [one, average, full] = three(mechanics)?;
            vec![(1, one), ((far / 3).max(2), average), (far.max(3), full)]
        }
        "curve" => lee_katz_curve(three(mechanics)?, far),
        "hpl" => hpl(mechanics, far, &[])?,
        "hplplus10" => hpl(mechanics, far, &mechanics.numbers("First ten seek times")?)?,
        "extracted" => {
            let name = mechanics.text("Full seek curve").ok_or_else(|| mechanics.missing("Full seek curve"))?;
            let named = mechanics.line_of("Full seek curve");
            points(name, &file(name, &named)?, named)?
        }
        other => {
            let known = "constant, linear, curve, hpl, hplplus10, extracted";
            return Err(mechanics.unknown("Seek type", other, known));
        }
    };
    for &(_, millis) in &points {
        if !(0.0..=MOST_MILLIS).contains(&millis) {
            return Err(mechanics.out_of_range("Seek type", millis));
        }
    }
    Ok(points)
}

fn three(mechanics: &Block) -> Result<[f64; 3], ImportError> {
    Ok([
        mechanics.need("Single cylinder seek time")?,
        mechanics.need("Average seek time")?,
        mechanics.need("Full strobe seek time")?,
    ])
}

/// Distances at which a formula is read: each of the first 32, then 5 % apart.
fn distances(far: u32) -> impl Iterator<Item = u32> {
    std::iter::successors(Some(1_u32), |&at| Some(at + (at / 20).max(1))).take_while(move |&at| at < far).chain([far])
}

/// `a sqrt(d - 1) + b (d - 1) + c` through the three times (Lee and Katz, "An analytic performance model of disk
/// arrays", 1993).
fn lee_katz_curve([one, average, full]: [f64; 3], far: u32) -> Vec<SeekPoint> {
    let cylinders = f64::from(far) + 1.0;
    let a = (-10.0 * one + 15.0 * average - 5.0 * full) / (3.0 * cylinders.sqrt());
    let b = (7.0 * one - 15.0 * average + 8.0 * full) / (3.0 * cylinders);
    let at = |distance: u32| a * f64::from(distance - 1).sqrt() + b * f64::from(distance - 1) + one;
    distances(far).map(|distance| (distance, at(distance))).collect()
}

/// A square root for near distances, a line for far ones (Ruemmler and Wilkes, "An introduction to disk drive
/// modeling", 1994). The values are: where the line begins, two numbers of the root, two of the line, and the time of a
/// single cylinder (if negative, the root gives it). `first` lists the times of the nearest distances.
///
/// Some files leave out where the line begins. Then it begins where both give the same time.
fn hpl(mechanics: &Block, far: u32, first: &[f64]) -> Result<Vec<SeekPoint>, ImportError> {
    const KEY: &str = "HPL seek equation values";
    let values = mechanics.numbers(KEY)?;
    let (knee, [a, b, c, d], single) = match *values.as_slice() {
        [knee, a, b, c, d, single] => (Some(knee), [a, b, c, d], single),
        [a, b, c, d, single] => (None, [a, b, c, d], single),
        _ => return Err(mechanics.missing(KEY)),
    };
    let root = |distance: u32| a + b * f64::from(distance).sqrt();
    let line = |distance: u32| c + d * f64::from(distance);
    let near = |distance: u32| knee.map_or_else(|| root(distance) < line(distance), |knee| f64::from(distance) < knee);
    let meet = distances(far).find(|&distance| !near(distance)).unwrap_or(far);
    let time = |distance: u32| match first.get(distance as usize - 1) {
        Some(&time) => time,
        None if distance == 1 && single >= 0.0 => single,
        None if distance < meet => root(distance),
        None => line(distance),
    };
    Ok(distances(far).map(|distance| (distance, time(distance))).collect())
}

/// The points of a `.seek` file, which is named on `named`: `cylinders, milliseconds`, and perhaps `, deviation`, which
/// is not used.
///
/// Lines of words, such as the first one that says how many there are, are passed over.
fn points(file: &str, text: &str, named: SourceLine) -> Result<Vec<SeekPoint>, ImportError> {
    let file: Arc<str> = Arc::from(file);
    let mut points: Vec<SeekPoint> = Vec::new();
    for (number, line) in (1..).zip(text.lines().map(str::trim)) {
        if !line.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '-' | '+' | '.' | ',')) {
            continue;
        }
        let (distance, millis) = point(line)
            .ok_or_else(|| ImportError::NotAPoint { line: SourceLine { file: Arc::clone(&file), number } })?;
        if distance > 0 && points.len() < MOST_POINTS {
            points.push((distance, millis));
        }
    }
    points.sort_by_key(|&(distance, _)| distance);
    points.dedup_by_key(|&mut (distance, _)| distance);
    if points.is_empty() { Err(ImportError::NoPoints { line: named, name: file.to_string() }) } else { Ok(points) }
}

fn point(line: &str) -> Option<SeekPoint> {
    let mut numbers = line.split('#').next().unwrap_or_default().split(',').map(str::trim);
    let distance = numbers.next()?.parse().ok()?;
    let millis = numbers.next()?.parse().ok().filter(|millis| (0.0..=MOST_MILLIS).contains(millis))?;
    Some((distance, millis))
}
