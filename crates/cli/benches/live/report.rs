//! Tables, and the same as JSON. A ratio compares two runs of the same round; what is shown is the median of the
//! rounds.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Error, Result};
use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use serde::Serialize;

use crate::spread::Spread;

/// What one run showed, by name. `cost` is what ratios are made of: less is better.
pub(crate) type Figures = BTreeMap<&'static str, f64>;

/// Units of columns.
pub(crate) const KIB: f64 = 1024.0;
pub(crate) const MIB: f64 = 1024.0 * KIB;

/// A column of the table.
pub(crate) struct Column {
    pub(crate) heading: &'static str,
    pub(crate) figure: &'static str,
    /// The figure is divided by this.
    pub(crate) unit: f64,
    pub(crate) digits: usize,
}

/// One workload on one kind of disk.
#[derive(Debug, Default)]
struct Row {
    name: String,
    about: String,
    systems: Vec<Measured>,
}

#[derive(Debug, Default)]
struct Measured {
    name: String,
    /// By round.
    runs: BTreeMap<u32, Figures>,
    /// By the lab.
    predicted: Option<Figures>,
    failures: Vec<String>,
}

/// Everything that was measured.
#[derive(Debug)]
pub(crate) struct Report {
    title: &'static str,
    /// What all ratios are to.
    baseline: &'static str,
    setting: BTreeMap<&'static str, String>,
    rows: Vec<Row>,
}

#[derive(Serialize)]
struct SystemJson<'a> {
    name: &'a str,
    ratio: Option<Spread>,
    predicted_ratio: Option<f64>,
    medians: Figures,
    runs: Vec<&'a Figures>,
    predicted: Option<&'a Figures>,
    failures: &'a [String],
}

#[derive(Serialize)]
struct RowJson<'a> {
    name: &'a str,
    about: &'a str,
    systems: Vec<SystemJson<'a>>,
}

#[derive(Serialize)]
struct ReportJson<'a> {
    title: &'static str,
    baseline: &'static str,
    setting: &'a BTreeMap<&'static str, String>,
    rows: Vec<RowJson<'a>>,
}

impl Report {
    pub(crate) fn new(title: &'static str, baseline: &'static str, setting: BTreeMap<&'static str, String>) -> Self {
        Self { title, baseline, setting, rows: Vec::new() }
    }

    /// Begins a row; what is added from now on belongs to it.
    pub(crate) fn row(&mut self, name: &str, about: &str) {
        eprintln!("{name}: {about}");
        self.rows.push(Row { name: name.to_owned(), about: about.to_owned(), systems: Vec::new() });
    }

    fn system(&mut self, name: &str) -> &mut Measured {
        if self.rows.is_empty() {
            self.rows.push(Row::default());
        }
        let row = self.rows.len() - 1;
        let systems = &mut self.rows[row].systems;
        let place = systems.iter().position(|system| system.name == name).unwrap_or_else(|| {
            systems.push(Measured { name: name.to_owned(), ..Measured::default() });
            systems.len() - 1
        });
        &mut systems[place]
    }

    /// Adds what the lab says.
    pub(crate) fn predicted(&mut self, system: &str, figures: Figures) {
        self.system(system).predicted = Some(figures);
    }

    /// Adds a run, or why there is none.
    pub(crate) fn add(&mut self, system: &str, round: u32, outcome: Result<Figures, Error>) {
        let measured = self.system(system);
        match outcome {
            Ok(figures) => {
                eprintln!("  round {round} {system:<18} {:>9.3}", figures.get("cost").copied().unwrap_or(f64::NAN));
                measured.runs.insert(round, figures);
            }
            Err(error) => {
                eprintln!("  round {round} {system:<18} failed: {error:#}");
                measured.failures.push(format!("{error:#}"));
            }
        }
    }

    /// Whether anything went wrong.
    pub(crate) fn has_failures(&self) -> bool {
        self.rows.iter().flat_map(|row| &row.systems).any(|system| !system.failures.is_empty())
    }

    /// Shows the table, and writes every run to a file if one is named.
    pub(crate) fn end(self, columns: &[Column], json: Option<&Path>) -> Result<Self> {
        self.print(columns);
        if let Some(path) = json {
            self.save(path)?;
        }
        Ok(self)
    }

    /// Prints a table a row.
    fn print(&self, columns: &[Column]) {
        let setting: Vec<String> = self.setting.iter().map(|(name, value)| format!("{name} {value}")).collect();
        println!("\n{}: {}", self.title, setting.join(", "));
        for row in &self.rows {
            println!("\n{}: {}", row.name, row.about);
            let mut table = Table::new();
            table.load_preset(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
            let ratio = format!("/ {}", self.baseline);
            let header = ["system", "time", &ratio, "lab"].into_iter().chain(columns.iter().map(|of| of.heading));
            table.set_header(header);
            for system in &row.systems {
                table.add_row(self.line(row, system, columns));
            }
            for column in table.column_iter_mut().skip(1) {
                column.set_cell_alignment(CellAlignment::Right);
            }
            println!("{}", table.trim_fmt());
            for system in &row.systems {
                for failure in &system.failures {
                    println!("failed: {}: {failure}", system.name);
                }
            }
        }
    }

    fn line(&self, row: &Row, system: &Measured, columns: &[Column]) -> Vec<String> {
        let absent = || "-".to_owned();
        let shown = |value: Option<f64>, digits: usize| value.map_or_else(absent, |value| format!("{value:.digits$}"));
        let ratio = self.ratio(row, system).map_or_else(absent, |Spread { median, min, max }| {
            if system.runs.len() > 1 { format!("{median:.2} ({min:.2}-{max:.2})") } else { format!("{median:.2}") }
        });
        let mut line = vec![
            system.name.clone(),
            shown(median(system, "cost"), 2),
            ratio,
            shown(self.predicted_ratio(row, system), 2),
        ];
        line.extend(columns.iter().map(|of| shown(median(system, of.figure).map(|value| value / of.unit), of.digits)));
        line
    }

    fn ratio(&self, row: &Row, system: &Measured) -> Option<Spread> {
        let base = row.systems.iter().find(|system| system.name == self.baseline)?;
        let ratio = |(round, run): (&u32, &Figures)| Some(run.get("cost")? / base.runs.get(round)?.get("cost")?);
        Spread::of(system.runs.iter().filter_map(ratio).collect())
    }

    fn predicted_ratio(&self, row: &Row, system: &Measured) -> Option<f64> {
        let base = row.systems.iter().find(|system| system.name == self.baseline)?.predicted.as_ref()?;
        Some(system.predicted.as_ref()?.get("cost")? / base.get("cost")?)
    }

    /// Writes every run.
    fn save(&self, path: &Path) -> Result<()> {
        let rows = self.rows.iter().map(|row| RowJson {
            name: &row.name,
            about: &row.about,
            systems: row.systems.iter().map(|system| self.system_json(row, system)).collect(),
        });
        let report =
            ReportJson { title: self.title, baseline: self.baseline, setting: &self.setting, rows: rows.collect() };
        let text = serde_json::to_string_pretty(&report).context("cannot write the report as JSON")?;
        fs::write(path, text + "\n").with_context(|| format!("cannot write {}", path.display()))
    }

    fn system_json<'a>(&self, row: &Row, system: &'a Measured) -> SystemJson<'a> {
        let names = system.runs.values().flat_map(BTreeMap::keys);
        SystemJson {
            name: &system.name,
            ratio: self.ratio(row, system),
            predicted_ratio: self.predicted_ratio(row, system),
            medians: names.filter_map(|name| Some((*name, median(system, name)?))).collect(),
            runs: system.runs.values().collect(),
            predicted: system.predicted.as_ref(),
            failures: &system.failures,
        }
    }
}

fn median(system: &Measured, figure: &str) -> Option<f64> {
    Spread::of(system.runs.values().filter_map(|run| run.get(figure).copied()).collect()).map(|of| of.median)
}
