//! Figure 4.1: what staging costs when files are only created.
//!
//! The processor's part of making a file in a file system, of making one in staging and of moving one is not modelled. So what
//! the text says of these times cannot be seen here, and fails: that empty files are made faster in staging, that moving one
//! takes about as long as making it, and 4 % more for both together. That moving a large file takes little beside making it
//! would hold of any time that is not modelled, and is left out.

use umbrella_lab::experiment::LabError;
use umbrella_lab::result::Outcome;
use umbrella_lab::write_back::WriteBackCell;

use super::setting::{LARGE, Method, Run, SMALL, longer};
use crate::{Claim, Effort, Expect, VISIBLE};

const FILES: [u64; 2] = [32_768, 65_536];

const PAIR: [Method; 2] = [Method::Original, Method::Staging];

/// Said beside the figure.
pub(super) const ASSUMED: &str = "The model does not charge processor time for making or moving a file. No claim about that time can hold \
     here. For the same reason the claim that moving large files takes little is not judged.";

/// What moving a file from staging to its file system costs the processor here, in percent of what making it costs.
const MOVING: f64 = 0.0;

/// Each of the three workloads in the original and with staging.
pub(super) fn cells(effort: Effort) -> Result<Vec<WriteBackCell>, LabError> {
    let empty = FILES.map(|files| format!("data-backup:files={files},total=1B,per-dir=1000000"));
    let large = "data-backup:files=100,total=10GB,sigma=0,per-dir=1000000".to_owned();
    let all = empty.into_iter().chain([large]);
    Ok(all.flat_map(|work| PAIR.map(|method| Run::new(method, work.clone(), effort).cell())).collect())
}

/// Times against the original's.
pub(super) fn judge(outcomes: &[Outcome]) -> Vec<Claim> {
    let [e0, s0, e1, s1, e2, s2] = outcomes else { return Vec::new() };
    let time =
        |claim: &str, published, measured, expect| Claim::new("4.1", claim, "% time", published, measured, expect);
    let faster = |claim, original: &Outcome, staged: &Outcome| {
        time(claim, -VISIBLE, longer(original.time_s, staged.time_s), Expect::AtMost)
    };
    let moved =
        |claim, original: &Outcome, staged: &Outcome| time(claim, 4.0, longer(original.time_s, staged.time_s), SMALL);
    vec![
        faster("32,768 empty files: created in staging faster than in ext2", e0, s0),
        faster("65,536 empty files: created in staging faster than in ext2", e1, s1),
        moved("32,768 empty files: created in staging and moved, against ext2", e0, s0),
        moved("65,536 empty files: created in staging and moved, against ext2", e1, s1),
        Claim::new(
            "4.1",
            "empty files: moving them takes about as long as creating them in ext2",
            "% of creating",
            100.0,
            MOVING,
            LARGE,
        ),
        time(
            "100 files of 100 MB: created in staging and moved, against ext2",
            3.5,
            longer(e2.time_s, s2.time_s),
            SMALL,
        ),
    ]
}
