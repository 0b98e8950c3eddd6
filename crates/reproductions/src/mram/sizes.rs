//! Figures 4.9 to 4.12: PostMark with more and less memory, and with larger and smaller zones.

use umbrella_lab::result::Outcome;
use umbrella_units::ByteSize;

use super::postmark::{FILES, deleted_in_staging, small_files};
use super::setting::{MEMORY, Method, Run, gain};
use crate::statistics::mean;
use crate::{Effort, Measured, WriteBackCells};

/// 256 MB to 2 GB.
const MEMORIES: [u64; 4] = [256 << 20, 512 << 20, 1 << 30, 2 << 30];

/// Pages of a zone, from 32 to 8192.
const ZONES: [u64; 9] = [32, 64, 128, 256, 512, 1024, 2048, 4096, 8192];

/// Said beside figure 4.12.
pub(super) const ZONES_ASSUMED: &str =
    "Zone sizes are powers of two between the ends. Sorting the pages of a zone costs no time.";

/// The method and the original, with each size of memory.
pub(super) fn against(method: Method, effort: Effort) -> WriteBackCells {
    let run = |memory: u64, files, method| {
        let run = Run { memory: ByteSize(memory), ..Run::new(method, small_files(files), effort) };
        run.cell()
    };
    let pair = |memory, files| [Method::Original, method].map(|method| run(memory, files, method));
    Ok(MEMORIES.iter().flat_map(|memory| FILES.into_iter().flat_map(move |files| pair(*memory, files))).collect())
}

/// Gains, a row for each size of memory, a column for each number of files.
fn gains(outcomes: &[Outcome]) -> Vec<Vec<f64>> {
    let row = |row: &[Outcome]| row.chunks_exact(2).map(|pair| gain(&pair[0], &pair[1])).collect();
    outcomes.chunks_exact(2 * FILES.len()).map(row).collect()
}

/// Figure 4.9: staging gains more with more memory.
pub(super) fn measure_staging(outcomes: &[Outcome]) -> Vec<Measured> {
    let means: Vec<f64> = gains(outcomes).into_iter().map(mean).collect();
    let more = means.windows(2).map(|pair| pair[1] - pair[0]);
    ["512", "1024", "2048"].into_iter().zip(more).map(|(name, more)| Measured::new(name, more)).collect()
}

/// Figure 4.10: WASL gains most with 512 MB and 1 GB.
pub(super) fn measure_wasl(outcomes: &[Outcome]) -> Vec<Measured> {
    let gains = gains(outcomes);
    let [m256, m512, m1024, m2048] = gains.as_slice() else { return Vec::new() };
    let most = |row: &Vec<f64>| mean(row.iter().skip(1).copied());
    let measured = [
        ("256.5000", m256[0]),
        ("1024.5000", m1024[0]),
        ("2048.5000", m2048[0]),
        ("256.55000", m256[FILES.len() - 1]),
        ("256-512", most(m256) - most(m512)),
        ("256-1024", most(m256) - most(m1024)),
        ("2048.most", most(m2048)),
    ];
    measured.map(|(name, value)| Measured::new(name, value)).into()
}

/// Figure 4.11: figure 4.5 with 1 GB, and with 512 MB beside it.
pub(super) fn deleted(effort: Effort) -> WriteBackCells {
    let run = |memory, files| Run { memory, ..Run::new(Method::Staging, small_files(files), effort) };
    let pair = |files| [MEMORY, ByteSize(1 << 30)].map(|memory| run(memory, files).cell());
    Ok(FILES.into_iter().flat_map(pair).collect())
}

/// With more memory a larger share of the files is deleted while they are staged, with any number of files; of 5,000
/// all are already.
pub(super) fn measure_deleted(outcomes: &[Outcome]) -> Vec<Measured> {
    let more: Vec<f64> =
        outcomes.chunks_exact(2).map(|pair| deleted_in_staging(&pair[1]) - deleted_in_staging(&pair[0])).collect();
    let [_, more @ ..] = more.as_slice() else { return Vec::new() };
    let least = more.iter().copied().fold(f64::MAX, f64::min);
    vec![Measured::new("least", least), Measured::new("mean", mean(more.iter().copied()))]
}

/// Figure 4.12: 45,000 files and 20,000 transactions, the original and each size of zone.
pub(super) fn zones(effort: Effort) -> WriteBackCells {
    let workload = format!("{},transactions=20000", small_files(45_000));
    let original = Run::new(Method::Original, workload.clone(), effort);
    let zone = |zone| Run { zone, ..Run::new(Method::Wasl, workload.clone(), effort) };
    Ok([original].into_iter().chain(ZONES.into_iter().map(zone)).map(Run::cell).collect())
}

/// The smallest and the largest zones gain less than the best between, and beyond 2,048 pages each gains less than the
/// one before.
pub(super) fn measure_zones(outcomes: &[Outcome]) -> Vec<Measured> {
    let [original, zones @ ..] = outcomes else { return Vec::new() };
    let gains: Vec<f64> = zones.iter().map(|zone| gain(original, zone)).collect();
    let [smallest, between @ .., largest] = gains.as_slice() else { return Vec::new() };
    let [.., at_2048, at_4096] = between else { return Vec::new() };
    let best = between.iter().copied().fold(f64::MIN, f64::max);
    let measured = [
        ("smallest", smallest - best),
        ("largest", largest - best),
        ("4096", at_4096 - at_2048),
        ("8192", largest - at_4096),
    ];
    measured.map(|(name, value)| Measured::new(name, value)).into()
}
