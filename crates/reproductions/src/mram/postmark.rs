//! Figures 4.4 to 4.8: PostMark, with small files and with large ones.

use umbrella_lab::experiment::LabError;
use umbrella_lab::result::Outcome;
use umbrella_lab::workload::{ClientId, Scale, Seed, Step, build_workload};
use umbrella_lab::write_back::WriteBackCell;
use umbrella_units::Nanos;

use super::setting::{LARGE, METHODS, Method, Run, SAME, all_methods, gain, mean};
use crate::{Claim, Effort, Expect, VISIBLE};

/// Files in the beginning.
pub(super) const FILES: [u64; 6] = [5_000, 15_000, 25_000, 35_000, 45_000, 55_000];

/// PostMark with so many small files: its defaults otherwise.
pub(super) fn small_files(files: u64) -> String {
    format!("postmark:files={files},dirs=0")
}

/// All four methods with each number of files. Figures 4.4 to 4.7 are of these runs.
pub(super) fn small(effort: Effort) -> Result<Vec<WriteBackCell>, LabError> {
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
pub(super) fn judge_small(outcomes: &[Outcome]) -> Vec<Claim> {
    let claim = |claim: String, published, measured, expect| Claim::new("4.4", claim, "%", published, measured, expect);
    let of = |files, outcomes: &[Outcome]| {
        let staging = gain(&outcomes[0], &outcomes[1]);
        let wasl = gain(&outcomes[0], &outcomes[2]);
        let (staged, waslled) = (format!("{files} files: staging"), format!("{files} files: WASL"));
        match files {
            5_000 => [
                claim(format!("{staged}, more than with more files"), 20.0, staging, Expect::AtLeast),
                claim(waslled, -10.0, wasl, LARGE),
            ],
            ..=35_000 => [claim(staged, 20.0, staging, LARGE), claim(waslled, 30.0, wasl, LARGE)],
            _ => [claim(staged, 10.0, staging, LARGE), claim(waslled, 30.0, wasl, LARGE)],
        }
    };
    let mut claims: Vec<Claim> = by_files(outcomes).flat_map(|(files, outcomes)| of(files, outcomes)).collect();
    let more = |method: usize| {
        let gains: Vec<f64> = by_files(outcomes).map(|(_, outcomes)| gain(&outcomes[0], &outcomes[method])).collect();
        gains[FILES.len() - 1] - gains[1]
    };
    let with =
        |claim: &str, published, measured, expect| Claim::new("4.4", claim, "points", published, measured, expect);
    if outcomes.len() == FILES.len() * METHODS.len() {
        claims.push(with("55000 files: staging gains less than with 15000", -VISIBLE, more(1), Expect::AtMost));
        claims.push(with("55000 files: WASL gains more than with 15000", VISIBLE, more(2), Expect::AtLeast));
    }
    claims
}

/// The share of the deleted files that never left staging, in percent.
pub(super) fn deleted_in_staging(outcome: &Outcome) -> f64 {
    match deleted(outcome) {
        0 => 0.0,
        all => outcome.staged_only as f64 / all as f64 * 100.0,
    }
}

/// How many files the run's workload deletes. `PostMark` deletes the same files at any speed, so that no machine is needed to
/// count them.
pub(super) fn deleted(outcome: &Outcome) -> u64 {
    let of = &outcome.setting;
    let scale = Scale::new(of.scale);
    let Some(mut workload) = scale.ok().and_then(|scale| build_workload(&of.input, Seed(of.seed), scale).ok()) else {
        return 0;
    };
    while workload.prepare().is_some() {}
    let steps = std::iter::from_fn(|| workload.next(ClientId(0), Nanos(0)));
    steps.filter(|step| matches!(step, Step::Delete { .. })).count() as u64
}

/// Figure 4.5: files that are deleted while they are staged.
pub(super) fn judge_deleted(outcomes: &[Outcome]) -> Vec<Claim> {
    let shares: Vec<f64> = by_files(outcomes).map(|(_, outcomes)| deleted_in_staging(&outcomes[1])).collect();
    let [few, .., many] = shares.as_slice() else { return Vec::new() };
    let rises = shares.windows(2).map(|pair| pair[1] - pair[0]).fold(f64::MIN, f64::max);
    let claim = |claim, unit, published, measured, expect| Claim::new("4.5", claim, unit, published, measured, expect);
    vec![
        claim("5000 files: all are deleted in staging", "%", 100.0, *few, Expect::Within { points: 5.0 }),
        claim(
            "with each larger number of files a smaller share is (least fall)",
            "points",
            -VISIBLE,
            rises,
            Expect::AtMost,
        ),
        claim("55000 files: a smaller share than of 5000", "points", VISIBLE, few - many, Expect::AtLeast),
    ]
}

/// Figure 4.6: blocks from a file's first block to its last, when it is deleted.
pub(super) fn judge_distance(outcomes: &[Outcome]) -> Vec<Claim> {
    let of = |method: usize| by_files(outcomes).map(move |(_, outcomes)| outcomes[method].file_distance);
    let original: Vec<f64> = of(0).collect();
    let [few, .., many] = original.as_slice() else { return Vec::new() };
    let claim = |claim, published, measured, expect| Claim::new("4.6", claim, "blocks", published, measured, expect);
    vec![
        claim("original, 5000 files", 4_000.0, *few, Expect::Within { points: 2_000.0 }),
        claim("original, 55000 files", 12_000.0, *many, Expect::Within { points: 6_000.0 }),
        claim("original: more with 55000 files than with 5000", VISIBLE, many - few, Expect::AtLeast),
        claim("staging, mean over the numbers of files", 1_000.0, mean(of(1)), Expect::Within { points: 500.0 }),
    ]
}

/// Figure 4.7: both together. With 5,000 files there is staging's gain and no loss by WASL's bookkeeping; with more there is more
/// than of one alone, and less than the sum. Where both together are staging alone there is no sum to fall short of.
pub(super) fn judge_hybrid(outcomes: &[Outcome]) -> Vec<Claim> {
    let claim = |claim, unit, published, measured, expect| Claim::new("4.7", claim, unit, published, measured, expect);
    let of = |files, outcomes: &[Outcome]| {
        let [staging, wasl, hybrid] = [1, 2, 3].map(|method| gain(&outcomes[0], &outcomes[method]));
        if files == 5_000 {
            let both = hybrid.min(staging);
            return vec![claim(
                "5000 files: a gain, as with staging alone (the smaller of both)".to_owned(),
                "%",
                VISIBLE,
                both,
                Expect::AtLeast,
            )];
        }
        let better = hybrid - staging.max(wasl);
        let differs = (hybrid - staging).abs() >= VISIBLE;
        let beside_sum = if differs { hybrid - staging - wasl } else { 0.0 };
        vec![
            claim(format!("{files} files: 30 to 40 %"), "%", 35.0, hybrid, LARGE),
            claim(format!("{files} files: more than the better one alone"), "points", VISIBLE, better, Expect::AtLeast),
            claim(
                format!("{files} files: less than the sum (0: as staging alone)"),
                "points",
                -VISIBLE,
                beside_sum,
                Expect::AtMost,
            ),
        ]
    };
    by_files(outcomes).flat_map(|(files, outcomes)| of(files, outcomes)).collect()
}

/// Figure 4.8: 500 files of 2 MB to at most so many. A quick run has the files and the memory of the paper, as a file is large
/// only against staging's limit of 1 MB, but few transactions.
pub(super) fn large(effort: Effort) -> Result<Vec<WriteBackCell>, LabError> {
    let (sizes, transactions): (&[u64], u64) = match effort {
        Effort::Full => (&[4, 6], 200_000),
        Effort::Quick => (&[4], 1_000),
    };
    let spec = |high| format!("postmark:files=500,low=2MiB,high={high}MiB,dirs=0,transactions={transactions}");
    let run = |high, method: Method| Run { scale: 1.0, ..Run::new(method, spec(high), effort) };
    Ok(sizes.iter().flat_map(|high| METHODS.map(|method| run(high, method).cell())).collect())
}

/// Means over the sizes.
pub(super) fn judge_large(outcomes: &[Outcome]) -> Vec<Claim> {
    let of = |method: usize| mean(outcomes.chunks_exact(4).map(|outcomes| gain(&outcomes[0], &outcomes[method])));
    let (staging, wasl, hybrid) = (of(1), of(2), of(3));
    let claim = |claim, unit, published, measured, expect| Claim::new("4.8", claim, unit, published, measured, expect);
    vec![
        claim("staging costs at most 5 %", "%", -5.0, staging, Expect::AtLeast),
        claim("staging gains nothing", "%", VISIBLE, staging, Expect::AtMost),
        claim("WASL gains about 10 %", "%", 10.0, wasl, LARGE),
        claim("both together as WASL alone", "points", 0.0, hybrid - wasl, SAME),
    ]
}
