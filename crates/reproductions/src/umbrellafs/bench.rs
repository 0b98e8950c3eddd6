//! Compilation of a kernel (figures 31 and 32), Postmark (33), and what stands in for the NFS trace (39).

use umbrella_lab::experiment::LabError;
use umbrella_lab::result::{AtFinish, Outcome};
use umbrella_lab::write_back::WriteBackCell;

use super::runs::{self, DRIVES, LINUX, MAGNETIC, MLC, Runs, SCHEMES, SLC};
use super::{Claim, Effort, Expect, LITTLE, SIZE, SLIGHT, VISIBLE};

pub(super) const COMPILE_ASSUMED: &str = "There are 6,000 sources, each computed for 0.5 s, on both processors at once (make -j2). Sorting and \
     marking pages cost nothing; in the dissertation they offset some of the gain.";

pub(super) const TRACE_ASSUMED: &str = "We do not have the NFS trace. These policies go by files, which the open block traces do not have. The \
     load of a file server stands in for it, and is judged by the time of an operation. Sorting and marking \
     pages cost nothing; they are most of the published overhead.";

const COMPILE: &str = "kernel-compile:jobs=2";
const POSTMARK: &str = "postmark:files=12500,low=8KiB,high=64KiB,dirs=200,transactions=25000,block=4KiB";
const FILESERVER: &str = "fileserver";

/// Shares of the sizes in a quick run.
const QUICK: f64 = 0.2;
const QUICK_FILESERVER: f64 = 0.1;

pub(super) fn compile_cells(effort: Effort) -> Result<Vec<WriteBackCell>, LabError> {
    Ok(runs::compared(effort, QUICK, &DRIVES, COMPILE))
}

pub(super) fn judge_compile(outcomes: &[Outcome]) -> Vec<Claim> {
    let mut claims = Vec::new();
    for disk in DRIVES {
        let (published, expect) = if disk == SLC { (-17.0, SIZE) } else { (0.0, LITTLE) };
        for policy in SCHEMES {
            let claim = format!("{policy} on the {}: time against file", runs::name(disk));
            let measured = Runs::new(outcomes, disk, COMPILE).time(policy);
            claims.push(Claim::new("31", claim, "%", published, measured, expect));
            if disk != SLC {
                let claim = format!("{policy} on the {}: a slight improvement", runs::name(disk));
                claims.push(Claim::new("31", claim, "%", -SLIGHT, measured, Expect::AtMost));
            }
        }
    }
    claims
}

pub(super) fn length_cells(effort: Effort) -> Result<Vec<WriteBackCell>, LabError> {
    Ok(runs::compared(effort, QUICK, &[SLC], COMPILE))
}

pub(super) fn judge_length(outcomes: &[Outcome]) -> Vec<Claim> {
    let runs = Runs::new(outcomes, SLC, COMPILE);
    let of = |policy: &str| {
        let longer = runs.change(policy, |outcome| outcome.at_finish.sequential.mean_bytes());
        let share = |policy| runs.of(policy, |outcome| sequential_share(&outcome.at_finish));
        let more = share(policy) - share(LINUX);
        [
            Claim::new(
                "32",
                format!("{policy}: average size of a sequential write against file"),
                "%",
                26.0,
                longer,
                SIZE,
            ),
            Claim::new(
                "32",
                format!("{policy}: share of writes that are sequential, against file"),
                "points",
                0.0,
                more,
                LITTLE,
            ),
        ]
    };
    SCHEMES.iter().flat_map(|policy| of(policy)).collect()
}

/// In percent of the requests.
fn sequential_share(disk: &AtFinish) -> f64 {
    100.0 * disk.sequential.requests as f64 / disk.write_requests.max(1) as f64
}

pub(super) fn postmark_cells(effort: Effort) -> Result<Vec<WriteBackCell>, LabError> {
    Ok(runs::compared(effort, QUICK, &DRIVES, POSTMARK))
}

/// Better on the magnetic disk, less so on the Samsung drive, worse on the Memoright drive; two queues do nothing, as no
/// page is written four times.
pub(super) fn judge_postmark(outcomes: &[Outcome]) -> Vec<Claim> {
    let time = |disk, policy| Runs::new(outcomes, disk, POSTMARK).time(policy);
    let mut claims = Vec::new();
    for policy in ["sorted", "two_queue_sorted"] {
        let mut claim = |text: &str, unit, published, measured, expect| {
            claims.push(Claim::new("33", format!("{policy} {text}"), unit, published, measured, expect));
        };
        let (magnetic, mlc, slc) = (time(MAGNETIC, policy), time(MLC, policy), time(SLC, policy));
        claim("on the magnetic disk: faster than file", "%", -VISIBLE, magnetic, Expect::AtMost);
        let less = "on the Samsung drive: gains less than on the magnetic disk";
        claim(less, "points", VISIBLE, mlc - magnetic, Expect::AtLeast);
        claim("on the Memoright drive: slower than file", "%", VISIBLE, slc, Expect::AtLeast);
    }
    for disk in DRIVES {
        let claim = format!("two_queue on the {}: does little", runs::name(disk));
        claims.push(Claim::new("33", claim, "%", 0.0, time(disk, "two_queue"), LITTLE));
    }
    claims
}

pub(super) fn trace_cells(effort: Effort) -> Result<Vec<WriteBackCell>, LabError> {
    Ok(runs::compared(effort, QUICK_FILESERVER, &[MAGNETIC, MLC], FILESERVER))
}

pub(super) fn judge_trace(outcomes: &[Outcome]) -> Vec<Claim> {
    let mut claims = Vec::new();
    for disk in [MAGNETIC, MLC] {
        let runs = Runs::new(outcomes, disk, FILESERVER);
        for policy in SCHEMES {
            let measured = runs.change(policy, |outcome| outcome.time_s / outcome.operations as f64);
            let (said, published, expect) = match (disk, policy) {
                (MLC, "two_queue_sorted") => ("about as fast as file", 0.0, LITTLE),
                _ => ("slower than file", SLIGHT, Expect::AtLeast),
            };
            let claim = format!("{policy} on the {}: {said}", runs::name(disk));
            claims.push(Claim::new("39", claim, "%", published, measured, expect));
        }
    }
    claims
}
