//! Figures 4.4 to 4.8: PostMark, with small files and with large ones.

use umbrella_lab::result::Outcome;
use umbrella_lab::workload::{ClientId, FileOperation, Scale, Seed, build_workload};
use umbrella_units::Nanos;

use super::setting::{METHODS, Method, Run, all_methods, gain};
use crate::statistics::mean;
use crate::{Effort, Measured, VISIBLE, WriteBackCells};

/// Files in the beginning.
pub(super) const FILES: [u64; 6] = [5_000, 15_000, 25_000, 35_000, 45_000, 55_000];

/// PostMark with `files` small files, and otherwise its defaults.
pub(super) fn small_files(files: u64) -> String {
    format!("postmark:files={files},dirs=0")
}

/// All four methods with each number of files. These runs give figures 4.4 to 4.7.
pub(super) fn small(effort: Effort) -> WriteBackCells {
    Ok(FILES.into_iter().flat_map(|files| all_methods(&small_files(files), effort)).collect())
}

/// Each number of files with its outcomes in the order of the methods.
fn by_files(outcomes: &[Outcome]) -> impl Iterator<Item = (u64, &[Outcome])> {
    FILES.into_iter().zip(outcomes.chunks_exact(METHODS.len()))
}

/// Said beside figure 4.6.
pub(super) const DISTANCE: &str = "files that are deleted while they are staged have no blocks and do not count; the file \
     system is new and nothing else is on it; one seed";

/// Said beside figure 4.8.
pub(super) const LARGE_ASSUMED: &str = "Files have 2 MiB to at most 4 MiB, and 2 MiB to at most 6 MiB; the claims take both together. A quick run \
     does 1,000 transactions on files of at most 4 MiB, with the paper's memory.";

/// Figure 4.4: staging and WASL. With more files WASL gains more and staging less.
pub(super) fn measure_small(outcomes: &[Outcome]) -> Vec<Measured> {
    let gains = |method: usize| by_files(outcomes).map(move |(files, of)| (files, gain(&of[0], &of[method])));
    let of = |method, name: &'static str| {
        gains(method).map(move |(files, gain)| Measured::new(format!("{files}.{name}"), gain))
    };
    let mut measured: Vec<Measured> = of(1, "staging").chain(of(2, "wasl")).collect();
    for (method, name) in [(1, "staging-falls"), (2, "wasl-rises")] {
        let gains: Vec<f64> = gains(method).map(|(_, gain)| gain).collect();
        if let [_, at_15_000, .., most] = gains.as_slice() {
            measured.push(Measured::new(name, most - at_15_000));
        }
    }
    measured
}

/// The share of the deleted files that never left staging, in percent.
pub(super) fn deleted_in_staging(outcome: &Outcome) -> f64 {
    match deleted(outcome) {
        0 => 0.0,
        all => outcome.staged_only as f64 / all as f64 * 100.0,
    }
}

/// How many files the run's workload deletes. `PostMark` deletes the same files at any speed, so that no machine is
/// needed to count them.
pub(super) fn deleted(outcome: &Outcome) -> u64 {
    let of = &outcome.setting;
    let scale = Scale::new(of.scale);
    let Some(mut workload) = scale.ok().and_then(|scale| build_workload(&of.input, Seed(of.seed), scale).ok()) else {
        return 0;
    };
    while workload.prepare().is_some() {}
    let steps = std::iter::from_fn(|| workload.next(ClientId(0), Nanos(0)));
    steps.filter(|step| matches!(step, FileOperation::Delete { .. })).count() as u64
}

/// Figure 4.5: files that are deleted while they are staged.
pub(super) fn measure_deleted(outcomes: &[Outcome]) -> Vec<Measured> {
    let shares: Vec<f64> = by_files(outcomes).map(|(_, outcomes)| deleted_in_staging(&outcomes[1])).collect();
    let [few, .., many] = shares.as_slice() else { return Vec::new() };
    let rises = shares.windows(2).map(|pair| pair[1] - pair[0]).fold(f64::MIN, f64::max);
    [("all", *few), ("falls", rises), ("fewer", few - many)].map(|(name, value)| Measured::new(name, value)).into()
}

/// Figure 4.6: blocks from a file's first block to its last, when it is deleted.
pub(super) fn measure_distance(outcomes: &[Outcome]) -> Vec<Measured> {
    let of = |method: usize| by_files(outcomes).map(move |(_, outcomes)| outcomes[method].file_distance);
    let original: Vec<f64> = of(0).collect();
    let [few, .., many] = original.as_slice() else { return Vec::new() };
    let measured =
        [("original.few", *few), ("original.many", *many), ("original.more", many - few), ("staging", mean(of(1)))];
    measured.map(|(name, value)| Measured::new(name, value)).into()
}

/// Figure 4.7: both together. With 5,000 files there is staging's gain and no loss by WASL's bookkeeping; with more
/// there is more than of one alone, and less than the sum. Where both together are staging alone there is no sum to
/// fall short of.
pub(super) fn measure_hybrid(outcomes: &[Outcome]) -> Vec<Measured> {
    let of = |files, outcomes: &[Outcome]| {
        let [staging, wasl, hybrid] = [1, 2, 3].map(|method| gain(&outcomes[0], &outcomes[method]));
        if files == 5_000 {
            return vec![Measured::new("5000", hybrid.min(staging))];
        }
        let differs = (hybrid - staging).abs() >= VISIBLE;
        let measured = [
            ("size", hybrid),
            ("better", hybrid - staging.max(wasl)),
            ("less", if differs { hybrid - staging - wasl } else { 0.0 }),
        ];
        measured.map(|(name, value)| Measured::new(format!("{files}.{name}"), value)).into()
    };
    by_files(outcomes).flat_map(|(files, outcomes)| of(files, outcomes)).collect()
}

/// Figure 4.8: 500 files of 2 MB to at most 4 or 6 MB. A quick run has the files and the memory of the paper, but few
/// transactions: staging's limit of 1 MB decides which file is large.
pub(super) fn large(effort: Effort) -> WriteBackCells {
    let (sizes, transactions): (&[u64], u64) = match effort {
        Effort::Full => (&[4, 6], 200_000),
        Effort::Quick => (&[4], 1_000),
    };
    let spec = |high| format!("postmark:files=500,low=2MiB,high={high}MiB,dirs=0,transactions={transactions}");
    let run = |high, method: Method| Run { scale: 1.0, ..Run::new(method, spec(high), effort) };
    Ok(sizes.iter().flat_map(|high| METHODS.map(|method| run(high, method).cell())).collect())
}

/// Means over the sizes.
pub(super) fn measure_large(outcomes: &[Outcome]) -> Vec<Measured> {
    let of = |method: usize| mean(outcomes.chunks_exact(4).map(|outcomes| gain(&outcomes[0], &outcomes[method])));
    let (staging, wasl, hybrid) = (of(1), of(2), of(3));
    let measured = [("costs", staging), ("gains", staging), ("wasl", wasl), ("both", hybrid - wasl)];
    measured.map(|(name, value)| Measured::new(name, value)).into()
}
