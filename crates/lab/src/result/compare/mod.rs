//! Outcomes side by side: which belong together, what to call them, which is best at what. Tables and pages show the
//! decisions made here, so that both name the same winner.
//!
//! Outcomes of one input form a [`Group`]; its first row is the baseline for the others. In a sweep the baseline is the
//! first row with the same values of the swept parameters. Outcomes that differ only by the seed are one
//! [`ComparisonRow`], whose figures are means. One seed is one sample, and where the seeds of two rows overlap there is
//! no difference. A label is the policy and whatever else differs inside the group. Runs that were cut short win
//! nothing and are in no mean: their figures are those of a shorter run.

mod verdict;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use umbrella_units::ByteSize;

use super::{Better, Metric, Outcome, Setting, change};

/// A spread below this, in percent, is not shown.
const LEAST_SPREAD: f64 = 1.0;

/// The outcomes of one input.
#[derive(Debug, Clone)]
pub struct Group<'a> {
    /// The input of all.
    pub input: &'a str,
    /// The outcomes, in the order given.
    pub rows: Vec<ComparisonRow<'a>>,
}

/// The outcomes of one setting, one a seed, and what to call them.
#[derive(Debug, Clone)]
pub struct ComparisonRow<'a> {
    /// The policy, and what else tells it from the others of its group.
    pub label: String,
    /// The outcomes; never empty, and only one of a run that was cut short.
    pub outcomes: Vec<&'a Outcome>,
}

/// One policy over the values of a swept parameter.
#[derive(Debug, Clone)]
pub struct Series<'a> {
    /// The policy, and what else tells it from the other series, without the swept parameter.
    pub label: String,
    /// The place of the value in the sweep, and what was run there.
    pub points: Vec<(usize, &'a ComparisonRow<'a>)>,
}

/// A parameter that was swept, its values in ascending order, and a series for each policy.
#[derive(Debug, Clone)]
pub struct SweepResult<'a> {
    /// The parameter.
    pub name: &'a str,
    /// Its values.
    pub values: Vec<&'a str>,
    /// The policies.
    pub series: Vec<Series<'a>>,
}

/// How a row's figure differs from that of the row it is compared with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Difference {
    /// By no more than the seeds differ among themselves.
    None,
    /// The size of the difference.
    By(String),
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Difference::None => "no difference",
            Difference::By(change) => change,
        })
    }
}

/// The outcomes by input, in the order of first appearance.
pub fn groups(outcomes: &[Outcome]) -> Vec<Group<'_>> {
    let mut inputs: Vec<&str> = Vec::new();
    for outcome in outcomes {
        if !inputs.contains(&outcome.setting.input.as_str()) {
            inputs.push(&outcome.setting.input);
        }
    }
    let of_input = |input| {
        let mut rows = rows(outcomes.iter().filter(|outcome| outcome.setting.input == input));
        let mut labels = labels(&rows, None);
        number_twins(&mut labels);
        rows.iter_mut().zip(labels).for_each(|(row, label)| row.label = label);
        Group { input, rows }
    };
    inputs.into_iter().map(of_input).collect()
}

/// The rows, without their labels.
fn rows<'a>(outcomes: impl Iterator<Item = &'a Outcome>) -> Vec<ComparisonRow<'a>> {
    let mut rows: Vec<ComparisonRow<'a>> = Vec::new();
    // What all outcomes of a row share, at the row's place.
    let mut shared: Vec<Setting> = Vec::new();
    for outcome in outcomes {
        let setting = without_seed(&outcome.setting);
        let belongs = |place: &usize| shared[*place] == setting && rows[*place].takes(outcome);
        if let Some(place) = (0..rows.len()).find(belongs) {
            rows[place].outcomes.push(outcome);
        } else {
            rows.push(ComparisonRow { label: String::new(), outcomes: vec![outcome] });
            shared.push(setting);
        }
    }
    rows
}

fn without_seed(setting: &Setting) -> Setting {
    let mut setting = Setting { seed: 0, ..setting.clone() };
    setting.swept.remove("seed");
    setting
}

impl<'a> ComparisonRow<'a> {
    /// What was run; of several seeds, the first.
    pub fn setting(&self) -> &'a Setting {
        &self.outcomes[0].setting
    }

    /// Whether the run was cut short.
    pub fn is_cut(&self) -> bool {
        self.outcomes[0].interrupted
    }

    /// The mean over the seeds.
    pub fn mean(&self, of: impl Fn(&Outcome) -> f64) -> f64 {
        self.outcomes.iter().map(|outcome| of(outcome)).sum::<f64>() / self.outcomes.len() as f64
    }

    /// The figure: its mean over the seeds.
    pub fn value(&self, metric: &Metric) -> f64 {
        self.mean(metric.of)
    }

    /// The least and the most of the seeds.
    fn range(&self, metric: &Metric) -> Option<(f64, f64)> {
        let values = || self.outcomes.iter().map(|outcome| (metric.of)(outcome));
        Some((values().reduce(f64::min)?, values().reduce(f64::max)?))
    }

    /// Half of the distance between the least and the most of the seeds, in percent of the mean; `None` below 1 %.
    pub fn spread(&self, metric: &Metric) -> Option<f64> {
        let (least, most) = self.range(metric)?;
        let percent = (most - least) * 50.0 / self.value(metric);
        (percent.is_finite() && percent >= LEAST_SPREAD).then_some(percent)
    }

    /// The figure and its spread, as people read them.
    pub fn show(&self, metric: &Metric) -> String {
        let spread = self.spread(metric).map_or_else(String::new, |percent| format!(" \u{b1}{percent:.0} %"));
        metric.show(self.value(metric)) + &spread
    }

    /// Whether the outcome can be one of this row's, as far as seed and end tell.
    fn takes(&self, outcome: &Outcome) -> bool {
        let is_new = self.outcomes.iter().all(|own| own.setting.seed != outcome.setting.seed);
        is_new && !self.is_cut() && !outcome.interrupted
    }

    fn is(&self, other: &ComparisonRow<'_>) -> bool {
        std::ptr::eq(self.outcomes[0], other.outcomes[0])
    }
}

impl<'a> Group<'a> {
    /// Whether the figure is zero in every run, and so says nothing.
    pub fn is_zero(&self, metric: &Metric) -> bool {
        self.outcomes().all(|outcome| (metric.of)(outcome) == 0.0)
    }

    /// Every run.
    pub fn outcomes(&self) -> impl Iterator<Item = &'a Outcome> {
        self.rows.iter().flat_map(|row| row.outcomes.iter().copied())
    }

    /// What the rows are called.
    pub(super) fn labels(&self) -> Vec<&str> {
        self.rows.iter().map(|row| row.label.as_str()).collect()
    }

    /// A note that the figures are means, and over how many seeds; `None` if each is of one run.
    pub fn means(&self) -> Option<String> {
        let seeds = || self.complete().map(|row| row.outcomes.len());
        match (seeds().min()?, seeds().max()?) {
            (_, 1) => None,
            (least, most) if least == most => Some(format!("mean of {most} seeds")),
            (least, most) => Some(format!("mean of {least} to {most} seeds")),
        }
    }

    /// Whether two rows look the same, or differ by no more than their seeds do.
    fn same(&self, metric: &Metric, one: &ComparisonRow<'_>, other: &ComparisonRow<'_>) -> bool {
        if metric.show(one.value(metric)) == metric.show(other.value(metric)) {
            return true;
        }
        let has_seeds = one.outcomes.len() > 1 && other.outcomes.len() > 1;
        let (Some(one), Some(other)) = (one.range(metric), other.range(metric)) else { return false };
        has_seeds && one.0 <= other.1 && other.0 <= one.1
    }

    /// The values of the swept parameters for every policy. Only rows that share them are compared, unless all are of
    /// one policy.
    fn context<'b>(&'b self, row: &'b ComparisonRow<'a>) -> Vec<(&'b str, &'b str)> {
        let name = |row: &'b ComparisonRow<'a>| row.setting().policy.split(':').next();
        if self.rows.iter().all(|other| name(other) == name(row)) {
            return Vec::new();
        }
        let swept = row.setting().swept.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let is_general = |name: &str| self.rows.iter().all(|other| other.setting().swept.contains_key(name));
        swept.filter(|(name, _)| *name != "seed" && is_general(name)).collect()
    }

    /// The complete rows that a row may be compared with, including itself.
    fn comparable_rows<'b>(&'b self, row: &'b ComparisonRow<'a>) -> impl Iterator<Item = &'b ComparisonRow<'a>> {
        let context = self.context(row);
        self.complete().filter(move |other| self.context(other) == context)
    }

    /// Whether this row has the best value, or one that is the same: digits that are not shown decide nothing. No row
    /// is best if all are the same.
    pub fn is_best(&self, metric: &Metric, row: &ComparisonRow<'a>) -> bool {
        let by_value =
            |one: &&ComparisonRow<'_>, other: &&ComparisonRow<'_>| one.value(metric).total_cmp(&other.value(metric));
        let finite = || self.comparable_rows(row).filter(|row| row.value(metric).is_finite());
        let best = match metric.better {
            Better::Lower => finite().min_by(by_value),
            Better::Higher => finite().max_by(by_value),
            Better::Neither => None,
        };
        let Some(best) = best.filter(|_| !row.is_cut()) else { return false };
        self.same(metric, best, row) && !finite().all(|other| self.same(metric, best, other))
    }

    /// The row that a row is compared with: the first with the same values of the swept parameters. `None` for that row
    /// itself.
    pub fn base<'b>(&'b self, row: &'b ComparisonRow<'a>) -> Option<&'b ComparisonRow<'a>> {
        let context = self.context(row);
        self.rows.iter().find(|other| self.context(other) == context).filter(|base| !base.is(row))
    }

    /// How the row's figure differs from that of the row it is compared with; none for that row itself and for runs cut
    /// short.
    pub fn difference(&self, metric: &Metric, row: &ComparisonRow<'a>) -> Option<Difference> {
        let base = self.base(row).filter(|base| !base.is_cut() && !row.is_cut())?;
        let by = change(base.value(metric), row.value(metric))?;
        Some(if self.same(metric, base, row) { Difference::None } else { Difference::By(by) })
    }

    /// The parameters that were swept, each with its series; not the seed, over which figures are means.
    pub fn sweeps(&self) -> Vec<SweepResult<'_>> {
        let swept = self.rows.iter().flat_map(|row| row.setting().swept.keys().map(String::as_str));
        let names: BTreeSet<&str> = swept.filter(|name| *name != "seed").collect();
        names.into_iter().map(|name| self.sweep(name)).collect()
    }

    fn complete(&self) -> impl Iterator<Item = &ComparisonRow<'a>> {
        self.rows.iter().filter(|row| !row.is_cut())
    }

    fn sweep<'b>(&'b self, name: &'b str) -> SweepResult<'b> {
        let mut values: Vec<&str> = Vec::new();
        for value in self.rows.iter().filter_map(|row| row.setting().swept.get(name)) {
            if !values.contains(&value.as_str()) {
                values.push(value);
            }
        }
        let numbers: Option<Vec<f64>> = values.iter().map(|value| number(value)).collect();
        if let Some(numbers) = numbers {
            let mut order: Vec<usize> = (0..values.len()).collect();
            order.sort_by(|a, b| numbers[*a].total_cmp(&numbers[*b]));
            values = order.into_iter().map(|place| values[place]).collect();
        }
        let mut series: Vec<Series<'b>> = Vec::new();
        for (label, row) in labels(&self.rows, Some(name)).into_iter().zip(&self.rows) {
            let value = row.setting().swept.get(name);
            let points = match value.and_then(|value| values.iter().position(|known| known == value)) {
                Some(place) => vec![(place, row)],
                // The parameter does not concern this policy: the same everywhere.
                None => (0..values.len()).map(|place| (place, row)).collect(),
            };
            match series.iter_mut().find(|known| known.label == label) {
                Some(known) => known.points.extend(points),
                None => series.push(Series { label, points }),
            }
        }
        for line in &mut series {
            line.points.sort_by_key(|(place, _)| *place);
        }
        SweepResult { name, values, series }
    }
}

/// The value of a swept parameter as a number, if it is one: `0.5`, `20`, `8MiB`.
fn number(text: &str) -> Option<f64> {
    text.parse::<f64>().ok().or_else(|| text.parse::<ByteSize>().ok().map(|bytes| bytes.0 as f64))
}

/// The policy of each and, by name, what else differs between them; nothing of the parameter `without`.
fn labels(rows: &[ComparisonRow<'_>], without: Option<&str>) -> Vec<String> {
    let traits: Vec<BTreeMap<&str, String>> = rows.iter().map(|row| traits(row, without)).collect();
    let policies: Vec<String> = rows.iter().map(|row| policy(row.setting(), without)).collect();
    let differs = |name: &str| traits.iter().any(|other| other.get(name) != traits[0].get(name));
    policies
        .into_iter()
        .zip(&traits)
        .map(|(policy, own)| {
            let reported = own.iter().filter(|(name, value)| differs(name) && !says(&policy, name, value));
            reported.fold(policy.clone(), |label, (name, value)| format!("{label}, {name}={value}"))
        })
        .collect()
}

/// Whether the text of a policy or workload gives the parameter already.
pub(super) fn says(policy: &str, name: &str, value: &str) -> bool {
    let given = policy.split_once(':').map_or("", |(_, parameters)| parameters);
    given.split(',').any(|pair| pair.split_once('=') == Some((name, value)))
}

fn policy(setting: &Setting, without: Option<&str>) -> String {
    let (Some(without), Some((name, parameters))) = (without, setting.policy.split_once(':')) else {
        return setting.policy.clone();
    };
    let kept: Vec<&str> =
        parameters.split(',').filter(|pair| pair.split_once('=').is_none_or(|(name, _)| name != without)).collect();
    if kept.is_empty() { name.to_owned() } else { format!("{name}:{}", kept.join(",")) }
}

fn traits<'a>(row: &ComparisonRow<'a>, without: Option<&str>) -> BTreeMap<&'a str, String> {
    let setting = row.setting();
    let mut traits = BTreeMap::from([
        ("disk", setting.disk.clone()),
        ("scheduler", setting.scheduler.clone()),
        ("memory", setting.memory.to_string()),
        ("staging", setting.staging.to_string()),
        ("seed", setting.seed.to_string()),
        ("scale", setting.scale.to_string()),
    ]);
    traits.extend(setting.swept.iter().map(|(name, value)| (name.as_str(), value.clone())));
    let has_seed = row.outcomes.len() == 1;
    traits.retain(|name, _| Some(*name) != without && (has_seed || *name != "seed"));
    traits
}

/// Numbers runs of one and the same setting, to distinguish them.
fn number_twins(labels: &mut [String]) {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    for label in labels {
        let times = seen.entry(label.clone()).or_default();
        *times += 1;
        if *times > 1 {
            *label = format!("{label} ({times})");
        }
    }
}

#[cfg(test)]
mod tests;
