//! Figure 4.1: what staging costs when files are only created.
//!
//! What the paper says of moving empty files (4 % longer) is left out: its program asked for the move, and all of the cost
//! is the processor's, for copying metadata, which is not modelled.

use super::setting::{Method, Run, SMALL, VISIBLE, longer};
use crate::experiment::{Cell, LabError};
use crate::paper::{Claim, Effort, Expect};
use crate::result::Outcome;

const FILES: [u64; 2] = [32_768, 65_536];

const PAIR: [Method; 2] = [Method::Original, Method::Staging];

/// Said beside the figure.
pub(super) const ASSUMED: &str = "the processor's part of making and moving a file is not modelled: that moving empty files takes 4 % \
     longer is not judged";

/// Each of the three workloads in the original and with staging.
pub(super) fn cells(effort: Effort) -> Result<Vec<Cell>, LabError> {
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
    vec![
        faster("32,768 empty files: created in staging faster than in ext2", e0, s0),
        faster("65,536 empty files: created in staging faster than in ext2", e1, s1),
        time(
            "100 files of 100 MB: created in staging and moved, against ext2",
            3.5,
            longer(e2.time_s, s2.time_s),
            SMALL,
        ),
    ]
}
