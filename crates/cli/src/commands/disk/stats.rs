//! `umbrella disk stats`: everything that is counted.

use std::collections::BTreeMap;
use std::process::ExitCode;

use clap::Args;
use comfy_table::{CellAlignment, Table, presets};

use serde::Serialize;

use super::{DiskArg, log};
use crate::client::ClientError;
use crate::disk::protocol::{Answer, LogTables, Request};
use crate::disk::{Figure, meaning, place};
use crate::output;
use crate::text::visible;

/// Show all figures since the daemon started.
///
/// Wakes no disk.
#[derive(Debug, Args)]
#[command(after_help = "\
EXAMPLES:
  umbrella disk stats media
  umbrella disk stats media --json | jq .umbrella_spindle_ups_count")]
pub(super) struct StatsArgs {
    #[command(flatten)]
    disk: DiskArg,
    /// Print JSON: figures by name.
    #[arg(long)]
    pub(super) json: bool,
}

impl StatsArgs {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let client = place::find(self.disk.disk.as_deref())?.client()?.with_timeout(place::TIMEOUT);
        let Answer::Stats { figures, watts, log } = client.call(&Request::Stats)? else {
            return Err(ClientError::Unexpected.into());
        };
        if self.json {
            output::json(&All { figures: &figures, watts: &watts, log: log.as_ref() })?;
        } else {
            output::line(&table(&figures))?;
            for (half, source) in &watts {
                output::line(&format!("watts of the {}: those of {}", visible(half), visible(source)))?;
            }
            if let Some(log) = &log {
                output::print(&log::tables(log))?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Figures by name, and those that are tables.
#[derive(Serialize)]
struct All<'a> {
    #[serde(flatten)]
    figures: &'a BTreeMap<String, Figure>,
    watts: &'a BTreeMap<String, String>,
    #[serde(flatten)]
    log: Option<&'a LogTables>,
}

/// In the order of the table of figures; what a newer daemon has besides comes last.
fn table(figures: &BTreeMap<String, Figure>) -> String {
    let mut rows: Vec<(usize, &str, &Figure, &str)> = figures
        .iter()
        .map(|(name, figure)| {
            let (place, meaning) = meaning(name).unwrap_or((usize::MAX, ""));
            (place, name.as_str(), figure, meaning)
        })
        .collect();
    rows.sort_by_key(|(place, name, ..)| (*place, *name));
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header(["NAME", "VALUE", "MEANING"]);
    for (_, name, figure, meaning) in rows {
        table.add_row([visible(name), figure.to_string(), meaning.to_owned()]);
    }
    if let Some(values) = table.column_mut(1) {
        values.set_cell_alignment(CellAlignment::Right);
    }
    table.to_string().lines().map(str::trim_end).collect::<Vec<_>>().join("\n")
}
