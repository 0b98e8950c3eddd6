//! `umbrella lab list`: what there is to choose from.

use std::fmt::Write;
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use comfy_table::{ContentArrangement, Table, presets};
use serde::Serialize;
use umbrella_lab::result::METRICS;
use umbrella_lab::workload::WORKLOADS;
use umbrella_lab::write_back::capacity;
use umbrella_model::device::profiles::{Spec, profiles};
use umbrella_model::scheduler::schedulers;
use umbrella_policy::writeback::policies;
use umbrella_units::ByteSize;

use crate::output;

/// List policies, workloads, disks, schedulers or figures, with their parameters.
#[derive(Debug, Args)]
#[command(after_help = "\
EXAMPLES:
  umbrella lab list policies
  umbrella lab list workloads --json")]
pub(crate) struct ListArgs {
    /// What to list.
    #[arg(value_enum)]
    what: Catalog,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Catalog {
    Policies,
    Workloads,
    Disks,
    Schedulers,
    Metrics,
}

#[derive(Debug, Default, Serialize)]
struct ListItem {
    name: &'static str,
    summary: &'static str,
    #[serde(skip_serializing_if = "str::is_empty")]
    source: &'static str,
    /// The kind of a disk: rotating, flash, or an array.
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<&'static str>,
    /// Of a disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    capacity_bytes: Option<ByteSize>,
    /// A policy that looks into the future, and decides nothing live.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    offline: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    parameters: Vec<Parameter>,
}

#[derive(Debug, Serialize)]
struct Parameter {
    name: &'static str,
    default: &'static str,
    help: &'static str,
}

impl ListArgs {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let items = items(self.what);
        if self.json {
            output::json_list(&items)?;
            return Ok(ExitCode::SUCCESS);
        }
        let mut table = Table::new();
        table.load_preset(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic);
        for item in &items {
            let mut text = item.summary.to_owned();
            if let (Some(kind), Some(capacity)) = (item.kind, item.capacity_bytes) {
                let _ = write!(text, "\n  {kind}, {capacity}");
            }
            for parameter in &item.parameters {
                let _ = write!(text, "\n  {}={}: {}", parameter.name, parameter.default, parameter.help);
            }
            if !item.source.is_empty() {
                let _ = write!(text, "\n  source: {}", item.source);
            }
            table.add_row([item.name.to_owned(), text]);
        }
        for column in table.column_iter_mut() {
            column.set_padding((0, 2));
        }
        output::line(&table.trim_fmt())?;
        Ok(ExitCode::SUCCESS)
    }
}

fn kind(spec: &Spec) -> &'static str {
    match spec {
        Spec::Disk(_) => "rotating disk",
        Spec::Ssd(_) => "flash drive",
        Spec::Raid5 { .. } => "array of rotating disks",
    }
}

fn parameter(name: &'static str, default: &'static str, help: &'static str) -> Parameter {
    Parameter { name, default, help }
}

fn items(what: Catalog) -> Vec<ListItem> {
    match what {
        Catalog::Policies => policies()
            .iter()
            .map(|info| ListItem {
                name: info.name,
                summary: info.summary,
                source: info.source,
                offline: info.offline,
                parameters: info.params.iter().map(|of| parameter(of.name, of.default, of.help)).collect(),
                ..ListItem::default()
            })
            .collect(),
        Catalog::Workloads => WORKLOADS
            .iter()
            .map(|entry| ListItem {
                name: entry.name,
                summary: entry.summary,
                source: entry.source,
                parameters: entry.params.iter().map(|of| parameter(of.name, of.default, of.help)).collect(),
                ..ListItem::default()
            })
            .collect(),
        Catalog::Disks => profiles()
            .into_iter()
            .map(|profile| ListItem {
                name: profile.name,
                summary: profile.summary,
                source: profile.source,
                kind: Some(kind(&profile.spec)),
                capacity_bytes: Some(capacity(&profile)),
                ..ListItem::default()
            })
            .collect(),
        Catalog::Schedulers => schedulers()
            .iter()
            .map(|info| ListItem { name: info.name, summary: info.summary, source: info.source, ..ListItem::default() })
            .collect(),
        Catalog::Metrics => METRICS
            .iter()
            .map(|metric| ListItem { name: metric.name, summary: metric.help, ..ListItem::default() })
            .collect(),
    }
}
