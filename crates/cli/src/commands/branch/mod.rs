//! `umbrella branch`: takes branches in and out while the pool is mounted.

mod add;
mod remove;
mod replace;

use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::json;
use umbrella_fs::control::protocol::{Answer, BranchStatus, Request, RuleStatus};

use super::{PoolOption, enforce};
use crate::advice::command;
use crate::client::{Client, ClientError};
use crate::text::quoted;
use crate::{config, output, render};

/// Add, remove, drain and list branches of a mounted pool.
#[derive(Debug, Args)]
pub(crate) struct BranchArgs {
    #[command(subcommand)]
    command: BranchCommand,
}

#[derive(Debug, Subcommand)]
enum BranchCommand {
    Add(add::AddArgs),
    Remove(remove::RemoveArgs),
    Replace(replace::ReplaceArgs),
    /// Move every file of a branch elsewhere, and place nothing new there.
    ///
    /// This holds until you remove or replace the branch, or give --stop; it survives unmounts and restarts. Ctrl-C
    /// ends only the walk; run the command again to continue.
    #[command(after_help = "\
EXAMPLES:
  umbrella branch drain usb
  umbrella branch drain usb --stop
  umbrella branch drain usb --json")]
    Drain {
        /// Name of the branch.
        name: String,
        /// Place new files there again; files that have moved stay where they are.
        #[arg(long)]
        stop: bool,
        #[command(flatten)]
        pool: PoolOption,
        /// Print JSON: one object a line for each file, the totals last.
        #[arg(long)]
        json: bool,
    },
    /// Reset the error counts of a branch after you have repaired its disk.
    ///
    /// `umbrella status` marks a branch as failing after the first error of its disk, until you run this command or
    /// replace the branch. After another error it is failing again.
    #[command(after_help = "\
EXAMPLES:
  umbrella branch clear-errors usb
  umbrella branch clear-errors usb --pool /srv/pool")]
    ClearErrors {
        /// Name of the branch.
        name: String,
        #[command(flatten)]
        pool: PoolOption,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Show the branches and their space.
    #[command(after_help = "\
EXAMPLES:
  umbrella branch list
  umbrella branch list --json | jq '.[].name'")]
    List {
        #[command(flatten)]
        pool: PoolOption,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
}

impl BranchArgs {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        match self.command {
            BranchCommand::Add(args) => args.run(),
            BranchCommand::Remove(args) => args.run(),
            BranchCommand::Replace(args) => args.run(),
            BranchCommand::Drain { name, stop, pool, json } => {
                let (_, client) = super::find_live_pool(pool.pool.as_deref())?;
                if stop {
                    client.call(&Request::BranchDrainStop { name: name.clone() })?;
                    if json {
                        output::json(&json!({ "branch": name, "draining": false }))?;
                    } else {
                        output::line(&format!("branch {} takes new files again", quoted(&name)))?;
                    }
                    return Ok(ExitCode::SUCCESS);
                }
                let code = enforce::walk(&client, &Request::BranchDrain { name: name.clone() }, false, json)?;
                if !json && code == ExitCode::SUCCESS {
                    let save = is_configured(&client, &name)?.then_some("--save");
                    let remove = command(["branch", "remove", &name].into_iter().chain(save));
                    let shown = quoted(&name);
                    output::line(&format!(
                        "branch {shown} is empty and gets no new files; remove it from the pool with {remove}"
                    ))?;
                    warn_of_lists(&rules_of_this_alone(&client, &name)?)?;
                } else if !json {
                    output::line(&format!(
                        "branch {} still gets no new files; `umbrella branch drain {name} --stop` changes that",
                        quoted(&name)
                    ))?;
                }
                Ok(code)
            }
            BranchCommand::ClearErrors { name, pool, json } => {
                let (_, client) = super::find_live_pool(pool.pool.as_deref())?;
                client.call(&Request::BranchClearErrors { name: name.clone() })?;
                if json {
                    output::json(&json!({ "branch": name, "failing": false }))?;
                } else {
                    output::line(&format!(
                        "error counts of branch {} reset; it is no longer marked as failing",
                        quoted(&name)
                    ))?;
                }
                Ok(ExitCode::SUCCESS)
            }
            BranchCommand::List { pool, json } => {
                let (_, client) = super::find_live_pool(pool.pool.as_deref())?;
                let branches = list(&client)?;
                if json {
                    output::json_list(&branches)?;
                } else {
                    output::print(&render::branches(&branches))?;
                }
                Ok(ExitCode::SUCCESS)
            }
        }
    }
}

fn list(client: &Client) -> Result<Vec<BranchStatus>, ClientError> {
    match client.call(&Request::BranchList)? {
        Answer::Branches { branches } => Ok(branches),
        _ => Err(ClientError::Unexpected),
    }
}

/// The rules (or the default list) whose lists name a branch.
fn rules_naming(client: &Client, branch: &str) -> Result<Vec<String>, ClientError> {
    rules_with(client, |rule| rule.to.iter().any(|to| to == branch))
}

/// The rules (or the default list) that send files to a branch, also through a group or as one of any.
fn rules_reaching(client: &Client, branch: &str) -> Result<Vec<String>, ClientError> {
    rules_with(client, |rule| rule.branches.iter().any(|to| to == branch))
}

/// The rules (or the default list) that send files to this branch and no other.
fn rules_of_this_alone(client: &Client, branch: &str) -> Result<Vec<String>, ClientError> {
    rules_with(client, |rule| rule.branches == [branch])
}

/// Says which rules have no branch without the one that is drained or removed.
fn warn_of_lists(rules: &[String]) -> anyhow::Result<()> {
    for rule in rules {
        let list = if rule == "default" { "the default list".to_owned() } else { format!("rule {}", quoted(rule)) };
        output::line(&format!("{list} names no other branch: its new files fail until you change it"))?;
    }
    Ok(())
}

/// Whether the pool's configuration has this branch; assumed where it cannot be read.
fn is_configured(client: &Client, branch: &str) -> Result<bool, ClientError> {
    let config = config::read(&super::config_of(client)?);
    Ok(config.map_or(true, |config| config.spec.branches.iter().any(|known| known.name == branch)))
}

fn rules_with(client: &Client, wanted: impl Fn(&RuleStatus) -> bool) -> Result<Vec<String>, ClientError> {
    let Answer::Status(status) = client.call(&Request::Status)? else { return Err(ClientError::Unexpected) };
    Ok(status.rules.into_iter().filter(wanted).map(|rule| rule.name).collect())
}
