//! Figures 8 and 9: TESA beside the policies `file`, `recency` and `segment` (section IV-E).

use umbrella_lab::result::{AtFinish, Outcome};

use super::setting::{WORKLOADS, Work, farthest, file, most, rows, tesa, writing};
use crate::statistics::{change, mean};

const FILE: usize = 0;
const RECENCY: usize = 1;
const SEGMENT: usize = 2;
const TESA: usize = 3;

/// The policies that are compared.
pub(super) fn four() -> [String; 4] {
    [file(), "recency".to_owned(), "segment".to_owned(), tesa()]
}

pub(super) fn performance(outcomes: &[Outcome]) -> [(&'static str, f64); 5] {
    let rows: Vec<_> = rows(WORKLOADS.iter().copied(), outcomes, 4).collect();
    let over = |other: usize| most(rows.iter().map(|(work, of)| work.gain(&of[TESA], &of[other])));
    let spread = |name: &str| {
        let here = rows.iter().filter(|(work, _)| work.name == name);
        farthest(here.flat_map(|(work, of)| of[RECENCY..].iter().map(|other| work.gain(other, &of[FILE]))))
    };
    [
        ("file", over(FILE)),
        ("recency", over(RECENCY)),
        ("segment", over(SEGMENT)),
        ("seq-write", spread("seq-write")),
        ("videoserver", spread("videoserver")),
    ]
}

/// As the disk had it when the clients finished: the paper measured "during the execution".
pub(super) fn factors(outcomes: &[Outcome]) -> [(&'static str, f64); 11] {
    let rows: Vec<_> = rows(writing(), outcomes, 4).collect();
    let changes = |factor: Factor, of: usize, base: usize| {
        let change = |(_, row): &(Work, &[Outcome])| change(factor(&row[base].at_finish), factor(&row[of].at_finish));
        rows.iter().map(change).collect::<Vec<f64>>()
    };
    let average = |factor: Factor, of: usize, base: usize| mean(changes(factor, of, base));
    let (size, written, distance): (Factor, Factor, Factor) =
        (request_bytes, |disk| disk.bytes_written as f64, |disk| disk.write_distance);
    let less = |factor, of, base| -average(factor, of, base);
    let most_nearer = changes(distance, TESA, SEGMENT).into_iter().fold(0.0, f64::min);
    [
        ("size.segment", average(size, TESA, SEGMENT)),
        ("size.file", average(size, TESA, FILE)),
        ("size.recency", average(size, TESA, RECENCY)),
        ("written.recency", less(written, RECENCY, FILE)),
        ("written.segment", less(written, SEGMENT, FILE)),
        ("written.tesa", less(written, TESA, FILE)),
        ("distance.up-to", most_nearer),
        ("distance.segment.file", less(distance, SEGMENT, FILE)),
        ("distance.segment.recency", less(distance, SEGMENT, RECENCY)),
        ("distance.tesa.file", less(distance, TESA, FILE)),
        ("distance.tesa.recency", less(distance, TESA, RECENCY)),
    ]
}

/// What figure 9 shows of a run.
type Factor = fn(&AtFinish) -> f64;

fn request_bytes(disk: &AtFinish) -> f64 {
    disk.bytes_written as f64 / disk.write_requests.max(1) as f64
}
