//! Compilation of a kernel (figures 31 and 32), Postmark (33), and what stands in for the NFS trace (39).

use umbrella_lab::result::{AtFinish, Outcome};

use super::Measured;
use super::runs::{self, DRIVES, LINUX, MAGNETIC, MLC, POLICIES, PlacementRuns, SCHEMES, SLC};

pub(super) const COMPILE_ASSUMED: &str = "There are 6,000 sources, each computed for 0.5 s, on both processors at once (make -j2). Sorting and \
     marking pages cost nothing; in the dissertation they offset some of the gain.";

pub(super) const TRACE_ASSUMED: &str = "We do not have the NFS trace. These policies go by files, which the open block traces do not have. The \
     load of a file server stands in for it, and is judged by the time of an operation. Sorting and marking \
     pages cost nothing; they are most of the published overhead.";

pub(super) const COMPILE: &str = "kernel-compile:jobs=2";
pub(super) const POSTMARK: &str = "postmark:files=12500,low=8KiB,high=64KiB,dirs=200,transactions=25000,block=4KiB";
pub(super) const FILESERVER: &str = "fileserver";

/// Shares of the sizes in a quick run.
pub(super) const QUICK: f64 = 0.2;
pub(super) const QUICK_FILESERVER: f64 = 0.1;

/// "Very little change depending on the page cache algorithm" is of all four, "a slight improvement" of each against
/// `file`.
pub(super) fn measure_compile(outcomes: &[Outcome]) -> Vec<Measured> {
    let of = |disk: &'static str| {
        let runs = PlacementRuns::new(outcomes, disk, COMPILE);
        let time = move |policy| runs.of(policy, |outcome| outcome.time_s);
        let mean = POLICIES.map(time).iter().sum::<f64>() / POLICIES.len() as f64;
        SCHEMES.into_iter().flat_map(move |policy| {
            let name = |what| format!("{policy}.{}.{what}", runs::short(disk));
            if disk == SLC {
                return vec![Measured::new(name("size"), runs.time(policy))];
            }
            let apart = 100.0 * (time(policy) / mean - 1.0);
            vec![Measured::new(name("little"), apart), Measured::new(name("better"), runs.time(policy))]
        })
    };
    DRIVES.into_iter().flat_map(of).collect()
}

pub(super) fn measure_length(outcomes: &[Outcome]) -> Vec<Measured> {
    let runs = PlacementRuns::new(outcomes, SLC, COMPILE);
    let of = |policy: &str| {
        let longer = runs.change(policy, |outcome| outcome.at_finish.sequential.mean_bytes());
        let share = |policy| runs.of(policy, |outcome| sequential_share(&outcome.at_finish));
        [("length", longer), ("share", share(policy) - share(LINUX))]
            .map(|(name, value)| Measured::new(format!("{policy}.{name}"), value))
    };
    SCHEMES.iter().flat_map(|policy| of(policy)).collect()
}

/// In percent of the requests.
fn sequential_share(disk: &AtFinish) -> f64 {
    100.0 * disk.sequential.requests as f64 / disk.write_requests.max(1) as f64
}

/// Better on the magnetic disk, less so on the Samsung drive, worse on the Memoright drive; two queues do nothing, as
/// no page is written four times.
pub(super) fn measure_postmark(outcomes: &[Outcome]) -> Vec<Measured> {
    let time = |disk, policy| PlacementRuns::new(outcomes, disk, POSTMARK).time(policy);
    let mut measured = Vec::new();
    for policy in ["sorted", "two_queue_sorted"] {
        let mut add = |disk, value| measured.push(Measured::new(format!("{policy}.{}", runs::short(disk)), value));
        add(MAGNETIC, time(MAGNETIC, policy));
        add(MLC, time(MLC, policy) - time(MAGNETIC, policy));
        add(SLC, time(SLC, policy));
    }
    let little = |disk| Measured::new(format!("two_queue.{}", runs::short(disk)), time(disk, "two_queue"));
    measured.extend(DRIVES.map(little));
    measured
}

pub(super) fn measure_trace(outcomes: &[Outcome]) -> Vec<Measured> {
    let of = |disk, policy: &str| {
        let slower = PlacementRuns::new(outcomes, disk, FILESERVER)
            .change(policy, |outcome| outcome.time_s / outcome.operations as f64);
        Measured::new(format!("{policy}.{}", runs::short(disk)), slower)
    };
    [MAGNETIC, MLC].into_iter().flat_map(|disk| SCHEMES.map(|policy| of(disk, policy))).collect()
}
