//! Which write-back policy, with how much memory.
//!
//! What counts, in this order: how long programs waited for their reads and writes; where that is the same for all, how long the disk was busy. A setting
//! that makes programs wait longer than they do today is out.

use std::sync::Arc;

use serde::Serialize;
use umbrella_units::ByteSize;

use super::samples::Tally;
use super::{Recording, SEEDS, Samples};
use crate::experiment::LabError;
use crate::result::{Outcome, Times};
use crate::write_back::{Fit, MachineSpec, ReplayOptions, Sweep, WriteBackCell, WriteBackInput, cells};

/// What Linux does today.
pub const KERNEL: &str = "file:chunk=4MiB";

/// What is tried: the kernel, and the policies that go by the place on the disk, the usual choices first. Those that go by files cannot be told apart on a trace of blocks.
pub const POLICIES: [&str; 7] = [KERNEL, "sweep", "cscan", "zone_segment", "zone", "wow", "stow"];

/// A policy with a size of memory, and how it did.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WriteBackFigures {
    /// The policy.
    pub policy: String,
    /// Memory for file pages.
    pub memory: ByteSize,
    /// How long programs waited for their reads and writes, in seconds, summed over the requests.
    pub waited_s: Samples,
    /// How long the disk was busy, in seconds.
    pub busy_s: Samples,
}

/// What decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// Programs waited less.
    Waited,
    /// They waited as long, and the disk was busy for a shorter time.
    Busy,
}

/// What to set.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WriteBackAdvice {
    /// The kernel's order with the memory that there is.
    pub today: WriteBackFigures,
    /// What is better; none where there is no difference.
    pub best: Option<WriteBackFigures>,
    /// What decided.
    pub reason: Option<Reason>,
    /// What is better with the memory that there is, where the best needs more.
    pub with_todays_memory: Option<WriteBackFigures>,
    /// All that was tried, in the order of preference.
    pub tried: Vec<WriteBackFigures>,
}

/// Sizes of memory to try: what there is, a quarter, and four times as much.
fn memories(today: ByteSize) -> [ByteSize; 3] {
    [today, ByteSize(today.0 / 4), ByteSize(today.0 * 4)]
}

/// The runs: every policy with every size of memory, for each recording and seed. `disk` is a profile.
pub fn plan(recordings: &[Recording], disk: &str, memory: ByteSize) -> Result<Vec<WriteBackCell>, LabError> {
    let policies = POLICIES.map(str::to_owned);
    let values = memories(memory).iter().map(|memory| format!("{}B", memory.0)).collect();
    let sweep = [Sweep { name: "memory".to_owned(), values }];
    let replay = ReplayOptions { fit: Fit::Wrap, ..ReplayOptions::default() };
    let mut all = Vec::new();
    for recording in recordings {
        for seed in SEEDS {
            let columns = Arc::new(recording.variant(seed));
            let input = WriteBackInput::columns(recording.name.clone().into(), columns, replay)?;
            let machine = MachineSpec { disk: disk.to_owned(), seed, ..MachineSpec::default() };
            all.extend(cells(&WriteBackCell::new(input, machine), &policies, &sweep)?);
        }
    }
    Ok(all)
}

/// What the runs of [`plan`] come to; none if today's setting is not among them.
pub fn judge(outcomes: &[Outcome], memory: ByteSize) -> Option<WriteBackAdvice> {
    let mut tally = Tally::new();
    for outcome in outcomes {
        let key = (outcome.setting.policy.clone(), outcome.setting.memory);
        tally.add(key, outcome.setting.seed, [waited_s(outcome), outcome.disk_busy_s]);
    }
    let figures = tally.samples(|sums| *sums);
    let mut tried: Vec<WriteBackFigures> = figures
        .map(|((policy, memory), [waited_s, busy_s])| WriteBackFigures { policy, memory, waited_s, busy_s })
        .collect();
    // The sort keeps the order of the policies.
    let sizes = memories(memory);
    tried.sort_by_key(|of| sizes.iter().position(|size| *size == of.memory));
    let today = tried.iter().find(|of| of.policy == KERNEL && of.memory == memory)?.clone();
    let (best, reason) = choose(&tried, &today).unzip();
    let needs_more = best.as_ref().is_some_and(|best: &WriteBackFigures| best.memory > memory);
    let here: Vec<WriteBackFigures> = tried.iter().filter(|of| of.memory == memory).cloned().collect();
    let with_todays_memory = choose(&here, &today).filter(|_| needs_more).map(|(best, _)| best);
    Some(WriteBackAdvice { today, best, reason, with_todays_memory, tried })
}

/// The best, and why; none where nothing is better than today.
fn choose(tried: &[WriteBackFigures], today: &WriteBackFigures) -> Option<(WriteBackFigures, Reason)> {
    let no_worse: Vec<&WriteBackFigures> =
        tried.iter().filter(|of| !today.waited_s.is_less_than(&of.waited_s)).collect();
    let waited = || best(&no_worse, today, |of| of.waited_s).map(|best| (best.clone(), Reason::Waited));
    let busy = || best(&no_worse, today, |of| of.busy_s).map(|best| (best.clone(), Reason::Busy));
    waited().or_else(busy)
}

/// The first of those that are level with the best, if that is better than today.
fn best<'a>(
    tried: &[&'a WriteBackFigures],
    today: &WriteBackFigures,
    figure: impl Fn(&WriteBackFigures) -> Samples,
) -> Option<&'a WriteBackFigures> {
    let least = tried.iter().min_by(|one, other| figure(one).mean.total_cmp(&figure(other).mean))?;
    let is_best =
        |of: &&&WriteBackFigures| figure(of).is_less_than(&figure(today)) && figure(of).is_level_with(&figure(least));
    tried.iter().find(is_best).copied()
}

/// How long programs waited, summed over their requests.
fn waited_s(outcome: &Outcome) -> f64 {
    let sum = |times: &Times| times.mean * times.count as f64 / 1e6;
    sum(&outcome.read) + sum(&outcome.write) + sum(&outcome.fsync)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::Setting;

    const MEMORY: ByteSize = ByteSize(512 << 20);

    /// A policy with today's memory: how long each seed waited, and was busy.
    fn runs(policy: &str, memory: ByteSize, seeds: [(f64, f64); 3]) -> Vec<Outcome> {
        let run = |(seed, (waited, busy)): (u64, (f64, f64))| Outcome {
            setting: Setting { policy: policy.to_owned(), memory, seed, ..Setting::default() },
            write: Times { count: 1, mean: waited * 1e6, ..Times::default() },
            disk_busy_s: busy,
            ..Outcome::default()
        };
        SEEDS.into_iter().zip(seeds).map(run).collect()
    }

    fn advice(outcomes: &[Vec<Outcome>]) -> (Option<(String, ByteSize)>, Option<Reason>) {
        let advice = judge(&outcomes.concat(), MEMORY).expect("today is among them");
        (advice.best.map(|best| (best.policy, best.memory)), advice.reason)
    }

    #[test]
    fn the_policy_that_lets_programs_wait_least_wins() {
        let kernel = runs(KERNEL, MEMORY, [(20.0, 50.0), (21.0, 50.0), (20.5, 50.0)]);
        let sweep = runs("sweep", MEMORY, [(15.0, 60.0), (15.5, 60.0), (15.2, 60.0)]);
        let cscan = runs("cscan", MEMORY, [(18.0, 40.0), (18.1, 40.0), (18.2, 40.0)]);
        assert_eq!(advice(&[kernel, sweep, cscan]), (Some(("sweep".to_owned(), MEMORY)), Some(Reason::Waited)));
    }

    #[test]
    fn where_seeds_contradict_each_other_there_is_no_difference() {
        let kernel = runs(KERNEL, MEMORY, [(20.0, 50.0), (14.0, 50.0), (20.5, 50.0)]);
        let sweep = runs("sweep", MEMORY, [(15.0, 50.0), (22.0, 50.0), (15.2, 50.0)]);
        assert_eq!(advice(&[kernel, sweep]), (None, None));
    }

    #[test]
    fn of_settings_that_are_level_the_one_that_changes_least_is_best() {
        let kernel = runs(KERNEL, MEMORY, [(20.0, 50.0); 3]);
        let more = runs("sweep", ByteSize(MEMORY.0 * 4), [(14.95, 50.0); 3]);
        let less = runs("sweep", ByteSize(MEMORY.0 / 4), [(15.0, 50.0); 3]);
        let same = runs("cscan", MEMORY, [(15.1, 50.0); 3]);
        let cscan = (Some(("cscan".to_owned(), MEMORY)), Some(Reason::Waited));
        assert_eq!(advice(&[kernel.clone(), more.clone(), less.clone(), same]), cscan);
        let less_memory = (Some(("sweep".to_owned(), ByteSize(MEMORY.0 / 4))), Some(Reason::Waited));
        assert_eq!(advice(&[kernel, more, less]), less_memory);
    }

    #[test]
    fn where_programs_wait_as_long_the_disk_decides_and_who_makes_them_wait_is_out() {
        let kernel = runs(KERNEL, MEMORY, [(20.0, 50.0); 3]);
        let slow = runs("sweep", MEMORY, [(25.0, 10.0); 3]);
        let cscan = runs("cscan", MEMORY, [(20.0, 30.0); 3]);
        assert_eq!(advice(&[kernel, slow, cscan]), (Some(("cscan".to_owned(), MEMORY)), Some(Reason::Busy)));
    }

    #[test]
    fn where_the_best_needs_more_memory_the_best_without_it_is_named_too() {
        let kernel = runs(KERNEL, MEMORY, [(20.0, 50.0); 3]);
        let sweep = runs("sweep", MEMORY, [(15.0, 50.0); 3]);
        let more = runs(KERNEL, ByteSize(MEMORY.0 * 4), [(5.0, 50.0); 3]);
        let advice = judge(&[kernel, sweep, more].concat(), MEMORY).expect("today is among them");
        assert_eq!(advice.best.map(|best| best.memory), Some(ByteSize(MEMORY.0 * 4)));
        assert_eq!(advice.with_todays_memory.map(|best| best.policy).as_deref(), Some("sweep"));
    }

    #[test]
    fn without_todays_setting_there_is_no_advice() {
        assert_eq!(judge(&runs("sweep", MEMORY, [(1.0, 1.0); 3]), MEMORY), None);
    }
}
