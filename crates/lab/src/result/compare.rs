//! Outcomes side by side: which belong together, what to call them, which is best at what. Tables and pages show
//! what is decided here, so that both name the same winner.
//!
//! Outcomes of one input form a [`Group`]; the first of it is what the others are measured against. A label is the
//! policy and whatever else differs inside the group. Runs that were cut short win nothing: their figures are those of
//! a shorter run.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use umbrella_units::ByteSize;

use super::{Better, Metric, Outcome, Setting, change, metric};

/// Times that differ by less than this are the same: the input's own pace set them.
const SAME_TIME: f64 = 0.01;
/// More runs than these that share the best value are counted, not named.
const MOST_NAMED: usize = 2;
/// What decides when the time is the same for all, in this order.
const TIE_BREAKERS: [&str; 4] = ["time_s", "write_mean_us", "drained_s", "write_distance"];

/// The outcomes of one input.
#[derive(Debug, Clone)]
pub struct Group<'a> {
    /// The input of all.
    pub input: &'a str,
    /// The outcomes, in the order given.
    pub rows: Vec<Row<'a>>,
}

/// One outcome and what to call it.
#[derive(Debug, Clone)]
pub struct Row<'a> {
    /// The policy, and what else tells it from the others of its group.
    pub label: String,
    /// The outcome.
    pub outcome: &'a Outcome,
}

/// One policy over the values of a swept parameter.
#[derive(Debug, Clone)]
pub struct Series<'a> {
    /// The policy, and what else tells it from the other series, without the swept parameter.
    pub label: String,
    /// The place of the value in the sweep, and the outcome there.
    pub points: Vec<(usize, &'a Outcome)>,
}

/// A parameter that was swept, its values in ascending order, and a series for each policy.
#[derive(Debug, Clone)]
pub struct Sweep<'a> {
    /// The parameter.
    pub name: &'a str,
    /// Its values.
    pub values: Vec<&'a str>,
    /// The policies.
    pub series: Vec<Series<'a>>,
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
        let members: Vec<&Outcome> = outcomes.iter().filter(|outcome| outcome.setting.input == input).collect();
        let mut labels = labels(&members, None);
        number_twins(&mut labels);
        let rows = labels.into_iter().zip(members).map(|(label, outcome)| Row { label, outcome }).collect();
        Group { input, rows }
    };
    inputs.into_iter().map(of_input).collect()
}

impl<'a> Group<'a> {
    /// Whether the figure is zero in every run, and so says nothing.
    pub fn is_zero(&self, metric: &Metric) -> bool {
        self.rows.iter().all(|row| (metric.of)(row.outcome) == 0.0)
    }

    /// The best value of complete runs; none where neither way is better or where all look the same.
    pub fn best(&self, metric: &Metric) -> Option<f64> {
        let values = || self.complete().map(|row| (metric.of)(row.outcome)).filter(|value| value.is_finite());
        let (least, most) = (values().reduce(f64::min)?, values().reduce(f64::max)?);
        match metric.better {
            _ if metric.show(least) == metric.show(most) => None,
            Better::Lower => Some(least),
            Better::Higher => Some(most),
            Better::Neither => None,
        }
    }

    /// Whether this row has the best value, or one that looks the same: digits that nobody is shown win nothing.
    pub fn is_best(&self, metric: &Metric, row: &Row<'_>) -> bool {
        let best = self.best(metric).map(|best| metric.show(best));
        !row.outcome.interrupted && best == Some(metric.show((metric.of)(row.outcome)))
    }

    /// The row's figure as a change against the first row; none for the first itself and for runs cut short.
    pub fn change(&self, metric: &Metric, row: &Row<'_>) -> Option<String> {
        let first = self.rows.first()?.outcome;
        if std::ptr::eq(first, row.outcome) || first.interrupted || row.outcome.interrupted {
            return None;
        }
        change((metric.of)(first), (metric.of)(row.outcome))
    }

    /// One sentence: who was best on time, or, where the time is the same for all, on the first figure that differs.
    pub fn verdict(&self) -> String {
        let cut = self.rows.len() - self.complete().count();
        let complete: Vec<&Row<'_>> = self.complete().collect();
        let mut text = match complete.as_slice() {
            [] => "No run was completed.".to_owned(),
            [only] => format!("\u{201c}{}\u{201d} took {}.", only.label, show("time_s", only.outcome)),
            _ => self.winner(),
        };
        if cut > 0 {
            let all = self.rows.len();
            let _ = write!(text, " {cut} of {all} runs cut short: the figures are those of the part that ran.");
        }
        text
    }

    /// A sentence for runs that say next to nothing of the policies: in all that are complete at least 9 of 10 pages were
    /// written because of their age, for a sync, or because the input had ended.
    pub fn hardly_asked(&self) -> Option<&'static str> {
        let hardly = |row: &Row<'_>| {
            let because = &row.outcome.written_because;
            let asked = because.threshold + because.reclaim;
            let all = asked + because.expired + because.sync + because.drained;
            all > 0 && asked * 10 <= all
        };
        (self.complete().next().is_some() && self.complete().all(hardly)).then_some(
            "At least 9 of 10 pages were written because of their age, for a sync, or at the end, so the policies were \
             hardly asked: give less --memory or a longer input.",
        )
    }

    /// The parameters that were swept, each with its series.
    pub fn sweeps(&self) -> Vec<Sweep<'a>> {
        let names: BTreeSet<&'a str> =
            self.rows.iter().flat_map(|row| row.outcome.setting.swept.keys().map(String::as_str)).collect();
        names.into_iter().map(|name| self.sweep(name)).collect()
    }

    fn complete(&self) -> impl Iterator<Item = &Row<'a>> {
        self.rows.iter().filter(|row| !row.outcome.interrupted)
    }

    fn winner(&self) -> String {
        let differing = TIE_BREAKERS.iter().filter_map(|name| metric(name)).find(|metric| {
            let values = || self.complete().map(|row| (metric.of)(row.outcome));
            let (least, most) = (values().fold(f64::INFINITY, f64::min), values().fold(0.0, f64::max));
            most - least > SAME_TIME * most
        });
        let Some(metric) = differing else {
            return format!("All {} runs did equally well on time.", self.complete().count());
        };
        let mut ranking: Vec<&Row<'_>> = self.complete().collect();
        ranking.sort_by(|a, b| (metric.of)(a.outcome).total_cmp(&(metric.of)(b.outcome)));
        let ([best, second, ..], Some(first)) = (ranking.as_slice(), self.rows.first()) else {
            return String::new();
        };
        let value = |row: &Row<'_>| metric.show((metric.of)(row.outcome));
        let ties = ranking.iter().filter(|row| value(row) == value(best)).count();
        let many = ties > MOST_NAMED;
        let who = if many {
            format!("{ties} of {} runs did equally well and were", ranking.len())
        } else {
            format!("\u{201c}{}\u{201d} was", best.label)
        };
        let lead = if metric.name == "time_s" {
            format!("{who} fastest with {}", value(best))
        } else {
            let time = self.complete().next().map_or_else(String::new, |row| show("time_s", row.outcome));
            format!("All runs took the same time, {time}; {who} best on {} with {}", metric.heading, value(best))
        };
        let against = match ranking.iter().find(|row| value(row) != value(best)) {
            Some(next) if many && value(first) == value(best) => next,
            None if many => return format!("{lead}."),
            _ if std::ptr::eq(best.outcome, first.outcome) => second,
            _ => first,
        };
        let share = change((metric.of)(against.outcome), (metric.of)(best.outcome));
        let share = match share.as_deref().map(|share| (share, share.strip_prefix('-'))) {
            Some((_, Some(less))) => format!("{less} less than"),
            Some(_) => "as good as".to_owned(),
            None => "against".to_owned(),
        };
        format!("{lead}, {share} \u{201c}{}\u{201d} ({}).", against.label, value(against))
    }

    fn sweep(&self, name: &'a str) -> Sweep<'a> {
        let members: Vec<&'a Outcome> = self.rows.iter().map(|row| row.outcome).collect();
        let mut values: Vec<&'a str> = Vec::new();
        for value in members.iter().filter_map(|outcome| outcome.setting.swept.get(name)) {
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
        let mut series: Vec<Series<'a>> = Vec::new();
        for (label, outcome) in labels(&members, Some(name)).into_iter().zip(members) {
            let value = outcome.setting.swept.get(name);
            let points = match value.and_then(|value| values.iter().position(|known| known == value)) {
                Some(place) => vec![(place, outcome)],
                // The parameter does not concern this policy: the same everywhere.
                None => (0..values.len()).map(|place| (place, outcome)).collect(),
            };
            match series.iter_mut().find(|known| known.label == label) {
                Some(known) => known.points.extend(points),
                None => series.push(Series { label, points }),
            }
        }
        for line in &mut series {
            line.points.sort_by_key(|(place, _)| *place);
        }
        Sweep { name, values, series }
    }
}

fn show(name: &str, outcome: &Outcome) -> String {
    metric(name).map_or_else(String::new, |metric| metric.show((metric.of)(outcome)))
}

/// The value of a swept parameter as a number, if it is one: `0.5`, `20`, `8MiB`.
fn number(text: &str) -> Option<f64> {
    text.parse::<f64>().ok().or_else(|| text.parse::<ByteSize>().ok().map(|bytes| bytes.0 as f64))
}

/// The policy of each and, by name, what else differs between them; nothing of the parameter `without`.
fn labels(members: &[&Outcome], without: Option<&str>) -> Vec<String> {
    let traits: Vec<BTreeMap<&str, String>> = members.iter().map(|outcome| traits(&outcome.setting, without)).collect();
    let policies: Vec<String> = members.iter().map(|outcome| policy(&outcome.setting, without)).collect();
    let differs = |name: &str| traits.iter().any(|other| other.get(name) != traits[0].get(name));
    policies
        .into_iter()
        .zip(&traits)
        .map(|(policy, own)| {
            let told = own.iter().filter(|(name, value)| differs(name) && !says(&policy, name, value));
            told.fold(policy.clone(), |label, (name, value)| format!("{label}, {name}={value}"))
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

fn traits<'a>(setting: &'a Setting, without: Option<&str>) -> BTreeMap<&'a str, String> {
    let mut traits = BTreeMap::from([
        ("disk", setting.disk.clone()),
        ("scheduler", setting.scheduler.clone()),
        ("memory", setting.memory.to_string()),
        ("staging", setting.staging.to_string()),
        ("seed", setting.seed.to_string()),
        ("scale", setting.scale.to_string()),
    ]);
    traits.extend(setting.swept.iter().map(|(name, value)| (name.as_str(), value.clone())));
    traits.retain(|name, _| Some(*name) != without);
    traits
}

/// Runs of one and the same setting are told apart by number.
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
