//! `umbrella disk schemes`: how a log store can place blocks.

use std::fmt::Write as _;
use std::process::ExitCode;

use clap::Args;
use comfy_table::{ContentArrangement, Table, presets};
use serde::Serialize;
use umbrella_policy::log_layout::{SchemeInfo, schemes_for_disks};

use crate::output;

/// List the placement schemes of log stores, with their parameters.
#[derive(Debug, Args)]
#[command(after_help = "\
EXAMPLES:
  umbrella disk schemes
  umbrella disk create --kind log /dev/sdb --scheme r_lfs:regions=2")]
pub(super) struct SchemesArgs {
    /// Print JSON.
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Debug, Serialize)]
struct Scheme {
    name: &'static str,
    help: &'static str,
    source: &'static str,
    parameters: Vec<SchemeParameter>,
}

#[derive(Debug, Serialize)]
struct SchemeParameter {
    name: &'static str,
    default: &'static str,
    allowed: String,
    help: &'static str,
}

impl SchemesArgs {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let items: Vec<Scheme> = schemes_for_disks().map(Scheme::of).collect();
        if self.json {
            output::json_list(&items)?;
        } else {
            output::line(&table(&items))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Scheme {
    fn of(info: &SchemeInfo) -> Scheme {
        let parameters = info.params.iter().map(|param| SchemeParameter {
            name: param.name,
            default: param.default,
            allowed: param.allowed(),
            help: param.help,
        });
        Scheme { name: info.name, help: info.help, source: info.source, parameters: parameters.collect() }
    }
}

fn table(items: &[Scheme]) -> String {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic);
    for item in items {
        let mut text = item.help.to_owned();
        for SchemeParameter { name, default, allowed, help } in &item.parameters {
            let _ = write!(text, "\n  {name}={default}: {help} ({allowed})");
        }
        let _ = write!(text, "\n  source: {}", item.source);
        table.add_row([item.name.to_owned(), text]);
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    table.trim_fmt()
}
