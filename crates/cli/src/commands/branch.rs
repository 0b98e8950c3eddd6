//! `umbrella branch`: takes branches in and out while the pool is mounted.

mod replace;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use serde::Serialize;
use serde_json::json;
use umbrella_fs::control::protocol::{Answer, BranchStatus, Request, RuleStatus};
use umbrella_fs::spec::BranchSpec;
use umbrella_units::{Amount, ByteSize, ParseDurationError, format_duration, parse_duration};

use super::{PoolOption, enforce};
use crate::client::{Client, ClientError};
use crate::text::{quoted, quoted_list, visible_path};
use crate::{mounts, output, pool, render};

/// Add, remove, drain and list branches of a mounted pool.
#[derive(Debug, Args)]
pub(crate) struct BranchArgs {
    #[command(subcommand)]
    command: BranchCommand,
}

#[derive(Debug, Subcommand)]
enum BranchCommand {
    Add(AddArgs),
    /// Forget a branch. Its files vanish from the tree and stay on the branch.
    ///
    /// A branch that still holds files is only forgotten with --force; `umbrella branch drain` empties it first.
    #[command(after_help = "\
EXAMPLES:
  umbrella branch drain usb && umbrella branch remove usb
  umbrella branch remove usb --force")]
    Remove {
        /// Name of the branch.
        name: String,
        /// Also when it still holds files.
        #[arg(short, long)]
        force: bool,
        #[command(flatten)]
        pool: PoolOption,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    Replace(replace::ReplaceArgs),
    /// Move every file of a branch elsewhere, and place nothing new there.
    ///
    /// This holds until the branch is removed, replaced, or drained with --stop, over unmounts and restarts too. Ctrl-C ends the walk only;
    /// run the command again to go on.
    #[command(after_help = "\
EXAMPLES:
  umbrella branch drain usb
  umbrella branch drain usb --stop
  umbrella branch drain usb --json")]
    Drain {
        /// Name of the branch.
        name: String,
        /// Place new files there again; what has moved stays where it is.
        #[arg(long)]
        stop: bool,
        #[command(flatten)]
        pool: PoolOption,
        /// Print JSON: one object a line for each file, the totals last.
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

/// Take a directory into the pool. Its files appear in the tree at once.
#[derive(Debug, Args)]
#[command(after_help = "\
EXAMPLES:
  umbrella branch add usb /mnt/usb --keep-free 5%
  umbrella branch add archive /mnt/tape --read-only --optional

The configuration is not changed: what to add to it is printed.")]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
struct AddArgs {
    /// Name of the branch, as used in rules.
    name: String,
    /// Its directory.
    path: PathBuf,
    /// Place nothing new here when less than this is free ("10GiB" or "5%").
    #[arg(long, value_name = "AMOUNT")]
    keep_free: Option<Amount>,
    /// Below this much free space, writes go through the daemon.
    #[arg(long, value_name = "AMOUNT")]
    headroom: Option<Amount>,
    /// Write, move and delete nothing here.
    #[arg(long)]
    read_only: bool,
    /// The pool starts without it when it is missing.
    #[arg(long)]
    optional: bool,
    /// Whether the path must be a mount point [default: if it is one now].
    #[arg(long, value_name = "BOOL")]
    require_mount: Option<bool>,
    /// A file that came here stays at least so long before a rule moves it ("1d").
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    min_stay: Option<Duration>,
    /// All reads and writes go through the daemon.
    #[arg(long)]
    no_passthrough: bool,
    #[command(flatten)]
    pool: PoolOption,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

fn duration(text: &str) -> Result<Duration, ParseDurationError> {
    parse_duration(text)
}

impl BranchArgs {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        match self.command {
            BranchCommand::Add(args) => args.run(),
            BranchCommand::Remove { name, force, pool, json } => {
                let (_, client) = super::reach(pool.pool.as_deref())?;
                let rules = rules_naming(&client, &name)?;
                client.ask(&Request::BranchRemove { name: name.clone(), force })?;
                if json {
                    output::json(&json!({ "branch": name, "removed": true, "rules": rules }))?;
                    return Ok(ExitCode::SUCCESS);
                }
                let name = quoted(&name);
                output::line(&format!("branch {name} is forgotten; remove it from the configuration too"))?;
                if !rules.is_empty() {
                    let rules = quoted_list(rules.iter().map(String::as_str));
                    output::line(&format!(
                        "still named by {rules}: edit the configuration, then `umbrella rules reload CONFIG`"
                    ))?;
                }
                Ok(ExitCode::SUCCESS)
            }
            BranchCommand::Replace(args) => args.run(),
            BranchCommand::Drain { name, stop, pool, json } => {
                let (_, client) = super::reach(pool.pool.as_deref())?;
                if stop {
                    client.ask(&Request::BranchDrainStop { name: name.clone() })?;
                    if json {
                        output::json(&json!({ "branch": name, "draining": false }))?;
                    } else {
                        output::line(&format!("branch {} takes new files again", quoted(&name)))?;
                    }
                    return Ok(ExitCode::SUCCESS);
                }
                let code = enforce::walk(&client, &Request::BranchDrain { name: name.clone() }, false, json)?;
                if !json && code == ExitCode::SUCCESS {
                    let shown = quoted(&name);
                    output::line(&format!(
                        "branch {shown} is empty and takes nothing new; `umbrella branch remove {name}` takes it out of the pool"
                    ))?;
                }
                Ok(code)
            }
            BranchCommand::List { pool, json } => {
                let (_, client) = super::reach(pool.pool.as_deref())?;
                let branches = list(&client)?;
                if json {
                    output::json(&branches)?;
                } else {
                    output::print(&render::branches(&branches))?;
                }
                Ok(ExitCode::SUCCESS)
            }
        }
    }
}

fn list(client: &Client) -> Result<Vec<BranchStatus>, ClientError> {
    match client.ask(&Request::BranchList)? {
        Answer::Branches { branches } => Ok(branches),
        _ => Err(ClientError::Unexpected),
    }
}

/// The rules (or the default list) that send files to a branch.
fn rules_naming(client: &Client, branch: &str) -> Result<Vec<String>, ClientError> {
    let Answer::Status(status) = client.ask(&Request::Status)? else { return Err(ClientError::Unexpected) };
    let names = |rule: &RuleStatus| rule.to.iter().any(|to| to == branch);
    Ok(status.rules.into_iter().filter(names).map(|rule| rule.name).collect())
}

impl AddArgs {
    fn run(self) -> anyhow::Result<ExitCode> {
        let (_, client) = super::reach(self.pool.pool.as_deref())?;
        let branch = BranchSpec {
            path: pool::absolute(&self.path)?,
            name: self.name,
            keep_free: self.keep_free.unwrap_or(Amount::Bytes(ByteSize(0))),
            headroom: self.headroom,
            read_only: self.read_only,
            optional: self.optional,
            require_mount: self.require_mount,
            min_stay: self.min_stay.unwrap_or_default(),
            passthrough: !self.no_passthrough,
            write_back: None,
        };
        let lines = configuration(&branch)?;
        let (name, path) = (branch.name.clone(), branch.path.clone());
        let may_be_plain = branch.require_mount == Some(false);
        client.ask(&Request::BranchAdd { branch })?;
        if !may_be_plain && path.canonicalize().is_ok_and(|path| mounts::at(&path).is_none()) {
            tracing::warn!(
                "branch {}: {} is a plain directory: its files lie on the disk that holds it. If a disk was to be mounted there: `umbrella branch remove {}`, mount it, add it again",
                quoted(&name),
                visible_path(&path),
                quoted(&name)
            );
        }
        if self.json {
            output::json(&json!({ "branch": name, "added": true, "configuration": lines }))?;
            return Ok(ExitCode::SUCCESS);
        }
        output::line(&format!("the branch is in the pool; to keep it, add to the configuration:\n\n{lines}"))?;
        Ok(ExitCode::SUCCESS)
    }
}

/// The branch as the configuration says it.
fn configuration(branch: &BranchSpec) -> anyhow::Result<String> {
    #[derive(Serialize)]
    struct Lines<'a> {
        branch: [Line<'a>; 1],
    }
    #[derive(Serialize)]
    struct Line<'a> {
        name: &'a str,
        path: &'a Path,
        #[serde(skip_serializing_if = "Option::is_none")]
        keep_free: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        headroom: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        read_only: Option<bool>,
        #[serde(skip_serializing_if = "Option::is_none")]
        optional: Option<bool>,
        #[serde(skip_serializing_if = "Option::is_none")]
        require_mount: Option<bool>,
        #[serde(skip_serializing_if = "Option::is_none")]
        min_stay: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        passthrough: Option<bool>,
    }
    let line = Line {
        name: &branch.name,
        path: &branch.path,
        keep_free: (branch.keep_free != Amount::Bytes(ByteSize(0))).then(|| amount(branch.keep_free)),
        headroom: branch.headroom.map(amount),
        read_only: branch.read_only.then_some(true),
        optional: branch.optional.then_some(true),
        require_mount: branch.require_mount,
        min_stay: (!branch.min_stay.is_zero()).then(|| format_duration(branch.min_stay)),
        passthrough: (!branch.passthrough).then_some(false),
    };
    Ok(toml::to_string(&Lines { branch: [line] })?)
}

/// Exactly: what is shown to people is rounded.
fn amount(amount: Amount) -> String {
    match amount {
        Amount::Bytes(bytes) => {
            let units = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
            let whole = units.iter().find(|(shift, _)| bytes.0 > 0 && bytes.0.trailing_zeros() >= *shift);
            whole.map_or_else(|| bytes.0.to_string(), |(shift, unit)| format!("{}{unit}", bytes.0 >> shift))
        }
        Amount::MilliPercent(_) => amount.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_written_exactly_and_in_units() {
        let written =
            [0, 1000, 1024, 1536, 20 << 20, 3 << 40, u64::MAX].map(|bytes| amount(Amount::Bytes(ByteSize(bytes))));
        assert_eq!(written, ["0", "1000", "1KiB", "1536", "20MiB", "3TiB", "18446744073709551615"]);
    }
}
