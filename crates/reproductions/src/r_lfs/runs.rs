//! What is run, and how outcomes compare.

use std::sync::Arc;

use umbrella_lab::experiment::Cell;
use umbrella_lab::log_store::{LogInput, LogOutcome, LogSetup, Percent};
use umbrella_lab::result::Table;
use umbrella_policy::log_layout::Victim;

use super::{LogCells, LogRuns};
use crate::{Effort, Measured};

/// The paper's policies: their names, regions, and how the victim is chosen.
pub(super) const POLICIES: [(&str, u32, Victim); 6] = [
    ("Cost-1", 1, Victim::CostBenefit),
    ("Cost-2", 2, Victim::CostBenefit),
    ("Cost-3", 3, Victim::CostBenefit),
    ("Greedy-1", 1, Victim::Greedy),
    ("Greedy-2", 2, Victim::Greedy),
    ("Greedy-3", 3, Victim::Greedy),
];

/// The paper's ways to choose a victim.
pub(super) const VICTIMS: [(&str, Victim); 2] = [("cost", Victim::CostBenefit), ("greedy", Victim::Greedy)];

/// How full the log is.
pub(super) fn utilisations(effort: Effort) -> &'static [u32] {
    match effort {
        Effort::Full => &[50, 60, 70, 80, 85, 90, 95],
        Effort::Quick => &[50, 70, 85, 90],
    }
}

/// R-LFS with `regions` regions.
pub(super) fn regions(regions: u32, victim: Victim, utilisation: u32) -> LogSetup {
    setup(&format!("r_lfs:regions={regions}"), victim, utilisation)
}

pub(super) fn setup(scheme: &str, victim: Victim, utilisation: u32) -> LogSetup {
    LogSetup { scheme: scheme.to_owned(), victim, utilisation: Percent(utilisation), segment_blocks: None }
}

/// The inputs whose logs are as large as their data ask for: our own tables are of these.
pub(super) fn packed(inputs: &[Arc<LogInput>]) -> impl Iterator<Item = &Arc<LogInput>> {
    inputs.iter().filter(|input| !input.is_disk())
}

/// How full the logs of an input were.
pub(super) fn utilisations_of(runs: &LogRuns<'_>, input: &LogInput) -> Vec<u32> {
    let mut all: Vec<u32> = runs.on(input).map(|(setup, _)| setup.utilisation.0).collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// Each input in each of these logs that is large enough for it.
pub(super) fn cells<'a>(inputs: impl Iterator<Item = &'a Arc<LogInput>>, setups: &[LogSetup]) -> LogCells {
    let mut cells = Vec::new();
    for input in inputs {
        for setup in setups {
            if setup.fits(input)? {
                cells.push(Cell { input: Arc::clone(input), machine: setup.clone() });
            }
        }
    }
    Ok(cells)
}

/// All of the paper's policies in logs from half full on.
pub(super) fn papers(effort: Effort) -> Vec<LogSetup> {
    let of = |share: &u32| POLICIES.map(|(_, count, victim)| regions(count, victim, *share));
    utilisations(effort).iter().flat_map(of).collect()
}

/// By how many percent `new` is below `old`; nothing where there was nothing.
fn less(old: u64, new: u64) -> Option<f64> {
    (old > 0).then(|| (1.0 - new as f64 / old as f64) * 100.0)
}

/// By how much more regions than one lower a count, at each utilisation at which there is something to lower.
pub(super) fn reductions(
    runs: &LogRuns<'_>,
    input: &LogInput,
    (count, victim): (u32, Victim),
    of: fn(&LogOutcome) -> u64,
) -> Vec<f64> {
    let reduction = |share: u32| {
        let [plain, more] = [1, count].map(|count| runs.of(input, &regions(count, victim, share)).map(of));
        less(plain?, more?)
    };
    utilisations_of(runs, input).into_iter().filter_map(reduction).collect()
}

/// Whether enough is read to ask how far the heads travel for it.
pub(super) fn has_reads(runs: &LogRuns<'_>, input: &LogInput) -> bool {
    let first = runs.outcomes().find(|outcome| outcome.input == input.name);
    first.is_some_and(|outcome| outcome.read.0 * 100 >= outcome.written.0)
}

/// What is judged together: an input, or all disks of a trace.
pub(super) struct Together<'a> {
    pub(super) inputs: Vec<&'a LogInput>,
}

impl Together<'_> {
    /// What was measured: of a trace in the reading that this is.
    pub(super) fn measured(&self, name: String, value: f64) -> Measured {
        let Some(first) = self.inputs.first() else { return Measured::new(name, value) };
        let measured = Measured::new(name, value).on(&first.source);
        if first.is_disk() || !first.is_trace() { measured } else { measured.in_reading("joined") }
    }

    /// Values of each input.
    pub(super) fn all(&self, of: impl Fn(&LogInput) -> Vec<f64>) -> Vec<f64> {
        self.inputs.iter().flat_map(|input| of(input)).collect()
    }
}

/// The inputs as they are judged: each by itself, and the disks of a trace together.
pub(super) fn judged<'a>(runs: &'a LogRuns<'_>) -> Vec<Together<'a>> {
    let mut all: Vec<Together<'a>> = Vec::new();
    for input in runs.inputs() {
        let same =
            |of: &&mut Together<'a>| of.inputs.iter().all(|other| other.is_disk() && other.source == input.source);
        match all.iter_mut().find(same).filter(|_| input.is_disk()) {
            Some(of) => of.inputs.push(input),
            None => all.push(Together { inputs: vec![input] }),
        }
    }
    all
}

/// What came of an input: a row a kind of log, a column a utilisation.
pub(super) fn by_utilisation<L: Fn(u32) -> LogSetup>(
    runs: &LogRuns<'_>,
    input: &LogInput,
    what: &str,
    kind: &str,
    logs: impl IntoIterator<Item = (String, L)>,
    text: fn(&LogOutcome) -> String,
) -> Table {
    let shares = utilisations_of(runs, input);
    let row = |(name, log): (String, L)| {
        let cell = |share: &u32| match runs.of(input, &log(*share)) {
            Some(outcome) => text(outcome),
            None if input.is_too_full(Percent(*share)) => "too full".to_owned(),
            None => "-".to_owned(),
        };
        std::iter::once(name).chain(shares.iter().map(cell)).collect()
    };
    Table {
        title: format!("{}: {what}", input.name),
        head: std::iter::once(kind.to_owned()).chain(shares.iter().map(|share| format!("{share} %"))).collect(),
        rows: logs.into_iter().map(row).collect(),
    }
}

/// The same of every input, a row a policy of the paper.
pub(super) fn of_policies(runs: &LogRuns<'_>, what: &str, text: fn(&LogOutcome) -> String) -> Vec<Table> {
    let logs = || POLICIES.map(|(name, count, victim)| (name.to_owned(), move |share| regions(count, victim, share)));
    runs.inputs().map(|input| by_utilisation(runs, input, what, "policy", logs(), text)).collect()
}

pub(super) fn most(all: &[f64]) -> f64 {
    all.iter().copied().reduce(f64::max).unwrap_or(f64::NAN)
}

pub(super) fn least(all: &[f64]) -> f64 {
    all.iter().copied().reduce(f64::min).unwrap_or(f64::NAN)
}

/// Thousands and millions, short.
pub(super) fn short(value: f64) -> String {
    match value {
        value if value >= 1e7 => format!("{:.1} M", value / 1e6),
        value if value >= 1e4 => format!("{:.1} k", value / 1e3),
        value => format!("{value:.0}"),
    }
}
