//! Which write-back policy, with how much memory.
//!
//! What counts, in this order: how long programs waited for their reads and writes; where that is the same for all, how
//! long the disk was busy. A setting that makes programs wait longer than they do today is out.

use std::sync::Arc;

use serde::Serialize;
use umbrella_units::ByteSize;

use super::samples::SampleTable;
use super::{Recording, SEEDS, Samples};
use crate::experiment::LabError;
use crate::result::{Outcome, Times};
use crate::write_back::{Fit, MOST_SHOWN, MachineSpec, ReplayOptions, Sweep, WriteBackCell, WriteBackInput, cells};

/// What Linux does today.
pub const KERNEL: &str = "file:chunk=4MiB";

/// The policies to try: the kernel, and those that go by the place on the disk, the usual choices first. On a trace of
/// blocks, policies that go by files would all do the same.
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
    /// The policy of today with the memory that there is.
    pub today: WriteBackFigures,
    /// The better setting; `None` if there is no difference.
    pub best: Option<WriteBackFigures>,
    /// The reason for it.
    pub reason: Option<Reason>,
    /// The better setting with the present memory, if the best one needs more.
    pub with_todays_memory: Option<WriteBackFigures>,
    /// All that was tried, in the order of preference.
    pub tried: Vec<WriteBackFigures>,
}

/// Sizes of memory to try: what there is, a quarter, and four times as much.
fn memories(today: ByteSize) -> [ByteSize; 3] {
    [today, ByteSize(today.0 / 4), ByteSize(today.0 * 4)]
}

/// The machine of an advice.
#[derive(Debug, Clone, Copy)]
pub struct Baseline<'a> {
    /// The disk's profile: its name, or the file of a drive's.
    pub disk: &'a str,
    /// Memory for file pages.
    pub memory: ByteSize,
    /// The write-back policy.
    pub policy: &'a str,
}

/// Wraps what lies behind the end of the modelled disk.
pub(super) fn replay() -> ReplayOptions {
    ReplayOptions { fit: Fit::Wrap, ..ReplayOptions::default() }
}

/// The machine with a disk: a profile's name, or the file of a drive's profile.
pub(super) fn machine_with(disk: &str) -> Result<MachineSpec, LabError> {
    let mut machine = MachineSpec::default();
    machine.set_disk(disk)?;
    Ok(machine)
}

/// The runs: every policy, and today's, with every size of memory, for each recording and seed.
pub fn plan(recordings: &[Recording], today: Baseline<'_>) -> Result<Vec<WriteBackCell>, LabError> {
    let Baseline { disk, memory, policy } = today;
    let mut policies = POLICIES.map(str::to_owned).to_vec();
    if !POLICIES.contains(&policy) {
        policies.push(policy.to_owned());
    }
    let values = memories(memory).iter().map(|memory| format!("{}B", memory.0)).collect();
    let sweep = [Sweep { name: "memory".to_owned(), values }];
    let on_disk = machine_with(disk)?;
    let mut all = Vec::new();
    for recording in recordings {
        for seed in SEEDS {
            let columns = Arc::new(recording.variant(seed));
            let input = WriteBackInput::columns(recording.name.clone().into(), columns, replay())?;
            let machine = MachineSpec { seed, ..on_disk.clone() };
            all.extend(cells(&WriteBackCell::new(input, machine), &policies, &sweep, MOST_SHOWN)?);
        }
    }
    Ok(all)
}

/// The result of the runs of [`plan`]; `None` if today's setting is not among them.
pub fn evaluate(outcomes: &[Outcome], today: Baseline<'_>) -> Option<WriteBackAdvice> {
    let Baseline { memory, policy, .. } = today;
    let mut tally = SampleTable::new();
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
    let today = tried.iter().find(|of| of.policy == policy && of.memory == memory)?.clone();
    let (best, reason) = choose(&tried, &today).unzip();
    let needs_more = best.as_ref().is_some_and(|best: &WriteBackFigures| best.memory > memory);
    let here: Vec<WriteBackFigures> = tried.iter().filter(|of| of.memory == memory).cloned().collect();
    let with_todays_memory = choose(&here, &today).filter(|_| needs_more).map(|(best, _)| best);
    Some(WriteBackAdvice { today, best, reason, with_todays_memory, tried })
}

/// What came of the best once more.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Confirmation {
    /// Whether each seed gave the same figures again.
    pub repeats: bool,
    /// Today's setting with the requests as they were recorded, none of them later.
    pub today: WriteBackFigures,
    /// The best with these.
    pub best: WriteBackFigures,
    /// Whether the best is better with these, too.
    pub agrees: bool,
}

/// No seed: the requests as they were recorded.
const AS_RECORDED: u64 = 0;

/// The runs that confirm an advice: the best with each seed again, then today's setting and the best with the requests
/// as they were recorded.
pub fn plan_again(
    recordings: &[Recording],
    disk: &str,
    advice: &WriteBackAdvice,
) -> Result<Vec<WriteBackCell>, LabError> {
    let Some(best) = &advice.best else { return Ok(Vec::new()) };
    let on_disk = machine_with(disk)?;
    let mut all = Vec::new();
    for recording in recordings {
        let mut add = |of: &WriteBackFigures, seed: u64, columns| {
            let input = WriteBackInput::columns(recording.name.clone().into(), columns, replay())?;
            let machine = MachineSpec { policy: of.policy.clone(), memory: of.memory, seed, ..on_disk.clone() };
            all.push(WriteBackCell::new(input, machine));
            Ok::<(), LabError>(())
        };
        for seed in SEEDS {
            add(best, seed, Arc::new(recording.variant(seed)))?;
        }
        add(&advice.today, AS_RECORDED, Arc::clone(&recording.columns))?;
        add(best, AS_RECORDED, Arc::clone(&recording.columns))?;
    }
    Ok(all)
}

/// The result of the runs of [`plan_again`]; `None` if there is nothing to confirm.
pub fn confirm(advice: &WriteBackAdvice, outcomes: &[Outcome]) -> Option<Confirmation> {
    let best = advice.best.as_ref()?;
    let figures = |of: &WriteBackFigures, is_seeded: bool| {
        let mut tally = SampleTable::new();
        for outcome in outcomes {
            let setting = &outcome.setting;
            let is_it = setting.policy == of.policy && setting.memory == of.memory;
            if is_it && (setting.seed != AS_RECORDED) == is_seeded {
                tally.add((), setting.seed, [waited_s(outcome), outcome.disk_busy_s]);
            }
        }
        let ((), [waited_s, busy_s]) = tally.samples(|sums| *sums).next()?;
        Some(WriteBackFigures { waited_s, busy_s, ..of.clone() })
    };
    let (again, today, once) = (figures(best, true)?, figures(&advice.today, false)?, figures(best, false)?);
    let agrees = match advice.reason? {
        Reason::Waited => once.waited_s.is_less_than(&today.waited_s),
        Reason::Busy => once.busy_s.is_less_than(&today.busy_s),
    };
    Some(Confirmation { repeats: again == *best, today, best: once, agrees })
}

/// The best, and why; `None` if nothing is better than today.
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
pub(super) fn waited_s(outcome: &Outcome) -> f64 {
    let sum = |times: &Times| times.mean * times.count as f64 / 1e6;
    sum(&outcome.read) + sum(&outcome.write) + sum(&outcome.fsync)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::run;
    use crate::result::Setting;
    use crate::trace::Columns;

    const MEMORY: ByteSize = ByteSize(512 << 20);
    const TODAY: Baseline<'_> = Baseline { disk: "modern", memory: MEMORY, policy: KERNEL };

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
        let advice = evaluate(&outcomes.concat(), TODAY).expect("today is among them");
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
        let advice = evaluate(&[kernel, sweep, more].concat(), TODAY).expect("today is among them");
        assert_eq!(advice.best.map(|best| best.memory), Some(ByteSize(MEMORY.0 * 4)));
        assert_eq!(advice.with_todays_memory.map(|best| best.policy).as_deref(), Some("sweep"));
    }

    #[test]
    fn without_todays_setting_there_is_no_advice() {
        assert_eq!(evaluate(&runs("sweep", MEMORY, [(1.0, 1.0); 3]), TODAY), None);
    }

    #[test]
    fn a_disk_with_a_policy_is_compared_with_that() {
        let kernel = runs(KERNEL, MEMORY, [(20.0, 50.0); 3]);
        let stow = runs("stow", MEMORY, [(15.0, 50.0); 3]);
        let advice = |policy| evaluate(&[kernel.clone(), stow.clone()].concat(), Baseline { policy, ..TODAY });
        assert_eq!(advice(KERNEL).and_then(|advice| advice.best).map(|best| best.policy).as_deref(), Some("stow"));
        assert_eq!(advice("stow").map(|advice| (advice.today.policy, advice.best)), Some(("stow".to_owned(), None)));
    }

    fn recording() -> Recording {
        let many = 200;
        let columns = Columns {
            times: (0..many).map(|number| number * 3_000_000).collect(),
            devices: vec![0; many as usize],
            ops: vec![1; many as usize],
            offsets: (0..many).map(|number| number * 7919 % 1000 * 262_144).collect(),
            sizes: vec![16_384; many as usize],
            ..Columns::default()
        };
        let skipped = crate::trace::Skipped::default();
        Recording { name: "t".to_owned(), columns: Arc::new(columns), is_cut: false, skipped }
    }

    #[test]
    fn what_is_advised_gives_the_same_figures_again_and_other_figures_are_noticed() {
        let recordings = [recording()];
        let today = Baseline { memory: ByteSize(64 << 20), ..TODAY };
        let outcomes = |cells: &[WriteBackCell]| -> Vec<Outcome> {
            run(cells, 2, &()).expect("they run").outcomes.into_iter().flatten().collect()
        };
        let mut advice = evaluate(&outcomes(&plan(&recordings, today).expect("a plan")), today).expect("an advice");
        let best = advice.tried.iter().find(|of| of.policy == "sweep").cloned();
        (advice.best, advice.reason) = (best, Some(Reason::Busy));
        let again = outcomes(&plan_again(&recordings, today.disk, &advice).expect("a plan"));
        assert!(confirm(&advice, &again).is_some_and(|confirmed| confirmed.repeats));
        if let Some(best) = &mut advice.best {
            best.busy_s.mean *= 1.5;
        }
        assert!(confirm(&advice, &again).is_some_and(|confirmed| !confirmed.repeats));
        assert_eq!(confirm(&WriteBackAdvice { best: None, ..advice }, &again), None);
    }
}
