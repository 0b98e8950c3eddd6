//! The table, and the same as JSON.
//!
//! A ratio compares a system with the native run of the same round, so a machine that slows down slows both. The table
//! shows the median of these ratios, and the smallest and largest where there are several.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Error, Result};
use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use serde::Serialize;

use crate::args::Args;
use crate::host;
use crate::rows::{self, GROUPS, Group, Row, Unit};
use crate::spread::Spread;
use crate::system::System;
use crate::work::{Lab, Samples};

/// Samples of all rows.
#[derive(Debug, Default)]
pub(crate) struct Results {
    about: About,
    systems: Vec<System>,
    samples: BTreeMap<(&'static str, System), BTreeMap<u32, f64>>,
    failures: Vec<Failure>,
}

#[derive(Debug, Default, Clone, Serialize)]
struct About {
    kernel: String,
    cpus: usize,
    image_in_memory: bool,
    load_average: f64,
    rounds: u32,
    quick: bool,
}

/// A measurement without a result.
#[derive(Debug, Clone, Serialize)]
struct Failure {
    group: &'static str,
    system: System,
    round: u32,
    message: String,
}

#[derive(Serialize)]
struct Report<'a> {
    about: &'a About,
    rows: Vec<RowReport>,
    failures: &'a [Failure],
}

#[derive(Serialize)]
struct RowReport {
    name: &'static str,
    unit: &'static str,
    aim: Option<f64>,
    verdict: Option<&'static str>,
    systems: BTreeMap<&'static str, SystemReport>,
}

#[derive(Serialize)]
struct SystemReport {
    samples: Vec<f64>,
    median: f64,
    ratio: Option<Spread>,
}

impl Results {
    pub(crate) fn new(args: &Args, lab: &Lab, systems: &[System]) -> Self {
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned();
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let about = About {
            kernel,
            cpus,
            image_in_memory: lab.image_in_memory,
            load_average: host::load_average(),
            rounds: args.rounds(),
            quick: args.quick,
        };
        Self { about, systems: systems.to_vec(), ..Self::default() }
    }

    /// Takes in what one run measured, and how it failed if it did.
    pub(crate) fn add(&mut self, group: &Group, system: System, round: u32, samples: Samples, error: Option<Error>) {
        for (row, value) in samples {
            self.samples.entry((row, system)).or_default().insert(round, value);
        }
        if let Some(error) = error {
            let message = format!("{error:#}");
            self.failures.push(Failure { group: group.name, system, round, message });
        }
    }

    /// Whether anything of ours failed; others may fail, which the table says.
    pub(crate) fn has_own_failures(&self) -> bool {
        self.failures.iter().any(|failure| failure.system == System::Native || failure.system.has_rules())
    }

    fn native(&self, row: &Row) -> Option<Spread> {
        Spread::of(self.samples.get(&(row.name, System::Native))?.values().copied().collect())
    }

    /// Of each round, to native; a speed-up stands for itself.
    fn ratio(&self, row: &Row, system: System) -> Option<Spread> {
        let native = self.samples.get(&(row.name, System::Native))?;
        let own = self.samples.get(&(row.name, system))?;
        if row.unit == Unit::SpeedUp {
            return Spread::of(own.values().copied().collect());
        }
        Spread::of(own.iter().filter_map(|(round, value)| Some(value / native.get(round)?)).collect())
    }

    fn verdict(&self, row: &Row) -> Option<&'static str> {
        let ratio = self.ratio(row, System::Umbrella)?.median;
        let meets = match row.unit {
            // A ratio is printed with two digits, and judged as printed.
            Unit::Seconds => (ratio * 100.0).round() / 100.0 <= row.aim?,
            Unit::Throughput | Unit::SpeedUp => (ratio * 100.0).round() / 100.0 >= row.aim?,
        };
        Some(if meets { "meets" } else { "misses" })
    }

    /// How many times faster than mergerfs.
    fn ahead(&self, row: &Row) -> Option<f64> {
        let own = self.ratio(row, System::Umbrella)?.median;
        let other = self.ratio(row, System::Mergerfs)?.median;
        Some(match row.unit {
            Unit::Seconds => other / own,
            Unit::Throughput | Unit::SpeedUp => own / other,
        })
    }

    /// Prints the table and what failed.
    pub(crate) fn print(&self, only: &[String]) {
        let About { kernel, cpus, image_in_memory, load_average, rounds, quick } = &self.about;
        let place = if *image_in_memory { "memory" } else { "a file" };
        let quick = if *quick { ", a tenth of the work (--quick)" } else { "" };
        println!(
            "\nLinux {kernel}, {cpus} CPUs, load {load_average:.1} at the start, ext4 image in {place}, rounds: {rounds}{quick}"
        );
        println!(
            "time / native (lower is better); rows marked MB/s: throughput / native (higher is better); rows marked x: work of several clients / work of one (higher is better); median, (min-max) of the rounds\n"
        );
        let pools: Vec<System> = self.systems.iter().copied().filter(|system| *system != System::Native).collect();
        let mut table = Table::new();
        table.load_preset(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
        let mut header = vec!["row".to_owned(), "native".to_owned()];
        header.extend(pools.iter().map(|system| system.title().to_owned()));
        header.extend(["aim", "verdict", "x mergerfs"].map(str::to_owned));
        table.set_header(header);
        for group in GROUPS {
            for row in group.rows.iter().filter(|row| rows::is_wanted(group, row, only)) {
                let mut line = vec![
                    row.name.to_owned(),
                    self.native(row).map_or_else(|| "-".to_owned(), |native| show(row.unit, native.median)),
                ];
                line.extend(pools.iter().map(|&system| self.cell(group, row, system)));
                let aim = match (row.aim, row.unit) {
                    (None, _) => "-".to_owned(),
                    (Some(aim), Unit::Seconds) => format!("<= {aim:.1}"),
                    (Some(aim), Unit::Throughput | Unit::SpeedUp) => format!(">= {aim:.2}"),
                };
                line.extend([
                    aim,
                    self.verdict(row).unwrap_or("-").to_owned(),
                    self.ahead(row).map_or_else(|| "-".to_owned(), |ahead| format!("{ahead:.1}")),
                ]);
                table.add_row(line);
            }
        }
        for column in table.column_iter_mut().skip(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        println!("{}", table.trim_fmt());
        println!(
            "\nx mergerfs: how many times ahead of mergerfs (its options tuned, features kept); m. stripped: mergerfs without extended attributes and with write-back caching"
        );
        for Failure { group, system, round, message } in &self.failures {
            println!("failed: {group}, {}, round {round}: {message}", system.name());
        }
    }

    fn cell(&self, group: &Group, row: &Row, system: System) -> String {
        match self.ratio(row, system) {
            Some(Spread { median, .. }) if self.about.rounds == 1 => format!("{median:.2}"),
            Some(Spread { median, min, max }) => format!("{median:.2} ({min:.2}-{max:.2})"),
            None if self.failures.iter().any(|failure| failure.group == group.name && failure.system == system) => {
                "failed".to_owned()
            }
            None => "-".to_owned(),
        }
    }

    /// Writes every sample.
    pub(crate) fn save(&self, path: &Path) -> Result<()> {
        let rows = GROUPS
            .iter()
            .flat_map(|group| group.rows)
            .filter(|row| self.native(row).is_some())
            .map(|row| self.row_report(row))
            .collect();
        let report = Report { about: &self.about, rows, failures: &self.failures };
        let text = serde_json::to_string_pretty(&report).context("cannot write the report as JSON")?;
        fs::write(path, text + "\n").with_context(|| format!("cannot write {}", path.display()))
    }

    fn row_report(&self, row: &Row) -> RowReport {
        let unit = match row.unit {
            Unit::Seconds => "seconds",
            Unit::Throughput => "bytes_per_second",
            Unit::SpeedUp => "times_one_client",
        };
        let mut systems = BTreeMap::new();
        for &system in &self.systems {
            let Some(samples) = self.samples.get(&(row.name, system)) else { continue };
            let samples: Vec<f64> = samples.values().copied().collect();
            let Some(Spread { median, .. }) = Spread::of(samples.clone()) else { continue };
            systems.insert(system.name(), SystemReport { samples, median, ratio: self.ratio(row, system) });
        }
        RowReport { name: row.name, unit, aim: row.aim, verdict: self.verdict(row), systems }
    }
}

fn show(unit: Unit, value: f64) -> String {
    match unit {
        Unit::Throughput => format!("{:.0} MB/s", value / 1e6),
        Unit::SpeedUp => format!("x {value:.2}"),
        Unit::Seconds if value < 1e-3 => format!("{:.2} us", value * 1e6),
        Unit::Seconds if value < 1.0 => format!("{:.1} ms", value * 1e3),
        Unit::Seconds => format!("{value:.2} s"),
    }
}
