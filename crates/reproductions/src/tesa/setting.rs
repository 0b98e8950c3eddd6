//! The machine and the workloads of section IV-A, and the paper's measure of performance (section IV-C).
//!
//! Known: 1 GB of memory, a disk of 500 GB and 7200 rpm, and an elevator before the disk. Linux is 2.6.12, so the
//! thresholds are 10 % and 40 %, and the periodic write-back comes after 30 s. Not known: which disk, and how much of
//! the memory is left to file pages.

use umbrella_lab::result::Outcome;
use umbrella_lab::write_back::{MachineSpec, WriteBackCell, WriteBackInput};
use umbrella_units::ByteSize;

use crate::{Effort, Measured, WriteBackCells, kernel, processor, statistics::change};

/// What the outcomes of [`grid`] come to in each reading.
pub(super) fn in_readings<const N: usize>(
    outcomes: &[Outcome],
    measure: impl Fn(&[Outcome]) -> [(&'static str, f64); N],
) -> Vec<Measured> {
    let [background, throttled] = in_halves(outcomes).map(measure);
    let background = background.map(|(name, value)| Measured::new(name, value));
    let throttled = throttled.map(|(name, value)| Measured::new(name, value).in_reading("throttled"));
    background.into_iter().chain(throttled).collect()
}

/// The first half is of the primary reading, where only the background thread asks the policy; the second of the other,
/// where throttled writers ask it as well.
pub(super) fn in_halves<T>(all: &[T]) -> [&[T]; 2] {
    all.split_at(all.len() / 2).into()
}

/// Said beside the figures.
pub(super) const ASSUMED: &str = "900 MiB of the 1 GB hold file pages; the kernel and the programs use the rest. The disk is a Deskstar \
     7K500 with its write cache on. The file system is ext3 without its journal. One seed.";

/// All sizes and times of the workloads, and the memory, times this, in a quick run.
const QUICK: f64 = 0.125;

/// The board of section IV-A: 1.6 GHz.
const BOARD_MHZ: u64 = 1600;

/// The same input for every run.
const SEED: u64 = 1;

/// A workload of section IV-A; its parameters are the defaults of the lab's workload of that name.
#[derive(Debug, Clone, Copy)]
pub(super) struct Work {
    /// Its name.
    pub(super) name: &'static str,
    /// Whether it runs for a fixed time.
    pub(super) timed: bool,
    /// Whether the paper counts it among the write dominated (section IV-E).
    pub(super) writes: bool,
}

/// The six workloads, in the order of the paper's figures.
pub(super) const WORKLOADS: &[Work] = &[
    Work { name: "seq-write", timed: true, writes: true },
    Work { name: "rnd-write", timed: true, writes: true },
    Work { name: "postmark", timed: false, writes: true },
    Work { name: "fileserver", timed: true, writes: true },
    Work { name: "videoserver", timed: true, writes: false },
    Work { name: "data-backup", timed: false, writes: true },
];

impl Work {
    /// The number of operations if the time is fixed, the inverse of the time if the work is (section IV-C).
    ///
    /// Operations are not divided by the time of the run, which is the same for all policies. The run itself ends
    /// later, with the step that the slowest client was in when the time was up; the benchmark does not wait for that
    /// step.
    pub(super) fn performance(self, outcome: &Outcome) -> f64 {
        let inverse = if outcome.time_s > 0.0 { 1.0 / outcome.time_s } else { 0.0 };
        if self.timed { outcome.operations as f64 } else { inverse }
    }

    /// By how many percent `outcome` performs better than `base`.
    pub(super) fn gain(self, outcome: &Outcome, base: &Outcome) -> f64 {
        change(self.performance(base), self.performance(outcome))
    }
}

/// Every policy on each of the workloads: once with throttled writers that write by file, and once with writers that
/// ask the policy. Outcomes of one workload are together, in the order of the policies.
pub(super) fn grid(workloads: impl Iterator<Item = Work>, policies: &[String], effort: Effort) -> Vec<WriteBackCell> {
    let machine = MachineSpec {
        disk: "deskstar_500gb".to_owned(),
        memory: ByteSize(900 << 20),
        background_percent: 10,
        foreground_percent: 40,
        bookkeeping: processor::bookkeeping(BOARD_MHZ),
        seed: SEED,
        scale: effort.scale(QUICK),
        ..MachineSpec::default()
    };
    let cell = |work: Work, policy: &String, writers: Option<String>| {
        let input = WriteBackInput::Workload { spec: work.name.to_owned() };
        let throttled_policy = writers.filter(|writers| writers != policy);
        WriteBackCell::new(input, MachineSpec { policy: policy.clone(), throttled_policy, ..machine.clone() })
    };
    let works: Vec<Work> = workloads.collect();
    let runs = |writers: Option<String>| {
        let each = works.iter().flat_map(|work| policies.iter().map(move |policy| (*work, policy)));
        each.map(|(work, policy)| cell(work, policy, writers.clone())).collect::<Vec<_>>()
    };
    [Some(file()), None].map(runs).concat()
}

/// Every policy on all six.
pub(super) fn on_all(policies: &[String], effort: Effort) -> WriteBackCells {
    Ok(grid(WORKLOADS.iter().copied(), policies, effort))
}

/// The workloads that section IV-E calls write dominated.
pub(super) fn writing() -> impl Iterator<Item = Work> {
    WORKLOADS.iter().copied().filter(|work| work.writes)
}

/// Each workload with its outcomes, one a policy.
pub(super) fn rows(
    workloads: impl Iterator<Item = Work>,
    outcomes: &[Outcome],
    policies: usize,
) -> impl Iterator<Item = (Work, &[Outcome])> {
    workloads.zip(outcomes.chunks_exact(policies))
}

/// Linux's.
pub(super) fn file() -> String {
    kernel::by_files("file")
}

/// The zone scheme.
pub(super) fn zone(mebibytes: u32) -> String {
    format!("zone:zone={mebibytes}MiB")
}

/// The zone_segment scheme: TESA. The paper's choice is 50 and 8 MB.
pub(super) fn zone_segment(alpha: u32, mebibytes: u32) -> String {
    format!("zone_segment:alpha={alpha},zone={mebibytes}MiB")
}

/// What the rest of the paper calls TESA.
pub(super) fn tesa() -> String {
    zone_segment(50, 8)
}

/// The largest; zero of none.
pub(super) fn most(values: impl Iterator<Item = f64>) -> f64 {
    values.reduce(f64::max).unwrap_or_default()
}

/// The one farthest from zero; zero of none.
pub(super) fn farthest(values: impl Iterator<Item = f64>) -> f64 {
    values.reduce(|a, b| if b.abs() > a.abs() { b } else { a }).unwrap_or_default()
}
