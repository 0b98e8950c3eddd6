//! Figures 4.9 to 4.12: PostMark with more and less memory, and with larger and smaller zones.

use umbrella_lab::experiment::LabError;
use umbrella_lab::result::Outcome;
use umbrella_lab::write_back::WriteBackCell;
use umbrella_units::ByteSize;

use super::postmark::{FILES, deleted_in_staging, small_files};
use super::setting::{LARGE, MEMORY, Method, Run, gain, mean};
use crate::{Claim, Effort, Expect, VISIBLE};

/// 256 MB to 2 GB.
const MEMORIES: [u64; 4] = [256 << 20, 512 << 20, 1 << 30, 2 << 30];

/// Pages of a zone, from 32 to 8192.
const ZONES: [u64; 9] = [32, 64, 128, 256, 512, 1024, 2048, 4096, 8192];

/// Said beside figure 4.12.
pub(super) const ZONES_ASSUMED: &str =
    "Zone sizes are powers of two between the ends. Sorting the pages of a zone costs no time.";

fn against(method: Method, memories: &[u64], effort: Effort) -> Vec<WriteBackCell> {
    let run = |memory: u64, files, method| {
        let run = Run { memory: ByteSize(memory), ..Run::new(method, small_files(files), effort) };
        run.cell()
    };
    let pair = |memory, files| [Method::Original, method].map(|method| run(memory, files, method));
    memories.iter().flat_map(|memory| FILES.into_iter().flat_map(move |files| pair(*memory, files))).collect()
}

/// Gains, a row for each size of memory, a column for each number of files.
fn gains(outcomes: &[Outcome]) -> Vec<Vec<f64>> {
    let row = |row: &[Outcome]| row.chunks_exact(2).map(|pair| gain(&pair[0], &pair[1])).collect();
    outcomes.chunks_exact(2 * FILES.len()).map(row).collect()
}

/// Figure 4.9.
pub(super) fn staging(effort: Effort) -> Result<Vec<WriteBackCell>, LabError> {
    Ok(against(Method::Staging, &MEMORIES, effort))
}

/// Staging gains more with more memory.
pub(super) fn judge_staging(outcomes: &[Outcome]) -> Vec<Claim> {
    let means: Vec<f64> = gains(outcomes).into_iter().map(mean).collect();
    let [m256, m512, m1024, m2048] = means.as_slice() else { return Vec::new() };
    let claim = |claim, more: f64| Claim::new("4.9", claim, "points", VISIBLE, more, Expect::AtLeast);
    vec![
        claim("512 MB gains more than 256 MB, mean over the numbers of files", m512 - m256),
        claim("1 GB gains more than 512 MB, mean over the numbers of files", m1024 - m512),
        claim("2 GB gains more than 1 GB, mean over the numbers of files", m2048 - m1024),
    ]
}

/// Figure 4.10.
pub(super) fn wasl(effort: Effort) -> Result<Vec<WriteBackCell>, LabError> {
    Ok(against(Method::Wasl, &MEMORIES, effort))
}

/// WASL gains most with 512 MB and 1 GB.
pub(super) fn judge_wasl(outcomes: &[Outcome]) -> Vec<Claim> {
    let gains = gains(outcomes);
    let [m256, m512, m1024, m2048] = gains.as_slice() else { return Vec::new() };
    let most = |row: &Vec<f64>| mean(row.iter().skip(1).copied());
    let claim = |claim, unit, published, measured, expect| Claim::new("4.10", claim, unit, published, measured, expect);
    vec![
        claim("256 MB, 5000 files: a gain", "%", VISIBLE, m256[0], Expect::AtLeast),
        claim("1 GB, 5000 files: a loss", "%", -VISIBLE, m1024[0], Expect::AtMost),
        claim("2 GB, 5000 files: a loss", "%", -VISIBLE, m2048[0], Expect::AtMost),
        claim("256 MB, 55000 files: falls to about 10 %", "%", 10.0, m256[FILES.len() - 1], LARGE),
        claim(
            "256 MB gains less than 512 MB, mean from 15000 files on",
            "points",
            -VISIBLE,
            most(m256) - most(m512),
            Expect::AtMost,
        ),
        claim(
            "256 MB gains less than 1 GB, mean from 15000 files on",
            "points",
            -VISIBLE,
            most(m256) - most(m1024),
            Expect::AtMost,
        ),
        claim("2 GB: about 10 %, mean from 15000 files on", "%", 10.0, most(m2048), LARGE),
    ]
}

/// Figure 4.11: figure 4.5 with 1 GB, and with 512 MB beside it.
pub(super) fn deleted(effort: Effort) -> Result<Vec<WriteBackCell>, LabError> {
    let run = |memory, files| Run { memory, ..Run::new(Method::Staging, small_files(files), effort) };
    let pair = |files| [MEMORY, ByteSize(1 << 30)].map(|memory| run(memory, files).cell());
    Ok(FILES.into_iter().flat_map(pair).collect())
}

/// With more memory a larger share of the files is deleted while they are staged, with any number of files; of 5,000 all are
/// already.
pub(super) fn judge_deleted(outcomes: &[Outcome]) -> Vec<Claim> {
    let more: Vec<f64> =
        outcomes.chunks_exact(2).map(|pair| deleted_in_staging(&pair[1]) - deleted_in_staging(&pair[0])).collect();
    let [_, more @ ..] = more.as_slice() else { return Vec::new() };
    let least = more.iter().copied().fold(f64::MAX, f64::min);
    let claim = |claim, measured| Claim::new("4.11", claim, "points", VISIBLE, measured, Expect::AtLeast);
    vec![
        claim("1 GB deletes a larger share in staging, least difference from 15000 files on", least),
        claim("1 GB deletes a larger share in staging, mean from 15000 files on", mean(more.iter().copied())),
    ]
}

/// Figure 4.12: 45,000 files and 20,000 transactions, the original and each size of zone.
pub(super) fn zones(effort: Effort) -> Result<Vec<WriteBackCell>, LabError> {
    let workload = format!("{},transactions=20000", small_files(45_000));
    let original = Run::new(Method::Original, workload.clone(), effort);
    let zone = |zone| Run { zone, ..Run::new(Method::Wasl, workload.clone(), effort) };
    Ok([original].into_iter().chain(ZONES.into_iter().map(zone)).map(Run::cell).collect())
}

/// The smallest and the largest zones gain less than the best between, and beyond 2,048 pages each gains less than the one
/// before.
pub(super) fn judge_zones(outcomes: &[Outcome]) -> Vec<Claim> {
    let [original, zones @ ..] = outcomes else { return Vec::new() };
    let gains: Vec<f64> = zones.iter().map(|zone| gain(original, zone)).collect();
    let [smallest, between @ .., largest] = gains.as_slice() else { return Vec::new() };
    let [.., at_2048, at_4096] = between else { return Vec::new() };
    let best = between.iter().copied().fold(f64::MIN, f64::max);
    let claim = |claim, less: f64| Claim::new("4.12", claim, "points", -VISIBLE, less, Expect::AtMost);
    vec![
        claim("zones of 32 pages gain less than the best between", smallest - best),
        claim("zones of 8192 pages gain less than the best between", largest - best),
        claim("zones of 4096 pages gain less than those of 2048", at_4096 - at_2048),
        claim("zones of 8192 pages gain less than those of 4096", largest - at_4096),
    ]
}
