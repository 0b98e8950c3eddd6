//! Figures 8 and 9: TESA beside the policies `file`, `recency` and `segment` (section IV-E).

use umbrella_lab::experiment::LabError;
use umbrella_lab::result::{AtFinish, Outcome};
use umbrella_lab::write_back::WriteBackCell;

use super::setting::{
    EQUAL, UP_TO, WORKLOADS, Work, change, farthest, file, grid, mean, most, on_all, rows, tesa, writing,
};
use crate::{Claim, Effort, Expect, VISIBLE};

const FILE: usize = 0;
const RECENCY: usize = 1;
const SEGMENT: usize = 2;
const TESA: usize = 3;

fn four() -> [String; 4] {
    [file(), "recency".to_owned(), "segment".to_owned(), tesa()]
}

pub(super) fn all(effort: Effort) -> Result<Vec<WriteBackCell>, LabError> {
    on_all(&four(), effort)
}

#[expect(clippy::unnecessary_wraps, reason = "what a figure's cells are given as")]
pub(super) fn write_dominated(effort: Effort) -> Result<Vec<WriteBackCell>, LabError> {
    Ok(grid(writing(), &four(), effort))
}

pub(super) fn judge_performance(outcomes: &[Outcome]) -> Vec<Claim> {
    let rows: Vec<_> = rows(WORKLOADS.iter().copied(), outcomes, 4).collect();
    let over = |other: usize| most(rows.iter().map(|(work, of)| work.gain(&of[TESA], &of[other])));
    let spread = |name: &str| {
        let here = rows.iter().filter(|(work, _)| work.name == name);
        farthest(here.flat_map(|(work, of)| of[RECENCY..].iter().map(|other| work.gain(other, &of[FILE]))))
    };
    let up_to = |claim: &str, published, other| Claim::new("8", claim, "%", published, over(other), UP_TO);
    let similar = |claim: &str, name| Claim::new("8", claim, "%", 0.0, spread(name), EQUAL);
    vec![
        up_to("TESA outperforms file by up to", 33.1, FILE),
        up_to("TESA outperforms recency by up to", 21.0, RECENCY),
        up_to("TESA outperforms segment by up to", 10.9, SEGMENT),
        similar("all perform alike under seq-write: the one farthest from file", "seq-write"),
        similar("all perform alike under videoserver: the one farthest from file", "videoserver"),
    ]
}

/// As the disk had it when the clients finished: the paper measured "during the execution".
pub(super) fn judge_factors(outcomes: &[Outcome]) -> Vec<Claim> {
    let rows: Vec<_> = rows(writing(), outcomes, 4).collect();
    let changes = |factor: Factor, of: usize, base: usize| {
        let change = |(_, row): &(Work, &[Outcome])| change(factor(&row[base].at_finish), factor(&row[of].at_finish));
        rows.iter().map(change).collect::<Vec<f64>>()
    };
    let average = |factor: Factor, of: usize, base: usize| mean(changes(factor, of, base).into_iter());
    let (size, written, distance): (Factor, Factor, Factor) =
        (request_bytes, |disk| disk.bytes_written as f64, |disk| disk.write_distance);
    let larger = |claim, base| Claim::new("9", claim, "%", VISIBLE, average(size, TESA, base), Expect::AtLeast);
    let less =
        |claim, factor, of, base| Claim::new("9", claim, "%", VISIBLE, -average(factor, of, base), Expect::AtLeast);
    let most_nearer = changes(distance, TESA, SEGMENT).into_iter().fold(0.0, f64::min);
    let average_size = average(size, TESA, SEGMENT);
    vec![
        Claim::new("9", "request size, TESA over segment, on average", "%", -5.7, average_size, UP_TO),
        larger("request size, TESA larger than file, on average by", FILE),
        larger("request size, TESA larger than recency, on average by", RECENCY),
        less("blocks written, recency fewer than file, on average by", written, RECENCY, FILE),
        less("blocks written, segment fewer than file, on average by", written, SEGMENT, FILE),
        less("blocks written, TESA fewer than file, on average by", written, TESA, FILE),
        Claim::new("9", "distance between requests, TESA over segment, up to", "%", -19.5, most_nearer, UP_TO),
        less("distance between requests, segment shorter than file, on average by", distance, SEGMENT, FILE),
        less("distance between requests, segment shorter than recency, on average by", distance, SEGMENT, RECENCY),
        less("distance between requests, TESA shorter than file, on average by", distance, TESA, FILE),
        less("distance between requests, TESA shorter than recency, on average by", distance, TESA, RECENCY),
    ]
}

/// What figure 9 shows of a run.
type Factor = fn(&AtFinish) -> f64;

fn request_bytes(disk: &AtFinish) -> f64 {
    disk.bytes_written as f64 / disk.write_requests.max(1) as f64
}
