//! Figure 4.1: what staging costs when files are only created.
//!
//! Nothing makes an empty file leave staging by itself: the paper's program asked for it. Here the files of that claim have
//! one page each and half as much memory as data, so that memory pressure moves them, and all is counted until the last of it
//! is on disk.

use umbrella_units::ByteSize;

use super::setting::{Method, Run, SMALL, VISIBLE, longer};
use crate::experiment::{Cell, LabError};
use crate::paper::{Claim, Effort, Expect};
use crate::result::Outcome;

const FILES: [u64; 2] = [32_768, 65_536];

const PAIR: [Method; 2] = [Method::Original, Method::Staging];

/// Said beside the figure.
pub(super) const ASSUMED: &str = "moving: files of one page each with half as much memory as data, until all is on disk; \
     the processor's part of making and moving a file is not modelled";

/// Each of the five workloads in the original and with staging.
pub(super) fn cells(effort: Effort) -> Result<Vec<Cell>, LabError> {
    let empty = FILES.map(|files| (format!("data-backup:files={files},total=1B,per-dir=1000000"), None));
    let pressed = FILES.map(|files| {
        let spec = format!("data-backup:files={files},total={}KiB,sigma=0,per-dir=1000000", files * 4);
        (spec, Some(ByteSize(files * 4096 / 2)))
    });
    let large = ("data-backup:files=100,total=10GB,sigma=0,per-dir=1000000".to_owned(), None);
    let run = |(workload, memory): &(String, Option<ByteSize>), method| {
        let mut run = Run::new(method, workload.clone(), effort);
        run.memory = memory.unwrap_or(run.memory);
        run.cell()
    };
    let all: Vec<_> = empty.into_iter().chain(pressed).chain([large]).collect();
    Ok(all.iter().flat_map(|work| PAIR.map(|method| run(work, method))).collect())
}

/// Times against the original's.
pub(super) fn judge(outcomes: &[Outcome]) -> Vec<Claim> {
    let [e0, s0, e1, s1, e2, s2, e3, s3, e4, s4] = outcomes else { return Vec::new() };
    let time =
        |claim: &str, published, measured, expect| Claim::new("4.1", claim, "% time", published, measured, expect);
    let faster = |claim, original: &Outcome, staged: &Outcome| {
        time(claim, -VISIBLE, longer(original.time_s, staged.time_s), Expect::AtMost)
    };
    let both = |claim, original: &Outcome, staged: &Outcome| {
        time(claim, 4.0, longer(original.drained_s, staged.drained_s), SMALL)
    };
    vec![
        faster("32,768 empty files: created in staging faster than in ext2", e0, s0),
        faster("65,536 empty files: created in staging faster than in ext2", e1, s1),
        both("32,768 files: created in staging and moved, against ext2", e2, s2),
        both("65,536 files: created in staging and moved, against ext2", e3, s3),
        time(
            "100 files of 100 MB: created in staging and moved, against ext2",
            3.5,
            longer(e4.time_s, s4.time_s),
            SMALL,
        ),
    ]
}
