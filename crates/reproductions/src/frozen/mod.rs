//! The frozen list of claims (`claims.toml`), and how what was measured is held against it.
//!
//! A figure measures and gives each value the id of its claim. What the claim says, its published number, what it has
//! to meet and which reading of the text counts are in the list alone.

use std::sync::LazyLock;

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use crate::claim::{self, Claim, Expect, OnInput, OtherReading, Reading, Verdict};

/// A claim as it was frozen.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Frozen {
    /// Its paper, figure, name and input, such as `tesa/8/file`.
    pub id: String,
    /// The paper.
    pub paper: String,
    /// The figure or table.
    pub figure: String,
    /// The section whose text makes it.
    pub section: String,
    /// What is claimed, in a line.
    pub claim: String,
    /// The published value, or the threshold where the text gives none.
    pub published: f64,
    /// The unit.
    pub unit: String,
    /// What is measured for it.
    pub measures: String,
    /// What it has to meet.
    pub expect: Expect,
    /// Possible readings of the text, the primary one first; empty if it can only mean one thing.
    pub readings: Vec<Reading>,
    /// The input of the claim; `None` if it concerns a workload of the paper, or several inputs together.
    pub input: Option<String>,
    /// The inputs that the claim concerns together.
    pub over: Vec<String>,
    judged_with: String,
    name: String,
}

impl Frozen {
    fn verdict(&self, measured: f64) -> Verdict {
        claim::evaluate(self.published, measured, self.expect)
    }

    /// What came of it in its primary reading, if that was measured.
    fn judged(&self, measured: Option<f64>) -> Claim {
        let verdict = measured.map_or(Verdict::NotMeasured, |value| self.verdict(value));
        Claim {
            id: self.id.clone(),
            figure: self.figure.clone(),
            section: self.section.clone(),
            claim: self.claim.clone(),
            published: self.published,
            measured,
            unit: self.unit.clone(),
            measures: self.measures.clone(),
            expect: self.expect,
            holds: verdict == Verdict::Holds,
            verdict,
            reading: self.readings.first().cloned(),
            ..Claim::default()
        }
    }

    fn otherwise(&self, reading: &Reading, measured: f64) -> OtherReading {
        let verdict = self.verdict(measured);
        OtherReading { reading: reading.clone(), measured, holds: verdict == Verdict::Holds, verdict }
    }

    fn on(&self, input: &str, measured: f64) -> OnInput {
        let verdict = self.verdict(measured);
        OnInput { input: input.to_owned(), measured, holds: verdict == Verdict::Holds, verdict }
    }
}

/// A value that was measured for a claim.
#[derive(Debug, Clone, PartialEq)]
pub struct Measured {
    name: String,
    value: f64,
    reading: Option<&'static str>,
    input: Option<String>,
}

impl Measured {
    /// For the claim of that name, in its primary reading. What is no number was not measured.
    pub(crate) fn new(name: impl Into<String>, value: f64) -> Measured {
        Measured { name: name.into(), value, reading: None, input: None }
    }

    /// The claim's name.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The value.
    pub(crate) fn value(&self) -> f64 {
        self.value
    }

    /// In this reading.
    pub(crate) fn in_reading(self, key: &'static str) -> Measured {
        Measured { reading: Some(key), ..self }
    }

    /// On this input.
    pub(crate) fn on(self, input: &str) -> Measured {
        Measured { input: Some(input.to_owned()), ..self }
    }

    fn is_for(&self, claim: &Frozen, reading: Option<&Reading>) -> bool {
        let primary = claim.readings.first().map(|reading| reading.key.as_str());
        let wanted = reading.map(|reading| reading.key.as_str()).or(primary);
        self.name == claim.name && self.reading.or(primary) == wanted
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    readings: FxHashMap<String, String>,
    group: Vec<Group>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Group {
    paper: String,
    figure: String,
    judged_with: Option<String>,
    section: String,
    unit: String,
    measures: String,
    #[serde(default)]
    readings: Vec<String>,
    #[serde(default)]
    inputs: Vec<String>,
    #[serde(default)]
    over: Vec<String>,
    claims: Vec<Line>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    id: String,
    says: String,
    published: f64,
    expect: Expect,
}

static LIST: LazyLock<Vec<Frozen>> =
    LazyLock::new(|| match toml::from_str::<File>(include_str!("../../claims.toml")) {
        Ok(file) => file.group.iter().flat_map(|group| claims_of(group, &file.readings)).collect(),
        Err(error) => panic!("claims.toml: {error}"),
    });

/// All claims of a paper, in their order.
pub fn frozen(paper: &str) -> impl Iterator<Item = &'static Frozen> {
    LIST.iter().filter(move |claim| claim.paper == paper)
}

/// The claims that these figures of a paper judge.
fn judged_with(paper: &str, figure: &str) -> impl Iterator<Item = &'static Frozen> {
    frozen(paper).filter(move |claim| claim.judged_with == figure)
}

/// Whether a claim of the figure is about this input, or about inputs with this one among them.
pub(crate) fn is_frozen_input(paper: &str, figure: &str, input: &str) -> bool {
    let is = |name: &String| name == input;
    judged_with(paper, figure).any(|claim| claim.input.as_ref().is_some_and(is) || claim.over.iter().any(is))
}

fn claims_of(group: &Group, readings: &FxHashMap<String, String>) -> Vec<Frozen> {
    let reading = |key: &String| match readings.get(key) {
        Some(says) => Reading { key: key.clone(), says: says.clone() },
        None => panic!("claims.toml: {} {}: no reading is called {key:?}", group.paper, group.figure),
    };
    let readings: Vec<Reading> = group.readings.iter().map(reading).collect();
    let one = |input: Option<&String>, line: &Line| {
        let (id, says) = (format!("{}/{}/{}", group.paper, group.figure, line.id), &line.says);
        Frozen {
            id: input.map_or_else(|| id.clone(), |input| format!("{id}/{input}")),
            paper: group.paper.clone(),
            figure: group.figure.clone(),
            section: group.section.clone(),
            claim: input.map_or_else(|| says.clone(), |input| format!("{input}: {says}")),
            published: line.published,
            unit: group.unit.clone(),
            measures: group.measures.clone(),
            expect: line.expect,
            readings: readings.clone(),
            input: input.cloned(),
            over: group.over.clone(),
            judged_with: group.judged_with.as_ref().unwrap_or(&group.figure).clone(),
            name: line.id.clone(),
        }
    };
    if group.inputs.is_empty() {
        return group.claims.iter().map(|line| one(None, line)).collect();
    }
    group.inputs.iter().flat_map(|input| group.claims.iter().map(move |line| one(Some(input), line))).collect()
}

/// The claims of a figure with what was measured for them. Inputs that the list does not have are beside the first
/// claim of the same name.
pub(crate) fn evaluate(paper: &str, figure: &str, measured: &[Measured]) -> Vec<Claim> {
    let all: Vec<&Frozen> = judged_with(paper, figure).collect();
    let measured: Vec<&Measured> = measured.iter().filter(|value| value.value.is_finite()).collect();
    let strays = measured.iter().filter(|value| !all.iter().any(|claim| claim.name == value.name));
    debug_assert!(
        strays.clone().next().is_none(),
        "{paper} {figure}: claims.toml has no {:?}",
        strays.collect::<Vec<_>>()
    );
    let is_new = |value: &Measured, claim: &Frozen| {
        let same = all.iter().filter(|other| other.name == claim.name);
        value.input.is_some() && !same.clone().any(|other| other.input == value.input)
    };
    let mut claims: Vec<Claim> = Vec::new();
    for (at, frozen) in all.iter().enumerate() {
        let of = |reading: Option<&Reading>| {
            let mut values = measured.iter().filter(|value| value.is_for(frozen, reading));
            values.find(|value| value.input == frozen.input).map(|value| value.value)
        };
        let other = |reading: &Reading| Some(frozen.otherwise(reading, of(Some(reading))?));
        let is_first = !all.iter().take(at).any(|before| before.name == frozen.name);
        let new = measured.iter().filter(|value| is_first && value.is_for(frozen, None) && is_new(value, frozen));
        let on_input = |value: &&Measured| Some(frozen.on(value.input.as_deref()?, value.value));
        claims.push(Claim {
            other_readings: frozen.readings.iter().skip(1).filter_map(other).collect(),
            new_inputs: new.filter_map(on_input).collect(),
            ..frozen.judged(of(None))
        });
    }
    claims
}

#[cfg(test)]
mod tests;
