//! What rules that bring files to flash would gain.
//!
//! Each request is of a file that a rule wants or not. Requests of selected files go to a flash, the others to the disk
//! as before. Each device is simulated alone. What counts is how long programs waited for both together.

use std::sync::Arc;

use umbrella_units::ByteSize;

use super::samples::SampleTable;
use super::write_back::{Baseline, machine_with, replay, waited_s};
use super::{Recording, SEEDS, Samples};
use crate::experiment::LabError;
use crate::result::Outcome;
use crate::trace::Columns;
use crate::write_back::{MachineSpec, WriteBackCell, WriteBackInput};

/// The flash of the model.
pub const FLASH: &str = "sata_ssd";

/// What a run tries, and with which seed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlacementRun {
    /// The rule by its number; none: no rule.
    pub rule: Option<usize>,
    /// The seed of the requests.
    pub seed: u64,
}

/// Which rules want the file of a request: a bit a rule.
pub type Wanted = u8;

/// The runs for a disk: without a rule, then with each of `rules` rules. `wanted` has an entry a request.
pub fn plan(
    recording: &Recording,
    wanted: &[Wanted],
    rules: usize,
    today: Baseline<'_>,
) -> Result<Vec<(PlacementRun, WriteBackCell)>, LabError> {
    let mut runs = Vec::new();
    for rule in std::iter::once(None).chain((0..rules).map(Some)) {
        let is_moved =
            |place: usize| rule.is_some_and(|rule| wanted.get(place).is_some_and(|wanted| wanted >> rule & 1 == 1));
        let (moved, stays) = (part(&recording.columns, is_moved), part(&recording.columns, |at| !is_moved(at)));
        for (disk, columns) in [(today.disk, stays), (FLASH, moved)] {
            // Nothing asked, nobody waited.
            if columns.is_empty() {
                continue;
            }
            let part = Recording { columns: Arc::new(columns), ..recording.clone() };
            for seed in SEEDS {
                let name = recording.name.clone().into();
                let input = WriteBackInput::columns(name, Arc::new(part.variant(seed)), replay())?;
                let policy = today.policy.to_owned();
                let machine = MachineSpec { policy, memory: today.memory, seed, ..machine_with(disk)? };
                runs.push((PlacementRun { rule, seed }, WriteBackCell::new(input, machine)));
            }
        }
    }
    Ok(runs)
}

/// Some requests of a trace.
fn part(columns: &Columns, is_in: impl Fn(usize) -> bool) -> Columns {
    fn pick<T: Copy>(of: &[T], is_in: &impl Fn(usize) -> bool) -> Vec<T> {
        of.iter().enumerate().filter(|(place, _)| is_in(*place)).map(|(_, value)| *value).collect()
    }
    Columns {
        times: pick(&columns.times, &is_in),
        devices: pick(&columns.devices, &is_in),
        ops: pick(&columns.ops, &is_in),
        offsets: pick(&columns.offsets, &is_in),
        sizes: pick(&columns.sizes, &is_in),
        names: columns.names.clone(),
    }
}

/// How long programs waited: without a rule, and with each.
pub fn evaluate(runs: &[(PlacementRun, Outcome)], rules: usize) -> (Samples, Vec<Samples>) {
    let mut tally = SampleTable::new();
    for (run, outcome) in runs {
        tally.add(run.rule, run.seed, [waited_s(outcome)]);
    }
    let found: Vec<(Option<usize>, Samples)> = tally.samples(|sums| *sums).map(|(rule, [of])| (rule, of)).collect();
    let of = |rule: Option<usize>| found.iter().find(|(known, _)| *known == rule).map_or(Samples::default(), |of| of.1);
    (of(None), (0..rules).map(|rule| of(Some(rule))).collect())
}

/// The rule to take. Among the rules that shorten today's waiting and are level with the one of the least waiting, it
/// is the one that brings fewest bytes to the flash. A rule whose files do not fit is `None`.
pub fn best(today: &Samples, rules: &[Option<(Samples, ByteSize)>]) -> Option<usize> {
    let fitting = || rules.iter().enumerate().filter_map(|(place, rule)| Some((place, (*rule)?)));
    let (_, (least, _)) = fitting().min_by(|(_, (one, _)), (_, (other, _))| one.mean.total_cmp(&other.mean))?;
    let level = fitting().filter(|(_, (waited, _))| waited.is_less_than(today) && waited.is_level_with(&least));
    level.min_by_key(|(_, (_, bytes))| *bytes).map(|(place, _)| place)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advice::write_back::KERNEL;
    use crate::experiment::{Cell, run};
    use crate::trace::Skipped;

    /// Writes at random places; every other one is of a file that the first rule wants, none of one that the second
    /// wants.
    fn recording() -> (Recording, Vec<Wanted>) {
        let many = 400;
        let columns = Columns {
            times: (0..many).map(|number| number * 4_000_000).collect(),
            devices: vec![0; many as usize],
            ops: (0..many).map(|number| i8::from(number % 4 != 0)).collect(),
            offsets: (0..many).map(|number| number * 7919 % 4000 * 262_144).collect(),
            sizes: vec![16_384; many as usize],
            ..Columns::default()
        };
        let recording =
            Recording { name: "t".to_owned(), columns: Arc::new(columns), is_cut: false, skipped: Skipped::default() };
        (recording, (0..many).map(|number| u8::from(number % 2 == 0)).collect())
    }

    #[test]
    fn a_rule_that_takes_requests_off_the_disk_gains_and_one_that_takes_none_is_level() {
        let (recording, wanted) = recording();
        let today = Baseline { disk: "modern", memory: ByteSize(64 << 20), policy: KERNEL };
        let (runs, cells): (Vec<_>, Vec<Cell<MachineSpec>>) =
            plan(&recording, &wanted, 2, today).expect("a plan").into_iter().unzip();
        let outcomes = run(&cells, 2, &()).expect("they run").outcomes.into_iter().flatten();
        let runs: Vec<_> = runs.into_iter().zip(outcomes).collect();
        let (without, with) = evaluate(&runs, 2);
        assert!(with[0].is_less_than(&without), "{without:?} {with:?}");
        assert_eq!(with[1], without);
        let bytes = ByteSize(1);
        assert_eq!(best(&without, &[Some((with[0], bytes)), Some((with[1], bytes))]), Some(0));
        assert_eq!(best(&without, &[None, Some((with[1], bytes))]), None);
    }

    #[test]
    fn of_rules_that_are_level_the_one_that_needs_least_flash_is_best() {
        let of = |waited: f64, bytes: u64| Some((Samples::of(&[waited; 3]), ByteSize(bytes)));
        let today = Samples::of(&[10.0; 3]);
        assert_eq!(best(&today, &[of(5.0, 100), of(5.01, 10), of(7.0, 1)]), Some(1));
        assert_eq!(best(&today, &[of(10.0, 1)]), None);
        assert_eq!(best(&today, &[]), None);
    }
}
